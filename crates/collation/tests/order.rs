//! Keys have the order of weights, whatever the texts.

mod texts;

use std::cmp::Ordering;

use keirin_collation::{Collation, Keys, PadOrder};
use keirin_testkit::columns::Random;
use texts::{all_keys, compare_weights, pair, text};

const PAIR_COUNT: usize = 10_000;

#[test]
fn keys_compare_as_weights() {
    let mut random = Random::new(1);
    for (keys, order) in all_keys() {
        for _ in 0..PAIR_COUNT {
            let (left, right) = pair(&mut random);
            let expected = compare_weights(&keys, order, &left, &right);
            let (left_key, right_key) = (keys.key(&left), keys.key(&right));
            let context = || format!("{} {order:?}: {left:?} {right:?}", keys.collation());
            assert_eq!(left_key.as_bytes().cmp(right_key.as_bytes()), expected, "keys, {}", context());
            assert_eq!(keys.compare(&left, &right), expected, "compare, {}", context());
            assert_eq!(keys.equal(&left, &right), expected == Ordering::Equal, "equal, {}", context());
            let mut first = left_key.into_bytes();
            first.resize(first.len().max(8), 0);
            let first = u64::from_be_bytes(*first.first_chunk().unwrap());
            assert_eq!(keys.prefix(&left), first, "prefix, {}", context());
        }
    }
}

#[test]
fn keys_of_long_texts_join_those_of_their_parts() {
    let mut random = Random::new(2);
    for (keys, order) in all_keys().filter(|(_, order)| *order == PadOrder::Tidb) {
        if keys.collation().name().contains("0900_as") {
            continue;
        }
        for _ in 0..200 {
            // The last part ends in no space.
            let parts: Vec<String> = (0..20).map(|_| text(&mut random, 8)).chain(["x".to_owned()]).collect();
            let mut joined = Vec::new();
            for part in &parts {
                let spaces = part.len() - part.trim_end_matches(' ').len();
                keys.append_key(part, &mut joined);
                if keys.collation().pads() {
                    (0..spaces).for_each(|_| joined.extend(&keys.key(" x").as_bytes()[..1]));
                }
            }
            assert_eq!(
                keys.key(&parts.concat()).into_bytes(),
                joined,
                "{} {order:?}: {parts:?}",
                keys.collation()
            );
        }
    }
}

#[test]
fn order_is_total() {
    let mut random = Random::new(3);
    for (keys, order) in all_keys() {
        for _ in 0..2_000 {
            let (first, second) = pair(&mut random);
            let (_, third) = pair(&mut random);
            assert_eq!(keys.compare(&first, &second), keys.compare(&second, &first).reverse());
            let mut sorted = [first, second, third];
            sorted.sort_by(|left, right| keys.compare(left, right));
            assert!(
                keys.compare(&sorted[0], &sorted[2]).is_le(),
                "{} {order:?}: {sorted:?}",
                keys.collation()
            );
        }
    }
}

#[test]
fn runs_of_spaces_of_any_length_keep_the_order() {
    let lengths = [0, 1, 2, 3, 127, 128, 129, 2_047, 2_048, 53_246, 53_247, 53_248, 106_494, 106_495];
    let keys = Keys::new(Collation::find("utf8mb4_bin").unwrap(), PadOrder::Mysql);
    let texts: Vec<String> = lengths
        .iter()
        .flat_map(|length| ["", "\t", "x"].map(|end| format!("a{}{end}", " ".repeat(*length))))
        .collect();
    for left in &texts {
        for right in &texts {
            let expected = compare_weights(&keys, PadOrder::Mysql, left, right);
            assert_eq!(
                keys.key(left).cmp(&keys.key(right)),
                expected,
                "{} and {} bytes",
                left.len(),
                right.len()
            );
        }
    }
}

#[test]
fn ascii_in_bulk_is_ascii_one_by_one() {
    let mut random = Random::new(4);
    for (keys, order) in all_keys() {
        for round in 0..300 {
            let byte = |random: &mut Random| match round % 3 {
                0 => 33 + random.below(94),
                1 => 9 + random.below(5) + 24 * random.below(2),
                _ => random.below(256),
            };
            let mut bytes: Vec<u8> =
                (0..random.below(100)).map(|_| u8::try_from(byte(&mut random)).unwrap()).collect();
            bytes.push(b'x');
            let mut bulk = b"before".to_vec();
            let is_done = keys.append_ascii_keys(&bytes, &mut bulk);
            let mut folded = Vec::new();
            let is_folded = keys.append_ascii_fold(&bytes, &mut folded);
            let Ok(text) = str::from_utf8(&bytes) else {
                assert!(!is_done);
                continue;
            };
            assert_eq!(&bulk[6..], if is_done { keys.key(text).into_bytes() } else { Vec::new() });
            let singles = keys.collation().name().ends_with("_general_ci");
            assert!(is_done || round % 3 != 0 || order == PadOrder::Mysql || !(singles && bytes.is_ascii()));
            assert!(!is_folded || folded == keys.fold(text).into_bytes(), "{text:?}");
        }
    }
}

#[cfg(feature = "icu")]
#[test]
fn keys_of_languages_compare_as_their_collators() {
    let mut random = Random::new(5);
    for collation in Collation::all().filter(|collation| collation.id().is_none()) {
        let keys = Keys::new(collation, PadOrder::Tidb);
        for _ in 0..100 {
            let (left, right) = pair(&mut random);
            let order = keys.key(&left).cmp(&keys.key(&right));
            assert_eq!(order, keys.compare(&left, &right), "{collation}: {left:?} {right:?}");
        }
    }
    let keys = |name| Keys::new(Collation::find(name).unwrap(), PadOrder::Tidb);
    assert!(keys("icu:sv").key("ö") > keys("icu:sv").key("z"));
    assert!(keys("icu:de").key("ö") < keys("icu:de").key("z"));
    assert!(keys("icu:de-u-co-phonebk").key("ö") < keys("icu:de-u-co-phonebk").key("of"));
    assert!(keys("icu:cs").key("ch") > keys("icu:cs").key("h"));
}
