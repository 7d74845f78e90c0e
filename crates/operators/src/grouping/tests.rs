//! Groups beside those of a map.

#![expect(clippy::cast_possible_truncation, reason = "numbers are small, or are cut on purpose")]

use std::collections::BTreeMap;

use keirin_kernels::BitBuffer;
use keirin_kernels::hash::Strings;

use super::*;
use crate::groups::{KeyType, OwnedValues};
use crate::states::Aggregate;
use crate::texts::Texts;

const ROWS: usize = 300_000;

/// The counts and sums of rows whose keys are `key(row)`, by two threads that have half of the rows each, beside those
/// of a map.
fn check<K: PackedKey>(
    types: &[KeyType],
    keys: &[KeyColumn<'_>],
    text: Option<&Texts>,
    key_of: impl Fn(usize) -> Vec<u64>,
) {
    let mut states = StateLayout::default();
    let (count, sum) = (states.word_of(Aggregate::Rows), states.word_of(Aggregate::Sum(0)));
    let layout = KeyLayout::new(types).unwrap();
    let grouping = Arc::new(Grouping::new(layout, states, vec![NumberType::I16]));
    let values: Vec<i16> = (0..ROWS).map(|row| (row % 1_000) as i16 - 300).collect();
    let level = Level::best();
    let mut finished = Vec::new();
    for half in [0..ROWS / 2, ROWS / 2..ROWS] {
        let mut worker = Worker::<K>::new(&grouping);
        // The second merges what it has early.
        if half.start > 0 {
            worker.compacted_at = 1 << 18;
        }
        for start in half.clone().step_by(20_011) {
            let rows = start..half.end.min(start + 20_011);
            let argument = Argument { values: Numbers::I16(&values[rows.clone()]), validity: None, unit: 0 };
            let keys: Vec<KeyColumn<'_>> = keys.iter().map(|key| slice(key, rows.clone())).collect();
            worker.add(level, &keys, &[argument], rows.len()).unwrap();
        }
        assert!(worker.bytes() > 0);
        finished.push(worker.finish(level));
    }
    let merge = Merge::new(level, &grouping, finished, |shard| text.map_or(0, |texts| texts.count(shard)));
    let mut tables = MergeTables::new(&merge);
    let mut found = BTreeMap::new();
    for part in 0..merge.part_count() {
        let Part { keys, states } = merge.part(level, part, &mut tables);
        assert_eq!(keys.len(), states.len());
        let columns = grouping.keys().unpack(&keys);
        for (group, states) in states.word(count).zip(states.word(sum)).enumerate() {
            let key: Vec<u64> = columns
                .iter()
                .map(|column| match &column.values {
                    OwnedValues::Bytes2(values) => u64::from(values[group]),
                    OwnedValues::Bytes4(values) => u64::from(values[group]),
                    OwnedValues::Bytes8(values) => values[group],
                    _ => panic!("another width"),
                })
                .collect();
            assert!(found.insert(key, (states.0, states.1.cast_signed())).is_none(), "a group twice");
        }
    }
    let mut expected = BTreeMap::new();
    for (row, value) in values.iter().enumerate() {
        let (count, sum) = expected.entry(key_of(row)).or_insert((0, 0));
        *count += 1;
        *sum += i64::from(*value);
    }
    assert_eq!(found.len(), expected.len());
    assert!(found == expected);
}

fn slice<'a>(key: &KeyColumn<'a>, rows: Range<usize>) -> KeyColumn<'a> {
    let values = match key.values {
        KeyValues::Bytes2(values) => KeyValues::Bytes2(&values[rows]),
        KeyValues::Bytes4(values) => KeyValues::Bytes4(&values[rows]),
        KeyValues::Bytes8(values) => KeyValues::Bytes8(&values[rows]),
        _ => panic!("another width"),
    };
    KeyColumn { values, validity: None }
}

fn key(width: usize) -> KeyType {
    KeyType { width: Some(width), is_nullable: false }
}

/// Numbers in no order, of which so many are different.
fn mixed(row: usize, count: u64) -> u64 {
    (row as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20 & (count - 1)
}

#[test]
fn groups_are_those_of_a_map() {
    for count in [1, 1 << 7, 1 << 15, 1 << 30] {
        let fours: Vec<u32> = (0..ROWS).map(|row| mixed(row, count) as u32).collect();
        let eights: Vec<u64> = fours.iter().map(|four| u64::from(*four) << 33).collect();
        let (four, eight) = (KeyValues::Bytes4(&fours), KeyValues::Bytes8(&eights));
        let column = |values| KeyColumn { values, validity: None };
        check::<u32>(&[key(4)], &[column(four)], None, |row| vec![u64::from(fours[row])]);
        check::<u64>(&[key(8)], &[column(eight)], None, |row| vec![eights[row]]);
        let both = |row| vec![eights[row], u64::from(fours[row])];
        check::<u128>(&[key(8), key(4)], &[column(eight), column(four)], None, both);
    }
}

/// Keys in order, of which each is of one piece of the rows, but for those at its ends; the groups of each piece are set
/// aside when it was added.
#[test]
fn groups_in_order_are_set_aside() {
    // The groups of the last case are too many for a table, which is given up in the middle of a piece.
    let cases =
        [(1, false, 40_000), (1, true, 40_000), (3, true, 40_000), (7, false, 40_000), (2, false, 150_000)];
    for (rows_per_key, has_nulls, piece_rows) in cases {
        let mut states = StateLayout::default();
        let sum = states.word_of(Aggregate::Sum(0));
        let types = [key(2), KeyType { width: Some(4), is_nullable: has_nulls }];
        let layout = KeyLayout::new(&types).unwrap();
        let grouping = Arc::new(Grouping::new(layout, states, vec![NumberType::I32]));
        let fours: Vec<u32> = (0..ROWS).map(|row| (row / rows_per_key) as u32).collect();
        let twos: Vec<u16> = (0..ROWS).map(|row| (row / 5_000) as u16).collect();
        let values: Vec<i32> = (0..ROWS as i32).collect();
        let validity: BitBuffer = (0..ROWS).map(|row| !has_nulls || row % 11 != 5).collect();
        let level = Level::best();
        let mut workers = [0, 1].map(|_| Worker::<u64>::new(&grouping).clustered());
        for (piece, start) in (0..ROWS).step_by(piece_rows).enumerate() {
            let rows = start..ROWS.min(start + piece_rows);
            let validity = has_nulls.then(|| validity.as_bits().slice(start, rows.len()));
            let keys = [
                KeyColumn { values: KeyValues::Bytes2(&twos[rows.clone()]), validity: None },
                KeyColumn { values: KeyValues::Bytes4(&fours[rows.clone()]), validity },
            ];
            let argument = Argument { values: Numbers::I32(&values[rows.clone()]), validity: None, unit: 0 };
            let worker = &mut workers[piece % 2];
            worker.add(level, &keys, &[argument], rows.len()).unwrap();
            let is_shared = |value| {
                let first_row = value as usize * rows_per_key;
                first_row / piece_rows != (first_row + rows_per_key - 1) / piece_rows
            };
            worker.set_aside(level, 1, |value| !is_shared(value));
        }
        let is_split = rows_per_key == 1 || piece_rows / rows_per_key > GROUPS_MAX;
        // Where each row is about a group of its own, none is worth making.
        assert!(workers.iter().all(|worker| worker.whole.is_empty() == is_split));
        let merge = Merge::new(level, &grouping, workers.map(|worker| worker.finish(level)).into(), |_| 0);
        let mut tables = MergeTables::new(&merge);
        let mut found = BTreeMap::new();
        for part in 0..merge.part_count() {
            let Part { keys, states } = merge.part(level, part, &mut tables);
            let values = |key: &u64| (grouping.keys().value(*key, 0), grouping.keys().value(*key, 1));
            for (key, sum) in keys.iter().zip(states.word(sum)) {
                assert!(found.insert(values(key), sum.cast_signed()).is_none(), "a group twice");
            }
        }
        let mut expected = BTreeMap::new();
        for (row, value) in values.iter().enumerate() {
            let four = validity.as_bits().get(row).then(|| u64::from(fours[row]));
            *expected.entry((Some(u64::from(twos[row])), four)).or_insert(0) += i64::from(*value);
        }
        assert!(found == expected);
    }
}

/// Groups of two keys, grouped again by one of them.
#[test]
fn groups_are_grouped_again() {
    for count in [1 << 5, 1 << 15, 1 << 30] {
        let fours: Vec<u32> = (0..ROWS).map(|row| mixed(row, count) as u32).collect();
        let twos: Vec<u16> = fours.iter().map(|four| (four % 40_000) as u16).collect();
        let mut inner = StateLayout::default();
        let rows = inner.word_of(Aggregate::Rows);
        let (outer, distinct) = (inner.with_count(), rows + 1);
        let level = Level::best();
        let inner = Arc::new(Grouping::new(KeyLayout::new(&[key(2), key(4)]).unwrap(), inner, Vec::new()));
        let outer = Arc::new(Grouping::new(KeyLayout::new(&[key(2)]).unwrap(), outer, Vec::new()));
        let mut worker = Worker::<u64>::new(&inner);
        let columns = [KeyValues::Bytes2(&twos), KeyValues::Bytes4(&fours)];
        let columns = columns.map(|values| KeyColumn { values, validity: None });
        worker.add(level, &columns, &[], ROWS).unwrap();
        let merge = Merge::new(level, &inner, vec![worker.finish(level)], |_| 0);
        let (mut tables, mut worker) = (MergeTables::new(&merge), Worker::<u64>::new(&outer));
        for part in 0..merge.part_count() {
            let Part { keys, states } = merge.part(level, part, &mut tables);
            let columns = inner.keys().unpack(&keys);
            let OwnedValues::Bytes2(twos) = &columns[0].values else { panic!("another width") };
            let words: Vec<u64> = states.words().iter().flat_map(|rows| [*rows, 1]).collect();
            let column = KeyColumn { values: KeyValues::Bytes2(twos), validity: None };
            worker.add_groups(level, &[column], &words, twos.len());
        }
        let merge = Merge::new(level, &outer, vec![worker.finish(level)], |_| 0);
        let mut tables = MergeTables::new(&merge);
        let mut found = BTreeMap::new();
        for part in 0..merge.part_count() {
            let Part { keys, states } = merge.part(level, part, &mut tables);
            let counts = states.word(rows).zip(states.word(distinct));
            found.extend(keys.into_iter().zip(counts));
        }
        let mut expected: BTreeMap<u64, (u64, std::collections::BTreeSet<u32>)> = BTreeMap::new();
        for (two, four) in twos.iter().zip(&fours) {
            let (rows, distinct) = expected.entry(u64::from(*two)).or_default();
            *rows += 1;
            distinct.insert(*four);
        }
        let expected = expected.into_iter().map(|(key, (rows, set))| (key, (rows, set.len() as u64)));
        assert!(expected.eq(found));
    }
}

/// Texts that get smaller and larger, by two threads, of which one merges early.
#[test]
fn texts_of_groups_are_those_of_a_map() {
    for count in [2, 1 << 13, 1 << 30] {
        let keys: Vec<u64> = (0..ROWS).map(|row| mixed(row, count)).collect();
        let texts: Vec<String> = (0..ROWS)
            .map(|row| match row % 3 {
                0 => format!("{:06}", ROWS - row),
                1 => format!("{:06}, a text of a good length, if not {}", row, "ö".repeat(row % 40)),
                _ => "\0".repeat(row % 11),
            })
            .collect();
        let validity: Vec<bool> = (0..ROWS).map(|row| mixed(row, 8) > 2).collect();
        let bytes = texts.concat().into_bytes();
        let mut offsets = vec![0_i64];
        texts.iter().for_each(|text| offsets.push(offsets.last().unwrap() + text.len() as i64));
        let mut states = StateLayout::default();
        let words = [states.word_of(Aggregate::MinText(0)), states.word_of(Aggregate::MaxText(0))];
        let grouping =
            Arc::new(Grouping::new(KeyLayout::new(&[key(8)]).unwrap(), states, vec![NumberType::Text]));
        let level = Level::best();
        let finished = [0..ROWS / 2, ROWS / 2..ROWS].map(|half| {
            let mut worker = Worker::<u64>::new(&grouping);
            if half.start > 0 {
                worker.compacted_at = 1 << 18;
            }
            for start in half.clone().step_by(20_011) {
                let rows = start..half.end.min(start + 20_011);
                let values = Numbers::Texts(Strings::Offsets64(&offsets[start..=rows.end], &bytes));
                let argument = Argument { values, validity: Some(&validity[rows.clone()]), unit: 0 };
                let column = KeyColumn { values: KeyValues::Bytes8(&keys[rows.clone()]), validity: None };
                worker.add(level, &[column], &[argument], rows.len()).unwrap();
            }
            // A group of two texts of up to 120 bytes does not need ten times that.
            let group_count = (ROWS / 2).min(count as usize);
            assert!(worker.states.heap.bytes() < group_count * 10 * 240 + (1 << 18), "{count}");
            worker.finish(level)
        });
        let merge = Merge::new(level, &grouping, finished.into(), |_| 0);
        let mut tables = MergeTables::new(&merge);
        let mut found = BTreeMap::new();
        for part in 0..merge.part_count() {
            let Part { keys, states } = merge.part(level, part, &mut tables);
            let [least, most] = words.map(|word| states.extreme_texts(word));
            let text = |text: Option<&[u8]>| text.map(|text| str::from_utf8(text).unwrap().to_owned());
            found.extend(keys.into_iter().zip(least.map(text).zip(most.map(text))));
        }
        let mut expected = BTreeMap::new();
        for row in 0..ROWS {
            let (least, most) = expected.entry(keys[row]).or_insert((None, None));
            if validity[row] {
                let text = &texts[row];
                if least.as_ref().is_none_or(|least| text < least) {
                    *least = Some(text.clone());
                }
                if most.as_ref().is_none_or(|most| text > most) {
                    *most = Some(text.clone());
                }
            }
        }
        assert!(found == expected, "{count}");
    }
}

#[test]
fn small_keys_are_groups() {
    let twos: Vec<u16> = (0..ROWS).map(|row| mixed(row, 1 << 16) as u16).collect();
    let column = KeyColumn { values: KeyValues::Bytes2(&twos), validity: None };
    check::<u64>(&[key(2)], &[column], None, |row| vec![u64::from(twos[row])]);
}

#[test]
fn texts_are_groups() {
    for count in [3, 1 << 14, 1 << 24] {
        let texts: Vec<String> = (0..ROWS).map(|row| mixed(row, count).to_string()).collect();
        let bytes = texts.concat().into_bytes();
        let mut offsets = vec![0_i32];
        texts.iter().for_each(|text| offsets.push(offsets.last().unwrap() + text.len() as i32));
        let validity: BitBuffer = (0..ROWS).map(|row| row % 1_000 < 999).collect();
        for validity in [None, Some(validity.as_bits())] {
            let (known, mut numbers) = (Texts::default(), Vec::new());
            let strings = Strings::Offsets32(&offsets, &bytes);
            known.number(Level::best(), strings, validity, &mut numbers).unwrap();
            assert_eq!(numbers.contains(&NULL_TEXT), validity.is_some());
            let types = [KeyType { width: None, is_nullable: true }];
            let column = KeyColumn { values: KeyValues::Bytes4(&numbers), validity: None };
            check::<u32>(&types, &[column], Some(&known), |row| vec![u64::from(numbers[row])]);
            // Of which nothing is kept.
            let layout = KeyLayout::new(&types).unwrap();
            let grouping = Arc::new(Grouping::new(layout, StateLayout::default(), Vec::new()));
            let mut found = Vec::new();
            let finished = numbers.chunks(ROWS / 2).map(|numbers| {
                let mut worker = Worker::<u32>::new(&grouping);
                let column = KeyColumn { values: KeyValues::Bytes4(numbers), validity: None };
                worker.add(Level::best(), &[column], &[], numbers.len()).unwrap();
                worker.finish(Level::best())
            });
            let merge = Merge::new(Level::best(), &grouping, finished.collect(), |shard| known.count(shard));
            let mut tables = MergeTables::new(&merge);
            for part in 0..merge.part_count() {
                let Part { keys, states } = merge.part(Level::best(), part, &mut tables);
                assert_eq!(keys.len(), states.len());
                found.extend(keys);
            }
            found.sort_unstable();
            numbers.sort_unstable();
            numbers.dedup();
            assert!(found == numbers);
        }
    }
}
