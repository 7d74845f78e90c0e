//! What the steps of a plan take, measured while it runs.
//!
//! A thread works for one step at a time: for the operator whose stream is polled, until that polls the stream of its
//! input. So the time of a step is its own, without that of its inputs, and the times of all steps add up to what the
//! threads worked. What a step starts on other threads works for it, too: DataFusion lets a tracer look at all tasks that
//! operators start. Memory is the step's that registered who asks for it.
//!
//! Only statements that ask for it are measured ([`crate::runtime::guard::measured`]); for others, a task that starts
//! looks at a thread-local variable.

use std::any::Any;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use arrow::array::{Array, RecordBatch};
use datafusion::common::runtime::{JoinSetTracer, set_join_set_tracer};
use futures::future::{BoxFuture, poll_fn};
use keirin_codecs::blocks::Tally;

thread_local! {
    /// The step for which the thread works, and since when.
    static AT: RefCell<Option<(Arc<Step>, Instant)>> = const { RefCell::new(None) };
}

/// What a step of a plan took so far, all partitions together.
#[derive(Debug, Default)]
pub(crate) struct Step {
    nanoseconds: AtomicU64,
    rows: AtomicU64,
    bytes: AtomicU64,
    /// Reserved now: other threads may give back what this one has not counted yet.
    reserved: AtomicI64,
    reserved_most: AtomicI64,
    decoded: Arc<Tally>,
}

impl Step {
    /// Has this thread work for the step until what is returned is dropped.
    pub(crate) fn enter(self: &Arc<Self>) -> Entered {
        Entered { before: at(Some(self.clone())), _of_this_thread: PhantomData }
    }

    /// Counts rows that the step gave.
    pub(crate) fn gave(&self, batch: &RecordBatch) {
        let bytes = batch.columns().iter().map(|column| {
            // Of views it knows those that it sees, not the bytes behind them.
            column.to_data().get_slice_memory_size().unwrap_or(0)
        });
        self.rows.fetch_add(batch.num_rows() as u64, Relaxed);
        self.bytes.fetch_add(bytes.sum::<usize>() as u64, Relaxed);
    }

    /// Counts memory that was reserved, or given back.
    pub(crate) fn reserved(&self, bytes: i64) {
        let reserved = self.reserved.fetch_add(bytes, Relaxed) + bytes;
        self.reserved_most.fetch_max(reserved, Relaxed);
    }

    /// The time that threads worked for it.
    pub(crate) fn time(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.load(Relaxed))
    }

    /// Rows given.
    pub(crate) fn rows(&self) -> u64 {
        self.rows.load(Relaxed)
    }

    /// Bytes of the rows given, as they lie in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// The most memory that was reserved at one time.
    pub(crate) fn memory(&self) -> u64 {
        self.reserved_most.load(Relaxed).try_into().unwrap_or(0)
    }

    /// What was decompressed for it.
    pub(crate) fn decoded(&self) -> &Tally {
        &self.decoded
    }
}

/// Makes the step the one for which this thread works, and returns the one before.
fn at(step: Option<Arc<Step>>) -> Option<Arc<Step>> {
    let now = Instant::now();
    Tally::watch(step.as_ref().map(|step| step.decoded.clone()));
    let before = AT.with_borrow_mut(|at| std::mem::replace(at, step.map(|step| (step, now))));
    before.map(|(step, since)| {
        let time = u64::try_from((now - since).as_nanos()).unwrap_or(u64::MAX);
        step.nanoseconds.fetch_add(time, Relaxed);
        step
    })
}

/// The step for which this thread works, if it is measured.
pub(crate) fn current() -> Option<Arc<Step>> {
    AT.with_borrow(|at| at.as_ref().map(|(step, _)| step.clone()))
}

/// As long as this exists, its thread works for a step.
#[derive(Debug)]
pub(crate) struct Entered {
    before: Option<Arc<Step>>,
    _of_this_thread: PhantomData<Rc<()>>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        at(self.before.take());
    }
}

/// Has tasks work for the step that starts them.
struct Tracer;

impl JoinSetTracer for Tracer {
    fn trace_future(
        &self,
        mut future: BoxFuture<'static, Box<dyn Any + Send>>,
    ) -> BoxFuture<'static, Box<dyn Any + Send>> {
        let Some(step) = current() else { return future };
        Box::pin(poll_fn(move |context| {
            let _entered = step.enter();
            future.as_mut().poll(context)
        }))
    }

    fn trace_block(
        &self,
        work: Box<dyn FnOnce() -> Box<dyn Any + Send> + Send>,
    ) -> Box<dyn FnOnce() -> Box<dyn Any + Send> + Send> {
        let Some(step) = current() else { return work };
        Box::new(move || {
            let _entered = step.enter();
            work()
        })
    }
}

/// Has the tasks of all operators measured from now on. A program that has a tracer of its own keeps it: what tasks do
/// is no step's then.
pub(crate) fn trace_tasks() {
    static TRACER: Tracer = Tracer;
    _ = set_join_set_tracer(&TRACER);
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use datafusion::common::runtime::SpawnedTask;

    use super::*;

    const WORK: Duration = Duration::from_millis(20);

    #[test]
    fn the_time_of_a_step_is_without_that_of_its_inputs() {
        let [outer, inner] = [(); 2].map(|()| Arc::new(Step::default()));
        let began = Instant::now();
        {
            let _outer = outer.enter();
            sleep(WORK);
            {
                let _inner = inner.enter();
                sleep(2 * WORK);
            }
            sleep(WORK);
        }
        let elapsed = began.elapsed();
        sleep(WORK);
        assert!(outer.time() >= 2 * WORK && inner.time() >= 2 * WORK);
        assert!(outer.time() + inner.time() <= elapsed);
        assert!(current().is_none());
    }

    #[test]
    fn tasks_work_for_the_step_that_starts_them() {
        trace_tasks();
        let step = Arc::new(Step::default());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        runtime.block_on(async {
            let of_step = || current().is_some_and(|current| current.rows() == 0);
            let work = move || {
                sleep(WORK);
                of_step()
            };
            let started = {
                let _entered = step.enter();
                [SpawnedTask::spawn_blocking(work), SpawnedTask::spawn(async move { work() })]
            };
            for task in started {
                assert!(task.join().await.unwrap());
            }
            assert!(!SpawnedTask::spawn_blocking(of_step).join().await.unwrap());
        });
        assert!(step.time() >= 2 * WORK);
    }

    #[test]
    fn the_most_memory_counts() {
        let step = Step::default();
        for bytes in [100, 200, -250, 100, -150] {
            step.reserved(bytes);
        }
        assert_eq!(step.memory(), 300);
    }
}
