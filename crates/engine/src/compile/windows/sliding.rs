//! Aggregates of frames that slide over rows in order.
//!
//! Frames only go forward. What can be taken out again is added once and taken out once: counts, sums of whole
//! numbers, and sums of floats, which are exact. Of what an extreme may become, the rows are kept that no later row beats.
//! Other aggregates are merged from the states of 16, 256, … rows: a segment tree (Leis, Kundhikanjana, Kemper, Neumann:
//! Efficient Processing of Window Functions in Analytical SQL Queries, VLDB 2015), of the accumulators of GROUP BY.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowNativeTypeOp, AsArray, BooleanArray, Float64Array, Int64Array, UInt64Array,
    downcast_primitive_array, make_comparator,
};
use arrow::buffer::NullBuffer;
use arrow::compute::kernels::zip::zip;
use arrow::compute::{SortOptions, concat, take};
use arrow::datatypes::{Float64Type, i256};
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use keirin_kernels::aggregate::CompactSum;

use super::frames::Frames;
use super::running::{Running, State, whole_numbers};

impl Running {
    /// The aggregates of the frames of some rows, over the values of all.
    pub(super) fn of_frames(
        &self,
        values: &ArrayRef,
        frames: &Frames,
        rows: Range<usize>,
    ) -> Result<ArrayRef> {
        Ok(match &self.state {
            State::Count(_) => {
                let nulls = values.logical_nulls();
                let one = |row| i64::from(nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)));
                let counts = slide(
                    frames,
                    rows,
                    0,
                    |count, row| *count += one(row),
                    |count, row| *count -= one(row),
                    |count| *count,
                );
                Arc::new(Int64Array::from_iter_values(counts))
            }
            State::Whole { divided, .. } => {
                let values = whole_numbers(values)?;
                let one = |row| values.is_valid(row).then(|| i256::from_i128(values.value(row)));
                let sums = slide(
                    frames,
                    rows,
                    (i256::ZERO, 0),
                    |(sum, count), row| {
                        if let Some(value) = one(row) {
                            (*sum, *count) = (sum.wrapping_add(value), *count + 1);
                        }
                    },
                    |(sum, count), row| {
                        if let Some(value) = one(row) {
                            (*sum, *count) = (sum.wrapping_sub(value), *count - 1);
                        }
                    },
                    |sum| *sum,
                );
                divided.column(sums, &self.data_type, &self.name)?
            }
            State::Floats { is_average, .. } => {
                let values = values.as_primitive::<Float64Type>();
                let one = |row| values.is_valid(row).then(|| values.value(row));
                let sums = slide(
                    frames,
                    rows,
                    Floats::default(),
                    |sum, row| one(row).into_iter().for_each(|value| sum.count(value, 1)),
                    |sum, row| one(row).into_iter().for_each(|value| sum.count(value, -1)),
                    |sum| sum.value(*is_average),
                );
                Arc::new(sums.collect::<Float64Array>())
            }
            State::Extreme { closer, .. } => {
                let array = values.as_ref();
                let places = downcast_primitive_array! {
                    array => extremes(array, frames, rows, *closer, |one, other| {
                        array.value(one).compare(array.value(other))
                    }),
                    _ => {
                        let compare = make_comparator(array, array, SortOptions::default())?;
                        extremes(array, frames, rows, *closer, compare)
                    }
                };
                take(array, &places, None)?
            }
            State::Nth { .. } | State::Latest { .. } => {
                return internal_err!("a value of no frame that slides");
            }
        })
    }
}

/// What comes of the frame of each row, to which rows are added and from which they are taken again.
fn slide<S, T>(
    frames: &Frames,
    rows: Range<usize>,
    mut state: S,
    mut add: impl FnMut(&mut S, usize),
    mut remove: impl FnMut(&mut S, usize),
    mut result: impl FnMut(&S) -> T,
) -> impl Iterator<Item = T> {
    let first = frames.starts.get(rows.start).copied().unwrap_or_default();
    let mut inside = first..first;
    rows.map(move |row| {
        let frame = frames.of(row);
        // Rows that no frame has had are not added first.
        if inside.end <= frame.start {
            inside.by_ref().for_each(|row| remove(&mut state, row));
            inside = frame.start..frame.start;
        }
        (inside.end..frame.end).for_each(|row| add(&mut state, row));
        (inside.start..frame.start).for_each(|row| remove(&mut state, row));
        inside = frame;
        result(&state)
    })
}

/// The sum of the finite ones, and how many others there are.
#[derive(Default)]
struct Floats {
    sum: CompactSum,
    count: u64,
    nan_count: u64,
    infinite_count: u64,
    negative_infinite_count: u64,
}

impl Floats {
    /// Adds a value once more, or takes it out.
    fn count(&mut self, value: f64, times: i64) {
        self.count = self.count.wrapping_add_signed(times);
        let counted = if value.is_nan() {
            &mut self.nan_count
        } else if value == f64::INFINITY {
            &mut self.infinite_count
        } else if value == f64::NEG_INFINITY {
            &mut self.negative_infinite_count
        } else {
            return self.sum.push(if times < 0 { -value } else { value });
        };
        *counted = counted.wrapping_add_signed(times);
    }

    fn value(&self, is_average: bool) -> Option<f64> {
        let special = match (self.nan_count, self.infinite_count, self.negative_infinite_count) {
            (0, 0, 0) => None,
            (0, _, 0) => Some(f64::INFINITY),
            (0, 0, _) => Some(f64::NEG_INFINITY),
            _ => Some(f64::NAN),
        };
        match is_average {
            _ if self.count == 0 => None,
            _ if special.is_some() => special,
            true => self.sum.mean(self.count),
            false => Some(self.sum.value()),
        }
    }
}

/// The rows whose values compare with all others of their frames as `closer` says, or equal them.
fn extremes(
    values: &dyn Array,
    frames: &Frames,
    rows: Range<usize>,
    closer: Ordering,
    compare: impl Fn(usize, usize) -> Ordering,
) -> UInt64Array {
    let nulls = values.logical_nulls();
    // Rows of the frame, and none that a later one beats.
    let mut kept = VecDeque::new();
    let mut seen = frames.starts.get(rows.start).copied().unwrap_or_default();
    let extremes = rows.map(|row| {
        let frame = frames.of(row);
        for row in seen.max(frame.start)..frame.end {
            if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                continue;
            }
            while kept.back().is_some_and(|last| compare(*last, row) != closer) {
                kept.pop_back();
            }
            kept.push_back(row);
        }
        seen = seen.max(frame.end);
        while kept.front().is_some_and(|row| *row < frame.start) {
            kept.pop_front();
        }
        kept.front().map(|row| *row as u64)
    });
    extremes.collect()
}

/// Rows, or states, of which one state is made.
const FAN_OUT: usize = 16;
/// Rows whose frames are merged at once, for the memory that their parts take.
const ROWS_AT_ONCE: usize = 1024;

/// An aggregate of any kind, for which the order of rows is nothing.
pub(super) struct Merged(Arc<AggregateFunctionExpr>);

impl Merged {
    /// `None` if it is none for us.
    pub(super) fn of(aggregate: &AggregateFunctionExpr) -> Option<Self> {
        const ORDERLESS: &[&str] = &[
            "avg",
            "bit_and",
            "bit_or",
            "bit_xor",
            "bool_and",
            "bool_or",
            "corr",
            "count",
            "covar_pop",
            "covar_samp",
            "max",
            "min",
            "stddev",
            "stddev_pop",
            "sum",
            "var",
            "var_pop",
        ];
        let is_ours = ORDERLESS.binary_search(&aggregate.fun().name()).is_ok()
            && !aggregate.is_distinct()
            && !aggregate.ignore_nulls()
            && aggregate.order_bys().is_empty()
            && aggregate.groups_accumulator_supported();
        is_ours.then(|| Self(Arc::new(aggregate.clone())))
    }

    pub(super) fn arguments(&self) -> Vec<Arc<dyn datafusion::physical_expr::PhysicalExpr>> {
        self.0.expressions()
    }

    /// The aggregates of the frames of some rows, over the arguments of all.
    pub(super) fn of_frames(
        &self,
        arguments: &[ArrayRef],
        frames: &Frames,
        rows: Range<usize>,
    ) -> Result<ArrayRef> {
        let levels = self.levels(arguments)?;
        let nulls = arguments
            .iter()
            .fold(None, |all, argument| NullBuffer::union(all.as_ref(), argument.logical_nulls().as_ref()));
        let valid_before = nulls.as_ref().map(valid_before);
        let has_values = |rows: &Range<usize>| match &valid_before {
            Some(before) => before[rows.start] < before[rows.end],
            None => !rows.is_empty(),
        };
        let has_some: Vec<bool> = rows.clone().map(|row| frames.pieces(row).iter().any(has_values)).collect();
        let mut columns = Vec::new();
        for start in rows.clone().step_by(ROWS_AT_ONCE) {
            let rows = start..rows.end.min(start + ROWS_AT_ONCE);
            let mut parts: Vec<Parts> = (0..=levels.len()).map(|_| Parts::default()).collect();
            for row in rows.clone() {
                for piece in frames.pieces(row) {
                    Parts::split(piece, row - start, &mut parts);
                }
            }
            let mut merged = self.accumulator()?;
            for (level, parts) in parts.into_iter().enumerate() {
                let places = UInt64Array::from(parts.places);
                let taken = |arrays: &[ArrayRef]| {
                    arrays.iter().map(|array| Ok(take(array, &places, None)?)).collect::<Result<Vec<_>>>()
                };
                match level.checked_sub(1) {
                    None => merged.update_batch(&taken(arguments)?, &parts.frames, None, rows.len())?,
                    Some(level) => merged.merge_batch(&taken(&levels[level])?, &parts.frames, rows.len())?,
                }
            }
            columns.push(merged.evaluate(EmitTo::All)?);
        }
        let columns: Vec<&dyn Array> = columns.iter().map(AsRef::as_ref).collect();
        let values = concat(&columns)?;
        // Accumulators take it that each group has a row, and may find zero where there is none.
        let default = self.0.default_value(values.data_type())?.to_scalar()?;
        Ok(zip(&BooleanArray::from(has_some), &values, &default)?)
    }

    /// The states of 16 rows each, of 256, and so on, as long as there are two.
    fn levels(&self, arguments: &[ArrayRef]) -> Result<Vec<Vec<ArrayRef>>> {
        let mut levels: Vec<Vec<ArrayRef>> = Vec::new();
        let mut count = arguments.first().map_or(0, Array::len);
        loop {
            let next = count / FAN_OUT;
            if next < 2 {
                return Ok(levels);
            }
            let below = levels.last().map_or(arguments, |states| &states[..]);
            let below: Vec<ArrayRef> = below.iter().map(|array| array.slice(0, next * FAN_OUT)).collect();
            let groups: Vec<usize> = (0..next * FAN_OUT).map(|place| place / FAN_OUT).collect();
            let mut states = self.accumulator()?;
            match levels.is_empty() {
                true => states.update_batch(&below, &groups, None, next)?,
                false => states.merge_batch(&below, &groups, next)?,
            }
            levels.push(states.state(EmitTo::All)?);
            count = next;
        }
    }

    fn accumulator(&self) -> Result<Box<dyn GroupsAccumulator>> {
        self.0.create_groups_accumulator()
    }
}

/// How many values are not NULL before each row, and in all.
pub(super) fn valid_before(nulls: &NullBuffer) -> Vec<usize> {
    let mut before = Vec::with_capacity(nulls.len() + 1);
    before.push(0);
    before.extend(nulls.iter().scan(0, |count, is_valid| {
        *count += usize::from(is_valid);
        Some(*count)
    }));
    before
}

/// Rows or states, and the frames that they are parts of.
#[derive(Default)]
struct Parts {
    places: Vec<u64>,
    frames: Vec<usize>,
}

impl Parts {
    /// Adds the parts that a frame consists of: rows, states of 16 rows, and so on.
    fn split(mut range: Range<usize>, frame: usize, levels: &mut [Self]) {
        let top = levels.len() - 1;
        for (level, parts) in levels.iter_mut().enumerate() {
            let whole = range.start.next_multiple_of(FAN_OUT)..range.end / FAN_OUT * FAN_OUT;
            if level == top || whole.is_empty() {
                return parts.add(range, frame);
            }
            parts.add(range.start..whole.start, frame);
            parts.add(whole.end..range.end, frame);
            range = whole.start / FAN_OUT..whole.end / FAN_OUT;
        }
    }

    fn add(&mut self, places: Range<usize>, frame: usize) {
        self.frames.resize(self.frames.len() + places.len(), frame);
        self.places.extend(places.map(|place| place as u64));
    }
}
