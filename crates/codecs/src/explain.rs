//! Describes how a block is stored, in a line for users.

use std::hint::black_box;

use keirin_kernels::Level;
use keirin_race::Races;

use crate::Result;
use crate::blocks::{Codec, Decoder};
use crate::floats::Float;
use crate::frame::{Compression, Frame, Kind};
use crate::integers::Int;
use crate::judge::shortest_ns;

impl Frame<'_> {
    /// The encoding of the block, its compression ratio, and the speed of decoding it just now: such as
    /// `dict(1,204) + bitpack(11) + lz4: 5.8x, 9 GB/s`.
    ///
    /// # Errors
    /// When the bytes are corrupt.
    pub fn explain(&self, level: Level) -> Result<String> {
        let codec = Codec::from(self.compression());
        let decoder = Decoder::new(codec, &Races::default(), "explain", self.stored());
        let mut buffer = Vec::new();
        let mut made_of = self.decompress(&decoder, &mut buffer)?.decode_all(level)?;
        if self.compression() != Compression::None {
            made_of = format!("{made_of} + {}", codec.name());
        }
        let ns = shortest_ns(&mut || {
            let decoded = self.decompress(&decoder, &mut buffer).and_then(|frame| frame.decode_all(level));
            let _ = black_box(decoded);
        });
        let value_bytes = self.value_bytes() as f64;
        Ok(format!("{made_of}: {:.1}x, {:.0} GB/s", value_bytes / self.byte_count() as f64, value_bytes / ns))
    }

    /// Decodes all values; returns the description of their encoding.
    fn decode_all(&self, level: Level) -> Result<String> {
        match self.kind() {
            Kind::Flags => {
                let column = self.flags(level)?;
                black_box(column.decode());
                Ok(column.explain())
            }
            Kind::Text => {
                let column = self.strings(level)?;
                black_box(column.decode(level)?);
                Ok(column.explain())
            }
            Kind::I8 => self.decode_integers::<i8>(level),
            Kind::I16 => self.decode_integers::<i16>(level),
            Kind::I32 => self.decode_integers::<i32>(level),
            Kind::I64 => self.decode_integers::<i64>(level),
            Kind::I128 => self.decode_integers::<i128>(level),
            Kind::U8 => self.decode_integers::<u8>(level),
            Kind::U16 => self.decode_integers::<u16>(level),
            Kind::U32 => self.decode_integers::<u32>(level),
            Kind::U64 => self.decode_integers::<u64>(level),
            Kind::F32 => self.decode_floats::<f32>(level),
            Kind::F64 => self.decode_floats::<f64>(level),
        }
    }

    fn decode_integers<T: Int>(&self, level: Level) -> Result<String> {
        let column = self.integers::<T>(level)?;
        black_box(column.decode(level)?);
        Ok(column.explain())
    }

    fn decode_floats<F: Float>(&self, level: Level) -> Result<String> {
        let column = self.floats::<F>(level)?;
        black_box(column.decode(level)?);
        Ok(column.explain())
    }
}
