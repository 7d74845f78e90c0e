//! Columns of texts, or of bytes: codes of a dictionary, and three forms of texts themselves.
//!
//! Rows are gathered as numbers of texts: of the dictionary's entries, and behind them of what was read of pages since rows
//! were taken the last time. So views are made of entries, not of rows, and texts are checked where they are stored.
//! (parquet-format: Encodings.md, "Plain", "Delta-length byte array", "Delta Strings".)

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, DictionaryArray, GenericByteViewArray, UInt32Array};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::compute::cast;
use arrow::datatypes::{ByteViewType, DataType};
use bytes::Bytes;
use keirin_kernels::Level;
use keirin_kernels::arrow::TextEntries;
use keirin_kernels::text::LayoutError;
use parquet::basic::Encoding;
use parquet::errors::{ParquetError, Result};

use super::deltas::Deltas;
use super::flat::{Form, Reason};
use super::runs::BLOCK_ROWS;
use super::suffixes::Suffixes;

const CUT_OFF: Reason = "its texts are cut off";
/// Rows that need less than this part of their pages get buffers of their own, if pages have so many bytes: few rows of
/// many columns must not keep a page of each.
const WASTE_MAX: usize = 64;
const HELD_MIN: usize = 64 << 10;

/// See the [module](self).
pub(super) struct Texts<V> {
    level: Level,
    entries: TextEntries<V>,
    /// The type of the rows, or, if they stay codes, of the dictionary.
    data_type: DataType,
    are_codes: bool,
    /// The dictionary as rows that stay codes have it.
    dictionary: Option<ArrayRef>,
}

impl<V: ByteViewType> Texts<V> {
    /// Of rows of this type: views, or codes of texts of any type.
    pub(super) fn new(data_type: &DataType) -> Self {
        let (data_type, are_codes) = match data_type {
            DataType::Dictionary(_, of_texts) => (of_texts.as_ref().clone(), true),
            data_type => (data_type.clone(), false),
        };
        let entries = TextEntries::default();
        Self { level: Level::best(), entries, data_type, are_codes, dictionary: None }
    }

    /// As rows of the type.
    fn typed(&self, rows: Option<GenericByteViewArray<V>>) -> Result<ArrayRef> {
        let rows = rows.ok_or_else(|| ParquetError::General(CUT_OFF.to_owned()))?;
        let held: usize = rows.data_buffers().iter().map(|buffer| buffer.len()).sum();
        let rows = if held > HELD_MIN
            && rows.lengths().map(|length| length as usize).sum::<usize>() < held / WASTE_MAX
        {
            rows.gc()
        } else {
            rows
        };
        let rows: ArrayRef = Arc::new(rows);
        Ok(if *rows.data_type() == self.data_type { rows } else { cast(&rows, &self.data_type)? })
    }

    /// All texts.
    fn all(&self) -> Result<ArrayRef> {
        let numbers: Vec<u32> = (0..).take(self.entries.count()).collect();
        self.typed(self.entries.rows(self.level, &numbers, None))
    }
}

/// What is left of a page of texts themselves.
pub(super) enum TextPage {
    /// Texts from this byte on, each behind its length.
    Prefixed(Buffer, usize),
    /// Texts from this byte on, and their lengths.
    Lengths(Buffer, usize, Deltas),
    /// What is different from the text before.
    Suffixes(Suffixes),
}

fn reason(error: LayoutError) -> Reason {
    if error == LayoutError::Utf8 { "it has bytes that are no text" } else { CUT_OFF }
}

impl<V: ByteViewType> Form for Texts<V> {
    type Value = u32;
    type Plain = TextPage;

    fn reserve(&mut self, rows: usize) {
        self.entries.reserve(rows);
    }

    fn entries(&mut self, page: Bytes, count: usize) -> Result<Vec<u32>, Reason> {
        self.entries.add_prefixed(self.level, &Buffer::from(page), 0, count).map_err(reason)?;
        self.entries.keep();
        self.dictionary = None;
        Ok((0..).take(count).collect())
    }

    fn dictionary(&mut self, _: &[u32]) -> Result<ArrayRef> {
        self.all()
    }

    fn begin(&self, page: Bytes, encoding: Encoding) -> Result<Option<TextPage>, Reason> {
        Ok(Some(match encoding {
            Encoding::PLAIN => TextPage::Prefixed(page.into(), 0),
            Encoding::DELTA_LENGTH_BYTE_ARRAY => {
                let lengths = Deltas::new(page)?;
                TextPage::Lengths(lengths.rest()?.into(), 0, lengths)
            }
            Encoding::DELTA_BYTE_ARRAY => TextPage::Suffixes(Suffixes::new(page)?),
            _ => return Ok(None),
        }))
    }

    fn read(&mut self, page: &mut TextPage, out: &mut [u32]) -> Result<(), Reason> {
        let first = u32::try_from(self.entries.count())
            .map_err(|_| "it has more texts than numbers of 32 bits count")?;
        match page {
            TextPage::Prefixed(page, at) => {
                *at = self.entries.add_prefixed(self.level, page, *at, out.len()).map_err(reason)?;
            }
            TextPage::Lengths(page, at, lengths) => {
                let mut block = [0; BLOCK_ROWS];
                for some in out.chunks(BLOCK_ROWS) {
                    lengths.read(&mut block[..some.len()])?;
                    let lengths = block[..some.len()].iter().map(|length| i32::try_from(*length));
                    let lengths: Vec<i32> = lengths.collect::<Result<_, _>>().map_err(|_| CUT_OFF)?;
                    *at = self.entries.add_lengths(self.level, page, *at, &lengths).map_err(reason)?;
                }
            }
            TextPage::Suffixes(suffixes) => {
                let (mut bytes, mut lengths) = (Vec::new(), Vec::with_capacity(out.len()));
                suffixes.each(out.len(), |text| {
                    if bytes.len() + text.len() > i32::MAX as usize {
                        return Err("the texts of a batch have more than 2 GiB");
                    }
                    bytes.extend_from_slice(text);
                    lengths.push(i32::try_from(text.len()).map_err(|_| CUT_OFF)?);
                    Ok(())
                })?;
                self.entries.add_lengths(self.level, &bytes.into(), 0, &lengths).map_err(reason)?;
            }
        }
        (first..).zip(out).for_each(|(number, out)| *out = number);
        Ok(())
    }

    fn skip(&mut self, page: &mut TextPage, count: usize) -> Result<(), Reason> {
        match page {
            TextPage::Prefixed(page, at) => {
                for _ in 0..count {
                    let length = page.get(*at..).and_then(<[u8]>::first_chunk).ok_or(CUT_OFF)?;
                    *at += size_of::<u32>() + u32::from_le_bytes(*length) as usize;
                }
            }
            TextPage::Lengths(_, at, lengths) => {
                let mut block = [0; BLOCK_ROWS];
                let mut left = count;
                while left > 0 {
                    let block = &mut block[..left.min(BLOCK_ROWS)];
                    lengths.read(block)?;
                    for length in &*block {
                        *at = u32::try_from(*length)
                            .ok()
                            .and_then(|length| at.checked_add(length as usize))
                            .ok_or(CUT_OFF)?;
                    }
                    left -= block.len();
                }
            }
            TextPage::Suffixes(suffixes) => suffixes.each(count, |_| Ok(()))?,
        }
        Ok(())
    }

    fn take(&mut self, numbers: Vec<u32>, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
        if !self.are_codes {
            let rows = self.entries.take_rows(self.level, &numbers, nulls);
            return self.typed(rows);
        }
        let has_more = self.entries.count() > self.entries.kept_count();
        let texts = match self.dictionary.clone().filter(|_| !has_more) {
            Some(texts) => texts,
            None => {
                let texts = self.all()?;
                self.dictionary = (!has_more).then(|| texts.clone());
                texts
            }
        };
        self.entries.clear();
        let codes = UInt32Array::new(numbers.into(), nulls);
        Ok(Arc::new(DictionaryArray::try_new(codes, texts)?))
    }
}
