//! Parts give back what was written, whatever the type, the selection and the size of the pieces.

#![allow(clippy::cast_possible_truncation, reason = "test data is cut to size on purpose")]

use std::cmp::Ordering;
use std::sync::Arc;

use keirin_codecs::Goal;
use keirin_codecs::blocks::Codec;
use keirin_codecs::strings::Rows;
use keirin_kernels::compare::Comparison;
use keirin_kernels::text::Text as _;
use keirin_kernels::{BitBuffer, Bits, Level, Selection};
use keirin_storage::buffer::Buffer;
use keirin_storage::column::{Column, Flags, Values};
use keirin_storage::io::Disk;
use keirin_storage::part::{
    ColumnCodec, Constant, LengthUnit, PartReader, Predicate, STRIPE_ROWS, Text, Total, WriteOptions,
};
use keirin_storage::schema::{DataType, Definition, SortKey};
use keirin_storage::{Access, Database, DeletionVector, Error, Options};

mod common;

use common::{Value, column, definition, random, rows_of};

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
    let options = WriteOptions { codecs: vec![codec; columns.len()], ..WriteOptions::default() };
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
            if let Values::Text { .. } = column.values {
                check_text(&part, (index, stripe), Selection::All, &all);
                check_text(&part, (index, stripe), Selection::Rows(&some), &selected);
                check_text(&part, (index, stripe), Selection::Bits(bits.as_bits()), &selected);
            }
        }
    }
    assert_eq!(database.check(), []);
}

/// Text as it is stored, and its lengths, against the text.
fn check_text(
    part: &PartReader,
    (column, stripe): (usize, usize),
    selection: Selection<'_>,
    expected: &Column<'_>,
) {
    let level = Level::best();
    let Values::Text { offsets, bytes } = &expected.values else { panic!("{expected:?}") };
    let expected_rows = Rows::new(level, offsets, bytes).expect("rows");
    let rows: Vec<&[u8]> = (0..expected.row_count()).map(|row| expected_rows.row(row)).collect();
    let is_valid = |row: usize| expected.validity_bits().is_none_or(|bits| bits.get(row));
    let stored = part.read_text(column, stripe, selection).expect("whole");
    let (validity, found): (_, Vec<Vec<u8>>) = match &stored {
        Text::Rows(column) => {
            let Values::Text { offsets, bytes } = &column.values else { panic!("{column:?}") };
            let found = Rows::new(level, offsets, bytes).expect("rows");
            let rows = (0..column.row_count()).map(|row| found.row(row).to_vec());
            (column.validity.as_ref(), rows.collect())
        }
        Text::Entries { validity, codes, offsets, bytes } => {
            let entries = Rows::new(level, offsets, bytes).expect("rows");
            (validity.as_ref(), codes.iter().map(|code| entries.row(*code as usize).to_vec()).collect())
        }
    };
    assert_eq!(found, rows);
    assert!(
        (0..rows.len()).all(|row| validity.is_none_or(|flags| flags.as_bits().get(row)) == is_valid(row))
    );
    for unit in [LengthUnit::Bytes, LengthUnit::Characters] {
        // The first reads what was not verified yet where nobody else has read it.
        let lengths = part.read_lengths(column, stripe, selection, unit).expect("whole");
        let Values::I32(values) = &lengths.values else { panic!("{lengths:?}") };
        for (row, text) in rows.iter().enumerate().filter(|(row, _)| is_valid(*row)) {
            let length = match (unit, std::str::from_utf8(text)) {
                (LengthUnit::Characters, Ok(text)) => text.chars().count(),
                (LengthUnit::Characters, Err(_)) => continue,
                (LengthUnit::Bytes, _) => text.len(),
            };
            assert_eq!(values[row], length as i32, "row {row} {unit:?}");
        }
        assert_eq!(values.len(), rows.len());
    }
}

#[test]
fn sums_of_blocks_are_those_of_their_rows() {
    let types = [DataType::I8, DataType::I64, DataType::U32, DataType::F32, DataType::F64];
    let decimal = DataType::Decimal { precision: 38, scale: 2 };
    let types = types.into_iter().chain([decimal, DataType::Text, DataType::Boolean]);
    // With nulls and without.
    let columns: Vec<_> = types
        .flat_map(|data_type| [0, 1].map(|purpose| (data_type.clone(), column(&data_type, 3000, purpose))))
        .collect();
    assert!(columns.iter().any(|(_, column)| column.validity.is_some()));
    for codec in [ColumnCodec::default(), ColumnCodec::Raw(Codec::None), ColumnCodec::Raw(Codec::Lz4)] {
        let (_directory, part) = part_of(&columns, codec);
        for (index, (data_type, column)) in columns.iter().enumerate() {
            // What was added before stays.
            let mut before = Total { integers: -7, ..Total::default() };
            before.floats.push(0.25);
            let mut expected = before.clone();
            let is_value = |row: usize| column.validity.as_ref().is_none_or(|valid| valid.as_bits().get(row));
            let mut add = |values: Vec<i128>| {
                let values = values.into_iter().enumerate().filter(|(row, _)| is_value(*row));
                add(&mut expected, values.map(|(_, value)| value))
            };
            let is_added = match &column.values {
                Values::I8(values) => add(values.iter().map(|value| i128::from(*value)).collect()),
                Values::I64(values) => add(values.iter().map(|value| i128::from(*value)).collect()),
                Values::U32(values) => add(values.iter().map(|value| i128::from(*value)).collect()),
                Values::I128(values) => add(values.to_vec()),
                Values::F32(values) => {
                    let values = values.iter().enumerate().filter(|(row, _)| is_value(*row));
                    expected.floats.extend(values.map(|(_, value)| f64::from(*value)));
                    true
                }
                Values::F64(values) => {
                    let values = values.iter().enumerate().filter(|(row, _)| is_value(*row));
                    expected.floats.extend(values.map(|(_, value)| *value));
                    true
                }
                _ => false,
            };
            let added = is_added.then(|| (0..3000).filter(|row| is_value(*row)).count() as u64);
            for _ in 0..2 {
                let mut found = before.clone();
                let was_added = part.sum(index, 0..1, &mut found).expect("whole");
                assert_eq!((was_added, &found), (added, &expected), "{data_type:?} {codec:?}");
            }
        }
    }
}

/// However many stripes are added at a time; the last has fewer rows.
#[test]
fn sums_of_stripes_are_those_of_each() {
    const STRIPES: usize = 5;
    let rows = (STRIPES - 1) * 65_536 + 777;
    let number = |row: usize| (row * 7919 % 1_000_003) as i64 - 300_000;
    let decimal = |row: usize| if row / 65_536 < 3 { i128::from(number(row)) } else { i128::MAX / 3 };
    let with_null = (0..rows).map(|row| row != 2 * 65_536 + 5).collect::<BitBuffer>();
    let whole = |values| Column { validity: None, values };
    let columns = [
        (DataType::I8, whole(Values::I8((0..rows).map(|row| number(row) as i8).collect::<Vec<_>>().into()))),
        (
            DataType::U16,
            whole(Values::U16((0..rows).map(|row| number(row) as u16).collect::<Vec<_>>().into())),
        ),
        (DataType::I64, whole(Values::I64((0..rows).map(number).collect::<Vec<_>>().into()))),
        (
            DataType::F32,
            whole(Values::F32((0..rows).map(|row| number(row) as f32 / 9.9).collect::<Vec<_>>().into())),
        ),
        (
            DataType::F64,
            whole(Values::F64((0..rows).map(|row| number(row) as f64 / 9.9).collect::<Vec<_>>().into())),
        ),
        (
            DataType::Decimal { precision: 38, scale: 2 },
            whole(Values::I128((0..rows).map(decimal).collect::<Vec<_>>().into())),
        ),
        (
            DataType::I64,
            Column {
                validity: Some(Flags::Owned(with_null.clone())),
                values: Values::I64((0..rows).map(number).collect::<Vec<_>>().into()),
            },
        ),
        (
            DataType::F64,
            Column {
                validity: Some(Flags::Owned(with_null)),
                values: Values::F64((0..rows).map(|row| number(row) as f64 / 9.9).collect::<Vec<_>>().into()),
            },
        ),
    ];
    for codec in [ColumnCodec::default(), ColumnCodec::Raw(Codec::None)] {
        let (_directory, part) = part_of(&columns, codec);
        assert_eq!(part.stripe_count(), STRIPES);
        for (index, (data_type, _)) in columns.iter().enumerate() {
            for start in 0..STRIPES {
                for end in start..=STRIPES {
                    let before = Total { integers: 11, ..Total::default() };
                    let mut expected = before.clone();
                    let mut added = Some(0);
                    for stripe in start..end {
                        let more = part.sum(index, stripe..stripe + 1, &mut expected).expect("whole");
                        added = added.zip(more).map(|(added, more)| added + more);
                    }
                    let mut found = before.clone();
                    let was_added = part.sum(index, start..end, &mut found).expect("whole");
                    let expected = if added.is_some() { expected } else { before };
                    assert_eq!(
                        (was_added, found),
                        (added, expected),
                        "{data_type:?} {start}..{end} {codec:?}"
                    );
                }
            }
        }
    }
}

/// Adds integers, if there is place.
fn add(total: &mut Total, mut values: impl Iterator<Item = i128>) -> bool {
    let sum = values.try_fold(0_i128, i128::checked_add);
    let sum = sum.and_then(|sum| total.integers.checked_add(sum));
    total.integers = sum.unwrap_or(total.integers);
    sum.is_some()
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

/// A part with these columns, each with the codec, opened.
fn part_of(columns: &[(DataType, Column<'_>)], codec: ColumnCodec) -> (tempfile::TempDir, PartReader) {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = Arc::new(Disk::create(directory.path()).expect("a directory"));
    let database = Database::open(disk, Access::Write, Options::default()).expect("a new database");
    let types = columns.iter().map(|(data_type, _)| ("c", data_type.clone())).zip(0..);
    let names: Vec<String> = (0..columns.len()).map(|index| format!("c{index}")).collect();
    let types = types.map(|((_, data_type), index)| (names[index].as_str(), data_type)).collect();
    let mut transaction = database.begin().expect("nobody else");
    let table = transaction.create_table(Definition::new("main", "t", types)).expect("a new table");
    let options = WriteOptions { codecs: vec![codec; columns.len()], ..WriteOptions::default() };
    let mut writer = transaction.write_part(table, options).expect("a new part");
    writer.push(&columns.iter().map(|(_, column)| column.clone()).collect::<Vec<_>>()).expect("rows");
    let part = writer.finish().expect("room on the disk");
    transaction.add_part(table, part).expect("a new part");
    transaction.commit().expect("nobody else");
    let snapshot = database.snapshot();
    let table = snapshot.table(table).expect("it was committed");
    (directory, snapshot.open_part(table, table.parts()[0]).expect("whole"))
}

#[test]
fn predicates_on_encoded_blocks_see_what_rows_have() {
    let row_count = 3000;
    let types = [
        DataType::Boolean,
        DataType::I16,
        DataType::U64,
        DataType::F64,
        DataType::Decimal { precision: 38, scale: 2 },
        DataType::Text,
    ];
    // With nulls and without.
    let columns: Vec<(DataType, Column<'_>)> = types
        .iter()
        .flat_map(|data_type| {
            [0, 1].map(|purpose| (data_type.clone(), column(data_type, row_count, purpose)))
        })
        .collect();
    for codec in [ColumnCodec::default(), ColumnCodec::Raw(Codec::None), ColumnCodec::Delta(Codec::Lz4)] {
        let (_directory, part) = part_of(&columns, codec);
        for (index, (data_type, rows)) in columns.iter().enumerate() {
            let is_valid = |row: usize| rows.validity_bits().is_none_or(|bits| bits.get(row));
            let check = |predicate: Predicate<'_>, expected: &dyn Fn(usize) -> bool| {
                let found = part.filter(index, 0, &predicate).expect("whole").expect("it can be asked");
                let expected: BitBuffer = (0..row_count).map(expected).collect();
                assert_eq!(found, expected, "{data_type:?} {codec:?}");
            };
            check(Predicate::IsNull, &|row| !is_valid(row));
            check(Predicate::IsNotNull, &is_valid);
            let ordering = |row: usize, constant: Constant<'_>| -> Ordering {
                match (&rows.values, constant) {
                    (Values::Flags(flags), Constant::Flag(flag)) => flags.as_bits().get(row).cmp(&flag),
                    (Values::I16(values), Constant::Integer(value)) => i128::from(values[row]).cmp(&value),
                    (Values::U64(values), Constant::Integer(value)) => i128::from(values[row]).cmp(&value),
                    (Values::I128(values), Constant::Integer(value)) => values[row].cmp(&value),
                    (Values::F64(values), Constant::F64(value)) => values[row].total_cmp(&value),
                    (Values::Text { offsets, bytes }, Constant::Text(text)) => {
                        bytes[offsets[row] as usize..offsets[row + 1] as usize].cmp(text)
                    }
                    other => panic!("{other:?}"),
                }
            };
            let constants: &[Constant<'_>] = match &rows.values {
                Values::Flags(_) => &[Constant::Flag(false), Constant::Flag(true)],
                Values::I16(values) => &[-40_000, 0, i128::from(values[5]), 40_000].map(Constant::Integer),
                Values::U64(values) => &[-1, i128::from(values[5]), 1 << 70].map(Constant::Integer),
                Values::I128(values) => &[0, values[5]].map(Constant::Integer),
                Values::F64(values) => &[values[5], f64::NAN, -0.0].map(Constant::F64),
                _ => &[&b""[..], b"ein", b"zz"].map(Constant::Text),
            };
            for constant in constants {
                for comparison in Comparison::ALL {
                    check(Predicate::Compare(comparison, *constant), &|row| {
                        let ordering = ordering(row, *constant);
                        is_valid(row)
                            && match comparison {
                                Comparison::Equal => ordering.is_eq(),
                                Comparison::NotEqual => ordering.is_ne(),
                                Comparison::Less => ordering.is_lt(),
                                Comparison::LessEqual => ordering.is_le(),
                                Comparison::Greater => ordering.is_gt(),
                                Comparison::GreaterEqual => ordering.is_ge(),
                            }
                    });
                }
                check(Predicate::Between(constants[0], *constant), &|row| {
                    let (low, high) = (ordering(row, constants[0]), ordering(row, *constant));
                    is_valid(row) && low.is_ge() && high.is_le()
                });
            }
            if let Values::Text { offsets, .. } = &rows.values {
                let is_short =
                    |rows: Rows<'_>| rows.offsets().windows(2).map(|ends| ends[1] - ends[0] < 4).collect();
                check(Predicate::Text(&is_short), &|row| {
                    is_valid(row) && offsets[row + 1] - offsets[row] < 4
                });
            } else {
                let text = Predicate::Compare(Comparison::Equal, Constant::Text(b""));
                assert_eq!(part.filter(index, 0, &text).expect("nothing is read"), None);
            }
        }
    }
}

/// Raw values lie in one buffer with the file's bytes, aligned, compressed or not.
#[test]
fn raw_values_are_used_where_they_were_read_to() {
    let types = [DataType::I64, DataType::F32, DataType::Uuid, DataType::Text];
    let columns: Vec<_> = types.map(|data_type| (data_type.clone(), column(&data_type, 1000, 1))).into();
    for codec in [ColumnCodec::Raw(Codec::None), ColumnCodec::Raw(Codec::Lz4)] {
        let (_directory, part) = part_of(&columns, codec);
        for (index, (data_type, written)) in columns.iter().enumerate() {
            let read = part.read(index, 0, Selection::All).expect("whole");
            let is_shared = match &read.values {
                Values::I64(Buffer::Shared(values)) => values.as_ref().as_ptr().addr() % 32 == 0,
                Values::F32(Buffer::Shared(values)) => values.as_ref().as_ptr().addr() % 32 == 0,
                Values::I128(Buffer::Shared(values)) => values.as_ref().as_ptr().addr() % 32 == 0,
                Values::Text { bytes: Buffer::Shared(bytes), .. } => bytes.as_ref().len() == bytes.len(),
                _ => false,
            };
            assert!(is_shared, "{data_type:?} {codec:?}");
            assert_eq!(rows_of(&read, 0..1000), rows_of(written, 0..1000), "{data_type:?} {codec:?}");
        }
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
    let refused = |columns: &[Column<'_>], expected: &str| {
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

/// The numbers of all rows of a table, in order.
fn numbers_of(database: &Arc<Database>, table: u64) -> Vec<i64> {
    let snapshot = database.snapshot();
    let table = snapshot.table(table).expect("there");
    let mut numbers = Vec::new();
    for part in table.parts() {
        let reader = snapshot.open_part(table, part).expect("whole");
        for stripe in 0..reader.stripe_count() {
            let column = reader.read(0, stripe, Selection::All).expect("whole");
            let Values::I64(values) = &column.values else { panic!("{column:?}") };
            numbers.extend(&values[..]);
        }
    }
    numbers
}

#[test]
fn compaction_sorts_by_the_key() {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = Arc::new(Disk::create(directory.path()).expect("a directory"));
    let database = Database::open(disk, Access::Write, Options::default()).expect("a new database");
    let mut definition = Definition::new("main", "t", vec![("a", DataType::I64)]);
    definition.keys = vec![SortKey { field: 0, is_descending: true, nulls_first: false }];
    let mut transaction = database.begin().expect("nobody else");
    let table = transaction.create_table(definition).expect("new");
    transaction.commit().expect("nobody else");
    let mut expected = Vec::new();
    let insert = |values: &[i64], is_sorted: bool| {
        let mut transaction = database.begin().expect("nobody else");
        let options = WriteOptions { is_sorted, ..WriteOptions::default() };
        let mut writer = transaction.write_part(table, options).expect("a new part");
        writer.push(&[numbers(values)]).expect("rows");
        let part = writer.finish().expect("room");
        let number = part.number;
        transaction.add_part(table, part).expect("new");
        transaction.commit().expect("nobody else");
        number
    };
    let mut parts = Vec::new();
    for (purpose, (count, is_sorted)) in
        [(STRIPE_ROWS * 2 + 5, true), (100, false), (STRIPE_ROWS + 1, true)].into_iter().enumerate()
    {
        let mut values: Vec<i64> =
            (0..count).map(|row| (random(row, purpose as u64) % 100_000) as i64).collect();
        if is_sorted {
            values.sort_unstable_by(|a, b| b.cmp(a));
        }
        expected.extend(&values);
        parts.push(insert(&values, is_sorted));
    }
    let mut vector = DeletionVector::default();
    let deleted: BitBuffer = (0..100).map(|row| row % 2 == 0).collect();
    vector.delete(Level::best(), 0, deleted.as_bits());
    let unsorted = STRIPE_ROWS * 2 + 5;
    let kept =
        |(row, _): &(usize, i64)| !(unsorted..unsorted + 100).contains(row) || (row - unsorted) % 2 == 1;
    let mut expected: Vec<i64> =
        expected.into_iter().enumerate().filter(kept).map(|(_, value)| value).collect();
    expected.sort_unstable_by(|a, b| b.cmp(a));

    let mut transaction = database.begin().expect("nobody else");
    transaction.delete_rows(table, parts[1], &vector).expect("rows");
    transaction.commit().expect("nobody else");
    let mut transaction = database.begin().expect("nobody else");
    transaction.compact(table, &parts, WriteOptions::default()).expect("whole");
    transaction.commit().expect("nobody else");
    let snapshot = database.snapshot();
    assert_eq!(snapshot.table(table).expect("there").parts().len(), 1);
    assert!(numbers_of(&database, table) == expected);
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
