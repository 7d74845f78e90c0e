//! The ends of rows, and the bytes of all of them.
//!
//! ```text
//! | byte count: u32 | ends, one a row | bytes |
//!                     `--- a column --'
//! ```
//! The ends are mostly encoded as deltas, that is as packed lengths; for strings of equal length these take
//! no bits.

use std::fmt;
use std::ops::Range;

use keirin_kernels::text::{Strings, Text};
use keirin_kernels::{BitBuffer, Level};

use super::{Buffer, Ends, Node, Rows, TEXT_BYTES_MAX, Test, check_bytes, rebase, run_test};
use crate::Result;
use crate::reader::Reader;
use crate::writer::Writer;

/// The offsets of rows relative to the first row, and the bytes of all rows.
pub(super) fn ends_and_bytes<'a>(rows: Rows<'a>) -> (Vec<i32>, &'a [u8]) {
    let offsets = rows.offsets();
    let (first, last) = (offsets[0], offsets[rows.row_count()]);
    let ends = offsets[1..].iter().map(|end| end - first).collect();
    (ends, &rows.bytes()[first as usize..last as usize])
}

pub(super) fn write(writer: &mut Writer, rows: Rows<'_>) -> bool {
    if !writer.may_nest() {
        return false;
    }
    let (ends, bytes) = ends_and_bytes(rows);
    writer.count(bytes.len());
    Ends::write(writer, &ends);
    writer.bytes.extend_from_slice(bytes);
    true
}

#[derive(Debug)]
pub(super) struct Raw<'a> {
    ends: Ends<'a>,
    bytes: &'a [u8],
    count: usize,
}

impl<'a> Raw<'a> {
    pub(super) fn open(reader: &mut Reader<'a>, count: usize) -> Result<Self> {
        let byte_count = reader.count(TEXT_BYTES_MAX, "more text than a block has")?;
        let ends = Ends::open(reader, count, byte_count)?;
        Ok(Self { ends, bytes: reader.take(byte_count)?, count })
    }
}

impl Node for Raw<'_> {
    fn len(&self) -> usize {
        self.count
    }

    fn decode_into(
        &self,
        level: Level,
        rows: Range<usize>,
        byte_limit: usize,
        out: &mut Buffer,
    ) -> Result<()> {
        self.ends.offsets_into(level, rows.clone(), &mut out.offsets)?;
        let bytes = &self.bytes[out.offsets[0] as usize..out.offsets[rows.len()] as usize];
        check_bytes(bytes.len(), byte_limit)?;
        rebase(&mut out.offsets);
        out.bytes.clear();
        out.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn take(&self, level: Level, rows: &[u32], byte_limit: usize) -> Result<Buffer> {
        let mut buffer = Buffer::with_capacity(rows.len());
        for range in self.ends.ranges(level, rows)? {
            buffer.push(&self.bytes[range], byte_limit)?;
        }
        Ok(buffer)
    }

    fn test(&self, level: Level, _: usize, test: &mut Test<'_>) -> Result<BitBuffer> {
        let mut offsets = Vec::new();
        self.ends.offsets_into(level, 0..self.count, &mut offsets)?;
        let rows = Strings::new(level, &offsets, self.bytes).expect("offsets that were checked");
        Ok(run_test(test, rows))
    }

    fn lengths(&self, level: Level) -> Result<Vec<i32>> {
        self.ends.lengths(level, self.count)
    }

    fn as_bytes(&self, level: Level, offsets: &mut Vec<i32>) -> Result<Option<&[u8]>> {
        self.ends.offsets_into(level, 0..self.count, offsets)?;
        Ok(Some(&self.bytes[..offsets[self.count] as usize]))
    }

    fn decode_ns(&self) -> f64 {
        self.ends.decode_ns() + self.bytes.len() as f64 * 0.04
    }

    fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("raw")
    }
}
