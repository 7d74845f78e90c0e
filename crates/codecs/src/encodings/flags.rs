//! Flags as bytes: booleans, and validity bitmaps.
//!
//! ```text
//! | 0: u8 | bits, least significant first, zeros behind the last |
//! | 1: u8 | flag of all rows: u8 |
//! | 2: u8 | flag of the first run: u8 | run count: u32 | ends: the row behind each run |
//!                                                        `--- a column of integers --'
//! ```
//! Raw bits are used without a copy. Runs alternate between set and unset; they pay from some 60 rows a run
//! on.

use keirin_kernels::compact::compact_bits;
use keirin_kernels::gather::gather_bits;
use keirin_kernels::{BitBuffer, Bits, Level, Selection, count_ones};

use super::{check_count, check_rows, grouped, same_bits, set_bits};
use crate::blocks::Codec;
use crate::integers;
use crate::judge::{Judge, Verdict};
use crate::reader::Reader;
use crate::writer::Writer;
use crate::{Choice, Error, Result};

/// An encoding of flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Encoding {
    /// The bits themselves.
    Raw,
    /// All flags are the same.
    Constant,
    /// The ends of runs of equal flags.
    Runs,
}

impl Encoding {
    /// All encodings, in the order of their ids.
    pub const ALL: [Self; 3] = [Self::Raw, Self::Constant, Self::Runs];
}

/// Encodes `flags` in the way that `choice` prefers.
///
/// # Errors
/// When there are 2^32 flags or more.
pub fn encode(level: Level, choice: impl Into<Choice>, flags: Bits<'_>) -> Result<Vec<u8>> {
    check_count(flags.len())?;
    let mut writer = Writer::new(level, choice.into());
    write(&mut writer, flags);
    Ok(writer.bytes)
}

/// Appends the best encoding of `flags`; returns how to compress it.
pub(crate) fn write(writer: &mut Writer, flags: Bits<'_>) -> Codec {
    writer.column(
        &Encoding::ALL,
        |writer| choose(writer, flags),
        |writer, encoding| write_as(writer, encoding, flags),
    )
}

fn choose(writer: &Writer, flags: Bits<'_>) -> Verdict<Encoding> {
    let mut judge = Judge::new(writer, flags.len(), None);
    for encoding in [Encoding::Constant, Encoding::Raw, Encoding::Runs] {
        let mut trial = writer.trial();
        if write_as(&mut trial, encoding, flags) {
            let open = || Column::open(writer.level, &trial.bytes, flags.len());
            let decode_ns = open().expect("what was written can be read").decode_ns();
            judge.consider(encoding, &trial.bytes, 1.0, decode_ns, || {
                let _ = open().expect("what was written can be read").decode();
            });
        }
    }
    judge.verdict().expect("bits can hold any flags")
}

/// Encodes `flags` in this encoding; `None` if it cannot hold them, or their runs are too short to pay.
///
/// # Errors
/// When there are 2^32 flags or more.
pub fn encode_as(
    level: Level,
    choice: impl Into<Choice>,
    encoding: Encoding,
    flags: Bits<'_>,
) -> Result<Option<Vec<u8>>> {
    check_count(flags.len())?;
    let mut writer = Writer::new(level, choice.into());
    Ok(write_as(&mut writer, encoding, flags).then_some(writer.bytes))
}

/// Appends this encoding of `flags`, or nothing if it cannot hold them.
fn write_as(writer: &mut Writer, encoding: Encoding, flags: Bits<'_>) -> bool {
    let start = writer.bytes.len();
    writer.bytes.push(encoding as u8);
    let is_written = match encoding {
        Encoding::Raw => {
            let bytes = flags.words().flat_map(u64::to_le_bytes).take(flags.len().div_ceil(8));
            writer.bytes.extend(bytes);
            true
        }
        Encoding::Constant => {
            let count = count_ones(writer.level, flags);
            writer.bytes.push(u8::from(count > 0));
            count == 0 || count == flags.len()
        }
        Encoding::Runs => match ends(flags) {
            Some(ends) => {
                writer.bytes.push(u8::from(flags.get(0)));
                writer.count(ends.len());
                writer.nested(|writer| integers::write(writer, &ends));
                true
            }
            None => false,
        },
    };
    if !is_written {
        writer.bytes.truncate(start);
    }
    is_written
}

/// The end of each run, that is the row behind it; `None` when there are no rows, or the runs are too short
/// to pay.
fn ends(flags: Bits<'_>) -> Option<Vec<u32>> {
    const RUN_MIN: usize = 8;
    let mut ends = Vec::new();
    let mut before = u64::from(!flags.is_empty() && flags.get(0));
    for (index, word) in flags.words().enumerate() {
        // A one for each flag that differs from the one before it.
        let mut changes = word ^ (word << 1 | before);
        before = word >> 63;
        let rest = flags.len() - index * 64;
        if rest < 64 {
            changes &= (1 << rest) - 1;
        }
        while changes != 0 {
            let row = index * 64 + changes.trailing_zeros() as usize;
            ends.push(u32::try_from(row).expect("fewer than 2^32 rows"));
            changes &= changes - 1;
        }
        if ends.len() > flags.len() / RUN_MIN {
            return None;
        }
    }
    (!flags.is_empty()).then(|| {
        ends.push(u32::try_from(flags.len()).expect("fewer than 2^32 rows"));
        ends
    })
}

#[derive(Debug)]
enum Node<'a> {
    Raw(Bits<'a>),
    Constant(bool),
    /// The flag of the first run, and the ends: ascending, the last is the count of rows.
    Runs(bool, Vec<u32>),
}

/// An opened column of encoded flags.
#[derive(Debug)]
pub struct Column<'a> {
    node: Node<'a>,
    count: usize,
}

impl<'a> Column<'a> {
    /// Opens the encoding of `row_count` flags. The caller vouches for the count.
    ///
    /// # Errors
    /// When the bytes are not an encoding of `row_count` flags.
    pub fn open(level: Level, bytes: &'a [u8], row_count: usize) -> Result<Self> {
        let mut reader = Reader::new(level, bytes);
        let flag = |reader: &mut Reader<'_>| {
            let at = reader.at();
            match reader.u8()? {
                0 => Ok(false),
                1 => Ok(true),
                _ => Err(Error::Corrupt { at, reason: "a flag that is neither 0 nor 1" }),
            }
        };
        let node = match reader.encoding(&Encoding::ALL)? {
            Encoding::Raw => Node::Raw(Bits::new(reader.take(row_count.div_ceil(8))?, 0, row_count)),
            Encoding::Constant => Node::Constant(flag(&mut reader)?),
            Encoding::Runs => {
                let first = flag(&mut reader)?;
                let run_count = reader.count(row_count, "more runs than rows")?;
                let ends = integers::read_ends(&mut reader, run_count, row_count)?;
                Node::Runs(first, ends)
            }
        };
        reader.end()?;
        Ok(Self { node, count: row_count })
    }

    /// Count of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The flags without a copy, if they are stored as plain bits.
    #[must_use]
    pub fn as_bits(&self) -> Option<Bits<'a>> {
        match &self.node {
            Node::Raw(bits) => Some(*bits),
            _ => None,
        }
    }

    /// All flags.
    #[must_use]
    pub fn decode(&self) -> BitBuffer {
        self.decode_range(0, self.count)
    }

    /// Flags `first .. first + count`.
    ///
    /// # Panics
    /// When there are fewer.
    #[must_use]
    pub fn decode_range(&self, first: usize, count: usize) -> BitBuffer {
        let end = first.saturating_add(count);
        assert!(end <= self.count, "rows {first}..{end} of {}", self.count);
        match &self.node {
            Node::Raw(bits) => BitBuffer::from_words(bits.slice(first, count).words().collect(), count),
            Node::Constant(flag) => same_bits(*flag, count),
            Node::Runs(flag, ends) => {
                let mut words = vec![0; count.div_ceil(64)];
                let run = ends.partition_point(|end| *end as usize <= first);
                let (mut start, mut is_set) = (first, *flag ^ !run.is_multiple_of(2));
                for run_end in &ends[run..] {
                    let run_end = (*run_end as usize).min(end);
                    if is_set {
                        set_bits(&mut words, start - first..run_end - first);
                    }
                    if run_end == end {
                        break;
                    }
                    (start, is_set) = (run_end, !is_set);
                }
                BitBuffer::from_words(words, count)
            }
        }
    }

    /// The flags of selected rows.
    ///
    /// # Panics
    /// When the selection has rows beyond the end.
    #[must_use]
    pub fn select(&self, level: Level, selection: Selection<'_>) -> BitBuffer {
        if let Node::Constant(flag) = self.node {
            match selection {
                Selection::All => {}
                Selection::Rows(rows) => check_rows(rows, self.count),
                Selection::Bits(kept) => assert_eq!(kept.len(), self.count, "a bit for each row"),
            }
            return same_bits(flag, selection.count(level, self.count));
        }
        let decoded;
        let bits = match &self.node {
            Node::Raw(bits) => *bits,
            _ => {
                decoded = self.decode();
                decoded.as_bits()
            }
        };
        match selection {
            Selection::All => self.decode(),
            Selection::Rows(rows) => gather_bits(level, bits, rows),
            Selection::Bits(kept) => compact_bits(level, bits, kept),
        }
    }

    /// Count of flags that are set.
    #[must_use]
    pub fn count_ones(&self, level: Level) -> usize {
        match &self.node {
            Node::Raw(bits) => count_ones(level, *bits),
            Node::Constant(flag) => {
                if *flag {
                    self.count
                } else {
                    0
                }
            }
            Node::Runs(flag, ends) => {
                let starts = std::iter::once(&0).chain(ends);
                let runs = starts.zip(ends).skip(usize::from(!flag)).step_by(2);
                runs.map(|(start, end)| (end - start) as usize).sum()
            }
        }
    }

    /// A description of the encoding.
    #[must_use]
    pub fn explain(&self) -> String {
        match &self.node {
            Node::Raw(_) => "raw".to_owned(),
            Node::Constant(_) => "constant".to_owned(),
            Node::Runs(_, ends) => format!("runs({})", grouped(ends.len())),
        }
    }

    fn decode_ns(&self) -> f64 {
        match &self.node {
            // These need no decoding.
            Node::Raw(_) | Node::Constant(_) => 0.0,
            Node::Runs(_, ends) => ends.len() as f64 * 2.0,
        }
    }
}
