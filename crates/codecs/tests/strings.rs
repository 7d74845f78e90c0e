//! Text comes back as it was, whole and in part, and hostile bytes give errors.

#![allow(clippy::cast_possible_truncation, reason = "test data is cut to size on purpose")]

use std::cmp::Ordering;

use keirin_codecs::strings::{self, Buffer, Column, Dictionary, Encoding, Rows};
use keirin_codecs::{Choice, Clock, Error, Goal};
use keirin_kernels::compare::Comparison;
use keirin_kernels::text::Text;
use keirin_kernels::{BitBuffer, Level, Selection};
use keirin_testkit::columns::{Keys, Random, Spread};
use proptest::prelude::*;

const LIMIT: usize = 1 << 30;

fn shapes(count: usize, seed: u64) -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let mut random = Random::new(seed);
    let mut rows = |row: &mut dyn FnMut(&mut Random) -> String| {
        (0..count).map(|_| row(&mut random).into_bytes()).collect::<Vec<_>>()
    };
    let words = ["pending", "deposits", "carefully", "final", "é", "quick", "according", "to the", "a"];
    vec![
        ("constant", rows(&mut |_| "same".to_owned())),
        ("empty", rows(&mut |_| String::new())),
        (
            "urls",
            rows(&mut |random| {
                format!(
                    "https://example.com/{}/page-{}.html?id={}",
                    words[random.below(9) as usize],
                    random.below(50),
                    random.bits()
                )
            }),
        ),
        (
            "comments",
            rows(&mut |random| {
                let count = random.below(12);
                (0..count).map(|_| words[random.below(9) as usize]).collect::<Vec<_>>().join(" ")
            }),
        ),
        ("few", rows(&mut |random| format!("ship mode {}", random.below(7)))),
        ("runs", {
            let mut phrase = String::new();
            rows(&mut |random| {
                if random.below(5) == 0 {
                    phrase = ["", words[random.below(9) as usize], "a phrase of many words"]
                        [random.below(3) as usize]
                        .to_owned();
                }
                phrase.clone()
            })
        }),
        ("numbers", rows(&mut |random| random.below(1_000_000).to_string())),
        (
            "long",
            rows(&mut |random| {
                let letter = char::from(b'a' + random.below(26) as u8);
                format!("{letter}{}", "\u{1F600}~".repeat(random.below(200) as usize))
            }),
        ),
        (
            "bytes",
            Keys::Uniform(1 << 40).rows(count, seed).iter().map(|key| key.to_le_bytes().to_vec()).collect(),
        ),
    ]
}

fn buffer(rows: &[Vec<u8>]) -> Buffer {
    rows.iter().map(Vec::as_slice).collect()
}

/// Lengths, and numbers of entries where there are some, of the selected rows.
fn check_parts(column: &Column<'_>, selection: Selection<'_>, selected: &[Vec<u8>], name: &str) {
    let level = Level::best();
    let lengths: Vec<i32> = selected.iter().map(|row| row.len() as i32).collect();
    assert_eq!(column.lengths(level, selection), Ok(lengths), "{name}");
    let dictionary = column.dictionary(level, selection).expect(name);
    let is_outside = |encoding| column.explain().starts_with(encoding);
    assert!(dictionary.is_none() || is_outside("dict") || is_outside("constant"), "{name}");
    assert!(dictionary.is_some() || !is_outside("constant"), "{name}");
    if let Some(Dictionary { codes, entries }) = dictionary {
        let entries = entries.rows(level);
        let rows: Vec<_> = codes.iter().map(|code| entries.row(*code as usize).to_vec()).collect();
        assert!(rows == selected, "{name}");
    }
}

/// All that a column answers, against the rows.
fn check(bytes: &[u8], rows: &[Vec<u8>], seed: u64, name: &str) {
    let level = Level::best();
    let column = Column::open(level, bytes, rows.len(), LIMIT).expect(name);
    let name = format!("{name}: {}", column.explain());
    assert!(column.decode(level) == Ok(buffer(rows)), "{name}");
    let mut random = Random::new(seed);
    let mut used = Buffer { offsets: vec![7; 9], bytes: vec![1; 99] };
    for _ in 0..4 {
        let end = random.below(rows.len() as u64 + 1) as usize;
        let start = random.below(end as u64 + 1) as usize;
        let expected = buffer(&rows[start..end]);
        column.decode_into(level, start..end, &mut used).expect(&name);
        assert!(used == expected, "{name}, rows {start}..{end}");
        assert!(column.decode_range(level, start..end) == Ok(expected), "{name}, rows {start}..{end}");
    }
    for spread in Spread::ALL {
        let kept: BitBuffer = spread.rows(rows.len(), seed).into_iter().collect();
        let expected: Vec<_> = kept.as_bits().ones().map(|row| rows[row].clone()).collect();
        let found = column.select(level, Selection::Bits(kept.as_bits()));
        assert!(found == Ok(buffer(&expected)), "{name}, {spread:?}");
        check_parts(&column, Selection::Bits(kept.as_bits()), &expected, &name);
    }
    check_parts(&column, Selection::All, rows, &name);
    if rows.is_empty() {
        return;
    }
    let numbers: Vec<u32> = (0..50).map(|_| random.below(rows.len() as u64) as u32).collect();
    let expected: Vec<_> = numbers.iter().map(|row| rows[*row as usize].clone()).collect();
    assert!(column.select(level, Selection::Rows(&numbers)) == Ok(buffer(&expected)), "{name}");
    check_parts(&column, Selection::Rows(&numbers), &expected, &name);
    let is_wanted = |row: &[u8]| row.len().is_multiple_of(3) || row.contains(&b'p');
    let test = |rows: Rows<'_>| (0..rows.row_count()).map(|row| is_wanted(rows.row(row))).collect();
    let expected: BitBuffer = rows.iter().map(|row| is_wanted(row)).collect();
    assert_eq!(column.test(level, test), Ok(expected), "{name}");
    check_comparisons(&column, rows, &name);
}

/// With strings that are there, and with strings before, between and behind them.
fn check_comparisons(column: &Column<'_>, rows: &[Vec<u8>], name: &str) {
    let there = rows.iter().step_by(rows.len().div_ceil(3)).cloned();
    let beside = there.clone().map(|row| [&row[..], b"\0"].concat());
    for constant in there.chain(beside).chain([vec![], vec![0xff; 9]]) {
        for (comparison, holds) in [
            (Comparison::Equal, Ordering::is_eq as fn(Ordering) -> bool),
            (Comparison::NotEqual, Ordering::is_ne),
            (Comparison::Less, Ordering::is_lt),
            (Comparison::LessEqual, Ordering::is_le),
            (Comparison::Greater, Ordering::is_gt),
            (Comparison::GreaterEqual, Ordering::is_ge),
        ] {
            let Some(found) = column.compare(Level::best(), comparison, &constant).expect("it was written")
            else {
                continue;
            };
            let expected: BitBuffer = rows.iter().map(|row| holds(row[..].cmp(&constant))).collect();
            assert_eq!(found, expected, "{name}, {comparison:?} {constant:?}");
        }
    }
}

#[test]
fn a_dictionary_compares_by_the_places_of_its_entries() {
    let rows: Vec<Vec<u8>> = (0..3000).map(|row| format!("entry {}", row % 70).into_bytes()).collect();
    let text = buffer(&rows);
    let bytes = strings::encode_as(Level::best(), Goal::Balanced, Encoding::Dict, text.rows(Level::best()));
    let bytes = bytes.expect("few rows").expect("few entries");
    let column = Column::open(Level::best(), &bytes, rows.len(), 1 << 20).expect("it was written");
    assert!(column.compare(Level::best(), Comparison::Less, b"entry 5").expect("it was written").is_some());
    check_comparisons(&column, &rows, "70 entries");
}

#[test]
fn text_comes_back() {
    for count in [0, 1, 2, 50, 1023, 1025, 9000] {
        for (shape, rows) in shapes(count, count as u64) {
            let text = buffer(&rows);
            let text = text.rows(Level::best());
            for goal in Goal::ALL {
                let bytes = strings::encode(Level::best(), goal, text).expect("few rows");
                check(&bytes, &rows, count as u64, &format!("{shape}, {count} rows, {goal:?}"));
            }
            for encoding in Encoding::ALL {
                let bytes = strings::encode_as(Level::best(), Goal::Balanced, encoding, text);
                if let Some(bytes) = bytes.expect("few rows") {
                    check(&bytes, &rows, count as u64, &format!("{shape}, {count} rows as {encoding:?}"));
                }
            }
        }
    }
}

#[test]
fn a_slice_of_a_column_is_encoded_as_if_it_were_alone() {
    let (_, rows) = shapes(100, 1).swap_remove(2);
    let text = buffer(&rows);
    let level = Level::best();
    let part = Rows::new(level, &text.offsets[10..=60], &text.bytes).expect("offsets in order");
    for encoding in [Encoding::Raw, Encoding::Fsst] {
        let bytes = strings::encode_as(level, Goal::Balanced, encoding, part).expect("few rows");
        check(&bytes.expect("any rows"), &rows[10..60], 1, &format!("{encoding:?}"));
    }
}

/// Chosen as on every machine, however busy it is.
fn modelled(goal: Goal) -> Choice {
    Choice { clock: Clock::Modelled, ..goal.into() }
}

#[test]
fn each_shape_gets_the_encoding_made_for_it() {
    let check = |shape: &str, goal: Goal, expected: &str| {
        let shapes = shapes(9000, 7);
        let (_, rows) = shapes.iter().find(|(name, _)| *name == shape).expect("a shape");
        let text = buffer(rows);
        let bytes =
            strings::encode(Level::best(), modelled(goal), text.rows(Level::best())).expect("few rows");
        let column = Column::open(Level::best(), &bytes, rows.len(), LIMIT).expect("what was written");
        assert!(column.explain().starts_with(expected), "{shape}: {}", column.explain());
    };
    check("constant", Goal::Balanced, "constant");
    check("few", Goal::Balanced, "dict(7) + bitpack(3)");
    check("urls", Goal::Smallest, "fsst(");
    check("urls", Goal::Balanced, "fsst(");
    check("urls", Goal::Fastest, "raw");
}

#[test]
fn fsst_halves_urls() {
    let (_, rows) = shapes(9000, 7).swap_remove(2);
    let text = buffer(&rows);
    let bytes = strings::encode_as(Level::best(), Goal::Balanced, Encoding::Fsst, text.rows(Level::best()));
    let bytes = bytes.expect("few rows").expect("any rows");
    assert!(bytes.len() * 2 < text.bytes.len(), "{} of {} bytes", bytes.len(), text.bytes.len());
}

#[test]
fn symbols_are_found_in_rows_of_which_every_other_is_alike() {
    let row = |row: u64| match row % 2 {
        0 => format!("{:08x}", Random::new(row).bits()).into_bytes(),
        _ => b"https://example.com/the/same/long/address/again".to_vec(),
    };
    let rows: Vec<Vec<u8>> = (0..1 << 14).map(row).collect();
    let text = buffer(&rows);
    let bytes = strings::encode_as(Level::best(), Goal::Balanced, Encoding::Fsst, text.rows(Level::best()));
    let bytes = bytes.expect("few rows").expect("any rows");
    assert!(bytes.len() * 5 < text.bytes.len() * 2, "{} of {} bytes", bytes.len(), text.bytes.len());
}

#[test]
fn text_beyond_the_limit_is_an_error() {
    let rows = vec![b"a string of 25 characters".to_vec(); 1000];
    let text = buffer(&rows);
    let level = Level::best();
    for encoding in Encoding::ALL {
        let encoded =
            strings::encode_as(level, Goal::Balanced, encoding, text.rows(level)).expect("few rows");
        let encoded = encoded.expect("all encodings can hold this");
        let column = Column::open(level, &encoded, rows.len(), 1000).expect("small parts");
        let expected = Err(Error::Limit { needed: 25_000, limit: 1000 });
        assert_eq!(column.decode(level), expected, "{encoding:?}");
        let mut used = text.clone();
        assert!(column.decode_into(level, 0..rows.len(), &mut used).is_err(), "{encoding:?}");
        assert_eq!(used.offsets, [0], "{encoding:?}");
        assert!(column.decode_range(level, 5..45).is_ok(), "{encoding:?}");
        let repeated = [3; 41];
        let found = column.select(level, Selection::Rows(&repeated));
        assert_eq!(found, Err(Error::Limit { needed: 1025, limit: 1000 }), "{encoding:?}");
    }
}

#[test]
fn rows_whose_symbols_end_elsewhere_than_their_text_are_an_error_alone() {
    // Found by fuzzing: one symbol "a", text ending at 1 and 2, codes at 2 and 2.
    let ends = |ends: [u8; 2]| [0, ends[0], 0, 0, 0, ends[1], 0, 0, 0];
    let bytes =
        [&[3, 1, 1, b'a', 2, 0, 0, 0][..], &ends([1, 2]), &[2, 0, 0, 0], &ends([2, 2]), &[0, 0]].concat();
    let column = Column::open(Level::best(), &bytes, 2, LIMIT).expect("counts that fit");
    assert_eq!(column.decode(Level::best()), Ok(buffer(&[b"a".to_vec(), b"a".to_vec()])));
    for row in 0..2 {
        let alone = column.decode_range(Level::best(), row..row + 1);
        assert!(matches!(alone, Err(Error::Corrupt { .. })), "{alone:?}");
        let selected = column.select(Level::best(), Selection::Rows(&[row as u32]));
        assert!(matches!(selected, Err(Error::Corrupt { .. })), "{selected:?}");
    }
}

/// Whatever the bytes: an error, or as many rows as were asked for.
fn survives(bytes: &[u8], count: usize) {
    let level = Level::best();
    let Ok(column) = Column::open(level, bytes, count, 1 << 20) else { return };
    if let Ok(text) = column.decode(level) {
        assert_eq!(text.rows(level).row_count(), count);
    }
    if let Ok(Some(found)) = column.compare(level, Comparison::LessEqual, b"http") {
        assert_eq!(found.len(), count);
    }
    let _ = column.test(level, |rows| (0..rows.row_count()).map(|row| rows.row(row).is_empty()).collect());
    let numbers: Vec<u32> = (0..count as u32).step_by(7).rev().collect();
    if let Ok(text) = column.select(level, Selection::Rows(&numbers)) {
        assert_eq!(text.rows(level).row_count(), numbers.len());
    }
    if let Ok(text) = column.decode_range(level, count / 3..count / 2) {
        assert_eq!(text.rows(level).row_count(), count / 2 - count / 3);
    }
}

#[test]
fn broken_bytes_give_errors_or_as_many_rows() {
    let level = Level::best();
    for (_, rows) in shapes(60, 3) {
        let text = buffer(&rows);
        for encoding in Encoding::ALL {
            let encoded = strings::encode_as(level, Goal::Smallest, encoding, text.rows(level));
            let Some(bytes) = encoded.expect("few rows") else { continue };
            for length in 0..bytes.len() {
                let opened = Column::open(level, &bytes[..length], rows.len(), LIMIT);
                assert!(matches!(opened, Err(Error::Truncated { .. })), "{encoding:?} cut to {length} bytes");
            }
            for place in 0..bytes.len() {
                for change in [1, 0x10, 0x80, 0xFF] {
                    let mut changed = bytes.clone();
                    changed[place] ^= change;
                    survives(&changed, rows.len());
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn any_rows_come_back(rows in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..120), letters in 1_u8..=255) {
        let rows: Vec<Vec<u8>> =
            rows.into_iter().map(|row| row.into_iter().map(|byte| byte % letters).collect()).collect();
        let text = buffer(&rows);
        for encoding in Encoding::ALL {
            let encoded = strings::encode_as(Level::best(), Goal::Balanced, encoding, text.rows(Level::best()));
            if let Some(bytes) = encoded.unwrap() {
                check(&bytes, &rows, u64::from(letters), "any");
            }
        }
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200), id in 0_u8..4, count in 0_usize..500) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = id;
        }
        survives(&bytes, count);
    }
}
