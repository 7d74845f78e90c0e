//! Scans that are filtered by a key of a join beyond those that the planner filters.
//!
//! The filter by all keys of a join together goes no further down its probe side than all of them do: not through groups
//! of which one is an aggregate. A filter by one key does.
//!
//! And what a join leaves has only keys that its build side has. Where another join above asks that a row of its own
//! build side has an equal key, that side is read through the same filter ([`of_probe_side`]), when it is known
//! ([`made_before`]).

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinSide, JoinType};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, DynamicFilterPhysicalExpr};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::joins::utils::{ColumnIndex, build_join_schema};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};
use keirin_operators::join::Kind;
use keirin_operators::ordered::Wanted;

use super::JoinExec;
use super::filter::is_used;
use crate::compile::subplans::SharedExec;
use crate::sources::stored::StoredScan;

/// `plan` with a scan filtered by `filter`, which is about this column of the plan; `None` if it comes from no scan as it is,
/// or rows of other values matter for those that are left.
pub(super) fn narrowed(
    plan: &Arc<dyn ExecutionPlan>,
    column: usize,
    filter: &Arc<DynamicFilterPhysicalExpr>,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(scan) = plan.downcast_ref::<StoredScan>() {
        let scan = scan.filtered(column, |column| filter.clone().with_new_children(vec![column]))?;
        return Ok(scan.map(|scan| Arc::new(scan) as Arc<dyn ExecutionPlan>));
    }
    let Some((child, column)) = origin(plan, column) else { return Ok(None) };
    let mut children: Vec<_> = plan.children().into_iter().cloned().collect();
    let Some(narrowed) = narrowed(&children[child], column, filter)? else { return Ok(None) };
    children[child] = narrowed;
    replace_children_if_necessary(plan.clone(), children).map(Some)
}

/// Which column of which input a column is, if rows of other values make no difference.
fn origin(plan: &Arc<dyn ExecutionPlan>, column: usize) -> Option<(usize, usize)> {
    let place = |expression: &Arc<dyn PhysicalExpr>| expression.downcast_ref::<Column>().map(Column::index);
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        return Some((0, place(&projection.expr()[column].expr)?));
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        let keys = aggregate.group_expr();
        let is_plain = keys.is_single() && aggregate.limit_options().is_none();
        return Some((0, place(&keys.expr().get(column).filter(|_| is_plain)?.0)?));
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        if *join.join_type() != JoinType::Inner || join.fetch().is_some() {
            return None;
        }
        let (_, columns) = build_join_schema(&join.left().schema(), &join.right().schema(), join.join_type());
        let column = join.projection.as_ref().map_or(column, |projection| projection[column]);
        return Some((usize::from(columns[column].side == JoinSide::Right), columns[column].index));
    }
    if let Some(join) = plan.downcast_ref::<JoinExec>() {
        let work = &join.work;
        // Of the nearest rows others take the place of those that go.
        let gives_all = work.ranges.as_ref().is_none_or(|ranges| ranges.wanted == Wanted::All);
        let is_plain = work.kind == Kind::Inner && join.fetch.is_none() && gives_all;
        let column = &work.output[column];
        return is_plain.then_some((usize::from(column.side == JoinSide::Right), column.index));
    }
    let passes_on = plan.is::<RepartitionExec>()
        || plan.is::<CooperativeExec>()
        || plan.is::<CoalescePartitionsExec>() && plan.fetch().is_none();
    passes_on.then_some((0, column))
}

/// The build side of `join`, filtered by what joins below its probe side know of the keys that are left there.
pub(super) fn of_probe_side(join: &JoinExec) -> Result<Arc<dyn ExecutionPlan>> {
    let (work, mut left) = (&join.work, join.left.clone());
    // Build rows without a pair are given elsewhere.
    let gives_pairs_alone = !work.kind.marks_build_rows() || work.kind == Kind::LeftSemi;
    if !gives_pairs_alone || work.nulls_are_equal {
        return Ok(left);
    }
    for (build_key, probe_key) in work.left_keys.iter().zip(&work.right_keys).take(work.equal_count()) {
        let (Some(build_key), Some(probe_key)) =
            (build_key.downcast_ref::<Column>(), probe_key.downcast_ref::<Column>())
        else {
            continue;
        };
        let mut filters = Vec::new();
        passed_filters(&join.right, probe_key.index(), &mut filters)?;
        for filter in filters {
            left = narrowed(&left, build_key.index(), &filter)?.unwrap_or(left);
        }
    }
    Ok(left)
}

/// Filters of joins that all values of a column of `plan` have passed.
fn passed_filters(
    plan: &Arc<dyn ExecutionPlan>,
    column: usize,
    filters: &mut Vec<Arc<DynamicFilterPhysicalExpr>>,
) -> Result<()> {
    let Some(join) = plan.downcast_ref::<JoinExec>() else {
        return match origin(plan, column) {
            Some((child, column)) => passed_filters(plan.children()[child], column, filters),
            None => Ok(()),
        };
    };
    let work = &join.work;
    if !matches!(work.kind, Kind::Inner | Kind::RightSemi) || work.nulls_are_equal {
        return Ok(());
    }
    let ColumnIndex { index, side } = work.output[column];
    let is_it = |key: &Arc<dyn PhysicalExpr>| {
        key.downcast_ref::<Column>().is_some_and(|column| column.index() == index)
    };
    let keys = if side == JoinSide::Left { &work.left_keys } else { &work.right_keys };
    let Some(place) = keys.iter().take(work.equal_count()).position(is_it) else {
        let child = if side == JoinSide::Left { &join.left } else { &join.right };
        return passed_filters(child, index, filters);
    };
    let by_key = work.key_filters.iter().find(|key| key.place == place).map(|key| &key.filter);
    let whole = work.dynamic_filter.as_ref().filter(|_| keys.len() == 1);
    if let Some(filter) = by_key.or(whole)
        && is_selective(&join.left)?
        && is_used(&join.right, filter)?
    {
        filters.push(filter.clone());
    }
    match work.right_keys[place].downcast_ref::<Column>() {
        Some(key) => passed_filters(&join.right, key.index(), filters),
        None => Ok(()),
    }
}

/// Whether conditions leave out some rows of `plan`, beside those of joins.
fn is_selective(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    plan.exists(|node| {
        let has_conditions = node.downcast_ref::<StoredScan>().is_some_and(StoredScan::has_conditions);
        Ok(has_conditions || node.is::<FilterExec>())
    })
}

/// The joins below the probe side of a join that have to be known before its build side is read: those by whose filters it
/// is read, and those by whose filters theirs are.
pub(super) fn made_before(
    left: &Arc<dyn ExecutionPlan>,
    right: &Arc<dyn ExecutionPlan>,
) -> Result<Vec<Arc<dyn ExecutionPlan>>> {
    let mut joins = Vec::new();
    right.apply(|node| {
        if node.is::<JoinExec>() {
            joins.push(node.clone());
        }
        Ok(if node.is::<SharedExec>() { TreeNodeRecursion::Jump } else { TreeNodeRecursion::Continue })
    })?;
    let mut sides = vec![left.clone()];
    let mut is_needed = vec![false; joins.len()];
    while let Some(side) = sides.pop() {
        for (node, is_needed) in joins.iter().zip(&mut is_needed).filter(|(_, is_needed)| !**is_needed) {
            let Some(join) = node.downcast_ref::<JoinExec>() else { continue };
            for filter in join.filters() {
                *is_needed |= is_used(&side, filter)?;
            }
            if *is_needed {
                sides.push(join.left.clone());
            }
        }
    }
    Ok(joins.into_iter().zip(is_needed).filter(|(_, is_needed)| *is_needed).map(|(join, _)| join).collect())
}
