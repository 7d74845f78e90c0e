//! Texts that begin as the one before them, of which pages have what is different.
//!
//! (parquet-format: Encodings.md, "Delta Strings".)

use bytes::Bytes;

use super::deltas::Deltas;

const CUT_OFF: &str = "its texts are cut off";
/// Lengths that are decoded at a time.
const BLOCK: usize = 256;

/// See the [module](self).
pub(super) struct Suffixes {
    bytes: Bytes,
    /// Behind the last suffix.
    at: usize,
    prefix_lengths: Deltas,
    suffix_lengths: Deltas,
    last: Vec<u8>,
}

impl Suffixes {
    /// Those of a page.
    pub(super) fn new(page: Bytes) -> Result<Self, &'static str> {
        let prefix_lengths = Deltas::new(page)?;
        let suffix_lengths = Deltas::new(prefix_lengths.rest()?)?;
        Ok(Self { bytes: suffix_lengths.rest()?, at: 0, prefix_lengths, suffix_lengths, last: Vec::new() })
    }

    /// How many texts are left.
    pub(super) fn left(&self) -> usize {
        self.prefix_lengths.left().min(self.suffix_lengths.left())
    }

    /// Passes each of the next texts to `take`.
    pub(super) fn each(
        &mut self,
        mut count: usize,
        mut take: impl FnMut(&[u8]) -> Result<(), &'static str>,
    ) -> Result<(), &'static str> {
        let within = |length: i64, whole: usize| {
            usize::try_from(length).ok().filter(|length| *length <= whole).ok_or(CUT_OFF)
        };
        let mut lengths = [[0; BLOCK]; 2];
        while count > 0 {
            let some = count.min(BLOCK);
            let [prefixes, suffixes] = &mut lengths;
            self.prefix_lengths.read(&mut prefixes[..some])?;
            self.suffix_lengths.read(&mut suffixes[..some])?;
            for (prefix, suffix) in prefixes[..some].iter().zip(&suffixes[..some]) {
                self.last.truncate(within(*prefix, self.last.len())?);
                let end = self.at + within(*suffix, self.bytes.len() - self.at)?;
                self.last.extend_from_slice(&self.bytes[self.at..end]);
                self.at = end;
                take(&self.last)?;
            }
            count -= some;
        }
        Ok(())
    }
}
