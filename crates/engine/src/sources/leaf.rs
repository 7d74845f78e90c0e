//! The parts of DataFusion's `ExecutionPlan` that are the same for plan nodes without inputs.

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::metrics::BaselineMetrics;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{Stream, StreamExt, future};

use crate::error::Result;
use crate::sources::files::into_datafusion;

/// The answer of a partition: its batches, counted, until they have `limit` rows together.
pub(crate) fn answer(
    schema: SchemaRef,
    batches: impl Stream<Item = Result<RecordBatch>> + Send + 'static,
    limit: Option<usize>,
    baseline: BaselineMetrics,
) -> SendableRecordBatchStream {
    let limit = limit.unwrap_or(usize::MAX);
    let batches = batches.scan(0, move |rows, batch| {
        if *rows >= limit {
            return future::ready(None);
        }
        let batch = batch.map_err(into_datafusion).inspect(|batch| {
            *rows += batch.num_rows();
            baseline.record_output(batch.num_rows());
        });
        future::ready(Some(batch))
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, batches))
}

/// The methods of `ExecutionPlan` for a leaf: no children, no expressions; properties and metrics are fields
/// of these names.
macro_rules! leaf_methods {
    () => {
        fn properties(&self) -> &std::sync::Arc<datafusion::physical_plan::PlanProperties> {
            &self.properties
        }

        fn children(&self) -> Vec<&std::sync::Arc<dyn datafusion::physical_plan::ExecutionPlan>> {
            Vec::new()
        }

        fn apply_expressions(
            &self,
            _: &mut dyn FnMut(
                &std::sync::Arc<dyn datafusion::physical_expr::PhysicalExpr>,
            )
                -> datafusion::error::Result<datafusion::common::tree_node::TreeNodeRecursion>,
        ) -> datafusion::error::Result<datafusion::common::tree_node::TreeNodeRecursion> {
            Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
        }

        fn with_new_children(
            self: std::sync::Arc<Self>,
            children: Vec<std::sync::Arc<dyn datafusion::physical_plan::ExecutionPlan>>,
        ) -> datafusion::error::Result<std::sync::Arc<dyn datafusion::physical_plan::ExecutionPlan>> {
            datafusion::common::assert_or_internal_err!(children.is_empty(), "a leaf has no children");
            Ok(self)
        }

        fn metrics(&self) -> Option<datafusion::physical_plan::metrics::MetricsSet> {
            Some(self.metrics.clone_inner())
        }
    };
}

pub(crate) use leaf_methods;
