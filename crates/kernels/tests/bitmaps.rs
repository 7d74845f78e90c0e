//! Bitmaps at every level, length and offset against flags one at a time.

use keirin_kernels::{BitBuffer, Bits, Level, bitmaps, count_ones};
use keirin_testkit::columns::{Random, Spread, lengths};
use keirin_testkit::oracle;

mod guard;

/// The flags as bits that begin `offset` bits into their bytes and end with the page.
fn shifted(flags: &[bool], offset: usize) -> guard::AtPageEnd<u8> {
    let mut random = Random::new(1);
    let mut bytes: Vec<u8> =
        (0..(offset + flags.len()).div_ceil(8)).map(|_| random.bits().to_le_bytes()[0]).collect();
    for (row, flag) in flags.iter().enumerate() {
        let bit = offset + row;
        bytes[bit / 8] = bytes[bit / 8] & !(1 << (bit % 8)) | u8::from(*flag) << (bit % 8);
    }
    guard::AtPageEnd::new(&bytes)
}

fn check(left: &[bool], right: &[bool], offset: usize) {
    let len = left.len();
    let (left_bytes, right_bytes) = (shifted(left, offset), shifted(right, 7 - offset % 8));
    let (a, b) = (Bits::new(&left_bytes, offset, len), Bits::new(&right_bytes, 7 - offset % 8, len));
    let expected = |op: fn(bool, bool) -> bool| -> BitBuffer {
        left.iter().zip(right).map(|(left, right)| op(*left, *right)).collect()
    };
    for level in Level::available().iter().copied() {
        let context = format!("{level}, {len} bits, offset {offset}");
        assert_eq!(bitmaps::and(level, a, b), expected(|a, b| a && b), "{context}");
        assert_eq!(bitmaps::or(level, a, b), expected(|a, b| a || b), "{context}");
        assert_eq!(bitmaps::not(level, a), expected(|a, _| !a), "{context}");
        let both = bitmaps::and(level, a, b);
        assert_eq!(bitmaps::count_ones_in_both(level, a, b), count_ones(level, both.as_bits()), "{context}");

        assert_eq!(bitmaps::to_bools(level, a), left, "{context}");
        let positions = bitmaps::positions(level, a);
        let expected = oracle::bitmaps::positions(left);
        assert!(positions.iter().map(|row| *row as usize).eq(expected.iter().copied()), "{context}");
        assert_eq!(BitBuffer::from_positions(len, &positions), left.iter().copied().collect(), "{context}");
    }
    assert_eq!(a.ones().collect::<Vec<_>>(), oracle::bitmaps::positions(left), "{len} bits");
    assert_eq!(a.runs().collect::<Vec<_>>(), oracle::bitmaps::runs(left), "{len} bits");
}

#[test]
fn bitmaps_are_what_their_flags_are() {
    for (index, len) in lengths().into_iter().enumerate() {
        for (seed, spread) in Spread::ALL.into_iter().enumerate() {
            let right = Spread::ALL[(seed + index) % Spread::ALL.len()];
            check(&spread.rows(len, 1), &right.rows(len, 2), index % 9);
        }
    }
}

#[test]
fn every_offset_inside_a_byte_gives_the_same_bits() {
    for offset in (0..=16).step_by(if cfg!(miri) { 5 } else { 1 }) {
        for len in [1, 63, 64, 65, 127, 128, 129, 200].into_iter().take(if cfg!(miri) { 4 } else { 8 }) {
            check(&Spread::Share(0.5).rows(len, 3), &Spread::Share(0.5).rows(len, 4), offset);
        }
    }
}

#[test]
#[should_panic(expected = "bitmaps of as many rows")]
fn bitmaps_of_different_lengths_are_refused() {
    let _ = bitmaps::and(Level::best(), Bits::new(&[0], 0, 7), Bits::new(&[0], 0, 8));
}

#[test]
#[should_panic(expected = "row 9 of 9")]
fn positions_behind_the_end_are_refused() {
    let _ = BitBuffer::from_positions(9, &[3, 9]);
}
