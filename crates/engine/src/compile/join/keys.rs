//! The keys of a join: packed where they have a few bytes and are equal as their bits are, else by their hash.
//!
//! Of rows with equal hashes the keys are compared afterwards.

use std::borrow::Cow;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType;
use datafusion::common::{internal_datafusion_err, internal_err};
use datafusion::error::Result;
use keirin_kernels::hash::Seed;
use keirin_kernels::{BitBuffer, Bits, Level, bitmaps};
use keirin_operators::join::KeyOrder;
use keirin_operators::packed::{KeyLayout, PackedKey};
use keirin_operators::{KeyColumn, KeyValues, OwnedKeys};

use crate::compile::grouping::{Held, KeyRows, Keys, hash_keys, one_float};

/// How the keys of both sides become numbers.
#[derive(Clone, Debug)]
pub(super) struct JoinKeys {
    form: Form,
    /// Whether keys without a value are equal.
    nulls_are_equal: bool,
    /// How the numbers compare.
    pub(super) order: KeyOrder,
    /// Whether the only column compares as the numbers do.
    pub(super) is_ordered: bool,
}

#[derive(Clone, Debug)]
enum Form {
    Packed(KeyLayout),
    Hashed(Seed),
    /// There are no keys.
    Nothing,
}

impl JoinKeys {
    /// Keys of columns of these types, nullable or not; `None` if some cannot be.
    pub(super) fn new(columns: Vec<(DataType, bool)>, nulls_are_equal: bool) -> Option<Self> {
        let columns = columns.into_iter();
        let keys =
            Keys::new(columns.map(|(data_type, is_nullable)| (data_type, is_nullable && nulls_are_equal)))?;
        let has_text = keys.types.iter().any(|key| key.width.is_none());
        let form = match KeyLayout::new(&keys.types).filter(|_| !has_text) {
            Some(layout) => Form::Packed(layout),
            None => Form::Hashed(Seed::random()),
        };
        let (order, is_ordered) = match (&form, &keys.data_types[..], &keys.types[..]) {
            (Form::Packed(_), [data_type], [key]) if !key.is_nullable => order(data_type),
            _ => (KeyOrder::None, false),
        };
        Some(Self { form, nulls_are_equal, order, is_ordered })
    }

    /// Keys as [`new`](Self::new) takes them, or none at all, as numbers of 64 bits.
    pub(super) fn of_words(columns: Vec<(DataType, bool)>) -> Option<Self> {
        if columns.is_empty() {
            let (form, order) = (Form::Nothing, KeyOrder::None);
            return Some(Self { form, nulls_are_equal: false, order, is_ordered: false });
        }
        let mut keys = Self::new(columns, false)?;
        if keys.bytes() > size_of::<u64>() {
            keys.form = Form::Hashed(Seed::random());
        }
        Some(keys)
    }

    /// Numbers as a column of the keys, which is one of this type and compares as they do.
    pub(super) fn column<K: PackedKey>(&self, numbers: [K; 2], data_type: &DataType) -> Result<ArrayRef> {
        let Form::Packed(layout) = &self.form else { return internal_err!("keys that are no numbers") };
        let [values] = <[OwnedKeys; 1]>::try_from(layout.unpack(&numbers))
            .map_err(|_| internal_datafusion_err!("keys of several columns"))?;
        KeyRows::new(values, data_type)?.take(0, numbers.len())
    }

    /// The bytes of a number.
    pub(super) fn bytes(&self) -> usize {
        match &self.form {
            Form::Packed(layout) if layout.is_four_bytes() => size_of::<u32>(),
            Form::Packed(layout) => layout.bytes().next_power_of_two().max(size_of::<u64>()),
            Form::Hashed(_) | Form::Nothing => size_of::<u64>(),
        }
    }

    /// Whether rows with equal numbers may have different keys.
    pub(super) fn is_hashed(&self) -> bool {
        matches!(self.form, Form::Hashed(_))
    }

    /// What `take` makes of the numbers of so many rows with these keys, of which equal ones have equal bits, and of which
    /// rows have one.
    pub(super) fn with_numbers<K: PackedKey, T>(
        &self,
        columns: &[ArrayRef],
        row_count: usize,
        take: impl FnOnce(Cow<'_, [K]>, Option<BitBuffer>) -> T,
    ) -> T {
        let validity = if self.nulls_are_equal { None } else { validity(columns) };
        let layout = match &self.form {
            Form::Packed(layout) => layout,
            Form::Nothing => return take(Cow::Borrowed(&[]), None),
            Form::Hashed(seed) => {
                let numbers = hash_keys(seed, columns, row_count).into_iter().map(K::of_word).collect();
                return take(Cow::Owned(numbers), validity);
            }
        };
        let held: Vec<Held> = columns.iter().map(Held::new).collect();
        let keys = held.iter().map(|held| {
            let key = held.key(&[]);
            KeyColumn { validity: key.validity.filter(|_| self.nulls_are_equal), ..key }
        });
        let keys: Vec<KeyColumn<'_>> = keys.collect();
        debug_assert!(keys.iter().all(|key| !matches!(key.values, KeyValues::Text(_))));
        // A column that may be null has another number where it is not.
        if let Some(numbers) = K::borrowed(&keys).filter(|_| layout.bytes() == size_of::<K>()) {
            return take(Cow::Borrowed(numbers), validity);
        }
        let mut numbers = Vec::new();
        K::pack(layout, Level::best(), &keys, row_count, &mut numbers);
        take(Cow::Owned(numbers), validity)
    }
}

/// Which rows have a value in all columns; all if it does not say.
pub(super) fn validity(columns: &[ArrayRef]) -> Option<BitBuffer> {
    let nulls =
        columns.iter().filter_map(|column| column.logical_nulls()).filter(|nulls| nulls.null_count() > 0);
    nulls.fold(None, |all: Option<BitBuffer>, nulls| {
        let nulls = Bits::new(nulls.validity(), nulls.offset(), nulls.len());
        Some(match all {
            Some(all) => bitmaps::and(Level::best(), all.as_bits(), nulls),
            None => (0..nulls.len()).map(|row| nulls.get(row)).collect(),
        })
    })
}

/// How the packed keys of a column of this type compare, and whether its values do so.
fn order(data_type: &DataType) -> (KeyOrder, bool) {
    match data_type {
        DataType::Float32 | DataType::Float64 => (KeyOrder::None, false),
        // Packed into wider keys without their sign: those below zero are the greatest then.
        DataType::Int8 | DataType::Int16 => (KeyOrder::Unsigned, false),
        DataType::Boolean => (KeyOrder::Unsigned, true),
        data_type if data_type.is_unsigned_integer() => (KeyOrder::Unsigned, true),
        _ => (KeyOrder::Signed, true),
    }
}

/// Keys of which equal ones have equal bits.
pub(super) fn comparable(column: ArrayRef) -> ArrayRef {
    one_float(column)
}
