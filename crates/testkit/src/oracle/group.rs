//! Groups and joins with ordered maps.

use std::collections::BTreeMap;

/// The group number of each row, and the keys in the order of group numbers: that of their first rows.
pub fn group_numbers<K: Ord + Clone>(keys: &[Option<K>]) -> (Vec<u32>, Vec<Option<K>>) {
    let mut groups = BTreeMap::new();
    let mut order = Vec::new();
    let numbers = keys.iter().map(|key| {
        let next = u32::try_from(order.len()).expect("few groups");
        *groups.entry(key.clone()).or_insert_with(|| {
            order.push(key.clone());
            next
        })
    });
    (numbers.collect(), order)
}

/// The pairs (probe row, build row) with equal keys, by probe row, then build row; nulls equal nothing.
pub fn join_pairs<K: PartialEq>(build: &[Option<K>], probe: &[Option<K>]) -> Vec<(u32, u32)> {
    let mut pairs = Vec::new();
    for (probe_row, wanted) in (0..).zip(probe) {
        for (build_row, key) in (0..).zip(build) {
            if wanted.is_some() && wanted == key {
                pairs.push((probe_row, build_row));
            }
        }
    }
    pairs
}
