//! Searches all rows of a column: their buffer in blocks, or row by row in blocks of rows.
//!
//! Which positions are hits is unpredictable, so branches on that cost more than the search. A block is
//! searched without them, and the hits of a block are then processed together.

use super::columns::{Offset, Strings, Text};
use super::find::Finder;
#[cfg(target_arch = "x86_64")]
use super::search_x86 as x86;
use crate::bits::WORD_BITS;
use crate::region::prefetch;
use crate::{BitBuffer, Level};

/// The most hits of a block.
pub(super) const BLOCK_HITS: usize = 1 << 10;

/// A search for all positions of a needle, which must not be empty, a block at a time.
pub(super) struct Search<'a> {
    pub(super) haystack: &'a [u8],
    pub(super) finder: &'a Finder,
    /// The end of the previous block.
    pub(super) next: usize,
    /// The cost of false candidates so far, in vectors compared.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(dead_code, reason = "only the search by vectors has any")
    )]
    pub(super) miss_cost: usize,
    /// Whether that cost was too high, so that the search continues by the linear algorithm.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only the search by vectors asks"))]
    pub(super) is_linear: bool,
    /// The position relative to which `hits` are counted.
    pub(super) base: usize,
    pub(super) hits: [u16; BLOCK_HITS],
    pub(super) hit_count: usize,
}

impl<'a> Search<'a> {
    pub(super) fn new(haystack: &'a [u8], finder: &'a Finder) -> Self {
        assert!(finder.needle_len > 0, "an empty needle is everywhere");
        let hits = [0; BLOCK_HITS];
        Self { haystack, finder, next: 0, miss_cost: 0, is_linear: false, base: 0, hits, hit_count: 0 }
    }

    /// The positions of the needle in the next block, ascending: the base from which they are counted, and
    /// the positions. `None` when all was searched.
    #[inline(always)]
    pub(super) fn next_block(&mut self, level: Level) -> Option<(usize, &[u16])> {
        if self.next + self.finder.needle_len > self.haystack.len() {
            return None;
        }
        (self.base, self.hit_count) = (self.next, 0);
        search_block(level, self);
        Some((self.base, &self.hits[..self.hit_count]))
    }

    /// Finds a block of hits by the linear search, which needs no budget. The block begins at the next hit.
    pub(super) fn linear_block(&mut self) {
        let find = |at: usize| Some(at + self.finder.linear.find(self.haystack.get(at..)?)?);
        let mut found = find(self.next);
        self.base = found.unwrap_or_default();
        while let Some(hit) = found {
            let Ok(offset) = u16::try_from(hit - self.base) else { break };
            let Some(place) = self.hits.get_mut(self.hit_count) else { break };
            *place = offset;
            self.hit_count += 1;
            found = find(hit + 1);
        }
        self.next = found.unwrap_or(self.haystack.len());
    }
}

kernel! {
    /// Searches the next block.
    fn search_block(search: &mut Search<'_>) = search_block_plain, avx512 = x86::search_block;
}

#[inline(always)]
fn search_block_plain(search: &mut Search<'_>) {
    search.linear_block();
}

/// Rows that a search row by row processes together.
pub(super) const EACH_ROW_BLOCK: usize = 256;

kernel! {
    /// Sets the bits of those rows of `rows` that contain the needle.
    pub(super) fn contains_rows[T: Text][T](column: T, finder: &Finder, rows: &[u32], words: &mut [u64]) =
        contains_rows_plain, avx512 = x86::contains_rows;
}

#[inline(always)]
pub(super) fn contains_rows_plain<T: Text>(column: T, finder: &Finder, rows: &[u32], words: &mut [u64]) {
    for row in rows {
        let is_hit = finder.linear.find(column.row(*row as usize)).is_some();
        words[*row as usize / WORD_BITS] |= u64::from(is_hit) << (*row as usize % WORD_BITS);
    }
}

/// With more hits a row than this, a search row by row, which stops at the first hit of a row, is faster.
const ROW_HITS: usize = 2;

/// Selects the rows that contain the needle.
pub(super) fn contains<O: Offset>(level: Level, column: Strings<'_, O>, finder: &Finder) -> BitBuffer {
    let (base, bytes) = column.filled();
    let mut words = vec![0; column.row_count().div_ceil(WORD_BITS)];
    let mut search = Search::new(bytes, finder);
    let (mut word, mut hit_cost) = (0, 0);
    while let Some((block, hits)) = search.next_block(level) {
        word = mark_rows(level, column, finder.needle_len, base + block, hits, word, &mut words);
        hit_cost += hits.len() * finder.compare_cost();
        if hit_cost > BLOCK_HITS + ROW_HITS * WORD_BITS * word {
            let rows = word * WORD_BITS..column.row_count();
            let rows: Vec<u32> =
                rows.map(|row| u32::try_from(row).expect("a batch has fewer rows")).collect();
            contains_rows(level, column, finder, &rows, &mut words);
            break;
        }
    }
    BitBuffer::from_words(words, column.row_count())
}

kernel! {
    /// Sets the bits of rows that contain the needle at `base` plus a hit. `word` must not be beyond the word
    /// of the first such row; the result is the word of the last.
    fn mark_rows[O: Offset][O](
        column: Strings<'_, O>,
        needle_len: usize,
        base: usize,
        hits: &[u16],
        word: usize,
        words: &mut [u64]
    ) -> usize = mark_rows_plain;
}

/// Compares the hit with the last row end of 64 until that is behind the hit, then with all 64 ends: no load
/// waits for another, where a bisection waits for main memory at every step. Later ends are prefetched: hits
/// are too far apart for the CPU to detect a sequence.
#[inline(always)]
fn mark_rows_plain<O: Offset>(
    column: Strings<'_, O>,
    needle_len: usize,
    base: usize,
    hits: &[u16],
    mut word: usize,
    words: &mut [u64],
) -> usize {
    const AHEAD_WORDS: usize = 16;
    const LINE: usize = 64;
    let ends = &column.offsets()[1..];
    let (whole, rest) = ends.as_chunks::<WORD_BITS>();
    for hit in hits {
        let hit = base + usize::from(*hit);
        let at = O::from_index(hit).expect("below an offset");
        while whole.get(word).is_some_and(|ends| ends[WORD_BITS - 1] <= at) {
            word += 1;
            if let Some(ends) = whole.get(word + AHEAD_WORDS) {
                ends.iter().step_by(LINE / size_of::<O>()).for_each(prefetch);
            }
        }
        let (ends, passed) = match whole.get(word) {
            Some(ends) => (ends.as_slice(), count_up_to(ends, at)),
            None => (rest, count_up_to(rest, at)),
        };
        let is_inside = hit + needle_len <= ends[passed].index();
        words[word] |= u64::from(is_inside) << passed;
    }
    word
}

/// How many of the row ends are at most `at`.
#[inline(always)]
fn count_up_to<O: Offset>(ends: &[O], at: O) -> usize {
    ends.iter().map(|end| u32::from(*end <= at)).sum::<u32>() as usize
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// Whether a search of `copies` copies of a text ends as a linear one.
    fn ends_linear(text: &str, copies: usize, needle: &str) -> bool {
        let (haystack, finder) = (text.repeat(copies), Finder::new(needle.as_bytes()));
        let mut search = Search::new(haystack.as_bytes(), &finder);
        while search.next_block(Level::best()).is_some() {}
        search.is_linear
    }

    #[test]
    fn a_search_turns_linear_where_most_candidates_are_no_hits() {
        if Level::best().name() == "portable" || Level::best().name() == "avx2" {
            return;
        }
        let needle = ["a".repeat(10), "a".repeat(10)].join("b");
        assert!(ends_linear("aab", 10_000, &needle));
        assert!(!ends_linear("a way from here to there ", 1000, "needle"));
        assert!(!ends_linear("needle", 10_000, "needle"));
    }
}
