//! Reads the stripes of a table one after the other, and numbers the rows where they are asked for.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array, new_null_array};
use arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::{assert_or_internal_err, project_schema};
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet};
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use keirin_kernels::bitmaps::{not, positions};
use keirin_kernels::{Level, Selection};

use super::array;
use super::table::StoredTable;
use crate::error::Result;
use crate::leaf::leaf_methods;

/// Batches that are read ahead.
const BATCHES_AHEAD: usize = 2;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct RowScan {
    table: StoredTable,
    projection: Vec<usize>,
    /// The places of the parts that each partition reads.
    runs: Vec<Vec<usize>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl RowScan {
    pub(crate) fn new(table: &StoredTable, projection: Vec<usize>, threads: usize) -> DataFusionResult<Self> {
        let schema = project_schema(&table.schema(), Some(&projection))?;
        let parts = table.table.parts();
        let rows_per_run = table.table.row_count().div_ceil(threads.max(1) as u64).max(1);
        let (mut runs, mut rows_before) = (vec![Vec::new()], 0);
        for (place, part) in parts.iter().enumerate() {
            if rows_before >= rows_per_run * runs.len() as u64 {
                runs.push(Vec::new());
            }
            rows_before += part.live_row_count();
            runs.last_mut().expect("there is a run").push(place);
        }
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(runs.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let metrics = ExecutionPlanMetricsSet::new();
        Ok(Self { table: table.clone(), projection, runs, properties: Arc::new(properties), metrics })
    }
}

impl DisplayAs for RowScan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowScan: table={}, parts={}", self.table.table.definition.name, self.runs.len())
    }
}

impl ExecutionPlan for RowScan {
    fn name(&self) -> &'static str {
        "RowScan"
    }

    leaf_methods!();

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> DataFusionResult<SendableRecordBatchStream> {
        assert_or_internal_err!(partition < self.runs.len(), "RowScan has no partition {partition}");
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let rows_max = context.session_config().batch_size();
        let mut builder = RecordBatchReceiverStream::builder(self.schema(), BATCHES_AHEAD);
        let (sender, table) = (builder.tx(), self.table.clone());
        let (places, projection, schema) =
            (self.runs[partition].clone(), self.projection.clone(), self.schema());
        builder.spawn_blocking(move || {
            for place in places {
                let read = read_part(&table, place, &projection, &schema, |batch| {
                    for first in (0..batch.num_rows()).step_by(rows_max) {
                        let slice = batch.slice(first, rows_max.min(batch.num_rows() - first));
                        metrics.record_output(slice.num_rows());
                        if sender.blocking_send(Ok(slice)).is_err() {
                            return false;
                        }
                    }
                    true
                });
                if !read.map_err(|error| DataFusionError::External(Box::new(error)))? {
                    break;
                }
            }
            Ok(())
        });
        Ok(builder.build())
    }
}

/// Gives each stripe of a part to `take`, until that wants no more; tells whether it took all.
fn read_part(
    table: &StoredTable,
    place: usize,
    projection: &[usize],
    schema: &SchemaRef,
    mut take: impl FnMut(RecordBatch) -> bool,
) -> Result<bool> {
    let level = Level::best();
    let part = table.table.parts()[place];
    let reader = table.snapshot.open_part(&table.table, part)?;
    let deletions = table.snapshot.deletions(&table.table, part)?;
    reader.check_deletions(&deletions)?;
    for stripe in 0..reader.stripe_count() {
        let rows = reader.stripe(stripe);
        let deleted = deletions.stripe(u32::try_from(stripe).expect("a part has few stripes"));
        let live = deleted.map(|deleted| not(level, deleted));
        let selection = live.as_ref().map_or(Selection::All, |live| Selection::Bits(live.as_bits()));
        let numbers = || -> Vec<u64> {
            let first = (place as u64) << 32 | rows.start;
            match &live {
                None => (first..first + (rows.end - rows.start)).collect(),
                Some(live) => {
                    positions(level, live.as_bits()).into_iter().map(|row| first + u64::from(row)).collect()
                }
            }
        };
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(projection.len());
        for index in projection {
            let Some(index) = index.checked_sub(usize::from(table.has_row_numbers)) else {
                columns.push(Arc::new(UInt64Array::from(numbers())));
                continue;
            };
            let field = &table.table.definition.fields[index];
            let data_type = super::arrow_type(&field.data_type);
            let here = reader.fields().iter().position(|other| other.id == field.id);
            columns.push(match (here, table.initial.get(&field.id)) {
                (Some(here), _) => array(reader.read(here, stripe, selection)?, &data_type)?,
                // The table got the column after the part was written.
                (None, Some(value)) => value.to_array_of_size(numbers().len())?,
                (None, None) => new_null_array(&data_type, numbers().len()),
            });
        }
        let row_count = numbers().len();
        let options = RecordBatchOptions::new().with_row_count(Some(row_count));
        if row_count > 0 && !take(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?) {
            return Ok(false);
        }
    }
    Ok(true)
}
