//! Hashes are the same at every level and for every layout, and spread all keys evenly.

#![allow(clippy::cast_possible_truncation, reason = "rows are few, and keys are cut on purpose")]

mod guard;

use guard::AtPageEnd;
use keirin_kernels::hash::{
    Key, Seed, Strings, combine_keys, combine_strings, hash_keys, hash_strings, stored_hash, stored_hashes,
};
use keirin_kernels::{BitBuffer, Bits, Level};
use keirin_testkit::columns::{Random, Spread, lengths, miri_or};

fn hashes<K: Key>(level: Level, seed: &Seed, keys: &[K], validity: Option<Bits<'_>>) -> Vec<u64> {
    let mut hashes = vec![0; keys.len()];
    hash_keys(level, seed, keys, validity, &mut hashes);
    hashes
}

fn check_width<K: Key>(make: impl Fn(u64) -> K) {
    const COUNT: usize = miri_or(140, 8300);
    let seed = Seed::new(1);
    let mut random = Random::new(2);
    let keys: Vec<K> = (0..COUNT).map(|_| make(random.bits())).collect();
    let one = |key: K| hashes(Level::portable(), &seed, &[key], None)[0];
    let null = hashes(Level::portable(), &seed, &[K::default()], Some(Bits::new(&[0], 0, 1)))[0];
    let expected: Vec<u64> = keys.iter().map(|key| one(*key)).collect();
    for level in Level::available() {
        for len in lengths() {
            for offset in [0, 1, 7] {
                let range = offset..offset + len;
                assert_eq!(
                    hashes(*level, &seed, &keys[range.clone()], None),
                    expected[range],
                    "{level} {len}"
                );
            }
        }
        for len in [0, 1, 63, 64, 65, 200, 1025].into_iter().filter(|len| *len < COUNT) {
            for spread in Spread::ALL {
                let flags = spread.rows(len, 3);
                let bits: BitBuffer = flags.iter().copied().collect();
                let expected: Vec<u64> = flags
                    .iter()
                    .zip(&expected)
                    .map(|(valid, hash)| if *valid { *hash } else { null })
                    .collect();
                let got = hashes(*level, &seed, &keys[..len], Some(bits.as_bits()));
                assert_eq!(got, expected, "{level} {len} {spread:?}");
            }
        }
    }
}

#[test]
fn hashes_are_the_same_at_every_level_length_and_offset() {
    check_width(|bits| bits as u8);
    check_width(|bits| bits as i16);
    check_width(|bits| bits as u32);
    check_width(|bits| bits);
    check_width(|bits| u128::from(bits) << 50 | u128::from(bits));
}

#[test]
fn the_hash_of_a_number_does_not_depend_on_its_width() {
    let (seed, level) = (Seed::new(1), Level::best());
    let narrow = hashes(level, &seed, &[-7_i8, 100], None);
    assert_eq!(narrow, hashes(level, &seed, &[-7_i64, 100], None));
    assert_eq!(narrow, hashes(level, &seed, &[-7_i32, 100], None));
}

#[test]
fn seeds_give_different_hashes_and_keep_their_secret() {
    let level = Level::best();
    assert_ne!(hashes(level, &Seed::new(1), &[5_u64], None), hashes(level, &Seed::new(2), &[5_u64], None));
    assert!(Seed::random() != Seed::random());
    assert_eq!(format!("{:?}", Seed::new(1)), "Seed");
}

#[test]
fn columns_count_by_their_order_and_their_nulls() {
    let (seed, level) = (Seed::new(1), Level::best());
    let pair = |left: Option<u64>, right: Option<u64>| {
        let bit = |key: Option<u64>| [u8::from(key.is_some())];
        let mut hashes = [0];
        let (left_bit, right_bit) = (bit(left), bit(right));
        hash_keys(level, &seed, &[left.unwrap_or(9)], Some(Bits::new(&left_bit, 0, 1)), &mut hashes);
        combine_keys(level, &seed, &[right.unwrap_or(9)], Some(Bits::new(&right_bit, 0, 1)), &mut hashes);
        hashes[0]
    };
    let values = [None, Some(0), Some(1), Some(u64::MAX)];
    let mut all: Vec<u64> = values.iter().flat_map(|left| values.map(|right| pair(*left, right))).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 16, "each pair has a hash of its own");
}

/// Strings as all layouts have them, the buffer ending with the last string.
fn check_strings(strings: &[Vec<u8>]) {
    let (seed, count) = (Seed::new(1), strings.len());
    let bytes = strings.concat();
    let mut ends = vec![0_i64];
    strings.iter().for_each(|string| ends.push(ends[ends.len() - 1] + string.len() as i64));
    let offsets: Vec<i32> = ends.iter().map(|end| *end as i32).collect();
    let views: Vec<u128> = strings
        .iter()
        .zip(&ends)
        .map(|(string, start)| {
            let mut view = [0; 16];
            view[..4].copy_from_slice(&(string.len() as u32).to_le_bytes());
            if string.len() <= 12 {
                view[4..4 + string.len()].copy_from_slice(string);
            } else {
                view[4..8].copy_from_slice(&string[..4]);
                view[12..].copy_from_slice(&(*start as u32).to_le_bytes());
            }
            u128::from_le_bytes(view)
        })
        .collect();
    let expected: Vec<u64> = strings
        .iter()
        .map(|string| {
            let mut hash = [0];
            let ends = [0, string.len() as i64];
            hash_strings(Level::portable(), &seed, Strings::Offsets64(&ends, string), None, &mut hash);
            hash[0]
        })
        .collect();
    for level in Level::available() {
        for layout in [
            Strings::Offsets32(&offsets, &bytes),
            Strings::Offsets64(&ends, &bytes),
            Strings::Views(&views, &[&bytes]),
        ] {
            let mut hashes = vec![0; count];
            hash_strings(*level, &seed, layout, None, &mut hashes);
            assert_eq!(hashes, expected, "{level}");
            let mut combined = vec![1; count];
            combine_strings(*level, &seed, layout, None, &mut combined);
            assert!(hashes.iter().zip(&combined).all(|(hash, combined)| hash != combined));
        }
    }
    let mut distinct = expected;
    distinct.sort_unstable();
    distinct.dedup();
    let mut strings = strings.to_vec();
    strings.sort_unstable();
    strings.dedup();
    assert_eq!(distinct.len(), strings.len(), "different strings have different hashes");
}

#[test]
fn strings_of_every_length_hash_alike_in_every_layout() {
    let text: Vec<u8> = (0..=255).cycle().take(400).collect();
    let mut strings: Vec<Vec<u8>> = lengths().iter().take(201).map(|len| text[..*len].to_vec()).collect();
    strings.extend((0..miri_or(20, 100)).map(|len| vec![0; len]));
    // One byte changed at every place of strings around the block sizes.
    for len in [12, 13, 16, 17, 32, 33, 64, 65].into_iter().step_by(miri_or(3, 1)) {
        for place in 0..len {
            let mut string = text[..len].to_vec();
            string[place] ^= 0x80;
            strings.push(string);
        }
    }
    check_strings(&strings);
    check_strings(&[]);
}

/// Rows of a slice, the hashes before them and their validity, against one row at a time.
fn check_slices(len_min: u64, len_max: u64) {
    const ROWS: usize = miri_or(90, 300);
    let (seed, mut random) = (Seed::new(1), Random::new(len_min + len_max));
    let (mut bytes, mut ends, mut views) = (vec![b'x'; 5], vec![5_i64], Vec::new());
    for _ in 0..ROWS {
        let (start, len) = (bytes.len(), (len_min + random.below(len_max - len_min + 1)) as usize);
        bytes.extend((0..len).map(|_| random.below(256) as u8));
        let row = &bytes[start..];
        let mut view = [0xEE; 16];
        view[..4].copy_from_slice(&(len as u32).to_le_bytes());
        if len <= 12 {
            // Bytes behind a short string do not count.
            view[4..4 + len].copy_from_slice(row);
        } else {
            view[4..8].copy_from_slice(&row[..4]);
            view[8..12].copy_from_slice(&1_u32.to_le_bytes());
            view[12..].copy_from_slice(&(start as u32).to_le_bytes());
        }
        views.push(u128::from_le_bytes(view));
        ends.push(bytes.len() as i64);
    }
    let offsets: Vec<i32> = ends.iter().map(|end| *end as i32).collect();
    let bytes = AtPageEnd::new(&bytes);
    let (ends, offsets, views) = (AtPageEnd::new(&ends), AtPageEnd::new(&offsets), AtPageEnd::new(&views));
    let before: Vec<u64> = (0..ROWS).map(|_| random.bits()).collect();
    let flags = Spread::ALL[1].rows(ROWS + 3, 5);
    let valid: BitBuffer = flags.iter().copied().collect();
    let one = |row: usize, is_valid: bool| {
        let (string, mut hash) = (&bytes[ends[row] as usize..ends[row + 1] as usize], [before[row]]);
        let string = Strings::Offsets64(&[0, string.len() as i64], string);
        combine_strings(
            Level::portable(),
            &seed,
            string,
            Some(Bits::new(&[u8::from(is_valid)], 0, 1)),
            &mut hash,
        );
        hash[0]
    };
    for level in Level::available() {
        for first in [0, 1, 3, 62, 70] {
            for len in [1, 19, ROWS - first - 7, ROWS - first] {
                let rows = first..first + len;
                for validity in [None, Some(valid.as_bits().slice(first + 3, len))] {
                    let is_valid = |row: usize| validity.is_none_or(|valid| valid.get(row - first));
                    let expected: Vec<u64> = rows.clone().map(|row| one(row, is_valid(row))).collect();
                    for layout in [
                        Strings::Offsets32(&offsets[first..=first + len], &bytes),
                        Strings::Offsets64(&ends[first..=first + len], &bytes),
                        Strings::Views(&views[rows.clone()], &[&[], &bytes]),
                    ] {
                        let mut hashes = before[rows.clone()].to_vec();
                        combine_strings(*level, &seed, layout, validity, &mut hashes);
                        assert_eq!(
                            hashes, expected,
                            "{level}: rows {rows:?} of {len_min} to {len_max} bytes"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn strings_of_slices_hash_as_one_by_one_with_nulls_and_hashes_before() {
    for (len_min, len_max) in [(0, 0), (0, 12), (2, 14), (12, 16), (13, 16), (0, 40), (17, 200), (90, 100)] {
        check_slices(len_min, len_max);
    }
}

#[test]
fn a_string_outside_of_its_buffer_is_refused() {
    for wrong in [[0, 5], [3, 2], [-1, 2], [i32::MAX - 1, i32::MAX]] {
        // Alone, and as one of enough rows to be hashed together.
        for row_count in [1, 64, 130] {
            for place in [0, 30, 63, 100].into_iter().filter(|place| *place < row_count) {
                let mut offsets = vec![0; row_count + 1];
                offsets[place..place + 2].copy_from_slice(&wrong);
                offsets[place + 2..].fill(wrong[1]);
                let result = std::panic::catch_unwind(|| {
                    let strings = Strings::Offsets32(&offsets, b"abcd");
                    hash_strings(Level::best(), &Seed::new(1), strings, None, &mut vec![0; row_count]);
                });
                assert!(result.is_err(), "{offsets:?}");
            }
        }
    }
}

#[test]
fn what_lies_below_a_null_string_is_not_read() {
    let (views, validity) = ([u128::MAX], Bits::new(&[0], 0, 1));
    let mut hashes = [7];
    hash_strings(Level::best(), &Seed::new(1), Strings::Views(&views, &[]), Some(validity), &mut hashes);
    assert_ne!(hashes, [7]);
}

#[test]
#[cfg_attr(miri, ignore = "statistics")]
fn each_bit_of_a_key_turns_each_bit_of_the_hash_in_half_of_the_cases() {
    const SAMPLES: usize = 2000;
    for seed in 0..4 {
        let seed = Seed::new(seed);
        let mut random = Random::new(7);
        // Small numbers, where keys differ in few bits, as well as any.
        for shift in [0, 40] {
            let mut worst = 0.0_f64;
            for bit in 0..64 {
                let keys: Vec<u64> = (0..SAMPLES).map(|_| random.bits() >> shift).collect();
                let turned: Vec<u64> = keys.iter().map(|key| key ^ 1 << bit).collect();
                let before = hashes(Level::best(), &seed, &keys, None);
                let after = hashes(Level::best(), &seed, &turned, None);
                for out in 0..64 {
                    let turns = before.iter().zip(&after).filter(|(a, b)| (*a ^ *b) >> out & 1 == 1).count();
                    worst = worst.max((turns as f64 / SAMPLES as f64 - 0.5).abs());
                }
            }
            // Chance alone gives 0.05 (4.5 standard deviations of 2,000 coins, among 4,096).
            assert!(worst < 0.10, "a bit turns with probability 0.5 ± {worst}");
        }
    }
}

/// Chi-square of 4,096 buckets by the highest and by the lowest bits: 4,095 ± 90 for random hashes.
fn check_buckets(name: &str, hashes: &[u64]) {
    const BUCKETS: usize = 1 << 12;
    let expected = hashes.len() as f64 / BUCKETS as f64;
    for shift in [52, 42, 0] {
        let mut counts = vec![0_u32; BUCKETS];
        hashes.iter().for_each(|hash| counts[(hash >> shift) as usize % BUCKETS] += 1);
        let chi_square: f64 =
            counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
        // Keys spread more evenly than chance are no fault.
        assert!(chi_square < 4095.0 + 6.0 * 90.5, "{name}, bits from {shift}: {chi_square}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "statistics")]
fn buckets_fill_evenly_whatever_the_pattern_of_keys() {
    const COUNT: u64 = 1 << 16;
    for seed in 0..8 {
        let seed = Seed::new(seed);
        for shift in [0, 1, 8, 16, 20, 32, 40, 48] {
            let keys: Vec<u64> = (0..COUNT).map(|number| number << shift).collect();
            check_buckets(&format!("multiples of 2^{shift}"), &hashes(Level::best(), &seed, &keys, None));
        }
        for factor in [3, 10, 1000, 0x9E37_79B9_7F4A_7C15_u64] {
            let keys: Vec<u64> = (0..COUNT).map(|number| number.wrapping_mul(factor)).collect();
            check_buckets(&format!("multiples of {factor}"), &hashes(Level::best(), &seed, &keys, None));
        }
        let floats: Vec<u64> = (0..COUNT).map(|number| (number as f64).to_bits()).collect();
        check_buckets("whole floats", &hashes(Level::best(), &seed, &floats, None));
        let texts: Vec<String> = (0..COUNT).map(|number| format!("customer#{number}")).collect();
        for prefix in ["", "a much longer common prefix, http://"] {
            let (mut bytes, mut ends) = (Vec::new(), vec![0]);
            for text in &texts {
                bytes.extend_from_slice(prefix.as_bytes());
                bytes.extend_from_slice(text.as_bytes());
                ends.push(bytes.len() as i64);
            }
            let mut hashes = vec![0; texts.len()];
            hash_strings(Level::best(), &seed, Strings::Offsets64(&ends, &bytes), None, &mut hashes);
            check_buckets("strings", &hashes);
        }
    }
}

/// What the reference implementation (`xxhsum -H3`) gives for 8 bytes.
#[test]
fn stored_hashes_are_what_they_always_were() {
    let known = [
        (0_i64, 0xc77b_3abb_6f87_acd9),
        (1, 0x2fbc_5935_64db_792e),
        (-1, 0x5111_c7e4_7d78_4413),
        (435_090_932_899_640_449, 0xb3cc_abaa_2819_5392),
    ];
    for (key, expected) in known {
        assert_eq!(stored_hash(key), expected, "{key}");
    }
    for level in Level::available() {
        for len in lengths() {
            let keys: Vec<i32> = (0..len as i32).map(|key| (key - 7).wrapping_mul(123_456_789)).collect();
            let mut hashes = vec![0; len];
            stored_hashes(*level, &keys, &mut hashes);
            let expected: Vec<u64> = keys.iter().map(|key| stored_hash(i64::from(*key))).collect();
            assert_eq!(hashes, expected, "{level} {len}");
        }
    }
}
