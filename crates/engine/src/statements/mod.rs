//! Executes each kind of statement. A statement arrives with its parameters bound and its files opened.

mod alter;
mod change;
mod copy;
mod describe;
mod explain;
mod insert;
mod maintain;
mod names;
pub(crate) mod output;
pub(crate) mod prepared;
mod query;
mod schema;
mod tables;

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::logical_expr::{ExplainFormat, LogicalPlan};
use datafusion::sql::parser::Statement as DataFusionStatement;
use datafusion::sql::sqlparser::ast::{self, Expr, ObjectName};
use futures::StreamExt;
use futures::stream::{self, BoxStream};

use crate::compile::plan_cache::Planned;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::progress::Progress;
use crate::runtime::stream::StatementKind;
use crate::runtime::work::blocking;
use crate::session::Session;
use crate::sql::parser::Ast;

/// The result of a statement, before it is sent through the channel to the caller.
pub(crate) struct Answer {
    pub(crate) kind: StatementKind,
    pub(crate) schema: SchemaRef,
    pub(crate) batches: BoxStream<'static, Result<RecordBatch>>,
    pub(crate) progress: Progress,
    /// What the statement ignored, or did differently than a user might expect.
    pub(crate) notice: Option<String>,
}

impl Answer {
    /// The answer of a statement without rows.
    pub(crate) fn done() -> Self {
        let schema = Arc::new(Schema::empty());
        Self {
            kind: StatementKind::Done,
            schema,
            batches: stream::empty().boxed(),
            progress: Progress::default(),
            notice: None,
        }
    }

    /// An answer from rows in memory.
    fn rows(batch: RecordBatch) -> Self {
        let schema = batch.schema();
        let batches = stream::once(async { Ok(batch) }).boxed();
        Self { kind: StatementKind::Rows, schema, batches, ..Self::done() }
    }

    /// The answer with the number of rows written, once `count` is known.
    fn count(count: impl Future<Output = Result<u64>> + Send + 'static, progress: Progress) -> Self {
        let batch = |count| {
            let column = Arc::new(arrow::array::UInt64Array::from(vec![count])) as arrow::array::ArrayRef;
            RecordBatch::try_from_iter([("count", column)]).expect("one column of one row")
        };
        let schema = batch(0).schema();
        let batches = stream::once(async move { count.await.map(batch) }).boxed();
        Self { kind: StatementKind::Count, schema, batches, progress, notice: None }
    }
}

/// Executes a query that was planned before.
pub(crate) async fn execute_planned(session: &Session, planned: Planned) -> Result<Answer> {
    query::read_planned(session, planned).await
}

/// Executes `ast`, with its parameters bound and its files opened; `text` is its part of the script `sql`, by which
/// the plan of a query may be kept.
pub(crate) async fn execute(
    session: &Session,
    ast: Ast,
    sql: &str,
    text: &str,
    may_keep: bool,
) -> Result<Answer> {
    match ast {
        Ast::Sql(statement) => standard(session, *statement, sql, text, may_keep).await,
        Ast::CreateTable { statement, clauses } => tables::create(session, *statement, &clauses, sql).await,
        Ast::AlterTable { table, if_exists, alterations } => {
            alter::alter(session, &table, if_exists, &alterations).await
        }
        Ast::CheckTable(table) => maintain::check(session, &table).await,
        Ast::RepairTable(table) => maintain::repair(session, &table).await,
        Ast::RepairDatabase => maintain::repair_database(session).await,
        Ast::CopyTo { query, path, options } => copy::copy_to(session, query, &path, &options, sql).await,
        Ast::CopyFrom { table, columns, path, options } => {
            copy::copy_from(session, &table, &columns, &path, &options, sql).await
        }
        Ast::Describe(query) => describe::describe(session, query, sql).await,
        Ast::Summarize(query) => describe::summarize(session, query, sql).await,
    }
}

/// Executes a statement of standard SQL; `text` is its part of the script `sql`.
async fn standard(
    session: &Session,
    mut statement: ast::Statement,
    sql: &str,
    text: &str,
    may_keep: bool,
) -> Result<Answer> {
    if let ast::Statement::Insert(ast::Insert { table: ast::TableObject::TableName(table), .. }) = &statement
    {
        names::check_can_be_written(&names::object_name(session, table)?)?;
    }
    // Held until the statement is planned.
    let _source = match &mut statement {
        ast::Statement::Insert(insert) => insert::plan_values_apart(session, insert, sql).await?,
        _ => None,
    };
    let format = explain::Format::take(&mut statement)?;
    match &statement {
        // Some settings are stored in the database's directory, so setting them may block.
        ast::Statement::Set(set) => {
            let (session, set) = (session.clone(), set.clone());
            return blocking(move || set_setting(&session, &set)).await;
        }
        ast::Statement::Reset(reset) => {
            let (session, reset) = (session.clone(), reset.reset.clone());
            return blocking(move || reset_setting(&session, &reset)).await;
        }
        ast::Statement::ShowVariable { variable } => {
            let words: Vec<&str> = variable.iter().map(|word| word.value.as_str()).collect();
            return describe::show(session, &words).await;
        }
        ast::Statement::ShowTables { show_options, .. } => {
            return describe::show_tables(session, show_options).await;
        }
        ast::Statement::ShowColumns { show_options, .. } => {
            return describe::show_columns(session, show_options, sql).await;
        }
        ast::Statement::ShowDatabases { show_options, .. }
        | ast::Statement::ShowSchemas { show_options, .. } => {
            return describe::show_schemas(session, show_options);
        }
        ast::Statement::ShowCollation { filter } => {
            return describe::show_collation(filter.as_ref());
        }
        ast::Statement::ShowCreate { obj_type, obj_name } => {
            return describe::show_create(session, obj_type, obj_name).await;
        }
        ast::Statement::Comment { object_type, object_name, comment, .. } => {
            return alter::comment_on(session, *object_type, object_name, comment.as_deref()).await;
        }
        ast::Statement::RenameTable(renames) => {
            return alter::rename(session, renames).await;
        }
        ast::Statement::OptimizeTable { name, include_final, .. } => {
            return maintain::optimize(session, name, *include_final).await;
        }
        ast::Statement::Vacuum(vacuum) => return maintain::vacuum(session, vacuum).await,
        ast::Statement::CreateIndex(index) => return schema::create_index(session, index).await,
        ast::Statement::Use(name) => return schema::use_schema(session, name),
        ast::Statement::CreateView(view) => {
            return schema::create_view(session, view.clone(), sql, text).await;
        }
        ast::Statement::CreateSchema {
            schema_name: ast::SchemaName::Simple(name), if_not_exists, ..
        } => {
            return schema::create_schema(session, name, *if_not_exists).await;
        }
        ast::Statement::CreateDatabase { db_name, if_not_exists, .. } => {
            return schema::create_schema(session, db_name, *if_not_exists).await;
        }
        ast::Statement::Drop { object_type, if_exists, names, cascade, .. } => {
            return schema::drop_objects(session, *object_type, names, *if_exists, *cascade).await;
        }
        ast::Statement::Delete(delete) => return change::delete(session, delete).await,
        ast::Statement::Update(update) => return change::update(session, update).await,
        ast::Statement::DropFunction(_) | ast::Statement::CreateFunction(_) => {
            let message = format!("{statement} is not supported: the functions are the engine's own");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        ast::Statement::Truncate(truncate) => return change::truncate(session, truncate).await,
        ast::Statement::Explain { statement: inner, analyze, verbose, .. }
            if matches!(**inner, ast::Statement::Delete(_) | ast::Statement::Update(_)) =>
        {
            if *analyze {
                let message = "EXPLAIN ANALYZE of a DELETE or UPDATE is not supported";
                return Err(Error::new(ErrorKind::Unsupported, message)
                    .with_hint("EXPLAIN shows how the rows are found, and changes nothing"));
            }
            return change::explain(session, inner, *verbose || format == explain::Format::Indent).await;
        }
        ast::Statement::StartTransaction { .. }
        | ast::Statement::Commit { .. }
        | ast::Statement::Rollback { .. }
        | ast::Statement::Savepoint { .. } => {
            let message = format!("{statement} is not supported: each statement is a transaction");
            return Err(Error::new(ErrorKind::Unsupported, message)
                .with_detail("it reads one version, changes all that it says or nothing, and is on the disk when it has answered")
                .with_hint("one ALTER TABLE takes several changes; AS OF VERSION reads older rows, also to INSERT them again"));
        }
        _ => {}
    }
    match query::plan(session, statement, sql).await? {
        // The remaining plans would only change DataFusion's own state, in this one session.
        plan @ (LogicalPlan::Ddl(_) | LogicalPlan::Statement(_)) => {
            Err(Error::new(ErrorKind::Unsupported, format!("{} is not supported", words(text, &plan))))
        }
        plan @ LogicalPlan::Dml(_) => query::write(session, plan).await,
        LogicalPlan::Analyze(analyze) if format != explain::Format::Indent => {
            let plan = Arc::unwrap_or_clone(analyze.input);
            Ok(explain::analyze(session, plan, format, analyze.verbose))
        }
        LogicalPlan::Explain(asked)
            if !asked.verbose
                && format != explain::Format::Indent
                && asked.explain_format == ExplainFormat::Indent =>
        {
            explain::show(session, Arc::unwrap_or_clone(asked.plan)).await
        }
        plan => query::read_and_keep(session, plan, may_keep.then_some(text)).await,
    }
}

/// The name of a statement: its first two words.
fn words(text: &str, plan: &LogicalPlan) -> String {
    let words: Vec<String> = text.split_whitespace().take(2).map(str::to_uppercase).collect();
    if words.is_empty() { plan.display().to_string() } else { words.join(" ") }
}

fn set_setting(session: &Session, set: &ast::Set) -> Result<Answer> {
    let assign = |name: &ObjectName, values: &[Expr]| {
        let [value] = values else {
            return Err(Error::new(ErrorKind::Invalid, format!("expected one value for setting '{name}'")));
        };
        let text = setting_value(value);
        let is_default = text.eq_ignore_ascii_case("default") && matches!(value, Expr::Identifier(_));
        session.settings().set(&name.to_string(), (!is_default).then_some(&text))
    };
    match set {
        ast::Set::SingleAssignment { variable, values, .. } => assign(variable, values)?,
        ast::Set::MultipleAssignments { assignments } => {
            for assignment in assignments {
                assign(&assignment.name, std::slice::from_ref(&assignment.value))?;
            }
        }
        ast::Set::SetTimeZone { value, .. } => {
            session.settings().set("time_zone", Some(&setting_value(value)))?;
        }
        // All text is UTF-8, in and out.
        ast::Set::SetNames { charset_name, collation_name } => {
            let charset = charset_name.value.to_ascii_lowercase();
            if !["utf8mb4", "utf8mb3", "utf8", "utf-8"].contains(&charset.as_str()) {
                let error =
                    Error::new(ErrorKind::Unsupported, format!("SET NAMES {charset} is not supported"));
                return Err(error.with_hint("all text is UTF-8: SET NAMES utf8mb4"));
            }
            session.settings().set("collation", collation_name.as_deref())?;
        }
        ast::Set::SetNamesDefault {} => session.settings().set("collation", None)?,
        other => return Err(Error::new(ErrorKind::Unsupported, format!("{other} is not supported"))),
    }
    Ok(Answer::done())
}

/// The text of a setting's value: quotes are optional.
fn setting_value(value: &Expr) -> String {
    match value {
        Expr::Value(value) => value.value.clone().into_string().unwrap_or_else(|| value.to_string()),
        Expr::Identifier(name) => name.value.clone(),
        other => other.to_string(),
    }
}

fn reset_setting(session: &Session, reset: &ast::Reset) -> Result<Answer> {
    match reset {
        ast::Reset::ConfigurationParameter(name) => session.settings().set(&name.to_string(), None)?,
        ast::Reset::ALL => session.settings().reset_all()?,
    }
    Ok(Answer::done())
}

/// Runs a query that the engine itself generates.
async fn run_text(session: &Session, sql: &str) -> Result<Answer> {
    let plan = query::plan(session, crate::sql::parser::parse_standard(sql)?, sql).await?;
    query::read(session, plan).await
}

/// The statement in the form that DataFusion's planner takes.
fn for_planner(statement: ast::Statement) -> DataFusionStatement {
    DataFusionStatement::Statement(Box::new(statement))
}
