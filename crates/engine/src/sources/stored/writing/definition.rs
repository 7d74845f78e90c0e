//! What SQL says of a table, as storage keeps it, and back as SQL.

use arrow::datatypes::Schema;
use datafusion::sql::sqlparser::ast::{Expr, OrderByExpr};
use keirin_storage::part::ColumnCodec;
use keirin_storage::schema::{DataType, Definition, Field, Properties, SortKey};

use super::super::{arrow_type, stored_field};
use super::partitions::PARTITION;
use crate::bind::relations::normalized;
use crate::error::{Error, ErrorKind, Result};
use crate::sql::text::nearest;
use crate::sql::tokens::quoted;
use crate::types::sql_type_name;

/// What a column or table is for, in words.
pub(crate) const COMMENT: &str = "comment";
/// The SQL of a column's default.
pub(crate) const DEFAULT: &str = "default";
/// What CODEC(...) says of a column.
pub(crate) const CODEC: &str = "codec";
/// How text is compared; queries see it too.
pub(crate) const COLLATION: &str = "keirin.collation";

/// The definition of a table with these columns, each with properties of its own.
pub(crate) fn define(
    schema_name: &str,
    name: &str,
    schema: &Schema,
    properties: &[Properties],
) -> Result<Definition> {
    let fields = schema.fields().iter().map(|field| stored_field(field)).collect::<Result<Vec<_>>>();
    let fields = fields.map_err(|error| in_table(error, name))?;
    let types = fields.iter().map(|field| (field.name.as_str(), field.data_type.clone()));
    let mut definition = Definition::new(schema_name, name, types.collect());
    for (index, (numbered, field)) in definition.fields.iter_mut().zip(&fields).enumerate() {
        numbered.is_nullable = field.is_nullable;
        numbered.properties.clone_from(&field.properties);
        numbered.properties.extend(properties.get(index).cloned().unwrap_or_default());
    }
    for field in &definition.fields {
        check_codec(field)?;
    }
    definition.check()?;
    Ok(definition)
}

/// `field` numbered as the next one of a table.
pub(crate) fn number_next(definition: &mut Definition, mut field: Field) -> Field {
    let types = vec![(field.name.as_str(), field.data_type.clone())];
    let alone = Definition::new("", "", types);
    field.data_type = alone.fields[0].data_type.clone();
    shift(&mut field, definition.next_field);
    definition.next_field += alone.next_field;
    field
}

fn shift(field: &mut Field, by: u32) {
    field.id += by;
    match &mut field.data_type {
        DataType::List(element) => shift(element, by),
        DataType::Struct(fields) => fields.iter_mut().for_each(|field| shift(field, by)),
        DataType::Map(fields) => fields.iter_mut().for_each(|field| shift(field, by)),
        _ => {}
    }
}

/// The error, as one of a table.
fn in_table(error: Error, table: &str) -> Error {
    if error.detail().is_some() { error } else { error.with_detail(format!("in table '{table}'")) }
}

/// The keys that ORDER BY names, by which rows are sorted inside parts.
pub(crate) fn sort_keys(definition: &Definition, order_by: &[OrderByExpr]) -> Result<Vec<SortKey>> {
    let key = |order: &OrderByExpr| {
        let Expr::Identifier(column) = &order.expr else {
            let message = format!("a table is ordered by columns, not by {}", order.expr);
            return Err(Error::new(ErrorKind::Unsupported, message)
                .with_hint("add a column with that value, and order by it"));
        };
        let field = field_named(definition, &normalized(column))?;
        if !field.data_type.is_ordered() {
            let shown = sql_type_name(&arrow_type(&field.data_type));
            let message = format!("column '{}' of type {shown} has no order to sort by", field.name);
            return Err(in_table(Error::new(ErrorKind::Invalid, message), &definition.name));
        }
        let is_descending = order.options.asc == Some(false);
        // As DataFusion, which follows PostgreSQL: nulls are the greatest.
        let nulls_first = order.options.nulls_first.unwrap_or(is_descending);
        Ok(SortKey { field: field.id, is_descending, nulls_first })
    };
    order_by.iter().map(key).collect()
}

/// The column of this name.
pub(crate) fn field_named<'a>(definition: &'a Definition, name: &str) -> Result<&'a Field> {
    definition.fields.iter().find(|field| field.name == name).ok_or_else(|| {
        let message = format!("column '{name}' not found in table '{}'", definition.name);
        let error = Error::new(ErrorKind::NotFound, message);
        match nearest(name, definition.fields.iter().map(|field| field.name.as_str())) {
            Some(meant) => error.with_hint(format!("did you mean `{meant}`?")),
            None => error,
        }
    })
}

/// How each column's values become bytes.
pub(crate) fn codecs(definition: &Definition) -> Vec<ColumnCodec> {
    let codec = |field: &Field| {
        let text = field.properties.get(CODEC)?;
        // What a later version could say is not an error here: any codec can be read.
        text.parse().ok()
    };
    definition.fields.iter().map(|field| codec(field).unwrap_or_default()).collect()
}

/// Fails unless the column's codec is one.
pub(crate) fn check_codec(field: &Field) -> Result<()> {
    let Some(text) = field.properties.get(CODEC) else { return Ok(()) };
    text.parse::<ColumnCodec>().map(drop).map_err(|reason| {
        let message = format!("CODEC({text}) of column '{}': {reason}", field.name);
        Error::new(ErrorKind::Invalid, message).with_hint(
            "CODEC(LZ4), CODEC(LZ4HC(9)), CODEC(ZSTD(3)), CODEC(Snappy), CODEC(NONE), CODEC(Delta, ZSTD)",
        )
    })
}

/// The CREATE TABLE that makes such a table.
pub(crate) fn create_table_sql(definition: &Definition) -> String {
    let columns: Vec<String> = definition
        .fields
        .iter()
        .map(|field| {
            let mut text = format!("{} {}", quoted(&field.name), field_type(field));
            if !field.is_nullable {
                text.push_str(" NOT NULL");
            }
            for (key, write) in COLUMN_CLAUSES {
                if let Some(value) = field.properties.get(*key) {
                    text.push_str(&write(value));
                }
            }
            text
        })
        .collect();
    let name = match definition.schema.as_str() {
        crate::sources::catalog::DEFAULT_SCHEMA => quoted(&definition.name),
        schema => format!("{}.{}", quoted(schema), quoted(&definition.name)),
    };
    let mut text = format!("CREATE TABLE {name} (\n    {}\n)", columns.join(",\n    "));
    if let Some(partition) = definition.properties.get(PARTITION) {
        text.push_str(&format!("\nPARTITION BY {partition}"));
    }
    let keys = order_by_sql(definition);
    if !keys.is_empty() {
        text.push_str(&format!("\nORDER BY ({keys})"));
    }
    if let Some(comment) = definition.properties.get(COMMENT) {
        text.push_str(&format!("\nCOMMENT {}", literal(comment)));
    }
    text
}

/// Writes a property of a column.
type WriteClause = fn(&str) -> String;

const COLUMN_CLAUSES: &[(&str, WriteClause)] = &[
    (COLLATION, |collation| format!(" COLLATE {collation}")),
    (DEFAULT, |default| format!(" DEFAULT {default}")),
    (CODEC, |codec| format!(" CODEC({codec})")),
    (COMMENT, |comment| format!(" COMMENT {}", literal(comment))),
];

/// `a DESC, b`: what a table is sorted by.
pub(crate) fn order_by_sql(definition: &Definition) -> String {
    let keys = definition.keys.iter().filter_map(|key| {
        let field = &definition.fields[definition.index_of(key.field)?];
        let direction = if key.is_descending { " DESC" } else { "" };
        let nulls = match (key.is_descending, key.nulls_first) {
            (true, false) => " NULLS LAST",
            (false, true) => " NULLS FIRST",
            _ => "",
        };
        Some(format!("{}{direction}{nulls}", quoted(&field.name)))
    });
    keys.collect::<Vec<_>>().join(", ")
}

/// The SQL name of a column's type.
pub(crate) fn field_type(field: &Field) -> String {
    match &field.data_type {
        DataType::Json => "JSON".to_owned(),
        DataType::Uuid => "UUID".to_owned(),
        data_type => sql_type_name(&arrow_type(data_type)),
    }
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
