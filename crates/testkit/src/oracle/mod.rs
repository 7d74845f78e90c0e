//! Naive answers: one row at a time, in the obvious way, for loops to be compared with.

pub mod aggregate;
pub mod bitmaps;
pub mod bitpack;
pub mod decode;
pub mod group;
#[expect(
    clippy::cast_possible_truncation,
    reason = "random sizes are small, and bytes are cut out of lengths"
)]
pub mod lz;
pub mod sort;
pub mod text;

/// The rows that count: those that a selection names and that are valid, in order.
///
/// `validity` and `selected` have a flag for each row; without them every row counts.
pub fn rows<'a>(
    row_count: usize,
    validity: Option<&'a [bool]>,
    selected: Option<&'a [bool]>,
) -> impl Iterator<Item = usize> + 'a {
    let holds = |flags: Option<&[bool]>, row: usize| flags.is_none_or(|flags| flags[row]);
    (0..row_count).filter(move |row| holds(validity, *row) && holds(selected, *row))
}
