//! The functions, and where the window partitions of rows that are in order begin.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, UInt32Array, UInt64Array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::kernels::cmp::distinct;
use arrow::compute::{cast, interleave, take};
use arrow::datatypes::{DataType, Schema};
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::logical_expr::{EmitTo, WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::window::{PlainAggregateWindowExpr, StandardWindowExpr, WindowExpr};
use datafusion::physical_plan::windows::WindowUDFExpr;

use super::running::Running;

type Exprs = Vec<Arc<dyn PhysicalExpr>>;

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
    /// The same for all rows of a partition.
    Aggregate(Arc<AggregateFunctionExpr>),
    /// Of the rows up to each row, or to the last of its peers.
    Running(Box<Running>, Option<Peers>),
    /// The value of the first row of the partition.
    First(Arc<dyn PhysicalExpr>, Option<ArrayRef>),
    /// The value of the last of a row's peers.
    Last(Arc<dyn PhysicalExpr>, Peers),
}

/// Rows that are equal in what they are ordered by.
struct Peers {
    /// Where they begin in the rows seen last.
    ahead: Edges,
    /// Where they begin in the rows that columns were made for.
    behind: Edges,
}

impl Peers {
    fn new(expr: &Arc<dyn WindowExpr>, schema: &Schema) -> Result<Option<Self>> {
        let order = expr.order_by().iter().map(|sort| sort.expr.clone());
        let keys: Exprs = expr.partition_by().iter().cloned().chain(order).collect();
        let behind = Edges::new(keys.clone(), schema)?;
        Ok(behind.map(|behind| Self { ahead: Edges::of(keys), behind }))
    }

    /// The last peer of each row, of rows that begin and end with whole peers.
    fn last(&mut self, batch: &RecordBatch) -> Result<UInt64Array> {
        self.behind.see(batch)?;
        let mut last = batch.num_rows();
        let mut rows = vec![0; last];
        for row in (0..rows.len()).rev() {
            rows[row] = last as u64 - 1;
            if self.behind.starts.is_start(row) {
                last = row;
            }
        }
        Ok(rows.into())
    }
}

#[derive(Clone, Copy)]
enum Place {
    RowNumber,
    Rank,
    DenseRank,
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
            let function = standard.get_standard_func_expr().as_any().downcast_ref::<WindowUDFExpr>();
            let place = match function.map(|function| function.fun().name()) {
                Some("row_number") => Place::RowNumber,
                Some("rank") => Place::Rank,
                Some("dense_rank") => Place::DenseRank,
                _ => return Self::of_value(expr, standard, schema, partitions),
            };
            let Some(peers) = Edges::new(order, schema)? else { return Ok(None) };
            Kind::Rank { place, peers, counts: Counts::default() }
        } else if let Some(plain) = expr.as_any().downcast_ref::<PlainAggregateWindowExpr>() {
            let aggregate = plain.get_aggregate_expr();
            // Whether there is a FILTER, it tells nobody.
            let has_filter = !format!("{plain:?}").ends_with("filter: None }");
            if has_filter {
                return Ok(None);
            }
            if has_whole_frame(expr) {
                if !aggregate.order_bys().is_empty() || !aggregate.groups_accumulator_supported() {
                    return Ok(None);
                }
                Kind::Aggregate(Arc::new(aggregate.clone()))
            } else {
                let frame = expr.get_window_frame();
                let is_running =
                    is_start(&frame.start_bound) && matches!(frame.end_bound, WindowFrameBound::CurrentRow);
                let running = if is_running { Running::of(aggregate, schema)? } else { None };
                let Some(running) = running else { return Ok(None) };
                let mut peers = None;
                if frame.units != WindowFrameUnits::Rows {
                    peers = Peers::new(expr, schema)?;
                    if peers.is_none() {
                        return Ok(None);
                    }
                }
                Kind::Running(Box::new(running), peers)
            }
        } else {
            return Ok(None);
        };
        Ok(Some(Self { kind, data_type: expr.field()?.data_type().clone(), partitions }))
    }

    /// `first_value` and `last_value`.
    fn of_value(
        expr: &Arc<dyn WindowExpr>,
        standard: &StandardWindowExpr,
        schema: &Schema,
        partitions: Edges,
    ) -> Result<Option<Self>> {
        let function = standard.get_standard_func_expr().as_any().downcast_ref::<WindowUDFExpr>();
        let Some(function) = function else { return Ok(None) };
        let [argument] = function.args() else { return Ok(None) };
        // Nothing else tells.
        if !format!("{function:?}").ends_with("is_reversed: false, ignore_nulls: false }") {
            return Ok(None);
        }
        let frame = expr.get_window_frame();
        let kind = match (function.fun().name(), &frame.end_bound) {
            // An interval that follows may be negative, and nothing be in the frame.
            ("first_value", end)
                if is_start(&frame.start_bound)
                    && (matches!(end, WindowFrameBound::CurrentRow)
                        || matches!(end, WindowFrameBound::Following(_)) && end.is_unbounded()) =>
            {
                Kind::First(argument.clone(), None)
            }
            ("last_value", WindowFrameBound::CurrentRow)
                if is_start(&frame.start_bound) && frame.units != WindowFrameUnits::Rows =>
            {
                let Some(peers) = Peers::new(expr, schema)? else { return Ok(None) };
                Kind::Last(argument.clone(), peers)
            }
            _ => return Ok(None),
        };
        Ok(Some(Self { kind, data_type: expr.field()?.data_type().clone(), partitions }))
    }

    /// Looks at the next rows.
    pub(super) fn see(&mut self, batch: &RecordBatch) -> Result<()> {
        match &mut self.kind {
            Kind::Aggregate(_) => self.partitions.see(batch),
            Kind::Running(_, Some(peers)) | Kind::Last(_, peers) => peers.ahead.see(batch),
            _ => Ok(()),
        }
    }

    /// Where partitions or peers begin in the rows seen last, if the function wants whole ones.
    pub(super) fn wanted_starts(&self) -> Option<&Starts> {
        match &self.kind {
            Kind::Aggregate(_) => Some(&self.partitions.starts),
            Kind::Running(_, Some(peers)) | Kind::Last(_, peers) => Some(&peers.ahead.starts),
            _ => None,
        }
    }

    /// The values for the rows that come next, which are whole partitions or peers if it wants that.
    pub(super) fn column(&mut self, batch: &RecordBatch) -> Result<ArrayRef> {
        let values = match &mut self.kind {
            Kind::Rank { place, peers, counts } => {
                self.partitions.see(batch)?;
                peers.see(batch)?;
                ranks(*place, counts, batch.num_rows(), &self.partitions.starts, &peers.starts)
            }
            Kind::Aggregate(aggregate) => {
                // What was seen of the rows behind these is seen again.
                let mut partitions = Edges::of(self.partitions.keys.clone());
                partitions.see(batch)?;
                whole(aggregate, batch, &partitions.starts)?
            }
            Kind::Running(running, peers) => {
                self.partitions.see(batch)?;
                let rows = peers.as_mut().map(|peers| peers.last(batch)).transpose()?;
                running.column(batch, &self.partitions.starts, rows.as_ref())?
            }
            Kind::First(argument, kept) => {
                self.partitions.see(batch)?;
                let values = argument.evaluate(batch)?.into_array(batch.num_rows())?;
                first(&values, &self.partitions.starts, kept)?
            }
            Kind::Last(argument, peers) => {
                let values = argument.evaluate(batch)?.into_array(batch.num_rows())?;
                take(&values, &peers.last(batch)?, None)?
            }
        };
        if *values.data_type() == self.data_type { Ok(values) } else { Ok(cast(&values, &self.data_type)?) }
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

/// The aggregate of each partition, for each of its rows.
fn whole(aggregate: &AggregateFunctionExpr, batch: &RecordBatch, partitions: &Starts) -> Result<ArrayRef> {
    let (mut groups, mut count) = (Vec::with_capacity(batch.num_rows()), 0);
    for row in 0..batch.num_rows() {
        count += usize::from(row == 0 || partitions.is_start(row));
        groups.push(count - 1);
    }
    let arguments = aggregate
        .expressions()
        .into_iter()
        .map(|argument| argument.evaluate(batch)?.into_array(batch.num_rows()));
    let arguments = arguments.collect::<Result<Vec<_>>>()?;
    let mut accumulator = aggregate.create_groups_accumulator()?;
    accumulator.update_batch(&arguments, &groups, None, count)?;
    let values = accumulator.evaluate(EmitTo::All)?;
    if values.len() != count {
        return internal_err!("{} has {} values for {count} partitions", aggregate.name(), values.len());
    }
    let rows: UInt64Array = groups.into_iter().map(|group| group as u64).collect();
    Ok(take(&values, &rows, None)?)
}

/// Where the values of some columns differ from those of the row before.
struct Edges {
    keys: Exprs,
    /// The values of the row seen last.
    last: Option<Vec<ArrayRef>>,
    starts: Starts,
}

impl Edges {
    /// `None` if values of some type cannot be compared.
    fn new(keys: Exprs, schema: &Schema) -> Result<Option<Self>> {
        for key in &keys {
            if key.data_type(schema)?.is_nested() {
                return Ok(None);
            }
        }
        Ok(Some(Self::of(keys)))
    }

    fn of(keys: Exprs) -> Self {
        Self { keys, last: None, starts: Starts::default() }
    }

    /// Looks at the rows behind those seen before.
    fn see(&mut self, batch: &RecordBatch) -> Result<()> {
        let row_count = batch.num_rows();
        let keys = self.keys.iter().map(|key| key.evaluate(batch)?.into_array(row_count));
        let keys = keys.collect::<Result<Vec<_>>>()?;
        let mut differ: Option<BooleanBuffer> = None;
        for key in &keys {
            let other = distinct(&key.slice(0, row_count - 1), &key.slice(1, row_count - 1))?;
            differ = Some(differ.map_or_else(|| other.values().clone(), |differ| &differ | other.values()));
        }
        let mut is_first = self.last.is_none();
        for (last, key) in self.last.iter().flatten().zip(&keys) {
            is_first |= distinct(last, &key.slice(0, 1))?.value(0);
        }
        self.starts = Starts { is_first, behind: differ };
        // In buffers of their own: a slice would keep the batch.
        let row = UInt32Array::from(vec![u32::try_from(row_count - 1).unwrap_or(u32::MAX)]);
        self.last = Some(keys.iter().map(|key| take(key, &row, None)).collect::<Result<_, _>>()?);
        Ok(())
    }
}

/// Which rows begin something.
#[derive(Clone, Debug, Default)]
pub(super) struct Starts {
    is_first: bool,
    /// Of the rows behind the first one; none of them if it does not say.
    behind: Option<BooleanBuffer>,
}

impl Starts {
    pub(super) fn is_start(&self, row: usize) -> bool {
        match row.checked_sub(1) {
            None => self.is_first,
            Some(row) => self.behind.as_ref().is_some_and(|behind| behind.value(row)),
        }
    }

    /// The rows that begin something by each of these; `None` if there are none to ask.
    pub(super) fn all<'a>(mut each: impl Iterator<Item = &'a Self>) -> Option<Self> {
        let first = each.next()?.clone();
        Some(each.fold(first, |all, other| Self {
            is_first: all.is_first && other.is_first,
            behind: all.behind.as_ref().zip(other.behind.as_ref()).map(|(all, other)| all & other),
        }))
    }

    /// The last row that begins something.
    pub(super) fn last(&self) -> Option<usize> {
        let behind = self.behind.as_ref().and_then(|behind| behind.set_indices().last());
        behind.map(|row| row + 1).or_else(|| self.is_first.then_some(0))
    }
}
