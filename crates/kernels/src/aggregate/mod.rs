//! Sums, extrema and counts of a column.
//!
//! Every answer depends only on the set of rows: batches may be cut anywhere and merged in any order by any
//! number of threads, and the bits of the answer stay the same. Integers achieve it by sums that are wide
//! enough ([`sum`], [`sum_decimals`]), floats by a sum that is exact until it is read ([`ExactSum`]), extrema
//! by a total order ([`extremes`]).
//!
//! Loops see rows in chunks of 64, one word of a bitmap each, with the last rows copied and padded
//! (`chunks.rs`), so that no loop reads past the end and few need one of their own for the tail. A mean is a
//! sum and a [`count`].

mod chunks;
mod compact;
mod exact;
mod extrema;
mod floats;
mod integers;
mod outliers;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(crate) use chunks::{CHUNK, check};
pub use compact::{BitRange, CompactSum, add_scaled, divided, divided_scaled, scaled};
pub use exact::ExactSum;
pub(crate) use exact::power_of_two;
pub use extrema::{Ordered, extremes};
pub use floats::Float;
pub use integers::{DecimalSum, Integer, sum, sum_decimals, sum_two};

use crate::bitmaps::count_ones_in_both;
use crate::bits::count_ones;
use crate::{Bits, Level, Selection};

/// Count of selected rows that are valid.
///
/// # Panics
/// When a bitmap has not `row_count` bits or a row number is not below it.
#[must_use]
pub fn count(level: Level, row_count: usize, validity: Option<Bits<'_>>, selection: Selection<'_>) -> usize {
    match (validity, selection) {
        (None, selection) => {
            check(row_count, None, selection);
            selection.count(level, row_count)
        }
        (Some(validity), Selection::All) => {
            check(row_count, Some(validity), selection);
            count_ones(level, validity)
        }
        (Some(validity), Selection::Bits(selected)) => {
            check(row_count, Some(validity), selection);
            count_ones_in_both(level, validity, selected)
        }
        (Some(validity), Selection::Rows(rows)) => {
            check(row_count, Some(validity), Selection::All);
            rows.iter().map(|row| usize::from(validity.get(*row as usize))).sum()
        }
    }
}
