//! Integers come back as they were, whole and in part, and hostile bytes give errors.

#![allow(clippy::cast_possible_truncation, reason = "test data is cut to size on purpose")]

use std::fmt::Debug;

use keirin_codecs::integers::{self, Column, Encoding, Int};
use keirin_codecs::{Choice, Clock, Error, Goal};
use keirin_kernels::compare::{Comparison, compare_constant};
use keirin_kernels::{BitBuffer, Level, Selection};
use keirin_testkit::columns::{Keys, Random, Spread};
use proptest::prelude::*;

/// Columns of many shapes, as 64 bits to be cut to size.
fn shapes(count: usize, seed: u64) -> Vec<(&'static str, Vec<i128>)> {
    let mut random = Random::new(seed);
    let wide = |keys: Vec<u64>| keys.into_iter().map(i128::from).collect::<Vec<_>>();
    let mut shapes = vec![
        ("constant", vec![42; count]),
        ("small", wide(Keys::Uniform(100).rows(count, seed))),
        ("bits", (0..count).map(|_| i128::from(random.bits())).collect()),
        ("zipf", wide(Keys::Zipf(1000).rows(count, seed))),
        ("skewed", wide(Keys::Skewed.rows(count, seed))),
        ("runs", wide(Keys::Runs(20).rows(count, seed))),
        ("growing", (0..count as i128).map(|row| 1_000_000 + row * 7).collect()),
        ("shrinking", (0..count as i128).map(|row| 50 - row * 3).collect()),
    ];
    let mut time = 1_600_000_000_i128;
    let steps = (0..count).map(|_| {
        time += i128::from(random.below(40)) - 3;
        time
    });
    shapes.push(("steps", steps.collect()));
    let entries: Vec<u64> = (0..50).map(|_| random.bits()).collect();
    shapes.push((
        "few far apart",
        (0..count).map(|_| i128::from(entries[random.below(50) as usize])).collect(),
    ));
    let outlier = |random: &mut Random| match random.below(100) {
        0 => i128::MIN >> random.below(120),
        1 => i128::from(random.bits()) << 60,
        _ => i128::from(random.below(30)),
    };
    shapes.push(("outliers", (0..count).map(|_| outlier(&mut random)).collect()));
    shapes
}

fn counts() -> Vec<usize> {
    vec![0, 1, 2, 3, 7, 64, 100, 1023, 1024, 1025, 3000, 10_000]
}

trait Cut: Int + Debug {
    fn cut(wide: i128) -> Self;
}

macro_rules! cut {
    ($($T:ty)*) => { $(impl Cut for $T { fn cut(wide: i128) -> Self { wide as $T } })* };
}
cut!(u8 u16 u32 u64 i8 i16 i32 i64 i128);

/// The sum if it has 128 bits, whatever the sums on the way are: halves of values do not overflow.
fn sum<T: Cut>(values: &[T]) -> Option<i128> {
    let halves: i128 = values.iter().map(|value| value.to_i128() >> 64).sum();
    let rest: i128 = values.iter().map(|value| value.to_i128() & i128::from(u64::MAX)).sum();
    let high = halves + (rest >> 64);
    i64::try_from(high).ok().map(|high| i128::from(high) << 64 | rest & i128::from(u64::MAX))
}

/// All that a column answers, against the values.
fn check<T: Cut>(bytes: &[u8], values: &[T], seed: u64, name: &str) {
    let level = Level::best();
    let column = Column::<T>::open(level, bytes, values.len()).expect(name);
    let name = format!("{name}: {}", column.explain());
    assert_eq!(column.decode(level).as_deref(), Ok(values), "{name}");
    let mut random = Random::new(seed);
    for _ in 0..4 {
        let end = random.below(values.len() as u64 + 1) as usize;
        let start = random.below(end as u64 + 1) as usize;
        let mut part = vec![T::default(); end - start];
        column.decode_into(level, start, &mut part).expect(&name);
        assert_eq!(part, values[start..end], "{name}, rows {start}..{end}");
        let sum = sum(&values[start..end]).ok_or(Error::SumOverflow);
        assert_eq!(column.sum(level, start..end), sum, "{name}, sum of {start}..{end}");
    }
    for spread in Spread::ALL {
        let kept: BitBuffer = spread.rows(values.len(), seed).into_iter().collect();
        let expected: Vec<T> = kept.as_bits().ones().map(|row| values[row]).collect();
        let found = column.select(level, Selection::Bits(kept.as_bits()));
        assert_eq!(found.as_ref(), Ok(&expected), "{name}, {spread:?}");
        check_narrow(&column, values, Selection::Bits(kept.as_bits()), &expected, &name);
    }
    check_narrow(&column, values, Selection::All, values, &name);
    if values.is_empty() {
        return;
    }
    let rows: Vec<u32> = (0..50).map(|_| random.below(values.len() as u64) as u32).collect();
    let expected: Vec<T> = rows.iter().map(|row| values[*row as usize]).collect();
    check_narrow(&column, values, Selection::Rows(&rows), &expected, &name);
    assert_eq!(column.select(level, Selection::Rows(&rows)), Ok(expected), "{name}");
    let some = values[random.below(values.len() as u64) as usize];
    for constant in [some, some.plus(T::cut(1)), T::cut(0), T::cut(i128::MIN), T::cut(i128::MAX)] {
        for comparison in Comparison::ALL {
            let expected = compare_constant(level, comparison, values, constant);
            let found = column.compare(level, comparison, constant);
            assert_eq!(found, Ok(expected), "{name}, {comparison:?} {constant:?}");
        }
    }
}

/// Values of 64 bits, unless some of the column have no room.
fn check_narrow<T: Cut>(
    column: &Column<'_, T>,
    values: &[T],
    selection: Selection<'_>,
    expected: &[T],
    name: &str,
) {
    let narrow = |value: &T| i64::try_from(value.to_i128()).ok();
    let expected: Option<Vec<i64>> = expected.iter().map(narrow).collect();
    match column.select_narrow(Level::best(), selection).expect(name) {
        None => assert!(values.iter().any(|value| narrow(value).is_none()), "{name}, all have room"),
        found => assert_eq!(found, expected, "{name}"),
    }
    let mut all = vec![0; values.len()];
    let have_room = column.decode_narrow_into(Level::best(), 0, &mut all).expect(name);
    assert_eq!(have_room.then_some(all), values.iter().map(narrow).collect::<Option<Vec<_>>>(), "{name}");
}

fn check_all<T: Cut>() {
    for count in counts() {
        for (shape, wide) in shapes(count, count as u64) {
            let values: Vec<T> = wide.into_iter().map(T::cut).collect();
            for goal in Goal::ALL {
                let bytes = integers::encode(Level::best(), goal, &values).expect("few values");
                check(&bytes, &values, count as u64, &format!("{shape}, {count} rows, {goal:?}"));
            }
            for encoding in Encoding::ALL {
                let bytes = integers::encode_as(Level::best(), Goal::Balanced, encoding, &values);
                if let Some(bytes) = bytes.expect("few values") {
                    check(&bytes, &values, count as u64, &format!("{shape}, {count} rows as {encoding:?}"));
                }
            }
        }
    }
}

#[test]
fn a_sum_may_leave_128_bits_on_the_way() {
    let level = Level::best();
    let ends = [i128::MAX, 1, -2];
    let around = [vec![i128::MAX - 5; 637], vec![i128::MIN + 1; 3]].concat();
    for values in [&ends[..], &around, &[i128::MIN, i128::MAX, i128::MIN, i128::MAX, 7]] {
        for encoding in Encoding::ALL {
            let bytes = integers::encode_as(level, Goal::Balanced, encoding, values).expect("few values");
            if let Some(bytes) = bytes {
                check(&bytes, values, 1, &format!("{encoding:?}"));
            }
        }
    }
}

#[test]
fn narrow_integers_come_back() {
    check_all::<u8>();
    check_all::<i8>();
    check_all::<u16>();
    check_all::<i16>();
}

#[test]
fn wide_integers_come_back() {
    check_all::<u32>();
    check_all::<i32>();
    check_all::<u64>();
    check_all::<i64>();
    check_all::<i128>();
}

/// Chosen as on every machine, however busy it is.
fn modelled(goal: Goal) -> Choice {
    Choice { clock: Clock::Modelled, ..goal.into() }
}

#[test]
fn each_shape_gets_the_encoding_made_for_it() {
    let check = |shape: &str, expected: &str| {
        let shapes = shapes(10_000, 7);
        let (_, wide) = shapes.iter().find(|(name, _)| *name == shape).expect("a shape");
        let values: Vec<i64> = wide.iter().map(|wide| i64::cut(*wide)).collect();
        let bytes = integers::encode(Level::best(), modelled(Goal::Balanced), &values).expect("few values");
        let column = Column::<i64>::open(Level::best(), &bytes, values.len()).expect("what was written");
        assert_eq!(column.explain(), expected, "{shape}");
    };
    check("constant", "constant");
    check("small", "bitpack(7)");
    check("bits", "raw");
    check("growing", "delta + constant");
    check("steps", "delta + bitpack(6)");
    check("few far apart", "dict(50) + bitpack(6)");
}

/// Whatever the bytes: an error, or as many values as were asked for.
fn survives<T: Int>(bytes: &[u8], count: usize) {
    let level = Level::best();
    let Ok(column) = Column::<T>::open(level, bytes, count) else { return };
    assert_eq!(column.len(), count);
    if let Ok(values) = column.decode(level) {
        assert_eq!(values.len(), count);
    }
    let _ = column.sum(level, 0..count);
    let _ = column.compare(level, Comparison::Less, T::default());
    let rows: Vec<u32> = (0..count as u32).step_by(7).rev().collect();
    if let Ok(values) = column.select(level, Selection::Rows(&rows)) {
        assert_eq!(values.len(), rows.len());
    }
}

#[test]
fn broken_bytes_give_errors_or_as_many_values() {
    let mut random = Random::new(1);
    let level = Level::best();
    for (_, wide) in shapes(300, 3) {
        let values: Vec<i64> = wide.into_iter().map(i64::cut).collect();
        for encoding in Encoding::ALL {
            let encoded = integers::encode_as(level, Goal::Smallest, encoding, &values).expect("few values");
            let Some(bytes) = encoded else { continue };
            for length in 0..bytes.len() {
                let opened = Column::<i64>::open(level, &bytes[..length], values.len());
                assert!(opened.is_err(), "{encoding:?} cut to {length} bytes");
            }
            let mut longer = bytes.clone();
            longer.push(0);
            let opened = Column::<i64>::open(level, &longer, values.len());
            assert!(matches!(opened, Err(Error::Trailing { count: 1, .. })), "{encoding:?}");
            for place in 0..bytes.len() {
                for change in [1, 0x80, 0xFF, (random.bits() as u8).max(1)] {
                    let mut changed = bytes.clone();
                    changed[place] ^= change;
                    survives::<i64>(&changed, values.len());
                    survives::<i128>(&changed, values.len());
                    survives::<u8>(&changed, 1 << 20);
                }
            }
        }
    }
}

#[test]
fn nested_too_deep_is_an_error() {
    // A delta of one row, whose starts are such a delta, and so on.
    let bytes = vec![3; 100];
    let opened = Column::<u32>::open(Level::best(), &bytes, 1);
    assert!(matches!(opened, Err(Error::TooDeep { .. })), "{opened:?}");
}

proptest! {
    #[test]
    fn any_values_come_back(values in prop::collection::vec(any::<i64>(), 0..300), shift in 0_u32..64, goal in 0..3) {
        let values: Vec<i64> = values.into_iter().map(|value| value >> shift).collect();
        let goal = Goal::ALL[goal as usize];
        let bytes = integers::encode(Level::best(), goal, &values).unwrap();
        check(&bytes, &values, u64::from(shift), "any");
        for encoding in Encoding::ALL {
            if let Some(bytes) = integers::encode_as(Level::best(), goal, encoding, &values).unwrap() {
                check(&bytes, &values, u64::from(shift), "any");
            }
        }
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200), id in 0_u8..6, count in 0_usize..500) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = id;
        }
        survives::<u8>(&bytes, count);
        survives::<i32>(&bytes, count);
        survives::<i128>(&bytes, count);
    }
}
