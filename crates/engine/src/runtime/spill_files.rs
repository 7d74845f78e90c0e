//! The files that operators spill to: what they write is cut into blocks, which are compressed and have a checksum.
//!
//! ```text
//!  0  bytes: u32           before they were compressed, 64 KiB at most
//!  4  stored bytes: u32    behind the header; as many as before if compressing does not help
//!  8  checksum: u64        XXH3 of the stored bytes
//! 16  stored bytes         an LZ4 block
//! ```
//! Numbers are little endian. The process that writes a file is the one that reads it.

use std::io::{self, Write};
use std::iter;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SpillFile, SpillWriter, TempFileFactory};
use futures::stream::{self, Stream};
use keirin_codecs::blocks::{Codec, Decoder};
use keirin_race::Races;
use tempfile::NamedTempFile;
use xxhash_rust::xxh3::xxh3_64;

/// LZ4 finds no matches farther away.
const BLOCK_BYTES: usize = 64 << 10;
const HEADER_BYTES: usize = 16;

/// Makes the files, in a directory.
#[derive(Debug)]
pub(crate) struct SpillFiles {
    directory: PathBuf,
    decoder: Arc<Decoder>,
}

impl SpillFiles {
    pub(crate) fn new(directory: &Path, races: &Races) -> Self {
        let decoder = Arc::new(Decoder::new(Codec::Lz4, races, "spilled rows", &[]));
        Self { directory: directory.to_owned(), decoder }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }
}

impl TempFileFactory for SpillFiles {
    fn create_temp_file(&self, _: &str) -> Result<Arc<dyn SpillFile>> {
        let file = NamedTempFile::new_in(&self.directory)?;
        Ok(Arc::new(Blocks { file: Arc::new(file), bytes: Arc::default(), decoder: self.decoder.clone() }))
    }
}

/// A file, which is removed with the last reader and writer of it.
struct Blocks {
    file: Arc<NamedTempFile>,
    /// The bytes of whole blocks.
    bytes: Arc<AtomicU64>,
    decoder: Arc<Decoder>,
}

impl SpillFile for Blocks {
    fn size(&self) -> Option<u64> {
        Some(self.bytes.load(Ordering::Acquire))
    }

    fn read_stream(&self) -> Result<Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>> {
        let mut reader = Reader { file: self.file.clone(), bytes: self.bytes.clone(), at: 0 };
        let decoder = self.decoder.clone();
        // On the thread that asks: the system reads ahead, and each thread that decoded for a merge of many files would keep
        // memory of its own.
        let blocks = iter::from_fn(move || reader.two_blocks(&decoder).transpose());
        Ok(Box::pin(stream::iter(blocks)))
    }

    fn open_writer(&self) -> Result<Box<dyn SpillWriter>> {
        let (file, bytes) = (self.file.clone(), self.bytes.clone());
        Ok(Box::new(Writer { file, bytes, buffer: Vec::with_capacity(BLOCK_BYTES) }))
    }
}

struct Writer {
    file: Arc<NamedTempFile>,
    bytes: Arc<AtomicU64>,
    /// Less than a block.
    buffer: Vec<u8>,
}

impl Writer {
    fn write_block(&self, block: &[u8]) -> io::Result<()> {
        let compressed = Codec::Lz4.compress(block).map_err(io::Error::other)?;
        let stored = if compressed.len() < block.len() { &compressed } else { block };
        let mut written = Vec::with_capacity(HEADER_BYTES + stored.len());
        written.extend(length(block).to_le_bytes());
        written.extend(length(stored).to_le_bytes());
        written.extend(xxh3_64(stored).to_le_bytes());
        written.extend(stored);
        self.file.as_file().write_all_at(&written, self.bytes.load(Ordering::Acquire))?;
        self.bytes.fetch_add(written.len() as u64, Ordering::Release);
        Ok(())
    }
}

fn length(block: &[u8]) -> u32 {
    u32::try_from(block.len()).expect("a block has 64 KiB at most")
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.is_empty() && bytes.len() >= BLOCK_BYTES {
            self.write_block(&bytes[..BLOCK_BYTES])?;
            return Ok(BLOCK_BYTES);
        }
        let taken = bytes.len().min(BLOCK_BYTES - self.buffer.len());
        self.buffer.extend(&bytes[..taken]);
        if self.buffer.len() == BLOCK_BYTES {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.buffer.is_empty() {
            self.write_block(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }
}

impl SpillWriter for Writer {
    fn finish(&mut self) -> Result<()> {
        Ok(self.flush()?)
    }
}

struct Reader {
    file: Arc<NamedTempFile>,
    bytes: Arc<AtomicU64>,
    at: u64,
}

impl Reader {
    /// The next two blocks, which are decoded together, or the last one; `None` if none is left.
    fn two_blocks(&mut self, decoder: &Decoder) -> Result<Option<Bytes>> {
        let blocks: Vec<Block> = [self.block()?, self.block()?].into_iter().flatten().collect();
        if blocks.is_empty() {
            return Ok(None);
        }
        let mut bytes = vec![0; blocks.iter().map(|block| block.byte_count).sum()];
        let mut rest = &mut bytes[..];
        let mut compressed = Vec::with_capacity(blocks.len());
        for block in &blocks {
            let (output, others) = rest.split_at_mut(block.byte_count);
            rest = others;
            if block.stored.len() == block.byte_count {
                output.copy_from_slice(&block.stored);
            } else {
                compressed.push((&block.stored[..], output));
            }
        }
        let mut outcome = Ok(());
        decoder.decompress_batch(compressed, |_, error| outcome = Err(self.damaged(&error.to_string())));
        outcome.map(|()| Some(bytes.into()))
    }

    fn block(&mut self) -> Result<Option<Block>> {
        if self.at >= self.bytes.load(Ordering::Acquire) {
            return Ok(None);
        }
        let mut header = [0; HEADER_BYTES];
        self.read(&mut header, self.at)?;
        let [a, b, c, d, e, f, g, h, checksum @ ..] = header;
        let [byte_count, stored] =
            [[a, b, c, d], [e, f, g, h]].map(|bytes| u32::from_le_bytes(bytes) as usize);
        if stored > byte_count || byte_count > BLOCK_BYTES {
            return Err(self.damaged("it has a block of another size than was written"));
        }
        let mut stored = vec![0; stored];
        self.read(&mut stored, self.at + HEADER_BYTES as u64)?;
        if xxh3_64(&stored) != u64::from_le_bytes(checksum) {
            return Err(self.damaged("its checksum is wrong"));
        }
        self.at += (HEADER_BYTES + stored.len()) as u64;
        Ok(Some(Block { byte_count, stored }))
    }

    fn read(&self, bytes: &mut [u8], at: u64) -> Result<()> {
        self.file.as_file().read_exact_at(bytes, at).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.damaged("it is cut off"),
            _ => error.into(),
        })
    }

    fn damaged(&self, what: &str) -> DataFusionError {
        let path = self.file.path().display();
        let message = format!("temporary file '{path}' is damaged at byte {}: {what}", self.at);
        DataFusionError::IoError(io::Error::new(io::ErrorKind::InvalidData, message))
    }
}

/// A block as it is stored.
struct Block {
    /// Before it was compressed.
    byte_count: usize,
    stored: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;
    use proptest::prelude::*;

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
    }

    fn read(file: &dyn SpillFile) -> Result<Vec<u8>> {
        let chunks: Vec<Bytes> = runtime().block_on(file.read_stream()?.try_collect())?;
        Ok(chunks.concat())
    }

    fn made() -> (tempfile::TempDir, Arc<dyn SpillFile>) {
        let directory = tempfile::tempdir().expect("a directory");
        let files = SpillFiles::new(directory.path(), &Races::default());
        let file = files.create_temp_file("").expect("a file");
        (directory, file)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_was_written_is_read(
            pieces in prop::collection::vec((0_usize..200_000, 0_u8..4, any::<bool>()), 0..6),
        ) {
            let (directory, file) = made();
            let mut writer = file.open_writer()?;
            let mut written = Vec::new();
            for (count, pattern, flushes) in pieces {
                // The last pattern cannot be compressed.
                let mix = |at: usize| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0];
                let piece = (0..count).map(|at| if pattern == 3 { mix(at) } else { pattern.wrapping_mul(at.to_le_bytes()[0]) });
                let piece: Vec<u8> = piece.collect();
                writer.write_all(&piece)?;
                written.extend(piece);
                if flushes {
                    writer.flush()?;
                    prop_assert!(read(file.as_ref())? == written, "after it was flushed");
                }
            }
            writer.finish()?;
            prop_assert!(read(file.as_ref())? == written);
            drop((writer, file));
            prop_assert_eq!(std::fs::read_dir(directory.path())?.count(), 0);
        }
    }

    #[test]
    fn damage_is_named() {
        let (directory, file) = made();
        let mut writer = file.open_writer().expect("a writer");
        writer.write_all(&[7; 3 * BLOCK_BYTES]).expect("it is written");
        writer.finish().expect("it is written");
        let path = std::fs::read_dir(directory.path()).expect("a directory").next().expect("a file");
        let path = path.expect("a file").path();
        let good = std::fs::read(&path).expect("a file");
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            std::fs::write(&path, &bad).expect("it can be changed");
            match read(file.as_ref()) {
                Err(error) => assert!(error.to_string().contains("damaged at byte"), "{at}: {error}"),
                Ok(read) => panic!("{at}: {} bytes", read.len()),
            }
        }
    }
}
