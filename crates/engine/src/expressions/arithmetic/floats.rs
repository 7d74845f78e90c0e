//! The accumulators of `sum` and `avg` of floats: exact sums, rounded once, so that a result depends neither on the order
//! of the rows nor on the number of threads.
//!
//! A partial sum is the bytes of a [`CompactSum`], in `avg` behind the count of values.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, LargeBinaryBuilder, UInt64Array};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, UInt64Type};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{ScalarValue, internal_datafusion_err};
use datafusion::error::Result;
use datafusion::logical_expr::function::StateFieldsArgs;
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use keirin_kernels::aggregate::{CompactSum, ExactSum};
use keirin_kernels::{Bits, Level, Selection};

/// The type of a partial sum.
pub(crate) const FLOAT_STATE: DataType = DataType::LargeBinary;

/// What is computed of the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Sum,
    Average,
}

impl What {
    /// The state of an accumulator.
    pub(super) fn state_fields(self, args: &StateFieldsArgs) -> Vec<FieldRef> {
        let field =
            |name, data_type| Arc::new(Field::new(format_state_name(args.name, name), data_type, true));
        match (self, args.is_distinct) {
            (_, true) => {
                let item = Field::new_list_field(DataType::Float64, true);
                vec![Arc::new(Field::new_list(format_state_name(args.name, "distinct"), item, false))]
            }
            (Self::Sum, false) => vec![field("sum", FLOAT_STATE)],
            (Self::Average, false) => vec![field("count", DataType::UInt64), field("sum", FLOAT_STATE)],
        }
    }

    /// The accumulator for all rows.
    pub(super) fn accumulator(self, is_distinct: bool) -> Box<dyn Accumulator> {
        match is_distinct {
            true => Box::new(Distinct { values: HashSet::new(), what: self }),
            false => Box::new(Total { sum: ExactSum::default(), count: 0, what: self }),
        }
    }

    /// The accumulator for the rows in a frame that slides.
    pub(super) fn sliding(self) -> Box<dyn Accumulator> {
        Box::new(Frame { finite: ExactSum::default(), count: 0, infinite: [0; 2], nan: 0, what: self })
    }

    /// The accumulator for groups.
    pub(super) fn groups(self) -> Box<dyn GroupsAccumulator> {
        Box::new(Groups::new(self))
    }

    fn of(self, sum: &ExactSum, count: u64) -> Option<f64> {
        match self {
            Self::Sum => (count > 0).then(|| sum.value()),
            Self::Average => sum.mean(count),
        }
    }
}

fn parsed(bytes: &[u8]) -> Result<CompactSum> {
    CompactSum::from_bytes(bytes).ok_or_else(|| internal_datafusion_err!("a partial sum of floats is none"))
}

/// Adds all values of a column; gives their count.
fn add_all(sum: &mut ExactSum, values: &ArrayRef) -> u64 {
    let validity = values.nulls().map(|nulls| Bits::new(nulls.validity(), nulls.offset(), nulls.len()));
    sum.add(Level::best(), values.as_primitive::<Float64Type>().values(), validity, Selection::All);
    (values.len() - values.null_count()) as u64
}

/// The accumulator for all rows.
#[derive(Debug)]
struct Total {
    sum: ExactSum,
    count: u64,
    what: What,
}

impl Accumulator for Total {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.count += add_all(&mut self.sum, &values[0]);
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [counts @ .., sums] = states else { return Ok(()) };
        let mut all = CompactSum::default();
        let sums = sums.as_binary::<i64>();
        for sum in sums.iter().flatten() {
            all.merge(&parsed(sum)?);
        }
        all.add_to(&mut self.sum);
        self.count += match counts {
            [counts] => counts.as_primitive::<UInt64Type>().iter().flatten().sum::<u64>(),
            _ => (sums.len() - sums.null_count()) as u64,
        };
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let has_values = self.count > 0;
        let sum = ScalarValue::LargeBinary(has_values.then(|| CompactSum::from(self.sum.clone()).to_bytes()));
        Ok(match self.what {
            What::Sum => vec![sum],
            What::Average => vec![ScalarValue::UInt64(Some(self.count)), sum],
        })
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(self.what.of(&self.sum, self.count)))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// The accumulator for the rows in a frame that slides: what is not finite cannot be subtracted, and is counted.
#[derive(Debug)]
struct Frame {
    finite: ExactSum,
    count: u64,
    /// Of plus and minus infinity.
    infinite: [u64; 2],
    nan: u64,
    what: What,
}

impl Frame {
    fn change(&mut self, values: &ArrayRef, is_added: bool) {
        let step = |count: &mut u64| *count = if is_added { *count + 1 } else { *count - 1 };
        for value in values.as_primitive::<Float64Type>().iter().flatten() {
            step(&mut self.count);
            if value.is_finite() {
                self.finite.push(if is_added { value } else { -value });
            } else if value.is_nan() {
                step(&mut self.nan);
            } else {
                step(&mut self.infinite[usize::from(value < 0.0)]);
            }
        }
    }
}

impl Accumulator for Frame {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.change(&values[0], true);
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.change(&values[0], false);
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        Err(internal_datafusion_err!("frames are not merged"))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Err(internal_datafusion_err!("frames are not merged"))
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let value = match (self.nan, self.infinite) {
            (0, [0, 0]) => self.what.of(&self.finite, self.count),
            (0, [_, 0]) => Some(f64::INFINITY),
            (0, [0, _]) => Some(f64::NEG_INFINITY),
            _ => Some(f64::NAN),
        };
        Ok(ScalarValue::Float64(value))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// The accumulator of `sum(DISTINCT x)` and `avg(DISTINCT x)`.
#[derive(Debug)]
struct Distinct {
    /// Their bits, with one NaN and one zero.
    values: HashSet<u64>,
    what: What,
}

impl Accumulator for Distinct {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = values[0].as_primitive::<Float64Type>().iter().flatten();
        let one = |value: f64| if value.is_nan() { f64::NAN } else { value + 0.0 };
        self.values.extend(values.map(|value| one(value).to_bits()));
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        states[0].as_list::<i32>().iter().flatten().try_for_each(|values| self.update_batch(&[values]))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values = Float64Array::from_iter_values(self.values.iter().copied().map(f64::from_bits));
        Ok(vec![SingleRowListArrayBuilder::new(Arc::new(values)).build_list_scalar()])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut sum = ExactSum::default();
        sum.extend(self.values.iter().copied().map(f64::from_bits));
        Ok(ScalarValue::Float64(self.what.of(&sum, self.values.len() as u64)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.capacity() * size_of::<u64>()
    }
}

/// The accumulator for groups.
#[derive(Debug)]
struct Groups {
    sums: Vec<CompactSum>,
    /// Of sums, only whether it is zero matters.
    counts: Vec<u64>,
    /// Memory of the sums besides.
    heap_bytes: usize,
    what: What,
}

impl Groups {
    fn new(what: What) -> Self {
        Self { sums: Vec::new(), counts: Vec::new(), heap_bytes: 0, what }
    }

    /// Changes the sum of a group.
    fn change(&mut self, group: usize, change: impl FnOnce(&mut CompactSum)) {
        let sum = &mut self.sums[group];
        let before = sum.heap_bytes();
        change(sum);
        self.heap_bytes += sum.heap_bytes() - before;
    }

    fn resize(&mut self, group_count: usize) {
        self.sums.resize(group_count, CompactSum::default());
        self.counts.resize(group_count, 0);
    }

    fn take(&mut self, emit_to: EmitTo) -> (Vec<CompactSum>, Vec<u64>) {
        let sums = emit_to.take_needed(&mut self.sums);
        self.heap_bytes -= sums.iter().map(CompactSum::heap_bytes).sum::<usize>();
        (sums, emit_to.take_needed(&mut self.counts))
    }
}

impl GroupsAccumulator for Groups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        group_count: usize,
    ) -> Result<()> {
        self.resize(group_count);
        for (row, value) in values[0].as_primitive::<Float64Type>().iter().enumerate() {
            if let Some(value) = value
                && filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row))
            {
                let group = group_indices[row];
                self.change(group, |sum| sum.push(value));
                self.counts[group] += 1;
            }
        }
        Ok(())
    }

    fn merge_batch(
        &mut self,
        states: &[ArrayRef],
        group_indices: &[usize],
        group_count: usize,
    ) -> Result<()> {
        self.resize(group_count);
        let [counts @ .., sums] = states else { return Ok(()) };
        let counts = counts.first().map(|counts| counts.as_primitive::<UInt64Type>());
        for (row, sum) in sums.as_binary::<i64>().iter().enumerate() {
            let Some(sum) = sum else { continue };
            let group = group_indices[row];
            let added = parsed(sum)?;
            self.change(group, |sum| sum.merge(&added));
            self.counts[group] += counts.map_or(1, |counts| counts.value(row));
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let what = self.what;
        let (sums, counts) = self.take(emit_to);
        let values = sums.iter().zip(counts).map(|(sum, count)| match what {
            What::Sum => (count > 0).then(|| sum.value()),
            What::Average => sum.mean(count),
        });
        Ok(Arc::new(values.collect::<Float64Array>()))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let what = self.what;
        let (sums, counts) = self.take(emit_to);
        let sums = float_states(sums.iter().zip(&counts).map(|(sum, count)| (*count > 0).then_some(sum)));
        Ok(match what {
            What::Sum => vec![sums],
            What::Average => vec![Arc::new(UInt64Array::from(counts)), sums],
        })
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let mut alone = Self::new(self.what);
        let rows = values[0].len();
        alone.update_batch(values, &(0..rows).collect::<Vec<_>>(), filter, rows)?;
        alone.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        let sums = self.sums.capacity() * size_of::<CompactSum>();
        self.heap_bytes + sums + self.counts.capacity() * size_of::<u64>()
    }
}

/// The partial sums of groups, some without values.
pub(crate) fn float_states<'a>(sums: impl ExactSizeIterator<Item = Option<&'a CompactSum>>) -> ArrayRef {
    let mut states = LargeBinaryBuilder::with_capacity(sums.len(), 0);
    for sum in sums {
        match sum {
            Some(sum) => states.append_value(sum.to_bytes()),
            None => states.append_null(),
        }
    }
    Arc::new(states.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f64]) -> ArrayRef {
        Arc::new(Float64Array::from(values.to_vec()))
    }

    fn value(accumulator: &mut dyn Accumulator) -> Option<f64> {
        match accumulator.evaluate().unwrap() {
            ScalarValue::Float64(value) => value,
            other => panic!("{other} is no float"),
        }
    }

    #[test]
    fn frames_forget_what_left_them() {
        let mut frame = What::Average.sliding();
        frame.update_batch(&[floats(&[1e300, f64::INFINITY, f64::NAN, 0.1, 0.2])]).unwrap();
        assert!(value(&mut *frame).unwrap().is_nan());
        frame.retract_batch(&[floats(&[f64::NAN])]).unwrap();
        assert_eq!(value(&mut *frame), Some(f64::INFINITY));
        frame.retract_batch(&[floats(&[1e300, f64::INFINITY])]).unwrap();
        assert_eq!(value(&mut *frame), Some((0.1 + 0.2) / 2.0));
        frame.retract_batch(&[floats(&[0.1, 0.2])]).unwrap();
        assert_eq!(value(&mut *frame), None);
    }

    #[test]
    fn partial_sums_are_those_of_all_rows() {
        let rows = [1e16, 1.0, -1e16, 1e-9, 0.25, f64::MAX, -f64::MAX, 3e-310];
        for what in [What::Sum, What::Average] {
            let mut whole = what.accumulator(false);
            whole.update_batch(&[floats(&rows)]).unwrap();
            let expected = value(&mut *whole);
            for cut in 0..=rows.len() {
                let mut merged = what.accumulator(false);
                let mut groups = what.groups();
                for piece in [&rows[cut..], &rows[..cut]] {
                    let mut part = what.accumulator(false);
                    part.update_batch(&[floats(piece)]).unwrap();
                    let state: Vec<ArrayRef> =
                        part.state().unwrap().iter().map(|state| state.to_array().unwrap()).collect();
                    merged.merge_batch(&state).unwrap();
                    let states = what.groups().convert_to_state(&[floats(piece)], None).unwrap();
                    groups.merge_batch(&states, &vec![1; piece.len()], 2).unwrap();
                }
                assert_eq!(value(&mut *merged), expected);
                let groups = groups.evaluate(EmitTo::All).unwrap();
                let groups: Vec<Option<f64>> = groups.as_primitive::<Float64Type>().iter().collect();
                assert_eq!(groups, [None, expected]);
            }
            let mut distinct = what.accumulator(true);
            distinct.update_batch(&[floats(&[1.0, 1.0, 2.0, 0.0, -0.0])]).unwrap();
            assert_eq!(value(&mut *distinct), Some(if what == What::Sum { 3.0 } else { 1.0 }));
            assert_eq!(value(&mut *what.accumulator(false)), None);
        }
    }
}
