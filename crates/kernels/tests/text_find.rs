//! The search for bytes and needles, at every level, against trying all positions.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod guard;

use std::time::Instant;

use guard::AtPageEnd;
use keirin_kernels::Level;
use keirin_kernels::text::{Finder, find, find_byte};
use keirin_testkit::columns::{Random, lengths, miri_or};
use keirin_testkit::oracle::text as oracle;
use proptest::prelude::*;

fn check(haystack: &[u8], needle: &[u8]) {
    let expected = oracle::find(haystack, needle);
    let finder = Finder::new(needle);
    assert_eq!(finder.needle(), needle);
    for level in Level::available() {
        assert_eq!(find(*level, haystack, &finder), expected, "{level}: {needle:?} in {haystack:?}");
        if let [byte] = needle {
            assert_eq!(find_byte(*level, haystack, *byte), expected, "{level}: {byte} in {haystack:?}");
        }
    }
}

/// Random letters of an alphabet of that size.
fn text(len: usize, alphabet: u64, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..len).map(|_| b'a' + u8::try_from(random.below(alphabet)).unwrap()).collect()
}

#[test]
fn needles_are_found_at_every_length_position_and_misalignment() {
    for len in lengths().into_iter().filter(|len| *len <= 1100) {
        let haystack = text(len + 8, 20, len as u64);
        for needle_len in [0, 1, 2, 3, 7, 8, 15, 31, 63, 64, 65, 130].into_iter().step_by(miri_or(2, 1)) {
            let misalignment = (len + needle_len) % 9;
            let haystack = &haystack[misalignment.min(8)..misalignment.min(8) + len];
            check(haystack, &text(needle_len, 20, 7));
            if needle_len <= len {
                let last = len - needle_len;
                for start in [0, last / 2, last.saturating_sub(64), last] {
                    let mut haystack = haystack.to_vec();
                    let needle = vec![b'z'; needle_len];
                    haystack[start..start + needle_len].copy_from_slice(&needle);
                    check(&haystack, &needle);
                }
            }
        }
    }
}

#[test]
fn nothing_is_read_outside_the_haystack() {
    for len in (0..400).step_by(miri_or(67, 1)) {
        let page = AtPageEnd::new(&text(len, 3, 1));
        for needle in [&b"a"[..], b"ab", b"abc", b"zz", b"abcabcabcabcabcabcabcabcabcabcabcabcabcabcabcab"] {
            check(&page, needle);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "measures time")]
fn periodic_haystacks_take_linear_time() {
    const LEN: usize = 1 << 21;
    let periodic = |period: &[u8]| period.iter().copied().cycle().take(LEN).collect::<Vec<u8>>();
    let mut needles = Vec::new();
    for middle in [1, 30, 90, 5000] {
        // What is wrong stands where no probe looks: all bytes of the needle are the same but one.
        let mut needle = vec![b'a'; 10_000];
        needle[middle] = b' ';
        needles.push((periodic(b"a"), needle.clone()));
        needles.push((periodic(&needle[..9_999]), needle));
    }
    for (haystack, needle) in needles {
        let finder = Finder::new(&needle);
        let naive = haystack.windows(needle.len()).position(|window| window == needle);
        for level in Level::available() {
            let seconds = || {
                let start = Instant::now();
                assert_eq!(find(*level, &haystack, &finder), naive);
                start.elapsed().as_secs_f64()
            };
            // A machine that is busy may be slow once.
            let fastest = (0..3).map(|_| seconds()).find(|seconds| *seconds < 1.0);
            assert!(fastest.is_some(), "{level}: {LEN} bytes took more than a second, three times");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(miri_or(2, 256)))]

    #[test]
    fn needles_over_small_alphabets_are_found(
        haystack in proptest::collection::vec(0_u8..2, 0..600),
        needle in proptest::collection::vec(0_u8..2, 0..90),
        cut in 0_usize..600,
        len in 0_usize..90,
    ) {
        check(&haystack, &needle);
        let start = cut.min(haystack.len());
        let end = (start + len).min(haystack.len());
        check(&haystack, &haystack[start..end]);
    }
}
