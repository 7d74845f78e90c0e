//! The sink of a text writer: plain, gzip or Zstandard.

use std::io::{self, Write};

use flate2::write::GzEncoder;

use super::{OutputCompression, WriteOptions, write_failed};
use crate::error::{Error, ErrorKind, Result};

/// Level 3 is Zstandard's own default.
const ZSTD_LEVEL: i32 = 3;
/// Level 6 is gzip's own default.
const GZIP_LEVEL: u32 = 6;

pub(super) enum Sink<W: Write> {
    Plain(W),
    Gzip(GzEncoder<W>),
    Zstd(zstd::Encoder<'static, W>),
}

impl<W: Write> Sink<W> {
    pub(super) fn new(options: &WriteOptions, sink: W) -> Result<Self> {
        Ok(match options.compression {
            None | Some(OutputCompression::None) => Self::Plain(sink),
            Some(OutputCompression::Gzip) => {
                let level =
                    options.compression_level.map_or(GZIP_LEVEL, |level| level.clamp(0, 9).unsigned_abs());
                Self::Gzip(GzEncoder::new(sink, flate2::Compression::new(level)))
            }
            Some(OutputCompression::Zstd) => {
                let level = options.compression_level.unwrap_or(ZSTD_LEVEL);
                Self::Zstd(zstd::Encoder::new(sink, level).map_err(|error| write_failed(&error))?)
            }
            Some(other) => {
                let message = format!("text cannot be compressed with {other:?}");
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
        })
    }

    pub(super) fn finish(self) -> Result<W> {
        match self {
            Self::Plain(sink) => Ok(sink),
            Self::Gzip(encoder) => encoder.finish(),
            Self::Zstd(encoder) => encoder.finish(),
        }
        .and_then(|mut sink| sink.flush().map(|()| sink))
        .map_err(|error| write_failed(&error))
    }
}

impl<W: Write> Write for Sink<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(sink) => sink.write(bytes),
            Self::Gzip(encoder) => encoder.write(bytes),
            Self::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(sink) => sink.flush(),
            Self::Gzip(encoder) => encoder.flush(),
            Self::Zstd(encoder) => encoder.flush(),
        }
    }
}
