//! What all work of one statement shares: whether anybody still wants it, and that it is there.
//!
//! A statement is plans, tasks and threads that outlive whoever asked for them. Each holds its [`Running`]: a
//! statement runs until the last of them lets go of it, so that waiting until a database is idle means what it
//! says. Whoever does not want the statement any more sets its [`Stop`], and each step of the work looks at that.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnv;

use crate::database::Shared;
use crate::error::{Error, ErrorKind, Result};

tokio::task_local! {
    /// The statement whose task this is.
    static OURS: Arc<Running>;
}

/// Tells all work of a statement to stop. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Fails when the statement is to stop.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_set() {
            return Err(Error::new(ErrorKind::Cancelled, "the statement was stopped"));
        }
        Ok(())
    }

    /// [`Self::check`] among DataFusion's operators.
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

/// See the [module](self). It counts as a statement for as long as it is there.
pub(crate) struct Running {
    pub(crate) stop: Stop,
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
        Arc::new(Self { stop, shared })
    }

    /// `work`, a task of this statement.
    pub(crate) fn task<F: Future>(self: Arc<Self>, work: F) -> impl Future<Output = F::Output> {
        OURS.scope(self, work)
    }

    /// The statement whose task we are in. Tasks that operators start have none.
    pub(crate) fn current() -> Option<Arc<Self>> {
        OURS.try_with(Clone::clone).ok()
    }

    /// The statement that `context` is of.
    pub(crate) fn of(context: &TaskContext) -> Option<Arc<Self>> {
        context.session_config().get_extension()
    }

    /// `context` for this statement's operators: they find it there, and do not get memory once it is to stop.
    pub(crate) fn context(self: &Arc<Self>, context: TaskContext) -> Arc<TaskContext> {
        let config = context.session_config().clone().with_extension(self.clone());
        let environment = context.runtime_env();
        let pool = StatementPool { pool: environment.memory_pool.clone(), running: self.clone() };
        let environment = RuntimeEnv { memory_pool: Arc::new(pool), ..(*environment).clone() };
        Arc::new(context.with_session_config(config).with_runtime(Arc::new(environment)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.statement_count.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The database's memory, as one statement gets it. Operators that sort, merge or spill for long between two
/// batches ask for memory all the while: so they hear that they are to stop.
#[derive(Debug)]
struct StatementPool {
    pool: Arc<dyn MemoryPool>,
    running: Arc<Running>,
}

impl MemoryPool for StatementPool {
    fn name(&self) -> &str {
        self.pool.name()
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.pool.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.pool.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.pool.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.pool.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> DataFusionResult<()> {
        self.running.stop.check_operator()?;
        self.pool.try_grow(reservation, additional)
    }

    fn reserved(&self) -> usize {
        self.pool.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.pool.memory_limit()
    }
}

impl fmt::Display for StatementPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pool.fmt(f)
    }
}
