//! Decimal numbers as integers, without the decimal point.
//!
//! ```text
//! | e: u8 | f: u8 | exception count: u32 | rows of exceptions | their bits | integers, one a row |
//!                                          `--- columns, if any ---------'  `--- a column ------'
//! ```
//! A float `v` that came from a decimal number is, in most columns, the float nearest to `d * 10^f * 10^-e`
//! for an integer `d` and `e`, `f` that are the same for the whole column. If the bits of a value are not
//! exactly these (NaN, `-0.0`, infinities, more digits) the row is an exception. (Afroozeh, Kuffo, Boncz:
//! "ALP: Adaptive Lossless floating-Point Compression", SIGMOD 2023.)
//!
//! Unlike in the paper, 32-bit floats are computed with 64 bits, so that more of them are decimal numbers;
//! and the integers are in any encoding for integers, not just packed bits.
//!
//! A greater integer never decodes to a smaller float, since each product is rounded to the nearest; so a
//! comparison with a constant becomes one of integers.

use std::fmt;

use keirin_kernels::aggregate::Ordered;
use keirin_kernels::bitmaps;
use keirin_kernels::compare::{Comparison, compare_constant};
use keirin_kernels::decode::{Decimal, decimals_to_floats};
use keirin_kernels::{BitBuffer, Level};

use super::{Float, Node};
use crate::encodings::{BLOCK, grouped, patch_bits, same_bits, spread};
use crate::integers::{self, BoxNode, Explain, Int};
use crate::plan::Note;
use crate::reader::Reader;
use crate::writer::Writer;
use crate::{Error, Result};

/// 10^n, exact up to 10^22.
const POWERS: [f64; 19] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18];
/// The floats nearest to 10^-n.
const INVERSES: [f64; 19] = [
    1e0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12, 1e-13, 1e-14, 1e-15,
    1e-16, 1e-17, 1e-18,
];
/// Values in the sample on which exponents are tried.
const SAMPLE: usize = 128;
/// The cost in bits of an exception besides its value: that of its row.
const ROW_BITS: u64 = 16;

/// The exponents: values are `d * 10^f * 10^-e`.
#[derive(Clone, Copy, Debug)]
struct Point {
    e: usize,
    f: usize,
}

impl Point {
    /// The integer that decodes to exactly this value, if there is one.
    #[inline(always)]
    fn encode<F: Float>(self, value: F) -> Option<F::Whole> {
        let whole = value.to_whole(POWERS[self.e], INVERSES[self.f])?;
        (self.decode::<F>(whole).bits() == value.bits()).then_some(whole)
    }

    #[inline(always)]
    fn decode<F: Float>(self, whole: F::Whole) -> F {
        whole.to_float(POWERS[self.f], INVERSES[self.e])
    }

    /// The bits that the sample takes when packed.
    fn size<F: Float>(self, sample: &[F]) -> u64 {
        let wholes: Vec<F::Whole> = sample.iter().filter_map(|value| self.encode(*value)).collect();
        let width = match (wholes.iter().min(), wholes.iter().max()) {
            (Some(least), Some(greatest)) => greatest.width(*least),
            _ => 0,
        };
        let exceptions = (sample.len() - wholes.len()) as u64;
        sample.len() as u64 * u64::from(width) + exceptions * (u64::from(F::BITS) + ROW_BITS)
    }

    /// The exponents with which a sample of the values takes the fewest bits.
    fn of<F: Float>(values: &[F]) -> Self {
        let sample = spread(values, SAMPLE);
        let points = (0..=F::EXPONENT_MAX).flat_map(|e| (0..=e).map(move |f| Self { e, f }));
        // Of equally good exponents those with the fewest digits, whose integers are short.
        points.min_by_key(|point| (point.size(&sample), point.e)).unwrap_or(Self { e: 0, f: 0 })
    }
}

pub(super) fn write<F: Float>(writer: &mut Writer, values: &[F]) -> bool {
    let point = match writer.known_note() {
        Some(Note::Numbers([e, f])) => Point { e: usize::from(*e), f: usize::from(*f) },
        _ => Point::of(values),
    };
    let digits = [point.e, point.f].map(|digits| u8::try_from(digits).expect("at most 18 digits"));
    writer.keep_note(Note::Numbers(digits));
    let (mut rows, mut exceptions) = (Vec::new(), Vec::new());
    let mut wholes = Vec::with_capacity(values.len());
    let mut before = values.iter().find_map(|value| point.encode(*value)).unwrap_or_default();
    for (row, value) in (0_u32..).zip(values) {
        match point.encode(*value) {
            Some(whole) => before = whole,
            None => {
                rows.push(row);
                exceptions.push(value.bits());
            }
        }
        // An exception repeats the integer before it, which costs least in any encoding.
        wholes.push(before);
    }
    writer.bytes.extend(digits);
    writer.count(rows.len());
    writer.nested(|writer| {
        if rows.is_empty() {
            writer.skip_columns(2);
        } else {
            integers::write(writer, &rows);
            integers::write(writer, &exceptions);
        }
        integers::write(writer, &wholes);
    });
    true
}

#[derive(Debug)]
pub(super) struct Alp<'a, F: Float> {
    point: Point,
    /// The rows of exceptions, ascending.
    rows: Vec<u32>,
    exceptions: Vec<F>,
    wholes: BoxNode<'a, F::Whole>,
}

impl<'a, F: Float> Alp<'a, F> {
    pub(super) fn open(reader: &mut Reader<'a>, count: usize) -> Result<Self> {
        let at = reader.at();
        let [e, f] = reader.array()?.map(usize::from);
        if f > e || e > F::EXPONENT_MAX {
            return Err(Error::Corrupt { at, reason: "a point where decimal numbers have none" });
        }
        let exception_count = reader.count(count, "more exceptions than rows")?;
        let (mut rows, mut exceptions) = (Vec::new(), Vec::new());
        if exception_count > 0 {
            rows = integers::read_rows(reader, exception_count, count)?;
            let bits: Vec<F::Bits> = integers::read(reader, exception_count)?;
            exceptions = bits.into_iter().map(F::from_bits).collect();
        }
        Ok(Self { point: Point { e, f }, rows, exceptions, wholes: integers::open(reader, count)? })
    }

    /// The least integer whose float is at least the constant, or greater than it if `or_equal`.
    fn bound(&self, constant: F, or_equal: bool) -> Option<F::Whole> {
        let is_behind = |whole: F::Whole| {
            let value = self.point.decode::<F>(whole);
            if or_equal { constant.less(value) } else { constant.less_equal(value) }
        };
        let (mut low, mut high) = (F::Whole::LOWEST, F::Whole::HIGHEST);
        if is_behind(low) {
            return Some(low);
        }
        if !is_behind(high) {
            return None;
        }
        // The float of `low` is before the bound, that of `high` is not.
        loop {
            let middle = F::middle(low, high);
            if middle == low || middle == high {
                return Some(high);
            }
            if is_behind(middle) {
                high = middle;
            } else {
                low = middle;
            }
        }
    }
}

impl<F: Float> Node<F> for Alp<'_, F> {
    fn len(&self) -> usize {
        self.wholes.len()
    }

    fn decode_into(&self, level: Level, first: usize, out: &mut [F]) -> Result<()> {
        let mut wholes = [F::Whole::default(); BLOCK];
        for (index, out) in out.chunks_mut(BLOCK).enumerate() {
            let wholes = &mut wholes[..out.len()];
            self.wholes.decode_into(level, first + index * BLOCK, wholes)?;
            decimals_to_floats(level, wholes, POWERS[self.point.f], INVERSES[self.point.e], out);
        }
        let place = |row: usize| self.rows.partition_point(|exception| (*exception as usize) < row);
        for place in place(first)..place(first + out.len()) {
            out[self.rows[place] as usize - first] = self.exceptions[place];
        }
        Ok(())
    }

    fn take(&self, level: Level, rows: &[u32], out: &mut Vec<F>) -> Result<()> {
        let mut wholes = Vec::with_capacity(rows.len());
        self.wholes.take(level, rows, &mut wholes)?;
        out.extend(rows.iter().zip(wholes).map(|(row, whole)| match self.rows.binary_search(row) {
            Ok(place) => self.exceptions[place],
            Err(_) => self.point.decode(whole),
        }));
        Ok(())
    }

    fn compare(&self, level: Level, comparison: Comparison, constant: F) -> Result<BitBuffer> {
        // Selects the rows from the bound on, or all others.
        let from = |bound: Option<F::Whole>, is_wanted: bool| match bound {
            None => Ok(same_bits(!is_wanted, self.len())),
            Some(bound) if is_wanted => self.wholes.compare(level, Comparison::GreaterEqual, bound),
            Some(bound) => self.wholes.compare(level, Comparison::Less, bound),
        };
        let (equal, above) = (self.bound(constant, false), self.bound(constant, true));
        let found = match comparison {
            Comparison::Less => from(equal, false)?,
            Comparison::LessEqual => from(above, false)?,
            Comparison::Greater => from(above, true)?,
            Comparison::GreaterEqual => from(equal, true)?,
            Comparison::Equal | Comparison::NotEqual => {
                let found = match equal {
                    Some(whole) if Some(whole) != above => {
                        let is_single = above == Some(whole.plus(F::Whole::ONE));
                        if is_single {
                            self.wholes.compare(level, Comparison::Equal, whole)?
                        } else {
                            let (start, end) = (from(equal, true)?, from(above, false)?);
                            bitmaps::and(level, start.as_bits(), end.as_bits())
                        }
                    }
                    _ => same_bits(false, self.len()),
                };
                if comparison == Comparison::Equal { found } else { bitmaps::not(level, found.as_bits()) }
            }
        };
        let exceptions = compare_constant(level, comparison, &self.exceptions, constant);
        Ok(patch_bits(found, &self.rows, exceptions.as_bits()))
    }

    fn decode_ns(&self) -> f64 {
        self.wholes.decode_ns() + self.len() as f64 * 0.25 + self.rows.len() as f64
    }

    fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "alp({}, {}", self.point.e, self.point.f)?;
        match self.rows.len() {
            0 => {}
            1 => f.write_str(", 1 exception")?,
            count => write!(f, ", {} exceptions", grouped(count))?,
        }
        write!(f, ") + {}", Explain(&*self.wholes))
    }
}
