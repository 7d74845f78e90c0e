//! `keirin inspect DB[/TABLE[/PART]]`: what a database directory is made of.

use std::path::{Path, PathBuf};

use crate::arguments::InspectArguments;
use crate::console::{Console, Resources};
use crate::error::{Failure, Result};
use crate::render;

/// Width of the longest bar, in characters.
const BAR_WIDTH: usize = 20;

pub(crate) fn run(arguments: &InspectArguments) -> Result<()> {
    let (directory, rest) = split(&arguments.path).ok_or_else(|| {
        let name = arguments.path.display();
        Failure::usage(format!("there is no database '{name}'"))
            .with_hint("a database is a directory; behind it /TABLE, or /TABLE/PART")
    })?;
    let resources = Resources { read_only: true, ..Resources::default() };
    let mut console = Console::open(Some(directory), resources, false)?;
    let table = |name: &str| match name.split_once('.') {
        Some((schema, table)) => (schema.to_owned(), table.to_owned()),
        None => ("main".to_owned(), name.to_owned()),
    };
    let queries = match &rest[..] {
        [] => of_database(),
        [name] => of_table(&table(name)),
        [name, part] => of_part(&table(name), part)?,
        _ => return Err(Failure::usage("inspect takes DB, DB/TABLE or DB/TABLE/PART".to_owned())),
    };
    if let [name, ..] = &rest[..] {
        check_table(&console, &table(name))?;
    }
    for query in queries {
        console.run_text(&query)?;
    }
    if !console.query("SELECT 1 FROM system.damage")?.iter().all(|batch| batch.num_rows() == 0) {
        console.run_text("SELECT \"table\", part, problem FROM system.damage")?;
    }
    console.close()
}

/// Fails when there is no such table, and says which there are.
fn check_table(console: &Console, (schema, name): &(String, String)) -> Result<()> {
    let names = console.query(
        "SELECT string_agg(CASE schema WHEN 'main' THEN name ELSE schema || '.' || name END, ', ' ORDER BY schema, name) \
         FROM system.tables",
    )?;
    let found = console.query(&format!(
        "SELECT 1 FROM system.tables WHERE schema = {} AND name = {}",
        quoted(schema),
        quoted(name)
    ))?;
    if found.iter().any(|batch| batch.num_rows() > 0) {
        return Ok(());
    }
    let names = names.iter().find_map(|batch| render::Cells::new(batch).ok()?.text(0, 0));
    let failure = Failure::command(format!("there is no table '{schema}.{name}'"));
    Err(match names.filter(|names| !names.is_empty()) {
        Some(names) => failure.with_hint(format!("tables are {names}")),
        None => failure.with_hint("the database has no tables"),
    })
}

/// The longest part of the path that is a directory, and the names behind it.
fn split(path: &Path) -> Option<(PathBuf, Vec<String>)> {
    let mut names = Vec::new();
    let mut directory = path;
    while !directory.join("KEIRIN").is_file() {
        names.insert(0, directory.file_name()?.to_str()?.to_owned());
        directory = directory.parent()?;
    }
    Some((directory.to_owned(), names))
}

fn of_database() -> Vec<String> {
    let (size, bar) = (size("t.bytes"), bar("t.bytes"));
    vec![format!(
        "SELECT t.schema, t.name, t.rows, {size}, {bar}, round(c.value_bytes / c.bytes, 1) AS ratio, parts, \
         partitioned_by, sorted_by, comment FROM system.tables AS t LEFT JOIN (\
         SELECT schema, \"table\", sum(value_bytes) AS value_bytes, nullif(CAST(sum(bytes) AS DOUBLE), 0) AS bytes \
         FROM system.columns GROUP BY 1, 2) AS c ON c.schema = t.schema AND c.\"table\" = t.name \
         ORDER BY t.schema, t.name"
    )]
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// SQL for a bar in proportion to `bytes`.
fn bar(bytes: &str) -> String {
    format!(
        "repeat('█', CAST(round({BAR_WIDTH}.0 * {bytes} / greatest(max({bytes}) OVER (), 1)) AS BIGINT)) AS share"
    )
}

/// SQL for a readable count of bytes.
fn size(bytes: &str) -> String {
    let unit = |name: &str, unit: u64| {
        format!(
            "WHEN {bytes} >= {unit} THEN CAST(round({bytes} / {unit}.0, 1) AS DECIMAL(9, 1)) || ' {name}'"
        )
    };
    let units = [unit("GB", 1 << 30), unit("MB", 1 << 20), unit("KB", 1 << 10)].join(" ");
    format!("CASE {units} ELSE {bytes} || ' B' END AS size")
}

/// SQL for the compression ratio.
fn ratio(values: &str, bytes: &str) -> String {
    format!("round({values} / nullif(CAST({bytes} AS DOUBLE), 0), 1) AS ratio")
}

fn of_table((schema, table): &(String, String)) -> Vec<String> {
    let (schema_text, table_text) = (quoted(schema), quoted(table));
    let name = quoted(&format!("{schema}.{table}"));
    let of_it = format!("schema = {schema_text} AND \"table\" = {table_text}");
    let (size_of_part, bar_of_part) = (size("bytes"), bar("bytes"));
    let (size, bar, ratio) = (size("c.bytes"), bar("c.bytes"), ratio("c.value_bytes", "c.bytes"));
    vec![
        format!(
            "SELECT part, partition, rows, deleted_rows, {size_of_part}, {bar_of_part}, file FROM system.parts \
             WHERE {of_it} ORDER BY part"
        ),
        format!(
            "SELECT c.\"column\", type, codec, {size}, {bar}, {ratio}, made_of AS first_block \
             FROM system.columns AS c LEFT JOIN inspect({name}) AS b ON c.\"column\" = b.\"column\" \
             WHERE {of_it} ORDER BY position"
        ),
    ]
}

fn of_part((schema, table): &(String, String), part: &str) -> Result<Vec<String>> {
    let part: u64 =
        part.parse().map_err(|_| Failure::usage(format!("'{part}' is not the number of a part")))?;
    let name = quoted(&format!("{schema}.{table}"));
    let (size, bar, ratio) = (size("bytes"), bar("bytes"), ratio("value_bytes", "bytes"));
    Ok(vec![format!(
        "SELECT \"column\", block, rows, {size}, {bar}, {ratio}, made_of FROM inspect({name}, {part})"
    )])
}
