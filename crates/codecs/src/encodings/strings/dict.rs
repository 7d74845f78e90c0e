//! The distinct strings in ascending order, and for each row the index of its string.
//!
//! ```text
//! | entry count: u32 | entries, ascending | codes, one a row, of 32 bits |
//!                      `- a text column --' `--- a column ---------------'
//! ```
//! Good for strings that repeat often. A test is computed once for each entry. Since entries ascend, a comparison with
//! a constant looks for its place among them, of which it decodes a few, and then compares codes.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;

use keirin_kernels::compact;
use keirin_kernels::compare::Comparison;
use keirin_kernels::decode::expand_runs;
use keirin_kernels::gather::{gather, gather_bits};
use keirin_kernels::group_table::StringGroupTable;
use keirin_kernels::hash::{self, Seed};
use keirin_kernels::sort::{Key, Method, Values, sort_rows};
use keirin_kernels::text::Text;
use keirin_kernels::{BitBuffer, Level, Selection};

use super::{BoxNode, Buffer, Dictionary, Node, Rows, Test, check_bytes, run_test};
use crate::encodings::{BLOCK, grouped};
use crate::integers::{self, Explain};
use crate::reader::Reader;
use crate::writer::Writer;
use crate::{Error, Result};

/// With fewer rows for each entry a dictionary does not pay.
const ROWS_PER_ENTRY_MIN: usize = 2;

/// With more entries for each row that is wanted, entries are decoded one by one and not all.
const ENTRIES_PER_ROW_MIN: usize = 4;

/// The distinct strings in order of first occurrence, and the number of each row's string.
fn number(level: Level, rows: Rows<'_>) -> (StringGroupTable, Vec<u32>) {
    // Random, so that nobody can choose strings that collide; the entries are sorted whatever the seed.
    let mut table = StringGroupTable::new(Seed::random());
    let mut groups = vec![0; rows.row_count()];
    let mut find = |rows: Rows<'_>, groups: &mut [u32]| {
        table.find_or_insert(level, hash::Strings::Offsets32(rows.offsets(), rows.bytes()), None, groups);
    };
    match run_ends(rows) {
        None => find(rows, &mut groups),
        Some(ends) => {
            let last: Vec<u32> = ends.iter().map(|end| end - 1).collect();
            let (offsets, bytes) =
                compact::gather_strings(level, compact::Strings::new(rows.offsets(), rows.bytes()), &last);
            let mut of_runs = vec![0; last.len()];
            find(Buffer { offsets, bytes }.rows(level), &mut of_runs);
            expand_runs(level, &of_runs, &ends, 0, &mut groups);
        }
    }
    (table, groups)
}

/// The ends of runs of equal strings, if they have two rows on average: comparing a row with the one before
/// takes less time than a look-up in a table.
fn run_ends(rows: Rows<'_>) -> Option<Vec<u32>> {
    let count = u32::try_from(rows.row_count()).ok().filter(|count| *count > 0)?;
    let mut ends = Vec::new();
    for row in 1..count {
        if rows.row(row as usize) != rows.row(row as usize - 1) {
            ends.push(row);
            if ends.len() * 2 > count as usize {
                return None;
            }
        }
    }
    ends.push(count);
    Some(ends)
}

/// Whether a sample has so few distinct strings that a dictionary of the whole column is worth trying.
pub(super) fn is_promising(level: Level, sample: Rows<'_>) -> bool {
    /// The fewest rows in a sample for each distinct string.
    const SAMPLE_ROWS_PER_ENTRY_MIN: f64 = 1.5;
    number(level, sample).0.len() as f64 * SAMPLE_ROWS_PER_ENTRY_MIN <= sample.row_count() as f64
}

/// The numbers of the distinct strings in ascending order of the strings.
fn ascending(level: Level, rows: Rows<'_>) -> Vec<u32> {
    let key = Key { values: Values::Text(rows), validity: None, is_descending: false, nulls_first: false };
    sort_rows(level, Method::Radix, &[key], rows.row_count())
}

pub(super) fn write(writer: &mut Writer, rows: Rows<'_>) -> bool {
    if !writer.may_nest() {
        return false;
    }
    let (table, groups) = number(writer.level, rows);
    if table.len() > rows.row_count() / ROWS_PER_ENTRY_MIN {
        return false;
    }
    let entry = |group: u32| table.get(group).expect("no group is that of nulls");
    let found: Buffer = (0_u32..).take(table.len()).map(entry).collect();
    let order = ascending(writer.level, found.rows(writer.level));
    let (offsets, bytes) =
        compact::gather_strings(writer.level, compact::Strings::new(&found.offsets, &found.bytes), &order);
    let entries = Buffer { offsets, bytes };
    let mut codes = vec![0_u32; order.len()];
    for (code, group) in (0_u32..).zip(order) {
        codes[group as usize] = code;
    }
    let codes = gather(writer.level, &codes, &groups);
    writer.count(table.len());
    writer.nested(|writer| {
        let entries = entries.rows(writer.level);
        super::write(writer, entries);
        integers::write(writer, &codes);
    });
    if writer.is_outermost() {
        writer.entries = Some(entries);
    }
    true
}

#[derive(Debug)]
pub(super) struct Dict<'a> {
    at: usize,
    entries: BoxNode<'a>,
    decoded: OnceLock<Buffer>,
    codes: integers::BoxNode<'a, u32>,
}

impl<'a> Dict<'a> {
    pub(super) fn open(reader: &mut Reader<'a>, count: usize, byte_limit: usize) -> Result<Self> {
        let at = reader.at();
        let entry_count = reader.count(count, "more entries than rows")?;
        let entries = super::open(reader, entry_count, byte_limit)?;
        Ok(Self { at, entries, decoded: OnceLock::new(), codes: integers::open(reader, count)? })
    }

    fn entries(&self, level: Level, byte_limit: usize) -> Result<&Buffer> {
        if let Some(entries) = self.decoded.get() {
            return Ok(entries);
        }
        let mut entries = Buffer::with_capacity(0);
        self.entries.decode_into(level, 0..self.entries.len(), byte_limit, &mut entries)?;
        Ok(self.decoded.get_or_init(|| entries))
    }

    fn check(&self, codes: &[u32]) -> Result<()> {
        let greatest = codes.iter().fold(0, |greatest, code| greatest.max(*code));
        if !codes.is_empty() && greatest as usize >= self.entries.len() {
            return Err(Error::Corrupt { at: self.at, reason: "a code behind the last entry" });
        }
        Ok(())
    }

    /// The place of a string among the entries, or where it would be: bytes that another program wrote may not
    /// ascend, and then it is some place.
    fn place(
        &self,
        level: Level,
        byte_limit: usize,
        wanted: &[u8],
    ) -> Result<std::result::Result<usize, usize>> {
        let mut places = 0..self.entries.len();
        while !places.is_empty() {
            let middle = places.start + places.len() / 2;
            let row = u32::try_from(middle).expect("fewer than 2^32 entries");
            let entry = self.entries.take(level, &[row], byte_limit)?;
            match entry.bytes[..].cmp(wanted) {
                Ordering::Equal => return Ok(Ok(middle)),
                Ordering::Less => places.start = middle + 1,
                Ordering::Greater => places.end = middle,
            }
        }
        Ok(Err(places.start))
    }

    /// Looks up the entries of codes.
    fn look_up(&self, level: Level, codes: &[u32], byte_limit: usize) -> Result<Buffer> {
        self.check(codes)?;
        let Buffer { offsets, bytes } = self.entries(level, byte_limit)?;
        let lengths = codes.iter().map(|code| {
            // The lengths in a buffer are not negative.
            (offsets[*code as usize + 1] - offsets[*code as usize]) as usize
        });
        check_bytes(lengths.fold(0, usize::saturating_add), byte_limit)?;
        let entries = compact::Strings::new(offsets, bytes);
        let (offsets, bytes) = compact::gather_strings(level, entries, codes);
        Ok(Buffer { offsets, bytes })
    }

    /// As [`Self::look_up`], decoding no other entries than these: ascending, for what lies side by side is decoded
    /// together.
    fn look_up_few(&self, level: Level, codes: &[u32], byte_limit: usize) -> Result<Buffer> {
        self.check(codes)?;
        let mut wanted = codes.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        let found = self.entries.take(level, &wanted, byte_limit)?;
        let place = |code: &u32| wanted.partition_point(|wanted| wanted < code);
        let places: Vec<u32> =
            codes.iter().map(|code| u32::try_from(place(code)).expect("no more than codes")).collect();
        let lengths =
            places.iter().map(|place| found.offsets[*place as usize + 1] - found.offsets[*place as usize]);
        check_bytes(lengths.fold(0, |sum, length| sum + length as usize), byte_limit)?;
        let entries = compact::Strings::new(&found.offsets, &found.bytes);
        let (offsets, bytes) = compact::gather_strings(level, entries, &places);
        Ok(Buffer { offsets, bytes })
    }
}

impl Node for Dict<'_> {
    fn len(&self) -> usize {
        self.codes.len()
    }

    fn decode_into(
        &self,
        level: Level,
        rows: Range<usize>,
        byte_limit: usize,
        out: &mut Buffer,
    ) -> Result<()> {
        let mut codes = vec![0; rows.len()];
        self.codes.decode_into(level, rows.start, &mut codes)?;
        *out = self.look_up(level, &codes, byte_limit)?;
        Ok(())
    }

    fn take(&self, level: Level, rows: &[u32], byte_limit: usize) -> Result<Buffer> {
        let mut codes = Vec::with_capacity(rows.len());
        self.codes.take(level, rows, &mut codes)?;
        if self.decoded.get().is_none() && codes.len() * ENTRIES_PER_ROW_MIN < self.entries.len() {
            return self.look_up_few(level, &codes, byte_limit);
        }
        self.look_up(level, &codes, byte_limit)
    }

    fn lengths(&self, level: Level) -> Result<Vec<i32>> {
        let mut codes = vec![0; self.len()];
        self.codes.decode_into(level, 0, &mut codes)?;
        self.check(&codes)?;
        Ok(gather(level, &self.entries.lengths(level)?, &codes))
    }

    fn dictionary(
        &self,
        level: Level,
        selection: Selection<'_>,
        byte_limit: usize,
    ) -> Result<Option<Dictionary>> {
        if selection.count(level, self.len()) < self.entries.len() {
            return Ok(None);
        }
        let codes = crate::encodings::select(
            level,
            selection,
            self.len(),
            self.codes.decode_ns(),
            |rows, out| self.codes.take(level, rows, out),
            |first, out| self.codes.decode_into(level, first, out),
        )?;
        self.check(&codes)?;
        Ok(Some(Dictionary { codes, entries: self.entries(level, byte_limit)?.clone() }))
    }

    fn test(&self, level: Level, byte_limit: usize, test: &mut Test<'_>) -> Result<BitBuffer> {
        let found = run_test(test, self.entries(level, byte_limit)?.rows(level));
        let mut words = Vec::with_capacity(self.len().div_ceil(64));
        integers::for_each_block(&*self.codes, level, 0..self.len(), |codes| {
            self.check(codes)?;
            words.extend(gather_bits(level, found.as_bits(), codes).into_words());
            Ok(())
        })?;
        Ok(BitBuffer::from_words(words, self.len()))
    }

    fn compare(
        &self,
        level: Level,
        byte_limit: usize,
        comparison: Comparison,
        constant: &[u8],
    ) -> Result<Option<BitBuffer>> {
        let place = self.place(level, byte_limit, constant)?;
        integers::compare_codes(level, comparison, &*self.codes, place).map(Some)
    }

    fn decode_ns(&self) -> f64 {
        self.codes.decode_ns() + self.entries.decode_ns()
    }

    fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dict({}) + {}", grouped(self.entries.len()), Explain(&*self.codes))
    }
}

const _: () = assert!(BLOCK.is_multiple_of(64), "blocks of bits are whole words");
