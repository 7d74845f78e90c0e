//! The nodes of a plan: what each compares, and what is known of the columns that it gives.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DFSchemaRef};
use datafusion::datasource::source_as_provider;
use datafusion::error::Result;
use datafusion::logical_expr::expr::Sort;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::grouping_set_to_exprlist;
use datafusion::logical_expr::{
    Aggregate, Distinct, DistinctOn, Expr, GroupingSet, JoinType, LogicalPlan, Projection, TableScan, lit,
    when,
};
use datafusion::scalar::ScalarValue;
use keirin_collation::Keys;

use super::known::{Inputs, Known};
use super::{Collated, Rewriter, as_found, is_outer_value};
use crate::expressions::arithmetic::smallest;
use crate::expressions::functions::collations::{is_pair, second_of_pair};
use crate::sources::stored::StoredTable;

impl Rewriter {
    /// See the [module](super).
    pub(super) fn plan(&self, plan: LogicalPlan) -> Result<Collated> {
        let mut inputs = Inputs { schemas: Vec::new(), known: Vec::new() };
        let plan = plan.map_children(|input| {
            let Collated { plan, known } = self.plan(input)?;
            inputs.schemas.push(plan.schema().clone());
            inputs.known.push(known);
            Ok(Transformed::yes(plan))
        })?;
        let plan = plan.data;
        let schema = Arc::new(match &plan {
            LogicalPlan::TableScan(scan) => {
                DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?
            }
            LogicalPlan::Join(join) => join.left.schema().join(join.right.schema())?,
            _ => inputs.schemas.first().map_or_else(DFSchema::empty, |schema| schema.as_ref().clone()),
        });
        match plan {
            LogicalPlan::Aggregate(aggregate) => self.groups(aggregate, &inputs, &schema),
            LogicalPlan::Distinct(Distinct::All(input)) => self.distinct(input, &inputs, &schema),
            LogicalPlan::Distinct(Distinct::On(on)) => self.distinct_on(on, &inputs, &schema),
            LogicalPlan::Sort(mut sort) => {
                sort.expr = self.compared_sorts(sort.expr, &inputs, &schema)?;
                let known = inputs.known.swap_remove(0);
                Ok(Collated { plan: LogicalPlan::Sort(sort), known })
            }
            LogicalPlan::Join(mut join) => {
                for (left, right) in &mut join.on {
                    let sides = [std::mem::take(left), std::mem::take(right)];
                    let [mut of_left, mut of_right] = sides.map(|side| self.compared(side, &inputs, &schema));
                    if let (Ok(left), Ok(right)) = (&mut of_left, &mut of_right)
                        && !is_outer_value(left)
                        && !is_outer_value(right)
                        && let Some((collation, known)) = self.collation(&[left, right], &inputs, &schema)?
                    {
                        *left = self.key(std::mem::take(left), collation, known[0]);
                        *right = self.key(std::mem::take(right), collation, known[1]);
                    }
                    (*left, *right) = (as_found(of_left?)?, as_found(of_right?)?);
                }
                if let Some(filter) = join.filter {
                    join.filter = Some(self.expression(filter, &inputs, &schema)?.0);
                }
                let known = match join.join_type {
                    JoinType::LeftSemi | JoinType::LeftAnti => inputs.known.swap_remove(0),
                    JoinType::RightSemi | JoinType::RightAnti => inputs.known.swap_remove(1),
                    JoinType::LeftMark => with_mark(inputs.known.swap_remove(0)),
                    JoinType::RightMark => with_mark(inputs.known.swap_remove(1)),
                    _ => inputs.known.concat(),
                };
                Ok(Collated { plan: LogicalPlan::Join(join), known })
            }
            plan => {
                let names = NamePreserver::new(&plan);
                let mut of_expressions = Vec::new();
                let plan = plan.map_expressions(|expr| {
                    let name = names.save(&expr);
                    let (rewritten, known) = self.expression(expr, &inputs, &schema)?;
                    of_expressions.push(known);
                    Ok(Transformed::yes(name.restore(rewritten)))
                })?;
                let plan = plan.data.recompute_schema()?;
                let known = self.known_of(&plan, inputs, of_expressions)?;
                Ok(Collated { plan, known })
            }
        }
    }

    /// What is known of the columns of a node that compares nothing by itself, given what is of its expressions.
    fn known_of(
        &self,
        plan: &LogicalPlan,
        mut inputs: Inputs,
        of_expressions: Vec<Known>,
    ) -> Result<Vec<Known>> {
        let known = match plan {
            LogicalPlan::Projection(_) => of_expressions,
            LogicalPlan::Window(_) => [inputs.known.swap_remove(0), of_expressions].concat(),
            LogicalPlan::Union(_) => {
                let mut inputs = inputs.known.into_iter();
                let first = inputs.next().unwrap_or_default();
                inputs.try_fold(first, |all, input| {
                    all.into_iter().zip(input).map(|(all, one)| all.with(one)).collect::<Result<Vec<_>>>()
                })?
            }
            LogicalPlan::TableScan(scan) => self.known_of_table(scan),
            // Rows of the recursive term come later.
            LogicalPlan::RecursiveQuery(_) => {
                let of_first = inputs.known.into_iter().next().unwrap_or_default();
                of_first.into_iter().map(Known::untrimmed).collect()
            }
            // Texts of lists.
            LogicalPlan::Unnest(_) => Vec::new(),
            _ => inputs.known.into_iter().next().unwrap_or_default(),
        };
        let fields = plan.schema().fields();
        let declared = || fields.iter().map(|field| self.or_default(Known::declared(field))).collect();
        Ok(if known.len() == fields.len() { known } else { declared() })
    }

    fn compared_sorts(&self, sorts: Vec<Sort>, inputs: &Inputs, schema: &DFSchemaRef) -> Result<Vec<Sort>> {
        let sort = |sort: Sort| Ok(Sort { expr: self.compared_as_key(sort.expr, inputs, schema)?, ..sort });
        sorts.into_iter().map(sort).collect()
    }

    /// Groups by keys; the texts of a group are the smallest of it.
    fn groups(&self, aggregate: Aggregate, inputs: &Inputs, schema: &DFSchemaRef) -> Result<Collated> {
        let Aggregate { input, group_expr, aggr_expr, schema: given, .. } = aggregate;
        let mut keys: Vec<Key> = Vec::new();
        let mut known = Vec::new();
        for expr in grouping_set_to_exprlist(&group_expr)? {
            let compared = self.compared(expr.clone(), inputs, schema)?;
            known.push(self.known(&compared, inputs, schema)?.of_column());
            let key = self.key_of(&compared, inputs, schema)?.map(as_found).transpose()?;
            let text = as_found(compared)?;
            if key.is_some() || text != *expr {
                keys.push(Key { expr: expr.clone(), text, key, shown: None });
            }
        }
        // The number of the grouping set.
        known.resize(given.fields().len() - aggr_expr.len(), Known::OTHER);
        let mut aggregates = Vec::with_capacity(aggr_expr.len());
        for expr in aggr_expr {
            let name = expr.schema_name().to_string();
            let (rewritten, of_aggregate) = self.expression(expr, inputs, schema)?;
            known.push(of_aggregate);
            let has_name = rewritten.schema_name().to_string() == name;
            aggregates.push(if has_name { rewritten } else { rewritten.unalias().alias(name) });
        }
        let pairs: Vec<bool> = aggregates.iter().map(is_of_pairs).collect();
        if keys.is_empty() && !pairs.contains(&true) {
            let aggregate = Aggregate::try_new_with_schema(input, group_expr, aggregates, given)?;
            return Ok(Collated { plan: LogicalPlan::Aggregate(aggregate), known });
        }
        let key_of = |expr: &Expr| keys.iter().find(|key| key.expr == *expr).map(Key::grouped_by);
        let with_key = |expr: Expr| key_of(&expr).unwrap_or(expr);
        let with_keys = |exprs: Vec<Expr>| exprs.into_iter().map(with_key).collect::<Vec<_>>();
        let groups: Vec<Expr> = grouping_set_to_exprlist(&group_expr)?.into_iter().cloned().collect();
        let is_set = matches!(group_expr[..], [Expr::GroupingSet(_)]);
        let group_expr = group_expr.into_iter().map(|expr| match expr {
            Expr::GroupingSet(set) => Expr::GroupingSet(match set {
                GroupingSet::Rollup(exprs) => GroupingSet::Rollup(with_keys(exprs)),
                GroupingSet::Cube(exprs) => GroupingSet::Cube(with_keys(exprs)),
                GroupingSet::GroupingSets(sets) => {
                    GroupingSet::GroupingSets(sets.into_iter().map(with_keys).collect())
                }
            }),
            expr => with_key(expr),
        });
        let group_expr: Vec<Expr> = group_expr.collect();
        let aggregate_count = aggregates.len();
        // Of what has no key, all of a group are the same.
        let mut shown_count = 0;
        for key in &mut keys {
            if key.key.is_some() {
                let name = format!("{SHOWN}{}", aggregates.len());
                aggregates.push(smallest(key.text.clone()).alias(name));
                key.shown = Some(shown_count);
                shown_count += 1;
            }
        }
        let grouped = Aggregate::try_new(input, group_expr, aggregates)?;
        let columns: Vec<Expr> = grouped.schema.columns().into_iter().map(Expr::Column).collect();
        let (firsts, shown) = columns.split_at(columns.len() - shown_count);
        let group_count = firsts.len() - aggregate_count;
        let columns = given.iter().zip(firsts).enumerate().map(|(index, ((qualifier, field), column))| {
            let place = groups.get(index).filter(|_| index < group_count);
            let place = place.and_then(|group| keys.iter().find(|key| key.expr == *group)?.shown);
            let shown = match place {
                // It is of no text where the key is not one of the set.
                Some(place) if is_set => {
                    let null = lit(ScalarValue::try_from(field.data_type())?);
                    when(column.clone().is_null(), null).otherwise(shown[place].clone())?
                }
                Some(place) => shown[place].clone(),
                None if index >= group_count && pairs[index - group_count] => second_of_pair(column.clone()),
                None => column.clone(),
            };
            let has_name = matches!(&shown, Expr::Column(column)
                if column.relation.as_ref() == qualifier && column.name == *field.name());
            Ok(if has_name { shown } else { shown.alias_qualified(qualifier.cloned(), field.name()) })
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let projection = Projection::try_new(columns, Arc::new(LogicalPlan::Aggregate(grouped)))?;
        Ok(Collated { plan: LogicalPlan::Projection(projection), known })
    }

    fn distinct(&self, input: Arc<LogicalPlan>, inputs: &Inputs, schema: &DFSchemaRef) -> Result<Collated> {
        let columns: Vec<Expr> = schema.columns().into_iter().map(Expr::Column).collect();
        let keys = columns.iter().map(|column| self.key_of(column, inputs, schema));
        let keys: Vec<Option<Expr>> = keys.collect::<Result<_>>()?;
        if keys.iter().all(Option::is_none) {
            let known = inputs.known[0].clone();
            return Ok(Collated { plan: LogicalPlan::Distinct(Distinct::All(input)), known });
        }
        self.groups(Aggregate::try_new(input, columns, Vec::new())?, inputs, schema)
    }

    fn distinct_on(&self, on: DistinctOn, inputs: &Inputs, schema: &DFSchemaRef) -> Result<Collated> {
        let DistinctOn { on_expr, select_expr, sort_expr, input, .. } = on;
        let on_expr = on_expr.into_iter().map(|expr| self.compared_as_key(expr, inputs, schema));
        let on_expr = on_expr.collect::<Result<Vec<_>>>()?;
        let mut known = Vec::new();
        let select = |expr: Expr| {
            let name = expr.qualified_name();
            let (rewritten, of_expr) = self.expression(expr, inputs, schema)?;
            known.push(of_expr);
            let has_name = rewritten.qualified_name() == name;
            Ok(if has_name { rewritten } else { rewritten.alias_qualified(name.0, name.1) })
        };
        let select_expr = select_expr.into_iter().map(select).collect::<Result<Vec<_>>>()?;
        let sort_expr = sort_expr.map(|sorts| self.compared_sorts(sorts, inputs, schema)).transpose()?;
        let on = DistinctOn::try_new(on_expr, select_expr, sort_expr, input)?;
        Ok(Collated { plan: LogicalPlan::Distinct(Distinct::On(on)), known })
    }

    /// What is known of the columns of a table, those that the scan reads.
    fn known_of_table(&self, scan: &TableScan) -> Vec<Known> {
        let provider = source_as_provider(&scan.source).ok();
        let stored = provider.as_ref().and_then(|table| table.downcast_ref::<StoredTable>());
        let fields = scan.source.schema();
        let all: Vec<usize> = match &scan.projection {
            Some(columns) => columns.clone(),
            None => (0..fields.fields().len()).collect(),
        };
        let known: Vec<Known> =
            all.iter().map(|index| self.or_default(Known::declared(fields.field(*index)))).collect();
        let is_asked = |known: &Known| {
            self.counts(*known).is_some_and(|collation| Keys::new(collation, self.order).identity(false))
        };
        let asked = std::iter::zip(&all, &known).filter(|(_, known)| is_asked(known));
        let asked: Vec<usize> = asked.map(|(index, _)| *index).collect();
        let trimmed = match stored {
            Some(table) if !asked.is_empty() => table.without_trailing_spaces(&asked),
            _ => Vec::new(),
        };
        let with_trimmed =
            |(index, known): (&usize, Known)| Known { is_trimmed: trimmed.contains(index), ..known };
        std::iter::zip(&all, known).map(with_trimmed).collect()
    }
}

/// Whether an aggregate gives pairs of keys and texts.
fn is_of_pairs(aggregate: &Expr) -> bool {
    let Expr::AggregateFunction(call) = aggregate.clone().unalias() else { return false };
    call.params.args.iter().any(is_pair)
}

/// What rows are grouped by in place of an expression.
struct Key {
    /// As it was.
    expr: Expr,
    /// With comparisons by collations.
    text: Expr,
    /// `None` if rows are grouped by the expression.
    key: Option<Expr>,
    /// Which of the aggregates that are added gives the text that is shown.
    shown: Option<usize>,
}

impl Key {
    fn grouped_by(&self) -> Expr {
        self.key.clone().unwrap_or_else(|| self.text.clone())
    }
}

/// The prefix of the names of columns with the texts that are shown of groups.
const SHOWN: &str = "keirin_shown_";

fn with_mark(mut known: Vec<Known>) -> Vec<Known> {
    known.push(Known::OTHER);
    known
}

/// A query with something else in place of its first column.
pub(super) fn with_first(plan: LogicalPlan, make: impl FnOnce(Expr) -> Expr) -> Result<LogicalPlan> {
    let mut columns: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
    let first = std::mem::take(&mut columns[0]);
    let (qualifier, name) = first.qualified_name();
    columns[0] = make(first).alias_qualified(qualifier, name);
    Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan))?))
}
