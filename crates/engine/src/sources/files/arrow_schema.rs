//! Schemas in Arrow's format, of Arrow files and in the footers of Parquet files, checked before Arrow trusts them: of types
//! that it does not know it makes panics. (Arrow's Schema.fbs.)

use arrow::ipc::{
    DateUnit, Endianness, Field, Int, IntervalUnit, Precision, Schema, TimeUnit, Type, UnionMode,
    root_as_message,
};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use parquet::arrow::ARROW_SCHEMA_META_KEY;
use parquet::file::metadata::ParquetMetaData;

type Checked = Result<(), &'static str>;

/// Checks the Arrow schema in a footer, if there is one.
pub(super) fn check_footer(footer: &ParquetMetaData) -> Checked {
    let entries = footer.file_metadata().key_value_metadata().into_iter().flatten();
    let Some(text) =
        entries.filter(|entry| entry.key == ARROW_SCHEMA_META_KEY).find_map(|entry| entry.value.as_ref())
    else {
        return Ok(());
    };
    // What is not even a message is an error of the parquet crate.
    let Ok(bytes) = BASE64_STANDARD.decode(text) else { return Ok(()) };
    let message = if bytes.len() > 8 && bytes[..4] == [0xff; 4] { &bytes[8..] } else { &bytes };
    let message = root_as_message(message);
    match message.ok().and_then(|message| message.header_as_schema()) {
        Some(schema) => check(schema),
        None => Ok(()),
    }
}

/// Checks the types of all columns, and of what is in them.
pub(super) fn check(schema: Schema<'_>) -> Checked {
    let Some(fields) = schema.fields() else { return Err("its schema has no list of columns") };
    if schema.endianness() != Endianness::Little {
        return Err("its numbers are big-endian, which is not supported");
    }
    fields.iter().try_for_each(check_field)
}

fn check_field(field: Field<'_>) -> Checked {
    if let Some(dictionary) = field.dictionary() {
        let Some(index) = dictionary.indexType() else { return Err("a dictionary has codes of no type") };
        check_int(index)?;
    }
    let children: Vec<_> = field.children().into_iter().flatten().collect();
    let children_expected = match field.type_type() {
        Type::List
        | Type::LargeList
        | Type::ListView
        | Type::LargeListView
        | Type::FixedSizeList
        | Type::Map => Some(1),
        Type::RunEndEncoded => Some(2),
        _ => None,
    };
    if children_expected.is_some_and(|expected| children.len() != expected) {
        return Err("a column has another count of columns in it than its type");
    }
    let is_unit = |unit: TimeUnit| unit.variant_name().is_some();
    let is_known = match field.type_type() {
        Type::Int => return field.type_as_int().map_or(Err(MISSING), check_int),
        Type::FloatingPoint => field.type_as_floating_point().map(|float| {
            [Precision::HALF, Precision::SINGLE, Precision::DOUBLE].contains(&float.precision())
        }),
        Type::Date => {
            field.type_as_date().map(|date| [DateUnit::DAY, DateUnit::MILLISECOND].contains(&date.unit()))
        }
        Type::Time => field.type_as_time().map(|time| match time.unit() {
            TimeUnit::SECOND | TimeUnit::MILLISECOND => time.bitWidth() == 32,
            TimeUnit::MICROSECOND | TimeUnit::NANOSECOND => time.bitWidth() == 64,
            _ => false,
        }),
        Type::Timestamp => field.type_as_timestamp().map(|timestamp| is_unit(timestamp.unit())),
        Type::Duration => field.type_as_duration().map(|duration| is_unit(duration.unit())),
        Type::Interval => field.type_as_interval().map(|interval| {
            let units = [IntervalUnit::YEAR_MONTH, IntervalUnit::DAY_TIME, IntervalUnit::MONTH_DAY_NANO];
            units.contains(&interval.unit())
        }),
        Type::Decimal => field.type_as_decimal().map(|decimal| {
            let is_possible =
                u8::try_from(decimal.precision()).is_ok() && i8::try_from(decimal.scale()).is_ok();
            is_possible && [32, 64, 128, 256].contains(&decimal.bitWidth())
        }),
        Type::Union => field.type_as_union().map(|union| {
            let ids: Vec<i32> = union.typeIds().into_iter().flatten().collect();
            let mut different = ids.clone();
            different.sort_unstable();
            different.dedup();
            [UnionMode::Dense, UnionMode::Sparse].contains(&union.mode())
                && (union.typeIds().is_none() && children.len() <= 128
                    || ids.len() == children.len()
                        && different.len() == ids.len()
                        && ids.iter().all(|id| (0..128).contains(id)))
        }),
        Type::FixedSizeBinary => field.type_as_fixed_size_binary().map(|_| true),
        kind => Some(kind != Type::NONE && kind.variant_name().is_some()),
    };
    match is_known {
        Some(true) => children.into_iter().try_for_each(check_field),
        Some(false) => Err("a column has a type that does not exist"),
        None => Err(MISSING),
    }
}

const MISSING: &str = "what belongs to the type of a column is missing";

fn check_int(int: Int<'_>) -> Checked {
    match int.bitWidth() {
        8 | 16 | 32 | 64 => Ok(()),
        _ => Err("a column has whole numbers of a width that does not exist"),
    }
}
