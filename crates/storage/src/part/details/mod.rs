//! What is known of a column beyond the footer: filters of values, zones, a sketch of distinct values, a sample.
//!
//! Each column has one record between blocks and footer, read when somebody asks for it. Filters lie among the blocks;
//! their records say where. `docs/format/part.md` draws them.

use crate::schema::DataType;

mod filters;
mod hashes;
mod record;
mod sample;
mod sketch;
mod zones;

pub(super) use filters::{
    FilterEntry, FilterWriter, STRIPES_MIN, can_have_filters, filter_bytes_max, filter_may_have, filter_of,
};
pub(super) use hashes::{Hashed, hash_of, hashes_of, hashes_of_text, keep_valid};
pub(super) use record::{ColumnDetails, Place, Record, frame_of_sample_rows, read_sample_rows};
pub(super) use sample::Sampler;
pub use sketch::Sketch;
pub use zones::Zones;
pub(super) use zones::{ZoneBounds, ZoneWriter, zones_of};

/// Rows of a zone.
pub const ZONE_ROWS: usize = if cfg!(test) { 64 } else { 4096 };
/// Parts of fewer rows have no details: they are read in no time, and merged soon.
pub(super) const DETAILS_ROWS_MIN: u64 = if cfg!(test) { 16 } else { 4096 };

/// Whether a column of this type has details.
pub(super) fn has_details(data_type: &DataType) -> bool {
    data_type.children().is_empty() && !matches!(data_type, DataType::Struct(_))
}
