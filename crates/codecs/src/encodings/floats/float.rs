//! The floats that are encoded.

use keirin_kernels::aligned::Number;
use keirin_kernels::compare::Comparable;
use keirin_kernels::decode::{Decimal, Halves};

use crate::frame::Kind;
use crate::integers::Int;

/// A float of 32 or 64 bits. All bits are kept: the payload of NaNs and the sign of zeros.
pub trait Float: Comparable + Default + Number + std::fmt::Debug + Send + Sync + sealed::Sealed {
    /// The unsigned integer of the same size.
    #[doc(hidden)]
    type Bits: Int + Halves<Float = Self>;

    /// The integers that decimal numbers of this type are encoded as.
    #[doc(hidden)]
    type Whole: Int + Decimal<Float = Self>;

    /// The kind in frames.
    const KIND: Kind;

    /// The most digits behind the decimal point that are tried.
    #[doc(hidden)]
    const EXPONENT_MAX: usize;

    /// Bits of a float.
    #[doc(hidden)]
    const BITS: u32;

    #[doc(hidden)]
    fn bits(self) -> Self::Bits;

    #[doc(hidden)]
    fn from_bits(bits: Self::Bits) -> Self;

    /// `self * scale * inverse`, rounded to an integer, if it is in the range of both integers and floats.
    #[doc(hidden)]
    fn to_whole(self, scale: f64, inverse: f64) -> Option<Self::Whole>;

    /// The integer halfway between two, or the lower of two neighbours.
    #[doc(hidden)]
    fn middle(low: Self::Whole, high: Self::Whole) -> Self::Whole;

    /// The upper bits, shifted down by `width`, and the lower `width` bits.
    #[doc(hidden)]
    fn split(self, width: u32) -> (u16, Self::Bits);
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! floats {
    ($($T:ident $Bits:ident $Whole:ident $Kind:ident $exponent_max:literal)*) => {$(
        impl sealed::Sealed for $T {}

        impl Float for $T {
            type Bits = $Bits;
            type Whole = $Whole;

            const KIND: Kind = Kind::$Kind;
            const EXPONENT_MAX: usize = $exponent_max;
            const BITS: u32 = $Bits::BITS;

            #[inline(always)]
            fn bits(self) -> $Bits {
                self.to_bits()
            }

            #[inline(always)]
            fn from_bits(bits: $Bits) -> Self {
                Self::from_bits(bits)
            }

            #[inline(always)]
            #[allow(clippy::cast_possible_truncation, reason = "whether it fits is asked first")]
            fn to_whole(self, scale: f64, inverse: f64) -> Option<$Whole> {
                const LIMIT: f64 = if $Whole::BITS == 64 { (1_u64 << 51) as f64 } else { $Whole::MAX as f64 };
                let scaled = (f64::from(self) * scale * inverse).round_ties_even();
                (scaled.abs() < LIMIT).then_some(scaled as $Whole)
            }

            fn middle(low: $Whole, high: $Whole) -> $Whole {
                low.midpoint(high)
            }

            #[inline(always)]
            #[allow(clippy::cast_possible_truncation, reason = "at most 16 bits are left")]
            fn split(self, width: u32) -> (u16, $Bits) {
                let bits = self.to_bits();
                ((bits >> width) as u16, bits & ((1 << width) - 1))
            }
        }
    )*};
}

floats!(f32 u32 i32 F32 10 f64 u64 i64 F64 18);
