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

macro_rules! floats {
    ($($T:ident)*) => {$(
        impl Comparable for $T {
            #[inline(always)]
            fn equal(self, other: Self) -> bool {
                self.to_bits() == other.to_bits()
            }

            #[inline(always)]
            fn less(self, other: Self) -> bool {
                self.key() < other.key()
            }
        }
    )*};
}

floats!(f32 f64);
