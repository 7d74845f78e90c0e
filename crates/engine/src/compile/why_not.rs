//! Why a step of a plan is DataFusion's, for EXPLAIN.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, InputOrderMode};

use super::grouping::Keys;
use super::{sorting, windows};
use crate::types::sql_type_name;

/// What kept our operators from the place of `plan`; `None` where there is none that could have it, or that is not known.
pub(crate) fn why_not(plan: &Arc<dyn ExecutionPlan>) -> Option<String> {
    if let Some(sort) = plan.downcast_ref::<SortExec>() {
        let schema = sort.input().schema();
        let keys = sort.expr().iter().map(|key| key.expr.data_type(&schema));
        let unknown = keys.flatten().find(|data_type| !sorting::has_kernel(data_type));
        return match (sort.fetch(), unknown) {
            (Some(_), _) => None,
            (None, unknown) => unknown.map(|data_type| keys_of(&data_type)),
        };
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        let (keys, schema) = (aggregate.group_expr(), aggregate.input().schema());
        if keys.is_true_no_grouping() {
            return None;
        }
        if !keys.is_single() {
            return Some("grouping sets".to_owned());
        }
        let types = keys.expr().iter().map(|(key, _)| key.data_type(&schema));
        if let Some(data_type) = types.flatten().find(|data_type| !is_key(data_type)) {
            return Some(keys_of(&data_type));
        }
        let is_in_order = *aggregate.input_order_mode() != InputOrderMode::Linear;
        let is_ordered = aggregate.aggr_expr().iter().any(|function| !function.order_bys().is_empty());
        return match (is_in_order, is_ordered) {
            (true, _) => Some("its rows come in the order of the keys".to_owned()),
            (_, true) => Some("functions that depend on the order of rows".to_owned()),
            _ => None,
        };
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        if join.null_aware {
            return Some("NOT IN, which a NULL decides".to_owned());
        }
        let schema = join.left().schema();
        let types = join.on().iter().flat_map(|(key, _)| key.data_type(&schema));
        let unknown = types.into_iter().find(|data_type| !is_key(data_type));
        return unknown.map(|data_type| keys_of(&data_type));
    }
    if plan.is::<NestedLoopJoinExec>() || plan.is::<CrossJoinExec>() {
        return Some("neither equal keys nor ranges".to_owned());
    }
    let window = plan.downcast_ref::<WindowAggExec>().map(WindowAggExec::window_expr);
    let bounded = plan.downcast_ref::<BoundedWindowAggExec>().map(BoundedWindowAggExec::window_expr);
    let schema = plan.children().first()?.schema();
    let unknown = window.or(bounded)?.iter().find(|expr| !windows::is_ours(expr, &schema));
    unknown.map(|expr| format!("the function {}", expr.name()))
}

/// Whether our tables take such keys.
fn is_key(data_type: &DataType) -> bool {
    Keys::new([(data_type.clone(), true)]).is_some()
}

fn keys_of(data_type: &DataType) -> String {
    format!("keys of type {}", sql_type_name(data_type))
}
