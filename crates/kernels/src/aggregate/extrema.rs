//! The smallest and the largest value, in the order that sorting uses as well.
//!
//! Floats are in IEEE 754's total order, as in Arrow and DataFusion: -0.0 is less than 0.0, NaN is greater
//! than infinity, and a NaN whose sign is set is less than all numbers. The bits as integers have this order
//! once the magnitude of negative numbers is inverted; so the loop compares integers, and equal values have
//! equal bits.

use super::chunks::{CHUNK, Keep, Mask, for_each_chunk, for_each_piece, keep_plain};
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

/// The smallest and the largest of the selected rows that are valid; `None` when there are none.
///
/// # Panics
/// When a bitmap has not as many bits as there are values or a row number is out of range.
#[must_use]
pub fn extremes<T: Ordered>(
    level: Level,
    values: &[T],
    validity: Option<Bits<'_>>,
    selection: Selection<'_>,
) -> Option<(T, T)> {
    let mut found: Option<(T::Key, T::Key)> = None;
    for_each_piece(values, validity, selection, |values, mask| {
        let Some(first) = first_row(values.len(), mask) else { return };
        let (least, greatest) = extreme_keys(level, values, mask, values[first]);
        let (before_least, before_greatest) = found.unwrap_or((least, greatest));
        found = Some((least.min(before_least), greatest.max(before_greatest)));
    });
    found.map(|(least, greatest)| (T::from_key(least), T::from_key(greatest)))
}

/// The first row that counts.
fn first_row(row_count: usize, mask: Mask<'_>) -> Option<usize> {
    let words = (0..row_count.div_ceil(CHUNK)).map(|index| (index, mask.word(index)));
    words
        .filter(|(_, word)| *word != 0)
        .map(|(index, word)| index * CHUNK + word.trailing_zeros() as usize)
        .next()
}

kernel! {
    fn extreme_keys[T: Ordered][T](values: &[T], mask: Mask<'_>, any: T) -> (T::Key, T::Key)
        = extreme_keys_plain, avx512 = extreme_keys_wide;
}

#[inline(always)]
fn extreme_keys_plain<T: Ordered>(values: &[T], mask: Mask<'_>, any: T) -> (T::Key, T::Key) {
    extreme_keys_by(values, mask, any, keep_plain)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,fma,lzcnt,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
fn extreme_keys_wide<T: Ordered>(values: &[T], mask: Mask<'_>, any: T) -> (T::Key, T::Key) {
    extreme_keys_by(values, mask, any, |chunk, word, fill| x86::keep(chunk, word, fill))
}

/// `any` is the value of a row that counts, and takes the place of those that do not.
#[inline(always)]
fn extreme_keys_by<T: Ordered>(values: &[T], mask: Mask<'_>, any: T, keep: impl Keep<T>) -> (T::Key, T::Key) {
    // Lanes of 128 bytes hide the latency of a comparison. With 64 lanes of 8 bytes, AVX2 has not enough registers.
    match size_of::<T>() {
        1 | 2 => extreme_keys_in_lanes::<T, 64>(values, mask, any, keep),
        4 => extreme_keys_in_lanes::<T, 32>(values, mask, any, keep),
        _ => extreme_keys_in_lanes::<T, 16>(values, mask, any, keep),
    }
}

#[inline(always)]
fn extreme_keys_in_lanes<T: Ordered, const LANES: usize>(
    values: &[T],
    mask: Mask<'_>,
    any: T,
    keep: impl Keep<T>,
) -> (T::Key, T::Key) {
    let (mut least, mut greatest) = ([any.key(); LANES], [any.key(); LANES]);
    for_each_chunk(values, mask, any, keep, |chunk| {
        for values in chunk.as_chunks::<LANES>().0 {
            for ((least, greatest), value) in least.iter_mut().zip(&mut greatest).zip(values) {
                let key = value.key();
                (*least, *greatest) = ((*least).min(key), (*greatest).max(key));
            }
        }
    });
    let least = least.into_iter().fold(any.key(), Ord::min);
    (least, greatest.into_iter().fold(any.key(), Ord::max))
}
