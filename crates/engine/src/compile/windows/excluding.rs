//! `EXCLUDE CURRENT ROW`, `GROUP` and `TIES` at the end of frames (SQL:2016, 7.15).
//!
//! Neither the parser nor the planner knows them. So the tokens of the clause become a [mark] among the keys of the
//! partition, and where a physical plan begins, [`Exclusions`] takes it out again and wraps the functions that look at
//! frames. [`WindowRowsExec`](super::WindowRowsExec) knows most of them wrapped; others, and all without the fast path, are
//! evaluated here, frame by frame.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt64Array};
use arrow::compute::{SortColumn, take};
use arrow::datatypes::FieldRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::utils::evaluate_partition_ranges;
use datafusion::common::{ScalarValue, internal_err, not_impl_err};
use datafusion::error::Result;
use datafusion::logical_expr::{LimitEffect, PartitionEvaluator, ScalarUDF, Volatility};
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::window::{
    PlainAggregateWindowExpr, SlidingAggregateWindowExpr, StandardWindowExpr, StandardWindowFunctionExpr,
    WindowExpr,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};

use crate::expressions::functions;

/// The name of the function whose calls are marks.
pub(crate) const MARK: &str = "keirin_exclude";

/// Which rows are not in the frame of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exclusion {
    CurrentRow,
    /// The row and its peers.
    Group,
    /// Its peers.
    Ties,
}

/// The function whose call with the words behind EXCLUDE is a key of partitions that has them excluded, to be registered.
pub(crate) fn mark() -> ScalarUDF {
    // Constants would be computed, and keys that are constants forgotten.
    functions::mark(MARK, "EXCLUDE in a window", Volatility::Volatile)
}

/// What a key of partitions says, if it is a mark.
fn exclusion(key: &Arc<dyn PhysicalExpr>) -> Option<Exclusion> {
    let call = key.downcast_ref::<ScalarFunctionExpr>().filter(|call| call.fun().name() == MARK)?;
    let words = call.args().first()?.downcast_ref::<Literal>()?.value();
    match words.try_as_str()?? {
        "CURRENT ROW" => Some(Exclusion::CurrentRow),
        "GROUP" => Some(Exclusion::Group),
        "TIES" => Some(Exclusion::Ties),
        _ => None,
    }
}

/// Makes [`Excluding`] of marked functions. The rule runs before rows are repartitioned by the keys.
#[derive(Debug)]
pub(crate) struct Exclusions;

impl PhysicalOptimizerRule for Exclusions {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let (exprs, has_partitions) = if let Some(window) = node.downcast_ref::<WindowAggExec>() {
                (window.window_expr(), !window.partition_keys().is_empty())
            } else if let Some(window) = node.downcast_ref::<BoundedWindowAggExec>() {
                (window.window_expr(), !window.partition_keys().is_empty())
            } else {
                return Ok(Transformed::no(node));
            };
            // All functions of an operator have the same keys.
            let keys = exprs.first().map_or_else(Default::default, |expr| expr.partition_by().to_vec());
            let Some(exclusion) = keys.iter().find_map(exclusion) else { return Ok(Transformed::no(node)) };
            let keys: Vec<_> = keys.into_iter().filter(|key| self::exclusion(key).is_none()).collect();
            let exprs = exprs.iter().map(|expr| excluding(expr, exclusion, &keys)).collect::<Result<_>>()?;
            let input = node.children()[0].clone();
            let window = WindowAggExec::try_new(exprs, input, has_partitions && !keys.is_empty())?;
            Ok(Transformed::yes(Arc::new(window)))
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "exclusions"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The function over the partitions of these keys, without the rows.
fn excluding(
    expr: &Arc<dyn WindowExpr>,
    exclusion: Exclusion,
    keys: &[Arc<dyn PhysicalExpr>],
) -> Result<Arc<dyn WindowExpr>> {
    let standard = expr.as_any().downcast_ref::<StandardWindowExpr>();
    let function = if let Some(function) = standard.map(StandardWindowExpr::get_standard_func_expr) {
        match function.create_evaluator()?.uses_window_frame() {
            true => Arc::new(Excluding { of: Of::Value(function.clone()), exclusion }),
            false => function.clone(),
        }
    } else if let Some(aggregate) = aggregate(expr) {
        if has_filter(expr) {
            return not_impl_err!(
                "EXCLUDE in a window beside FILTER is not supported; use CASE in the argument of the function"
            );
        }
        Arc::new(Excluding { of: Of::Aggregate(Arc::new(aggregate.clone())), exclusion })
    } else {
        return internal_err!("{} is an unknown kind of window function", expr.name());
    };
    let (order, frame) = (expr.order_by(), expr.get_window_frame().clone());
    Ok(Arc::new(StandardWindowExpr::new(function, keys, order, frame)))
}

/// The aggregate function that a window function is, if it is one.
pub(super) fn aggregate(expr: &Arc<dyn WindowExpr>) -> Option<&AggregateFunctionExpr> {
    let plain = expr.as_any().downcast_ref::<PlainAggregateWindowExpr>();
    let sliding = expr.as_any().downcast_ref::<SlidingAggregateWindowExpr>();
    let plain = plain.map(PlainAggregateWindowExpr::get_aggregate_expr);
    plain.or(sliding.map(SlidingAggregateWindowExpr::get_aggregate_expr))
}

/// Whether an aggregate function takes only rows that pass a FILTER.
pub(super) fn has_filter(expr: &Arc<dyn WindowExpr>) -> bool {
    // It tells nobody.
    !format!("{expr:?}").ends_with("filter: None }")
}

impl Exclusion {
    /// What is left of the frame of a row with these peers: up to three pieces, in order.
    pub(super) fn pieces(self, row: usize, peers: Range<usize>, frame: Range<usize>) -> [Range<usize>; 3] {
        let inside = |place: usize| place.clamp(frame.start, frame.end);
        let excluded = match self {
            Self::CurrentRow => row..row + 1,
            Self::Group | Self::Ties => peers,
        };
        let (start, end) = (inside(excluded.start), inside(excluded.end));
        let kept = match self {
            Self::Ties => inside(row)..inside(row + 1),
            Self::CurrentRow | Self::Group => end..end,
        };
        [frame.start..start, kept, end..frame.end]
    }
}

/// A function of frames from which rows are excluded.
#[derive(Clone, Debug)]
pub(super) struct Excluding {
    pub(super) of: Of,
    pub(super) exclusion: Exclusion,
}

/// The function of all rows of frames.
#[derive(Clone, Debug)]
pub(super) enum Of {
    Aggregate(Arc<AggregateFunctionExpr>),
    /// `first_value` and the like.
    Value(Arc<dyn StandardWindowFunctionExpr>),
}

impl StandardWindowFunctionExpr for Excluding {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn field(&self) -> Result<FieldRef> {
        match &self.of {
            Of::Aggregate(aggregate) => Ok(aggregate.field()),
            Of::Value(function) => function.field(),
        }
    }

    fn expressions(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        match &self.of {
            Of::Aggregate(aggregate) => aggregate.expressions(),
            Of::Value(function) => function.expressions(),
        }
    }

    fn name(&self) -> &str {
        match &self.of {
            Of::Aggregate(aggregate) => aggregate.name(),
            Of::Value(function) => function.name(),
        }
    }

    fn create_evaluator(&self) -> Result<Box<dyn PartitionEvaluator>> {
        Ok(Box::new(Evaluator { function: self.clone(), peers: Vec::new(), row: 0 }))
    }

    fn limit_effect(&self) -> LimitEffect {
        LimitEffect::Unknown
    }
}

/// Evaluates the function for the rows of a partition, one after the other: in the time of the rows of all frames.
#[derive(Debug)]
struct Evaluator {
    function: Excluding,
    /// Those that are not done.
    peers: Vec<Range<usize>>,
    row: usize,
}

impl PartitionEvaluator for Evaluator {
    /// `values` are the arguments, and behind them what rows are ordered by.
    fn evaluate(&mut self, values: &[ArrayRef], frame: &Range<usize>) -> Result<ScalarValue> {
        let (arguments, order) = values.split_at(self.function.expressions().len());
        if self.row == 0 {
            let row_count = values.first().map_or(frame.end, |values| values.len());
            let order = order.iter().map(|values| SortColumn { values: values.clone(), options: None });
            self.peers = evaluate_partition_ranges(row_count, &order.collect::<Vec<_>>())?;
            self.peers.reverse();
        }
        let peers = self.peers.last().cloned().unwrap_or_default();
        // DataFusion's may end before they begin.
        let frame = frame.start..frame.end.max(frame.start);
        let pieces = self.function.exclusion.pieces(self.row, peers.clone(), frame);
        self.row += 1;
        if self.row == peers.end {
            self.peers.pop();
        }
        let rows = UInt64Array::from_iter_values(pieces.into_iter().flatten().map(|row| row as u64));
        let arguments = arguments.iter().map(|values| Ok(take(values, &rows, None)?));
        let arguments = arguments.collect::<Result<Vec<_>>>()?;
        match &self.function.of {
            Of::Aggregate(aggregate) if rows.is_empty() => {
                aggregate.default_value(aggregate.field().data_type())
            }
            Of::Aggregate(aggregate) => {
                let mut accumulator = aggregate.create_accumulator()?;
                accumulator.update_batch(&arguments)?;
                accumulator.evaluate()
            }
            Of::Value(function) => function.create_evaluator()?.evaluate(&arguments, &(0..rows.len())),
        }
    }

    fn uses_window_frame(&self) -> bool {
        true
    }
}
