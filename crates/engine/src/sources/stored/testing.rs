//! Random tables, and databases to put them in.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryViewArray, BooleanArray, Float64Array, Int64Array, ListArray, MapArray, RecordBatch,
    StringViewArray, StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, IntervalMonthDayNano, IntervalUnit, TimeUnit};
use keirin_storage::io::Disk;
use keirin_storage::part::WriteOptions;
use keirin_storage::schema::{self as stored, Definition};
use keirin_storage::{Access, Database, Options};

use super::arrow::{column, storable};
use super::types::stored_field;

/// Numbers from a seed (Steele, Lea and Flood 2014, SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// A number that is often small, sometimes extreme.
    fn number(&mut self) -> i64 {
        match self.below(8) {
            0 => self.next().cast_signed(),
            1 => [i64::MIN, i64::MAX, 0, -1][self.below(4)],
            _ => i64::try_from(self.below(100)).unwrap() - 20,
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = if self.one_in(4) { self.below(100) } else { self.below(14) };
        (0..len).map(|_| u8::try_from(self.below(256)).unwrap()).collect()
    }

    fn text(&mut self) -> String {
        let len = if self.one_in(4) { self.below(40) } else { self.below(8) };
        (0..len).map(|_| ['a', 'b', ' ', 'ß', '中', '%'][self.below(6)]).collect()
    }

    fn nulls(&mut self, rows: usize) -> Option<NullBuffer> {
        let rate = [0, 1, 2, 10][self.below(4)];
        (rate > 0).then(|| (0..rows).map(|_| rate > 1 && !self.one_in(rate)).collect())
    }

    fn offsets(&mut self, rows: usize) -> OffsetBuffer<i32> {
        OffsetBuffer::from_lengths((0..rows).map(|_| if self.one_in(3) { 0 } else { self.below(4) }))
    }

    /// An array of a type that storage hands out.
    pub(crate) fn array(&mut self, data_type: &DataType, rows: usize, is_nullable: bool) -> ArrayRef {
        let nulls = self.nulls(rows).filter(|_| is_nullable);
        let is_null = |row| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
        match data_type {
            DataType::Boolean => {
                let value = |row| (!is_null(row)).then(|| self.one_in(2));
                Arc::new((0..rows).map(value).collect::<BooleanArray>())
            }
            DataType::Float32 | DataType::Float64 => {
                let special = [0.0, -0.0, f64::NAN, f64::INFINITY, f64::MIN_POSITIVE];
                let value = |random: &mut Self| match random.below(8) {
                    0 => special[random.below(special.len())],
                    _ => random.below(2000) as f64 / 8.0 - 100.0,
                };
                let floats: Float64Array =
                    (0..rows).map(|row| (!is_null(row)).then(|| value(self))).collect();
                cast(&floats, data_type).unwrap()
            }
            DataType::Utf8View => {
                let value = |row| (!is_null(row)).then(|| self.text());
                Arc::new((0..rows).map(value).collect::<StringViewArray>())
            }
            DataType::BinaryView => {
                let value = |row| (!is_null(row)).then(|| self.bytes());
                Arc::new((0..rows).map(value).collect::<BinaryViewArray>())
            }
            DataType::List(element) => {
                let offsets = self.offsets(rows);
                let elements = self.child(element, usize::try_from(*offsets.last().unwrap()).unwrap());
                Arc::new(ListArray::new(element.clone(), offsets, elements, nulls))
            }
            DataType::Map(entries, _) => {
                let DataType::Struct(fields) = entries.data_type() else { unreachable!() };
                let offsets = self.offsets(rows);
                let count = usize::try_from(*offsets.last().unwrap()).unwrap();
                let inside = fields.iter().map(|field| self.child(field, count)).collect();
                let inside = StructArray::new(fields.clone(), inside, None);
                Arc::new(MapArray::new(entries.clone(), offsets, inside, nulls, false))
            }
            DataType::Struct(fields) => {
                let children = fields.iter().map(|field| self.child(field, rows)).collect();
                Arc::new(StructArray::try_new_with_length(fields.clone(), children, nulls, rows).unwrap())
            }
            DataType::Interval(_) => {
                let small = |random: &mut Self| i32::try_from(random.number() >> 32).unwrap();
                let value = |random: &mut Self| {
                    IntervalMonthDayNano::new(small(random), small(random), random.number())
                };
                let values: Vec<_> = (0..rows).map(|_| value(self)).collect();
                Arc::new(arrow::array::IntervalMonthDayNanoArray::new(values.into(), nulls))
            }
            DataType::FixedSizeBinary(width) => {
                let bytes: Vec<u8> =
                    (0..rows).flat_map(|_| [self.next().to_le_bytes(); 2]).flatten().collect();
                Arc::new(arrow::array::FixedSizeBinaryArray::new(*width, bytes.into(), nulls))
            }
            DataType::Decimal128(_, _) => {
                let values: Vec<i128> = (0..rows).map(|_| i128::from(self.number())).collect();
                let array = arrow::array::Decimal128Array::new(values.into(), nulls);
                Arc::new(array.with_data_type(data_type.clone()))
            }
            number => {
                let bits = number.primitive_width().unwrap() * 8;
                let shift = 64 - bits;
                let value = |random: &mut Self| random.number() << shift >> shift;
                let values: Vec<i64> = (0..rows).map(|_| value(self)).collect();
                let values = Int64Array::new(values.into(), nulls);
                // The bits of 64-bit numbers may be any; narrower ones are cut to size by way of their
                // signed integers.
                let signed = match bits {
                    8 => DataType::Int8,
                    16 => DataType::Int16,
                    32 => DataType::Int32,
                    _ => DataType::Int64,
                };
                let narrow = cast(&values, &signed).unwrap();
                let data = narrow.to_data().into_builder().data_type(number.clone());
                arrow::array::make_array(data.build().unwrap())
            }
        }
    }

    fn child(&mut self, field: &FieldRef, rows: usize) -> ArrayRef {
        self.array(field.data_type(), rows, field.is_nullable())
    }
}

/// A field of each type that storage hands out, nested ones among them.
pub(crate) fn every_field() -> Fields {
    let field = |name: &str, data_type| Field::new(name, data_type, true);
    let list = |of: DataType| DataType::List(Arc::new(field("item", of)));
    let units = [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond];
    let inside = Fields::from(vec![field("x", DataType::Float32), field("tags", list(DataType::Utf8View))]);
    let entries = vec![Field::new("key", DataType::Utf8View, false), field("value", DataType::Int16)];
    let entries = Field::new("entries", DataType::Struct(entries.into()), false);
    let mut types = vec![
        DataType::Boolean,
        DataType::Int8,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::UInt8,
        DataType::UInt16,
        DataType::UInt32,
        DataType::UInt64,
        DataType::Float32,
        DataType::Float64,
        DataType::Decimal128(38, 2),
        DataType::Date32,
        DataType::Time32(TimeUnit::Second),
        DataType::Time32(TimeUnit::Millisecond),
        DataType::Time64(TimeUnit::Microsecond),
        DataType::Time64(TimeUnit::Nanosecond),
        DataType::Interval(IntervalUnit::MonthDayNano),
        DataType::Utf8View,
        DataType::BinaryView,
        list(list(DataType::Int64)),
        list(DataType::Boolean),
        DataType::Struct(inside),
        DataType::Struct(Fields::empty()),
        DataType::Map(Arc::new(entries), false),
    ];
    types.extend(units.map(|unit| DataType::Timestamp(unit, Some("+01:00".into()))));
    types.extend(units.map(DataType::Duration));
    types.into_iter().enumerate().map(|(index, data_type)| field(&format!("c{index}"), data_type)).collect()
}

/// A database in a directory that goes with it.
pub(crate) struct TestDatabase {
    pub(crate) database: Arc<Database>,
    pub(crate) directory: tempfile::TempDir,
}

impl TestDatabase {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let disk = Arc::new(Disk::create(directory.path()).unwrap());
        let database = Database::open(disk, Access::Write, Options::default()).unwrap();
        Self { database, directory }
    }

    /// A table of these columns, and its number.
    pub(crate) fn create(&self, name: &str, fields: &Fields) -> u64 {
        let stored: Vec<stored::Field> = fields.iter().map(|field| stored_field(field).unwrap()).collect();
        let columns = stored.iter().map(|field| (field.name.as_str(), field.data_type.clone())).collect();
        let mut definition = Definition::new("main", name, columns);
        for (column, field) in definition.fields.iter_mut().zip(stored) {
            column.is_nullable = field.is_nullable;
            column.properties = field.properties;
        }
        let mut transaction = self.database.begin().unwrap();
        let table = transaction.create_table(definition).unwrap();
        transaction.commit().unwrap();
        table
    }

    /// Adds a part with the rows of these batches.
    pub(crate) fn add_part(&self, table: u64, batches: &[RecordBatch]) {
        self.add(table, batches, WriteOptions::default());
    }

    /// The same of rows that are sorted by the table's keys.
    pub(crate) fn add_sorted_part(&self, table: u64, batches: &[RecordBatch]) {
        self.add(table, batches, WriteOptions { is_sorted: true, ..WriteOptions::default() });
    }

    fn add(&self, table: u64, batches: &[RecordBatch], options: WriteOptions) {
        let mut transaction = self.database.begin().unwrap();
        let definition = transaction.state().table(table).unwrap().definition.clone();
        let mut writer = transaction.write_part(table, options).unwrap();
        for batch in batches {
            let arrays = storable(batch, &definition.fields).unwrap();
            let columns: Vec<_> = arrays.iter().map(|array| column(array).unwrap()).collect();
            writer.push(&columns).unwrap();
        }
        transaction.add_part(table, writer.finish().unwrap()).unwrap();
        transaction.commit().unwrap();
    }
}
