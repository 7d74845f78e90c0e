//! Comparisons into bitmaps, rows kept and rows taken, against arrow's kernels.

#![expect(clippy::cast_possible_truncation, reason = "the data is of small numbers")]

use arrow::array::{
    Array, ArrowPrimitiveType, BooleanArray, PrimitiveArray, Scalar, StringArray, UInt8Array, UInt32Array,
};
use arrow::buffer::BooleanBuffer;
use arrow::compute::kernels::cmp;
use arrow::compute::{filter, take};
use arrow::datatypes::{
    Decimal128Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt32Type,
};
use keirin_kernels::bitmaps::{and, positions};
use keirin_kernels::compact::{Strings, compact_into, compact_strings};
use keirin_kernels::compare::{Comparable, Comparison, compare_constant};
use keirin_kernels::gather::{Index, gather};
use keirin_kernels::{BitBuffer, count_ones};
use keirin_testkit::columns::{Random, Spread};

use super::engines;
use crate::duel::{Lane, Report, Unit};

/// Adds the cases.
pub(super) fn run(report: &mut Report) {
    let small = 256 << 10;
    for (bytes, place) in [(small, "L2"), (256 << 20, "memory")] {
        if report.is_quick() && bytes > small {
            continue;
        }
        compare::<Int8Type>(report, "i8", bytes, place, |bits| bits.to_le_bytes()[0].cast_signed());
        compare::<Int32Type>(report, "i32", bytes, place, |bits| (bits % 1000) as i32);
        compare::<Int64Type>(report, "i64", bytes, place, |bits| (bits % 1000) as i64);
        compare::<Float64Type>(report, "f64", bytes, place, |bits| (bits % 1000) as f64);
        compare::<Decimal128Type>(report, "decimal128", bytes, place, |bits| i128::from(bits % 1000));
    }
    combine(report);
    for share in [0.001, 0.02, 0.1, 0.5, 0.9, 0.999] {
        keep::<UInt8Type>(report, "u8", share, |bits| bits.to_le_bytes()[0]);
        keep::<Int16Type>(report, "i16", share, |bits| (bits % 1000) as i16);
        keep::<Int32Type>(report, "i32", share, |bits| (bits % 1000) as i32);
        keep::<Int64Type>(report, "i64", share, |bits| (bits % 1000) as i64);
        keep::<Decimal128Type>(report, "decimal128", share, |bits| i128::from(bits % 1000));
        keep_strings(report, share);
        walk(report, share);
    }
    take_rows(report);
    dictionary::<UInt32Type>(report, "u32", 30, |bits| (bits % 1000) as u32);
    dictionary::<UInt32Type>(report, "u32", 250, |bits| (bits % 1000) as u32);
    dictionary::<Int64Type>(report, "i64", 16, |bits| (bits % 1000) as i64);
}

fn values<T: ArrowPrimitiveType>(count: usize, value: impl Fn(u64) -> T::Native) -> Vec<T::Native> {
    let mut random = Random::new(1);
    (0..count).map(|_| value(random.bits())).collect()
}

fn compare<T: ArrowPrimitiveType>(
    report: &mut Report,
    name: &str,
    bytes: usize,
    place: &str,
    value: impl Fn(u64) -> T::Native,
) where
    T::Native: Comparable,
{
    let case = format!("{name} < constant, {place}");
    if !report.wants(&case) {
        return;
    }
    let values = values::<T>(bytes / size_of::<T::Native>(), &value);
    let constant = value(500);
    let array = PrimitiveArray::<T>::from_iter_values(values.iter().copied());
    let scalar = Scalar::new(PrimitiveArray::<T>::from_iter_values([constant]));
    let mut lanes: Vec<Lane<'_>> = engines()
        .map(|(engine, level)| {
            let values = &values;
            Lane::new(&engine, move || {
                let found = compare_constant(level, Comparison::Less, values, constant);
                count_ones(level, found.as_bits()) as u64
            })
        })
        .collect();
    lanes.push(Lane::new("arrow", || {
        cmp::lt(&array, &scalar).expect("arrays of one type").true_count() as u64
    }));
    report.case(&case, Unit::Bytes, bytes, lanes);
}

fn combine(report: &mut Report) {
    let count = 1 << 20;
    let flags = [1, 2].map(|seed| Spread::Share(0.5).rows(count, seed));
    let bits = flags.each_ref().map(|flags| flags.iter().copied().collect::<BitBuffer>());
    let buffers = flags.map(BooleanBuffer::from);
    for (offset, case) in [(0, "and of bitmaps"), (3, "and of bitmaps that begin inside a byte")] {
        let len = count - offset;
        let mut lanes: Vec<Lane<'_>> = engines()
            .map(|(engine, level)| {
                let [left, right] = bits.each_ref().map(|bits| bits.as_bits().slice(offset, len));
                Lane::new(&engine, move || and(level, left, right).words()[0])
            })
            .collect();
        let [left, right] = buffers.each_ref().map(|buffer| buffer.slice(offset, len));
        lanes.push(Lane::new("arrow", move || {
            let both = &left & &right;
            both.bit_chunks().iter().next().unwrap_or_default()
        }));
        report.case(case, Unit::Bytes, len / 8, lanes);
    }
}

fn selection(count: usize, share: f64) -> (BitBuffer, BooleanArray) {
    let flags = Spread::Share(share).rows(count, 3);
    (flags.iter().copied().collect(), BooleanArray::from(flags))
}

fn keep<T: ArrowPrimitiveType>(report: &mut Report, name: &str, share: f64, value: impl Fn(u64) -> T::Native)
where
    T::Native: Comparable,
{
    let case = format!("keep {share} of {name}, L2");
    if !report.wants(&case) {
        return;
    }
    let count = (256 << 10) / size_of::<T::Native>();
    let values = values::<T>(count, value);
    let (kept, mask) = selection(count, share);
    let array = PrimitiveArray::<T>::from_iter_values(values.iter().copied());
    let mut lanes: Vec<Lane<'_>> = engines()
        .map(|(engine, level)| {
            let (values, kept) = (&values, kept.as_bits());
            Lane::new(&engine, move || {
                let mut out = Vec::new();
                compact_into(level, values, kept, &mut out);
                out.len() as u64
            })
        })
        .collect();
    lanes.push(Lane::new("arrow", || filter(&array, &mask).expect("a mask for each row").len() as u64));
    report.case(&case, Unit::Rows, count, lanes);
}

fn keep_strings(report: &mut Report, share: f64) {
    let case = format!("keep {share} of strings of 4 to 20 bytes");
    if !report.wants(&case) {
        return;
    }
    let count = 32 << 10;
    let mut random = Random::new(4);
    let lengths: Vec<usize> = (0..count).map(|_| 4 + random.below(17) as usize).collect();
    let array = StringArray::from_iter_values(lengths.iter().map(|length| "x".repeat(*length)));
    let (kept, mask) = selection(count, share);
    let mut lanes: Vec<Lane<'_>> = engines()
        .map(|(engine, level)| {
            let (strings, kept) = (Strings::new(array.value_offsets(), array.value_data()), kept.as_bits());
            Lane::new(&engine, move || compact_strings(level, strings, kept).1.len() as u64)
        })
        .collect();
    lanes.push(Lane::new("arrow", || {
        let kept = filter(&array, &mask).expect("a mask for each row");
        let kept: &StringArray = kept.as_any().downcast_ref().expect("strings stay strings");
        kept.value_data().len() as u64
    }));
    report.case(&case, Unit::Rows, count, lanes);
}

fn walk(report: &mut Report, share: f64) {
    let case = format!("numbers of {share} of the bits");
    let count = 64 << 10;
    let (kept, mask) = selection(count, share);
    let mut lanes: Vec<Lane<'_>> = engines()
        .map(|(engine, level)| {
            let kept = kept.as_bits();
            Lane::new(&engine, move || positions(level, kept).len() as u64)
        })
        .collect();
    lanes.push(Lane::new("arrow", || {
        let mut rows: Vec<u32> = Vec::with_capacity(mask.true_count());
        rows.extend(mask.values().set_indices_u32());
        rows.len() as u64
    }));
    report.case(&case, Unit::Rows, count, lanes);
}

fn take_rows(report: &mut Report) {
    for (count, place) in [(32 << 10, "L2"), (32 << 20, "memory")] {
        let case = format!("take i64 by random u32, {place}");
        if !report.wants(&case) || (report.is_quick() && count > 1 << 20) {
            continue;
        }
        let values = values::<Int64Type>(count, |bits| bits as i64);
        let mut random = Random::new(2);
        let rows: Vec<u32> = (0..count.min(1 << 20)).map(|_| random.below(count as u64) as u32).collect();
        let array = PrimitiveArray::<Int64Type>::from_iter_values(values.iter().copied());
        taken(report, &case, &values, &rows, &array, &UInt32Array::from(rows.clone()));
    }
}

fn dictionary<T: ArrowPrimitiveType>(
    report: &mut Report,
    name: &str,
    size: u64,
    value: impl Fn(u64) -> T::Native,
) where
    T::Native: Comparable,
{
    let case = format!("look up u8 codes of {size} {name}");
    if !report.wants(&case) {
        return;
    }
    let mut random = Random::new(2);
    let entries = values::<T>(size as usize, value);
    let codes: Vec<u8> = (0..64 << 10).map(|_| random.below(size) as u8).collect();
    let array = PrimitiveArray::<T>::from_iter_values(entries.iter().copied());
    taken(report, &case, &entries, &codes, &array, &UInt8Array::from(codes.clone()));
}

fn taken<T: Comparable, I: Index>(
    report: &mut Report,
    case: &str,
    values: &[T],
    indices: &[I],
    array: &dyn Array,
    index_array: &dyn Array,
) {
    let mut lanes: Vec<Lane<'_>> = engines()
        .map(|(engine, level)| Lane::new(&engine, move || gather(level, values, indices).len() as u64))
        .collect();
    lanes.push(Lane::new("arrow", || take(array, index_array, None).expect("rows that exist").len() as u64));
    report.case(case, Unit::Rows, indices.len(), lanes);
}
