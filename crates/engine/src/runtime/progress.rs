//! The progress of a query, read from its plan while it runs.
//!
//! Operators already count rows and bytes in their metrics; the leaves of the plan know the totals. So
//! progress costs the query nothing: it is computed when a caller asks.

use std::sync::Arc;

use datafusion::common::stats::Precision;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use parking_lot::RwLock;

use crate::sources::files;

/// The progress of a query. Clones share the query.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    leaves: Arc<RwLock<Vec<Leaf>>>,
}

#[derive(Debug)]
struct Leaf {
    plan: Arc<dyn ExecutionPlan>,
    row_count: Option<usize>,
    bytes: Option<usize>,
}

impl Leaf {
    fn new(plan: &Arc<dyn ExecutionPlan>) -> Self {
        let row_count = match StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new()) {
            Ok(statistics) => match statistics.num_rows {
                Precision::Exact(rows) | Precision::Inexact(rows) => Some(rows),
                Precision::Absent => None,
            },
            Err(_) => None,
        };
        Self { plan: plan.clone(), row_count, bytes: file_bytes(plan) }
    }

    fn rows_read(&self, metrics: &MetricsSet) -> usize {
        // Rows that a filter inside the scan drops count as read.
        metrics.output_rows().unwrap_or(0) + sum(metrics, "pushdown_rows_pruned")
    }

    /// The share that was read of this leaf, and its weight among the leaves.
    #[expect(clippy::cast_precision_loss, reason = "a share for a progress bar")]
    fn share(&self) -> Option<(f64, f64)> {
        let metrics = self.plan.metrics()?;
        match (self.row_count, self.bytes) {
            (Some(rows), _) if rows > 0 => Some((self.rows_read(&metrics) as f64 / rows as f64, rows as f64)),
            (_, Some(bytes)) if bytes > 0 => {
                Some((sum(&metrics, "bytes_scanned") as f64 / bytes as f64, bytes as f64 / 100.0))
            }
            _ => None,
        }
    }
}

impl Progress {
    /// Sets the plan whose progress is reported.
    pub(crate) fn watch(&self, plan: &Arc<dyn ExecutionPlan>) {
        let mut leaves = Vec::new();
        find_leaves(plan, &mut leaves);
        *self.leaves.write() = leaves;
    }

    /// Rows read from tables and files so far.
    pub fn rows(&self) -> u64 {
        self.sum(|leaf, metrics| leaf.rows_read(metrics))
    }

    /// Bytes read from files so far, as stored.
    pub fn bytes(&self) -> u64 {
        self.sum(|_, metrics| sum(metrics, "bytes_scanned"))
    }

    /// The share of the input that was read, 0 to 1; `None` while it is unknown.
    pub fn fraction(&self) -> Option<f64> {
        let leaves = self.leaves.read();
        let shares: Vec<(f64, f64)> = leaves.iter().filter_map(Leaf::share).collect();
        let weight: f64 = shares.iter().map(|(_, weight)| weight).sum();
        let done: f64 = shares.iter().map(|(share, weight)| share.min(1.0) * weight).sum();
        (weight > 0.0).then(|| done / weight)
    }

    fn sum(&self, count: impl Fn(&Leaf, &MetricsSet) -> usize) -> u64 {
        let leaves = self.leaves.read();
        leaves.iter().filter_map(|leaf| Some(count(leaf, &leaf.plan.metrics()?) as u64)).sum()
    }
}

fn find_leaves(plan: &Arc<dyn ExecutionPlan>, leaves: &mut Vec<Leaf>) {
    let children = plan.children();
    if children.is_empty() {
        leaves.push(Leaf::new(plan));
    }
    for child in children {
        find_leaves(child, leaves);
    }
}

fn sum(metrics: &MetricsSet, name: &str) -> usize {
    metrics.sum_by_name(name).map_or(0, |value| value.as_usize())
}

/// The size of the files that a scan reads.
fn file_bytes(plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    if let Some(bytes) = files::scan_bytes(plan.as_ref()) {
        return usize::try_from(bytes).ok();
    }
    let source = plan.downcast_ref::<DataSourceExec>()?.data_source();
    let config = (source.as_ref() as &dyn std::any::Any).downcast_ref::<FileScanConfig>()?;
    let files = config.file_groups.iter().flat_map(|group| group.files());
    usize::try_from(files.map(|file| file.effective_size()).sum::<u64>()).ok()
}
