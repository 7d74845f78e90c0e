//! DESCRIBE, SUMMARIZE and SHOW: answers about tables, columns and settings.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::util::display::array_value_to_string;
use datafusion::catalog::{CatalogProvider, TableProvider};
use datafusion::logical_expr::{LogicalPlan, TableType};
use datafusion::sql::sqlparser::ast::{
    self, ObjectName, Query, ShowCreateObject, ShowStatementFilter, ShowStatementFilterPosition,
    ShowStatementOptions,
};
use futures::TryStreamExt;
use keirin_collation::Collation;

use super::names::{find, not_found, object_name};
use super::query::{self, Run};
use super::{Answer, run_text};
use crate::bind::column_names::shown;
use crate::compile::fast_path::PLAIN;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::progress::Progress;
use crate::runtime::work::blocking;
use crate::session::Session;
use crate::sources::catalog::{SYSTEM_SCHEMA, View};
use crate::sources::stored::{self, StoredTable};
use crate::sql::parser::select_from;
use crate::types::{sql_field_type, sql_type_name};

/// `DESCRIBE table | query`.
pub(super) async fn describe(session: &Session, query: Box<Query>, sql: &str) -> Result<Answer> {
    let plan = query::plan(session, ast::Statement::Query(query), sql).await?;
    let schema = plan.schema().as_arrow();
    let column = |cell: fn(&Field) -> String| {
        Arc::new(StringArray::from_iter_values(schema.fields().iter().map(|field| cell(field)))) as ArrayRef
    };
    rows([
        ("column_name", column(|field| shown(field.name()).to_owned())),
        ("column_type", column(sql_field_type)),
        ("null", column(|field| if field.is_nullable() { "YES" } else { "NO" }.to_owned())),
    ])
}

/// `SUMMARIZE table | query`: one row for each column. One pass over the data.
pub(super) async fn summarize(session: &Session, query: Box<Query>, sql: &str) -> Result<Answer> {
    let input = query::plan(session, ast::Statement::Query(query), sql).await?;
    let schema = input.schema().as_arrow().clone();
    let plan = aggregate(session, input, &schema).await?;
    let progress = Progress::default();
    let run = Run::new(session, plan, progress.clone());
    let batches: Vec<RecordBatch> = run.start().await?.try_collect().await?;
    let Some(totals) = batches.iter().find(|batch| batch.num_rows() == 1) else {
        return Err(Error::new(ErrorKind::Internal, "an aggregate without a row"));
    };
    let mut answer = rows(transpose(totals, &schema)?)?;
    answer.progress = progress;
    Ok(answer)
}

/// The expression that measures a column of this name and type; `None` if the measure does not apply to the
/// type.
type Measure = fn(&str, &DataType) -> Option<String>;

/// The measures of SUMMARIZE.
const MEASURES: &[(&str, Measure)] = &[
    ("min", |column, data_type| is_ordered(data_type).then(|| format!("min({column})"))),
    ("max", |column, data_type| is_ordered(data_type).then(|| format!("max({column})"))),
    ("approx_unique", |column, data_type| {
        // DataFusion's function takes only integers, texts and times.
        is_ordered(data_type).then(|| format!("approx_distinct(CAST({column} AS VARCHAR))"))
    }),
    ("avg", |column, data_type| data_type.is_numeric().then(|| format!("avg(CAST({column} AS DOUBLE))"))),
    ("std", |column, data_type| data_type.is_numeric().then(|| format!("stddev(CAST({column} AS DOUBLE))"))),
    ("q25", |column, data_type| quantile(column, data_type, "0.25")),
    ("q50", |column, data_type| quantile(column, data_type, "0.5")),
    ("q75", |column, data_type| quantile(column, data_type, "0.75")),
    ("count", |_, _| Some("count(*)".to_owned())),
    ("null_percentage", |column, _| {
        Some(format!("100.0 * (count(*) - count({column})) / nullif(count(*), 0)"))
    }),
];

fn quantile(column: &str, data_type: &DataType, share: &str) -> Option<String> {
    data_type.is_numeric().then(|| format!("approx_percentile_cont(CAST({column} AS DOUBLE), {share})"))
}

fn is_ordered(data_type: &DataType) -> bool {
    !data_type.is_nested()
        && !matches!(data_type, DataType::Null | DataType::Interval(_) | DataType::Duration(_))
}

/// `SELECT measures of all columns FROM input`, with the columns renamed to numbers, so that their names need
/// no quoting.
async fn aggregate(session: &Session, input: LogicalPlan, schema: &Schema) -> Result<LogicalPlan> {
    let name = |index: usize| format!("c{index}");
    let numbered = schema.fields().iter().enumerate().map(|(index, _)| {
        let (qualifier, field) = input.schema().qualified_field(index);
        datafusion::logical_expr::Expr::Column(datafusion::common::Column::from((qualifier, field)))
            .alias(name(index))
    });
    let renamed =
        datafusion::logical_expr::LogicalPlanBuilder::from(input.clone()).project(numbered)?.build()?;
    let measures: Vec<String> = schema
        .fields()
        .iter()
        .enumerate()
        .flat_map(|(index, field)| {
            MEASURES.iter().enumerate().filter_map(move |(measure, (_, expression))| {
                Some(format!("{} AS m{index}_{measure}", expression(&name(index), field.data_type())?))
            })
        })
        .collect();
    let table = Arc::new(datafusion::datasource::ViewTable::new(renamed, None));
    let file = session.catalog.files.add(session.catalog.files.fresh_name(), table);
    let text = format!("SELECT {} FROM {}", measures.join(", "), file.sql_name());
    query::plan(session, crate::sql::parser::parse_standard(&text)?, &text).await
}

/// Turns the one row with the measures of all columns into a row for each column.
fn transpose(totals: &RecordBatch, schema: &Schema) -> Result<Vec<(&'static str, ArrayRef)>> {
    let fields = schema.fields();
    let cell = |index: usize, measure: usize| totals.column_by_name(&format!("m{index}_{measure}"));
    let mut columns: Vec<(&'static str, ArrayRef)> = vec![
        ("column_name", Arc::new(StringArray::from_iter_values(fields.iter().map(|field| field.name())))),
        (
            "column_type",
            Arc::new(StringArray::from_iter_values(fields.iter().map(|f| sql_type_name(f.data_type())))),
        ),
    ];
    for (measure, (name, _)) in MEASURES.iter().enumerate() {
        let cells = (0..fields.len()).map(|index| cell(index, measure));
        let column: ArrayRef = match *name {
            "min" | "max" => {
                let texts = cells.map(|cell| match cell {
                    Some(cell) if !cell.is_null(0) => Ok(Some(array_value_to_string(cell, 0)?)),
                    _ => Ok(None),
                });
                Arc::new(texts.collect::<Result<StringArray>>()?)
            }
            "approx_unique" | "count" => {
                let counts = cells.map(|cell| {
                    Ok(cell
                        .map(|cell| number::<Int64Array>(cell, &DataType::Int64))
                        .transpose()?
                        .and_then(|counts| counts.is_valid(0).then(|| counts.value(0))))
                });
                Arc::new(counts.collect::<Result<Int64Array>>()?)
            }
            _ => {
                let numbers = cells.map(|cell| {
                    Ok(cell
                        .map(|cell| number::<Float64Array>(cell, &DataType::Float64))
                        .transpose()?
                        .and_then(|numbers| numbers.is_valid(0).then(|| numbers.value(0))))
                });
                Arc::new(numbers.collect::<Result<Float64Array>>()?)
            }
        };
        columns.push((name, column));
    }
    Ok(columns)
}

fn number<A: Array + Clone + 'static>(cell: &ArrayRef, data_type: &DataType) -> Result<A> {
    let cell = cast(cell, data_type)?;
    let typed = cell.as_any().downcast_ref::<A>().cloned();
    typed.ok_or_else(|| Error::new(ErrorKind::Internal, format!("{data_type} is not what cast gave")))
}

/// `SHOW name`: a setting, or one of the lists.
pub(super) async fn show(session: &Session, words: &[&str]) -> Result<Answer> {
    match words.join(" ").to_uppercase().as_str() {
        "SETTINGS" | "ALL" | "VARIABLES" => Ok(Answer::rows(session.settings().batch())),
        "FUNCTIONS" => functions(session).await,
        _ => {
            let name = words.join(".");
            let value = session.settings().get(&name)?;
            let column = |text: String| Arc::new(StringArray::from(vec![text])) as ArrayRef;
            rows([("name", column(name)), ("value", column(value))])
        }
    }
}

/// `SHOW FUNCTIONS`: the planner's, and those that are expanded before planning.
async fn functions(session: &Session) -> Result<Answer> {
    let quote = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let written_out: Vec<String> = crate::expressions::functions::signatures()
        .map(|(signature, meaning)| {
            let name = signature.split('(').next().unwrap_or(signature);
            format!("({}, {})", quote(name), quote(&format!("{signature} is {meaning}")))
        })
        .collect();
    let text = format!(
        "SELECT DISTINCT routine_name AS name, function_type AS type, description \
         FROM information_schema.routines WHERE routine_name NOT LIKE 'keirin%' UNION ALL \
         SELECT column1, 'MACRO', column2 FROM (VALUES {}) ORDER BY name, type",
        written_out.join(", ")
    );
    run_text(session, &text).await
}

/// `SHOW TABLES [FROM schema] [LIKE pattern]`.
pub(super) async fn show_tables(session: &Session, options: &ShowStatementOptions) -> Result<Answer> {
    let wanted = shown_in(options);
    let mut found: Vec<ShownTable> = Vec::new();
    for schema_name in session.catalog.schema_names() {
        let is_hidden = ["information_schema", SYSTEM_SCHEMA].contains(&schema_name.as_str());
        if wanted.as_ref().map_or(is_hidden, |wanted| *wanted != schema_name) {
            continue;
        }
        let Some(schema) = session.catalog.schema(&schema_name) else { continue };
        for name in schema.table_names() {
            let Some(table) = schema.table(&name).await? else { continue };
            let schema_name = schema_name.clone();
            found.push(blocking(move || ShownTable::new(schema_name, name, &table)).await?);
        }
    }
    if let Some(wanted) = wanted.filter(|wanted| session.catalog.schema(wanted).is_none()) {
        return Err(Error::new(ErrorKind::NotFound, format!("schema '{wanted}' not found")));
    }
    if let Some(pattern) = like_pattern(options)? {
        found.retain(|table| like(&pattern, &table.name));
    }
    found.sort_by(|a, b| (&a.schema, &a.name).cmp(&(&b.schema, &b.name)));
    let text = |value: &dyn Fn(&ShownTable) -> Option<String>| {
        Arc::new(found.iter().map(value).collect::<StringArray>()) as ArrayRef
    };
    let number = |value: &dyn Fn(&ShownTable) -> Option<u64>| {
        let number = |table| value(table).and_then(|value| i64::try_from(value).ok());
        Arc::new(found.iter().map(number).collect::<Int64Array>()) as ArrayRef
    };
    rows([
        ("schema", text(&|table| Some(table.schema.clone()))),
        ("name", text(&|table| Some(table.name.clone()))),
        ("type", text(&|table| Some(table.kind.to_owned()))),
        ("rows", number(&|table| table.row_count)),
        ("bytes", number(&|table| table.bytes)),
        ("ratio", Arc::new(found.iter().map(|table| table.ratio).collect::<Float64Array>())),
        ("comment", text(&|table| table.comment.clone())),
    ])
}

/// A row of SHOW TABLES.
struct ShownTable {
    schema: String,
    name: String,
    kind: &'static str,
    row_count: Option<u64>,
    /// The size on disk.
    bytes: Option<u64>,
    /// The compression ratio: the size of the values divided by `bytes`.
    ratio: Option<f64>,
    comment: Option<String>,
}

impl ShownTable {
    fn new(schema: String, name: String, table: &Arc<dyn TableProvider>) -> Result<Self> {
        let kind = if table.table_type() == TableType::View { "view" } else { "table" };
        let row_count = table.statistics().and_then(|statistics| statistics.num_rows.get_value().copied());
        let row_count = row_count.and_then(|count| u64::try_from(count).ok());
        let mut shown = Self { schema, name, kind, row_count, bytes: None, ratio: None, comment: None };
        if let Some(table) = (table.as_ref() as &dyn std::any::Any).downcast_ref::<StoredTable>() {
            let sizes = table.sizes()?;
            shown.bytes = Some(sizes.stored);
            shown.ratio = sizes.ratio();
            shown.comment = table.table.definition.properties.get(stored::COMMENT).cloned();
        }
        Ok(shown)
    }
}

/// `SHOW SCHEMAS | DATABASES [LIKE pattern]`.
pub(super) fn show_schemas(session: &Session, options: &ShowStatementOptions) -> Result<Answer> {
    let mut names = session.catalog.schema_names();
    if let Some(pattern) = like_pattern(options)? {
        names.retain(|name| like(&pattern, name));
    }
    rows([("name", Arc::new(StringArray::from(names)) as ArrayRef)])
}

/// `SHOW COLLATION [LIKE pattern]`.
pub(super) fn show_collation(filter: Option<&ShowStatementFilter>) -> Result<Answer> {
    let pattern = filter.map(pattern).transpose()?;
    let is_wanted =
        |collation: &Collation| pattern.as_ref().is_none_or(|pattern| like(pattern, collation.name()));
    let found: Vec<Collation> = Collation::all().filter(is_wanted).collect();
    let texts = |value: &dyn Fn(&Collation) -> &'static str| {
        Arc::new(found.iter().map(value).map(Some).collect::<StringArray>()) as ArrayRef
    };
    let yes_or_no = |is: bool| if is { "Yes" } else { "" };
    rows([
        ("Collation", texts(&|collation| collation.name())),
        ("Charset", texts(&|collation| collation.charset())),
        ("Id", Arc::new(found.iter().map(|one| one.id().map(i64::from)).collect::<Int64Array>())),
        ("Default", texts(&|collation| yes_or_no(collation.name() == PLAIN))),
        ("Compiled", texts(&|_| "Yes")),
        ("Pad_attribute", texts(&|collation| if collation.pads() { "PAD SPACE" } else { "NO PAD" })),
    ])
}

/// `SHOW CREATE TABLE | VIEW name`: the statement that creates the table or view.
pub(super) async fn show_create(
    session: &Session,
    kind: &ShowCreateObject,
    name: &ObjectName,
) -> Result<Answer> {
    if !matches!(kind, ShowCreateObject::Table | ShowCreateObject::View) {
        return Err(Error::new(ErrorKind::Unsupported, format!("SHOW CREATE {kind} is not supported")));
    }
    let name = object_name(session, name)?;
    let table = find(session, &name).await?.ok_or_else(|| not_found(session, &name))?;
    let any = table.as_ref() as &dyn std::any::Any;
    let text = match (any.downcast_ref::<View>(), any.downcast_ref::<StoredTable>()) {
        (Some(view), _) => view.definition.clone(),
        (_, Some(table)) => stored::create_table_sql(&table.table.definition),
        _ => stored::create_table_sql(&stored::define(&name.schema, &name.table, &table.schema(), &[])?),
    };
    let column = |text: String| Arc::new(StringArray::from(vec![text])) as ArrayRef;
    rows([("name", column(name.to_string())), ("statement", column(text))])
}

/// `SHOW COLUMNS FROM table`.
pub(super) async fn show_columns(
    session: &Session,
    options: &ShowStatementOptions,
    sql: &str,
) -> Result<Answer> {
    let name = options.show_in.as_ref().and_then(|place| place.parent_name.clone());
    let Some(name) = name else {
        return Err(
            Error::new(ErrorKind::Syntax, "SHOW COLUMNS needs a table").with_hint("SHOW COLUMNS FROM table")
        );
    };
    let query = select_from(&[], name).map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
    describe(session, query, sql).await
}

fn shown_in(options: &ShowStatementOptions) -> Option<String> {
    let name = options.show_in.as_ref()?.parent_name.as_ref()?;
    name.0.last().and_then(|part| part.as_ident()).map(crate::bind::relations::normalized)
}

fn like_pattern(options: &ShowStatementOptions) -> Result<Option<String>> {
    let filter = match &options.filter_position {
        None => return Ok(None),
        Some(ShowStatementFilterPosition::Infix(filter) | ShowStatementFilterPosition::Suffix(filter)) => {
            filter
        }
    };
    pattern(filter).map(Some)
}

fn pattern(filter: &ShowStatementFilter) -> Result<String> {
    match filter {
        ShowStatementFilter::Like(pattern) | ShowStatementFilter::ILike(pattern) => Ok(pattern.clone()),
        other => Err(Error::new(ErrorKind::Unsupported, format!("SHOW ... {other} is not supported"))
            .with_hint("use LIKE, or query information_schema.tables")),
    }
}

fn like(pattern: &str, name: &str) -> bool {
    let (names, patterns) = (StringArray::from(vec![name]), StringArray::from(vec![pattern]));
    arrow::compute::kernels::comparison::ilike(&names, &patterns).is_ok_and(|matches| matches.value(0))
}

fn rows(columns: impl IntoIterator<Item = (&'static str, ArrayRef)>) -> Result<Answer> {
    Ok(Answer::rows(RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, column)| (name, column, true)),
    )?))
}
