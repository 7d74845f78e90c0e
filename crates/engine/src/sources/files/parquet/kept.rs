//! The rows of a row group that pass filters, bit by bit, where the filters are about columns that our loops decode.
//!
//! Their columns are decoded whole, and kept for the answer: nothing is decompressed or decoded twice, and rows that lie
//! scattered cost no more than a bit.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::datatypes::{Fields, Schema};
use datafusion::arrow::error::ArrowError;
use parquet::arrow::arrow_reader::{RowSelection, RowSelector};

/// Row groups of more rows are read batch by batch: a column of 128 bits has 16 MiB.
pub(super) const ROWS_MAX: usize = 1 << 20;

/// See the [module](self).
pub(super) struct Kept {
    /// The rows of the row group that are looked at, and how many it has.
    window: Range<usize>,
    total: usize,
    /// Which rows pass, if not all.
    passing: Option<BooleanBuffer>,
    /// By their places among the columns of the file.
    columns: HashMap<usize, ArrayRef>,
    /// The same, as codes.
    coded: HashMap<usize, ArrayRef>,
}

impl Kept {
    /// These rows of a row group that has so many, and no column.
    pub(super) fn new(window: Range<usize>, total: usize) -> Self {
        Self { window, total, passing: None, columns: HashMap::new(), coded: HashMap::new() }
    }

    pub(super) fn row_count(&self) -> usize {
        self.window.len()
    }

    /// The rows of the row group before those that are looked at.
    pub(super) fn first(&self) -> usize {
        self.window.start
    }

    pub(super) fn is_empty(&self) -> bool {
        self.passing.is_none() && self.columns.is_empty() && self.coded.is_empty()
    }

    pub(super) fn keep(&mut self, leaf: usize, column: ArrayRef) {
        self.columns.insert(leaf, column);
    }

    pub(super) fn column(&self, leaf: usize) -> Option<&ArrayRef> {
        self.columns.get(&leaf)
    }

    pub(super) fn keep_codes(&mut self, leaf: usize, column: ArrayRef) {
        self.coded.insert(leaf, column);
    }

    pub(super) fn codes(&self, leaf: usize) -> Option<&ArrayRef> {
        self.coded.get(&leaf)
    }

    /// Columns that are kept, which are read as `fields`.
    pub(super) fn batch(&self, leaves: &[usize], fields: Fields) -> Result<RecordBatch, ArrowError> {
        let columns = leaves.iter().filter_map(|leaf| self.columns.get(leaf).cloned()).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.row_count()));
        RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
    }

    /// Which rows pass, if not all.
    pub(super) fn passing(&self) -> Option<&BooleanBuffer> {
        self.passing.as_ref()
    }

    /// How many rows pass.
    pub(super) fn left(&self) -> usize {
        self.passing.as_ref().map_or(self.row_count(), BooleanBuffer::count_set_bits)
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

    /// The rows that are looked at, if these are not all of the row group.
    pub(super) fn window(&self) -> Option<RowSelection> {
        (self.window.len() < self.total).then(|| selected(self.window.clone(), self.total))
    }

    /// The rows of the row group that pass, as runs, if not all.
    pub(super) fn selection(&self) -> Option<RowSelection> {
        let window = self.window();
        let Some(passing) = &self.passing else { return window };
        let passing = RowSelection::from_filters(&[BooleanArray::new(passing.clone(), None)]);
        Some(window.map_or_else(|| passing.clone(), |window| window.and_then(&passing)))
    }
}

/// Consecutive rows of so many.
pub(super) fn selected(rows: Range<usize>, total: usize) -> RowSelection {
    let runs =
        [RowSelector::skip(rows.start), RowSelector::select(rows.len()), RowSelector::skip(total - rows.end)];
    RowSelection::from(runs.into_iter().filter(|run| run.row_count > 0).collect::<Vec<_>>())
}

/// The selected rows, if they are consecutive.
pub(super) fn consecutive(selection: &RowSelection) -> Option<Range<usize>> {
    let (mut at, mut found) = (0, None);
    for run in selection.iter() {
        let rows = at..at + run.row_count;
        at = rows.end;
        if !run.skip && run.row_count > 0 && found.replace(rows).is_some() {
            return None;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_pass_are_rows_of_the_row_group() {
        let mut kept = Kept::new(10..14, 20);
        assert_eq!(kept.selection(), Some(selected(10..14, 20)));
        kept.narrow(&BooleanBuffer::from(vec![true, false, true, true]));
        let runs = [(true, 10), (false, 1), (true, 1), (false, 2)];
        let runs = runs.map(|(skip, row_count)| RowSelector { row_count, skip });
        let selection = kept.selection().unwrap();
        let found: Vec<RowSelector> = selection.iter().take(runs.len()).copied().collect();
        assert_eq!((&found[..], selection.row_count(), kept.left()), (&runs[..], 3, 3));
        kept.widen();
        assert_eq!((kept.first(), kept.row_count(), kept.left()), (10, 4, 4));
        assert_eq!(Kept::new(0..20, 20).selection(), None);
    }

    #[test]
    fn consecutive_rows_are_found() {
        assert_eq!(consecutive(&selected(3..5, 9)), Some(3..5));
        assert_eq!(consecutive(&selected(0..9, 9)), Some(0..9));
        let runs = vec![RowSelector::select(1), RowSelector::skip(1), RowSelector::select(1)];
        assert_eq!(consecutive(&RowSelection::from(runs)), None);
        assert_eq!(consecutive(&RowSelection::from(vec![RowSelector::skip(4)])), None);
    }
}
