//! What aggregates are computed of: numbers of any type or texts, a value for each row of a chunk, lent or kept.

use keirin_kernels::Level;
use keirin_kernels::hash::Strings;

use crate::heap::{Heap, TEXT_WORDS};

/// The type of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say all")]
pub enum NumberType {
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F32,
    F64,
    /// Values of 128 bits, or of 64 where all of a chunk have room there.
    Decimal,
    /// Texts, or other bytes, of which each has less than 4 GiB.
    Text,
}

impl NumberType {
    /// Whether values have a sign.
    #[must_use]
    pub fn is_signed(self) -> bool {
        matches!(self, Self::I8 | Self::I16 | Self::I32 | Self::I64)
    }

    /// Whether values have more than 32 bits.
    #[must_use]
    pub fn is_wide(self) -> bool {
        matches!(self, Self::I64 | Self::U64)
    }
}

/// Numbers by their type.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the names say all")]
pub enum Numbers<'a> {
    I8(&'a [i8]),
    I16(&'a [i16]),
    I32(&'a [i32]),
    I64(&'a [i64]),
    U8(&'a [u8]),
    U16(&'a [u16]),
    U32(&'a [u32]),
    U64(&'a [u64]),
    F32(&'a [f32]),
    F64(&'a [f64]),
    I128(&'a [i128]),
    Texts(Strings<'a>),
    /// Texts in the heaps of threads.
    #[doc(hidden)]
    Kept(&'a [[u64; TEXT_WORDS]]),
}

/// What aggregates are computed of: a value for each row of a chunk.
#[derive(Clone, Copy, Debug)]
pub struct Argument<'a> {
    /// The values; arbitrary where a row has none.
    pub values: Numbers<'a>,
    /// Which rows have a value; without, all have.
    pub validity: Option<&'a [bool]>,
    /// The power of two that floats are multiples of; [`Worker::add`](crate::grouping::Worker::add) finds it.
    pub unit: i32,
}

/// Numbers that are kept, and which rows have a value.
#[derive(Debug)]
pub(crate) struct OwnedArgument {
    values: OwnedNumbers,
    validity: Option<Vec<bool>>,
    unit: i32,
}

/// Runs the same code for numbers of all types.
macro_rules! each_type {
    ($values:expr, $enum:ident, $numbers:ident => $body:expr) => {
        match $values {
            $enum::I8($numbers) => $body,
            $enum::I16($numbers) => $body,
            $enum::I32($numbers) => $body,
            $enum::I64($numbers) => $body,
            $enum::U8($numbers) => $body,
            $enum::U16($numbers) => $body,
            $enum::U32($numbers) => $body,
            $enum::U64($numbers) => $body,
            $enum::F32($numbers) => $body,
            $enum::F64($numbers) => $body,
            $enum::I128($numbers) => $body,
            $enum::Kept($numbers) => $body,
        }
    };
}

/// The same for numbers that a word has room for.
macro_rules! each_word {
    ($values:expr, $numbers:ident => $body:expr) => {
        match $values {
            Numbers::I8($numbers) => $body,
            Numbers::I16($numbers) => $body,
            Numbers::I32($numbers) => $body,
            Numbers::I64($numbers) => $body,
            Numbers::U8($numbers) => $body,
            Numbers::U16($numbers) => $body,
            Numbers::U32($numbers) => $body,
            Numbers::U64($numbers) => $body,
            Numbers::F32($numbers) => $body,
            Numbers::F64($numbers) => $body,
            Numbers::I128(_) | Numbers::Texts(_) | Numbers::Kept(_) => {
                panic!("they have states of their own")
            }
        }
    };
}

#[derive(Debug)]
enum OwnedNumbers {
    I8(Vec<i8>),
    I16(Vec<i16>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    U64(Vec<u64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    I128(Vec<i128>),
    Kept(Vec<[u64; TEXT_WORDS]>),
}

impl OwnedArgument {
    pub(crate) fn new(number_type: NumberType) -> Self {
        let values = match number_type {
            NumberType::I8 => OwnedNumbers::I8(Vec::new()),
            NumberType::I16 => OwnedNumbers::I16(Vec::new()),
            NumberType::I32 => OwnedNumbers::I32(Vec::new()),
            NumberType::I64 => OwnedNumbers::I64(Vec::new()),
            NumberType::U8 => OwnedNumbers::U8(Vec::new()),
            NumberType::U16 => OwnedNumbers::U16(Vec::new()),
            NumberType::U32 => OwnedNumbers::U32(Vec::new()),
            NumberType::U64 => OwnedNumbers::U64(Vec::new()),
            NumberType::F32 => OwnedNumbers::F32(Vec::new()),
            NumberType::F64 => OwnedNumbers::F64(Vec::new()),
            // As long as that is enough.
            NumberType::Decimal => OwnedNumbers::I64(Vec::new()),
            NumberType::Text => OwnedNumbers::Kept(Vec::new()),
        };
        Self { values, validity: None, unit: 0 }
    }

    fn len(&self) -> usize {
        each_type!(&self.values, OwnedNumbers, values => values.len())
    }

    /// Adds rows, with their texts in a heap.
    pub(crate) fn append(&mut self, argument: Argument<'_>, heap: &mut Heap) {
        macro_rules! append {
            ($($variant:ident),*) => {
                match (&mut self.values, argument.values) {
                    $((OwnedNumbers::$variant(kept), Numbers::$variant(values)) => {
                        let before = kept.len();
                        kept.extend_from_slice(values);
                        before
                    })*
                    (OwnedNumbers::I128(kept), Numbers::I64(values)) => {
                        let before = kept.len();
                        kept.extend(values.iter().map(|value| i128::from(*value)));
                        before
                    }
                    (OwnedNumbers::Kept(kept), Numbers::Texts(_)) => {
                        let before = kept.len();
                        heap.keep(argument, kept);
                        before
                    }
                    _ => panic!("an argument of another type"),
                }
            };
        }
        if let (OwnedNumbers::I64(kept), Numbers::I128(_)) = (&self.values, argument.values) {
            self.values = OwnedNumbers::I128(kept.iter().map(|value| i128::from(*value)).collect());
        }
        self.unit = argument.unit;
        let before = append!(I8, I16, I32, I64, U8, U16, U32, U64, F32, F64, I128);
        if argument.validity.is_some() && self.validity.is_none() {
            self.validity = Some(vec![true; before]);
        }
        if let Some(kept) = &mut self.validity {
            match argument.validity {
                Some(validity) => kept.extend_from_slice(validity),
                None => kept.resize(each_type!(&self.values, OwnedNumbers, values => values.len()), true),
            }
        }
    }

    /// The rows of these numbers.
    pub(crate) fn gather(&self, level: Level, rows: &[u32]) -> Self {
        use keirin_kernels::gather::gather;
        macro_rules! gathered {
            ($($variant:ident),*) => {
                match &self.values {
                    $(OwnedNumbers::$variant(values) => OwnedNumbers::$variant(gather(level, values, rows)),)*
                    OwnedNumbers::Kept(texts) => {
                        OwnedNumbers::Kept(rows.iter().map(|row| texts[*row as usize]).collect())
                    }
                }
            };
        }
        let values = gathered!(I8, I16, I32, I64, U8, U16, U32, U64, F32, F64, I128);
        let taken = |validity: &Vec<bool>| rows.iter().map(|row| validity[*row as usize]).collect();
        Self { values, validity: self.validity.as_ref().map(taken), unit: self.unit }
    }

    /// Removes all rows.
    pub(crate) fn clear(&mut self) {
        each_type!(&mut self.values, OwnedNumbers, values => values.clear());
        self.validity = None;
    }

    pub(crate) fn rows(&self, rows: std::ops::Range<usize>) -> Argument<'_> {
        macro_rules! borrowed {
            ($($variant:ident),*) => {
                match &self.values {
                    $(OwnedNumbers::$variant(values) => Numbers::$variant(&values[rows.clone()]),)*
                }
            };
        }
        let values = borrowed!(I8, I16, I32, I64, U8, U16, U32, U64, F32, F64, I128, Kept);
        let validity = self.validity.as_ref().map(|validity| &validity[rows]);
        Argument { values, validity, unit: self.unit }
    }

    /// The texts of rows.
    pub(crate) fn texts_mut(&mut self) -> &mut [[u64; TEXT_WORDS]] {
        if let OwnedNumbers::Kept(texts) = &mut self.values { texts } else { &mut [] }
    }

    /// Memory in use, but for that of texts.
    pub(crate) fn bytes(&self) -> usize {
        let width = each_type!(&self.values, OwnedNumbers, values => size_of_first(values));
        self.len() * (width + usize::from(self.validity.is_some()))
    }
}

fn size_of_first<T>(_: &[T]) -> usize {
    size_of::<T>()
}

impl Argument<'_> {
    /// A range of rows.
    ///
    /// # Panics
    /// When there are fewer rows.
    #[must_use]
    pub fn slice(&self, rows: std::ops::Range<usize>) -> Self {
        macro_rules! sliced {
            ($($variant:ident),*) => {
                match self.values {
                    $(Numbers::$variant(values) => Numbers::$variant(&values[rows.clone()]),)*
                    Numbers::Texts(texts) => Numbers::Texts(texts.slice(rows.clone())),
                }
            };
        }
        let values = sliced!(I8, I16, I32, I64, U8, U16, U32, U64, F32, F64, I128, Kept);
        Self { values, validity: self.validity.map(|validity| &validity[rows]), unit: self.unit }
    }
}

pub(crate) use each_word;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_arguments_are_the_rows_that_came() {
        let mut heap = Heap::default();
        let mut kept = OwnedArgument::new(NumberType::I32);
        kept.append(Argument { values: Numbers::I32(&[1, 2]), validity: None, unit: 0 }, &mut heap);
        kept.append(
            Argument { values: Numbers::I32(&[3, 4]), validity: Some(&[false, true]), unit: 0 },
            &mut heap,
        );
        kept.append(Argument { values: Numbers::I32(&[5]), validity: None, unit: 0 }, &mut heap);
        let taken = kept.gather(Level::best(), &[4, 2, 0]);
        let Argument { values: Numbers::I32(values), validity, .. } = taken.rows(0..3) else {
            panic!("a type")
        };
        assert_eq!((values, validity), (&[5, 3, 1][..], Some(&[true, false, true][..])));
        kept.clear();
        assert_eq!(kept.bytes(), 0);
        let mut kept = OwnedArgument::new(NumberType::Decimal);
        kept.append(Argument { values: Numbers::I64(&[-1]), validity: None, unit: 0 }, &mut heap);
        kept.append(Argument { values: Numbers::I128(&[i128::MAX]), validity: None, unit: 0 }, &mut heap);
        kept.append(Argument { values: Numbers::I64(&[2]), validity: None, unit: 0 }, &mut heap);
        let Argument { values: Numbers::I128(values), .. } = kept.rows(0..3) else { panic!("a type") };
        assert_eq!(values, [-1, i128::MAX, 2]);
    }
}
