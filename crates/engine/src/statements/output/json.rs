//! JSON: one array of objects, or one object a line. NULLs are written, so that every object has all keys;
//! NaN and infinities, which are no numbers of JSON, are texts; bytes are hexadecimal text.

use std::io::Write;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Schema};
use arrow::json::writer::{JsonArray, LineDelimited, Writer, WriterBuilder};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::ScalarValue;

use super::nested::Nested;
use super::sink::Sink;
use super::{WriteOptions, failed, write_failed};
use crate::error::{Error, ErrorKind, Result};
use crate::types::sql_type_name;

/// Arrow's writer writes into a buffer, so that `finish` can return the sink, which Arrow's does not always
/// give back.
pub(super) struct JsonWriter<W: Write + Send> {
    sink: Sink<W>,
    buffer: Buffer,
}

enum Buffer {
    Array(Writer<Vec<u8>, JsonArray>),
    Lines(Writer<Vec<u8>, LineDelimited>),
}

impl<W: Write + Send> JsonWriter<W> {
    pub(super) fn new(array: bool, schema: &Schema, options: &WriteOptions, sink: W) -> Result<Self> {
        for field in schema.fields() {
            check_formats(field.name(), field.data_type(), options)?;
        }
        let mut builder =
            WriterBuilder::new().with_explicit_nulls(true).with_encoder_factory(Arc::new(Nested));
        if let Some(format) = &options.date_format {
            builder = builder.with_date_format(format.clone());
        }
        if let Some(format) = &options.timestamp_format {
            builder = builder.with_timestamp_format(format.clone()).with_timestamp_tz_format(format.clone());
        }
        let buffer = if array {
            Buffer::Array(builder.build(Vec::new()))
        } else {
            Buffer::Lines(builder.build(Vec::new()))
        };
        Ok(Self { sink: Sink::new(options, sink)?, buffer })
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        match &mut self.buffer {
            Buffer::Array(writer) => writer.write(batch),
            Buffer::Lines(writer) => writer.write(batch),
        }
        .map_err(failed)?;
        self.drain()
    }

    fn drain(&mut self) -> Result<()> {
        let bytes = match &mut self.buffer {
            Buffer::Array(writer) => writer.get_mut(),
            Buffer::Lines(writer) => writer.get_mut(),
        };
        self.sink.write_all(bytes).map_err(|error| write_failed(&error))?;
        bytes.clear();
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<W> {
        match &mut self.buffer {
            Buffer::Array(writer) => {
                writer.finish().map_err(failed)?;
                writer.get_mut().push(b'\n');
            }
            Buffer::Lines(writer) => writer.finish().map_err(failed)?,
        }
        self.drain()?;
        self.sink.finish()
    }
}

/// Fails if a format uses a field that a type lacks, such as the zone of a TIMESTAMP: Arrow's writer would
/// panic.
fn check_formats(column: &str, data_type: &DataType, options: &WriteOptions) -> Result<()> {
    let check = |name: &str, format: &str, options: &FormatOptions<'_>| {
        let one = ScalarValue::new_zero(data_type).and_then(|zero| zero.to_array())?;
        let formatter = ArrayFormatter::try_new(one.as_ref(), options).map_err(failed)?;
        formatter.value(0).try_to_string().map(drop).map_err(|_| {
            let type_name = sql_type_name(data_type);
            let message = format!("{name} '{format}' does not fit column '{column}' of type {type_name}");
            let hint = "%z needs a TIMESTAMP WITH TIME ZONE; a DATE has no hours";
            Error::new(ErrorKind::Invalid, message).with_hint(hint)
        })
    };
    match data_type {
        DataType::Timestamp(..) => match options.timestamp_format.as_deref() {
            Some(format) => {
                let options = FormatOptions::new()
                    .with_timestamp_format(Some(format))
                    .with_timestamp_tz_format(Some(format));
                check("timestamp_format", format, &options.with_display_error(false))
            }
            None => Ok(()),
        },
        DataType::Date32 | DataType::Date64 => match options.date_format.as_deref() {
            Some(format) => {
                let options = FormatOptions::new().with_date_format(Some(format)).with_display_error(false);
                check("date_format", format, &options)
            }
            None => Ok(()),
        },
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => check_formats(column, field.data_type(), options),
        DataType::Struct(fields) => {
            fields.iter().try_for_each(|field| check_formats(column, field.data_type(), options))
        }
        _ => Ok(()),
    }
}
