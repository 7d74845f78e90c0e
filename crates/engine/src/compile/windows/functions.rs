//! The functions: how each is computed, and what it keeps from one batch to the next.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array, Int64Array, RecordBatch, UInt64Array};
use arrow::compute::{cast, interleave, take};
use arrow::datatypes::{DataType, Schema};
use datafusion::common::{ScalarValue, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::{EmitTo, WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::window::{StandardWindowExpr, StandardWindowFunctionExpr, WindowExpr};
use datafusion::physical_plan::windows::WindowUDFExpr;

use super::edges::{Edges, Exprs, Rows, Starts, Whole};
use super::excluding::{Excluding, Of, aggregate, has_filter};
use super::framed::{Framed, Values, What};
use super::frames::Frame;
use super::running::{Running, State};
use super::sliding::Merged;

/// A function over rows that come in the order of its partitions.
pub(super) struct Function {
    kind: Kind,
    data_type: DataType,
    partitions: Edges,
}

enum Kind {
    Rank {
        place: Place,
        peers: Edges,
        counts: Counts,
    },
    /// The places of the rows of a whole partition.
    Share(Share, Whole, Exprs),
    /// The same for all rows of a partition.
    Aggregate(Arc<AggregateFunctionExpr>, Whole),
    /// Of the rows up to each row, or to the last of its peers.
    Running(Box<Running>, Option<Whole>),
    /// The value of the first row of the partition.
    First(Arc<dyn PhysicalExpr>, Option<ArrayRef>),
    /// The value of the last of a row's peers.
    Last(Arc<dyn PhysicalExpr>, Whole),
    /// Of any frames.
    Framed(Box<Framed>),
}

#[derive(Clone, Copy)]
enum Place {
    RowNumber,
    Rank,
    DenseRank,
}

/// What part of a partition is before a row, or which one of equal parts it is in.
#[derive(Clone, Copy)]
enum Share {
    PercentRank,
    CumeDist,
    Ntile(u64),
}

/// The places of the row before.
#[derive(Default)]
struct Counts {
    row_number: i64,
    rank: i64,
    dense_rank: i64,
}

impl Function {
    /// `None` if the function is none of ours, over rows of this schema.
    pub(super) fn of(expr: &Arc<dyn WindowExpr>, schema: &Schema) -> Result<Option<Self>> {
        let Some(partitions) = Edges::new(expr.partition_by().to_vec(), schema)? else { return Ok(None) };
        let order = expr.order_by().iter().map(|sort| sort.expr.clone()).collect();
        let kind = if let Some(standard) = expr.as_any().downcast_ref::<StandardWindowExpr>() {
            let function = standard.get_standard_func_expr().as_any();
            if let Some(excluding) = function.downcast_ref::<Excluding>() {
                let kind = Self::of_excluding(expr, excluding, schema)?;
                let data_type = excluding.field()?.data_type().clone();
                return Ok(kind.map(|kind| Self { kind, data_type, partitions }));
            }
            let Some(function) = function.downcast_ref::<WindowUDFExpr>() else { return Ok(None) };
            let name = function.fun().name();
            match name {
                "row_number" | "rank" | "dense_rank" => {
                    let Some(peers) = Edges::new(order, schema)? else { return Ok(None) };
                    let place = match name {
                        "row_number" => Place::RowNumber,
                        "rank" => Place::Rank,
                        _ => Place::DenseRank,
                    };
                    Kind::Rank { place, peers, counts: Counts::default() }
                }
                "percent_rank" | "cume_dist" | "ntile" => {
                    let share = match (name, function.args()) {
                        ("percent_rank", _) => Share::PercentRank,
                        ("cume_dist", _) => Share::CumeDist,
                        (_, [tiles]) => match number(tiles).map(u64::try_from) {
                            Some(Ok(tiles)) if tiles > 0 => Share::Ntile(tiles),
                            _ => return Ok(None),
                        },
                        _ => return Ok(None),
                    };
                    let whole = Whole::new(expr.partition_by().to_vec(), schema)?;
                    let peers = Whole::peers(expr, schema)?;
                    let (Some(whole), Some(peers)) = (whole, peers) else { return Ok(None) };
                    Kind::Share(share, whole, peers.keys)
                }
                _ => match Self::of_value(expr, function, schema)? {
                    Some(kind) => kind,
                    None => return Ok(None),
                },
            }
        } else {
            let Some(aggregate) = aggregate(expr).filter(|_| !has_filter(expr)) else { return Ok(None) };
            match Self::of_aggregate(expr, aggregate, schema)? {
                Some(kind) => kind,
                None => return Ok(None),
            }
        };
        Ok(Some(Self { kind, data_type: expr.field()?.data_type().clone(), partitions }))
    }

    fn of_aggregate(
        expr: &Arc<dyn WindowExpr>,
        aggregate: &AggregateFunctionExpr,
        schema: &Schema,
    ) -> Result<Option<Kind>> {
        if has_whole_frame(expr) {
            if !aggregate.order_bys().is_empty() || !aggregate.groups_accumulator_supported() {
                return Ok(None);
            }
            let whole = Whole::new(expr.partition_by().to_vec(), schema)?;
            return Ok(whole.map(|whole| Kind::Aggregate(Arc::new(aggregate.clone()), whole)));
        }
        let frame = expr.get_window_frame();
        let is_running =
            is_start(&frame.start_bound) && matches!(frame.end_bound, WindowFrameBound::CurrentRow);
        let running = Running::of(aggregate, schema)?;
        if is_running {
            let Some(running) = running else { return Ok(None) };
            let peers = match frame.units {
                WindowFrameUnits::Rows => None,
                _ => match Whole::peers(expr, schema)? {
                    Some(peers) => Some(peers),
                    None => return Ok(None),
                },
            };
            return Ok(Some(Kind::Running(Box::new(running), peers)));
        }
        let what = match running {
            Some(running) if is_start(&frame.start_bound) => match What::up_to(expr, running, schema)? {
                Some(what) => what,
                None => return Ok(None),
            },
            Some(running) => What::Sliding(running),
            // All rows of the partition would have to be kept.
            None if is_start(&frame.start_bound) => return Ok(None),
            None => match Merged::of(aggregate) {
                Some(merged) => What::Merged(merged),
                None => return Ok(None),
            },
        };
        let frame = Frame::of(expr, schema)?;
        Ok(frame.map(|frame| Kind::Framed(Box::new(Framed::new(frame, what)))))
    }

    /// `first_value`, `last_value`, `nth_value`, `lag` and `lead`.
    fn of_value(
        expr: &Arc<dyn WindowExpr>,
        function: &WindowUDFExpr,
        schema: &Schema,
    ) -> Result<Option<Kind>> {
        let Some((argument, rest)) = function.args().split_first() else { return Ok(None) };
        let Some(ignores_nulls) = ignores_nulls(function) else { return Ok(None) };
        let name = function.fun().name();
        let frame = expr.get_window_frame();
        let nth = match (name, rest) {
            // An interval that follows may be negative, and nothing be in the frame.
            ("first_value", [])
                if is_start(&frame.start_bound)
                    && !ignores_nulls
                    && (matches!(frame.end_bound, WindowFrameBound::CurrentRow)
                        || matches!(frame.end_bound, WindowFrameBound::Following(_))
                            && frame.end_bound.is_unbounded()) =>
            {
                return Ok(Some(Kind::First(argument.clone(), None)));
            }
            ("last_value", [])
                if is_start(&frame.start_bound)
                    && !ignores_nulls
                    && matches!(frame.end_bound, WindowFrameBound::CurrentRow)
                    && frame.units != WindowFrameUnits::Rows =>
            {
                let peers = Whole::peers(expr, schema)?;
                return Ok(peers.map(|peers| Kind::Last(argument.clone(), peers)));
            }
            ("lag" | "lead", rest) => {
                let distance = rest.first().map_or(Some(1), number);
                let data_type = expr.field()?.data_type().clone();
                // Of a NULL, the type of the default is that of the function.
                if argument.data_type(schema)? != data_type {
                    return Ok(None);
                }
                let default = match rest.get(1) {
                    None => ScalarValue::try_from(&data_type)?,
                    Some(default) => match default.downcast_ref::<Literal>() {
                        Some(default) => default.value().cast_to(&data_type)?,
                        None => return Ok(None),
                    },
                };
                // Behind the row itself.
                let Some(distance) = distance.and_then(i64::checked_neg) else { return Ok(None) };
                let distance = if name == "lag" { distance } else { -distance };
                if distance == 0 {
                    return Ok(None);
                }
                let nearest = distance.signum();
                let farthest = (!ignores_nulls).then_some(distance);
                let frame = Frame::before_or_behind(expr.partition_by().to_vec(), nearest, farthest);
                let what = if ignores_nulls && distance == -1 {
                    let latest = State::Latest { kept: None };
                    let running = Running::of_value(argument.clone(), data_type, latest);
                    match What::up_to(expr, running, schema)? {
                        Some(What::Value { of, nth, ignores_nulls, .. }) => {
                            What::Value { of, nth, ignores_nulls, default }
                        }
                        _ => return Ok(None),
                    }
                } else {
                    let of = Values::Argument(argument.clone());
                    What::Value { of, nth: distance, ignores_nulls, default }
                };
                return Ok(Some(Kind::Framed(Box::new(Framed::new(frame, what)))));
            }
            _ => nth(function),
        };
        let (Some(nth), Some(frame)) = (nth, Frame::of(expr, schema)?) else { return Ok(None) };
        let data_type = argument.data_type(schema)?;
        let state = match nth {
            1.. => Some(State::Nth { nth: nth.unsigned_abs(), ignores_nulls, count: 0, kept: None }),
            -1 if ignores_nulls => Some(State::Latest { kept: None }),
            _ => None,
        };
        let what = if let (Some(state), true) = (state, is_start(&expr.get_window_frame().start_bound)) {
            match What::up_to(expr, Running::of_value(argument.clone(), data_type, state), schema)? {
                Some(what) => what,
                None => return Ok(None),
            }
        } else {
            let default = ScalarValue::try_from(&data_type)?;
            What::Value { of: Values::Argument(argument.clone()), nth, ignores_nulls, default }
        };
        Ok(Some(Kind::Framed(Box::new(Framed::new(frame, what)))))
    }

    /// Functions of frames from which rows are excluded.
    fn of_excluding(
        expr: &Arc<dyn WindowExpr>,
        excluding: &Excluding,
        schema: &Schema,
    ) -> Result<Option<Kind>> {
        let what = match &excluding.of {
            Of::Aggregate(aggregate) => Merged::of(aggregate).map(What::Merged),
            Of::Value(function) => {
                let Some(function) = function.as_any().downcast_ref::<WindowUDFExpr>() else {
                    return Ok(None);
                };
                match (function.args().first(), nth(function), ignores_nulls(function)) {
                    (Some(argument), Some(nth), Some(ignores_nulls)) => {
                        let default = ScalarValue::try_from(&argument.data_type(schema)?)?;
                        let of = Values::Argument(argument.clone());
                        Some(What::Value { of, nth, ignores_nulls, default })
                    }
                    _ => None,
                }
            }
        };
        let frame = Frame::excluding(expr, excluding.exclusion, schema)?;
        let (Some(what), Some(frame)) = (what, frame) else { return Ok(None) };
        Ok(Some(Kind::Framed(Box::new(Framed::new(frame, what)))))
    }

    /// Looks at rows for which columns are wanted, for the methods below.
    pub(super) fn look(&mut self, rows: &Rows<'_>) -> Result<()> {
        match &mut self.kind {
            Kind::Rank { .. } | Kind::Running(_, None) | Kind::First(..) => Ok(()),
            Kind::Share(_, whole, _)
            | Kind::Aggregate(_, whole)
            | Kind::Running(_, Some(whole))
            | Kind::Last(_, whole) => whole.look(rows.batch),
            Kind::Framed(framed) => framed.look(rows),
        }
    }

    /// Up to where the function has values, at most up to `end`. If others end before, it may have to, too.
    pub(super) fn end(&self, rows: &Rows<'_>, end: usize) -> usize {
        match &self.kind {
            Kind::Rank { .. } | Kind::Running(_, None) | Kind::First(..) => end,
            Kind::Share(_, whole, _)
            | Kind::Aggregate(_, whole)
            | Kind::Running(_, Some(whole))
            | Kind::Last(_, whole) => whole.end(rows, end),
            Kind::Framed(_) if rows.is_end => end,
            Kind::Framed(framed) => framed.end(rows.first, end),
        }
    }

    /// The first row that is wanted for the values of rows from `end` on.
    pub(super) fn needed(&self, end: usize) -> usize {
        match &self.kind {
            Kind::Framed(framed) => framed.needed(end),
            _ => end,
        }
    }

    /// Forgets what it knows of the rows looked at last, but for those from this one on, which are looked at again.
    pub(super) fn forget(&mut self, row: usize) -> Result<()> {
        match &mut self.kind {
            Kind::Framed(framed) => framed.forget(row),
            _ => Ok(()),
        }
    }

    /// Bytes for each row looked at, and for its value.
    pub(super) fn row_bytes(&self) -> usize {
        match &self.kind {
            // Begin and end of the frame and of the peers, the argument, and as much to count with.
            Kind::Framed(_) => 80,
            _ => 16,
        }
    }

    /// The values for the rows up to `end`, up to which all functions have some.
    pub(super) fn column(&mut self, rows: &Rows<'_>, end: usize) -> Result<ArrayRef> {
        let wanted = rows.wanted(end);
        let row_count = wanted.num_rows();
        let evaluated = |argument: &Arc<dyn PhysicalExpr>| argument.evaluate(&wanted)?.into_array(row_count);
        let values = match &mut self.kind {
            Kind::Rank { place, peers, counts } => {
                self.partitions.see(&wanted)?;
                peers.see(&wanted)?;
                ranks(*place, counts, row_count, &self.partitions.starts, &peers.starts)
            }
            Kind::Share(share, whole, peers) => {
                let peers = Edges::starts_of(peers, &wanted)?;
                shares(*share, &whole.sizes(rows, end).collect::<Vec<_>>(), &peers)
            }
            Kind::Aggregate(aggregate, whole) => {
                of_groups(aggregate, &wanted, &whole.sizes(rows, end).collect::<Vec<_>>())?
            }
            Kind::Running(running, peers) => {
                self.partitions.see(&wanted)?;
                let last = peers.as_ref().map(|peers| peers.last(rows, end));
                running.column(&wanted, &self.partitions.starts, last.as_ref())?
            }
            Kind::First(argument, kept) => {
                self.partitions.see(&wanted)?;
                first(&evaluated(argument)?, &self.partitions.starts, kept)?
            }
            Kind::Last(argument, peers) => take(&evaluated(argument)?, &peers.last(rows, end), None)?,
            Kind::Framed(framed) => framed.column(rows.first..end)?,
        };
        if *values.data_type() == self.data_type { Ok(values) } else { Ok(cast(&values, &self.data_type)?) }
    }
}

/// The place in the frame of the row whose value a function gives: from 1, or from the last row with -1.
fn nth(function: &WindowUDFExpr) -> Option<i64> {
    match (function.fun().name(), function.args()) {
        ("first_value", [_]) => Some(1),
        ("last_value", [_]) => Some(-1),
        ("nth_value", [_, place]) => number(place),
        _ => None,
    }
}

fn ignores_nulls(function: &WindowUDFExpr) -> Option<bool> {
    // Nothing else tells.
    let shown = format!("{function:?}");
    [false, true]
        .into_iter()
        .find(|ignores| shown.ends_with(&format!("is_reversed: false, ignore_nulls: {ignores} }}")))
}

/// A whole number that is a constant.
fn number(expr: &Arc<dyn PhysicalExpr>) -> Option<i64> {
    match expr.downcast_ref::<Literal>()?.value().cast_to(&DataType::Int64).ok()? {
        ScalarValue::Int64(number) => number,
        _ => None,
    }
}

/// Whether the frame of each row is its whole partition.
fn has_whole_frame(expr: &Arc<dyn WindowExpr>) -> bool {
    let frame = expr.get_window_frame();
    let has_peers_only = frame.units == WindowFrameUnits::Range && expr.order_by().is_empty();
    [&frame.start_bound, &frame.end_bound].iter().all(|bound| match bound {
        WindowFrameBound::CurrentRow => has_peers_only,
        bound => bound.is_unbounded(),
    })
}

/// Whether a frame begins with its partition.
fn is_start(bound: &WindowFrameBound) -> bool {
    matches!(bound, WindowFrameBound::Preceding(_)) && bound.is_unbounded()
}

/// The value of the first row of the partition, for each row; `kept` is that of the partition that goes on.
fn first(values: &ArrayRef, partitions: &Starts, kept: &mut Option<ArrayRef>) -> Result<ArrayRef> {
    let before = kept.take().unwrap_or_else(|| values.slice(0, 1));
    let mut place = (0, 0);
    let places = (0..values.len()).map(|row| {
        if partitions.is_start(row) {
            place = (1, row);
        }
        place
    });
    let firsts = interleave(&[&before, values], &places.collect::<Vec<_>>())?;
    // In a buffer of its own: a slice would keep all.
    let last = UInt64Array::from(vec![firsts.len() as u64 - 1]);
    *kept = Some(take(&firsts, &last, None)?);
    Ok(firsts)
}

fn ranks(
    place: Place,
    counts: &mut Counts,
    row_count: usize,
    partitions: &Starts,
    peers: &Starts,
) -> ArrayRef {
    let values = (0..row_count).map(|row| {
        if partitions.is_start(row) {
            *counts = Counts { row_number: 1, rank: 1, dense_rank: 1 };
        } else {
            counts.row_number += 1;
            if peers.is_start(row) {
                counts.rank = counts.row_number;
                counts.dense_rank += 1;
            }
        }
        match place {
            Place::RowNumber => counts.row_number,
            Place::Rank => counts.rank,
            Place::DenseRank => counts.dense_rank,
        }
    });
    Arc::new(Int64Array::from_iter_values(values))
}

/// The places of the rows of partitions of these sizes, in which the peers begin at these rows.
fn shares(share: Share, sizes: &[usize], peers: &[usize]) -> ArrayRef {
    let (mut floats, mut tiles) = (Vec::new(), Vec::new());
    let mut start = 0;
    for size in sizes {
        let end = start + size;
        match share {
            Share::Ntile(tile_count) => {
                // The first tiles have one row more.
                let (few, more) = (*size as u64 / tile_count, *size as u64 % tile_count);
                let tile = |row: u64| match row < more * (few + 1) {
                    true => row / (few + 1),
                    false => more + (row - more * (few + 1)) / few,
                };
                tiles.extend((0..*size as u64).map(|row| tile(row).cast_signed() + 1));
            }
            Share::PercentRank | Share::CumeDist => {
                let first = peers.partition_point(|peer| *peer < start);
                let behind = peers.partition_point(|peer| *peer < end);
                for peer in first..behind {
                    let next = peers.get(peer + 1).map_or(end, |next| end.min(*next));
                    let value = match share {
                        Share::CumeDist => (next - start) as f64 / *size as f64,
                        _ => (peers[peer] - start) as f64 / (size - 1).max(1) as f64,
                    };
                    floats.resize(floats.len() + next - peers[peer], value);
                }
            }
        }
        start = end;
    }
    match share {
        Share::Ntile(_) => Arc::new(Int64Array::from(tiles)),
        _ => Arc::new(Float64Array::from(floats)),
    }
}

/// The aggregates of groups of so many rows each, for each of their rows.
fn of_groups(aggregate: &AggregateFunctionExpr, batch: &RecordBatch, sizes: &[usize]) -> Result<ArrayRef> {
    let groups = sizes.iter().enumerate().flat_map(|(group, size)| std::iter::repeat_n(group, *size));
    let groups: Vec<usize> = groups.collect();
    let arguments = aggregate
        .expressions()
        .into_iter()
        .map(|argument| argument.evaluate(batch)?.into_array(batch.num_rows()));
    let arguments = arguments.collect::<Result<Vec<_>>>()?;
    let mut accumulator = aggregate.create_groups_accumulator()?;
    accumulator.update_batch(&arguments, &groups, None, sizes.len())?;
    let values = accumulator.evaluate(EmitTo::All)?;
    if values.len() != sizes.len() {
        let (name, count) = (aggregate.name(), sizes.len());
        return internal_err!("{name} has {} values for {count} partitions", values.len());
    }
    let rows: UInt64Array = groups.into_iter().map(|group| group as u64).collect();
    Ok(take(&values, &rows, None)?)
}
