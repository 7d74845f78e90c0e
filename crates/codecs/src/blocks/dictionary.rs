//! Dictionaries for ZSTD: the common parts of small blocks, so that each can refer to them (RFC 8878, section
//! 5).

use std::cell::RefCell;
use std::fmt;

use zstd::zstd_safe::{CCtx, CDict, DCtx, DDict, compress_bound, get_error_name};

use super::{Codec, Error};

/// The most bytes of a dictionary.
pub const DICTIONARY_BYTES_MAX: usize = 1 << 20;

/// A dictionary with which ZSTD compresses blocks, and without which these cannot be read.
pub struct Dictionary {
    bytes: Vec<u8>,
    encoder: CDict<'static>,
    decoder: DDict<'static>,
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dictionary").field("byte_count", &self.bytes.len()).finish_non_exhaustive()
    }
}

impl Dictionary {
    /// Trains a dictionary on blocks like those to come. A hundred times the bytes of the dictionary are a
    /// good sample; a handful of blocks is too few.
    ///
    /// # Errors
    /// When the library cannot train on them.
    pub fn train(samples: &[&[u8]], byte_count: usize, level: i32) -> Result<Self, Error> {
        let byte_count = byte_count.min(DICTIONARY_BYTES_MAX);
        let trained =
            zstd::dict::from_samples(samples, byte_count).map_err(|error| refused(error.to_string()))?;
        Self::new(trained, level)
    }

    /// A dictionary that was trained before, or any bytes that are common in blocks. `level` is only used for
    /// compression.
    ///
    /// # Errors
    /// When it is too large, or begins like a trained one but is damaged.
    pub fn new(bytes: Vec<u8>, level: i32) -> Result<Self, Error> {
        if bytes.len() > DICTIONARY_BYTES_MAX {
            return Err(refused(format!(
                "{} bytes, at most {DICTIONARY_BYTES_MAX} are allowed",
                bytes.len()
            )));
        }
        match (CDict::try_create(&bytes, level), DDict::try_create(&bytes)) {
            (Some(encoder), Some(decoder)) => Ok(Self { bytes, encoder, decoder }),
            _ => Err(refused("it is damaged".to_owned())),
        }
    }

    /// The bytes of the dictionary, for [`Dictionary::new`].
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The compressed bytes of `block`.
    ///
    /// # Errors
    /// When the library fails.
    pub fn compress(&self, block: &[u8]) -> Result<Vec<u8>, Error> {
        thread_local! {
            static CONTEXT: RefCell<CCtx<'static>> = RefCell::new(CCtx::create());
        }
        let mut stored = Vec::with_capacity(compress_bound(block.len()));
        let outcome = CONTEXT
            .with_borrow_mut(|context| context.compress_using_cdict(&mut stored, block, &self.encoder));
        let failed = |code| Error::Compress {
            codec: Codec::Zstd(0).name(),
            bytes: block.len(),
            reason: get_error_name(code).to_owned(),
        };
        outcome.map(|_| stored).map_err(failed)
    }

    /// Decompresses a block into `output`, which must have exactly its declared size.
    ///
    /// # Errors
    /// When the block is damaged or was compressed with another dictionary; then `output` is all zeros.
    pub fn decompress(&self, stored: &[u8], output: &mut [u8]) -> Result<(), Error> {
        thread_local! {
            static CONTEXT: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
        }
        let size = output.len();
        let decoded = Codec::Zstd(0).check_size(stored, size).and_then(|()| {
            let outcome = CONTEXT
                .with_borrow_mut(|context| context.decompress_using_ddict(output, stored, &self.decoder));
            match outcome {
                Ok(count) if count == size => Ok(()),
                Ok(count) => Err(format!("{count} bytes instead of {size}")),
                Err(code) => Err(get_error_name(code).to_owned()),
            }
            .map_err(|reason| Error::Zstd(std::io::Error::other(reason)))
        });
        decoded.inspect_err(|_| output.fill(0))
    }
}

fn refused(reason: String) -> Error {
    Error::Dictionary { reason }
}
