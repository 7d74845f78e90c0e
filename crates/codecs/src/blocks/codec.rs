//! The block codecs, and how each compresses.

use lz4::block::CompressionMode;

use super::Error;

/// How a block is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Not compressed.
    None,
    /// LZ4 blocks, liblz4's fast level.
    Lz4,
    /// LZ4 blocks from a longer search for matches: level 3 to 12. They decode faster than those of the fast
    /// level.
    Lz4Hc(i32),
    /// Snappy blocks with their size in front, as in Parquet.
    Snappy,
    /// ZSTD frames, level 1 to 22.
    Zstd(i32),
}

impl Codec {
    /// The name for users.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 | Self::Lz4Hc(_) => "lz4",
            Self::Snappy => "snappy",
            Self::Zstd(_) => "zstd",
        }
    }

    /// An upper bound of the bytes that a block of `stored` bytes can decompress to in this codec's format:
    /// never allocate more for it, whatever it declares.
    #[must_use]
    pub fn decompressed_max(self, stored: usize) -> u64 {
        let stored = stored as u64;
        match self {
            Self::None => stored,
            // Each byte that extends a match adds up to 255 bytes of output.
            Self::Lz4 | Self::Lz4Hc(_) => stored.saturating_mul(255),
            // A copy takes three bytes and gives up to 64 bytes of output.
            Self::Snappy => stored.saturating_mul(22),
            // A block takes at least its header of three bytes and gives up to 128 KiB of output.
            Self::Zstd(_) => stored.saturating_mul((128 << 10) / 3 + 1),
        }
    }

    /// Fails when the block itself declares another size than `declared`, or cannot be so large; call it
    /// before allocating a buffer.
    ///
    /// # Errors
    /// `Size`.
    pub fn check_size(self, stored: &[u8], declared: usize) -> Result<(), Error> {
        let most = self.decompressed_max(stored.len());
        let own = match self {
            Self::Zstd(_) => zstd::zstd_safe::get_frame_content_size(stored).ok().flatten(),
            _ => None,
        };
        let can_be = declared as u64 <= most && own.is_none_or(|own| own == declared as u64);
        can_be.then_some(()).ok_or(Error::Size { declared, stored: stored.len() })
    }

    /// The compressed bytes of `block`, without its size (except for Snappy, whose format includes it).
    ///
    /// # Errors
    /// When the block is larger than the format or the library supports.
    pub fn compress(self, block: &[u8]) -> Result<Vec<u8>, Error> {
        let error = |reason: String| Error::Compress { codec: self.name(), bytes: block.len(), reason };
        match self {
            Self::None => Ok(block.to_vec()),
            // An empty block is one token without literals. liblz4's highest levels crash reading an empty
            // block.
            Self::Lz4 | Self::Lz4Hc(_) if block.is_empty() => Ok(vec![0]),
            Self::Lz4 => lz4::block::compress(block, None, false).map_err(|other| error(other.to_string())),
            Self::Lz4Hc(level) => {
                let mode = CompressionMode::HIGHCOMPRESSION(level);
                lz4::block::compress(block, Some(mode), false).map_err(|other| error(other.to_string()))
            }
            Self::Snappy => {
                snap::raw::Encoder::new().compress_vec(block).map_err(|other| error(other.to_string()))
            }
            Self::Zstd(level) => zstd::bulk::compress(block, level).map_err(|other| error(other.to_string())),
        }
    }
}
