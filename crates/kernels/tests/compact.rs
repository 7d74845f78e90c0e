//! Rows kept and taken at every level, of every size of value, against one row at a time.

use std::fmt::Debug;

use keirin_kernels::compact::{Strings, compact_bits, compact_into, compact_strings, gather_strings};
use keirin_kernels::compare::Comparable;
use keirin_kernels::gather::{gather, gather_bits};
use keirin_kernels::{BitBuffer, Bits, Level};
use keirin_testkit::columns::{Random, Spread, lengths, miri_or};

mod guard;

fn check<T: Comparable + Debug + PartialEq>(value: impl Fn(u64) -> T) {
    let mut random = Random::new(5);
    let all: Vec<T> = (0..miri_or(140, 9000)).map(|_| value(random.bits())).collect();
    for (index, len) in lengths().into_iter().enumerate() {
        let offset = index % 9;
        let values = guard::AtPageEnd::new(&all[offset..offset + len]);
        for spread in Spread::ALL {
            let flags = spread.rows(len, 6);
            // A selection that begins inside a byte.
            let bits: BitBuffer = [true; 3].into_iter().chain(flags.iter().copied()).collect();
            let bits = bits.as_bits();
            let kept = bits.slice(3, len);
            let rows: Vec<u32> = (0..).zip(&flags).filter(|(_, flag)| **flag).map(|(row, _)| row).collect();
            let expected: Vec<T> = rows.iter().map(|row| values[*row as usize]).collect();
            for level in Level::available().iter().copied() {
                assert_eq!(gather(level, &values, &rows), expected, "{spread:?} of {len} at {level}");
                let mut appended = expected.clone();
                compact_into(level, &values, kept, &mut appended);
                assert_eq!(appended, [&expected[..], &expected].concat(), "{spread:?} of {len} at {level}");
            }
        }
    }
}

macro_rules! sizes {
    ($($name:ident $T:ident)*) => {$(
        #[test]
        #[allow(clippy::cast_possible_truncation, trivial_numeric_casts, reason = "any value will do")]
        fn $name() {
            check(|bits| bits as $T);
        }
    )*};
}

sizes! {
    one_byte_values u8 two_byte_values i16 four_byte_values u32 eight_byte_values i64 floats f64 wide_values i128
}

#[test]
fn bits_are_kept_and_taken_like_values() {
    for len in lengths() {
        let flags = Spread::Share(0.5).rows(len, 1);
        let values: BitBuffer = [true].into_iter().chain(flags.iter().copied()).collect();
        let values = values.as_bits().slice(1, len);
        for spread in Spread::ALL {
            let kept = spread.rows(len, 2);
            let kept_bits: BitBuffer = kept.iter().copied().collect();
            let rows: Vec<u32> = (0..).zip(&kept).filter(|(_, flag)| **flag).map(|(row, _)| row).collect();
            let expected: BitBuffer = rows.iter().map(|row| flags[*row as usize]).collect();
            for level in Level::available().iter().copied() {
                assert_eq!(
                    compact_bits(level, values, kept_bits.as_bits()),
                    expected,
                    "{spread:?} at {level}"
                );
                assert_eq!(gather_bits(level, values, &rows), expected, "{spread:?} of {len} at {level}");
            }
        }
    }
}

/// Looks up codes of one byte in dictionaries of every size around those that fit in registers.
fn check_dictionary<T: Comparable + Debug + PartialEq>(value: impl Fn(u64) -> T) {
    let mut random = Random::new(8);
    let sizes = if cfg!(miri) { 2 } else { usize::MAX };
    for size in
        [1_u64, 2, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256].into_iter().take(sizes)
    {
        let entries: Vec<T> = (0..size).map(|_| value(random.bits())).collect();
        for len in [0, 1, 8, 16, 33, 64, 100, 1023, 1024, 1025, 2500].into_iter().step_by(miri_or(3, 1)) {
            let codes: Vec<u8> = (0..len).map(|_| random.below(size).to_le_bytes()[0]).collect();
            let codes = guard::AtPageEnd::new(&codes);
            let wide: Vec<u16> = codes.iter().map(|code| u16::from(*code)).collect();
            let expected: Vec<T> = codes.iter().map(|code| entries[usize::from(*code)]).collect();
            for level in Level::available().iter().copied() {
                assert_eq!(gather(level, &entries, &codes), expected, "{len} codes of {size} at {level}");
                assert_eq!(gather(level, &entries, &wide), expected, "{len} codes of {size} at {level}");
            }
        }
    }
}

#[test]
#[allow(clippy::cast_possible_truncation, reason = "any value will do")]
fn codes_are_looked_up_in_dictionaries_of_every_size() {
    check_dictionary(|bits| bits as u8);
    check_dictionary(|bits| bits as u16);
    check_dictionary(|bits| bits as u32);
    check_dictionary(|bits| bits);
    check_dictionary(|bits| i128::from(bits) << 50);
}

#[test]
fn an_index_behind_the_end_is_refused_at_every_level() {
    for level in Level::available().iter().copied() {
        for bad in [5_u8, 200] {
            let mut indices = vec![0_u8; 1500];
            indices[1400] = bad;
            let gathered = std::panic::catch_unwind(|| gather(level, &[1_u32, 2, 3, 4, 5], &indices));
            assert!(gathered.is_err(), "index {bad} at {level}");
            let gathered = std::panic::catch_unwind(|| gather(level, &[1_u8, 2, 3, 4, 5], &indices));
            assert!(gathered.is_err(), "index {bad} at {level}");
        }
        assert!(std::panic::catch_unwind(|| gather::<u64, u32>(level, &[], &[0])).is_err(), "{level}");
    }
}

#[test]
fn strings_are_kept_and_taken_whole() {
    let mut random = Random::new(9);
    for len in lengths().into_iter().filter(|len| *len <= 2049) {
        let strings: Vec<Vec<u8>> = (0..len)
            .map(|_| {
                let longest = if random.chance(0.1) { 100 } else { 12 };
                (0..random.below(longest)).map(|_| random.below(256).to_le_bytes()[0]).collect()
            })
            .collect();
        // The first string does not begin at the first byte.
        let mut bytes = b"before".to_vec();
        let mut offsets = vec![6_i32];
        for string in &strings {
            bytes.extend(string);
            offsets.push(i32::try_from(bytes.len()).expect("short strings"));
        }
        let bytes = guard::AtPageEnd::new(&bytes);
        let column = Strings::new(&offsets, &bytes);
        for spread in Spread::ALL {
            let flags = spread.rows(len, 10);
            let kept: BitBuffer = flags.iter().copied().collect();
            let rows: Vec<u32> = (0..).zip(&flags).filter(|(_, flag)| **flag).map(|(row, _)| row).collect();
            let mut expected = (vec![0_i32], Vec::new());
            for row in &rows {
                expected.1.extend(&strings[*row as usize]);
                expected.0.push(i32::try_from(expected.1.len()).expect("short strings"));
            }
            for level in Level::available().iter().copied() {
                assert_eq!(compact_strings(level, column, kept.as_bits()), expected, "{spread:?} at {level}");
                assert_eq!(gather_strings(level, column, &rows), expected, "{spread:?} of {len} at {level}");
            }
        }
    }
}

#[test]
fn offsets_that_lie_are_refused() {
    for offsets in [[0, 5, 3], [0, 2, 4], [-1, 2, 3], [0, i32::MIN, 3]] {
        let strings = Strings::new(&offsets, b"abc");
        let kept = Bits::new(&[0b11], 0, 2);
        assert!(
            std::panic::catch_unwind(|| compact_strings(Level::best(), strings, kept)).is_err(),
            "{offsets:?}"
        );
    }
}
