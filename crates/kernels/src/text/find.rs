//! Searches bytes for one byte, or for a needle that is prepared once.
//!
//! A position can only hold the needle if its three rarest bytes are in their places. So 64 positions are
//! tested at a time: three loads, one exclusive-or, two `vpternlog` that each do `x | (y ^ z)`, and one test
//! for zero bytes; the candidates are then compared in full (`find_x86.rs`). The idea is the generic SIMD
//! search of Muła ("SIMD-friendly algorithms for substring searching"), which probes two bytes; the third
//! makes false candidates so rare that one test of four vectors pays. If two bytes are rare enough, the third
//! is not loaded.
//!
//! Periodic bytes can make every position a candidate. Each false one costs budget, which progress earns
//! back; when it is spent, the rest is left to the `memchr` crate, whose two-way search is linear. That crate
//! is also the search below AVX-512: at AVX2 its loop is what we would write.
//!
//! Equality, order and copies of bytes are not here: the C library's functions are as fast as any that we
//! tried (masked 64-byte compares gained nothing from 2 bytes to 1 MB), and `==`, `cmp` and `copy_from_slice`
//! call them.

use memchr::memmem;

#[cfg(target_arch = "x86_64")]
use super::find_x86 as x86;

kernel! {
    /// The first position of `byte`.
    #[inline]
    pub fn find_byte(haystack: &[u8], byte: u8) -> Option<usize> = find_byte_plain, avx512 = x86::find_byte;
}

#[inline(always)]
fn find_byte_plain(haystack: &[u8], byte: u8) -> Option<usize> {
    memchr::memchr(byte, haystack)
}

/// A needle, prepared to be found in many haystacks.
#[derive(Clone, Debug)]
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only the search by vectors has probes"))]
pub struct Finder {
    /// The linear search, which also owns the needle.
    pub(super) linear: memmem::Finder<'static>,
    /// The length of the needle, available without a look at `linear`.
    pub(super) needle_len: usize,
    /// The positions, inside the needle, and values of the bytes to look for first.
    pub(super) probes: [(usize, u8); 3],
    /// Whether the first two probes are enough.
    pub(super) has_rare_pair: bool,
    /// The first 64 bytes of the needle, with zeros behind it.
    pub(super) head: [u8; 64],
}

impl Finder {
    /// Prepares a search.
    #[must_use]
    pub fn new(needle: &[u8]) -> Self {
        let mut head = [0; 64];
        let head_len = needle.len().min(head.len());
        head[..head_len].copy_from_slice(&needle[..head_len]);
        let linear = memmem::Finder::new(needle).into_owned();
        let probes = probes(needle);
        let has_rare_pair = needle.len() == 2 || rarity(probes[0].1) + rarity(probes[1].1) >= RARE_PAIR;
        Self { linear, needle_len: needle.len(), probes, has_rare_pair, head }
    }

    /// The most vector comparisons to decide whether a candidate is a hit.
    #[inline(always)]
    pub(super) fn compare_cost(&self) -> usize {
        1 + self.needle_len / self.head.len()
    }

    /// The needle.
    #[must_use]
    #[inline(always)]
    pub fn needle(&self) -> &[u8] {
        self.linear.needle()
    }
}

kernel! {
    /// The first position of the needle; an empty needle is found at zero.
    #[inline]
    pub fn find(haystack: &[u8], finder: &Finder) -> Option<usize> = find_plain, avx512 = x86::find;
}

#[inline(always)]
pub(super) fn find_plain(haystack: &[u8], finder: &Finder) -> Option<usize> {
    finder.linear.find(haystack)
}

/// The rarest bytes, preferring values that are not probed yet: three equal bytes would all match in every
/// run of that byte.
fn probes(needle: &[u8]) -> [(usize, u8); 3] {
    let rarest = |taken: &[(usize, u8)]| {
        let is_new = |(_, byte): &(usize, u8)| taken.iter().all(|(_, other)| other != byte);
        let is_free = |(at, _): &(usize, u8)| taken.iter().all(|(other, _)| other != at);
        let bytes = || needle.iter().copied().enumerate().filter(is_free);
        let best = bytes().filter(is_new).max_by_key(|(_, byte)| rarity(*byte));
        best.or_else(|| bytes().next()).or_else(|| taken.first().copied()).unwrap_or_default()
    };
    let first = rarest(&[]);
    let second = rarest(&[first]);
    [first, second, rarest(&[first, second])]
}

/// If two bytes have at least this rarity together, see [`rarity`], a third is not probed: both are in place
/// by chance in less than half of the groups of 256 positions, which costs less than loading a third of all
/// vectors, most of them from two cache lines (Zen 4: 1,024 bytes in 27 ns instead of 30, in 20 if no pair
/// matches).
const RARE_PAIR: u8 = 9;

/// How rare a byte is in text: about one byte in two to this power has the value.
fn rarity(byte: u8) -> u8 {
    match byte {
        b' ' | b'e' | b't' | b'a' | b'o' | b'i' | b'n' | b's' | b'r' | 0 => 4,
        b'h' | b'l' | b'd' | b'c' | b'u' | b'm' | b'p' | b'/' | b'.' | b'0' | b'1' => 5,
        b'j' | b'q' | b'x' | b'z' => 9,
        b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b',' | b'=' => 6,
        b'A'..=b'Z' | 0x80..=0xBF => 8,
        _ => 9,
    }
}
