//! A node of logical plans that passes rows on, and conditions, columns and limits down, but not what DataFusion's rules
//! take for known or would move past it wrongly.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::catalog::Session;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchemaRef, FunctionalDependencies, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Expr, Extension, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Passage {
    input: LogicalPlan,
    schema: DFSchemaRef,
    of: Of,
}

/// What does not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Hash)]
enum Of {
    /// What is known of keys.
    Keys,
    /// Rules that put joins together. It stands while one rule runs.
    Joins,
}

impl Passage {
    /// A plan of whose keys nothing is known.
    pub(super) fn without_keys(input: LogicalPlan) -> LogicalPlan {
        Self::new(Of::Keys, input).into_plan()
    }

    /// A plan that is not seen to be a join.
    pub(super) fn of_joins(input: LogicalPlan) -> LogicalPlan {
        Self::new(Of::Joins, input).into_plan()
    }

    /// A node without what [`Self::of_joins`] has put above it.
    pub(super) fn without_joins(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        if let LogicalPlan::Extension(extension) = &plan
            && let Some(passage) = extension.node.as_any().downcast_ref::<Self>()
            && passage.of == Of::Joins
        {
            return Ok(Transformed::yes(passage.input.clone()));
        }
        Ok(Transformed::no(plan))
    }

    fn new(of: Of, input: LogicalPlan) -> Self {
        let mut schema = input.schema().clone();
        // None fit any schema.
        if of == Of::Keys
            && let Ok(unkeyed) =
                schema.as_ref().clone().with_functional_dependencies(FunctionalDependencies::empty())
        {
            schema = Arc::new(unkeyed);
        }
        Self { input, schema, of }
    }

    fn into_plan(self) -> LogicalPlan {
        LogicalPlan::Extension(Extension { node: Arc::new(self) })
    }
}

impl PartialOrd for Passage {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.input.partial_cmp(&other.input)
    }
}

impl Hash for Passage {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.input.hash(state);
    }
}

impl UserDefinedLogicalNodeCore for Passage {
    fn name(&self) -> &'static str {
        "Passage"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        HashSet::new()
    }

    fn necessary_children_exprs(&self, columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        Some(vec![columns.to_vec()])
    }

    fn supports_limit_pushdown(&self) -> bool {
        true
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Passage: without {:?}", self.of)
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        match (inputs.pop(), inputs.is_empty()) {
            (Some(input), true) => Ok(Self::new(self.of, input)),
            _ => internal_err!("a passage has one input"),
        }
    }
}

/// Plans a [`Passage`] as its input.
pub(crate) struct PassagePlanner;

#[async_trait::async_trait]
impl ExtensionPlanner for PassagePlanner {
    async fn plan_extension(
        &self,
        _: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        inputs: &[Arc<dyn ExecutionPlan>],
        _: &dyn Session,
        _: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        Ok(node.as_any().is::<Passage>().then(|| inputs[0].clone()))
    }
}
