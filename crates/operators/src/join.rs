//! Joins, without the columns that are joined: which row belongs to which.
//!
//! Threads collect the keys of the build side ([`Collected`]), then fill one table with them ([`Build`]), and then look
//! for the keys of the probe side, a batch at a time ([`Probe`]). What comes out are places of rows in pairs. Whoever
//! has the columns takes the values of these rows, asks further conditions, and gives back the pairs that are left.
//!
//! In joins by ranges rows of the build side are put in order instead ([`ordered`](crate::ordered)).
//!
//! Keys without a value match nothing, unless they are packed such that these are equal
//! ([`KeyLayout`](crate::packed::KeyLayout)).

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use keirin_kernels::group_table::NO_GROUP;
use keirin_kernels::hash::Seed;
use keirin_kernels::join_table::{JoinCursor, JoinTable, KeySet, distances};
use keirin_kernels::{BitBuffer, Bits, Level};

use crate::ordered::{OrderedRows, Reach, Reached, Wanted};
use crate::packed::PackedKey;

/// The build row of a probe row that has none.
pub const NO_ROW: u32 = NO_GROUP;
/// Rows that a thread inserts at a time.
const INSERTED_ROWS: usize = 1 << 16;
/// A table of a range has at most so many bits for each row, and may always have the least number.
const RANGE_BITS_PER_ROW: usize = 256;
const RANGE_BITS_MIN: usize = 1 << 20;

/// Which rows a join gives. Left is the build side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Pairs.
    Inner,
    /// Pairs, and build rows without a pair.
    Left,
    /// Pairs, and probe rows without a pair.
    Right,
    /// Pairs, and rows of both sides without a pair.
    Full,
    /// Build rows that have a pair.
    LeftSemi,
    /// Build rows that have none.
    LeftAnti,
    /// Build rows with whether they have a pair.
    LeftMark,
    /// Probe rows that have a pair.
    RightSemi,
    /// Probe rows that have none.
    RightAnti,
    /// Probe rows with whether they have a pair.
    RightMark,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Inner,
        Self::Left,
        Self::Right,
        Self::Full,
        Self::LeftSemi,
        Self::LeftAnti,
        Self::LeftMark,
        Self::RightSemi,
        Self::RightAnti,
        Self::RightMark,
    ];

    /// The same join with its sides swapped.
    #[must_use]
    pub fn swapped(self) -> Self {
        match self {
            Self::Inner => Self::Inner,
            Self::Left => Self::Right,
            Self::Right => Self::Left,
            Self::Full => Self::Full,
            Self::LeftSemi => Self::RightSemi,
            Self::LeftAnti => Self::RightAnti,
            Self::LeftMark => Self::RightMark,
            Self::RightSemi => Self::LeftSemi,
            Self::RightAnti => Self::LeftAnti,
            Self::RightMark => Self::LeftMark,
        }
    }

    /// Whether it gives pairs.
    #[must_use]
    pub fn gives_pairs(self) -> bool {
        matches!(self, Self::Inner | Self::Left | Self::Right | Self::Full)
    }

    /// Whether it gives probe rows by whether they have a pair.
    #[must_use]
    pub fn gives_unpaired_probe_rows(self) -> bool {
        self.gives_probe_rows() || matches!(self, Self::Right | Self::Full)
    }

    /// Whether it gives nothing before all probe rows were seen.
    #[must_use]
    pub fn is_of_build_rows(self) -> bool {
        matches!(self, Self::LeftSemi | Self::LeftAnti | Self::LeftMark)
    }

    /// Whether build rows are marked that have a pair.
    #[must_use]
    pub fn marks_build_rows(self) -> bool {
        self.is_of_build_rows() || matches!(self, Self::Left | Self::Full)
    }

    /// Whether it gives nothing if there are no build rows.
    #[must_use]
    pub fn needs_build_rows(self) -> bool {
        matches!(self, Self::Inner | Self::Left | Self::RightSemi) || self.is_of_build_rows()
    }

    /// Whether it gives probe rows, each once, by whether they have a pair.
    #[must_use]
    pub fn gives_probe_rows(self) -> bool {
        matches!(self, Self::RightSemi | Self::RightAnti | Self::RightMark)
    }

    fn marks_probe_rows(self) -> bool {
        self.gives_probe_rows() || matches!(self, Self::Right | Self::Full)
    }
}

/// How keys compare as numbers, if they are a column of whole numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOrder {
    /// They are something else.
    None,
    /// As their bits do.
    Unsigned,
    /// By two's complement.
    Signed,
}

impl KeyOrder {
    /// The highest bit of signed keys, which makes them compare as their bits do.
    fn flip<K: PackedKey>(self) -> u64 {
        if self == Self::Signed { 1 << (8 * size_of::<K>().min(size_of::<u64>()) - 1) } else { 0 }
    }
}

/// The keys of build rows that a thread has collected, in the order in which the rows came.
#[derive(Debug)]
pub struct Collected<K> {
    /// As they came: a vector that grows would be copied again and again.
    batches: Vec<Vec<K>>,
    len: usize,
    /// Places of rows without a value.
    nulls: Vec<u32>,
    order: KeyOrder,
    /// The least and the greatest number, if there are any: keys whose highest bit is flipped where they are signed.
    bounds: Option<(u64, u64)>,
}

impl<K: PackedKey> Collected<K> {
    /// No rows yet.
    #[must_use]
    pub fn new(order: KeyOrder) -> Self {
        Self { batches: Vec::new(), len: 0, nulls: Vec::new(), order, bounds: None }
    }

    /// Adds rows with these keys.
    ///
    /// # Panics
    /// When lengths differ, or there are more than 2^32 - 2 rows.
    pub fn add(&mut self, keys: &[K], validity: Option<Bits<'_>>) {
        let first = self.len;
        self.len += keys.len();
        assert!(self.len < u32::MAX as usize, "row numbers have 32 bits");
        self.batches.push(keys.to_vec());
        if let Some(validity) = validity {
            assert_eq!(validity.len(), keys.len(), "a bit a key");
            let nulls = (0..keys.len()).filter(|row| !validity.get(*row));
            self.nulls.extend(nulls.map(|row| row_number(first + row)));
        }
        if self.order == KeyOrder::None {
            return;
        }
        let (level, zero) = (Level::best(), K::of_word(self.order.flip::<K>()));
        let bounds = match validity {
            None => distances(level, zero, keys),
            Some(validity) => {
                let valid: Vec<K> =
                    (0..keys.len()).filter(|row| validity.get(*row)).map(|row| keys[row]).collect();
                distances(level, zero, &valid)
            }
        };
        if let Some((least, most)) = bounds {
            self.bounds = widened(widened(self.bounds, least), most);
        }
    }

    /// The least and the greatest key, if they are compared as numbers and there are any.
    #[must_use]
    pub fn bounds(&self) -> Option<[K; 2]> {
        let flip = self.order.flip::<K>();
        self.bounds.map(|(least, most)| [least, most].map(|number| K::of_word(number ^ flip)))
    }

    /// Count of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Memory in use, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.len * size_of::<K>() + self.nulls.capacity() * size_of::<u32>()
    }
}

fn widened(bounds: Option<(u64, u64)>, number: u64) -> Option<(u64, u64)> {
    let (least, most) = bounds.unwrap_or((number, number));
    Some((least.min(number), most.max(number)))
}

#[expect(clippy::cast_possible_truncation, reason = "the count of rows is asserted")]
fn row_number(row: usize) -> u32 {
    row as u32
}

/// The build side before there is memory for it.
#[derive(Debug)]
pub struct Unbuilt<K> {
    collected: Vec<Collected<K>>,
    row_count: usize,
    /// The least key as bits, and the count of keys from there to the greatest.
    range: Option<(u64, usize)>,
}

impl<K: PackedKey> Unbuilt<K> {
    /// What threads have collected; `None` if these are too many rows for numbers of 32 bits. Their rows are numbered one
    /// after the other.
    #[must_use]
    pub fn new(collected: Vec<Collected<K>>) -> Option<Self> {
        let row_count: usize = collected.iter().map(Collected::len).sum();
        let bits_max = row_count.saturating_mul(RANGE_BITS_PER_ROW).max(RANGE_BITS_MIN);
        let order = collected.first().map_or(KeyOrder::None, |first| first.order);
        let bounds = collected.iter().filter_map(|collected| collected.bounds);
        let bounds = bounds.fold(None, |all, (least, most)| widened(widened(all, least), most));
        let range = bounds.and_then(|(least, most)| {
            let range = usize::try_from(most - least).ok()?.checked_add(1)?;
            (order != KeyOrder::None && range <= bits_max).then(|| (least ^ order.flip::<K>(), range))
        });
        (row_count < u32::MAX as usize).then_some(Self { collected, row_count, range })
    }

    /// What [`build`](Self::build) takes, in bytes, beside what was collected.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let table = match self.range {
            Some((_, range)) => JoinTable::<K>::range_bytes(range, self.row_count),
            None => JoinTable::<K>::hashed_bytes(self.row_count),
        };
        table + self.row_count * (size_of::<K>() + size_of::<AtomicBool>())
    }

    /// A table into which nobody has inserted the rows yet. Build rows can be marked if the kind of join wants that.
    #[must_use]
    pub fn build(self, kind: Kind) -> Build<K> {
        let has_nulls = self.collected.iter().any(|collected| !collected.nulls.is_empty());
        let validity = has_nulls.then(|| {
            let mut is_valid = vec![true; self.row_count];
            let mut first = 0;
            for collected in &self.collected {
                collected.nulls.iter().for_each(|row| is_valid[first + *row as usize] = false);
                first += collected.len();
            }
            is_valid.into_iter().collect()
        });
        let mut keys = Vec::with_capacity(self.row_count);
        let batches = self.collected.into_iter().flat_map(|collected| collected.batches);
        batches.for_each(|batch| keys.extend_from_slice(&batch));
        let table = match self.range {
            Some((first, range)) => JoinTable::of_range(K::of_word(first), range, keys, validity),
            None => JoinTable::hashed(Seed::random(), keys, validity),
        };
        Build::new(Table::Keys(table), kind, self.row_count)
    }
}

/// The build side of a join, which threads share.
#[derive(Debug)]
pub struct Build<K: PackedKey> {
    table: Table<K>,
    kind: Kind,
    /// Which build rows have a pair.
    is_met: Vec<AtomicBool>,
}

#[derive(Debug)]
enum Table<K: PackedKey> {
    Keys(JoinTable<K>),
    Ordered(OrderedRows),
}

impl<K: PackedKey> Build<K> {
    fn new(table: Table<K>, kind: Kind, row_count: usize) -> Self {
        let marks = if kind.marks_build_rows() { row_count } else { 0 };
        Self { table, kind, is_met: (0..marks).map(|_| AtomicBool::new(false)).collect() }
    }

    /// The build side of a join by ranges, with all its rows.
    #[must_use]
    pub fn ordered(rows: OrderedRows, kind: Kind) -> Self {
        let row_count = rows.len();
        Self::new(Table::Ordered(rows), kind, row_count)
    }

    /// The table of keys.
    ///
    /// # Panics
    /// In joins by ranges.
    #[must_use]
    pub fn keyed(&self) -> &JoinTable<K> {
        match &self.table {
            Table::Keys(table) => table,
            Table::Ordered(_) => unreachable!("rows in order have no keys"),
        }
    }

    /// The rows, to be [inserted](Self::insert) a piece at a time.
    pub fn pieces(&self) -> impl Iterator<Item = Range<usize>> + use<K> {
        let row_count = self.len();
        (0..row_count).step_by(INSERTED_ROWS).map(move |start| start..row_count.min(start + INSERTED_ROWS))
    }

    /// Notes the keys of a piece, before any is inserted. Threads may do that for others at the same time.
    pub fn note(&self, piece: Range<usize>) {
        self.keyed().note(piece);
    }

    /// Makes room for the keys, when all were noted.
    pub fn make_slots(&mut self) {
        self.keyed_mut().make_slots();
    }

    /// Inserts a piece when there is room. Threads may do that for others at the same time, unless one `is_alone`.
    pub fn insert(&self, level: Level, piece: Range<usize>, is_alone: bool) {
        self.keyed().insert(level, piece, is_alone);
    }

    /// The same to put its rows side by side, before somebody looks for some.
    ///
    /// # Panics
    /// In joins by ranges.
    pub fn keyed_mut(&mut self) -> &mut JoinTable<K> {
        match &mut self.table {
            Table::Keys(table) => table,
            Table::Ordered(_) => unreachable!("rows in order have no keys"),
        }
    }

    /// Count of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.table {
            Table::Keys(table) => table.len(),
            Table::Ordered(rows) => rows.len(),
        }
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What [`keys`](Self::keys) takes, in bytes.
    #[must_use]
    pub fn set_bytes(&self) -> usize {
        KeySet::bytes_of(self.keyed())
    }

    /// The keys, when all are inserted.
    #[must_use]
    pub fn keys(&self, level: Level) -> KeySet<K> {
        KeySet::of(level, self.keyed())
    }

    /// Whether a build row had a pair so far. There are marks if the kind of join wants them.
    #[must_use]
    pub fn is_met(&self, row: usize) -> bool {
        self.is_met[row].load(Ordering::Relaxed)
    }

    /// Those of some build rows that the join gives for themselves, when all probe rows were seen: those that have a
    /// pair for a semi-join, those that have none elsewhere.
    #[must_use]
    pub fn rows_of(&self, rows: Range<usize>) -> Vec<u32> {
        let wants_met = self.kind == Kind::LeftSemi;
        rows.filter(|row| self.is_met(*row) == wants_met).map(row_number).collect()
    }

    fn mark(&self, row: u32) {
        self.is_met[row as usize].store(true, Ordering::Relaxed);
    }
}

/// Places of rows, in pairs.
#[derive(Debug, Default)]
pub struct Pairs {
    /// In the batch of the probe side.
    pub probe_rows: Vec<u32>,
    /// In the build side; [`NO_ROW`] for a probe row without a pair.
    pub build_rows: Vec<u32>,
}

impl Pairs {
    /// Keeps the pairs with a bit.
    ///
    /// # Panics
    /// When lengths differ.
    pub fn keep(&mut self, passes: Bits<'_>) {
        assert_eq!(passes.len(), self.probe_rows.len(), "a bit a pair");
        self.keep_if(|pair, _| passes.get(pair));
    }

    fn keep_if(&mut self, keeps: impl Fn(usize, u32) -> bool) {
        let mut kept = 0;
        for pair in 0..self.probe_rows.len() {
            let (probe_row, build_row) = (self.probe_rows[pair], self.build_rows[pair]);
            self.probe_rows[kept] = probe_row;
            self.build_rows[kept] = build_row;
            kept += usize::from(keeps(pair, build_row));
        }
        self.probe_rows.truncate(kept);
        self.build_rows.truncate(kept);
    }
}

/// A batch of probe rows.
#[derive(Debug)]
pub struct Probe<K> {
    found: Found<K>,
    /// Which probe rows have a pair.
    is_met: Vec<bool>,
    /// The rows before this one were given, with those that have no pair.
    given: usize,
}

#[derive(Debug)]
enum Found<K> {
    Keys { keys: Vec<K>, found: Vec<u32>, cursor: JoinCursor },
    Ordered(Reached),
}

impl<K: PackedKey> Probe<K> {
    /// Looks for the keys of the batch's rows.
    ///
    /// # Panics
    /// When lengths differ, there are more than 2^32 rows, or it is a join by ranges.
    #[must_use]
    pub fn new(level: Level, build: &Build<K>, keys: Vec<K>, validity: Option<Bits<'_>>) -> Self {
        let mut found = vec![0; keys.len()];
        build.keyed().find(level, &keys, validity, &mut found);
        let is_met = if build.kind.marks_probe_rows() { vec![false; keys.len()] } else { Vec::new() };
        Self { found: Found::Keys { keys, found, cursor: JoinCursor::default() }, is_met, given: 0 }
    }

    /// Looks for what each row of the batch reaches. Joins that do not want all of it are of a kind that gives pairs.
    ///
    /// # Panics
    /// When there are more than 2^32 rows, or it is a join by keys.
    #[must_use]
    pub fn ordered(build: &Build<K>, reaches: &[Reach], wanted: Wanted) -> Self {
        let Table::Ordered(rows) = &build.table else { unreachable!("rows that are not in order") };
        let has_marks = build.kind.marks_probe_rows() || wanted != Wanted::All;
        let is_met = if has_marks { vec![false; reaches.len()] } else { Vec::new() };
        Self { found: Found::Ordered(Reached::new(rows, reaches, wanted)), is_met, given: 0 }
    }

    /// For joins that ask nothing but whether there is a row with the key, or in reach: marks rows that have a pair.
    pub fn mark_found(&mut self, build: &Build<K>) {
        match (&self.found, &build.table) {
            (Found::Keys { keys, found, .. }, Table::Keys(table)) if build.kind.is_of_build_rows() => {
                for (key, found) in keys.iter().zip(found) {
                    // Whoever marked the first row of a key marks them all.
                    if *found == 0 || build.is_met(*found as usize - 1) {
                        continue;
                    }
                    let mut number = *found;
                    while number != 0 {
                        build.mark(number - 1);
                        number = table.next(number, *key);
                    }
                }
            }
            (Found::Keys { found, .. }, _) => {
                self.is_met.iter_mut().zip(found).for_each(|(is_met, found)| *is_met = *found != 0);
            }
            (Found::Ordered(reached), Table::Ordered(rows)) if !build.kind.is_of_build_rows() => {
                for (row, is_met) in self.is_met.iter_mut().enumerate() {
                    *is_met = reached.reaches_any(rows, row);
                }
            }
            _ => {
                let mut pairs = Pairs::default();
                while self.next_pairs(build, INSERTED_ROWS, &mut pairs) {
                    pairs.build_rows.iter().for_each(|row| build.mark(*row));
                }
                pairs.build_rows.iter().for_each(|row| build.mark(*row));
            }
        }
    }

    /// Puts the next pairs of equal keys, or in reach, into `pairs`, no more than `pair_count_max` or the rows of the batch.
    /// Returns whether there may be more.
    pub fn next_pairs(&mut self, build: &Build<K>, pair_count_max: usize, pairs: &mut Pairs) -> bool {
        let Pairs { probe_rows, build_rows } = pairs;
        probe_rows.clear();
        build_rows.clear();
        let is_more = match (&mut self.found, &build.table) {
            (Found::Keys { keys, found, cursor }, _) => {
                build.keyed().pairs(keys, found, cursor, pair_count_max, probe_rows, build_rows)
            }
            (Found::Ordered(reached), Table::Ordered(rows)) => {
                // Of who gives a row once, or the nearest, one pair is enough.
                let is_once = reached.wants_one() || build.kind.gives_probe_rows();
                let is_done = |row: usize| is_once && self.is_met[row];
                reached.pairs(rows, pair_count_max, is_done, probe_rows, build_rows)
            }
            (Found::Ordered(_), Table::Keys(_)) => unreachable!("a table of keys has no order"),
        };
        if build.kind.is_of_build_rows() {
            // What is known need not be asked again.
            pairs.keep_if(|_, build_row| !build.is_met(build_row as usize));
        }
        is_more
    }

    /// Marks the rows of the pairs that are left of [`next_pairs`](Self::next_pairs), and adds probe rows without a pair
    /// where the join gives such rows, in the order of probe rows.
    pub fn settle(&mut self, build: &Build<K>, pairs: &mut Pairs) {
        if build.kind.marks_build_rows() {
            pairs.build_rows.iter().for_each(|row| build.mark(*row));
        }
        if !self.is_met.is_empty() {
            pairs.probe_rows.iter().for_each(|row| self.is_met[*row as usize] = true);
        }
        if !matches!(build.kind, Kind::Right | Kind::Full) {
            return;
        }
        let done = match &self.found {
            Found::Keys { cursor, .. } => cursor.probe_row,
            Found::Ordered(reached) => reached.given(),
        };
        let rows = self.given..done;
        self.given = rows.end;
        let missing = self.is_met[rows.clone()].iter().filter(|is_met| !**is_met).count();
        if missing == 0 {
            return;
        }
        let count = pairs.probe_rows.len() + missing;
        let mut all = Pairs { probe_rows: Vec::with_capacity(count), build_rows: Vec::with_capacity(count) };
        let mut pair = 0;
        for row in rows.map(row_number) {
            while pairs.probe_rows.get(pair) == Some(&row) {
                all.probe_rows.push(row);
                all.build_rows.push(pairs.build_rows[pair]);
                pair += 1;
            }
            if !self.is_met[row as usize] {
                all.probe_rows.push(row);
                all.build_rows.push(NO_ROW);
            }
        }
        all.probe_rows.extend_from_slice(&pairs.probe_rows[pair..]);
        all.build_rows.extend_from_slice(&pairs.build_rows[pair..]);
        *pairs = all;
    }

    /// Which probe rows have a pair, for kinds of joins that give probe rows by that.
    #[must_use]
    pub fn met_rows(&self) -> BitBuffer {
        self.is_met.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Rows = Vec<Option<u64>>;
    /// A build row and a probe row of the answer, if it has them, and the mark, if it has one.
    type Answer = Vec<(Option<usize>, Option<usize>, Option<bool>)>;

    fn passes(has_condition: bool, build_row: usize, probe_row: usize) -> bool {
        !has_condition || !(build_row + 2 * probe_row).is_multiple_of(3)
    }

    fn expected(kind: Kind, build: &Rows, probe: &Rows, has_condition: bool) -> Answer {
        let is_pair =
            |b: usize, p: usize| build[b].is_some() && build[b] == probe[p] && passes(has_condition, b, p);
        let (build_rows, probe_rows) = (0..build.len(), 0..probe.len());
        let met_build = |b: usize| probe_rows.clone().any(|p| is_pair(b, p));
        let met_probe = |p: usize| build_rows.clone().any(|b| is_pair(b, p));
        let mut answer = Answer::new();
        if kind.gives_pairs() {
            let pairs = probe_rows.clone().flat_map(|p| build_rows.clone().map(move |b| (b, p)));
            answer.extend(pairs.filter(|(b, p)| is_pair(*b, *p)).map(|(b, p)| (Some(b), Some(p), None)));
        }
        for b in build_rows.clone() {
            match kind {
                Kind::Left | Kind::Full | Kind::LeftAnti if !met_build(b) => {
                    answer.push((Some(b), None, None));
                }
                Kind::LeftSemi if met_build(b) => answer.push((Some(b), None, None)),
                Kind::LeftMark => answer.push((Some(b), None, Some(met_build(b)))),
                _ => {}
            }
        }
        for p in probe_rows.clone() {
            match kind {
                Kind::Right | Kind::Full | Kind::RightAnti if !met_probe(p) => {
                    answer.push((None, Some(p), None));
                }
                Kind::RightSemi if met_probe(p) => answer.push((None, Some(p), None)),
                Kind::RightMark => answer.push((None, Some(p), Some(met_probe(p)))),
                _ => {}
            }
        }
        answer.sort_unstable();
        answer
    }

    fn bits(rows: &[Option<u64>]) -> BitBuffer {
        rows.iter().map(Option::is_some).collect()
    }

    fn packed<K: PackedKey>(rows: &[Option<u64>], key: impl Fn(u64) -> u64) -> Vec<K> {
        rows.iter().map(|row| K::of_word(key(row.unwrap_or(9)))).collect()
    }

    /// Joins with several threads on both sides.
    fn joined<K: PackedKey>(
        (kind, order, has_condition): (Kind, KeyOrder, bool),
        (build, probe): (&Rows, &Rows),
        key: impl Fn(u64) -> u64 + Copy + Send,
        pair_count_max: usize,
    ) -> Answer {
        const BATCH_ROWS: usize = 17;
        let level = Level::best();
        let collected = build.chunks(build.len().div_ceil(2).max(1)).map(|rows| {
            let mut collected = Collected::new(order);
            for rows in rows.chunks(BATCH_ROWS) {
                let validity = rows.contains(&None).then(|| bits(rows));
                collected.add(&packed::<K>(rows, key), validity.as_ref().map(BitBuffer::as_bits));
            }
            collected
        });
        let unbuilt = Unbuilt::new(collected.collect()).unwrap();
        assert!(build.is_empty() || unbuilt.bytes() > 0);
        let mut build = unbuilt.build(kind);
        std::thread::scope(|scope| {
            build.pieces().for_each(|piece| {
                let build = &build;
                scope.spawn(move || build.note(piece));
            });
        });
        build.make_slots();
        std::thread::scope(|scope| {
            build.pieces().for_each(|piece| {
                let build = &build;
                scope.spawn(move || build.insert(level, piece, false));
            });
        });
        let build = &build;
        let answer = std::sync::Mutex::new(Answer::new());
        std::thread::scope(|scope| {
            for (batch, rows) in probe.chunks(BATCH_ROWS).enumerate() {
                let answer = &answer;
                scope.spawn(move || {
                    let place = |row: u32| batch * BATCH_ROWS + row as usize;
                    let validity = bits(rows);
                    let mut probe =
                        Probe::new(level, build, packed::<K>(rows, key), Some(validity.as_bits()));
                    let mut found = Answer::new();
                    if has_condition || kind.gives_pairs() {
                        let mut pairs = Pairs::default();
                        let mut is_more = true;
                        while is_more {
                            is_more = probe.next_pairs(build, pair_count_max, &mut pairs);
                            assert!(pairs.probe_rows.len() <= pair_count_max);
                            let both = pairs.build_rows.iter().zip(&pairs.probe_rows);
                            let left: BitBuffer =
                                both.map(|(b, p)| passes(has_condition, *b as usize, place(*p))).collect();
                            pairs.keep(left.as_bits());
                            probe.settle(build, &mut pairs);
                            assert!(pairs.probe_rows.is_sorted(), "in the order of probe rows");
                            if kind.gives_pairs() {
                                let both = pairs.build_rows.iter().zip(&pairs.probe_rows);
                                found.extend(both.map(|(b, p)| {
                                    ((*b != NO_ROW).then_some(*b as usize), Some(place(*p)), None)
                                }));
                            }
                        }
                    } else {
                        probe.mark_found(build);
                    }
                    if matches!(kind, Kind::RightSemi | Kind::RightAnti | Kind::RightMark) {
                        let met = probe.met_rows();
                        for row in 0..rows.len() {
                            let is_met = met.as_bits().get(row);
                            let mark = (kind == Kind::RightMark).then_some(is_met);
                            if mark.is_some() || is_met == (kind == Kind::RightSemi) {
                                found.push((None, Some(batch * BATCH_ROWS + row), mark));
                            }
                        }
                    }
                    answer.lock().unwrap().extend(found);
                });
            }
        });
        let mut answer = answer.into_inner().unwrap();
        match kind {
            Kind::LeftMark => {
                answer.extend((0..build.len()).map(|row| (Some(row), None, Some(build.is_met(row)))));
            }
            _ if kind.marks_build_rows() => {
                let rows = build.rows_of(0..build.len());
                answer.extend(rows.into_iter().map(|row| (Some(row as usize), None, None)));
            }
            _ => {}
        }
        answer.sort_unstable();
        answer
    }

    fn check(build: &Rows, probe: &Rows) {
        for kind in Kind::ALL {
            for has_condition in [false, true] {
                let expected = expected(kind, build, probe, has_condition);
                for pair_count_max in [5, 1_000] {
                    let check = |found: Answer, what| {
                        assert_eq!(found, expected, "{kind:?}, {has_condition}, {what}");
                    };
                    let sides = (build, probe);
                    let how = |order| (kind, order, has_condition);
                    check(joined::<u64>(how(KeyOrder::Unsigned), sides, |key| key, pair_count_max), "range");
                    check(joined::<u64>(how(KeyOrder::None), sides, |key| key, pair_count_max), "hashed");
                    let signed = |key: u64| key.wrapping_sub(20) & u64::from(u32::MAX);
                    check(joined::<u32>(how(KeyOrder::Signed), sides, signed, pair_count_max), "signed");
                    let far = |key: u64| key << 40;
                    check(joined::<u64>(how(KeyOrder::Signed), sides, far, pair_count_max), "far");
                    check(joined::<u128>(how(KeyOrder::None), sides, far, pair_count_max), "wide");
                }
            }
        }
    }

    #[test]
    fn sides_may_have_no_rows() {
        let some = vec![Some(1), None, Some(1), Some(2)];
        check(&Rows::new(), &Rows::new());
        check(&Rows::new(), &some);
        check(&some, &Rows::new());
        check(&vec![None, None], &vec![None]);
    }

    #[test]
    fn one_key_may_have_most_rows() {
        let skewed = |count: u64, few: u64| -> Rows {
            (0..count)
                .map(|row| (row % 11 > 0).then_some(if row % 4 == 0 { row % few } else { 30 }))
                .collect()
        };
        check(&skewed(70, 40), &skewed(60, 50));
        check(&(0..70).map(Some).collect(), &skewed(80, 90));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]
        #[test]
        fn rows_are_those_of_nested_loops(
            build in prop::collection::vec(prop::option::weighted(0.9, 0_u64..40), 0..60),
            probe in prop::collection::vec(prop::option::weighted(0.9, 0_u64..50), 0..60),
        ) {
            check(&build, &probe);
        }
    }
}
