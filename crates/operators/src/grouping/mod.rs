//! Grouping by several threads.
//!
//! Each thread has a [`Worker`], which groups rows in a table of its own as long as that pays: while groups are few, or of
//! several rows each. Rows of which each is about a group of its own are sorted into parts by a hash of their keys and
//! kept as they are; so are the groups of a table that has become too large for the caches. At the end the threads take
//! part after part and merge its rows and groups in a small table; a thread that has many rows does so before, for
//! itself, where that takes less memory (Leis et al., "Morsel-Driven Parallelism", SIGMOD
//! 2014, section 4.4; Boncz et al., "Saving Private Hash Join", VLDB 2024, for the early switch to sorting).
//!
//! Groups of a text have its number as the place of their states: they need no table at all. Of rows whose neighbours
//! have the same key, each run is looked up once. Where it is known that no other rows have the keys of some groups, as
//! in a table that is sorted by them, these are set aside as they are: nothing is sorted or merged
//! ([`Worker::set_aside`]).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use keirin_kernels::Level;
use keirin_kernels::group_table::{PartitionedRows, partition_rows};
use keirin_kernels::hash::{Seed, hash_keys};

use crate::arguments::{Argument, NumberType, Numbers, OwnedArgument};
use crate::groups::{KeyColumn, KeyValues};
use crate::heap::{Heap, Heaps};
use crate::packed::{KeyLayout, PackedKey};
use crate::states::{StateLayout, States};
use crate::texts::{NULL_TEXT, SHARD_BITS};
use crate::wide::{TooDifferent, Unit};

mod merging;
mod runs;
mod segments;
mod table;

pub use merging::{Finished, Merge, MergeTables, Part};
use runs::Runs;
use segments::{Content, Groups, Segment};
use table::Table;

/// Rows are sorted into 2 to the power of this many parts: of ten million groups, the table of a part and its states stay
/// in the second cache, nearly.
const PART_BITS: u32 = 8;
/// Rows that are grouped at a time: their numbers and arguments stay in the second cache.
const CHUNK_ROWS: usize = 1 << 13;
/// Rows that are sorted at a time.
const SORTED_ROWS: usize = 1 << 16;
/// So many groups of a thread stay in the second cache. With more of them, each has to be of some rows, or rows are kept as
/// they are; fewer rows where groups are set aside soon, which no other thread merges.
const GROUPS_TRIED: usize = 1 << 13;
const ROWS_PER_GROUP: usize = 4;
const ROWS_PER_CLUSTERED_GROUP: usize = 2;
/// A table of so many groups is given up and begins anew.
const GROUPS_MAX: usize = 1 << 16;
/// Before that, it grows as long as new groups become rarer by this share: keys that come back at any time are worth a
/// larger table, those of a few neighbours are not.
const RARER_PERCENT: usize = 125;
/// Rows and groups of a thread that take so many bytes are merged part by part, in case groups are few after all.
const COMPACTED_BYTES: usize = 64 << 20;
/// Parts that are merged before it is judged whether that pays.
const PARTS_TRIED: usize = 8;
/// For how many rows it is taken for granted that groups are not worth making, for each that was grouped.
const PASSED_PER_TRIED: usize = 32;

/// What is grouped, and what is kept of the groups.
#[derive(Debug)]
pub struct Grouping {
    keys: KeyLayout,
    states: StateLayout,
    arguments: Vec<NumberType>,
    /// Those of arguments that are floats to be added up.
    units: Vec<Option<Unit>>,
    seed: Seed,
    /// Heaps of workers so far.
    heap_count: AtomicUsize,
}

impl Grouping {
    /// Groups by keys of this layout, with states of arguments of these types.
    #[must_use]
    pub fn new(keys: KeyLayout, states: StateLayout, arguments: Vec<NumberType>) -> Self {
        let unit = |argument| states.adds_floats(argument).then(Unit::default);
        let units = (0..arguments.len()).map(unit).collect();
        Self { keys, states, arguments, units, seed: Seed::random(), heap_count: AtomicUsize::new(0) }
    }

    /// The layout of keys.
    #[must_use]
    pub fn keys(&self) -> &KeyLayout {
        &self.keys
    }

    /// The power of two that the floats of an argument are added up as multiples of.
    #[must_use]
    pub fn unit(&self, argument: usize) -> i32 {
        self.units[argument].as_ref().map_or(0, Unit::get)
    }

    /// The arguments with their units.
    fn fitted<'a>(
        &self,
        level: Level,
        arguments: &[Argument<'a>],
    ) -> Result<Vec<Argument<'a>>, TooDifferent> {
        let units = arguments.iter().zip(&self.units);
        let fitted = units.map(|(argument, unit)| match (unit, argument.values) {
            (Some(unit), Numbers::F64(values)) => {
                Ok(Argument { unit: unit.of(level, values, argument.validity)?, ..*argument })
            }
            _ => Ok(*argument),
        });
        fitted.collect()
    }

    /// A heap for a worker, with a number of its own if texts go there.
    fn new_heap(&self) -> Heap {
        let has_texts = self.arguments.contains(&NumberType::Text);
        Heap::new(if has_texts { self.heap_count.fetch_add(1, Ordering::Relaxed) } else { 0 })
    }

    /// Whether the groups are all texts that have numbers, and nothing is kept of them.
    fn is_of_texts(&self) -> bool {
        self.keys.is_text() && self.states.stride() == 0
    }

    fn part_bits(&self) -> u32 {
        if self.keys.is_text() { SHARD_BITS } else { PART_BITS }
    }

    /// Sorts keys into parts.
    fn partition<K: PackedKey>(&self, level: Level, keys: &[K]) -> PartitionedRows {
        let mut hashes = vec![0; keys.len()];
        if self.keys.is_text() {
            let shard = |key: &K| u64::from(key.text()) << (u64::BITS - SHARD_BITS);
            hashes.iter_mut().zip(keys).for_each(|(hash, key)| *hash = shard(key));
        } else {
            hash_keys(level, &self.seed, keys, None, &mut hashes);
        }
        partition_rows(&hashes, self.part_bits())
    }
}

/// What a worker adds.
#[derive(Clone, Copy)]
enum Added<'a> {
    /// Rows with these arguments.
    Rows(&'a [Argument<'a>]),
    /// Groups with these words.
    Groups(&'a [u64]),
}

/// A thread's side of a grouping.
#[derive(Debug)]
pub struct Worker<K: PackedKey> {
    grouping: Arc<Grouping>,
    table: Table<K>,
    states: States,
    /// Rows that the groups so far are of.
    row_count: usize,
    /// How many groups a new table may have until it is judged whether they are worth making, and how many this one.
    tried_first: usize,
    tried: usize,
    /// How many rows and groups there were when that was judged last, and how many of the rows before for a new group.
    judged_rows: usize,
    judged_groups: usize,
    judged_percent: usize,
    /// Rows that are to be kept as they are.
    passing: usize,
    /// Rows that are not sorted yet.
    kept_keys: Vec<K>,
    kept: Vec<OwnedArgument>,
    /// Groups of tables that were given up, which are not sorted yet.
    given_up: Groups<K>,
    segments: Vec<Segment<K>>,
    segment_bytes: usize,
    /// Groups to which no rows are added any more.
    whole: Vec<Groups<K>>,
    whole_bytes: usize,
    /// Whether most groups are set aside before they are many.
    is_clustered: bool,
    /// Whether rows may be elsewhere that are of groups of the table: since groups were set aside, the table was given up,
    /// or rows were kept as they are.
    is_split: bool,
    /// At how many bytes segments are merged.
    compacted_at: usize,
    numbers: Vec<u32>,
    runs: Runs<K>,
}

impl<K: PackedKey> Worker<K> {
    /// No groups.
    #[must_use]
    pub fn new(grouping: &Arc<Grouping>) -> Self {
        Self {
            table: Table::new(grouping),
            states: States::new(&grouping.states, grouping.new_heap()),
            row_count: 0,
            tried_first: GROUPS_TRIED,
            tried: GROUPS_TRIED,
            judged_rows: 0,
            judged_groups: 0,
            judged_percent: 0,
            passing: 0,
            kept_keys: Vec::new(),
            kept: grouping.arguments.iter().map(|number_type| OwnedArgument::new(*number_type)).collect(),
            given_up: Groups { keys: Vec::new(), words: Vec::new() },
            segments: Vec::new(),
            segment_bytes: 0,
            whole: Vec::new(),
            whole_bytes: 0,
            is_clustered: false,
            is_split: false,
            compacted_at: COMPACTED_BYTES,
            numbers: Vec::new(),
            runs: Runs::default(),
            grouping: grouping.clone(),
        }
    }

    /// Rows come in such an order that most groups will be [set aside](Self::set_aside) soon after their first row.
    /// Nothing changes where that cannot be.
    #[must_use]
    pub fn clustered(self) -> Self {
        // Words of texts are addresses in a heap, which has one owner at a time.
        let is_clustered = !self.grouping.arguments.contains(&NumberType::Text);
        Self { is_clustered, ..self }
    }

    /// Sets groups aside to which no rows will be added any more, here or by another thread, if the worker is
    /// [clustered](Self::clustered) and there are enough groups to be worth it: those for whose value of a key column,
    /// as [`KeyLayout::value`] has it, `is_whole` says so.
    pub fn set_aside(&mut self, level: Level, column: usize, mut is_whole: impl FnMut(u64) -> bool) {
        if !self.is_clustered {
            return;
        }
        if self.is_split {
            self.give_up(level);
            self.is_split = false;
        }
        if matches!(self.table, Table::Small(..)) || self.table.len() < GROUPS_TRIED {
            return;
        }
        let Groups { keys, words } = self.take_groups();
        let stride = self.grouping.states.stride();
        let layout = &self.grouping.keys;
        let of = |key: &K| layout.value(*key, column);
        let mut whole = Groups { keys: Vec::with_capacity(keys.len()), words: Vec::new() };
        let mut others = Groups { keys: Vec::new(), words: Vec::new() };
        let mut start = 0;
        while start < keys.len() {
            // Groups of one kind lie side by side.
            let is_one = of(&keys[start]).is_some_and(&mut is_whole);
            let is_same = |key: &&K| of(key).is_some_and(&mut is_whole) == is_one;
            let end = start + 1 + keys[start + 1..].iter().take_while(is_same).count();
            let groups = if is_one { &mut whole } else { &mut others };
            groups.keys.extend_from_slice(&keys[start..end]);
            groups.words.extend_from_slice(&words[start * stride..end * stride]);
            start = end;
        }
        self.keep_groups(level, &others.keys, &others.words);
        self.judge_anew();
        if !whole.keys.is_empty() {
            self.whole_bytes += whole.bytes();
            self.whole.push(whole);
        }
    }

    /// Adds rows; the columns of texts have their numbers.
    ///
    /// # Errors
    /// When floats are of too different sizes for their sums; no row was added then.
    ///
    /// # Panics
    /// When columns are not of the types of the grouping, or do not have so many rows.
    pub fn add(
        &mut self,
        level: Level,
        keys: &[KeyColumn<'_>],
        arguments: &[Argument<'_>],
        row_count: usize,
    ) -> Result<(), TooDifferent> {
        let arguments = self.grouping.fitted(level, arguments)?;
        self.add_packed(level, keys, Added::Rows(&arguments), row_count);
        Ok(())
    }

    /// Adds groups that others made, with the words of their states row by row; the columns of texts have their numbers.
    ///
    /// # Panics
    /// As [`add`](Self::add).
    pub fn add_groups(&mut self, level: Level, keys: &[KeyColumn<'_>], words: &[u64], group_count: usize) {
        self.add_packed(level, keys, Added::Groups(words), group_count);
    }

    fn add_packed(&mut self, level: Level, keys: &[KeyColumn<'_>], added: Added<'_>, row_count: usize) {
        if self.grouping.is_of_texts() {
            let KeyValues::Bytes4(texts) = keys[0].values else { panic!("texts have numbers") };
            if texts.contains(&NULL_TEXT) {
                self.table.number(level, &[K::of_word(NULL_TEXT.into())], &mut self.numbers);
            }
            return;
        }
        let mut packed = Vec::with_capacity(row_count);
        K::pack(&self.grouping.keys, level, keys, row_count, &mut packed);
        let mut start = 0;
        while start < row_count {
            let is_passing = self.passing > 0;
            let most = if is_passing { self.passing } else { CHUNK_ROWS };
            let rows = start..row_count.min(start + most);
            let keys = &packed[rows.clone()];
            match added {
                Added::Rows(arguments) if is_passing => self.keep(level, keys, arguments, rows.clone()),
                Added::Groups(words) if is_passing => {
                    let stride = self.grouping.states.stride();
                    self.keep_groups(level, keys, &words[rows.start * stride..rows.end * stride]);
                }
                _ => self.group(level, keys, added, rows.clone()),
            }
            if is_passing {
                // Keeping rows may have found that groups are few.
                self.passing = self.passing.saturating_sub(rows.len());
            }
            start = rows.end;
        }
    }

    fn group(&mut self, level: Level, keys: &[K], added: Added<'_>, rows: Range<usize>) {
        self.runs.number(level, &mut self.table, keys, &mut self.numbers);
        self.states.grow(&self.grouping.states, self.table.len());
        match added {
            Added::Rows(arguments) => {
                let arguments: Vec<Argument<'_>> =
                    arguments.iter().map(|argument| argument.slice(rows.clone())).collect();
                self.states.add(level, &self.grouping.states, &self.numbers, &arguments);
            }
            Added::Groups(words) => {
                let stride = self.grouping.states.stride();
                let words = &words[rows.start * stride..rows.end * stride];
                self.states.merge(&self.grouping.states, &self.numbers, words);
            }
        }
        self.row_count += rows.len();
        if self.table.len() < self.tried || matches!(self.table, Table::Small(..)) {
            return;
        }
        let new_groups = self.table.len() - self.judged_groups;
        let percent = 100 * (self.row_count - self.judged_rows) / new_groups;
        let rows_per_group = if self.is_clustered { ROWS_PER_CLUSTERED_GROUP } else { ROWS_PER_GROUP };
        if self.row_count < rows_per_group * self.table.len() {
            self.passing = PASSED_PER_TRIED * self.row_count;
            self.give_up(level);
        } else if self.table.len() >= GROUPS_MAX
            || !self.is_clustered && 100 * percent < RARER_PERCENT * self.judged_percent
        {
            self.give_up(level);
        } else {
            (self.judged_rows, self.judged_groups) = (self.row_count, self.table.len());
            self.judged_percent = percent;
            self.tried = 2 * self.table.len();
        }
    }

    /// Keeps rows as they are.
    fn keep(&mut self, level: Level, keys: &[K], arguments: &[Argument<'_>], rows: Range<usize>) {
        self.is_split = true;
        self.kept_keys.extend_from_slice(keys);
        for (kept, argument) in self.kept.iter_mut().zip(arguments) {
            kept.append(argument.slice(rows.clone()), &mut self.states.heap);
        }
        if self.kept_keys.len() >= SORTED_ROWS {
            self.sort_rows(level);
        }
    }

    /// Sorts the rows that are kept.
    fn sort_rows(&mut self, level: Level) {
        if self.kept_keys.is_empty() {
            return;
        }
        let PartitionedRows { rows, starts } = self.grouping.partition(level, &self.kept_keys);
        let keys = rows.iter().map(|row| self.kept_keys[*row as usize]).collect();
        let arguments = self.kept.iter().map(|kept| kept.gather(level, &rows)).collect();
        self.kept_keys.clear();
        self.kept.iter_mut().for_each(OwnedArgument::clear);
        self.push(level, Segment { keys, starts, content: Content::Rows(arguments) });
    }

    /// Gives up the groups of the table, which is empty then.
    fn give_up(&mut self, level: Level) {
        let Groups { keys, words } = self.take_groups();
        self.keep_groups(level, &keys, &words);
        self.judge_anew();
        self.is_split = true;
    }

    /// The table is empty.
    fn judge_anew(&mut self) {
        (self.row_count, self.tried) = (0, self.tried_first);
        (self.judged_rows, self.judged_groups, self.judged_percent) = (0, 0, 0);
    }

    fn keep_groups(&mut self, level: Level, keys: &[K], words: &[u64]) {
        self.given_up.keys.extend_from_slice(keys);
        self.given_up.words.extend_from_slice(words);
        if self.given_up.keys.len() >= SORTED_ROWS {
            self.sort_given_up(level);
        }
    }

    fn sort_given_up(&mut self, level: Level) {
        let groups = std::mem::replace(&mut self.given_up, Groups { keys: Vec::new(), words: Vec::new() });
        if !groups.keys.is_empty() {
            self.push(level, groups.sorted(level, &self.grouping));
        }
    }

    fn push(&mut self, level: Level, segment: Segment<K>) {
        self.segment_bytes += segment.bytes();
        self.segments.push(segment);
        if self.segment_bytes + self.states.heap.bytes() >= self.compacted_at {
            self.compact(level);
        }
    }

    /// Merges all segments into one of groups if that takes half the memory. So memory is in proportion to the groups,
    /// not the rows, also of keys that come back, but not soon.
    fn compact(&mut self, level: Level) {
        let heap_number = self.states.heap.number();
        let heap = std::mem::replace(&mut self.states.heap, Heap::new(heap_number));
        let merge = Merge {
            grouping: self.grouping.clone(),
            part_bits: Some(self.grouping.part_bits()),
            segments: std::mem::take(&mut self.segments),
            whole: Vec::new(),
            text_counts: Vec::new(),
            heaps: Heaps::new([heap]),
        };
        let mut tables = MergeTables::new(&merge);
        let mut groups = Groups { keys: Vec::new(), words: Vec::new() };
        let mut starts = vec![0];
        for part in 0..merge.part_count() {
            let Part { keys, states } = merge.part(level, part, &mut tables);
            groups.keys.extend(keys);
            groups.words.extend_from_slice(states.words());
            starts.push(u32::try_from(groups.keys.len()).expect("groups have 32 bits"));
            if part >= PARTS_TRIED
                && groups.bytes() / (part + 1) > self.segment_bytes / merge.part_count() / 2
            {
                drop(tables);
                self.segments = merge.segments;
                let heaps = Arc::into_inner(merge.heaps).expect("nobody else has them");
                self.states.heap = heaps.into_heap(heap_number);
                self.compacted_at = 2 * (self.segment_bytes + self.states.heap.bytes());
                return;
            }
        }
        if groups.keys.len() <= GROUPS_MAX {
            // All have room in a table that stays in the caches.
            self.passing = 0;
            self.tried_first = GROUPS_MAX;
            self.tried = self.tried.max(GROUPS_MAX);
        }
        self.keep_texts(&mut groups.words, &merge.heaps);
        let segment = Segment { keys: groups.keys, starts, content: Content::Groups(groups.words) };
        self.segment_bytes = segment.bytes();
        self.compacted_at = COMPACTED_BYTES.max(4 * (self.segment_bytes + self.states.heap.bytes()));
        self.segments = vec![segment];
    }

    /// Takes over the texts of merged groups, and of all that is not in a segment.
    fn keep_texts(&mut self, merged: &mut [u64], heaps: &Heaps) {
        let (states, stride) = (&mut self.states, self.grouping.states.stride());
        for word in self.grouping.states.texts() {
            let mut heap = std::mem::take(&mut states.heap);
            for words in [&mut *merged, &mut self.given_up.words, states.words_mut()] {
                words.chunks_exact_mut(stride).for_each(|words| heap.adopt(&mut words[word + 1], heaps));
            }
            states.heap = heap;
        }
        for kept in &mut self.kept {
            kept.texts_mut().iter_mut().for_each(|[_, address]| states.heap.adopt(address, heaps));
        }
    }

    /// Takes the groups of the table as one part.
    fn take_groups(&mut self) -> Groups<K> {
        Groups { keys: self.table.take_keys(), words: self.states.take() }
    }

    /// Memory in use, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let kept = self.kept_keys.capacity() * size_of::<K>();
        let kept = kept + self.kept.iter().map(OwnedArgument::bytes).sum::<usize>();
        let kept = kept + self.given_up.bytes();
        let groups = self.segment_bytes + self.whole_bytes;
        self.table.bytes() + self.states.bytes() + self.states.heap.bytes() + groups + kept
    }

    /// All rows were added.
    #[must_use]
    pub fn finish(mut self, level: Level) -> Finished<K> {
        self.sort_rows(level);
        self.sort_given_up(level);
        let groups = self.take_groups();
        Finished { segments: self.segments, groups, whole: self.whole, heap: self.states.heap }
    }
}

#[cfg(test)]
mod tests;
