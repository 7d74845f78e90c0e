//! The distinct values in ascending order, and for each row the index of its value.
//!
//! ```text
//! | entry count: u32 | entries, ascending | codes, one a row, of 32 bits |
//!                      `------------- two columns --------------------'
//! ```
//! Good for few distinct values that are far apart, or would take many bits. Since entries ascend, codes are
//! ordered as their values are, and comparisons work on the codes.

use std::fmt;

use keirin_kernels::compare::Comparison;
use keirin_kernels::gather::{gather, gather_into};
use keirin_kernels::group_table::GroupTable;
use keirin_kernels::hash::Seed;
use keirin_kernels::{BitBuffer, Level, Selection, aggregate};

use super::{BoxNode, Explain, Int, Node};
use crate::encodings::{BLOCK, grouped, same_bits};
use crate::reader::Reader;
use crate::writer::Writer;
use crate::{Error, Result};

/// With fewer rows for each entry a dictionary does not pay.
const ROWS_PER_ENTRY_MIN: usize = 2;
/// Values in a range of at most 2^16 are numbered by a table of the range, which is faster than a hash table.
const TABLE_BITS: u32 = 16;

/// The distinct values, ascending, and the code of each row.
pub(super) fn entries_and_codes<T: Int>(level: Level, values: &[T]) -> (Vec<T>, Vec<u32>) {
    let extremes = aggregate::extremes(level, values, None, Selection::All);
    let (least, greatest) = extremes.unwrap_or_default();
    let width = greatest.width(least);
    if width <= TABLE_BITS {
        return entries_and_codes_above(values, least, width);
    }
    // Random, so that nobody can choose values that collide; the entries are sorted whatever the seed.
    let mut table = GroupTable::new(Seed::random());
    let mut groups = vec![0; values.len()];
    table.find_or_insert(level, values, None, &mut groups);
    let mut order: Vec<u32> = (0_u32..).take(table.len()).collect();
    order.sort_unstable_by_key(|group| table.keys()[*group as usize]);
    let entries = gather(level, table.keys(), &order);
    let mut codes = vec![0_u32; order.len()];
    for (code, group) in (0_u32..).zip(order) {
        codes[group as usize] = code;
    }
    (entries, gather(level, &codes, &groups))
}

/// As [`entries_and_codes`], for values in a range of 2^`width`, at most 2^[`TABLE_BITS`]: their positions in
/// it are in order.
fn entries_and_codes_above<T: Int>(values: &[T], least: T, width: u32) -> (Vec<T>, Vec<u32>) {
    let mut codes = vec![0_u32; 1 << width];
    for value in values {
        codes[usize::from(value.low_u16_above(least))] = 1;
    }
    let mut count = 0;
    for code in &mut codes {
        (*code, count) = (count, count + *code);
    }
    let mut entries = vec![least; count as usize];
    let codes = values.iter().map(|value| {
        let code = codes[usize::from(value.low_u16_above(least))];
        entries[code as usize] = *value;
        code
    });
    let codes = codes.collect();
    (entries, codes)
}

pub(super) fn write<T: Int>(writer: &mut Writer, values: &[T]) -> bool {
    if !writer.may_nest() {
        return false;
    }
    let (entries, codes) = entries_and_codes(writer.level, values);
    if entries.len() > values.len() / ROWS_PER_ENTRY_MIN {
        return false;
    }
    writer.count(entries.len());
    writer.nested(|writer| {
        super::write(writer, &entries);
        super::write(writer, &codes);
    });
    true
}

#[derive(Debug)]
pub(super) struct Dict<'a, T> {
    at: usize,
    /// The distinct values, ascending.
    entries: Vec<T>,
    codes: BoxNode<'a, u32>,
}

impl<'a, T: Int> Dict<'a, T> {
    pub(super) fn open(reader: &mut Reader<'a>, count: usize) -> Result<Self> {
        let at = reader.at();
        let entry_count = reader.count(count, "more entries than rows")?;
        let entries: Vec<T> = super::read(reader, entry_count)?;
        if !entries.is_sorted_by(|entry, next| entry < next) {
            return Err(Error::Corrupt { at, reason: "entries that do not ascend" });
        }
        Ok(Self { at, entries, codes: super::open(reader, count)? })
    }

    /// Looks up the entries of codes.
    fn look_up(&self, level: Level, codes: &[u32], out: &mut [T]) -> Result<()> {
        if gather_into(level, &self.entries, codes, out) {
            return Ok(());
        }
        Err(Error::Corrupt { at: self.at, reason: "a code behind the last entry" })
    }
}

impl<T: Int> Node<T> for Dict<'_, T> {
    fn len(&self) -> usize {
        self.codes.len()
    }

    fn decode_into(&self, level: Level, first: usize, out: &mut [T]) -> Result<()> {
        let mut codes = [0_u32; BLOCK];
        for (index, out) in out.chunks_mut(BLOCK).enumerate() {
            let codes = &mut codes[..out.len()];
            self.codes.decode_into(level, first + index * BLOCK, codes)?;
            self.look_up(level, codes, out)?;
        }
        Ok(())
    }

    fn take(&self, level: Level, rows: &[u32], out: &mut Vec<T>) -> Result<()> {
        let mut codes = Vec::with_capacity(rows.len());
        self.codes.take(level, rows, &mut codes)?;
        let first = out.len();
        out.resize(first + codes.len(), T::default());
        self.look_up(level, &codes, &mut out[first..])
    }

    fn compare(&self, level: Level, comparison: Comparison, constant: T) -> Result<BitBuffer> {
        compare_codes(level, comparison, &*self.codes, self.entries.binary_search(&constant))
    }

    fn decode_ns(&self) -> f64 {
        self.codes.decode_ns() + self.len() as f64 * 0.4
    }

    fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dict({}) + {}", grouped(self.entries.len()), Explain(&*self.codes))
    }
}

/// Selects the rows for whose entries the comparison holds with a constant; `place` is its position among the
/// ascending entries.
pub(crate) fn compare_codes(
    level: Level,
    comparison: Comparison,
    codes: &dyn Node<u32>,
    place: std::result::Result<usize, usize>,
) -> Result<BitBuffer> {
    let (Ok(code) | Err(code)) = place.map(code_of).map_err(code_of);
    let comparison = match (place, comparison) {
        (Ok(_), comparison) => comparison,
        (Err(_), Comparison::Equal) => return Ok(same_bits(false, codes.len())),
        (Err(_), Comparison::NotEqual) => return Ok(same_bits(true, codes.len())),
        // Entries below the constant are those before its position.
        (Err(_), Comparison::Less | Comparison::LessEqual) => Comparison::Less,
        (Err(_), Comparison::Greater | Comparison::GreaterEqual) => Comparison::GreaterEqual,
    };
    codes.compare(level, comparison, code)
}

fn code_of(place: usize) -> u32 {
    u32::try_from(place).expect("fewer than 2^32 entries")
}
