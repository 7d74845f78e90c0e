//! Filters that are tried while rows are read, where that spares reading others of their columns.
//!
//! Whoever wants rows filtered does so again above the scan. So a filter is tried here only where it pays: its columns are
//! few bytes beside the others, and few rows have passed it so far. Of these rows alone the other columns are decoded
//! (late materialisation: Abadi et al., "Materialization Strategies in a Column-Oriented DBMS", ICDE 2007).

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::array::{BooleanArray, RecordBatch};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::datasource::physical_plan::parquet::{ParquetFileMetrics, build_row_filter};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use parking_lot::Mutex;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ArrowPredicate;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};

use super::rows::{OverChecked, of_query, passing};
use crate::compile::conditions::Conditions;
use crate::sources::experience::Experience;

/// What is thought of a filter that was not tried: this share of rows passes.
const UNTRIED: f64 = 0.05;
/// A filter that lets too many rows through rests for so many row groups.
const TRIED_EVERY: usize = 8;

/// What was learnt of the conditions of a scan, by their places and what they were tried on, from one file or part of a
/// file to the next.
pub(super) type Learnt = Arc<Mutex<HashMap<(usize, On), Experience>>>;

/// What a filter is tried on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum On {
    Rows,
    /// The entries of its column's dictionary alone, which may show that no row passes, or that all do.
    Entries,
}

/// The filters of a file; see the [module](self).
pub(super) struct Prefilters {
    filters: Vec<Prefilter>,
}

struct Prefilter {
    predicate: Box<dyn ArrowPredicate>,
    /// Its place among the conditions.
    place: usize,
    learnt: Learnt,
    /// Whether it may be tried on the row group.
    is_due: bool,
}

impl Prefilter {
    fn with_learnt<T>(&self, on: On, act: impl FnOnce(&mut Experience) -> T) -> T {
        let mut learnt = self.learnt.lock();
        act(learnt.entry((self.place, on)).or_insert_with(|| Experience::guess(1.0, UNTRIED)))
    }
}

impl Prefilters {
    /// Those of the conditions in `predicate`, over columns of `schema`, that are about columns that are read anyway and cannot
    /// fail: others may concern rows that something else excludes.
    pub(super) fn new(
        predicate: Option<&Arc<dyn PhysicalExpr>>,
        schema: &SchemaRef,
        footer: &ParquetMetaData,
        wanted: &ProjectionMask,
        metrics: &ParquetFileMetrics,
        learnt: &Learnt,
    ) -> Result<Self> {
        let leaves = 0..footer.file_metadata().schema_descr().num_columns();
        let is_read = |mask: &ProjectionMask| {
            leaves.clone().all(|leaf| !mask.leaf_included(leaf) || wanted.leaf_included(leaf))
        };
        let mut filters = Vec::new();
        for (place, condition) in Conditions::new(predicate, schema)?.first.iter().enumerate() {
            let filter = build_row_filter(condition, schema, footer, false, metrics)?;
            let predicates = filter.map_or_else(Vec::new, |filter| filter.into_predicates());
            let predicates = predicates.into_iter().filter(|predicate| is_read(predicate.projection()));
            filters.extend(predicates.map(|predicate| Prefilter {
                predicate: Box::new(OverChecked(predicate)),
                place,
                learnt: learnt.clone(),
                is_due: true,
            }));
        }
        Ok(Self { filters })
    }

    /// Begins a row group.
    pub(super) fn begin(&mut self) {
        self.filters
            .iter_mut()
            .for_each(|filter| filter.is_due = filter.with_learnt(On::Rows, Experience::is_due));
    }

    /// The next filter to try of those from `from` on whose columns are `eligible`, which it is put in front of, for a row
    /// group of which the columns in `wanted` are read, if these have so many times its bytes; its columns.
    pub(super) fn next(
        &mut self,
        from: usize,
        row_group: &RowGroupMetaData,
        wanted: &ProjectionMask,
        eligible: impl Fn(&ProjectionMask) -> bool,
        bytes_spared: impl Fn(&ProjectionMask) -> i64,
    ) -> Option<ProjectionMask> {
        let all = bytes(row_group, wanted);
        let rank = |filter: &Prefilter| {
            let columns = filter.predicate.projection();
            let own = bytes(row_group, columns);
            let pays = filter.is_due && bytes_spared(columns) * own <= all - own;
            (pays && eligible(columns)).then(|| filter.with_learnt(On::Rows, |learnt| learnt.rank()))
        };
        let ranks = self.filters.iter().enumerate().skip(from);
        let ranks = ranks.filter_map(|(place, filter)| Some((place, rank(filter)?)));
        let (place, _) = ranks.min_by(|left, right| left.1.total_cmp(&right.1))?;
        self.filters.swap(from, place);
        Some(self.filters[from].predicate.projection().clone())
    }

    /// Tries the filter at `place` on rows of its columns, which were begun to be read at that time: which of them pass.
    pub(super) fn evaluate(
        &mut self,
        place: usize,
        started: Instant,
        batches: impl Iterator<Item = Result<RecordBatch>>,
    ) -> Result<Vec<BooleanArray>> {
        let filter = &mut self.filters[place];
        let mut passed = Vec::new();
        let (mut rows, mut passing_rows) = (0, 0);
        for batch in batches {
            let passes = passing(filter.predicate.evaluate(batch?).map_err(|error| of_query(error.into()))?);
            (rows, passing_rows) = (rows + passes.len(), passing_rows + passes.true_count());
            passed.push(passes);
        }
        filter.with_learnt(On::Rows, |learnt| learnt.add(started.elapsed().as_nanos(), rows, passing_rows));
        Ok(passed)
    }

    /// Tries the filter at `place` on values that may stand for any count of rows: which of them pass.
    pub(super) fn try_values(&mut self, place: usize, values: RecordBatch) -> Result<BooleanArray> {
        let passes = self.filters[place].predicate.evaluate(values);
        Ok(passing(passes.map_err(|error| of_query(error.into()))?))
    }

    /// The filter at `place`, which was begun to be tried at that time, left so many of these rows.
    pub(super) fn learn(&self, place: usize, started: Instant, rows: usize, left: usize) {
        self.filters[place]
            .with_learnt(On::Rows, |learnt| learnt.add(started.elapsed().as_nanos(), rows, left));
    }

    /// The columns of the filter at `place`, if it may be tried on the entries of a dictionary.
    pub(super) fn of_entries(&self, place: usize) -> Option<&ProjectionMask> {
        let filter = &self.filters[place];
        filter.with_learnt(On::Entries, Experience::is_due).then(|| filter.predicate.projection())
    }

    /// Of the entries of a dictionary some passed the filter at `place`: whether all did, or else it is not tried on others
    /// for a while.
    pub(super) fn some_entries_passed(&mut self, place: usize, did_all: bool) {
        match did_all {
            true => self.filters[place].is_due = false,
            false => self.filters[place].with_learnt(On::Entries, |learnt| learnt.rest(TRIED_EVERY)),
        }
    }

    /// How many filters there are.
    pub(super) fn len(&self) -> usize {
        self.filters.len()
    }

    /// Whether what the filters at the places `tried` left of so many rows, at most one of `share`, is worth skipping the
    /// others; if not, they rest.
    pub(super) fn is_sparse(&self, tried: Range<usize>, left: usize, rows: usize, share: usize) -> bool {
        let is_sparse = left * share <= rows;
        if !is_sparse {
            self.filters[tried]
                .iter()
                .for_each(|filter| filter.with_learnt(On::Rows, |learnt| learnt.rest(TRIED_EVERY)));
        }
        is_sparse
    }
}

/// The compressed bytes of columns.
fn bytes(row_group: &RowGroupMetaData, mask: &ProjectionMask) -> i64 {
    let columns = row_group.columns().iter().enumerate().filter(|(leaf, _)| mask.leaf_included(*leaf));
    columns.map(|(_, column)| column.compressed_size().max(0)).sum()
}
