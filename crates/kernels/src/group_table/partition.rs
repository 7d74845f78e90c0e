//! Partitions rows by the highest bits of their hash.
//!
//! [`partition_rows`] gives row numbers, for a caller that then gathers columns. [`Scatter`] moves the rows
//! themselves: each partition collects a few rows in a line of its own, and full lines go to the partition's
//! chunk with stores that bypass the caches (write combining: Balkesen et al., "Main-memory hash joins on
//! multi-core CPUs", ICDE 2013). All chunks are allocated from a few large regions in huge pages; otherwise a
//! thousand open chunks would be a thousand pages, more than the first-level TLB holds.

use std::mem::MaybeUninit;

use crate::group_table::partition::line::LINE_ROWS;
pub(crate) use crate::group_table::partition::line::{Line, fence};
use crate::region::{Region, Zero};

mod line;

const CHUNK_ROWS: usize = 256;
/// Chunks that are allocated together: 4 MiB of 16-byte rows.
const SEGMENT_CHUNKS: usize = 1024;

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

/// A function that writes a whole line, bypassing the caches; see [`Line::stream_to`].
pub(crate) trait Stream<R>: Fn(&Line<R>, &mut MaybeUninit<Line<R>>) {}
impl<R, F: Fn(&Line<R>, &mut MaybeUninit<Line<R>>)> Stream<R> for F {}

/// Rows of 16 bytes in partitions, each in order of arrival.
pub(crate) struct Scatter<R> {
    bits: u32,
    /// The last rows of each partition, which do not fill a line yet.
    lines: Region<Line<R>>,
    /// The count of rows of each partition.
    lens: Vec<u32>,
    /// The index, over all segments, of each partition's next full line, as long as its last chunk has room.
    next_lines: Vec<u32>,
    /// The indices of each partition's chunks.
    chunks: Vec<Vec<u32>>,
    free_chunks: Vec<u32>,
    /// Chunk `c` begins at line `c * CHUNK_ROWS / LINE_ROWS`, counted over all segments.
    segments: Vec<Region<MaybeUninit<Line<R>>>>,
}

const CHUNK_LINES: usize = CHUNK_ROWS / LINE_ROWS;
const SEGMENT_LINES: usize = SEGMENT_CHUNKS * CHUNK_LINES;

impl<R: Zero> Scatter<R> {
    pub(crate) fn new(bits: u32) -> Self {
        const { assert!(size_of::<R>() == 16) };
        let partitions = 1 << bits;
        Self {
            bits,
            lines: Region::zeroed(partitions),
            lens: vec![0; partitions],
            next_lines: vec![0; partitions],
            chunks: vec![Vec::new(); partitions],
            free_chunks: Vec::new(),
            segments: Vec::new(),
        }
    }

    /// The count of rows in a partition.
    pub(crate) fn len(&self, partition: usize) -> usize {
        self.lens[partition] as usize
    }

    pub(crate) fn bytes(&self) -> usize {
        self.lines.bytes() + self.segments.iter().map(Region::bytes).sum::<usize>()
    }

    /// Appends rows with their hashes; call [`fence`] before they are read.
    ///
    /// # Safety
    /// `stream` must write the whole line, as any part that it leaves out is uninitialised.
    #[inline(always)]
    pub(crate) unsafe fn extend(&mut self, rows: impl Iterator<Item = (u64, R)>, stream: &impl Stream<R>) {
        let shift = u64::BITS - self.bits;
        let (lens, lines) = (&mut self.lens[..1 << self.bits], &mut self.lines[..1 << self.bits]);
        // No `for_each`: if the compiler does not inline its closure, the closure is not compiled for the
        // level.
        for (hash, row) in rows {
            let partition = (hash >> shift) as usize;
            let len = lens[partition] as usize;
            lens[partition] = len as u32 + 1;
            let line = &mut lines[partition];
            line.0[len % LINE_ROWS] = row;
            if len % LINE_ROWS == LINE_ROWS - 1 {
                if len % CHUNK_ROWS < LINE_ROWS {
                    if self.free_chunks.is_empty() {
                        new_segment(&mut self.segments, &mut self.free_chunks);
                    }
                    let chunk = self.free_chunks.pop().expect("a segment has chunks");
                    self.chunks[partition].push(chunk);
                    self.next_lines[partition] = chunk * CHUNK_LINES as u32;
                }
                let next_line = &mut self.next_lines[partition];
                let segment = &mut self.segments[*next_line as usize / SEGMENT_LINES];
                stream(line, &mut segment[*next_line as usize % SEGMENT_LINES]);
                *next_line += 1;
            }
        }
    }

    /// Calls `each` with all rows of a partition, a run at a time, together with the run after it, for
    /// prefetching: the CPU cannot predict where the next run is.
    pub(crate) fn each_run(&self, partition: usize, mut each: impl FnMut(&[R], &[R])) {
        let len = self.len(partition);
        let chunks = &self.chunks[partition];
        let run = |index: usize| {
            let Some(chunk) = chunks.get(index) else { return &[][..] };
            let line_count = (len / LINE_ROWS - index * CHUNK_LINES).min(CHUNK_LINES);
            let lines = &self.chunk(*chunk)[..line_count];
            // SAFETY: `extend` filled the lines of the partition's chunks in their order, as its caller
            // promised, and the count of rows tells how many. A line is an array of rows; its alignment
            // divides its size, so there is no padding.
            unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), line_count * LINE_ROWS) }
        };
        for index in 0..chunks.len() {
            each(run(index), run(index + 1));
        }
        each(&self.lines[partition].0[..len % LINE_ROWS], &[]);
    }

    fn chunk(&self, chunk: u32) -> &[MaybeUninit<Line<R>>] {
        let first = chunk as usize % SEGMENT_CHUNKS * CHUNK_LINES;
        &self.segments[chunk as usize / SEGMENT_CHUNKS][first..first + CHUNK_LINES]
    }

    /// Removes the rows of a partition.
    pub(crate) fn clear(&mut self, partition: usize) {
        self.lens[partition] = 0;
        self.free_chunks.append(&mut self.chunks[partition]);
    }
}

#[cold]
fn new_segment<R: Zero>(segments: &mut Vec<Region<MaybeUninit<Line<R>>>>, free_chunks: &mut Vec<u32>) {
    assert!((segments.len() + 1) * SEGMENT_LINES <= u32::MAX as usize, "line numbers have 32 bits");
    let first = (segments.len() * SEGMENT_CHUNKS) as u32;
    segments.push(Region::uninit(SEGMENT_LINES));
    free_chunks.extend((first..first + SEGMENT_CHUNKS as u32).rev());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(C)]
    struct Row(u64, u64);

    // SAFETY: integers without padding.
    unsafe impl Zero for Row {}

    fn rows_of(scatter: &Scatter<Row>, partition: usize) -> Vec<Row> {
        let mut rows = Vec::new();
        scatter.each_run(partition, |run, _| rows.extend_from_slice(run));
        rows
    }

    /// Covers full lines, full chunks, and chunks that are reused.
    #[test]
    fn rows_come_back_by_partition_in_their_order() {
        const ROWS: u64 = 2 * CHUNK_ROWS as u64 + 21;
        let row = |round: u64, number: u64| ((number % 3) << 62, Row(round, number));
        let mut scatter = Scatter::new(2);
        for round in 0..2 {
            // SAFETY: it writes the whole line.
            unsafe { scatter.extend((0..3 * ROWS).map(|number| row(round, number)), &Line::stream_to) };
            fence();
            for partition in 0..3 {
                let expected: Vec<Row> =
                    (0..ROWS).map(|index| row(round, 3 * index + partition as u64).1).collect();
                assert_eq!(scatter.len(partition), expected.len());
                assert_eq!(rows_of(&scatter, partition), expected, "partition {partition}");
                scatter.clear(partition);
            }
            assert!(rows_of(&scatter, 3).is_empty());
        }
        assert_eq!(scatter.segments.len(), 1, "chunks are used again");
    }
}
