//! Queries: planned, run, and where that helps run again with less memory.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::{DFSchema, SchemaError};
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{DdlStatement, DmlStatement, Expr, ExprSchemable, LogicalPlan, WriteOp};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::sql::sqlparser::ast;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};

use super::{Answer, for_planner};
use crate::bind::column_names::{shown_schema, tell_apart_from_wildcards};
use crate::compile::plan_cache::Planned;
use crate::compile::rules::{grouping_keys, keep_hours};
use crate::error::{Error, ErrorKind, Result};
use crate::explain_error::explain;
use crate::expressions::arithmetic::negation;
use crate::runtime::guard::guarded;
use crate::runtime::progress::Progress;
use crate::runtime::stream::StatementKind;
use crate::session::Session;
use crate::types::sql_type_name;

/// The logical plan of `statement`, which was parsed from `sql`, with the final types of its columns: the
/// parts of a UNION get a common type only in analysis.
pub(super) async fn plan(session: &Session, statement: ast::Statement, sql: &str) -> Result<LogicalPlan> {
    let state = session.state();
    let explained = |error| explain(&error, Some(sql));
    let mut retry = statement.clone();
    let plan = match state.statement_to_plan(for_planner(statement)).await {
        Err(error) if names_a_column_twice(&error) => {
            tell_apart_from_wildcards(&mut retry);
            state.statement_to_plan(for_planner(retry)).await
        }
        Err(error) if negation::is_refused(&error) => {
            negation::as_differences(&mut retry);
            state.statement_to_plan(for_planner(retry)).await.or(Err(error))
        }
        planned => planned,
    };
    let plan = plan.and_then(grouping_keys).and_then(keep_hours).map_err(explained)?;
    check_inserted(&plan)?;
    if matches!(plan, LogicalPlan::Explain(_) | LogicalPlan::Ddl(DdlStatement::CreateView(_))) {
        return Ok(plan);
    }
    state.analyzer().execute_and_check(plan, state.config_options(), |_, _| {}).map_err(explained)
}

/// Applies [`check_assigned`] to the casts that the planner put between the rows of an INSERT and its table.
fn check_inserted(plan: &LogicalPlan) -> Result<()> {
    let LogicalPlan::Dml(DmlStatement { op: WriteOp::Insert(_), input, .. }) = plan else { return Ok(()) };
    let LogicalPlan::Projection(projection) = input.as_ref() else { return Ok(()) };
    let check = |expr: &Expr, column: &str, schema: &DFSchema| match expr {
        Expr::Cast(cast) => check_assigned(column, &cast.expr.get_type(schema)?, cast.field.data_type()),
        _ => Ok(()),
    };
    for (number, expr) in projection.expr.iter().enumerate() {
        let name = projection.schema.field(number).name();
        match (expr.clone().unalias(), projection.input.as_ref()) {
            (Expr::Column(column), LogicalPlan::Values(values)) => {
                let Some(place) = values.schema.maybe_index_of_column(&column) else { continue };
                values.values.iter().try_for_each(|row| check(&row[place], name, &DFSchema::empty()))?;
            }
            (expr, input) => check(&expr, name, input.schema())?,
        }
    }
    Ok(())
}

/// Refuses a number for a column of dates or timestamps: it may count days, seconds or microseconds, and only who
/// wrote the statement knows.
pub(super) fn check_assigned(column: &str, from: &DataType, to: &DataType) -> Result<()> {
    if !from.is_numeric() || !matches!(to, DataType::Date32 | DataType::Timestamp(..)) {
        return Ok(());
    }
    let message =
        format!("column '{column}' is a {}, and takes no {}", sql_type_name(to), sql_type_name(from));
    Err(Error::new(ErrorKind::Invalid, message).with_hint(
        "to_timestamp_seconds(n), to_timestamp_millis(n) or DATE '1970-01-01' + n say what n counts",
    ))
}

/// Whether the planner found two columns of one name in a SELECT, or an ORDER BY that may mean either.
fn names_a_column_twice(error: &DataFusionError) -> bool {
    match error.find_root() {
        // The planner has no other sign of this error than its text.
        DataFusionError::Plan(text) => text.contains("require unique expression names"),
        DataFusionError::SchemaError(error, _) => matches!(**error, SchemaError::AmbiguousReference { .. }),
        _ => false,
    }
}

/// Runs a plan whose rows are the answer.
pub(super) async fn read(session: &Session, plan: LogicalPlan) -> Result<Answer> {
    read_and_keep(session, plan, None).await
}

/// As [`read`]; the plan is kept for when the query `text` comes again.
pub(super) async fn read_and_keep(
    session: &Session,
    plan: LogicalPlan,
    text: Option<&str>,
) -> Result<Answer> {
    let is_analyzed = !matches!(plan, LogicalPlan::Explain(_));
    let run = Run { is_analyzed, ..Run::new(session, plan, Progress::default()) };
    let state = run.session.state();
    let physical = run.unguarded(&state).await?;
    if let Some(text) = text
        && let Some(planned) = Planned::new(&run.plan, &physical)
    {
        session.keep_plan(text, planned);
    }
    answer(run, &state, physical).await
}

/// Runs a query that was planned before.
pub(super) async fn read_planned(session: &Session, planned: Planned) -> Result<Answer> {
    let physical = planned.fresh()?;
    let run = Run::analyzed(session, planned.logical, Progress::default());
    let state = run.session.state();
    answer(run, &state, physical).await
}

async fn answer(run: Run, state: &SessionState, physical: Arc<dyn ExecutionPlan>) -> Result<Answer> {
    let schema = Arc::new(run.plan.schema().as_arrow().clone());
    let progress = run.progress.clone();
    let physical = guarded(physical, &run.session.stop())?;
    let batches = run.execute(state, &physical)?;
    let (schema, batches) = match shown_schema(&schema) {
        Some(shown) => (shown.clone(), under(shown, batches)),
        None => (schema, batches),
    };
    Ok(Answer { kind: StatementKind::Rows, schema, batches, progress, notice: None })
}

/// The batches with the column names of `schema`, which has the same types.
pub(super) fn under(
    schema: SchemaRef,
    batches: BoxStream<'static, Result<RecordBatch>>,
) -> BoxStream<'static, Result<RecordBatch>> {
    let renamed = batches.map(move |batch| {
        let batch = batch?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(schema.clone(), batch.columns().to_vec(), &options)?)
    });
    renamed.boxed()
}

/// Runs a plan that writes rows and returns their number.
pub(super) async fn write(session: &Session, plan: LogicalPlan) -> Result<Answer> {
    let progress = Progress::default();
    let run = Run::new(session, plan, progress.clone());
    let mut batches = run.start().await?;
    let count = async move {
        let mut count = 0;
        while let Some(batch) = batches.try_next().await? {
            let column = batch.column(0).as_any().downcast_ref::<arrow::array::UInt64Array>();
            count += column.into_iter().flat_map(|column| column.iter().flatten()).sum::<u64>();
        }
        Ok(count)
    };
    Ok(Answer::count(count, progress))
}

/// A query that is ready to run.
pub(super) struct Run {
    pub(super) session: Session,
    pub(super) plan: LogicalPlan,
    pub(super) progress: Progress,
    /// Whether [`plan`] has analyzed the plan already.
    is_analyzed: bool,
}

impl Run {
    pub(super) fn new(session: &Session, plan: LogicalPlan, progress: Progress) -> Self {
        Self { session: session.clone(), plan, progress, is_analyzed: false }
    }

    /// Of a plan that comes from [`plan`].
    pub(super) fn analyzed(session: &Session, plan: LogicalPlan, progress: Progress) -> Self {
        Self { is_analyzed: true, ..Self::new(session, plan, progress) }
    }

    /// The plan without its guards.
    pub(super) async fn unguarded(&self, state: &SessionState) -> Result<Arc<dyn ExecutionPlan>> {
        if !self.is_analyzed {
            return Ok(state.create_physical_plan(&self.plan).await?);
        }
        let optimized = state.optimizer().optimize(self.plan.clone(), state, |_, _| {})?;
        Ok(state.query_planner().create_physical_plan(&optimized, state).await?)
    }

    async fn physical(&self, state: &SessionState) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(guarded(self.unguarded(state).await?, &self.session.stop())?)
    }

    /// Starts the query.
    pub(super) async fn start(self) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let state = self.session.state();
        let physical = self.physical(&state).await?;
        self.execute(&state, &physical)
    }

    pub(super) fn execute(
        &self,
        state: &SessionState,
        physical: &Arc<dyn ExecutionPlan>,
    ) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        self.progress.watch(physical);
        let batches = execute_stream(physical.clone(), self.session.task_context(state))?;
        Ok(batches.map_err(Error::from).boxed())
    }
}
