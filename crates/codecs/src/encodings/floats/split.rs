//! Sign, exponent and the first fraction bits, stored apart from the lower bits.
//!
//! ```text
//! | width: u8 | upper bits, one a row, of 16 bits | lower `width` bits, packed, one a row |
//!               `--- a column -----------------'
//! ```
//! For real numbers in a narrow range: few distinct values occur in their upper bits, and the lower ones are
//! noise. As ALP-RD (Afroozeh, Kuffo, Boncz, SIGMOD 2023), but the upper bits may have any encoding for
//! integers.

use std::fmt;

use keirin_kernels::bitpack::packed_bytes;
use keirin_kernels::compare::Comparison;
use keirin_kernels::decode::{Halves, join_halves};
use keirin_kernels::{BitBuffer, Level, bitmaps};

use super::{Float, Node};
use crate::encodings::{BLOCK, spread};
use crate::integers::{self, BoxNode, Explain, Int, PackedBits};
use crate::plan::Note;
use crate::reader::Reader;
use crate::writer::Writer;
use crate::{Error, Result};

/// The most upper bits.
const UPPER_MAX: u32 = 16;
/// Values in the sample on which widths are tried.
const SAMPLE: usize = 256;

/// The width of the lower bits with which a sample takes the fewest bits.
fn width<F: Float>(values: &[F]) -> u32 {
    let sample = spread(values, SAMPLE);
    let size = |width: &u32| {
        let mut uppers: Vec<u16> = sample.iter().map(|value| value.split(*width).0).collect();
        uppers.sort_unstable();
        uppers.dedup();
        width + uppers.len().next_power_of_two().trailing_zeros()
    };
    (F::BITS - UPPER_MAX..F::BITS).min_by_key(size).expect("there are widths")
}

pub(super) fn write<F: Float>(writer: &mut Writer, values: &[F]) -> bool {
    let width = match writer.known_note() {
        Some(Note::Numbers([width, _])) => u32::from(*width),
        _ => width(values),
    };
    let width_byte = u8::try_from(width).expect("at most 64 bits");
    writer.keep_note(Note::Numbers([width_byte, 0]));
    let (uppers, lowers): (Vec<u16>, Vec<F::Bits>) = values.iter().map(|value| value.split(width)).unzip();
    writer.bytes.push(width_byte);
    writer.nested(|writer| integers::write(writer, &uppers));
    let packed = F::Bits::pack(writer.level, &lowers, width, F::Bits::default());
    writer.bytes.extend_from_slice(&packed);
    true
}

#[derive(Debug)]
pub(super) struct Split<'a, F: Float> {
    /// Where the upper bits begin.
    at: usize,
    width: u32,
    uppers: BoxNode<'a, u16>,
    lowers: PackedBits<'a, F::Bits>,
}

impl<'a, F: Float> Split<'a, F> {
    pub(super) fn open(reader: &mut Reader<'a>, count: usize) -> Result<Self> {
        let at = reader.at();
        let width = u32::from(reader.u8()?);
        if !(F::BITS - UPPER_MAX..F::BITS).contains(&width) {
            return Err(Error::Corrupt { at, reason: "floats split at a place where they never are" });
        }
        let at = reader.at();
        let uppers = integers::open(reader, count)?;
        let bytes = reader.take(packed_bytes(count, width))?;
        Ok(Self { at, width, uppers, lowers: PackedBits::new(bytes, width, count, F::Bits::default()) })
    }

    /// Refuses upper bits that are more than fit above the lower ones: they would be lost without a word.
    fn check(&self, uppers: &[u16]) -> Result<()> {
        let all = uppers.iter().fold(0, |all, upper| all | upper);
        if u32::from(all) >> (F::BITS - self.width) == 0 {
            return Ok(());
        }
        Err(Error::Corrupt { at: self.at, reason: "upper bits of floats that are too many" })
    }
}

impl<F: Float> Node<F> for Split<'_, F> {
    fn len(&self) -> usize {
        self.uppers.len()
    }

    fn decode_into(&self, level: Level, first: usize, out: &mut [F]) -> Result<()> {
        let (mut uppers, mut lowers) = ([0_u16; BLOCK], [F::Bits::default(); BLOCK]);
        for (index, out) in out.chunks_mut(BLOCK).enumerate() {
            let (uppers, lowers) = (&mut uppers[..out.len()], &mut lowers[..out.len()]);
            self.uppers.decode_into(level, first + index * BLOCK, uppers)?;
            self.check(uppers)?;
            F::Bits::unpack_into(level, self.lowers, first + index * BLOCK, lowers);
            join_halves(level, uppers, lowers, self.width, out);
        }
        Ok(())
    }

    fn take(&self, level: Level, rows: &[u32], out: &mut Vec<F>) -> Result<()> {
        let mut uppers = Vec::with_capacity(rows.len());
        self.uppers.take(level, rows, &mut uppers)?;
        self.check(&uppers)?;
        out.extend(
            rows.iter()
                .zip(uppers)
                .map(|(row, upper)| F::Bits::unpack_one(self.lowers, *row as usize).join(upper, self.width)),
        );
        Ok(())
    }

    fn compare(&self, level: Level, comparison: Comparison, constant: F) -> Result<BitBuffer> {
        // Upper bits decide but for rows that have those of the constant. Floats are in the order of their bits, those
        // with a sign in the reverse order and before the others.
        let (upper, lower) = constant.split(self.width);
        let sign = 1_u16 << (F::BITS - self.width - 1);
        let is_negative = upper >= sign;
        let is_equality = matches!(comparison, Comparison::Equal | Comparison::NotEqual);
        let mut found = if is_equality {
            BitBuffer::zeros(self.len())
        } else if is_negative {
            self.uppers.compare(level, Comparison::Less, upper)?
        } else {
            let above = self.uppers.compare(level, Comparison::Greater, upper)?;
            let positive = self.uppers.compare(level, Comparison::Less, sign)?;
            bitmaps::and(level, above.as_bits(), positive.as_bits())
        }
        .into_words();
        let passes = |value: F::Bits| match comparison {
            Comparison::Equal | Comparison::NotEqual => value == lower,
            Comparison::Greater | Comparison::LessEqual if is_negative => value < lower,
            Comparison::Greater | Comparison::LessEqual => value > lower,
            Comparison::GreaterEqual | Comparison::Less if is_negative => value <= lower,
            Comparison::GreaterEqual | Comparison::Less => value >= lower,
        };
        let open = self.uppers.compare(level, Comparison::Equal, upper)?;
        for row in bitmaps::positions(level, open.as_bits()) {
            let row = row as usize;
            if passes(F::Bits::unpack_one(self.lowers, row)) {
                found[row / 64] |= 1 << (row % 64);
            }
        }
        let found = BitBuffer::from_words(found, self.len());
        Ok(match comparison {
            Comparison::Equal | Comparison::Greater | Comparison::GreaterEqual => found,
            _ => bitmaps::not(level, found.as_bits()),
        })
    }

    fn decode_ns(&self) -> f64 {
        self.uppers.decode_ns() + self.len() as f64 * 0.5
    }

    fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "split({} + {})", Explain(&*self.uppers), self.width)
    }
}
