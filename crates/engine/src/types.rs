//! The SQL names of Arrow's types.

use arrow::datatypes::{DataType, Field, TimeUnit};

use crate::sql::tokens::quoted;

/// Arrow's metadata key for the meaning of a field beyond its layout.
pub(crate) const EXTENSION: &str = "ARROW:extension:name";
pub(crate) const JSON: &str = "arrow.json";
/// A UUID as 16 bytes.
pub(crate) const UUID: &str = "arrow.uuid";
/// A UUID as text, as queries have it: see [`crate::expressions::uuids`].
pub(crate) const UUID_TEXT: &str = "keirin.uuid";
pub(crate) const UUID_BYTES: i32 = 16;

/// The SQL name of an Arrow type: `BIGINT`, `DECIMAL(15, 2)`, `TIMESTAMP(6) WITH TIME ZONE`, `VARCHAR[]`.
pub fn sql_type_name(data_type: &DataType) -> String {
    let digits = |unit: &TimeUnit| match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    };
    let fixed = match data_type {
        DataType::Null => "NULL",
        DataType::Boolean => "BOOLEAN",
        DataType::Int8 => "TINYINT",
        DataType::Int16 => "SMALLINT",
        DataType::Int32 => "INTEGER",
        DataType::Int64 => "BIGINT",
        DataType::UInt8 => "TINYINT UNSIGNED",
        DataType::UInt16 => "SMALLINT UNSIGNED",
        DataType::UInt32 => "INTEGER UNSIGNED",
        DataType::UInt64 => "BIGINT UNSIGNED",
        DataType::Float16 => "HALF",
        DataType::Float32 => "REAL",
        DataType::Float64 => "DOUBLE",
        DataType::Date32 | DataType::Date64 => "DATE",
        DataType::Interval(_) => "INTERVAL",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "VARCHAR",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "VARBINARY",
        DataType::FixedSizeBinary(size) => return format!("BINARY({size})"),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => return format!("DECIMAL({precision}, {scale})"),
        DataType::Time32(unit) | DataType::Time64(unit) => return format!("TIME({})", digits(unit)),
        DataType::Timestamp(unit, None) => return format!("TIMESTAMP({})", digits(unit)),
        DataType::Timestamp(unit, Some(_)) => return format!("TIMESTAMP({}) WITH TIME ZONE", digits(unit)),
        DataType::Duration(unit) => return format!("DURATION({})", digits(unit)),
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field) => {
            return format!("{}[]", sql_field_type(field));
        }
        DataType::FixedSizeList(field, size) => {
            return format!("{}[{size}]", sql_field_type(field));
        }
        DataType::Struct(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|field| format!("{} {}", quoted(field.name()), sql_field_type(field)))
                .collect();
            return format!("STRUCT({})", fields.join(", "));
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) if fields.len() == 2 => {
                let name = |index: usize| sql_field_type(&fields[index]);
                return format!("MAP({}, {})", name(0), name(1));
            }
            _ => "MAP",
        },
        DataType::Dictionary(_, values) => return sql_type_name(values),
        DataType::RunEndEncoded(_, values) => return sql_type_name(values.data_type()),
        DataType::Union(_, _) => "UNION",
    };
    fixed.to_owned()
}

/// The SQL name of a column's type: that of its meaning, if the field's metadata has one.
pub(crate) fn sql_field_type(field: &Field) -> String {
    match field.metadata().get(EXTENSION).map(String::as_str) {
        Some(JSON) => "JSON".to_owned(),
        Some(UUID | UUID_TEXT) => "UUID".to_owned(),
        _ => sql_type_name(field.data_type()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_their_sql_names() {
        let check = |data_type: DataType, expected: &str| assert_eq!(sql_type_name(&data_type), expected);
        check(DataType::Int64, "BIGINT");
        check(DataType::Decimal128(15, 2), "DECIMAL(15, 2)");
        check(DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), "TIMESTAMP(6) WITH TIME ZONE");
        check(DataType::new_list(DataType::Utf8View, true), "VARCHAR[]");
        check(DataType::Dictionary(DataType::Int32.into(), DataType::Utf8.into()), "VARCHAR");
        let fields = vec![Field::new("a", DataType::Int32, true), Field::new("b", DataType::Boolean, true)];
        check(DataType::Struct(fields.into()), "STRUCT(a INTEGER, b BOOLEAN)");
        let fields =
            vec![Field::new("in", DataType::Int32, true), Field::new("A b", DataType::Boolean, true)];
        check(DataType::Struct(fields.into()), "STRUCT(\"in\" INTEGER, \"A b\" BOOLEAN)");
    }
}
