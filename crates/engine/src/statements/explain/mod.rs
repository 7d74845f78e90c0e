//! `EXPLAIN`: the steps of a query, and which of them are Keirin's own. `EXPLAIN ANALYZE`: the query runs, its rows are dropped, and what its steps took is told, as text, as JSON, or as a page
//! that draws the plan.

mod html;
mod report;
mod text;

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::{AnalyzeFormat, AnalyzeFormatKind, Statement, UtilityOption};
use futures::{StreamExt, TryStreamExt, stream};

use self::report::{Report, Step};
use super::Answer;
use super::query::Run;
use crate::compile::fast_path;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::guard::measured;
use crate::runtime::machine::Machine;
use crate::runtime::progress::Progress;
use crate::runtime::stream::StatementKind;
use crate::runtime::work::blocking;
use crate::session::Session;

/// Why no step is ours, where the user wants none.
const SLOW_PATH: &str = "keirin.fast_path is off";

/// How it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Text,
    Json,
    Html,
    /// As DataFusion writes plans.
    Indent,
}

impl Format {
    /// Takes the format from an EXPLAIN: the planner knows only some, and none with ANALYZE.
    ///
    /// # Errors
    /// When it is none of ours, or there is no ANALYZE.
    pub(super) fn take(statement: &mut Statement) -> Result<Self> {
        let Statement::Explain { analyze, format, options, .. } = statement else { return Ok(Self::Text) };
        let keyword = format.take().map(|format| match format {
            AnalyzeFormatKind::Keyword(format) | AnalyzeFormatKind::Assignment(format) => match format {
                AnalyzeFormat::TEXT => "TEXT".to_owned(),
                AnalyzeFormat::JSON => "JSON".to_owned(),
                other => other.to_string(),
            },
        });
        let option = options.take().into_iter().flatten().find_map(|UtilityOption { arg, .. }| arg);
        let word = match (keyword, option) {
            (None, None) => return Ok(Self::Text),
            (Some(word), _) => word,
            (None, Some(option)) => option.to_string().trim_matches('\'').to_uppercase(),
        };
        let format = match word.as_str() {
            "TEXT" => Self::Text,
            "JSON" => Self::Json,
            "HTML" => Self::Html,
            "INDENT" => Self::Indent,
            _ => {
                return Err(Error::new(ErrorKind::Unsupported, format!("EXPLAIN has no format {word}"))
                    .with_hint("EXPLAIN (ANALYZE, FORMAT JSON); there are TEXT, JSON, HTML and INDENT"));
            }
        };
        if !*analyze && matches!(format, Self::Json | Self::Html) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("EXPLAIN without ANALYZE has no format {word}"),
            )
            .with_hint(format!("EXPLAIN (ANALYZE, FORMAT {word}) runs the query")));
        }
        Ok(format)
    }
}

/// Runs `plan` and tells what its steps took; `is_verbose` leaves nothing out.
pub(super) fn analyze(session: &Session, plan: LogicalPlan, format: Format, is_verbose: bool) -> Answer {
    let progress = Progress::default();
    let run = Run::analyzed(session, plan, progress.clone());
    let limit_bytes = session.memory_limit_bytes();
    let told = async move {
        let machine = blocking(move || Ok(Machine::this(limit_bytes))).await?;
        let report = report(run, machine).await?;
        let told = match format {
            Format::Text | Format::Indent => text::write(&report, is_verbose),
            Format::Json => serde_json::to_string_pretty(&report)
                .map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?,
            Format::Html => html::write(&report),
        };
        let column: ArrayRef = Arc::new(StringArray::from(vec![told]));
        Ok(RecordBatch::try_new(schema(), vec![column])?)
    };
    Answer {
        kind: StatementKind::Rows,
        schema: schema(),
        batches: stream::once(told).boxed(),
        progress,
        notice: None,
    }
}

/// Tells the steps of a plan, which does not run.
pub(super) async fn show(session: &Session, plan: LogicalPlan) -> Result<Answer> {
    let run = Run::new(session, plan, Progress::default());
    let state = run.session.state();
    let mut steps = Step::planned(&run.unguarded(&state).await?);
    if !fast_path::is_on(state.config_options()) {
        steps.blame(SLOW_PATH);
    }
    let column: ArrayRef = Arc::new(StringArray::from(vec![text::write_plan(&steps)]));
    Ok(Answer::rows(RecordBatch::try_new(schema(), vec![column])?))
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("plan", DataType::Utf8, false)]))
}

async fn report(run: Run, machine: Machine) -> Result<Report> {
    let state = run.session.state();
    let began = Instant::now();
    let plan = measured(run.unguarded(&state).await?, &run.session.stop())?;
    let planning = began.elapsed();
    let began = Instant::now();
    let mut batches = run.execute(&state, &plan)?;
    let mut rows = 0;
    while let Some(batch) = batches.try_next().await? {
        rows += batch.num_rows();
    }
    drop(batches);
    let threads = state.config().target_partitions();
    let mut report = Report::new(&plan, rows, [planning, began.elapsed()], threads, &machine);
    if !fast_path::is_on(state.config_options()) {
        report.plan.blame(SLOW_PATH);
    }
    Ok(report)
}
