//! Text: search, equality, order, `LIKE` and case, for whole columns at once.
//!
//! A function call and a few unpredictable branches for each row cost more than the bytes of a short text. So
//! loops here process a whole buffer or 64 rows at a time, and a single row only if it remains a candidate.
//! `columns.rs` has the two layouts, `find.rs` the search for a needle, `search.rs` the search in all rows,
//! `equal.rs` equality, `order.rs` order, `pad.rs` the meaning of trailing spaces,
//! `like.rs` patterns, `scan.rs` facts that can be known of a block in advance, `views.rs` the conversion to
//! views, `case.rs` lower and upper case.
//!
//! Nothing here handles NULLs: the caller combines bitmaps. Collations other than that of bytes are in
//! another crate.

#[cfg(feature = "arrow")]
mod case;
mod columns;
mod equal;
#[cfg(target_arch = "x86_64")]
mod equal_x86;
mod find;
#[cfg(target_arch = "x86_64")]
mod find_x86;
mod like;
mod order;
mod pad;
mod rows;
mod scan;
mod search;
#[cfg(target_arch = "x86_64")]
mod search_x86;
#[cfg(feature = "arrow")]
mod views;

#[cfg(feature = "arrow")]
pub use case::Case;
#[cfg(feature = "arrow")]
pub(crate) use case::change_ascii;
pub use columns::{LayoutError, Offset, Strings, Text, Views};
pub use equal::{ends_with, equal_constant, starts_with};
pub use find::{Finder, find, find_byte};
pub use like::{LikePattern, SearchMethod, like};
pub use order::{Inequality, compare_constant};
pub use pad::{Pad, trimmed};
#[cfg(feature = "arrow")]
pub(crate) use scan::is_begin;
pub use scan::{Facts, char_lengths, facts, is_ascii, is_utf8};
#[cfg(feature = "arrow")]
pub(crate) use views::views_of;
