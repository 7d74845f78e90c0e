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
//! multiple ([`GAIN`]).

use std::sync::Arc;

use arrow::datatypes::{FieldRef, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinSide, JoinType, NullEquality};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, HashJoinExecBuilder, PartitionMode};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};

use crate::fast_path;

type Plan = Arc<dyn ExecutionPlan>;
type Expr = Arc<dyn PhysicalExpr>;
/// A set of relations, a bit each.
type Set = u32;

/// So many times cheaper another order has to be than the one that is written.
const GAIN: f64 = 4.0;
/// Joins that cost no more are not worth a thought: some milliseconds.
const CHEAP: f64 = 1e6;
/// Of so many relations all trees are compared: 3^10 splits.
const ALL_TREES: usize = 10;
/// What a row of the build side costs, in rows of the probe side.
const BUILD_ROW: f64 = 2.0;
/// The part of rows that a condition is taken to leave of which nothing is known.
const UNKNOWN_CONDITION: f64 = 0.2;
/// The least part of rows that are taken to be in a set of keys, and not to be in one.
const LEAST_INSIDE: f64 = 0.001;
const LEAST_OUTSIDE: f64 = 0.1;
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
            let Some(graph) = Graph::of(&node)? else { return Ok(Transformed::no(node)) };
            let mut relations = Vec::with_capacity(graph.relations.len());
            for relation in &graph.relations {
                relations.push(self.optimize(relation.plan.clone(), options)?);
            }
            let mut sets = Vec::with_capacity(graph.keys.len());
            for keys in &graph.keys {
                sets.push(self.optimize(keys.plan.clone(), options)?);
            }
            let plan = match graph.better() {
                Some(tree) => graph.plan(&node, &tree, relations, sets)?,
                None => graph.as_written(node, &mut relations.into_iter(), &mut sets.into_iter())?,
            };
            // Of what is inside, relations and sets were looked at.
            Ok(Transformed::new(plan, true, TreeNodeRecursion::Jump))
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

fn statistics(plan: &Plan) -> Option<Arc<datafusion::common::Statistics>> {
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
                let sides = [numbered(left, &columns)?, numbered(right, &right_columns)?];
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
                let expression = numbered(filter.expression(), &inputs)?;
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
                on.push((numbered(left, &columns)?, right.clone()));
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

    /// Distinct values of an expression in its relation, if they are known.
    fn distinct(&self, expression: &Expr) -> Option<f64> {
        let [column] = columns_of(expression)[..] else { return None };
        let relation = &self.relations[self.relation_of_column(column)];
        relation.distinct[column - relation.first].map(|count| count.min(relation.rows).max(1.0))
    }

    /// The part of a relation's rows whose keys are in a set, or are not.
    fn kept(&self, join: &HashJoinExec, on: &[(Expr, Expr)], relation: usize) -> Option<f64> {
        let found = statistics(join.right())?;
        let left = rows(join.right())?;
        let relation = &self.relations[relation];
        let (mut keys, mut all) = (left, relation.all_rows);
        if let [(key, asked)] = on {
            let column = asked.downcast_ref::<Column>();
            let distinct = column.and_then(|column| {
                found.column_statistics.get(column.index())?.distinct_count.get_value().copied()
            });
            keys = keys.min(distinct.map_or(f64::INFINITY, |count| count as f64));
            // Of a relation with a condition, only the distinct values behind it are known.
            if relation.rows >= relation.all_rows {
                all = self.distinct(key).unwrap_or(all);
            }
        }
        let mut inside = (keys / all.max(1.0)).min(1.0);
        // Groups by the keys are all keys, of which a HAVING leaves some.
        if let Some(groups) = groups(join.right()) {
            inside = inside.min(left / groups);
        }
        Some(match join.join_type() {
            JoinType::LeftSemi => inside.max(LEAST_INSIDE),
            _ => (1.0 - inside).max(LEAST_OUTSIDE),
        })
    }

    /// The part of pairs of rows of two relations that passes their equalities.
    fn paired(&self, one: usize, other: usize) -> f64 {
        let [first, second] = [one, other].map(|relation| &self.relations[relation]);
        // No more keys than the smaller table has rows.
        let most = first.all_rows.min(second.all_rows).max(1.0);
        let (mut values, mut count) = (1.0, 0);
        for equality in &self.equalities {
            if equality.relations == [one, other] || equality.relations == [other, one] {
                values *= match equality.sides.each_ref().map(|side| self.distinct(side)) {
                    [Some(one), Some(other)] => one.max(other),
                    [one, other] => one.or(other).unwrap_or(most).max(most),
                };
                count += 1;
            }
        }
        if count > 1 {
            values = values.min(most);
        }
        1.0 / values
    }

    /// The rows of joined relations.
    fn rows(&self, joined: Joined) -> f64 {
        let is_in = |relation: usize| joined.relations >> relation & 1 == 1;
        let mut rows: f64 = (0..self.relations.len())
            .filter(|relation| is_in(*relation))
            .map(|relation| self.relations[relation].rows)
            .product();
        for (number, keys) in self.keys.iter().enumerate() {
            if joined.keys >> number & 1 == 1 {
                rows *= keys.kept;
            }
        }
        for one in (0..self.relations.len()).filter(|relation| is_in(*relation)) {
            for other in (one + 1..self.relations.len()).filter(|relation| is_in(*relation)) {
                rows *= self.pairs[one][other];
            }
        }
        rows.max(1.0)
    }

    /// All sets of keys of these relations.
    fn with_keys(&self, relations: Set) -> Joined {
        let of_these = |keys: &Keys| relations >> keys.relation & 1 == 1;
        let keys = self.keys.iter().enumerate().filter(|(_, keys)| of_these(keys));
        Joined { relations, keys: keys.fold(0, |all, (number, _)| all | 1 << number) }
    }

    fn cost_as_written(&self) -> f64 {
        let cost = |step: &Step| match step {
            Step::Join(left, right) => cost(self.rows(*left), self.rows(*right), self.rows(left.and(*right))),
            Step::Keys(number, joined) => {
                let after = Joined { keys: joined.keys | 1 << number, ..*joined };
                cost(self.rows(*joined), self.keys[*number].rows, self.rows(after))
            }
        };
        self.written.iter().map(cost).sum()
    }

    /// The cost of applying the sets of keys to each relation.
    fn cost_of_keys(&self) -> f64 {
        let mut applied = vec![0; self.relations.len()];
        let mut sum = 0.0;
        for (number, keys) in self.keys.iter().enumerate() {
            let before = Joined { relations: 1 << keys.relation, keys: applied[keys.relation] };
            applied[keys.relation] |= 1 << number;
            let after = Joined { keys: applied[keys.relation], ..before };
            sum += cost(self.rows(before), keys.rows, self.rows(after));
        }
        sum
    }

    /// A tree that costs much less than the one that is written.
    fn better(&self) -> Option<Tree> {
        let written = self.cost_as_written();
        if written < CHEAP {
            return None;
        }
        let (cost, tree) =
            if self.relations.len() <= ALL_TREES { self.cheapest()? } else { self.by_pairs()? };
        (cost + self.cost_of_keys() < written / GAIN).then_some(tree)
    }

    /// For each relation, those that an equality connects with it.
    fn neighbours(&self) -> Vec<Set> {
        let mut neighbours = vec![0; self.relations.len()];
        for Equality { relations: [left, right], .. } in &self.equalities {
            neighbours[*left] |= 1 << right;
            neighbours[*right] |= 1 << left;
        }
        neighbours
    }

    /// The cheapest of all trees without cross products.
    fn cheapest(&self) -> Option<(f64, Tree)> {
        let count = self.relations.len();
        let neighbours = self.neighbours();
        let of_set = |set: usize| {
            (0..count).filter(|one| set >> one & 1 == 1).fold(0, |all, one| all | neighbours[one] as usize)
        };
        let near: Vec<usize> = (0..1 << count).map(of_set).collect();
        let rows: Vec<f64> = (0..1 << count).map(|set| self.rows(self.with_keys(set as Set))).collect();
        // The cost of each set and one side of its best join, which is the set itself for a single relation.
        let mut best: Vec<Option<(f64, usize)>> = vec![None; 1 << count];
        for set in 1_usize..1 << count {
            if set.is_power_of_two() {
                best[set] = Some((0.0, set));
                continue;
            }
            let mut side = (set - 1) & set;
            // Each pair of sides once.
            while side > set ^ side {
                let other = set ^ side;
                if near[side] & other != 0
                    && let (Some((left, _)), Some((right, _))) = (best[side], best[other])
                {
                    let sum = left + right + cost(rows[side], rows[other], rows[set]);
                    if best[set].is_none_or(|(least, _)| sum < least) {
                        best[set] = Some((sum, side));
                    }
                }
                side = (side - 1) & set;
            }
        }
        let whole = (1 << count) - 1;
        Some((best[whole]?.0, self.tree(&best, &rows, whole)))
    }

    fn tree(&self, best: &[Option<(f64, usize)>], rows: &[f64], set: usize) -> Tree {
        let side = best[set].map_or(set, |(_, side)| side);
        if side == set {
            return Tree::Relation(set.trailing_zeros() as usize);
        }
        let mut sides = [side, set ^ side];
        sides.sort_by(|one, other| rows[*one].total_cmp(&rows[*other]));
        Tree::Join(Box::new(sides.map(|side| self.tree(best, rows, side))))
    }

    /// Joins the pair that costs least, until one tree is left.
    fn by_pairs(&self) -> Option<(f64, Tree)> {
        let neighbours = self.neighbours();
        let mut trees: Vec<Tree> = (0..self.relations.len()).map(Tree::Relation).collect();
        let mut sum = 0.0;
        while trees.len() > 1 {
            let mut least: Option<(f64, usize, usize)> = None;
            for one in 0..trees.len() {
                for other in one + 1..trees.len() {
                    let [left, right] = [trees[one].relations(), trees[other].relations()];
                    let is_near =
                        |near: &Set, relation: usize| left >> relation & 1 == 1 && near & right != 0;
                    if !neighbours.iter().enumerate().any(|(relation, near)| is_near(near, relation)) {
                        continue;
                    }
                    let [rows, right_rows, both] =
                        [left, right, left | right].map(|set| self.rows(self.with_keys(set)));
                    let cost = cost(rows, right_rows, both);
                    if least.is_none_or(|(least, ..)| cost < least) {
                        least = Some((cost, one, other));
                    }
                }
            }
            let (cost, one, other) = least?;
            sum += cost;
            let right = trees.swap_remove(other);
            let left = trees.swap_remove(one);
            let rows = |tree: &Tree| self.rows(self.with_keys(tree.relations()));
            let mut sides = [left, right];
            if rows(&sides[0]) > rows(&sides[1]) {
                sides.reverse();
            }
            trees.push(Tree::Join(Box::new(sides)));
        }
        Some((sum, trees.pop()?))
    }

    /// The plan with the joins as written, and its relations and sets of keys replaced in their order.
    fn as_written(
        &self,
        plan: Plan,
        relations: &mut impl Iterator<Item = Plan>,
        sets: &mut impl Iterator<Item = Plan>,
    ) -> Result<Plan> {
        if plan.is::<ProjectionExec>() && is_inner(&plan) {
            let input = self.as_written(plan.children()[0].clone(), relations, sets)?;
            return replace_children_if_necessary(plan, vec![input]);
        }
        let join_type = free(&plan).map(|join| *join.join_type());
        if join_type.is_none() && !plan.is::<CrossJoinExec>() {
            return Ok(relations.next().unwrap_or(plan));
        }
        let [left, right] = [0, 1].map(|side| plan.children()[side].clone());
        let left = self.as_written(left, relations, sets)?;
        let right = match join_type {
            Some(JoinType::LeftSemi | JoinType::LeftAnti) => sets.next().unwrap_or(right),
            _ => self.as_written(right, relations, sets)?,
        };
        replace_children_if_necessary(plan, vec![left, right])
    }

    /// The plan of a tree, with the columns of the plan that it replaces.
    fn plan(&self, replaced: &Plan, tree: &Tree, relations: Vec<Plan>, sets: Vec<Plan>) -> Result<Plan> {
        let builder =
            Builder { graph: self, relations, sets, mode: self.mode.unwrap_or(PartitionMode::Auto) };
        let (plan, columns) = builder.build(tree, &self.output)?;
        let schema = replaced.schema();
        let column = |(number, field): (&usize, &FieldRef)| {
            let name = field.name().clone();
            let expr = column_at(&plan.schema(), place(&columns, *number));
            ProjectionExpr { expr, alias: name }
        };
        let columns = self.output.iter().zip(schema.fields()).map(column);
        let columns: Vec<_> = columns.collect();
        Ok(Arc::new(ProjectionExec::try_new_with_schema_metadata(columns, plan.clone(), &schema)?))
    }
}

/// What joining costs, in rows of the probe side.
fn cost(left: f64, right: f64, joined: f64) -> f64 {
    left.max(right) + BUILD_ROW * left.min(right) + joined
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

/// The expression with column `n` replaced by column `columns[n]`.
fn numbered(expression: &Expr, columns: &[usize]) -> Result<Expr> {
    let of_node = |node: Expr| {
        Ok(match node.downcast_ref::<Column>() {
            Some(column) => {
                Transformed::yes(Arc::new(Column::new(column.name(), columns[column.index()])) as Expr)
            }
            None => Transformed::no(node),
        })
    };
    expression.clone().transform_up(of_node).data()
}

/// Where a number stands.
fn place(columns: &[usize], number: usize) -> usize {
    columns.iter().position(|column| *column == number).unwrap_or(usize::MAX)
}

fn column_at(schema: &Schema, place: usize) -> Expr {
    Arc::new(Column::new(schema.field(place).name(), place))
}

/// Makes the plan of a tree.
struct Builder<'a> {
    graph: &'a Graph,
    relations: Vec<Plan>,
    sets: Vec<Plan>,
    mode: PartitionMode,
}

impl Builder<'_> {
    /// The plan of a tree and the numbers of its columns, with those that are wanted above.
    fn build(&self, tree: &Tree, wanted: &[usize]) -> Result<(Plan, Vec<usize>)> {
        match tree {
            Tree::Relation(relation) => self.relation(*relation),
            Tree::Join(sides) => self.join(sides, wanted),
        }
    }

    fn relation(&self, number: usize) -> Result<(Plan, Vec<usize>)> {
        let relation = &self.graph.relations[number];
        let columns: Vec<usize> = (relation.first..relation.first + relation.distinct.len()).collect();
        let mut plan = self.relations[number].clone();
        let of_this = self.graph.keys.iter().zip(&self.sets).filter(|(keys, _)| keys.relation == number);
        for (keys, set) in of_this {
            let mut on = Vec::with_capacity(keys.on.len());
            for (left, right) in &keys.on {
                on.push((self.at(left, &columns, &plan.schema())?, right.clone()));
            }
            plan = HashJoinExecBuilder::new(plan, set.clone(), on, keys.join_type)
                .with_partition_mode(self.mode)
                .build_exec()?;
        }
        Ok((plan, columns))
    }

    fn join(&self, sides: &[Tree; 2], wanted: &[usize]) -> Result<(Plan, Vec<usize>)> {
        let graph = self.graph;
        let [left, right] = [sides[0].relations(), sides[1].relations()];
        let is_within = |relations: Set, set: Set| relations & !set == 0;
        let joins = |relations: Set| {
            is_within(relations, left | right) && !is_within(relations, left) && !is_within(relations, right)
        };
        let of_equality = |equality: &Equality| equality.relations.iter().fold(0, |all, one| all | 1 << one);
        let equalities: Vec<&Equality> =
            graph.equalities.iter().filter(|equality| joins(of_equality(equality))).collect();
        let conditions: Vec<&Condition> =
            graph.conditions.iter().filter(|condition| joins(condition.relations)).collect();

        // What is wanted here is also wanted below, and what is compared here.
        let mut below = wanted.to_vec();
        for expression in equalities.iter().flat_map(|equality| &equality.sides) {
            below.extend(columns_of(expression));
        }
        for condition in &conditions {
            below.extend(columns_of(&condition.expression));
        }
        let (left_plan, left_columns) = self.build(&sides[0], &below)?;
        let (right_plan, right_columns) = self.build(&sides[1], &below)?;

        let mut on = Vec::with_capacity(equalities.len());
        for Equality { sides: [one, other], relations: [first, _] } in equalities {
            let (one, other) = if left >> first & 1 == 1 { (one, other) } else { (other, one) };
            on.push((
                self.at(one, &left_columns, &left_plan.schema())?,
                self.at(other, &right_columns, &right_plan.schema())?,
            ));
        }
        let filter =
            self.filter(&conditions, [(&left_plan, &left_columns), (&right_plan, &right_columns)])?;
        let columns = [left_columns, right_columns].concat();
        let mut kept: Vec<usize> =
            (0..columns.len()).filter(|place| wanted.contains(&columns[*place])).collect();
        if kept.is_empty() {
            kept.push(0);
        }
        let columns = kept.iter().map(|place| columns[*place]).collect();
        let plan = HashJoinExecBuilder::new(left_plan, right_plan, on, JoinType::Inner)
            .with_filter(filter)
            .with_projection(Some(kept))
            .with_partition_mode(self.mode)
            .build_exec()?;
        Ok((plan, columns))
    }

    /// The conditions over the columns of both sides.
    fn filter(
        &self,
        conditions: &[&Condition],
        sides: [(&Plan, &Vec<usize>); 2],
    ) -> Result<Option<JoinFilter>> {
        let expressions = conditions.iter().map(|condition| condition.expression.clone());
        let Some(all) = datafusion::physical_expr::conjunction_opt(expressions) else { return Ok(None) };
        let numbers = columns_of(&all);
        let (mut indices, mut fields) = (Vec::new(), Vec::new());
        for number in &numbers {
            for ((plan, columns), side) in sides.iter().zip([JoinSide::Left, JoinSide::Right]) {
                if let Some(index) = columns.iter().position(|column| column == number) {
                    indices.push(ColumnIndex { index, side });
                    fields.push(plan.schema().field(index).clone());
                    break;
                }
            }
        }
        let schema = Arc::new(Schema::new(fields));
        let expression = self.at(&all, &numbers, &schema)?;
        Ok(Some(JoinFilter::new(expression, indices, schema)))
    }

    /// The expression over the columns of a plan that have these numbers.
    fn at(&self, expression: &Expr, columns: &[usize], schema: &Schema) -> Result<Expr> {
        let of_node = |node: Expr| {
            Ok(match node.downcast_ref::<Column>() {
                Some(column) => Transformed::yes(column_at(schema, place(columns, column.index()))),
                None => Transformed::no(node),
            })
        };
        expression.clone().transform_up(of_node).data()
    }
}
