//! Batches that do not keep larger buffers alive, and how large the buffers of arrays are.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, GenericByteViewArray, RecordBatch, RecordBatchOptions,
    new_empty_array,
};
use arrow::buffer::Buffer;
use arrow::compute::concat;
use arrow::datatypes::{ByteViewType, DataType, SchemaRef};
use datafusion::error::Result;

/// The same rows, with each buffer copied of which they use less than half: a few rows of a file must not
/// keep all of the file in memory.
pub(crate) fn compact(batch: &RecordBatch) -> Result<RecordBatch> {
    fn compact_views<T: ByteViewType>(views: &GenericByteViewArray<T>) -> Option<ArrayRef> {
        let held: usize = views.data_buffers().iter().map(Buffer::capacity).sum();
        (held > 2 * views.total_buffer_bytes_used()).then(|| Arc::new(views.gc()) as ArrayRef)
    }
    let columns = batch.columns().iter().map(|column| {
        let compacted = match column.data_type() {
            DataType::Utf8View => compact_views(column.as_string_view()),
            DataType::BinaryView => compact_views(column.as_binary_view()),
            _ => None,
        };
        let column = compacted.unwrap_or_else(|| column.clone());
        let used = column.to_data().get_slice_memory_size()?;
        // Views are compact now, but their memory in use is counted without their data buffers.
        let is_view = matches!(column.data_type(), DataType::Utf8View | DataType::BinaryView);
        if is_view || column.get_buffer_memory_size() <= 2 * used {
            return Ok(column);
        }
        // `concat` would return a single array as it is, without a copy.
        Ok(concat(&[column.as_ref(), new_empty_array(column.data_type()).as_ref()])?)
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(batch.schema(), columns, &options)?)
}

/// All rows of `batches` in one batch that shares no buffers with them. Each batch has the columns of
/// `schema`, but may differ in whether a column is nullable.
pub(crate) fn joined(batches: &[RecordBatch], schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = (0..schema.fields().len()).map(|column| {
        let arrays: Vec<&dyn Array> = batches.iter().map(|batch| batch.column(column).as_ref()).collect();
        let all = concat(&arrays)?;
        // Concatenated views would keep the data buffers of all batches.
        Ok(match all.data_type() {
            DataType::Utf8View => Arc::new(all.as_string_view().gc()) as ArrayRef,
            DataType::BinaryView => Arc::new(all.as_binary_view().gc()),
            _ => all,
        })
    });
    let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
    let rows = batches.iter().map(RecordBatch::num_rows).sum();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
}

/// The size of those buffers of an array for whose addresses `is_counted` is true.
pub(crate) fn buffer_bytes(data: &ArrayData, is_counted: &mut impl FnMut(usize) -> bool) -> usize {
    let nulls = data.nulls().map(|nulls| nulls.buffer());
    let counted = data.buffers().iter().chain(nulls);
    let counted = counted.filter(|buffer| is_counted(buffer.data_ptr().addr().get()));
    let own: usize = counted.map(Buffer::capacity).sum();
    own + data.child_data().iter().map(|child| buffer_bytes(child, is_counted)).sum::<usize>()
}
