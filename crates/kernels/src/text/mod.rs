//! Text: search, equality, order, `LIKE`, case, over whole columns at once.
//!
//! A function call and a few unpredictable branches a row cost more than the bytes of a short text. So loops
//! here look at a whole buffer or at 64 rows at a time, and at a single row only when little speaks against
//! it: `columns.rs` has the two layouts, `find.rs` the search for a needle, `compare.rs` equality and order,
//! `like.rs` patterns, `scan.rs` what can be known of a block in advance, `case.rs` lower and upper case.
//!
//! Nothing here knows of nulls: the caller combines bitmaps. Collations other than that of bytes live elsewhere.

mod case;
mod columns;
mod compare;
#[cfg(target_arch = "x86_64")]
mod compare_x86;
mod find;
#[cfg(target_arch = "x86_64")]
mod find_x86;
mod like;
mod scan;

pub use case::{Case, TextBuffer, change_case};
pub use columns::{LayoutError, Offset, Strings, Text, Views};
pub use compare::{
    Extreme, Inequality, Pad, compare_columns, compare_constant, ends_with, equal_columns, equal_constant,
    equal_constant_padded, equal_constant_view, extreme_row, starts_with, trimmed,
};
pub use find::{Finder, find, find_byte};
pub use like::{LikePattern, SearchMethod, like, like_view};
pub use scan::{Facts, char_lengths, facts, is_ascii, is_utf8};
