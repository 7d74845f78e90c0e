//! Commands that show the content of the database.

use crate::console::{Console, Flow};
use crate::error::Result;
use crate::render::{escape_controls, type_name};
use crate::shell::completer::name_in_sql;
use crate::shell::names::texts;

/// The user's tables and views: name, and whether it is a view.
fn user_tables(console: &Console) -> Result<Vec<(String, bool)>> {
    let batches = console.query(
        "SELECT table_schema, table_name, table_type FROM information_schema.tables \
         WHERE table_schema NOT IN ('information_schema', 'system') ORDER BY 1, 2",
    )?;
    let rows = batches.iter().flat_map(texts);
    Ok(rows
        .filter_map(|row| match row.as_slice() {
            [schema, name, kind] => {
                let name = name_in_sql(name);
                let default = matches!(schema.as_str(), "public" | "main");
                let name = if default { name } else { format!("{}.{name}", name_in_sql(schema)) };
                Some((name, kind.eq_ignore_ascii_case("view")))
            }
            _ => None,
        })
        .collect())
}

pub(super) fn tables(console: &mut Console, words: &[String]) -> Result<Flow> {
    let pattern = words.first().map(|word| word.trim_matches('%').to_lowercase()).unwrap_or_default();
    let lines: String = user_tables(console)?
        .into_iter()
        .filter(|(name, _)| name.to_lowercase().contains(&pattern))
        .map(|(name, is_view)| {
            format!("{}{}\n", escape_controls(&name), if is_view { " (view)" } else { "" })
        })
        .collect();
    console.print(&lines).map(|()| Flow::Continue)
}

pub(super) fn schema(console: &mut Console, words: &[String]) -> Result<Flow> {
    let tables = match words.first() {
        Some(word) if word.starts_with('"') || word.contains('.') => vec![(word.clone(), false)],
        Some(word) => {
            let wanted = name_in_sql(word);
            let known = user_tables(console)?;
            let same = |name: &str| name == wanted || name.eq_ignore_ascii_case(word);
            vec![known.into_iter().find(|(name, _)| same(name)).unwrap_or((wanted, false))]
        }
        None => user_tables(console)?,
    };
    for (name, is_view) in tables {
        let text = create_statement(console, &name, is_view)?;
        console.print(&text)?;
    }
    Ok(Flow::Continue)
}

/// The statement that would create the table or view; a view's columns follow from its query.
fn create_statement(console: &Console, name: &str, is_view: bool) -> Result<String> {
    let schema = console.schema_of(&format!("SELECT * FROM {name}"))?;
    let columns: Vec<String> = schema
        .fields()
        .iter()
        .map(|field| {
            let not_null = if field.is_nullable() { "" } else { " NOT NULL" };
            let name = name_in_sql(field.name());
            format!("  {} {}{not_null}", escape_controls(&name), type_name(field.data_type()))
        })
        .collect();
    let what = if is_view { "VIEW" } else { "TABLE" };
    Ok(format!("CREATE {what} {} (\n{}\n);\n", escape_controls(name), columns.join(",\n")))
}
