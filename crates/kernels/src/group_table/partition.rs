//! Partitions rows by the highest bits of their hash.

/// Row numbers in the order of partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionedRows {
    /// The rows of partition 0, then of partition 1 and so on; in each partition they keep their order.
    pub rows: Vec<u32>,
    /// Partition `p` is `rows[starts[p]..starts[p + 1]]`.
    pub starts: Vec<u32>,
}

/// Sorts rows by the `bits` highest bits of their hashes.
///
/// # Panics
/// When `bits` is not in `1..=16`, or there are more than 2^32 - 1 hashes.
#[must_use]
pub fn partition_rows(hashes: &[u64], bits: u32) -> PartitionedRows {
    assert!((1..=16).contains(&bits), "2^{bits} partitions");
    assert!(u32::try_from(hashes.len()).is_ok(), "row numbers have 32 bits");
    let shift = u64::BITS - bits;
    let mut starts = vec![0_u32; (1 << bits) + 1];
    for hash in hashes {
        starts[(hash >> shift) as usize + 1] += 1;
    }
    for partition in 1..starts.len() {
        starts[partition] += starts[partition - 1];
    }
    let mut next = starts.clone();
    let mut rows = vec![0; hashes.len()];
    for (row, hash) in hashes.iter().enumerate() {
        let place = &mut next[(hash >> shift) as usize];
        rows[*place as usize] = row as u32;
        *place += 1;
    }
    PartitionedRows { rows, starts }
}
