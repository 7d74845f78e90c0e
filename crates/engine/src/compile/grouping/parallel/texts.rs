//! The texts of a key by their numbers.

use arrow::buffer::Buffer;
use keirin_operators::texts::{NULL_TEXT, SHARD_BITS, SHARDS, Texts};

/// All texts of a key, when no more come.
pub(super) struct KnownTexts {
    /// By shard.
    views: Vec<Vec<u128>>,
    /// The number of the first part of each shard.
    first_parts: Vec<u32>,
    parts: Vec<Buffer>,
}

impl KnownTexts {
    /// Takes them.
    pub(super) fn new(texts: &Texts) -> Self {
        let mut known =
            Self { views: Vec::with_capacity(SHARDS), first_parts: Vec::new(), parts: Vec::new() };
        for (views, parts) in texts.take() {
            known.views.push(views);
            known.first_parts.push(u32::try_from(known.parts.len()).expect("few parts"));
            known.parts.extend(parts.into_iter().map(Buffer::from_vec));
        }
        known
    }

    /// How many texts a shard has.
    pub(super) fn count(&self, shard: usize) -> usize {
        self.views[shard].len()
    }

    /// What views point into.
    pub(super) fn parts(&self) -> &[Buffer] {
        &self.parts
    }

    /// The views of texts; that of no text is empty.
    pub(super) fn views(&self, numbers: &[u32]) -> Vec<u128> {
        /// The bytes of the longest text that is in its view.
        const INLINE_BYTES: u32 = 12;
        let view = |number: &u32| {
            if *number == NULL_TEXT {
                return 0;
            }
            let shard = *number as usize % SHARDS;
            let view = self.views[shard][(number >> SHARD_BITS) as usize];
            #[expect(clippy::cast_possible_truncation, reason = "the low bits are the length")]
            let is_long = view as u32 > INLINE_BYTES;
            if is_long { view + (u128::from(self.first_parts[shard]) << u64::BITS) } else { view }
        };
        numbers.iter().map(view).collect()
    }
}
