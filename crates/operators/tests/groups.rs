//! Groups number rows as a map from rows to numbers would, whatever the types of their keys.

use std::collections::HashMap;

use keirin_kernels::hash::Strings;
use keirin_kernels::{BitBuffer, Level};
use keirin_operators::groups::NO_GROUP;
use keirin_operators::{Groups, KeyColumn, KeyType, KeyValues, OwnedKeys, OwnedValues};
use proptest::collection::vec;
use proptest::prelude::*;

/// The values of a row, null or their bits, or text.
type Row = Vec<Option<Value>>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Value {
    Bits(u128),
    Text(Vec<u8>),
}

/// A column as it is given.
enum Given {
    Bytes1(Vec<u8>),
    Bytes2(Vec<u16>),
    Bytes4(Vec<u32>),
    Bytes8(Vec<u64>),
    Bytes16(Vec<u128>),
    Text(Vec<i32>, Vec<u8>),
}

#[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "values are made to fit")]
fn given(rows: &[Row], column: usize, width: Option<usize>) -> Given {
    let bits = |row: &Row| match &row[column] {
        Some(Value::Bits(bits)) => *bits,
        // What lies below nulls does not count.
        _ => 77,
    };
    let bits = rows.iter().map(bits);
    match width {
        Some(1) => Given::Bytes1(bits.map(|bits| bits as u8).collect()),
        Some(2) => Given::Bytes2(bits.map(|bits| bits as u16).collect()),
        Some(4) => Given::Bytes4(bits.map(|bits| bits as u32).collect()),
        Some(8) => Given::Bytes8(bits.map(|bits| bits as u64).collect()),
        Some(_) => Given::Bytes16(bits.collect()),
        None => {
            let (mut offsets, mut bytes) = (vec![0], Vec::new());
            for row in rows {
                if let Some(Value::Text(text)) = &row[column] {
                    bytes.extend_from_slice(text);
                }
                offsets.push(bytes.len() as i32);
            }
            Given::Text(offsets, bytes)
        }
    }
}

fn check(types: &[KeyType], chunks: &[Vec<Row>]) {
    check_keys(types, chunks, true);
    check_keys(types, chunks, false);
}

/// With the keys of all groups or of some.
fn check_keys(types: &[KeyType], chunks: &[Vec<Row>], are_all_wanted: bool) {
    let mut expected: HashMap<Row, u32> = HashMap::new();
    let mut firsts: Vec<Row> = Vec::new();
    let mut groups = Groups::new(types);
    for rows in chunks {
        let columns: Vec<Given> =
            types.iter().enumerate().map(|(column, key)| given(rows, column, key.width)).collect();
        let validity: Vec<BitBuffer> =
            (0..types.len()).map(|column| rows.iter().map(|row| row[column].is_some()).collect()).collect();
        let keys: Vec<KeyColumn<'_>> = columns
            .iter()
            .zip(&validity)
            .zip(types)
            .map(|((column, validity), key)| {
                let values = match column {
                    Given::Bytes1(values) => KeyValues::Bytes1(values),
                    Given::Bytes2(values) => KeyValues::Bytes2(values),
                    Given::Bytes4(values) => KeyValues::Bytes4(values),
                    Given::Bytes8(values) => KeyValues::Bytes8(values),
                    Given::Bytes16(values) => KeyValues::Bytes16(values),
                    Given::Text(offsets, bytes) => KeyValues::Text(Strings::Offsets32(offsets, bytes)),
                };
                // A chunk without nulls says so by having no validity.
                let has_nulls = key.is_nullable && validity.words().iter().any(|word| *word != u64::MAX);
                KeyColumn { values, validity: has_nulls.then(|| validity.as_bits()) }
            })
            .collect();
        let mut numbers = vec![9; 3];
        groups.find_or_insert(Level::best(), &keys, rows.len(), &mut numbers);
        let wanted: Vec<u32> = rows
            .iter()
            .map(|row| {
                let next = u32::try_from(expected.len()).expect("few groups");
                *expected.entry(row.clone()).or_insert_with(|| {
                    firsts.push(row.clone());
                    next
                })
            })
            .collect();
        assert_eq!(numbers, wanted);
        groups.find(Level::best(), &keys, rows.len(), &mut numbers);
        assert_eq!(numbers, wanted, "found again");
        let mut others = Groups::new(types);
        others.find(Level::best(), &keys, rows.len(), &mut numbers);
        assert!(others.is_empty() && numbers.iter().all(|number| *number == NO_GROUP), "{numbers:?}");
    }
    assert_eq!((groups.len(), groups.is_empty()), (firsts.len(), firsts.is_empty()));
    assert!(groups.bytes() > 0 || firsts.is_empty());
    let count = u32::try_from(firsts.len()).expect("few groups");
    let some: Vec<u32> = (0..count).rev().step_by(2).collect();
    let keys = groups.take_keys((!are_all_wanted).then_some(&some[..]));
    let wanted: Vec<&Row> = match are_all_wanted {
        true => firsts.iter().collect(),
        false => some.iter().map(|group| &firsts[*group as usize]).collect(),
    };
    for (group, row) in wanted.into_iter().enumerate() {
        let found: Row = keys.iter().map(|column| value(column, group)).collect();
        assert_eq!(found, *row, "group {group}");
    }
}

fn value(keys: &OwnedKeys, row: usize) -> Option<Value> {
    if keys.validity.as_ref().is_some_and(|validity| !validity.as_bits().get(row)) {
        return None;
    }
    Some(match &keys.values {
        OwnedValues::Bytes1(values) => Value::Bits(values[row].into()),
        OwnedValues::Bytes2(values) => Value::Bits(values[row].into()),
        OwnedValues::Bytes4(values) => Value::Bits(values[row].into()),
        OwnedValues::Bytes8(values) => Value::Bits(values[row].into()),
        OwnedValues::Bytes16(values) => Value::Bits(values[row]),
        OwnedValues::Text(views, parts) => {
            let view = views[row].to_le_bytes();
            let len = u32::from_le_bytes(view[..4].try_into().expect("four bytes")) as usize;
            Value::Text(if len <= 12 {
                view[4..4 + len].to_vec()
            } else {
                let word =
                    |at: usize| u32::from_le_bytes(view[at..at + 4].try_into().expect("four bytes")) as usize;
                parts[word(8)][word(12)..word(12) + len].to_vec()
            })
        }
    })
}

fn key_type() -> impl Strategy<Value = KeyType> {
    let width = prop::sample::select(vec![Some(1), Some(2), Some(4), Some(8), Some(16), None]);
    (width, any::<bool>()).prop_map(|(width, is_nullable)| KeyType { width, is_nullable })
}

/// A value of a type: one of few, for groups to have rows.
fn row_of(types: Vec<KeyType>) -> impl Strategy<Value = Row> {
    let values: Vec<_> = types
        .into_iter()
        .map(|key| {
            let some = (0..4_u8).prop_map(move |pick| {
                Some(match key.width {
                    Some(width) => {
                        let most = u128::MAX >> (128 - 8 * width);
                        Value::Bits([0, 1, most, most / 3][usize::from(pick)])
                    }
                    None => {
                        let texts: [&[u8]; 4] = [b"", b"short", b"rather long text", b"rather long texts"];
                        Value::Text(texts[usize::from(pick)].to_vec())
                    }
                })
            });
            let nulls = if key.is_nullable { 1 } else { 0 };
            prop_oneof![4 => some, nulls => Just(None)]
        })
        .collect();
    values
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn rows_are_in_the_group_of_their_keys(
        (types, chunks) in vec(key_type(), 1..7).prop_flat_map(|types| {
            let chunks = vec(vec(row_of(types.clone()), 0..80), 1..4);
            (Just(types), chunks)
        })
    ) {
        check(&types, &chunks);
    }
}

#[test]
fn each_type_alone() {
    for width in [Some(1), Some(2), Some(4), Some(8), Some(16), None] {
        for is_nullable in [false, true] {
            let some = |index: u128| match width {
                Some(width) => {
                    Value::Bits(index.wrapping_mul(0x9E37_79B9_7F4A_7C15) & u128::MAX >> (128 - 8 * width))
                }
                None => Value::Text(format!("text number {index}").into_bytes()),
            };
            let rows = (0..3000_u128)
                .map(|row| vec![(!is_nullable || row % 7 != 3).then(|| some(row * row % 1000))]);
            let rows: Vec<Row> = rows.collect();
            check(&[KeyType { width, is_nullable }], &[rows[..10].to_vec(), rows]);
        }
    }
}

#[test]
fn many_columns_are_one_key() {
    let types: Vec<KeyType> =
        [Some(8), Some(8), None, Some(16), Some(4), None, Some(1), Some(8), Some(2), Some(8)]
            .map(|width| KeyType { width, is_nullable: true })
            .into();
    let rows: Vec<Row> = (0..600_u128)
        .map(|row| {
            let columns = types.iter().enumerate().map(|(column, key)| {
                let pick = row / (1 + column as u128) % 3;
                (pick > 0).then(|| match key.width {
                    Some(_) => Value::Bits(pick),
                    None => Value::Text(vec![b'x'; 10 * pick as usize]),
                })
            });
            columns.collect()
        })
        .collect();
    check(&types, &[rows.clone(), rows]);
}
