//! `keirin inspect DB[/TABLE[/PART]]`: what a database directory is made of.

use std::path::{Path, PathBuf};

use crate::arguments::InspectArguments;
use crate::console::{Console, Resources};
use crate::error::{Failure, Result};

/// Characters of the longest bar.
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
        [] => vec![of_database()],
        [name] => of_table(&table(name)),
        [name, part] => vec![of_part(&table(name), part)?],
        _ => return Err(Failure::usage("inspect takes DB, DB/TABLE or DB/TABLE/PART".to_owned())),
    };
    for query in queries {
        console.run_text(&query)?;
    }
    console.close()
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

fn of_database() -> String {
    let bar = bar("bytes");
    format!(
        "SELECT schema, name, rows, bytes, {bar}, parts, sorted_by, comment FROM system.tables \
         ORDER BY schema, name"
    )
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A bar as long as `bytes` are many, beside the most.
fn bar(bytes: &str) -> String {
    format!(
        "repeat('█', CAST(round({BAR_WIDTH}.0 * {bytes} / greatest(max({bytes}) OVER (), 1)) AS BIGINT)) AS share"
    )
}

fn of_table((schema, table): &(String, String)) -> Vec<String> {
    let (schema_text, table_text) = (quoted(schema), quoted(table));
    let name = quoted(&format!("{schema}.{table}"));
    let of_it = format!("schema = {schema_text} AND \"table\" = {table_text}");
    let bar = bar("bytes");
    vec![
        format!(
            "SELECT part, rows, deleted_rows, bytes, {bar}, file FROM system.parts WHERE {of_it} ORDER BY part"
        ),
        format!(
            "SELECT c.\"column\", type, c.bytes, {}, made_of AS first_block FROM system.columns AS c \
             LEFT JOIN inspect({name}) AS b ON c.\"column\" = b.\"column\" WHERE {of_it} ORDER BY position",
            bar.replace("bytes", "c.bytes")
        ),
    ]
}

fn of_part((schema, table): &(String, String), part: &str) -> Result<String> {
    let part: u64 =
        part.parse().map_err(|_| Failure::usage(format!("'{part}' is not the number of a part")))?;
    let name = quoted(&format!("{schema}.{table}"));
    Ok(format!("SELECT * FROM inspect({name}, {part})"))
}
