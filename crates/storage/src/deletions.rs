//! Deletion vectors: which rows of a part are gone. `docs/format/part.md` draws the file.

use std::collections::BTreeMap;

use keirin_codecs::Goal;
use keirin_codecs::frame::{self, Frame, Limits};
use keirin_kernels::bitmaps::or;
use keirin_kernels::{BitBuffer, Bits, Level, count_ones};

use crate::part::STRIPE_ROWS;
use crate::wire::{Reader, Wire, Write};

/// Rows of a part that are deleted, by stripe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeletionVector {
    /// A bit for each row of the stripe, set where it is deleted; stripes without any are left out.
    stripes: BTreeMap<u32, BitBuffer>,
}

impl DeletionVector {
    /// Adds the rows of a stripe whose bit is set to the deleted ones.
    ///
    /// # Panics
    /// When the stripe was given with another count of rows before.
    pub fn delete(&mut self, level: Level, stripe: u32, rows: Bits<'_>) {
        if count_ones(level, rows) == 0 {
            return;
        }
        let owned = || BitBuffer::from_words(rows.words().collect(), rows.len());
        self.stripes
            .entry(stripe)
            .and_modify(|before| *before = or(level, before.as_bits(), rows))
            .or_insert_with(owned);
    }

    /// Adds the deleted rows of another vector of the same part.
    pub fn merge(&mut self, level: Level, other: &Self) {
        for (stripe, rows) in &other.stripes {
            self.delete(level, *stripe, rows.as_bits());
        }
    }

    /// The rows of a stripe that are deleted, if any are.
    #[must_use]
    pub fn stripe(&self, stripe: u32) -> Option<Bits<'_>> {
        self.stripes.get(&stripe).map(BitBuffer::as_bits)
    }

    /// Count of deleted rows.
    #[must_use]
    pub fn row_count(&self, level: Level) -> u64 {
        self.stripes.values().map(|rows| count_ones(level, rows.as_bits()) as u64).sum()
    }

    /// Stripes with deleted rows, and how many rows each has.
    pub(crate) fn stripes(&self) -> impl Iterator<Item = (u32, usize)> {
        self.stripes.iter().map(|(stripe, rows)| (*stripe, rows.len()))
    }

    /// # Errors
    /// When a stripe has too many rows for a frame.
    pub(crate) fn write(&self, level: Level, part: u64, row_count: u64) -> keirin_codecs::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        bytes.put_u64(part);
        bytes.put_u64(row_count);
        bytes.put_count(self.stripes.len());
        self.stripes.keys().for_each(|stripe| bytes.put_u32(*stripe));
        for rows in self.stripes.values() {
            bytes.extend(frame::of_flags(level, Goal::Smallest, rows.as_bits())?);
        }
        Ok(bytes)
    }

    pub(crate) fn read(level: Level, bytes: &[u8], part: u64, row_count: u64) -> Wire<Self> {
        let mut reader = Reader::new(bytes);
        let (found_part, found_rows) = (reader.u64()?, reader.u64()?);
        if (found_part, found_rows) != (part, row_count) {
            return reader.malformed(format!("it belongs to part {found_part} of {found_rows} rows"));
        }
        let count = reader.count(4, STRIPE_ROWS)?;
        let numbers = (0..count).map(|_| reader.u32()).collect::<Wire<Vec<u32>>>()?;
        if !numbers.is_sorted_by(|number, next| number < next) {
            return reader.malformed("stripes that do not ascend");
        }
        let mut stripes = BTreeMap::new();
        let mut rows_left = row_count;
        for number in numbers {
            // A few bytes may stand for a whole stripe of bits, so the count is checked against the part first.
            let rows = u32::try_from(rows_left.min(STRIPE_ROWS as u64)).expect("a stripe has few rows");
            let limits = Limits { rows, bytes: 1 << 20 };
            let rows = Frame::open(reader.rest(), limits)
                .and_then(|frame| Ok((frame.flags(level)?.decode(), frame.byte_count())));
            let (rows, byte_count) = rows.or_else(|error| reader.malformed(error.to_string()))?;
            reader.take(byte_count)?;
            rows_left -= rows.len() as u64;
            stripes.insert(number, rows);
        }
        reader.end()?;
        Ok(Self { stripes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deletions_add_up_and_come_back() {
        let level = Level::best();
        let rows = |deleted: &[usize], count: usize| -> BitBuffer {
            (0..count).map(|row| deleted.contains(&row)).collect()
        };
        let mut vector = DeletionVector::default();
        vector.delete(level, 3, rows(&[1, 99], 100).as_bits());
        vector.delete(level, 0, rows(&[], 65_536).as_bits());
        vector.delete(level, 0, rows(&[65_535], 65_536).as_bits());
        let mut other = DeletionVector::default();
        other.delete(level, 3, rows(&[1, 2], 100).as_bits());
        vector.merge(level, &other);
        assert_eq!(vector.row_count(level), 4);
        assert!(vector.stripe(1).is_none() && vector.stripe(3).unwrap().get(2));

        let bytes = vector.write(level, 7, 200_000).unwrap();
        assert_eq!(DeletionVector::read(level, &bytes, 7, 200_000), Ok(vector));
        assert!(DeletionVector::read(level, &bytes, 8, 200_000).is_err());
        for length in 0..bytes.len() {
            assert!(DeletionVector::read(level, &bytes[..length], 7, 200_000).is_err());
        }
    }

    #[test]
    fn rows_that_a_part_does_not_have_take_no_memory() {
        let level = Level::best();
        let all: BitBuffer = (0..STRIPE_ROWS).map(|_| true).collect();
        let mut vector = DeletionVector::default();
        (0..3).for_each(|stripe| vector.delete(level, stripe, all.as_bits()));
        let read = |row_count: u64| {
            let bytes = vector.write(level, 7, row_count).unwrap();
            assert!(bytes.len() < 300, "{} bytes stand for three stripes", bytes.len());
            DeletionVector::read(level, &bytes, 7, row_count).map_err(|error| error.to_string())
        };
        let stripe = STRIPE_ROWS as u64;
        assert_eq!(read(3 * stripe).as_ref(), Ok(&vector));
        for (row_count, left) in [(3 * stripe - 1, stripe - 1), (stripe, 0), (9, 9)] {
            let refused = read(row_count).unwrap_err();
            assert!(
                refused.contains(&format!("65536 rows or bytes of values, {left} are allowed")),
                "{refused}"
            );
        }
    }
}
