//! Cuts a file into chunks of whole records, so that several threads can parse one file.
//!
//! The engine keeps the reader behind a lock: [`ChunkReader::next_chunk`] only reads, decompresses and looks for
//! line ends and quotes; everything else happens in [`ChunkParser`](crate::ChunkParser), outside the lock. A record
//! that does not end (an open quote, or longer than the limit) becomes a chunk with only its first line, and
//! reading goes on after that line: memory stays bounded, and one stray quote costs one line. The result does not
//! depend on where chunks are cut.

use std::sync::Arc;

use crate::{
    detect::Detected,
    dialect::Dialect,
    error::{Error, Flaw, Reject},
    options::Options,
    scan::{Scan, Scanner, count_lines, last_end, line_end_bytes},
    source::Source,
};

/// Some whole records of a file.
#[derive(Debug)]
pub struct Chunk {
    /// The number of the chunk in its file, from 0.
    pub index: u64,
    /// The records, as in the file.
    pub bytes: Vec<u8>,
    /// The line that the first record begins in, from 1.
    pub first_line: u64,
    /// The offset of the first byte in the decompressed file.
    pub byte_offset: u64,
    /// Bytes of the (compressed) file that were read up to here, for a progress bar.
    pub source_bytes: u64,
    /// Set if the chunk is only the first line of a record that does not end.
    pub(crate) flaw: Option<Flaw>,
}

/// Reads a file chunk by chunk.
pub struct ChunkReader {
    source: Source,
    dialect: Dialect,
    chunk_bytes: usize,
    max_line_bytes: usize,
    /// Bytes read after the end of the last chunk.
    carry: Vec<u8>,
    /// The source has nothing after `carry`.
    ended: bool,
    lines_to_skip: u64,
    header_is_next: bool,
    next_index: u64,
    next_line: u64,
    next_offset: u64,
}

impl ChunkReader {
    /// A reader of `source`, which `detected` describes.
    pub fn new(source: Source, detected: &Detected, options: &Options) -> ChunkReader {
        let dialect = detected.dialect;
        ChunkReader {
            dialect,
            chunk_bytes: options.chunk_bytes,
            max_line_bytes: options.max_line_bytes,
            carry: Vec::new(),
            ended: false,
            lines_to_skip: dialect.skip_lines,
            header_is_next: dialect.header,
            next_index: 0,
            next_line: 1,
            next_offset: source.mark_bytes(),
            source,
        }
    }

    /// The next chunk; `None` at the end of the file. Fails if the file cannot be read.
    pub fn next_chunk(&mut self) -> Result<Option<Chunk>, Error> {
        while self.lines_to_skip > 0 {
            self.lines_to_skip -= 1;
            if self.take_line(0)?.is_empty() {
                return Ok(None);
            }
        }
        loop {
            let (end, flaw) = self.fill()?;
            if end == 0 {
                let Some(flaw) = flaw else { return Ok(None) };
                let (first_line, byte_offset) = (self.next_line, self.next_offset);
                let bytes = self.take_line(KEPT_LINE_BYTES)?;
                let chunk = self.chunk(bytes, first_line, byte_offset, Some(flaw));
                if self.header_is_next {
                    let reject = chunk.reject_whole(self.source.name(), self.max_line_bytes);
                    return Err(Error::Record(Box::new(reject)));
                }
                return Ok(Some(chunk));
            }
            let behind = self.carry[end..].to_vec();
            let mut bytes = std::mem::replace(&mut self.carry, behind);
            bytes.truncate(end);
            if self.header_is_next {
                let header_end = self.header_end(&bytes);
                self.advance(&bytes[..header_end]);
                bytes.drain(..header_end);
                if bytes.is_empty() {
                    continue;
                }
            }
            let (first_line, byte_offset) = (self.next_line, self.next_offset);
            self.advance(&bytes);
            return Ok(Some(self.chunk(bytes, first_line, byte_offset, None)));
        }
    }

    /// Bytes of the (compressed) file that were read so far.
    pub fn source_bytes(&self) -> u64 {
        self.source.consumed_bytes()
    }

    /// Reads until `carry` holds a chunk; returns where its last record ends and, if there is none, what
    /// is wrong with the first.
    fn fill(&mut self) -> Result<(usize, Option<Flaw>), Error> {
        let mut scanner = Scanner::new(self.dialect.shape());
        let mut wanted = self.chunk_bytes;
        loop {
            if !self.ended {
                let missing = wanted.saturating_sub(self.carry.len());
                self.ended = self.source.read(&mut self.carry, missing)?;
            }
            let (buffer, ended) = (&self.carry, self.ended);
            // In a short buffer no record can be too long, so only the end of the last one is needed.
            if buffer.len() <= self.max_line_bytes
                && let Some(end) = last_end(self.dialect.shape(), buffer, ended)
                && (end > 0 || ended)
            {
                return Ok((end, None));
            }
            let mut end = 0;
            let flaw = loop {
                let start = end;
                match scanner.next(buffer, ended) {
                    Scan::End(at) if at - start > self.max_line_bytes => break Some(Flaw::TooLong),
                    Scan::End(at) => end = at,
                    Scan::Unterminated if buffer.len() - start <= self.max_line_bytes => {
                        break Some(Flaw::Unterminated);
                    }
                    Scan::More if buffer.len() - start <= self.max_line_bytes => break None,
                    Scan::More | Scan::Unterminated => break Some(Flaw::TooLong),
                }
            };
            if end > 0 || flaw.is_some() || ended {
                return Ok((end, flaw));
            }
            wanted = (self.carry.len() * 2).max(self.chunk_bytes);
        }
    }

    /// The end of the header in `bytes`, whole records of which it is the first; the end of all if there are only
    /// blank lines and comments.
    fn header_end(&mut self, bytes: &[u8]) -> usize {
        let mut scanner = Scanner::new(self.dialect.shape());
        let mut start = 0;
        while let Scan::End(end) = scanner.next(bytes, true) {
            let record = &bytes[start..end];
            let comment = self.dialect.comment.is_some_and(|comment| record.starts_with(&[comment]));
            // As in `is_blank`: a line of blanks is skipped unless the delimiter is a blank.
            let blank = record.trim_ascii().is_empty() && !record.contains(&self.dialect.delimiter);
            if !comment && !blank {
                self.header_is_next = false;
                return end;
            }
            start = end;
        }
        bytes.len()
    }

    /// Consumes one line of any length and returns its first bytes.
    fn take_line(&mut self, kept_bytes: usize) -> Result<Vec<u8>, Error> {
        let mut line = Vec::new();
        loop {
            let found = memchr::memchr2(b'\n', b'\r', &self.carry);
            let end = found.and_then(|at| Some(at + line_end_bytes(&self.carry[at..], self.ended)?));
            // A CR at the end of the buffer stays until the next byte shows whether it is CR LF.
            let take = end.unwrap_or(found.unwrap_or(self.carry.len()));
            line.extend_from_slice(&self.carry[..take.min(kept_bytes.saturating_sub(line.len()).max(1))]);
            self.next_offset += take as u64;
            self.carry.drain(..take);
            if end.is_some() {
                self.next_line += 1;
                return Ok(line);
            }
            if self.ended {
                return Ok(line);
            }
            self.ended = self.source.read(&mut self.carry, self.chunk_bytes.max(2))?;
        }
    }

    fn advance(&mut self, bytes: &[u8]) {
        self.next_line += count_lines(bytes);
        self.next_offset += bytes.len() as u64;
    }

    fn chunk(&mut self, bytes: Vec<u8>, first_line: u64, byte_offset: u64, flaw: Option<Flaw>) -> Chunk {
        let index = self.next_index;
        self.next_index += 1;
        Chunk { index, bytes, first_line, byte_offset, source_bytes: self.source.consumed_bytes(), flaw }
    }
}

/// How many bytes of a bad line are kept.
pub(crate) const KEPT_LINE_BYTES: usize = 4096;

impl Chunk {
    /// The reject that a chunk with a flaw stands for.
    pub(crate) fn reject_whole(&self, file: &Arc<str>, max_line_bytes: usize) -> Reject {
        let flaw = self.flaw.expect("asked of chunks with a flaw only");
        let error = match flaw {
            Flaw::TooLong => format!("the record is longer than {max_line_bytes} bytes"),
            _ => "a quote is opened here and not closed before the end of the file".to_string(),
        };
        Reject {
            file: Arc::clone(file),
            line: self.first_line,
            byte_offset: self.byte_offset,
            column_number: None,
            column: None,
            value: None,
            expected: None,
            error,
            text: text_of_record(&self.bytes),
            flaw,
        }
    }
}

/// The raw text of a record for a reject.
pub(crate) fn text_of_record(bytes: &[u8]) -> String {
    let end = bytes.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |at| at + 1);
    let cut = &bytes[..end.min(KEPT_LINE_BYTES)];
    String::from_utf8_lossy(cut).into_owned()
}
