//! Columns for the seed queries: a pure function of the row number (SplitMix64).

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use keirin::arrow::array::{ArrayRef, Float32Array, Float64Array, RecordBatch, UInt8Array};
use keirin::arrow::datatypes::{DataType, Field, Schema};
use parquet::basic::Compression;

use super::random;

const BATCH_ROWS: u64 = 65_536;
/// Cumulated shares, in thousandths, of passenger counts 1 to 6 and 0, much as in New York's taxis.
const SKEW: [(u64, u8); 7] = [(720, 1), (860, 2), (902, 3), (922, 4), (958, 5), (982, 6), (1000, 0)];

type Maker = fn(Range<u64>) -> ArrayRef;

/// A column: name, type, whether it has nulls, values for a range of rows.
pub(super) type Column = (&'static str, DataType, bool, Maker);

/// The columns of seed table `name`.
pub(super) fn columns(name: &str) -> Option<Vec<Column>> {
    let key = DataType::UInt8;
    match name {
        "seed_f64" => Some(vec![("x", DataType::Float64, false, numbers)]),
        "seed_f64_null" => Some(vec![("x", DataType::Float64, true, numbers_and_nulls)]),
        "seed_keys" => Some(vec![
            ("k", key.clone(), false, uniform_keys),
            ("p", key, false, skewed_keys),
            ("v", DataType::Float32, false, amounts),
        ]),
        _ => None,
    }
}

pub(super) fn write(columns: Vec<Column>, row_count: u64, path: &Path) -> Result<(), String> {
    let fields = columns.iter().map(|(name, kind, nullable, _)| Field::new(*name, kind.clone(), *nullable));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let starts = (0..row_count).step_by(usize::try_from(BATCH_ROWS).expect("64 Ki rows"));
    let batches = starts.map(|start| {
        let rows = start..(start + BATCH_ROWS).min(row_count);
        let arrays = columns.iter().map(|(.., make)| make(rows.clone())).collect();
        RecordBatch::try_new(schema.clone(), arrays).expect("the columns are as the schema says")
    });
    super::write_parquet(path, schema.clone(), Compression::UNCOMPRESSED, batches)
}

#[expect(clippy::cast_precision_loss, reason = "53 bits fit a double")]
fn unit(row: u64) -> f64 {
    (random(row, 0) >> 11) as f64 / (1_u64 << 53) as f64
}

fn numbers(rows: Range<u64>) -> ArrayRef {
    Arc::new(Float64Array::from_iter_values(rows.map(unit)))
}

fn numbers_and_nulls(rows: Range<u64>) -> ArrayRef {
    Arc::new(
        rows.map(|row| (!random(row, 1).is_multiple_of(10)).then(|| unit(row))).collect::<Float64Array>(),
    )
}

fn uniform_keys(rows: Range<u64>) -> ArrayRef {
    Arc::new(UInt8Array::from_iter_values(rows.map(|row| random(row, 2).to_le_bytes()[7])))
}

fn skewed_keys(rows: Range<u64>) -> ArrayRef {
    let key = |row| {
        let share = random(row, 3) % 1000;
        SKEW.iter().find(|(limit, _)| share < *limit).expect("the shares add up to 1000").1
    };
    Arc::new(UInt8Array::from_iter_values(rows.map(key)))
}

#[expect(clippy::cast_precision_loss, reason = "below 2^24")]
fn amounts(rows: Range<u64>) -> ArrayRef {
    Arc::new(Float32Array::from_iter_values(rows.map(|row| (250 + random(row, 4) % 9_750) as f32 / 100.0)))
}

#[cfg(test)]
mod tests {
    use keirin::arrow::array::{Array, AsArray};
    use keirin::arrow::datatypes::{Float64Type, UInt8Type};

    use super::*;

    #[test]
    fn rows_do_not_depend_on_the_batch_they_are_made_in() {
        for table in ["seed_f64", "seed_f64_null", "seed_keys"] {
            for (name, .., make) in columns(table).unwrap() {
                assert_eq!(&make(0..100).slice(40, 60), &make(40..100), "{name}");
            }
        }
    }

    #[test]
    fn the_shares_are_as_the_definition_says() {
        let numbers = numbers_and_nulls(0..100_000);
        let null_share = numbers.null_count() as f64 / 1e5;
        assert!((null_share - 0.1).abs() < 0.01, "{null_share}");
        let mean = numbers.as_primitive::<Float64Type>().iter().flatten().sum::<f64>() / 9e4;
        assert!((mean - 0.5).abs() < 0.01, "{mean}");
        let keys = skewed_keys(0..100_000);
        let ones = keys.as_primitive::<UInt8Type>().values().iter().filter(|&&key| key == 1).count();
        assert!((ones as f64 / 1e5 - 0.72).abs() < 0.01, "{ones}");
        let keys = uniform_keys(0..100_000);
        let distinct =
            keys.as_primitive::<UInt8Type>().values().iter().collect::<std::collections::BTreeSet<_>>();
        assert_eq!(distinct.len(), 256);
    }
}
