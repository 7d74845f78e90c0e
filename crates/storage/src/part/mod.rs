//! Parts: immutable files with rows of a table. `docs/format/part.md` draws them.

/// Calls one of two macros with the type of the numbers of a kind, or gives `$other` if they are none.
macro_rules! by_number {
    ($kind:expr, $integers:ident, $floats:ident, $other:expr) => {
        match $kind {
            Kind::Flags | Kind::Text => $other,
            Kind::I8 => $integers!(i8),
            Kind::I16 => $integers!(i16),
            Kind::I32 => $integers!(i32),
            Kind::I64 => $integers!(i64),
            Kind::I128 => $integers!(i128),
            Kind::U8 => $integers!(u8),
            Kind::U16 => $integers!(u16),
            Kind::U32 => $integers!(u32),
            Kind::U64 => $integers!(u64),
            Kind::F32 => $floats!(f32),
            Kind::F64 => $floats!(f64),
        }
    };
}

mod block;
mod cache;
mod codec;
mod details;
mod filter;
mod footer;
mod open_files;
mod plans;
mod reader;
mod statistics;
mod total;
mod writer;

pub use block::LengthUnit;
pub(crate) use cache::Footers;
pub use cache::PartKey;
pub use codec::ColumnCodec;
pub use details::{Sketch, ZONE_ROWS, Zones};
pub use filter::{Constant, Predicate};
pub(crate) use open_files::{OpenFiles, default_open_files_max};
pub(crate) use plans::TablePlans;
pub use reader::{PartReader, Text};
pub use statistics::{BlockFlags, Statistics};
pub use total::Total;
pub use writer::{PartWriter, WriteOptions};

/// When the checksums of blocks are verified. That a block is at its place, and all that decoding checks, is always
/// verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// Whenever a block is read.
    Always,
    /// When it is read for the first time since the database was opened.
    #[default]
    Once,
    /// Only by an explicit check.
    Never,
}

/// The most rows of a stripe.
pub const STRIPE_ROWS: usize = 1 << 16;
/// Where blocks and value frames begin.
const ALIGN_BYTES: u64 = 64;
/// The most stripes of a part.
const STRIPES_MAX: usize = 1 << 16;
/// The most blocks of a part.
const BLOCKS_MAX: usize = if cfg!(test) { 1 << 14 } else { 1 << 20 };
/// The most rows of a block: those of lists can be more than a stripe has.
const BLOCK_ROWS_MAX: u32 = 1 << 26;
/// The most bytes that the values of a block take.
const BLOCK_BYTES_MAX: u64 = 1 << 30;

/// Rounds an offset up to where a block may begin.
fn align(at: u64) -> u64 {
    at.next_multiple_of(ALIGN_BYTES)
}
