//! Types of Parquet that only some writers use: timestamps of 96 bits, enumerations, and decimals of a fixed length.

use std::fs::File;
use std::sync::Arc;

use keirin::ErrorKind;
use parquet::data_type::{
    ByteArray, ByteArrayType, FixedLenByteArray, FixedLenByteArrayType, Int32Type, Int96, Int96Type,
};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use crate::Fixture;

/// The Julian day of 1970-01-01.
const EPOCH: i64 = 2_440_588;
const DAY_NANOSECONDS: u64 = 86_400_000_000_000;

fn timestamp(days: i64, nanoseconds: u64) -> Int96 {
    let mut value = Int96::new();
    let bytes = nanoseconds.to_le_bytes();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    value.set_data(word(0), word(4), u32::try_from(EPOCH + days).unwrap());
    value
}

#[test]
fn timestamps_of_96_bits_do_not_wrap_and_enumerations_are_text() {
    let fixture = Fixture::new();
    let path = fixture.path("old.parquet");
    let schema = "message m { required int96 t; required binary e (ENUM); \
                  required group o { required int32 n; required binary k (ENUM); } repeated binary r (ENUM); }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut writer = SerializedFileWriter::new(File::create(&path).unwrap(), schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    // 9999-12-31 23:59:59.999999, 1500-01-01, 2024-02-29 12:00:00.
    let times = [
        timestamp(2_932_896, DAY_NANOSECONDS - 1000),
        timestamp(-171_664, 0),
        timestamp(19_782, DAY_NANOSECONDS / 2),
    ];
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int96Type>().write_batch(&times, None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let names = ["happy", "sad", "happy"].map(ByteArray::from);
    column.typed::<ByteArrayType>().write_batch(&names, None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int32Type>().write_batch(&[1, 2, 3], None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<ByteArrayType>().write_batch(&names, None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<ByteArrayType>().write_batch(&names, Some(&[1, 1, 1]), Some(&[0, 0, 0])).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();

    fixture.check(
        &format!("SELECT t, e, typeof(e) FROM '{path}' ORDER BY t"),
        &[
            "1500-01-01T00:00:00|sad|VARCHAR",
            "2024-02-29T12:00:00|happy|VARCHAR",
            "9999-12-31T23:59:59.999999|happy|VARCHAR",
        ],
    );
    fixture.check(
        &format!("SELECT o.k, typeof(o), r[1], typeof(r) FROM '{path}' WHERE o.n = 2"),
        &["sad|STRUCT(n INTEGER, k VARCHAR)|sad|VARCHAR[]"],
    );
    fixture.check(
        &format!("SELECT count(*) FROM '{path}' WHERE t > now() + INTERVAL '1000 years' AND e = 'happy'"),
        &["1"],
    );
}

/// As pyarrow writes all decimals.
#[test]
fn decimals_of_a_fixed_length_are_numbers() {
    let fixture = Fixture::new();
    let path = fixture.path("fixed.parquet");
    let schema = "message m { required fixed_len_byte_array(1) a (DECIMAL(2, 1));
                  optional fixed_len_byte_array(5) b (DECIMAL(11, 2)); required fixed_len_byte_array(16) c (DECIMAL(9, 0)); }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut writer = SerializedFileWriter::new(File::create(&path).unwrap(), schema, Arc::default()).unwrap();
    let fixed = |value: i128, length: usize| {
        FixedLenByteArray::from(ByteArray::from(value.to_be_bytes()[16 - length..].to_vec()))
    };
    for large in [0, i128::MAX - 5] {
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let values = [-99, 0, 99, 5].map(|value| fixed(value, 1));
        column.typed::<FixedLenByteArrayType>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let values = [-99_999_999_999, 1, 99_999_999_999].map(|value| fixed(value, 5));
        column.typed::<FixedLenByteArrayType>().write_batch(&values, Some(&[1, 1, 0, 1]), None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let values = [large + 1, large + 2, large + 3, large + 4].map(|value| fixed(value, 16));
        column.typed::<FixedLenByteArrayType>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    writer.close().unwrap();

    fixture.check(
        &format!("SELECT DISTINCT a, b FROM '{path}' ORDER BY a"),
        &["-9.9|-999999999.99", "0.0|0.01", "0.5|999999999.99", "9.9|NULL"],
    );
    fixture.check(
        &format!("SELECT sum(a), sum(b), max(b), count(b) FROM '{path}' WHERE a >= 0"),
        &["20.8|2000000000.00|999999999.99|4"],
    );
    fixture.check(
        &format!("SELECT a, sum(b), max(a) FROM '{path}' WHERE b > 0 GROUP BY a ORDER BY a"),
        &["0.0|0.02|0.0", "0.5|1999999999.98|0.5"],
    );
    let place = ["fixed.parquet", "column 'c'", "too large to store in a Decimal128 of precision 9"];
    fixture.check_error(&format!("SELECT sum(c) FROM '{path}'"), ErrorKind::Data, &place);
}

/// The library panics where it converts such statistics.
#[test]
fn statistics_that_are_longer_than_values_are_an_error() {
    let fixture = Fixture::new();
    let path = fixture.path("long.parquet");
    let schema = "message m { required fixed_len_byte_array(17) a (DECIMAL(38, 0)); }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut writer = SerializedFileWriter::new(File::create(&path).unwrap(), schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let value = FixedLenByteArray::from(ByteArray::from(vec![0; 17]));
    column.typed::<FixedLenByteArrayType>().write_batch(&[value], None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    // The type and the length of values in the footer (Thrift's compact protocol): 17 becomes 16.
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(4).position(|four| four == [0x15, 0x0e, 0x15, 0x22]).unwrap();
    bytes[at + 3] = 0x20;
    let bad = fixture.write("bad.parquet", &bytes);
    fixture.check_error(
        &format!("SELECT * FROM '{bad}'"),
        ErrorKind::Data,
        &["bad.parquet", "its statistics have values that the column cannot have"],
    );
}
