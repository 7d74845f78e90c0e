//! States of aggregates: for each group a row of words, so that all of them are in one cache line or two.
//!
//! Counts and sums of narrow integers take a word, sums of 64-bit integers two. A word that stands for an integer has
//! its two's complement; of smallest and largest values with a sign, the highest bit is turned over. States of the same rows are merged in any order with the same result.

/// What is kept of the rows of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    /// The count of rows.
    Rows,
    /// The count of the values of an argument.
    Values(usize),
    /// The sum of the values of an argument of up to 32 bits: exact for up to 2^32 rows.
    Sum(usize),
    /// The sum of the values of an argument, in two words, the lower first.
    WideSum(usize),
    /// The smallest value of an argument; arbitrary if there is none.
    Min(usize),
    /// The largest value of an argument; arbitrary if there is none.
    Max(usize),
}

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
}

/// What aggregates are computed of: a value for each row of a chunk.
#[derive(Clone, Copy, Debug)]
pub struct Argument<'a> {
    /// The values; arbitrary where a row has none.
    pub values: Numbers<'a>,
    /// Which rows have a value; without, all have.
    pub validity: Option<&'a [bool]>,
}

/// Numbers that are kept, and which rows have a value.
#[derive(Debug)]
pub(crate) struct OwnedArgument {
    values: OwnedNumbers,
    validity: Option<Vec<bool>>,
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
        };
        Self { values, validity: None }
    }

    fn len(&self) -> usize {
        each_type!(&self.values, OwnedNumbers, values => values.len())
    }

    /// Adds rows.
    pub(crate) fn append(&mut self, argument: Argument<'_>) {
        macro_rules! append {
            ($($variant:ident),*) => {
                match (&mut self.values, argument.values) {
                    $((OwnedNumbers::$variant(kept), Numbers::$variant(values)) => {
                        let before = kept.len();
                        kept.extend_from_slice(values);
                        before
                    })*
                    _ => panic!("an argument of another type"),
                }
            };
        }
        let before = append!(I8, I16, I32, I64, U8, U16, U32, U64);
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
    pub(crate) fn gather(&self, level: keirin_kernels::Level, rows: &[u32]) -> Self {
        use keirin_kernels::gather::gather;
        macro_rules! gathered {
            ($($variant:ident),*) => {
                match &self.values {
                    $(OwnedNumbers::$variant(values) => OwnedNumbers::$variant(gather(level, values, rows)),)*
                }
            };
        }
        let values = gathered!(I8, I16, I32, I64, U8, U16, U32, U64);
        let taken = |validity: &Vec<bool>| rows.iter().map(|row| validity[*row as usize]).collect();
        Self { values, validity: self.validity.as_ref().map(taken) }
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
        let values = borrowed!(I8, I16, I32, I64, U8, U16, U32, U64);
        Argument { values, validity: self.validity.as_ref().map(|validity| &validity[rows]) }
    }

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
                }
            };
        }
        let values = sliced!(I8, I16, I32, I64, U8, U16, U32, U64);
        Self { values, validity: self.validity.map(|validity| &validity[rows]) }
    }
}

/// Where the words of each aggregate are.
#[derive(Clone, Debug, Default)]
pub struct StateLayout {
    /// Each with its first word.
    aggregates: Vec<(Aggregate, usize)>,
    /// What a new group begins with.
    initial: Vec<u64>,
}

impl StateLayout {
    /// The first word of an aggregate; one that is there already is shared.
    pub fn word_of(&mut self, aggregate: Aggregate) -> usize {
        if let Some((_, word)) = self.aggregates.iter().find(|(known, _)| *known == aggregate) {
            return *word;
        }
        let word = self.initial.len();
        self.aggregates.push((aggregate, word));
        match aggregate {
            Aggregate::Rows | Aggregate::Values(_) | Aggregate::Sum(_) => self.initial.push(0),
            Aggregate::WideSum(_) => self.initial.extend([0, 0]),
            Aggregate::Min(_) => self.initial.push(u64::MAX),
            Aggregate::Max(_) => self.initial.push(0),
        }
        word
    }

    /// The same words with one more behind them, a count.
    #[must_use]
    pub fn with_count(&self) -> Self {
        let mut layout = self.clone();
        layout.aggregates.push((Aggregate::Rows, layout.initial.len()));
        layout.initial.push(0);
        layout
    }

    /// The words of a group.
    #[must_use]
    pub fn stride(&self) -> usize {
        self.initial.len()
    }

    /// The most rows of all threads together for which sums in one word have room, if there are some.
    #[must_use]
    pub fn rows_max(&self) -> Option<u64> {
        let has_sums = self.aggregates.iter().any(|(aggregate, _)| matches!(aggregate, Aggregate::Sum(_)));
        has_sums.then_some(1 << u32::BITS)
    }
}

/// The states of groups.
#[derive(Debug, Default)]
pub struct States {
    words: Vec<u64>,
    stride: usize,
    len: usize,
}

impl States {
    /// No groups.
    #[must_use]
    pub fn new(layout: &StateLayout) -> Self {
        Self { words: Vec::new(), stride: layout.stride(), len: 0 }
    }

    /// Count of groups.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no groups.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The words of a group.
    #[must_use]
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// A word of each group.
    ///
    /// # Panics
    /// When groups have fewer words.
    pub fn word(&self, word: usize) -> impl ExactSizeIterator<Item = u64> + '_ {
        assert!(word < self.stride, "a word of a group");
        self.words.chunks_exact(self.stride).map(move |words| words[word])
    }

    /// The smallest or largest value of each group, of this type, in two's complement.
    ///
    /// # Panics
    /// When groups have fewer words.
    pub fn extreme(&self, word: usize, number_type: NumberType) -> impl ExactSizeIterator<Item = u64> + '_ {
        let flip = order_bit(number_type.is_signed());
        self.word(word).map(move |value| value ^ flip)
    }

    /// The two words of a sum of each group as one number.
    ///
    /// # Panics
    /// When groups have fewer words.
    pub fn wide(&self, word: usize) -> impl ExactSizeIterator<Item = i128> + '_ {
        assert!(word + 1 < self.stride, "two words of a group");
        self.words.chunks_exact(self.stride).map(move |words| {
            i128::from(words[word]) | i128::from(words[word + 1].cast_signed()) << u64::BITS
        })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }

    /// Removes all groups and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.words.clear();
        self.len = 0;
    }

    /// Makes groups up to this count.
    pub(crate) fn grow(&mut self, layout: &StateLayout, len: usize) {
        if self.stride == 1 {
            self.words.resize(len, layout.initial[0]);
        } else {
            self.words.reserve((len - self.len) * self.stride);
            for _ in self.len..len {
                self.words.extend_from_slice(&layout.initial);
            }
        }
        self.len = len;
    }

    /// Adds rows of which each is of the group with the number beside it.
    pub(crate) fn add(&mut self, layout: &StateLayout, groups: &[u32], arguments: &[Argument<'_>]) {
        let (words, stride) = (&mut self.words[..], self.stride);
        for (aggregate, word) in &layout.aggregates {
            let word = *word;
            match *aggregate {
                Aggregate::Rows => each(words, stride, word, groups, |count| *count += 1),
                Aggregate::Values(argument) => match arguments[argument].validity {
                    None => each(words, stride, word, groups, |count| *count += 1),
                    Some(validity) => {
                        let flags = validity.iter().map(|flag| u64::from(*flag));
                        with_each(words, stride, word, groups, flags, |count, flag| *count += flag);
                    }
                },
                Aggregate::Sum(argument) => {
                    let add = |sum: &mut u64, value: u64| *sum = sum.wrapping_add(value);
                    with_values(words, stride, word, groups, arguments[argument], 0, add);
                }
                Aggregate::WideSum(argument) => {
                    add_wide(words, stride, word, groups, arguments[argument]);
                }
                Aggregate::Min(argument) => {
                    let least = |state: &mut u64, value: u64| *state = (*state).min(value);
                    with_ordered(words, stride, word, groups, arguments[argument], u64::MAX, least);
                }
                Aggregate::Max(argument) => {
                    let most = |state: &mut u64, value: u64| *state = (*state).max(value);
                    with_ordered(words, stride, word, groups, arguments[argument], 0, most);
                }
            }
        }
    }

    /// The words of all groups, row by row.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Adds groups of others, each of the group here with the number beside it; `others` has rows of words.
    pub(crate) fn merge(&mut self, layout: &StateLayout, groups: &[u32], others: &[u64]) {
        let stride = self.stride;
        for (aggregate, word) in &layout.aggregates {
            let word = *word;
            let values = others.chunks_exact(stride.max(1)).map(|words| words[word]);
            let words = &mut self.words[..];
            match aggregate {
                Aggregate::Rows | Aggregate::Values(_) | Aggregate::Sum(_) => {
                    let add = |sum: &mut u64, value: u64| *sum = sum.wrapping_add(value);
                    with_each(words, stride, word, groups, values, add);
                }
                Aggregate::WideSum(_) => {
                    let others = others.chunks_exact(stride);
                    for (group, other) in groups.iter().zip(others) {
                        let at = *group as usize * stride + word;
                        add_to(&mut words[at..at + 2], other[word], other[word + 1]);
                    }
                }
                Aggregate::Min(_) => {
                    let least = |state: &mut u64, value: u64| *state = (*state).min(value);
                    with_each(words, stride, word, groups, values, least);
                }
                Aggregate::Max(_) => {
                    let most = |state: &mut u64, value: u64| *state = (*state).max(value);
                    with_each(words, stride, word, groups, values, most);
                }
            }
        }
    }

    /// Takes the words of the groups, row by row. There are no groups then.
    pub(crate) fn take(&mut self) -> Vec<u64> {
        self.len = 0;
        std::mem::take(&mut self.words)
    }

    /// Removes the groups behind the first so many.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.words.truncate(len * self.stride);
        self.len = self.len.min(len);
    }
}

fn is_signed(values: Numbers<'_>) -> bool {
    matches!(values, Numbers::I8(_) | Numbers::I16(_) | Numbers::I32(_) | Numbers::I64(_))
}

#[inline(always)]
fn each(words: &mut [u64], stride: usize, word: usize, groups: &[u32], change: impl Fn(&mut u64)) {
    if stride == 1 {
        return groups.iter().for_each(|group| change(&mut words[*group as usize]));
    }
    for group in groups {
        change(&mut words[*group as usize * stride + word]);
    }
}

#[inline(always)]
fn with_each(
    words: &mut [u64],
    stride: usize,
    word: usize,
    groups: &[u32],
    values: impl Iterator<Item = u64>,
    change: impl Fn(&mut u64, u64),
) {
    for (group, value) in groups.iter().zip(values) {
        change(&mut words[*group as usize * stride + word], value);
    }
}

/// A number in two's complement of 64 bits.
trait Word: Copy {
    fn word(self) -> u64;
}

macro_rules! words {
    ($($signed:ty, $unsigned:ty);*) => {$(
        impl Word for $signed {
            #[inline(always)]
            fn word(self) -> u64 {
                #[allow(clippy::useless_conversion, reason = "one line serves all widths")]
                i64::from(self).cast_unsigned()
            }
        }
        impl Word for $unsigned {
            #[inline(always)]
            fn word(self) -> u64 {
                #[allow(clippy::useless_conversion, reason = "one line serves all widths")]
                u64::from(self)
            }
        }
    )*};
}

words!(i8, u8; i16, u16; i32, u32; i64, u64);

/// Changes the word of each row's group by its value, by `neutral` where it has none.
#[inline(always)]
fn with_values(
    words: &mut [u64],
    stride: usize,
    word: usize,
    groups: &[u32],
    argument: Argument<'_>,
    neutral: u64,
    change: impl Fn(&mut u64, u64) + Copy,
) {
    each_type!(argument.values, Numbers, values => {
        let values = values.iter().map(|value| value.word());
        match argument.validity {
            None => with_each(words, stride, word, groups, values, change),
            Some(validity) => {
                let values = values.zip(validity).map(|(value, flag)| if *flag { value } else { neutral });
                with_each(words, stride, word, groups, values, change);
            }
        }
    });
}

/// What makes the order of integers in two's complement that of integers without a sign.
#[inline(always)]
fn order_bit(is_signed: bool) -> u64 {
    if is_signed { 1 << 63 } else { 0 }
}

/// As [`with_values`], with values in the order of integers without a sign.
#[inline(always)]
fn with_ordered(
    words: &mut [u64],
    stride: usize,
    word: usize,
    groups: &[u32],
    argument: Argument<'_>,
    neutral: u64,
    change: impl Fn(&mut u64, u64) + Copy,
) {
    let flip = order_bit(is_signed(argument.values));
    let change = |state: &mut u64, value: u64| change(state, value ^ flip);
    with_values(words, stride, word, groups, argument, neutral ^ flip, change);
}

#[inline(always)]
fn add_to(sum: &mut [u64], low: u64, high: u64) {
    let (low, carry) = sum[0].overflowing_add(low);
    sum[0] = low;
    sum[1] = sum[1].wrapping_add(high).wrapping_add(u64::from(carry));
}

fn add_wide(words: &mut [u64], stride: usize, word: usize, groups: &[u32], argument: Argument<'_>) {
    let signs = if is_signed(argument.values) { u64::MAX } else { 0 };
    let mut add = |group: u32, value: u64| {
        let at = group as usize * stride + word;
        let high = (value.cast_signed() >> 63).cast_unsigned() & signs;
        add_to(&mut words[at..at + 2], value, high);
    };
    each_type!(argument.values, Numbers, values => {
        let rows = groups.iter().zip(values.iter().map(|value| value.word()));
        match argument.validity {
            None => rows.for_each(|(group, value)| add(*group, value)),
            Some(validity) => rows
                .zip(validity)
                .for_each(|((group, value), flag)| add(*group, if *flag { value } else { 0 })),
        }
    });
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "numbers are small, or are cut on purpose")]
mod tests {
    use super::*;

    /// The states of rows added at once, in pieces that are merged, and as a naive loop has them.
    #[test]
    fn states_are_those_of_the_rows() {
        let rows = 1_000_usize;
        let groups: Vec<u32> = (0..rows as u32).map(|row| row.wrapping_mul(0x9E37_79B9) >> 29).collect();
        let wide: Vec<i64> = (0..rows as i64).map(|row| row.wrapping_mul(0x1234_5678_9ABC_DEF1)).collect();
        let narrow: Vec<i16> = wide.iter().map(|value| (value >> 48) as i16).collect();
        let unsigned: Vec<u64> = wide.iter().map(|value| value.cast_unsigned()).collect();
        let validity: Vec<bool> = (0..rows).map(|row| row % 3 > 0).collect();
        for validity in [None, Some(&validity[..])] {
            let arguments = [
                Argument { values: Numbers::I64(&wide), validity },
                Argument { values: Numbers::I16(&narrow), validity },
                Argument { values: Numbers::U64(&unsigned), validity },
            ];
            let mut layout = StateLayout::default();
            let count = layout.word_of(Aggregate::Rows);
            let values = layout.word_of(Aggregate::Values(0));
            let sum = layout.word_of(Aggregate::Sum(1));
            let wide_sums = [0, 2].map(|argument| layout.word_of(Aggregate::WideSum(argument)));
            let extremes = [0, 1, 2].map(|argument| {
                (layout.word_of(Aggregate::Min(argument)), layout.word_of(Aggregate::Max(argument)))
            });
            assert_eq!(layout.word_of(Aggregate::Sum(1)), sum, "it is shared");
            let mut whole = States::new(&layout);
            whole.grow(&layout, 8);
            whole.add(&layout, &groups, &arguments);
            let mut merged = States::new(&layout);
            merged.grow(&layout, 8);
            for piece in [0..1, 1..400, 400..rows] {
                let mut states = States::new(&layout);
                states.grow(&layout, 8);
                let arguments = arguments.map(|argument| argument.slice(piece.clone()));
                states.add(&layout, &groups[piece], &arguments);
                merged.merge(&layout, &[0, 1, 2, 3, 4, 5, 6, 7], &states.take());
                assert!(states.is_empty());
            }
            for states in [&whole, &merged] {
                for group in 0..8 {
                    let is_valid = |row: &usize| validity.is_none_or(|validity| validity[*row]);
                    let all = (0..rows).filter(|row| groups[*row] == group);
                    let valid: Vec<usize> = all.clone().filter(is_valid).collect();
                    let group = group as usize;
                    assert_eq!(states.word(count).nth(group), Some(all.count() as u64));
                    assert_eq!(states.word(values).nth(group), Some(valid.len() as u64));
                    let expected: i64 = valid.iter().map(|row| i64::from(narrow[*row])).sum();
                    assert_eq!(states.word(sum).nth(group), Some(expected.cast_unsigned()));
                    let expected = valid.iter().map(|row| i128::from(wide[*row])).sum();
                    assert_eq!(states.wide(wide_sums[0]).nth(group), Some(expected));
                    let expected = valid.iter().map(|row| i128::from(unsigned[*row])).sum();
                    assert_eq!(states.wide(wide_sums[1]).nth(group), Some(expected));
                    let extreme = |(least, most): (usize, usize), number_type| {
                        let of = |word| states.extreme(word, number_type).nth(group).unwrap();
                        (of(least).cast_signed(), of(most).cast_signed())
                    };
                    let wide = valid.iter().map(|row| wide[*row]);
                    let expected = (wide.clone().min().unwrap(), wide.max().unwrap());
                    assert_eq!(extreme(extremes[0], NumberType::I64), expected);
                    let narrow = valid.iter().map(|row| i64::from(narrow[*row]));
                    let expected = (narrow.clone().min().unwrap(), narrow.max().unwrap());
                    assert_eq!(extreme(extremes[1], NumberType::I16), expected);
                    let unsigned = valid.iter().map(|row| unsigned[*row]);
                    let expected = (unsigned.clone().min().unwrap(), unsigned.max().unwrap());
                    let (least, most) = extreme(extremes[2], NumberType::U64);
                    assert_eq!((least.cast_unsigned(), most.cast_unsigned()), expected);
                }
            }
        }
    }

    #[test]
    fn kept_arguments_are_the_rows_that_came() {
        let mut kept = OwnedArgument::new(NumberType::I32);
        kept.append(Argument { values: Numbers::I32(&[1, 2]), validity: None });
        kept.append(Argument { values: Numbers::I32(&[3, 4]), validity: Some(&[false, true]) });
        kept.append(Argument { values: Numbers::I32(&[5]), validity: None });
        let taken = kept.gather(keirin_kernels::Level::best(), &[4, 2, 0]);
        let Argument { values: Numbers::I32(values), validity } = taken.rows(0..3) else { panic!("a type") };
        assert_eq!((values, validity), (&[5, 3, 1][..], Some(&[true, false, true][..])));
        kept.clear();
        assert_eq!(kept.bytes(), 0);
    }
}
