//! Parts give back what was written, whatever the type, the selection and the size of the pieces.

#![allow(clippy::cast_possible_truncation, reason = "test data is cut to size on purpose")]

use std::sync::Arc;

use keirin_codecs::Goal;
use keirin_codecs::blocks::Codec;
use keirin_kernels::{BitBuffer, Bits, Level, Selection};
use keirin_storage::column::{Column, Flags, Values};
use keirin_storage::io::Disk;
use keirin_storage::part::{ColumnCodec, STRIPE_ROWS, WriteOptions};
use keirin_storage::schema::{DataType, Definition, Field};
use keirin_storage::{Access, Database, DeletionVector, Error, Options};

fn field(name: &str, data_type: DataType) -> Field {
    Field::new(0, name, data_type)
}

/// Columns of every kind of values, with and without nulls.
fn definition() -> Definition {
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
fn random(row: usize, purpose: u64) -> u64 {
    let mixed = (row as u64 ^ purpose << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 7
}

/// Rows of a type; every seventh is null.
fn column(data_type: &DataType, row_count: usize, purpose: u64) -> Column<'static> {
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
enum Value {
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

fn rows_of(column: &Column<'_>, rows: impl Iterator<Item = usize>) -> Vec<Value> {
    rows.map(|row| value(column, row)).collect()
}

/// Writes rows in pieces and reads them back by every kind of selection.
fn check(row_count: usize, piece: usize, codec: ColumnCodec) {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = Arc::new(Disk::create(directory.path()).expect("a directory"));
    let database = Database::open(disk, Access::Write, Options::default()).expect("a new database");
    let definition = definition();
    let columns: Vec<Column<'_>> = definition
        .fields
        .iter()
        .zip(0..)
        .map(|(field, index)| column(&field.data_type, row_count, index * 10))
        .collect();

    let mut transaction = database.begin().expect("nobody else");
    let table = transaction.create_table(definition.clone()).expect("a new table");
    let options = WriteOptions { codecs: vec![codec; columns.len()], is_sorted: false };
    let mut writer = transaction.write_part(table, options).expect("a new part");
    for first in (0..row_count).step_by(piece) {
        let rows = first..row_count.min(first + piece);
        let piece: Vec<_> = columns.iter().map(|column| column.slice(rows.clone())).collect();
        writer.push(&piece).expect("rows of the table");
    }
    assert_eq!(writer.row_count(), row_count as u64);
    let part = writer.finish().expect("room on the disk");
    transaction.add_part(table, part).expect("a new part");
    transaction.commit().expect("nobody else");

    let snapshot = database.snapshot();
    let table = snapshot.table_named("main", "t").expect("it was committed");
    assert_eq!(table.row_count(), row_count as u64);
    let part = snapshot.open_part(table, table.parts()[0]).expect("it was committed");
    assert_eq!(part.stripe_count(), row_count.div_ceil(STRIPE_ROWS));
    for (index, column) in columns.iter().enumerate() {
        let name = &definition.fields[index].name;
        for stripe in 0..part.stripe_count() {
            let rows = part.stripe(stripe).start as usize..part.stripe(stripe).end as usize;
            let all = part.read(index, stripe, Selection::All).expect("whole");
            let expected = rows_of(column, rows.clone());
            assert_eq!(rows_of(&all, 0..rows.len()), expected, "{name} {codec:?}");
            let nulls = expected.iter().filter(|value| **value == Value::Null).count();
            assert_eq!(part.statistics(index, stripe).nulls as usize, nulls, "{name}");

            let some: Vec<u32> = (0..rows.len() as u32).filter(|row| row % 5 == 2).collect();
            let selected = part.read(index, stripe, Selection::Rows(&some)).expect("whole");
            let expected = rows_of(column, some.iter().map(|row| rows.start + *row as usize));
            assert_eq!(rows_of(&selected, 0..some.len()), expected, "{name} {codec:?}");
            let bits: BitBuffer = (0..rows.len()).map(|row| row % 5 == 2).collect();
            let selected = part.read(index, stripe, Selection::Bits(bits.as_bits())).expect("whole");
            assert_eq!(rows_of(&selected, 0..some.len()), expected, "{name} {codec:?}");
        }
    }
    assert_eq!(database.check(), []);
}

#[test]
fn every_type_comes_back() {
    for row_count in [1, 63, 1000] {
        check(row_count, row_count, ColumnCodec::default());
    }
    for goal in Goal::ALL {
        check(2000, 777, ColumnCodec::Auto(goal));
    }
    for codec in [Codec::None, Codec::Lz4, Codec::Snappy, Codec::Zstd(1)] {
        check(2000, 2000, ColumnCodec::Raw(codec));
    }
}

#[test]
fn rows_are_cut_into_stripes() {
    check(STRIPE_ROWS + 3, 50_000, ColumnCodec::Auto(Goal::Fastest));
}

fn numbers(values: &[i64]) -> Column<'_> {
    Column { validity: None, values: Values::I64(values.into()) }
}

#[test]
fn what_does_not_fit_the_table_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = Arc::new(Disk::create(directory.path()).expect("a directory"));
    let database = Database::open(disk, Access::Write, Options::default()).expect("a new database");
    let mut definition = Definition::new("main", "t", vec![("a", DataType::I64), ("b", DataType::Text)]);
    definition.fields[0].is_nullable = false;
    let mut transaction = database.begin().expect("nobody else");
    let table = transaction.create_table(definition.clone()).expect("a new table");
    let again = transaction.create_table(definition).unwrap_err().to_string();
    assert!(again.contains("there is a table 'main.t' already"), "{again}");
    let text = |offsets: &'static [i32], bytes: &'static [u8]| Column {
        validity: None,
        values: Values::Text { offsets: offsets.into(), bytes: bytes.into() },
    };
    let mut refused = |columns: &[Column<'_>], expected: &str| {
        let mut writer = transaction.write_part(table, WriteOptions::default()).expect("a new part");
        let error = writer.push(columns).and_then(|()| writer.finish()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    refused(&[numbers(&[1])], "1 columns");
    refused(&[numbers(&[1]), numbers(&[1])], "another type");
    refused(&[numbers(&[1, 2]), text(&[0, 1], b"a")], "different lengths");
    refused(&[numbers(&[1]), text(&[0, 1], b"\xff")], "not UTF-8");
    refused(&[numbers(&[1]), text(&[1, 0], b"a")], "do not ascend");
    refused(&[numbers(&[]), text(&[0], b"")], "without rows");
    let null = Column { validity: Some(Flags::Borrowed(Bits::new(&[0], 0, 1))), ..numbers(&[1]) };
    refused(&[null, text(&[0, 1], b"a")], "must not have any");
}

#[test]
fn deleted_rows_and_old_versions_are_kept_apart() {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = Arc::new(Disk::create(directory.path()).expect("a directory"));
    let database = Database::open(disk, Access::Write, Options::default()).expect("a new database");
    let level = Level::best();
    let mut transaction = database.begin().expect("nobody else");
    let table =
        transaction.create_table(Definition::new("main", "t", vec![("a", DataType::I64)])).expect("new");
    let mut writer = transaction.write_part(table, WriteOptions::default()).expect("a new part");
    writer.push(&[numbers(&[1, 2, 3])]).expect("rows");
    let part = writer.finish().expect("room");
    let number = part.number;
    transaction.add_part(table, part).expect("new");
    let first = transaction.commit().expect("nobody else");

    let delete = |rows: &[usize]| {
        let mut vector = DeletionVector::default();
        vector.delete(level, 0, (0..3).map(|row| rows.contains(&row)).collect::<BitBuffer>().as_bits());
        let mut transaction = database.begin().expect("nobody else");
        transaction.delete_rows(table, number, &vector).expect("rows");
        transaction
    };
    let (one, other) = (delete(&[0]), delete(&[1]));
    one.commit().expect("nobody else");
    let conflict = other.commit().unwrap_err();
    assert!(matches!(conflict, Error::Conflict { .. }), "{conflict}");
    let snapshot = database.snapshot();
    assert_eq!(snapshot.table(table).expect("there").row_count(), 2);
    let old = database.as_of_version(first).expect("there");
    assert_eq!(old.table(table).expect("there").row_count(), 3);
    assert_eq!(database.as_of_time(old.time()).expect("there").version(), first);
    // Without rows there is no part.
    delete(&[1, 2]).commit().expect("nobody else");
    assert_eq!(database.snapshot().table(table).expect("there").parts().len(), 0);
    assert!(matches!(database.as_of_version(9), Err(Error::NoVersion { oldest: 0, newest: 3, .. })));
}

#[test]
fn one_writes_while_others_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let open = |access| {
        let disk = Arc::new(Disk::open(directory.path()));
        Database::open(disk, access, Options { checkpoint_every: 3, ..Options::default() })
    };
    assert!(matches!(open(Access::Read), Err(Error::NotADatabase)));
    let writer = open(Access::Write).expect("an empty directory");
    assert!(matches!(open(Access::Write), Err(Error::Locked)));
    let reader = open(Access::Read).expect("a database");
    assert!(matches!(reader.begin(), Err(Error::ReadOnly)));
    for round in 1..=10 {
        let mut transaction = writer.begin().expect("nobody else");
        transaction.set_property("round", Some(&round.to_string())).expect("always");
        transaction.commit().expect("nobody else");
        assert_eq!(reader.snapshot().version(), round - 1);
        reader.refresh().expect("whole");
        assert_eq!(reader.snapshot().version(), round);
        assert_eq!(reader.snapshot().properties()["round"], round.to_string());
    }
    drop(writer);
    let again = open(Access::Write).expect("nobody has it");
    assert_eq!(again.snapshot().version(), 10);
    drop(again);
    std::fs::write(directory.path().join("KEIRIN"), "keirin database, format 2\n").expect("room");
    assert!(matches!(open(Access::Write), Err(Error::Newer { found: 2, .. })));
    let other = tempfile::tempdir().expect("a directory");
    std::fs::write(other.path().join("data.csv"), "a").expect("room");
    let disk = Arc::new(Disk::open(other.path()));
    let opened = Database::open(disk, Access::Write, Options::default());
    assert!(matches!(opened, Err(Error::NotADatabase)));
    assert_eq!(std::fs::read_dir(other.path()).expect("there").count(), 1, "nothing was made in it");
}
