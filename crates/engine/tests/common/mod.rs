//! What the tests of the engine share: a session as the SQL text runner sees it, and short ways to rows.

#![allow(dead_code, reason = "each test uses its part")]

use async_trait::async_trait;
use keirin::arrow::array::{Array, AsArray, RecordBatch};
use keirin::arrow::datatypes::{DataType, Int64Type, SchemaRef, UInt64Type};
use keirin::{Database, Error, Session, StatementKind};
use keirin_testkit::slt::{Answer, Connection, Failure};
use serde_json::Value;

/// A session in this process.
pub(crate) struct InProcess(pub(crate) Session);

#[async_trait]
impl Connection for InProcess {
    async fn run(&mut self, sql: &str) -> Result<Answer, Failure> {
        let stream = self.0.sql(sql).await.map_err(failure)?;
        let (schema, kind) = (stream.schema(), stream.kind());
        let batches = stream.collect().await.map_err(failure)?;
        let types =
            |schema: &SchemaRef| schema.fields().iter().map(|field| field.data_type().clone()).collect();
        let promised: Vec<DataType> = types(&schema);
        if let Some(batch) = batches.iter().find(|batch| types(&batch.schema()) != promised) {
            let message = format!("promised types {promised:?}, came {:?}", batch.schema());
            return Err(Failure { message, sqlstate: None });
        }
        match kind {
            StatementKind::Rows => Answer::from_batches(&schema, &batches),
            StatementKind::Count => Ok(Answer::Count(count(&batches))),
            StatementKind::Done => Ok(Answer::Count(0)),
        }
    }
}

/// All that a user is told, in one line: a test may look for any of it.
pub(crate) fn failure(error: Error) -> Failure {
    let parts = [Some(error.message()), error.detail(), error.hint()];
    let message = parts.into_iter().flatten().collect::<Vec<_>>().join("; ").replace('\n', " ");
    Failure { message, sqlstate: Some(error.sqlstate().to_owned()) }
}

/// The count in the one row of one column that a writing statement gives back.
fn count(batches: &[RecordBatch]) -> u64 {
    let count = |batch: &RecordBatch| {
        let column = batch.columns().first().filter(|column| !column.is_empty())?;
        let unsigned = column.as_primitive_opt::<UInt64Type>().map(|column| column.value(0));
        let signed = || u64::try_from(column.as_primitive_opt::<Int64Type>()?.value(0)).ok();
        unsigned.or_else(signed)
    };
    batches.iter().filter_map(count).sum()
}

/// The rows of a query, spelt as in the SQL text tests, or all that the user is told.
pub(crate) fn query(database: &Database, session: &Session, sql: &str) -> Result<Vec<Vec<String>>, String> {
    let answer = database.block_on(InProcess(session.clone()).run(sql));
    match answer.map_err(|failure| failure.message)? {
        Answer::Rows { rows, .. } => Ok(rows),
        Answer::Count(count) => Ok(vec![vec![count.to_string()]]),
    }
}

/// The steps of a query, as EXPLAIN ANALYZE tells of them, the last one first.
pub(crate) fn steps(database: &Database, session: &Session, sql: &str) -> Vec<Value> {
    let told = format!("EXPLAIN (ANALYZE, FORMAT JSON) {sql}");
    let batches = database.block_on(async { session.sql(&told).await?.collect().await });
    let batches = batches.unwrap_or_else(|error| panic!("{sql}: {}", error.report(&told)));
    let report: Value = serde_json::from_str(batches[0].column(0).as_string::<i32>().value(0)).expect("JSON");
    let mut steps = Vec::new();
    let mut rest = vec![report["plan"].clone()];
    while let Some(step) = rest.pop() {
        rest.extend(step["inputs"].as_array().expect("steps").iter().rev().cloned());
        steps.push(step);
    }
    steps
}

/// What a step counts under this name.
pub(crate) fn counter(step: &Value, name: &str) -> Option<u64> {
    let counters = step["counters"].as_array().expect("counters");
    counters.iter().find(|counter| counter["name"] == name)?["value"].as_u64()
}
