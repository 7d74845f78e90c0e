//! The searches of `search.rs` with AVX-512.
//!
//! Measured on Zen 5 over 64K rows of 4 to 20 bytes, of which one in a hundred has a hit: 0.30 ns a row,
//! where a search that stopped at each hit and bisected for its row took 0.69.

use std::arch::x86_64::*;

use super::columns::Text;
use super::find::Finder;
use super::find_x86::{PAIR, Probes, VECTOR, find, low_bits_up_to, spends_budget};
use super::search::{BLOCK_HITS, EACH_ROW_BLOCK, Search, contains_rows_plain};
use crate::region::prefetch_ptr;

/// Vectors in a group, and positions in a group and a block.
const VECTORS: usize = 4;
const GROUP: usize = VECTORS * VECTOR;
const BLOCK: usize = 64 * GROUP;

/// The prefetch distance in bytes: the CPU's own prefetching ends at each page, and pauses while hits are
/// compared.
const AHEAD: usize = 8 << 10;

/// Finds the hits of a block: first the groups of vectors with candidates, then their candidates are
/// compared. Hardly any branch depends on where these are.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
#[allow(clippy::cast_possible_truncation, reason = "a block has fewer positions")]
pub(super) fn search_block(search: &mut Search<'_>) {
    if search.is_linear {
        return search.linear_block();
    }
    let (finder, start) = (search.finder, search.next);
    let rest = &search.haystack[start..];
    let last = rest.len().checked_sub(finder.needle_len).expect("there is a position");
    let position_count = last + 1;
    let probes = Probes::new(rest, finder);
    let mut end = position_count.min(BLOCK);

    // A mask, not a list: a store to an address that depends on a load delays the loads behind it, and the
    // search takes twice the time.
    let mut groups = 0_u64;
    let mut at = 0;
    while at + GROUP <= end {
        // SAFETY: the four vectors hold positions.
        groups |= u64::from(unsafe { probes.any_of_four(at) }) << (at / GROUP);
        for line in 0..VECTORS {
            prefetch_ptr(rest.as_ptr().wrapping_add(at + line * VECTOR + AHEAD));
        }
        at += GROUP;
    }
    groups |= u64::from(at < end) << (at / GROUP % 64);

    let mut hit_count = 0;
    while groups != 0 {
        let group = groups.trailing_zeros() as usize * GROUP;
        if hit_count > BLOCK_HITS - GROUP {
            end = group;
            break;
        }
        groups &= groups - 1;
        let mut candidates = [0; VECTORS];
        let mut vectors = 0_u32;
        for (index, candidates) in candidates.iter_mut().enumerate() {
            let at = group + index * VECTOR;
            let mask = low_bits_up_to(position_count.saturating_sub(at));
            // SAFETY: the mask names positions.
            *candidates = unsafe { probes.masked_candidates(at, mask) };
            vectors |= u32::from(*candidates != 0) << index;
        }
        while vectors != 0 {
            let vector = vectors.trailing_zeros() as usize % VECTORS;
            let position = group + vector * VECTOR + candidates[vector].trailing_zeros() as usize;
            candidates[vector] &= candidates[vector] - 1;
            vectors ^= u32::from(candidates[vector] == 0) << vector;
            search.hits[hit_count] = position as u16;
            // SAFETY: it is a position.
            let is_hit = unsafe { probes.is_hit(rest, position) };
            hit_count += usize::from(is_hit);
            search.miss_cost += usize::from(!is_hit) * finder.compare_cost();
        }
        if spends_budget(search.miss_cost, start + group) {
            search.is_linear = true;
            end = end.min(group + GROUP);
            break;
        }
    }
    (search.hit_count, search.next) = (hit_count, start + end);
}

/// Sets the bits of those rows of `rows` that contain the needle.
///
/// Whether and where a row has the needle is unpredictable, so no branch depends on it: 128 positions of each
/// row are tested under masks, rows with a candidate go to a list, and only these are compared, nearly all
/// with success.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
#[allow(clippy::cast_possible_truncation, reason = "a bit's number")]
pub(super) fn contains_rows<T: Text>(column: T, finder: &Finder, rows: &[u32], words: &mut [u64]) {
    const UNKNOWN: u32 = u32::MAX;
    if !(1..=VECTOR).contains(&finder.needle_len) {
        return contains_rows_plain(column, finder, rows, words);
    }
    // Masked loads take twice the time of whole ones if the rows are not in a cache.
    let strings = column.as_strings();
    let bytes = strings.as_ref().map_or(&[][..], |strings| strings.bytes());
    let mut list = [(0, 0); EACH_ROW_BLOCK];
    for rows in rows.chunks(EACH_ROW_BLOCK) {
        let mut count = 0;
        for row in rows {
            let text = column.row(*row as usize);
            let positions = (text.len() + 1).saturating_sub(finder.needle_len);
            let masks = [low_bits_up_to(positions), low_bits_up_to(positions.saturating_sub(VECTOR))];
            // The row with the bytes that follow it in the column.
            let behind = bytes.get(text.as_ptr().addr().wrapping_sub(bytes.as_ptr().addr())..);
            let wide = behind.filter(|behind| behind.len() >= 3 * VECTOR);
            let probes = Probes::new(wide.unwrap_or(text), finder);
            let [low, high] = if wide.is_some() {
                // SAFETY: three vectors are there, and no probe stands further than less than a vector behind
                // its position.
                let differences = unsafe { [probes.differences::<3>(0), probes.differences::<3>(VECTOR)] };
                [
                    _mm512_mask_testn_epi8_mask(masks[0], differences[0], differences[0]),
                    _mm512_mask_testn_epi8_mask(masks[1], differences[1], differences[1]),
                ]
            } else {
                // SAFETY: the masks name positions.
                unsafe { [probes.masked_candidates(0, masks[0]), probes.masked_candidates(VECTOR, masks[1])] }
            };
            let first = if low != 0 { low.trailing_zeros() } else { VECTOR as u32 + high.trailing_zeros() };
            let has_candidate = low | high != 0;
            list[count] = (*row, if has_candidate { first } else { UNKNOWN });
            count += usize::from(has_candidate | (positions > PAIR));
        }
        for (row, first) in &list[..count] {
            let text = column.row(*row as usize);
            // SAFETY: the candidate is a position.
            let is_hit = *first != UNKNOWN
                && unsafe { Probes::new(text, finder).has_head(text.as_ptr().add(*first as usize)) };
            let is_hit = is_hit || find(text, finder).is_some();
            words[*row as usize / 64] |= u64::from(is_hit) << (row % 64);
        }
    }
}
