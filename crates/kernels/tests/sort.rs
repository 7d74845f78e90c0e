//! Sorting and finding the first rows, at every level and by every method, against the definition.

use keirin_kernels::sort::{Key, Method, Values, sort_rows};
use keirin_kernels::text::Strings;
use keirin_kernels::{BitBuffer, Level};
use keirin_testkit::columns::{Random, miri_or};
use keirin_testkit::oracle::sort as oracle;
use proptest::prelude::*;

/// A column that owns its values.
#[derive(Clone, Debug)]
enum Column {
    Bool(Vec<bool>),
    I8(Vec<i8>),
    I16(Vec<i16>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    I128(Vec<i128>),
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    U64(Vec<u64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Text(Vec<Vec<u8>>),
    LargeText(Vec<Vec<u8>>),
}

#[derive(Clone, Debug)]
struct TestKey {
    column: Column,
    valid: Option<Vec<bool>>,
    is_descending: bool,
    nulls_first: bool,
}

/// The order of floating-point numbers as SQL has it here.
fn total(value: f64) -> i128 {
    let bits = i128::from(value.to_bits().cast_signed());
    if bits < 0 { -(bits & i128::from(i64::MAX)) - 1 } else { bits }
}

impl TestKey {
    fn oracle(&self, row_count: usize) -> oracle::Key {
        let number = |row: usize| -> (i128, Vec<u8>) {
            match &self.column {
                Column::Bool(values) => (values[row].into(), Vec::new()),
                Column::I8(values) => (values[row].into(), Vec::new()),
                Column::I16(values) => (values[row].into(), Vec::new()),
                Column::I32(values) => (values[row].into(), Vec::new()),
                Column::I64(values) => (values[row].into(), Vec::new()),
                Column::I128(values) => (values[row], Vec::new()),
                Column::U8(values) => (values[row].into(), Vec::new()),
                Column::U16(values) => (values[row].into(), Vec::new()),
                Column::U32(values) => (values[row].into(), Vec::new()),
                Column::U64(values) => (values[row].into(), Vec::new()),
                Column::F32(values) => {
                    let bits = i128::from(values[row].to_bits().cast_signed());
                    (if bits < 0 { -(bits & i128::from(i32::MAX)) - 1 } else { bits }, Vec::new())
                }
                Column::F64(values) => (total(values[row]), Vec::new()),
                Column::Text(values) | Column::LargeText(values) => (0, values[row].clone()),
            }
        };
        let is_valid = |row: usize| self.valid.as_ref().is_none_or(|valid| valid[row]);
        let cells = (0..row_count).map(|row| is_valid(row).then(|| number(row))).collect();
        oracle::Key { cells, is_descending: self.is_descending, nulls_first: self.nulls_first }
    }
}

fn check(keys: &[TestKey], row_count: usize) {
    let validity: Vec<Option<BitBuffer>> =
        keys.iter().map(|key| key.valid.as_ref().map(|valid| valid.iter().copied().collect())).collect();
    let bools: Vec<BitBuffer> = keys
        .iter()
        .map(|key| {
            if let Column::Bool(values) = &key.column {
                values.iter().copied().collect()
            } else {
                BitBuffer::default()
            }
        })
        .collect();
    let texts: Vec<(Vec<i32>, Vec<i64>, Vec<u8>)> = keys
        .iter()
        .map(|key| match &key.column {
            Column::Text(values) | Column::LargeText(values) => {
                let mut ends = vec![0_usize];
                ends.extend(values.iter().scan(0, |end, value| {
                    *end += value.len();
                    Some(*end)
                }));
                let small = ends.iter().map(|end| i32::try_from(*end).expect("short")).collect();
                let large = ends.iter().map(|end| i64::try_from(*end).expect("short")).collect();
                (small, large, values.concat())
            }
            _ => Default::default(),
        })
        .collect();
    let level = Level::best();
    let borrowed: Vec<Key> = keys
        .iter()
        .enumerate()
        .map(|(index, key)| Key {
            values: match &key.column {
                Column::Bool(_) => Values::Bool(bools[index].as_bits()),
                Column::I8(values) => Values::I8(values),
                Column::I16(values) => Values::I16(values),
                Column::I32(values) => Values::I32(values),
                Column::I64(values) => Values::I64(values),
                Column::I128(values) => Values::I128(values),
                Column::U8(values) => Values::U8(values),
                Column::U16(values) => Values::U16(values),
                Column::U32(values) => Values::U32(values),
                Column::U64(values) => Values::U64(values),
                Column::F32(values) => Values::F32(values),
                Column::F64(values) => Values::F64(values),
                Column::Text(_) => Values::Text(
                    Strings::new(level, &texts[index].0, &texts[index].2).expect("offsets ascend"),
                ),
                Column::LargeText(_) => Values::LargeText(
                    Strings::new(level, &texts[index].1, &texts[index].2).expect("offsets ascend"),
                ),
            },
            validity: validity[index].as_ref().map(BitBuffer::as_bits),
            is_descending: key.is_descending,
            nulls_first: key.nulls_first,
        })
        .collect();
    let oracles: Vec<oracle::Key> = keys.iter().map(|key| key.oracle(row_count)).collect();
    let expected = oracle::sort_rows(&oracles, row_count);
    for level in Level::available() {
        for method in Method::ALL {
            assert!(
                sort_rows(*level, method, &borrowed, row_count) == expected,
                "{level} {method:?} {row_count} rows"
            );
        }
    }
}

const PAIRS: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

/// Checks a column in both directions, with and without nulls.
fn check_column(column: &Column, row_count: usize) {
    for (is_descending, nulls_first) in PAIRS {
        for share in [1.0, 0.9, 0.1, 0.0] {
            let mut random = Random::new(row_count as u64);
            let valid = (share < 1.0).then(|| (0..row_count).map(|_| random.chance(share)).collect());
            check(&[TestKey { column: column.clone(), valid, is_descending, nulls_first }], row_count);
        }
    }
}

const ROW_COUNTS: &[usize] = if cfg!(miri) { &[0, 1, 18] } else { &[0, 1, 2, 17, 100, 600, 4500] };

fn numbers<T>(row_count: usize, seed: u64, make: impl Fn(&mut Random) -> T) -> Vec<T> {
    let mut random = Random::new(seed);
    (0..row_count).map(|_| make(&mut random)).collect()
}

#[test]
#[allow(clippy::cast_possible_truncation, reason = "any bits will do")]
fn every_type_of_number_is_sorted() {
    for row_count in ROW_COUNTS.iter().copied() {
        let all = |make: fn(u64) -> Column| make(row_count as u64);
        let columns = [
            all(|rows| Column::Bool(numbers(rows as usize, 1, |random| random.chance(0.3)))),
            all(|rows| Column::I8(numbers(rows as usize, 2, |random| random.bits() as i8))),
            all(|rows| Column::I16(numbers(rows as usize, 3, |random| random.bits() as i16))),
            all(|rows| Column::I32(numbers(rows as usize, 4, |random| random.bits() as i32))),
            all(|rows| Column::I64(numbers(rows as usize, 5, |random| random.bits() as i64))),
            all(|rows| Column::I64(numbers(rows as usize, 5, |random| random.below(20) as i64 - 10))),
            all(|rows| {
                Column::I64(numbers(rows as usize, 5, |random| {
                    [i64::MIN, -1, 0, i64::MAX][random.below(4) as usize]
                }))
            }),
            all(|rows| Column::I64((0..rows as i64).collect())),
            all(|rows| Column::I64((0..rows as i64).rev().collect())),
            all(|rows| Column::I64(vec![7; rows as usize])),
            all(|rows| {
                Column::I128(numbers(rows as usize, 6, |random| {
                    i128::from(random.bits() as i64) * i128::from(random.bits())
                }))
            }),
            all(|rows| Column::I128(numbers(rows as usize, 6, |random| i128::from(random.below(9)) - 4))),
            all(|rows| Column::U8(numbers(rows as usize, 7, |random| random.bits() as u8))),
            all(|rows| Column::U16(numbers(rows as usize, 8, |random| random.bits() as u16))),
            all(|rows| Column::U32(numbers(rows as usize, 9, |random| random.bits() as u32))),
            all(|rows| Column::U64(numbers(rows as usize, 10, Random::bits))),
        ];
        for column in &columns {
            check_column(column, row_count);
        }
    }
}

#[test]
#[allow(clippy::cast_possible_truncation, reason = "any bits will do")]
fn floating_point_numbers_are_in_total_order() {
    let odd = [
        0.0,
        -0.0,
        f64::NAN,
        -f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        1.0,
        -1.0,
        f64::MIN_POSITIVE,
        5e-324,
    ];
    for row_count in ROW_COUNTS.iter().copied() {
        let column = numbers(row_count, 1, |random| match random.below(2) {
            0 => odd[random.below(odd.len() as u64) as usize],
            _ => f64::from_bits(random.bits()),
        });
        check_column(&Column::F32(column.iter().map(|value| *value as f32).collect()), row_count);
        check_column(&Column::F64(column), row_count);
    }
}

/// Texts over few bytes, among them zero, so that many are alike.
#[allow(clippy::cast_possible_truncation, reason = "one of three")]
fn texts(row_count: usize, seed: u64, prefix: &str, length_max: u64) -> Vec<Vec<u8>> {
    numbers(row_count, seed, |random| {
        let mut text = prefix.as_bytes().to_vec();
        text.extend((0..random.below(length_max + 1)).map(|_| [0, b'a', 255][random.below(3) as usize]));
        text
    })
}

#[test]
fn texts_are_sorted_as_bytes_however_much_they_share() {
    for row_count in ROW_COUNTS.iter().copied() {
        for (prefix, length_max) in [("", 0), ("", 3), ("", 12), ("https://example.com/", 9), ("x", 40)] {
            check_column(&Column::Text(texts(row_count, 11, prefix, length_max)), row_count);
            check_column(&Column::LargeText(texts(row_count, 12, prefix, length_max)), row_count);
        }
    }
}

#[test]
fn long_texts_that_differ_at_their_end_are_sorted() {
    let long = |end: u64| [vec![b'z'; miri_or(100, 10_000)], end.to_be_bytes().to_vec()].concat();
    const COUNT: usize = miri_or(30, 200);
    let column = numbers(COUNT, 13, |random| long(random.below(100)));
    check(
        &[TestKey { column: Column::Text(column), valid: None, is_descending: false, nulls_first: false }],
        COUNT,
    );
}

fn key(max_rows: usize) -> impl Strategy<Value = TestKey> {
    let column = prop_oneof![
        prop::collection::vec(-3_i64..3, max_rows).prop_map(Column::I64),
        prop::collection::vec(any::<i64>(), max_rows).prop_map(Column::I64),
        prop::collection::vec(-2_i32..2, max_rows).prop_map(Column::I32),
        prop::collection::vec(any::<u8>(), max_rows).prop_map(Column::U8),
        prop::collection::vec(any::<bool>(), max_rows).prop_map(Column::Bool),
        prop::collection::vec((-2_i128..2).prop_map(|value| value << 63), max_rows).prop_map(Column::I128),
        prop::collection::vec(any::<f64>(), max_rows).prop_map(Column::F64),
        prop::collection::vec("[ab]{0,3}".prop_map(String::into_bytes), max_rows).prop_map(Column::Text),
        prop::collection::vec("aaaaaaaa[ab]{0,9}".prop_map(String::into_bytes), max_rows)
            .prop_map(Column::Text),
    ];
    let valid = prop::option::of(prop::collection::vec(prop::bool::weighted(0.8), max_rows));
    (column, valid, any::<bool>(), any::<bool>()).prop_map(|(column, valid, is_descending, nulls_first)| {
        TestKey { column, valid, is_descending, nulls_first }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 200 }))]

    #[test]
    fn several_keys_of_any_types_decide_one_after_the_other(
        keys in prop::collection::vec(key(miri_or(40, 600)), 0..5),
        row_count in Just(miri_or(40, 600_usize)),
    ) {
        check(&keys, row_count);
    }
}
