//! Equi-joins: pairs of rows with the same key.
//!
//! The plain version is a hash map from key to a chain of row numbers. Here the map is a [`group_table`] of
//! the build side's keys, of any type, and the chains are ranges of one array: a counting sort of the build
//! rows by group keeps duplicates together and in order, where a chain costs a miss a row. If no key occurs
//! twice and none is NULL, the group number *is* the row number, and there is no array.
//!
//! To join: `find_or_insert` the build keys, call [`JoinRows::new`] with their groups, `find` the probe keys
//! (which includes hashing, prefetching and cache misses), and call [`JoinRows::pairs`] with their groups.
//! Semi-joins, anti-joins and outer rows need only the groups: [`matched`], [`mark`].
//!
//! [`group_table`]: crate::group_table

#![allow(clippy::cast_possible_truncation, reason = "row numbers have 32 bits by assertion")]

use crate::group_table::NO_GROUP;
use crate::{BitBuffer, Bits};

/// The build rows of each group.
#[derive(Debug)]
pub struct JoinRows {
    /// `None` if row `i` is the only one of group `i`.
    ranges: Option<Ranges>,
    group_count: usize,
}

#[derive(Debug)]
struct Ranges {
    /// Group `g` has rows `rows[starts[g]..starts[g + 1]]`.
    starts: Vec<u32>,
    rows: Vec<u32>,
}

/// The position in the pairs of a batch of probe rows: start with the default, and continue until
/// [`JoinRows::pairs`] returns that there are no more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    probe_row: usize,
    /// How many pairs of that row were returned already.
    given: usize,
}

impl JoinRows {
    /// Made from the group of each build row; [`NO_GROUP`] rows (keys with NULLs) match nothing.
    ///
    /// # Panics
    /// When a group is neither below `group_count` nor [`NO_GROUP`], or there are more than 2^32 - 1 rows.
    #[must_use]
    pub fn new(groups: &[u32], group_count: usize) -> Self {
        let row_count = u32::try_from(groups.len()).expect("row numbers have 32 bits");
        if groups.len() == group_count && (0..row_count).eq(groups.iter().copied()) {
            return Self { ranges: None, group_count };
        }
        let mut starts = vec![0_u32; group_count + 1];
        for group in groups.iter().filter(|group| **group != NO_GROUP) {
            starts[*group as usize + 1] += 1;
        }
        for group in 0..group_count {
            starts[group + 1] += starts[group];
        }
        let mut next = starts.clone();
        let mut rows = vec![0; starts[group_count] as usize];
        for (row, group) in (0..row_count).zip(groups).filter(|(_, group)| **group != NO_GROUP) {
            let place = &mut next[*group as usize];
            rows[*place as usize] = row;
            *place += 1;
        }
        Self { ranges: Some(Ranges { starts, rows }), group_count }
    }

    /// Memory in use, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let ranges = self.ranges.as_ref();
        ranges.map_or(0, |ranges| (ranges.starts.capacity() + ranges.rows.capacity()) * size_of::<u32>())
    }

    /// Appends pairs (probe row, build row) for the groups of a batch of probe rows, in the order of probe
    /// rows and then of build rows, until the vectors have `pair_count_max` of them or there are no more.
    /// Returns whether there are more: then call again with the same cursor, after making room in the
    /// vectors.
    ///
    /// # Panics
    /// When a group is neither one of the build side nor [`NO_GROUP`], or the vectors differ in length.
    pub fn pairs(
        &self,
        groups: &[u32],
        cursor: &mut Cursor,
        pair_count_max: usize,
        probe_rows: &mut Vec<u32>,
        build_rows: &mut Vec<u32>,
    ) -> bool {
        assert_eq!(probe_rows.len(), build_rows.len(), "pairs have two rows");
        assert!(u32::try_from(groups.len()).is_ok(), "row numbers have 32 bits");
        while let Some(group) = groups.get(cursor.probe_row) {
            let room = pair_count_max.saturating_sub(probe_rows.len());
            if room == 0 {
                return true;
            }
            let Some(ranges) = &self.ranges else {
                self.unique_pairs(groups, cursor, room, probe_rows, build_rows);
                continue;
            };
            if *group != NO_GROUP {
                let group = *group as usize;
                let (start, end) = (ranges.starts[group] as usize, ranges.starts[group + 1] as usize);
                let rest = &ranges.rows[start + cursor.given..end];
                let taken = &rest[..rest.len().min(room)];
                let probe_row = cursor.probe_row as u32;
                if let [build_row] = taken {
                    probe_rows.push(probe_row);
                    build_rows.push(*build_row);
                } else {
                    probe_rows.resize(probe_rows.len() + taken.len(), probe_row);
                    build_rows.extend_from_slice(taken);
                }
                if taken.len() < rest.len() {
                    cursor.given += taken.len();
                    return true;
                }
            }
            *cursor = Cursor { probe_row: cursor.probe_row + 1, given: 0 };
        }
        false
    }

    /// At most one pair for each probe row: always written, but kept only if it is a match, without a branch.
    fn unique_pairs(
        &self,
        groups: &[u32],
        cursor: &mut Cursor,
        room: usize,
        probe_rows: &mut Vec<u32>,
        build_rows: &mut Vec<u32>,
    ) {
        let first = cursor.probe_row;
        let rows = &groups[first..groups.len().min(first.saturating_add(room))];
        let (start, mut next) = (probe_rows.len(), 0);
        probe_rows.resize(start + rows.len(), 0);
        build_rows.resize(start + rows.len(), 0);
        let (probe_out, build_out) = (&mut probe_rows[start..], &mut build_rows[start..]);
        let mut is_known = true;
        for (row, group) in rows.iter().enumerate() {
            probe_out[next] = (first + row) as u32;
            build_out[next] = *group;
            is_known &= (*group as usize) < self.group_count || *group == NO_GROUP;
            next += usize::from(*group != NO_GROUP);
        }
        assert!(is_known, "groups are those of the build side");
        probe_rows.truncate(start + next);
        build_rows.truncate(start + next);
        cursor.probe_row += rows.len();
    }
}

kernel! {
    /// Which probe rows have a match: those that a semi-join keeps and an anti-join does not.
    pub fn matched(groups: &[u32]) -> BitBuffer = matched_plain;
}

#[inline(always)]
fn matched_plain(groups: &[u32]) -> BitBuffer {
    let word = |groups: &[u32]| {
        let flags = groups.iter().enumerate().map(|(row, group)| u64::from(*group != NO_GROUP) << row);
        flags.fold(0, |word, flag| word | flag)
    };
    BitBuffer::from_words(groups.chunks(64).map(word).collect(), groups.len())
}

/// Marks the groups that probe rows matched: the unmarked ones at the end are the build side's outer rows.
///
/// # Panics
/// When a group is neither an index of `is_met` nor [`NO_GROUP`].
pub fn mark(groups: &[u32], is_met: &mut [bool]) {
    for group in groups.iter().filter(|group| **group != NO_GROUP) {
        is_met[*group as usize] = true;
    }
}

/// Makes the rows with NULL match nothing, as SQL's `=` requires.
///
/// # Panics
/// When lengths differ.
pub fn forget_nulls(validity: Bits<'_>, groups: &mut [u32]) {
    assert_eq!(validity.len(), groups.len(), "a bit a row");
    for (groups, valid) in groups.chunks_mut(64).zip(validity.words()) {
        for (row, group) in groups.iter_mut().enumerate() {
            // All ones for a NULL, which is `NO_GROUP`.
            *group |= ((valid >> row & 1) as u32).wrapping_sub(1);
        }
    }
}
