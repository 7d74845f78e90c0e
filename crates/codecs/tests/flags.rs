//! Flags come back as they were, whole and in part, and hostile bytes give errors.

#![allow(clippy::cast_possible_truncation, reason = "test data is cut to size on purpose")]

use keirin_codecs::flags::{self, Column, Encoding};
use keirin_codecs::{Error, Goal};
use keirin_kernels::{BitBuffer, Bits, Level, Selection};
use keirin_testkit::columns::{Keys, Random, Spread, lengths};
use proptest::prelude::*;

fn shapes(count: usize) -> Vec<Vec<bool>> {
    let mut shapes: Vec<_> = Spread::ALL.iter().map(|spread| spread.rows(count, 5)).collect();
    shapes.push(Keys::Runs(200).rows(count, 1).into_iter().map(|key| key % 2 == 0).collect());
    shapes
}

fn check(bytes: &[u8], expected: &[bool], name: &str) {
    let level = Level::best();
    let column = Column::open(level, bytes, expected.len()).expect(name);
    let name = format!("{name}: {}", column.explain());
    let buffer = |flags: &[bool]| flags.iter().copied().collect::<BitBuffer>();
    assert_eq!(column.decode(), buffer(expected), "{name}");
    assert_eq!(column.count_ones(level), expected.iter().filter(|flag| **flag).count(), "{name}");
    let mut random = Random::new(expected.len() as u64);
    for _ in 0..4 {
        let end = random.below(expected.len() as u64 + 1) as usize;
        let start = random.below(end as u64 + 1) as usize;
        let found = column.decode_range(start, end - start);
        assert_eq!(found, buffer(&expected[start..end]), "{name}, rows {start}..{end}");
    }
    let kept: BitBuffer = Spread::Share(0.3).rows(expected.len(), 3).into_iter().collect();
    let selected: BitBuffer = kept.as_bits().ones().map(|row| expected[row]).collect();
    assert_eq!(column.select(level, Selection::Bits(kept.as_bits())), selected, "{name}");
    let rows: Vec<u32> = (0..expected.len() as u32).rev().step_by(3).collect();
    let selected: BitBuffer = rows.iter().map(|row| expected[*row as usize]).collect();
    assert_eq!(column.select(level, Selection::Rows(&rows)), selected, "{name}");
}

#[test]
fn flags_come_back() {
    for count in lengths() {
        for shape in shapes(count) {
            let buffer: BitBuffer = shape.iter().copied().collect();
            for goal in Goal::ALL {
                let bytes = flags::encode(Level::best(), goal, buffer.as_bits()).expect("few flags");
                check(&bytes, &shape, &format!("{count} flags, {goal:?}"));
            }
            for encoding in Encoding::ALL {
                let bytes = flags::encode_as(Level::best(), Goal::Balanced, encoding, buffer.as_bits());
                if let Some(bytes) = bytes.expect("few flags") {
                    check(&bytes, &shape, &format!("{count} flags as {encoding:?}"));
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "a bit for each row")]
fn a_selection_of_other_rows_is_a_mistake() {
    let flags: BitBuffer = [true; 10].into_iter().collect();
    let bytes = flags::encode(Level::best(), Goal::Balanced, flags.as_bits()).expect("few flags");
    let column = Column::open(Level::best(), &bytes, 10).expect("it was encoded");
    let kept: BitBuffer = [true; 128].into_iter().collect();
    let _ = column.select(Level::best(), Selection::Bits(kept.as_bits()));
}

#[test]
fn runs_and_constants_are_chosen_where_they_are_smaller() {
    let check = |shape: &[bool], expected: &str| {
        let buffer: BitBuffer = shape.iter().copied().collect();
        let bytes = flags::encode(Level::best(), Goal::Smallest, buffer.as_bits()).expect("few flags");
        let column = Column::open(Level::best(), &bytes, shape.len()).expect("what was written");
        assert_eq!(column.explain(), expected);
    };
    check(&[true; 1000], "constant");
    check(&Spread::FirstHalf.rows(10_000, 0), "runs(2)");
    check(&Spread::Share(0.5).rows(10_000, 0), "raw");
}

fn survives(bytes: &[u8], count: usize) {
    let level = Level::best();
    let Ok(column) = Column::open(level, bytes, count) else { return };
    assert_eq!(column.decode().len(), count);
    assert!(column.count_ones(level) <= count);
    assert_eq!(column.decode_range(count / 2, count - count / 2).len(), count - count / 2);
}

#[test]
fn broken_bytes_give_errors_or_as_many_flags() {
    let level = Level::best();
    for shape in shapes(1000) {
        let buffer: BitBuffer = shape.iter().copied().collect();
        for encoding in Encoding::ALL {
            let encoded = flags::encode_as(level, Goal::Balanced, encoding, buffer.as_bits());
            let Some(bytes) = encoded.expect("few flags") else { continue };
            for length in 0..bytes.len() {
                let opened = Column::open(level, &bytes[..length], shape.len());
                assert!(matches!(opened, Err(Error::Truncated { .. })), "{encoding:?} cut to {length} bytes");
            }
            for place in 0..bytes.len() {
                for change in 1..=255 {
                    let mut changed = bytes.clone();
                    changed[place] ^= change;
                    survives(&changed, shape.len());
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn any_flags_come_back_from_any_offset(bytes in prop::collection::vec(any::<u8>(), 1..100), offset in 0_usize..8) {
        let bits = Bits::new(&bytes, offset, bytes.len() * 8 - offset);
        let expected: Vec<bool> = (0..bits.len()).map(|row| bits.get(row)).collect();
        let encoded = flags::encode(Level::best(), Goal::Balanced, bits).unwrap();
        check(&encoded, &expected, "any");
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..60), id in 0_u8..3, count in 0_usize..500) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = id;
        }
        survives(&bytes, count);
    }
}
