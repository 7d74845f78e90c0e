//! One value for all rows.
//!
//! ```text
//! | value |
//! ```

use std::fmt;
use std::ops::Range;

use keirin_kernels::compare::Comparison;
use keirin_kernels::{BitBuffer, Level};

use super::{Int, Node};
use crate::encodings::{holds, same_bits};
use crate::reader::Reader;
use crate::writer::Writer;
use crate::{Error, Result};

pub(super) fn write<T: Int>(writer: &mut Writer, values: &[T]) -> bool {
    let value = values.first().copied().unwrap_or_default();
    if values.iter().any(|other| *other != value) {
        return false;
    }
    value.extend(&mut writer.bytes);
    true
}

#[derive(Debug)]
pub(super) struct Constant<T> {
    value: T,
    count: usize,
}

impl<T: Int> Constant<T> {
    pub(super) fn open(reader: &mut Reader<'_>, count: usize) -> Result<Self> {
        Ok(Self { value: T::from_bytes(reader.take(T::BYTES)?), count })
    }
}

impl<T: Int> Node<T> for Constant<T> {
    fn len(&self) -> usize {
        self.count
    }

    fn decode_into(&self, _: Level, _: usize, out: &mut [T]) -> Result<()> {
        out.fill(self.value);
        Ok(())
    }

    fn take(&self, _: Level, rows: &[u32], out: &mut Vec<T>) -> Result<()> {
        out.resize(out.len() + rows.len(), self.value);
        Ok(())
    }

    fn compare(&self, _: Level, comparison: Comparison, constant: T) -> Result<BitBuffer> {
        Ok(same_bits(holds(comparison, self.value, constant), self.count))
    }

    fn sum(&self, _: Level, rows: Range<usize>) -> Result<i128> {
        self.value.to_i128().checked_mul(rows.len() as i128).ok_or(Error::SumOverflow)
    }

    fn decode_ns(&self) -> f64 {
        (self.count * T::BYTES) as f64 * 0.01
    }

    fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("constant")
    }
}
