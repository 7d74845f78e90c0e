//! The integers that are encoded: 8 to 64 bits, which the kernels pack directly, and 128 bits.

use std::ops::Range;

use keirin_kernels::aggregate::{self, Ordered};
use keirin_kernels::aligned::Number;
use keirin_kernels::bitpack::{self, Packed, packed_bytes};
use keirin_kernels::compare::{Comparable, Comparison, compare_constant};
use keirin_kernels::decode;
use keirin_kernels::hash::Key;
use keirin_kernels::{BitBuffer, Level, Selection};

use crate::encodings::{BLOCK, holds, same_bits};
use crate::frame::Kind;
use crate::{Error, Result};

/// An integer of 8 to 128 bits. Decimals, dates and times are encoded by the integers that represent them.
pub trait Int: Comparable + Key + Number + Ordered + Ord + sealed::Sealed {
    /// The signed integer of the same size.
    #[doc(hidden)]
    type Signed: Int<Signed = Self::Signed>;

    /// The kind in frames.
    const KIND: Kind;

    /// Count of bytes.
    #[doc(hidden)]
    const BYTES: usize = size_of::<Self>();

    #[doc(hidden)]
    const BITS: u32;

    #[doc(hidden)]
    const ONE: Self;

    /// Reads exactly [`Int::BYTES`] bytes.
    #[doc(hidden)]
    fn from_bytes(bytes: &[u8]) -> Self;

    #[doc(hidden)]
    fn extend(self, bytes: &mut Vec<u8>);

    /// Fills `out` with the values of `bytes`, which must have as many.
    #[doc(hidden)]
    fn copy_from_bytes(bytes: &[u8], out: &mut [Self]);

    /// `self + other`, wrapping.
    #[doc(hidden)]
    fn plus(self, other: Self) -> Self;

    /// `self - other`, wrapping.
    #[doc(hidden)]
    fn minus(self, other: Self) -> Self;

    /// The lower 16 bits of `self - reference`.
    #[doc(hidden)]
    fn low_u16_above(self, reference: Self) -> u16;

    /// A value of `width` ones.
    #[doc(hidden)]
    fn low_bits(width: u32) -> Self;

    #[doc(hidden)]
    fn signed(self) -> Self::Signed;

    #[doc(hidden)]
    fn to_i128(self) -> i128;

    /// The width in bits of `self - reference`, wrapping.
    #[doc(hidden)]
    fn width(self, reference: Self) -> u32;

    #[doc(hidden)]
    fn sum(level: Level, values: &[Self]) -> Result<i128>;

    /// Values from differences to the value before, the first to `start`.
    #[doc(hidden)]
    fn prefix_sums(level: Level, start: Self, differences: &[Self::Signed], out: &mut [Self]);

    /// The greatest width to which values of this type can be packed.
    #[doc(hidden)]
    const WIDTH_MAX: u32;

    #[doc(hidden)]
    fn pack(level: Level, values: &[Self], width: u32, reference: Self) -> Vec<u8>;

    #[doc(hidden)]
    fn unpack_into(level: Level, bits: PackedBits<'_, Self>, first: usize, out: &mut [Self]);

    /// As [`unpack_into`](Self::unpack_into) with values of 64 bits, if packed ones are known to have room.
    #[doc(hidden)]
    fn unpack_narrow_into(_: Level, _: PackedBits<'_, Self>, _first: usize, _out: &mut [i64]) -> bool {
        false
    }

    #[doc(hidden)]
    fn unpack_one(bits: PackedBits<'_, Self>, row: usize) -> Self;

    #[doc(hidden)]
    fn compare_packed(
        level: Level,
        comparison: Comparison,
        bits: PackedBits<'_, Self>,
        constant: Self,
    ) -> BitBuffer;

    #[doc(hidden)]
    fn sum_packed(level: Level, bits: PackedBits<'_, Self>, rows: Range<usize>) -> Result<i128>;
}

mod sealed {
    pub trait Sealed {}
}

/// Packed bits of `count` values minus a reference: `width` is at most [`Int::WIDTH_MAX`], and there are
/// enough bytes.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct PackedBits<'a, T> {
    bytes: &'a [u8],
    width: u32,
    count: usize,
    reference: T,
}

impl<'a, T: Int> PackedBits<'a, T> {
    pub(crate) fn new(bytes: &'a [u8], width: u32, count: usize, reference: T) -> Self {
        assert!(
            width <= T::WIDTH_MAX && packed_bytes(count, width) <= bytes.len(),
            "{count} of {width} bits"
        );
        Self { bytes, width, count, reference }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn width(&self) -> u32 {
        self.width
    }
}

macro_rules! integers {
    ($($T:ident $Signed:ident $Kind:ident)*) => {$(
        impl sealed::Sealed for $T {}

        impl Int for $T {
            type Signed = $Signed;

            const WIDTH_MAX: u32 = $T::BITS;

            int_of_bytes!($T $Signed $Kind);

            #[inline(always)]
            fn to_i128(self) -> i128 {
                self.into()
            }

            #[inline(always)]
            fn width(self, reference: Self) -> u32 {
                bitpack::width_of(reference, self)
            }

            fn sum(level: Level, values: &[Self]) -> Result<i128> {
                Ok(aggregate::sum(level, values, None, Selection::All))
            }

            fn prefix_sums(level: Level, start: Self, differences: &[$Signed], out: &mut [Self]) {
                decode::prefix_sums(level, start, differences, out);
            }

            fn pack(level: Level, values: &[Self], width: u32, reference: Self) -> Vec<u8> {
                bitpack::pack(level, values, width, reference)
            }

            fn unpack_into(level: Level, bits: PackedBits<'_, Self>, first: usize, out: &mut [Self]) {
                bitpack::unpack_into(level, bits.packed(), first, out);
            }

            fn unpack_one(bits: PackedBits<'_, Self>, row: usize) -> Self {
                bits.packed().get(row)
            }

            fn compare_packed(
                level: Level,
                comparison: Comparison,
                bits: PackedBits<'_, Self>,
                constant: Self,
            ) -> BitBuffer {
                bitpack::compare_packed(level, comparison, bits.packed(), 0..bits.count, constant)
            }

            fn sum_packed(level: Level, bits: PackedBits<'_, Self>, rows: Range<usize>) -> Result<i128> {
                Ok(bitpack::sum_packed(level, bits.packed(), rows))
            }
        }

        impl<'a> PackedBits<'a, $T> {
            fn packed(self) -> Packed<'a, $T> {
                Packed::new(self.bytes, self.width, self.count, self.reference)
            }
        }
    )*};
}

macro_rules! int_of_bytes {
    ($T:ident $Signed:ident $Kind:ident) => {
        const KIND: Kind = Kind::$Kind;
        const BITS: u32 = $T::BITS;
        const ONE: Self = 1;

        #[inline(always)]
        fn from_bytes(bytes: &[u8]) -> Self {
            Self::from_le_bytes(bytes.try_into().expect("the bytes of one value"))
        }

        fn extend(self, bytes: &mut Vec<u8>) {
            bytes.extend_from_slice(&self.to_le_bytes());
        }

        fn copy_from_bytes(bytes: &[u8], out: &mut [Self]) {
            let (chunks, rest) = bytes.as_chunks();
            assert!(chunks.len() == out.len() && rest.is_empty(), "the bytes of as many values");
            for (value, bytes) in out.iter_mut().zip(chunks) {
                *value = Self::from_le_bytes(*bytes);
            }
        }

        #[inline(always)]
        fn plus(self, other: Self) -> Self {
            self.wrapping_add(other)
        }

        #[inline(always)]
        fn minus(self, other: Self) -> Self {
            self.wrapping_sub(other)
        }

        #[inline(always)]
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_lossless,
            reason = "that is what is asked"
        )]
        fn low_u16_above(self, reference: Self) -> u16 {
            // For narrow types the difference is sign-extended, which must not count.
            (self.wrapping_sub(reference) as u128 & (u128::MAX >> (u128::BITS - Self::BITS))) as u16
        }

        fn low_bits(width: u32) -> Self {
            #[allow(clippy::cast_possible_truncation, reason = "the width is at most that of the type")]
            let ones = u128::MAX.checked_shr(u128::BITS - width).unwrap_or(0) as Self;
            ones
        }

        #[inline(always)]
        fn signed(self) -> $Signed {
            $Signed::from_le_bytes(self.to_le_bytes())
        }
    };
}

integers! {
    u8 i8 U8  u16 i16 U16  u32 i32 U32  u64 i64 U64
    i8 i8 I8  i16 i16 I16  i32 i32 I32  i64 i64 I64
}

impl sealed::Sealed for i128 {}

/// 128-bit values are packed as 64 bits above a reference: a block rarely spans more.
impl Int for i128 {
    type Signed = Self;

    const WIDTH_MAX: u32 = u64::BITS;

    int_of_bytes!(i128 i128 I128);

    fn to_i128(self) -> i128 {
        self
    }

    #[inline(always)]
    fn width(self, reference: Self) -> u32 {
        i128::BITS - self.wrapping_sub(reference).leading_zeros()
    }

    fn sum(level: Level, values: &[Self]) -> Result<i128> {
        aggregate::sum_decimals(level, values, None, Selection::All).value().ok_or(Error::SumOverflow)
    }

    fn prefix_sums(_: Level, start: Self, differences: &[Self], out: &mut [Self]) {
        let mut value = start;
        for (difference, out) in differences.iter().zip(out) {
            value = value.wrapping_add(*difference);
            *out = value;
        }
    }

    fn pack(level: Level, values: &[Self], width: u32, reference: Self) -> Vec<u8> {
        #[expect(clippy::cast_possible_truncation, reason = "`width` bits are kept")]
        let low: Vec<u64> = values.iter().map(|value| value.wrapping_sub(reference) as u64).collect();
        bitpack::pack(level, &low, width, 0)
    }

    fn unpack_into(level: Level, bits: PackedBits<'_, Self>, first: usize, out: &mut [Self]) {
        let mut low = [0_u64; BLOCK];
        for (index, out) in out.chunks_mut(BLOCK).enumerate() {
            let low = &mut low[..out.len()];
            bitpack::unpack_into(level, bits.low(), first + index * BLOCK, low);
            for (value, low) in out.iter_mut().zip(low) {
                *value = bits.reference.wrapping_add(Self::from(*low));
            }
        }
    }

    fn unpack_narrow_into(level: Level, bits: PackedBits<'_, Self>, first: usize, out: &mut [i64]) -> bool {
        let greatest = bits.reference.saturating_add(Self::low_bits(bits.width));
        let (Ok(reference), Ok(_)) = (i64::try_from(bits.reference), i64::try_from(greatest)) else {
            return false;
        };
        bitpack::unpack_into(level, Packed::new(bits.bytes, bits.width, bits.count, reference), first, out);
        true
    }

    fn unpack_one(bits: PackedBits<'_, Self>, row: usize) -> Self {
        bits.reference.wrapping_add(Self::from(bits.low().get(row)))
    }

    fn compare_packed(
        level: Level,
        comparison: Comparison,
        bits: PackedBits<'_, Self>,
        constant: Self,
    ) -> BitBuffer {
        if bits.reference.checked_add(Self::from(u64::MAX)).is_none() {
            // Adding may wrap, which does not keep the order.
            let mut values = vec![0; bits.count];
            Self::unpack_into(level, bits, 0, &mut values);
            return compare_constant(level, comparison, &values, constant);
        }
        match u64::try_from(constant.wrapping_sub(bits.reference)) {
            Ok(low) if constant >= bits.reference => {
                bitpack::compare_packed(level, comparison, bits.low(), 0..bits.count, low)
            }
            _ => same_bits(holds(comparison, bits.reference, constant), bits.count),
        }
    }

    fn sum_packed(level: Level, bits: PackedBits<'_, Self>, rows: Range<usize>) -> Result<i128> {
        if bits.reference.checked_add(Self::from(u64::MAX)).is_none() {
            // Adding may wrap, as in a comparison.
            let mut values = vec![0; rows.len()];
            Self::unpack_into(level, bits, rows.start, &mut values);
            return Self::sum(level, &values);
        }
        let count = rows.len() as i128;
        let low = bitpack::sum_packed(level, bits.low(), rows);
        let references = bits.reference.checked_mul(count).ok_or(Error::SumOverflow)?;
        references.checked_add(low).ok_or(Error::SumOverflow)
    }
}

impl<'a> PackedBits<'a, i128> {
    fn low(self) -> Packed<'a, u64> {
        Packed::new(self.bytes, self.width, self.count, 0)
    }
}
