//! The state that all work of one statement shares: whether it is cancelled, and that it is still running.
//!
//! The plans, tasks and threads of a statement can outlive its caller. Each holds the statement's
//! [`Running`]: the statement counts as running until the last of them drops it, so that waiting until a
//! database is idle is reliable. A caller that no longer wants the statement sets its [`Stop`], which each
//! step of the work checks.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnv;
use parking_lot::Mutex;

use crate::database::Shared;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::pool::FairPool;
use crate::runtime::steps::{self, Step};

tokio::task_local! {
    /// The statement of the current task.
    static OURS: Arc<Running>;
}

/// A flag that cancels all work of a statement. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Fails if the statement is cancelled.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_set() {
            return Err(Error::new(ErrorKind::Cancelled, "the statement was stopped"));
        }
        Ok(())
    }

    /// [`Self::check`] for use in DataFusion's operators.
    pub(crate) fn check_operator(&self) -> DataFusionResult<()> {
        self.check().map_err(|error| DataFusionError::External(Box::new(error)))
    }
}

/// Sets a [`Stop`] when it is dropped.
pub(crate) struct StopOnDrop(pub(crate) Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// See the [module](self). As long as it exists, the statement counts as running.
pub(crate) struct Running {
    pub(crate) stop: Stop,
    /// By which the pool knows its budget.
    number: u64,
    /// For which steps memory is booked, by consumer, of those that are measured; whether there are any.
    steps: Mutex<HashMap<usize, Arc<Step>>>,
    is_measured: AtomicBool,
    shared: Arc<Shared>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("stop", &self.stop).finish_non_exhaustive()
    }
}

impl Running {
    pub(crate) fn new(shared: Arc<Shared>, stop: Stop) -> Arc<Self> {
        shared.statement_count.fetch_add(1, Ordering::AcqRel);
        let (number, steps) = (shared.pool.next_statement(), Mutex::default());
        Arc::new(Self { stop, number, steps, is_measured: AtomicBool::new(false), shared })
    }

    /// Makes `work` a task of this statement.
    pub(crate) fn task<F: Future>(self: Arc<Self>, work: F) -> impl Future<Output = F::Output> {
        OURS.scope(self, work)
    }

    /// The statement of the current task; `None` in tasks that operators start.
    pub(crate) fn current() -> Option<Arc<Self>> {
        OURS.try_with(Clone::clone).ok()
    }

    /// The statement to which `context` belongs.
    pub(crate) fn of(context: &TaskContext) -> Option<Arc<Self>> {
        context.session_config().get_extension()
    }

    /// Where its operators spill.
    pub(crate) fn spill_directory(&self) -> &Path {
        self.shared.spill_files.directory()
    }

    /// Returns freed memory of the allocator to the system, if the process exceeds the limit.
    pub(crate) fn relieve(&self) {
        self.shared.pool.grown_bytes();
    }

    /// `context` for this statement's operators: they find the statement in it, and their requests for memory
    /// fail once it is cancelled.
    pub(crate) fn context(self: &Arc<Self>, context: TaskContext) -> Arc<TaskContext> {
        let mut config = context.session_config().clone().with_extension(self.clone());
        // Partitions of the planner's hash joins, which stand where ours do not, wait for each other before they narrow a scan;
        // for ever where one is never asked, as below a join that has no rows on its other side.
        config.options_mut().optimizer.enable_join_dynamic_filter_pushdown = false;
        let environment = context.runtime_env();
        let pool = Arc::new(StatementPool(self.clone()));
        let environment = RuntimeEnv { memory_pool: pool, ..(*environment).clone() };
        Arc::new(context.with_session_config(config).with_runtime(Arc::new(environment)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.statement_count.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The database's memory pool for one statement: it has a budget of its own, and gets no memory once it is cancelled.
/// Operators that sort, merge or spill for long between two batches keep asking for memory, so this stops
/// them.
#[derive(Debug)]
struct StatementPool(Arc<Running>);

impl StatementPool {
    fn pool(&self) -> &FairPool {
        &self.0.shared.pool
    }

    /// Counts for the step that has the reservation what was added to it.
    fn count(&self, reservation: &MemoryReservation, bytes: usize, sign: i64) {
        if !self.0.is_measured.load(Ordering::Relaxed) {
            return;
        }
        let steps = self.0.steps.lock();
        if let Some(step) = steps.get(&reservation.consumer().id()) {
            step.reserved(sign * i64::try_from(bytes).unwrap_or(i64::MAX));
        }
    }
}

impl MemoryPool for StatementPool {
    fn name(&self) -> &str {
        self.pool().name()
    }

    fn register(&self, consumer: &MemoryConsumer) {
        if let Some(step) = steps::current() {
            self.0.is_measured.store(true, Ordering::Relaxed);
            self.0.steps.lock().insert(consumer.id(), step);
        }
        self.pool().register_for(self.0.number, consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        if self.0.is_measured.load(Ordering::Relaxed) {
            self.0.steps.lock().remove(&consumer.id());
        }
        self.pool().unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.pool().grow(reservation, additional);
        self.count(reservation, additional, 1);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.pool().shrink(reservation, shrink);
        self.count(reservation, shrink, -1);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> DataFusionResult<()> {
        self.0.stop.check_operator()?;
        self.pool().try_grow(reservation, additional)?;
        self.count(reservation, additional, 1);
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.pool().reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.pool().memory_limit()
    }
}

impl fmt::Display for StatementPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pool().fmt(f)
    }
}
