//! Groups by keys of 8 or 16 bits: a table with a state for every possible key.
//!
//! What slows such a table down is not its size but its stores, of which the CPU does one a cycle, and skew: a row
//! whose key just occurred waits until the store of that state can be loaded again, so a single key is 7 times slower
//! than 256 evenly distributed ones. So a row stores one word where a number leaves room for the count (`units.rs`),
//! and several tables are used in turn ([`Variant`]). The study behind it: A. Milovidov, "Optimizing one aggregate
//! function", 2020; the exact sums by integers are ours.
//!
//! ns a row, avg by u8 from the second-level cache, one core (Zen 4). Cents from 2.50 to 100 as f32 leave room for
//! the counts of 8,128 rows, those up to 1,000 for 960 rows; as f64 they take two words:
//!
//! | keys | ClickHouse's 4 tables | f32 to 100 | f32 to 1,000 | f64 |
//! |---|---|---|---|---|
//! | 256 evenly | 0.53 | 0.54 | 0.70 | 0.88 |
//! | 7, the first 72 % | 0.69 | 0.54 | 0.78 | 1.05 |
//! | one | 0.84 | 0.28 | 0.47 | 0.43 |
//!
//! Before counts shared words, rows of the next chunk were converted while those of one were added, and keys were loaded
//! eight at a time, f32 took 0.86 to 0.89. Tried and rejected: a vector of sums for each of up to eight keys (0.45
//! where the others took 0.3 for the 7 keys, and useless for more), states of doubles with a check beside them (the
//! same), for AVX-512 a loop that adds states as vectors of two words right after converting (0.31 on a Zen 5, but
//! 1.17 on a Zen 4), and looking for the range of bytes, to empty less (the same, or slower).

#![allow(clippy::cast_possible_wrap, reason = "bits are few")]

mod tables;
mod units;

use std::collections::BTreeMap;

pub use units::Value;

use crate::aggregate::{ExactSum, power_of_two};
use crate::compact::compact_into;
use crate::compare::Comparable;
use crate::gather::{gather, gather_bits};
use crate::{Bits, Level, Selection, bitmaps};
use std::ops::Range;
use tables::Tables;
use units::{COUNTED, PACKED, Plan};

/// Rows whose sums are kept or undone together.
const BLOCK: usize = 1 << 13;
/// The units, as powers of two, in which tables count floats; other floats are summed one by one.
const UNITS: std::ops::RangeInclusive<i32> = -900..=800;
/// Values from which a unit is first guessed.
const SAMPLE: usize = 1 << 10;
/// The most keys whose sums and counts share a word: such words are added to states after each block.
const PACKED_KEYS: usize = 1 << 9;
/// With keys beyond this, more than four tables would fill the second-level cache.
const MANY_KEYS: usize = 1 << 12;

/// u8 or u16.
pub trait SmallKey: Comparable + Default + Ord + Send + sealed::Sealed {
    /// How many keys there are.
    const COUNT: usize;
    /// The key as a number below [`SmallKey::COUNT`].
    fn index(self) -> usize;
    /// Eight keys, as they are loaded at once.
    #[doc(hidden)]
    type Eight: Copy;
    #[doc(hidden)]
    fn eight(keys: &[Self; 8]) -> Self::Eight;
    /// [`Self::index`] of one of them.
    #[doc(hidden)]
    fn index_of(keys: Self::Eight, place: usize) -> usize;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u8 {}
    impl Sealed for u16 {}
}

impl SmallKey for u8 {
    const COUNT: usize = 1 << 8;
    #[inline(always)]
    fn index(self) -> usize {
        usize::from(self)
    }
    type Eight = u64;
    #[inline(always)]
    fn eight(keys: &[Self; 8]) -> u64 {
        u64::from_le_bytes(*keys)
    }
    #[inline(always)]
    fn index_of(keys: u64, place: usize) -> usize {
        (keys >> (8 * place) & 0xFF) as usize
    }
}

impl SmallKey for u16 {
    const COUNT: usize = 1 << 16;
    #[inline(always)]
    fn index(self) -> usize {
        usize::from(self)
    }
    type Eight = [Self; 8];
    #[inline(always)]
    fn eight(keys: &[Self; 8]) -> [Self; 8] {
        *keys
    }
    #[inline(always)]
    fn index_of(keys: [Self; 8], place: usize) -> usize {
        usize::from(keys[place])
    }
}

/// Loops that give the same sums; the first is the reference. What is asked for more tables than the nearest cache holds
/// takes fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// One table: for many 16-bit keys, whose states fill the second-level cache.
    OneTable,
    /// Four tables, used in turn.
    FourTables,
    /// Eight tables, used in turn.
    EightTables,
}

impl Variant {
    /// All variants.
    pub const ALL: &[Self] = &[Self::OneTable, Self::FourTables, Self::EightTables];

    /// A short name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OneTable => "one-table",
            Self::FourTables => "four-tables",
            Self::EightTables => "eight-tables",
        }
    }

    /// The variant for keys like these, from a sample: one table if they are thousands. Bytes need no look.
    #[must_use]
    pub fn suggest<K: SmallKey>(keys: &[K]) -> Self {
        const STRETCH: usize = 16;
        const STRETCHES: usize = 16;
        if K::COUNT == 1 << 8 {
            return Self::EightTables;
        }
        let mut sample = Vec::with_capacity(STRETCH * STRETCHES);
        for stretch in keys.chunks((keys.len() / STRETCHES).max(STRETCH)).take(STRETCHES) {
            sample.extend_from_slice(&stretch[..stretch.len().min(STRETCH)]);
        }
        sample.sort_unstable();
        let key_count = sample.chunk_by(|left, right| left == right).count();
        if key_count > STRETCH * STRETCHES / 2 { Self::OneTable } else { Self::EightTables }
    }

    fn table_count(self) -> usize {
        match self {
            Self::OneTable => 1,
            Self::FourTables => 4,
            Self::EightTables => 8,
        }
    }

    /// The variant to use for keys of this range: eight tables of two words would fill the first-level cache, and it takes
    /// long to empty them after few rows.
    fn over(self, keys: &Range<usize>, plan: &Plan) -> Self {
        let is_frugal = plan.layout == PACKED && plan.block_rows() >= BLOCK / 4;
        match self {
            Self::EightTables if !is_frugal || keys.len() > MANY_KEYS => Self::FourTables,
            variant => variant,
        }
    }
}

/// Exact sums and counts by key. As with [`ExactSum`], the result depends only on the set of rows, not on
/// variants, batches, order or threads.
#[derive(Clone, Debug)]
pub struct GroupSums {
    /// Rows by key, without those in `tables`.
    counts: Vec<u64>,
    /// Sums by key in units of 2^grid, without those in `tables` and `outlier_sums`.
    totals: Vec<i128>,
    grid: i32,
    /// The range of keys that may have rows.
    keys: Range<usize>,
    tables: Tables,
    /// How values are converted for `tables`.
    plan: Plan,
    /// An upper bound of the rows of one key in `tables`.
    most_rows: u64,
    /// By key, the sums of values that fit no unit.
    outlier_sums: BTreeMap<usize, ExactSum>,
    /// Whether the block before had outliers: those of the next are removed without trying the whole block first.
    had_outliers: bool,
}

impl GroupSums {
    /// No rows, for keys of type `K`.
    #[must_use]
    pub fn new<K: SmallKey>() -> Self {
        Self {
            counts: vec![0; K::COUNT],
            totals: vec![0; K::COUNT],
            grid: 0,
            keys: 0..0,
            tables: Tables::new::<K>(),
            plan: Plan::default(),
            most_rows: 0,
            outlier_sums: BTreeMap::new(),
            had_outliers: false,
        }
    }

    /// Adds the selected rows whose value is valid, by the loop of a variant.
    ///
    /// # Panics
    /// When there are not as many keys as values or bits, a row number is out of range, or keys are of
    /// another type than in [`GroupSums::new`].
    pub fn add<K: SmallKey, T: Value>(
        &mut self,
        level: Level,
        variant: Variant,
        keys: &[K],
        values: &[T],
        validity: Option<Bits<'_>>,
        selection: Selection<'_>,
    ) {
        assert_eq!(self.counts.len(), K::COUNT, "keys are of the type that the sums are for");
        for_each_dense(level, keys, values, validity, selection, |mut keys, mut values| {
            while !keys.is_empty() {
                let added = self.add_block(level, variant, keys, values);
                (keys, values) = (&keys[added..], &values[added..]);
            }
        });
    }

    /// Adds the first of these rows, and returns how many.
    fn add_block<K: SmallKey, T: Value>(
        &mut self,
        level: Level,
        variant: Variant,
        keys: &[K],
        values: &[T],
    ) -> usize {
        let rows = keys.len().min(self.plan.block_rows());
        let (mut keys, mut values) = (&keys[..rows], &values[..rows]);
        let range = tables::range(level, keys);
        self.note(&range);
        // If even a sample fits no unit, the block will not either.
        let sample = &values[..values.len().min(SAMPLE)];
        let least = self.least_layout();
        let mut has_plan = !self.had_outliers && (self.plan.suits::<T>(least) || self.fit_to(sample));
        // Tries again when the values differ from the sample, and once more for each wider layout.
        for _ in 0..4 {
            if !has_plan {
                break;
            }
            let rows = keys.len().min(self.plan.block_rows());
            (keys, values) = (&keys[..rows], &values[..rows]);
            if self.add_fitting(level, variant, &range, keys, values) {
                return rows;
            }
            // Whatever was added, even garbage, is subtracted again: integers wrap both ways. The same value
            // always converts to the same garbage, also NaN, for which the CPUs of all levels do.
            if self.plan.layout != PACKED {
                tables::undo(level, keys, values, &self.plan, self.tables.states(&self.plan, &range));
            }
            has_plan = self.fit_to(values);
        }
        self.add_without_outliers(level, variant, &range, keys, values);
        keys.len()
    }

    /// Adds rows to the tables by the current plan, and returns whether that was exact.
    fn add_fitting<K: SmallKey, T: Value>(
        &mut self,
        level: Level,
        variant: Variant,
        range: &Range<usize>,
        keys: &[K],
        values: &[T],
    ) -> bool {
        let variant = variant.over(range, &self.plan);
        if self.tables.count() < variant.table_count() {
            self.flush();
            self.tables.resize(variant.table_count());
        }
        self.reserve_rows(keys.len() as u64);
        let states = self.tables.states(&self.plan, range);
        let is_exact = tables::group(level, keys, values, &self.plan, variant, states).is_exact(&self.plan);
        if self.plan.layout == PACKED {
            self.tables.unpack(level, &self.plan, variant.table_count(), range, is_exact);
        }
        self.most_rows += keys.len() as u64;
        is_exact
    }

    /// Adds a block with zeros in place of its outliers, and then the outliers one by one: values that are
    /// not finite or fit no unit together with the others. So one NaN among prices does not make the whole
    /// block be added one by one, which takes 100 times as long.
    fn add_without_outliers<K: SmallKey, T: Value>(
        &mut self,
        level: Level,
        variant: Variant,
        range: &Range<usize>,
        keys: &[K],
        values: &[T],
    ) {
        let (mut fitting, mut outliers) = (Vec::with_capacity(values.len()), Vec::new());
        let least = self.least_layout();
        let before = self.plan.suits::<T>(least).then_some(self.plan);
        let most = || T::plan_for_most(&values[..values.len().min(SAMPLE)], least, &self.plan);
        let plan = [before].into_iter().chain(std::iter::once_with(most)).flatten().find(|plan| {
            fitting.clear();
            outliers.clear();
            tables::split_outliers(level, values, plan, &mut fitting, &mut outliers);
            // A plan with more outliers is the wrong one.
            outliers.len() <= values.len() / 8
        });
        let Some(plan) = plan else {
            self.had_outliers = false;
            for (key, value) in keys.iter().zip(values) {
                value.push_to(self.outlier_sums.entry(key.index()).or_default());
                self.counts[key.index()] += 1;
            }
            return;
        };
        if before.is_none_or(|before| before != plan) {
            self.flush();
            self.plan = plan;
        }
        let block = plan.block_rows();
        for (keys, fitting) in keys.chunks(block).zip(fitting.chunks(block)) {
            let is_exact = self.add_fitting(level, variant, range, keys, fitting);
            assert!(is_exact, "each of the values was seen to fit");
        }
        for row in &outliers {
            let (key, value) = (keys[*row as usize], values[*row as usize]);
            value.push_to(self.outlier_sums.entry(key.index()).or_default());
        }
        self.had_outliers = !outliers.is_empty();
    }

    fn note(&mut self, keys: &Range<usize>) {
        self.keys = union(&self.keys, keys);
    }

    /// The narrowest layout of states for so many keys.
    fn least_layout(&self) -> u8 {
        if self.keys.len() > PACKED_KEYS { COUNTED } else { PACKED }
    }

    /// Makes sure that tables can take this many more rows.
    fn reserve_rows(&mut self, rows: u64) {
        let limit = self.plan.row_limit();
        if self.most_rows + rows > limit {
            self.most_rows = self.tables.most_rows(&self.plan);
            if self.most_rows + rows > limit / 2 {
                self.flush();
            }
        }
    }

    /// Sets a plan that the values fit; false if there is none.
    fn fit_to<T: Value>(&mut self, values: &[T]) -> bool {
        self.flush();
        let plan = T::plan(values, self.least_layout(), &self.plan);
        if let Some(plan) = plan {
            self.plan = plan;
        }
        plan.is_some()
    }

    /// Empties the tables into the totals.
    fn flush(&mut self) {
        if self.most_rows == 0 {
            return;
        }
        self.most_rows = 0;
        self.set_grid();
        let Self { counts, totals, tables, outlier_sums, plan, grid, .. } = self;
        tables.drain(plan, |key, sum, count| {
            counts[key] += count;
            let total = checked_shift(sum, plan.unit - *grid).and_then(|sum| totals[key].checked_add(sum));
            match total {
                Some(total) => totals[key] = total,
                None => outlier_sums.entry(key).or_default().push_wide(sum, plan.unit),
            }
        });
    }

    /// Makes the unit of totals no larger than that of the tables.
    fn set_grid(&mut self) {
        let unit = self.plan.unit;
        if unit >= self.grid {
            return;
        }
        let shift = self.grid - unit;
        for key in self.keys.clone() {
            let total = &mut self.totals[key];
            match checked_shift(*total, shift) {
                Some(shifted) => *total = shifted,
                None => {
                    self.outlier_sums.entry(key).or_default().push_wide(*total, self.grid);
                    *total = 0;
                }
            }
        }
        self.grid = unit;
    }

    /// Adds other sums of the same types.
    ///
    /// # Panics
    /// When they are for another type of keys.
    pub fn merge(&mut self, other: &mut Self) {
        assert_eq!(self.counts.len(), other.counts.len(), "sums for keys of the same type");
        self.flush();
        other.flush();
        self.note(&other.keys);
        for key in other.keys.clone() {
            self.counts[key] += other.counts[key];
            let sum = checked_shift(other.totals[key], other.grid - self.grid);
            match sum.and_then(|sum| self.totals[key].checked_add(sum)) {
                Some(total) => self.totals[key] = total,
                None => self.outlier_sums.entry(key).or_default().push_wide(other.totals[key], other.grid),
            }
        }
        for (key, sum) in &other.outlier_sums {
            self.outlier_sums.entry(*key).or_default().merge(sum);
        }
    }

    /// Calls `give` for each key with rows, in the order of keys, with its sum.
    pub fn for_each(&mut self, mut give: impl FnMut(usize, GroupSum<'_>)) {
        self.flush();
        for key in self.keys.clone() {
            let count = self.counts[key];
            if count > 0 {
                let (total, grid) = (self.totals[key], self.grid);
                give(key, GroupSum { count, total, grid, outlier_sums: self.outlier_sums.get(&key) });
            }
        }
    }
}

/// The sum and count of one key.
#[derive(Clone, Copy, Debug)]
pub struct GroupSum<'a> {
    /// Count of rows, not zero.
    pub count: u64,
    total: i128,
    grid: i32,
    outlier_sums: Option<&'a ExactSum>,
}

impl GroupSum<'_> {
    /// The exact sum, rounded once.
    #[must_use]
    pub fn value(&self) -> f64 {
        match self.outlier_sums {
            // Both multiplications are exact except for the rounding to 53 bits: units are far from the
            // smallest float.
            None => self.total as f64 * power_of_two(self.grid),
            Some(_) => self.exact().value(),
        }
    }

    /// The sum of integers, if it fits.
    #[must_use]
    pub fn integer(&self) -> Option<i128> {
        (self.outlier_sums.is_none() && self.grid == 0).then_some(self.total)
    }

    /// The sum without rounding, to be merged elsewhere.
    #[must_use]
    pub fn exact(&self) -> ExactSum {
        let mut sum = self.outlier_sums.cloned().unwrap_or_default();
        sum.push_wide(self.total, self.grid);
        sum
    }
}

/// The smallest range that contains both.
fn union(left: &Range<usize>, right: &Range<usize>) -> Range<usize> {
    match (left.is_empty(), right.is_empty()) {
        (true, _) => right.clone(),
        (_, true) => left.clone(),
        _ => left.start.min(right.start)..left.end.max(right.end),
    }
}

/// `number * 2^shift`, if that fits with bits to spare.
fn checked_shift(number: i128, shift: i32) -> Option<i128> {
    if number == 0 {
        return Some(0);
    }
    let bits = 128 - number.unsigned_abs().leading_zeros().cast_signed();
    (shift >= 0 && bits + shift < 120).then(|| number << shift)
}

/// Calls `work` with all rows that count, gathered where they are not contiguous.
fn for_each_dense<K: SmallKey, T: Comparable>(
    level: Level,
    keys: &[K],
    values: &[T],
    validity: Option<Bits<'_>>,
    selection: Selection<'_>,
    mut work: impl FnMut(&[K], &[T]),
) {
    /// Rows that are examined at a time; gathered rows are passed on when there are this many.
    const PIECE: usize = BLOCK / 2;
    assert_eq!(keys.len(), values.len(), "a key for each value");
    crate::aggregate::check(keys.len(), validity, selection);
    if validity.is_none() && matches!(selection, Selection::All) {
        return work(keys, values);
    }
    let mut gathered = (Vec::with_capacity(BLOCK), Vec::with_capacity(BLOCK));
    let mut keep = |keys: &[K], values: &[T], kept: Option<Bits<'_>>| {
        let Some(kept) = kept else { return work(keys, values) };
        compact_into(level, keys, kept, &mut gathered.0);
        compact_into(level, values, kept, &mut gathered.1);
        if gathered.0.len() >= PIECE {
            work(&gathered.0, &gathered.1);
            gathered.0.clear();
            gathered.1.clear();
        }
    };
    match (validity, selection) {
        (None, Selection::All) => {}
        (validity, Selection::Rows(rows)) => {
            for rows in rows.chunks(PIECE) {
                let valid = validity.map(|validity| gather_bits(level, validity, rows));
                let (keys, values) = (gather(level, keys, rows), gather(level, values, rows));
                keep(&keys, &values, valid.as_ref().map(|valid| valid.as_bits()));
            }
        }
        (Some(bits), Selection::All) | (None, Selection::Bits(bits)) => {
            for (index, (keys, values)) in keys.chunks(PIECE).zip(values.chunks(PIECE)).enumerate() {
                keep(keys, values, Some(bits.slice(index * PIECE, keys.len())));
            }
        }
        (Some(validity), Selection::Bits(selected)) => {
            for (index, (keys, values)) in keys.chunks(PIECE).zip(values.chunks(PIECE)).enumerate() {
                let (start, len) = (index * PIECE, keys.len());
                let kept = bitmaps::and(level, validity.slice(start, len), selected.slice(start, len));
                keep(keys, values, Some(kept.as_bits()));
            }
        }
    }
    if !gathered.0.is_empty() {
        work(&gathered.0, &gathered.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the keys of the outliers have sums beside the tables: other rows of their blocks went the fast way.
    #[test]
    #[cfg_attr(miri, ignore = "takes blocks of full size")]
    fn values_that_fit_no_unit_cost_no_block() {
        const ROWS: usize = 3 * BLOCK + 100;
        let keys: Vec<u8> = (0..50_u8).cycle().take(ROWS).collect();
        let outliers = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, 5e-324, 1e-10 / 3.0];
        for outlier in outliers {
            let mut values: Vec<f64> = (0..ROWS).map(|row| (row % 977) as f64 / 100.0).collect();
            // One in the first block, which is tried as a whole, and one in the next, which is not.
            let places = [57, ROWS / 2 + 7];
            places.iter().for_each(|row| values[*row] = outlier);
            let expected = std::collections::BTreeSet::from(places.map(|row| row % 50));
            for level in Level::available() {
                for variant in Variant::ALL {
                    let mut sums = GroupSums::new::<u8>();
                    sums.add(*level, *variant, &keys, &values, None, Selection::All);
                    sums.flush();
                    let found: std::collections::BTreeSet<usize> =
                        sums.outlier_sums.keys().copied().collect();
                    assert_eq!(found, expected, "{outlier} {level} {}", variant.name());
                }
            }
        }
    }
}
