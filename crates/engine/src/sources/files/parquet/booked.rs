//! Reserves memory for the bytes of Parquet files as long as they are in memory.
//!
//! The columns of a row group are fetched whole. A reader here reserves memory before it fetches, and the
//! fetched bytes release it when their last user drops them.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::ParquetFileReaderFactory;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::FutureExt;
use futures::future::BoxFuture;
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ParquetMetaData;

/// Makes readers that reserve memory for what they fetch.
#[derive(Debug)]
pub(super) struct BookedReaders<F> {
    pub(super) inner: F,
    pub(super) pool: Arc<dyn MemoryPool>,
}

impl<F: ParquetFileReaderFactory> ParquetFileReaderFactory for BookedReaders<F> {
    fn create_reader(
        &self,
        partition: usize,
        file: PartitionedFile,
        metadata_size_hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> datafusion::error::Result<Box<dyn AsyncFileReader + Send>> {
        let name = file.object_meta.location.filename().unwrap_or_default().to_owned();
        let booked = MemoryConsumer::new(format!("scan of '{name}'")).register(&self.pool);
        let inner = self.inner.create_reader(partition, file, metadata_size_hint, metrics)?;
        Ok(Box::new(BookedReader { inner, booked }))
    }
}

struct BookedReader {
    inner: Box<dyn AsyncFileReader + Send>,
    /// An empty reservation, from which each fetch makes its own under the same name.
    booked: MemoryReservation,
}

impl BookedReader {
    fn book(&self, bytes: u64) -> Result<MemoryReservation> {
        let booked = self.booked.new_empty();
        // A damaged file may claim more bytes than fit `usize`; no such reservation succeeds.
        let grown = booked.try_grow(usize::try_from(bytes).unwrap_or(usize::MAX));
        grown.map_err(|error| ParquetError::External(Box::new(error)))?;
        Ok(booked)
    }
}

impl AsyncFileReader for BookedReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        async move {
            let booked = self.book(range.end.saturating_sub(range.start))?;
            Ok(owned(self.inner.get_bytes(range).await?, booked))
        }
        .boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>>> {
        async move {
            let bytes = ranges.iter().map(|range| range.end.saturating_sub(range.start)).sum();
            let booked = self.book(bytes)?;
            let fetched = self.inner.get_byte_ranges(ranges).await?;
            let owned_each = fetched.into_iter().map(|bytes| {
                let its = booked.split(bytes.len().min(booked.size()));
                owned(bytes, its)
            });
            Ok(owned_each.collect())
        }
        .boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>>> {
        self.inner.get_metadata(options)
    }
}

/// The same bytes, which release `booked` when they are dropped.
fn owned(bytes: Bytes, booked: MemoryReservation) -> Bytes {
    struct Owned {
        bytes: Bytes,
        _booked: MemoryReservation,
    }
    impl AsRef<[u8]> for Owned {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }
    if bytes.is_empty() { bytes } else { Bytes::from_owner(Owned { bytes, _booked: booked }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::pool::FairPool;

    #[test]
    fn bytes_are_booked_until_their_last_user_drops_them() {
        let pool: Arc<dyn MemoryPool> = Arc::new(FairPool::new(100));
        let booked = MemoryConsumer::new("scan").register(&pool);
        let part = booked.new_empty();
        part.try_grow(10).unwrap();
        let bytes = owned(Bytes::from_static(b"0123456789"), part);
        let slice = bytes.slice(2..4);
        drop(bytes);
        assert_eq!((&slice[..], pool.reserved()), (&b"23"[..], 10));
        drop(slice);
        assert_eq!(pool.reserved(), 0);
    }
}
