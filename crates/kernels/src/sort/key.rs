//! Columns to sort by, and the numbers that order as their values do.

use std::cmp::Ordering;

use crate::Bits;
use crate::aggregate::Ordered;
use crate::text::{Strings, Text};

/// A column to sort by.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// The values.
    pub values: Values<'a>,
    /// A bit for each row that is not null; `None` if none is.
    pub validity: Option<Bits<'a>>,
    /// Whether the largest value comes first.
    pub is_descending: bool,
    /// Whether nulls come before all values, else after them.
    pub nulls_first: bool,
}

/// The values of a column, by type. Floating-point numbers are in total order: -NaN, numbers, NaN.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the names of types say it all")]
pub enum Values<'a> {
    Bool(Bits<'a>),
    I8(&'a [i8]),
    I16(&'a [i16]),
    I32(&'a [i32]),
    I64(&'a [i64]),
    I128(&'a [i128]),
    U8(&'a [u8]),
    U16(&'a [u16]),
    U32(&'a [u32]),
    U64(&'a [u64]),
    F32(&'a [f32]),
    F64(&'a [f64]),
    Text(Strings<'a, i32>),
    LargeText(Strings<'a, i64>),
    /// Texts that lie apart.
    Slices(&'a [&'a [u8]]),
}

/// A value with a number, its rank, that orders in the same way.
pub(super) trait Ranked: Copy {
    fn rank(self) -> u64;
}

macro_rules! ranked {
    ($($type:ty: $value:ident => $rank:expr;)*) => {
        $(impl Ranked for $type {
            #[inline(always)]
            fn rank(self) -> u64 {
                let $value = self;
                $rank
            }
        })*
    };
}

/// XORed to flip the sign bit, so that negative numbers come before positive ones.
const SIGN: u64 = 1 << 63;

ranked! {
    u8: value => value.into();
    u16: value => value.into();
    u32: value => value.into();
    u64: value => value;
    i8: value => i64::from(value).rank();
    i16: value => i64::from(value).rank();
    i32: value => i64::from(value).rank();
    i64: value => value.cast_unsigned() ^ SIGN;
    f32: value => value.key().rank();
    f64: value => value.key().rank();
}

/// Runs `$body` with `$values` as the slice of a fixed-width column; `$other` for the rest.
macro_rules! for_ranked {
    ($column:expr, $values:ident => $body:expr, $other:pat => $rest:expr) => {
        match $column {
            Values::I8($values) => $body,
            Values::I16($values) => $body,
            Values::I32($values) => $body,
            Values::I64($values) => $body,
            Values::U8($values) => $body,
            Values::U16($values) => $body,
            Values::U32($values) => $body,
            Values::U64($values) => $body,
            Values::F32($values) => $body,
            Values::F64($values) => $body,
            $other => $rest,
        }
    };
}
pub(super) use for_ranked;

/// The halves of a 128-bit number, each with an order of its own: first by the high, then by the low one.
pub(super) fn halves(value: i128) -> [u64; 2] {
    let low = u64::try_from(value & i128::from(u64::MAX)).expect("64 bits are left");
    let high = i64::try_from(value >> 64).expect("64 bits are left");
    [high.rank(), low]
}

impl Values<'_> {
    /// Count of rows.
    pub(super) fn row_count(&self) -> usize {
        for_ranked!(*self, values => values.len(), other => match other {
            Values::Bool(bits) => bits.len(),
            Values::I128(values) => values.len(),
            Values::Text(text) => text.row_count(),
            Values::LargeText(text) => text.row_count(),
            Values::Slices(texts) => texts.len(),
            _ => unreachable!("for_ranked! has the others"),
        })
    }

    fn compare(&self, left: usize, right: usize) -> Ordering {
        for_ranked!(*self, values => values[left].rank().cmp(&values[right].rank()), other => match other {
            Values::Bool(bits) => bits.get(left).cmp(&bits.get(right)),
            Values::I128(values) => values[left].cmp(&values[right]),
            Values::Text(text) => text.row(left).cmp(text.row(right)),
            Values::LargeText(text) => text.row(left).cmp(text.row(right)),
            Values::Slices(texts) => texts[left].cmp(texts[right]),
            _ => unreachable!("for_ranked! has the others"),
        })
    }
}

impl Key<'_> {
    #[inline(always)]
    pub(super) fn is_valid(&self, row: usize) -> bool {
        self.validity.is_none_or(|validity| validity.get(row))
    }

    /// The order of two rows by this key alone: it defines the sort, and sorts short runs.
    pub(super) fn compare(&self, left: usize, right: usize) -> Ordering {
        let nulls =
            |null_left: bool| if null_left == self.nulls_first { Ordering::Less } else { Ordering::Greater };
        match (self.is_valid(left), self.is_valid(right)) {
            (false, false) => Ordering::Equal,
            (false, true) => nulls(true),
            (true, false) => nulls(false),
            (true, true) if self.is_descending => self.values.compare(right, left),
            (true, true) => self.values.compare(left, right),
        }
    }
}
