//! `inspect('t')`: what the first block of each column of the largest part is made of, and how fast it was just decoded;
//! `inspect('t', part)`: the same of all blocks of a part.
//!
//! Blocks are decoded some times over, so it takes longer than a scan: for people who look at a table.

use std::sync::Arc;

use arrow::array::{RecordBatch, StringArray, UInt32Array, UInt64Array};
use datafusion::catalog::{MemTable, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::plan_err;
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::Expr;
use keirin_storage::Snapshot;

use super::super::store::Store;
use crate::error::{Error, ErrorKind, Result};
use crate::sources::catalog::DEFAULT_SCHEMA;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Inspect {
    /// The database.
    pub(crate) store: Arc<Store>,
}

impl TableFunctionImpl for Inspect {
    fn call_with_args(&self, args: TableFunctionArgs) -> DataFusionResult<Arc<dyn TableProvider>> {
        let (name, part) = match args.exprs() {
            [name] => (text(name), None),
            [name, part] => (text(name), Some(number(part))),
            _ => (None, None),
        };
        let (Some(name), None | Some(Some(_))) = (name, part) else {
            return plan_err!("inspect(table [, part]) takes the name of a table and the number of a part");
        };
        // The planner calls this on a thread that others need.
        let batch = tokio::task::block_in_place(|| self.blocks(name, part.flatten()));
        let batch = batch.map_err(|error| datafusion::error::DataFusionError::External(Box::new(error)))?;
        Ok(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?))
    }
}

fn text(argument: &Expr) -> Option<&str> {
    match argument {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    }
}

fn number(argument: &Expr) -> Option<u64> {
    match argument {
        Expr::Literal(value, _) => value.to_string().parse().ok(),
        _ => None,
    }
}

impl Inspect {
    fn blocks(&self, name: &str, part: Option<u64>) -> Result<RecordBatch> {
        let (schema, table) = name.split_once('.').unwrap_or((DEFAULT_SCHEMA, name));
        blocks(&self.store.snapshot()?, schema, table, part)
    }
}

fn blocks(snapshot: &Snapshot, schema: &str, name: &str, part: Option<u64>) -> Result<RecordBatch> {
    let unknown = |what: String| Error::new(ErrorKind::NotFound, what);
    let table = snapshot.table_named(schema, name);
    let table = table.ok_or_else(|| unknown(format!("there is no table '{schema}.{name}'")))?;
    let parts = table.parts();
    if let Some(part) = part
        && !parts.iter().any(|other| other.number == part)
    {
        return Err(unknown(format!("table '{schema}.{name}' has no part {part}")));
    }
    let (mut numbers, mut columns, mut stripes) = (Vec::new(), Vec::new(), Vec::new());
    let (mut rows, mut bytes, mut value_bytes, mut made_of) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    // Without a number, the largest: it says most about the others.
    let wanted = parts.into_iter().filter(|found| part.is_none_or(|part| part == found.number));
    if let Some(found) = wanted.max_by_key(|found| found.row_count) {
        let reader = snapshot.open_part(table, found)?;
        for (column, field) in reader.fields().iter().enumerate() {
            let stripes_shown = if part.is_some() { reader.stripe_count() } else { 1 };
            for stripe in 0..stripes_shown.min(reader.stripe_count()) {
                numbers.push(found.number);
                columns.push(field.name.clone());
                stripes.push(u32::try_from(stripe).expect("a part has few stripes"));
                rows.push(reader.statistics(column, stripe).rows);
                bytes.push(reader.stored_bytes(column, stripe));
                value_bytes.push(reader.value_bytes(column, stripe));
                made_of.push(reader.explain(column, stripe)?.join("; "));
            }
        }
    }
    Ok(RecordBatch::try_from_iter([
        ("part", Arc::new(UInt64Array::from(numbers)) as _),
        ("column", Arc::new(StringArray::from(columns)) as _),
        ("block", Arc::new(UInt32Array::from(stripes)) as _),
        ("rows", Arc::new(UInt32Array::from(rows)) as _),
        ("bytes", Arc::new(UInt64Array::from(bytes)) as _),
        ("value_bytes", Arc::new(UInt64Array::from(value_bytes)) as _),
        ("made_of", Arc::new(StringArray::from(made_of)) as _),
    ])?)
}
