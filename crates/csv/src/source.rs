//! The bytes of a file: decompressed, without a byte order mark, with lookahead for detection and a count of the
//! compressed bytes read so far.

use std::{
    io::{self, BufRead, BufReader, Read},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use flate2::bufread::MultiGzDecoder;

use crate::{error::Error, options::Compression};

/// An opened file, from its beginning.
pub struct Source {
    name: Arc<str>,
    reader: Box<dyn Read + Send>,
    consumed_bytes: Arc<AtomicU64>,
    /// Bytes read from `reader` and not yet handed on.
    ahead: Vec<u8>,
    /// The reader has nothing more.
    ended: bool,
    /// Bytes of the byte order mark that was left out.
    mark_bytes: u64,
}

impl Source {
    /// Takes a reader at its start. Errors call it `name`; without `compression` the first bytes decide. Fails if
    /// the first bytes cannot be read or belong to a format that is not text.
    pub fn new(
        name: &str,
        reader: impl Read + Send + 'static,
        compression: Option<Compression>,
    ) -> Result<Source, Error> {
        let name: Arc<str> = name.into();
        let consumed_bytes = Arc::new(AtomicU64::new(0));
        let mut raw = Counted { reader, bytes: Arc::clone(&consumed_bytes) };
        let mut first = Vec::new();
        let fail = |source| Error::Io { file: Arc::clone(&name), source };
        (&mut raw).take(MAGIC_BYTES as u64).read_to_end(&mut first).map_err(fail)?;
        let compression = compression.unwrap_or_else(|| guess_compression(&first));
        if compression == Compression::None
            && let Some(found) = not_text(&first)
        {
            return Err(Error::NotText { file: name, found });
        }
        let raw = BufReader::with_capacity(256 << 10, io::Cursor::new(first).chain(raw));
        let reader: Box<dyn Read + Send> = match compression {
            Compression::None => Box::new(raw),
            Compression::Gzip => {
                Box::new(WhenAny { input: Some(raw), open: |raw| Ok(MultiGzDecoder::new(raw)), reader: None })
            }
            Compression::Zstd => Box::new(WhenAny {
                input: Some(raw),
                open: zstd::stream::read::Decoder::with_buffer,
                reader: None,
            }),
        };
        let mut source =
            Source { name, reader, consumed_bytes, ahead: Vec::new(), ended: false, mark_bytes: 0 };
        source.look_ahead(MAGIC_BYTES)?;
        if let Some(found) = not_text(&source.ahead) {
            return Err(Error::NotText { file: source.name, found });
        }
        if source.ahead.starts_with(b"\xEF\xBB\xBF") {
            source.ahead.drain(..3);
            source.mark_bytes = 3;
        }
        Ok(source)
    }

    /// What errors call the file.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Bytes of the (compressed) file taken so far, for a progress bar.
    pub fn consumed_bytes(&self) -> u64 {
        self.consumed_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn mark_bytes(&self) -> u64 {
        self.mark_bytes
    }

    /// The first bytes, `bytes` of them where the file has as many, and whether that is all of it.
    pub(crate) fn look_ahead(&mut self, bytes: usize) -> Result<(&[u8], bool), Error> {
        let missing = bytes.saturating_sub(self.ahead.len());
        let mut ahead = std::mem::take(&mut self.ahead);
        let filled = self.fill(&mut ahead, missing);
        self.ahead = ahead;
        filled?;
        Ok((&self.ahead, self.ended))
    }

    /// Appends up to `bytes` bytes; returns whether the file is at its end.
    pub(crate) fn read(&mut self, buffer: &mut Vec<u8>, bytes: usize) -> Result<bool, Error> {
        let from_ahead = bytes.min(self.ahead.len());
        if from_ahead == self.ahead.len() && buffer.is_empty() {
            *buffer = std::mem::take(&mut self.ahead);
        } else {
            buffer.extend(self.ahead.drain(..from_ahead));
        }
        self.fill(buffer, bytes - from_ahead)?;
        Ok(self.ended && self.ahead.is_empty())
    }

    fn fill(&mut self, buffer: &mut Vec<u8>, bytes: usize) -> Result<(), Error> {
        if bytes > 0 && !self.ended {
            buffer.reserve(bytes);
            let read = (&mut self.reader).take(bytes as u64).read_to_end(buffer);
            let read = read.map_err(|source| Error::Io { file: Arc::clone(&self.name), source })?;
            self.ended = read < bytes;
        }
        Ok(())
    }
}

/// Enough to tell formats apart by.
const MAGIC_BYTES: usize = 512;

fn guess_compression(first: &[u8]) -> Compression {
    if first.starts_with(&[0x1F, 0x8B]) {
        Compression::Gzip
    } else if first.starts_with(&[0x28, 0xB5, 0x2F, 0xFD]) {
        Compression::Zstd
    } else {
        Compression::None
    }
}

/// Names what the bytes are, if they are surely not UTF-8 text.
fn not_text(first: &[u8]) -> Option<&'static str> {
    let magics: [(&[u8], &str); 10] = [
        (b"PAR1", "a Parquet file"),
        (b"ARROW1", "an Arrow IPC file"),
        (b"ORC", "an ORC file"),
        (b"SQLite format 3\0", "an SQLite database"),
        (b"PK\x03\x04", "a ZIP archive or a spreadsheet"),
        (b"BZh", "compressed with bzip2"),
        (b"\xFD7zXZ\0", "compressed with xz"),
        (b"\x04\x22\x4D\x18", "compressed with LZ4"),
        (b"\xFF\xFE", "UTF-16"),
        (b"\xFE\xFF", "UTF-16"),
    ];
    // Text may also begin with `ORC` or `BZh`; a binary file has control characters soon after.
    let binary = first.iter().any(|&b| b < 0x20 && !matches!(b, b'\t' | b'\n' | b'\r') || b == 0x7F);
    let known = magics
        .iter()
        .find(|(magic, _)| first.starts_with(magic) && (binary || magic[0] == 0xFF || magic[0] == 0xFE));
    if let Some((_, found)) = known {
        return Some(found);
    }
    // UTF-16 without a mark: every other byte of mostly Latin text is zero.
    let zeros = |odd: usize| first.iter().skip(odd).step_by(2).filter(|&&b| b == 0).count();
    let (even, odd) = (zeros(0), zeros(1));
    let wide = first.len() >= 8 && even.abs_diff(odd) * 5 > first.len() * 2;
    wide.then_some("UTF-16")
}

/// Counts the bytes that are read.
struct Counted<R> {
    reader: R,
    bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// A decompressor that is opened at the first byte: an empty file is no error, whatever its name says.
struct WhenAny<B, R> {
    input: Option<B>,
    open: fn(B) -> io::Result<R>,
    reader: Option<R>,
}

impl<B: BufRead, R: Read> Read for WhenAny<B, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(mut input) = self.input.take() {
            if input.fill_buf()?.is_empty() {
                return Ok(0);
            }
            self.reader = Some((self.open)(input)?);
        }
        match &mut self.reader {
            Some(reader) => reader.read(buffer),
            None => Ok(0),
        }
    }
}
