//! Packed integers of every width and type, at every level, against bits read one at a time.

use std::fmt::Debug;

use keirin_kernels::bitpack::{Integer, Packed, compare_packed, pack, packed_bytes, sum_packed, unpack};
use keirin_kernels::bitpack::{unpack_into, width_of};
use keirin_kernels::compare::{Comparison, compare_constant};
use keirin_kernels::{BitBuffer, Level, Selection};
use keirin_testkit::columns::{Random, Spread};
use keirin_testkit::oracle;
use proptest::prelude::*;

mod guard;

/// Lengths around those of vectors and words: fewer than elsewhere, since there are 64 widths.
fn lengths() -> Vec<usize> {
    if cfg!(miri) {
        return vec![65];
    }
    vec![0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 200, 511, 513, 1025]
}

fn widths(bits: u32) -> Vec<u32> {
    if cfg!(miri) { vec![0, bits - 1] } else { (0..=bits).collect() }
}

/// `count` values of at most `width` bits above `reference`.
fn values<T: Integer>(count: usize, width: u32, reference: T) -> Vec<T> {
    let mut random = Random::new(u64::from(width));
    (0..count).map(|_| reference.plus(random.bits().checked_shr(64 - width).unwrap_or(0))).collect()
}

fn check<T: Integer + Debug + PartialEq>(references: &[T]) {
    for (width, len) in
        widths(T::BITS).into_iter().flat_map(|width| lengths().into_iter().map(move |len| (width, len)))
    {
        let reference = references[len % references.len()];
        let values = values(len, width, reference);
        let bytes = oracle::bitpack::pack(
            &values.iter().map(|value| value.less_reference(reference)).collect::<Vec<_>>(),
            width,
        );
        assert_eq!(bytes.len(), packed_bytes(len, width));
        let guarded = guard::AtPageEnd::new(&bytes);
        let packed = Packed::new(&guarded, width, len, reference);
        for level in Level::available().iter().copied() {
            let context = format!("{len} values of {width} bits from {reference:?} at {level}");
            assert_eq!(pack(level, &values, width, reference), bytes, "{context}");
            assert_eq!(unpack(level, packed, Selection::All), values, "{context}");
            for first in [0, 1, 2, 3, 5, 7, len / 2, len]
                .into_iter()
                .step_by(if cfg!(miri) { 5 } else { 1 })
                .filter(|first| *first <= len)
            {
                check_range(level, packed, first..len - len.min(first) / 2, &values, &context);
            }
            for spread in [Spread::Share(0.01), Spread::Share(0.5), Spread::FirstHalf] {
                let flags = spread.rows(len, 3);
                let bits: BitBuffer = flags.iter().copied().collect();
                let rows: Vec<u32> =
                    (0..).zip(&flags).filter(|(_, flag)| **flag).map(|(row, _)| row).collect();
                let expected: Vec<T> = rows.iter().map(|row| values[*row as usize]).collect();
                assert_eq!(unpack(level, packed, Selection::Bits(bits.as_bits())), expected, "{context}");
                assert_eq!(unpack(level, packed, Selection::Rows(&rows)), expected, "{context}");
            }
        }
    }
}

fn check_range<T: Integer + Debug + PartialEq>(
    level: Level,
    packed: Packed<'_, T>,
    rows: std::ops::Range<usize>,
    values: &[T],
    context: &str,
) {
    if rows.start > rows.end {
        return;
    }
    let values = &values[rows.clone()];
    let mut out = vec![T::default(); rows.len()];
    unpack_into(level, packed, rows.start, &mut out);
    assert_eq!(out, values, "rows {rows:?}, {context}");
    let sum: i128 = values.iter().map(|value| value.to_i128()).sum();
    assert_eq!(sum_packed(level, packed, rows.clone()), sum, "rows {rows:?}, {context}");
    let constants = [values.first().copied().unwrap_or_default(), T::default(), T::MAX];
    for comparison in Comparison::ALL {
        for constant in constants {
            let expected = compare_constant(Level::portable(), comparison, values, constant);
            let answer = compare_packed(level, comparison, packed, rows.clone(), constant);
            assert_eq!(answer, expected, "{comparison:?} {constant:?}, rows {rows:?}, {context}");
        }
    }
}

/// A test a type. Among the references are some from which the widest values go around the end of the type.
macro_rules! integers {
    ($($name:ident $T:ident)*) => {$(
        #[test]
        fn $name() {
            check::<$T>(&[$T::MIN, $T::MIN + 5, $T::MIN, $T::MAX - 3, 77]);
        }
    )*};
}

integers! {
    u8_values_come_back u8 u16_values_come_back u16 u32_values_come_back u32 u64_values_come_back u64
    i8_values_come_back i8 i16_values_come_back i16 i32_values_come_back i32 i64_values_come_back i64
}

#[test]
fn bits_above_the_width_are_cut_off_when_packing() {
    for level in Level::available() {
        assert_eq!(pack(*level, &[0xFF_u8, 0, 0xFF], 3, 0), [0b1100_0111, 0b0000_0001]);
    }
}

#[test]
fn widths_are_the_smallest() {
    for (low, high, width) in [(5, 5, 0), (5, 6, 1), (-1, 2, 2), (i32::MIN, i32::MAX, 32), (-100, 155, 8)] {
        assert_eq!(width_of(low, high), width, "{low} to {high}");
    }
}

/// No bytes bound the count of such rows, so that a loop over them might not end.
#[test]
fn rows_without_bits_are_summed_at_once() {
    let packed = Packed::new(&[], 0, 1 << 62, -7_i64);
    for level in Level::available() {
        assert_eq!(sum_packed(*level, packed, 5..1 << 62), -7 * ((1 << 62) - 5), "{level}");
    }
}

#[test]
fn sizes_that_cannot_be_are_no_overflow() {
    assert_eq!(packed_bytes(usize::MAX, 64), usize::MAX);
    assert_eq!(packed_bytes(9, 7), 8);
    assert_eq!(packed_bytes(usize::MAX, 0), 0);
}

#[test]
#[should_panic(expected = "9 values of 7 bits in 7 bytes")]
fn too_few_bytes_are_refused() {
    let _ = Packed::<u8>::new(&[0; 7], 7, 9, 0);
}

#[test]
#[should_panic(expected = "9 bits of values of 8")]
fn too_many_bits_are_refused() {
    let _ = Packed::<u8>::new(&[0; 70], 9, 9, 0);
}

#[test]
#[should_panic(expected = "rows 3..10 of 9")]
fn rows_behind_the_end_are_refused() {
    unpack_into(Level::best(), Packed::<u8>::new(&[0; 9], 8, 9, 0), 3, &mut [0; 7]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

    #[test]
    fn packed_values_come_back(values in prop::collection::vec(any::<i64>(), 0..300), shift in 0_u32..64) {
        let values: Vec<i64> = values.into_iter().map(|value| value >> shift).collect();
        let (low, high) = (values.iter().min().copied(), values.iter().max().copied());
        let (low, high) = (low.unwrap_or_default(), high.unwrap_or_default());
        let width = width_of(low, high);
        for level in Level::available().iter().copied() {
            let bytes = pack(level, &values, width, low);
            let packed = Packed::new(&bytes, width, values.len(), low);
            prop_assert_eq!(&unpack(level, packed, Selection::All), &values);
            prop_assert_eq!(
                compare_packed(level, Comparison::LessEqual, packed, 0..values.len(), high / 2),
                compare_constant(level, Comparison::LessEqual, &values, high / 2)
            );
        }
    }
}
