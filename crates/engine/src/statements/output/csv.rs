//! CSV (RFC 4180) that can be read back unchanged: NULL is an empty field, the empty text is `""`, numbers
//! have all their digits, nested values are JSON, with NaN and infinities as texts.

use std::fmt::Write as _;
use std::io::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, SchemaRef};
use arrow::json::writer::{EncoderOptions, NullableEncoder, make_encoder};
use arrow::util::display::{ArrayFormatter, FormatOptions};

use super::nested::Nested;
use super::sink::Sink;
use super::{WriteOptions, failed, write_failed};
use crate::display::{FORMAT, formatter};
use crate::error::Result;

/// RFC 4180, section 2.1, asks for CRLF; every reader accepts LF too, and `cut`, `sort` and `awk` nothing
/// else.
const LINE_END: &[u8] = b"\n";

pub(super) struct CsvWriter<W: Write + Send> {
    sink: Sink<W>,
    schema: SchemaRef,
    options: WriteOptions,
    dialect: Dialect,
    buffer: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Dialect {
    delimiter: u8,
    quote: u8,
    quote_all: bool,
}

impl<W: Write + Send> CsvWriter<W> {
    pub(super) fn new(schema: SchemaRef, options: &WriteOptions, delimiter: u8, sink: W) -> Result<Self> {
        let dialect = Dialect {
            delimiter: options.delimiter.unwrap_or(delimiter),
            quote: options.quote,
            quote_all: options.quote_all,
        };
        let mut writer = Self {
            sink: Sink::new(options, sink)?,
            schema,
            options: options.clone(),
            dialect,
            buffer: Vec::new(),
        };
        if options.header {
            for (index, field) in writer.schema.fields().iter().enumerate() {
                if index > 0 {
                    writer.buffer.push(dialect.delimiter);
                }
                dialect.push(&mut writer.buffer, field.name().as_bytes(), &[]);
            }
            writer.buffer.extend_from_slice(LINE_END);
            writer.drain()?;
        }
        Ok(writer)
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.print(batch)?;
        self.drain()
    }

    fn print(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut format = FORMAT.with_date_format(self.options.date_format.as_deref());
        if let Some(timestamp) = self.options.timestamp_format.as_deref() {
            format = format.with_timestamp_format(Some(timestamp)).with_timestamp_tz_format(Some(timestamp));
        }
        let nested = Arc::new(Nested);
        let json = EncoderOptions::default().with_explicit_nulls(true).with_encoder_factory(nested);
        let mut columns = batch
            .columns()
            .iter()
            .zip(self.schema.fields())
            .map(|(array, field)| Column::new(array, field, &format, &json))
            .collect::<Result<Vec<_>>>()?;
        let null = self.options.null.as_bytes();
        let mut text = String::new();
        for row in 0..batch.num_rows() {
            for (index, column) in columns.iter_mut().enumerate() {
                if index > 0 {
                    self.buffer.push(self.dialect.delimiter);
                }
                if column.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                    self.buffer.extend_from_slice(null);
                } else {
                    column.push(&mut self.buffer, &mut text, row, self.dialect, null)?;
                }
            }
            self.buffer.extend_from_slice(LINE_END);
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<()> {
        self.sink.write_all(&self.buffer).map_err(|error| write_failed(&error))?;
        self.buffer.clear();
        Ok(())
    }

    pub(super) fn finish(self) -> Result<W> {
        self.sink.finish()
    }
}

impl Dialect {
    /// Appends a value that is not NULL, quoted if necessary.
    fn push(self, out: &mut Vec<u8>, value: &[u8], null: &[u8]) {
        let special =
            |byte: &u8| *byte == self.delimiter || *byte == self.quote || *byte == b'\n' || *byte == b'\r';
        if !self.quote_all && value != null && !value.is_empty() && !value.iter().any(special) {
            out.extend_from_slice(value);
            return;
        }
        out.push(self.quote);
        for part in value.split_inclusive(|byte| *byte == self.quote) {
            out.extend_from_slice(part);
            if part.ends_with(&[self.quote]) {
                out.push(self.quote);
            }
        }
        out.push(self.quote);
    }
}

/// A column of a batch, prepared for writing value by value.
struct Column<'a> {
    nulls: Option<arrow::buffer::NullBuffer>,
    values: Values<'a>,
}

enum Values<'a> {
    Text(arrow::array::StringViewArray),
    Nested(NullableEncoder<'a>),
    Other(ArrayFormatter<'a>),
}

impl<'a> Column<'a> {
    fn new(
        array: &'a ArrayRef,
        field: &'a FieldRef,
        format: &'a FormatOptions<'a>,
        json: &'a EncoderOptions,
    ) -> Result<Self> {
        let values = match array.data_type() {
            // Converting the other text types to views copies no text.
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
                Values::Text(cast(array, &DataType::Utf8View).map_err(failed)?.as_string_view().clone())
            }
            data_type if data_type.is_nested() => {
                Values::Nested(make_encoder(field, array.as_ref(), json).map_err(failed)?)
            }
            _ => Values::Other(formatter(array.as_ref(), format).map_err(failed)?),
        };
        Ok(Self { nulls: array.logical_nulls(), values })
    }

    fn push(
        &mut self,
        out: &mut Vec<u8>,
        text: &mut String,
        row: usize,
        dialect: Dialect,
        null: &[u8],
    ) -> Result<()> {
        match &mut self.values {
            Values::Text(array) => dialect.push(out, array.value(row).as_bytes(), null),
            Values::Nested(encoder) => {
                let mut value = Vec::new();
                encoder.encode(row, &mut value);
                dialect.push(out, &value, null);
            }
            Values::Other(formatter) => {
                text.clear();
                write!(text, "{}", formatter.value(row)).map_err(|_| unprintable(formatter, row))?;
                dialect.push(out, text.as_bytes(), null);
            }
        }
        Ok(())
    }
}

/// The error of a value that cannot be formatted.
fn unprintable(formatter: &ArrayFormatter<'_>, row: usize) -> crate::Error {
    match formatter.value(row).try_to_string() {
        Err(error) => failed(error),
        Ok(_) => crate::Error::new(crate::ErrorKind::Data, "cannot write: a value cannot be formatted"),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        BooleanArray, Date32Array, Decimal128Array, Float64Array, Int64Array, ListArray, StringArray,
        TimestampMicrosecondArray,
    };
    use arrow::datatypes::{Field, Float64Type, Int32Type, Schema};

    use super::*;
    use crate::statements::output::{BatchWriter, OutputFormat};

    fn written(array: ArrayRef, options: &WriteOptions) -> String {
        let schema = Arc::new(Schema::new(vec![Field::new("c", array.data_type().clone(), true)]));
        let batch = RecordBatch::try_new(schema.clone(), vec![array]).unwrap();
        let mut writer = BatchWriter::new(OutputFormat::Csv, schema, options, Vec::new()).unwrap();
        writer.write(&batch).unwrap();
        String::from_utf8(writer.finish().unwrap()).unwrap()
    }

    #[test]
    fn values_keep_their_digits_and_quotes() {
        let check = |array: ArrayRef, expected: &[&str]| {
            let text = written(array, &WriteOptions { header: false, ..WriteOptions::default() });
            assert_eq!(text.split_terminator('\n').collect::<Vec<_>>(), expected);
        };
        check(Arc::new(Int64Array::from(vec![Some(i64::MIN), None])), &["-9223372036854775808", ""]);
        check(
            Arc::new(Float64Array::from(vec![0.1 + 0.2, 1e300, f64::NAN, f64::INFINITY, -0.0])),
            &["0.30000000000000004", "1e300", "NaN", "inf", "-0.0"],
        );
        check(
            Arc::new(StringArray::from(vec![Some(""), None, Some("a,b"), Some("say \"hi\""), Some("plain")])),
            &["\"\"", "", "\"a,b\"", "\"say \"\"hi\"\"\"", "plain"],
        );
        check(Arc::new(BooleanArray::from(vec![true, false])), &["true", "false"]);
        check(Arc::new(Date32Array::from(vec![0, -1])), &["1970-01-01", "1969-12-31"]);
        check(
            Arc::new(TimestampMicrosecondArray::from(vec![0, 1])),
            &["1970-01-01 00:00:00", "1970-01-01 00:00:00.000001"],
        );
        check(
            Arc::new(Decimal128Array::from(vec![-105]).with_precision_and_scale(10, 2).unwrap()),
            &["-1.05"],
        );
        check(
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(vec![Some(vec![Some(1), None])])),
            &["\"[1,null]\""],
        );
        let lists = vec![Some(vec![Some(f64::NAN), Some(f64::NEG_INFINITY), None, Some(0.5), Some(1.0)])];
        check(
            Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>(lists)),
            &["\"[\"\"NaN\"\",\"\"-Infinity\"\",null,0.5,1.0]\""],
        );
    }

    #[test]
    fn a_text_that_looks_like_null_is_quoted() {
        let options = WriteOptions { null: "NA".into(), ..WriteOptions::default() };
        let array = Arc::new(StringArray::from(vec![Some("NA"), None, Some("x\ny")]));
        assert_eq!(written(array, &options), "c\n\"NA\"\nNA\n\"x\ny\"\n");
    }

    #[test]
    fn an_impossible_timestamp_is_an_error() {
        let array: ArrayRef = Arc::new(arrow::array::TimestampSecondArray::from(vec![i64::MAX]));
        let schema = Arc::new(Schema::new(vec![Field::new("c", array.data_type().clone(), true)]));
        let batch = RecordBatch::try_new(schema.clone(), vec![array]).unwrap();
        let mut writer =
            BatchWriter::new(OutputFormat::Csv, schema, &WriteOptions::default(), Vec::new()).unwrap();
        assert_eq!(writer.write(&batch).unwrap_err().kind(), crate::ErrorKind::Data);
    }
}
