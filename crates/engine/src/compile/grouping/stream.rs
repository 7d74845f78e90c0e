//! The rows of one partition, grouped.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::internal_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::aggregates::{
    AggregateExec, AggregateInputMode, AggregateMode, AggregateOutputMode,
};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, RecordOutput};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{EmptyRecordBatchStream, ExecutionPlan};
use futures::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;

use super::chosen::Chosen;
use super::exchange::ExchangeExec;
use super::first::First;
use super::table::{self, Table, Taken};
use crate::compact::compact;

/// As many partial groups stay in the second cache, about. With more of them, they have to be of some rows on average,
/// [`ROWS_PER_GROUP`](super::ROWS_PER_GROUP) say, or it is cheaper to send the rows to where groups are merged.
const GROUPS_TRIED: usize = 1 << 14;
/// With so many partial groups a table is sent on and begins anew: beyond the caches each row waits for memory, and the
/// groups are merged anyway.
const PARTIAL_GROUPS_MAX: usize = 1 << 16;
/// For how many rows this is taken for granted, for each that was grouped, until it is tried again.
const PASSED_PER_TRIED: usize = 32;

/// Groups rows of a partition of the input of `aggregate`: all, or those of groups that are `chosen`. Of the groups it
/// gives all, or those that may come `first`.
pub(super) fn grouped(
    aggregate: &AggregateExec,
    chosen: Option<Arc<Chosen>>,
    first: Option<First>,
    rows_per_group: usize,
    metrics: &ExecutionPlanMetricsSet,
    partition: usize,
    context: &Arc<TaskContext>,
) -> Result<SendableRecordBatchStream> {
    let plan = aggregate.clone();
    let (metrics, context) = (BaselineMetrics::new(metrics, partition), context.clone());
    let spare = Arc::new(Mutex::new(None));
    let group = move |input, context: &Arc<TaskContext>| {
        let options = &context.session_config().options().execution;
        let Some(keys) = table::keys(&plan) else { return internal_err!("keys that there is no table for") };
        let reservation = MemoryConsumer::new(format!("GroupStream[{partition}]"))
            .with_can_spill(true)
            .register(context.memory_pool());
        let table = spare.lock().take();
        let grouping = Grouping {
            table: table.map_or_else(|| Table::new(&plan, keys, chosen.clone()), Ok)?,
            spare: spare.clone(),
            aggregate: plan.clone(),
            schema: plan.schema(),
            output: plan.mode().output_mode(),
            first: first.clone(),
            input,
            next: Next::Read,
            emitted: None,
            limit: plan.limit_options().map(|limit| limit.limit()),
            row_count: 0,
            worthwhile: GROUPS_TRIED,
            rows_per_group,
            batch_rows: options.batch_size.get(),
            context: context.clone(),
            reservation,
            baseline: metrics.clone(),
        };
        Ok(grouping.into_stream())
    };
    let Some(exchange) = aggregate.input().downcast_ref::<ExchangeExec>() else {
        return group(aggregate.input().execute(partition, context.clone())?, &context);
    };
    // Each part has groups of its own.
    let groups = exchange.parts(partition, &context)?.map(move |part| group(part, &context));
    Ok(Box::pin(RecordBatchStreamAdapter::new(aggregate.schema(), groups.try_flatten().boxed())))
}

struct Grouping {
    aggregate: AggregateExec,
    table: Table,
    /// Where the table goes, empty, when all groups are on their way.
    spare: Arc<Mutex<Option<Table>>>,
    schema: SchemaRef,
    output: AggregateOutputMode,
    first: Option<First>,
    input: SendableRecordBatchStream,
    next: Next,
    /// Groups that are on their way.
    emitted: Option<Emitted>,
    /// Groups that are enough.
    limit: Option<usize>,
    /// Rows that the groups so far are of.
    row_count: usize,
    /// How many groups partial ones may be until it is judged whether they are worth making.
    worthwhile: usize,
    /// How many rows partial groups have to be of on average.
    rows_per_group: usize,
    batch_rows: usize,
    context: Arc<TaskContext>,
    reservation: MemoryReservation,
    baseline: BaselineMetrics,
}

/// What comes when nothing is on its way any more.
enum Next {
    /// Rows are grouped.
    Read,
    /// So many rows become states by themselves.
    Pass {
        rows: usize,
    },
    /// Others merge what there is.
    HandOver(SendableRecordBatchStream),
    End,
}

/// Groups of a table that is empty now, and the memory that they have.
struct Emitted {
    groups: Taken,
    reservation: MemoryReservation,
    batch_rows: usize,
}

impl Emitted {
    /// The next groups, in buffers of their own: whoever keeps them, a sort say, books what a batch keeps alive.
    fn next(&mut self) -> Result<Option<RecordBatch>> {
        let batch = self.groups.next(self.batch_rows)?;
        self.reservation.resize(self.reservation.size().min(self.groups.bytes()));
        batch.map(|batch| compact(&batch)).transpose()
    }
}

impl Grouping {
    fn into_stream(self) -> SendableRecordBatchStream {
        let schema = self.schema.clone();
        let batches = stream::try_unfold(self, |mut grouping| async move {
            if let Some(batch) = grouping.next_batch().await? {
                return Ok(Some((batch, grouping)));
            }
            *grouping.spare.lock() = Some(grouping.table);
            Ok(None)
        });
        Box::pin(cooperative(RecordBatchStreamAdapter::new(schema, batches.boxed())))
    }

    async fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(emitted) = &mut self.emitted {
                if let Some(batch) = emitted.next()? {
                    return Ok(Some(batch.record_output(&self.baseline)));
                }
                self.emitted = None;
            }
            match &mut self.next {
                Next::End => return Ok(None),
                Next::HandOver(merged) => {
                    let batch = merged.next().await.transpose()?;
                    let batch = batch.map(|batch| compact(&batch)).transpose()?;
                    return Ok(batch.map(|batch| batch.record_output(&self.baseline)));
                }
                Next::Read => match self.input.next().await.transpose()? {
                    Some(batch) => self.read(&batch)?,
                    None => self.finish()?,
                },
                Next::Pass { rows } => {
                    let Some(batch) = self.input.next().await.transpose()? else {
                        self.next = Next::End;
                        continue;
                    };
                    *rows = rows.saturating_sub(batch.num_rows());
                    if *rows == 0 {
                        self.next = Next::Read;
                    }
                    let timer = self.baseline.elapsed_compute().clone();
                    let _timer = timer.timer();
                    let batch = self.table.pass(&batch, &self.schema)?;
                    return Ok(Some(batch.record_output(&self.baseline)));
                }
            }
        }
    }

    fn read(&mut self, batch: &RecordBatch) -> Result<()> {
        let timer = self.baseline.elapsed_compute().clone();
        let _timer = timer.timer();
        self.table.add(batch)?;
        self.row_count += batch.num_rows();
        if self.limit.is_some_and(|limit| self.table.len() >= limit) {
            return self.finish();
        }
        match self.reservation.try_resize(self.table.bytes()) {
            Ok(()) => {}
            Err(error @ DataFusionError::ResourcesExhausted(_)) => return self.relieve_memory(error),
            Err(error) => return Err(error),
        }
        let is_partial = self.output == AggregateOutputMode::Partial && !self.table.is_choosing();
        if is_partial && self.table.len() >= self.worthwhile {
            if self.row_count < self.rows_per_group * self.table.len() {
                self.next = Next::Pass { rows: PASSED_PER_TRIED * self.row_count };
                return self.emit();
            }
            if self.table.len() >= PARTIAL_GROUPS_MAX {
                return self.emit();
            }
            self.worthwhile = 2 * self.table.len();
        }
        Ok(())
    }

    /// No rows come any more.
    fn finish(&mut self) -> Result<()> {
        let timer = self.baseline.elapsed_compute().clone();
        let _timer = timer.timer();
        // What holds memory below is done.
        drop(self.take_input());
        self.next = Next::End;
        self.emit()
    }

    /// Sends all groups on their way.
    fn emit(&mut self) -> Result<()> {
        if self.table.len() > 0 {
            self.emitted = Some(self.take(self.output, &self.schema.clone())?);
        }
        (self.row_count, self.worthwhile) = (0, GROUPS_TRIED);
        Ok(())
    }

    /// Takes all groups, with their memory.
    fn take(&mut self, output: AggregateOutputMode, schema: &SchemaRef) -> Result<Emitted> {
        let groups = self.table.take(output, schema, self.first.as_ref())?;
        Ok(Emitted { groups, reservation: self.reservation.take(), batch_rows: self.batch_rows })
    }

    /// There is no memory for so many groups.
    fn relieve_memory(&mut self, error: DataFusionError) -> Result<()> {
        if self.output == AggregateOutputMode::Partial {
            return self.emit();
        }
        if !self.context.runtime_env().disk_manager.tmp_files_enabled() {
            return Err(error);
        }
        self.next = Next::HandOver(self.hand_over()?);
        Ok(())
    }

    /// The rest of the input, in the place of which there is none.
    fn take_input(&mut self) -> SendableRecordBatchStream {
        let nothing = Box::pin(EmptyRecordBatchStream::new(self.input.schema()));
        std::mem::replace(&mut self.input, nothing)
    }

    /// The groups so far, and those of the rows to come, merged by DataFusion, which goes to disk.
    fn hand_over(&mut self) -> Result<SendableRecordBatchStream> {
        let rest = self.take_input();
        let aggregate = self.aggregate.clone();
        let rest = match aggregate.mode().input_mode() {
            AggregateInputMode::Partial => rest,
            AggregateInputMode::Raw => AggregateExec::try_new(
                AggregateMode::Partial,
                aggregate.group_expr().clone(),
                aggregate.aggr_expr().to_vec(),
                aggregate.filter_expr().to_vec(),
                once(rest)?,
                aggregate.input_schema(),
            )?
            .execute(0, self.context.clone())?,
        };
        let states = rest.schema();
        let mut so_far = self.take(AggregateOutputMode::Partial, &states)?;
        let so_far = std::iter::from_fn(move || so_far.next().transpose());
        let all = stream::iter(so_far).chain(rest);
        AggregateExec::try_new(
            AggregateMode::Final,
            aggregate.group_expr().as_final(),
            aggregate.aggr_expr().to_vec(),
            vec![None; aggregate.aggr_expr().len()],
            once(Box::pin(RecordBatchStreamAdapter::new(states, all)))?,
            aggregate.input_schema(),
        )?
        .execute(0, self.context.clone())
    }
}

/// Who reads what is read once.
fn once(batches: SendableRecordBatchStream) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = batches.schema();
    let part = Arc::new(Once { schema: schema.clone(), batches: Mutex::new(Some(batches)) });
    Ok(Arc::new(StreamingTableExec::try_new(schema, vec![part], None, [], false, None)?))
}

/// Batches that are read once.
struct Once {
    schema: SchemaRef,
    batches: Mutex<Option<SendableRecordBatchStream>>,
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Once")
    }
}

impl PartitionStream for Once {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let batches = self.batches.lock().take();
        batches.unwrap_or_else(|| Box::pin(EmptyRecordBatchStream::new(self.schema.clone())))
    }
}
