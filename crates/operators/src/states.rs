//! States of aggregates: for each group a row of words, so that all of them are in one cache line or two.
//!
//! Counts and sums of narrow integers take a word, sums of 64-bit integers two, of decimals three, of floats four
//! ([`wide`](crate::wide)), smallest and largest texts two (`heap.rs`). A word that stands for an integer has its two's complement; of smallest and largest values
//! with a sign, the highest bit is turned over, and floats are in their total order. States of the same rows are merged
//! in any order with the same result.

use std::sync::Arc;

use keirin_kernels::Level;

use crate::arguments::{Argument, NumberType, Numbers, each_word};
use crate::heap::{Heap, Heaps, NO_TEXT};
use crate::wide::{FLOAT_WORDS, FloatSum, add_decimals, add_floats, add_three, add_two, is_short, narrowed};

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
    /// The sum of decimals, in three words.
    DecimalSum(usize),
    /// The exact sum of floats, in four words: for up to 2^32 rows.
    FloatSum(usize),
    /// The smallest value of an argument, no decimal; arbitrary if there is none.
    Min(usize),
    /// The largest value of an argument, no decimal; arbitrary if there is none.
    Max(usize),
    /// The smallest decimal, in two words, the lower first; arbitrary if there is none.
    MinDecimal(usize),
    /// The largest decimal, as the smallest.
    MaxDecimal(usize),
    /// The smallest text, in two words.
    MinText(usize),
    /// The largest text, in two words.
    MaxText(usize),
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
            Aggregate::WideSum(_) | Aggregate::MaxDecimal(_) => self.initial.extend([0; 2]),
            Aggregate::DecimalSum(_) => self.initial.extend([0; 3]),
            Aggregate::FloatSum(_) => self.initial.extend([0; FLOAT_WORDS]),
            Aggregate::Min(_) => self.initial.push(u64::MAX),
            Aggregate::Max(_) => self.initial.push(0),
            Aggregate::MinDecimal(_) => self.initial.extend([u64::MAX; 2]),
            Aggregate::MinText(_) | Aggregate::MaxText(_) => self.initial.extend([0, NO_TEXT]),
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

    /// The first words of texts.
    pub(crate) fn texts(&self) -> impl Iterator<Item = usize> + '_ {
        let is_text = |aggregate| matches!(aggregate, Aggregate::MinText(_) | Aggregate::MaxText(_));
        self.aggregates.iter().filter(move |(aggregate, _)| is_text(*aggregate)).map(|(_, word)| *word)
    }

    /// Whether floats of this argument are added up.
    pub(crate) fn adds_floats(&self, argument: usize) -> bool {
        self.aggregates.iter().any(|(aggregate, _)| *aggregate == Aggregate::FloatSum(argument))
    }

    /// The most rows of all threads together for which sums in one word have room, if there are some.
    #[must_use]
    pub fn rows_max(&self) -> Option<u64> {
        let has_sums = self
            .aggregates
            .iter()
            .any(|(aggregate, _)| matches!(aggregate, Aggregate::Sum(_) | Aggregate::FloatSum(_)));
        has_sums.then_some(1 << u32::BITS)
    }
}

/// The states of groups.
#[derive(Debug, Default)]
pub struct States {
    words: Vec<u64>,
    stride: usize,
    len: usize,
    /// Where the texts of rows that are added go.
    pub(crate) heap: Heap,
    /// Where the texts are of states that are merged.
    heaps: Arc<Heaps>,
}

impl States {
    /// No groups, of rows whose texts go to a heap.
    #[must_use]
    pub(crate) fn new(layout: &StateLayout, heap: Heap) -> Self {
        Self { stride: layout.stride(), heap, ..Self::default() }
    }

    /// No groups, of states and of rows that were kept, whose texts are in these heaps.
    #[must_use]
    pub(crate) fn merged(layout: &StateLayout, heaps: Arc<Heaps>) -> Self {
        Self { stride: layout.stride(), heaps, ..Self::default() }
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

    /// The sum of decimals of each group, if it fits into 128 bits.
    ///
    /// # Panics
    /// When groups have fewer words.
    pub fn decimals(&self, word: usize) -> impl ExactSizeIterator<Item = Option<i128>> + '_ {
        self.wide_decimals(word).map(narrowed)
    }

    /// The sum of decimals of each group, in three words, the lowest first.
    ///
    /// # Panics
    /// When groups have fewer words.
    pub fn wide_decimals(&self, word: usize) -> impl ExactSizeIterator<Item = [u64; 3]> + '_ {
        assert!(word + 2 < self.stride, "three words of a group");
        let words = self.words.chunks_exact(self.stride);
        words.map(move |words| [words[word], words[word + 1], words[word + 2]])
    }

    /// The smallest or largest decimal of each group.
    ///
    /// # Panics
    /// When groups have fewer words.
    pub fn extreme_decimals(&self, word: usize) -> impl ExactSizeIterator<Item = i128> + '_ {
        self.wide(word).map(|value| value ^ i128::MIN)
    }

    /// The smallest or largest text of each group, when all are merged; `None` if it has none.
    ///
    /// # Panics
    /// When groups have fewer words.
    pub fn extreme_texts(&self, word: usize) -> impl ExactSizeIterator<Item = Option<&[u8]>> + '_ {
        self.word(word + 1).map(|address| (address != NO_TEXT).then(|| self.heaps.get(address)))
    }

    /// The sum of floats of each group, in this unit.
    ///
    /// # Panics
    /// When groups have fewer words.
    pub fn float_sums(&self, word: usize, unit: i32) -> impl ExactSizeIterator<Item = FloatSum> + '_ {
        assert!(word + FLOAT_WORDS <= self.stride, "four words of a group");
        self.words.chunks_exact(self.stride).map(move |words| FloatSum::new(&words[word..], unit))
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
    pub(crate) fn add(
        &mut self,
        level: Level,
        layout: &StateLayout,
        groups: &[u32],
        arguments: &[Argument<'_>],
    ) {
        let is_few = are_few(self.len, groups.len());
        let (words, stride) = (&mut self.words[..], self.stride);
        for (aggregate, word) in &layout.aggregates {
            let word = *word;
            match *aggregate {
                Aggregate::Rows => count(words, stride, word, groups, None, is_few),
                Aggregate::Values(argument) => {
                    count(words, stride, word, groups, arguments[argument].validity, is_few);
                }
                Aggregate::Sum(argument) if is_few => {
                    each_word!(arguments[argument].values, values => {
                        let sums = short_sums(self.len, groups, values, arguments[argument].validity, Word::word);
                        add_each(words, stride, word, &sums);
                    });
                }
                Aggregate::Sum(argument) => {
                    let add = |sum: &mut u64, value: u64| *sum = sum.wrapping_add(value);
                    with_values(words, stride, word, groups, arguments[argument], 0, add);
                }
                Aggregate::WideSum(argument) => {
                    add_wide(words, stride, word, groups, arguments[argument]);
                }
                Aggregate::DecimalSum(argument) => {
                    add_decimals(words, stride, word, groups, arguments[argument]);
                }
                Aggregate::FloatSum(argument) => {
                    add_floats(level, words, stride, word, groups, arguments[argument]);
                }
                Aggregate::MinDecimal(argument) => {
                    let least = |state: u128, value: u128| state.min(value);
                    extreme_decimals(words, stride, word, groups, arguments[argument], least);
                }
                Aggregate::MaxDecimal(argument) => {
                    let most = |state: u128, value: u128| state.max(value);
                    extreme_decimals(words, stride, word, groups, arguments[argument], most);
                }
                Aggregate::Min(argument) => {
                    let least = |state: &mut u64, value: u64| *state = (*state).min(value);
                    with_ordered(words, stride, word, groups, arguments[argument], u64::MAX, least);
                }
                Aggregate::Max(argument) => {
                    let most = |state: &mut u64, value: u64| *state = (*state).max(value);
                    with_ordered(words, stride, word, groups, arguments[argument], 0, most);
                }
                Aggregate::MinText(argument) | Aggregate::MaxText(argument) => {
                    let is_max = matches!(aggregate, Aggregate::MaxText(_));
                    let argument = arguments[argument];
                    if let Numbers::Kept(texts) = argument.values {
                        for (group, text) in groups.iter().zip(texts) {
                            let state = &mut words[*group as usize * stride + word..];
                            self.heaps.merge(state, *text, is_max);
                        }
                    } else {
                        self.heap.add(words, stride, word, groups, argument, is_max);
                    }
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
                    merge_each(words, stride, groups, others, |sum, other| {
                        add_two(&mut sum[word..], other[word], other[word + 1]);
                    });
                }
                Aggregate::DecimalSum(_) => {
                    merge_each(words, stride, groups, others, |sum, other| {
                        add_three(&mut sum[word..], [other[word], other[word + 1], other[word + 2]]);
                    });
                }
                Aggregate::FloatSum(_) => {
                    merge_each(words, stride, groups, others, |sum, other| {
                        add_three(&mut sum[word..], [other[word], other[word + 1], other[word + 2]]);
                        sum[word + 3] |= other[word + 3];
                    });
                }
                Aggregate::MinDecimal(_) => {
                    merge_each(words, stride, groups, others, |state, other| {
                        set_two(state, word, two(state, word).min(two(other, word)));
                    });
                }
                Aggregate::MaxDecimal(_) => {
                    merge_each(words, stride, groups, others, |state, other| {
                        set_two(state, word, two(state, word).max(two(other, word)));
                    });
                }
                Aggregate::Min(_) => {
                    let least = |state: &mut u64, value: u64| *state = (*state).min(value);
                    with_each(words, stride, word, groups, values, least);
                }
                Aggregate::Max(_) => {
                    let most = |state: &mut u64, value: u64| *state = (*state).max(value);
                    with_each(words, stride, word, groups, values, most);
                }
                Aggregate::MinText(_) | Aggregate::MaxText(_) => {
                    let is_max = matches!(aggregate, Aggregate::MaxText(_));
                    merge_each(words, stride, groups, others, |state, other| {
                        self.heaps.merge(&mut state[word..], [other[word], other[word + 1]], is_max);
                    });
                }
            }
        }
    }

    /// The words of all groups, row by row.
    pub(crate) fn words_mut(&mut self) -> &mut [u64] {
        &mut self.words
    }

    /// Takes the words of the groups, row by row. There are no groups then.
    pub(crate) fn take(&mut self) -> Vec<u64> {
        self.len = 0;
        std::mem::take(&mut self.words)
    }

    /// Has so many groups with these words, row by row, and no others.
    pub(crate) fn set(&mut self, len: usize, words: &[u64]) {
        self.words.clear();
        self.words.extend_from_slice(words);
        self.len = len;
    }

    /// Removes the groups behind the first so many.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.words.truncate(len * self.stride);
        self.len = self.len.min(len);
    }
}

/// The sums of few groups are made in so many places each: rows of one group follow one another, and a sum in one place
/// would wait for the row before.
const LANES: usize = 4;
/// With more groups they are in the way.
const FEW_GROUPS: usize = 64;

/// Whether sums of rows are worth places of their own first.
pub(crate) fn are_few(group_count: usize, row_count: usize) -> bool {
    group_count <= FEW_GROUPS && group_count * LANES <= row_count / LANES
}

/// The sums of the values of few groups, modulo 2^64.
#[inline(always)]
pub(crate) fn short_sums<T: Copy>(
    group_count: usize,
    groups: &[u32],
    values: &[T],
    validity: Option<&[bool]>,
    word: impl Fn(T) -> u64,
) -> Vec<u64> {
    let mut sums = vec![[0_u64; LANES]; group_count];
    let mut add = |lane: usize, group: u32, value: u64| {
        let sum = &mut sums[group as usize][lane];
        *sum = sum.wrapping_add(value);
    };
    let (chunks, rest) = groups.as_chunks::<LANES>();
    let (value_chunks, value_rest) = values[..groups.len()].as_chunks::<LANES>();
    match validity {
        None => {
            for (groups, values) in chunks.iter().zip(value_chunks) {
                (0..LANES).for_each(|lane| add(lane, groups[lane], word(values[lane])));
            }
            rest.iter().zip(value_rest).for_each(|(group, value)| add(0, *group, word(*value)));
        }
        Some(validity) => {
            let (flag_chunks, flag_rest) = validity[..groups.len()].as_chunks::<LANES>();
            let word_if = |value, flag: bool| word(value) & 0_u64.wrapping_sub(flag.into());
            for ((groups, values), flags) in chunks.iter().zip(value_chunks).zip(flag_chunks) {
                (0..LANES).for_each(|lane| add(lane, groups[lane], word_if(values[lane], flags[lane])));
            }
            for ((group, value), flag) in rest.iter().zip(value_rest).zip(flag_rest) {
                add(0, *group, word_if(*value, *flag));
            }
        }
    }
    sums.into_iter().map(|lanes| lanes.into_iter().fold(0, u64::wrapping_add)).collect()
}

/// Adds a number to a word of each group.
fn add_each(words: &mut [u64], stride: usize, word: usize, added: &[u64]) {
    for (words, added) in words.chunks_exact_mut(stride).zip(added) {
        words[word] = words[word].wrapping_add(*added);
    }
}

/// Counts the rows of each group, or those with a value.
fn count(
    words: &mut [u64],
    stride: usize,
    word: usize,
    groups: &[u32],
    validity: Option<&[bool]>,
    is_few: bool,
) {
    match validity {
        _ if is_few => {
            let counts = short_sums(words.len() / stride, groups, groups, validity, |_| 1);
            add_each(words, stride, word, &counts);
        }
        None => each(words, stride, word, groups, |count| *count += 1),
        Some(validity) => {
            let flags = validity.iter().map(|flag| u64::from(*flag));
            with_each(words, stride, word, groups, flags, |count, flag| *count += flag);
        }
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

/// The place of a float in the total order, which is that of integers without a sign.
macro_rules! ordered_floats {
    ($($float:ty, $bits:literal);*) => {$(
        impl Word for $float {
            #[inline(always)]
            fn word(self) -> u64 {
                let bits = self.to_bits();
                let sign = 1 << ($bits - 1);
                (if bits & sign == 0 { bits | sign } else { !bits }).into()
            }
        }
    )*};
}

ordered_floats!(f32, 32; f64, 64);

/// The floats at such places.
#[must_use]
pub fn float_at(word: u64) -> f64 {
    f64::from_bits(if word >> 63 == 1 { word & !(1 << 63) } else { !word })
}

/// As [`float_at`], of 32 bits.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "such places have 32 bits")]
pub fn narrow_float_at(word: u64) -> f32 {
    let word = word as u32;
    f32::from_bits(if word >> 31 == 1 { word & !(1 << 31) } else { !word })
}

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
    each_word!(argument.values, values => {
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

/// Changes each row's group by the words of another.
#[inline(always)]
fn merge_each(
    words: &mut [u64],
    stride: usize,
    groups: &[u32],
    others: &[u64],
    merge: impl Fn(&mut [u64], &[u64]),
) {
    for (group, other) in groups.iter().zip(others.chunks_exact(stride)) {
        let at = *group as usize * stride;
        merge(&mut words[at..at + stride], other);
    }
}

#[inline(always)]
fn two(words: &[u64], word: usize) -> u128 {
    u128::from(words[word]) | u128::from(words[word + 1]) << 64
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "halves")]
fn set_two(words: &mut [u64], word: usize, value: u128) {
    (words[word], words[word + 1]) = (value as u64, (value >> 64) as u64);
}

/// Changes the two words of each row's group by its decimal, where it has one, in the order of integers without a sign.
fn extreme_decimals(
    words: &mut [u64],
    stride: usize,
    word: usize,
    groups: &[u32],
    argument: Argument<'_>,
    better: impl Fn(u128, u128) -> u128,
) {
    let mut change = |row: usize, value: i128| {
        if argument.validity.is_none_or(|validity| validity[row]) {
            let at = groups[row] as usize * stride;
            let state = &mut words[at..at + stride];
            set_two(state, word, better(two(state, word), (value ^ i128::MIN).cast_unsigned()));
        }
    };
    match argument.values {
        Numbers::I64(values) => {
            values.iter().enumerate().for_each(|(row, value)| change(row, i128::from(*value)));
        }
        Numbers::I128(values) => values.iter().enumerate().for_each(|(row, value)| change(row, *value)),
        _ => panic!("decimals"),
    }
}

fn add_wide(words: &mut [u64], stride: usize, word: usize, groups: &[u32], argument: Argument<'_>) {
    let signs = if is_signed(argument.values) { u64::MAX } else { 0 };
    let group_count = words.len() / stride;
    let mut add = |group: u32, value: u64| {
        let at = group as usize * stride + word;
        let high = (value.cast_signed() >> 63).cast_unsigned() & signs;
        add_two(&mut words[at..at + 2], value, high);
    };
    if let Numbers::I64(values) = argument.values
        && are_few(group_count, groups.len())
        && is_short(values)
    {
        let sums = short_sums(group_count, groups, values, argument.validity, Word::word);
        (0..).zip(sums).for_each(|(group, sum)| add(group, sum));
        return;
    }
    each_word!(argument.values, values => {
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
        let short: Vec<i64> = wide.iter().map(|value| value >> 12).collect();
        let validity: Vec<bool> = (0..rows).map(|row| row % 3 > 0).collect();
        for validity in [None, Some(&validity[..])] {
            let arguments = [
                Argument { values: Numbers::I64(&wide), validity, unit: 0 },
                Argument { values: Numbers::I16(&narrow), validity, unit: 0 },
                Argument { values: Numbers::U64(&unsigned), validity, unit: 0 },
                Argument { values: Numbers::I64(&short), validity, unit: 0 },
            ];
            let mut layout = StateLayout::default();
            let count = layout.word_of(Aggregate::Rows);
            let values = layout.word_of(Aggregate::Values(0));
            let sum = layout.word_of(Aggregate::Sum(1));
            let wide_sums = [0, 2, 3].map(|argument| layout.word_of(Aggregate::WideSum(argument)));
            let extremes = [0, 1, 2].map(|argument| {
                (layout.word_of(Aggregate::Min(argument)), layout.word_of(Aggregate::Max(argument)))
            });
            assert_eq!(layout.word_of(Aggregate::Sum(1)), sum, "it is shared");
            let mut whole = States::new(&layout, Heap::default());
            whole.grow(&layout, 8);
            whole.add(Level::best(), &layout, &groups, &arguments);
            let mut merged = States::new(&layout, Heap::default());
            merged.grow(&layout, 8);
            for piece in [0..1, 1..400, 400..rows] {
                let mut states = States::new(&layout, Heap::default());
                states.grow(&layout, 8);
                let arguments = arguments.map(|argument| argument.slice(piece.clone()));
                states.add(Level::best(), &layout, &groups[piece], &arguments);
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
                    let expected = valid.iter().map(|row| i128::from(short[*row])).sum();
                    assert_eq!(states.wide(wide_sums[2]).nth(group), Some(expected));
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
    fn decimals_and_floats_have_states() {
        let groups = [0, 1, 0, 1, 1, 0];
        let validity = [true, true, true, true, false, true];
        let large = [i128::MAX, 5, i128::MAX, -7, i128::MIN, -3];
        let small = [4, i64::MIN, 6, i64::MAX, 1, -5];
        let floats = [1.5, -0.0, f64::NAN, 0.0, f64::NEG_INFINITY, -2.0];
        let narrow = floats.map(|value| value as f32);
        let values =
            [Numbers::I128(&large), Numbers::I64(&small), Numbers::F64(&floats), Numbers::F32(&narrow)];
        let arguments = values.map(|values| Argument { values, validity: Some(&validity), unit: 0 });
        let mut layout = StateLayout::default();
        let sums = [0, 1].map(|argument| layout.word_of(Aggregate::DecimalSum(argument)));
        let of_decimals = [0, 1].map(|argument| {
            (layout.word_of(Aggregate::MinDecimal(argument)), layout.word_of(Aggregate::MaxDecimal(argument)))
        });
        let of_floats = [2, 3].map(|argument| {
            (layout.word_of(Aggregate::Min(argument)), layout.word_of(Aggregate::Max(argument)))
        });
        let mut states = States::new(&layout, Heap::default());
        states.grow(&layout, 2);
        for rows in [0..1, 1..4, 4..6] {
            let mut part = States::new(&layout, Heap::default());
            part.grow(&layout, 2);
            let arguments = arguments.map(|argument| argument.slice(rows.clone()));
            part.add(Level::best(), &layout, &groups[rows], &arguments);
            states.merge(&layout, &[0, 1], part.words());
        }
        // The first sum has more than 128 bits.
        assert_eq!(states.decimals(sums[0]).collect::<Vec<_>>(), [None, Some(-2)]);
        assert_eq!(states.decimals(sums[1]).collect::<Vec<_>>(), [Some(5), Some(-1)]);
        let extremes = |(least, most): (usize, usize)| {
            states.extreme_decimals(least).zip(states.extreme_decimals(most)).collect::<Vec<_>>()
        };
        assert_eq!(extremes(of_decimals[0]), [(-3, i128::MAX), (-7, 5)]);
        assert_eq!(extremes(of_decimals[1]), [(-5, 6), (i64::MIN.into(), i64::MAX.into())]);
        let places = |word| states.extreme(word, NumberType::F64).collect::<Vec<_>>();
        let of = |word| places(word).into_iter().map(float_at).map(f64::to_bits).collect::<Vec<_>>();
        assert_eq!(of(of_floats[0].0), [-2.0, -0.0].map(f64::to_bits));
        assert_eq!(of(of_floats[0].1), [f64::NAN, 0.0].map(f64::to_bits));
        let of = |word| places(word).into_iter().map(narrow_float_at).map(f32::to_bits).collect::<Vec<_>>();
        assert_eq!(of(of_floats[1].0), [-2.0, -0.0].map(f32::to_bits));
        assert_eq!(of(of_floats[1].1), [f32::NAN, 0.0].map(f32::to_bits));
    }
}
