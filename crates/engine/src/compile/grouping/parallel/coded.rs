//! Rows of Parquet files with texts as codes of dictionaries, and decimals as integers of 64 bits.
//!
//! Operators between a scan and groups expect the types of their schemas. So a filter that stands there is applied here:
//! a comparison with a constant looks at the entries of a dictionary, not at its rows.

use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, IsNotNullExpr, IsNullExpr, Literal};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, TryStreamExt};

use crate::runtime::guard::{guarded_as, unguarded};
use crate::runtime::running::Running;
use crate::runtime::steps::Step;
use crate::sources::files;

/// See the [module](self).
pub(super) struct CodedRows {
    scan: Arc<dyn ExecutionPlan>,
    filter: Option<Filter>,
}

#[derive(Clone)]
struct Filter {
    predicate: Arc<dyn PhysicalExpr>,
    /// The columns that it passes on, if not all.
    columns: Option<Vec<usize>>,
    step: Option<Arc<Step>>,
}

impl CodedRows {
    /// The rows of `plan`, these columns coded; `None` if it is something else than a scan of Parquet files or a filter over
    /// one, or if no column can be coded.
    pub(super) fn of(
        plan: &Arc<dyn ExecutionPlan>,
        coded: &[usize],
        context: &TaskContext,
    ) -> Result<Option<Self>> {
        let (scan, filter, coded) = match plan.downcast_ref::<FilterExec>() {
            None => (plan, None, coded.to_vec()),
            Some(filter) if filter.fetch().is_some() => return Ok(None),
            Some(filter) => {
                let columns: Option<Vec<usize>> =
                    filter.projection().as_ref().map(|columns| columns.to_vec());
                let schema = filter.input().schema();
                let is_once = |column: &usize| match &columns {
                    Some(columns) => columns.iter().filter(|other| *other == column).count() == 1,
                    None => true,
                };
                let coded =
                    coded.iter().map(|column| columns.as_ref().map_or(*column, |columns| columns[*column]));
                let coded = coded.filter(|column| {
                    is_once(column)
                        && takes_codes(filter.predicate(), *column, schema.field(*column).data_type())
                });
                let coded = coded.collect();
                let (predicate, step) = (filter.predicate().clone(), unguarded(plan).1.cloned());
                (filter.input(), Some(Filter { predicate, columns, step }), coded)
            }
        };
        let Some(with_codes) = files::with_coded(scan, &coded).filter(|_| !coded.is_empty()) else {
            return Ok(None);
        };
        let scan = match Running::of(context) {
            Some(running) => guarded_as(with_codes, &running.stop, scan)?,
            None => with_codes,
        };
        Ok(Some(Self { scan, filter }))
    }

    /// Whether `plan` is such a scan or filter.
    pub(super) fn can_be_of(plan: &Arc<dyn ExecutionPlan>) -> bool {
        let scan = match plan.downcast_ref::<FilterExec>() {
            Some(filter) if filter.fetch().is_some() => return false,
            Some(filter) => filter.input(),
            None => plan,
        };
        files::with_coded(scan, &[]).is_some()
    }

    pub(super) fn execute(
        &self,
        partition: usize,
        context: &Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let rows = self.scan.execute(partition, context.clone())?;
        let Some(filter) = self.filter.clone() else { return Ok(rows) };
        let schema = rows.schema();
        let rows = rows.map(move |batch| filter.apply(&batch?));
        let rows = rows.try_filter(|batch| std::future::ready(batch.num_rows() > 0));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

impl Filter {
    fn apply(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let entered = self.step.as_ref().map(Step::enter);
        let passes = self.predicate.evaluate(batch)?.into_array(batch.num_rows())?;
        let passes: &BooleanArray = passes.as_boolean();
        let rows = match &self.columns {
            Some(columns) => filter_record_batch(&batch.project(columns)?, passes)?,
            None => filter_record_batch(batch, passes)?,
        };
        drop(entered);
        self.step.iter().for_each(|step| step.gave(&rows));
        Ok(rows)
    }
}

/// Whether a predicate means the same where a column is coded: it does not look at it, or compares texts with constants.
fn takes_codes(predicate: &Arc<dyn PhysicalExpr>, column: usize, data_type: &DataType) -> bool {
    let is_it = |expr: &Arc<dyn PhysicalExpr>| {
        expr.downcast_ref::<Column>().is_some_and(|found| found.index() == column)
    };
    if is_it(predicate) {
        return false;
    }
    let is_text = matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    let is_text_of_type = |expr: &Arc<dyn PhysicalExpr>| {
        let literal = expr.downcast_ref::<Literal>();
        literal.is_some_and(|literal| literal.value().data_type() == *data_type && !literal.value().is_null())
    };
    if let Some(compared) = predicate.downcast_ref::<BinaryExpr>()
        && is_it(compared.left())
    {
        let compares = matches!(
            compared.op(),
            Operator::Eq | Operator::NotEq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq
        );
        return is_text && compares && is_text_of_type(compared.right());
    }
    let asked = predicate.downcast_ref::<IsNullExpr>().map(IsNullExpr::arg);
    let asked = asked.or_else(|| predicate.downcast_ref::<IsNotNullExpr>().map(IsNotNullExpr::arg));
    asked.is_some_and(is_it)
        || predicate.children().into_iter().all(|part| takes_codes(part, column, data_type))
}
