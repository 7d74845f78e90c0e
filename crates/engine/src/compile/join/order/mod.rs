//! The order of joins, by what is known of the inputs' rows.
//!
//! DataFusion joins tables in the order in which they are written. [`JoinOrder`] takes inner joins apart that follow on
//! each other, together with the IN and EXISTS above them: into relations, the conditions between them, and the sets that
//! keys have to be in. It looks for the cheapest tree, by dynamic programming over sets of relations (as G. Moerkotte
//! and T. Neumann, "Analysis of two existing and one new dynamic programming algorithm for the generation of optimal
//! bushy join trees without cross products", VLDB 2006, but by all splits of a set, which are few for ten relations),
//! and beyond by joining the cheapest pair first.
//!
//! The rows of a join are estimated as the product of its relations' rows, divided for each equality by the distinct keys
//! of the side that has more. That is often wrong by much, so the order as written stays unless the other one promises a
//! multiple (`search.rs`).

mod build;
mod search;

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinSide, JoinType, NullEquality, Statistics};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::utils::ColumnIndex;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, PartitionMode};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};

use crate::compile::fast_path;
use crate::compile::rules::moved;

type Plan = Arc<dyn ExecutionPlan>;
type Expr = Arc<dyn PhysicalExpr>;
/// A set of relations, a bit each.
type Set = u32;

/// The part of rows that a condition is taken to leave of which nothing is known.
const UNKNOWN_CONDITION: f64 = 0.2;
/// Relations and sets of keys are bits, so more joins and projections than twice both are not looked through.
const STEPS_MAX: usize = 128;

/// See the [module](self). It runs before the optimizer chooses sides.
#[derive(Debug)]
pub(crate) struct JoinOrder;

impl PhysicalOptimizerRule for JoinOrder {
    fn optimize(&self, plan: Plan, options: &ConfigOptions) -> Result<Plan> {
        if !fast_path::is_on(options) {
            return Ok(plan);
        }
        plan.transform_down(|node| {
            let graph = Graph::of(&node)?;
            Ok(match graph.and_then(|graph| Some((graph.better()?, graph))) {
                Some((tree, graph)) => Transformed::yes(graph.plan(&node, &tree)?),
                None => Transformed::no(node),
            })
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "join_order"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// What is joined.
struct Relation {
    plan: Plan,
    /// The number of its first column; columns of all relations are numbered.
    first: usize,
    rows: f64,
    /// The rows of the table below, of which conditions may have left out some.
    all_rows: f64,
    distinct: Vec<Option<f64>>,
}

/// Two expressions that are equal, each of columns of one relation.
struct Equality {
    sides: [Expr; 2],
    relations: [usize; 2],
}

/// A condition that is no equality, over more than one relation.
struct Condition {
    expression: Expr,
    relations: Set,
}

/// A set that the keys of a relation must be in, or must not.
struct Keys {
    plan: Plan,
    on: Vec<(Expr, Expr)>,
    join_type: JoinType,
    relation: usize,
    rows: f64,
    /// The part of the relation's rows that is left.
    kept: f64,
}

/// Joins without an order.
#[derive(Default)]
struct Graph {
    relations: Vec<Relation>,
    equalities: Vec<Equality>,
    conditions: Vec<Condition>,
    keys: Vec<Keys>,
    /// The part of pairs of rows that passes, for each two relations.
    pairs: Vec<Vec<f64>>,
    /// What is done in the order as written.
    written: Vec<Step>,
    /// The numbers of the columns that come out.
    output: Vec<usize>,
    mode: Option<PartitionMode>,
    /// The operators that were looked at.
    steps: usize,
}

/// A set of relations and of sets of keys that were applied.
#[derive(Clone, Copy, Default)]
struct Joined {
    relations: Set,
    keys: Set,
}

impl Joined {
    fn and(self, other: Self) -> Self {
        Self { relations: self.relations | other.relations, keys: self.keys | other.keys }
    }
}

enum Step {
    Join(Joined, Joined),
    Keys(usize, Joined),
}

/// A tree of joins; sets of keys are applied to their relations at once.
enum Tree {
    Relation(usize),
    Join(Box<[Tree; 2]>),
}

impl Tree {
    fn relations(&self) -> Set {
        match self {
            Self::Relation(relation) => 1 << relation,
            Self::Join(sides) => sides[0].relations() | sides[1].relations(),
        }
    }
}

/// Whether a join may be taken apart.
fn is_free(join: &HashJoinExec) -> bool {
    let is_plain = |expression: &Expr| {
        // Also what can fail is volatile by its own account.
        !expression.exists(|node| Ok(node.is_volatile_node())).unwrap_or(true)
    };
    !join.null_aware
        && join.fetch().is_none()
        && join.null_equality() == NullEquality::NullEqualsNothing
        && join.on().iter().all(|(left, right)| is_plain(left) && is_plain(right))
        && match join.join_type() {
            JoinType::Inner => join.filter().is_none_or(|filter| is_plain(filter.expression())),
            JoinType::LeftSemi | JoinType::LeftAnti => join.filter().is_none(),
            _ => false,
        }
}

/// The join, if it may be taken apart.
fn free(plan: &Plan) -> Option<&HashJoinExec> {
    plan.downcast_ref::<HashJoinExec>().filter(|join| is_free(join))
}

/// The columns of a projection that computes nothing.
fn chosen(projection: &ProjectionExec) -> Option<Vec<usize>> {
    projection.expr().iter().map(|one| Some(one.expr.downcast_ref::<Column>()?.index())).collect()
}

/// Whether it is a free join or a cross product, or columns of one.
fn is_inner(plan: &Plan) -> bool {
    match plan.downcast_ref::<ProjectionExec>() {
        Some(projection) => chosen(projection).is_some() && is_inner(projection.input()),
        None => free(plan).is_some() || plan.is::<CrossJoinExec>(),
    }
}

fn statistics(plan: &Plan) -> Option<Arc<Statistics>> {
    StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new()).ok()
}

/// The estimated rows of a plan. A condition of which the optimizer knows nothing leaves some, too.
fn rows(plan: &Plan) -> Option<f64> {
    let known = *statistics(plan)?.num_rows.get_value()? as f64;
    let is_one_input = plan.is::<FilterExec>() || plan.is::<ProjectionExec>() || plan.is::<AggregateExec>();
    let Some(input) = plan.children().first().filter(|_| is_one_input).and_then(|input| rows(input)) else {
        return Some(known);
    };
    let is_unknown = plan.is::<FilterExec>() && known >= input;
    Some(if is_unknown { input * UNKNOWN_CONDITION } else { known.min(input) })
}

/// The rows of the table that a relation is of, if it is of one.
fn table_rows(plan: &Plan) -> Option<f64> {
    match plan.children()[..] {
        [] => statistics(plan)?.num_rows.get_value().map(|rows| *rows as f64),
        [input] => table_rows(input),
        _ => None,
    }
}

/// The count of groups that a plan filters, if it does.
fn groups(plan: &Plan) -> Option<f64> {
    if plan.is::<AggregateExec>() {
        return Some(rows(plan)?.max(1.0));
    }
    let is_filtered = plan.is::<FilterExec>() || plan.is::<ProjectionExec>();
    if is_filtered { groups(plan.children()[0]) } else { None }
}

impl Graph {
    /// The joins from a plan down; `None` where there is nothing to choose or too little is known.
    fn of(plan: &Plan) -> Result<Option<Self>> {
        if free(plan).is_none() {
            return Ok(None);
        }
        let mut graph = Self::default();
        let Some((output, _)) = graph.add(plan)? else { return Ok(None) };
        graph.output = output;
        let count = graph.relations.len();
        let pairs = |one| (0..count).map(|other| graph.paired(one, other)).collect();
        graph.pairs = (0..count).map(pairs).collect();
        let choices = graph.relations.len() + graph.keys.len();
        Ok((choices > 2 && graph.relations.len() > 1).then_some(graph))
    }

    /// Adds what a plan joins; returns the numbers of its columns, or `None` if something stands against it.
    fn add(&mut self, plan: &Plan) -> Result<Option<(Vec<usize>, Joined)>> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Ok(None);
        }
        if let Some(projection) = plan.downcast_ref::<ProjectionExec>().filter(|_| is_inner(plan)) {
            let Some((columns, joined)) = self.add(projection.input())? else { return Ok(None) };
            let chosen = chosen(projection).into_iter().flatten();
            return Ok(Some((chosen.map(|column| columns[column]).collect(), joined)));
        }
        if let Some(cross) = plan.downcast_ref::<CrossJoinExec>() {
            let Some((mut columns, left)) = self.add(cross.left())? else { return Ok(None) };
            let Some((right_columns, right)) = self.add(cross.right())? else { return Ok(None) };
            columns.extend(right_columns);
            return Ok(Some((columns, self.join(left, right))));
        }
        let Some(join) = free(plan) else { return Ok(self.add_relation(plan)) };
        self.mode = self.mode.or(Some(*join.partition_mode()));
        let Some((mut columns, left)) = self.add(join.left())? else { return Ok(None) };
        let joined = if *join.join_type() == JoinType::Inner {
            let Some((right_columns, right)) = self.add(join.right())? else { return Ok(None) };
            for (left, right) in join.on() {
                let sides =
                    [moved(left, |column| columns[column])?, moved(right, |column| right_columns[column])?];
                let [Some(left), Some(right)] = [self.relation_of(&sides[0]), self.relation_of(&sides[1])]
                else {
                    return Ok(None);
                };
                self.equalities.push(Equality { sides, relations: [left, right] });
            }
            if let Some(filter) = join.filter() {
                let of_side = |column: &ColumnIndex| match column.side {
                    JoinSide::Left => Some(columns[column.index]),
                    JoinSide::Right => Some(right_columns[column.index]),
                    JoinSide::None => None,
                };
                let inputs: Option<Vec<usize>> = filter.column_indices().iter().map(of_side).collect();
                let Some(inputs) = inputs else { return Ok(None) };
                let expression = moved(filter.expression(), |column| inputs[column])?;
                let relations = self.relations_of(&expression);
                if relations.count_ones() < 2 {
                    return Ok(None);
                }
                self.conditions.push(Condition { expression, relations });
            }
            columns.extend(right_columns);
            self.join(left, right)
        } else {
            let mut on = Vec::with_capacity(join.on().len());
            for (left, right) in join.on() {
                on.push((moved(left, |column| columns[column])?, right.clone()));
            }
            let relations = on.iter().fold(0, |all, (key, _)| all | self.relations_of(key));
            if relations.count_ones() != 1 || self.keys.len() == Set::BITS as usize {
                return Ok(None);
            }
            let relation = relations.trailing_zeros() as usize;
            let estimate = rows(join.right());
            let Some((rows, kept)) = estimate.zip(self.kept(join, &on, relation)) else { return Ok(None) };
            let (plan, join_type, number) = (join.right().clone(), *join.join_type(), self.keys.len());
            self.keys.push(Keys { plan, on, join_type, relation, rows, kept });
            self.written.push(Step::Keys(number, left));
            Joined { keys: left.keys | 1 << number, ..left }
        };
        if let Some(projection) = &join.projection {
            columns = projection.iter().map(|column| columns[*column]).collect();
        }
        Ok(Some((columns, joined)))
    }

    fn join(&mut self, left: Joined, right: Joined) -> Joined {
        self.written.push(Step::Join(left, right));
        left.and(right)
    }

    fn add_relation(&mut self, plan: &Plan) -> Option<(Vec<usize>, Joined)> {
        let found = statistics(plan)?;
        let rows = rows(plan)?;
        let first = self.relations.last().map_or(0, |last| last.first + last.distinct.len());
        let distinct: Vec<_> = found
            .column_statistics
            .iter()
            .map(|column| column.distinct_count.get_value().map(|count| *count as f64))
            .collect();
        let columns = (first..first + distinct.len()).collect();
        let number = u32::try_from(self.relations.len()).ok()?;
        let all_rows = table_rows(plan).unwrap_or(rows).max(rows);
        self.relations.push(Relation { plan: plan.clone(), first, rows: rows.max(1.0), all_rows, distinct });
        Some((columns, Joined { relations: 1_u32.checked_shl(number)?, keys: 0 }))
    }

    fn relation_of_column(&self, column: usize) -> usize {
        self.relations.partition_point(|relation| relation.first <= column) - 1
    }

    fn relations_of(&self, expression: &Expr) -> Set {
        let columns = columns_of(expression).into_iter();
        columns.fold(0, |all, column| all | 1 << self.relation_of_column(column))
    }

    /// The relation whose columns the expression is of, if it is of one.
    fn relation_of(&self, expression: &Expr) -> Option<usize> {
        let relations = self.relations_of(expression);
        (relations.count_ones() == 1).then(|| relations.trailing_zeros() as usize)
    }
}

/// The numbers of the columns of an expression, each once.
fn columns_of(expression: &Expr) -> Vec<usize> {
    let mut columns = Vec::new();
    let found = expression.apply(|node| {
        if let Some(column) = node.downcast_ref::<Column>()
            && !columns.contains(&column.index())
        {
            columns.push(column.index());
        }
        Ok(TreeNodeRecursion::Continue)
    });
    debug_assert!(found.is_ok(), "nothing in it fails");
    columns
}
