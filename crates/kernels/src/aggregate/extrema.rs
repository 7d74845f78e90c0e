//! The smallest and the largest value, in the order that sorting uses as well.
//!
//! Floats are in IEEE 754's total order, as in Arrow and DataFusion: -0.0 is less than 0.0, NaN is greater
//! than infinity, and a NaN whose sign is set is less than all numbers. The bits as integers have this order
//! once the magnitude of negative numbers is inverted; so the loop compares integers, and equal values have
//! equal bits.

use super::chunks::{CHUNK, Keep, Mask, for_each_chunk, for_each_piece, keep_plain};
use super::count;
#[cfg(target_arch = "x86_64")]
use super::x86;
use crate::{Bits, Level, Selection};

/// A number whose total order is that of an integer key.
pub trait Ordered: Copy + Default + sealed::Sealed {
    /// An integer of the same width.
    #[doc(hidden)]
    type Key: Copy + Ord;
    /// A value greater than or equal to every value.
    #[doc(hidden)]
    const HIGHEST: Self;
    /// A value less than or equal to every value.
    #[doc(hidden)]
    const LOWEST: Self;
    /// The key, which is ordered as the values are.
    #[doc(hidden)]
    fn key(self) -> Self::Key;
    /// The value with this key.
    #[doc(hidden)]
    fn from_key(key: Self::Key) -> Self;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! integers {
    ($($type:ty),*) => { $(
        impl sealed::Sealed for $type {}
        impl Ordered for $type {
            type Key = Self;
            const HIGHEST: Self = Self::MAX;
            const LOWEST: Self = Self::MIN;
            #[inline(always)]
            fn key(self) -> Self { self }
            #[inline(always)]
            fn from_key(key: Self) -> Self { key }
        }
    )* };
}
integers! { i8, i16, i32, i64, i128, u8, u16, u32, u64 }

macro_rules! floats {
    ($($type:ty as $signed:ty, $bits:literal);*) => { $(
        impl sealed::Sealed for $type {}
        impl Ordered for $type {
            type Key = $signed;
            const HIGHEST: Self = Self::from_bits(<$signed>::MAX.cast_unsigned());
            const LOWEST: Self = Self::from_bits(<$signed>::MAX.cast_unsigned() | 1 << ($bits - 1));
            #[inline(always)]
            fn key(self) -> $signed {
                let bits = self.to_bits().cast_signed();
                bits ^ (bits >> ($bits - 1)) & <$signed>::MAX
            }
            #[inline(always)]
            fn from_key(key: $signed) -> Self {
                Self::from_bits((key ^ (key >> ($bits - 1)) & <$signed>::MAX).cast_unsigned())
            }
        }
    )* };
}
floats! { f32 as i32, 32; f64 as i64, 64 }

/// The smallest of the selected rows that are valid; `None` when there are none.
///
/// # Panics
/// When a bitmap has not as many bits as there are values or a row number is out of range.
#[must_use]
pub fn min<T: Ordered>(
    level: Level,
    values: &[T],
    validity: Option<Bits<'_>>,
    selection: Selection<'_>,
) -> Option<T> {
    let mut least = T::HIGHEST.key();
    for_each_piece(values, validity, selection, |values, mask| {
        least = least.min(least_key(level, values, mask));
    });
    (count(level, values.len(), validity, selection) > 0).then(|| T::from_key(least))
}

/// The largest of the selected rows that are valid; `None` when there are none.
///
/// # Panics
/// When a bitmap has not as many bits as there are values or a row number is out of range.
#[must_use]
pub fn max<T: Ordered>(
    level: Level,
    values: &[T],
    validity: Option<Bits<'_>>,
    selection: Selection<'_>,
) -> Option<T> {
    let mut greatest = T::LOWEST.key();
    for_each_piece(values, validity, selection, |values, mask| {
        greatest = greatest.max(greatest_key(level, values, mask));
    });
    (count(level, values.len(), validity, selection) > 0).then(|| T::from_key(greatest))
}

macro_rules! extreme_key {
    ($name:ident $plain:ident $wide:ident $choose:ident $neutral:ident) => {
        kernel! {
            fn $name[T: Ordered][T](values: &[T], mask: Mask<'_>) -> T::Key = $plain, avx512 = $wide;
        }

        #[inline(always)]
        fn $plain<T: Ordered>(values: &[T], mask: Mask<'_>) -> T::Key {
            extreme_key(values, mask, T::$neutral, Ord::$choose, keep_plain)
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(
            enable = "avx2,bmi1,bmi2,fma,lzcnt,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl"
        )]
        fn $wide<T: Ordered>(values: &[T], mask: Mask<'_>) -> T::Key {
            extreme_key(values, mask, T::$neutral, Ord::$choose, |chunk, word, fill| {
                x86::keep(chunk, word, fill)
            })
        }
    };
}
extreme_key! { least_key least_plain least_wide min HIGHEST }
extreme_key! { greatest_key greatest_plain greatest_wide max LOWEST }

/// Uses one lane for each row of a chunk: one to eight vectors, enough to hide the latency of a comparison.
#[inline(always)]
fn extreme_key<T: Ordered>(
    values: &[T],
    mask: Mask<'_>,
    neutral: T,
    choose: impl Fn(T::Key, T::Key) -> T::Key,
    keep: impl Keep<T>,
) -> T::Key {
    let mut lanes = [neutral.key(); CHUNK];
    for_each_chunk(values, mask, neutral, keep, |chunk| {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = choose(*lane, value.key());
        }
    });
    lanes.into_iter().fold(neutral.key(), choose)
}
