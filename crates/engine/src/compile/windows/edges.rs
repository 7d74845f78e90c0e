//! Where the window partitions and the peers of rows in order begin.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array, UInt64Array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::kernels::cmp::distinct;
use arrow::compute::take;
use arrow::datatypes::Schema;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::window::WindowExpr;

pub(super) type Exprs = Vec<Arc<dyn PhysicalExpr>>;

/// Rows in order, of which columns are wanted for those from `first` on, as many as can be had.
pub(super) struct Rows<'a> {
    pub(super) batch: &'a RecordBatch,
    pub(super) first: usize,
    /// Whether no others follow.
    pub(super) is_end: bool,
}

impl Rows<'_> {
    pub(super) fn wanted(&self, end: usize) -> RecordBatch {
        self.batch.slice(self.first, end - self.first)
    }
}

/// Partitions, or peers, that a function wants whole.
pub(super) struct Whole {
    pub(super) keys: Exprs,
    /// Where they begin in the rows looked at last.
    starts: Vec<usize>,
}

impl Whole {
    pub(super) fn new(keys: Exprs, schema: &Schema) -> Result<Option<Self>> {
        Ok(Edges::new(keys.clone(), schema)?.map(|_| Self { keys, starts: Vec::new() }))
    }

    pub(super) fn peers(expr: &Arc<dyn WindowExpr>, schema: &Schema) -> Result<Option<Self>> {
        let order = expr.order_by().iter().map(|sort| sort.expr.clone());
        Self::new(expr.partition_by().iter().cloned().chain(order).collect(), schema)
    }

    pub(super) fn look(&mut self, batch: &RecordBatch) -> Result<()> {
        self.starts = Edges::starts_of(&self.keys, batch)?;
        Ok(())
    }

    /// Behind the last whole one that ends there or before.
    pub(super) fn end(&self, rows: &Rows<'_>, end: usize) -> usize {
        if rows.is_end && end == rows.batch.num_rows() {
            return end;
        }
        let before = self.starts.partition_point(|start| *start <= end);
        self.starts[..before].last().map_or(rows.first, |start| rows.first.max(*start))
    }

    /// How many rows each has of those up to `end`.
    pub(super) fn sizes(&self, rows: &Rows<'_>, end: usize) -> impl Iterator<Item = usize> {
        let inside = self.starts.partition_point(|start| *start <= rows.first);
        let ends = self.starts[inside..].iter().copied().take_while(move |start| *start < end).chain([end]);
        ends.scan(rows.first, |start, end| Some(end - std::mem::replace(start, end)))
    }

    /// The last row of each row's peers, counted from the first row.
    pub(super) fn last(&self, rows: &Rows<'_>, end: usize) -> UInt64Array {
        let mut last = 0;
        let rows = self.sizes(rows, end).flat_map(|size| {
            last += size as u64;
            std::iter::repeat_n(last - 1, size)
        });
        UInt64Array::from_iter_values(rows)
    }
}

/// Where the values of some columns differ from those of the row before.
pub(super) struct Edges {
    keys: Exprs,
    /// The values of the row seen last.
    last: Option<Vec<ArrayRef>>,
    /// Those of the rows seen last.
    pub(super) starts: Starts,
}

impl Edges {
    /// `None` if values of some type cannot be compared.
    pub(super) fn new(keys: Exprs, schema: &Schema) -> Result<Option<Self>> {
        for key in &keys {
            if key.data_type(schema)?.is_nested() {
                return Ok(None);
            }
        }
        Ok(Some(Self { keys, last: None, starts: Starts::default() }))
    }

    /// The first of these rows, and those that differ from the row before.
    pub(super) fn starts_of(keys: &Exprs, batch: &RecordBatch) -> Result<Vec<usize>> {
        let mut edges = Self { keys: keys.clone(), last: None, starts: Starts::default() };
        edges.see(batch)?;
        let behind = edges.starts.behind.iter().flat_map(BooleanBuffer::set_indices);
        Ok([0].into_iter().chain(behind.map(|row| row + 1)).collect())
    }

    /// Looks at the rows behind those seen before.
    pub(super) fn see(&mut self, batch: &RecordBatch) -> Result<()> {
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
}
