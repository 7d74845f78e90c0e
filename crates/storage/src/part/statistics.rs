//! Statistics of a block: what is known of it without reading it.

use std::cmp::Ordering;

use keirin_codecs::frame::Kind;
use keirin_kernels::aggregate::{self, DecimalSum, Ordered};
use keirin_kernels::distinct::HyperLogLog;
use keirin_kernels::text::{Strings, Text, facts};
use keirin_kernels::{Bits, Level, Selection};

use super::details::{Hashed, Sketch, ZONE_ROWS, ZoneBounds, filter_of, hashes_of_text, keep_valid};
use crate::column::{Column, Values};
use crate::schema::{DataType, Field};

/// The most bytes of a minimum or maximum of text; longer ones are cut.
const BOUND_BYTES_MAX: usize = 64;

/// Flags of a block, as bits: `docs/format/part.md`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockFlags(pub(crate) u16);

/// Flags that claim something about the values.
const CLAIMS: u16 = BlockFlags::MIN_EXACT
    | BlockFlags::MAX_EXACT
    | BlockFlags::SORTED
    | BlockFlags::CONSTANT
    | BlockFlags::ASCII
    | BlockFlags::NO_TRAILING_SPACES;

impl BlockFlags {
    const MIN_EXACT: u16 = 1;
    const MAX_EXACT: u16 = 2;
    const SORTED: u16 = 4;
    const CONSTANT: u16 = 8;
    const ASCII: u16 = 16;
    const NO_TRAILING_SPACES: u16 = 32;

    fn with(self, flag: u16, is_set: bool) -> Self {
        Self(self.0 | if is_set { flag } else { 0 })
    }

    /// The minimum is one of the values, not just a lower bound.
    #[must_use]
    pub fn min_is_exact(self) -> bool {
        self.0 & Self::MIN_EXACT != 0
    }

    /// The maximum is one of the values, not just an upper bound.
    #[must_use]
    pub fn max_is_exact(self) -> bool {
        self.0 & Self::MAX_EXACT != 0
    }

    /// No nulls, and no value is less than the one before it.
    #[must_use]
    pub fn is_sorted(self) -> bool {
        self.0 & Self::SORTED != 0
    }

    /// No nulls, and all values are the same.
    #[must_use]
    pub fn is_constant(self) -> bool {
        self.0 & Self::CONSTANT != 0
    }

    /// Text of which every byte is below 128.
    #[must_use]
    pub fn is_ascii(self) -> bool {
        self.0 & Self::ASCII != 0
    }

    /// Text of which no value ends with a space.
    #[must_use]
    pub fn has_no_trailing_spaces(self) -> bool {
        self.0 & Self::NO_TRAILING_SPACES != 0
    }
}

/// Statistics of a block: what is known of it without reading it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Rows.
    pub rows: u32,
    /// Rows without a value.
    pub nulls: u32,
    /// Approximate count of distinct values; 0 if they were not counted.
    pub distinct: u32,
    /// Bytes of all values of text or binary.
    pub text_bytes: u32,
    /// Further facts.
    pub flags: BlockFlags,
    /// The minimum, or a lower bound: its little-endian bytes, or text.
    pub min: Option<Vec<u8>>,
    /// The maximum, or an upper bound.
    pub max: Option<Vec<u8>>,
    /// The exact sum of integers and decimals.
    pub sum: Option<i128>,
}

/// Computes the statistics of a block.
#[derive(Debug)]
pub(super) struct Meter<'a> {
    level: Level,
    validity: Option<Bits<'a>>,
    has_zones: bool,
    /// The most bytes of a filter; 0 if none is wanted.
    pub(super) filter_bytes_max: usize,
    /// The sketch of distinct values, if they were counted.
    pub(super) sketch: Option<HyperLogLog>,
    pub(super) filter: Option<Vec<u8>>,
    pub(super) zones: Option<ZoneBounds>,
}

impl<'a> Meter<'a> {
    pub(super) fn new(level: Level, validity: Option<Bits<'a>>) -> Self {
        Self {
            level,
            validity,
            has_zones: false,
            filter_bytes_max: 0,
            sketch: None,
            filter: None,
            zones: None,
        }
    }

    /// Says that zones are wanted.
    pub(super) fn with_zones(self) -> Self {
        Self { has_zones: true, ..self }
    }

    /// The statistics of values that are not text.
    pub(super) fn measure(&mut self, data_type: &DataType, values: &Values<'_>) -> Statistics {
        macro_rules! integers {
            ($values:ident) => {{
                #[allow(
                    clippy::cast_lossless,
                    clippy::cast_possible_wrap,
                    reason = "differences wrap around"
                )]
                let offset = |value, least| (value as i64).wrapping_sub(least as i64).cast_unsigned();
                self.integers($values, |value| value.to_le_bytes().to_vec(), offset)
            }};
        }
        match values {
            Values::Flags(flags) => self.flags(flags.as_bits()),
            Values::I8(values) => integers!(values),
            Values::I16(values) => integers!(values),
            Values::I32(values) => integers!(values),
            Values::I64(values) => integers!(values),
            Values::U8(values) => integers!(values),
            Values::U16(values) => integers!(values),
            Values::U32(values) => integers!(values),
            Values::U64(values) => integers!(values),
            Values::I128(values) => match data_type {
                DataType::Decimal { .. } => self.decimals(values),
                DataType::Uuid => self.uuids(values),
                _ => self.counts(values.len()),
            },
            Values::F32(values) => self.f32s(values),
            Values::F64(values) => self.f64s(values),
            Values::Text { offsets, .. } | Values::List { offsets, .. } => self.counts(offsets.len() - 1),
            Values::Struct { row_count, .. } => self.counts(*row_count),
        }
    }

    /// The counts of rows and nulls alone.
    pub(crate) fn counts(&self, row_count: usize) -> Statistics {
        let valid = aggregate::count(self.level, row_count, self.validity, Selection::All);
        let count = |count: usize| u32::try_from(count).expect("a block has fewer rows");
        Statistics { rows: count(row_count), nulls: count(row_count - valid), ..Statistics::default() }
    }

    /// Counts the distinct values by the hashes of all that are not null; with `is_exact` there is one for each distinct
    /// value.
    fn count_distinct(&mut self, statistics: &mut Statistics, hashes: &[u64], is_exact: bool) {
        let sketch = self.sketch.insert(HyperLogLog::new());
        sketch.insert(hashes);
        let values = match is_exact {
            true => hashes.len() as u64,
            false => distinct_of(sketch, u64::from(statistics.rows - statistics.nulls)),
        };
        statistics.distinct = u32::try_from(values).expect("at most the rows of a block");
        self.filter = filter_of(self.level, hashes, statistics.distinct, self.filter_bytes_max);
    }

    /// The statistics of numbers that the kernels can order.
    fn ordered<T: Ordered + Hashed>(
        &mut self,
        values: &[T],
        bytes: impl Fn(T) -> Vec<u8>,
        offset: impl Fn(T, T) -> u64,
    ) -> Statistics {
        let mut statistics = self.counts(values.len());
        let (level, validity) = (self.level, self.validity);
        let zones: Vec<Option<(T, T)>> = (0..values.len())
            .step_by(ZONE_ROWS)
            .map(|first| {
                let values = &values[first..values.len().min(first + ZONE_ROWS)];
                let validity = validity.map(|validity| validity.slice(first, values.len()));
                aggregate::extremes(level, values, validity, Selection::All)
            })
            .collect();
        let extremes = zones.iter().flatten().copied().reduce(|(min, max), (zone_min, zone_max)| {
            let is_less = |a: T, b: T| a.key() < b.key();
            let min = if is_less(zone_min, min) { zone_min } else { min };
            (min, if is_less(max, zone_max) { zone_max } else { max })
        });
        if self.has_zones {
            let ends = |end: fn((T, T)) -> T| {
                zones.iter().flat_map(|zone| bytes(end(zone.unwrap_or_default()))).collect()
            };
            let is_known = zones.iter().map(Option::is_some).collect();
            let (least, greatest) = (ends(|(least, _)| least), ends(|(_, greatest)| greatest));
            self.zones = Some(ZoneBounds { is_known, least, greatest });
        }
        // In a narrow range the distinct values are quickly found, and only those few are hashed.
        let range = extremes.filter(|_| statistics.nulls == 0);
        let few = range.and_then(|(min, max)| different(values, min, offset(max, min), &offset));
        let hashes = match &few {
            Some(few) => T::hashes(level, few),
            None => keep_valid(T::hashes(level, values), validity),
        };
        self.count_distinct(&mut statistics, &hashes, few.is_some());
        (statistics.min, statistics.max) = extremes.map(|(min, max)| (bytes(min), bytes(max))).unzip();
        statistics.finish(values.is_sorted_by(|value, next| value.key() <= next.key()))
    }

    /// Integers of up to 64 bits; `offset` is how far the first value is above the second.
    pub(crate) fn integers<T>(
        &mut self,
        values: &[T],
        bytes: impl Fn(T) -> Vec<u8>,
        offset: impl Fn(T, T) -> u64,
    ) -> Statistics
    where
        T: Hashed + aggregate::Integer,
    {
        let mut statistics = self.ordered(values, bytes, offset);
        statistics.sum = Some(aggregate::sum(self.level, values, self.validity, Selection::All));
        statistics
    }

    pub(crate) fn decimals(&mut self, values: &[i128]) -> Statistics {
        let mut statistics = self.ordered(values, |value| value.to_le_bytes().to_vec(), |_, _| u64::MAX);
        let mut sum = DecimalSum::default();
        sum.add(self.level, values, self.validity, Selection::All);
        statistics.sum = sum.value();
        statistics
    }

    pub(crate) fn f32s(&mut self, values: &[f32]) -> Statistics {
        self.ordered(values, |value| value.to_le_bytes().to_vec(), |_, _| u64::MAX)
    }

    pub(crate) fn f64s(&mut self, values: &[f64]) -> Statistics {
        self.ordered(values, |value| value.to_le_bytes().to_vec(), |_, _| u64::MAX)
    }

    /// 16 bytes that are ordered bytewise.
    pub(crate) fn uuids(&mut self, values: &[i128]) -> Statistics {
        let mut statistics = self.counts(values.len());
        let hashes = keep_valid(Hashed::hashes(self.level, values), self.validity);
        self.count_distinct(&mut statistics, &hashes, false);
        let order = |value: &i128| value.to_le_bytes();
        let valid = || {
            let is_valid = |row: &usize| self.validity.is_none_or(|bits| bits.get(*row));
            (0..values.len()).filter(is_valid).map(|row| order(&values[row]))
        };
        statistics.min = valid().min().map(Vec::from);
        statistics.max = valid().max().map(Vec::from);
        statistics.finish(values.is_sorted_by_key(order))
    }

    pub(crate) fn flags(&self, values: Bits<'_>) -> Statistics {
        let mut statistics = self.counts(values.len());
        let valid = statistics.rows - statistics.nulls;
        let selected = self.validity.map_or_else(
            || keirin_kernels::count_ones(self.level, values),
            |validity| keirin_kernels::bitmaps::count_ones_in_both(self.level, validity, values),
        );
        let (any, all) = (selected > 0, selected == valid as usize);
        statistics.min = (valid > 0).then(|| vec![u8::from(all)]);
        statistics.max = (valid > 0).then(|| vec![u8::from(any)]);
        statistics.distinct = u32::from(any) + u32::from(!all);
        statistics.finish(false)
    }

    /// Text; `entries` are its distinct values in ascending order, if they are known.
    pub(crate) fn text(&mut self, rows: Strings<'_, i32>, entries: Option<Strings<'_, i32>>) -> Statistics {
        let mut statistics = self.counts(rows.row_count());
        let is_full = statistics.nulls == 0;
        let is_sorted = is_full && (1..rows.row_count()).all(|row| rows.row(row - 1) <= rows.row(row));
        let text_bytes = rows.offsets()[rows.row_count()].abs_diff(rows.offsets()[0]);
        // With nulls, an entry may be the arbitrary value of a null row.
        let (level, entries) = (self.level, entries.filter(|_| is_full));
        let validity = self.validity.filter(|_| entries.is_none());
        let values = entries.unwrap_or(rows);
        let hashes = keep_valid(hashes_of_text(values), validity);
        self.count_distinct(&mut statistics, &hashes, entries.is_some());
        let extremes = match entries.and_then(|entries| entries.row_count().checked_sub(1)) {
            Some(last) => Some((0, last)),
            None => extreme_rows(rows, self.validity),
        };
        let facts = facts(level, values);
        let is_constant = extremes.is_some_and(|(min, max)| values.row(min) == values.row(max));
        let (min, max) = extremes.map(|(min, max)| (values.row(min), values.row(max))).unzip();
        let is_short = |text: Option<&[u8]>| text.is_some_and(|text| text.len() <= BOUND_BYTES_MAX);
        statistics.flags = BlockFlags::default()
            .with(BlockFlags::MIN_EXACT, is_short(min))
            .with(BlockFlags::MAX_EXACT, is_short(max))
            .with(BlockFlags::SORTED, is_sorted)
            .with(BlockFlags::CONSTANT, is_full && is_constant)
            .with(BlockFlags::ASCII, facts.is_ascii)
            .with(BlockFlags::NO_TRAILING_SPACES, !facts.has_trailing_spaces);
        statistics.min = min.map(|text| text[..text.len().min(BOUND_BYTES_MAX)].to_vec());
        statistics.max = max.and_then(upper_bound);
        statistics.text_bytes = text_bytes;
        statistics
    }
}

/// Counts the distinct values of a node over several blocks.
#[derive(Clone, Debug, Default)]
pub(super) struct DistinctSum {
    sketch: Option<HyperLogLog>,
    value_count: u64,
    /// The most distinct values of one block: the estimate for flags, which have no sketch.
    most_of_a_block: u32,
}

impl DistinctSum {
    pub(super) fn add(&mut self, block: &Statistics, sketch: Option<HyperLogLog>) {
        self.value_count += u64::from(block.rows - block.nulls);
        self.most_of_a_block = self.most_of_a_block.max(block.distinct);
        match (&mut self.sketch, sketch) {
            (Some(sum), Some(sketch)) => sum.merge(&sketch),
            (sum @ None, sketch) => *sum = sketch,
            (Some(_), None) => {}
        }
    }

    /// The approximate count; 0 if the values were not counted.
    pub(super) fn estimate(&self) -> u64 {
        match &self.sketch {
            Some(sketch) => distinct_of(sketch, self.value_count),
            None => u64::from(self.most_of_a_block),
        }
    }

    pub(super) fn sketch(&self) -> Option<Sketch> {
        self.sketch.as_ref().map(Sketch::of)
    }
}

/// The count of distinct values by a sketch, at most `most`.
fn distinct_of(sketch: &HyperLogLog, most: u64) -> u64 {
    #[expect(clippy::cast_possible_truncation, reason = "it is between zero and a count of rows")]
    let values = sketch.estimate().round().clamp(0.0, most as f64) as u64;
    values
}

/// A candidate for the minimum or maximum of text.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    /// The first bytes, filled up with zeros: they usually decide which of two texts is less.
    prefix: u64,
    text: &'a [u8],
    row: usize,
}

impl<'a> Candidate<'a> {
    const PREFIX_BYTES: usize = 8;

    fn new(text: &'a [u8], row: usize) -> Self {
        let prefix = text.first_chunk().copied().unwrap_or_else(|| {
            let mut bytes = [0; Self::PREFIX_BYTES];
            bytes.iter_mut().zip(text).for_each(|(byte, of_text)| *byte = *of_text);
            bytes
        });
        Self { prefix: u64::from_be_bytes(prefix), text, row }
    }

    fn is_less(self, other: Self) -> bool {
        let lengths = (self.text.len(), other.text.len());
        match self.prefix.cmp(&other.prefix) {
            // In many columns most texts are short and equal.
            Ordering::Equal if lengths.0.max(lengths.1) <= Self::PREFIX_BYTES => lengths.0 < lengths.1,
            Ordering::Equal => self.text < other.text,
            ordering => ordering.is_lt(),
        }
    }
}

/// The rows of the minimum and the maximum.
fn extreme_rows(rows: Strings<'_, i32>, validity: Option<Bits<'_>>) -> Option<(usize, usize)> {
    let valid = (0..rows.row_count()).filter(|row| validity.is_none_or(|bits| bits.get(*row)));
    let mut candidates = valid.map(|row| Candidate::new(rows.row(row), row));
    let first = candidates.next()?;
    let (mut least, mut greatest) = (first, first);
    for candidate in candidates {
        if candidate.is_less(least) {
            least = candidate;
        } else if greatest.is_less(candidate) {
            greatest = candidate;
        }
    }
    Some((least.row, greatest.row))
}

/// The distinct values, found with a table of flags; `None` if the range of the values is too wide for it.
fn different<T: Copy>(values: &[T], least: T, span: u64, offset: impl Fn(T, T) -> u64) -> Option<Vec<T>> {
    /// Keeps the table in the nearest caches.
    const SPAN_MAX: u64 = 1 << 16;
    let first = *values.first()?;
    let mask = usize::try_from(span).ok().filter(|_| span < SPAN_MAX)?.next_power_of_two() * 2 - 1;
    let mut is_seen = vec![false; mask + 1];
    // Without a branch: every value is written, and one seen before is overwritten by the next.
    let mut different = vec![first; (mask + 1).min(values.len()) + 1];
    let mut count = 0;
    for value in values {
        #[expect(clippy::cast_possible_truncation, reason = "the span was held against the table")]
        let flag = &mut is_seen[offset(*value, least) as usize & mask];
        different[count] = *value;
        count += usize::from(!*flag);
        *flag = true;
    }
    different.truncate(count);
    Some(different)
}

/// The text itself if it is short, else the least short text above all texts with the same beginning.
fn upper_bound(text: &[u8]) -> Option<Vec<u8>> {
    if text.len() <= BOUND_BYTES_MAX {
        return Some(text.to_vec());
    }
    let last = text[..BOUND_BYTES_MAX].iter().rposition(|byte| *byte < u8::MAX)?;
    let mut bound = text[..=last].to_vec();
    bound[last] += 1;
    Some(bound)
}

impl Statistics {
    /// What is wrong with the statistics of a block of this field, if anything.
    pub(super) fn problem(&self, field: &Field) -> Option<String> {
        let Self { rows, nulls, distinct, .. } = self;
        let name = &field.name;
        if nulls > rows || *nulls > 0 && !field.is_nullable {
            return Some(format!("a block of '{name}' of {rows} rows with {nulls} nulls"));
        }
        if *distinct > rows - nulls {
            return Some(format!("a block of '{name}' of {rows} rows with {distinct} different values"));
        }
        let lengths = match field.data_type.values() {
            _ if !field.data_type.is_ordered() => None,
            None => None,
            Some(Kind::Text) => Some(0..=BOUND_BYTES_MAX),
            Some(kind) => kind.value_bits().map(|bits| bits.div_ceil(8) as usize).map(|bytes| bytes..=bytes),
        };
        let is_wrong = |bound: &&[u8]| lengths.as_ref().is_none_or(|lengths| !lengths.contains(&bound.len()));
        let mut bounds = [self.min.as_deref(), self.max.as_deref()].into_iter().flatten();
        let bytes = bounds.find(is_wrong)?.len();
        Some(format!("a block of '{name}' with a least or greatest value of {bytes} bytes"))
    }

    /// What these statistics, read from a file, claim wrongly about a column. The count of distinct values is
    /// approximate and not checked, and statistics that another version left out are no error.
    pub(super) fn false_claim(&self, level: Level, field: &Field, column: &Column<'_>) -> Option<String> {
        if column.row_count() == 0 {
            return (self.rows > 0).then(|| format!("a block of {} rows has none", self.rows));
        }
        let mut meter = Meter::new(level, column.validity_bits());
        let found = match &column.values {
            Values::Text { offsets, bytes } => match Strings::new(level, offsets, bytes) {
                Ok(rows) => meter.text(rows, None),
                Err(error) => return Some(error.to_string()),
            },
            values => meter.measure(&field.data_type, values),
        };
        let counts = [
            ("rows", self.rows, found.rows),
            ("nulls", self.nulls, found.nulls),
            ("bytes of text", self.text_bytes, found.text_bytes),
        ];
        if let Some((what, claimed, found)) = counts.into_iter().find(|(_, claimed, found)| claimed != found)
        {
            return Some(format!("{claimed} {what} are {found}"));
        }
        if self.flags.0 & !found.flags.0 & CLAIMS != 0 {
            return Some("its values are not what its flags say".to_owned());
        }
        for (what, claimed, found) in [
            ("least value", &self.min, &found.min),
            ("greatest value", &self.max, &found.max),
            (
                "sum",
                &self.sum.map(|sum| sum.to_le_bytes().to_vec()),
                &found.sum.map(|sum| sum.to_le_bytes().to_vec()),
            ),
        ] {
            if claimed.is_some() && claimed != found {
                return Some(format!("its {what} is another"));
            }
        }
        None
    }

    /// Sets the flags, for values whose bounds are exact.
    fn finish(mut self, is_sorted: bool) -> Self {
        let is_full = self.nulls == 0;
        let is_constant = is_full && self.min.is_some() && self.min == self.max;
        self.flags = BlockFlags::default()
            .with(BlockFlags::MIN_EXACT, self.min.is_some())
            .with(BlockFlags::MAX_EXACT, self.max.is_some())
            .with(BlockFlags::SORTED, is_full && is_sorted || is_constant)
            .with(BlockFlags::CONSTANT, is_constant);
        self
    }
}

#[cfg(test)]
mod tests {
    use keirin_kernels::BitBuffer;

    use super::*;
    use crate::schema::DataType;

    #[test]
    fn bounds_of_long_text_are_bounds() {
        let check = |text: &[u8], expected: Option<&[u8]>| {
            let bound = upper_bound(text);
            assert_eq!(bound.as_deref(), expected);
            assert!(bound.is_none_or(|bound| bound.as_slice() >= text));
        };
        check(b"short", Some(b"short"));
        check(&[b'a'; 64], Some(&[b'a'; 64]));
        check(&[b'a'; 65], Some(&[&[b'a'; 63][..], b"b"].concat()));
        check(&[&[b'a'; 10][..], &[255; 60]].concat(), Some(&[&[b'a'; 9][..], b"b"].concat()));
        check(&[255; 65], None);
    }

    fn check(statistics: &Statistics, min: &[u8], max: &[u8], nulls: u32, distinct: u32, sum: Option<i128>) {
        assert_eq!(statistics.min.as_deref(), Some(min));
        assert_eq!(statistics.max.as_deref(), Some(max));
        assert_eq!((statistics.nulls, statistics.distinct, statistics.sum), (nulls, distinct, sum));
    }

    fn integers(meter: &mut Meter<'_>, values: &[i16]) -> Statistics {
        let offset = |value: i16, least: i16| u64::from(value.wrapping_sub(least).cast_unsigned());
        meter.integers(values, |value| value.to_le_bytes().to_vec(), offset)
    }

    #[test]
    fn the_least_and_the_greatest_text_are_found() {
        let level = Level::best();
        let check = |texts: &[&[u8]], is_valid: fn(usize) -> bool| {
            let mut offsets = vec![0];
            offsets.extend(texts.iter().scan(0, |end, text| {
                *end += i32::try_from(text.len()).unwrap();
                Some(*end)
            }));
            let (bytes, validity): (_, BitBuffer) =
                (texts.concat(), (0..texts.len()).map(is_valid).collect());
            let rows = Strings::new(level, &offsets, &bytes).unwrap();
            let found = extreme_rows(rows, Some(validity.as_bits()));
            let valid = || texts.iter().enumerate().filter(|(row, _)| is_valid(*row)).map(|(_, text)| *text);
            let found = found.map(|(least, greatest)| (texts[least], texts[greatest]));
            assert_eq!(found, valid().min().zip(valid().max()));
        };
        let texts: [&[u8]; 12] = [
            b"b",
            b"a\0",
            b"a",
            b"abcdefgh",
            b"abcdefghi",
            b"abcdefgh\0",
            b"abcdefga",
            b"\xff\xff",
            b"b",
            b"",
            b"\0",
            b"",
        ];
        for count in 0..=texts.len() {
            check(&texts[..count], |_| true);
            check(&texts[count..], |_| true);
            check(&texts[..count], |row| row % 3 == 1);
            check(&texts[count..], |row| row % 2 == 0);
        }
    }

    #[test]
    fn known_entries_say_the_same_as_all_rows() {
        let level = Level::best();
        let (offsets, bytes) = ([0, 1, 3, 3, 4], b"bab ");
        let (entry_offsets, entry_bytes) = ([0, 0, 1, 3, 4], b" abb");
        let rows = Strings::new(level, &offsets, bytes).unwrap();
        let entries = Strings::new(level, &entry_offsets, entry_bytes).unwrap();
        let statistics = Meter::new(level, None).text(rows, Some(entries));
        assert_eq!(statistics, Meter::new(level, None).text(rows, None));
        assert_eq!(statistics.distinct, 4);
    }

    #[test]
    fn different_values_in_a_narrow_range_are_counted_exactly() {
        for step in [0, 1, 13, 14] {
            let value = |row: i32| i16::try_from(row * step % 64_000 - 32_000).unwrap();
            let values: Vec<i16> = (0..5000).map(value).collect();
            let mut expected = values.clone();
            expected.sort_unstable();
            expected.dedup();
            assert_eq!(
                integers(&mut Meter::new(Level::best(), None), &values).distinct,
                u32::try_from(expected.len()).unwrap()
            );
        }
    }

    #[test]
    fn statistics_leave_nulls_out() {
        let level = Level::best();
        let validity: BitBuffer = [true, true, false, true].into_iter().collect();
        let mut meter = Meter::new(level, Some(validity.as_bits()));
        let numbers = integers(&mut meter, &[3, -1, 100, 3]);
        check(&numbers, &(-1_i16).to_le_bytes(), &3_i16.to_le_bytes(), 1, 2, Some(5));
        let floats = meter.f64s(&[0.0, -0.0, f64::NAN, 1.5]);
        check(&floats, &(-0.0_f64).to_le_bytes(), &1.5_f64.to_le_bytes(), 1, 3, None);
        let uuid = |first: u8, last: u8| {
            let mut bytes = [0; 16];
            (bytes[0], bytes[15]) = (first, last);
            i128::from_le_bytes(bytes)
        };
        let uuids = meter.uuids(&[uuid(2, 0), uuid(1, 9), uuid(0, 0), uuid(2, 1)]);
        check(&uuids, &uuid(1, 9).to_le_bytes(), &uuid(2, 1).to_le_bytes(), 1, 3, None);
        let flags: BitBuffer = [true, true, false, true].into_iter().collect();
        check(&meter.flags(flags.as_bits()), &[1], &[1], 1, 1, None);
        let (offsets, bytes) = ([0, 1, 3, 3, 4], b"bab ");
        let text = meter.text(Strings::new(level, &offsets, bytes).unwrap(), None);
        check(&text, b" ", b"b", 1, 3, None);
        assert_eq!(text.text_bytes, 4);
        assert!(text.flags.is_ascii() && !text.flags.has_no_trailing_spaces());
    }

    #[test]
    fn different_values_of_blocks_are_counted_once() {
        let mut sum = DistinctSum::default();
        for values in [[1, 2, 3], [3, 3, 4]] {
            let mut meter = Meter::new(Level::best(), None);
            let statistics = integers(&mut meter, &values);
            sum.add(&statistics, meter.sketch);
        }
        assert_eq!(sum.estimate(), 4);
    }

    #[test]
    fn facts_that_no_block_has_are_found() {
        let mut field = Field::new(0, "a", DataType::I32);
        let good = Statistics {
            rows: 4,
            nulls: 1,
            distinct: 3,
            min: Some(vec![0; 4]),
            max: Some(vec![0; 4]),
            ..Statistics::default()
        };
        assert_eq!(good.problem(&field), None);
        for bad in [
            Statistics { nulls: 5, ..good.clone() },
            Statistics { distinct: 4, ..good.clone() },
            Statistics { min: Some(vec![0; 3]), ..good.clone() },
            Statistics { max: Some(vec![0; 8]), ..good.clone() },
        ] {
            assert!(bad.problem(&field).is_some(), "{bad:?}");
        }
        field.is_nullable = false;
        assert!(good.problem(&field).is_some());
        let bounded =
            |bytes: usize| Statistics { rows: 1, max: Some(vec![0; bytes]), ..Statistics::default() };
        let check = |data_type: DataType, bytes: usize, is_good: bool| {
            let problem = bounded(bytes).problem(&Field::new(0, "a", data_type));
            assert_eq!(problem.is_none(), is_good, "{problem:?}");
        };
        check(DataType::Text, 64, true);
        check(DataType::Text, 65, false);
        check(DataType::Boolean, 1, true);
        check(DataType::Interval, 16, false);
        check(DataType::Struct(Vec::new()), 0, false);
    }

    #[test]
    fn order_and_sameness_are_seen() {
        let mut meter = Meter::new(Level::best(), None);
        let mut flags = |values: &[i16]| {
            let flags = integers(&mut meter, values).flags;
            (flags.is_sorted(), flags.is_constant())
        };
        assert_eq!(flags(&[1, 2, 2, 5]), (true, false));
        assert_eq!(flags(&[1, 2, 1]), (false, false));
        assert_eq!(flags(&[7; 9]), (true, true));
        let mut is_sorted = |values: &[f64]| meter.f64s(values).flags.is_sorted();
        assert!(is_sorted(&[-f64::NAN, f64::NEG_INFINITY, -0.0, 0.0, 1.0, f64::INFINITY, f64::NAN]));
        assert!(!is_sorted(&[0.0, -0.0]));
        assert!(!is_sorted(&[1.0, f64::NAN, 2.0]));
        assert!(!is_sorted(&[1.0, -f64::NAN]));
    }
}
