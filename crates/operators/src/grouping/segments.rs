//! Rows and groups that were sorted into parts.

use std::ops::Range;

use keirin_kernels::Level;
use keirin_kernels::group_table::PartitionedRows;

use super::Grouping;
use crate::arguments::OwnedArgument;
use crate::packed::PackedKey;

/// Rows or groups in parts.
#[derive(Debug)]
pub(super) struct Segment<K> {
    pub(super) keys: Vec<K>,
    /// Where each part begins, and the last ends.
    pub(super) starts: Vec<u32>,
    pub(super) content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    /// The arguments of rows.
    Rows(Vec<OwnedArgument>),
    /// The words of groups.
    Groups(Vec<u64>),
}

/// Groups that are not sorted.
#[derive(Debug)]
pub(super) struct Groups<K> {
    pub(super) keys: Vec<K>,
    pub(super) words: Vec<u64>,
}

impl<K: PackedKey> Groups<K> {
    /// The groups sorted into parts.
    pub(super) fn sorted(self, level: Level, grouping: &Grouping) -> Segment<K> {
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

    pub(super) fn bytes(&self) -> usize {
        self.keys.capacity() * size_of::<K>() + self.words.capacity() * size_of::<u64>()
    }

    /// The groups as one part.
    pub(super) fn whole(self) -> Segment<K> {
        let starts = vec![0, u32::try_from(self.keys.len()).expect("groups have 32 bits")];
        Segment { keys: self.keys, starts, content: Content::Groups(self.words) }
    }
}

impl<K> Segment<K> {
    pub(super) fn bytes(&self) -> usize {
        let content = match &self.content {
            Content::Rows(arguments) => arguments.iter().map(OwnedArgument::bytes).sum(),
            Content::Groups(words) => words.capacity() * size_of::<u64>(),
        };
        self.keys.capacity() * size_of::<K>() + content
    }

    pub(super) fn part(&self, part: usize) -> Range<usize> {
        self.starts[part] as usize..self.starts[part + 1] as usize
    }
}
