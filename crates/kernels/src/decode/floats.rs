//! Floats from integers: from decimal numbers, and from upper and lower bits that were stored apart.
//!
//! Conversions of 64-bit integers are one instruction in AVX-512 and many without it; that is most of what
//! compiling these plain loops for each level gains.

use crate::sealed::Sealed;

/// An integer that stands for a decimal number, without the decimal point.
pub trait Decimal: Copy + Sealed {
    /// The float type that it decodes to.
    type Float: Copy;

    /// The float nearest to `self * scale * inverse`, each product rounded to 64 bits.
    fn to_float(self, scale: f64, inverse: f64) -> Self::Float;
}

macro_rules! decimals {
    ($($Whole:ident $Float:ident)*) => {$(
        impl Decimal for $Whole {
            type Float = $Float;

            #[inline(always)]
            #[allow(clippy::cast_possible_truncation, trivial_numeric_casts, reason = "rounded to the nearest float")]
            fn to_float(self, scale: f64, inverse: f64) -> $Float {
                (self as f64 * scale * inverse) as $Float
            }
        }
    )*};
}

decimals!(i32 f32 i64 f64);

kernel! {
    /// [`Decimal::to_float`] of each integer.
    ///
    /// # Panics
    /// When there are not as many integers as floats.
    pub fn decimals_to_floats[T: Decimal][T](wholes: &[T], scale: f64, inverse: f64, out: &mut [T::Float])
        = decimals_plain;
}

#[inline(always)]
fn decimals_plain<T: Decimal>(wholes: &[T], scale: f64, inverse: f64, out: &mut [T::Float]) {
    assert_eq!(wholes.len(), out.len(), "as many integers as floats");
    for (whole, out) in wholes.iter().zip(out) {
        *out = whole.to_float(scale, inverse);
    }
}

/// The lower bits of floats.
pub trait Halves: Copy + Sealed {
    /// The float type that they are part of.
    type Float: Copy;

    /// The float with the 16 upper bits, shifted by `width`, and the lower `width` bits from `self`.
    fn join(self, upper: u16, width: u32) -> Self::Float;
}

macro_rules! halves {
    ($($Bits:ident $Float:ident)*) => {$(
        impl Halves for $Bits {
            type Float = $Float;

            #[inline(always)]
            fn join(self, upper: u16, width: u32) -> $Float {
                $Float::from_bits($Bits::from(upper) << width | self & ((1 << width) - 1))
            }
        }
    )*};
}

halves!(u32 f32 u64 f64);

kernel! {
    /// [`Halves::join`] of each pair; `width` is less than the bits of the float.
    ///
    /// # Panics
    /// When there are not as many uppers or lowers as floats.
    pub fn join_halves[T: Halves][T](uppers: &[u16], lowers: &[T], width: u32, out: &mut [T::Float]) = join_plain;
}

#[inline(always)]
fn join_plain<T: Halves>(uppers: &[u16], lowers: &[T], width: u32, out: &mut [T::Float]) {
    assert!(uppers.len() == out.len() && lowers.len() == out.len(), "as many halves as floats");
    for ((upper, lower), out) in uppers.iter().zip(lowers).zip(out) {
        *out = lower.join(*upper, width);
    }
}
