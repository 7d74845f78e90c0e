//! The hashes that filters and sketches are made of: XXH3 of values, the same in every version.

use keirin_kernels::hash::{stored_hash, stored_hashes};
use keirin_kernels::text::{Strings, Text};
use keirin_kernels::{Bits, Level};
use xxhash_rust::xxh3::xxh3_64;

use crate::column::{Column, Values};
use crate::part::Constant;
use crate::schema::DataType;

/// A number that has a hash.
pub(in crate::part) trait Hashed: Copy {
    fn hashes(level: Level, values: &[Self]) -> Vec<u64>;
}

macro_rules! words {
    ($($type:ty),*) => {$(
        impl Hashed for $type {
            fn hashes(level: Level, values: &[Self]) -> Vec<u64> {
                let mut hashes = vec![0; values.len()];
                stored_hashes(level, values, &mut hashes);
                hashes
            }
        }
    )*};
}
words!(i8, i16, i32, i64, u8, u16, u32, u64);

impl Hashed for i128 {
    fn hashes(_: Level, values: &[Self]) -> Vec<u64> {
        values.iter().map(|value| xxh3_64(&value.to_le_bytes())).collect()
    }
}

impl Hashed for f32 {
    fn hashes(_: Level, values: &[Self]) -> Vec<u64> {
        values.iter().map(|value| stored_hash(value.to_bits())).collect()
    }
}

impl Hashed for f64 {
    fn hashes(_: Level, values: &[Self]) -> Vec<u64> {
        values.iter().map(|value| stored_hash(value.to_bits())).collect()
    }
}

pub(in crate::part) fn hashes_of_text(rows: Strings<'_, i32>) -> Vec<u64> {
    (0..rows.row_count()).map(|row| xxh3_64(rows.row(row))).collect()
}

/// Keeps the hashes of rows that have a value.
pub(in crate::part) fn keep_valid(mut hashes: Vec<u64>, validity: Option<Bits<'_>>) -> Vec<u64> {
    if let Some(validity) = validity {
        let mut rows = 0..;
        hashes.retain(|_| rows.next().is_some_and(|row| validity.get(row)));
    }
    hashes
}

/// The hashes of all values of a column that are not null; `None` for types without hashes.
pub(in crate::part) fn hashes_of(
    level: Level,
    data_type: &DataType,
    column: &Column<'_>,
) -> Option<Vec<u64>> {
    let hashes = match &column.values {
        Values::I8(values) => Hashed::hashes(level, values),
        Values::I16(values) => Hashed::hashes(level, values),
        Values::I32(values) => Hashed::hashes(level, values),
        Values::I64(values) => Hashed::hashes(level, values),
        Values::U8(values) => Hashed::hashes(level, values),
        Values::U16(values) => Hashed::hashes(level, values),
        Values::U32(values) => Hashed::hashes(level, values),
        Values::U64(values) => Hashed::hashes(level, values),
        Values::F32(values) => Hashed::hashes(level, values),
        Values::F64(values) => Hashed::hashes(level, values),
        Values::I128(values) if *data_type != DataType::Interval => Hashed::hashes(level, values),
        Values::Text { offsets, bytes } => hashes_of_text(Strings::new(level, offsets, bytes).ok()?),
        _ => return None,
    };
    Some(keep_valid(hashes, column.validity_bits()))
}

/// The hash of a constant as a value of this type; `None` where no value of the type has such a hash.
pub(in crate::part) fn hash_of(data_type: &DataType, constant: &Constant<'_>) -> Option<u64> {
    use keirin_codecs::frame::Kind;
    match (data_type.values()?, constant) {
        (Kind::I128, Constant::Integer(value)) => Some(xxh3_64(&value.to_le_bytes())),
        (Kind::Flags | Kind::Text | Kind::F32 | Kind::F64, Constant::Integer(_)) => None,
        // Signed numbers are extended by their sign, as this one is.
        #[expect(clippy::cast_possible_truncation, reason = "the low bits are the number")]
        (_, Constant::Integer(value)) => Some(stored_hash(*value as i64)),
        (Kind::Text, Constant::Text(text)) => Some(xxh3_64(text)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_xxh3_of_the_bytes() {
        let level = Level::best();
        let numbers = [0, 1, -1, 435_090_932_899_640_449, i64::MIN, 0x0123_4567_89ab_cdef];
        let expected: Vec<u64> = numbers.iter().map(|number| xxh3_64(&number.to_le_bytes())).collect();
        assert_eq!(Hashed::hashes(level, &numbers), expected);
        assert_eq!(Hashed::hashes(level, &[-1_i8]), expected[2..3]);
        assert_eq!(Hashed::hashes(level, &[1.5_f32]), [xxh3_64(&u64::from(1.5_f32.to_bits()).to_le_bytes())]);
        for (number, hash) in numbers.iter().zip(&expected) {
            let found = hash_of(&DataType::I64, &Constant::Integer((*number).into()));
            assert_eq!(found, Some(*hash));
        }
        assert_eq!(hash_of(&DataType::U64, &Constant::Integer(u64::MAX.into())), Some(expected[2]));
        assert_eq!(hash_of(&DataType::Text, &Constant::Text(b"ab")), Some(xxh3_64(b"ab")));
        assert_eq!(hash_of(&DataType::Text, &Constant::Integer(1)), None);
    }
}
