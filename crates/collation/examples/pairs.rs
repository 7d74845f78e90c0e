//! Compares keys with weights for many random pairs of texts: `pairs [PAIRS [SEED]]`.

#[path = "../tests/texts/mod.rs"]
mod texts;

use keirin_testkit::columns::Random;
use texts::{all_keys, compare_weights, pair};

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>().expect("a number"));
    let pair_count = arguments.next().unwrap_or(100_000);
    let seed = arguments.next().unwrap_or(1);
    for (keys, order) in all_keys() {
        let mut random = Random::new(seed);
        let mut equal_count = 0;
        for _ in 0..pair_count {
            let (left, right) = pair(&mut random);
            let expected = compare_weights(&keys, order, &left, &right);
            let by_key = keys.key(&left).cmp(&keys.key(&right));
            assert_eq!(
                by_key,
                expected,
                "{} {order:?}, seed {seed}: keys of {left:?} and {right:?}",
                keys.collation()
            );
            let compared = keys.compare(&left, &right);
            assert_eq!(
                compared,
                expected,
                "{} {order:?}, seed {seed}: {left:?} and {right:?}",
                keys.collation()
            );
            equal_count += u64::from(expected.is_eq());
        }
        println!("{} {order:?}: {pair_count} pairs, {equal_count} equal", keys.collation());
    }
}
