//! One schema for several files: columns by name, in the order of first appearance, types widened.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, TimeUnit};

use super::paths::DataFile;
use crate::error::{Error, ErrorKind, Result};

/// The schema with the columns of all files. A column that a file lacks is NULL there; with `same_columns`
/// that is an error.
///
/// # Errors
/// [`ErrorKind::Data`] when two files have types for a column that no type can hold both of; the error names
/// both.
pub(crate) fn merge(files: &[DataFile], schemas: &[Arc<Schema>], same_columns: bool) -> Result<Schema> {
    for (schema, file) in schemas.iter().zip(files) {
        let mut names = std::collections::HashSet::new();
        if let Some(field) = schema.fields().iter().find(|field| !names.insert(field.name())) {
            let message = format!("file '{}' has two columns named '{}'", file.name, field.name());
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
    }
    let mut merged: Vec<FieldRef> = schemas[0].fields().iter().cloned().collect();
    for (index, schema) in schemas.iter().enumerate().skip(1) {
        if Arc::ptr_eq(schema, &schemas[0]) || schema == &schemas[0] {
            continue;
        }
        if same_columns {
            check_same_columns(files, &schemas[0], schema, index)?;
        }
        for field in &mut merged {
            let Some((_, other)) = schema.column_with_name(field.name()) else {
                if !field.is_nullable() {
                    *field = Arc::new(field.as_ref().clone().with_nullable(true));
                }
                continue;
            };
            *field = Arc::new(unify_fields(field, other).ok_or_else(|| {
                let owner = schemas[..index]
                    .iter()
                    .position(|schema| schema.column_with_name(field.name()).is_some())
                    .unwrap_or(0);
                Error::new(
                    ErrorKind::Data,
                    format!("column '{}' has a different type in each file", field.name()),
                )
                .with_detail(format!(
                    "it is {} in '{}' but {} in '{}'",
                    field.data_type(),
                    files[owner].name,
                    other.data_type(),
                    files[index].name
                ))
            })?);
        }
        for other in schema.fields() {
            if !merged.iter().any(|field| field.name() == other.name()) {
                merged.push(Arc::new(other.as_ref().clone().with_nullable(true)));
            }
        }
    }
    Ok(Schema::new(merged))
}

fn check_same_columns(files: &[DataFile], first: &Schema, schema: &Schema, index: usize) -> Result<()> {
    let lacking = |of: &Schema, by: &Schema| {
        of.fields()
            .iter()
            .find(|field| by.column_with_name(field.name()).is_none())
            .map(|field| field.name().clone())
    };
    let (column, with, without) = match (lacking(first, schema), lacking(schema, first)) {
        (Some(column), _) => (column, 0, index),
        (None, Some(column)) => (column, index, 0),
        (None, None) => return Ok(()),
    };
    Err(Error::new(ErrorKind::Data, "the files have different columns")
        .with_detail(format!(
            "'{}' has column '{column}', '{}' does not",
            files[with].name, files[without].name
        ))
        .with_hint("union_by_name = true fills missing columns with NULL"))
}

fn unify_fields(a: &Field, b: &Field) -> Option<Field> {
    let data_type = unify(a.data_type(), b.data_type())?;
    Some(
        Field::new(a.name(), data_type, a.is_nullable() || b.is_nullable())
            .with_metadata(a.metadata().clone()),
    )
}

/// The narrowest type that holds the values of both; `None` if only text would.
pub(crate) fn unify(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType::{
        Date32, Date64, Decimal128, Decimal256, Dictionary, FixedSizeList, Float64, LargeList, List, Null,
        Struct, Timestamp, Utf8, Utf8View,
    };
    if a == b {
        return Some(a.clone());
    }
    Some(match (a, b) {
        (Null, other) | (other, Null) => other.clone(),
        (Dictionary(_, a), b) => unify(a, b)?,
        (a, Dictionary(_, b)) => unify(a, b)?,
        (a, b) if is_text(a) && is_text(b) => {
            if *a == Utf8View || *b == Utf8View {
                Utf8View
            } else if *a == Utf8 && *b == Utf8 {
                Utf8
            } else {
                DataType::LargeUtf8
            }
        }
        (a, b) if is_binary(a) && is_binary(b) => {
            if *a == DataType::BinaryView || *b == DataType::BinaryView {
                DataType::BinaryView
            } else {
                DataType::LargeBinary
            }
        }
        (a, b) if a.is_integer() && b.is_integer() => {
            match (a.is_signed_integer(), b.is_signed_integer()) {
                (true, true) | (false, false) if a.primitive_width() > b.primitive_width() => a.clone(),
                (true, true) | (false, false) => b.clone(),
                // A signed type of double width holds an unsigned one; there is no integer type beyond 64
                // bits.
                (true, false) => signed_of_width(a.primitive_width()?.max(2 * b.primitive_width()?)),
                (false, true) => signed_of_width(b.primitive_width()?.max(2 * a.primitive_width()?)),
            }
        }
        (a, b) if a.is_numeric() && b.is_numeric() && (a.is_floating() || b.is_floating()) => Float64,
        (Decimal128(p1, s1) | Decimal256(p1, s1), Decimal128(p2, s2) | Decimal256(p2, s2)) => {
            decimal(whole(*p1, *s1).max(whole(*p2, *s2)), (*s1).max(*s2))
        }
        (Decimal128(p, s) | Decimal256(p, s), other) | (other, Decimal128(p, s) | Decimal256(p, s))
            if other.is_integer() =>
        {
            // 64-bit integers have at most 20 digits.
            decimal(whole(*p, *s).max(20), (*s).max(0))
        }
        (Date32, Date64) | (Date64, Date32) => Date64,
        (Date32 | Date64, Timestamp(unit, zone)) | (Timestamp(unit, zone), Date32 | Date64) => {
            Timestamp(*unit, zone.clone())
        }
        (Timestamp(unit_a, zone_a), Timestamp(unit_b, zone_b)) if zone_a.is_some() == zone_b.is_some() => {
            let unit = if fineness(*unit_a) >= fineness(*unit_b) { unit_a } else { unit_b };
            Timestamp(*unit, if zone_a == zone_b { zone_a.clone() } else { Some("UTC".into()) })
        }
        (List(a) | LargeList(a) | FixedSizeList(a, _), List(b) | LargeList(b) | FixedSizeList(b, _)) => {
            List(Arc::new(unify_fields(a, b)?))
        }
        (Struct(a), Struct(b)) => Struct(unify_structs(a, b)?),
        _ => return None,
    })
}

fn unify_structs(a: &Fields, b: &Fields) -> Option<Fields> {
    let mut fields: Vec<FieldRef> = Vec::with_capacity(a.len());
    for field in a {
        fields.push(Arc::new(match b.find(field.name()) {
            Some((_, other)) => unify_fields(field, other)?,
            None => field.as_ref().clone().with_nullable(true),
        }));
    }
    for other in b.iter().filter(|other| a.find(other.name()).is_none()) {
        fields.push(Arc::new(other.as_ref().clone().with_nullable(true)));
    }
    Some(fields.into())
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn is_binary(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_)
    )
}

fn signed_of_width(bytes: usize) -> DataType {
    match bytes {
        2 => DataType::Int16,
        4 => DataType::Int32,
        8 => DataType::Int64,
        _ => DataType::Decimal128(20, 0),
    }
}

/// The digits before the decimal point.
fn whole(precision: u8, scale: i8) -> u8 {
    precision.saturating_add_signed(scale.saturating_neg())
}

fn decimal(whole: u8, scale: i8) -> DataType {
    let precision = whole.saturating_add_signed(scale).min(76);
    if precision <= 38 {
        DataType::Decimal128(precision, scale)
    } else {
        DataType::Decimal256(precision, scale)
    }
}

fn fineness(unit: TimeUnit) -> u8 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 1,
        TimeUnit::Microsecond => 2,
        TimeUnit::Nanosecond => 3,
    }
}

#[cfg(test)]
mod tests {
    use DataType::*;

    use super::*;

    #[test]
    fn types_widen_to_hold_both() {
        let check = |a: DataType, b: DataType, expected: Option<DataType>| {
            assert_eq!(unify(&a, &b), expected, "{a} and {b}");
            assert_eq!(unify(&b, &a), expected, "{b} and {a}");
        };
        check(Int32, Int64, Some(Int64));
        check(UInt8, Int8, Some(Int16));
        check(UInt32, Int32, Some(Int64));
        check(UInt64, Int64, Some(Decimal128(20, 0)));
        check(Int64, Float32, Some(Float64));
        check(Null, Utf8, Some(Utf8));
        check(Utf8, Utf8View, Some(Utf8View));
        check(Dictionary(Box::new(Int32), Box::new(Utf8)), Utf8, Some(Utf8));
        check(Decimal128(10, 2), Decimal128(12, 4), Some(Decimal128(12, 4)));
        check(Decimal128(10, 2), Int32, Some(Decimal128(22, 2)));
        check(Date32, Timestamp(TimeUnit::Second, None), Some(Timestamp(TimeUnit::Second, None)));
        check(
            Timestamp(TimeUnit::Second, None),
            Timestamp(TimeUnit::Microsecond, None),
            Some(Timestamp(TimeUnit::Microsecond, None)),
        );
        check(Timestamp(TimeUnit::Second, None), Timestamp(TimeUnit::Second, Some("UTC".into())), None);
        check(Utf8, Int64, None);
        check(Boolean, Int8, None);
        let list = |item: DataType| List(Arc::new(Field::new("item", item, true)));
        check(list(Int32), list(Float64), Some(list(Float64)));
        check(list(Int32), Int32, None);
    }

    #[test]
    fn structs_gain_the_fields_of_both() {
        let a = Struct(vec![Field::new("x", Int32, false)].into());
        let b = Struct(vec![Field::new("y", Utf8, false), Field::new("x", Int64, false)].into());
        let both = Struct(vec![Field::new("x", Int64, false), Field::new("y", Utf8, true)].into());
        assert_eq!(unify(&a, &b), Some(both));
    }
}
