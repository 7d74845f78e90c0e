//! A sample of the rows of a part, drawn while it is written.
//!
//! The rows with the least hashes of their numbers are in it: each row is as likely as any other, and rows that come
//! later push out earlier ones.

use std::ops::Range;

use keirin_kernels::Level;
use keirin_kernels::hash::stored_hash;

use super::has_details;
use crate::bits;
use crate::column::{Column, Flags, Values};
use crate::error::Result;
use crate::schema::{DataType, Definition};

/// Rows of a sample.
pub(super) const SAMPLE_ROWS: usize = if cfg!(test) { 32 } else { 1024 };
/// Bytes of a text that are kept.
pub(super) const TEXT_BYTES_MAX: usize = 128;

/// Draws a sample.
#[derive(Debug)]
pub(in crate::part) struct Sampler {
    /// Ascending numbers of the rows, each with its hash.
    rows: Vec<(u64, u64)>,
    /// The least hash that is not in the sample any more.
    bound: u64,
    /// By column; `None` for columns that have no details.
    columns: Vec<Option<Column<'static>>>,
}

impl Sampler {
    pub(in crate::part) fn new(definition: &Definition) -> Self {
        let column = |data_type: &DataType| has_details(data_type).then(|| Column::empty(data_type));
        let columns = definition.fields.iter().map(|field| column(&field.data_type)).collect();
        Self { rows: Vec::new(), bound: u64::MAX, columns }
    }

    /// Draws from rows of these numbers. Their values are rows of `columns`, in this order if there is one.
    pub(in crate::part) fn add(
        &mut self,
        level: Level,
        rows: Range<u64>,
        columns: &[Column<'_>],
        order: Option<&[u32]>,
    ) -> Result<()> {
        let first = rows.start;
        let mut drawn: Vec<(u64, u64)> =
            rows.map(|row| (row, stored_hash(row))).filter(|(_, hash)| *hash < self.bound).collect();
        if let Some(bound) = bound(&drawn) {
            drawn.retain(|(_, hash)| *hash < bound);
        }
        if drawn.is_empty() {
            return Ok(());
        }
        let place = |(row, _): &(u64, u64)| usize::try_from(row - first).expect("rows of a stripe");
        let places: Vec<u32> = drawn
            .iter()
            .map(|row| {
                order.map_or_else(|| u32::try_from(place(row)).expect("a stripe"), |order| order[place(row)])
            })
            .collect();
        for (sample, column) in self.columns.iter_mut().zip(columns) {
            if let Some(sample) = sample {
                sample.append(&taken(level, column, &places))?;
            }
        }
        self.rows.extend(drawn);
        let Some(bound) = bound(&self.rows) else { return Ok(()) };
        self.bound = bound;
        let kept: Vec<u32> =
            (0..).zip(&self.rows).filter(|(_, (_, hash))| *hash < bound).map(|(place, _)| place).collect();
        self.rows.retain(|(_, hash)| *hash < bound);
        for sample in self.columns.iter_mut().flatten() {
            *sample = sample.take(level, &kept);
        }
        Ok(())
    }

    /// The numbers of the rows, ascending.
    pub(in crate::part) fn rows(&self) -> Vec<u64> {
        self.rows.iter().map(|(row, _)| *row).collect()
    }

    /// The values of a column.
    pub(in crate::part) fn column(&self, index: usize) -> Option<&Column<'static>> {
        self.columns[index].as_ref()
    }
}

/// The hash from which on rows are too many.
fn bound(rows: &[(u64, u64)]) -> Option<u64> {
    let mut hashes: Vec<u64> = rows.iter().map(|(_, hash)| *hash).collect();
    (hashes.len() > SAMPLE_ROWS).then(|| *hashes.select_nth_unstable(SAMPLE_ROWS).1)
}

/// Rows of a column; of long text the beginning.
fn taken(level: Level, column: &Column<'_>, rows: &[u32]) -> Column<'static> {
    let Values::Text { offsets, bytes } = &column.values else { return column.take(level, rows) };
    let (mut ends, mut kept) = (vec![0], Vec::new());
    for row in rows {
        let place = |row: u32| usize::try_from(offsets[row as usize]).unwrap_or(0);
        kept.extend(beginning(&bytes[place(*row)..place(*row + 1)]));
        ends.push(i32::try_from(kept.len()).expect("few rows of few bytes"));
    }
    let validity = column
        .validity_bits()
        .map(|validity| Flags::Owned(rows.iter().map(|row| validity.get(*row as usize)).collect()));
    Column { validity, values: Values::Text { offsets: ends.into(), bytes: kept.into() } }
}

/// The first bytes of a text; of UTF-8 whole characters.
fn beginning(text: &[u8]) -> &[u8] {
    const CONTINUATION_MAX: usize = 3;
    if text.len() <= TEXT_BYTES_MAX {
        return text;
    }
    // No character begins with one of these bytes.
    let is_continuation = |byte: u8| byte & 0xc0 == 0x80;
    let cut = (0..=CONTINUATION_MAX).map(|count| TEXT_BYTES_MAX - count);
    let end = cut.into_iter().find(|end| !is_continuation(text[*end])).unwrap_or(TEXT_BYTES_MAX);
    &text[..end]
}

/// A bit for each row of a sample: whether it has a value.
pub(super) fn validity(column: &Column<'_>) -> keirin_kernels::BitBuffer {
    column.validity.clone().map_or_else(|| bits::ones(column.row_count()), Flags::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_the_rows_is_in_the_sample() {
        let level = Level::best();
        let definition = Definition::new("main", "t", vec![("a", DataType::I64), ("b", DataType::Text)]);
        let mut sampler = Sampler::new(&definition);
        let order: Vec<u32> = (0..100).rev().collect();
        for piece in 0..50_i64 {
            let values: Vec<i64> = (piece * 100..piece * 100 + 100).rev().collect();
            let text: Vec<u8> = values.iter().flat_map(|value| format!("{value:04}").into_bytes()).collect();
            let offsets: Vec<i32> = (0..=100).map(|row| row * 4).collect();
            let columns = [
                Column { validity: None, values: Values::I64(values.into()) },
                Column {
                    validity: None,
                    values: Values::Text { offsets: offsets.into(), bytes: text.into() },
                },
            ];
            let first = u64::try_from(piece).unwrap() * 100;
            sampler.add(level, first..first + 100, &columns, Some(&order)).unwrap();
        }
        let rows = sampler.rows();
        assert_eq!(rows.len(), SAMPLE_ROWS);
        assert!(rows.is_sorted() && rows[0] < 1000 && rows[SAMPLE_ROWS - 1] > 4000);
        let mut expected: Vec<u64> = (0..5000).collect();
        expected.sort_by_key(|row| stored_hash(*row));
        expected.truncate(SAMPLE_ROWS);
        expected.sort_unstable();
        assert_eq!(rows, expected);
        let Values::I64(values) = &sampler.column(0).unwrap().values else { panic!("numbers") };
        assert!(values.iter().zip(&rows).all(|(value, row)| value.cast_unsigned() == *row));
        let Values::Text { bytes, .. } = &sampler.column(1).unwrap().values else { panic!("text") };
        assert!(bytes.chunks(4).zip(&rows).all(|(text, row)| text == format!("{row:04}").as_bytes()));
    }

    #[test]
    fn long_text_ends_with_a_character() {
        let check = |text: &str, bytes: usize| {
            let kept = beginning(text.as_bytes());
            assert_eq!(kept.len(), bytes);
            assert!(std::str::from_utf8(kept).is_ok());
        };
        check(&"a".repeat(128), 128);
        check(&"a".repeat(129), 128);
        check(&"ß".repeat(100), 128);
        check(&format!("a{}", "ß".repeat(100)), 127);
        check(&format!("a{}", "\u{1f600}".repeat(100)), 125);
        assert_eq!(beginning(&[0x80; 200]).len(), 128);
    }
}
