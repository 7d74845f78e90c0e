//! A session: settings and the way from text to answers.

use std::borrow::Cow;
use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::datatypes::SchemaRef;
use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemoryCatalogProvider, MemoryCatalogProviderList,
};
use datafusion::common::config::{ConfigNonZeroUsize, Dialect};
use datafusion::execution::{FunctionRegistry, SessionState, SessionStateBuilder, TaskContext};
use datafusion::functions_aggregate::min_max::{Max, Min};
use datafusion::logical_expr::AggregateUDF;
use datafusion::optimizer::{Analyzer, AnalyzerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::sqlparser::ast;
use futures::{FutureExt, StreamExt};
use keirin_storage::Snapshot;
use tokio::sync::{mpsc, oneshot};

use crate::bind::column_names::name_columns;
use crate::bind::parameters::Parameters;
use crate::bind::relations::take_files;
use crate::bind::resolve_names;
use crate::compile::as_of::AsOfJoins;
use crate::compile::conditions::{Arguments, optimizer_rules, physical_rules};
use crate::compile::fast_path::{self, FastPath};
use crate::compile::grouping::GroupRows;
use crate::compile::in_order::KeepOrder;
use crate::compile::join::JoinRows;
use crate::compile::plan_cache::{Change, Moment, PlanCache, Planned};
use crate::compile::rules::{
    AllSets, Collations, CommonTypes, Concatenation, EarlyRows, Fences, Gathering, GroupsInOrder, LargeTop,
    LastFences, Lists, Meanings, NestedOrder, OuterTypes, SemiJoins, SortKeys, Subqueries, Uuids, Volatile,
};
use crate::compile::sorting::SortRows;
use crate::compile::subplans::SharingPlanner;
use crate::compile::windows::{Exclusions, WindowRows};
use crate::database::Shared;
use crate::error::{Error, ErrorKind, Result};
use crate::explain_error::explain_panic;
use crate::expressions::arithmetic::{CheckArithmetic, CheckedSum, ExactAverage, Extreme};
use crate::expressions::casts::Casts;
use crate::expressions::functions;
use crate::runtime::memory;
use crate::runtime::progress::Progress;
use crate::runtime::running::{Running, Stop, StopOnDrop};
use crate::runtime::stream::{BATCHES_AHEAD, ResultStream, StatementKind, StatementTask, hand_over};
use crate::settings::Settings;
use crate::sources::catalog::{
    CATALOG, DEFAULT_SCHEMA, OpenFile, SessionCatalog, SystemSchema, SystemTable, kernel_faults, kernels,
    machine,
};
use crate::sources::files::{self, FileTable, Rejects};
use crate::sources::stored::{
    AggregateStored, GroupStored, Inspect, StoredCatalog, TextLengths, blocking, known_damage, system_tables,
};
use crate::sources::tpch::TpchFunction;
use crate::sql::depth;
use crate::sql::parser::{Ast, Statement, parse};
use crate::sql::refused::{check_prepared, refuse_unread};
use crate::sql::types::{SessionZone, SqlTypes};
use crate::statements::prepared::PreparedStatements;
use crate::statements::{self, Answer};

/// How often [`Session::wait_until_idle`] checks.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_millis(2);
/// The bytes that a merge of sorted files or partitions reads ahead of each.
const MERGE_AHEAD_BYTES: usize = 1 << 20;

/// One client's view of a database: its own settings, the database's tables.
///
/// Clones share the settings; statements may run side by side.
///
/// ```
/// # fn main() -> keirin::Result<()> {
/// let database = keirin::Database::in_memory()?;
/// let session = database.session();
/// let batches = database.block_on(async {
///     session.sql_with("SELECT :name || '!'", [("name", "world")]).await?.collect().await?;
///     session.sql_with("SELECT ? + ?", [40, 2]).await?.collect().await
/// })?;
/// assert_eq!(batches[0].num_rows(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Session {
    pub(crate) shared: Arc<Shared>,
    pub(crate) context: SessionContext,
    pub(crate) catalog: Arc<SessionCatalog>,
    /// The list of catalogues, with `catalog` as the only one.
    catalogs: Arc<dyn CatalogProviderList>,
    rejects: Arc<Rejects>,
    prepared: Arc<PreparedStatements>,
    table_functions: Arc<HashSet<String>>,
    /// The state with which a statement is planned: made once, because copying a session's functions and
    /// options takes time. `None` if the session is not bound to a statement, as its settings may change.
    state: Option<Arc<OnceLock<Arc<SessionState>>>>,
    plans: Arc<PlanCache>,
    /// The moment of the statement that this copy of the session is bound to; `None` without a database directory.
    moment: Option<Moment>,
    /// The statement for which this copy of the session was made.
    running: Option<Arc<Running>>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("id", &self.context.session_id()).finish_non_exhaustive()
    }
}

/// The properties of an answer that are known before its rows.
struct Heading {
    kind: StatementKind,
    schema: SchemaRef,
    progress: Progress,
    notice: Option<String>,
}

/// A statement whose planning has begun.
struct Begun {
    answer: oneshot::Receiver<Result<Heading>>,
    tag: String,
    batches: mpsc::Receiver<Result<RecordBatch>>,
    is_finished: Arc<AtomicBool>,
    task: StatementTask,
}

impl Begun {
    /// Waits until the statement is planned and reading has begun.
    async fn answer(self) -> Result<ResultStream> {
        let Self { answer, tag, batches, is_finished, task } = self;
        let Heading { kind, schema, progress, notice } = answer
            .await
            .map_err(|_| Error::new(ErrorKind::Internal, "the statement broke off: a bug in Keirin"))??;
        Ok(ResultStream { schema, kind, tag, batches, progress, notice, is_finished, _task: task })
    }
}

impl Session {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let zone = Arc::<SessionZone>::default();
        let mut config = SessionConfig::new()
            .with_target_partitions(shared.threads)
            .with_create_default_catalog_and_schema(false)
            .with_default_catalog_and_schema(CATALOG, DEFAULT_SCHEMA)
            .with_extension(shared.races.clone())
            .with_extension(shared.known_files.clone())
            .with_extension(shared.remote_files.clone())
            .with_extension(shared.spill_files.clone())
            .with_extension(zone.clone());
        config.options_mut().extensions.insert(FastPath::default());
        config.options_mut().sql_parser.collect_spans = true;
        config.options_mut().sql_parser.parse_float_as_decimal = true;
        // The rows of a query keep the order of an inner ORDER BY: in a subquery, a query of WITH or a view.
        config.options_mut().sql_parser.enable_subquery_sort_elimination = false;
        // By which types in the options of files are parsed: STRUCT(a BIGINT).
        config.options_mut().sql_parser.dialect = Dialect::DuckDB;
        // What planner and plans know of NULLs may differ: of CASE the planner knows that in `WHEN a = b THEN b` it is not NULL.
        config.options_mut().execution.skip_physical_aggregate_schema_check = true;
        // Its filter drops rows that an aggregate beside, which is of no column, still needs.
        config.options_mut().optimizer.enable_aggregate_dynamic_filter_pushdown = false;
        config.options_mut().execution.sort_pushdown_buffer_capacity = MERGE_AHEAD_BYTES;
        // A file for each batch that an exchange spills. With more in one, DataFusion's reader waits for the end of a file
        // that its writer, waiting for the reader, does not come back to (`spill_pool.rs`, several writers).
        config.options_mut().execution.max_spill_file_size_bytes =
            ConfigNonZeroUsize::try_new(1).expect("one is not zero");
        let rules: [Arc<dyn AnalyzerRule + Send + Sync>; 6] = [
            Arc::new(AllSets),
            Arc::new(Subqueries),
            Arc::new(Uuids),
            Arc::new(CommonTypes),
            Arc::new(Volatile),
            Arc::new(Meanings),
        ];
        let first: [Arc<dyn PhysicalOptimizerRule + Send + Sync>; 4] =
            [Arc::new(Exclusions), Arc::new(Gathering), Arc::new(GroupsInOrder), Arc::new(Fences)];
        let physical_rules = first.into_iter().chain(physical_rules());
        let concatenation = functions::bounded_concatenation(&shared.pool, shared.threads);
        let mut state = SessionStateBuilder::new_with_default_features()
            .with_config(config)
            .with_analyzer_rules(rules.into_iter().chain(Analyzer::new().rules).collect())
            .with_runtime_env(shared.environment.clone())
            .with_expr_planners(functions::expr_planners())
            .with_type_planner(Arc::new(SqlTypes { zone: zone.as_ref().clone() }))
            .with_optimizer_rules(optimizer_rules())
            .with_query_planner(Arc::new(SharingPlanner))
            .with_optimizer_rule(Arc::new(TextLengths))
            .with_analyzer_rule(Arc::new(OuterTypes))
            .with_analyzer_rule(Arc::new(AsOfJoins))
            .with_analyzer_rule(Arc::new(NestedOrder))
            .with_analyzer_rule(Arc::new(Collations))
            .with_analyzer_rule(Arc::new(Casts))
            .with_analyzer_rule(Arc::new(CheckArithmetic::new()))
            .with_analyzer_rule(Arc::new(Lists))
            .with_analyzer_rule(Arc::new(Concatenation { function: Arc::new(concatenation) }))
            .with_analyzer_rule(Arc::new(Arguments))
            .with_analyzer_rule(Arc::new(SortKeys))
            .with_physical_optimizer_rules(physical_rules.collect())
            .with_physical_optimizer_rule(Arc::new(LargeTop))
            .with_physical_optimizer_rule(Arc::new(EarlyRows))
            .with_physical_optimizer_rule(Arc::new(JoinRows))
            .with_physical_optimizer_rule(Arc::new(SemiJoins))
            .with_physical_optimizer_rule(Arc::new(KeepOrder))
            .with_physical_optimizer_rule(Arc::new(AggregateStored))
            .with_physical_optimizer_rule(Arc::new(GroupStored))
            .with_physical_optimizer_rule(Arc::new(GroupRows))
            .with_physical_optimizer_rule(Arc::new(SortRows))
            .with_physical_optimizer_rule(Arc::new(WindowRows))
            .with_physical_optimizer_rule(Arc::new(LastFences))
            .build();
        state
            .register_udaf(Arc::new(AggregateUDF::new_from_impl(CheckedSum::default())))
            .expect("DataFusion replaces functions of the same name");
        for ours in [
            AggregateUDF::new_from_impl(ExactAverage::default()),
            AggregateUDF::new_from_impl(Extreme::<Min>::default()),
            AggregateUDF::new_from_impl(Extreme::<Max>::default()),
        ] {
            state.register_udaf(Arc::new(ours)).expect("DataFusion replaces functions of the same name");
        }
        state.register_udtf("tpch", Arc::new(TpchFunction));
        state.register_udtf("inspect", Arc::new(Inspect { store: shared.store.clone() }));
        functions::register(&mut state, &zone, &shared.pool, shared.threads)
            .expect("a new session takes functions");
        let table_functions = Arc::new(state.table_functions().keys().cloned().collect());
        let context = SessionContext::new_with_state(state);
        let rejects = Arc::new(Rejects::new(shared.pool.clone()));
        // The settings table must not keep the context alive that contains it: it holds a weak reference.
        let settings = Settings { shared: shared.clone(), state: Arc::downgrade(&context.state_ref()) };
        let (rejected, store, races) = (rejects.clone(), shared.store.clone(), shared.races.clone());
        let faulty = races.clone();
        let mut system = vec![
            SystemTable::new("damage", move || Ok(known_damage(&store))),
            SystemTable::new("kernel_faults", move || Ok(kernel_faults(&faulty))),
            SystemTable::new("kernels", move || Ok(kernels(&races))),
            machine(shared.memory_limit_bytes),
            SystemTable::new("rejects", move || Ok(rejected.batch())),
            SystemTable::new("settings", move || Ok(settings.batch())),
        ];
        system.extend(system_tables(&shared.store));
        // Each statement replaces this by a version of the database.
        let database = Arc::new(MemoryCatalogProvider::new());
        let catalog = Arc::new(SessionCatalog {
            database,
            system: Arc::new(SystemSchema::new(system)),
            files: Arc::default(),
            given: Arc::default(),
            default_schema: DEFAULT_SCHEMA.to_owned(),
        });
        context.register_catalog(CATALOG, catalog.clone());
        let catalogs = context.state_ref().read().catalog_list().clone();
        let (prepared, plans) = (Arc::default(), shared.changes.cache());
        Self {
            shared,
            context,
            catalog,
            catalogs,
            rejects,
            prepared,
            table_functions,
            state: None,
            plans,
            moment: None,
            running: None,
        }
    }

    /// This session as one statement sees it throughout: with the newest version of the database.
    async fn at_newest(&self) -> Result<Self> {
        let store = &self.shared.store;
        let snapshot = if store.is_refreshed() {
            // Reading the newest version may block, on a disk or a server.
            let store = store.clone();
            blocking(move || store.snapshot()).await?
        } else {
            store.snapshot()?
        };
        let moment = Some(Moment::new(&snapshot, &self.shared.changes));
        Ok(Self { moment, ..self.at(snapshot) })
    }

    /// This session with one version of its database.
    pub(crate) fn at(&self, snapshot: Snapshot) -> Self {
        let store = self.shared.store.clone();
        let state = Arc::downgrade(&self.context.state_ref());
        self.over(Arc::new(StoredCatalog { store, snapshot, state }))
    }

    fn over(&self, database: Arc<dyn CatalogProvider>) -> Self {
        let default_schema = self.context.state_ref().read().config_options().catalog.default_schema.clone();
        let catalog = Arc::new(SessionCatalog { database, default_schema, ..(*self.catalog).clone() });
        let catalogs = Arc::new(MemoryCatalogProviderList::new());
        catalogs.register_catalog(CATALOG.to_owned(), catalog.clone());
        Self { catalog, catalogs, state: Some(Arc::default()), ..self.clone() }
    }

    /// The session's state for planning, with the statement's catalogue, and fitted to the memory limit.
    pub(crate) fn state(&self) -> Arc<SessionState> {
        let make = || {
            let mut state = self.context.state();
            state.register_catalog_list(self.catalogs.clone());
            memory::fit(state.config_mut().options_mut(), self.shared.pool.limit_bytes());
            Arc::new(state)
        };
        self.state.as_ref().map_or_else(make, |state| state.get_or_init(make).clone())
    }

    /// The context for executing operators of this session's statement, planned with `state`.
    pub(crate) fn task_context(&self, state: &SessionState) -> Arc<TaskContext> {
        let context = TaskContext::from(state);
        match &self.running {
            Some(running) => running.context(context),
            None => Arc::new(context),
        }
    }

    /// The memory that all queries of the database share, in bytes.
    pub(crate) fn memory_limit_bytes(&self) -> usize {
        self.shared.memory_limit_bytes
    }

    /// The flag that cancels this session's statement.
    pub(crate) fn stop(&self) -> Stop {
        self.running.as_ref().map(|running| running.stop.clone()).unwrap_or_default()
    }

    /// Runs one statement without parameters.
    ///
    /// # Errors
    /// What [`parse`] and [`Self::run`] say; [`ErrorKind::Syntax`] unless `sql` is exactly one statement.
    pub async fn sql(&self, sql: &str) -> Result<ResultStream> {
        self.sql_with(sql, Parameters::None).await
    }

    /// Runs one statement with values for its parameters: `?` and `$1` take a list, `:name` takes pairs.
    ///
    /// # Errors
    /// As [`Self::sql`]; [`ErrorKind::Invalid`] when a parameter has no value.
    pub async fn sql_with(&self, sql: &str, parameters: impl Into<Parameters>) -> Result<ResultStream> {
        let statements = parse(sql)?;
        let [statement] = statements.as_slice() else {
            let message = format!("expected one statement, found {}", statements.len());
            return Err(Error::new(ErrorKind::Syntax, message).with_hint("use parse() and run() for scripts"));
        };
        self.run(statement, parameters.into()).await
    }

    /// Runs a parsed statement. When this returns, the statement is planned and reading has begun.
    ///
    /// Dropping the future, or later the stream, stops the statement.
    ///
    /// # Errors
    /// Whatever is wrong with the statement or its data before the first batch; later errors arrive in the
    /// stream.
    pub async fn run(&self, statement: &Statement, parameters: Parameters) -> Result<ResultStream> {
        self.begin(statement, parameters).answer().await
    }

    /// Begins a statement on the database's threads.
    // Neither `async` nor generic: each crate that calls such a function would compile the whole engine
    // again.
    fn begin(&self, statement: &Statement, parameters: Parameters) -> Begun {
        let (mut session, statement) = (self.clone(), statement.clone());
        let tag = statement.tag();
        let (answered, answer) = oneshot::channel();
        let (sender, batches) = mpsc::channel(BATCHES_AHEAD);
        let is_finished = Arc::new(AtomicBool::new(false));
        let finished = is_finished.clone();
        let stop = Stop::default();
        let running = Running::new(self.shared.clone(), stop.clone());
        let change = (!statement.is_query()).then(|| Change::begin(&self.shared.changes));
        session.running = Some(running.clone());
        // What could not be read may be there again when the text comes again, so it is planned anew.
        let (plans, text) = (self.plans.clone(), statement.text().to_owned());
        let forget_plan = move || plans.forget(&text);
        // However the task ends, this stops the work that it leaves behind.
        let end = StopOnDrop(stop.clone());
        let task = self.shared.runtime().spawn(running.task(async move {
            let _end = (end, change);
            let started = match session.at_newest().await {
                Ok(session) => {
                    survived(session.start(&statement, &parameters)).await.and_then(|started| started)
                }
                Err(error) => Err(error),
            };
            let mut stream = match started {
                Ok(started) => {
                    let Answer { kind, schema, batches, progress, notice } = started;
                    let behind = session.shared.store.behind();
                    let notice =
                        behind.into_iter().chain(notice).reduce(|all, more| format!("{all}; {more}"));
                    if answered.send(Ok(Heading { kind, schema, progress, notice })).is_err() {
                        return;
                    }
                    batches
                }
                Err(error) => {
                    forget_plan();
                    // Fails if no caller is waiting any more, who then needs no error.
                    let _ = answered.send(Err(error));
                    return;
                }
            };
            while let Some(batch) = survived(stream.next()).await.unwrap_or_else(|error| Some(Err(error))) {
                let is_error = batch.is_err();
                if is_error {
                    forget_plan();
                }
                if !hand_over(&sender, batch).await || is_error {
                    break;
                }
            }
            finished.store(true, Ordering::Release);
        }));
        let task = StatementTask { task, stop };
        Begun { answer, tag, batches, is_finished, task }
    }

    /// Makes `batches` a table of this session under `name`, in the place of one that was given by that name before. Names
    /// without a schema mean such tables before those of the database; views do not see them. Nothing is copied.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when a batch has other columns than `schema`, or two columns have one name.
    pub fn register_batches(&self, name: &str, schema: SchemaRef, batches: Vec<RecordBatch>) -> Result<()> {
        let _change = Change::begin(&self.shared.changes);
        self.catalog.given.add_batches(name, schema, batches)
    }

    /// As [`register_batches`](Self::register_batches), of a stream. One query can read it, once; its code runs on threads
    /// that may block.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when two columns have one name.
    pub fn register_reader(&self, name: &str, reader: Box<dyn RecordBatchReader + Send>) -> Result<()> {
        let _change = Change::begin(&self.shared.changes);
        self.catalog.given.add_reader(name, reader)
    }

    /// Forgets a table that was given, and whether there was one. Queries that run go on.
    pub fn deregister(&self, name: &str) -> bool {
        let _change = Change::begin(&self.shared.changes);
        self.catalog.given.remove(name)
    }

    /// Waits, for at most `wait_max`, until no statement of the database is running and no thread works for a
    /// cancelled one; returns whether that is so.
    ///
    /// A cancelled statement ends at its next check; a program that exits before may leave temporary files of
    /// it behind.
    pub fn wait_until_idle(&self, wait_max: Duration) -> bool {
        let deadline = Instant::now() + wait_max;
        while self.shared.statement_count.load(Ordering::Acquire) + self.shared.work.count() > 0 {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(IDLE_CHECK_INTERVAL);
        }
        true
    }

    async fn start(&self, statement: &Statement, parameters: &Parameters) -> Result<Answer> {
        let may_keep = self.moment.is_some()
            && statement.is_query()
            && matches!(parameters, Parameters::None)
            && fast_path::keeps_plans(self.context.state_ref().read().config_options());
        if may_keep && let Some(planned) = self.planned(statement.text()) {
            return statements::execute_planned(self, planned).await;
        }
        if let Ast::Sql(written) = statement.ast.as_ref() {
            check_prepared(written)?;
        }
        let Some(mut ast) = self.prepared.resolve((*statement.ast).clone())? else {
            return Ok(Answer::done());
        };
        // Positions in a prepared statement refer to another script.
        let is_execute =
            matches!(&*statement.ast, Ast::Sql(ast) if matches!(**ast, ast::Statement::Execute { .. }));
        let written = (!is_execute).then_some(statement);
        let script = written.map_or("", |statement| statement.script.as_str());
        let text = match written {
            Some(statement) => Cow::Borrowed(statement.text()),
            None => Cow::Owned(prepared_text(&ast)),
        };
        parameters.bind(&mut ast, script)?;
        name_columns(&mut ast);
        functions::expand(&mut ast)?;
        refuse_unread(&mut ast)?;
        let taken = take_files(&mut ast, script, &self.catalog, &self.table_functions)?;
        depth::check(&mut ast)?;
        let may_keep = may_keep && taken.files.is_empty() && taken.versions.is_empty();
        // The old versions are held until the statement is planned; then the plan holds the tables.
        let mut open = taken.versions;
        let rejects = self.rejects.statement();
        for reference in taken.files {
            let table =
                files::open(&self.state(), &reference.table, &rejects).await.map_err(
                    |error| match reference.span.clone().filter(|_| error.span().is_none()) {
                        Some(span) => error.with_span(span),
                        None => error,
                    },
                )?;
            open.push(self.catalog.files.add(reference.name, table));
        }
        resolve_names(&mut ast, script, &self.catalog)?;
        statements::execute(self, ast, script, &text, may_keep).await
    }

    fn planned(&self, text: &str) -> Option<Planned> {
        self.plans.find(text, self.moment.as_ref()?)
    }

    /// Keeps the plan of the query `text` for when it comes again.
    pub(crate) fn keep_plan(&self, text: &str, planned: Planned) {
        if let Some(moment) = &self.moment {
            self.plans.keep(text, moment, planned);
        }
    }

    /// Opens a file under a fresh name, by which SQL can read it as long as the returned [`OpenFile`] lives.
    pub(crate) async fn open_file(&self, file: FileTable) -> Result<(String, OpenFile)> {
        let table = files::open(&self.state(), &file, &self.rejects.statement()).await?;
        let open = self.catalog.files.add(self.catalog.files.fresh_name(), table);
        Ok((open.sql_name(), open))
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings { shared: self.shared.clone(), state: Arc::downgrade(&self.context.state_ref()) }
    }
}

/// Turns a panic in `work` into an error of the statement.
async fn survived<T>(work: impl Future<Output = T>) -> Result<T> {
    AssertUnwindSafe(work).catch_unwind().await.map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        explain_panic(text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or_default())
    })
}

/// The SQL text of a statement that EXECUTE runs, made from its tree.
fn prepared_text(ast: &Ast) -> String {
    match ast {
        Ast::Sql(statement) => statement.to_string(),
        _ => String::new(),
    }
}
