//! A table with columns of every kind of values, and rows for it.

#![allow(clippy::cast_possible_truncation, reason = "test data is cut to size on purpose")]
#![allow(dead_code, reason = "no test needs all of it")]
#![allow(missing_docs, unreachable_pub, reason = "shared by tests alone")]

use keirin_kernels::BitBuffer;
use keirin_storage::column::{Column, Flags, Values};
use keirin_storage::schema::{DataType, Definition, Field};

fn field(name: &str, data_type: DataType) -> Field {
    Field::new(0, name, data_type)
}

/// Columns of every kind of values, with and without nulls.
pub fn definition() -> Definition {
    let list = |element| DataType::List(Box::new(field("element", element)));
    let point = vec![field("x", DataType::F64), field("tags", list(DataType::Text))];
    let map = Box::new([field("key", DataType::Text), field("value", DataType::I32)]);
    let types = vec![
        ("boolean", DataType::Boolean),
        ("i8", DataType::I8),
        ("i16", DataType::I16),
        ("i32", DataType::I32),
        ("i64", DataType::I64),
        ("u8", DataType::U8),
        ("u16", DataType::U16),
        ("u32", DataType::U32),
        ("u64", DataType::U64),
        ("f32", DataType::F32),
        ("f64", DataType::F64),
        ("decimal", DataType::Decimal { precision: 38, scale: 2 }),
        ("uuid", DataType::Uuid),
        ("interval", DataType::Interval),
        ("text", DataType::Text),
        ("binary", DataType::Binary),
        ("list", list(list(DataType::I64))),
        ("struct", DataType::Struct(point)),
        ("map", DataType::Map(map)),
    ];
    Definition::new("main", "t", types)
}

/// A random number for a row and a purpose.
pub fn random(row: usize, purpose: u64) -> u64 {
    let mixed = (row as u64 ^ purpose << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 7
}

/// Rows of a type; every seventh is null.
pub fn column(data_type: &DataType, row_count: usize, purpose: u64) -> Column<'static> {
    let value = |row: usize| random(row, purpose);
    macro_rules! numbers {
        ($variant:ident, $type:ty) => {
            Values::$variant((0..row_count).map(|row| value(row) as $type).collect::<Vec<_>>().into())
        };
    }
    let lengths = |step: u64| -> Vec<i32> {
        let mut end = 0;
        let ends = (0..row_count).map(|row| {
            end += (value(row) % step) as i32;
            end
        });
        std::iter::once(0).chain(ends).collect()
    };
    let children = |count: usize| {
        let fields = data_type.children().iter().zip(purpose + 1..);
        fields.map(|(field, purpose)| column(&field.data_type, count, purpose)).collect::<Vec<_>>()
    };
    let values = match data_type {
        DataType::Boolean => {
            Values::Flags(Flags::Owned((0..row_count).map(|row| value(row) % 3 == 0).collect()))
        }
        DataType::I8 => numbers!(I8, i8),
        DataType::I16 => numbers!(I16, i16),
        DataType::I32 => numbers!(I32, i32),
        DataType::I64 => numbers!(I64, i64),
        DataType::U8 => numbers!(U8, u8),
        DataType::U16 => numbers!(U16, u16),
        DataType::U32 => numbers!(U32, u32),
        DataType::U64 => numbers!(U64, u64),
        DataType::F32 => numbers!(F32, f32),
        DataType::F64 => numbers!(F64, f64),
        DataType::Decimal { .. } | DataType::Uuid | DataType::Interval => numbers!(I128, i128),
        DataType::Text | DataType::Binary => {
            let words = ["", "ein", "größeres ", "Wort"];
            let rows: Vec<&[u8]> =
                (0..row_count).map(|row| words[value(row) as usize % 4].as_bytes()).collect();
            let mut offsets = vec![0];
            offsets.extend(rows.iter().scan(0, |end, row| {
                *end += row.len() as i32;
                Some(*end)
            }));
            Values::Text { offsets: offsets.into(), bytes: rows.concat().into() }
        }
        DataType::List(_) | DataType::Map(_) => {
            let offsets = lengths(4);
            let children = children(offsets[row_count] as usize);
            Values::List { offsets: offsets.into(), children }
        }
        DataType::Struct(_) => Values::Struct { row_count, children: children(row_count) },
        other => unreachable!("{other:?} is not in the table"),
    };
    let validity: BitBuffer = (0..row_count).map(|row| value(row + row_count) % 7 != 0).collect();
    Column { validity: (!purpose.is_multiple_of(3)).then_some(Flags::Owned(validity)), values }
}

/// A value as something to compare.
#[derive(Debug, PartialEq)]
pub enum Value {
    Null,
    Bits(u128),
    Bytes(Vec<u8>),
    Values(Vec<Value>),
}

fn value(column: &Column<'_>, row: usize) -> Value {
    if column.validity_bits().is_some_and(|bits| !bits.get(row)) {
        return Value::Null;
    }
    let range = |offsets: &[i32]| offsets[row] as usize..offsets[row + 1] as usize;
    match &column.values {
        Values::Flags(flags) => Value::Bits(u128::from(flags.as_bits().get(row))),
        Values::I8(values) => Value::Bits(i128::from(values[row]).cast_unsigned()),
        Values::I16(values) => Value::Bits(i128::from(values[row]).cast_unsigned()),
        Values::I32(values) => Value::Bits(i128::from(values[row]).cast_unsigned()),
        Values::I64(values) => Value::Bits(i128::from(values[row]).cast_unsigned()),
        Values::I128(values) => Value::Bits(values[row].cast_unsigned()),
        Values::U8(values) => Value::Bits(u128::from(values[row])),
        Values::U16(values) => Value::Bits(u128::from(values[row])),
        Values::U32(values) => Value::Bits(u128::from(values[row])),
        Values::U64(values) => Value::Bits(u128::from(values[row])),
        Values::F32(values) => Value::Bits(u128::from(values[row].to_bits())),
        Values::F64(values) => Value::Bits(u128::from(values[row].to_bits())),
        Values::Text { offsets, bytes } => Value::Bytes(bytes[range(offsets)].to_vec()),
        Values::List { offsets, children } => {
            let rows = range(offsets);
            Value::Values(
                children.iter().flat_map(|child| rows.clone().map(|row| value(child, row))).collect(),
            )
        }
        Values::Struct { children, .. } => {
            Value::Values(children.iter().map(|child| value(child, row)).collect())
        }
    }
}

pub fn rows_of(column: &Column<'_>, rows: impl Iterator<Item = usize>) -> Vec<Value> {
    rows.map(|row| value(column, row)).collect()
}
