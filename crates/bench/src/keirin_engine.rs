//! Keirin as one of the engines: the library behind the same protocol as the rivals, in a process of
//! its own (`keirin-bench engine keirin`).

use std::io::{self, BufReader};
use std::path::PathBuf;
use std::time::Instant;

use keirin::arrow::array::{Array, AsArray, RecordBatch};
use keirin::arrow::compute::cast;
use keirin::arrow::datatypes::{DataType, UInt64Type};
use keirin::arrow::util::display::{ArrayFormatter, FormatOptions};
use keirin::{Database, Session};
use serde_json::Value;

use crate::protocol::{Reply, Request, Table, serve};

/// Where Keirin's tables may live: in a database directory, in memory, in files; `native-uncached` decodes blocks
/// each time, `parquet-library` decompresses pages by the parquet crate.
pub(crate) const FORMS: [&str; 5] = [NATIVE, UNCACHED, "memory", "parquet", LIBRARY];
pub(crate) const NATIVE: &str = "native";
const UNCACHED: &str = "native-uncached";
const LIBRARY: &str = "parquet-library";

pub(crate) struct Keirin {
    form: String,
    database: Database,
    session: Session,
}

/// Whether tables live in a database directory.
fn is_native(form: &str) -> bool {
    [NATIVE, UNCACHED].contains(&form)
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
        let fields = batches.first().map(|batch| batch.schema().fields().clone()).unwrap_or_default();
        let columns = fields.iter().map(|field| field.name().clone()).collect();
        let mut rows = Vec::new();
        for batch in &batches {
            rows.extend(rows_of(batch)?);
        }
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
    let failed = |error: keirin::arrow::error::ArrowError| error.to_string();
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
    use serde_json::json;

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
    fn an_unknown_form_is_refused() {
        let Err(error) = Keirin::open("tape".into(), 1, PathBuf::new()) else { panic!("it opened") };
        assert_eq!(
            error,
            "no form \"tape\"; there are native, native-uncached, memory, parquet, parquet-library"
        );
    }
}
