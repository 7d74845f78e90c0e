//! One string for all rows.
//!
//! ```text
//! | byte count: u32 | bytes |
//! ```

use std::fmt;
use std::ops::Range;

use keirin_kernels::text::Text;
use keirin_kernels::{BitBuffer, Level, Selection};

use super::{Buffer, Dictionary, Node, Rows, TEXT_BYTES_MAX, Test, check_bytes, offset, run_test};
use crate::Result;
use crate::encodings::same_bits;
use crate::reader::Reader;
use crate::writer::Writer;

/// The string of the first row; empty if there is none.
fn first<'a>(rows: &Rows<'a>) -> &'a [u8] {
    let (offsets, bytes) = (rows.offsets(), rows.bytes());
    offsets.get(1).map_or(&[], |end| &bytes[offsets[0] as usize..*end as usize])
}

pub(super) fn is_constant(rows: Rows<'_>) -> bool {
    let first = first(&rows);
    (1..rows.row_count()).all(|row| rows.row(row) == first)
}

pub(super) fn write(writer: &mut Writer, rows: Rows<'_>) -> bool {
    if !is_constant(rows) {
        return false;
    }
    let value = first(&rows);
    writer.count(value.len());
    writer.bytes.extend_from_slice(value);
    true
}

#[derive(Debug)]
pub(super) struct Constant<'a> {
    value: &'a [u8],
    count: usize,
}

impl<'a> Constant<'a> {
    pub(super) fn open(reader: &mut Reader<'a>, count: usize) -> Result<Self> {
        let byte_count = reader.count(TEXT_BYTES_MAX, "more text than a block has")?;
        Ok(Self { value: reader.take(byte_count)?, count })
    }

    fn repeat(&self, count: usize, byte_limit: usize) -> Result<Buffer> {
        check_bytes(self.value.len().saturating_mul(count), byte_limit)?;
        let offsets = (0..=count).map(|row| offset(row * self.value.len())).collect();
        Ok(Buffer { offsets, bytes: self.value.repeat(count) })
    }
}

impl Node for Constant<'_> {
    fn len(&self) -> usize {
        self.count
    }

    fn decode_into(&self, _: Level, rows: Range<usize>, byte_limit: usize, out: &mut Buffer) -> Result<()> {
        *out = self.repeat(rows.len(), byte_limit)?;
        Ok(())
    }

    fn take(&self, _: Level, rows: &[u32], byte_limit: usize) -> Result<Buffer> {
        self.repeat(rows.len(), byte_limit)
    }

    fn test(&self, level: Level, byte_limit: usize, test: &mut Test<'_>) -> Result<BitBuffer> {
        let one = self.repeat(1, byte_limit)?;
        let found = run_test(test, one.rows(level));
        Ok(same_bits(found.as_bits().get(0), self.count))
    }

    fn lengths(&self, _: Level) -> Result<Vec<i32>> {
        Ok(vec![offset(self.value.len()); self.count])
    }

    fn dictionary(
        &self,
        level: Level,
        selection: Selection<'_>,
        byte_limit: usize,
    ) -> Result<Option<Dictionary>> {
        let codes = vec![0; selection.count(level, self.count)];
        Ok(Some(Dictionary { codes, entries: self.repeat(1, byte_limit)? }))
    }

    fn decode_ns(&self) -> f64 {
        self.count as f64 * 0.2
    }

    fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("constant")
    }
}
