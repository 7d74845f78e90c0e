//! Reads a table in memory, and counts the rows that it returns.
//!
//! DataFusion's own scan of batches in memory has no metrics; a progress bar needs them.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::stats::Precision;
use datafusion::common::{Statistics, assert_or_internal_err, project_schema};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::common::compute_record_batch_statistics;
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::stream;

use crate::sources::leaf::leaf_methods;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct MemoryScan {
    table: String,
    parts: Arc<Vec<Vec<RecordBatch>>>,
    projection: Option<Vec<usize>>,
    statistics: Arc<Statistics>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl MemoryScan {
    /// Reads `parts`, whose batches have `schema`, with one partition for each part.
    ///
    /// # Errors
    /// When `projection` names columns that `schema` does not have.
    pub(crate) fn new(
        table: &str,
        parts: Vec<Vec<RecordBatch>>,
        schema: &SchemaRef,
        projection: Option<&Vec<usize>>,
    ) -> Result<Self> {
        let projected = project_schema(schema, projection)?;
        let projection = projection.cloned();
        let statistics = compute_record_batch_statistics(&parts, schema, projection.clone());
        let properties = PlanProperties::new(
            EquivalenceProperties::new(projected),
            Partitioning::UnknownPartitioning(parts.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        Ok(Self {
            table: table.to_owned(),
            parts: Arc::new(parts),
            projection,
            statistics: Arc::new(statistics),
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }
}

impl DisplayAs for MemoryScan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.schema();
        let columns: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        write!(
            f,
            "MemoryScan: table={}, parts={}, columns=[{}]",
            self.table,
            self.parts.len(),
            columns.join(", ")
        )
    }
}

impl ExecutionPlan for MemoryScan {
    fn name(&self) -> &'static str {
        "MemoryScan"
    }

    leaf_methods!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        assert_or_internal_err!(partition < self.parts.len(), "MemoryScan has no partition {partition}");
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let (parts, projection) = (self.parts.clone(), self.projection.clone());
        let rows_max = context.session_config().batch_size();
        let (mut batch_index, mut row) = (0, 0);
        let batches = std::iter::from_fn(move || {
            let batch = parts[partition].get(batch_index)?;
            // Batches of the table may be larger than operators expect.
            let rows = rows_max.min(batch.num_rows() - row);
            let slice = if rows == batch.num_rows() { batch.clone() } else { batch.slice(row, rows) };
            row += rows;
            if row == batch.num_rows() {
                (batch_index, row) = (batch_index + 1, 0);
            }
            metrics.record_output(rows);
            Some(match &projection {
                Some(columns) => slice.project(columns).map_err(Into::into),
                None => Ok(slice),
            })
        });
        Ok(Box::pin(cooperative(RecordBatchStreamAdapter::new(self.schema(), stream::iter(batches)))))
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        Ok(match args.partition() {
            None => self.statistics.clone(),
            Some(part) => {
                let rows = self.parts.get(part).map(|part| part.iter().map(RecordBatch::num_rows).sum());
                let rows = rows.map_or(Precision::Absent, Precision::Exact);
                Arc::new(Statistics::new_unknown(&self.schema()).with_num_rows(rows))
            }
        })
    }
}
