//! Grouping by several threads.
//!
//! Each thread has a [`Worker`], which groups rows in a table of its own as long as that pays: while groups are few, or of
//! several rows each. Rows of which each is about a group of its own are sorted into parts by a hash of their keys and
//! kept as they are; so are the groups of a table that has become too large for the caches. At the end the threads take
//! part after part and merge its rows and groups in a small table; a thread that has many rows does so before, for
//! itself, where that takes less memory (Leis et al., "Morsel-Driven Parallelism", SIGMOD
//! 2014, section 4.4; Boncz et al., "Saving Private Hash Join", VLDB 2024, for the early switch to sorting).
//!
//! Groups of a text have its number as the place of their states: they need no table at all.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use keirin_kernels::Level;
use keirin_kernels::group_table::{DenseTable, GroupTable, PartitionedRows, partition_rows};
use keirin_kernels::hash::{Seed, hash_keys};

use crate::arguments::{Argument, NumberType, Numbers, OwnedArgument};
use crate::groups::{KeyColumn, KeyValues};
use crate::heap::{Heap, Heaps};
use crate::packed::{KeyLayout, PackedKey};
use crate::states::{StateLayout, States};
use crate::texts::{NULL_TEXT, SHARD_BITS, SHARDS, shard_number};
use crate::wide::{TooDifferent, Unit};

/// Rows are sorted into 2 to the power of this many parts: of ten million groups, the table of a part and its states stay
/// in the second cache, nearly.
const PART_BITS: u32 = 8;
/// Rows that are grouped at a time: their numbers and arguments stay in the second cache.
const CHUNK_ROWS: usize = 1 << 13;
/// Rows that are sorted at a time.
const SORTED_ROWS: usize = 1 << 16;
/// So many groups of a thread stay in the second cache. With more of them, each has to be of some rows.
const GROUPS_TRIED: usize = 1 << 13;
const ROWS_PER_GROUP: usize = 2;
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

/// Numbers keys.
#[derive(Debug)]
enum Table<K: PackedKey> {
    Hash(GroupTable<K>),
    /// Of one or two bytes, or of four as long as they are such numbers; the seed is for when they are not.
    Small(DenseTable, Seed),
}

impl<K: PackedKey> Table<K> {
    fn new(grouping: &Grouping) -> Self {
        let bytes = grouping.keys.bytes();
        // The type of keys of one and two bytes is `u64`.
        if bytes > 2 && size_of::<K>() > size_of::<u32>() {
            return Self::Hash(GroupTable::new(grouping.seed));
        }
        let last = (1 << (8 * bytes.min(2))) - 1;
        let table = DenseTable::new(0, last, usize::MAX).expect("few keys fit into an array");
        Self::Small(table, grouping.seed)
    }

    fn len(&self) -> usize {
        match self {
            Self::Hash(table) => table.len(),
            Self::Small(table, _) => table.keys().len(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Hash(table) => table.bytes(),
            Self::Small(table, _) => table.bytes(),
        }
    }

    fn number(&mut self, level: Level, keys: &[K], groups: &mut Vec<u32>) {
        groups.resize(keys.len(), 0);
        match self {
            Self::Hash(table) => table.find_or_insert(level, keys, None, groups),
            Self::Small(table, seed) => {
                if K::number_small(level, table, keys, groups) {
                    return;
                }
                // In the same order, groups have the same numbers.
                let small: Vec<K> = table.take_keys().into_iter().map(K::of_word).collect();
                let mut table = GroupTable::new(*seed);
                table.find_or_insert(level, &small, None, &mut vec![0; small.len()]);
                table.find_or_insert(level, keys, None, groups);
                *self = Self::Hash(table);
            }
        }
    }
}

/// Rows or groups in parts.
#[derive(Debug)]
struct Segment<K> {
    keys: Vec<K>,
    /// Where each part begins, and the last ends.
    starts: Vec<u32>,
    content: Content,
}

#[derive(Debug)]
enum Content {
    /// The arguments of rows.
    Rows(Vec<OwnedArgument>),
    /// The words of groups.
    Groups(Vec<u64>),
}

/// Groups that are not sorted.
#[derive(Debug)]
struct Groups<K> {
    keys: Vec<K>,
    words: Vec<u64>,
}

impl<K: PackedKey> Groups<K> {
    /// The groups sorted into parts.
    fn sorted(self, level: Level, grouping: &Grouping) -> Segment<K> {
        let PartitionedRows { rows, starts } = grouping.partition(level, &self.keys);
        let keys = rows.iter().map(|row| self.keys[*row as usize]).collect();
        let stride = grouping.states.stride();
        let mut words = Vec::with_capacity(self.words.len());
        for row in &rows {
            let at = *row as usize * stride;
            words.extend_from_slice(&self.words[at..at + stride]);
        }
        Segment { keys, starts, content: Content::Groups(words) }
    }

    fn bytes(&self) -> usize {
        self.keys.capacity() * size_of::<K>() + self.words.capacity() * size_of::<u64>()
    }

    /// The groups as one part.
    fn whole(self) -> Segment<K> {
        let starts = vec![0, u32::try_from(self.keys.len()).expect("groups have 32 bits")];
        Segment { keys: self.keys, starts, content: Content::Groups(self.words) }
    }
}

impl<K> Segment<K> {
    fn bytes(&self) -> usize {
        let content = match &self.content {
            Content::Rows(arguments) => arguments.iter().map(OwnedArgument::bytes).sum(),
            Content::Groups(words) => words.capacity() * size_of::<u64>(),
        };
        self.keys.capacity() * size_of::<K>() + content
    }

    fn part(&self, part: usize) -> Range<usize> {
        self.starts[part] as usize..self.starts[part + 1] as usize
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
    /// At how many bytes segments are merged.
    compacted_at: usize,
    numbers: Vec<u32>,
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
            compacted_at: COMPACTED_BYTES,
            numbers: Vec::new(),
            grouping: grouping.clone(),
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
                self.passing -= rows.len();
            }
            start = rows.end;
        }
    }

    fn group(&mut self, level: Level, keys: &[K], added: Added<'_>, rows: Range<usize>) {
        self.table.number(level, keys, &mut self.numbers);
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
        if self.row_count < ROWS_PER_GROUP * self.table.len() {
            self.passing = PASSED_PER_TRIED * self.row_count;
            self.give_up(level);
        } else if self.table.len() >= GROUPS_MAX || 100 * percent < RARER_PERCENT * self.judged_percent {
            self.give_up(level);
        } else {
            (self.judged_rows, self.judged_groups) = (self.row_count, self.table.len());
            self.judged_percent = percent;
            self.tried = 2 * self.table.len();
        }
    }

    /// Keeps rows as they are.
    fn keep(&mut self, level: Level, keys: &[K], arguments: &[Argument<'_>], rows: Range<usize>) {
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
        let keys = match &mut self.table {
            Table::Hash(table) => table.take_keys(),
            Table::Small(table, _) => table.take_keys().into_iter().map(K::of_word).collect(),
        };
        Groups { keys, words: self.states.take() }
    }

    /// Memory in use, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let kept = self.kept_keys.capacity() * size_of::<K>();
        let kept = kept + self.kept.iter().map(OwnedArgument::bytes).sum::<usize>();
        let kept = kept + self.given_up.bytes();
        self.table.bytes() + self.states.bytes() + self.states.heap.bytes() + self.segment_bytes + kept
    }

    /// All rows were added.
    #[must_use]
    pub fn finish(mut self, level: Level) -> Finished<K> {
        self.sort_rows(level);
        self.sort_given_up(level);
        let groups = self.take_groups();
        Finished { segments: self.segments, groups, heap: self.states.heap }
    }
}

/// What a thread has of a grouping when it has added all of its rows.
#[derive(Debug)]
pub struct Finished<K> {
    segments: Vec<Segment<K>>,
    /// The groups of its table.
    groups: Groups<K>,
    heap: Heap,
}

/// The groups of all threads, to be merged part by part.
#[derive(Debug)]
pub struct Merge<K: PackedKey> {
    grouping: Arc<Grouping>,
    /// None if the groups are few, which are one part then.
    part_bits: Option<u32>,
    segments: Vec<Segment<K>>,
    /// How many texts each shard has, if these are the groups.
    text_counts: Vec<usize>,
    /// The texts of states.
    heaps: Arc<Heaps>,
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
        let (mut segments, mut heaps) = (Vec::new(), Vec::new());
        for Finished { segments: sorted, groups, heap } in finished {
            heaps.push(heap);
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
        Self { grouping: grouping.clone(), part_bits, segments, text_counts, heaps: Heaps::new(heaps) }
    }

    /// Count of parts.
    #[must_use]
    pub fn part_count(&self) -> usize {
        self.part_bits.map_or(1, |bits| 1 << bits)
    }

    /// Memory in use, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.segments.iter().map(Segment::bytes).sum::<usize>() + self.heaps.bytes()
    }

    /// The groups of a part.
    ///
    /// # Panics
    /// When there is no such part.
    pub fn part<'a>(&self, level: Level, part: usize, tables: &'a mut MergeTables<K>) -> Part<'a, K> {
        let keys = if self.text_counts.is_empty() {
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

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "numbers are small, or are cut on purpose")]
mod tests {
    use std::collections::BTreeMap;

    use keirin_kernels::hash::Strings;

    use super::*;
    use crate::groups::{KeyType, OwnedValues};
    use crate::states::Aggregate;
    use crate::texts::Texts;

    const ROWS: usize = 300_000;

    /// The counts and sums of rows whose keys are `key(row)`, by two threads that have half of the rows each, beside those
    /// of a map.
    fn check<K: PackedKey>(
        types: &[KeyType],
        keys: &[KeyColumn<'_>],
        text: Option<&Texts>,
        key_of: impl Fn(usize) -> Vec<u64>,
    ) {
        let mut states = StateLayout::default();
        let (count, sum) = (states.word_of(Aggregate::Rows), states.word_of(Aggregate::Sum(0)));
        let layout = KeyLayout::new(types).unwrap();
        let grouping = Arc::new(Grouping::new(layout, states, vec![NumberType::I16]));
        let values: Vec<i16> = (0..ROWS).map(|row| (row % 1_000) as i16 - 300).collect();
        let level = Level::best();
        let mut finished = Vec::new();
        for half in [0..ROWS / 2, ROWS / 2..ROWS] {
            let mut worker = Worker::<K>::new(&grouping);
            // The second merges what it has early.
            if half.start > 0 {
                worker.compacted_at = 1 << 18;
            }
            for start in half.clone().step_by(20_011) {
                let rows = start..half.end.min(start + 20_011);
                let argument =
                    Argument { values: Numbers::I16(&values[rows.clone()]), validity: None, unit: 0 };
                let keys: Vec<KeyColumn<'_>> = keys.iter().map(|key| slice(key, rows.clone())).collect();
                worker.add(level, &keys, &[argument], rows.len()).unwrap();
            }
            assert!(worker.bytes() > 0);
            finished.push(worker.finish(level));
        }
        let merge =
            Merge::new(level, &grouping, finished, |shard| text.map_or(0, |texts| texts.count(shard)));
        let mut tables = MergeTables::new(&merge);
        let mut found = BTreeMap::new();
        for part in 0..merge.part_count() {
            let Part { keys, states } = merge.part(level, part, &mut tables);
            assert_eq!(keys.len(), states.len());
            let columns = grouping.keys().unpack(&keys);
            for (group, states) in states.word(count).zip(states.word(sum)).enumerate() {
                let key: Vec<u64> = columns
                    .iter()
                    .map(|column| match &column.values {
                        OwnedValues::Bytes2(values) => u64::from(values[group]),
                        OwnedValues::Bytes4(values) => u64::from(values[group]),
                        OwnedValues::Bytes8(values) => values[group],
                        _ => panic!("another width"),
                    })
                    .collect();
                assert!(found.insert(key, (states.0, states.1.cast_signed())).is_none(), "a group twice");
            }
        }
        let mut expected = BTreeMap::new();
        for (row, value) in values.iter().enumerate() {
            let (count, sum) = expected.entry(key_of(row)).or_insert((0, 0));
            *count += 1;
            *sum += i64::from(*value);
        }
        assert_eq!(found.len(), expected.len());
        assert!(found == expected);
    }

    fn slice<'a>(key: &KeyColumn<'a>, rows: Range<usize>) -> KeyColumn<'a> {
        let values = match key.values {
            KeyValues::Bytes2(values) => KeyValues::Bytes2(&values[rows]),
            KeyValues::Bytes4(values) => KeyValues::Bytes4(&values[rows]),
            KeyValues::Bytes8(values) => KeyValues::Bytes8(&values[rows]),
            _ => panic!("another width"),
        };
        KeyColumn { values, validity: None }
    }

    fn key(width: usize) -> KeyType {
        KeyType { width: Some(width), is_nullable: false }
    }

    /// Numbers in no order, of which so many are different.
    fn mixed(row: usize, count: u64) -> u64 {
        (row as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20 & (count - 1)
    }

    #[test]
    fn a_table_of_small_keys_takes_large_ones() {
        let small = DenseTable::new(0, u16::MAX.into(), usize::MAX).unwrap();
        let mut table = Table::<u32>::Small(small, Seed::random());
        let mut groups = Vec::new();
        for (keys, expected) in
            [([5, 7, 5], [0, 1, 0]), ([65_536, 7, NULL_TEXT], [2, 1, 3]), ([NULL_TEXT, 5, 9], [3, 0, 4])]
        {
            table.number(Level::best(), &keys, &mut groups);
            assert_eq!(groups, expected, "{keys:?}");
        }
        assert_eq!(table.len(), 5);
    }

    #[test]
    fn groups_are_those_of_a_map() {
        for count in [1, 1 << 7, 1 << 15, 1 << 30] {
            let fours: Vec<u32> = (0..ROWS).map(|row| mixed(row, count) as u32).collect();
            let eights: Vec<u64> = fours.iter().map(|four| u64::from(*four) << 33).collect();
            let (four, eight) = (KeyValues::Bytes4(&fours), KeyValues::Bytes8(&eights));
            let column = |values| KeyColumn { values, validity: None };
            check::<u32>(&[key(4)], &[column(four)], None, |row| vec![u64::from(fours[row])]);
            check::<u64>(&[key(8)], &[column(eight)], None, |row| vec![eights[row]]);
            let both = |row| vec![eights[row], u64::from(fours[row])];
            check::<u128>(&[key(8), key(4)], &[column(eight), column(four)], None, both);
        }
    }

    /// Groups of two keys, grouped again by one of them.
    #[test]
    fn groups_are_grouped_again() {
        for count in [1 << 5, 1 << 15, 1 << 30] {
            let fours: Vec<u32> = (0..ROWS).map(|row| mixed(row, count) as u32).collect();
            let twos: Vec<u16> = fours.iter().map(|four| (four % 40_000) as u16).collect();
            let mut inner = StateLayout::default();
            let rows = inner.word_of(Aggregate::Rows);
            let (outer, distinct) = (inner.with_count(), rows + 1);
            let level = Level::best();
            let inner =
                Arc::new(Grouping::new(KeyLayout::new(&[key(2), key(4)]).unwrap(), inner, Vec::new()));
            let outer = Arc::new(Grouping::new(KeyLayout::new(&[key(2)]).unwrap(), outer, Vec::new()));
            let mut worker = Worker::<u64>::new(&inner);
            let columns = [KeyValues::Bytes2(&twos), KeyValues::Bytes4(&fours)];
            let columns = columns.map(|values| KeyColumn { values, validity: None });
            worker.add(level, &columns, &[], ROWS).unwrap();
            let merge = Merge::new(level, &inner, vec![worker.finish(level)], |_| 0);
            let (mut tables, mut worker) = (MergeTables::new(&merge), Worker::<u64>::new(&outer));
            for part in 0..merge.part_count() {
                let Part { keys, states } = merge.part(level, part, &mut tables);
                let columns = inner.keys().unpack(&keys);
                let OwnedValues::Bytes2(twos) = &columns[0].values else { panic!("another width") };
                let words: Vec<u64> = states.words().iter().flat_map(|rows| [*rows, 1]).collect();
                let column = KeyColumn { values: KeyValues::Bytes2(twos), validity: None };
                worker.add_groups(level, &[column], &words, twos.len());
            }
            let merge = Merge::new(level, &outer, vec![worker.finish(level)], |_| 0);
            let mut tables = MergeTables::new(&merge);
            let mut found = BTreeMap::new();
            for part in 0..merge.part_count() {
                let Part { keys, states } = merge.part(level, part, &mut tables);
                let counts = states.word(rows).zip(states.word(distinct));
                found.extend(keys.into_iter().zip(counts));
            }
            let mut expected: BTreeMap<u64, (u64, std::collections::BTreeSet<u32>)> = BTreeMap::new();
            for (two, four) in twos.iter().zip(&fours) {
                let (rows, distinct) = expected.entry(u64::from(*two)).or_default();
                *rows += 1;
                distinct.insert(*four);
            }
            let expected = expected.into_iter().map(|(key, (rows, set))| (key, (rows, set.len() as u64)));
            assert!(expected.eq(found));
        }
    }

    /// Texts that get smaller and larger, by two threads, of which one merges early.
    #[test]
    fn texts_of_groups_are_those_of_a_map() {
        for count in [2, 1 << 13, 1 << 30] {
            let keys: Vec<u64> = (0..ROWS).map(|row| mixed(row, count)).collect();
            let texts: Vec<String> = (0..ROWS)
                .map(|row| match row % 3 {
                    0 => format!("{:06}", ROWS - row),
                    1 => format!("{:06}, a text of a good length, if not {}", row, "ö".repeat(row % 40)),
                    _ => "\0".repeat(row % 11),
                })
                .collect();
            let validity: Vec<bool> = (0..ROWS).map(|row| mixed(row, 8) > 2).collect();
            let bytes = texts.concat().into_bytes();
            let mut offsets = vec![0_i64];
            texts.iter().for_each(|text| offsets.push(offsets.last().unwrap() + text.len() as i64));
            let mut states = StateLayout::default();
            let words = [states.word_of(Aggregate::MinText(0)), states.word_of(Aggregate::MaxText(0))];
            let grouping =
                Arc::new(Grouping::new(KeyLayout::new(&[key(8)]).unwrap(), states, vec![NumberType::Text]));
            let level = Level::best();
            let finished = [0..ROWS / 2, ROWS / 2..ROWS].map(|half| {
                let mut worker = Worker::<u64>::new(&grouping);
                if half.start > 0 {
                    worker.compacted_at = 1 << 18;
                }
                for start in half.clone().step_by(20_011) {
                    let rows = start..half.end.min(start + 20_011);
                    let values = Numbers::Texts(Strings::Offsets64(&offsets[start..=rows.end], &bytes));
                    let argument = Argument { values, validity: Some(&validity[rows.clone()]), unit: 0 };
                    let column = KeyColumn { values: KeyValues::Bytes8(&keys[rows.clone()]), validity: None };
                    worker.add(level, &[column], &[argument], rows.len()).unwrap();
                }
                // A group of two texts of up to 120 bytes does not need ten times that.
                let group_count = (ROWS / 2).min(count as usize);
                assert!(worker.states.heap.bytes() < group_count * 10 * 240 + (1 << 18), "{count}");
                worker.finish(level)
            });
            let merge = Merge::new(level, &grouping, finished.into(), |_| 0);
            let mut tables = MergeTables::new(&merge);
            let mut found = BTreeMap::new();
            for part in 0..merge.part_count() {
                let Part { keys, states } = merge.part(level, part, &mut tables);
                let [least, most] = words.map(|word| states.extreme_texts(word));
                let text = |text: Option<&[u8]>| text.map(|text| str::from_utf8(text).unwrap().to_owned());
                found.extend(keys.into_iter().zip(least.map(text).zip(most.map(text))));
            }
            let mut expected = BTreeMap::new();
            for row in 0..ROWS {
                let (least, most) = expected.entry(keys[row]).or_insert((None, None));
                if validity[row] {
                    let text = &texts[row];
                    if least.as_ref().is_none_or(|least| text < least) {
                        *least = Some(text.clone());
                    }
                    if most.as_ref().is_none_or(|most| text > most) {
                        *most = Some(text.clone());
                    }
                }
            }
            assert!(found == expected, "{count}");
        }
    }

    #[test]
    fn small_keys_are_groups() {
        let twos: Vec<u16> = (0..ROWS).map(|row| mixed(row, 1 << 16) as u16).collect();
        let column = KeyColumn { values: KeyValues::Bytes2(&twos), validity: None };
        check::<u64>(&[key(2)], &[column], None, |row| vec![u64::from(twos[row])]);
    }

    #[test]
    fn texts_are_groups() {
        for count in [3, 1 << 14, 1 << 24] {
            let texts: Vec<String> = (0..ROWS).map(|row| mixed(row, count).to_string()).collect();
            let bytes = texts.concat().into_bytes();
            let mut offsets = vec![0_i32];
            texts.iter().for_each(|text| offsets.push(offsets.last().unwrap() + text.len() as i32));
            let validity: keirin_kernels::BitBuffer = (0..ROWS).map(|row| row % 1_000 < 999).collect();
            for validity in [None, Some(validity.as_bits())] {
                let (known, mut numbers) = (Texts::default(), Vec::new());
                let strings = Strings::Offsets32(&offsets, &bytes);
                known.number(Level::best(), strings, validity, &mut numbers).unwrap();
                assert_eq!(numbers.contains(&NULL_TEXT), validity.is_some());
                let types = [KeyType { width: None, is_nullable: true }];
                let column = KeyColumn { values: KeyValues::Bytes4(&numbers), validity: None };
                check::<u32>(&types, &[column], Some(&known), |row| vec![u64::from(numbers[row])]);
                // Of which nothing is kept.
                let layout = KeyLayout::new(&types).unwrap();
                let grouping = Arc::new(Grouping::new(layout, StateLayout::default(), Vec::new()));
                let mut found = Vec::new();
                let finished = numbers.chunks(ROWS / 2).map(|numbers| {
                    let mut worker = Worker::<u32>::new(&grouping);
                    let column = KeyColumn { values: KeyValues::Bytes4(numbers), validity: None };
                    worker.add(Level::best(), &[column], &[], numbers.len()).unwrap();
                    worker.finish(Level::best())
                });
                let merge =
                    Merge::new(Level::best(), &grouping, finished.collect(), |shard| known.count(shard));
                let mut tables = MergeTables::new(&merge);
                for part in 0..merge.part_count() {
                    let Part { keys, states } = merge.part(Level::best(), part, &mut tables);
                    assert_eq!(keys.len(), states.len());
                    found.extend(keys);
                }
                found.sort_unstable();
                numbers.sort_unstable();
                numbers.dedup();
                assert!(found == numbers);
            }
        }
    }
}
