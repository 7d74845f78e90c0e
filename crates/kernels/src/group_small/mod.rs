//! Groups by keys of 8 or 16 bits: a table with a state for every possible key.
//!
//! What slows such a table down is not its size but skew: a row whose key just occurred waits until the store
//! of that state can be loaded again, so a single key is 7 times slower than 256 evenly distributed ones. The
//! [`Variant`]s differ in how they avoid the wait; none is best everywhere, and all give the same bits, so
//! they may race block by block; [`suggest`] classifies data for that. The study behind it: A. Milovidov,
//! "Optimizing one aggregate function", 2020; the exact sums by integers (`units.rs`) are ours and cost
//! nothing.
//!
//! ns a row, avg(f32) by u8 from the second-level cache, one core (Zen 4); the levels differ by less than a tenth:
//!
//! | keys | ClickHouse's 4 tables | one | four | eight | sixteen | runs |
//! |---|---|---|---|---|---|---|
//! | 256 evenly | 0.57 | 0.76 | 0.75 | 0.86 | 1.0 | 0.75 |
//! | 7, the first 72 % | 0.70 | 1.5 | 0.75 | 0.73 | 0.72 | 0.77 |
//! | one | 0.90 | 2.0 | 0.87 | 0.79 | 0.79 | 0.35 |
//!
//! The exact sum costs 0.14 of it. Tried and rejected: a vector of sums for each of up to eight keys (0.45 where
//! the others took 0.3 for the 7 keys, and useless for more), states of doubles with a check beside them (the
//! same), and for AVX-512 a loop that adds states as vectors of two words right after converting: 0.31 on a Zen 5,
//! but 1.17 on a Zen 4.

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
use units::Plan;

/// Rows whose sums are kept or undone together.
const BLOCK: usize = 1 << 13;
/// The units, as powers of two, in which tables count floats; other floats are summed one by one.
const UNITS: std::ops::RangeInclusive<i32> = -900..=800;
/// After a block with outliers, blocks whose outliers are removed without trying the whole block first.
const BLOCKS_WITH_OUTLIERS: u8 = 7;
/// Values from which a unit is first guessed.
const SAMPLE: usize = 1 << 10;
/// With keys beyond this, more than four tables would fill the second-level cache.
const MANY_KEYS: usize = 1 << 12;

/// u8 or u16.
pub trait SmallKey: Comparable + Default + Ord + Send + sealed::Sealed {
    /// How many keys there are.
    const COUNT: usize;
    /// The key as a number below [`SmallKey::COUNT`].
    fn index(self) -> usize;
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
}

impl SmallKey for u16 {
    const COUNT: usize = 1 << 16;
    #[inline(always)]
    fn index(self) -> usize {
        usize::from(self)
    }
}

/// Loops that give the same sums; the first is the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// One table: for many 16-bit keys, whose states fill the second-level cache.
    OneTable,
    /// Four tables, used in turn.
    FourTables,
    /// Eight tables, used in turn.
    EightTables,
    /// Sixteen tables, used in turn.
    SixteenTables,
    /// Four tables; but 64 rows with equal keys are summed in registers first.
    Runs,
}

impl Variant {
    /// All variants.
    pub const ALL: &[Self] =
        &[Self::OneTable, Self::FourTables, Self::EightTables, Self::SixteenTables, Self::Runs];

    /// A short name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OneTable => "one-table",
            Self::FourTables => "four-tables",
            Self::EightTables => "eight-tables",
            Self::SixteenTables => "sixteen-tables",
            Self::Runs => "runs",
        }
    }

    fn table_count(self) -> usize {
        match self {
            Self::OneTable => 1,
            Self::FourTables | Self::Runs => 4,
            Self::EightTables => 8,
            Self::SixteenTables => 16,
        }
    }

    /// The variant to use for keys of this range.
    fn over(self, keys: &Range<usize>) -> Self {
        match self {
            Self::EightTables | Self::SixteenTables if keys.len() > MANY_KEYS => Self::FourTables,
            variant => variant,
        }
    }
}

/// Kinds of key distributions, for which different variants are fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Neighbours are mostly equal.
    Runs,
    /// At most eight keys.
    Few,
    /// One key in more than an eighth of the rows.
    Skewed,
    /// Thousands of keys, whose states exceed the first-level cache.
    Many,
    /// None of these.
    Even,
}

impl Shape {
    /// A short name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Few => "few",
            Self::Skewed => "skewed",
            Self::Many => "many",
            Self::Even => "even",
        }
    }

    /// The variants worth racing, the one that is usually fastest first. The others are several times slower
    /// here, or leave many tables to be emptied.
    #[must_use]
    pub fn variants(self) -> &'static [Variant] {
        use Variant::{EightTables, FourTables, OneTable, Runs, SixteenTables};
        match self {
            Self::Runs => &[Runs, SixteenTables, EightTables],
            Self::Few => &[SixteenTables, EightTables, FourTables],
            Self::Skewed => &[FourTables, EightTables, SixteenTables, Runs],
            Self::Many => &[OneTable],
            Self::Even => &[FourTables, OneTable, EightTables, Runs],
        }
    }
}

/// The shape of keys, from a sample: some 1,000 rows in stretches of 64.
#[must_use]
pub fn suggest<K: SmallKey>(keys: &[K]) -> Shape {
    const STRETCH: usize = 64;
    const STRETCHES: usize = 16;
    let mut sample = Vec::with_capacity(STRETCH * STRETCHES);
    let mut repeats = 0;
    let step = (keys.len() / STRETCHES).max(STRETCH);
    for stretch in keys.chunks(step).take(STRETCHES) {
        let stretch = &stretch[..stretch.len().min(STRETCH)];
        repeats += stretch.windows(2).filter(|pair| pair[0] == pair[1]).count();
        sample.extend_from_slice(stretch);
    }
    sample.sort_unstable();
    let counts = || sample.chunk_by(|a, b| a == b).map(<[K]>::len);
    let (rows, key_count, most) = (sample.len(), counts().count(), counts().max().unwrap_or(0));
    if repeats * 20 > rows * 19 {
        Shape::Runs
    } else if key_count <= 8 {
        Shape::Few
    } else if most * 8 > rows {
        Shape::Skewed
    } else if key_count > 512 {
        Shape::Many
    } else {
        Shape::Even
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
    /// Blocks whose outliers are still to be removed without trying the whole block first.
    blocks_with_outliers: u8,
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
            blocks_with_outliers: 0,
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
        for_each_dense(level, keys, values, validity, selection, |keys, values| {
            for (keys, values) in keys.chunks(BLOCK).zip(values.chunks(BLOCK)) {
                self.add_block(level, variant, keys, values);
            }
        });
    }

    fn add_block<K: SmallKey, T: Value>(&mut self, level: Level, variant: Variant, keys: &[K], values: &[T]) {
        let range = tables::range(level, keys);
        let variant = variant.over(&range);
        self.note(&range);
        if self.tables.count() < variant.table_count() {
            self.flush();
            self.tables.resize(variant.table_count());
        }
        // If even a sample fits no unit, the block will not either.
        let sample = &values[..values.len().min(SAMPLE)];
        let mut has_plan = self.blocks_with_outliers == 0 && (self.plan.suits::<T>() || self.fit_to(sample));
        // Tries again when the values differ from the sample, and once more with two parts.
        for _ in 0..3 {
            if !has_plan {
                break;
            }
            if self.add_fitting(level, variant, &range, keys, values) {
                return;
            }
            // Whatever was added, even garbage, is subtracted again: integers wrap both ways. The same value
            // always converts to the same garbage, also NaN, for which the CPUs of all levels do.
            tables::undo(level, keys, values, &self.plan, self.tables.states(&range));
            has_plan = self.fit_to(values);
        }
        self.add_without_outliers(level, variant, &range, keys, values);
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
        self.reserve_rows(keys.len() as u64);
        let fit = tables::group(level, keys, values, &self.plan, variant, self.tables.states(range));
        self.most_rows += keys.len() as u64;
        fit.is_exact(&self.plan)
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
        let before = self.plan.suits::<T>().then_some(self.plan);
        let most = || T::plan_for_most(&values[..values.len().min(SAMPLE)], &self.plan);
        let plan = [before].into_iter().chain(std::iter::once_with(most)).flatten().find(|plan| {
            fitting.clear();
            outliers.clear();
            tables::split_outliers(level, values, plan, &mut fitting, &mut outliers);
            // A plan with more outliers is the wrong one.
            outliers.len() <= values.len() / 8
        });
        let Some(plan) = plan else {
            self.blocks_with_outliers = 0;
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
        let is_exact = self.add_fitting(level, variant, range, keys, &fitting);
        assert!(is_exact, "each of the values was seen to fit");
        for row in &outliers {
            let (key, value) = (keys[*row as usize], values[*row as usize]);
            value.push_to(self.outlier_sums.entry(key.index()).or_default());
        }
        self.blocks_with_outliers = if outliers.is_empty() { 0 } else { BLOCKS_WITH_OUTLIERS };
    }

    fn note(&mut self, keys: &Range<usize>) {
        self.keys = union(&self.keys, keys);
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
        let plan = T::plan(values, &self.plan);
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
