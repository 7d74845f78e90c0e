//! Parquet files behind URLs, as the readers of files here want them.

use std::fmt::{self, Display, Formatter};
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::ParquetFileReaderFactory;
use datafusion::datasource::physical_plan::parquet::CachedParquetFileReaderFactory;
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::stream::{self, BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parquet::arrow::async_reader::AsyncFileReader;

use crate::sources::files::failure::{into_datafusion, io_failed};
use crate::sources::files::named::NamedFile;
use crate::sources::files::paths::DataFile;
use crate::sources::files::remote::{RemoteFile, RemoteReader};

/// So many bytes are asked for before the first of them are waited for.
const AHEAD_BYTES: u64 = 32 << 20;

/// The store of a single file.
#[derive(Clone, Debug)]
pub(super) struct RemoteStore {
    file: RemoteFile,
    name: Arc<str>,
}

impl RemoteStore {
    /// `None` for a file of this machine.
    pub(super) fn of(file: &DataFile) -> Option<Self> {
        file.remote.clone().map(|remote| Self { file: remote, name: file.name.clone() })
    }

    fn read(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Bytes>> {
        let mut ahead = 0;
        let mut expected = 0;
        let mut read = Vec::with_capacity(ranges.len());
        for (place, range) in ranges.iter().enumerate() {
            while ahead < ranges.len() && (ahead <= place || expected < AHEAD_BYTES) {
                self.file.expect(std::iter::once(ranges[ahead].clone()));
                expected += ranges[ahead].end - ranges[ahead].start;
                ahead += 1;
            }
            let count = range.end - range.start;
            let mut bytes = Vec::new();
            let rest =
                RemoteReader::new(self.file.clone(), range.start).take(count).read_to_end(&mut bytes)?;
            if rest as u64 != count {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            expected -= count;
            read.push(bytes.into());
        }
        Ok(read)
    }

    fn no<T>(&self) -> Result<T> {
        Err(Error::NotSupported { source: format!("'{}' is only read", self.name).into() })
    }
}

impl Display for RemoteStore {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)
    }
}

#[async_trait]
impl ObjectStore for RemoteStore {
    async fn get_ranges(&self, _: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let (store, ranges) = (self.clone(), ranges.to_vec());
        let read = crate::runtime::work::waiting(move || store.read(&ranges)).await;
        let read = read.unwrap_or_else(|error| Err(io::Error::other(error.to_string())));
        read.map_err(|error| {
            let source = into_datafusion(io_failed("read", &self.name, &error));
            Error::Generic { store: "URL", source: Box::new(source) }
        })
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let Some(GetRange::Bounded(range)) = options.range else { return self.no() };
        let mut bytes = self.get_ranges(location, std::slice::from_ref(&range)).await?;
        let meta = ObjectMeta {
            location: location.clone(),
            last_modified: SystemTime::UNIX_EPOCH.into(),
            size: self.file.byte_count(),
            e_tag: None,
            version: None,
        };
        let payload = GetResultPayload::Stream(stream::iter(bytes.pop().map(Ok)).boxed());
        Ok(GetResult { payload, meta, range, attributes: Attributes::default() })
    }

    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        self.no()
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.no()
    }

    fn delete_stream(&self, _: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        stream::iter([self.no()]).boxed()
    }

    fn list(&self, _: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        stream::iter([self.no()]).boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        self.no()
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        self.no()
    }
}

/// Makes readers of files here with `local`, and of others with a store of their own.
#[derive(Debug)]
pub(super) struct Readers {
    pub(super) local: CachedParquetFileReaderFactory,
    pub(super) footers: Arc<FileMetadataCache>,
}

impl ParquetFileReaderFactory for Readers {
    fn create_reader(
        &self,
        partition: usize,
        file: PartitionedFile,
        metadata_size_hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> datafusion::error::Result<Box<dyn AsyncFileReader + Send>> {
        let remote = file.extension::<NamedFile>().and_then(|named| RemoteStore::of(&named.0));
        let Some(remote) = remote else {
            return self.local.create_reader(partition, file, metadata_size_hint, metrics);
        };
        let readers = CachedParquetFileReaderFactory::new(Arc::new(remote), self.footers.clone());
        readers.create_reader(partition, file, metadata_size_hint, metrics)
    }
}
