//! The first rows of a sort, without sorting the others.
//!
//! Rows are read once, in order. A row can be among the first `count` only if its first key is not behind
//! that of the worst candidate so far, the threshold; whole vectors of rows are compared with it and mostly
//! skipped. When there are twice as many candidates as wanted, they are sorted and cut, which tightens the
//! threshold.

use super::key::{Key, Ranked, Values, for_ranked, halves};
use super::packed::{Method, sort_selected};
use crate::Level;
use crate::text::Text;

/// Candidates beyond twice the wanted count that are gathered before they are sorted.
const CANDIDATES_EXTRA: usize = 1024;
/// Rows that are compared with the threshold together, before single rows are looked at.
const BLOCK_ROWS: usize = 64;

/// The first `count` rows of the result of [`super::sort_rows`].
///
/// # Panics
/// As [`super::sort_rows`].
#[must_use]
pub fn first_rows(level: Level, keys: &[Key<'_>], row_count: usize, count: usize) -> Vec<u32> {
    let end = u32::try_from(row_count).expect("rows are numbered by u32");
    let mut search = Search { level, keys, row_count, count, candidates: Vec::new() };
    let first = keys.first().filter(|_| count > 0 && count < row_count / 2);
    let Some(key) = first else {
        search.candidates = (0..end).collect();
        search.cut();
        return search.candidates;
    };
    assert_eq!(key.values.row_count(), row_count, "rows of a key");
    for_ranked!(key.values, values => search.run(true, |rows, threshold| {
        let key = Threshold { rank: threshold, is_descending: key.is_descending };
        block_may_pass(level, &values[rows], key)
    }, |row| values[row].rank()), other => match other {
        Values::Bool(bits) => search.run(true, |_, _| true, |row| u64::from(bits.get(row))),
        Values::I128(values) => search.run(false, |_, _| true, |row| halves(values[row])[0]),
        Values::Text(text) => search.run(false, |_, _| true, |row| text.prefix(row, 0)),
        Values::LargeText(text) => search.run(false, |_, _| true, |row| text.prefix(row, 0)),
        _ => unreachable!("for_ranked! has the others"),
    });
    search.candidates
}

/// The rank that a row must reach to become a candidate.
#[derive(Clone, Copy)]
struct Threshold {
    rank: u64,
    is_descending: bool,
}

struct Search<'a> {
    level: Level,
    keys: &'a [Key<'a>],
    row_count: usize,
    count: usize,
    candidates: Vec<u32>,
}

impl Search<'_> {
    /// Sorts the candidates and keeps the best.
    fn cut(&mut self) {
        // Equal rows keep this order, which is that of the table.
        self.candidates.sort_unstable();
        sort_selected(self.level, Method::Comparison, self.keys, self.row_count, &mut self.candidates);
        self.candidates.truncate(self.count);
    }

    /// Keeps the best candidates by `rank` and row number, with the worst of them last.
    fn cut_by(&mut self, rank: impl Fn(usize) -> u64) {
        let order = if self.keys[0].is_descending { u64::MAX } else { 0 };
        let mut ranked: Vec<(u64, u32)> =
            self.candidates.iter().map(|row| (rank(*row as usize) ^ order, *row)).collect();
        ranked.select_nth_unstable(self.count - 1);
        self.candidates.clear();
        self.candidates.extend(ranked[..self.count].iter().map(|(_, row)| *row));
    }

    /// Reads all rows. `may_pass` returns whether a block may have a row of at most a rank (at least, if
    /// descending). `rank` orders rows by the first key; `is_exact` if different values always have different
    /// ranks.
    fn run(
        &mut self,
        is_exact: bool,
        may_pass: impl Fn(std::ops::Range<usize>, u64) -> bool,
        rank: impl Fn(usize) -> u64,
    ) {
        let key = &self.keys[0];
        // A later row that equals the worst candidate comes after it if only the row number decides.
        let is_equal_enough = !is_exact || self.keys.len() > 1;
        let mut bar = Bar { values: ValueBar::All, nulls_pass: true };
        let limit = 2 * self.count + CANDIDATES_EXTRA;
        for start in (0..self.row_count).step_by(BLOCK_ROWS) {
            let rows = start..self.row_count.min(start + BLOCK_ROWS);
            let can_skip = key.validity.is_none() || !bar.nulls_pass;
            let may_have_values = match bar.values {
                ValueBar::All => true,
                ValueBar::None => false,
                ValueBar::To(threshold) => may_pass(rows.clone(), threshold),
            };
            if can_skip && !may_have_values {
                continue;
            }
            for row in rows {
                let passes = match bar.values {
                    _ if !key.is_valid(row) => bar.nulls_pass,
                    ValueBar::All => true,
                    ValueBar::None => false,
                    ValueBar::To(threshold) if key.is_descending => rank(row) >= threshold,
                    ValueBar::To(threshold) => rank(row) <= threshold,
                };
                if passes {
                    self.candidates.push(u32::try_from(row).expect("rows are numbered by u32"));
                }
            }
            if self.candidates.len() >= limit {
                if is_equal_enough || key.validity.is_some() {
                    self.cut();
                } else {
                    self.cut_by(&rank);
                }
                bar = self.bar(is_equal_enough, &rank);
            }
        }
        self.cut();
    }

    /// The condition for later rows, after a cut.
    fn bar(&self, is_equal_enough: bool, rank: impl Fn(usize) -> u64) -> Bar {
        let key = &self.keys[0];
        let worst = self.candidates[self.count - 1] as usize;
        if !key.is_valid(worst) {
            let values = if key.nulls_first { ValueBar::None } else { ValueBar::All };
            return Bar { values, nulls_pass: is_equal_enough };
        }
        let worst = rank(worst);
        let better = if key.is_descending { worst.checked_add(1) } else { worst.checked_sub(1) };
        let enough = if is_equal_enough { Some(worst) } else { better };
        Bar { values: enough.map_or(ValueBar::None, ValueBar::To), nulls_pass: key.nulls_first }
    }
}

/// Which rows can still become candidates.
struct Bar {
    values: ValueBar,
    nulls_pass: bool,
}

enum ValueBar {
    All,
    /// Values up to this rank, or from it on if descending.
    To(u64),
    None,
}

kernel! {
    fn block_may_pass[T: Ranked][T](values: &[T], threshold: Threshold) -> bool = block_may_pass_plain;
}

#[inline(always)]
fn block_may_pass_plain<T: Ranked>(values: &[T], threshold: Threshold) -> bool {
    // Without an early exit the compiler vectorises it.
    if threshold.is_descending {
        values.iter().fold(false, |any, value| any | (value.rank() >= threshold.rank))
    } else {
        values.iter().fold(false, |any, value| any | (value.rank() <= threshold.rank))
    }
}
