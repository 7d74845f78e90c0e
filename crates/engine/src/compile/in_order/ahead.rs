//! A stream that is read ahead of its consumer, as far as memory allows.

use std::sync::Arc;

use datafusion::common::runtime::SpawnedTask;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, stream};
use tokio::sync::{Semaphore, mpsc};

/// All partitions together may read ahead this share of the memory limit: 1/16.
const MEMORY_SHARE: usize = 16;
/// The limits of what one partition reads ahead, in bytes; a batch may be larger.
const PART_BYTES_MIN: usize = 64 << 10;
const PART_BYTES_MAX: usize = 32 << 20;
/// The most batches that one partition reads ahead, however small they are.
const BATCHES_MAX: usize = 64;

/// How many bytes each of `parts` partitions may read ahead.
pub(super) fn bytes_ahead(context: &TaskContext, parts: usize) -> usize {
    let limit = match context.memory_pool().memory_limit() {
        MemoryLimit::Finite(bytes) => bytes,
        _ => usize::MAX,
    };
    (limit / MEMORY_SHARE / parts.max(1)).clamp(PART_BYTES_MIN, PART_BYTES_MAX)
}

/// Reads `input` on a task of its own, up to `bytes_max` bytes ahead, or one batch.
pub(super) fn read_ahead(
    mut input: SendableRecordBatchStream,
    bytes_max: usize,
) -> SendableRecordBatchStream {
    let schema = input.schema();
    let room = Arc::new(Semaphore::new(bytes_max));
    let (sender, receiver) = mpsc::unbounded_channel();
    let reader = SpawnedTask::spawn(async move {
        while let Some(batch) = input.next().await {
            let bytes = batch.as_ref().map_or(0, |batch| batch.get_array_memory_size());
            let bytes = bytes.clamp(bytes_max / BATCHES_MAX, bytes_max);
            let bytes = u32::try_from(bytes).expect("parts read few bytes ahead");
            // The semaphore is never closed.
            let Ok(taken) = room.clone().acquire_many_owned(bytes).await else { return };
            if sender.send((batch, taken)).is_err() {
                return;
            }
        }
    });
    let batches = stream::unfold((receiver, Some(reader)), |(mut receiver, mut reader)| async move {
        if let Some((batch, _taken)) = receiver.recv().await {
            return Some((batch, (receiver, reader)));
        }
        // A panic of the reading task must not look like the end of the stream.
        match reader.take()?.join_unwind().await {
            Ok(()) => None,
            Err(error) => Some((Err(DataFusionError::ExecutionJoin(Box::new(error))), (receiver, None))),
        }
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, batches))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use arrow::array::{ArrayRef, Int64Array, RecordBatch};

    use super::*;

    #[tokio::test]
    async fn a_slow_reader_is_not_far_behind() {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![1; 1000]));
        let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
        let bytes = batch.get_array_memory_size();
        let read = Arc::new(AtomicUsize::new(0));
        let (count, one) = (read.clone(), batch.clone());
        let input = stream::iter(0..100).map(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(one.clone())
        });
        let input = Box::pin(RecordBatchStreamAdapter::new(batch.schema(), input));
        let mut ahead = read_ahead(input, 5 * bytes);
        let mut rows = 0;
        while let Some(batch) = ahead.next().await {
            rows += batch.unwrap().num_rows();
            tokio::task::yield_now().await;
            // Five batches are queued, one was taken, and one waits for room.
            assert!(read.load(Ordering::Relaxed) <= rows / 1000 + 6);
        }
        assert_eq!(rows, 100_000);
    }
}
