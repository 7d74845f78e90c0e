//! Any bytes as a flat column of a Parquet file: rows are read, or passed over, or the chunk is refused; texts are UTF-8.
//!
//! The modules are the engine's own; a build of all of the engine would be too slow to fuzz with.

#![no_main]

use std::sync::Arc;

use arrow::array::Array;
use arrow::datatypes::{DataType, TimeUnit};
use bytes::Bytes;
use keirin_codecs::blocks::Codec;
use libfuzzer_sys::fuzz_target;
use parquet::basic::{Repetition, Type};
use parquet::schema::types::{ColumnDescriptor, ColumnPath, Type as SchemaType};

use decoders::Decoders;
use flat::column;
use pages::{Pages, Place, Stored};

#[path = "../../crates/engine/src/sources/files/parquet/buffers.rs"]
mod buffers;
#[path = "../../crates/engine/src/sources/files/parquet/decoders.rs"]
mod decoders;
#[path = "../../crates/engine/src/sources/files/parquet/deltas.rs"]
mod deltas;
#[path = "../../crates/engine/src/sources/files/parquet/flat.rs"]
#[allow(dead_code, reason = "which columns are flat is not asked here")]
mod flat;
#[path = "../../crates/engine/src/sources/files/parquet/header.rs"]
mod header;
#[path = "../../crates/engine/src/sources/files/parquet/levels.rs"]
mod levels;
#[path = "../../crates/engine/src/sources/files/parquet/numbers.rs"]
mod numbers;
#[path = "../../crates/engine/src/sources/files/parquet/pages.rs"]
#[allow(dead_code, reason = "pages are not checked for other readers, nor listed, here")]
mod pages;
#[path = "../../crates/engine/src/sources/files/parquet/runs.rs"]
mod runs;
#[path = "../../crates/engine/src/sources/files/parquet/suffixes.rs"]
mod suffixes;
#[path = "../../crates/engine/src/sources/files/parquet/texts.rs"]
mod texts;

/// Rows that are asked for, together.
const ROWS_MAX: usize = 5000;

/// How a column is stored, and what it is read as.
fn form(number: u8) -> (Type, DataType) {
    let codes = DataType::Dictionary(DataType::UInt32.into(), DataType::Utf8.into());
    match number % 12 {
        0 => (Type::BYTE_ARRAY, DataType::Utf8View),
        1 => (Type::BYTE_ARRAY, DataType::BinaryView),
        2 => (Type::BYTE_ARRAY, codes),
        3 => (Type::INT32, DataType::Int32),
        4 => (Type::INT32, DataType::UInt8),
        5 => (Type::INT64, DataType::Int64),
        6 => (Type::INT64, DataType::Timestamp(TimeUnit::Microsecond, None)),
        7 => (Type::DOUBLE, DataType::Float64),
        8 => (Type::FLOAT, DataType::Float32),
        9 => (Type::FIXED_LEN_BYTE_ARRAY, DataType::Decimal128(18, 2)),
        10 => (Type::INT64, DataType::Decimal128(18, 2)),
        _ => (Type::FIXED_LEN_BYTE_ARRAY, DataType::Int64),
    }
}

// A byte for the form, one for how rows are asked for, then a chunk.
fuzz_target!(|bytes: &[u8]| {
    let Some((&[number, how], chunk)) = bytes.split_first_chunk() else { return };
    let (stored, data_type) = form(number);
    let is_nullable = how & 1 != 0;
    let repetition = if is_nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    let length = if stored == Type::FIXED_LEN_BYTE_ARRAY { i32::from(how >> 4) + 1 } else { 0 };
    let described = SchemaType::primitive_type_builder("c", stored)
        .with_repetition(repetition)
        .with_length(length)
        .build()
        .expect("a column");
    let path = ColumnPath::from("c");
    let described = ColumnDescriptor::new(Arc::new(described), i16::from(is_nullable), 0, path);
    let stored =
        Stored::Whole { at: 0, bytes: Bytes::copy_from_slice(chunk), values: u64::from(how) << (how & 8) };
    let place = Place { column: "c".into(), row_group: 0 };
    let decoders = Arc::new(Decoders::new(Arc::default()));
    let pages = Pages::new(place.clone(), stored, Codec::None, decoders, Default::default(), how & 4 != 0);
    let mut rows = column(pages, place, &described, &data_type).expect("a form of ours");
    let step = 1 + usize::from(how) * 7 % 600;
    for turn in 0..ROWS_MAX / step {
        if how & 2 != 0 && turn % 3 == 1 && rows.skip(step / 2).is_err() || rows.read(step).is_err() {
            return;
        }
        if turn % 2 == 1 {
            let Ok(read) = rows.take() else { return };
            assert_eq!(*read.data_type(), data_type);
            read.to_data().validate_full().expect("a sound array");
        }
    }
});
