//! Floats come back to the bit, and hostile bytes give errors.

#![allow(clippy::cast_possible_truncation, reason = "test data is cut to size on purpose")]

use keirin_codecs::floats::{self, Column, Encoding, Float};
use keirin_codecs::{Choice, Clock, Error, Goal};
use keirin_kernels::compare::{Comparison, compare_constant};
use keirin_kernels::{BitBuffer, Level, Selection};
use keirin_testkit::columns::{Random, Spread};
use proptest::prelude::*;

const ODD: [f64; 10] = [
    0.0,
    -0.0,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    f64::MIN_POSITIVE,
    f64::MAX,
    5e-324,
    9_007_199_254_740_993.0,
    1e22,
];

fn shapes(count: usize, seed: u64) -> Vec<(&'static str, Vec<f64>)> {
    let mut random = Random::new(seed);
    let mut rows = |value: &mut dyn FnMut(&mut Random) -> f64| {
        (0..count).map(|_| value(&mut random)).collect::<Vec<f64>>()
    };
    let mut walk = 20_000;
    vec![
        ("constant", rows(&mut |_| 3.25)),
        ("prices", rows(&mut |random| random.below(10_000) as f64 / 100.0)),
        (
            "negative and odd",
            rows(&mut |random| match random.below(50) {
                0 => ODD[random.below(10) as usize],
                1 => f64::from_bits(0x7FF0_0000_0000_0001 + random.below(1 << 30)),
                _ => -(random.below(1_000_000) as f64) / 1000.0,
            }),
        ),
        (
            "measured",
            rows(&mut |random| {
                walk += random.below(20) as i64 - 10;
                walk as f64 / 10.0
            }),
        ),
        ("real", rows(&mut |random| 100.0 + random.unit())),
        ("bits", rows(&mut |random| f64::from_bits(random.bits()))),
        ("whole", rows(&mut |random| random.below(1 << 40) as f64)),
        ("places", rows(&mut |random| (52.0 + random.unit()).to_radians())),
    ]
}

/// All that a column answers, against the values; floats are compared by their bits.
fn check<F: Float>(bytes: &[u8], values: &[F], seed: u64, name: &str) {
    let bits = |values: &[F]| values.iter().map(|value| value.bits()).collect::<Vec<_>>();
    let level = Level::best();
    let column = Column::<F>::open(level, bytes, values.len()).expect(name);
    let name = format!("{name}: {}", column.explain());
    assert_eq!(bits(&column.decode(level).expect(&name)), bits(values), "{name}");
    let mut random = Random::new(seed);
    let end = random.below(values.len() as u64 + 1) as usize;
    let start = random.below(end as u64 + 1) as usize;
    let mut part = vec![F::default(); end - start];
    column.decode_into(level, start, &mut part).expect(&name);
    assert_eq!(bits(&part), bits(&values[start..end]), "{name}, rows {start}..{end}");
    for spread in Spread::ALL {
        let kept: BitBuffer = spread.rows(values.len(), seed).into_iter().collect();
        let expected: Vec<F> = kept.as_bits().ones().map(|row| values[row]).collect();
        let found = column.select(level, Selection::Bits(kept.as_bits())).expect(&name);
        assert_eq!(bits(&found), bits(&expected), "{name}, {spread:?}");
    }
    if values.is_empty() {
        return;
    }
    let rows: Vec<u32> = (0..50).map(|_| random.below(values.len() as u64) as u32).collect();
    let expected: Vec<F> = rows.iter().map(|row| values[*row as usize]).collect();
    let found = column.select(level, Selection::Rows(&rows)).expect(&name);
    assert_eq!(bits(&found), bits(&expected), "{name}");
    let zero = F::default();
    for constant in [values[rows[0] as usize], values[rows[1] as usize], zero, F::from_bits(values[0].bits())]
    {
        for comparison in Comparison::ALL {
            let expected = compare_constant(level, comparison, values, constant);
            let found = column.compare(level, comparison, constant);
            assert_eq!(found, Ok(expected), "{name}, {comparison:?} {constant:?}");
        }
    }
}

fn check_all<F: Float>(cut: impl Fn(f64) -> F) {
    for count in [0, 1, 2, 100, 1023, 1024, 1025, 6000] {
        for (shape, wide) in shapes(count, count as u64) {
            let values: Vec<F> = wide.into_iter().map(&cut).collect();
            for goal in Goal::ALL {
                let bytes = floats::encode(Level::best(), goal, &values).expect("few values");
                check(&bytes, &values, count as u64, &format!("{shape}, {count} rows, {goal:?}"));
            }
            for encoding in Encoding::ALL {
                let bytes = floats::encode_as(Level::best(), Goal::Balanced, encoding, &values);
                if let Some(bytes) = bytes.expect("few values") {
                    check(&bytes, &values, count as u64, &format!("{shape}, {count} rows as {encoding:?}"));
                }
            }
        }
    }
}

#[test]
fn floats_of_64_bits_come_back() {
    check_all::<f64>(|value| value);
}

#[test]
fn floats_of_32_bits_come_back() {
    check_all::<f32>(|value| value as f32);
}

/// Chosen as on every machine, however busy it is.
fn modelled(goal: Goal) -> Choice {
    Choice { clock: Clock::Modelled, ..goal.into() }
}

#[test]
fn each_shape_gets_the_encoding_made_for_it() {
    let check = |shape: &str, expected: &str| {
        let shapes = shapes(10_000, 7);
        let (_, values) = shapes.iter().find(|(name, _)| *name == shape).expect("a shape");
        let bytes = floats::encode(Level::best(), modelled(Goal::Balanced), values).expect("few values");
        let column = Column::<f64>::open(Level::best(), &bytes, values.len()).expect("what was written");
        assert_eq!(column.explain(), expected, "{shape}");
    };
    check("constant", "constant");
    check("prices", "alp(14, 12) + bitpack(14)");
    check("bits", "raw");
    check("whole", "alp(0, 0) + bitpack(40)");
}

fn survives<F: Float>(bytes: &[u8], count: usize) {
    let level = Level::best();
    let Ok(column) = Column::<F>::open(level, bytes, count) else { return };
    if let Ok(values) = column.decode(level) {
        assert_eq!(values.len(), count);
        for constant in [F::default(), values.first().copied().unwrap_or_default()] {
            let expected = compare_constant(level, Comparison::LessEqual, &values, constant);
            assert_eq!(column.compare(level, Comparison::LessEqual, constant), Ok(expected));
        }
    }
    let rows: Vec<u32> = (0..count as u32).step_by(7).rev().collect();
    if let Ok(values) = column.select(level, Selection::Rows(&rows)) {
        assert_eq!(values.len(), rows.len());
    }
}

#[test]
fn broken_bytes_give_errors_or_as_many_values() {
    let level = Level::best();
    for (_, values) in shapes(150, 3) {
        for encoding in Encoding::ALL {
            let encoded = floats::encode_as(level, Goal::Smallest, encoding, &values).expect("few values");
            let Some(bytes) = encoded else { continue };
            for length in 0..bytes.len() {
                let opened = Column::<f64>::open(level, &bytes[..length], values.len());
                assert!(matches!(opened, Err(Error::Truncated { .. })), "{encoding:?} cut to {length} bytes");
            }
            for place in 0..bytes.len() {
                for change in [1, 0x10, 0x80, 0xFF] {
                    let mut changed = bytes.clone();
                    changed[place] ^= change;
                    survives::<f64>(&changed, values.len());
                    survives::<f32>(&changed, values.len());
                }
            }
        }
    }
}

#[test]
fn upper_bits_that_do_not_fit_are_refused() {
    // Found by fuzzing: 18 lower bits, so 14 above them, and upper bits of 16.
    let bytes = [
        2, 18, 3, 1, 0, 104, 0, 104, 3, 0, 22, 0, 0, 0, 13, 166, 246, 230, 0, 0, 0, 0, 0, 0, 247, 0, 0, 44, 0,
    ];
    let column = Column::<f32>::open(Level::best(), &bytes, 5).expect("opens");
    let error = column.decode(Level::best()).expect_err("refused");
    assert_eq!(error.to_string(), "byte 2: upper bits of floats that are too many");
    assert_eq!(column.select(Level::best(), Selection::Rows(&[0])), Err(error));
}

proptest! {
    #[test]
    fn any_values_come_back(bits in prop::collection::vec(any::<u64>(), 0..200), goal in 0..3) {
        let values: Vec<f64> = bits.iter().map(|bits| f64::from_bits(*bits)).collect();
        let goal = Goal::ALL[goal as usize];
        for encoding in Encoding::ALL {
            if let Some(bytes) = floats::encode_as(Level::best(), goal, encoding, &values).unwrap() {
                check(&bytes, &values, 1, "any");
            }
        }
    }

    #[test]
    fn any_decimal_numbers_come_back(
        wholes in prop::collection::vec(-100_000_i32..100_000, 1..200), digits in 0..8,
    ) {
        let values: Vec<f64> = wholes.iter().map(|whole| f64::from(*whole) / 10_f64.powi(digits)).collect();
        let bytes = floats::encode_as(Level::best(), Goal::Balanced, Encoding::Alp, &values).unwrap().unwrap();
        check(&bytes, &values, 1, "decimal");
        let values: Vec<f32> = wholes.iter().map(|whole| *whole as f32 / 10_f32.powi(digits)).collect();
        let bytes = floats::encode_as(Level::best(), Goal::Balanced, Encoding::Alp, &values).unwrap().unwrap();
        check(&bytes, &values, 1, "decimal");
    }
}
