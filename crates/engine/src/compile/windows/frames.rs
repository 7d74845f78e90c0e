//! The frames of rows that are in order: the rows before, behind and beside each row that a function takes.

use std::cmp::Ordering;
use std::ops::{Neg, Range};
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Schema, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::window::WindowExpr;

use super::edges::{Edges, Exprs};
use super::excluding::Exclusion;
use super::running::whole_numbers;

/// The rows of the frame of each row of a batch. Neither begin nor end ever goes back from one row to the next.
#[derive(Default)]
pub(super) struct Frames {
    pub(super) starts: Vec<usize>,
    /// Behind the last row; the first one if there is none.
    pub(super) ends: Vec<usize>,
    /// What is excluded from them, and the peers of each row.
    excluded: Option<(Exclusion, Vec<Range<usize>>)>,
}

impl Frames {
    pub(super) fn of(&self, row: usize) -> Range<usize> {
        self.starts[row]..self.ends[row]
    }

    /// The pieces, in order, that the frame of a row consists of. Without exclusions it is the first.
    pub(super) fn pieces(&self, row: usize) -> [Range<usize>; 3] {
        let frame = self.of(row);
        match &self.excluded {
            Some((exclusion, peers)) => exclusion.pieces(row, peers[row].clone(), frame),
            None => {
                let none = frame.end..frame.end;
                [frame, none.clone(), none]
            }
        }
    }

    pub(super) fn has_exclusions(&self) -> bool {
        self.excluded.is_some()
    }
}

/// What the frames of a function are.
pub(super) struct Frame {
    partitions: Exprs,
    reach: Reach,
    /// What is excluded from them, and what peers are equal in.
    excluded: Option<(Exclusion, Exprs)>,
}

/// From where to where; what is beyond a partition is not in it.
enum Reach {
    Rows(Limit<i64>, Limit<i64>),
    /// Of rows that are equal in what they are ordered by.
    Peers(Exprs, Limit<i64>, Limit<i64>),
    /// Of values: the distances are of the type of the key, or in units of what it is stored as.
    Whole(Key, Limit<i128>, Limit<i128>),
    Floats(Key, Limit<f64>, Limit<f64>),
}

/// A begin or an end of frames.
#[derive(Clone, Copy)]
enum Limit<D> {
    /// That of the partition.
    Partition,
    /// So far behind the row itself.
    Behind(D),
}

/// What rows are ordered by.
struct Key {
    expr: Arc<dyn PhysicalExpr>,
    is_descending: bool,
}

impl Frame {
    /// `None` if it is none that we find.
    pub(super) fn of(expr: &Arc<dyn WindowExpr>, schema: &Schema) -> Result<Option<Self>> {
        let frame = expr.get_window_frame();
        let partitions = expr.partition_by().to_vec();
        let bounds = [&frame.start_bound, &frame.end_bound];
        let has_distance = bounds
            .iter()
            .any(|bound| !bound.is_unbounded() && !matches!(bound, WindowFrameBound::CurrentRow));
        let reach = match frame.units {
            WindowFrameUnits::Rows => {
                let [Some(start), Some(end)] = bounds.map(|bound| limit(bound, count)) else {
                    return Ok(None);
                };
                Reach::Rows(start, end)
            }
            WindowFrameUnits::Range if has_distance => {
                let [sort] = expr.order_by() else { return Ok(None) };
                let key = Key { expr: sort.expr.clone(), is_descending: sort.options.descending };
                let key_type = key.expr.data_type(schema)?;
                if matches!(key_type, DataType::Float32 | DataType::Float64) {
                    let [Some(start), Some(end)] = bounds.map(|bound| limit(bound, float)) else {
                        return Ok(None);
                    };
                    Reach::Floats(key, start, end)
                } else {
                    let distance = |value: &ScalarValue| distance(value, &key_type);
                    let [Some(start), Some(end)] = bounds.map(|bound| limit(bound, distance)) else {
                        return Ok(None);
                    };
                    // Of a distance between two keys, the one inside the frame is the limit.
                    let unit = unit(&key_type);
                    let start = start.map(|distance| -(-distance).div_euclid(unit));
                    let end = end.map(|distance| distance.div_euclid(unit));
                    Reach::Whole(key, start, end)
                }
            }
            WindowFrameUnits::Range | WindowFrameUnits::Groups => {
                let peers = peers_of(expr);
                let [Some(start), Some(end)] = bounds.map(|bound| limit(bound, count)) else {
                    return Ok(None);
                };
                if Edges::new(peers.clone(), schema)?.is_none() {
                    return Ok(None);
                }
                Reach::Peers(peers, start, end)
            }
        };
        Ok(Some(Self { partitions, reach, excluded: None }))
    }

    /// The frames of a function without the rows that it excludes.
    pub(super) fn excluding(
        expr: &Arc<dyn WindowExpr>,
        exclusion: Exclusion,
        schema: &Schema,
    ) -> Result<Option<Self>> {
        let peers = peers_of(expr);
        if Edges::new(peers.clone(), schema)?.is_none() {
            return Ok(None);
        }
        let frame = Self::of(expr, schema)?;
        Ok(frame.map(|frame| Self { excluded: Some((exclusion, peers)), ..frame }))
    }

    /// Rows of the partition that are so far away, and those between them. Without a number there are all on that side.
    pub(super) fn before_or_behind(partitions: Exprs, nearest: i64, farthest: Option<i64>) -> Self {
        let far = farthest.map_or(Limit::Partition, Limit::Behind);
        let near = Limit::Behind(nearest);
        let reach = if nearest < 0 { Reach::Rows(far, near) } else { Reach::Rows(near, far) };
        Self { partitions, reach, excluded: None }
    }

    /// The frames of these rows, which are in order. The first partition may have rows before them, and the last one behind
    /// them: frames that end with the rows may go on.
    pub(super) fn find(&self, batch: &RecordBatch) -> Result<Frames> {
        let row_count = batch.num_rows();
        let partitions = Edges::starts_of(&self.partitions, batch)?;
        let mut frames = Frames {
            starts: Vec::with_capacity(row_count),
            ends: Vec::with_capacity(row_count),
            excluded: None,
        };
        if let Some((exclusion, peers)) = &self.excluded {
            let peers = Edges::starts_of(peers, batch)?;
            let peers =
                spans(&peers, row_count).flat_map(|peers| std::iter::repeat_n(peers.clone(), peers.len()));
            frames.excluded = Some((*exclusion, peers.collect()));
        }
        match &self.reach {
            Reach::Rows(start, end) => {
                for partition in spans(&partitions, row_count) {
                    for row in partition.clone() {
                        frames.add(
                            start.place(row, &partition, 0).unwrap_or(partition.start),
                            end.place(row, &partition, 1).unwrap_or(partition.end),
                        );
                    }
                }
            }
            Reach::Peers(keys, start, end) => {
                let mut peers = Edges::starts_of(keys, batch)?;
                peers.push(row_count);
                let mut first = 0;
                for partition in spans(&partitions, row_count) {
                    let last = first + peers[first..].partition_point(|start| *start < partition.end);
                    let groups = first..last;
                    for group in groups.clone() {
                        let start =
                            start.place(group, &groups, 0).map_or(partition.start, |group| peers[group]);
                        let end = end.place(group, &groups, 1).map_or(partition.end, |group| peers[group]);
                        (peers[group]..peers[group + 1]).for_each(|_| frames.add(start, end));
                    }
                    first = last;
                }
            }
            Reach::Whole(key, start, end) => {
                let keys = whole_numbers(&key.expr.evaluate(batch)?.into_array(row_count)?)?;
                let values: Vec<i128> = match key.is_descending {
                    true => keys.values().iter().map(|key| key.saturating_neg()).collect(),
                    false => keys.values().to_vec(),
                };
                for partition in spans(&partitions, row_count) {
                    frames.add_values(
                        partition,
                        &values,
                        |row| keys.is_null(row),
                        i128::saturating_add,
                        start,
                        end,
                    );
                }
            }
            Reach::Floats(key, start, end) => {
                let keys = cast(&key.expr.evaluate(batch)?.into_array(row_count)?, &DataType::Float64)?;
                let keys = keys.as_primitive::<Float64Type>();
                let values = keys.values().iter().map(|value| Float::new(*value, key.is_descending));
                let values: Vec<Float> = values.collect();
                for partition in spans(&partitions, row_count) {
                    frames.add_values(
                        partition,
                        &values,
                        |row| keys.is_null(row),
                        Float::farther,
                        start,
                        end,
                    );
                }
            }
        }
        Ok(frames)
    }
}

impl Frames {
    fn add(&mut self, start: usize, end: usize) {
        self.starts.push(start);
        self.ends.push(end.max(start));
    }

    /// Adds the frames of a partition, whose values but NULLs ascend.
    fn add_values<K: Copy + Ord, D: Copy>(
        &mut self,
        partition: Range<usize>,
        values: &[K],
        is_null: impl Fn(usize) -> bool,
        farther: impl Fn(K, D) -> K,
        start: &Limit<D>,
        end: &Limit<D>,
    ) {
        let nulls_before = partition.clone().take_while(|row| is_null(*row)).count();
        let start_known = partition.start + nulls_before;
        let known_count = (start_known..partition.end).take_while(|row| !is_null(*row)).count();
        let known = start_known..start_known + known_count;
        let (mut first, mut behind) = (known.start, known.start);
        for row in partition.clone() {
            // NULLs are peers of each other, and near to nothing else.
            let nulls =
                if row < known.start { partition.start..known.start } else { known.end..partition.end };
            let start = match start {
                Limit::Partition => partition.start,
                Limit::Behind(_) if !known.contains(&row) => nulls.start,
                Limit::Behind(distance) => {
                    let wanted = farther(values[row], *distance);
                    while first < known.end && values[first] < wanted {
                        first += 1;
                    }
                    first
                }
            };
            let end = match end {
                Limit::Partition => partition.end,
                Limit::Behind(_) if !known.contains(&row) => nulls.end,
                Limit::Behind(distance) => {
                    let wanted = farther(values[row], *distance);
                    while behind < known.end && values[behind] <= wanted {
                        behind += 1;
                    }
                    behind
                }
            };
            self.add(start, end);
        }
    }
}

impl<D> Limit<D> {
    fn map(self, change: impl FnOnce(D) -> D) -> Self {
        match self {
            Self::Partition => Self::Partition,
            Self::Behind(distance) => Self::Behind(change(distance)),
        }
    }
}

impl Limit<i64> {
    /// The place so far behind `place`, `beyond` more, in what the partition has; `None` for the limit of the partition.
    fn place(&self, place: usize, partition: &Range<usize>, beyond: i64) -> Option<usize> {
        let Self::Behind(distance) = self else { return None };
        let place = i64::try_from(place).ok()?.saturating_add(*distance).saturating_add(beyond);
        Some(
            usize::try_from(place)
                .map_or(partition.start, |place| place.clamp(partition.start, partition.end)),
        )
    }
}

/// A float as ORDER BY has it: NaN is the greatest, and the two zeros are one.
#[derive(Clone, Copy)]
struct Float(f64);

impl Float {
    /// Descending floats become ascending ones.
    fn new(value: f64, is_descending: bool) -> Self {
        let sign = if is_descending { -1.0 } else { 1.0 };
        // Zero is added for the negative one.
        Self(if value.is_nan() { f64::NAN.copysign(sign) } else { sign * value + 0.0 })
    }

    fn farther(self, distance: f64) -> Self {
        Self(if self.0.is_nan() { self.0 } else { self.0 + distance + 0.0 })
    }
}

impl Ord for Float {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Float {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Float {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Float {}

/// What the rows of a partition are equal in that are peers.
fn peers_of(expr: &Arc<dyn WindowExpr>) -> Exprs {
    let order = expr.order_by().iter().map(|sort| sort.expr.clone());
    expr.partition_by().iter().cloned().chain(order).collect()
}

/// What begins with each of these rows.
fn spans(starts: &[usize], row_count: usize) -> impl Iterator<Item = Range<usize>> {
    let ends = starts.iter().copied().skip(1).chain([row_count]);
    starts.iter().copied().zip(ends).map(|(start, end)| start..end)
}

/// A bound whose distance `read` knows.
fn limit<D: Copy + Default + Neg<Output = D>>(
    bound: &WindowFrameBound,
    read: impl Fn(&ScalarValue) -> Option<D>,
) -> Option<Limit<D>> {
    Some(match bound {
        bound if bound.is_unbounded() => Limit::Partition,
        WindowFrameBound::CurrentRow => Limit::Behind(D::default()),
        WindowFrameBound::Preceding(distance) => Limit::Behind(-read(distance)?),
        WindowFrameBound::Following(distance) => Limit::Behind(read(distance)?),
    })
}

/// A number of rows, or of peers.
fn count(value: &ScalarValue) -> Option<i64> {
    match value {
        ScalarValue::UInt64(Some(count)) => Some(i64::try_from(*count).unwrap_or(i64::MAX)),
        _ => None,
    }
}

fn float(value: &ScalarValue) -> Option<f64> {
    let value = match value {
        ScalarValue::Float64(value) => (*value)?,
        ScalarValue::Float32(value) => f64::from((*value)?),
        _ => return None,
    };
    value.is_finite().then_some(value)
}

/// A distance of keys of this type, in units of what they are stored as, or in nanoseconds.
fn distance(value: &ScalarValue, key: &DataType) -> Option<i128> {
    const DAY_NANOSECONDS: i128 = 86_400_000_000_000;
    let (days, nanoseconds) = match value {
        ScalarValue::IntervalMonthDayNano(Some(interval)) if interval.months == 0 => {
            (interval.days, interval.nanoseconds.into())
        }
        ScalarValue::IntervalDayTime(Some(interval)) => {
            (interval.days, i128::from(interval.milliseconds) * 1_000_000)
        }
        ScalarValue::Decimal128(Some(value), _, scale) => {
            return matches!(key, DataType::Decimal128(_, of_key) if of_key == scale).then_some(*value);
        }
        value if key.is_integer() && value.data_type() == *key => {
            return match value.cast_to(&DataType::Decimal128(38, 0)).ok()? {
                ScalarValue::Decimal128(value, ..) => value,
                _ => None,
            };
        }
        _ => return None,
    };
    match key {
        DataType::Date32 | DataType::Timestamp(_, None) => {}
        // Days of a time zone have not all the same length.
        DataType::Timestamp(_, Some(_)) if days == 0 => {}
        _ => return None,
    }
    Some(i128::from(days) * DAY_NANOSECONDS + nanoseconds)
}

/// What [`distance`] gives for one unit of what keys are stored as.
fn unit(key: &DataType) -> i128 {
    match key {
        DataType::Date32 => 86_400_000_000_000,
        DataType::Timestamp(TimeUnit::Second, _) => 1_000_000_000,
        DataType::Timestamp(TimeUnit::Millisecond, _) => 1_000_000,
        DataType::Timestamp(TimeUnit::Microsecond, _) => 1_000,
        _ => 1,
    }
}
