//! Predicates evaluated on encoded blocks.
//!
//! Codecs compare packed bits, runs and the entries of dictionaries without decoding the rows; a predicate on text
//! looks at each entry of a dictionary once. Types without the order that a comparison needs are refused.

use keirin_codecs::Result;
use keirin_codecs::floats::Float;
use keirin_codecs::frame::{Frame, Kind};
use keirin_codecs::integers::Int;
use keirin_codecs::strings::Rows;
use keirin_kernels::compare::{Comparison, compare_constant};
use keirin_kernels::text::{self, Inequality, Pad};
use keirin_kernels::{BitBuffer, Level, Selection, bitmaps};

use crate::bits;
use crate::schema::DataType;

/// A value to compare with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Constant<'p> {
    /// A boolean.
    Flag(bool),
    /// For all types that are stored as integers, decimals and times among them.
    Integer(i128),
    /// A 32-bit float.
    F32(f32),
    /// A 64-bit float.
    F64(f64),
    /// Text, binary or json, compared by bytes.
    Text(&'p [u8]),
}

/// A predicate on the values of a column. For nulls only `IsNull` is true.
#[derive(Clone, Copy)]
pub enum Predicate<'p> {
    /// The value is null.
    IsNull,
    /// The value is not null.
    IsNotNull,
    /// A comparison with a constant; floats compare by the total order.
    Compare(Comparison, Constant<'p>),
    /// A comparison of text with a constant, only where the encoding finds the rows without looking at all strings:
    /// in dictionaries.
    Place(Comparison, &'p [u8]),
    /// The value lies between two constants, both included.
    Between(Constant<'p>, Constant<'p>),
    /// A function on text that returns a bit for each row. It may get the rows in any order, or each distinct text
    /// once; in a forged file they need not be UTF-8.
    Text(&'p dyn Fn(Rows<'_>) -> BitBuffer),
}

/// Whether the predicate can be evaluated on values of this type.
pub(super) fn can_ask(data_type: &DataType, predicate: &Predicate<'_>) -> bool {
    let is_comparable = |constant: Constant<'_>| {
        matches!(
            (data_type.values(), constant),
            (Some(Kind::Flags), Constant::Flag(_))
                | (Some(Kind::F32), Constant::F32(_))
                | (Some(Kind::F64), Constant::F64(_))
                | (Some(Kind::Text), Constant::Text(_))
                | (
                    Some(
                        Kind::I8
                            | Kind::I16
                            | Kind::I32
                            | Kind::I64
                            | Kind::I128
                            | Kind::U8
                            | Kind::U16
                            | Kind::U32
                            | Kind::U64
                    ),
                    Constant::Integer(_)
                )
        )
    };
    // UUIDs are ordered by their bytes, not as numbers.
    let is_uuid = *data_type == DataType::Uuid;
    match *predicate {
        Predicate::IsNull | Predicate::IsNotNull => true,
        _ if !data_type.is_ordered() => false,
        Predicate::Text(_) | Predicate::Place(..) => data_type.values() == Some(Kind::Text),
        Predicate::Compare(Comparison::Equal | Comparison::NotEqual, constant) => is_comparable(constant),
        Predicate::Compare(_, constant) => !is_uuid && is_comparable(constant),
        Predicate::Between(least, greatest) => !is_uuid && is_comparable(least) && is_comparable(greatest),
    }
}

/// The rows of a frame that satisfy the predicate, nulls not yet taken out; `None` if the encoding cannot answer
/// it.
pub(super) fn values(level: Level, frame: Frame<'_>, predicate: &Predicate<'_>) -> Result<Option<BitBuffer>> {
    match *predicate {
        Predicate::IsNull | Predicate::IsNotNull => Ok(None),
        Predicate::Text(test) => frame.strings(level)?.test(level, test).map(Some),
        Predicate::Place(comparison, constant) => frame.strings(level)?.compare(level, comparison, constant),
        Predicate::Compare(comparison, constant) => compare(level, frame, comparison, constant),
        Predicate::Between(least, greatest) => {
            let above = compare(level, frame, Comparison::GreaterEqual, least)?;
            let below = compare(level, frame, Comparison::LessEqual, greatest)?;
            Ok(above.zip(below).map(|(above, below)| bitmaps::and(level, above.as_bits(), below.as_bits())))
        }
    }
}

fn compare(
    level: Level,
    frame: Frame<'_>,
    comparison: Comparison,
    constant: Constant<'_>,
) -> Result<Option<BitBuffer>> {
    let found = match (frame.kind(), constant) {
        (Kind::Flags, Constant::Flag(constant)) => {
            let flags = frame.flags(level)?.decode();
            let [of_false, of_true] = [false, true].map(|flag| holds(comparison, flag.cmp(&constant)));
            match (of_false, of_true) {
                (false, true) => flags,
                (true, false) => bitmaps::not(level, flags.as_bits()),
                (same, _) => same_bits(same, flags.len()),
            }
        }
        (Kind::I8, Constant::Integer(constant)) => integers::<i8>(level, frame, comparison, constant)?,
        (Kind::I16, Constant::Integer(constant)) => integers::<i16>(level, frame, comparison, constant)?,
        (Kind::I32, Constant::Integer(constant)) => integers::<i32>(level, frame, comparison, constant)?,
        (Kind::I64, Constant::Integer(constant)) => integers::<i64>(level, frame, comparison, constant)?,
        (Kind::I128, Constant::Integer(constant)) => integers::<i128>(level, frame, comparison, constant)?,
        (Kind::U8, Constant::Integer(constant)) => integers::<u8>(level, frame, comparison, constant)?,
        (Kind::U16, Constant::Integer(constant)) => integers::<u16>(level, frame, comparison, constant)?,
        (Kind::U32, Constant::Integer(constant)) => integers::<u32>(level, frame, comparison, constant)?,
        (Kind::U64, Constant::Integer(constant)) => integers::<u64>(level, frame, comparison, constant)?,
        (Kind::F32, Constant::F32(constant)) => floats(level, frame, comparison, constant)?,
        (Kind::F64, Constant::F64(constant)) => floats(level, frame, comparison, constant)?,
        (Kind::Text, Constant::Text(constant)) => {
            let column = frame.strings(level)?;
            match column.compare(level, comparison, constant)? {
                Some(found) => found,
                // No text is less than the empty one, so the lengths decide.
                None if constant.is_empty() => {
                    compare_constant(level, comparison, &column.lengths(level, Selection::All)?, 0)
                }
                None => column.test(level, |rows| compare_text(level, rows, comparison, constant))?,
            }
        }
        _ => return Ok(None),
    };
    Ok(Some(found))
}

fn integers<T: Int + TryFrom<i128>>(
    level: Level,
    frame: Frame<'_>,
    comparison: Comparison,
    constant: i128,
) -> Result<BitBuffer> {
    match T::try_from(constant) {
        Ok(constant) => frame.integers::<T>(level)?.compare(level, comparison, constant),
        // The constant is outside the type's range, so all values compare alike.
        Err(_) => Ok(same_bits(holds(comparison, 0.cmp(&constant)), frame.row_count())),
    }
}

fn floats<F: Float>(
    level: Level,
    frame: Frame<'_>,
    comparison: Comparison,
    constant: F,
) -> Result<BitBuffer> {
    frame.floats::<F>(level)?.compare(level, comparison, constant)
}

fn compare_text(level: Level, rows: Rows<'_>, comparison: Comparison, constant: &[u8]) -> BitBuffer {
    let inequality = |inequality| text::compare_constant(level, rows, inequality, constant, Pad::None);
    match comparison {
        Comparison::Equal => text::equal_constant(level, rows, constant),
        Comparison::NotEqual => bitmaps::not(level, text::equal_constant(level, rows, constant).as_bits()),
        Comparison::Less => inequality(Inequality::Less),
        Comparison::LessEqual => inequality(Inequality::LessOrEqual),
        Comparison::Greater => inequality(Inequality::Greater),
        Comparison::GreaterEqual => inequality(Inequality::GreaterOrEqual),
    }
}

fn holds(comparison: Comparison, ordering: std::cmp::Ordering) -> bool {
    match comparison {
        Comparison::Equal => ordering.is_eq(),
        Comparison::NotEqual => ordering.is_ne(),
        Comparison::Less => ordering.is_lt(),
        Comparison::LessEqual => ordering.is_le(),
        Comparison::Greater => ordering.is_gt(),
        Comparison::GreaterEqual => ordering.is_ge(),
    }
}

pub(super) fn same_bits(is_set: bool, count: usize) -> BitBuffer {
    if is_set { bits::ones(count) } else { BitBuffer::zeros(count) }
}
