//! Rows that a program gives as a table of a session: batches, or a stream that can be read once.
//!
//! Nothing is copied: columns that a query wants are sliced, and checked as those of files are.

use std::collections::HashMap;
use std::fmt::{self, Debug, Formatter};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use datafusion::arrow::array::{RecordBatch, RecordBatchReader};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{Result as DataFusionResult, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use parking_lot::{Mutex, RwLock};

use super::files::{checked, into_datafusion};
use super::leaf::{answer, leaf_methods};
use crate::compile::rules::as_text;
use crate::error::{Error, ErrorKind, Result};

/// A stream of batches that can be read once.
pub(crate) type Reader = Box<dyn RecordBatchReader + Send>;

/// The tables that a program has given to a session, by name.
#[derive(Debug, Default)]
pub(crate) struct GivenTables(RwLock<HashMap<String, Arc<dyn TableProvider>>>);

impl GivenTables {
    pub(crate) fn get(&self, name: &str) -> Option<Arc<dyn TableProvider>> {
        self.0.read().get(name).cloned()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.0.read().keys().cloned().collect()
    }

    /// Adds batches, in the place of what has the name.
    ///
    /// # Errors
    /// When a batch has other columns than `schema`, or two columns have one name.
    pub(crate) fn add_batches(&self, name: &str, schema: SchemaRef, batches: Vec<RecordBatch>) -> Result<()> {
        for (number, batch) in batches.iter().enumerate() {
            let types = |schema: &SchemaRef| -> Vec<_> {
                schema.fields().iter().map(|field| field.data_type().clone()).collect()
            };
            if types(&schema) != types(&batch.schema()) {
                let message = format!("batch {number} of '{name}' has other columns than its schema");
                return Err(Error::new(ErrorKind::Invalid, message).with_detail(format!(
                    "it has {}, not {}",
                    batch.schema(),
                    schema
                )));
            }
        }
        self.add(name, schema, Rows::Batches(batches))
    }

    /// Adds a stream, in the place of what has the name.
    ///
    /// # Errors
    /// When two columns have one name.
    pub(crate) fn add_reader(&self, name: &str, reader: Reader) -> Result<()> {
        let schema = reader.schema();
        self.add(name, schema, Rows::Stream(Mutex::new(Once { reader, reading: None })))
    }

    fn add(&self, name: &str, schema: SchemaRef, rows: Rows) -> Result<()> {
        let mut names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let message = format!("'{name}' has two columns of the name '{}'", twice[0]);
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let table = as_text(Arc::new(GivenTable { name: name.into(), schema, rows: Arc::new(rows) }))?;
        self.0.write().insert(name.to_owned(), table);
        Ok(())
    }

    /// Whether there was such a table.
    pub(crate) fn remove(&self, name: &str) -> bool {
        self.0.write().remove(name).is_some()
    }
}

enum Rows {
    Batches(Vec<RecordBatch>),
    Stream(Mutex<Once>),
}

/// A stream, and the scan that reads it, with those of its partitions that have begun.
struct Once {
    reader: Reader,
    reading: Option<(u64, Vec<usize>)>,
}

impl Debug for Rows {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Batches(batches) => f.debug_tuple("Batches").field(&batches.len()).finish(),
            Self::Stream(_) => f.write_str("Stream"),
        }
    }
}

#[derive(Debug)]
struct GivenTable {
    name: Arc<str>,
    schema: SchemaRef,
    rows: Arc<Rows>,
}

#[async_trait]
impl TableProvider for GivenTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let projection = projection.cloned().unwrap_or_else(|| (0..self.schema.fields().len()).collect());
        let batch_rows = state.config().batch_size();
        let pieces = match self.rows.as_ref() {
            Rows::Batches(batches) => pieces(batches, batch_rows),
            Rows::Stream(_) => Vec::new(),
        };
        let threads = state.config().target_partitions();
        let partitions = match self.rows.as_ref() {
            Rows::Batches(_) => threads.min(pieces.len()),
            Rows::Stream(_) => threads,
        };
        let schema = Arc::new(self.schema.project(&projection)?);
        let (name, rows) = (self.name.clone(), self.rows.clone());
        let scan = GivenScan { name, rows, pieces: pieces.into(), batch_rows, projection, schema, limit };
        Ok(Arc::new(GivenScanExec::new(scan, partitions)))
    }
}

/// Rows of a batch.
type Piece = (usize, Range<usize>);

fn pieces(batches: &[RecordBatch], rows: usize) -> Vec<Piece> {
    let cut = |(number, batch): (usize, &RecordBatch)| {
        let count = batch.num_rows();
        (0..count).step_by(rows).map(move |start| (number, start..(start + rows).min(count)))
    };
    batches.iter().enumerate().flat_map(cut).collect()
}

#[derive(Clone, Debug)]
struct GivenScan {
    name: Arc<str>,
    rows: Arc<Rows>,
    /// Of batches.
    pieces: Arc<[Piece]>,
    batch_rows: usize,
    projection: Vec<usize>,
    schema: SchemaRef,
    /// Rows after which a partition may stop.
    limit: Option<usize>,
}

/// The plan of a scan. Partitions of batches are in their order; those of a stream take what comes next.
#[derive(Debug)]
struct GivenScanExec {
    scan: GivenScan,
    /// Of all scans of the process.
    number: u64,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl GivenScanExec {
    fn new(scan: GivenScan, partitions: usize) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(scan.schema.clone()),
            Partitioning::UnknownPartitioning(partitions.max(1)),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self { scan, number, properties, metrics: ExecutionPlanMetricsSet::new() }
    }

    /// Begins to read the stream.
    fn begin(&self, stream: &Mutex<Once>, partition: usize) -> Result<()> {
        let mut once = stream.lock();
        let (reading, begun) = once.reading.get_or_insert_with(|| (self.number, Vec::new()));
        if *reading != self.number || begun.contains(&partition) {
            let message = format!("'{}' was read already: a stream gives its rows only once", self.scan.name);
            return Err(Error::new(ErrorKind::Invalid, message).with_hint("give it again, or its batches"));
        }
        begun.push(partition);
        Ok(())
    }
}

impl GivenScan {
    fn project(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let wanted = batch.project(&self.projection).and_then(checked);
        wanted.map_err(|error| Error::new(ErrorKind::Data, format!("cannot read '{}': {error}", self.name)))
    }

    /// The pieces of a partition.
    fn of_batches(self, partition: usize, count: usize) -> impl Stream<Item = Result<RecordBatch>> + Send {
        let share = |partition: usize| self.pieces.len() * partition / count;
        stream::iter(share(partition)..share(partition + 1)).map(move |piece| {
            let Rows::Batches(batches) = self.rows.as_ref() else { unreachable!("a stream has no pieces") };
            let (batch, rows) = &self.pieces[piece];
            self.project(&batches[*batch].slice(rows.start, rows.len()))
        })
    }

    /// What comes next of a stream, as long as something does.
    fn of_stream(self) -> impl Stream<Item = Result<RecordBatch>> + Send {
        let scan = Arc::new(self);
        let batches = stream::try_unfold(scan, |scan| async move {
            let given = scan.clone();
            // The program's code may take its time.
            let next = crate::runtime::work::spawn(move || {
                let Rows::Stream(stream) = given.rows.as_ref() else { return None };
                let next = stream.lock().reader.next()?;
                let named = |error: &dyn fmt::Display| format!("cannot read '{}': {error}", given.name);
                let next = next.map_err(|error| Error::new(ErrorKind::Data, named(&error)));
                Some(next.and_then(|batch| given.project(&batch)))
            });
            let failed = |error| Error::new(ErrorKind::Internal, format!("a reader broke off: {error}"));
            let next = next.await.map_err(failed)?.transpose()?;
            Ok::<_, Error>(next.map(|batch| {
                let (rows, step) = (batch.num_rows(), scan.batch_rows);
                let slices =
                    (0..rows).step_by(step).map(move |start| Ok(batch.slice(start, step.min(rows - start))));
                (stream::iter(slices), scan)
            }))
        });
        batches.try_flatten()
    }
}

impl DisplayAs for GivenScanExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut Formatter<'_>) -> fmt::Result {
        let scan = &self.scan;
        if kind == DisplayFormatType::TreeRender {
            return write!(f, "table={}", scan.name);
        }
        let columns: Vec<_> = scan.schema.fields().iter().map(|field| field.name().as_str()).collect();
        write!(f, "GivenScan: table={}, columns=[{}]", scan.name, columns.join(", "))?;
        scan.limit.map_or(Ok(()), |limit| write!(f, ", limit={limit}"))
    }
}

impl ExecutionPlan for GivenScanExec {
    fn name(&self) -> &'static str {
        "GivenScan"
    }

    leaf_methods!();

    fn with_preserve_order(&self, preserve_order: bool) -> Option<Arc<dyn ExecutionPlan>> {
        let is_stream = matches!(self.scan.rows.as_ref(), Rows::Stream(_));
        (is_stream && preserve_order).then(|| Arc::new(Self::new(self.scan.clone(), 1)) as _)
    }

    fn statistics_from_inputs(
        &self,
        _inputs: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> DataFusionResult<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.scan.schema);
        if args.partition().is_none()
            && let Rows::Batches(batches) = self.scan.rows.as_ref()
        {
            statistics.num_rows = Precision::Exact(batches.iter().map(RecordBatch::num_rows).sum());
        }
        Ok(Arc::new(statistics))
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> DataFusionResult<SendableRecordBatchStream> {
        let scan = self.scan.clone();
        let batches = match self.scan.rows.as_ref() {
            Rows::Batches(_) => {
                scan.of_batches(partition, self.properties.partitioning.partition_count()).boxed()
            }
            Rows::Stream(once) => {
                self.begin(once, partition).map_err(into_datafusion)?;
                scan.of_stream().boxed()
            }
        };
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        Ok(answer(self.scan.schema.clone(), batches, self.scan.limit, baseline))
    }
}
