//! Groups by small keys, by every variant at every level, equal those of one row at a time.

#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "random bits are cut; tests may panic"
)]

use std::fmt::Debug;

use keirin_kernels::group_small::{GroupSums, SmallKey, Value, Variant};
use keirin_kernels::{BitBuffer, Level, Selection};
use keirin_testkit::columns::{Keys, Random, Spread, miri_or};
use keirin_testkit::oracle::{self, aggregate};
use proptest::prelude::*;

mod guard;

const SPREADS: [Keys; 6] =
    [Keys::Uniform(256), Keys::Uniform(6), Keys::Skewed, Keys::Single, Keys::Runs(100), Keys::Zipf(256)];
/// Around chunks, vectors and blocks.
const LENGTHS: &[usize] = miri_or(&[1, 65], &[0, 1, 7, 8, 63, 64, 65, 200, 1023, 4096, 16_384, 40_001]);

fn is_same(left: f64, right: f64) -> bool {
    left.to_bits() == right.to_bits() || left.is_nan() && right.is_nan()
}

/// Sums by every variant and level, with and without nulls and selection, equal the naive ones.
fn check<K: SmallKey + Debug, T: Value + Debug>(
    key: impl Fn(u64) -> K,
    make: impl Fn(&mut Random) -> T,
    double: impl Fn(T) -> f64,
    integer: impl Fn(T) -> Option<i128>,
) {
    let mut random = Random::new(7);
    for (index, length) in LENGTHS.iter().copied().enumerate() {
        let offset = index % 8;
        let keys: Vec<K> =
            SPREADS[index % SPREADS.len()].rows(length + offset, 1).into_iter().map(&key).collect();
        let values: Vec<T> = (0..length + offset).map(|_| make(&mut random)).collect();
        let (keys, values) =
            (&guard::AtPageEnd::new(&keys[offset..]), &guard::AtPageEnd::new(&values[offset..]));
        let flags = Spread::ALL[index % 7].rows(length, 2);
        let others = Spread::ALL[(index + 3) % 7].rows(length, 3);
        for (validity, selected) in [(None, None), (Some(&flags), None), (Some(&flags), Some(&others))] {
            let rows =
                oracle::rows(length, validity.map(|flags| &flags[..]), selected.map(|flags| &flags[..]));
            let expected: Vec<(usize, u64, f64, Option<i128>)> =
                aggregate::groups(rows.map(|row| (keys[row].index(), values[row])))
                    .into_iter()
                    .map(|(key, values)| {
                        let sum = aggregate::float_sum(values.iter().map(|value| double(*value)));
                        (key, values.len() as u64, sum, values.iter().map(|value| integer(*value)).sum())
                    })
                    .collect();
            let valid: Option<BitBuffer> = validity.map(|flags| flags.iter().copied().collect());
            let valid = valid.as_ref().map(BitBuffer::as_bits);
            let bits: Option<BitBuffer> = selected.map(|flags| flags.iter().copied().collect());
            let numbers: Option<Vec<u32>> =
                selected.map(|flags| (0..length as u32).filter(|row| flags[*row as usize]).collect());
            let selections = match (&bits, &numbers) {
                (Some(bits), Some(numbers)) => {
                    vec![Selection::Bits(bits.as_bits()), Selection::Rows(numbers)]
                }
                _ => vec![Selection::All],
            };
            for level in Level::available() {
                for (number, variant) in Variant::ALL.iter().enumerate().step_by(miri_or(3, 1)) {
                    let selection = selections[number % selections.len()];
                    let mut sums = GroupSums::new::<K>();
                    sums.add(*level, *variant, keys, values, valid, selection);
                    let mut index = 0;
                    sums.for_each(|key, sum| {
                        let (expected_key, count, value, total) = expected[index];
                        let name = variant.name();
                        assert_eq!((key, sum.count), (expected_key, count), "{level} {name} {length}");
                        match total {
                            Some(total) => assert_eq!(sum.integer(), Some(total), "{level} {name} {length}"),
                            None => assert!(
                                is_same(sum.value(), value),
                                "{level} {name} {length} {sum:?} {value}"
                            ),
                        }
                        assert!(is_same(sum.exact().value(), value), "{level} {name} {length} {value}");
                        index += 1;
                    });
                    assert_eq!(index, expected.len(), "{level} {}", variant.name());
                }
            }
        }
    }
}

fn check_floats(make: impl Fn(&mut Random) -> f64 + Copy) {
    check(|key| key as u8, make, |value| value, |_| None);
    check(|key| key as u8, |random| make(random) as f32, f64::from, |_| None);
}

#[test]
fn prices() {
    check_floats(|random| random.below(1_000_000) as f64 / 100.0);
}

#[test]
fn floats_of_all_sizes_and_kinds() {
    check_floats(|random| match random.below(1000) {
        0 => f64::NAN,
        1 => f64::INFINITY,
        2 => 1e300,
        3 => -0.0,
        4 => 5e-324,
        5 => f64::NEG_INFINITY,
        // Signalling, with a sign and a payload.
        6 => f64::from_bits(0xfff0_0000_0000_0123),
        _ => random.unit() - 0.5,
    });
    check_floats(|random| f64::from_bits(random.bits() & !(1 << 62)));
    check_floats(|_| -0.0);
}

#[test]
fn integers() {
    check(|key| key as u8, |random| random.bits() as i8, |value| value.into(), |value| Some(value.into()));
    check(|key| key as u8, |random| random.bits() as u32, |value| value.into(), |value| Some(value.into()));
    let widest = |random: &mut Random| random.bits() as i64 >> random.below(60);
    check(
        |key| key as u8,
        |random| if random.chance(0.1) { i64::MIN } else { widest(random) >> 12 },
        |value| value as f64,
        |value| Some(value.into()),
    );
    // Short at first, so that counts share their words.
    check(
        |key| key as u8,
        |random| if random.chance(0.001) { i64::MIN } else { random.bits() as i64 >> 30 },
        |value| value as f64,
        |value| Some(value.into()),
    );
    check(
        |key| key as u8,
        |random| if random.chance(0.001) { u64::MAX - random.below(3) } else { random.bits() >> 30 },
        |value: u64| value as f64,
        |value| Some(value.into()),
    );
    check(
        |key| key as u8,
        |random| if random.chance(0.1) { 1 << 63 } else { random.bits() >> 12 },
        |value: u64| value as f64,
        |value| Some(value.into()),
    );
}

#[test]
#[cfg_attr(miri, ignore = "tables of 65,536 keys")]
fn keys_of_16_bits() {
    check(|key| (key * 199) as u16, |random| random.below(500) as f32 / 8.0, f64::from, |_| None);
    check(|key| (key * 257) as u16, |random| random.below(50_000) as f64 / 100.0, |value| value, |_| None);
}

/// Blocks of other sizes than those before change the unit; merging aligns units; nothing changes a bit.
#[test]
fn cuts_variants_and_merges_give_the_same_bits() {
    let mut random = Random::new(11);
    for round in 0..miri_or(3, 300_u64) {
        let length = 1 + random.below(miri_or(100, 3_000)) as usize;
        let keys: Vec<u8> =
            SPREADS[round as usize % 6].rows(length, round).into_iter().map(|key| key as u8).collect();
        let mut scale = 1.0;
        let values: Vec<f64> = (0..length)
            .map(|_| {
                if random.chance(0.003) {
                    scale = aggregate::power_of_two(random.below(200) as i32 - 100);
                }
                (random.below(2_000_001) as f64 - 1e6) / 100.0 * scale
            })
            .collect();
        let mut sums: Vec<GroupSums> = (0..3).map(|_| GroupSums::new::<u8>()).collect();
        let mut start = 0;
        while start < length {
            let end = start + 1 + random.below((length - start) as u64) as usize;
            let variant = Variant::ALL[random.below(Variant::ALL.len() as u64) as usize];
            let level = Level::available()[random.below(Level::available().len() as u64) as usize];
            sums[random.below(3) as usize].add(
                level,
                variant,
                &keys[start..end],
                &values[start..end],
                None,
                Selection::All,
            );
            start = end;
        }
        let (first, others) = sums.split_at_mut(1);
        others.iter_mut().for_each(|other| first[0].merge(other));
        let expected = aggregate::groups(keys.iter().map(|key| usize::from(*key)).zip(values));
        let mut seen = 0;
        first[0].for_each(|key, sum| {
            let values = &expected[&key];
            assert_eq!(sum.count, values.len() as u64);
            let expected = aggregate::float_sum(values.iter().copied());
            assert!(is_same(sum.value(), expected), "round {round}: {:?} {expected:?}", sum.value());
            seen += 1;
        });
        assert_eq!(seen, expected.len());
    }
}

#[test]
#[cfg_attr(miri, ignore = "statistics of many keys, without unsafe code")]
fn many_keys_take_one_table() {
    #[track_caller]
    fn check(keys: Keys, expected: Variant) {
        let keys: Vec<u16> = keys.rows(100_000, 1).into_iter().map(|key| key as u16).collect();
        assert_eq!(Variant::suggest(&keys), expected);
    }
    check(Keys::Uniform(100), Variant::EightTables);
    check(Keys::Uniform(30_000), Variant::OneTable);
    check(Keys::Skewed, Variant::EightTables);
    check(Keys::Single, Variant::EightTables);
    assert_eq!(Variant::suggest::<u16>(&[]), Variant::EightTables);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(miri_or(2, 256)))]

    #[test]
    fn any_doubles_by_any_keys(rows in prop::collection::vec((0_u8..4, any::<f64>()), 0..200), number in 0..Variant::ALL.len()) {
        let (keys, values): (Vec<u8>, Vec<f64>) = rows.iter().copied().unzip();
        let mut sums = GroupSums::new::<u8>();
        sums.add(Level::best(), Variant::ALL[number], &keys, &values, None, Selection::All);
        let expected = aggregate::groups(rows.iter().map(|(key, value)| (usize::from(*key), *value)));
        sums.for_each(|key, sum| {
            assert!(is_same(sum.value(), aggregate::float_sum(expected[&key].iter().copied())));
        });
    }
}
