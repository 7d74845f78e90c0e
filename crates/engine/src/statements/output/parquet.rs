//! Parquet, with the columns of a row group encoded in parallel.
//!
//! A few batches are collected, then each thread takes columns and encodes and compresses their values;
//! encoded pages wait in memory until the row group is full. The writer's memory is those batches and one row
//! group.

use std::io::Write;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use parking_lot::Mutex;
use parquet::arrow::arrow_writer::{
    ArrowColumnChunk, ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves,
};
use parquet::arrow::{ArrowSchemaConverter, add_encoded_arrow_schema_to_metadata};
use parquet::basic::{Compression, GzipLevel, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;

use super::{OutputCompression, WriteOptions, write_failed};
use crate::error::{Error, ErrorKind, Result};

/// Rows that are collected before the threads start: enough to outweigh the start of a thread (some 20 us).
const ROWS_AT_ONCE: usize = 1 << 16;
/// The most bytes that are collected, for wide rows.
const BYTES_AT_ONCE: usize = 64 << 20;
/// A row group is closed when its encoded pages have this many bytes, however few its rows are.
const ROW_GROUP_BYTES: usize = 256 << 20;

pub(super) struct ParquetWriter<W: Write + Send> {
    file: SerializedFileWriter<W>,
    factory: ArrowRowGroupWriterFactory,
    schema: SchemaRef,
    row_group_rows: usize,
    /// The column writers of the open row group; empty if none is open.
    columns: Vec<ColumnWriters>,
    rows_in_group: usize,
    row_group_count: usize,
    waiting: Vec<RecordBatch>,
    waiting_rows: usize,
    waiting_bytes: usize,
    thread_count: usize,
}

/// The writers of one column: one for each of its leaves.
struct ColumnWriters {
    field: FieldRef,
    leaves: Vec<ArrowColumnWriter>,
}

impl<W: Write + Send> ParquetWriter<W> {
    pub(super) fn new(schema: SchemaRef, options: &WriteOptions, sink: W) -> Result<Self> {
        let level = options.compression_level;
        let compression = match options.compression.unwrap_or(OutputCompression::Zstd) {
            OutputCompression::None => Compression::UNCOMPRESSED,
            OutputCompression::Snappy => Compression::SNAPPY,
            OutputCompression::Lz4 => Compression::LZ4_RAW,
            OutputCompression::Gzip => {
                let level = level.map_or(Ok(GzipLevel::default()), |level| {
                    GzipLevel::try_new(level.max(0).unsigned_abs())
                });
                Compression::GZIP(level.map_err(failed)?)
            }
            OutputCompression::Zstd => {
                Compression::ZSTD(ZstdLevel::try_new(level.unwrap_or(1)).map_err(failed)?)
            }
        };
        let mut properties = WriterProperties::builder()
            .set_compression(compression)
            .set_created_by(concat!("keirin version ", env!("CARGO_PKG_VERSION")).to_owned())
            .build();
        // The file is not marked as having views, which are only our form of text in memory: many readers do
        // not know them.
        let plain = Schema::new(schema.fields().iter().map(without_views).collect::<Vec<_>>());
        add_encoded_arrow_schema_to_metadata(&plain, &mut properties);
        let descriptor = ArrowSchemaConverter::new().convert(&schema).map_err(failed)?;
        let file = SerializedFileWriter::new(sink, descriptor.root_schema_ptr(), Arc::new(properties))
            .map_err(failed)?;
        let factory = ArrowRowGroupWriterFactory::new(&file, schema.clone());
        // Finds types that cannot be written now rather than after hours.
        drop(factory.create_column_writers(0).map_err(failed)?);
        Ok(Self {
            file,
            factory,
            row_group_rows: options.row_group_rows.max(1),
            columns: Vec::new(),
            rows_in_group: 0,
            row_group_count: 0,
            waiting: Vec::new(),
            waiting_rows: 0,
            waiting_bytes: 0,
            thread_count: std::thread::available_parallelism()
                .map_or(1, usize::from)
                .min(schema.fields().len()),
            schema,
        })
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut offset = 0;
        while offset < batch.num_rows() {
            let room = self.row_group_rows - self.rows_in_group - self.waiting_rows;
            let rows = room.min(batch.num_rows() - offset);
            let part = batch.slice(offset, rows);
            self.waiting_bytes += part.get_array_memory_size();
            self.waiting.push(part);
            self.waiting_rows += rows;
            offset += rows;
            let full = rows == room;
            if full || self.waiting_rows >= ROWS_AT_ONCE || self.waiting_bytes >= BYTES_AT_ONCE {
                self.encode()?;
            }
            if full || self.encoded_bytes() >= ROW_GROUP_BYTES {
                self.close_row_group()?;
            }
        }
        Ok(())
    }

    fn encoded_bytes(&self) -> usize {
        self.columns
            .iter()
            .flat_map(|column| &column.leaves)
            .map(ArrowColumnWriter::get_estimated_total_bytes)
            .sum()
    }

    /// Encodes the collected batches.
    fn encode(&mut self) -> Result<()> {
        if self.columns.is_empty() {
            self.open_row_group()?;
        }
        let batches = std::mem::take(&mut self.waiting);
        self.rows_in_group += std::mem::take(&mut self.waiting_rows);
        self.waiting_bytes = 0;
        side_by_side(self.thread_count, self.columns.iter_mut().enumerate(), |(index, column)| {
            for batch in &batches {
                let leaves = compute_leaves(&column.field, batch.column(index))?;
                for (writer, leaf) in column.leaves.iter_mut().zip(&leaves) {
                    writer.write(leaf)?;
                }
            }
            Ok(())
        })
        .map(drop)
        .map_err(failed)
    }

    fn open_row_group(&mut self) -> Result<()> {
        let mut writers =
            self.factory.create_column_writers(self.row_group_count).map_err(failed)?.into_iter();
        for field in self.schema.fields() {
            let leaves = writers.by_ref().take(leaf_count(field.data_type())).collect();
            self.columns.push(ColumnWriters { field: field.clone(), leaves });
        }
        debug_assert!(writers.next().is_none(), "every leaf has a column");
        Ok(())
    }

    fn close_row_group(&mut self) -> Result<()> {
        let columns = std::mem::take(&mut self.columns);
        let chunks: Vec<Vec<ArrowColumnChunk>> =
            side_by_side(self.thread_count, columns.into_iter(), |column| {
                column.leaves.into_iter().map(ArrowColumnWriter::close).collect()
            })
            .map_err(failed)?;
        let mut row_group = self.file.next_row_group().map_err(failed)?;
        for chunk in chunks.into_iter().flatten() {
            chunk.append_to_row_group(&mut row_group).map_err(failed)?;
        }
        row_group.close().map_err(failed)?;
        self.rows_in_group = 0;
        self.row_group_count += 1;
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<W> {
        if self.waiting_rows > 0 {
            self.encode()?;
        }
        if self.rows_in_group > 0 {
            self.close_row_group()?;
        }
        self.file.into_inner().map_err(failed)
    }
}

/// Runs `work` on each item on up to `thread_count` threads; results are in the order of the items.
fn side_by_side<T: Send, R: Send>(
    thread_count: usize,
    items: impl Iterator<Item = T> + Send,
    work: impl Fn(T) -> parquet::errors::Result<R> + Sync,
) -> parquet::errors::Result<Vec<R>> {
    if thread_count <= 1 {
        return items.map(work).collect();
    }
    let queue = Mutex::new(items.enumerate());
    let mut results: Vec<(usize, R)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..thread_count)
            .map(|_| {
                scope.spawn(|| {
                    let mut results = Vec::new();
                    loop {
                        let Some((index, item)) = queue.lock().next() else { return Ok(results) };
                        results.push((index, work(item)?));
                    }
                })
            })
            .collect();
        let mut all = Vec::new();
        for thread in threads {
            let results: parquet::errors::Result<Vec<_>> = thread.join().unwrap_or_else(|_| {
                Err(ParquetError::General("a thread that encodes columns panicked".into()))
            });
            all.extend(results?);
        }
        Ok::<_, ParquetError>(all)
    })?;
    results.sort_by_key(|(index, _)| *index);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

/// The Parquet columns that an Arrow column becomes.
fn leaf_count(data_type: &DataType) -> usize {
    match data_type {
        DataType::Struct(fields) => fields.iter().map(|field| leaf_count(field.data_type())).sum(),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::RunEndEncoded(_, item)
        | DataType::Map(item, _) => leaf_count(item.data_type()),
        _ => 1,
    }
}

fn without_views(field: &FieldRef) -> FieldRef {
    let of = |item: &FieldRef| without_views(item);
    let data_type = match field.data_type() {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::List(item) => DataType::List(of(item)),
        DataType::LargeList(item) => DataType::LargeList(of(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(of(item), *size),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(of).collect()),
        DataType::Map(item, sorted) => DataType::Map(of(item), *sorted),
        other => other.clone(),
    };
    let plain =
        Field::new(field.name(), data_type, field.is_nullable()).with_metadata(field.metadata().clone());
    Arc::new(plain)
}

fn failed(error: ParquetError) -> Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<std::io::Error>() {
            Ok(error) => write_failed(&error),
            Err(error) => Error::new(ErrorKind::Data, format!("cannot write Parquet: {error}")),
        },
        ParquetError::NYI(message) | ParquetError::ArrowError(message) => {
            Error::new(ErrorKind::Unsupported, format!("cannot write Parquet: {message}"))
        }
        error => Error::new(ErrorKind::Data, format!("cannot write Parquet: {error}")),
    }
}
