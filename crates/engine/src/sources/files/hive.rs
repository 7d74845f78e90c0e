//! Columns from directory names, as Hive writes them: `sales/year=2024/month=03/x.parquet`.
//!
//! Such a column exists if every file has it. Its type is BIGINT, DATE or VARCHAR, the first that fits all
//! values. `filename = true` adds a column of the same kind: one value per file.

use std::path::Component;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::{DFSchema, Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::expr_rewriter::unnormalize_col;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};

use super::options::{NamedText, Options};
use super::paths::{DataFile, percent_decoded};
use super::remote::{is_remote, path_of};
use crate::compile::conditions::can_fail;
use crate::error::{Error, ErrorKind, Result};

/// The directory value that Hive writes for NULL.
const NULL_NAME: &str = "__HIVE_DEFAULT_PARTITION__";

/// The columns that have one value per file.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileColumns {
    pub(crate) fields: Vec<FieldRef>,
    /// Per file, a value for each field.
    pub(crate) values: Vec<Vec<ScalarValue>>,
}

/// The user's options for these columns.
#[derive(Debug, Default)]
pub(crate) struct FileColumnOptions {
    /// Whether directory names are columns; by default they are if all files agree.
    hive: Option<bool>,
    types: Vec<NamedText>,
    filename: Option<String>,
}

impl FileColumnOptions {
    pub(crate) fn take(options: &mut Options<'_>) -> Result<Self> {
        let hive = options.boolean(&["hive_partitioning"])?;
        let types = options.named_texts(&["hive_types"])?.unwrap_or_default();
        let filename = options.boolean(&["filename"])?.unwrap_or(false).then(|| "filename".to_owned());
        Ok(Self { hive, types, filename })
    }
}

impl FileColumns {
    /// The columns of `files`. `type_of` resolves the name of an SQL type.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when partitions are asked for but not there; [`ErrorKind::Data`] when a value
    /// does not have the type the user said.
    pub(crate) fn detect(
        files: &[DataFile],
        options: &FileColumnOptions,
        type_of: impl Fn(&str) -> Result<DataType>,
    ) -> Result<Self> {
        let mut columns = Self { fields: Vec::new(), values: vec![Vec::new(); files.len()] };
        if options.hive != Some(false) {
            columns.add_partitions(files, options, type_of)?;
        }
        if let Some(name) = &options.filename {
            columns.fields.push(Arc::new(Field::new(name, DataType::Utf8, false)));
            for (values, file) in columns.values.iter_mut().zip(files) {
                values.push(ScalarValue::Utf8(Some(file.name.to_string())));
            }
        }
        Ok(columns)
    }

    fn add_partitions(
        &mut self,
        files: &[DataFile],
        options: &FileColumnOptions,
        type_of: impl Fn(&str) -> Result<DataType>,
    ) -> Result<()> {
        let partitions: Vec<_> = files.iter().map(partitions_of).collect();
        let keys: Vec<&str> = partitions[0].iter().map(|(key, _)| key.as_str()).collect();
        let stranger = partitions
            .iter()
            .position(|partition| !partition.iter().map(|(key, _)| key.as_str()).eq(keys.iter().copied()));
        let distinct = keys.iter().enumerate().all(|(index, key)| !keys[..index].contains(key));
        if stranger.is_some() || keys.is_empty() || !distinct {
            if options.hive == Some(true) {
                let other = &files[stranger.unwrap_or(0)].name;
                return Err(Error::new(ErrorKind::Invalid, "the files are not partitioned alike")
                    .with_detail(format!("'{}' has [{}], '{other}' differs", files[0].name, keys.join(", ")))
                    .with_hint(
                        "hive_partitioning expects directories such as 'year=2024' above every file",
                    ));
            }
            return Ok(());
        }
        for (index, key) in keys.iter().enumerate() {
            let texts: Vec<Option<&str>> =
                partitions.iter().map(|partition| partition[index].1.as_deref()).collect();
            let said = options.types.iter().find(|(name, _)| name.as_deref() == Some(*key));
            let data_type = match said {
                Some((_, name)) => type_of(name)?,
                None => infer_type(&texts),
            };
            for ((values, text), file) in self.values.iter_mut().zip(&texts).zip(files) {
                values.push(value_of(*text, &data_type).ok_or_else(|| {
                    let message = format!(
                        "file '{}': partition {key} = '{}' is no {data_type}",
                        file.name,
                        text.unwrap_or_default()
                    );
                    Error::new(ErrorKind::Data, message)
                })?);
            }
            self.fields.push(Arc::new(Field::new(*key, data_type, true)));
        }
        if let Some((name, _)) =
            options.types.iter().find(|(name, _)| name.as_deref().is_none_or(|name| !keys.contains(&name)))
        {
            let message =
                format!("hive_types names '{}', which is no partition", name.as_deref().unwrap_or_default());
            return Err(Error::new(ErrorKind::Invalid, message)
                .with_hint(format!("the partitions are {}", keys.join(", "))));
        }
        Ok(())
    }

    /// `schema` without the columns of these names: the value of the directory replaces that of the file.
    pub(crate) fn without(&self, schema: &Schema) -> Schema {
        let own = |name: &str| self.fields.iter().any(|field| field.name() == name);
        Schema::new(schema.fields().iter().filter(|field| !own(field.name())).cloned().collect::<Vec<_>>())
    }

    /// Whether `filter` uses only these columns, so that it passes or excludes whole files, and cannot fail.
    pub(crate) fn decide(&self, filter: &Expr) -> bool {
        let columns = filter.column_refs();
        !columns.is_empty()
            && !filter.is_volatile()
            && columns.iter().all(|column| self.fields.iter().any(|field| field.name() == &column.name))
            && !self.can_fail(filter).unwrap_or(true)
    }

    /// Whether `filter` can fail for some file: it must not fail for a file that another filter excludes.
    fn can_fail(&self, filter: &Expr) -> DataFusionResult<bool> {
        let schema = DFSchema::try_from(Schema::new(self.fields.clone()))?;
        can_fail(&unnormalize_col(filter.clone()), &schema)
    }

    /// The pushdown of each filter: exact if these columns decide it, else `otherwise`.
    pub(crate) fn pushdown(
        &self,
        filters: &[&Expr],
        otherwise: TableProviderFilterPushDown,
    ) -> Vec<TableProviderFilterPushDown> {
        let answer = |filter: &&Expr| match self.decide(filter) {
            true => TableProviderFilterPushDown::Exact,
            false => otherwise.clone(),
        };
        filters.iter().map(answer).collect()
    }

    /// The indices of the files that pass all those of `filters` that these columns decide.
    pub(crate) fn passing(&self, state: &dyn Session, filters: &[Expr]) -> DataFusionResult<Vec<usize>> {
        let all = 0..self.values.len();
        let Some(filter) = conjunction(filters.iter().filter(|filter| self.decide(filter)).cloned()) else {
            return Ok(all.collect());
        };
        let schema: SchemaRef = Arc::new(Schema::new(self.fields.clone()));
        // Columns in filters may be qualified with the table's name, which this schema does not have.
        let unqualified = unnormalize_col(filter);
        let predicate = state.create_physical_expr(unqualified, &DFSchema::try_from(schema.clone())?)?;
        let arrays = (0..self.fields.len())
            .map(|column| ScalarValue::iter_to_array(self.values.iter().map(|values| values[column].clone())))
            .collect::<DataFusionResult<Vec<ArrayRef>>>()?;
        let batch = RecordBatch::try_new(schema, arrays)?;
        let passed = predicate.evaluate(&batch)?.into_array(batch.num_rows())?;
        let passed = passed.as_boolean();
        Ok(all.filter(|file| passed.is_valid(*file) && passed.value(*file)).collect())
    }
}

/// The `key=value` directories above a file, outermost first; NULL as `None`.
fn partitions_of(file: &DataFile) -> Vec<(String, Option<String>)> {
    // What is a copy lies elsewhere.
    let path = if is_remote(&file.name) { path_of(&file.name) } else { file.path.clone() };
    let Some(directory) = path.parent() else { return Vec::new() };
    directory
        .components()
        .filter_map(|component| match component {
            Component::Normal(name) => {
                let name = name.to_str()?;
                let (key, value) = name.split_once('=').filter(|(key, _)| !key.is_empty())?;
                let decode = |text: &str| percent_decoded(text).unwrap_or_else(|| text.to_owned());
                Some((decode(key), (value != NULL_NAME).then(|| decode(value))))
            }
            _ => None,
        })
        .collect()
}

fn infer_type(texts: &[Option<&str>]) -> DataType {
    for data_type in [DataType::Int64, DataType::Date32] {
        let fits = |text: &&str| value_of(Some(text), &data_type).is_some();
        if texts.iter().flatten().next().is_some() && texts.iter().flatten().all(fits) {
            return data_type;
        }
    }
    DataType::Utf8
}

/// `text` as a value; `None` if it does not have this type.
fn value_of(text: Option<&str>, data_type: &DataType) -> Option<ScalarValue> {
    let Some(text) = text else { return ScalarValue::try_from(data_type).ok() };
    match data_type {
        // Arrow's parser also accepts blanks and signs that a person would not take for a number.
        DataType::Int64 => text.parse().ok().map(|number| ScalarValue::Int64(Some(number))),
        _ => {
            let array = ScalarValue::from(text).to_array().ok()?;
            let array = cast(&array, data_type).ok()?;
            if array.is_null(0) {
                return None;
            }
            ScalarValue::try_from_array(&array, 0).ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn file(path: &str) -> DataFile {
        DataFile {
            path: path.into(),
            name: path.into(),
            size_bytes: 1,
            changed: SystemTime::UNIX_EPOCH,
            temporary: None,
            remote: None,
        }
    }

    fn check(paths: &[&str], expected: &[(&str, DataType)]) {
        let files: Vec<_> = paths.iter().map(|path| file(path)).collect();
        let columns =
            FileColumns::detect(&files, &FileColumnOptions::default(), |_| Ok(DataType::Utf8)).unwrap();
        let found: Vec<_> =
            columns.fields.iter().map(|field| (field.name().as_str(), field.data_type().clone())).collect();
        assert_eq!(found, expected, "{paths:?}");
    }

    #[test]
    fn partitions_are_typed_by_all_their_values() {
        check(&["a/year=2023/x", "a/year=2024/x"], &[("year", DataType::Int64)]);
        check(&["a/year=2023/x", "a/year=none/x"], &[("year", DataType::Utf8)]);
        check(
            &["d=2024-01-31/r=a%2Fb/x", "d=__HIVE_DEFAULT_PARTITION__/r=c/y"],
            &[("d", DataType::Date32), ("r", DataType::Utf8)],
        );
        check(&["k=__HIVE_DEFAULT_PARTITION__/x"], &[("k", DataType::Utf8)]);
    }

    #[test]
    fn files_that_disagree_have_no_partitions() {
        check(&["a/year=2023/x", "a/x"], &[]);
        check(&["a/b=1/x", "a/c=1/x"], &[]);
        check(&["a=1/a=2/x"], &[]);
        check(&["plain/x"], &[]);
    }
}
