//! The tables that the suites run on: Parquet files, made once and kept in a cache.
//!
//! Every engine loads the same file. The makers are deterministic and none of them is the engine
//! under test. A file is written under a temporary name and renamed, so what is in the cache is whole.

mod h2o;
mod hits;
mod seed;
mod tpch;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use keirin::arrow::array::{RecordBatch, RecordBatchReader};
use keirin::arrow::datatypes::SchemaRef;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::arrow_writer::{ArrowWriter, ArrowWriterOptions};
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

pub(crate) use hits::provide_queries as provide_clickbench_queries;
pub(crate) use tpch::provide_queries as provide_tpch_queries;

use crate::protocol::Table;

/// As in the files of `gen_hits.py`: enough row groups to share, each worth a task.
const ROW_GROUP_ROWS: usize = 491_520;

/// How large the tables are to be and where to find or put them.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// Tables of the user's own, `<table>.parquet`, come before anything made here.
    pub(crate) folder: Option<PathBuf>,
    pub(crate) cache: PathBuf,
    /// Packs of test data, `KEIRIN_DATA`.
    pub(crate) packs: PathBuf,
    pub(crate) python: PathBuf,
    /// Rows of the seed tables.
    pub(crate) seed_rows: u64,
    /// Rows of `hits`; 0 takes the real ones of the pack.
    pub(crate) hits_rows: u64,
    /// Rows of the large tables of `h2o`, at least a million.
    pub(crate) h2o_rows: u64,
    /// TPC-H scale factor.
    pub(crate) scale: f64,
}

impl Source {
    /// Finds or makes the table `name`.
    ///
    /// # Errors
    /// What is missing, in words for the person who ran the suite.
    pub(crate) fn table(&self, name: &str) -> Result<Table, String> {
        let own = self
            .folder
            .iter()
            .map(|folder| folder.join(format!("{name}.parquet")))
            .find(|path| path.is_file());
        let recoded = name.rsplit_once('_').and_then(|(table, codec)| Some((table, compression(codec)?)));
        let file = match own {
            Some(file) => file,
            None if let Some((table, compression)) = recoded => {
                let from = self.table(table)?.file;
                let stem = from.file_stem().expect("a table is a file").to_string_lossy().into_owned();
                let codec = &name[table.len() + 1..];
                self.cached(&format!("{stem}-{codec}.parquet"), |path| recode(&from, compression, path))?
            }
            None if name == "hits" => hits::file(self)?,
            None if let Some(columns) = h2o::columns(name, self.h2o_rows) => {
                self.cached(&format!("{name}-{}.parquet", self.h2o_rows), |path| h2o::write(columns, path))?
            }
            None => match seed::columns(name) {
                Some(columns) => self.cached(&format!("{name}-{}.parquet", self.seed_rows), |path| {
                    seed::write(columns, self.seed_rows, path)
                })?,
                None => self.cached(&format!("tpch-{}-{name}.parquet", self.scale), |path| {
                    tpch::write(name, self.scale, path)
                })?,
            },
        };
        let file = file.canonicalize().map_err(|error| format!("{}: {error}", file.display()))?;
        let sort = if name == "hits" { hits::SORT } else { tpch::sort(name) };
        Ok(Table { name: name.into(), file, sort: sort.iter().copied().map(str::to_owned).collect() })
    }

    /// The file `name` of the cache, made by `make` if it is not there yet.
    fn cached(&self, name: &str, make: impl FnOnce(&Path) -> Result<(), String>) -> Result<PathBuf, String> {
        let path = self.cache.join(name);
        if path.exists() {
            return Ok(path);
        }
        eprintln!("making {name} ...");
        let failed = |error: std::io::Error| format!("{}: {error}", self.cache.display());
        fs::create_dir_all(&self.cache).map_err(failed)?;
        let partial = tempfile::Builder::new().prefix("partial-").tempdir_in(&self.cache).map_err(failed)?;
        let made = partial.path().join(name);
        make(&made)?;
        fs::rename(&made, &path).map_err(failed)?;
        Ok(path)
    }
}

/// A number for each row of each column (SplitMix64).
fn random(row: u64, column: u64) -> u64 {
    let z = row.wrapping_add(column << 56).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The codecs in which `<table>_<codec>` is to be had.
fn compression(codec: &str) -> Option<Compression> {
    match codec {
        "snappy" => Some(Compression::SNAPPY),
        "lz4" => Some(Compression::LZ4_RAW),
        "zstd" => Some(Compression::ZSTD(ZstdLevel::default())),
        _ => None,
    }
}

/// Writes the rows of the Parquet file `from` with another codec.
fn recode(from: &Path, compression: Compression, path: &Path) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", from.display());
    let file = File::open(from).map_err(|error| failed(&error))?;
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).and_then(|reader| reader.build());
    let reader = reader.map_err(|error| failed(&error))?;
    let mut outcome = Ok(());
    let schema = reader.schema();
    let batches = reader.map_while(|batch| batch.map_err(|error| outcome = Err(failed(&error))).ok());
    write_parquet(path, schema, compression, batches)?;
    outcome
}

/// Writes a Parquet file, without Arrow's own schema in it: types are what every reader sees.
fn write_parquet(
    path: &Path,
    schema: SchemaRef,
    compression: Compression,
    batches: impl Iterator<Item = RecordBatch>,
) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_dictionary_enabled(compression != Compression::UNCOMPRESSED)
        .build();
    let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
    let file = File::create(path).map_err(|error| failed(&error))?;
    let mut writer =
        ArrowWriter::try_new_with_options(file, schema, options).map_err(|error| failed(&error))?;
    for batch in batches {
        writer.write(&batch).map_err(|error| failed(&error))?;
    }
    writer.close().map_err(|error| failed(&error))?;
    Ok(())
}
