//! Sorting rows by one and several keys, against arrow and the standard library.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, StringArray};
use arrow::compute::{SortColumn, SortOptions, lexsort_to_indices, sort_to_indices};
use arrow::row::{RowConverter, SortField};
use keirin_kernels::sort::{Key, Method, Values, sort_rows};
use keirin_kernels::text::Strings;
use keirin_kernels::{BitBuffer, Level};
use keirin_race::Race;
use keirin_testkit::columns::{Random, Spread};

use crate::duel::{Lane, Report, Unit};

pub(super) fn run(report: &mut Report) {
    let row_count = if report.is_quick() { 10_000 } else { 1_000_000 };
    let mut random = Random::new(1);
    let run = |row: i64| row % 1000 * 1000 + row / 1000;
    let orders: [(&str, Vec<i64>); 5] = [
        ("runs of 1000", (0..row_count).map(run).collect()),
        ("random", (0..row_count).map(|_| random.bits().cast_signed()).collect()),
        ("20 bits", (0..row_count).map(|_| random.below(1 << 20).cast_signed()).collect()),
        ("ascending", (0..row_count).collect()),
        ("descending", (0..row_count).rev().collect()),
    ];
    for (order, values) in &orders {
        one_key(report, &format!("one key, {order}"), values, None);
    }
    let flags = Spread::Share(0.9).rows(orders[1].1.len(), 3);
    one_key(report, "one key, random, 10 % nulls", &orders[1].1, Some(&flags));
    if report.wants("three keys") {
        three_keys(report, row_count);
    }
}

/// A checksum that depends on the order.
fn checksum(rows: &[u32]) -> u64 {
    rows.iter().fold(0, |sum: u64, row| sum.rotate_left(5) ^ u64::from(*row))
}

/// A race among the methods, as it is after many sorts of such rows.
fn race() -> Race {
    Race::new(&Method::ALL.map(Method::name), 0)
}

fn key<'a>(values: Values<'a>) -> Key<'a> {
    Key { values, validity: None, is_descending: false, nulls_first: false }
}

/// With `valid`, rows without it are null and come last.
fn one_key(report: &mut Report, case: &str, values: &[i64], valid: Option<&[bool]>) {
    let level = Level::best();
    let is_valid = |row: usize| valid.is_none_or(|valid| valid[row]);
    let array: Int64Array =
        values.iter().enumerate().map(|(row, value)| is_valid(row).then_some(*value)).collect();
    let bits: Option<BitBuffer> = valid.map(|valid| valid.iter().copied().collect());
    let validity = bits.as_ref().map(BitBuffer::as_bits);
    let keys = [Key { validity, ..key(Values::I64(values)) }];
    // Whether a row may come before another.
    let are_sorted = |rows: &[u32]| {
        let key = |row: u32| (!is_valid(row as usize), values[row as usize]);
        rows.is_sorted_by(|left, right| {
            let (left, right) = (key(*left), key(*right));
            left <= right || left.0 && right.0
        })
    };
    let ours = |method| {
        let keys = &keys;
        move || are_sorted(&sort_rows(level, method, keys, values.len())).into()
    };
    let race = race();
    let raced = || race.run(values.len() as u64, |arm| ours(Method::ALL[arm])());
    let arrow = || {
        let options = SortOptions { descending: false, nulls_first: false };
        let rows = sort_to_indices(&array, Some(options), None).expect("numbers can be sorted");
        are_sorted(rows.values()).into()
    };
    let standard = || {
        let mut rows: Vec<(bool, i64, u32)> =
            values.iter().zip(0_u32..).map(|(value, row)| (!is_valid(row as usize), *value, row)).collect();
        rows.sort_unstable();
        are_sorted(&rows.iter().map(|(.., row)| *row).collect::<Vec<_>>()).into()
    };
    report.case(
        case,
        Unit::Rows,
        values.len(),
        vec![
            Lane::new("keirin", raced),
            Lane::new("keirin:radix", ours(Method::Radix)),
            Lane::new("keirin:comparison", ours(Method::Comparison)),
            Lane::new("arrow", arrow),
            Lane::new("std", standard),
        ],
    );
}

/// `ORDER BY i32, text, i64` with a thousand, many and all different values.
fn three_keys(report: &mut Report, row_count: i64) {
    let level = Level::best();
    let mut random = Random::new(2);
    let count = usize::try_from(row_count).expect("few rows");
    let groups: Vec<i32> = (0..count).map(|_| i32::try_from(random.below(1000)).expect("small")).collect();
    let texts: Vec<String> = (0..count).map(|_| format!("{:07x}", random.below(1 << 28))).collect();
    let numbers: Vec<i64> = (0..count).map(|_| random.bits().cast_signed()).collect();
    let text_array = StringArray::from(texts);
    let text = Strings::new(level, text_array.value_offsets(), text_array.value_data())
        .expect("arrow's offsets ascend");
    let keys = [key(Values::I32(&groups)), key(Values::Text(text)), key(Values::I64(&numbers))];
    let arrays: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from(groups.clone())),
        Arc::new(text_array.clone()),
        Arc::new(Int64Array::from(numbers.clone())),
    ];
    let ours = |method| {
        let keys = &keys;
        move || checksum(&sort_rows(level, method, keys, count))
    };
    let race = race();
    let raced = || race.run(count as u64, |arm| ours(Method::ALL[arm])());
    let lexsort = || {
        let columns: Vec<SortColumn> =
            arrays.iter().map(|values| SortColumn { values: values.clone(), options: None }).collect();
        checksum(lexsort_to_indices(&columns, None).expect("rows can be sorted").values())
    };
    let rows = || {
        let fields = arrays.iter().map(|array| SortField::new(array.data_type().clone())).collect();
        let converter = RowConverter::new(fields).expect("types can be rows");
        let rows = converter.convert_columns(&arrays).expect("columns can be rows");
        let mut order: Vec<u32> = (0..).take(count).collect();
        order.sort_unstable_by(|left, right| rows.row(*left as usize).cmp(&rows.row(*right as usize)));
        checksum(&order)
    };
    report.case(
        "three keys",
        Unit::Rows,
        count,
        vec![
            Lane::new("keirin", raced),
            Lane::new("keirin:radix", ours(Method::Radix)),
            Lane::new("keirin:comparison", ours(Method::Comparison)),
            Lane::new("arrow:lexsort", lexsort),
            Lane::new("arrow:rows", rows),
        ],
    );
}
