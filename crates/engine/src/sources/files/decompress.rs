//! Text files as decompressed bytes, with a count of the bytes read from the file.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;

use super::failure::io_failed;
use super::format::Compression;
use super::paths::DataFile;
use super::remote::OpenedFile;
use crate::error::Result;

/// Bytes of one read from the system.
const READ_BYTES: usize = 256 << 10;

/// A reader that decompresses a file.
pub(crate) struct PlainReader {
    inner: Box<dyn Read + Send>,
    bytes_taken: Arc<AtomicU64>,
}

impl PlainReader {
    /// Opens `file`; without `compression` its first bytes decide.
    pub(crate) fn open(file: &DataFile, compression: Option<Compression>) -> Result<Self> {
        Self::open_system(file, compression).map_err(|error| io_failed("read", &file.name, &error))
    }

    fn open_system(file: &DataFile, compression: Option<Compression>) -> io::Result<Self> {
        let bytes_taken = Arc::new(AtomicU64::new(0));
        let raw = Counted { file: file.open()?, bytes: bytes_taken.clone() };
        let mut raw = BufReader::with_capacity(READ_BYTES, raw);
        let compression = match compression {
            Some(compression) => compression,
            None => match raw.fill_buf()? {
                // RFC 1952, section 2.3.1; RFC 8878, section 3.1.1.
                [0x1f, 0x8b, ..] => Compression::Gzip,
                [0x28, 0xb5, 0x2f, 0xfd, ..] => Compression::Zstd,
                _ => Compression::None,
            },
        };
        let inner: Box<dyn Read + Send> = match compression {
            Compression::None => Box::new(raw),
            Compression::Gzip => Box::new(MultiGzDecoder::new(raw)),
            Compression::Zstd => Box::new(zstd::Decoder::with_buffer(raw)?),
        };
        Ok(Self { inner, bytes_taken })
    }

    /// Bytes of the file as stored that were read so far.
    pub(crate) fn bytes_taken(&self) -> u64 {
        self.bytes_taken.load(Ordering::Relaxed)
    }
}

impl Read for PlainReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buffer)
    }
}

struct Counted {
    file: OpenedFile,
    bytes: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.bytes.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
