//! The search of `find.rs` with AVX-512.
//!
//! Measured on Zen 5 against the best of glibc, `memchr`, StringZilla and an AVX2 first-and-last search, see
//! suite `memory`. Vectors are read whole inside the haystack; where fewer than 64 positions are left, a mask
//! keeps the load inside.

use std::arch::x86_64::*;

use super::find::Finder;

pub(super) const VECTOR: usize = 64;
pub(super) const PAIR: usize = 2 * VECTOR;

/// The false candidates that a search may have at first, before progress counts.
const BUDGET_START: usize = 64;
/// Each further false candidate requires this many more positions passed.
const BUDGET_STEP: usize = 16;

/// The length from which on it pays to align vectors to cache lines.
const ALIGNED_MIN: usize = 8 * VECTOR;

/// `x | (y ^ z)` as the truth table of `vpternlog`.
const OR_XOR: i32 = 0b1111_0110;

/// Whether there were too many false candidates for the positions passed.
#[inline(always)]
pub(super) fn spends_budget(miss_count: usize, at: usize) -> bool {
    miss_count > BUDGET_START + at / BUDGET_STEP
}

#[inline(always)]
fn low_bits(count: usize) -> u64 {
    debug_assert!((1..=VECTOR).contains(&count));
    u64::MAX >> (VECTOR - count)
}

/// The first position of `byte`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn find_byte(haystack: &[u8], byte: u8) -> Option<usize> {
    let wanted = _mm512_set1_epi8(byte.cast_signed());
    let (start, len) = (haystack.as_ptr().cast::<i8>(), haystack.len());
    if len <= VECTOR {
        let mask = low_bits_or_none(len);
        // SAFETY: the mask ends at `len`.
        let bytes = unsafe { _mm512_maskz_loadu_epi8(mask, start) };
        return first_bit(_mm512_mask_cmpeq_epi8_mask(mask, bytes, wanted), 0);
    }
    if len <= PAIR {
        // SAFETY: more than a vector.
        let first = _mm512_cmpeq_epi8_mask(unsafe { _mm512_loadu_epi8(start) }, wanted);
        // SAFETY: the vector ends at `len`.
        let last = _mm512_cmpeq_epi8_mask(unsafe { _mm512_loadu_epi8(start.add(len - VECTOR)) }, wanted);
        if first != 0 {
            return first_bit(first, 0);
        }
        return first_bit(last, len - VECTOR);
    }
    let mut at = 0;
    if len >= ALIGNED_MIN {
        // SAFETY: the first vector, and there are more.
        let bytes = unsafe { _mm512_loadu_epi8(start) };
        let equal = _mm512_cmpeq_epi8_mask(bytes, wanted);
        if equal != 0 {
            return first_bit(equal, 0);
        }
        at = VECTOR - start.addr() % VECTOR;
    }
    while at + 4 * VECTOR <= len {
        // SAFETY: the four vectors end at `at + 256 <= len`.
        let vectors = unsafe {
            [
                _mm512_loadu_epi8(start.add(at)),
                _mm512_loadu_epi8(start.add(at + VECTOR)),
                _mm512_loadu_epi8(start.add(at + 2 * VECTOR)),
                _mm512_loadu_epi8(start.add(at + 3 * VECTOR)),
            ]
        };
        let differences = vectors.map(|vector| _mm512_xor_si512(vector, wanted));
        let least = _mm512_min_epu8(
            _mm512_min_epu8(differences[0], differences[1]),
            _mm512_min_epu8(differences[2], differences[3]),
        );
        if _mm512_testn_epi8_mask(least, least) != 0 {
            break;
        }
        at += 4 * VECTOR;
    }
    while at + VECTOR < len {
        // SAFETY: the vector ends before `len`.
        let bytes = unsafe { _mm512_loadu_epi8(start.add(at)) };
        let equal = _mm512_cmpeq_epi8_mask(bytes, wanted);
        if equal != 0 {
            return first_bit(equal, at);
        }
        at += VECTOR;
    }
    // The last vector overlaps the one before it, which does not have the byte.
    let at = len - VECTOR;
    // SAFETY: the vector ends at `len`, which is more than one.
    let bytes = unsafe { _mm512_loadu_epi8(start.add(at)) };
    first_bit(_mm512_cmpeq_epi8_mask(bytes, wanted), at)
}

#[inline(always)]
fn low_bits_or_none(count: usize) -> u64 {
    if count == 0 { 0 } else { low_bits(count) }
}

#[inline(always)]
fn first_bit(mask: u64, at: usize) -> Option<usize> {
    (mask != 0).then(|| at + mask.trailing_zeros() as usize)
}

/// The first position of the needle.
///
/// Dispatches by the length of the haystack, with long needles and a spent budget handled elsewhere: the path
/// calls no functions, so no registers are saved, and 80 bytes take 4 ns instead of 8.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn find(haystack: &[u8], finder: &Finder) -> Option<usize> {
    if finder.needle_len.wrapping_sub(2) > VECTOR - 2 {
        return match finder.needle_len {
            1 => find_byte(haystack, finder.head[0]),
            _ => find_from(haystack, finder, 0),
        };
    }
    // Below, positions are those at which the needle would fit into the haystack.
    match (haystack.len() + 1).saturating_sub(finder.needle_len) {
        0 => None,
        // SAFETY: a position at least and 32 at most.
        count @ 1..=32 => unsafe { find_in_half(haystack, finder, count) },
        // SAFETY: a position at least and 64 at most.
        count @ ..=VECTOR => unsafe { find_in_one(haystack, finder, count) },
        // SAFETY: more than 64 positions and 128 at most.
        count @ ..=PAIR => unsafe { find_in_two(haystack, finder, count) },
        // SAFETY: more than 128 positions.
        count if finder.has_rare_pair => unsafe { find_in_groups::<2>(haystack, finder, count) },
        // SAFETY: more than 128 positions.
        count => unsafe { find_in_groups::<3>(haystack, finder, count) },
    }
}

/// Returns the first candidate from `at` on that is a hit. Needles with as many bytes as were probed, each at
/// its own position, need no comparison.
macro_rules! return_if_hit {
    ($probes:ident, $probe_count:expr, $haystack:ident, $at:expr, $candidates:expr) => {{
        let mut candidates: u64 = $candidates;
        while candidates != 0 {
            let position = $at + candidates.trailing_zeros() as usize;
            let is_hit = $probes.finder.needle_len <= $probe_count || {
                // SAFETY: candidates are positions, which have as many bytes behind them as the needle.
                unsafe { $probes.has_head($haystack.as_ptr().add(position)) }
            };
            if is_hit {
                return Some(position);
            }
            candidates &= candidates - 1;
        }
    }};
}

/// # Safety
/// There must be `position_count` positions, at least one and at most 64.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn find_in_one(haystack: &[u8], finder: &Finder, position_count: usize) -> Option<usize> {
    let probes = Probes::new(haystack, finder);
    // SAFETY: the mask names positions.
    let candidates = unsafe { probes.candidates(0, low_bits(position_count)) };
    return_if_hit!(probes, 3, haystack, 0, candidates);
    None
}

/// # Safety
/// There must be `position_count` positions, at least one and at most 32.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn find_in_half(haystack: &[u8], finder: &Finder, position_count: usize) -> Option<usize> {
    let mask = u32::MAX >> (32 - position_count);
    // Among so few positions two bytes rarely match by chance.
    let [first, second, _] = finder.probes;
    let wanted = |byte: u8| _mm256_set1_epi8(byte.cast_signed());
    let start = haystack.as_ptr().cast::<i8>();
    // SAFETY: a probe is inside the needle, and bytes outside the mask, which names positions, are not read.
    let first = unsafe { (_mm256_maskz_loadu_epi8(mask, start.add(first.0)), wanted(first.1)) };
    // SAFETY: a probe is inside the needle, and bytes outside the mask, which names positions, are not read.
    let second = unsafe { (_mm256_maskz_loadu_epi8(mask, start.add(second.0)), wanted(second.1)) };
    let difference = _mm256_xor_si256(first.0, first.1);
    let difference = _mm256_ternarylogic_epi64::<OR_XOR>(difference, second.0, second.1);
    let candidates = u64::from(_mm256_mask_testn_epi8_mask(mask, difference, difference));
    let probes = Probes::new(haystack, finder);
    return_if_hit!(probes, 2, haystack, 0, candidates);
    None
}

/// # Safety
/// There must be `position_count` positions, more than 64 and at most 128.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn find_in_two(haystack: &[u8], finder: &Finder, position_count: usize) -> Option<usize> {
    let probes = Probes::new(haystack, finder);
    let last_at = position_count - VECTOR;
    // SAFETY: the mask names positions.
    let first = unsafe { probes.candidates(0, u64::MAX) };
    // SAFETY: the mask names positions.
    let second = unsafe { probes.candidates(last_at, u64::MAX) };
    if first | second != 0 {
        return_if_hit!(probes, 3, haystack, 0, first);
        return_if_hit!(probes, 3, haystack, last_at, second);
    }
    None
}

/// Searches vectors in groups of four, then one by one, the last one moved back to end at the last position.
/// From the second group on, each of the first probe's vectors is in one cache line.
///
/// # Safety
/// There must be `position_count` positions, more than 64.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn find_in_groups<const PROBES: usize>(
    haystack: &[u8],
    finder: &Finder,
    position_count: usize,
) -> Option<usize> {
    let probes = Probes::new(haystack, finder);
    const N: usize = 4;
    let last_at = position_count - VECTOR;
    let (mut at, mut miss_count) = (0, 0);
    let mut step = N * VECTOR - probes.starts[0].addr() % VECTOR;
    while at + N * VECTOR <= position_count {
        let mut differences = [_mm512_setzero_si512(); N];
        for (index, differences) in differences.iter_mut().enumerate() {
            // SAFETY: the group ends with the last position or before it.
            *differences = unsafe { probes.differences::<PROBES>(at + index * VECTOR) };
        }
        let least = _mm512_min_epu8(
            _mm512_min_epu8(differences[0], differences[1]),
            _mm512_min_epu8(differences[2], differences[3]),
        );
        if _mm512_testn_epi8_mask(least, least) != 0 {
            for (index, differences) in differences.into_iter().enumerate() {
                let candidates = _mm512_testn_epi8_mask(differences, differences);
                return_if_hit!(probes, PROBES, haystack, at + index * VECTOR, candidates);
                miss_count += candidates.count_ones() as usize;
            }
            if spends_budget(miss_count, at) {
                return find_from(haystack, finder, at + step);
            }
        }
        at += step;
        step = N * VECTOR;
    }
    while at < position_count {
        let start = at.min(last_at);
        // SAFETY: the vector ends with the last position or before it.
        let differences = unsafe { probes.differences::<PROBES>(start) };
        let candidates = _mm512_testn_epi8_mask(differences, differences);
        return_if_hit!(probes, PROBES, haystack, start, candidates);
        at += VECTOR;
    }
    None
}

/// The first position of the needle from `start` on, by the search with a budget.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
fn find_from(haystack: &[u8], finder: &Finder, start: usize) -> Option<usize> {
    let rest = haystack.get(start..)?;
    if finder.needle_len == 0 {
        return Some(start);
    }
    if finder.needle_len > rest.len() {
        return None;
    }
    let position_count = rest.len() - finder.needle_len + 1;
    let probes = Probes::new(rest, finder);
    let (mut at, mut miss_count) = (0, 0);
    while at < position_count {
        // SAFETY: the four vectors hold positions.
        while at + 4 * VECTOR <= position_count && !unsafe { probes.any_of_four(at) } {
            at += 4 * VECTOR;
        }
        if at >= position_count {
            return None;
        }
        // The last vector overlaps the one before it.
        let first = at.min(position_count.saturating_sub(VECTOR));
        // SAFETY: the mask names positions.
        let mut candidates = unsafe { probes.candidates(first, low_bits(position_count.min(VECTOR))) };
        while candidates != 0 {
            let position = first + candidates.trailing_zeros() as usize;
            candidates &= candidates - 1;
            // SAFETY: it is a position.
            if unsafe { probes.is_hit(rest, position) } {
                return Some(start + position);
            }
            miss_count += finder.compare_cost();
        }
        at = first + VECTOR;
        if spends_budget(miss_count, at) {
            return rest.get(at..).and_then(|rest| finder.linear.find(rest)).map(|hit| start + at + hit);
        }
    }
    None
}

/// `count` ones, or 64 if that is less.
#[inline]
#[target_feature(enable = "bmi2")]
#[allow(clippy::cast_possible_truncation, reason = "at most 64")]
pub(super) fn low_bits_up_to(count: usize) -> u64 {
    _bzhi_u64(u64::MAX, count.min(VECTOR) as u32)
}

/// The probes of a search, in registers, with the addresses that the three probes have for position zero.
pub(super) struct Probes<'a> {
    starts: [*const i8; 3],
    bytes: [__m512i; 3],
    finder: &'a Finder,
}

impl<'a> Probes<'a> {
    /// The needle must not be empty. For a haystack that is shorter, probes point nowhere and there are no
    /// positions.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) fn new(haystack: &[u8], finder: &'a Finder) -> Self {
        Self {
            starts: finder.probes.map(|(at, _)| haystack.as_ptr().wrapping_add(at).cast()),
            bytes: finder.probes.map(|(_, byte)| _mm512_set1_epi8(byte.cast_signed())),
            finder,
        }
    }

    /// For each of the 64 positions from `at` on a byte that is zero if two or three probes match.
    ///
    /// # Safety
    /// There must be 64 positions from `at` on.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) unsafe fn differences<const PROBES: usize>(&self, at: usize) -> __m512i {
        // SAFETY: there are 64 positions from `at` on, as the caller promises.
        let vectors =
            unsafe { (_mm512_loadu_epi8(self.starts[0].add(at)), _mm512_loadu_epi8(self.starts[1].add(at))) };
        let first = _mm512_xor_si512(vectors.0, self.bytes[0]);
        let second = _mm512_ternarylogic_epi64::<OR_XOR>(first, vectors.1, self.bytes[1]);
        if PROBES == 2 {
            return second;
        }
        // SAFETY: there are 64 positions from `at` on, as the caller promises.
        let third = unsafe { _mm512_loadu_epi8(self.starts[2].add(at)) };
        _mm512_ternarylogic_epi64::<OR_XOR>(second, third, self.bytes[2])
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn combine(&self, vectors: [__m512i; 3]) -> __m512i {
        let first = _mm512_xor_si512(vectors[0], self.bytes[0]);
        let second = _mm512_ternarylogic_epi64::<OR_XOR>(first, vectors[1], self.bytes[1]);
        _mm512_ternarylogic_epi64::<OR_XOR>(second, vectors[2], self.bytes[2])
    }

    /// # Safety
    /// There must be 256 positions from `at` on.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) unsafe fn any_of_four(&self, at: usize) -> bool {
        // SAFETY: there are 256 positions from `at` on, as the caller promises.
        let differences = unsafe {
            [
                self.differences::<3>(at),
                self.differences::<3>(at + VECTOR),
                self.differences::<3>(at + 2 * VECTOR),
                self.differences::<3>(at + 3 * VECTOR),
            ]
        };
        let least = _mm512_min_epu8(
            _mm512_min_epu8(differences[0], differences[1]),
            _mm512_min_epu8(differences[2], differences[3]),
        );
        _mm512_testn_epi8_mask(least, least) != 0
    }

    /// Which of the positions from `at` on, as far as set in `mask`, match all probes.
    ///
    /// # Safety
    /// The mask must only have positions.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn candidates(&self, at: usize, mask: u64) -> u64 {
        if mask == u64::MAX {
            // SAFETY: the full mask means 64 positions, as the caller promises.
            let difference = unsafe { self.differences::<3>(at) };
            return _mm512_testn_epi8_mask(difference, difference);
        }
        // SAFETY: the mask only has positions, as the caller promises.
        unsafe { self.masked_candidates(at, mask) }
    }

    /// [`Self::candidates`] without a check for the full mask.
    ///
    /// # Safety
    /// The mask must only have positions.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) unsafe fn masked_candidates(&self, at: usize, mask: u64) -> u64 {
        // SAFETY: bytes outside the mask are not read.
        let vectors = unsafe {
            [
                _mm512_maskz_loadu_epi8(mask, self.starts[0].wrapping_add(at)),
                _mm512_maskz_loadu_epi8(mask, self.starts[1].wrapping_add(at)),
                _mm512_maskz_loadu_epi8(mask, self.starts[2].wrapping_add(at)),
            ]
        };
        let difference = self.combine(vectors);
        _mm512_mask_testn_epi8_mask(mask, difference, difference)
    }

    /// Whether the needle is at a position of the haystack.
    ///
    /// # Safety
    /// `position` must be a position, and the needle not empty.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) unsafe fn is_hit(&self, haystack: &[u8], position: usize) -> bool {
        // SAFETY: a position has as many bytes behind it as the needle.
        let has_head = unsafe { self.has_head(haystack.as_ptr().add(position)) };
        has_head
            && (self.finder.needle_len <= VECTOR || haystack[position..].starts_with(self.finder.needle()))
    }

    /// Whether the needle's first 64 bytes are at `window`.
    ///
    /// # Safety
    /// At `window` there must be as many bytes as the needle has, or 64 if that is less; the needle must not
    /// be empty.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) unsafe fn has_head(&self, window: *const u8) -> bool {
        let mask = low_bits(self.finder.needle_len.min(VECTOR));
        // SAFETY: bytes outside the mask are not read.
        let bytes = unsafe { _mm512_maskz_loadu_epi8(mask, window.cast()) };
        // SAFETY: the array has 64 bytes.
        let head = unsafe { _mm512_loadu_epi8(self.finder.head.as_ptr().cast()) };
        _mm512_mask_cmpneq_epi8_mask(mask, bytes, head) == 0
    }
}
