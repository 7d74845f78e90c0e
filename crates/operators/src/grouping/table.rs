//! The group of each key.

use keirin_kernels::Level;
use keirin_kernels::group_table::{DenseTable, Fold, GroupTable};
use keirin_kernels::hash::Seed;

use super::Grouping;
use crate::packed::PackedKey;

/// Numbers keys.
#[derive(Debug)]
pub(super) enum Table<K: PackedKey> {
    Hash(GroupTable<K>),
    /// As long as keys are numbers of 16 bits, or fold into such.
    Small(Small),
}

#[derive(Debug)]
pub(super) struct Small {
    table: DenseTable,
    fold: Option<Fold>,
    folded: Vec<u16>,
    /// For when keys are not small.
    seed: Seed,
}

impl<K: PackedKey> Table<K> {
    pub(super) fn new(grouping: &Grouping) -> Self {
        let bytes = grouping.keys.bytes();
        // The type of keys of one and two bytes is `u64`; those of four are looked at as they are.
        let is_folded = bytes > 2 && size_of::<K>() > size_of::<u32>();
        let fold = is_folded.then(|| grouping.keys.fold()).flatten();
        if is_folded && fold.is_none() {
            return Self::Hash(GroupTable::new(grouping.seed));
        }
        let last = (1 << (8 * bytes.min(2))) - 1;
        let table = DenseTable::new(0, last, usize::MAX).expect("few keys fit into an array");
        Self::Small(Small { table, fold, folded: Vec::new(), seed: grouping.seed })
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Hash(table) => table.len(),
            Self::Small(small) => small.table.keys().len(),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Hash(table) => table.bytes(),
            Self::Small(small) => small.table.bytes() + small.folded.capacity() * size_of::<u16>(),
        }
    }

    /// The keys of all groups; the table has none then.
    pub(super) fn take_keys(&mut self) -> Vec<K> {
        match self {
            Self::Hash(table) => table.take_keys(),
            Self::Small(small) => small.take_keys(),
        }
    }

    /// Sets `groups` to the group of each key; new keys get new groups.
    pub(super) fn number(&mut self, level: Level, keys: &[K], groups: &mut Vec<u32>) {
        groups.resize(keys.len(), 0);
        match self {
            Self::Hash(table) => table.find_or_insert(level, keys, None, groups),
            Self::Small(small) => {
                if small.number(level, keys, groups) {
                    return;
                }
                // In the same order, groups have the same numbers.
                let known: Vec<K> = small.take_keys();
                let mut table = GroupTable::new(small.seed);
                table.find_or_insert(level, &known, None, &mut vec![0; known.len()]);
                table.find_or_insert(level, keys, None, groups);
                *self = Self::Hash(table);
            }
        }
    }
}

impl Small {
    /// As [`Table::number`]; `false`, and nothing changes, if some keys are not small.
    fn number<K: PackedKey>(&mut self, level: Level, keys: &[K], groups: &mut [u32]) -> bool {
        let Some(fold) = &self.fold else { return K::number_small(level, &mut self.table, keys, groups) };
        K::fold(level, fold, keys, &mut self.folded) && self.table.find_or_insert(level, &self.folded, groups)
    }

    fn take_keys<K: PackedKey>(&mut self) -> Vec<K> {
        let keys = self.table.take_keys().into_iter();
        let unfolded = |key| self.fold.as_ref().map_or(key, |fold| fold.unfold(key));
        keys.map(|key| K::of_word(unfolded(key))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::NumberType;
    use crate::groups::KeyType;
    use crate::packed::KeyLayout;
    use crate::states::StateLayout;
    use crate::texts::NULL_TEXT;

    fn table<K: PackedKey>(types: &[(Option<usize>, bool)]) -> Table<K> {
        let types: Vec<KeyType> = types
            .iter()
            .map(|(width, is_nullable)| KeyType { width: *width, is_nullable: *is_nullable })
            .collect();
        let keys = KeyLayout::new(&types).unwrap();
        Table::new(&Grouping::new(keys, StateLayout::default(), Vec::<NumberType>::new()))
    }

    /// Keys chunk by chunk, with the groups that they have.
    fn check<K: PackedKey>(mut table: Table<K>, chunks: &[([K; 3], [u32; 3], bool)], expected: &[K]) {
        let mut groups = Vec::new();
        for (keys, expected, is_small) in chunks {
            table.number(Level::best(), keys, &mut groups);
            assert_eq!(groups, expected);
            assert_eq!(matches!(table, Table::Small(_)), *is_small);
        }
        assert_eq!(table.len(), expected.len());
        assert!(table.take_keys() == expected);
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn a_table_of_small_keys_takes_large_ones() {
        let chunks = [
            ([5, 7, 5], [0, 1, 0], true),
            ([65_536, 7, NULL_TEXT], [2, 1, 3], false),
            ([NULL_TEXT, 5, 9], [3, 0, 4], false),
        ];
        check(table(&[(Some(4), false)]), &chunks, &[5, 7, 65_536, NULL_TEXT, 9]);
    }

    #[test]
    fn keys_of_several_columns_are_folded_while_they_are_small() {
        // Two texts: eight bits of the number of each.
        let key = |low: u64, high: u64| low | high << 32;
        let chunks = [
            ([key(1, 0), key(0, 1), key(255, 255)], [0, 1, 2], true),
            ([key(0, 1), key(1, 0), key(0, 0)], [1, 0, 3], true),
            ([key(256, 0), key(1, 0), key(0, 256)], [4, 0, 5], false),
        ];
        let keys = [key(1, 0), key(0, 1), key(255, 255), key(0, 0), key(256, 0), key(0, 256)];
        check(table(&[(None, false), (None, true)]), &chunks, &keys);
        // A number of two bytes with a flag behind it, and one of four.
        let key = |low: u64, is_null: u64, high: u64| low | is_null << 16 | high << 24;
        let chunks = [
            ([key(127, 0, 127), key(0, 1, 0), key(0, 0, 0)], [0, 1, 2], true),
            ([key(0, 1, 127), key(0, 1, 0), key(127, 0, 127)], [3, 1, 0], true),
            ([key(128, 0, 0), key(0, 1, 0), key(0, 0, 128)], [4, 1, 5], false),
        ];
        let keys =
            [key(127, 0, 127), key(0, 1, 0), key(0, 0, 0), key(0, 1, 127), key(128, 0, 0), key(0, 0, 128)];
        check(table(&[(Some(2), true), (Some(4), false)]), &chunks, &keys);
        // One of eight bytes: the low 16 bits.
        let chunks = [
            ([65_535_u64, 0, 65_535], [0, 1, 0], true),
            ([3, 0, u64::MAX], [2, 1, 3], false),
            ([65_536, 3, 65_535], [4, 2, 0], false),
        ];
        check(table(&[(Some(8), false)]), &chunks, &[65_535, 0, 3, u64::MAX, 65_536]);
    }
}
