//! Cuts a JSON file into chunks of whole records.
//!
//! A file has one of three layouts, told from its beginning: one record a line, one array of records, or
//! records that span lines, one after the other. Lines are cut at line ends, at the speed of memory; the
//! other two by following braces and quotes.

use std::io::Read;
use std::ops::Deref;
use std::sync::Arc;

use keirin_kernels::{Level, json};
use memchr::{memchr_iter, memrchr};
use parking_lot::Mutex;
use serde::de::IgnoredAny;

use crate::error::{Error, ErrorKind, Result};
use crate::sources::files::decompress::PlainReader;
use crate::sources::files::failure::{damaged, io_failed};
use crate::sources::files::format::Compression;
use crate::sources::files::paths::DataFile;

/// A chunk is cut at this many bytes: enough work to be worth waking a thread.
const CHUNK_BYTES: usize = 1 << 20;

/// Buffers of chunks that are kept.
const BUFFERS_MAX: usize = 4;

/// Some whole records of a file.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(super) bytes: Buffer,
    /// The line of the file in which the first byte is, from 1.
    pub(super) first_line: u64,
    /// The offset of the first byte in the decompressed file.
    pub(super) byte_offset: u64,
    /// Whether every line is a record; otherwise records may span lines.
    pub(super) by_line: bool,
}

/// The bytes of a chunk, in memory that the next chunks use again: the system would have to clear it.
#[derive(Debug)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    buffers: Option<Arc<Buffers>>,
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl From<&[u8]> for Buffer {
    fn from(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), buffers: None }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(buffers) = self.buffers.take() {
            buffers.give(std::mem::take(&mut self.bytes));
        }
    }
}

/// Memory of chunks that are done.
#[derive(Debug, Default)]
struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    fn take(&self, bytes: usize) -> Vec<u8> {
        let mut buffer = self.0.lock().pop().unwrap_or_default();
        buffer.clear();
        buffer.reserve(bytes);
        buffer
    }

    fn give(&self, buffer: Vec<u8>) {
        let mut buffers = self.0.lock();
        if buffers.len() < BUFFERS_MAX && buffer.capacity() <= 2 * CHUNK_BYTES {
            buffers.push(buffer);
        }
    }
}

/// Reads a file chunk by chunk.
pub(crate) struct Cutter {
    source: PlainReader,
    name: String,
    layout: Option<Layout>,
    /// Bytes that were read and are not yet part of a chunk.
    carry: Vec<u8>,
    buffers: Arc<Buffers>,
    ended: bool,
    next_line: u64,
    next_offset: u64,
    record_bytes_max: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Layout {
    Lines,
    /// Records delimited by braces, inside an array or not.
    Nested(Nesting),
}

/// What surrounds nested records.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Nesting {
    /// Whether the array is still open; `None` if the records are in no array.
    array: Option<bool>,
}

impl Cutter {
    pub(crate) fn open(
        file: &DataFile,
        compression: Option<Compression>,
        record_bytes_max: usize,
    ) -> Result<Self> {
        Ok(Self {
            source: PlainReader::open(file, compression)?,
            name: file.name.to_string(),
            layout: None,
            carry: Vec::new(),
            buffers: Arc::default(),
            ended: false,
            next_line: 1,
            next_offset: 0,
            record_bytes_max,
        })
    }

    pub(crate) fn bytes_taken(&self) -> u64 {
        self.source.bytes_taken()
    }

    /// The next chunk; `None` at the end of the file.
    pub(crate) fn next(&mut self) -> Result<Option<Chunk>> {
        loop {
            if self.carry.len() >= CHUNK_BYTES || self.ended {
                let layout = match self.layout {
                    Some(layout) => layout,
                    None => self.tell_layout(),
                };
                let (layout, cut) = self.find_cut(layout)?;
                self.layout = Some(layout);
                let cut = if self.ended && layout == Layout::Lines { self.carry.len() } else { cut };
                if cut > 0 {
                    return Ok(Some(self.take(cut)));
                }
                if self.ended {
                    return self.finish(layout);
                }
                if self.carry.len() > self.record_bytes_max {
                    return Err(self
                        .failed(format!(
                            "line {}: the record is longer than {} bytes",
                            self.next_line, self.record_bytes_max
                        ))
                        .with_hint("raise max_line_size, if the file is what it should be"));
                }
            }
            self.read_more()?;
        }
    }

    fn failed(&self, reason: String) -> Error {
        damaged(&self.name, "JSON", reason)
    }

    fn read_more(&mut self) -> Result<()> {
        // A record that is longer than a chunk is read in doubling steps, so that it is walked only a few
        // times.
        let wanted = CHUNK_BYTES.max(self.carry.len());
        let before = self.carry.len();
        (&mut self.source)
            .take(wanted as u64)
            .read_to_end(&mut self.carry)
            .map_err(|error| io_failed("read", &self.name, &error))?;
        self.ended = self.carry.len() - before < wanted;
        if self.layout.is_none() && self.carry.starts_with(b"\xEF\xBB\xBF") {
            self.carry.drain(..3);
            self.next_offset = 3;
        }
        Ok(())
    }

    fn tell_layout(&mut self) -> Layout {
        let Some(start) = self.carry.iter().position(|byte| !byte.is_ascii_whitespace()) else {
            return Layout::Lines;
        };
        match self.carry[start] {
            b'[' => {
                // Blanked, so that chunks hold only records.
                self.carry[start] = b' ';
                Layout::Nested(Nesting { array: Some(true) })
            }
            b'{' => {
                let line = self.carry[start..].split(|byte| *byte == b'\n').next().unwrap_or_default();
                match serde_json::from_slice::<IgnoredAny>(line) {
                    Err(error) if error.is_eof() => Layout::Nested(Nesting { array: None }),
                    _ => Layout::Lines,
                }
            }
            _ => Layout::Lines,
        }
    }

    /// The end of the last whole record in `carry`, or 0.
    fn find_cut(&mut self, layout: Layout) -> Result<(Layout, usize)> {
        match layout {
            Layout::Lines => {
                let cut = memrchr(b'\n', &self.carry).map_or(0, |at| at + 1);
                Ok((layout, cut))
            }
            Layout::Nested(mut nesting) => {
                let cut = nesting.cut(&mut self.carry).map_err(|at| {
                    let line = self.next_line + count_lines(&self.carry[..at]);
                    self.failed(format!("line {line}: text follows the end of the array"))
                })?;
                Ok((Layout::Nested(nesting), cut))
            }
        }
    }

    fn take(&mut self, cut: usize) -> Chunk {
        // Room for the next chunk, which is filled without being moved.
        let mut rest = self.buffers.take(CHUNK_BYTES + self.carry.len() - cut);
        rest.extend_from_slice(&self.carry[cut..]);
        self.carry.truncate(cut);
        let bytes = std::mem::replace(&mut self.carry, rest);
        let (first_line, byte_offset) = (self.next_line, self.next_offset);
        self.next_line += count_lines(&bytes);
        self.next_offset += bytes.len() as u64;
        let bytes = Buffer { bytes, buffers: Some(self.buffers.clone()) };
        Chunk { bytes, first_line, byte_offset, by_line: self.layout == Some(Layout::Lines) }
    }

    /// The bytes behind the last whole record at the end of the file, if any.
    fn finish(&mut self, layout: Layout) -> Result<Option<Chunk>> {
        let blank = self.carry.iter().all(u8::is_ascii_whitespace);
        let Layout::Nested(nesting) = layout else { return Ok(None) };
        if nesting.array == Some(true) && blank {
            let line = self.next_line + count_lines(&self.carry);
            return Err(self
                .failed(format!("line {line}: the array has no end"))
                .with_detail("the file is perhaps cut off"));
        }
        if blank {
            return Ok(None);
        }
        // Not a whole record: parsing it gives the error.
        self.ended = true;
        Ok(Some(self.take(self.carry.len())))
    }
}

impl Nesting {
    /// The end of the last whole record in `bytes`, which begin where a record may, or 0; blanks the commas between records
    /// and the brackets of the array. `Err` holds the position of text behind the array.
    fn cut(&mut self, bytes: &mut [u8]) -> Result<usize, usize> {
        let structure = json::structure(Level::best(), bytes);
        let (mut depth, mut cut) = (0_u32, 0);
        for at in structure.bits.as_bits().ones() {
            if self.array == Some(false) {
                break;
            }
            match bytes[at] {
                b'{' | b'[' => depth += 1,
                b']' if depth == 0 && self.array == Some(true) => {
                    bytes[at] = b' ';
                    self.array = Some(false);
                    cut = at + 1;
                }
                b'}' | b']' => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 && self.array.is_none() {
                        cut = at + 1;
                    }
                }
                b',' if depth == 0 && self.array == Some(true) => {
                    bytes[at] = b' ';
                    cut = at + 1;
                }
                _ => {}
            }
        }
        let is_text = |byte: &u8| !byte.is_ascii_whitespace();
        match bytes[cut..].iter().position(is_text).filter(|_| self.array == Some(false)) {
            Some(behind) => Err(cut + behind),
            None => Ok(cut),
        }
    }
}

/// Line ends in `bytes`.
pub(super) fn count_lines(bytes: &[u8]) -> u64 {
    memchr_iter(b'\n', bytes).count() as u64
}

/// The error of the record that begins at byte `at` of the chunk, in `line` of the file, for which the parser
/// reported `error`.
pub(super) fn syntax_error(
    name: &str,
    chunk: &Chunk,
    at: usize,
    line: u64,
    error: serde_json::Error,
) -> Error {
    // If lines are records, the fault is in this line, however far the parser read. Without trailing blanks,
    // the error is reported at the record's end rather than at a later blank line.
    let mut record = &chunk.bytes[at..];
    if chunk.by_line {
        record = record.split(|byte| *byte == b'\n').next().unwrap_or_default();
    }
    let error = serde_json::from_slice::<IgnoredAny>(record.trim_ascii_end()).err().unwrap_or(error);
    let (line_in_record, mut column) = (error.line().max(1), error.column());
    if line_in_record == 1 {
        column += chunk.bytes[..at].iter().rev().take_while(|byte| **byte != b'\n').count();
    }
    let line = line + line_in_record as u64 - 1;
    let text = error.to_string();
    let reason = text.split(" at line ").next().unwrap_or(&text);
    damaged(name, "JSON", format!("line {line}, column {column}: {reason}"))
}

/// The first syntax error of a chunk.
pub(super) fn first_syntax_error(name: &str, chunk: &Chunk) -> Option<Error> {
    let mut records = serde_json::Deserializer::from_slice(&chunk.bytes).into_iter::<IgnoredAny>();
    let mut end = 0;
    loop {
        match records.next()? {
            Ok(_) => end = records.byte_offset(),
            Err(error) => {
                let blanks = chunk.bytes[end..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
                let line = chunk.first_line + count_lines(&chunk.bytes[..end + blanks]);
                return Some(syntax_error(name, chunk, end + blanks, line, error));
            }
        }
    }
}

/// An error about a record.
pub(super) fn record_error(name: &str, line: u64, reason: &str) -> Error {
    Error::new(ErrorKind::Data, format!("file '{name}', line {line}: {reason}"))
}
