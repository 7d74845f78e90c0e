//! Arrow's arrays as storage's columns, and back.
//!
//! Writing lends: numbers, flags, offsets and contiguous text stay where they are. Reading takes over: the
//! vectors that storage decodes, and what a file has as it is, become Arrow's buffers. Copied is what has another layout: views when they are
//! written, UUIDs, which are text here and 16 bytes there, intervals, and times of day in 32 bits.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, DictionaryArray,
    GenericByteViewArray, ListArray, MapArray, RecordBatch, StructArray, UInt32Array, make_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    ArrowNativeType, BinaryViewType, ByteViewType, DataType, Date32Type, Decimal128Type,
    DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType, Field,
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, IntervalMonthDayNanoType,
    IntervalUnit, StringViewType, Time32MillisecondType, Time32SecondType, Time64MicrosecondType,
    Time64NanosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::error::ArrowError;
use bytes::Bytes;
use keirin_kernels::aligned::Number;
use keirin_kernels::arrow::text_views;
use keirin_kernels::{Bits, Level};
use keirin_storage::buffer;
use keirin_storage::column::{Column, Flags, Values};
use keirin_storage::part::Text;
use keirin_storage::schema as stored;

use super::types::arrow_type;
use crate::error::{Error, Result};
use crate::expressions::uuids::{to_bytes, to_text};
use crate::types::UUID_BYTES;

/// The columns of a batch in layouts that [`column`] lends; values that do not fit their type are errors.
///
/// # Errors
/// `Data` when a value cannot be cast, with the column's name.
pub(crate) fn storable(batch: &RecordBatch, fields: &[stored::Field]) -> Result<Vec<ArrayRef>> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let pairs = batch.columns().iter().zip(fields);
    let columns = pairs.map(|(array, field)| {
        if field.data_type == stored::DataType::Uuid {
            let uuids = to_bytes(array);
            let uuids = uuids.map_err(|error| error.with_detail(format!("column '{}'", field.name)));
            return Ok(Arc::new(uuids?) as ArrayRef);
        }
        let wanted = arrow_type(&field.data_type);
        let is_contiguous = match array.data_type() {
            DataType::Utf8 => wanted == DataType::Utf8View,
            DataType::Binary => wanted == DataType::BinaryView,
            _ => false,
        };
        if is_contiguous || *array.data_type() == wanted {
            return Ok(array.clone());
        }
        let cast = cast_with_options(array, &wanted, &options);
        cast.map_err(|error| Error::from(error).with_detail(format!("column '{}'", field.name)))
    });
    columns.collect()
}

/// An array as storage writes it. Its type is one that is read, or contiguous text.
///
/// # Errors
/// When text takes more than 2 GiB.
pub(crate) fn column(array: &dyn Array) -> Result<Column<'_>, ArrowError> {
    let bits = |buffer: &BooleanBuffer| (buffer.offset(), buffer.len());
    let validity = array.nulls().filter(|nulls| nulls.null_count() > 0).map(|nulls| {
        let (offset, len) = bits(nulls.inner());
        Flags::Borrowed(Bits::new(nulls.validity(), offset, len))
    });
    macro_rules! lend {
        ($variant:ident, $arrow_type:ty) => {
            Values::$variant(array.as_primitive::<$arrow_type>().values()[..].into())
        };
    }
    let values = match array.data_type() {
        DataType::Boolean => {
            let values = array.as_boolean().values();
            let (offset, len) = bits(values);
            // `as_boolean` borrows from `array`, and so do the bytes.
            Values::Flags(Flags::Borrowed(Bits::new(values.values(), offset, len)))
        }
        DataType::Int8 => lend!(I8, Int8Type),
        DataType::Int16 => lend!(I16, Int16Type),
        DataType::Int32 => lend!(I32, Int32Type),
        DataType::Int64 => lend!(I64, Int64Type),
        DataType::UInt8 => lend!(U8, UInt8Type),
        DataType::UInt16 => lend!(U16, UInt16Type),
        DataType::UInt32 => lend!(U32, UInt32Type),
        DataType::UInt64 => lend!(U64, UInt64Type),
        DataType::Float32 => lend!(F32, Float32Type),
        DataType::Float64 => lend!(F64, Float64Type),
        DataType::Decimal128(_, _) => lend!(I128, Decimal128Type),
        DataType::Date32 => lend!(I32, Date32Type),
        DataType::Time32(TimeUnit::Second) => widen::<Time32SecondType>(array),
        DataType::Time32(_) => widen::<Time32MillisecondType>(array),
        DataType::Time64(TimeUnit::Microsecond) => lend!(I64, Time64MicrosecondType),
        DataType::Time64(_) => lend!(I64, Time64NanosecondType),
        DataType::Timestamp(TimeUnit::Second, _) => lend!(I64, TimestampSecondType),
        DataType::Timestamp(TimeUnit::Millisecond, _) => lend!(I64, TimestampMillisecondType),
        DataType::Timestamp(TimeUnit::Microsecond, _) => lend!(I64, TimestampMicrosecondType),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => lend!(I64, TimestampNanosecondType),
        DataType::Duration(TimeUnit::Second) => lend!(I64, DurationSecondType),
        DataType::Duration(TimeUnit::Millisecond) => lend!(I64, DurationMillisecondType),
        DataType::Duration(TimeUnit::Microsecond) => lend!(I64, DurationMicrosecondType),
        DataType::Duration(TimeUnit::Nanosecond) => lend!(I64, DurationNanosecondType),
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let values = array.as_primitive::<IntervalMonthDayNanoType>().values().iter();
            let bits = |value: i32| i128::from(value.cast_unsigned());
            let packed = values.map(|value| {
                bits(value.months) | bits(value.days) << 32 | i128::from(value.nanoseconds) << 64
            });
            Values::I128(packed.collect())
        }
        DataType::Utf8 => {
            let text = array.as_string::<i32>();
            let (offsets, bytes) = (text.value_offsets(), text.value_data());
            Values::Text { offsets: offsets.into(), bytes: bytes.into() }
        }
        DataType::Binary => {
            let binary = array.as_binary::<i32>();
            let (offsets, bytes) = (binary.value_offsets(), binary.value_data());
            Values::Text { offsets: offsets.into(), bytes: bytes.into() }
        }
        DataType::Utf8View => joined(array.as_string_view())?,
        DataType::BinaryView => joined(array.as_binary_view())?,
        DataType::FixedSizeBinary(16) => {
            let array = array.as_fixed_size_binary();
            let uuid = |row| array.value(row).try_into().map(i128::from_le_bytes).expect("it has 16 bytes");
            Values::I128((0..array.len()).map(uuid).collect())
        }
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let children = vec![column(list.values())?];
            Values::List { offsets: list.value_offsets().into(), children }
        }
        DataType::Map(_, _) => {
            let map = array.as_map();
            let children = vec![column(map.keys())?, column(map.values())?];
            Values::List { offsets: map.value_offsets().into(), children }
        }
        DataType::Struct(_) => {
            let children = array.as_struct().columns().iter();
            let children = children.map(|child| column(child)).collect::<Result<_, _>>()?;
            Values::Struct { row_count: array.len(), children }
        }
        other => return Err(ArrowError::NotYetImplemented(format!("values of type {other} are not stored"))),
    };
    Ok(Column { validity, values })
}

fn widen<T: ArrowPrimitiveType<Native = i32>>(array: &dyn Array) -> Values<'static> {
    Values::I64(array.as_primitive::<T>().values().iter().map(|value| i64::from(*value)).collect())
}

/// The bytes of views one behind the other.
fn joined<T: ByteViewType>(views: &GenericByteViewArray<T>) -> Result<Values<'static>, ArrowError> {
    let mut offsets = Vec::with_capacity(views.len() + 1);
    let mut bytes = Vec::with_capacity(views.total_buffer_bytes_used());
    offsets.push(0);
    for (row, value) in views.bytes_iter().enumerate() {
        if views.is_valid(row) {
            bytes.extend_from_slice(value);
        }
        let full = |_| ArrowError::OffsetOverflowError(bytes.len());
        offsets.push(i32::try_from(bytes.len()).map_err(full)?);
    }
    Ok(Values::Text { offsets: offsets.into(), bytes: bytes.into() })
}

/// What was read, as an array of `data_type`, which is how Arrow has what the column is.
///
/// # Errors
/// When bytes from disk are no such values.
pub(crate) fn array(column: Column<'static>, data_type: &DataType) -> Result<ArrayRef, ArrowError> {
    let row_count = column.row_count();
    let nulls = column.validity.map(|flags| NullBuffer::new(boolean_buffer(flags)));
    macro_rules! numbers {
        ($values:expr) => {
            primitive(buffer($values), row_count, data_type, nulls)
        };
    }
    match (column.values, data_type) {
        (Values::Flags(flags), DataType::Boolean) => {
            Ok(Arc::new(BooleanArray::new(boolean_buffer(flags), nulls)))
        }
        (Values::I64(values), DataType::Time32(_)) => {
            let narrow = |value: &i64| i32::try_from(*value);
            let out_of_range = |_| ArrowError::ComputeError("a time of day is out of range".to_owned());
            let values = values.iter().map(narrow).collect::<Result<Vec<i32>, _>>().map_err(out_of_range)?;
            primitive(Buffer::from_vec(values), row_count, data_type, nulls)
        }
        (Values::I8(values), _) => numbers!(values),
        (Values::I16(values), _) => numbers!(values),
        (Values::I32(values), _) => numbers!(values),
        (Values::I64(values), _) => numbers!(values),
        (Values::I128(values), DataType::Utf8View) => {
            let uuids = primitive(buffer(values), row_count, &DataType::FixedSizeBinary(UUID_BYTES), nulls)?;
            let text = to_text(&uuids, false).map_err(|error| ArrowError::ExternalError(Box::new(error)))?;
            Ok(Arc::new(text))
        }
        (Values::I128(values), _) => numbers!(values),
        (Values::U8(values), _) => numbers!(values),
        (Values::U16(values), _) => numbers!(values),
        (Values::U32(values), _) => numbers!(values),
        (Values::U64(values), _) => numbers!(values),
        (Values::F32(values), _) => numbers!(values),
        (Values::F64(values), _) => numbers!(values),
        (Values::Text { offsets, bytes }, DataType::Utf8View | DataType::BinaryView) => {
            views(&offsets, buffer(bytes), None, nulls, data_type)
        }
        (Values::List { offsets, children }, DataType::List(element)) => {
            let elements = arrays(children, std::slice::from_ref(element))?.remove(0);
            let list = ListArray::try_new(element.clone(), buffer_of_offsets(offsets), elements, nulls)?;
            Ok(Arc::new(list))
        }
        (Values::List { offsets, children }, DataType::Map(entries, is_sorted)) => {
            let DataType::Struct(fields) = entries.data_type() else { return Err(mismatch(data_type)) };
            let inside = StructArray::try_new(fields.clone(), arrays(children, fields)?, None)?;
            let offsets = buffer_of_offsets(offsets);
            Ok(Arc::new(MapArray::try_new(entries.clone(), offsets, inside, nulls, *is_sorted)?))
        }
        (Values::Struct { row_count, children }, DataType::Struct(fields)) => {
            let children = arrays(children, fields)?;
            let rows = StructArray::try_new_with_length(fields.clone(), children, nulls, row_count)?;
            Ok(Arc::new(rows))
        }
        _ => Err(mismatch(data_type)),
    }
}

/// Text that was read, as an array of views; if `is_coded`, entries of a dictionary stay one.
///
/// # Errors
/// When bytes from disk are no text.
pub(super) fn text_array(text: Text, data_type: &DataType, is_coded: bool) -> Result<ArrayRef, ArrowError> {
    match text {
        Text::Rows(column) => array(column, data_type),
        Text::Entries { validity, codes, offsets, bytes } if is_coded => {
            let nulls = validity.map(|flags| NullBuffer::new(boolean_buffer(flags)));
            let entries = views(&offsets, Buffer::from_vec(bytes), None, None, data_type)?;
            Ok(Arc::new(DictionaryArray::try_new(UInt32Array::new(codes.into(), nulls), entries)?))
        }
        Text::Entries { validity, codes, offsets, bytes } => {
            let nulls = validity.map(|flags| NullBuffer::new(boolean_buffer(flags)));
            views(&offsets, Buffer::from_vec(bytes), Some(&codes), nulls, data_type)
        }
    }
}

/// Rows of text, or of bytes if `data_type` says so; with `codes`, entries that each row names.
fn views(
    offsets: &[i32],
    bytes: Buffer,
    codes: Option<&[u32]>,
    nulls: Option<NullBuffer>,
    data_type: &DataType,
) -> Result<ArrayRef, ArrowError> {
    let level = Level::best();
    let views = match data_type {
        DataType::Utf8View => text_views::<StringViewType>(level, offsets, bytes, codes, nulls)
            .map(|views| Arc::new(views) as _),
        _ => text_views::<BinaryViewType>(level, offsets, bytes, codes, nulls)
            .map(|views| Arc::new(views) as _),
    };
    views.map_err(|error| ArrowError::InvalidArgumentError(error.to_string()))
}

fn arrays(columns: Vec<Column<'static>>, fields: &[Arc<Field>]) -> Result<Vec<ArrayRef>, ArrowError> {
    columns.into_iter().zip(fields).map(|(column, field)| array(column, field.data_type())).collect()
}

fn mismatch(data_type: &DataType) -> ArrowError {
    ArrowError::InvalidArgumentError(format!("what is stored cannot be read as {data_type}"))
}

/// Numbers of any type: the width of values and the length of the buffer are held against `data_type`.
fn primitive(
    values: Buffer,
    row_count: usize,
    data_type: &DataType,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    let width = data_type.primitive_width().or(match data_type {
        DataType::FixedSizeBinary(width) => width.to_usize(),
        _ => None,
    });
    if width.is_none_or(|width| width * row_count != values.len()) {
        return Err(mismatch(data_type));
    }
    let data = ArrayData::builder(data_type.clone()).len(row_count).add_buffer(values).nulls(nulls);
    Ok(make_array(data.build()?))
}

fn boolean_buffer(flags: Flags<'static>) -> BooleanBuffer {
    let bits = flags.into_owned();
    let len = bits.len();
    BooleanBuffer::new(Buffer::from_vec(bits.into_words()), 0, len)
}

/// Values as Arrow has them; what lies in memory of a file stays there.
fn buffer<T: ArrowNativeType + Number>(values: buffer::Buffer<'static, T>) -> Buffer {
    match values {
        buffer::Buffer::Shared(values) => Buffer::from(Bytes::from_owner(values)),
        values => Buffer::from_vec(values.into_owned()),
    }
}

fn buffer_of_offsets(offsets: buffer::Buffer<'static, i32>) -> OffsetBuffer<i32> {
    OffsetBuffer::new(offsets.into_owned().into())
}

#[cfg(test)]
mod tests {
    use arrow::array::{StringArray, StringViewArray};
    use arrow::compute::concat_batches;
    use arrow::datatypes::{Fields, Schema};
    use keirin_kernels::Selection;

    use super::*;
    use crate::expressions::uuids::as_uuid;
    use crate::sources::stored::testing::{Random, TestDatabase, every_field};
    use crate::sources::stored::types::arrow_schema;

    /// Writes `batches` into a part and reads each of its columns.
    fn round_trip(batches: &[RecordBatch]) -> RecordBatch {
        let database = TestDatabase::new();
        let number = database.create("t", batches[0].schema().fields());
        database.add_part(number, batches);
        let snapshot = database.database.snapshot();
        let table = snapshot.table(number).unwrap();
        let schema = arrow_schema(&table.definition);
        let mut read = Vec::new();
        for part in table.parts() {
            let reader = snapshot.open_part(table, part).unwrap();
            for stripe in 0..reader.stripe_count() {
                let columns = schema.fields().iter().enumerate().map(|(index, field)| {
                    let column = reader.read(index, stripe, Selection::All).unwrap();
                    array(column, field.data_type()).unwrap()
                });
                read.push(RecordBatch::try_new(schema.clone(), columns.collect()).unwrap());
            }
        }
        concat_batches(&schema, &read).unwrap()
    }

    #[test]
    fn arrays_of_every_type_come_back_from_a_part() {
        let schema = Arc::new(Schema::new(every_field()));
        for seed in 0..12 {
            println!("seed {seed}");
            let mut random = Random(seed);
            let batches: Vec<RecordBatch> = (0..1 + random.below(3))
                .map(|_| {
                    // A slice of each, for what lies in front of and behind it must not matter.
                    let (rows, front, back) = (random.below(500), random.below(20), random.below(20));
                    let fields = schema.fields().iter();
                    let columns = fields.map(|field| {
                        let whole = random.array(field.data_type(), front + rows + back, true);
                        whole.slice(front, rows)
                    });
                    RecordBatch::try_new(schema.clone(), columns.collect()).unwrap()
                })
                .collect();
            let given = concat_batches(&schema, &batches).unwrap();
            assert_eq!(round_trip(&batches), given);
        }
    }

    #[test]
    fn other_layouts_are_stored_as_what_they_mean() {
        let mut random = Random(1);
        let mut check = |from: DataType, to: DataType| {
            let base = random.array(&arrow_type_of_test(&from), 100, true);
            let given = arrow::compute::cast(&base, &from).unwrap();
            let batch = |array: &ArrayRef| {
                let fields: Fields = vec![Field::new("a", array.data_type().clone(), true)].into();
                RecordBatch::try_new(Arc::new(Schema::new(fields)), vec![array.clone()]).unwrap()
            };
            let expected = arrow::compute::cast(&given, &to).unwrap();
            assert_eq!(round_trip(&[batch(&given).slice(7, 80)]), batch(&expected.slice(7, 80)));
        };
        let item = |data_type| Arc::new(Field::new("item", data_type, true));
        check(DataType::Utf8, DataType::Utf8View);
        check(DataType::LargeUtf8, DataType::Utf8View);
        check(DataType::Binary, DataType::BinaryView);
        check(DataType::LargeBinary, DataType::BinaryView);
        check(DataType::Dictionary(DataType::Int32.into(), DataType::Utf8.into()), DataType::Utf8View);
        check(DataType::List(item(DataType::Utf8)), DataType::List(item(DataType::Utf8View)));
        check(DataType::LargeList(item(DataType::Int64)), DataType::List(item(DataType::Int64)));
        check(DataType::Decimal256(38, 2), DataType::Decimal128(38, 2));
        check(DataType::Date64, DataType::Date32);
        check(DataType::Float16, DataType::Float32);
    }

    /// A type of which random arrays can be made that can be cast to `layout`.
    fn arrow_type_of_test(layout: &DataType) -> DataType {
        let field = Field::new("a", layout.clone(), true);
        arrow_type(&crate::sources::stored::types::stored_field(&field).unwrap().data_type)
    }

    #[test]
    fn uuids_are_text_here_and_bytes_there() {
        let uuid = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
        let array: ArrayRef = Arc::new(StringArray::from(vec![Some(uuid), None, Some(&uuid.to_uppercase())]));
        let field = as_uuid(Field::new("a", DataType::Utf8View, true));
        let given = Field::new("a", DataType::Utf8, true).with_metadata(field.metadata().clone());
        let batch = RecordBatch::try_new(Arc::new(Schema::new(vec![given])), vec![array]).unwrap();
        let expected: ArrayRef = Arc::new(StringViewArray::from(vec![Some(uuid), None, Some(uuid)]));
        let schema = Arc::new(Schema::new(vec![field]));
        assert_eq!(round_trip(&[batch]), RecordBatch::try_new(schema, vec![expected]).unwrap());
    }

    #[test]
    fn values_that_do_not_fit_are_errors_that_name_the_column() {
        let array: ArrayRef = Arc::new(StringArray::from(vec!["7", "seven"]));
        let schema = Schema::new(vec![Field::new("a", DataType::Utf8, true)]);
        let batch = RecordBatch::try_new(Arc::new(schema), vec![array]).unwrap();
        let field = stored::Field::new(0, "a", stored::DataType::I32);
        let error = storable(&batch, &[field]).unwrap_err();
        assert!(error.detail().unwrap().contains("column 'a'"), "{error:?}");
    }
}
