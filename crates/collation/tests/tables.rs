//! The weights of every character are the published ones.

use keirin_collation::{Collation, Keys, PadOrder};
use keirin_testkit::data;

fn keys(name: &str) -> Keys {
    Keys::new(Collation::find(name).expect("it is there"), PadOrder::Tidb)
}

/// FNV-1a of the weights of all scalars at a level, as `tables/generate.py` computes it from the published files.
fn checksum(keys: &Keys, level: usize) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    for char in '\0'..=char::MAX {
        let weights = keys.weights(char.encode_utf8(&mut [0; 4]));
        let weights: Vec<[u8; 2]> = weights.as_chunks().0.to_vec();
        let of_level =
            weights.split(|weight| *weight == [0, 0]).nth(level).expect("there are as many levels");
        for byte in of_level.iter().flatten().copied().chain([0, 0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
        }
    }
    hash
}

#[test]
fn weights_of_all_scalars_have_the_published_checksums() {
    let expected = [
        ("utf8mb4_general_ci", 0, 0xA92B_4E65_1E3F_9EAA),
        ("utf8mb4_unicode_ci", 0, 0x2053_87DC_CB53_FB6C),
        ("utf8mb4_0900_as_cs", 0, 0x140D_149E_2AC9_1048),
        ("utf8mb4_0900_as_cs", 1, 0x561B_1B2E_E787_93E9),
        ("utf8mb4_0900_as_cs", 2, 0x43EE_E4BF_9B6E_ECC2),
    ];
    for (name, level, checksum_expected) in expected {
        let found = checksum(&keys(name), level);
        assert_eq!(found, checksum_expected, "{name}, level {level}: {found:#018X}");
    }
}

#[test]
fn weights_are_those_of_weight_string() {
    for (name, file) in [
        ("utf8mb4_general_ci", "collation/general_ci-weights.txt"),
        ("utf8mb4_unicode_ci", "collation/unicode_ci-uca400-weights.txt"),
    ] {
        let Some(path) = data::file(file) else { continue };
        let keys = keys(name);
        let mut count = 0;
        for line in std::fs::read_to_string(path).unwrap().lines() {
            let (char, expected) = line.split_once(' ').unwrap();
            let char = char::from_u32(u32::from_str_radix(char, 16).unwrap()).unwrap();
            let weights = keys.weights(char.encode_utf8(&mut [0; 4]));
            let found: String = weights.iter().map(|byte| format!("{byte:02X}")).collect();
            assert_eq!(found, expected.replace(' ', ""), "{name} {char:?}");
            count += 1;
        }
        assert_eq!(count, 63_488);
    }
}

#[test]
fn keys_of_all_scalars_are_ordered_as_their_weights() {
    for name in ["utf8mb4_general_ci", "utf8mb4_unicode_ci", "utf8mb4_0900_as_cs", "utf8mb4_0900_ai_ci"] {
        let keys = keys(name);
        // 'x' behind each shows that no key begins another.
        let text = |char: char| format!("{char}x");
        let of = |char| (keys.weights(&text(char)), keys.key(&text(char)));
        let all: Vec<char> = if cfg!(debug_assertions) {
            ('\0'..='\u{3_FFFF}').chain('\u{E_0000}'..='\u{E_0FFF}').collect()
        } else {
            ('\0'..=char::MAX).collect()
        };
        let mut by_weights: Vec<(Vec<u8>, String)> = all.into_iter().map(of).collect();
        by_weights.sort_unstable();
        for pair in by_weights.windows(2) {
            assert_eq!(pair[0].0.cmp(&pair[1].0), pair[0].1.cmp(&pair[1].1), "{name}: {pair:?}");
        }
    }
}
