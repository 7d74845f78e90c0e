//! LIMIT in a correlated subquery: the rows of each combination of outer values are numbered.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::error::Result;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::{
    Expr, ExprFunctionExt, FetchType, Filter, Limit, LogicalPlan, LogicalPlanBuilder, SkipType, SortExpr, lit,
};

use super::dependent::{Dependent, Names, Outer, named};

/// As [`Dependent`], and by which columns the rows are sorted.
type Ordered = Option<(LogicalPlan, Vec<Column>, Vec<SortExpr>)>;

impl Outer {
    pub(super) fn limit(&self, limit: &Limit, names: &mut Names) -> Result<Dependent> {
        let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
            (limit.get_skip_type()?, limit.get_fetch_type()?)
        else {
            return Ok(None);
        };
        let Some((input, keys, order)) = self.ordered(&limit.input, names)? else { return Ok(None) };
        let position = row_number().partition_by(keys.iter().cloned().map(Expr::Column).collect());
        let position = if order.is_empty() { position } else { position.order_by(order) }.build()?;
        let number = names.of_limit();
        let position = position.alias(&number);
        let number = named(&number);
        let skip = u64::try_from(skip).unwrap_or(u64::MAX);
        let mut wanted = number.clone().gt(lit(skip));
        if let Some(fetch) = fetch {
            let last = skip.saturating_add(u64::try_from(fetch).unwrap_or(u64::MAX));
            wanted = wanted.and(number.lt_eq(lit(last)));
        }
        let columns = limit.input.schema().columns().into_iter().chain(keys.iter().cloned());
        let plan = LogicalPlanBuilder::from(input)
            .window(vec![position])?
            .filter(wanted)?
            .project(columns.map(Expr::Column))?
            .build()?;
        Ok(Some((plan, keys)))
    }

    /// As [`Self::dependent`], with the sort keys that say in which order the rows are, whose columns the plan has beside its
    /// own: what is between a LIMIT and an ORDER BY may drop them.
    fn ordered(&self, plan: &LogicalPlan, names: &mut Names) -> Result<Ordered> {
        match plan {
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => {
                let Some((input, keys)) = self.dependent(&sort.input, names)? else { return Ok(None) };
                let mut columns: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
                let mut order = Vec::with_capacity(sort.expr.len());
                for key in &sort.expr {
                    let name = names.fresh();
                    columns.push(self.replace(key.expr.clone(), &keys)?.alias(&name));
                    order.push(SortExpr { expr: named(&name), ..key.clone() });
                }
                Ok(Some((LogicalPlanBuilder::from(input).project(columns)?.build()?, keys, order)))
            }
            LogicalPlan::Projection(projection) => {
                let Some((input, keys, order)) = self.ordered(&projection.input, names)? else {
                    return Ok(None);
                };
                let mut columns = self.replaced(&projection.expr, &keys, true)?;
                columns.extend(keys.iter().cloned().map(Expr::Column));
                columns.extend(order.iter().map(|key| key.expr.clone()));
                Ok(Some((LogicalPlanBuilder::from(input).project(columns)?.build()?, keys, order)))
            }
            LogicalPlan::Filter(filter) => {
                let Some((input, keys, order)) = self.ordered(&filter.input, names)? else { return Ok(None) };
                let predicate = self.replace(filter.predicate.clone(), &keys)?;
                Ok(Some((LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input))?), keys, order)))
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let Some((input, keys, order)) = self.ordered(&alias.input, names)? else { return Ok(None) };
                let of_alias = |column: Column| Column::new(Some(alias.alias.clone()), column.name);
                let plan = LogicalPlanBuilder::from(input).alias(alias.alias.clone())?.build()?;
                let order = order.into_iter().map(|key| match key.expr {
                    Expr::Column(column) => SortExpr { expr: Expr::Column(of_alias(column)), ..key },
                    expr => SortExpr { expr, ..key },
                });
                Ok(Some((plan, keys.into_iter().map(of_alias).collect(), order.collect())))
            }
            plan => Ok(self.dependent(plan, names)?.map(|(plan, keys)| (plan, keys, Vec::new()))),
        }
    }
}
