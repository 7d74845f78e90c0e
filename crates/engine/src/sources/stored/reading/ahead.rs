//! What a scan will read, said some time before: files that are slow to reach are fetched meanwhile.
//!
//! Filters are read first, so their columns are asked for. The other columns are asked for with them once most
//! stripes turn out to have rows that pass; until then, when rows of a stripe have passed.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::worker::Shared;

/// Bytes of stored columns that are asked for before they are read, about.
const AHEAD_BYTES: u64 = 24 << 20;
/// Stripes at least and at most.
const STRIPES_MIN: u64 = 2;
const STRIPES_MAX: u64 = 1024;
/// So many stripes say what the others are like.
const STRIPES_TRIED: usize = 4;

/// How far in the list of stripes files were told.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    told: AtomicUsize,
    stripes_tried: AtomicUsize,
    stripes_passed: AtomicUsize,
}

impl Ahead {
    /// Whether a stripe had rows that passed all filters.
    pub(super) fn passed(&self, has_rows: bool) {
        self.stripes_tried.fetch_add(1, Ordering::Relaxed);
        self.stripes_passed.fetch_add(usize::from(has_rows), Ordering::Relaxed);
    }

    /// Says what will be read of the next stripes of a list, when its first is about to be.
    pub(super) fn expect(&self, scan: &Shared, places: Range<usize>) {
        let Some(stripes) = scan.stripes.get().and_then(|stripes| stripes.get(places.clone())) else {
            return;
        };
        let Some((part, stripe)) = stripes.first().copied() else { return };
        let Ok(part) = &scan.table.parts[part] else { return };
        if !part.reader.is_fetched() {
            return;
        }
        let columns = self.columns(scan);
        let bytes = part.stored_bytes(&columns, stripe);
        let count = AHEAD_BYTES.checked_div(bytes).unwrap_or(STRIPES_MAX).clamp(STRIPES_MIN, STRIPES_MAX);
        let count = usize::try_from(count).expect("few stripes").min(stripes.len());
        // Not for each stripe, so that those side by side are asked for together.
        let told = self.told.load(Ordering::Relaxed).max(places.start);
        let end = places.start + count;
        let is_enough = told - places.start > count / 2 && count < stripes.len() || told >= end;
        if is_enough || self.told.fetch_max(end, Ordering::Relaxed) >= end {
            return;
        }
        let new = &stripes[told - places.start..count];
        for run in new.chunk_by(|a, b| a.0 == b.0 && a.1 + 1 == b.1) {
            if let Ok(part) = &scan.table.parts[run[0].0] {
                part.expect(&columns, run[0].1..run[run.len() - 1].1 + 1);
            }
        }
    }

    fn columns(&self, scan: &Shared) -> Vec<usize> {
        let (tried, passed) =
            (self.stripes_tried.load(Ordering::Relaxed), self.stripes_passed.load(Ordering::Relaxed));
        let mut columns: Vec<usize> =
            scan.filters.iter().flat_map(|filter| filter.columns().iter().copied()).collect();
        if columns.is_empty() || tried >= STRIPES_TRIED && passed > tried / 2 {
            columns.extend(&scan.projection);
        }
        columns.sort_unstable();
        columns.dedup();
        columns
    }
}
