//! From chunks to record batches: splits records, checks their widths, converts the wanted columns, and reports or
//! leaves out bad records.
//!
//! If bad records are left out, the unwanted columns are converted too and thrown away: the rows of a file must not
//! depend on the columns that a query reads.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, new_null_array},
    compute::filter_record_batch,
    datatypes::{DataType, SchemaRef},
    error::ArrowError,
};

use crate::{
    columns::{Block, Builder, builder},
    detect::{Column, Detected, is_blank, schema_of},
    dialect::Shape,
    error::{Error, Flaw, Reject, printable},
    options::{Cast, Nulls, Options},
    reader::{Chunk, text_of_record},
    scan::count_lines,
    tokenize::{Field, Record, Records, Tokenizer},
    types::{Reading, sql_name},
    unify::{check_types, positions},
};

/// Parses the chunks of one file. It holds no state, so that threads can share it.
#[derive(Debug)]
pub struct ChunkParser {
    file: Arc<str>,
    shape: Shape,
    /// Fields in a record of the file.
    width: usize,
    /// Names of the file's columns, for messages.
    names: Vec<String>,
    /// The columns of the result, then those that are only checked.
    outputs: Vec<Output>,
    /// The schema of the result.
    schema: SchemaRef,
    nulls: Nulls,
    ignore_errors: bool,
    null_padding: bool,
    max_line_bytes: usize,
    batch_rows: usize,
    cast: Option<Cast>,
}

/// A column that is converted.
#[derive(Debug)]
struct Output {
    column: Column,
    /// The column's position in the file; `None` if the file lacks it, and it is NULL.
    position: Option<usize>,
}

/// What a chunk holds.
#[derive(Debug, Default)]
pub struct Parsed {
    /// The rows, in the order of the file.
    pub batches: Vec<RecordBatch>,
    /// The records left out, in the order of the file; empty unless `ignore_errors` is set. Of a chunk
    /// with more than 65,536 only so many are kept, to bound memory.
    pub rejects: Vec<Reject>,
    /// The number of records left out.
    pub rejected_rows: u64,
}

/// Records that are split and converted together: small enough that their text stays in the cache from
/// one column to the next.
const BLOCK_RECORDS: usize = 1024;
const MAX_REJECTS: usize = 65_536;

/// A bad record of a block.
struct Bad {
    record: Record,
    /// Its row among the converted ones; `None` if it was taken out before.
    row: Option<usize>,
    position: Option<usize>,
    flaw: Flaw,
}

impl ChunkParser {
    /// A parser for the file that `detected` describes, which yields columns of `table`: the same `detected`, or
    /// the result of [`unify`](crate::unify). `projection` picks columns of `table` by position, in the order
    /// wanted; without it all are read. With [`Options::ignore_errors`] the others are checked all the same. Fails
    /// if the file has columns that `table` lacks.
    pub fn new(
        detected: &Detected,
        table: &Detected,
        projection: Option<&[usize]>,
        options: &Options,
    ) -> Result<ChunkParser, Error> {
        let file = &detected.file;
        let by_name = detected.dialect.header && table.dialect.header;
        let fail = |problem: String| Err(Error::Columns { file: Arc::clone(file), problem });
        check_types(table, options)?;
        if by_name {
            let known = positions(&table.columns);
            if let Some(extra) = detected.columns.iter().find(|own| !known.contains_key(own.name.as_str())) {
                return fail(format!("has a column '{}', which {} has not", extra.name, table.file));
            }
        } else if detected.columns.len() != table.columns.len() && !detected.columns.is_empty() {
            let (own, others) = (detected.columns.len(), table.columns.len());
            return fail(format!("has {own} columns, {} has {others}", table.file));
        }
        let all: Vec<usize> = (0..table.columns.len()).collect();
        let own = positions(&detected.columns);
        let mut outputs = Vec::new();
        let wanted = projection.unwrap_or(&all);
        let unwanted = all.iter().filter(|index| options.ignore_errors && !wanted.contains(index));
        for &index in wanted.iter().chain(unwanted) {
            let Some(column) = table.columns.get(index) else {
                return fail(format!("column {index} is asked for, but there are {}", table.columns.len()));
            };
            let position = if by_name {
                own.get(column.name.as_str()).copied()
            } else {
                (index < detected.columns.len()).then_some(index)
            };
            outputs.push(Output { column: column.clone(), position });
        }
        let schema = schema_of(outputs[..wanted.len()].iter().map(|output| &output.column));
        Ok(ChunkParser {
            file: Arc::clone(file),
            shape: detected.dialect.shape(),
            width: detected.columns.len(),
            names: detected.columns.iter().map(|column| column.name.clone()).collect(),
            outputs,
            schema,
            nulls: Nulls::new(options.nulls.as_deref()),
            ignore_errors: options.ignore_errors,
            null_padding: options.null_padding,
            max_line_bytes: options.max_line_bytes,
            batch_rows: options.batch_rows,
            cast: options.cast,
        })
    }

    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Parses a chunk. A bad record is an error that names file, line, column and value, unless
    /// `ignore_errors` is set.
    pub fn parse(&self, chunk: &Chunk) -> Result<Parsed, Error> {
        let mut parsed = Parsed::default();
        if chunk.flaw.is_some() {
            let reject = chunk.reject_whole(&self.file, self.max_line_bytes);
            self.reject(reject, &mut parsed)?;
            return Ok(parsed);
        }
        let mut tokenizer = Tokenizer::new(&chunk.bytes, self.shape, self.width == 1);
        let mut records = Records::default();
        let mut batch = Batch::new(self);
        let mut lines = LineCounter { chunk, offset: 0, line: chunk.first_line };
        loop {
            tokenizer.next(BLOCK_RECORDS.min(self.batch_rows - batch.rows), &mut records);
            if records.records.is_empty() {
                break;
            }
            let mut bad = self.sort_out(&chunk.bytes, &mut records);
            batch.append(&chunk.bytes, &records, &mut bad).map_err(|source| self.arrow_error(source))?;
            // Of several bad values of a record the leftmost is reported.
            bad.sort_by_key(|bad| (bad.record.start, bad.position));
            bad.dedup_by_key(|bad| bad.record.start);
            for bad in &bad {
                self.reject(self.describe(bad, &mut lines), &mut parsed)?;
            }
            for row in bad.iter().filter_map(|bad| bad.row) {
                batch.leave_out(row);
            }
            if batch.rows >= self.batch_rows {
                batch.finish(&mut parsed.batches).map_err(|source| self.arrow_error(source))?;
            }
        }
        batch.finish(&mut parsed.batches).map_err(|source| self.arrow_error(source))?;
        Ok(parsed)
    }

    /// Takes out records that are blank, broken or too wide or narrow; returns the bad ones.
    fn sort_out(&self, bytes: &[u8], records: &mut Records) -> Vec<Bad> {
        let mut bad = Vec::new();
        let as_expected = |record: &Record| record.field_count == self.width && record.flaw.is_none();
        if records.records.iter().all(as_expected) {
            return bad;
        }
        let mut kept = Vec::with_capacity(records.records.len());
        for mut record in std::mem::take(&mut records.records) {
            let count = record.field_count;
            let trailing_delimiter = count == self.width + 1 && {
                let last = records.fields[record.first_field + self.width];
                !last.quoted() && last.raw(bytes).is_empty()
            };
            if let Some(flaw) = record.flaw {
                bad.push(Bad { record, row: None, position: None, flaw });
            } else if count == self.width || trailing_delimiter {
                kept.push(record);
            } else if is_blank(bytes, records, &record) {
                continue;
            } else if count < self.width && self.null_padding {
                let first_field = records.fields.len();
                records.fields.extend_from_within(record.first_field..record.first_field + count);
                let nothing = Field::nothing(record.end);
                records.fields.extend(std::iter::repeat_n(nothing, self.width - count));
                record.first_field = first_field;
                kept.push(record);
            } else {
                bad.push(Bad { record, row: None, position: None, flaw: Flaw::Width });
            }
        }
        records.records = kept;
        bad
    }

    fn describe(&self, bad: &Bad, lines: &mut LineCounter<'_>) -> Reject {
        let bytes = &lines.chunk.bytes;
        let record = &bytes[bad.record.start..bad.record.end];
        let column = bad.position.and_then(|position| {
            let column = &self.outputs.iter().find(|output| output.position == Some(position))?.column;
            Some((position, column))
        });
        let mut value = None;
        let mut expected = None;
        if let Some((position, column)) = column {
            let mut again = Records::default();
            Tokenizer::new(record, self.shape, true).next(1, &mut again);
            value = again.fields.get(position).map(|field| printable(field.raw(record), 64));
            expected = Some(sql_name(&column.data_type));
        }
        let shown = value.as_deref().unwrap_or_default();
        let error = match (bad.flaw, column) {
            (Flaw::Value, Some((_, column))) => format!("'{shown}' is not a {}", expectation(column)),
            (Flaw::Encoding, _) => format!("'{shown}' is not valid UTF-8"),
            (Flaw::AfterQuote, _) => {
                "there is text between a closing quote and the next delimiter".to_string()
            }
            (Flaw::Unterminated, _) => "a quote is opened here and not closed".to_string(),
            _ => format!("expected {} fields, found {}", self.width, bad.record.field_count),
        };
        Reject {
            file: Arc::clone(&self.file),
            line: lines.line_of(bad.record.start),
            byte_offset: lines.chunk.byte_offset + bad.record.start as u64,
            column_number: column.map(|(position, _)| position + 1),
            column: column.map(|(position, _)| self.names[position].clone()),
            value,
            expected,
            error,
            text: text_of_record(record),
            flaw: bad.flaw,
        }
    }

    fn reject(&self, reject: Reject, parsed: &mut Parsed) -> Result<(), Error> {
        if !self.ignore_errors {
            return Err(Error::Record(Box::new(reject)));
        }
        parsed.rejected_rows += 1;
        if parsed.rejects.len() < MAX_REJECTS {
            parsed.rejects.push(reject);
        }
        Ok(())
    }

    fn arrow_error(&self, source: ArrowError) -> Error {
        Error::Arrow { file: Arc::clone(&self.file), source }
    }
}

/// What a value should have been, for example `DATE (MM/DD/YYYY)`.
fn expectation(column: &Column) -> String {
    let name = sql_name(&column.data_type);
    match (&column.reading, &column.data_type) {
        (Reading::Custom(format), _) => format!("{name} ({format})"),
        (Reading::Layout(layout), DataType::Date32) => format!("{name} ({})", layout.pattern()),
        (Reading::Layout(layout), _) => format!("{name} ({} HH:MM:SS)", layout.pattern()),
        (Reading::Plain, _) => name,
    }
}

/// The rows of a batch in the making.
struct Batch<'a> {
    parser: &'a ChunkParser,
    builders: Vec<Option<Box<dyn Builder>>>,
    rows: usize,
    /// Which rows to keep, once one is bad.
    keep: Option<Vec<bool>>,
}

impl<'a> Batch<'a> {
    fn new(parser: &'a ChunkParser) -> Batch<'a> {
        let builder_of = |output: &Output| {
            output.position.map(|_| builder(&output.column.data_type, &output.column.reading, parser.cast))
        };
        Batch { parser, builders: parser.outputs.iter().map(builder_of).collect(), rows: 0, keep: None }
    }

    fn append(&mut self, bytes: &[u8], records: &Records, bad: &mut Vec<Bad>) -> Result<(), ArrowError> {
        let block = Block { bytes, records, shape: &self.parser.shape, nulls: &self.parser.nulls };
        let mut failures = Vec::new();
        for (builder, output) in self.builders.iter_mut().zip(&self.parser.outputs) {
            if let (Some(builder), Some(position)) = (builder, output.position) {
                builder.append(&block, position, &mut failures)?;
                bad.extend(failures.drain(..).map(|failure| Bad {
                    record: records.records[failure.record],
                    row: Some(self.rows + failure.record),
                    position: Some(position),
                    flaw: failure.flaw,
                }));
            }
        }
        self.rows += records.records.len();
        Ok(())
    }

    fn leave_out(&mut self, row: usize) {
        let keep = self.keep.get_or_insert_default();
        keep.resize(self.rows, true);
        keep[row] = false;
    }

    fn finish(&mut self, batches: &mut Vec<RecordBatch>) -> Result<(), ArrowError> {
        let rows = std::mem::take(&mut self.rows);
        let keep = self.keep.take();
        if rows == 0 {
            return Ok(());
        }
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.builders.len());
        for (builder, output) in self.builders.iter_mut().zip(&self.parser.outputs) {
            arrays.push(match builder {
                Some(builder) => builder.finish()?,
                None => new_null_array(&output.column.data_type, rows),
            });
        }
        arrays.truncate(self.parser.schema.fields().len());
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let mut batch = RecordBatch::try_new_with_options(Arc::clone(&self.parser.schema), arrays, &options)?;
        if let Some(mut keep) = keep {
            keep.resize(rows, true);
            batch = filter_record_batch(&batch, &BooleanArray::from(keep))?;
        }
        if batch.num_rows() > 0 {
            batches.push(batch);
        }
        Ok(())
    }
}

/// Line numbers of ascending offsets; each part of the chunk is counted once.
struct LineCounter<'a> {
    chunk: &'a Chunk,
    offset: usize,
    line: u64,
}

impl LineCounter<'_> {
    fn line_of(&mut self, offset: usize) -> u64 {
        self.line += count_lines(&self.chunk.bytes[self.offset..offset]);
        self.offset = offset;
        self.line
    }
}
