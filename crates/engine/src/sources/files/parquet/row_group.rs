//! The fetched columns of a row group: whole chunks, or only the pages with selected rows.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::array_reader::RowGroups;
use parquet::arrow::arrow_reader::RowSelection;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::column::page::PageIterator;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::page_index::offset_index::PageLocation;

use super::buffers::Buffers;
use super::decoders::{Decoders, codec};
use super::kept::consecutive;
use super::pages::{OneChunk, Pages, Place, Slot, Stored};

/// Shorter runs of selected and skipped rows are decoded and filtered rather than skipped: there the parquet
/// crate needs the pages between them too (its `RowSelectionPolicy::Auto`).
const RUN_ROWS_MIN: usize = 32;

/// The state that the readers of a stream share.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) decoders: Arc<Decoders>,
    pub(super) buffers: Buffers,
    pub(super) file_bytes: u64,
}

/// A row group whose columns have been fetched.
pub(super) struct RowGroup {
    metadata: Arc<ParquetMetaData>,
    index: usize,
    columns: Vec<Option<Stored>>,
    /// Whether all rows are read, or those between two.
    all: bool,
    shared: Shared,
}

/// What was fetched of a row group for its filters, which others may want, too.
#[derive(Default)]
pub(super) struct Fetched(Vec<(Range<u64>, Bytes)>);

impl Fetched {
    /// The bytes of these ranges, from `reader` those that are not here.
    async fn ranges(
        &mut self,
        reader: &mut dyn AsyncFileReader,
        ranges: &[Range<u64>],
    ) -> Result<Vec<Option<Bytes>>> {
        let known = ranges.iter().map(|range| self.get(range));
        let known: Vec<Option<Bytes>> = known.collect();
        let missing = ranges.iter().zip(&known).filter(|(_, known)| known.is_none());
        let missing: Vec<Range<u64>> = missing.map(|(range, _)| range.clone()).collect();
        let read =
            if missing.is_empty() { Vec::new() } else { reader.get_byte_ranges(missing.clone()).await? };
        self.0.extend(missing.into_iter().zip(read.iter().cloned()));
        let mut read = read.into_iter();
        Ok(known.into_iter().map(|known| known.or_else(|| read.next())).collect())
    }

    fn get(&self, range: &Range<u64>) -> Option<Bytes> {
        let (known, bytes) =
            self.0.iter().find(|(known, _)| known.start <= range.start && range.end <= known.end)?;
        let start = usize::try_from(range.start - known.start).ok()?;
        let end = start + usize::try_from(range.end - range.start).ok()?;
        (end <= bytes.len()).then(|| bytes.slice(start..end))
    }
}

/// A column to fetch.
struct Wanted {
    column: usize,
    ranges: Vec<Range<u64>>,
    /// The pages that the offset index lists, after the dictionary; empty if the chunk is fetched whole.
    slots: Vec<Slot>,
}

impl RowGroup {
    /// Fetches the columns in `mask` of row group `index` from a file of `file_bytes`.
    pub(super) async fn fetch(
        reader: &mut dyn AsyncFileReader,
        metadata: &Arc<ParquetMetaData>,
        index: usize,
        mask: &ProjectionMask,
        selection: Option<&RowSelection>,
        fetched: &mut Fetched,
        shared: Shared,
    ) -> Result<Self> {
        let row_group = metadata.row_group(index);
        let pages = metadata.offset_index().and_then(|index_of_all| index_of_all.get(index));
        let runs = selection.filter(|selection| has_long_runs(selection));
        let mut wanted = Vec::new();
        for (column, chunk) in row_group.columns().iter().enumerate() {
            if !mask.leaf_included(column) {
                continue;
            }
            let range =
                chunk_range(chunk, shared.file_bytes).map_err(|reason| misplaced(chunk, index, reason))?;
            let locations = pages.and_then(|pages| pages.get(column)).map(|pages| &pages.page_locations[..]);
            wanted.push(match (runs, locations) {
                (Some(runs), Some(locations @ [_, ..])) => {
                    let slots = slots(locations, &range, row_group.num_rows())
                        .map_err(|reason| misplaced(chunk, index, reason))?;
                    let dictionary = range.start..slots[0].at;
                    let mut ranges = runs.scan_ranges(locations);
                    if !dictionary.is_empty() {
                        ranges.insert(0, dictionary);
                    }
                    Wanted { column, ranges, slots }
                }
                _ => Wanted { column, ranges: vec![range], slots: Vec::new() },
            });
        }
        let ranges: Vec<_> = wanted.iter().flat_map(|wanted| wanted.ranges.iter().cloned()).collect();
        let mut fetched = fetched.ranges(reader, &ranges).await?.into_iter();
        let mut columns = vec![None; row_group.num_columns()];
        for Wanted { column, ranges, slots } in wanted {
            let chunk = row_group.column(column);
            let mut parts = Vec::with_capacity(ranges.len());
            for range in &ranges {
                let bytes =
                    fetched.next().flatten().filter(|bytes| bytes.len() as u64 == range.end - range.start);
                parts.push(bytes.ok_or_else(|| misplaced(chunk, index, "the file has been cut off since"))?);
            }
            columns[column] = Some(match slots.is_empty() {
                true => Stored::Whole {
                    at: ranges[0].start,
                    bytes: parts.swap_remove(0),
                    values: u64::try_from(chunk.num_values()).unwrap_or(0),
                },
                false => Stored::Listed {
                    slots: listed(slots, &ranges, parts),
                    is_flat: chunk.column_descr().max_rep_level() == 0,
                },
            });
        }
        let all = selection.is_none_or(|selection| consecutive(selection).is_some());
        Ok(Self { metadata: metadata.clone(), index, columns, all, shared })
    }
}

/// Puts the fetched bytes into their slots, and a dictionary page in front.
fn listed(mut slots: Vec<Slot>, ranges: &[Range<u64>], parts: Vec<Bytes>) -> VecDeque<Slot> {
    if ranges.first().is_some_and(|range| range.start < slots[0].at) {
        slots.insert(0, Slot { at: ranges[0].start, rows: None, bytes: None });
    }
    for (range, bytes) in ranges.iter().zip(parts) {
        if let Ok(slot) = slots.binary_search_by_key(&range.start, |slot| slot.at) {
            slots[slot].bytes = Some(bytes);
        }
    }
    slots.into()
}

/// Whether the parquet crate will skip rows by counting them (`RowSelectionStrategy::Selectors`).
fn has_long_runs(selection: &RowSelection) -> bool {
    let mut runs = 0;
    let rows: usize =
        selection.iter().map(|run| run.row_count).inspect(|rows| runs += usize::from(*rows > 0)).sum();
    runs > 0 && rows / runs >= RUN_ROWS_MIN
}

/// The byte range of a column chunk in the file.
pub(super) fn chunk_range(
    chunk: &ColumnChunkMetaData,
    file_bytes: u64,
) -> std::result::Result<Range<u64>, &'static str> {
    let start = chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset());
    let outside = "the footer puts it outside of the file";
    let start = u64::try_from(start).map_err(|_| outside)?;
    let bytes = u64::try_from(chunk.compressed_size()).map_err(|_| outside)?;
    let end = start.checked_add(bytes).filter(|end| *end <= file_bytes).ok_or(outside)?;
    Ok(start..end)
}

/// The pages of a chunk as the offset index lists them, if they follow each other within the chunk and their
/// rows add up.
fn slots(
    locations: &[PageLocation],
    chunk: &Range<u64>,
    rows: i64,
) -> std::result::Result<Vec<Slot>, &'static str> {
    if locations.first().is_some_and(|first| first.first_row_index != 0) {
        return Err("its offset index is damaged: its first page does not begin with the first row");
    }
    let (mut end, mut slots) = (chunk.start, Vec::with_capacity(locations.len()));
    for (index, location) in locations.iter().enumerate() {
        let next_row = locations.get(index + 1).map_or(rows, |next| next.first_row_index);
        let page_rows = next_row.checked_sub(location.first_row_index);
        let page_rows = page_rows.and_then(|rows| usize::try_from(rows).ok());
        let at = u64::try_from(location.offset).ok().filter(|at| *at >= end);
        let bytes = u64::try_from(location.compressed_page_size).ok();
        let (Some(page_rows), Some(at), Some(bytes)) = (page_rows, at, bytes) else {
            return Err("its offset index is damaged: its pages are not in order");
        };
        end = at.saturating_add(bytes);
        if end > chunk.end {
            return Err("its offset index is damaged: a page is outside of the column");
        }
        slots.push(Slot { at, rows: Some(page_rows), bytes: None });
    }
    Ok(slots)
}

fn misplaced(chunk: &ColumnChunkMetaData, row_group: usize, reason: &str) -> ParquetError {
    let column = chunk.column_path().string();
    ParquetError::General(format!("column '{column}' in row group {row_group}: {reason}"))
}

impl RowGroup {
    pub(super) fn rows(&self) -> usize {
        usize::try_from(self.metadata.row_group(self.index).num_rows()).unwrap_or(0)
    }

    /// Whether all pages of the columns were fetched.
    pub(super) fn is_whole(&self) -> bool {
        self.columns.iter().flatten().all(|stored| matches!(stored, Stored::Whole { .. }))
    }

    pub(super) fn chunk(&self, column: usize) -> &ColumnChunkMetaData {
        self.metadata.row_group(self.index).column(column)
    }

    pub(super) fn place(&self, column: usize) -> Place {
        Place { column: self.chunk(column).column_path().string().into(), row_group: self.index }
    }

    /// The pages of a column that was fetched.
    pub(super) fn pages(&self, column: usize) -> Result<Pages> {
        let chunk = self.chunk(column);
        let missing = |what| ParquetError::General(format!("column {column} {what}"));
        let codec = codec(chunk.compression()).ok_or_else(|| missing("has another codec"))?;
        let stored = self.columns[column].clone().ok_or_else(|| missing("was not fetched"))?;
        let Shared { decoders, buffers, .. } = self.shared.clone();
        Ok(Pages::new(self.place(column), stored, codec, decoders, buffers, self.all))
    }
}

impl RowGroups for RowGroup {
    fn num_rows(&self) -> usize {
        self.rows()
    }

    fn column_chunks(&self, column: usize) -> Result<Box<dyn PageIterator>> {
        let described = self.chunk(column).column_descr();
        let levels_max = [described.max_rep_level(), described.max_def_level()];
        Ok(Box::new(OneChunk(Some(self.pages(column)?.checked(levels_max)))))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(std::iter::once(self.metadata.row_group(self.index)))
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }
}
