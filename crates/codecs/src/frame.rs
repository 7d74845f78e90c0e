//! A block as it is stored: encoded values, their kind, and a checksum.
//!
//! ```text
//!  0  version: u8              1
//!  1  kind of values: u8       `Kind`
//!  2  compression: u8          `Compression` of the encoded bytes
//!  3  row count: u32
//!  7  encoded bytes: u32       before they were compressed
//! 11  stored bytes: u32        behind the header
//! 15  value bytes: u64         of the decoded values; of text without its offsets
//! 23  checksum: u64            XXH3 of the stored bytes, its seed the XXH3 of bytes 0 to 22
//! 31  stored bytes
//! ```
//! Numbers are little endian. Without compression byte 31 is the id of the encoding, so raw numbers begin at
//! byte 32, with the alignment of the frame. Nothing is trusted except what limits and checksum have
//! verified; the checksum detects accidents, not attacks, so decoding checks everything as well. Golden files
//! in `tests/golden` hold a frame of each encoding; every later version reads them.

use keirin_kernels::text::Text;
use keirin_kernels::{Bits, Level};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::blocks::{Codec, Decoder};
use crate::encodings::check_count;
use crate::floats::{self, Float};
use crate::integers::{self, Int};
use crate::plan::Chosen;
use crate::strings::{self, Rows};
use crate::writer::Writer;
use crate::{Choice, Error, Plan, Result, flags, judge};

/// The version that this code writes and reads.
const VERSION: u8 = 1;
/// The bytes before the checksum, and those of the whole header.
const SUMMED_BYTES: usize = 23;
const HEADER_BYTES: usize = 31;

macro_rules! ids {
    ($(#[$meta:meta])* $Name:ident { $($(#[$variant_meta:meta])* $Variant:ident = $id:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $Name { $($(#[$variant_meta])* $Variant = $id,)* }

        impl $Name {
            fn of_id(id: u8) -> Option<Self> {
                match id {
                    $($id => Some(Self::$Variant),)*
                    _ => None,
                }
            }
        }
    };
}

ids! {
    /// The kind of the values of a block. Ids never change.
    Kind {
        /// Flags: booleans, or validity.
        Flags = 0,
        /// Text, or any bytes.
        Text = 1,
        /// `i8`
        I8 = 2,
        /// `i16`
        I16 = 3,
        /// `i32`
        I32 = 4,
        /// `i64`
        I64 = 5,
        /// `i128`
        I128 = 6,
        /// `u8`
        U8 = 7,
        /// `u16`
        U16 = 8,
        /// `u32`
        U32 = 9,
        /// `u64`
        U64 = 10,
        /// `f32`
        F32 = 11,
        /// `f64`
        F64 = 12,
    }
}

ids! {
    /// How encoded bytes are compressed. Ids never change.
    Compression {
        /// Not compressed.
        None = 0,
        /// An LZ4 block.
        Lz4 = 1,
        /// A Snappy block.
        Snappy = 2,
        /// A ZSTD frame.
        Zstd = 3,
    }
}

impl From<Compression> for Codec {
    /// A codec that can decompress it; the level with which it was written does not matter.
    fn from(compression: Compression) -> Self {
        match compression {
            Compression::None => Self::None,
            Compression::Lz4 => Self::Lz4,
            Compression::Snappy => Self::Snappy,
            Compression::Zstd => Self::Zstd(3),
        }
    }
}

impl From<Codec> for Compression {
    fn from(codec: Codec) -> Self {
        match codec {
            Codec::None => Self::None,
            Codec::Lz4 | Codec::Lz4Hc(_) => Self::Lz4,
            Codec::Snappy => Self::Snappy,
            Codec::Zstd(_) => Self::Zstd,
        }
    }
}

/// Limits on the memory that a reader accepts.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most rows of a block.
    pub rows: u32,
    /// The most bytes of a block's values, and of their encoded form.
    pub bytes: u64,
}

/// A block with its header parsed and, by [`Frame::open`], its checksum verified.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    kind: Kind,
    compression: Compression,
    row_count: u32,
    value_bytes: u64,
    encoded_bytes: u32,
    stored: &'a [u8],
    /// The written checksum, and the seed for that of the stored bytes.
    checksum: u64,
    seed: u64,
}

impl<'a> Frame<'a> {
    /// Opens the frame at the beginning of `bytes`.
    ///
    /// # Errors
    /// When the bytes are not a frame, its checksum is wrong, or it exceeds the limits.
    pub fn open(bytes: &'a [u8], limits: Limits) -> Result<Self> {
        let frame = Self::parse(bytes, limits)?;
        let computed = xxh3_64_with_seed(frame.stored, frame.seed);
        if computed != frame.checksum {
            return Err(Error::Checksum { written: frame.checksum, computed });
        }
        Ok(frame)
    }

    /// Opens the frame at the beginning of `bytes` without verifying the checksum, for callers that have done
    /// so before.
    ///
    /// # Errors
    /// When the bytes are not a frame, or it exceeds the limits.
    pub fn parse(bytes: &'a [u8], limits: Limits) -> Result<Self> {
        let truncated = |needed| Error::Truncated { at: 0, needed, left: bytes.len() };
        match bytes.first() {
            Some(&VERSION) => {}
            Some(version) => return Err(Error::Version { version: *version }),
            None => return Err(truncated(HEADER_BYTES)),
        }
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(truncated(HEADER_BYTES));
        };
        let u32_at = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
        let Some(kind) = Kind::of_id(header[1]) else {
            return Err(Error::Corrupt { at: 1, reason: "values of an unknown kind" });
        };
        let Some(compression) = Compression::of_id(header[2]) else {
            return Err(Error::UnknownCompression { id: header[2] });
        };
        let (row_count, encoded_bytes, stored_bytes) = (u32_at(3), u32_at(7), u32_at(11));
        let value_bytes = u64_at(15);
        check_limit(u64::from(row_count), u64::from(limits.rows))?;
        check_limit(value_bytes, limits.bytes)?;
        check_limit(u64::from(encoded_bytes), limits.bytes)?;
        let Some(stored) = rest.get(..stored_bytes as usize) else {
            return Err(truncated(HEADER_BYTES + stored_bytes as usize));
        };
        let is_consistent = match kind.value_bits() {
            Some(bits) => (u64::from(row_count) * u64::from(bits)).div_ceil(8) == value_bytes,
            None => true,
        };
        if !is_consistent {
            return Err(Error::Corrupt { at: 15, reason: "another count of bytes than so many values have" });
        }
        if u64::from(encoded_bytes) > Codec::from(compression).decompressed_max(stored.len()) {
            return Err(Error::Corrupt { at: 7, reason: "more bytes than what is stored can hold" });
        }
        if compression == Compression::None && encoded_bytes != stored_bytes {
            return Err(Error::Corrupt { at: 7, reason: "bytes that are not compressed are of two lengths" });
        }
        let (checksum, seed) = (u64_at(SUMMED_BYTES), xxh3_64(&header[..SUMMED_BYTES]));
        Ok(Self { kind, compression, row_count, value_bytes, encoded_bytes, stored, checksum, seed })
    }

    /// The kind of the values.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// How the encoded bytes are compressed.
    #[must_use]
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// Count of rows.
    #[must_use]
    pub fn row_count(&self) -> usize {
        self.row_count as usize
    }

    /// The size of the decoded values in bytes; for text without its offsets.
    #[must_use]
    pub fn value_bytes(&self) -> u64 {
        self.value_bytes
    }

    /// The count of bytes after decompression, which is within the limits.
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        self.encoded_bytes as usize
    }

    /// The bytes behind the header: encoded values, perhaps compressed.
    #[must_use]
    pub fn stored(&self) -> &'a [u8] {
        self.stored
    }

    /// The size of the whole frame in bytes: the next one may begin there.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        HEADER_BYTES + self.stored.len()
    }

    /// The same block without compression: `encoded` are its decompressed bytes.
    ///
    /// # Panics
    /// When `encoded` does not have the length in the header.
    #[must_use]
    pub fn decompressed<'b>(&self, encoded: &'b [u8]) -> Frame<'b> {
        assert_eq!(encoded.len(), self.encoded_bytes(), "the bytes that were compressed");
        Frame { compression: Compression::None, stored: encoded, ..*self }
    }

    /// The same block without compression: itself if it is not compressed, or else decompressed to `buffer`.
    /// `decoder` must be one for the frame's compression and for the stream of the block.
    ///
    /// # Errors
    /// When the compressed bytes are damaged.
    pub fn decompress<'b>(&self, decoder: &Decoder, buffer: &'b mut Vec<u8>) -> Result<Frame<'b>>
    where
        'a: 'b,
    {
        if self.compression == Compression::None {
            return Ok(*self);
        }
        let damaged = |error: crate::blocks::Error| Error::Damaged { reason: error.to_string() };
        Codec::from(self.compression).check_size(self.stored, self.encoded_bytes()).map_err(damaged)?;
        // The size is within the limits; the old content of the buffer is overwritten.
        buffer.resize(self.encoded_bytes(), 0);
        decoder.decompress(self.stored, buffer).map_err(damaged)?;
        Ok(self.decompressed(buffer))
    }

    /// The integers of an uncompressed frame.
    ///
    /// # Errors
    /// When the frame has another kind of values, or its bytes are corrupt.
    pub fn integers<T: Int>(&self, level: Level) -> Result<integers::Column<'a, T>> {
        integers::Column::open(level, self.encoded(T::KIND)?, self.row_count())
    }

    /// The floats of an uncompressed frame.
    ///
    /// # Errors
    /// When the frame has another kind of values, or its bytes are corrupt.
    pub fn floats<F: Float>(&self, level: Level) -> Result<floats::Column<'a, F>> {
        floats::Column::open(level, self.encoded(F::KIND)?, self.row_count())
    }

    /// The flags of an uncompressed frame.
    ///
    /// # Errors
    /// When the frame has another kind of values, or its bytes are corrupt.
    pub fn flags(&self, level: Level) -> Result<flags::Column<'a>> {
        flags::Column::open(level, self.encoded(Kind::Flags)?, self.row_count())
    }

    /// The text of an uncompressed frame.
    ///
    /// # Errors
    /// When the frame has another kind of values, or its bytes are corrupt.
    pub fn strings(&self, level: Level) -> Result<strings::Column<'a>> {
        let byte_limit = usize::try_from(self.value_bytes).unwrap_or(usize::MAX);
        strings::Column::open(level, self.encoded(Kind::Text)?, self.row_count(), byte_limit)
    }

    fn encoded(&self, wanted: Kind) -> Result<&'a [u8]> {
        if self.kind != wanted {
            return Err(Error::Kind { wanted, found: self.kind });
        }
        match self.compression {
            Compression::None => Ok(self.stored),
            compression => Err(Error::Compressed { compression }),
        }
    }
}

impl Kind {
    /// The bits of a value; `None` for text.
    #[must_use]
    pub fn value_bits(self) -> Option<u32> {
        match self {
            Self::Flags => Some(1),
            Self::Text => None,
            Self::I8 | Self::U8 => Some(8),
            Self::I16 | Self::U16 => Some(16),
            Self::I32 | Self::U32 | Self::F32 => Some(32),
            Self::I64 | Self::U64 | Self::F64 => Some(64),
            Self::I128 => Some(128),
        }
    }
}

fn check_limit(needed: u64, limit: u64) -> Result<()> {
    if needed > limit { Err(Error::Limit { needed, limit }) } else { Ok(()) }
}

/// The checksum in the header of a frame, if `bytes` are long enough: it identifies the frame's content.
#[must_use]
pub fn checksum_of(bytes: &[u8]) -> Option<u64> {
    bytes.get(SUMMED_BYTES..HEADER_BYTES)?.try_into().ok().map(u64::from_le_bytes)
}

/// Writes a frame of encoded values; `stored` are these, perhaps compressed.
///
/// # Errors
/// When the bytes are 4 GiB or more.
pub fn write(
    kind: Kind,
    compression: Compression,
    row_count: usize,
    value_bytes: u64,
    encoded_bytes: usize,
    stored: &[u8],
) -> Result<Vec<u8>> {
    let count = |what, count: usize| {
        u32::try_from(count).map_err(|_| Error::BlockTooLarge { what, count, limit: u32::MAX })
    };
    let mut frame = Vec::with_capacity(HEADER_BYTES + stored.len());
    frame.extend([VERSION, kind as u8, compression as u8]);
    frame.extend(count("rows", row_count)?.to_le_bytes());
    frame.extend(count("bytes", encoded_bytes)?.to_le_bytes());
    frame.extend(count("bytes", stored.len())?.to_le_bytes());
    frame.extend(value_bytes.to_le_bytes());
    frame.extend(xxh3_64_with_seed(stored, xxh3_64(&frame)).to_le_bytes());
    frame.extend_from_slice(stored);
    Ok(frame)
}

/// Encoded values, and what was chosen for them.
struct Encoded {
    bytes: Vec<u8>,
    compressed: Option<Vec<u8>>,
    chosen: Chosen,
    entries: Option<strings::Buffer>,
}

impl Encoded {
    fn stored(&self) -> &[u8] {
        self.compressed.as_ref().unwrap_or(&self.bytes)
    }
}

/// Makes the frames of the blocks of a column, one after the other.
#[derive(Debug)]
pub struct Maker<'p> {
    level: Level,
    choice: Choice,
    /// The choices that were best for the previous blocks.
    plan: &'p mut Plan,
    /// The distinct strings of the last block.
    entries: Option<strings::Buffer>,
}

impl<'p> Maker<'p> {
    /// Makes frames by `choice`. The plan must be that of the column, and is updated.
    pub fn new(level: Level, choice: impl Into<Choice>, plan: &'p mut Plan) -> Self {
        Self { level, choice: choice.into(), plan, entries: None }
    }

    /// Makes the frame of the values that `write_values` appends, compressed by the codec that it returns.
    fn make(
        &mut self,
        kind: Kind,
        row_count: usize,
        value_bytes: usize,
        mut write_values: impl FnMut(&mut Writer) -> Codec,
    ) -> Result<Vec<u8>> {
        check_count(row_count)?;
        let (level, choice) = (self.level, self.choice);
        let mut encode = |known: Option<Chosen>| {
            let is_known = known.is_some();
            let mut writer = Writer::for_frame(level, choice, known);
            let mut codec = write_values(&mut writer);
            let entries = writer.entries.take();
            let byte_count = writer.bytes.len();
            let mut keep_percent = 100;
            if codec == Codec::None && !is_known && choice.may_compress {
                (codec, keep_percent) = judge::afterwards(choice.goal, byte_count).unwrap_or((codec, 100));
            }
            let compressed = if codec == Codec::None { None } else { codec.compress(&writer.bytes).ok() };
            // If a library cannot compress the bytes, or not enough, they are stored uncompressed.
            let compressed = compressed.filter(|bytes| bytes.len() * 100 < byte_count * keep_percent);
            let codec = if compressed.is_some() || is_known { codec } else { Codec::None };
            let (bytes, chosen) = writer.finish(codec);
            Encoded { bytes, compressed, chosen, entries }
        };
        // Counts the offsets of text, too.
        let size = value_bytes + row_count;
        let holds = |plan: &Plan, made: &Encoded| plan.holds(row_count, made.stored().len(), size);
        let mut by_plan = self.plan.known(row_count).map(|known| encode(Some(known)));
        if by_plan.as_ref().is_some_and(|made| !holds(self.plan, made)) {
            by_plan = self.plan.without_symbols().map(|known| encode(Some(known)));
            by_plan = by_plan.filter(|made| holds(self.plan, made));
            by_plan.iter().for_each(|made| self.plan.learn(made.chosen.clone()));
        }
        let mut made = by_plan.unwrap_or_else(|| {
            let made = encode(None);
            self.plan.set(made.chosen.clone(), row_count, made.stored().len(), size);
            made
        });
        self.entries = made.entries.take();
        let compression =
            if made.compressed.is_some() { made.chosen.codec.into() } else { Compression::None };
        let (encoded_bytes, stored) = (made.bytes.len(), made.stored());
        write(kind, compression, row_count, value_bytes as u64, encoded_bytes, stored)
    }

    /// Makes a frame of integers.
    ///
    /// # Errors
    /// When there are 2^32 values or bytes, or more.
    pub fn integers<T: Int>(&mut self, values: &[T]) -> Result<Vec<u8>> {
        let bytes = size_of_val(values);
        self.make(T::KIND, values.len(), bytes, |writer| integers::write(writer, values))
    }

    /// Makes a frame of floats.
    ///
    /// # Errors
    /// When there are 2^32 values or bytes, or more.
    pub fn floats<F: Float>(&mut self, values: &[F]) -> Result<Vec<u8>> {
        let bytes = size_of_val(values);
        self.make(F::KIND, values.len(), bytes, |writer| floats::write(writer, values))
    }

    /// Makes a frame of flags.
    ///
    /// # Errors
    /// When there are 2^32 flags or more.
    pub fn flags(&mut self, flags: Bits<'_>) -> Result<Vec<u8>> {
        let (count, bytes) = (flags.len(), flags.len().div_ceil(8));
        self.make(Kind::Flags, count, bytes, |writer| flags::write(writer, flags))
    }

    /// The distinct strings of the last block, ascending, if a dictionary was made for it.
    pub fn take_entries(&mut self) -> Option<strings::Buffer> {
        self.entries.take()
    }

    /// Makes a frame of text.
    ///
    /// # Errors
    /// When there are 2^32 rows or bytes, or more.
    pub fn strings(&mut self, rows: Rows<'_>) -> Result<Vec<u8>> {
        let bytes = rows.offsets()[rows.row_count()].abs_diff(rows.offsets()[0]) as usize;
        self.make(Kind::Text, rows.row_count(), bytes, |writer| strings::write(writer, rows))
    }
}

/// A frame of integers, encoded and compressed in the way that `choice` prefers.
///
/// # Errors
/// When there are 2^32 values or bytes, or more.
pub fn of_integers<T: Int>(level: Level, choice: impl Into<Choice>, values: &[T]) -> Result<Vec<u8>> {
    Maker::new(level, choice, &mut Plan::default()).integers(values)
}

/// A frame of floats, encoded and compressed in the way that `choice` prefers.
///
/// # Errors
/// When there are 2^32 values or bytes, or more.
pub fn of_floats<F: Float>(level: Level, choice: impl Into<Choice>, values: &[F]) -> Result<Vec<u8>> {
    Maker::new(level, choice, &mut Plan::default()).floats(values)
}

/// A frame of flags, encoded and compressed in the way that `choice` prefers.
///
/// # Errors
/// When there are 2^32 flags or more.
pub fn of_flags(level: Level, choice: impl Into<Choice>, flags: Bits<'_>) -> Result<Vec<u8>> {
    Maker::new(level, choice, &mut Plan::default()).flags(flags)
}

/// A frame of text, encoded and compressed in the way that `choice` prefers.
///
/// # Errors
/// When there are 2^32 rows or bytes, or more.
pub fn of_strings(level: Level, choice: impl Into<Choice>, rows: Rows<'_>) -> Result<Vec<u8>> {
    Maker::new(level, choice, &mut Plan::default()).strings(rows)
}
