//! The pages of a column chunk, decompressed by our loops, several at a time.
//!
//! The fetched bytes are either a whole chunk, whose pages are found by their headers, or some of its pages,
//! found by the offset index. Pages are decompressed when they are requested, a batch at once, because the
//! loops decompress two blocks side by side; but never pages that a selection might skip. So a reader holds
//! few decompressed pages, which stay in the cache until their values are read.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use keirin_codecs::blocks::{Codec, Decoder, Error as BlockError};
use parquet::column::page::{Page, PageIterator, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};

use super::buffers::{Buffers, Lent};
use super::decoders::Decoders;
use super::header::{PageHeader, PageKind};
use super::levels::{self, LevelsMax};

/// The most pages of a batch, and the decompressed bytes at which a batch ends: all but its last page have
/// fewer together.
const BATCH_PAGES: usize = 8;
const BATCH_BYTES: usize = 512 << 10;

/// The error of a page whose checksum differs from the one that was written with it.
pub(crate) const WRONG_CHECKSUM: &str =
    "it is damaged: it does not have the checksum that was written with it";

/// A page of a column chunk that was fetched, or skipped.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    /// Its offset in the file.
    pub(super) at: u64,
    /// The rows of the page; `None` for the dictionary page.
    pub(super) rows: Option<usize>,
    pub(super) bytes: Option<Bytes>,
}

/// The stored bytes of a column chunk.
#[derive(Clone, Debug)]
pub(super) enum Stored {
    /// All pages, one after the other, from offset `at` of the file; `values` of them are still to come.
    Whole { at: u64, bytes: Bytes, values: u64 },
    /// The pages that an offset index lists; `is_flat` if every row is one value.
    Listed { slots: VecDeque<Slot>, is_flat: bool },
}

/// The column and row group of pages, for errors.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) column: Arc<str>,
    pub(super) row_group: usize,
}

/// The pages of a column chunk.
pub(super) struct Pages {
    place: Place,
    stored: Stored,
    codec: Codec,
    /// Chosen with the first page.
    decoder: Option<Arc<Decoder>>,
    decoders: Arc<Decoders>,
    buffers: Buffers,
    /// Whether all pages will be requested.
    all: bool,
    /// Of a column whose pages the parquet crate reads.
    checked: Option<LevelsMax>,
    /// The next page, if its header was already read.
    peeked: Option<Found>,
    /// Pages that were decompressed ahead; an error is always the last.
    ready: VecDeque<Result<Page>>,
}

/// A page as stored.
struct Found {
    at: u64,
    header: PageHeader,
    bytes: Bytes,
}

/// A page to be decompressed: the size of its levels, which come first and are not compressed; and the output
/// buffer, unless the page is stored uncompressed.
struct Work {
    page: Found,
    levels: usize,
    output: Option<Lent>,
}

impl Pages {
    pub(super) fn new(
        place: Place,
        stored: Stored,
        codec: Codec,
        decoders: Arc<Decoders>,
        buffers: Buffers,
        all: bool,
    ) -> Self {
        let (peeked, ready) = (None, VecDeque::new());
        Self { place, stored, codec, decoder: None, decoders, buffers, all, checked: None, peeked, ready }
    }

    /// The same pages, checked for readers that trust them.
    pub(super) fn checked(self, levels_max: LevelsMax) -> Self {
        Self { checked: Some(levels_max), ..self }
    }

    fn error(&self, at: u64, reason: impl std::fmt::Display) -> ParquetError {
        let Place { column, row_group } = &self.place;
        ParquetError::General(format!(
            "column '{column}' in row group {row_group}, the page at byte {at}: {reason}"
        ))
    }

    /// The next dictionary or data page.
    fn find(&mut self) -> Result<Option<Found>> {
        if let Some(found) = self.peeked.take() {
            return Ok(Some(found));
        }
        loop {
            let (at, bytes, rows) = match &mut self.stored {
                Stored::Whole { bytes, values: 0, .. } if bytes.is_empty() => return Ok(None),
                Stored::Whole { at, bytes, .. } => (*at, bytes.clone(), None),
                Stored::Listed { slots, .. } => match slots.pop_front() {
                    Some(Slot { at, rows, bytes: Some(bytes) }) => (at, bytes, rows),
                    Some(Slot { at, .. }) => return Err(self.error(at, "it was not fetched")),
                    None => return Ok(None),
                },
            };
            let header = PageHeader::parse(&bytes).map_err(|reason| self.error(at, reason))?;
            let page = header.header_bytes;
            let rest = bytes.len() - page;
            if header.stored_bytes > rest {
                let reason = format!("its header declares {} bytes where {rest} are", header.stored_bytes);
                return Err(self.error(at, reason));
            }
            let end = page + header.stored_bytes;
            let place = at;
            let is_sound = match (&mut self.stored, header.kind) {
                (Stored::Whole { at, bytes: rest, values: left }, kind) => {
                    *at += end as u64;
                    *rest = bytes.slice(end..);
                    let is_enough = left.checked_sub(kind.values());
                    *left = is_enough.unwrap_or(0);
                    is_enough.is_some()
                }
                (Stored::Listed { .. }, PageKind::Dictionary { .. }) => rows.is_none(),
                (Stored::Listed { .. }, PageKind::V2 { rows: found, .. }) => rows == Some(found as usize),
                (Stored::Listed { is_flat, .. }, PageKind::V1 { values, .. }) => {
                    rows.is_some() && (!*is_flat || rows == Some(values as usize))
                }
                (Stored::Listed { .. }, PageKind::Index) => false,
            };
            if !is_sound {
                return Err(self.error(place, "its header declares other rows than the column has there"));
            }
            if header.kind != PageKind::Index {
                return Ok(Some(Found { at, header, bytes: bytes.slice(page..end) }));
            }
        }
    }

    /// Whether the next page may be decompressed before it is requested.
    fn may_go_ahead(&self) -> bool {
        match &self.stored {
            Stored::Whole { .. } => self.all,
            // Pages without selected rows were not fetched.
            Stored::Listed { slots, .. } => slots.front().is_some_and(|slot| slot.bytes.is_some()),
        }
    }

    /// Decompresses the next batch of pages into `ready`.
    fn fill(&mut self) -> Result<()> {
        let is_raced = matches!(self.codec, Codec::Lz4 | Codec::Snappy);
        let pages = if is_raced { BATCH_PAGES } else { 1 };
        let mut batch = Vec::new();
        let (mut bytes, mut outcome) = (0, Ok(()));
        while batch.is_empty() || batch.len() < pages && bytes < BATCH_BYTES && self.may_go_ahead() {
            match self.find().and_then(|found| found.map(|page| self.prepare(page)).transpose()) {
                Ok(Some(work)) => {
                    bytes += work.page.header.decoded_bytes;
                    batch.push(work);
                }
                Ok(None) => break,
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        self.decompress(batch);
        outcome
    }

    /// Checks the page before a buffer is allocated for it, and takes that buffer.
    fn prepare(&self, page: Found) -> Result<Work> {
        let PageHeader { decoded_bytes, checksum, kind, .. } = page.header;
        let error = |reason: &dyn std::fmt::Display| self.error(page.at, reason);
        if checksum.is_some_and(|checksum| checksum != crc32fast::hash(&page.bytes)) {
            return Err(error(&WRONG_CHECKSUM));
        }
        let (levels, is_compressed) = match kind {
            PageKind::V2 { definition_bytes, repetition_bytes, is_compressed, .. } => {
                ((definition_bytes as usize).saturating_add(repetition_bytes as usize), is_compressed)
            }
            _ => (0, true),
        };
        let is_compressed = is_compressed && self.codec != Codec::None;
        let end = if is_compressed { page.bytes.len().min(decoded_bytes) } else { page.bytes.len() };
        if levels > end {
            return Err(error(&format!(
                "its header declares {levels} bytes of levels where {end} bytes are"
            )));
        }
        if !is_compressed {
            return Ok(Work { page, levels, output: None });
        }
        // A page without values has no block, not even an empty one.
        if levels < decoded_bytes
            && self.codec.check_size(&page.bytes[levels..], decoded_bytes - levels).is_err()
        {
            let (stored, codec) = (page.bytes.len(), self.codec.name());
            let reason = format!(
                "its header declares {decoded_bytes} bytes, which its {stored} bytes of {codec} are not"
            );
            return Err(error(&reason));
        }
        let mut output = self.buffers.take(decoded_bytes);
        output.as_mut(levels).copy_from_slice(&page.bytes[..levels]);
        Ok(Work { page, levels, output: Some(output) })
    }

    /// Decompresses `batch` into `ready`, up to the first damaged page.
    fn decompress(&mut self, mut batch: Vec<Work>) {
        let mut blocks = Vec::new();
        let mut numbers = Vec::new();
        for (number, Work { page, levels, output }) in batch.iter_mut().enumerate() {
            let size = page.header.decoded_bytes;
            // A page without values has no block, not even an empty one.
            if let Some(output) = output.as_mut().filter(|_| *levels < size) {
                blocks.push((&page.bytes[*levels..], &mut output.as_mut(size)[*levels..]));
                numbers.push(number);
            }
        }
        let mut failed: Option<(usize, BlockError)> = None;
        if let Some((first, _)) = blocks.first() {
            let decoder = self
                .decoder
                .get_or_insert_with(|| self.decoders.decoder(self.codec, &self.place.column, first))
                .clone();
            decoder.decompress_batch(blocks, |index, error| {
                let number = numbers[index];
                if failed.as_ref().is_none_or(|(first, _)| number < *first) {
                    failed = Some((number, error));
                }
            });
        }
        for (number, Work { page, output, .. }) in batch.into_iter().enumerate() {
            if let Some((_, error)) = failed.as_ref().filter(|(failed, _)| *failed == number) {
                self.ready.push_back(Err(self.error(page.at, error)));
                return;
            }
            let size = page.header.decoded_bytes;
            let bytes = output.map_or(page.bytes, |output| output.into_bytes(size));
            let Some(decoded) = page.header.kind.page(bytes) else { continue };
            let checked = self.checked.map_or(Ok(()), |levels_max| levels::check(&decoded, levels_max));
            self.ready.push_back(checked.map(|()| decoded).map_err(|reason| self.error(page.at, reason)));
            if checked.is_err() {
                return;
            }
        }
    }

    /// Returns an error, after which there are no more pages.
    fn fail<T>(&mut self, error: ParquetError) -> Result<T> {
        self.stored = Stored::Listed { slots: VecDeque::new(), is_flat: true };
        self.peeked = None;
        self.ready.clear();
        Err(error)
    }
}

impl PageKind {
    /// The page with its decompressed bytes `buf`.
    fn page(self, buf: Bytes) -> Option<Page> {
        Some(match self {
            Self::Dictionary { values, encoding, is_sorted } => {
                Page::DictionaryPage { buf, num_values: values, encoding, is_sorted }
            }
            Self::V1 { values, encoding, definition_levels, repetition_levels } => Page::DataPage {
                buf,
                num_values: values,
                encoding,
                def_level_encoding: definition_levels,
                rep_level_encoding: repetition_levels,
                statistics: None,
            },
            Self::V2 { values, nulls, rows, encoding, definition_bytes, repetition_bytes, .. } => {
                Page::DataPageV2 {
                    buf,
                    num_values: values,
                    encoding,
                    num_nulls: nulls,
                    num_rows: rows,
                    def_levels_byte_len: definition_bytes,
                    rep_levels_byte_len: repetition_bytes,
                    is_compressed: false,
                    statistics: None,
                }
            }
            Self::Index => return None,
        })
    }

    /// How many values of the column the page has.
    fn values(self) -> u64 {
        match self {
            Self::V1 { values, .. } | Self::V2 { values, .. } => values.into(),
            Self::Dictionary { .. } | Self::Index => 0,
        }
    }

    fn metadata(self) -> PageMetadata {
        let is_dict = matches!(self, Self::Dictionary { .. });
        let (num_rows, num_levels) = match self {
            Self::V1 { values, .. } => (None, Some(values as usize)),
            Self::V2 { values, rows, .. } => (Some(rows as usize), Some(values as usize)),
            Self::Dictionary { .. } | Self::Index => (None, None),
        };
        PageMetadata { num_rows, num_levels, is_dict }
    }
}

/// The metadata by which the reader of values decides whether to read or skip a page.
fn metadata(page: &Page) -> PageMetadata {
    let values = Some(page.num_values() as usize);
    let (num_rows, num_levels) = match page {
        Page::DataPage { .. } => (None, values),
        Page::DataPageV2 { num_rows, .. } => (Some(*num_rows as usize), values),
        Page::DictionaryPage { .. } => (None, None),
    };
    PageMetadata { num_rows, num_levels, is_dict: page.is_dictionary_page() }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        if self.ready.is_empty()
            && let Err(error) = self.fill()
        {
            self.ready.push_back(Err(error));
        }
        match self.ready.pop_front().transpose() {
            Err(error) => self.fail(error),
            page => page,
        }
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        match self.ready.front() {
            Some(Ok(page)) => return Ok(Some(metadata(page))),
            // The error is returned when the page is read.
            Some(Err(_)) => {
                return Ok(Some(PageMetadata { num_rows: None, num_levels: None, is_dict: false }));
            }
            None => {}
        }
        if let Stored::Listed { slots, .. } = &self.stored {
            let metadata = |slot: &Slot| PageMetadata {
                num_rows: slot.rows,
                num_levels: None,
                is_dict: slot.rows.is_none(),
            };
            return Ok(slots.front().map(metadata));
        }
        match self.find() {
            Ok(found) => {
                self.peeked = found;
                Ok(self.peeked.as_ref().map(|page| page.header.kind.metadata()))
            }
            Err(error) => self.fail(error),
        }
    }

    fn skip_next_page(&mut self) -> Result<()> {
        if self.ready.pop_front().is_some() {
            return Ok(());
        }
        if let Stored::Listed { slots, .. } = &mut self.stored {
            slots.pop_front();
            return Ok(());
        }
        self.find().map(|_| ()).or_else(|error| self.fail(error))
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        if matches!(self.stored, Stored::Listed { .. }) {
            return Ok(true);
        }
        // Pages of version 2 begin with a whole row.
        Ok(self.peek_next_page()?.is_none_or(|page| page.num_rows.is_some()))
    }
}

impl Iterator for Pages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

/// An iterator over the only chunk of a column in a row group.
pub(super) struct OneChunk(pub(super) Option<Pages>);

impl Iterator for OneChunk {
    type Item = Result<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.take().map(|pages| Ok(Box::new(pages) as _))
    }
}

impl PageIterator for OneChunk {}

#[cfg(test)]
mod tests {
    use super::*;

    /// An integer field of the compact protocol, whose number is `delta` more than that of the field before.
    fn field(delta: u8, value: i64, out: &mut Vec<u8>) {
        out.push(delta << 4 | 5);
        let mut zigzag = (value << 1 ^ value >> 63).cast_unsigned();
        while zigzag >= 0x80 {
            out.push(zigzag.to_le_bytes()[0] | 0x80);
            zigzag >>= 7;
        }
        out.push(zigzag.to_le_bytes()[0]);
    }

    /// A page of version 1 as stored: PLAIN values.
    fn page(decoded: usize, stored: &[u8], checksum: Option<u32>) -> Vec<u8> {
        let mut out = Vec::new();
        for value in [0, decoded as i64, stored.len() as i64] {
            field(1, value, &mut out);
        }
        if let Some(checksum) = checksum {
            field(1, i64::from(checksum.cast_signed()), &mut out);
        }
        out.push(if checksum.is_some() { 0x1C } else { 0x2C });
        [1, 0, 3, 3].into_iter().for_each(|value| field(1, value, &mut out));
        out.extend([0, 0]);
        out.extend(stored);
        out
    }

    /// A page of version 2: two bytes of levels, then values.
    fn page_v2(levels: i64, decoded: usize, stored: &[u8], is_compressed: bool) -> Vec<u8> {
        let mut out = Vec::new();
        for value in [3, decoded as i64, stored.len() as i64] {
            field(1, value, &mut out);
        }
        out.push(0x5C);
        [1, 0, 1, 0, levels, 0].into_iter().for_each(|value| field(1, value, &mut out));
        out.extend([if is_compressed { 0x11 } else { 0x12 }, 0, 0]);
        out.extend(stored);
        out
    }

    fn pages(codec: Codec, stored: Stored, all: bool) -> Pages {
        let place = Place { column: "c".into(), row_group: 7 };
        let decoders = Arc::new(Decoders::new(Arc::default()));
        Pages::new(place, stored, codec, decoders, Buffers::default(), all)
    }

    fn whole(at: u64, chunk: &[u8], values: usize) -> Stored {
        Stored::Whole { at, bytes: Bytes::copy_from_slice(chunk), values: values as u64 }
    }

    /// The decompressed pages, of one value each, of a chunk at byte 100 of a file, and the error that ended
    /// them.
    fn read(codec: Codec, chunk: &[u8], count: usize) -> (Vec<Vec<u8>>, Option<String>) {
        let mut pages = pages(codec, whole(100, chunk, count), true);
        let mut read = Vec::new();
        loop {
            match pages.get_next_page() {
                Ok(Some(page)) => read.push(page.buffer().to_vec()),
                Ok(None) => return (read, None),
                Err(error) => {
                    assert!(pages.next().is_none(), "nothing comes after an error");
                    return (read, Some(error.to_string()));
                }
            }
        }
    }

    /// Compressible values of different lengths.
    fn values(count: usize) -> Vec<Vec<u8>> {
        (1..=count).map(|number| format!("value {number}, ").into_bytes().repeat(700 * number)).collect()
    }

    const CODECS: [Codec; 4] = [Codec::None, Codec::Snappy, Codec::Lz4, Codec::Zstd(3)];

    #[test]
    fn pages_come_as_they_were_written() {
        for codec in CODECS {
            let expected = values(21);
            let mut chunk = Vec::new();
            for (number, values) in expected.iter().enumerate() {
                let stored = codec.compress(values).unwrap();
                let checksum = (number % 2 == 0).then(|| crc32fast::hash(&stored));
                chunk.extend(page(values.len(), &stored, checksum));
            }
            assert_eq!(read(codec, &chunk, 21), (expected, None), "{codec:?}");
        }
    }

    #[test]
    fn levels_of_second_version_pages_are_not_compressed() {
        for codec in CODECS {
            let values = &values(3)[2];
            let stored = [b"LV", &codec.compress(values).unwrap()[..]].concat();
            let plain = [b"LV", &values[..]].concat();
            let empty = page_v2(2, 2, b"LV", true);
            let chunk =
                [page_v2(2, plain.len(), &stored, true), page_v2(2, plain.len(), &plain, false), empty];
            let expected = vec![plain.clone(), plain, b"LV".to_vec()];
            assert_eq!(read(codec, &chunk.concat(), 3), (expected, None), "{codec:?}");
        }
    }

    #[test]
    fn damage_is_named_with_its_place_and_pages_before_it_are_read() {
        for codec in CODECS {
            let good = &values(4)[3];
            let stored = codec.compress(good).unwrap();
            let first = page(good.len(), &stored, None);
            let check = |bad: &[u8], part: &str| {
                let (read, error) = read(codec, &[&first, bad].concat(), 2);
                assert_eq!(read, std::slice::from_ref(good), "{codec:?} {part}");
                let error = error.expect(part);
                let place = format!("column 'c' in row group 7, the page at byte {}: ", 100 + first.len());
                assert!(error.contains(&place) && error.contains(part), "{codec:?}: {error}");
            };
            check(&page(good.len(), &stored, Some(1)), "checksum");
            check(&first[..first.len() - 1], "its header declares");
            check(&first[..3], "its header is cut off");
            check(&[], "its header is cut off");
            let unknown = [&[0x15, 126], &first[2..]].concat();
            check(&unknown, "its type is unknown");
            check(&page_v2(-1, good.len(), &stored, true), "negative count");
            check(&page_v2(1 << 30, good.len(), &stored, true), "bytes of levels");
            if codec != Codec::None {
                check(&page(usize::try_from(i32::MAX).unwrap(), &stored[..9], None), "which its 9 bytes");
                check(&page(good.len() + 1, &stored, None), "");
                check(&page(good.len(), &stored[..stored.len() - 1], None), "");
            }
        }
    }

    #[test]
    fn a_chunk_has_as_many_values_as_its_pages() {
        let (good, bytes) = (b"good".to_vec(), page(4, b"good", None));
        let check = |chunk: &[&[u8]], count: usize, expected: &str| {
            let (pages, error) = read(Codec::None, &chunk.concat(), count);
            assert_eq!(pages, std::slice::from_ref(&good), "{expected}");
            let error = error.expect(expected);
            assert!(error.contains(expected), "{error}");
        };
        check(&[&bytes, &bytes], 1, "declares other rows");
        check(&[&bytes], 2, "its header is cut off");
        // The same bytes as a page of an index, which is skipped.
        let index = [&[0x15, 2], &bytes[2..]].concat();
        check(&[&bytes, &index], 2, "its header is cut off");
        assert_eq!(read(Codec::None, &[index, bytes].concat(), 1), (vec![good], None));
    }

    #[test]
    fn every_flipped_bit_gives_pages_or_an_error() {
        for codec in CODECS {
            let stored = codec.compress(&b"abcdefgh".repeat(40)).unwrap();
            let chunk = [page(320, &stored, None), page_v2(0, 320, &stored, true)].concat();
            for bit in 0..chunk.len() * 8 {
                let mut damaged = chunk.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                let (read, error) = read(codec, &damaged, 2);
                assert!(error.is_some() || read.len() == 2, "{codec:?} bit {bit}: pages are lost");
                let most = codec.decompressed_max(chunk.len());
                assert!(read.iter().all(|page| page.len() as u64 <= most), "{codec:?} bit {bit}");
            }
        }
    }

    #[test]
    fn listed_pages_are_skipped_without_their_bytes() {
        let expected = values(5);
        let slot = |number: usize, is_fetched: bool| {
            let stored = Codec::Snappy.compress(&expected[number]).unwrap();
            let bytes = is_fetched.then(|| page(expected[number].len(), &stored, None).into());
            Slot { at: number as u64, rows: Some(10 + number), bytes }
        };
        let slots = [slot(0, true), slot(1, false), slot(2, true), slot(3, true), slot(4, false)];
        let mut pages = pages(Codec::Snappy, Stored::Listed { slots: slots.into(), is_flat: false }, false);
        for (number, is_read) in [true, false, true, true].into_iter().enumerate() {
            assert!(pages.at_record_boundary().unwrap());
            let peeked = pages.peek_next_page().unwrap().unwrap();
            assert!(peeked.num_rows.is_none_or(|rows| rows == 10 + number), "{number}");
            match is_read {
                true => assert_eq!(pages.get_next_page().unwrap().unwrap().buffer()[..], expected[number]),
                false => pages.skip_next_page().unwrap(),
            }
        }
        let error = pages.get_next_page().unwrap_err().to_string();
        assert!(error.contains("page at byte 4: it was not fetched"), "{error}");
    }

    #[test]
    fn a_listed_page_has_the_rows_of_the_list() {
        let plain = b"values";
        let check = |page: Vec<u8>, rows: Option<usize>, is_flat: bool, is_sound: bool| {
            let slots = [Slot { at: 4, rows, bytes: Some(page.into()) }].into();
            let mut pages = pages(Codec::None, Stored::Listed { slots, is_flat }, false);
            assert_eq!(pages.get_next_page().is_ok(), is_sound, "{rows:?} {is_flat}");
        };
        check(page(plain.len(), plain, None), Some(1), true, true);
        check(page(plain.len(), plain, None), Some(2), true, false);
        check(page(plain.len(), plain, None), Some(2), false, true);
        check(page(plain.len(), plain, None), None, false, false);
        check(page_v2(0, plain.len(), plain, false), Some(1), false, true);
        check(page_v2(0, plain.len(), plain, false), Some(2), false, false);
        check(Vec::new(), Some(1), false, false);
    }

    #[test]
    fn peeking_does_not_decompress_and_skipping_takes_the_page_that_was_seen() {
        let good = &values(1)[0];
        let stored = Codec::Lz4.compress(good).unwrap();
        let chunk = [page(good.len(), b"damaged", None), page(good.len(), &stored, None)].concat();
        let mut pages = pages(Codec::Lz4, whole(0, &chunk, 2), false);
        assert_eq!(pages.peek_next_page().unwrap().unwrap().num_levels, Some(1));
        pages.skip_next_page().unwrap();
        assert!(!pages.at_record_boundary().unwrap(), "the first version does not say it");
        assert_eq!(pages.get_next_page().unwrap().unwrap().buffer()[..], good[..]);
        assert!(pages.peek_next_page().unwrap().is_none());
        assert!(pages.at_record_boundary().unwrap());
    }
}
