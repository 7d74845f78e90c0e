//! Answers, batch by batch.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::{Stream, StreamExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::error::{Error, ErrorKind, Result};
use crate::runtime::progress::Progress;
use crate::runtime::running::Stop;

/// Batches that are buffered for a slow reader before the query pauses.
pub(crate) const BATCHES_AHEAD: usize = 4;
/// A larger batch is buffered alone.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// Sends `batch` to the reader of the stream when there is room; returns whether there still is a reader.
pub(crate) async fn hand_over(
    sender: &mpsc::Sender<Result<RecordBatch>>,
    batch: Result<RecordBatch>,
) -> bool {
    let is_large = batch.as_ref().is_ok_and(|batch| batch.get_array_memory_size() > BATCH_BYTES_MAX);
    // All permits are free only when the reader has taken all batches.
    let permits = if is_large { BATCHES_AHEAD } else { 1 };
    let Ok(mut permits) = sender.reserve_many(permits).await else { return false };
    if let Some(permit) = permits.next() {
        permit.send(batch);
    }
    true
}

/// The kind of a statement's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementKind {
    /// Rows to look at: SELECT, SHOW, DESCRIBE, EXPLAIN.
    Rows,
    /// One row with the number of rows written: INSERT, COPY, DELETE, UPDATE.
    Count,
    /// Nothing but success: CREATE, DROP, SET.
    Done,
}

/// The answer of one statement: a stream of Arrow batches that share a schema.
///
/// The query runs on the database's own threads while the batches are taken, at most a few batches
/// ahead. Dropping the stream stops it.
///
/// ```
/// # fn main() -> keirin::Result<()> {
/// use futures::StreamExt;
///
/// let database = keirin::Database::in_memory()?;
/// let session = database.session();
/// let rows = database.block_on(async {
///     let mut stream = session.sql("SELECT * FROM range(0, 100000)").await?;
///     let mut rows = 0;
///     while let Some(batch) = stream.next().await {
///         rows += batch?.num_rows();
///     }
///     Ok::<_, keirin::Error>(rows)
/// })?;
/// assert_eq!(rows, 100_000);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ResultStream {
    pub(crate) schema: SchemaRef,
    pub(crate) kind: StatementKind,
    pub(crate) tag: String,
    pub(crate) batches: mpsc::Receiver<Result<RecordBatch>>,
    pub(crate) progress: Progress,
    pub(crate) notice: Option<String>,
    /// Set by the statement's task when it has sent everything; not set if the task died.
    pub(crate) is_finished: Arc<AtomicBool>,
    pub(crate) _task: StatementTask,
}

impl ResultStream {
    /// What the statement ignored, such as clauses, or did differently than a user might expect.
    pub fn notice(&self) -> Option<&str> {
        self.notice.as_deref()
    }

    /// The schema that all batches share.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// Whether the answer is rows, a count or nothing.
    pub fn kind(&self) -> StatementKind {
        self.kind
    }

    /// The kind of statement, in upper case: `SELECT`, `CREATE TABLE`, `COPY`.
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// A handle to the progress of the query, usable while the stream is read elsewhere.
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// Reads to the end.
    ///
    /// # Errors
    /// The first error of the query; the batches before it are dropped.
    pub async fn collect(mut self) -> Result<Vec<RecordBatch>> {
        let mut batches = Vec::new();
        while let Some(batch) = self.next().await {
            batches.push(batch?);
        }
        Ok(batches)
    }
}

impl Stream for ResultStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.batches.poll_recv(context) {
            // The channel closed before the task marked the answer as complete: this must not look like an
            // end.
            Poll::Ready(None) if !self.is_finished.swap(true, Ordering::Acquire) => Poll::Ready(Some(Err(
                Error::new(ErrorKind::Internal, "the query broke off: a bug in Keirin"),
            ))),
            polled => polled,
        }
    }
}

/// The task of a statement; dropping it cancels the task and all of its work.
#[derive(Debug)]
pub(crate) struct StatementTask {
    pub(crate) task: JoinHandle<()>,
    pub(crate) stop: Stop,
}

impl Drop for StatementTask {
    fn drop(&mut self) {
        self.stop.set();
        self.task.abort();
    }
}
