//! Groups that a query has more than once are made once.
//!
//! A query of WITH is written out wherever it is named, and so is a view. After the optimizer, groups that are still the
//! same in all places become a [`SharedExec`] each: whoever needs them first has them made, for all. Groups are fewer
//! than rows, so that keeping them costs little; joins and scans, which may be large, are not kept. Without memory for
//! them each place makes its own.
//!
//! Not shared is what differs each time it is computed, what asks subqueries, and anything in queries that are recursive.
//!
//! What replaces a subquery may need rows twice that would not be the same again: they are made [`once`], whatever memory
//! that takes.

mod exec;
mod grouping_sets;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::catalog::Session;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchemaRef, internal_err};
use datafusion::datasource::source_as_provider;
use datafusion::error::Result;
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Expr, Extension, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};
use parking_lot::Mutex;

use self::exec::Places;
pub(crate) use self::exec::SharedExec;
use crate::compile::as_of::AsOfPlanner;
use crate::compile::fast_path;
use crate::compile::rules::PassagePlanner;

/// DataFusion's planner, with parts of a plan that are shared.
#[derive(Debug)]
pub(crate) struct SharingPlanner;

#[async_trait::async_trait]
impl QueryPlanner for SharingPlanner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let ours = if fast_path::is_on(session.config_options()) { ours(plan)? } else { None };
        let planner = DefaultPhysicalPlanner::with_extension_planners(vec![
            Arc::new(Shares::default()),
            Arc::new(AsOfPlanner),
            Arc::new(PassagePlanner),
        ]);
        planner.create_physical_plan(ours.as_ref().unwrap_or(plan), session).await
    }
}

/// `plan` with grouping sets in steps and with what it has more than once as [`Shared`] nodes, if there is something.
fn ours(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    let (mut is_recursive, mut has_sets) = (false, false);
    plan.apply_with_subqueries(|node| {
        is_recursive |= matches!(node, LogicalPlan::RecursiveQuery(_));
        has_sets |= matches!(
            node,
            LogicalPlan::Aggregate(aggregate) if matches!(aggregate.group_expr[..], [Expr::GroupingSet(_)])
        );
        Ok(if is_recursive { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    if is_recursive {
        return Ok(None);
    }
    if !has_sets {
        return shared(plan);
    }
    let plan = grouping_sets::in_steps(plan)?;
    Ok(Some(shared(&plan)?.unwrap_or(plan)))
}

/// `plan` with what it has more than once as [`Shared`] nodes, if there is something.
fn shared(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    let mut counts: HashMap<Part, usize> = HashMap::new();
    plan.apply_with_subqueries(|node| {
        if is_group(node) {
            *counts.entry(Part::of(node)?).or_default() += 1;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    counts.retain(|_, count| *count > 1);
    if counts.is_empty() {
        return Ok(None);
    }
    // Of what is in something else that is shared, one place is left.
    let mut places: HashMap<Part, (usize, usize)> = HashMap::new();
    plan.apply_with_subqueries(|node| {
        if !is_group(node) || !is_fixed(node)? {
            return Ok(TreeNodeRecursion::Continue);
        }
        let part = Part::of(node)?;
        if !counts.contains_key(&part) {
            return Ok(TreeNodeRecursion::Continue);
        }
        let number = places.len();
        let (_, count) = places.entry(part).or_insert((number, 0));
        *count += 1;
        Ok(if *count == 1 { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Jump })
    })?;
    let numbers = places.into_iter().filter(|(_, (_, count))| *count > 1);
    let numbers: HashMap<Part, usize> = numbers.map(|(part, (number, _))| (part, number)).collect();
    if numbers.is_empty() {
        return Ok(None);
    }
    with_shared(plan.clone(), &numbers).map(Some)
}

fn with_shared(plan: LogicalPlan, numbers: &HashMap<Part, usize>) -> Result<LogicalPlan> {
    let replace = |node: LogicalPlan| {
        if !is_group(&node) {
            return Ok(Transformed::no(node));
        }
        let Some(number) = numbers.get(&Part::of(&node)?) else { return Ok(Transformed::no(node)) };
        let input = node.map_children(|child| with_shared(child, numbers).map(Transformed::yes))?.data;
        let node = Arc::new(Shared { number: *number, is_once: false, input });
        Ok(Transformed::new(LogicalPlan::Extension(Extension { node }), true, TreeNodeRecursion::Jump))
    };
    plan.transform_down_with_subqueries(replace).data()
}

/// A part of a plan, with the tables that it reads: plans are equal, too, that read tables of one name and schema.
#[derive(PartialEq, Eq, Hash)]
struct Part {
    plan: LogicalPlan,
    tables: Vec<*const ()>,
}

impl Part {
    fn of(plan: &LogicalPlan) -> Result<Self> {
        let mut tables = Vec::new();
        plan.apply_with_subqueries(|node| {
            if let LogicalPlan::TableScan(scan) = node {
                tables.push(match source_as_provider(&scan.source) {
                    Ok(provider) => Arc::as_ptr(&provider).cast(),
                    Err(_) => Arc::as_ptr(&scan.source).cast(),
                });
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(Self { plan: plan.clone(), tables })
    }
}

fn is_group(node: &LogicalPlan) -> bool {
    matches!(node, LogicalPlan::Aggregate(_) | LogicalPlan::Distinct(_))
}

/// Whether a part of a plan gives the same rows wherever it is.
fn is_fixed(plan: &LogicalPlan) -> Result<bool> {
    let mut is_fixed = true;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            is_fixed &= !expression.exists(|part| {
                Ok(part.is_volatile_node()
                    || matches!(
                        part,
                        Expr::OuterReferenceColumn(..)
                            | Expr::ScalarSubquery(_)
                            | Expr::InSubquery(_)
                            | Expr::Exists(_)
                    ))
            })?;
            Ok(if is_fixed { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
        })
    })?;
    Ok(is_fixed)
}

/// What a plan has in several places, all of the same number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Hash)]
struct Shared {
    number: usize,
    /// Whether all places must have the same rows: what makes them may give others each time.
    is_once: bool,
    input: LogicalPlan,
}

/// `plan`, run once for all the places where its clones stand.
pub(crate) fn once(plan: LogicalPlan) -> LogicalPlan {
    /// Beyond the numbers of what a plan has more than once, and another one for each call: plans are put together.
    static NEXT: AtomicUsize = AtomicUsize::new(1 << 32);
    let node = Shared { number: NEXT.fetch_add(1, Ordering::Relaxed), is_once: true, input: plan };
    LogicalPlan::Extension(Extension { node: Arc::new(node) })
}

/// Which one a node of [`once`] is.
pub(crate) fn number_of_once(node: &LogicalPlan) -> Option<usize> {
    let LogicalPlan::Extension(extension) = node else { return None };
    let shared = extension.node.as_any().downcast_ref::<Shared>()?;
    shared.is_once.then_some(shared.number)
}

impl UserDefinedLogicalNodeCore for Shared {
    fn name(&self) -> &'static str {
        "Shared"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared: number={}", self.number)
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        match (inputs.pop(), inputs.is_empty()) {
            (Some(input), true) => Ok(Self { input, ..*self }),
            _ => internal_err!("what is shared has one input"),
        }
    }
}

/// The places so far of what is shared in a plan, by number.
#[derive(Default)]
struct Shares(Mutex<HashMap<usize, Arc<Places>>>);

#[async_trait::async_trait]
impl ExtensionPlanner for Shares {
    async fn plan_extension(
        &self,
        _: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        inputs: &[Arc<dyn ExecutionPlan>],
        _: &dyn Session,
        _: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let (Some(shared), [input]) = (node.as_any().downcast_ref::<Shared>(), inputs) else {
            return Ok(None);
        };
        let places = self.0.lock().entry(shared.number).or_default().clone();
        Ok(Some(Arc::new(SharedExec::new(shared.number, shared.is_once, places, input.clone()))))
    }
}
