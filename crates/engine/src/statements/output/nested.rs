//! Values as JSON, where Arrow's writer fails or loses values: map keys that are not texts, NaN and infinities.

use std::io::Write;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, MapArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Float32Type, Float64Type};
use arrow::error::ArrowError;
use arrow::json::writer::{Encoder, EncoderFactory, EncoderOptions, NullableEncoder, make_encoder};
use arrow::util::display::ArrayFormatter;

use crate::display::{FORMAT, formatter};

/// The texts for the numbers that JSON lacks, as in Protocol Buffers' JSON and others.
pub(crate) const NAN: &str = "NaN";
pub(crate) const INFINITY: &str = "Infinity";
pub(crate) const MINUS_INFINITY: &str = "-Infinity";

#[derive(Debug)]
pub(super) struct Nested;

impl EncoderFactory for Nested {
    fn make_default_encoder<'a>(
        &self,
        field: &'a FieldRef,
        array: &'a dyn Array,
        options: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        let encoder: Box<dyn Encoder + 'a> = match array.data_type() {
            DataType::Map(..) => {
                let map = array.as_map();
                let (keys, values) = (map.keys().as_ref(), map.values().as_ref());
                Box::new(Map {
                    map,
                    keys: make_encoder(field, keys, options)?,
                    values: make_encoder(field, values, options)?,
                    key: Vec::new(),
                })
            }
            DataType::Float16 | DataType::Float32 | DataType::Float64 => Box::new(Floats::new(array)?),
            DataType::Interval(_) | DataType::Duration(_) => Box::new(Texts(formatter(array, &FORMAT)?)),
            _ => return Ok(None),
        };
        Ok(Some(NullableEncoder::new(encoder, array.nulls().cloned())))
    }
}

/// A map as a JSON object; a key that is not a text is written as the text of its JSON.
struct Map<'a> {
    map: &'a MapArray,
    keys: NullableEncoder<'a>,
    values: NullableEncoder<'a>,
    key: Vec<u8>,
}

impl Encoder for Map<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let offsets = self.map.offsets();
        let place = |row: usize| usize::try_from(offsets[row]).unwrap_or_default();
        out.push(b'{');
        for entry in place(row)..place(row + 1) {
            if entry > place(row) {
                out.push(b',');
            }
            self.key.clear();
            if self.keys.is_null(entry) {
                self.key.extend_from_slice(b"null");
            } else {
                self.keys.encode(entry, &mut self.key);
            }
            if self.key.starts_with(b"\"") {
                out.extend_from_slice(&self.key);
            } else {
                out.push(b'"');
                for byte in &self.key {
                    if matches!(byte, b'"' | b'\\') {
                        out.push(b'\\');
                    }
                    out.push(*byte);
                }
                out.push(b'"');
            }
            out.push(b':');
            if self.values.is_null(entry) {
                out.extend_from_slice(b"null");
            } else {
                self.values.encode(entry, out);
            }
        }
        out.push(b'}');
    }
}

/// Values as the texts of CSV; no such text needs escaping in JSON.
struct Texts<'a>(ArrayFormatter<'a>);

impl Encoder for Texts<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let written = write!(out, "\"{}\"", self.0.value(row));
        debug_assert!(written.is_ok(), "memory takes all bytes");
    }
}

/// Numbers; NaN and infinities, which JSON lacks, are the texts by which other writers of JSON name them.
struct Floats {
    values: Float64Array,
    /// The values in single precision, if they were, to write their shortest digits.
    single: Option<ArrayRef>,
}

impl Floats {
    fn new(array: &dyn Array) -> Result<Self, ArrowError> {
        let is_single = matches!(array.data_type(), DataType::Float16 | DataType::Float32);
        let single = is_single.then(|| cast(array, &DataType::Float32)).transpose()?;
        let values = cast(array, &DataType::Float64)?.as_primitive::<Float64Type>().clone();
        Ok(Self { values, single })
    }
}

impl Encoder for Floats {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let value = self.values.value(row);
        let written = match &self.single {
            _ if value.is_nan() => serde_json::to_writer(out, NAN),
            _ if value.is_infinite() && value > 0.0 => serde_json::to_writer(out, INFINITY),
            _ if value.is_infinite() => serde_json::to_writer(out, MINUS_INFINITY),
            Some(single) => serde_json::to_writer(out, &single.as_primitive::<Float32Type>().value(row)),
            None => serde_json::to_writer(out, &value),
        };
        debug_assert!(written.is_ok(), "memory takes all bytes");
    }
}
