//! Columns compared with a constant: a bit for each row.
//!
//! Rows are compared whatever their validity: SQL's result is NULL where the column is.
//!
//! Floats are in the total order of IEEE 754, as in Arrow and DataFusion: -NaN < -inf < ... < -0.0 < 0.0 <
//! ... < inf < NaN, and a NaN equals itself.
//!
//! A word has sixty-four rows. The plain loop compares into flags, which the compiler vectorises, and
//! packs them; AVX-512 compares into mask registers (`x86.rs`), which are the bits already.

use std::marker::PhantomData;

use crate::bitmaps::pack_flags;
use crate::bits::WORD_BITS;
use crate::{BitBuffer, Level};

mod values;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use values::Comparable;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Vector, repeat};

/// The six comparisons of SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterEqual,
}

impl Comparison {
    /// All six.
    pub const ALL: [Self; 6] =
        [Self::Equal, Self::NotEqual, Self::Less, Self::LessEqual, Self::Greater, Self::GreaterEqual];

    /// The comparison of `right` with `left` that is equivalent to this one of `left` with `right`.
    #[must_use]
    pub fn flip(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessEqual => Self::GreaterEqual,
            Self::Greater => Self::Less,
            Self::GreaterEqual => Self::LessEqual,
            same => same,
        }
    }
}

/// A comparison known at compile time; the other comparisons are these with the result inverted.
pub(crate) trait Operator: Copy + 'static {
    fn holds<T: Comparable>(left: T, right: T) -> bool;

    /// As `holds`, for vectors of 64 bytes: a bit for each value.
    ///
    /// # Safety
    /// To be inlined where AVX-512 is enabled.
    #[cfg(target_arch = "x86_64")]
    unsafe fn mask<T: Comparable>(left: Vector, right: Vector) -> u64;
}

macro_rules! operator {
    ($name:ident |$left:ident, $right:ident| $method:ident / $mask:ident ($first:ident, $second:ident)) => {
        #[derive(Clone, Copy)]
        pub(crate) enum $name {}

        impl Operator for $name {
            #[inline(always)]
            fn holds<T: Comparable>($left: T, $right: T) -> bool {
                T::$method($first, $second)
            }

            #[cfg(target_arch = "x86_64")]
            #[inline(always)]
            unsafe fn mask<T: Comparable>($left: Vector, $right: Vector) -> u64 {
                // SAFETY: as the caller promises.
                unsafe { T::$mask($first, $second) }
            }
        }
    };
}

operator!(Equal | left, right | equal / equal_mask(left, right));
operator!(Less | left, right | less / less_mask(left, right));
operator!(Greater | left, right | less / less_mask(right, left));

/// Calls `$call` with an [`Operator`] and the word that inverts its result, or zero.
///
/// In a total order `<=` is `not >`, which halves the number of compiled loops.
macro_rules! with_operator {
    ($comparison:expr, $call:ident $args:tt) => {
        match $comparison {
            $crate::compare::Comparison::Equal => $crate::compare::with_operator!(@ $call Equal, 0, $args),
            $crate::compare::Comparison::NotEqual => $crate::compare::with_operator!(@ $call Equal, !0, $args),
            $crate::compare::Comparison::Less => $crate::compare::with_operator!(@ $call Less, 0, $args),
            $crate::compare::Comparison::Greater => $crate::compare::with_operator!(@ $call Greater, 0, $args),
            $crate::compare::Comparison::LessEqual => $crate::compare::with_operator!(@ $call Greater, !0, $args),
            $crate::compare::Comparison::GreaterEqual => $crate::compare::with_operator!(@ $call Less, !0, $args),
        }
    };
    (@ $call:ident $operator:ident, $invert:expr, ($($arg:expr),*)) => {
        $call::<_, $crate::compare::$operator>($($arg),*, $invert)
    };
}
pub(crate) use with_operator;

/// Selects the rows for whose values the comparison with `constant` holds.
#[must_use]
pub fn compare_constant<T: Comparable>(
    level: Level,
    comparison: Comparison,
    values: &[T],
    constant: T,
) -> BitBuffer {
    fn run<T: Comparable, O: Operator>(level: Level, values: &[T], constant: T, invert: u64) -> BitBuffer {
        filter(level, values, &Constant::<T, O>::new(constant), invert)
    }
    with_operator!(comparison, run(level, values, constant))
}

/// A predicate on the values of one column.
pub(crate) trait Test<T> {
    fn holds(&self, value: T) -> bool;

    /// As `holds`, for a vector of 64 bytes: a bit for each value.
    ///
    /// # Safety
    /// To be inlined where AVX-512 is enabled.
    #[cfg(target_arch = "x86_64")]
    unsafe fn mask(&self, values: Vector) -> u64;
}

pub(crate) struct Constant<T, O>(T, PhantomData<O>);

impl<T, O> Constant<T, O> {
    pub(crate) fn new(constant: T) -> Self {
        Self(constant, PhantomData)
    }
}

impl<T: Comparable, O: Operator> Test<T> for Constant<T, O> {
    #[inline(always)]
    fn holds(&self, value: T) -> bool {
        O::holds(value, self.0)
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn mask(&self, values: Vector) -> u64 {
        // SAFETY: as the caller promises.
        unsafe { O::mask::<T>(values, repeat(self.0)) }
    }
}

kernel! {
    fn filter[T: Comparable, Q: Test<T>][T, Q](values: &[T], test: &Q, invert: u64) -> BitBuffer
        = filter_plain, avx2 = x86::filter_avx2, avx512 = x86::filter_avx512;
}

/// Rows of which flags are computed by one loop: a loop of the rows of a word would be unrolled instead of vectorised.
const FLAGS: usize = 1024;

/// A bit for each of `count` rows. `compare` sets flags of rows, of which it gets the first; `pack` makes bits of flags.
#[inline(always)]
pub(crate) fn filter_flags(
    count: usize,
    mut compare: impl FnMut(usize, &mut [bool]),
    pack: impl Fn(&[bool; WORD_BITS]) -> u64,
    invert: u64,
) -> BitBuffer {
    let mut words = Vec::with_capacity(count.div_ceil(WORD_BITS));
    let mut flags = [false; FLAGS];
    for first in (0..count).step_by(FLAGS) {
        let here = FLAGS.min(count - first);
        compare(first, &mut flags[..here]);
        flags[here..].fill(false);
        let packed = flags.as_chunks().0.iter().map(|flags| pack(flags) ^ invert);
        words.extend(packed.take(here.div_ceil(WORD_BITS)));
    }
    BitBuffer::from_words(words, count)
}

#[inline(always)]
fn filter_plain<T: Comparable, Q: Test<T>>(values: &[T], test: &Q, invert: u64) -> BitBuffer {
    filter_by_flags(values, test, pack_flags, invert)
}

#[inline(always)]
fn filter_by_flags<T: Comparable, Q: Test<T>>(
    values: &[T],
    test: &Q,
    pack: impl Fn(&[bool; WORD_BITS]) -> u64,
    invert: u64,
) -> BitBuffer {
    let compare = |first: usize, flags: &mut [bool]| {
        for (flag, value) in flags.iter_mut().zip(&values[first..]) {
            *flag = test.holds(*value);
        }
    };
    filter_flags(values.len(), compare, pack, invert)
}

/// Computes a word for each 64 values by `whole`; the last values one by one.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn filter_by<T: Comparable, Q: Test<T>>(
    values: &[T],
    test: &Q,
    whole: impl Fn(&[T; WORD_BITS]) -> u64,
    invert: u64,
) -> BitBuffer {
    let (chunks, tail) = values.as_chunks::<WORD_BITS>();
    let mut words = Vec::with_capacity(chunks.len() + 1);
    words.extend(chunks.iter().map(|chunk| whole(chunk) ^ invert));
    if !tail.is_empty() {
        let bits = tail.iter().rev().fold(0, |bits, value| bits << 1 | u64::from(test.holds(*value)));
        words.push(bits ^ invert);
    }
    BitBuffer::from_words(words, values.len())
}
