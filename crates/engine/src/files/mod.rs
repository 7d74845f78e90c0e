//! Files as tables.
use arrow::array::RecordBatch;
use datafusion::catalog::TableProvider;
use datafusion::execution::SessionState;
use std::sync::Arc;
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FileFormat {
    Arrow,
    Csv,
    Json,
    Parquet,
    Tsv,
}
impl std::str::FromStr for FileFormat {
    type Err = crate::Error;
    fn from_str(_: &str) -> crate::Result<Self> {
        Ok(Self::Csv)
    }
}
#[derive(Debug)]
pub(crate) enum OptionValue {
    Null,
    Boolean(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<OptionValue>),
    Struct(Vec<(String, OptionValue)>),
}
pub(crate) struct FileTable {
    pub paths: Vec<String>,
    pub format: Option<FileFormat>,
    pub options: Vec<(String, OptionValue)>,
}
pub(crate) async fn open(
    _state: &SessionState,
    _table: &FileTable,
    _rejects: &Arc<Rejects>,
) -> crate::Result<Arc<dyn TableProvider>> {
    Err(crate::Error::new(crate::ErrorKind::Unsupported, "files cannot be read yet"))
}
pub(crate) fn looks_like_file(name: &str) -> bool {
    name.contains('.')
}
#[derive(Default)]
pub(crate) struct Rejects;
impl Rejects {
    pub(crate) fn batch(&self) -> RecordBatch {
        RecordBatch::new_empty(Arc::new(arrow::datatypes::Schema::empty()))
    }
}
