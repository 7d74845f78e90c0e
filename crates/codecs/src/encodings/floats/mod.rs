//! Floats as bytes; all bits are kept.
//!
//! As for integers, one byte is the id of the encoding, and the row count is not stored.
//!
//! | id | encoding | for |
//! |---|---|---|
//! | 0 | bits | an encoding of the bits as integers: raw, constant, runs, a dictionary |
//! | 1 | alp | decimal numbers: prices, measurements |
//! | 2 | split | real numbers in a narrow range, with the upper bits stored apart |
//! | 3 | raw | values that nothing makes smaller |
//!
//! Comparisons use the total order: a NaN is greater than all numbers, `-0.0 < 0.0`.

use std::fmt;
use std::marker::PhantomData;

use keirin_kernels::aligned::{numbers, same_bytes_mut};
use keirin_kernels::compare::{Comparison, compare_constant};
use keirin_kernels::{BitBuffer, Level, Selection};

use super::check_count;
use crate::blocks::Codec;
use crate::integers::{self, BoxNode};
use crate::judge::{Judge, Verdict};
use crate::reader::Reader;
use crate::writer::Writer;
use crate::{Choice, Result};

mod alp;
mod float;
mod split;

pub use float::Float;

/// An encoding of floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Encoding {
    /// The bits as integers.
    Bits,
    /// Decimal numbers as integers.
    Alp,
    /// Upper and lower bits apart.
    Split,
    /// The values themselves.
    Raw,
}

impl Encoding {
    /// All encodings, in the order of their ids.
    pub const ALL: [Self; 4] = [Self::Bits, Self::Alp, Self::Split, Self::Raw];

    /// The byte that stands for it.
    fn id(self) -> u8 {
        self as u8
    }
}

/// Encodes `values` in the way that `choice` prefers.
///
/// # Errors
/// When there are 2^32 values or more.
pub fn encode<F: Float>(level: Level, choice: impl Into<Choice>, values: &[F]) -> Result<Vec<u8>> {
    check_count(values.len())?;
    let mut writer = Writer::new(level, choice.into());
    write(&mut writer, values);
    Ok(writer.bytes)
}

/// Encodes `values` with this as the outermost encoding; `None` if it cannot hold them. Inner encodings are
/// chosen.
///
/// # Errors
/// When there are 2^32 values or more.
pub fn encode_as<F: Float>(
    level: Level,
    choice: impl Into<Choice>,
    encoding: Encoding,
    values: &[F],
) -> Result<Option<Vec<u8>>> {
    check_count(values.len())?;
    let mut writer = Writer::new(level, choice.into());
    Ok(write_as(&mut writer, encoding, values).then_some(writer.bytes))
}

/// Appends the encoding that is best on a sample; returns how to compress it.
pub(crate) fn write<F: Float>(writer: &mut Writer, values: &[F]) -> Codec {
    let choose = |writer: &Writer| choose(writer, values);
    writer.column(&Encoding::ALL, choose, |writer, encoding| write_as(writer, encoding, values))
}

fn choose<F: Float>(writer: &Writer, values: &[F]) -> Verdict<Encoding> {
    let sample = super::sample(values);
    let scale = values.len() as f64 / sample.len().max(1) as f64;
    let mut judge = Judge::new(writer, values.len(), Some(Encoding::Raw));
    // The simplest first: later ones must be clearly better.
    for encoding in [Encoding::Raw, Encoding::Bits, Encoding::Alp, Encoding::Split] {
        let mut trial = writer.trial();
        if write_as(&mut trial, encoding, &sample) {
            let open = || Column::<F>::open(writer.level, &trial.bytes, sample.len());
            let decode_ns = open().expect("what was written can be read").node.decode_ns();
            judge.consider(encoding, &trial.bytes, scale, decode_ns, || {
                let decoded = open().and_then(|column| column.decode(writer.level));
                decoded.expect("what was written can be read");
            });
        }
    }
    judge.verdict().expect("bits can hold any values")
}

fn write_as<F: Float>(writer: &mut Writer, encoding: Encoding, values: &[F]) -> bool {
    writer.bytes.push(encoding.id());
    match encoding {
        Encoding::Bits => {
            let bits: Vec<F::Bits> = values.iter().map(|value| value.bits()).collect();
            writer.nested(|writer| integers::write(writer, &bits));
            true
        }
        Encoding::Alp => alp::write(writer, values),
        Encoding::Split => split::write(writer, values),
        Encoding::Raw => {
            let bits: Vec<F::Bits> = values.iter().map(|value| value.bits()).collect();
            integers::write_raw(writer, &bits)
        }
    }
}

/// An opened encoding; callers guarantee that rows are below its count of rows.
trait Node<F: Float>: fmt::Debug + Send + Sync {
    fn len(&self) -> usize;

    /// Decodes values `first .. first + out.len()`.
    fn decode_into(&self, level: Level, first: usize, out: &mut [F]) -> Result<()>;

    /// Appends the values of `rows`, in this order.
    fn take(&self, level: Level, rows: &[u32], out: &mut Vec<F>) -> Result<()>;

    /// Selects the rows for whose values the comparison with `constant` holds.
    fn compare(&self, level: Level, comparison: Comparison, constant: F) -> Result<BitBuffer> {
        if let Some(values) = self.as_bytes().and_then(numbers::<F>) {
            return Ok(compare_constant(level, comparison, values, constant));
        }
        let mut words = Vec::with_capacity(self.len().div_ceil(64));
        let decode = |first: usize, out: &mut [F]| self.decode_into(level, first, out);
        super::for_each_block(0..self.len(), decode, |values| {
            words.extend(compare_constant(level, comparison, values, constant).into_words());
            Ok(())
        })?;
        Ok(BitBuffer::from_words(words, self.len()))
    }

    /// The bytes of all values without a copy, if they are stored as they are.
    fn as_bytes(&self) -> Option<&[u8]> {
        None
    }

    /// An estimate of the nanoseconds to decode all rows; see `integers::Node`.
    fn decode_ns(&self) -> f64;

    fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// Floats whose bits are encoded as integers.
#[derive(Debug)]
struct BitsNode<'a, F: Float> {
    bits: BoxNode<'a, F::Bits>,
    floats: PhantomData<F>,
}

impl<F: Float> Node<F> for BitsNode<'_, F> {
    fn len(&self) -> usize {
        self.bits.len()
    }

    fn decode_into(&self, level: Level, first: usize, out: &mut [F]) -> Result<()> {
        self.bits.decode_into(level, first, same_bytes_mut(out))
    }

    fn take(&self, level: Level, rows: &[u32], out: &mut Vec<F>) -> Result<()> {
        let mut bits = Vec::with_capacity(rows.len());
        self.bits.take(level, rows, &mut bits)?;
        out.extend(bits.into_iter().map(F::from_bits));
        Ok(())
    }

    fn as_bytes(&self) -> Option<&[u8]> {
        self.bits.as_bytes()
    }

    fn decode_ns(&self) -> f64 {
        self.bits.decode_ns()
    }

    fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bits.explain(f)
    }
}

/// An opened column: values are decoded when they are requested.
#[derive(Debug)]
pub struct Column<'a, F: Float> {
    node: Box<dyn Node<F> + 'a>,
}

impl<'a, F: Float> Column<'a, F> {
    /// Opens the encoding of `row_count` values. The caller vouches for the count: decoding allocates that
    /// many values, opening never more.
    ///
    /// # Errors
    /// When the bytes are not an encoding of `row_count` values.
    pub fn open(level: Level, bytes: &'a [u8], row_count: usize) -> Result<Self> {
        let mut reader = Reader::new(level, bytes);
        let encoding = reader.encoding(&Encoding::ALL)?;
        let node: Box<dyn Node<F> + 'a> = reader.nested(|reader| {
            let node: Box<dyn Node<F> + 'a> = match encoding {
                Encoding::Bits => {
                    let bits = integers::open(reader, row_count)?;
                    Box::new(BitsNode { bits, floats: PhantomData })
                }
                Encoding::Alp => Box::new(alp::Alp::open(reader, row_count)?),
                Encoding::Split => Box::new(split::Split::open(reader, row_count)?),
                Encoding::Raw => {
                    let bits = integers::open_raw(reader, row_count)?;
                    Box::new(BitsNode { bits, floats: PhantomData })
                }
            };
            Ok(node)
        })?;
        reader.end()?;
        Ok(Self { node })
    }

    /// Count of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.node.len()
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All values.
    ///
    /// # Errors
    /// When the bytes turn out to be corrupt.
    pub fn decode(&self, level: Level) -> Result<Vec<F>> {
        let mut values = vec![F::default(); self.len()];
        self.node.decode_into(level, 0, &mut values)?;
        Ok(values)
    }

    /// Decodes values `first .. first + out.len()`.
    ///
    /// # Errors
    /// When the bytes turn out to be corrupt.
    ///
    /// # Panics
    /// When there are fewer values.
    pub fn decode_into(&self, level: Level, first: usize, out: &mut [F]) -> Result<()> {
        let end = first.saturating_add(out.len());
        assert!(end <= self.len(), "rows {first}..{end} of {}", self.len());
        self.node.decode_into(level, first, out)
    }

    /// The values of selected rows.
    ///
    /// # Errors
    /// When the bytes turn out to be corrupt.
    ///
    /// # Panics
    /// When the selection has rows beyond the end.
    pub fn select(&self, level: Level, selection: Selection<'_>) -> Result<Vec<F>> {
        super::select(
            level,
            selection,
            self.len(),
            // Rows that are as they are need no decoding.
            if self.node.as_bytes().is_some() { f64::INFINITY } else { self.node.decode_ns() },
            |rows, out| self.node.take(level, rows, out),
            |first, out| self.node.decode_into(level, first, out),
        )
    }

    /// Selects the rows for whose values the comparison with `constant` holds in the total order; computed on
    /// the encoded form if possible.
    ///
    /// # Errors
    /// When the bytes turn out to be corrupt.
    pub fn compare(&self, level: Level, comparison: Comparison, constant: F) -> Result<BitBuffer> {
        self.node.compare(level, comparison, constant)
    }

    /// The little-endian bytes of all values without a copy, if they are stored as they are.
    #[must_use]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        self.node.as_bytes()
    }

    /// A description of the encoding, such as `alp(14, 12) + bitpack(11)`.
    #[must_use]
    pub fn explain(&self) -> String {
        struct Text<'a, F>(&'a dyn Node<F>);
        impl<F: Float> fmt::Display for Text<'_, F> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.explain(f)
            }
        }
        Text(&*self.node).to_string()
    }
}
