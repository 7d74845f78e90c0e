//! Grouping sets are grouped from one another.
//!
//! Where one of the sets has all keys, as in ROLLUP and CUBE, only its groups are made of rows; the groups of each other
//! set are made of those of the smallest set that has its keys. Without this, each row would be grouped once for each set.
//! Left alone are aggregates that other groups do not tell, such as `count(DISTINCT x)`, or that would be rounded more
//! than once.
//!
//! (Gray et al.: "Data Cube: A Relational Aggregation Operator Generalizing Group-By, Cross-Tab, and Sub-Totals", Data
//! Mining and Knowledge Discovery 1, 1997.)

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, ExprSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams, GroupingSet};
use datafusion::logical_expr::utils::grouping_set_to_exprlist;
use datafusion::logical_expr::{
    Aggregate, AggregateUDF, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Projection, Union, cast,
    lit, when,
};

use super::is_fixed;
use crate::compile::rules::may_be_cut;
use crate::expressions::arithmetic::{CheckedSum, average_of_sum};

/// More sets than these are left to the planner: what they are made of is planned for each of them.
const SETS_MAX: usize = 12;

/// The plan with each aggregation by grouping sets in steps, where that is possible.
pub(super) fn in_steps(plan: &LogicalPlan) -> Result<LogicalPlan> {
    let replace = |node: LogicalPlan| {
        let steps = match &node {
            LogicalPlan::Aggregate(aggregate) => steps(aggregate)?,
            _ => None,
        };
        Ok(steps.map_or_else(|| Transformed::no(node), Transformed::yes))
    };
    plan.clone().transform_up_with_subqueries(replace).data()
}

fn steps(aggregate: &Aggregate) -> Result<Option<LogicalPlan>> {
    let [Expr::GroupingSet(set)] = &aggregate.group_expr[..] else { return Ok(None) };
    let keys: Vec<Expr> = grouping_set_to_exprlist(&aggregate.group_expr)?.into_iter().cloned().collect();
    let Some(sets) = sets(set, &keys) else { return Ok(None) };
    let input = LogicalPlan::Aggregate(aggregate.clone());
    let Some(totals) = Totals::new(aggregate)?.filter(|totals| !totals.parts.is_empty()) else {
        return Ok(None);
    };
    // What is not the same each time cannot be shared. The input is planned for each set: sets of sets would be too many.
    if !is_fixed(&input)? || aggregate.input.exists(|node| Ok(is_stepwise(node)))? {
        return Ok(None);
    }
    // The planner's names do not tell casts.
    let parts =
        totals.parts.iter().enumerate().map(|(place, part)| part.clone().alias(format!("part {place}")));
    let finest = Aggregate::try_new(aggregate.input.clone(), keys.clone(), parts.collect())?;
    let finest = LogicalPlan::Aggregate(finest);
    let columns = finest.schema().columns();
    let (keys, parts) = columns.split_at(keys.len());
    let mut levels: Vec<(u64, LogicalPlan)> = Vec::new();
    for set in &sets {
        let others = levels.iter().filter(|(other, _)| other & set == *set);
        let level = match others.min_by_key(|(other, _)| other.count_ones()) {
            None => finest.clone(),
            Some((_, from)) => totals.coarser(from, chosen(*set, keys), parts, &finest)?,
        };
        levels.push((*set, level));
    }
    let branches = levels
        .into_iter()
        .map(|(set, level)| Ok(Arc::new(totals.branch(level, set, keys, parts, aggregate)?)));
    let inputs = branches.collect::<Result<Vec<_>>>()?;
    Ok(Some(LogicalPlan::Union(Union { inputs, schema: aggregate.schema.clone() })))
}

/// Whether a node is what [`steps`] makes.
fn is_stepwise(node: &LogicalPlan) -> bool {
    let id = Aggregate::INTERNAL_GROUPING_ID;
    matches!(node, LogicalPlan::Union(union) if union.schema.has_column_with_unqualified_name(id))
}

/// The keys of each set as bits, those with more keys first; `None` if none has all keys, or two have the same.
fn sets(set: &GroupingSet, keys: &[Expr]) -> Option<Vec<u64>> {
    let bits = |exprs: &[Expr]| {
        exprs.iter().try_fold(0, |bits, expr| Some(bits | 1 << keys.iter().position(|key| key == expr)?))
    };
    if keys.len() > 16 {
        return None;
    }
    let mut sets: Vec<u64> = match set {
        GroupingSet::Rollup(exprs) => {
            (0..=exprs.len()).map(|count| bits(&exprs[..count])).collect::<Option<_>>()?
        }
        GroupingSet::Cube(exprs) => {
            let all = bits(exprs)?;
            (0..=all).filter(|set| set & all == *set).collect()
        }
        GroupingSet::GroupingSets(sets) => sets.iter().map(|set| bits(set)).collect::<Option<_>>()?,
    };
    sets.sort_by_key(|set| std::cmp::Reverse((set.count_ones(), *set)));
    let all = (1 << keys.len()) - 1;
    let differ = sets.windows(2).all(|pair| pair[0] != pair[1]);
    (sets.first() == Some(&all) && differ && sets.len() <= SETS_MAX).then_some(sets)
}

fn chosen(set: u64, keys: &[Column]) -> Vec<Expr> {
    let is_chosen = |(place, _): &(usize, &Column)| set >> place & 1 == 1;
    keys.iter().enumerate().filter(is_chosen).map(|(_, key)| Expr::Column(key.clone())).collect()
}

/// How an aggregate is computed of what the groups keep.
enum Total {
    /// It is one of the parts.
    Part(usize),
    /// It is the average of these values.
    Average { sum: usize, count: usize, of: DataType },
}

/// The aggregates of groups that are grouped further.
struct Totals {
    /// What is kept: sums, counts, minima and maxima.
    parts: Vec<Expr>,
    totals: Vec<Total>,
}

impl Totals {
    /// `None` if the aggregates of groups do not tell those of their union.
    fn new(aggregate: &Aggregate) -> Result<Option<Self>> {
        let schema = aggregate.input.schema();
        let (mut parts, mut totals) = (Vec::new(), Vec::new());
        let mut part = |expr: Expr| {
            parts.iter().position(|other| *other == expr).unwrap_or_else(|| {
                parts.push(expr);
                parts.len() - 1
            })
        };
        for expr in &aggregate.aggr_expr {
            let expr = expr.clone().unalias();
            let Expr::AggregateFunction(AggregateFunction { func, params }) = &expr else { return Ok(None) };
            if params.distinct || !params.order_by.is_empty() || params.null_treatment.is_some() {
                return Ok(None);
            }
            totals.push(match (func.name(), &params.args[..]) {
                ("count" | "min" | "max", _) => Total::Part(part(expr)),
                ("sum", _) if may_be_cut(&expr, schema)? => Total::Part(part(expr)),
                ("avg", [value]) => {
                    let of = value.get_type(schema)?;
                    let value =
                        if of.is_integer() { cast(value.clone(), DataType::Int64) } else { value.clone() };
                    let call = |func, args| {
                        let params = AggregateFunctionParams { args, ..params.clone() };
                        Expr::AggregateFunction(AggregateFunction { func, params })
                    };
                    let sum = call(sum(), vec![value]);
                    if !(of.is_integer() || matches!(of, DataType::Decimal128(..)))
                        || !may_be_cut(&sum, schema)?
                    {
                        return Ok(None);
                    }
                    let count = call(count_udaf(), params.args.clone());
                    Total::Average { sum: part(sum), count: part(count), of }
                }
                _ => return Ok(None),
            });
        }
        Ok(Some(Self { parts, totals }))
    }

    /// The groups of `level` grouped by `keys`, with the same parts.
    fn coarser(
        &self,
        level: &LogicalPlan,
        keys: Vec<Expr>,
        parts: &[Column],
        finest: &LogicalPlan,
    ) -> Result<LogicalPlan> {
        let merged = self.parts.iter().zip(parts).map(|(part, column)| {
            let value = Expr::Column(column.clone());
            match part {
                Expr::AggregateFunction(call) if matches!(call.func.name(), "min" | "max") => {
                    call.func.call(vec![value])
                }
                _ => sum().call(vec![value]),
            }
        });
        let grouped = Aggregate::try_new(Arc::new(level.clone()), keys.clone(), merged.collect())?;
        let values = grouped.schema.columns().split_off(keys.len());
        let named = values.into_iter().zip(&self.parts).zip(parts).map(|((value, part), column)| {
            let value = Expr::Column(value);
            let value = match part {
                Expr::AggregateFunction(call) if call.func.name() == "count" => {
                    when(value.clone().is_not_null(), value).otherwise(lit(0_i64))?
                }
                _ => cast(value, finest.schema().field_from_column(column)?.data_type().clone()),
            };
            Ok(value.alias_qualified(column.relation.clone(), &column.name))
        });
        let exprs = keys.into_iter().map(Ok).chain(named).collect::<Result<Vec<_>>>()?;
        LogicalPlanBuilder::from(LogicalPlan::Aggregate(grouped)).project(exprs)?.build()
    }

    /// The rows of a set, as those of the whole aggregation.
    fn branch(
        &self,
        level: LogicalPlan,
        set: u64,
        keys: &[Column],
        parts: &[Column],
        aggregate: &Aggregate,
    ) -> Result<LogicalPlan> {
        let fields: Vec<_> = aggregate.schema.iter().collect();
        let (key_fields, rest) = fields.split_at(keys.len());
        let (id, total_fields) = (rest[0], &rest[1..]);
        let mut exprs = Vec::with_capacity(fields.len());
        for (place, (key, (_, field))) in keys.iter().zip(key_fields).enumerate() {
            exprs.push(match set >> place & 1 {
                1 => Expr::Column(key.clone()),
                _ => lit(ScalarValue::try_new_null(field.data_type())?),
            });
        }
        // The first key is the highest bit, which is set where the key is not in the set.
        let left_out = (0..keys.len()).fold(0, |bits, place| bits << 1 | (!set >> place & 1));
        exprs.push(lit(ScalarValue::from(left_out).cast_to(id.1.data_type())?));
        for (total, (_, field)) in self.totals.iter().zip(total_fields) {
            let part = |place: usize| Expr::Column(parts[place].clone());
            exprs.push(match total {
                Total::Part(place) => part(*place),
                Total::Average { sum, count, of } => {
                    average_of_sum(of, field.data_type(), field.name()).call(vec![part(*sum), part(*count)])
                }
            });
        }
        let named = exprs
            .into_iter()
            .zip(&fields)
            .map(|(expr, (qualifier, field))| expr.alias_qualified(qualifier.cloned(), field.name()));
        Ok(LogicalPlan::Projection(Projection::try_new(named.collect(), Arc::new(level))?))
    }
}

fn sum() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::new_from_impl(CheckedSum::default()))
}
