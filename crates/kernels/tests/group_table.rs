//! Tables number groups as an ordered map does, whatever the keys, batches, nulls and levels.

#![allow(clippy::cast_possible_truncation, reason = "rows are few, and keys are cut on purpose")]

use keirin_kernels::group_table::{
    DenseTable, GroupTable, KeyColumn, KeyValues, NO_GROUP, StringGroupTable, pack_keys, packed_bytes,
    partition_rows,
};
use keirin_kernels::hash::{Key, Seed, Strings, WideKey, hash_keys, hash_strings};
use keirin_kernels::{BitBuffer, Bits, Level};
use keirin_testkit::columns::{Keys, Random, Spread, lengths, miri_or};
use keirin_testkit::oracle::group;
use proptest::prelude::*;

/// Groups in batches of uneven length, numbered as the oracle does; found again; partitions are disjoint.
fn check<K: Key + Ord>(level: Level, keys: &[K], flags: Option<&[bool]>) {
    let rows: Vec<Option<K>> = keys
        .iter()
        .enumerate()
        .map(|(row, key)| flags.is_none_or(|flags| flags[row]).then_some(*key))
        .collect();
    let (expected, order) = group::group_numbers(&rows);
    let mut table = GroupTable::new(Seed::new(0));
    let mut groups = vec![0; keys.len()];
    let (mut start, mut step) = (0, 1);
    while start < keys.len() {
        let end = keys.len().min(start + step);
        let bits: Option<BitBuffer> = flags.map(|flags| flags[start..end].iter().copied().collect());
        let validity = bits.as_ref().map(BitBuffer::as_bits);
        table.find_or_insert(level, &keys[start..end], validity, &mut groups[start..end]);
        (start, step) = (end, step * 2 + 1);
    }
    assert_eq!(groups, expected, "{level}");
    let order_keys: Vec<K> = order.iter().map(|key| key.unwrap_or_default()).collect();
    assert_eq!(table.keys(), order_keys);
    assert_eq!(table.len(), order.len());
    assert!(table.bytes() >= order.len() * size_of::<K>());
    assert_eq!(table.null_group(), order.iter().position(Option::is_none).map(|group| group as u32));

    let bits: Option<BitBuffer> = flags.map(|flags| flags.iter().copied().collect());
    table.find(level, keys, bits.as_ref().map(BitBuffer::as_bits), &mut groups);
    assert_eq!(groups, expected, "{level}: found again");

    let mut hashes = vec![0; table.len()];
    hash_keys(level, &Seed::new(0), table.keys(), None, &mut hashes);
    for part in 0..16 {
        let here = (0..)
            .zip(&hashes)
            .filter(|(group, hash)| **hash >> 60 == part && table.null_group() != Some(*group));
        let part_keys: Vec<K> = here.map(|(group, _)| table.keys()[group as usize]).collect();
        let mut alone = GroupTable::for_partition(Seed::new(0), 4);
        let mut numbers = vec![0; part_keys.len()];
        alone.find_or_insert(level, &part_keys, None, &mut numbers);
        assert!(numbers.into_iter().eq(0..part_keys.len() as u32), "partition {part} in a table of its own");
        assert_eq!(alone.keys(), part_keys);
    }
}

#[test]
fn group_numbers_are_those_of_an_ordered_map() {
    let mut random = Random::new(1);
    for level in Level::available() {
        for len in lengths() {
            let keys: Vec<u64> = (0..len).map(|_| random.below(1 + len as u64 / 2)).collect();
            check(*level, &keys, None);
        }
        for spread in Spread::ALL.into_iter().step_by(miri_or(4, 1)) {
            for keys in [Keys::Uniform(5), Keys::Uniform(5000), Keys::Zipf(1000), Keys::Runs(9)] {
                let keys = keys.rows(miri_or(150, 6000), 2);
                let flags = spread.rows(keys.len(), 3);
                check(*level, &keys, Some(&flags));
                check(*level, &keys.iter().map(|key| *key as u8).collect::<Vec<_>>(), Some(&flags));
                check(*level, &keys.iter().map(|key| *key as u16).collect::<Vec<_>>(), None);
                check(*level, &keys.iter().map(|key| *key as i32).collect::<Vec<_>>(), Some(&flags));
                let wide: Vec<i128> = keys.iter().map(|key| i128::from(*key) << 60).collect();
                check(*level, &wide, Some(&flags));
            }
        }
    }
}

#[test]
fn wide_keys_differ_in_either_half() {
    let keys: Vec<WideKey> = (0..2_000_u128).map(|row| WideKey([row % 40, (row % 7) << 100])).collect();
    for level in Level::available() {
        let mut table = GroupTable::new(Seed::new(0));
        let mut groups = vec![0; keys.len()];
        table.find_or_insert(*level, &keys, None, &mut groups);
        assert_eq!(table.len(), 280);
        assert!(groups.iter().zip(&keys).all(|(group, key)| table.keys()[*group as usize] == *key));
    }
}

#[test]
fn a_key_that_was_never_inserted_has_no_group() {
    let mut table = GroupTable::new(Seed::new(0));
    let mut groups = [0; 3];
    table.find(Level::best(), &[1_u64, 2, 0], None, &mut groups);
    assert_eq!(groups, [NO_GROUP; 3]);
    table.find_or_insert(Level::best(), &[2, 0], None, &mut groups[..2]);
    table.find(Level::best(), &[1, 2, 0], Some(Bits::new(&[0b011], 0, 3)), &mut groups);
    assert_eq!(groups, [NO_GROUP, 0, NO_GROUP]);
}

/// Keys of which the hash under seed 0 begins with 16 zeros, so that all want the same few slots.
fn colliding(count: usize) -> Vec<u64> {
    let (seed, level) = (Seed::new(0), Level::best());
    let mut found = Vec::new();
    let mut hashes = vec![0; 1 << 16];
    for start in (0_u64..).step_by(hashes.len()) {
        let keys: Vec<u64> = (start..start + hashes.len() as u64).collect();
        hash_keys(level, &seed, &keys, None, &mut hashes);
        found.extend(keys.iter().zip(&hashes).filter(|(_, hash)| **hash >> 48 == 0).map(|(key, _)| *key));
        if found.len() >= count {
            break;
        }
    }
    found
}

#[test]
#[cfg_attr(miri, ignore = "hashes millions of keys")]
fn keys_that_were_made_to_collide_are_told_apart() {
    let keys = colliding(600);
    check(Level::best(), &keys, None);
    // Another seed spreads them: the probability that 600 keys share 16 bits again is nil.
    let mut hashes = vec![0; keys.len()];
    hash_keys(Level::best(), &Seed::new(1), &keys, None, &mut hashes);
    hashes.sort_unstable_by_key(|hash| hash >> 48);
    hashes.dedup_by_key(|hash| *hash >> 48);
    assert!(hashes.len() > keys.len() * 9 / 10, "{} of {}", hashes.len(), keys.len());
}

#[test]
fn patterns_of_keys_are_grouped() {
    const COUNT: usize = miri_or(300, 5000);
    for shift in [0, 8, 16, 32, 48, 52].into_iter().step_by(miri_or(5, 1)) {
        let keys: Vec<u64> = (0..COUNT as u64).map(|number| number << shift).collect();
        check(Level::best(), &keys, None);
    }
    check(Level::best(), &[0_u64; COUNT], None);
    check(Level::best(), &[u64::MAX; COUNT], None);
}

fn offsets_of(strings: &[Option<Vec<u8>>]) -> (Vec<i32>, Vec<u8>) {
    let (mut offsets, mut bytes) = (vec![0], Vec::new());
    for string in strings {
        bytes.extend_from_slice(string.as_deref().unwrap_or(b"below a null"));
        offsets.push(bytes.len() as i32);
    }
    (offsets, bytes)
}

fn check_strings(level: Level, strings: &[Option<Vec<u8>>]) {
    let (expected, order) = group::group_numbers(strings);
    let (offsets, bytes) = offsets_of(strings);
    let valid: BitBuffer = strings.iter().map(Option::is_some).collect();
    let mut table = StringGroupTable::new(Seed::new(0));
    let mut groups = vec![0; strings.len()];
    for (index, groups) in groups.chunks_mut(700).enumerate() {
        let (start, end) = (index * 700, index * 700 + groups.len());
        let part = Strings::Offsets32(&offsets[start..=end], &bytes);
        table.find_or_insert(level, part, Some(valid.as_bits().slice(start, end - start)), groups);
    }
    assert_eq!(groups, expected, "{level}");
    let got: Vec<Option<Vec<u8>>> =
        (0..table.len() as u32).map(|group| table.get(group).map(<[u8]>::to_vec)).collect();
    assert_eq!(got, order);
    groups.fill(7);
    table.find(level, Strings::Offsets32(&offsets, &bytes), Some(valid.as_bits()), &mut groups);
    assert_eq!(groups, expected, "{level}: found again");
    let rows: Vec<u32> =
        (0..strings.len() as u32).filter(|row| strings[*row as usize].is_some()).rev().collect();
    let mut hashes = vec![0; strings.len()];
    hash_strings(level, &Seed::new(0), Strings::Offsets32(&offsets, &bytes), None, &mut hashes);
    let mut by_rows = StringGroupTable::new(Seed::new(0));
    groups.fill(7);
    by_rows.find_or_insert_rows(level, Strings::Offsets32(&offsets, &bytes), &rows, &hashes, &mut groups);
    for (string, group) in strings.iter().zip(&groups) {
        match string {
            Some(string) => assert_eq!(by_rows.get(*group), Some(&string[..]), "{level}: by rows"),
            None => assert_eq!(*group, 7, "{level}: no row of these"),
        }
    }
    assert_eq!(by_rows.len(), order.iter().flatten().count(), "{level}: by rows");
    let groups = expected.iter().zip(&hashes).filter(|(_, hash)| **hash >> 60 == 3).map(|(group, _)| *group);
    let groups: std::collections::BTreeSet<u32> =
        groups.filter(|group| table.get(*group).is_some()).collect();
    let strings: Vec<_> = groups.iter().map(|group| table.get(*group).map(<[u8]>::to_vec)).collect();
    let (offsets, bytes) = offsets_of(&strings);
    let mut alone = StringGroupTable::for_partition(Seed::new(0), 4);
    let mut numbers = vec![0; strings.len()];
    alone.find_or_insert(level, Strings::Offsets32(&offsets, &bytes), None, &mut numbers);
    assert!(numbers.into_iter().eq(0..strings.len() as u32), "a partition in a table of its own");
    assert!((0..).zip(&strings).all(|(group, string)| alone.get(group) == string.as_deref()));
}

#[test]
fn strings_are_grouped_whatever_their_length() {
    let mut random = Random::new(1);
    for level in Level::available() {
        for (spread, length_max) in [(Spread::All, 4), (Spread::All, 14), (Spread::Share(0.9), 40)] {
            let flags = spread.rows(miri_or(200, 5000), 3);
            let string = |is_valid: &bool| {
                let length = random.below(length_max);
                is_valid.then(|| (0..length).map(|_| random.below(3) as u8).collect())
            };
            check_strings(*level, &flags.iter().map(string).collect::<Vec<_>>());
        }
    }
    // The same length, the same four bytes at the beginning, then different.
    let near: Vec<_> = (0..miri_or(100, 3000))
        .map(|number| Some(format!("http://example.org/{}", number % 999).into()))
        .collect();
    check_strings(Level::best(), &near);
}

#[test]
fn rows_that_have_one_view_are_one_group() {
    let mut random = Random::new(2);
    for entry_count in [3, 100, 900, 20_000] {
        // Long ones, with some twice in the dictionary, and short ones.
        let entry =
            |entry: u64| format!("{}{}", "a rather long text ".repeat((entry % 3) as usize), entry / 2);
        let entries: Vec<String> = (0..entry_count).map(entry).collect();
        let bytes = entries.concat().into_bytes();
        let mut start = 0;
        let views = entries.iter().map(|text| {
            let mut view = [0; 16];
            view[..4].copy_from_slice(&(text.len() as u32).to_le_bytes());
            if text.len() <= 12 {
                view[4..4 + text.len()].copy_from_slice(text.as_bytes());
            } else {
                view[4..8].copy_from_slice(&text.as_bytes()[..4]);
                view[12..].copy_from_slice(&(start as u32).to_le_bytes());
            }
            start += text.len();
            u128::from_le_bytes(view)
        });
        let views: Vec<u128> = views.collect();
        let row_count = miri_or(1_500, 6_000);
        let codes: Vec<usize> = (0..row_count).map(|_| random.below(entry_count) as usize).collect();
        let rows: Vec<u128> = codes.iter().map(|code| views[*code]).collect();
        for null_every in [None, Some(1_000), Some(7)] {
            let is_valid = |row: usize| null_every.is_none_or(|every| row % every != 5);
            let strings: Vec<Option<Vec<u8>>> =
                (0..row_count).map(|row| is_valid(row).then(|| entries[codes[row]].clone().into())).collect();
            let (expected, order) = group::group_numbers(&strings);
            let valid: BitBuffer = (0..row_count).map(is_valid).collect();
            let validity = null_every.map(|_| valid.as_bits());
            for level in Level::available() {
                let mut table = StringGroupTable::new(Seed::new(0));
                let mut groups = vec![0; row_count];
                table.find_or_insert(*level, Strings::Views(&rows, &[&bytes]), validity, &mut groups);
                assert_eq!(groups, expected, "{level}: {entry_count} entries");
                assert!((0..).zip(&order).all(|(group, text)| table.get(group) == text.as_deref()));
            }
        }
    }
}

#[test]
fn a_dense_table_numbers_groups_and_refuses_what_is_outside() {
    for level in Level::available() {
        let keys: Vec<u16> =
            Keys::Uniform(300).rows(miri_or(500, 3000), 1).iter().map(|key| *key as u16 + 50).collect();
        let rows: Vec<Option<u16>> = keys.iter().copied().map(Some).collect();
        let (expected, order) = group::group_numbers(&rows);
        let mut table = DenseTable::new(50, 349, keys.len()).unwrap();
        let mut groups = vec![0; keys.len()];
        assert!(table.find_or_insert(*level, &keys, &mut groups));
        assert_eq!(groups, expected, "{level}");
        assert!(table.keys().iter().copied().eq(order.iter().map(|key| u64::from(key.unwrap()))));
        for outside in [49_u16, 350, 0, u16::MAX] {
            let before = groups.clone();
            assert!(!table.find_or_insert(*level, &[60, outside], &mut groups[..2]));
            assert_eq!(groups, before, "nothing is written");
            table.find(&[outside], &mut groups[..1]);
            assert_eq!(groups[0], NO_GROUP);
            groups = before;
        }
    }
    assert!(DenseTable::new(5, 4, 10).is_none(), "an empty range");
    assert!(DenseTable::new(0, u64::MAX, usize::MAX).is_none(), "too large a range");
    assert!(DenseTable::new(0, 1 << 20, 100).is_none(), "far more values than rows");
}

#[test]
fn packed_keys_are_equal_when_all_columns_are() {
    let small = [1_u8, 1, 2, 9, 9];
    let valid = Bits::new(&[0b00111], 0, 5);
    let wide = [7_u32, 7, 7, 7, 7];
    let columns = [
        KeyColumn { values: KeyValues::Bytes1(&small), validity: Some(valid), is_nullable: true },
        KeyColumn { values: KeyValues::Bytes4(&wide), validity: None, is_nullable: false },
        KeyColumn { values: KeyValues::Bytes2(&[0, 0, 0, 5, 5]), validity: None, is_nullable: false },
    ];
    assert_eq!(packed_bytes(&columns), 8);
    for level in Level::available() {
        let mut keys = [1_u64; 5];
        pack_keys(*level, &columns, &mut keys);
        let expected = [
            0x0000_0000_0007_0001,
            0x0000_0000_0007_0001,
            0x0000_0000_0007_0002,
            0x0005_0000_0007_0100,
            0x0005_0000_0007_0100,
        ];
        assert_eq!(keys, expected, "{level}");
        let mut wide_keys = [1_u128; 5];
        pack_keys(*level, &columns, &mut wide_keys);
        assert_eq!(wide_keys, expected.map(u128::from));
    }
}

#[test]
fn partitioned_rows_keep_their_order() {
    let mut random = Random::new(1);
    for len in [0, 1, 100, miri_or(101, 5000)] {
        let hashes: Vec<u64> = (0..len).map(|_| random.bits()).collect();
        for bits in [1, 5, 10] {
            let parts = partition_rows(&hashes, bits);
            let mut expected: Vec<u32> = (0..len as u32).collect();
            expected.sort_by_key(|row| hashes[*row as usize] >> (64 - bits));
            assert_eq!(parts.rows, expected);
            let counts = (0..1 << bits).map(|part| parts.starts[part + 1] - parts.starts[part]);
            assert_eq!(counts.sum::<u32>(), len as u32);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(miri_or(2, 64)))]

    #[test]
    fn any_keys_are_grouped(keys in prop::collection::vec(0_u64..50, 0..miri_or(40, 600)), shift in 0_u32..58) {
        let keys: Vec<u64> = keys.iter().map(|key| key << shift).collect();
        for level in Level::available() {
            check(*level, &keys, None);
        }
    }

    #[test]
    fn any_strings_are_grouped(strings in prop::collection::vec(prop::option::of("[ab]{0,20}"), 0..miri_or(40, 300))) {
        let strings: Vec<_> = strings.into_iter().map(|string| string.map(String::into_bytes)).collect();
        for level in Level::available() {
            check_strings(*level, &strings);
        }
    }
}
