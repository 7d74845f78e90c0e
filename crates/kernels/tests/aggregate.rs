//! Sums, extrema and counts at every level equal those of one row at a time.

#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "random bits are cut; tests may panic"
)]

use std::fmt::Debug;

use keirin_kernels::aggregate::{self, DecimalSum, ExactSum, Float, Integer};
use keirin_kernels::{BitBuffer, Bits, Level, Selection};
use keirin_testkit::columns::{Random, Spread, lengths, miri_or};
use keirin_testkit::oracle;
use proptest::prelude::*;

mod guard;

/// Lengths at which every combination is tried, and offsets into the buffer.
const SHORT: usize = miri_or(0, 130);
const OFFSETS: usize = 9;

/// Calls `check` with each length, misalignment, null pattern and selection.
fn for_each_input<T: Copy>(
    make: impl Fn(&mut Random) -> T,
    check: impl Fn(&[T], Option<&[bool]>, Option<&[bool]>),
) {
    let mut random = Random::new(17);
    let most = lengths().into_iter().max().unwrap();
    let buffer: Vec<T> = (0..most + OFFSETS).map(|_| make(&mut random)).collect();
    for (index, length) in lengths().into_iter().enumerate() {
        let values = &guard::AtPageEnd::new(&buffer[index % OFFSETS..][..length]);
        check(values, None, None);
        let spreads = if length <= SHORT { &Spread::ALL[..] } else { &Spread::ALL[index % 7..=index % 7] };
        for (pattern, spread) in spreads.iter().enumerate() {
            let flags = spread.rows(length, index as u64);
            check(values, Some(&flags), None);
            check(values, None, Some(&flags));
            let others = Spread::ALL[(pattern + index) % 7].rows(length, 3 + index as u64);
            check(values, Some(&flags), Some(&others));
        }
    }
}

/// Calls `check` with each level and the rows selected in both ways, bits beginning inside a byte.
fn for_each_call(
    length: usize,
    validity: Option<&[bool]>,
    selected: Option<&[bool]>,
    check: impl Fn(Level, Option<Bits<'_>>, Selection<'_>),
) {
    let offset = length % 11;
    let bits =
        |flags: &[bool]| -> BitBuffer { (0..offset).map(|_| true).chain(flags.iter().copied()).collect() };
    let validity = validity.map(bits);
    let validity = validity.as_ref().map(|bits| bits.as_bits().slice(offset, length));
    for level in Level::available() {
        match selected {
            None => check(*level, validity, Selection::All),
            Some(flags) => {
                let selected = bits(flags);
                check(*level, validity, Selection::Bits(selected.as_bits().slice(offset, length)));
                let rows: Vec<u32> = (0..length as u32).filter(|row| flags[*row as usize]).collect();
                check(*level, validity, Selection::Rows(&rows));
            }
        }
    }
}

fn kept<'a, T: Copy>(
    values: &'a [T],
    validity: Option<&'a [bool]>,
    selected: Option<&'a [bool]>,
) -> impl Iterator<Item = T> + 'a {
    oracle::rows(values.len(), validity, selected).map(|row| values[row])
}

fn check_integers<T: Integer + Ord + Debug>(make: impl Fn(u64) -> T) {
    for_each_input(
        |random| make(random.bits()),
        |values, validity, selected| {
            let sum = oracle::aggregate::integer_sum(kept(values, validity, selected));
            let min = kept(values, validity, selected).min();
            let extremes = min.zip(kept(values, validity, selected).max());
            let count = kept(values, validity, selected).count();
            for_each_call(values.len(), validity, selected, |level, validity, selection| {
                assert_eq!(aggregate::sum(level, values, validity, selection), sum, "{level}");
                assert_eq!(aggregate::extremes(level, values, validity, selection), extremes, "{level}");
                assert_eq!(aggregate::count(level, values.len(), validity, selection), count, "{level}");
            });
        },
    );
}

#[test]
fn integers_of_8_bits() {
    check_integers(|bits| bits as i8);
    check_integers(|bits| bits as u8);
}

#[test]
fn integers_of_16_bits() {
    check_integers(|bits| bits as i16);
    check_integers(|bits| bits as u16);
}

#[test]
fn integers_of_32_bits() {
    check_integers(|bits| bits as i32);
    check_integers(|bits| bits as u32);
}

#[test]
fn integers_of_64_bits() {
    check_integers(|bits| bits as i64);
    check_integers(|bits| bits);
}

#[test]
fn sums_of_extreme_integers_are_exact() {
    fn check<T: Integer>(value: T) {
        // More than lanes are given before they are emptied.
        const COUNT: usize = miri_or(103, (1 << 20) + 100_003);
        let values = vec![value; COUNT];
        for level in Level::available() {
            assert_eq!(
                aggregate::sum(*level, &values, None, Selection::All),
                value.into() * COUNT as i128,
                "{level}"
            );
        }
    }
    check(i8::MIN);
    check(i8::MAX);
    check(u8::MAX);
    check(i16::MIN);
    check(i16::MAX);
    check(u16::MAX);
    check(i32::MIN);
    check(i32::MAX);
    check(u32::MAX);
    check(i64::MIN);
    check(i64::MAX);
    check(-1_i64);
    check(u64::MAX);
}

/// Each row counts once, in columns of more rows than lanes are given before they are emptied.
#[test]
fn long_columns() {
    const COUNT: usize = miri_or(300, (1 << 20) + 1_003);
    fn check<T: Integer>(make: impl Fn(u64) -> T) {
        let mut random = Random::new(5);
        let values: Vec<T> = (0..COUNT).map(|_| make(random.bits())).collect();
        for level in Level::available() {
            for start in [0, 1, 5] {
                let values = &values[start..];
                let expected: i128 = values.iter().map(|value| (*value).into()).sum();
                assert_eq!(aggregate::sum(*level, values, None, Selection::All), expected, "{level}");
                // Two that begin at different places in their lines, and leave different tails.
                for (gap, len) in [(0, COUNT / 3), (1, COUNT / 3 + 1), (37, 130), (0, 64), (2, 1), (0, 0)] {
                    let columns = [&values[..len], &values[len + gap..][..len]];
                    let expected =
                        columns.map(|values| values.iter().map(|value| (*value).into()).sum::<i128>());
                    let found = aggregate::sum_two(*level, columns);
                    assert_eq!(found, expected[0] + expected[1], "{level}, {len} rows each");
                }
            }
        }
    }
    check(|bits| bits as i8);
    check(|bits| bits as u8);
    check(|bits| bits as i16);
    check(|bits| bits as u16);
    check(|bits| bits as i32);
    check(|bits| bits as u32);
    check(|bits| bits as i64);
    check(|bits| bits);
}

#[test]
fn long_columns_of_decimals() {
    const COUNT: usize = miri_or(300, (1 << 20) + 1_003);
    let mut random = Random::new(6);
    let mixed: Vec<i128> =
        (0..COUNT).map(|_| i128::from(random.bits()) << 64 | i128::from(random.bits())).collect();
    for values in [vec![i128::MIN; COUNT], vec![i128::MAX; COUNT], vec![-1; COUNT], mixed] {
        let mut expected = DecimalSum::default();
        for value in &values {
            expected.merge(DecimalSum::from_parts(*value as u128, if *value < 0 { -1 } else { 0 }));
        }
        for level in Level::available() {
            assert_eq!(aggregate::sum_decimals(*level, &values, None, Selection::All), expected, "{level}");
            let middle = values.len() / 2;
            let mut found = DecimalSum::default();
            found.add_two(*level, [&values[..middle], &values[middle..2 * middle]]);
            found.add(*level, &values[2 * middle..], None, Selection::All);
            assert_eq!(found, expected, "{level}, two halves");
        }
    }
}

#[test]
#[should_panic(expected = "two columns are of one length")]
fn two_columns_must_be_of_one_length() {
    let _ = aggregate::sum_two(Level::best(), [&[1, 2][..], &[3]]);
}

/// Blocks of exact sums that are as full as they get, with values just below what the first window has room for.
#[test]
fn long_columns_of_floats() {
    const COUNT: usize = miri_or(300, 3 * 16384 + 127 + 7);
    fn check<T: Float + Debug>(values: &[T]) {
        for level in Level::available() {
            for start in [0, 1, 7] {
                let (mut sum, mut expected) = (ExactSum::default(), ExactSum::default());
                sum.add(*level, &values[start..], None, Selection::All);
                expected.extend(values[start..].iter().map(|value| (*value).into()));
                assert_eq!(sum, expected, "{level}");
            }
            for (gap, len) in [(0, COUNT / 2), (1, COUNT / 3), (37, 130), (0, 64), (2, 1), (0, 0)] {
                let columns = [&values[..len], &values[len + gap..][..len]];
                let (mut sum, mut expected) = (ExactSum::default(), ExactSum::default());
                sum.add_two(*level, columns);
                columns.iter().for_each(|values| expected.extend(values.iter().map(|value| (*value).into())));
                assert_eq!(sum, expected, "{level}, {len} rows each");
            }
        }
    }
    for value in [1.0_f64.next_down(), -1.0_f64.next_down(), 1e15 / 3.0] {
        check(&vec![value; COUNT]);
    }
    check(&vec![1.0_f32.next_down(); COUNT]);
    // As integers, blocks of sizes that differ by 2^29 fit, and by 2^30 no more; then it begins anew elsewhere.
    for exponent in [-140, -127, -60, 0, 60, 127] {
        for span in [0, 28, 29, 30, 31, 60] {
            let ends = [exponent - span, exponent].map(oracle::aggregate::power_of_two);
            let pattern = [ends[0] as f32, ends[1] as f32, 0.0, -0.0];
            let mut values: Vec<f32> = pattern.into_iter().cycle().take(COUNT - 3).collect();
            let full = f32::from_bits((ends[1] as f32).to_bits() | 0x7F_FFFF);
            values.iter_mut().step_by(5).for_each(|value| *value = if full.is_finite() { full } else { 1.0 });
            values.iter_mut().skip(COUNT / 2).for_each(|value| *value = -*value);
            values.extend([1e-20, 1.5, f32::MAX]);
            check(&values);
        }
    }
    // As full as lanes get, of either sign, with the least that may be among them.
    for sign in [1.0, -1.0] {
        let mut values = vec![sign * 2.0_f32.next_down(); COUNT];
        values[17] = oracle::aggregate::power_of_two(-29) as f32;
        check(&values);
    }
    let mut random = Random::new(7);
    // Rows that count by a mask, in whole blocks.
    let values: Vec<f32> = (0..COUNT).map(|_| float(0, &mut random) as f32).collect();
    let flags: Vec<bool> = (0..COUNT).map(|_| random.chance(0.7)).collect();
    let bits: BitBuffer = flags.iter().copied().collect();
    for level in Level::available() {
        let mut sum = ExactSum::default();
        sum.add(*level, &values, Some(bits.as_bits()), Selection::All);
        let kept = values.iter().zip(&flags).filter(|(_, flag)| **flag);
        let mut expected = ExactSum::default();
        expected.extend(kept.map(|(value, _)| f64::from(*value)));
        assert_eq!(sum, expected, "{level}");
    }
    check(&(0..COUNT).map(|_| float(random.bits() % 8, &mut random)).collect::<Vec<_>>());
}

#[test]
#[should_panic(expected = "a bit of validity for each row")]
fn counting_refuses_the_validity_of_another_column() {
    let _ = aggregate::count(Level::best(), 2, Some(Bits::new(&[0b111], 0, 3)), Selection::Rows(&[2]));
}

#[test]
fn decimals() {
    let make = |random: &mut Random| {
        let value = (i128::from(random.bits()) << 64) | i128::from(random.bits());
        if random.chance(0.5) { value } else { value >> random.below(127) }
    };
    for_each_input(make, |values, validity, selected| {
        let sum = oracle::aggregate::decimal_sum(kept(values, validity, selected));
        let min = kept(values, validity, selected).min();
        let extremes = min.zip(kept(values, validity, selected).max());
        for_each_call(values.len(), validity, selected, |level, validity, selection| {
            assert_eq!(aggregate::sum_decimals(level, values, validity, selection).value(), sum, "{level}");
            assert_eq!(aggregate::extremes(level, values, validity, selection), extremes, "{level}");
        });
    });
}

#[test]
fn decimal_sums_may_overflow_on_the_way() {
    let level = Level::best();
    let mut sum = aggregate::sum_decimals(level, &[i128::MAX; 5], None, Selection::All);
    assert_eq!(sum.value(), None);
    sum.merge(aggregate::sum_decimals(level, &[-i128::MAX; 4], None, Selection::All));
    assert_eq!(sum.value(), Some(i128::MAX));
    sum.add(level, &[i128::MIN, i128::MIN], None, Selection::All);
    assert_eq!(sum.value(), None);
}

fn check_floats<T: Float + Debug>(make: impl Fn(&mut Random) -> T) {
    for_each_input(make, |values, validity, selected| {
        let floats: Vec<f64> = kept(values, validity, selected).map(Into::into).collect();
        let sum = oracle::aggregate::float_sum(floats.iter().copied());
        let least = floats.iter().copied().min_by(f64::total_cmp).map(f64::to_bits);
        let greatest = floats.iter().copied().max_by(f64::total_cmp).map(f64::to_bits);
        for_each_call(values.len(), validity, selected, |level, validity, selection| {
            let mut actual = ExactSum::default();
            actual.add(level, values, validity, selection);
            assert!(is_same(actual.value(), sum), "{level}: {:?} is not {sum:?}", actual.value());
            let wide = |value: T| Into::<f64>::into(value).to_bits();
            let extremes = aggregate::extremes(level, values, validity, selection);
            let extremes = extremes.map(|(least, greatest)| (wide(least), wide(greatest)));
            assert_eq!(extremes, least.zip(greatest), "{level}");
        });
    });
}

/// Equal bits, or both NaN.
fn is_same(left: f64, right: f64) -> bool {
    left.to_bits() == right.to_bits() || left.is_nan() && right.is_nan()
}

/// Floats of many kinds: prices, whole numbers, full mantissas near each other, all sizes, special ones.
fn float(kind: u64, random: &mut Random) -> f64 {
    match kind {
        0 => random.below(1_000_000) as f64 / 100.0,
        1 => random.below(1 << 40) as f64 - (1_u64 << 39) as f64,
        2 => random.unit() - 0.5,
        3 => f64::from_bits(random.bits() & !(1 << 62)),
        4 => f64::from_bits(random.bits() >> 12 | random.bits() << 63), // subnormal
        5 => 1e308 * (random.below(3) as f64 - 1.0) + random.unit(),
        6 => [0.0, -0.0, 1.0, -1.0][random.below(4) as usize],
        _ => {
            let special = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -f64::NAN, f64::MAX, 5e-324];
            if random.chance(0.01) { special[random.below(6) as usize] } else { float(2, random) }
        }
    }
}

#[test]
fn doubles() {
    for kind in [0, 2, 3, 7].into_iter().step_by(miri_or(2, 1)) {
        check_floats(|random| float(kind, random));
    }
}

#[test]
fn singles() {
    check_floats(|random| float(0, random) as f32);
    check_floats(|random| {
        let value = f32::from_bits(random.bits() as u32);
        // Signalling NaNs turn quiet when the oracle widens them.
        if value.is_nan() { f32::NAN } else { value }
    });
}

/// However rows are cut and sums are merged, no bit of the sum changes.
#[test]
fn ten_thousand_cuts_give_the_same_bits() {
    let mut random = Random::new(5);
    for cut in 0..miri_or(16, 10_000_u64) {
        let kind = cut % 8;
        let most = if cut % 50 == 0 { miri_or(200, 20_000) } else { miri_or(80, 300) };
        let mut values: Vec<f64> = (0..random.below(most)).map(|_| float(kind, &mut random)).collect();
        if cut % 97 == 0 {
            // Sums on the way exceed the range of floats.
            values.extend([1e308, 1e308, -1e308]);
        }
        let expected = oracle::aggregate::float_sum(values.iter().copied());
        for index in (1..values.len()).rev() {
            values.swap(index, random.below(index as u64 + 1) as usize);
        }
        let levels = Level::available();
        let mut sums = vec![ExactSum::default(); 1 + random.below(4) as usize];
        let mut rest = &values[..];
        while !rest.is_empty() {
            let (batch, later) = rest.split_at(1 + random.below(rest.len() as u64) as usize);
            let level = levels[random.below(levels.len() as u64) as usize];
            let sum = random.below(sums.len() as u64) as usize;
            sums[sum].add(level, batch, None, Selection::All);
            rest = later;
        }
        while sums.len() > 1 {
            let other = sums.swap_remove(random.below(sums.len() as u64) as usize);
            sums[0].merge(&ExactSum::from_words(&other.to_words()).unwrap());
        }
        assert!(is_same(sums[0].value(), expected), "cut {cut}, kind {kind}: {:?} {expected:?}", sums[0]);
    }
}

#[test]
fn sums_of_special_floats() {
    #[track_caller]
    fn check(values: &[f64], expected: f64) {
        let sum: ExactSum = values.iter().fold(ExactSum::default(), |mut sum, value| {
            sum.push(*value);
            sum
        });
        assert!(is_same(sum.value(), expected), "{:?} is not {expected:?}", sum.value());
        // Enough of them for the vectorised loop.
        let many: Vec<f64> = values.iter().copied().chain((0..miri_or(70, 500)).map(|_| 0.0)).collect();
        for level in Level::available() {
            let mut sum = ExactSum::default();
            sum.add(*level, &many, None, Selection::All);
            assert!(is_same(sum.value(), expected), "{level}: {:?} is not {expected:?}", sum.value());
            let words = sum.to_words();
            assert!(is_same(ExactSum::from_words(&words).unwrap().value(), expected));
        }
    }
    check(&[], 0.0);
    check(&[-0.0, -0.0], 0.0);
    check(&[1e308, 1e308, -1e308], 1e308);
    check(&[1e308, 1e308], f64::INFINITY);
    check(&[f64::MAX, f64::MAX, -f64::MAX, -f64::MAX, 1.0], 1.0);
    check(&[f64::INFINITY, 1.0, f64::MIN], f64::INFINITY);
    check(&[f64::INFINITY, f64::NEG_INFINITY], f64::NAN);
    check(&[f64::NAN, 1.0], f64::NAN);
    check(&[1.0, 1e100, 1.0, -1e100], 2.0);
    check(&[5e-324, 5e-324, -5e-324], 5e-324);
    check(&[2.2250738585072014e-308, -5e-324], 2.225073858507201e-308);
    // Ties go to even, and a speck decides them.
    check(&[9_007_199_254_740_992.0, 1.0], 9_007_199_254_740_992.0);
    check(&[9_007_199_254_740_994.0, 1.0], 9_007_199_254_740_996.0);
    check(&[9_007_199_254_740_992.0, 1.0, 5e-324], 9_007_199_254_740_994.0);
    check(&[f64::MAX, oracle::aggregate::power_of_two(970)], f64::INFINITY);
    check(&[f64::MAX, oracle::aggregate::power_of_two(970).next_down()], f64::MAX);
    check(&[-0.1, -0.2], -0.30000000000000004);
}

#[test]
fn means_are_rounded_once() {
    #[track_caller]
    fn check(values: &[f64], count: u64, expected: Option<f64>) {
        let mut sum = ExactSum::default();
        sum.extend(values.iter().copied());
        assert_eq!(sum.mean(count), expected);
    }
    check(&[1e308, 1e308], 2, Some(1e308));
    check(&[1.0, 1.0, 2.0], 3, Some(4.0 / 3.0));
    check(&[5e-324], 2, Some(0.0));
    check(&[5e-324], 3, Some(0.0));
    check(&[1e-323], 3, Some(5e-324));
    check(&[1.5e-323], 2, Some(1e-323));
    check(&[-10.0], 4, Some(-2.5));
    check(&[0.1], 0, None);
}

#[test]
fn words_of_no_sum_are_refused() {
    for words in [
        &[][..],
        &[0],
        &[0, 69],
        &[0, 0, 1 << 32],
        &[1.0_f64.to_bits(), 68],
        &[0, 67, 1 << 40],
        &[0, 67, 0, 0],
    ] {
        assert_eq!(ExactSum::from_words(words), None, "{words:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(miri_or(2, 256)))]

    #[test]
    fn means_of_whole_numbers_are_their_quotients(numbers in prop::collection::vec(-1_000_000_i64..1_000_000, 1..50)) {
        let mut sum = ExactSum::default();
        sum.extend(numbers.iter().map(|number| *number as f64));
        let expected = numbers.iter().sum::<i64>() as f64 / numbers.len() as f64;
        prop_assert_eq!(sum.mean(numbers.len() as u64), Some(expected + 0.0));
    }

    #[test]
    fn words_bring_the_sum_back(values in prop::collection::vec(any::<f64>(), 0..40)) {
        let mut sum = ExactSum::default();
        sum.extend(values);
        prop_assert_eq!(&ExactSum::from_words(&sum.to_words()).unwrap(), &sum);
    }
}
