//! The rows of a row group that pass filters, bit by bit, where the filters are about columns that our loops decode.
//!
//! Their columns are decoded whole, and kept for the answer: nothing is decompressed or decoded twice, and rows that lie
//! scattered cost no more than a bit.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::datatypes::{Fields, Schema};
use datafusion::arrow::error::ArrowError;
use parquet::arrow::arrow_reader::RowSelection;

/// Row groups of more rows are read batch by batch: a column of 128 bits has 16 MiB.
pub(super) const ROWS_MAX: usize = 1 << 20;

/// See the [module](self).
pub(super) struct Kept {
    row_count: usize,
    /// Which rows pass, if not all.
    passing: Option<BooleanBuffer>,
    /// By their places among the columns of the file.
    columns: HashMap<usize, ArrayRef>,
}

impl Kept {
    /// All rows of a row group, and no column.
    pub(super) fn new(row_count: usize) -> Self {
        Self { row_count, passing: None, columns: HashMap::new() }
    }

    pub(super) fn row_count(&self) -> usize {
        self.row_count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.passing.is_none() && self.columns.is_empty()
    }

    pub(super) fn keep(&mut self, leaf: usize, column: ArrayRef) {
        self.columns.insert(leaf, column);
    }

    pub(super) fn column(&self, leaf: usize) -> Option<&ArrayRef> {
        self.columns.get(&leaf)
    }

    /// Columns that are kept, which are read as `fields`.
    pub(super) fn batch(&self, leaves: &[usize], fields: Fields) -> Result<RecordBatch, ArrowError> {
        let columns = leaves.iter().filter_map(|leaf| self.columns.get(leaf).cloned()).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.row_count));
        RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
    }

    /// Which rows pass, if not all.
    pub(super) fn passing(&self) -> Option<&BooleanBuffer> {
        self.passing.as_ref()
    }

    /// How many rows pass.
    pub(super) fn left(&self) -> usize {
        self.passing.as_ref().map_or(self.row_count, BooleanBuffer::count_set_bits)
    }

    /// Leaves rows out that do not pass another filter.
    pub(super) fn narrow(&mut self, passes: &BooleanBuffer) {
        self.passing = Some(match &self.passing {
            Some(before) => before & passes,
            None => passes.clone(),
        });
    }

    /// Has all rows pass again.
    pub(super) fn widen(&mut self) {
        self.passing = None;
    }

    /// The rows that pass, as runs, if not all.
    pub(super) fn selection(&self) -> Option<RowSelection> {
        let passing = BooleanArray::new(self.passing.clone()?, None);
        Some(RowSelection::from_filters(&[passing]))
    }
}
