//! Memory functions, hot in the caches: the sizes and needles of TiFlash's study and what a column has.
//!
//! A case calls a function on each of some buffers in turn, so that branches are not learnt by heart. Needles
//! are prepared where a library lets them be. `keirin` stands for what we call: for equality, order and
//! copies that is the standard library.

use std::hint::black_box;

use keirin_kernels::Level;
use keirin_kernels::bench::glibc;
#[cfg(target_arch = "x86_64")]
use keirin_kernels::bench::tiflash;
use keirin_kernels::text::{Finder, find, find_byte};
use keirin_testkit::columns::Random;

use crate::duel::{Lane, Report, Unit};

const SIZES: [usize; 8] = [2, 13, 65, 100, 1 << 10, 10_000, 100_000, 1_000_000];
const NEEDLES: [usize; 16] = [1, 2, 3, 4, 5, 7, 8, 11, 15, 16, 23, 31, 32, 47, 62, 63];
/// Bytes that a case reads in a turn: they stay in the first-level cache unless one buffer is larger.
const TURN_BYTES: usize = 16 << 10;

pub(super) fn run(report: &mut Report) {
    for size in SIZES {
        find_bytes(report, size);
        compares(report, size);
        copies(report, size);
    }
    for size in [80, 1 << 10, 64 << 10] {
        for needle_len in NEEDLES {
            finds(report, size, needle_len, false);
            finds(report, size, needle_len, true);
        }
    }
}

/// A place below `bound`.
#[allow(clippy::cast_possible_truncation, reason = "below a `usize`")]
pub(super) fn below(random: &mut Random, bound: usize) -> usize {
    random.below(bound as u64) as usize
}

/// Letters about as frequent as in English, without a `q`.
fn text(len: usize, random: &mut Random) -> Vec<u8> {
    const LETTERS: &[u8] = b"      eeeeeeeettttttaaaaaooooonnnniiiissssrrrrhhhhddllluuccmmfyywwggppbvkx";
    (0..len).map(|_| LETTERS[below(random, LETTERS.len())]).collect()
}

fn buffers(size: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut random = Random::new(seed);
    (0..(TURN_BYTES / size).clamp(1, 64)).map(|_| text(size, &mut random)).collect()
}

/// The sum of positions, those that are not found counting as much as any constant.
fn sum(hits: impl Iterator<Item = Option<usize>>) -> u64 {
    hits.map(|hit| hit.map_or(7, |hit| hit as u64)).sum()
}

fn find_bytes(report: &mut Report, size: usize) {
    let case = format!("find-byte/{size}");
    let level = Level::best();
    let haystacks = &buffers(size, 1);
    let each = |find: fn(&[u8], u8) -> Option<usize>| {
        move || sum(haystacks.iter().map(|haystack| find(black_box(haystack), b'q')))
    };
    let ours = move || sum(haystacks.iter().map(|haystack| find_byte(level, black_box(haystack), b'q')));
    let lanes = vec![
        Lane::new("keirin", ours),
        Lane::new("glibc", each(glibc::memchr)),
        Lane::new("memchr", each(|haystack, byte| memchr::memchr(byte, haystack))),
        Lane::new("stringzilla", each(|haystack, byte| stringzilla::sz::find(haystack, [byte]))),
    ];
    report.case(&case, Unit::Calls, haystacks.len(), lanes);
}

fn compares(report: &mut Report, size: usize) {
    let (lefts, rights) = (&buffers(size, 1), &buffers(size, 1));
    fn each<'a, T: Into<i64> + 'a>(
        lefts: &'a [Vec<u8>],
        rights: &'a [Vec<u8>],
        compare: fn(&[u8], &[u8]) -> T,
    ) -> impl FnMut() -> u64 + 'a {
        move || {
            let pairs = lefts.iter().zip(rights);
            pairs.map(|(left, right)| compare(black_box(left), black_box(right)).into().cast_unsigned()).sum()
        }
    }
    let lanes = vec![
        Lane::new("keirin", each(lefts, rights, |left, right| left == right)),
        Lane::new("glibc", each(lefts, rights, |left, right| glibc::memcmp(left, right).is_eq())),
        Lane::new("stringzilla", each(lefts, rights, |left, right| stringzilla::sz::equal(left, right))),
    ];
    report.case(&format!("equal/{size}"), Unit::Calls, lefts.len(), lanes);
    let lanes = vec![
        Lane::new("keirin", each(lefts, rights, |left, right| left.cmp(right) as i8)),
        Lane::new("glibc", each(lefts, rights, |left, right| glibc::memcmp(left, right) as i8)),
        Lane::new(
            "stringzilla",
            each(lefts, rights, |left, right| stringzilla::sz::order(left, right) as i8),
        ),
    ];
    report.case(&format!("compare/{size}"), Unit::Calls, lefts.len(), lanes);
}

fn copies(report: &mut Report, size: usize) {
    let sources = &buffers(size, 1);
    let each = |copy: fn(&mut [u8], &[u8])| {
        let mut target = vec![0; size];
        move || {
            sources.iter().for_each(|source| copy(black_box(&mut target), black_box(source)));
            u64::from(target[0])
        }
    };
    let lanes = vec![
        Lane::new("keirin", each(|target, source| target.copy_from_slice(source))),
        Lane::new("glibc", each(glibc::memcpy)),
        Lane::new("stringzilla", each(|mut target, source| stringzilla::sz::copy(&mut target, &source))),
    ];
    report.case(&format!("copy/{size}"), Unit::Calls, sources.len(), lanes);
}

fn finds(report: &mut Report, size: usize, needle_len: usize, is_at_end: bool) {
    let case = format!("find/{size}/{needle_len}/{}", if is_at_end { "end" } else { "absent" });
    if !report.wants(&case) {
        return;
    }
    let mut random = Random::new(needle_len as u64);
    let mut needle = text(needle_len, &mut random);
    if needle_len < 4 {
        // Every other pair of letters occurs in a long text.
        needle[needle_len - 1] = b'q';
    }
    let mut haystacks = buffers(size, 3);
    if is_at_end {
        haystacks.iter_mut().for_each(|haystack| haystack[size - needle_len..].copy_from_slice(&needle));
    }
    let (needle, haystacks, level) = (needle.as_slice(), haystacks.as_slice(), Level::best());
    let ours = Finder::new(needle);
    let theirs = memchr::memmem::Finder::new(needle);
    let each = |find: fn(&[u8], &[u8]) -> Option<usize>| {
        move || sum(haystacks.iter().map(|haystack| find(black_box(haystack), needle)))
    };
    let lanes = vec![
        Lane::new("keirin", || sum(haystacks.iter().map(|haystack| find(level, black_box(haystack), &ours)))),
        Lane::new("glibc", each(glibc::memmem)),
        Lane::new("memchr", || sum(haystacks.iter().map(|haystack| theirs.find(black_box(haystack))))),
        Lane::new("stringzilla", each(|haystack, needle| stringzilla::sz::find(haystack, needle))),
        #[cfg(target_arch = "x86_64")]
        Lane::new("tiflash-avx2", each(tiflash::find)),
    ];
    report.case(&case, Unit::Calls, haystacks.len(), lanes);
}
