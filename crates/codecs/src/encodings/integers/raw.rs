//! The values themselves: for values that nothing makes smaller.
//!
//! ```text
//! | value | value | ...      little endian
//! ```

use std::fmt;
use std::marker::PhantomData;

use keirin_kernels::Level;
use keirin_kernels::aligned::bytes_of;

use super::{Int, Node};
use crate::reader::Reader;
use crate::writer::Writer;
use crate::{Error, Result};

pub(super) fn write<T: Int>(writer: &mut Writer, values: &[T]) -> bool {
    match bytes_of(values) {
        Some(bytes) => writer.bytes.extend_from_slice(bytes),
        None => values.iter().for_each(|value| value.extend(&mut writer.bytes)),
    }
    true
}

#[derive(Debug)]
pub(super) struct Raw<'a, T> {
    bytes: &'a [u8],
    count: usize,
    values: PhantomData<T>,
}

impl<'a, T: Int> Raw<'a, T> {
    pub(super) fn open(reader: &mut Reader<'a>, count: usize) -> Result<Self> {
        let at = reader.at();
        let size = count.checked_mul(T::BYTES).ok_or(Error::Corrupt { at, reason: "too many rows" })?;
        Ok(Self { bytes: reader.take(size)?, count, values: PhantomData })
    }
}

impl<T: Int> Node<T> for Raw<'_, T> {
    fn len(&self) -> usize {
        self.count
    }

    fn decode_into(&self, _: Level, first: usize, out: &mut [T]) -> Result<()> {
        T::copy_from_bytes(&self.bytes[first * T::BYTES..][..out.len() * T::BYTES], out);
        Ok(())
    }

    fn take(&self, _: Level, rows: &[u32], out: &mut Vec<T>) -> Result<()> {
        out.extend(rows.iter().map(|row| T::from_bytes(&self.bytes[*row as usize * T::BYTES..][..T::BYTES])));
        Ok(())
    }

    fn as_bytes(&self) -> Option<&[u8]> {
        Some(self.bytes)
    }

    fn decode_ns(&self) -> f64 {
        self.bytes.len() as f64 * 0.02
    }

    fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("raw")
    }
}
