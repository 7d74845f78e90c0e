//! The values that can be compared, with equality and order of each type.

#[cfg(target_arch = "x86_64")]
use super::x86::Lanes;
use crate::aggregate::Ordered;
/// Without hand-written vector code nothing is required of the types.
#[cfg(not(target_arch = "x86_64"))]
use crate::sealed::Sealed as Lanes;

/// A fixed-width value with an order.
#[allow(private_bounds, reason = "the vectors of a type are nobody else's business")]
pub trait Comparable: Copy + Lanes + 'static {
    /// Whether the order is total: of two values that differ one is always less.
    const IS_TOTAL: bool;

    /// `self = other`
    fn equal(self, other: Self) -> bool;

    /// `self < other`
    fn less(self, other: Self) -> bool;

    /// `self <= other`
    #[inline(always)]
    fn less_equal(self, other: Self) -> bool {
        !other.less(self)
    }
}

macro_rules! integers {
    ($($T:ty)*) => {$(
        impl Comparable for $T {
            const IS_TOTAL: bool = true;

            #[inline(always)]
            fn equal(self, other: Self) -> bool {
                self == other
            }

            #[inline(always)]
            fn less(self, other: Self) -> bool {
                self < other
            }
        }
    )*};
}

integers!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128);

/// A float in the order of the CPU: a NaN is neither less than nor equal to anything, `-0.0 = 0.0`.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Ieee<T>(pub T);

macro_rules! floats {
    ($($T:ident)*) => {$(
        impl Comparable for $T {
            const IS_TOTAL: bool = true;

            #[inline(always)]
            fn equal(self, other: Self) -> bool {
                self.to_bits() == other.to_bits()
            }

            #[inline(always)]
            fn less(self, other: Self) -> bool {
                self.key() < other.key()
            }
        }

        impl Ieee<$T> {
            /// The values viewed in this order.
            #[must_use]
            pub fn slice(values: &[$T]) -> &[Self] {
                // SAFETY: the wrapper is transparent: the same layout, all values valid.
                unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), values.len()) }
            }
        }

        impl Comparable for Ieee<$T> {
            const IS_TOTAL: bool = false;

            #[inline(always)]
            fn equal(self, other: Self) -> bool {
                self.0 == other.0
            }

            #[inline(always)]
            fn less(self, other: Self) -> bool {
                self.0 < other.0
            }

            #[inline(always)]
            fn less_equal(self, other: Self) -> bool {
                self.0 <= other.0
            }
        }
    )*};
}

floats!(f32 f64);
