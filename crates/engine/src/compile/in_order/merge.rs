//! The operator that returns the rows of its partitions one partition after the other, while the next ones
//! are read ahead.

use std::fmt;
use std::sync::Arc;

use datafusion::common::Statistics;
use datafusion::common::assert_or_internal_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::{CardinalityEffect, EvaluationType, SchedulingType};
use datafusion::physical_plan::limit::LimitStream;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::{StreamExt, stream};

use super::ahead::{bytes_ahead, read_ahead};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct InOrderExec {
    input: Arc<dyn ExecutionPlan>,
    /// The number of rows after which it ends.
    fetch: Option<usize>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl InOrderExec {
    pub(crate) fn new(input: Arc<dyn ExecutionPlan>, fetch: Option<usize>) -> Self {
        let parts = input.properties();
        let mut equivalences = parts.eq_properties.clone();
        if parts.partitioning.partition_count() > 1 {
            // The rows come in the order of the files, which is no order of a column.
            equivalences.clear_orderings();
            equivalences.clear_per_partition_constants();
        }
        let properties = PlanProperties::new(
            equivalences,
            Partitioning::UnknownPartitioning(1),
            parts.emission_type,
            parts.boundedness,
        )
        .with_evaluation_type(EvaluationType::Eager)
        .with_scheduling_type(SchedulingType::Cooperative);
        Self { input, fetch, properties: Arc::new(properties), metrics: ExecutionPlanMetricsSet::new() }
    }

    /// The partitions, each a stream of its own.
    pub(crate) fn parts(&self, context: &Arc<TaskContext>) -> Result<Vec<SendableRecordBatchStream>> {
        let parts = self.input.properties().partitioning.partition_count();
        (0..parts).map(|part| self.input.execute(part, context.clone())).collect()
    }
}

impl DisplayAs for InOrderExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fetch {
            Some(fetch) => write!(f, "InOrderExec: fetch={fetch}"),
            None => write!(f, "InOrderExec"),
        }
    }
}

impl ExecutionPlan for InOrderExec {
    fn name(&self) -> &'static str {
        "InOrderExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        assert_or_internal_err!(children.len() == 1, "InOrderExec has one child");
        Ok(Arc::new(Self::new(children.swap_remove(0), self.fetch)))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        assert_or_internal_err!(partition == 0, "InOrderExec has no partition {partition}");
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let mut parts = self.parts(&context)?;
        let rows = if parts.len() == 1 {
            parts.swap_remove(0)
        } else {
            let bytes_max = bytes_ahead(&context, parts.len());
            let parts: Vec<_> = parts.into_iter().map(|part| read_ahead(part, bytes_max)).collect();
            Box::pin(RecordBatchStreamAdapter::new(self.schema(), stream::iter(parts).flatten()))
        };
        Ok(Box::pin(LimitStream::new(rows, 0, self.fetch, metrics)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, _: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(None)]
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        Ok(Arc::new(inputs[0].as_ref().clone().with_fetch(self.fetch, 0, 1)?))
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }

    fn fetch(&self) -> Option<usize> {
        self.fetch
    }
}
