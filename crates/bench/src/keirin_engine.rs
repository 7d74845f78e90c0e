//! Keirin as one of the engines: the library behind the same protocol as the rivals, in a process of
//! its own (`keirin-bench engine keirin`).

use std::io::{self, BufReader};
use std::path::PathBuf;
use std::time::Instant;

use keirin::arrow::array::{Array, AsArray, RecordBatch};
use keirin::arrow::compute::{cast, max, max_string, min, min_string, sum};
use keirin::arrow::datatypes::{DataType, Float64Type, UInt64Type};
use keirin::arrow::error::ArrowError;
use keirin::arrow::util::display::{ArrayFormatter, FormatOptions};
use keirin::{Database, Session};
use serde_json::{Value, json};

use crate::protocol::{Reply, Request, Table, serve};

/// Where Keirin's tables may live: in a database directory, in memory, in files; `native-uncached` decodes blocks
/// each time, `native-planned` plans queries each time, `parquet-library` decompresses pages by the parquet crate.
pub(crate) const FORMS: [&str; 6] = [NATIVE, UNCACHED, PLANNED, "memory", "parquet", LIBRARY];
pub(crate) const NATIVE: &str = "native";
const UNCACHED: &str = "native-uncached";
const PLANNED: &str = "native-planned";
const LIBRARY: &str = "parquet-library";
/// Of larger answers a digest is sent.
const ROWS_MAX: usize = 100_000;

pub(crate) struct Keirin {
    form: String,
    database: Database,
    session: Session,
}

/// Whether tables live in a database directory.
fn is_native(form: &str) -> bool {
    [NATIVE, UNCACHED, PLANNED].contains(&form)
}

/// Answers requests on standard input until it ends.
pub(crate) fn run() -> io::Result<()> {
    let mut engine = None;
    serve(BufReader::new(io::stdin()), io::stdout().lock(), |request| match (request, &engine) {
        (Request::Open { form, threads, directory }, _) => {
            engine = Some(Keirin::open(form, threads, directory)?);
            Ok(Reply::Opened { version: env!("CARGO_PKG_VERSION").into() })
        }
        (_, None) => Err("not open".into()),
        (Request::Load { table }, Some(engine)) => engine.load(&table),
        (Request::Run { sql }, Some(engine)) => engine.run(&sql),
        (Request::Drop { name }, Some(engine)) => {
            engine.execute(&format!("DROP {} {name}", engine.kind()))?;
            Ok(Reply::Dropped)
        }
    })
}

impl Keirin {
    pub(crate) fn open(form: String, threads: usize, directory: PathBuf) -> Result<Self, String> {
        if !FORMS.contains(&form.as_str()) {
            return Err(format!("no form {form:?}; there are {}", FORMS.join(", ")));
        }
        let builder = Database::builder().whole_process(true).threads(threads);
        let database = if is_native(&form) { builder.open(&directory) } else { builder.in_memory() };
        let database = database.map_err(|error| error.to_string())?;
        let engine = Self { form, session: database.session(), database };
        if engine.form == LIBRARY {
            engine.execute("SET keirin.parquet_decoder = 'parquet'")?;
        }
        if engine.form == UNCACHED {
            engine.execute("SET keirin.block_cache_limit = 0")?;
        }
        if engine.form == PLANNED {
            engine.execute("SET keirin.plan_cache = off")?;
        }
        Ok(engine)
    }

    fn kind(&self) -> &'static str {
        if is_native(&self.form) || self.form == "memory" { "TABLE" } else { "VIEW" }
    }

    fn load(&self, table: &Table) -> Result<Reply, String> {
        let start = Instant::now();
        let file = table.file.display().to_string().replace('\'', "''");
        let quoted = |column: &String| format!("\"{}\"", column.replace('"', "\"\""));
        let key = match &table.sort[..] {
            sort @ [_, ..] if is_native(&self.form) => {
                format!(" ORDER BY ({})", sort.iter().map(quoted).collect::<Vec<_>>().join(", "))
            }
            _ => String::new(),
        };
        self.execute(&format!("CREATE {} {}{key} AS SELECT * FROM '{file}'", self.kind(), table.name))?;
        let ns = nanoseconds(start);
        let bytes = is_native(&self.form).then(|| self.stored_bytes(&table.name)).transpose()?;
        Ok(Reply::Loaded { ns, bytes })
    }

    /// Puts a table in order, and says what it takes on disk then.
    fn stored_bytes(&self, name: &str) -> Result<u64, String> {
        self.execute(&format!("OPTIMIZE TABLE {name}"))?;
        let sql = format!("SELECT bytes FROM system.tables WHERE name = '{name}'");
        let found = self.execute(&sql)?;
        let found = found.iter().find(|batch| batch.num_rows() > 0).ok_or("no such table")?;
        Ok(found.column(0).as_primitive::<UInt64Type>().value(0))
    }

    pub(crate) fn run(&self, sql: &str) -> Result<Reply, String> {
        let start = Instant::now();
        let batches = self.execute(sql)?;
        let ns = nanoseconds(start);
        let (columns, rows) = if batches.iter().map(RecordBatch::num_rows).sum::<usize>() > ROWS_MAX {
            digest(&batches).map_err(|error| error.to_string())?
        } else {
            let fields = batches.first().map(|batch| batch.schema().fields().clone()).unwrap_or_default();
            let rows = batches.iter().map(rows_of).collect::<Result<Vec<_>, _>>()?;
            (fields.iter().map(|field| field.name().clone()).collect(), rows.concat())
        };
        Ok(Reply::Answer { ns, columns, rows })
    }

    pub(crate) fn execute(&self, sql: &str) -> Result<Vec<RecordBatch>, String> {
        self.database
            .block_on(async { self.session.sql(sql).await?.collect().await })
            .map_err(|error| error.to_string())
    }
}

fn nanoseconds(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// What stands for the rows of a large answer, as `driver.py` says: names, and one row.
fn digest(batches: &[RecordBatch]) -> Result<(Vec<String>, Vec<Vec<Value>>), ArrowError> {
    let row_count: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let (mut names, mut row) = (vec!["rows".to_owned()], vec![json!(row_count)]);
    for (place, field) in batches[0].schema().fields().iter().enumerate() {
        let (mut count, mut total) = (0, 0.0);
        let mut bounds: Option<[Value; 2]> = None;
        for batch in batches {
            let column = batch.column(place);
            count += column.len() - column.logical_null_count();
            let (sum, least, most) = if field.data_type().is_numeric() {
                let column = cast(column, &DataType::Float64)?;
                let column = column.as_primitive::<Float64Type>();
                (sum(column), min(column).map(Value::from), max(column).map(Value::from))
            } else {
                let column = cast(column, &DataType::LargeUtf8)?;
                let column = column.as_string::<i64>();
                let bytes = column.iter().flatten().map(|text| text.len() as f64).sum::<f64>();
                (Some(bytes), min_string(column).map(Value::from), max_string(column).map(Value::from))
            };
            total += sum.unwrap_or(0.0);
            bounds = match (bounds, least, most) {
                (None, Some(least), Some(most)) => Some([least, most]),
                (Some([first, last]), Some(least), Some(most)) => Some([
                    if is_before(&least, &first) { least } else { first },
                    if is_before(&last, &most) { most } else { last },
                ]),
                (bounds, ..) => bounds,
            };
        }
        let [least, most] = bounds.unwrap_or([Value::Null, Value::Null]);
        names.extend(["count", "sum", "least", "greatest"].map(|what| format!("{}: {what}", field.name())));
        row.extend([json!(count), json!(total), least, most]);
    }
    Ok((names, vec![row]))
}

/// Whether a number or a text comes before another one.
fn is_before(value: &Value, other: &Value) -> bool {
    match (value.as_f64(), other.as_f64()) {
        (Some(value), Some(other)) => value < other,
        _ => value.as_str() < other.as_str(),
    }
}

fn rows_of(batch: &RecordBatch) -> Result<Vec<Vec<Value>>, String> {
    let options = FormatOptions::new()
        .with_date_format(Some("%Y-%m-%d"))
        .with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"))
        .with_timestamp_tz_format(Some("%Y-%m-%d %H:%M:%S%.f"));
    let columns = batch.columns().iter().map(|array| cells(array, &options));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    Ok((0..batch.num_rows()).map(|row| columns.iter().map(|column| column[row].clone()).collect()).collect())
}

/// A column's values as JSON: numbers as numbers, bytes as the text they are, everything else as text.
fn cells(array: &dyn Array, options: &FormatOptions) -> Result<Vec<Value>, String> {
    let failed = |error: ArrowError| error.to_string();
    let text;
    let array = match array.data_type() {
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            text = cast(array, &DataType::Utf8).map_err(failed)?;
            text.as_ref()
        }
        _ => array,
    };
    let number = array.data_type().is_numeric();
    let formatter = ArrayFormatter::try_new(array, options).map_err(failed)?;
    let nulls = array.logical_nulls();
    let cell = |row: usize| {
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            return Ok(Value::Null);
        }
        let text = formatter.value(row).try_to_string().map_err(failed)?;
        Ok(match serde_json::from_str::<serde_json::Number>(&text) {
            Ok(value) if number => Value::Number(value),
            _ => Value::String(text),
        })
    };
    (0..array.len()).map(cell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sql: &str, expected: &Value) {
        let engine = Keirin::open("memory".into(), 1, PathBuf::new()).unwrap();
        match engine.run(sql).unwrap() {
            Reply::Answer { rows, .. } => assert_eq!(&json!(rows), expected, "{sql}"),
            reply => panic!("{reply:?}"),
        }
    }

    #[test]
    fn values_arrive_as_what_they_are() {
        check("SELECT 1, 2.5, 'x', NULL, DATE '2020-01-02'", &json!([[1, 2.5, "x", null, "2020-01-02"]]));
        check("SELECT '17', 1e300, 9223372036854775807", &json!([["17", 1e300, i64::MAX]]));
        check("SELECT CAST(1.5 AS DECIMAL(10, 2)), 'NaN'::DOUBLE", &json!([[1.5, "NaN"]]));
        check("SELECT TIMESTAMP '2020-01-02 03:04:05.5'", &json!([["2020-01-02 03:04:05.500"]]));
        check("SELECT arrow_cast('ab', 'Binary')", &json!([["ab"]]));
        check("SELECT 1 WHERE false", &json!([]));
    }

    #[test]
    fn of_many_rows_a_digest_arrives() {
        check(
            "SELECT CASE WHEN value > 0 THEN value END AS v, 'n' || value % 7 AS t FROM range(200000)",
            &json!([[200_000, 199_999, 19_999_900_000.0, 1.0, 199_999.0, 200_000, 400_000.0, "n0", "n6"]]),
        );
    }

    #[test]
    fn an_unknown_form_is_refused() {
        let Err(error) = Keirin::open("tape".into(), 1, PathBuf::new()) else { panic!("it opened") };
        assert_eq!(
            error,
            "no form \"tape\"; there are native, native-uncached, native-planned, memory, parquet, parquet-library"
        );
    }
}
