//! The types whose implementations loops trust.
//!
//! Some loops check the greatest index once, or the sum of all lengths, and then read and write without
//! further checks: they rely on what a type reports as its order and value. So no other crate may implement
//! these traits:
//!
//! ```compile_fail,E0277
//! #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
//! struct Liar(u32);
//!
//! impl From<Liar> for u32 {
//!     fn from(liar: Liar) -> Self {
//!         !liar.0
//!     }
//! }
//!
//! impl keirin_kernels::gather::Index for Liar {}
//! ```
//!
//! ```compile_fail,E0277
//! #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
//! struct Liar(u32);
//!
//! impl keirin_kernels::compact::Offset for Liar {
//!     fn to_usize(self) -> Option<usize> {
//!         Some(std::process::id() as usize)
//!     }
//!     fn from_usize(_: usize) -> Option<Self> {
//!         Some(Self(0))
//!     }
//!     fn moved(self, _: Self, _: Self) -> Self {
//!         self
//!     }
//! }
//! ```
//!
//! ```compile_fail,E0277
//! #[derive(Clone, Copy)]
//! struct Liar(u8, u32);
//!
//! impl keirin_kernels::compare::Comparable for Liar {
//!     fn equal(self, _: Self) -> bool {
//!         true
//!     }
//!     fn less(self, _: Self) -> bool {
//!         true
//!     }
//! }
//! ```

/// Numbers without padding, for which all bit patterns are valid.
pub trait Sealed {}

macro_rules! sealed {
    ($($T:ty)*) => { $(impl Sealed for $T {})* };
}

sealed!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64);
