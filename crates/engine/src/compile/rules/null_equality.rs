//! Joins that take NULL for equal to NULL, as subqueries and set operations become, kept apart from those that do not.
//!
//! A join has one answer to whether NULL equals NULL for all of its keys. DataFusion adds keys of `a = b` to joins of
//! `a IS NOT DISTINCT FROM b` nevertheless, and joins several tables anew with the answer of the join above:
//! `WHERE t.a = (SELECT max(b) FROM u WHERE u.c > t.c)` found rows whose `a` is NULL.

use std::sync::Arc;

use datafusion::common::NullEquality;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, Filter, Join, JoinType, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use super::passage::Passage;

/// DataFusion's rule that makes conditions keys of joins; those that NULL never meets are left out of the rows of a join
/// that takes NULL for equal.
#[derive(Debug)]
pub(crate) struct EqualKeys(pub(crate) Arc<dyn OptimizerRule + Send + Sync>);

impl OptimizerRule for EqualKeys {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let known = match &plan {
            LogicalPlan::Join(join) if join.null_equality == NullEquality::NullEqualsNull => join.on.len(),
            _ => return self.0.rewrite(plan, config),
        };
        self.0.rewrite(plan, config)?.map_data(|plan| match plan {
            LogicalPlan::Join(join) => Ok(LogicalPlan::Join(without_nulls(join, known)?)),
            plan => Ok(plan),
        })
    }
}

/// A join whose keys but for the first `known` ones are not NULL.
fn without_nulls(mut join: Join, known: usize) -> Result<Join> {
    for (left, right) in &join.on[known..] {
        let (side, key) = match join.join_type {
            JoinType::Inner
            | JoinType::Right
            | JoinType::RightSemi
            | JoinType::RightAnti
            | JoinType::RightMark => (&mut join.left, left),
            JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
                (&mut join.right, right)
            }
            JoinType::Full => {
                let is_known = left.clone().is_not_null();
                join.filter = Some(match join.filter.take() {
                    Some(filter) => filter.and(is_known),
                    None => is_known,
                });
                continue;
            }
        };
        let filter = Filter::try_new(Expr::is_not_null(key.clone()), side.clone())?;
        *side = Arc::new(LogicalPlan::Filter(filter));
    }
    Ok(join)
}

/// DataFusion's rule that joins tables in an order without cross joins; joins that take NULL for equal stay as they are.
#[derive(Debug)]
pub(crate) struct CrossJoins(pub(crate) Arc<dyn OptimizerRule + Send + Sync>);

impl OptimizerRule for CrossJoins {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let fenced = plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Join(join) if is_null_equal(&join) => {
                let mut join = join;
                for side in [&mut join.left, &mut join.right] {
                    if matches!(side.as_ref(), LogicalPlan::Join(side) if side.join_type == JoinType::Inner) {
                        *side = Arc::new(Passage::of_joins(Arc::unwrap_or_clone(side.clone())));
                    }
                }
                Ok(Transformed::yes(Passage::of_joins(LogicalPlan::Join(join))))
            }
            node => Ok(Transformed::no(node)),
        })?;
        if !fenced.transformed {
            return self.0.rewrite(fenced.data, config);
        }
        let rewritten = self.0.rewrite(fenced.data, config)?;
        let plan = rewritten.data.transform_up_with_subqueries(Passage::without_joins).data()?;
        Ok(Transformed::new_transformed(plan, rewritten.transformed))
    }
}

fn is_null_equal(join: &Join) -> bool {
    join.join_type == JoinType::Inner && join.null_equality == NullEquality::NullEqualsNull
}
