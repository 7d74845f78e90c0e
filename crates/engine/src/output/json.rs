//! JSON: one array of objects, or one object a line. NULLs are written, so that every object has all keys;
//! what JSON has no number for (NaN, infinities) is null; bytes are hexadecimal text.

use std::io::Write;

use arrow::array::RecordBatch;
use arrow::json::writer::{JsonArray, LineDelimited, Writer, WriterBuilder};

use super::sink::Sink;
use super::{WriteOptions, failed, write_failed};
use crate::error::Result;

/// Arrow's writer fills the buffer; `finish` needs the sink back, which Arrow's does not always give.
pub(super) struct JsonWriter<W: Write + Send> {
    sink: Sink<W>,
    buffer: Buffer,
}

enum Buffer {
    Array(Writer<Vec<u8>, JsonArray>),
    Lines(Writer<Vec<u8>, LineDelimited>),
}

impl<W: Write + Send> JsonWriter<W> {
    pub(super) fn new(array: bool, options: &WriteOptions, sink: W) -> Result<Self> {
        let mut builder = WriterBuilder::new().with_explicit_nulls(true);
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
