//! The integers that can be packed.

use crate::compare::Comparable;

/// An integer of 8 to 64 bits, with or without sign.
pub trait Integer: Comparable + Default {
    /// The unsigned integer of the same size.
    type Bits: Integer;

    /// Count of bits.
    const BITS: u32;

    /// The greatest value.
    const MAX: Self;

    /// `self + bits`, wrapping.
    #[must_use]
    fn plus(self, bits: u64) -> Self;

    /// `self - reference`, wrapping.
    fn less_reference(self, reference: Self) -> u64;

    /// The low bits.
    fn bits(bits: u64) -> Self::Bits;

    /// The same number.
    fn to_i128(self) -> i128;
}

macro_rules! integers {
    ($($T:ident $Bits:ident)*) => {$(
        #[allow(
            clippy::cast_possible_truncation,
            trivial_numeric_casts,
            clippy::unnecessary_cast,
            reason = "bits are cut to the size of the type"
        )]
        impl Integer for $T {
            type Bits = $Bits;

            const BITS: u32 = $T::BITS;
            const MAX: Self = $T::MAX;

            #[inline(always)]
            fn plus(self, bits: u64) -> Self {
                self.wrapping_add(bits as Self)
            }

            #[inline(always)]
            fn less_reference(self, reference: Self) -> u64 {
                u64::from(self.wrapping_sub(reference) as $Bits)
            }

            #[inline(always)]
            fn bits(bits: u64) -> $Bits {
                bits as $Bits
            }

            #[inline(always)]
            fn to_i128(self) -> i128 {
                i128::from(self)
            }
        }
    )*};
}

integers!(u8 u8 u16 u16 u32 u32 u64 u64 i8 u8 i16 u16 i32 u32 i64 u64);
