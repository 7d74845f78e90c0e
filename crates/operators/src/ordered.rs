//! The build side of joins by ranges: rows in the order of a number, of which those between two bounds are together.
//!
//! A condition on a second number is asked of a tree of greatest numbers: the next row that fulfils it is found in a time
//! that grows with the logarithm of the rows between (a priority search tree: McCreight, SIAM J. Comput. 14, 1985). So
//! `a.begin < b.end AND a.end > b.begin` costs the pairs it gives, not the product of the sides.

use keirin_kernels::sort::{Key, Method, Values, sort_rows_while};
use keirin_kernels::{Bits, Level, count_ones};

/// Numbers below one of the next level of the tree.
const FANOUT_BITS: u32 = 4;

/// Rows with a value in the order of their numbers, each group by itself.
#[derive(Debug)]
pub struct OrderedRows {
    /// As long as the rows, or empty if all are one group.
    groups: Vec<u64>,
    numbers: Vec<u64>,
    rows: Vec<u32>,
    /// The second numbers, if there are any, and above each of them the greatest ones of some of those below.
    levels: Vec<Vec<u64>>,
    /// Count of all rows, with those without a value.
    row_count: usize,
}

/// Which rows of an order a row of the other side reaches: those of its group with a number from `least` to `most`, and
/// with a second number of `second_least` or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The group, if there are groups.
    pub group: u64,
    /// The least number.
    pub least: u64,
    /// The greatest number. Nothing is reached if it is less than the least.
    pub most: u64,
    /// The least second number, if there are second numbers.
    pub second_least: u64,
}

impl Reach {
    /// No rows.
    pub const NOTHING: Self = Self { group: 0, least: 1, most: 0, second_least: 0 };
    /// All rows with a value, if there are no groups.
    pub const EVERYTHING: Self = Self { group: 0, least: 0, most: u64::MAX, second_least: 0 };
}

/// Which of the rows that are reached are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All of them.
    All,
    /// The last one in order for which all else is true.
    Last,
    /// The first one in order for which all else is true.
    First,
}

impl OrderedRows {
    /// Puts `numbers.len()` rows in order, as long as `is_wanted` says so; `None` if it does not. `groups` and
    /// `second_numbers` are as many or none.
    ///
    /// # Panics
    /// When lengths differ, or there are 2^32 rows or more.
    #[must_use]
    pub fn new(
        level: Level,
        groups: &[u64],
        [numbers, second_numbers]: [&[u64]; 2],
        validity: Option<Bits<'_>>,
        is_wanted: &dyn Fn() -> bool,
    ) -> Option<Self> {
        let row_count = numbers.len();
        let key =
            |values| Key { values: Values::U64(values), validity, is_descending: false, nulls_first: false };
        let mut keys = vec![key(numbers)];
        if !groups.is_empty() {
            keys.insert(0, key(groups));
        }
        let mut rows = sort_rows_while(level, Method::Radix, &keys, row_count, is_wanted)?;
        rows.truncate(validity.map_or(row_count, |validity| count_ones(level, validity)));
        let ordered = |values: &[u64]| -> Vec<u64> {
            if values.is_empty() {
                Vec::new()
            } else {
                rows.iter().map(|row| values[*row as usize]).collect()
            }
        };
        let (groups, numbers, mut last) = (ordered(groups), ordered(numbers), ordered(second_numbers));
        let mut levels = Vec::new();
        while !last.is_empty() {
            let greatest = |below: &[u64]| below.iter().copied().max().unwrap_or_default();
            let next = if last.len() > 1 {
                last.chunks(1 << FANOUT_BITS).map(greatest).collect()
            } else {
                Vec::new()
            };
            levels.push(std::mem::replace(&mut last, next));
        }
        Some(Self { groups, numbers, rows, levels, row_count })
    }

    /// What [`new`](Self::new) takes for so many rows, in bytes.
    #[must_use]
    pub fn bytes(row_count: usize, has_groups: bool, has_second_numbers: bool) -> usize {
        // With the pairs of words and rows that are sorted.
        let words = 3 + usize::from(has_groups) + 2 * usize::from(has_second_numbers);
        row_count * (words * size_of::<u64>() + size_of::<u32>())
    }

    /// Count of all rows, with those that have no value.
    #[must_use]
    pub fn len(&self) -> usize {
        self.row_count
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.row_count == 0
    }

    fn key(&self, place: usize) -> (u64, u64) {
        (if self.groups.is_empty() { 0 } else { self.groups[place] }, self.numbers[place])
    }

    /// The first place whose key is not less, or is greater.
    fn first(&self, key: (u64, u64), is_greater: bool) -> usize {
        let (mut start, mut len) = (0, self.numbers.len());
        while len > 0 {
            let (half, place) = (len / 2, start + len / 2);
            let is_before = if is_greater { self.key(place) <= key } else { self.key(place) < key };
            // Which half it is cannot be foreseen: no branch.
            start = if is_before { place + 1 } else { start };
            len = if is_before { len - half - 1 } else { half };
        }
        start
    }

    /// The next place from `place` on, before `end`, with such a second number.
    fn next(&self, place: usize, end: usize, second_least: u64) -> Option<usize> {
        if self.levels.is_empty() {
            return (place < end).then_some(place);
        }
        let (mut level, mut place) = (0, place);
        while place << (level * FANOUT_BITS as usize) < end {
            if self.levels[level][place] >= second_least {
                if level == 0 {
                    return Some(place);
                }
                level -= 1;
                place <<= FANOUT_BITS;
                continue;
            }
            place += 1;
            while place.trailing_zeros() >= FANOUT_BITS && level + 1 < self.levels.len() {
                place >>= FANOUT_BITS;
                level += 1;
            }
        }
        None
    }
}

/// The rows that the rows of a batch reach, one after the other.
#[derive(Debug)]
pub(crate) struct Reached {
    /// For each row of the batch the places that were not given yet, and the least second number.
    open: Vec<(u32, u32, u64)>,
    wanted: Wanted,
    /// If one row is enough, the rows of the batch that may have none yet.
    searching: Vec<u32>,
    /// Nothing is left of rows before this one.
    row: usize,
}

#[expect(clippy::cast_possible_truncation, reason = "rows are numbered by u32")]
impl Reached {
    pub(crate) fn new(rows: &OrderedRows, reaches: &[Reach], wanted: Wanted) -> Self {
        let open = reaches.iter().map(|reach| {
            if reach.least > reach.most {
                return (0, 0, 0);
            }
            let group = if rows.groups.is_empty() { 0 } else { reach.group };
            let start = rows.first((group, reach.least), false);
            let end = rows.first((group, reach.most), true);
            (start as u32, end.max(start) as u32, reach.second_least)
        });
        let open: Vec<_> = open.collect();
        let mut searching = Vec::new();
        if wanted != Wanted::All {
            searching =
                (0..open.len() as u32).filter(|row| open[*row as usize].0 < open[*row as usize].1).collect();
        }
        Self { open, wanted, searching, row: 0 }
    }

    /// Whether one row is enough for each row of the batch.
    pub(crate) fn wants_one(&self) -> bool {
        self.wanted != Wanted::All
    }

    /// Nothing is given any more of rows before this one.
    pub(crate) fn given(&self) -> usize {
        self.row
    }

    pub(crate) fn reaches_any(&self, rows: &OrderedRows, row: usize) -> bool {
        let (start, end, least) = self.open[row];
        rows.next(start as usize, end as usize, least).is_some()
    }

    /// Adds the next pairs, about `pair_count_max` in all, but none of rows that are done. Returns whether there may be more.
    pub(crate) fn pairs(
        &mut self,
        rows: &OrderedRows,
        pair_count_max: usize,
        is_done: impl Fn(usize) -> bool,
        probe_rows: &mut Vec<u32>,
        build_rows: &mut Vec<u32>,
    ) -> bool {
        if self.wants_one() {
            return self.next_candidates(rows, is_done, probe_rows, build_rows);
        }
        while self.row < self.open.len() {
            if is_done(self.row) {
                self.row += 1;
                continue;
            }
            let (start, end, least) = &mut self.open[self.row];
            while let Some(place) = rows.next(*start as usize, *end as usize, *least) {
                if probe_rows.len() >= pair_count_max {
                    return true;
                }
                probe_rows.push(self.row as u32);
                build_rows.push(rows.rows[place]);
                *start = place as u32 + 1;
            }
            self.row += 1;
        }
        false
    }

    /// The next row that may be the one, of each row of the batch that has none yet.
    fn next_candidates(
        &mut self,
        rows: &OrderedRows,
        is_done: impl Fn(usize) -> bool,
        probe_rows: &mut Vec<u32>,
        build_rows: &mut Vec<u32>,
    ) -> bool {
        self.searching.retain(|row| !is_done(*row as usize));
        for row in &self.searching {
            let (start, end, _) = &mut self.open[*row as usize];
            let place = if self.wanted == Wanted::Last {
                *end -= 1;
                *end
            } else {
                *start += 1;
                *start - 1
            };
            probe_rows.push(*row);
            build_rows.push(rows.rows[place as usize]);
        }
        self.searching.retain(|row| self.open[*row as usize].0 < self.open[*row as usize].1);
        let is_more = !self.searching.is_empty();
        if !is_more {
            self.row = self.open.len();
        }
        is_more
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "there are few rows")]
mod tests {
    use keirin_kernels::BitBuffer;
    use proptest::prelude::*;

    use super::*;
    use crate::join::{Build, Kind, NO_ROW, Pairs, Probe};

    /// A group, a number and a second number; or no value.
    type Row = Option<(u64, u64, u64)>;

    fn is_reached(row: &Row, reach: &Reach, has_groups: bool, has_second: bool) -> bool {
        row.is_some_and(|(group, number, second)| {
            (!has_groups || group == reach.group)
                && (reach.least..=reach.most).contains(&number)
                && (!has_second || second >= reach.second_least)
        })
    }

    fn passes(has_condition: bool, build_row: usize, probe_row: usize) -> bool {
        !has_condition || !(build_row + 2 * probe_row).is_multiple_of(3)
    }

    fn ordered(rows: &[Row], has_groups: bool, has_second: bool) -> OrderedRows {
        let column = |is_there: bool, of: fn((u64, u64, u64)) -> u64| -> Vec<u64> {
            if is_there { rows.iter().map(|row| row.map_or(7, of)).collect() } else { Vec::new() }
        };
        let validity: BitBuffer = rows.iter().map(Option::is_some).collect();
        let numbers = [column(true, |row| row.1), column(has_second, |row| row.2)];
        let validity = rows.contains(&None).then(|| validity.as_bits());
        let groups = column(has_groups, |row| row.0);
        OrderedRows::new(Level::best(), &groups, [&numbers[0], &numbers[1]], validity, &|| true).unwrap()
    }

    /// Pairs of a build row and a probe row, a row without a pair being [`NO_ROW`].
    fn found(build: &Build<u64>, mut probe: Probe<u64>, has_condition: bool, most: usize) -> Vec<(u32, u32)> {
        let (mut answer, mut is_more, mut pairs) = (Vec::new(), true, Pairs::default());
        while is_more {
            is_more = probe.next_pairs(build, most, &mut pairs);
            let pass = pairs.build_rows.iter().zip(&pairs.probe_rows);
            let pass: BitBuffer =
                pass.map(|(b, p)| passes(has_condition, *b as usize, *p as usize)).collect();
            pairs.keep(pass.as_bits());
            probe.settle(build, &mut pairs);
            answer.extend(pairs.build_rows.iter().copied().zip(pairs.probe_rows.iter().copied()));
        }
        answer.sort_unstable();
        answer
    }

    fn check(rows: &[Row], reaches: &[Reach], has_groups: bool, has_second: bool) {
        let is_pair = |has_condition: bool, build_row: usize, probe_row: usize| {
            is_reached(&rows[build_row], &reaches[probe_row], has_groups, has_second)
                && passes(has_condition, build_row, probe_row)
        };
        for (kind, has_condition, most) in Kind::ALL
            .into_iter()
            .flat_map(|kind| [(kind, false, 1_000), (kind, false, 3), (kind, true, 3), (kind, true, 1_000)])
        {
            let build = Build::<u64>::ordered(ordered(rows, has_groups, has_second), kind);
            let mut probe = Probe::ordered(&build, reaches, Wanted::All);
            let met: Vec<bool> =
                (0..reaches.len()).map(|p| (0..rows.len()).any(|b| is_pair(has_condition, b, p))).collect();
            if !kind.gives_pairs() && !has_condition {
                probe.mark_found(&build);
            } else {
                let found = found(&build, Probe::ordered(&build, reaches, Wanted::All), has_condition, most);
                if kind.gives_pairs() {
                    let pairs = (0..rows.len()).flat_map(|b| (0..reaches.len()).map(move |p| (b, p)));
                    let pairs = pairs.filter(|(b, p)| is_pair(has_condition, *b, *p));
                    let mut expected: Vec<_> = pairs.map(|(b, p)| (b as u32, p as u32)).collect();
                    if matches!(kind, Kind::Right | Kind::Full) {
                        let unmet = (0..reaches.len()).filter(|p| !met[*p]);
                        expected.extend(unmet.map(|p| (NO_ROW, p as u32)));
                    }
                    assert_eq!(found, expected, "{kind:?}, {has_condition}");
                }
            }
            if kind.marks_build_rows() {
                for b in 0..rows.len() {
                    let is_met = (0..reaches.len()).any(|p| is_pair(has_condition, b, p));
                    assert_eq!(build.is_met(b), is_met, "{kind:?}, {has_condition}, row {b}");
                }
            }
            if kind.gives_probe_rows() && !has_condition {
                assert_eq!(
                    (0..met.len()).map(|p| probe.met_rows().as_bits().get(p)).collect::<Vec<_>>(),
                    met,
                    "{kind:?}"
                );
            }
        }
    }

    fn check_nearest(rows: &[Row], reaches: &[Reach], has_groups: bool) {
        for (wanted, has_condition) in
            [(Wanted::Last, false), (Wanted::Last, true), (Wanted::First, false), (Wanted::First, true)]
        {
            let build = Build::<u64>::ordered(ordered(rows, has_groups, false), Kind::Right);
            let found = found(&build, Probe::ordered(&build, reaches, wanted), has_condition, 3);
            assert_eq!(found.len(), reaches.len(), "one for each row");
            for (b, p) in found {
                let reached = (0..rows.len()).filter(|b| {
                    is_reached(&rows[*b], &reaches[p as usize], has_groups, false)
                        && passes(has_condition, *b, p as usize)
                });
                let numbers = reached.map(|b| rows[b].map(|row| row.1));
                let nearest = if wanted == Wanted::Last { numbers.max() } else { numbers.min() };
                let number = (b != NO_ROW).then(|| rows[b as usize].map(|row| row.1));
                assert_eq!(number, nearest, "{wanted:?}, {has_condition}, probe row {p}");
            }
        }
    }

    #[test]
    fn sides_may_have_no_rows() {
        let all = Reach { group: 0, least: 0, most: u64::MAX, second_least: 0 };
        for rows in [vec![], vec![None], vec![Some((0, u64::MAX, 0)), None]] {
            for reaches in [vec![], vec![all, Reach::NOTHING]] {
                check(&rows, &reaches, false, false);
                check(&rows, &reaches, true, true);
                check_nearest(&rows, &reaches, false);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn rows_are_those_of_nested_loops(
            rows in prop::collection::vec(
                prop::option::weighted(0.9, (0_u64..3, 0_u64..60, 0_u64..60)), 0..400),
            reaches in prop::collection::vec((0_u64..4, 0_u64..70, 0_u64..70, 0_u64..70), 0..20),
        ) {
            let reaches: Vec<Reach> = reaches
                .into_iter()
                .map(|(group, least, most, second_least)| Reach { group, least, most, second_least })
                .collect();
            for has_groups in [false, true] {
                check(&rows, &reaches, has_groups, false);
                check(&rows, &reaches, has_groups, true);
                check_nearest(&rows, &reaches, has_groups);
            }
        }
    }
}
