//! The plan of a tree of joins.

use std::sync::Arc;

use arrow::datatypes::{FieldRef, Schema};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{JoinSide, JoinType};
use datafusion::error::Result;
use datafusion::physical_expr::conjunction_opt;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::physical_plan::joins::{HashJoinExecBuilder, PartitionMode};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};

use super::{Condition, Equality, Expr, Graph, Plan, Set, Tree, columns_of};

impl Graph {
    /// The plan of a tree, with the columns of the plan that it replaces.
    pub(super) fn plan(&self, replaced: &Plan, tree: &Tree) -> Result<Plan> {
        let builder = Builder { graph: self, mode: self.mode.unwrap_or(PartitionMode::Auto) };
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

/// Makes the plan of a tree.
struct Builder<'a> {
    graph: &'a Graph,
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
        let mut plan = relation.plan.clone();
        for keys in self.graph.keys.iter().filter(|keys| keys.relation == number) {
            let mut on = Vec::with_capacity(keys.on.len());
            for (left, right) in &keys.on {
                on.push((self.at(left, &columns, &plan.schema())?, right.clone()));
            }
            plan = HashJoinExecBuilder::new(plan, keys.plan.clone(), on, keys.join_type)
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
        let Some(all) = conjunction_opt(expressions) else { return Ok(None) };
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

/// Where a number stands.
fn place(columns: &[usize], number: usize) -> usize {
    columns.iter().position(|column| *column == number).unwrap_or(usize::MAX)
}

fn column_at(schema: &Schema, place: usize) -> Expr {
    Arc::new(Column::new(schema.field(place).name(), place))
}
