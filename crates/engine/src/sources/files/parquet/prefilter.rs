//! Filters that are tried while rows are read, where that spares reading others of their columns.
//!
//! Whoever wants rows filtered does so again above the scan. So a filter is tried here only where it pays: its columns are
//! few bytes beside the others, and few rows have passed it so far. Of these rows alone the other columns are decoded
//! (late materialisation: Abadi et al., "Materialization Strategies in a Column-Oriented DBMS", ICDE 2007).

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::datasource::physical_plan::parquet::{ParquetFileMetrics, build_row_filter};
use datafusion::error::Result;
use datafusion::physical_expr::{PhysicalExpr, conjunction};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowPredicate, RowSelection};
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};

use super::scan::{OverChecked, of_query, passing};
use crate::compile::conditions::Conditions;

/// The columns beside those of a filter have at least so many times its bytes.
const BYTES_SPARED: i64 = 2;
/// With more rows than one in so many, all are decoded.
const SPARSE: usize = 8;
/// What is thought of a filter that was not tried: this share of rows passes.
const UNTRIED: f64 = 0.05;
/// How much of what is known of a filter the last row group replaces: others may narrow it while it is used.
const NEW_SHARE: f64 = 0.5;
/// A filter that lets too many rows through is tried again after so many row groups.
const TRIED_EVERY: usize = 8;

/// The filters of a file; see the [module](self).
pub(super) struct Prefilters {
    filters: Vec<Prefilter>,
}

struct Prefilter {
    predicate: Box<dyn ArrowPredicate>,
    /// The share of rows that pass.
    passing: f64,
    /// Row groups for which it is not tried.
    resting: usize,
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
    ) -> Result<Self> {
        let first = Conditions::new(predicate, schema)?.first;
        let filter = match first.is_empty() {
            true => None,
            false => build_row_filter(&conjunction(first), schema, footer, false, metrics)?,
        };
        let predicates = filter.map_or_else(Vec::new, |filter| filter.into_predicates());
        let leaves = 0..footer.file_metadata().schema_descr().num_columns();
        let is_read = |mask: &ProjectionMask| {
            leaves.clone().all(|leaf| !mask.leaf_included(leaf) || wanted.leaf_included(leaf))
        };
        let predicates = predicates.into_iter().filter(|predicate| is_read(predicate.projection()));
        let filters = predicates.map(|predicate| Prefilter {
            predicate: Box::new(OverChecked(predicate)),
            passing: UNTRIED,
            resting: 0,
        });
        Ok(Self { filters: filters.collect() })
    }

    /// The next filter to try of those from `from` on, which it is put in front of, for a row group of which the columns in
    /// `wanted` are read; its columns.
    pub(super) fn next(
        &mut self,
        from: usize,
        row_group: &RowGroupMetaData,
        wanted: &ProjectionMask,
    ) -> Option<ProjectionMask> {
        let all = bytes(row_group, wanted);
        let rank = |filter: &Prefilter| {
            let own = bytes(row_group, filter.predicate.projection());
            let pays = filter.resting == 0 && BYTES_SPARED * own <= all - own;
            #[expect(clippy::cast_precision_loss, reason = "an estimate")]
            pays.then(|| own as f64 / (1.0 - filter.passing).max(1e-6))
        };
        let ranks = self.filters.iter().enumerate().skip(from);
        let ranks = ranks.filter_map(|(place, filter)| Some((place, rank(filter)?)));
        let (place, _) = ranks.min_by(|left, right| left.1.total_cmp(&right.1))?;
        self.filters.swap(from, place);
        Some(self.filters[from].predicate.projection().clone())
    }

    /// Tries the filter at `place` on rows of its columns: which of them pass.
    pub(super) fn evaluate(
        &mut self,
        place: usize,
        batches: impl Iterator<Item = Result<RecordBatch>>,
    ) -> Result<RowSelection> {
        let filter = &mut self.filters[place];
        let mut passed = Vec::new();
        let (mut rows, mut passing_rows) = (0, 0);
        for batch in batches {
            let passes = passing(filter.predicate.evaluate(batch?).map_err(|error| of_query(error.into()))?);
            (rows, passing_rows) = (rows + passes.len(), passing_rows + passes.true_count());
            passed.push(passes);
        }
        if rows > 0 {
            #[expect(clippy::cast_precision_loss, reason = "an estimate")]
            let share = passing_rows as f64 / rows as f64;
            filter.passing += (share - filter.passing) * NEW_SHARE;
        }
        Ok(RowSelection::from_filters(&passed))
    }

    /// How many filters there are.
    pub(super) fn len(&self) -> usize {
        self.filters.len()
    }

    /// Whether what the first `tried` filters left of so many rows is worth skipping the others; if not, they rest.
    pub(super) fn is_sparse(&mut self, tried: usize, left: usize, rows: usize) -> bool {
        let is_sparse = left * SPARSE <= rows;
        self.filters.iter_mut().for_each(|filter| filter.resting = filter.resting.saturating_sub(1));
        if !is_sparse {
            self.filters[..tried].iter_mut().for_each(|filter| filter.resting = TRIED_EVERY);
        }
        is_sparse
    }
}

/// The compressed bytes of columns.
fn bytes(row_group: &RowGroupMetaData, mask: &ProjectionMask) -> i64 {
    let columns = row_group.columns().iter().enumerate().filter(|(leaf, _)| mask.leaf_included(*leaf));
    columns.map(|(_, column)| column.compressed_size().max(0)).sum()
}
