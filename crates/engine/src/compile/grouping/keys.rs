//! Arrow's arrays as keys of groups, and back.

use std::sync::Arc;

use arrow::array::{Array, ArrayData, ArrayRef, AsArray, BooleanArray, make_array};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::compute::cast;
use arrow::datatypes::{BinaryViewType, DataType, StringViewType};
use datafusion::common::{internal_datafusion_err, internal_err};
use datafusion::error::Result;
use keirin_kernels::arrow::GroupViews;
use keirin_kernels::hash::{self, Seed, Strings};
use keirin_kernels::text::LayoutError;
use keirin_kernels::{BitBuffer, Bits, Level, bitmaps};
use keirin_operators::{Groups, KeyColumn, KeyType, KeyValues, OwnedKeys, OwnedValues};

/// How values of a type are keys; none if they are not equal as their bits are, or nested.
fn width(data_type: &DataType) -> Option<Option<usize>> {
    Some(match data_type {
        DataType::Boolean => Some(1),
        DataType::Utf8
        | DataType::LargeUtf8
        | DataType::Utf8View
        | DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView => None,
        // Intervals are equal by length, and halves have no kernels.
        DataType::Interval(_) | DataType::Float16 | DataType::Decimal256(..) => return None,
        other => Some(other.primitive_width()?),
    })
}

/// The types of the keys of groups, and of their columns.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    pub(crate) data_types: Vec<DataType>,
    pub(crate) types: Vec<KeyType>,
}

impl Keys {
    /// Keys of columns of these types, nullable or not; `None` if some cannot be.
    pub(crate) fn new(columns: impl IntoIterator<Item = (DataType, bool)>) -> Option<Self> {
        let (mut data_types, mut types) = (Vec::new(), Vec::new());
        for (data_type, is_nullable) in columns {
            types.push(KeyType { width: width(&data_type)?, is_nullable });
            data_types.push(data_type);
        }
        (!types.is_empty()).then_some(Self { data_types, types })
    }

    /// No groups.
    pub(super) fn groups(&self) -> Groups {
        Groups::new(&self.types)
    }

    /// Sets `numbers` to the group of each row of these columns, of which equal values have equal bits; new keys begin groups if there may be more.
    pub(super) fn number(
        &self,
        groups: &mut Groups,
        columns: &[ArrayRef],
        row_count: usize,
        grows: bool,
        numbers: &mut Vec<u32>,
    ) -> Result<()> {
        let mut held = Vec::with_capacity(columns.len());
        for (column, key) in columns.iter().zip(&self.types) {
            if !key.is_nullable && column.null_count() > 0 {
                return internal_err!("nulls in a key that has none");
            }
            held.push(Held::new(column));
        }
        let texts: Vec<Vec<&[u8]>> = held.iter().map(Held::texts).collect();
        let keys: Vec<KeyColumn<'_>> = held.iter().zip(&texts).map(|(held, texts)| held.key(texts)).collect();
        if grows {
            groups.find_or_insert(Level::best(), &keys, row_count, numbers);
        } else {
            groups.find(Level::best(), &keys, row_count, numbers);
        }
        Ok(())
    }

    /// The columns of the keys, a row a group.
    pub(super) fn columns(&self, groups: &mut Groups) -> Result<Vec<ArrayRef>> {
        let count = groups.len();
        self.rows(groups, None)?.iter_mut().map(|rows| rows.take(0, count)).collect()
    }

    /// The columns of the keys of groups with these numbers, all if it does not say, to be taken a few rows at a time.
    pub(super) fn rows(&self, groups: &mut Groups, numbers: Option<&[u32]>) -> Result<Vec<KeyRows>> {
        let keys = groups.take_keys(numbers).into_iter().zip(&self.data_types);
        keys.map(|(keys, data_type)| KeyRows::new(keys, data_type)).collect()
    }
}

/// A hash of the keys of each row.
pub(crate) fn hash_keys(seed: &Seed, columns: &[ArrayRef], row_count: usize) -> Vec<u64> {
    let (level, mut hashes) = (Level::best(), vec![0; row_count]);
    for column in columns {
        let held = Held::new(column);
        let texts = held.texts();
        let KeyColumn { values, validity } = held.key(&texts);
        match values {
            KeyValues::Bytes1(values) => hash::combine_keys(level, seed, values, validity, &mut hashes),
            KeyValues::Bytes2(values) => hash::combine_keys(level, seed, values, validity, &mut hashes),
            KeyValues::Bytes4(values) => hash::combine_keys(level, seed, values, validity, &mut hashes),
            KeyValues::Bytes8(values) => hash::combine_keys(level, seed, values, validity, &mut hashes),
            KeyValues::Bytes16(values) => hash::combine_keys(level, seed, values, validity, &mut hashes),
            KeyValues::Text(texts) => hash::combine_strings(level, seed, texts, validity, &mut hashes),
        }
    }
    hashes
}

/// A column of the keys of groups.
pub(crate) enum KeyRows {
    Values(ArrayRef),
    Text(GroupViews<StringViewType>, DataType),
    Binary(GroupViews<BinaryViewType>, DataType),
}

/// A column whose values are looked at as bits.
pub(crate) struct Held {
    data: ArrayData,
    /// Bits of flags as bytes.
    flags: Vec<u8>,
}

impl Held {
    pub(crate) fn new(column: &ArrayRef) -> Self {
        let flags = column.as_boolean_opt().map_or_else(Vec::new, |flags| {
            let bits = Bits::new(flags.values().values(), flags.values().offset(), flags.len());
            bitmaps::to_bools(Level::best(), bits).into_iter().map(u8::from).collect()
        });
        Self { data: column.to_data(), flags }
    }

    /// The buffers that views point into.
    pub(super) fn texts(&self) -> Vec<&[u8]> {
        match self.data.data_type() {
            DataType::Utf8View | DataType::BinaryView => {
                self.data.buffers()[1..].iter().map(Buffer::as_slice).collect()
            }
            _ => Vec::new(),
        }
    }

    fn values<T: arrow::datatypes::ArrowNativeType>(&self, more: usize) -> &[T] {
        let (offset, len) = (self.data.offset(), self.data.len());
        &self.data.buffers()[0].typed_data()[offset..offset + len + more]
    }

    pub(crate) fn key<'a>(&'a self, texts: &'a [&'a [u8]]) -> KeyColumn<'a> {
        let data_type = self.data.data_type();
        let values = match data_type {
            DataType::Boolean => KeyValues::Bytes1(&self.flags),
            DataType::Utf8View | DataType::BinaryView => {
                KeyValues::Text(Strings::Views(self.values(0), texts))
            }
            DataType::Utf8 | DataType::Binary => {
                KeyValues::Text(Strings::Offsets32(self.offsets(), self.data.buffers()[1].as_slice()))
            }
            DataType::LargeUtf8 | DataType::LargeBinary => {
                KeyValues::Text(Strings::Offsets64(self.offsets(), self.data.buffers()[1].as_slice()))
            }
            _ => match data_type.primitive_width() {
                Some(1) => KeyValues::Bytes1(self.values(0)),
                Some(2) => KeyValues::Bytes2(self.values(0)),
                Some(4) => KeyValues::Bytes4(self.values(0)),
                Some(8) => KeyValues::Bytes8(self.values(0)),
                _ => KeyValues::Bytes16(self.values(0)),
            },
        };
        let nulls = self.data.nulls().filter(|nulls| nulls.null_count() > 0);
        let validity = nulls.map(|nulls| Bits::new(nulls.validity(), nulls.offset(), nulls.len()));
        KeyColumn { values, validity }
    }

    fn offsets<T: arrow::datatypes::ArrowNativeType>(&self) -> &[T] {
        // No rows may have no offsets.
        if self.data.is_empty() { &[] } else { self.values(1) }
    }
}

pub(super) fn nulls(validity: Option<BitBuffer>) -> Option<NullBuffer> {
    let validity = validity?;
    let len = validity.len();
    let bits = BooleanBuffer::new(Buffer::from_vec(validity.into_words()), 0, len);
    Some(NullBuffer::new(bits)).filter(|nulls| nulls.null_count() > 0)
}

impl KeyRows {
    pub(crate) fn new(keys: OwnedKeys, data_type: &DataType) -> Result<Self> {
        let OwnedKeys { values, validity } = keys;
        let (len, buffer) = match values {
            OwnedValues::Bytes1(values) if *data_type == DataType::Boolean => {
                let values = BooleanBuffer::collect_bool(values.len(), |row| values[row] != 0);
                return Ok(Self::Values(Arc::new(BooleanArray::new(values, nulls(validity)))));
            }
            OwnedValues::Bytes1(values) => (values.len(), Buffer::from_vec(values)),
            OwnedValues::Bytes2(values) => (values.len(), Buffer::from_vec(values)),
            OwnedValues::Bytes4(values) => (values.len(), Buffer::from_vec(values)),
            OwnedValues::Bytes8(values) => (values.len(), Buffer::from_vec(values)),
            OwnedValues::Bytes16(values) => (values.len(), Buffer::from_vec(values)),
            OwnedValues::Text(views, parts) => {
                let parts = parts.into_iter().map(Buffer::from_vec).collect();
                return Self::of_texts(views, parts, validity, data_type);
            }
        };
        let nulls = nulls(validity);
        let data = ArrayData::builder(data_type.clone()).len(len).add_buffer(buffer).nulls(nulls).build()?;
        Ok(Self::Values(make_array(data)))
    }

    /// Texts by their views into `parts`.
    pub(super) fn of_texts(
        views: Vec<u128>,
        parts: Vec<Buffer>,
        validity: Option<BitBuffer>,
        data_type: &DataType,
    ) -> Result<Self> {
        let wrong = |error: LayoutError| internal_datafusion_err!("keys of groups: {error}");
        let (nulls, data_type) = (nulls(validity), data_type.clone());
        Ok(match data_type {
            DataType::Utf8View | DataType::Utf8 | DataType::LargeUtf8 => {
                Self::Text(GroupViews::new(views, parts, nulls).map_err(wrong)?, data_type)
            }
            _ => Self::Binary(GroupViews::new(views, parts, nulls).map_err(wrong)?, data_type),
        })
    }

    /// Memory in use.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Values(values) => values.get_array_memory_size(),
            Self::Text(rows, _) => rows.bytes(),
            Self::Binary(rows, _) => rows.bytes(),
        }
    }

    /// The `count` rows from `start` on, up to which rows were taken.
    pub(crate) fn take(&mut self, start: usize, count: usize) -> Result<ArrayRef> {
        let (views, data_type): (ArrayRef, _) = match self {
            Self::Values(values) => return Ok(values.slice(start, count)),
            Self::Text(rows, data_type) => (Arc::new(rows.take(count)), data_type),
            Self::Binary(rows, data_type) => (Arc::new(rows.take(count)), data_type),
        };
        Ok(if views.data_type() == data_type { views } else { cast(&views, data_type)? })
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        Decimal128Array, Float64Array, Int32Array, StringArray, StringViewArray, TimestampMicrosecondArray,
        UInt8Array, UInt64Array,
    };

    use super::*;

    #[test]
    fn keys_are_what_they_were() {
        let long = "longer than what a view has in itself";
        let columns: [ArrayRef; 8] = [
            Arc::new(BooleanArray::from(vec![Some(true), None, Some(false), Some(true)])),
            Arc::new(UInt8Array::from(vec![Some(1), None, Some(0), Some(1)])),
            Arc::new(Int32Array::from(vec![-1, 5, 7, -1])),
            Arc::new(Float64Array::from(vec![Some(0.0), None, Some(f64::NAN), Some(0.0)])),
            Arc::new(TimestampMicrosecondArray::from(vec![Some(1), None, Some(3), Some(1)])),
            Arc::new(Decimal128Array::from(vec![Some(-1), None, Some(3), Some(-1)])),
            Arc::new(StringViewArray::from(vec![Some(long), None, Some(""), Some(long)])),
            Arc::new(StringArray::from(vec![Some(long), None, Some(""), Some(long)])),
        ];
        let check = |columns: &[ArrayRef]| {
            let types = columns.iter().map(|column| (column.data_type().clone(), column.is_nullable()));
            let keys = Keys::new(types).unwrap();
            let (mut groups, mut numbers) = (keys.groups(), Vec::new());
            // Slices begin anywhere.
            let behind: Vec<ArrayRef> = columns.iter().map(|column| column.slice(1, 3)).collect();
            keys.number(&mut groups, &behind, 3, true, &mut numbers).unwrap();
            assert_eq!(numbers, [0, 1, 2]);
            keys.number(&mut groups, columns, 4, true, &mut numbers).unwrap();
            assert_eq!(numbers, [2, 0, 1, 2]);
            for (found, given) in keys.columns(&mut groups).unwrap().iter().zip(&behind) {
                assert_eq!(format!("{found:?}"), format!("{given:?}"));
            }
        };
        columns.iter().for_each(|column| check(std::slice::from_ref(column)));
        check(&columns);
        check(&columns[2..5]);
        let none: [ArrayRef; 2] =
            [Arc::new(UInt64Array::from(Vec::<u64>::new())), Arc::new(StringArray::from(Vec::<&str>::new()))];
        let keys = Keys::new(none.iter().map(|column| (column.data_type().clone(), true))).unwrap();
        let (mut groups, mut numbers) = (keys.groups(), Vec::new());
        keys.number(&mut groups, &none, 0, true, &mut numbers).unwrap();
        assert_eq!(keys.columns(&mut groups).unwrap()[1].len(), 0);
    }

    #[test]
    fn nested_values_are_no_keys() {
        let list = DataType::new_list(DataType::Int32, true);
        assert!(Keys::new([(DataType::Int32, true), (list, true)]).is_none());
        assert!(Keys::new([(DataType::Null, true)]).is_none());
        assert!(Keys::new([]).is_none());
    }
}
