//! Arrow's types as storage's, and back.
//!
//! Storage has fewer: what Arrow has in several layouts (dictionaries, views, large and fixed sizes) is one
//! type there and comes back in one layout. What a value means is never lost; a type that storage cannot hold
//! is an error that names the column and what to cast it to.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, IntervalUnit, Schema, SchemaRef, TimeUnit};
use keirin_storage::schema::{self as stored, Definition, Properties};

use crate::error::{Error, ErrorKind, Result};
use crate::types::{EXTENSION, JSON, UUID, UUID_BYTES, UUID_TEXT, sql_type_name};

/// Metadata of fields that is kept begins with one of these; the rest belongs to the file that it came from.
const KEPT_METADATA: [&str; 2] = ["keirin.", "ARROW:extension:"];
/// Marks text inside of other values that is UUIDs.
const UUIDS_INSIDE: &str = "keirin.uuids";
/// The most digits of a stored decimal.
const DECIMAL_DIGITS_MAX: u8 = 38;

/// The column or child that keeps what `field` has. Its number, and its children's, are 0.
///
/// # Errors
/// `Unsupported` when values of this type cannot be stored.
pub(crate) fn stored_field(field: &Field) -> Result<stored::Field> {
    let data_type = stored_type(field)?;
    let stands_for_type = |value: &String| is_stored_extension(&data_type, value);
    let metadata = field.metadata().iter();
    let properties: Properties = metadata
        .filter(|(key, _)| KEPT_METADATA.iter().any(|kept| key.starts_with(kept)))
        .filter(|(key, value)| *key != EXTENSION || !stands_for_type(value))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let is_nullable = field.is_nullable();
    Ok(stored::Field { is_nullable, properties, ..stored::Field::new(0, field.name(), data_type) })
}

/// Whether the type itself says what the extension's name says.
fn is_stored_extension(data_type: &stored::DataType, name: &str) -> bool {
    matches!((data_type, name), (stored::DataType::Json, JSON) | (stored::DataType::Uuid, UUID | UUID_TEXT))
}

fn stored_type(field: &Field) -> Result<stored::DataType> {
    let extension = field.metadata().get(EXTENSION).map(String::as_str);
    let child = |child: &FieldRef| {
        let child = without_uuid(child);
        stored_field(&child).map_err(|error| inside(field, error)).map(Box::new)
    };
    let refuse = |hint: &str| {
        let (name, found) = (field.name(), sql_type_name(field.data_type()));
        let message = format!("column '{name}' has type {found}, which cannot be stored");
        Err(Error::new(ErrorKind::Unsupported, message).with_hint(hint))
    };
    let of_values = |values: &DataType| {
        let values = Field::new(field.name(), values.clone(), true).with_metadata(field.metadata().clone());
        stored_type(&values)
    };
    Ok(match field.data_type() {
        DataType::Boolean => stored::DataType::Boolean,
        DataType::Int8 => stored::DataType::I8,
        DataType::Int16 => stored::DataType::I16,
        DataType::Int32 => stored::DataType::I32,
        DataType::Int64 => stored::DataType::I64,
        DataType::UInt8 => stored::DataType::U8,
        DataType::UInt16 => stored::DataType::U16,
        DataType::UInt32 => stored::DataType::U32,
        DataType::UInt64 => stored::DataType::U64,
        DataType::Float16 | DataType::Float32 => stored::DataType::F32,
        DataType::Float64 => stored::DataType::F64,
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => {
            if *precision > DECIMAL_DIGITS_MAX {
                let scale = (*scale).clamp(0, DECIMAL_DIGITS_MAX.cast_signed());
                return refuse(&format!("cast it to DECIMAL({DECIMAL_DIGITS_MAX}, {scale}) or DOUBLE"));
            }
            stored::DataType::Decimal { precision: *precision, scale: *scale }
        }
        DataType::Date32 | DataType::Date64 => stored::DataType::Date,
        DataType::Time32(unit) | DataType::Time64(unit) => stored::DataType::Time(stored_unit(*unit)),
        DataType::Timestamp(unit, zone) => {
            stored::DataType::Timestamp(stored_unit(*unit), zone.as_deref().map(str::to_owned))
        }
        DataType::Duration(unit) => stored::DataType::Duration(stored_unit(*unit)),
        DataType::Interval(_) => stored::DataType::Interval,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View if extension == Some(JSON) => {
            stored::DataType::Json
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View if extension == Some(UUID_TEXT) => {
            stored::DataType::Uuid
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => stored::DataType::Text,
        DataType::FixedSizeBinary(UUID_BYTES) if extension == Some(UUID) => stored::DataType::Uuid,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            stored::DataType::Binary
        }
        DataType::List(element)
        | DataType::LargeList(element)
        | DataType::ListView(element)
        | DataType::LargeListView(element)
        | DataType::FixedSizeList(element, _) => stored::DataType::List(child(element)?),
        DataType::Struct(fields) => {
            let fields = fields.iter().map(|field| child(field).map(|field| *field));
            stored::DataType::Struct(fields.collect::<Result<_>>()?)
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) if fields.len() == 2 => {
                stored::DataType::Map(Box::new([*child(&fields[0])?, *child(&fields[1])?]))
            }
            _ => return refuse("cast it to a list of structs"),
        },
        DataType::Dictionary(_, values) => of_values(values)?,
        DataType::RunEndEncoded(_, values) => of_values(values.data_type())?,
        DataType::Null => return refuse("cast it to a type, such as CAST(NULL AS VARCHAR)"),
        DataType::Union(_, _) => return refuse("cast it to VARCHAR, or select one of its fields"),
    })
}

/// UUIDs inside of other values are stored as the text or the bytes that they are given as, and texts marked.
fn without_uuid(field: &Field) -> Field {
    let mut metadata = field.metadata().clone();
    if metadata.get(EXTENSION).is_some_and(|name| [UUID, UUID_TEXT].contains(&name.as_str()))
        && metadata.remove(EXTENSION).is_some_and(|name| name == UUID_TEXT)
    {
        metadata.insert(UUIDS_INSIDE.to_owned(), String::new());
    }
    field.clone().with_metadata(metadata)
}

/// The error of a child, as one of the column.
fn inside(field: &Field, error: Error) -> Error {
    error.with_detail(format!("it lies in '{}', a {}", field.name(), sql_type_name(field.data_type())))
}

fn stored_unit(unit: TimeUnit) -> stored::TimeUnit {
    match unit {
        TimeUnit::Second => stored::TimeUnit::Second,
        TimeUnit::Millisecond => stored::TimeUnit::Millisecond,
        TimeUnit::Microsecond => stored::TimeUnit::Microsecond,
        TimeUnit::Nanosecond => stored::TimeUnit::Nanosecond,
    }
}

fn arrow_unit(unit: stored::TimeUnit) -> TimeUnit {
    match unit {
        stored::TimeUnit::Second => TimeUnit::Second,
        stored::TimeUnit::Millisecond => TimeUnit::Millisecond,
        stored::TimeUnit::Microsecond => TimeUnit::Microsecond,
        stored::TimeUnit::Nanosecond => TimeUnit::Nanosecond,
    }
}

/// The columns of a table.
pub(crate) fn arrow_schema(definition: &Definition) -> SchemaRef {
    Arc::new(Schema::new(definition.fields.iter().map(arrow_field).collect::<Fields>()))
}

/// A column or child as it is read.
pub(crate) fn arrow_field(field: &stored::Field) -> Field {
    let properties = field.properties.iter();
    let mut metadata: HashMap<String, String> = properties
        .filter(|(key, _)| KEPT_METADATA.iter().any(|kept| key.starts_with(kept)))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if metadata.remove(UUIDS_INSIDE).is_some() {
        metadata.insert(EXTENSION.to_owned(), UUID_TEXT.to_owned());
    }
    match field.data_type {
        stored::DataType::Json => metadata.insert(EXTENSION.to_owned(), JSON.to_owned()),
        stored::DataType::Uuid => metadata.insert(EXTENSION.to_owned(), UUID_TEXT.to_owned()),
        _ => None,
    };
    Field::new(&field.name, arrow_type(&field.data_type), field.is_nullable).with_metadata(metadata)
}

/// The layout in which values are read.
pub(crate) fn arrow_type(data_type: &stored::DataType) -> DataType {
    let child = |field| Arc::new(arrow_field(field));
    match data_type {
        stored::DataType::Boolean => DataType::Boolean,
        stored::DataType::I8 => DataType::Int8,
        stored::DataType::I16 => DataType::Int16,
        stored::DataType::I32 => DataType::Int32,
        stored::DataType::I64 => DataType::Int64,
        stored::DataType::U8 => DataType::UInt8,
        stored::DataType::U16 => DataType::UInt16,
        stored::DataType::U32 => DataType::UInt32,
        stored::DataType::U64 => DataType::UInt64,
        stored::DataType::F32 => DataType::Float32,
        stored::DataType::F64 => DataType::Float64,
        stored::DataType::Decimal { precision, scale } => DataType::Decimal128(*precision, *scale),
        stored::DataType::Date => DataType::Date32,
        stored::DataType::Time(unit) => match arrow_unit(*unit) {
            unit @ (TimeUnit::Second | TimeUnit::Millisecond) => DataType::Time32(unit),
            unit => DataType::Time64(unit),
        },
        stored::DataType::Timestamp(unit, zone) => {
            DataType::Timestamp(arrow_unit(*unit), zone.as_deref().map(Arc::from))
        }
        stored::DataType::Duration(unit) => DataType::Duration(arrow_unit(*unit)),
        stored::DataType::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
        stored::DataType::Text | stored::DataType::Json | stored::DataType::Uuid => DataType::Utf8View,
        stored::DataType::Binary => DataType::BinaryView,
        stored::DataType::List(element) => DataType::List(child(element)),
        stored::DataType::Struct(fields) => DataType::Struct(fields.iter().map(arrow_field).collect()),
        stored::DataType::Map(fields) => {
            let [key, value] = &**fields;
            let entries = DataType::Struct([child(key), child(value)].into_iter().collect());
            DataType::Map(Arc::new(Field::new("entries", entries, false)), false)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stores `given` and reads it as `expected`; that once more stays as it is.
    fn check(given: DataType, expected: &DataType) {
        let field = Field::new("a", given, false);
        let read = arrow_field(&stored_field(&field).unwrap());
        assert_eq!(read, Field::new("a", expected.clone(), false));
        assert_eq!(arrow_field(&stored_field(&read).unwrap()), read);
    }

    #[test]
    fn layouts_become_one_and_meanings_stay() {
        let same = |data_type: DataType| check(data_type.clone(), &data_type);
        same(DataType::Boolean);
        same(DataType::UInt64);
        same(DataType::Float64);
        same(DataType::Date32);
        same(DataType::Time32(TimeUnit::Millisecond));
        same(DataType::Time64(TimeUnit::Nanosecond));
        same(DataType::Timestamp(TimeUnit::Second, Some("Europe/Berlin".into())));
        same(DataType::Timestamp(TimeUnit::Nanosecond, None));
        same(DataType::Duration(TimeUnit::Microsecond));
        same(DataType::Decimal128(38, -3));
        check(DataType::Decimal256(38, 10), &DataType::Decimal128(38, 10));
        check(DataType::Decimal32(9, 2), &DataType::Decimal128(9, 2));
        check(DataType::Date64, &DataType::Date32);
        check(DataType::Float16, &DataType::Float32);
        check(DataType::LargeUtf8, &DataType::Utf8View);
        check(DataType::FixedSizeBinary(16), &DataType::BinaryView);
        check(DataType::Interval(IntervalUnit::DayTime), &DataType::Interval(IntervalUnit::MonthDayNano));
        check(DataType::Dictionary(DataType::Int8.into(), DataType::Utf8.into()), &DataType::Utf8View);
        let texts = |text: DataType| Arc::new(Field::new("item", text, true));
        check(DataType::FixedSizeList(texts(DataType::Utf8), 3), &DataType::List(texts(DataType::Utf8View)));
        let fields = |text: DataType| {
            let fields = vec![Field::new("key", text.clone(), false), Field::new("value", text, true)];
            DataType::Struct(fields.into())
        };
        check(fields(DataType::Utf8), &fields(DataType::Utf8View));
        let map = |name: &str, text: DataType, is_sorted| {
            DataType::Map(Arc::new(Field::new(name, fields(text), false)), is_sorted)
        };
        check(map("key_value", DataType::LargeUtf8, true), &map("entries", DataType::Utf8View, false));
    }

    #[test]
    fn metadata_of_meanings_stays_and_that_of_files_goes() {
        let check = |data_type: DataType, pairs: &[(&str, &str)], expected: &[(&str, &str)]| {
            let owned = |pairs: &[(&str, &str)]| -> HashMap<String, String> {
                pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
            };
            let field = Field::new("a", data_type, true).with_metadata(owned(pairs));
            let stored = stored_field(&field).unwrap();
            assert_eq!(arrow_field(&stored).metadata(), &owned(expected));
            stored.data_type
        };
        let collation = ("keirin.collation", "utf8mb4_bin");
        check(DataType::Utf8, &[collation, ("PARQUET:field_id", "7")], &[collation]);
        let (json, uuid, text) = ([(EXTENSION, JSON)], [(EXTENSION, UUID)], [(EXTENSION, UUID_TEXT)]);
        assert_eq!(check(DataType::Utf8, &json, &json), stored::DataType::Json);
        assert_eq!(check(DataType::FixedSizeBinary(16), &uuid, &text), stored::DataType::Uuid);
        assert_eq!(check(DataType::Utf8, &text, &text), stored::DataType::Uuid);
        assert_eq!(check(DataType::Binary, &uuid, &uuid), stored::DataType::Binary);
    }

    #[test]
    fn what_cannot_be_stored_names_the_column_and_the_cast() {
        let check = |data_type: DataType, message: &str, hint: &str| {
            let error = stored_field(&Field::new("a", data_type, true)).unwrap_err();
            assert!(error.message().contains(message) && error.hint().unwrap().contains(hint), "{error:?}");
        };
        check(DataType::Null, "column 'a' has type NULL", "CAST(NULL AS VARCHAR)");
        check(DataType::Decimal256(50, 40), "column 'a' has type DECIMAL(50, 40)", "DECIMAL(38, 38)");
        check(DataType::new_list(DataType::Null, true), "column 'item' has type NULL", "CAST");
    }
}
