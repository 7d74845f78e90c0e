//! Blocking work, on the threads that a database has for it: reading and writing files, decoding, encoding.
//!
//! Such a thread never waits for work that needs another one: rows are sent to it, it does not wait for them
//! ([`feed`]). So however few threads there are, each that has work makes progress.
//!
//! Work that has begun continues after its statement is cancelled, until it checks for that ([`cancellable`])
//! or ends; so it is counted, for callers that wait until the database is idle.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use keirin_storage::Cancel;
use tokio::task::JoinError;

use crate::error::{Error, ErrorKind, Result};
use crate::runtime::running::Running;

/// Batches that are buffered while the thread works on earlier ones.
const BATCHES_AHEAD: usize = 2;
/// Wide rows make large batches: one that follows so many bytes is not waited for.
const BYTES_AHEAD: usize = 16 << 20;

thread_local! {
    /// The counter of the database to which the thread belongs.
    static COUNT: RefCell<Option<Arc<AtomicUsize>>> = const { RefCell::new(None) };
    /// Whether nobody waits any more for what the thread does.
    static ABANDONED: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// Counts the pieces of blocking work of a database that are running or waiting for a thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work(Arc<AtomicUsize>);

impl Work {
    /// Makes the current thread belong to the database.
    pub(crate) fn enter(&self) {
        COUNT.with(|count| *count.borrow_mut() = Some(self.0.clone()));
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

/// Counts a piece of work as long as this value lives.
struct Counted(Option<Arc<AtomicUsize>>);

impl Counted {
    fn new() -> Self {
        let count = COUNT.with(|count| count.borrow().clone());
        count.iter().for_each(|count| _ = count.fetch_add(1, Ordering::AcqRel));
        Self(count)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.iter().for_each(|count| _ = count.fetch_sub(1, Ordering::AcqRel));
    }
}

/// Begins `work` on a blocking thread. If the returned task is dropped before a thread was free, the work
/// never runs.
pub(crate) fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> SpawnedTask<T> {
    let counted = Counted::new();
    SpawnedTask::spawn_blocking(move || {
        let done = work();
        drop(counted);
        done
    })
}

/// Runs `work`, which may wait for other machines, on a blocking thread; it asks [`is_abandoned`] while it waits.
///
/// # Errors
/// When the work panics.
pub(crate) async fn waiting<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> std::result::Result<T, JoinError> {
    struct AbandonOnDrop(Arc<AtomicBool>);
    impl Drop for AbandonOnDrop {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }
    let flag = Arc::<AtomicBool>::default();
    let _abandoning = AbandonOnDrop(flag.clone());
    let work = move || {
        ABANDONED.with(|abandoned| *abandoned.borrow_mut() = Some(flag));
        let done = work();
        ABANDONED.with(|abandoned| *abandoned.borrow_mut() = None);
        done
    };
    spawn(work).await
}

/// Whether whoever [waits](waiting) for this thread's work has gone.
pub(crate) fn is_abandoned() -> bool {
    ABANDONED.with(|abandoned| abandoned.borrow().as_ref().is_some_and(|flag| flag.load(Ordering::Acquire)))
}

/// Runs `work`, which may block on files, on a blocking thread.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    // If the caller stops waiting, the work continues, and the statement counts as running until it ends.
    let running = Running::current();
    let work = move || {
        let _running = running;
        work()
    };
    let broken = |error| Error::new(ErrorKind::Internal, format!("a thread broke off: {error}"));
    spawn(work).await.map_err(broken)?
}

/// Cancels work when it goes away.
pub(crate) struct CancelOnDrop(pub(crate) Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// As [`blocking`], for work that checks its [`Cancel`] now and then; it is cancelled when the caller stops
/// waiting.
pub(crate) async fn cancellable<T: Send + 'static>(
    work: impl FnOnce(&Cancel) -> Result<T> + Send + 'static,
) -> Result<T> {
    let cancel = Cancel::default();
    let _cancelling = CancelOnDrop(cancel.clone());
    blocking(move || work(&cancel)).await
}

/// Passes all batches of a stream to `take`, with `sink`, which is returned at the end; the stream is read on
/// while a thread is busy in `take`. If this future is dropped, `sink` is dropped by the thread that has it.
pub(crate) async fn feed<S: Send + 'static>(
    mut stream: SendableRecordBatchStream,
    sink: S,
    take: impl Fn(&mut S, &RecordBatch) -> Result<()> + Clone + Send + 'static,
) -> DataFusionResult<S> {
    let join = async |task: &mut SpawnedTask<Result<S>>| {
        let done = task.join_unwind_mut().await;
        let done = done.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))?;
        done.map_err(|error| DataFusionError::External(Box::new(error)))
    };
    let (mut idle, mut busy): (Option<S>, Option<SpawnedTask<Result<S>>>) = (Some(sink), None);
    let (mut waiting, mut is_at_end) = (Vec::new(), false);
    loop {
        if !waiting.is_empty()
            && let Some(mut sink) = idle.take()
        {
            let (batches, take) = (std::mem::take(&mut waiting), take.clone());
            busy = Some(spawn(move || {
                batches.iter().try_for_each(|batch| take(&mut sink, batch))?;
                Ok(sink)
            }));
        }
        let bytes_ahead: usize = waiting.iter().map(RecordBatch::get_array_memory_size).sum();
        let wants_more = !is_at_end && waiting.len() < BATCHES_AHEAD && bytes_ahead < BYTES_AHEAD;
        let next = match &mut busy {
            None if is_at_end => break,
            None => stream.next().await,
            Some(task) => {
                tokio::select! {
                    biased;
                    done = join(task) => {
                        idle = Some(done?);
                        busy = None;
                        continue;
                    }
                    next = stream.next(), if wants_more => next,
                }
            }
        };
        match next {
            Some(batch) => waiting.push(batch?),
            None => is_at_end = true,
        }
    }
    idle.ok_or_else(|| DataFusionError::Internal("a thread kept what it was lent".to_owned()))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use arrow::array::{ArrayRef, Int64Array};
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
    use futures::stream;

    use super::*;

    fn runtime(work: &Work) -> tokio::runtime::Runtime {
        let work = work.clone();
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).max_blocking_threads(1).on_thread_start(move || work.enter());
        builder.build().unwrap()
    }

    fn batch(value: i64) -> RecordBatch {
        RecordBatch::try_from_iter([("a", Arc::new(Int64Array::from(vec![value])) as ArrayRef)]).unwrap()
    }

    /// A blocking thread makes each batch, although there is only one such thread.
    fn batches(count: i64) -> SendableRecordBatchStream {
        let make = |value| async move { Ok(spawn(move || batch(value)).await.unwrap()) };
        Box::pin(RecordBatchStreamAdapter::new(batch(0).schema(), stream::iter(0..count).then(make)))
    }

    #[test]
    fn who_takes_batches_needs_no_thread_while_they_are_made() {
        let runtime = runtime(&Work::default());
        let fed = async |count| {
            let take = |taken: &mut Vec<RecordBatch>, batch: &RecordBatch| {
                taken.push(batch.clone());
                Ok(())
            };
            feed(batches(count), Vec::new(), take).await.unwrap()
        };
        runtime.block_on(async {
            let all = futures::future::join_all([10, 0, 1, 100].map(fed)).await;
            assert!(
                all.iter()
                    .zip([10, 0, 1, 100])
                    .all(|(all, count)| *all == Vec::from_iter((0..count).map(batch)))
            );
        });
    }

    #[test]
    fn errors_of_either_side_end_it() {
        let runtime = runtime(&Work::default());
        let refuse = |_: &mut (), _: &RecordBatch| Err(Error::new(ErrorKind::Io, "the disk is full"));
        let error: Error = runtime.block_on(feed(batches(9), (), refuse)).unwrap_err().into();
        assert_eq!((error.kind(), error.message()), (ErrorKind::Io, "the disk is full"));
        let broken = stream::iter([Ok(batch(1)), Err(DataFusionError::Execution("no more".to_owned()))]);
        let broken = Box::pin(RecordBatchStreamAdapter::new(batch(0).schema(), broken));
        let error: Error = runtime.block_on(feed(broken, (), |(), _| Ok(()))).unwrap_err().into();
        assert!(error.message().contains("no more"), "{error:?}");
    }

    #[test]
    fn work_that_nobody_waits_for_is_told_and_counted_until_it_ends() {
        let work = Work::default();
        let runtime = runtime(&work);
        let ((begin, begun), (end, ended)) = (mpsc::channel(), mpsc::channel());
        let task = runtime.spawn(cancellable(move |cancel| {
            begin.send(()).unwrap();
            while !cancel.is_cancelled() {
                std::thread::yield_now();
            }
            end.send(()).unwrap();
            Ok(())
        }));
        begun.recv().unwrap();
        assert_eq!(work.count(), 1);
        task.abort();
        ended.recv_timeout(Duration::from_secs(60)).expect("it was told to stop");
        let deadline = Instant::now() + Duration::from_secs(60);
        while work.count() > 0 {
            assert!(Instant::now() < deadline, "it is counted for ever");
            std::thread::yield_now();
        }
    }
}
