//! What all threads have, merged part by part.

use std::ops::Range;
use std::sync::Arc;

use keirin_kernels::Level;
use keirin_kernels::group_table::GroupTable;

use super::segments::{Content, Groups, Segment};
use super::{CHUNK_ROWS, GROUPS_MAX, Grouping};
use crate::arguments::Argument;
use crate::heap::{Heap, Heaps};
use crate::packed::PackedKey;
use crate::states::States;
use crate::texts::{NULL_TEXT, SHARD_BITS, SHARDS, shard_number};

/// What a thread has of a grouping when it has added all of its rows.
#[derive(Debug)]
pub struct Finished<K> {
    pub(super) segments: Vec<Segment<K>>,
    /// The groups of its table.
    pub(super) groups: Groups<K>,
    /// Groups that nobody else has.
    pub(super) whole: Vec<Groups<K>>,
    pub(super) heap: Heap,
}

/// The groups of all threads, to be merged part by part.
#[derive(Debug)]
pub struct Merge<K: PackedKey> {
    pub(super) grouping: Arc<Grouping>,
    /// None if the groups are few, which are one part then.
    pub(super) part_bits: Option<u32>,
    pub(super) segments: Vec<Segment<K>>,
    /// Each is a part behind the others.
    pub(super) whole: Vec<Groups<K>>,
    /// How many texts each shard has, if these are the groups.
    pub(super) text_counts: Vec<usize>,
    /// The texts of states.
    pub(super) heaps: Arc<Heaps>,
}

/// The key that a text of a shard is.
fn key_of_text<K: PackedKey>(shard: usize, text: usize) -> K {
    K::of_word((shard_number(text) << SHARD_BITS | shard_number(shard)).into())
}

/// The tables for merging, which are used again for the next part.
#[derive(Debug)]
pub struct MergeTables<K: PackedKey> {
    table: Option<GroupTable<K>>,
    states: States,
    numbers: Vec<u32>,
}

impl<K: PackedKey> MergeTables<K> {
    /// Tables without memory.
    #[must_use]
    pub fn new(merge: &Merge<K>) -> Self {
        let states = States::merged(&merge.grouping.states, merge.heaps.clone());
        Self { table: None, states, numbers: Vec::new() }
    }
}

/// The groups of a part.
#[derive(Debug)]
pub struct Part<'a, K> {
    /// The key of each group.
    pub keys: Vec<K>,
    /// The states of each group.
    pub states: &'a States,
}

impl<K: PackedKey> Merge<K> {
    /// What all threads have; `text_count` says how many texts a shard has if the keys are texts.
    #[must_use]
    pub fn new(
        level: Level,
        grouping: &Arc<Grouping>,
        finished: Vec<Finished<K>>,
        text_count: impl Fn(usize) -> usize,
    ) -> Self {
        let group_count: usize = finished.iter().map(|finished| finished.groups.keys.len()).sum();
        let is_of_texts = grouping.is_of_texts();
        let text_count_of_all = if is_of_texts { (0..SHARDS).map(&text_count).sum() } else { 0 };
        let is_one = finished.iter().all(|finished| finished.segments.is_empty())
            && group_count + text_count_of_all <= GROUPS_MAX;
        let (mut segments, mut all_whole, mut heaps) = (Vec::new(), Vec::new(), Vec::new());
        for Finished { segments: sorted, groups, whole, heap } in finished {
            heaps.push(heap);
            all_whole.extend(whole);
            segments.extend(sorted);
            segments.push(if is_one { groups.whole() } else { groups.sorted(level, grouping) });
        }
        if is_of_texts && is_one {
            let texts = (0..SHARDS).flat_map(|shard| (0..text_count(shard)).map(move |text| (shard, text)));
            let keys = texts.map(|(shard, text)| key_of_text(shard, text)).collect();
            segments.push(Groups { keys, words: Vec::new() }.whole());
        }
        let part_bits = (!is_one).then(|| grouping.part_bits());
        let is_text = grouping.keys.is_text() && !is_one;
        let text_counts = if is_text { (0..SHARDS).map(text_count).collect() } else { Vec::new() };
        let (grouping, heaps) = (grouping.clone(), Heaps::new(heaps));
        Self { grouping, part_bits, segments, whole: all_whole, text_counts, heaps }
    }

    /// Count of parts.
    #[must_use]
    pub fn part_count(&self) -> usize {
        self.merged_parts() + self.whole.len()
    }

    fn merged_parts(&self) -> usize {
        self.part_bits.map_or(1, |bits| 1 << bits)
    }

    /// Memory in use, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let whole = self.whole.iter().map(Groups::bytes).sum::<usize>();
        self.segments.iter().map(Segment::bytes).sum::<usize>() + whole + self.heaps.bytes()
    }

    /// The groups of a part.
    ///
    /// # Panics
    /// When there is no such part.
    pub fn part<'a>(&self, level: Level, part: usize, tables: &'a mut MergeTables<K>) -> Part<'a, K> {
        let whole = part.checked_sub(self.merged_parts()).map(|whole| &self.whole[whole]);
        let keys = if let Some(Groups { keys, words }) = whole {
            tables.states.set(keys.len(), words);
            keys.clone()
        } else if self.text_counts.is_empty() {
            self.merged(level, part, tables)
        } else {
            self.merged_texts(level, part, tables)
        };
        Part { keys, states: &tables.states }
    }

    fn merged(&self, level: Level, part: usize, tables: &mut MergeTables<K>) -> Vec<K> {
        let MergeTables { table, states, numbers } = tables;
        let table = table.get_or_insert_with(|| match self.part_bits {
            None => GroupTable::new(self.grouping.seed),
            Some(bits) => GroupTable::for_partition(self.grouping.seed, bits),
        });
        states.clear();
        for segment in &self.segments {
            let all = segment.part(part);
            for start in all.clone().step_by(CHUNK_ROWS) {
                let rows = start..all.end.min(start + CHUNK_ROWS);
                numbers.resize(rows.len(), 0);
                table.find_or_insert(level, &segment.keys[rows.clone()], None, numbers);
                states.grow(&self.grouping.states, table.len());
                self.add(level, segment, rows, numbers, states);
            }
        }
        table.take_keys()
    }

    /// Texts of a shard: the group of each is its number there.
    fn merged_texts(&self, level: Level, part: usize, tables: &mut MergeTables<K>) -> Vec<K> {
        let MergeTables { states, numbers, .. } = tables;
        let null = self.text_counts[part];
        let mut has_null = false;
        states.clear();
        states.grow(&self.grouping.states, null + 1);
        for segment in &self.segments {
            let all = segment.part(part);
            for start in all.clone().step_by(CHUNK_ROWS) {
                let rows = start..all.end.min(start + CHUNK_ROWS);
                numbers.clear();
                let keys = &segment.keys[rows.clone()];
                // The number behind the last of the shard is that of no text.
                let last = shard_number(null);
                numbers.extend(keys.iter().map(|key| (key.text() >> SHARD_BITS).min(last)));
                has_null |= keys.iter().fold(false, |has_null, key| has_null | (key.text() == NULL_TEXT));
                self.add(level, segment, rows, numbers, states);
            }
        }
        let keys = (0..null).map(|text| key_of_text(part, text));
        let null = has_null.then(|| K::of_word(NULL_TEXT.into()));
        let keys: Vec<K> = keys.chain(null).collect();
        states.truncate(keys.len());
        keys
    }

    fn add(
        &self,
        level: Level,
        segment: &Segment<K>,
        rows: Range<usize>,
        numbers: &[u32],
        states: &mut States,
    ) {
        match &segment.content {
            Content::Rows(arguments) => {
                let arguments: Vec<Argument<'_>> =
                    arguments.iter().map(|argument| argument.rows(rows.clone())).collect();
                states.add(level, &self.grouping.states, numbers, &arguments);
            }
            Content::Groups(words) => {
                let stride = self.grouping.states.stride();
                let words = &words[rows.start * stride..rows.end * stride];
                states.merge(&self.grouping.states, numbers, words);
            }
        }
    }
}
