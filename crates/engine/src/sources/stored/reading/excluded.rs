//! Which parts a filter may match, by the values of their partitions alone.
//!
//! The log has these values, so a part that is left out is not opened, and may be missing. What a filter says of the
//! expressions of PARTITION BY is exact. Where it says `c = x` of a column, `f(c)` is `f(x)`; where it says `c < x`
//! and `f` keeps the order, `f(c)` is not greater than `f(x)`. What cannot be told leaves nothing out.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::{SortOptions, and, or, prep_null_mask_filter};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::Operator;
use datafusion::logical_expr::sort_properties::SortProperties;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr, Column, InListExpr, Literal};
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, PhysicalSortExpr, ScalarFunctionExpr};

use super::super::writing::partitions::{Partitions, is_text, name};

impl Partitions {
    /// Which of the partitions of these names may have rows that pass all filters, which are in terms of `schema`.
    pub(crate) fn kept(
        &self,
        names: &[Arc<str>],
        filters: &[Arc<dyn PhysicalExpr>],
        schema: &SchemaRef,
    ) -> Vec<bool> {
        let all = vec![true; names.len()];
        if self.is_empty() || filters.is_empty() {
            return all;
        }
        let Some((values, is_known)) = Values::of(self, names, schema) else { return all };
        let Some(kept) = filters.iter().filter_map(|filter| values.may_pass(filter)).reduce(both) else {
            return all;
        };
        is_known.iter().enumerate().map(|(part, is_known)| !is_known || kept.value(part)).collect()
    }
}

/// The values of some partitions.
struct Values {
    /// By what rows are kept apart, in terms of the table's schema.
    expressions: Vec<Arc<dyn PhysicalExpr>>,
    table: SchemaRef,
    /// A column for each expression, a row for each partition.
    batch: RecordBatch,
}

impl Values {
    /// The values that the names say, and which of them can be told.
    fn of(partitions: &Partitions, names: &[Arc<str>], schema: &SchemaRef) -> Option<(Self, Vec<bool>)> {
        let expressions = partitions.expressions.iter();
        let expressions = expressions.map(|expr| reassign_expr_columns(expr.clone(), schema).ok());
        let expressions = expressions.collect::<Option<Vec<_>>>()?;
        if expressions.iter().any(|expr| is_zoned(expr, schema)) {
            return None;
        }
        let types = expressions.iter().map(|expr| expr.data_type(schema).ok()).collect::<Option<Vec<_>>>()?;
        let mut columns: Vec<Vec<ScalarValue>> = vec![Vec::new(); types.len()];
        for name in names {
            let found = parsed(name, &types);
            for (index, data_type) in types.iter().enumerate() {
                let value = found.as_ref().map(|values| values[index].clone());
                columns[index].push(value.map_or_else(|| ScalarValue::try_from(data_type), Ok).ok()?);
            }
        }
        let columns = columns.into_iter().map(ScalarValue::iter_to_array);
        let columns = columns.collect::<Result<Vec<ArrayRef>, _>>().ok()?;
        // Only what has the same name again is what was meant.
        let is_known =
            |(row, expected): (usize, &Arc<str>)| name(&columns, row).is_ok_and(|name| *name == **expected);
        let is_known = names.iter().enumerate().map(is_known).collect();
        let fields = types
            .into_iter()
            .enumerate()
            .map(|(index, data_type)| Field::new(format!("p{index}"), data_type, true));
        let fields = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let batch = RecordBatch::try_new(fields, columns).ok()?;
        Some((Self { expressions, table: schema.clone(), batch }, is_known))
    }

    /// Which partitions may have rows that pass; nothing if that cannot be told.
    fn may_pass(&self, filter: &Arc<dyn PhysicalExpr>) -> Option<BooleanArray> {
        if let Some(exact) = self.over_values(filter) {
            let passes = self.evaluate(&exact)?;
            return Some(if passes.null_count() > 0 { prep_null_mask_filter(&passes) } else { passes });
        }
        if let Some(list) = filter.downcast_ref::<InListExpr>() {
            let one = |value: &Arc<dyn PhysicalExpr>| self.compare(list.expr(), Operator::Eq, value);
            return if list.negated() { None } else { either(list.list().iter().map(one)) };
        }
        let binary = filter.downcast_ref::<BinaryExpr>()?;
        let (left, right) = (binary.left(), binary.right());
        match binary.op() {
            Operator::And => self.may_pass(left).into_iter().chain(self.may_pass(right)).reduce(both),
            Operator::Or => either([left, right].into_iter().map(|side| self.may_pass(side))),
            op => match op.swap() {
                Some(swapped) if left.is::<Literal>() => self.compare(right, swapped, left),
                _ => self.compare(left, *op, right),
            },
        }
    }

    /// A filter in terms of the values, if it is about nothing else.
    fn over_values(&self, filter: &Arc<dyn PhysicalExpr>) -> Option<Arc<dyn PhysicalExpr>> {
        let mut is_all = true;
        let over = filter.clone().transform_down(|node| {
            if let Some(index) = self.expressions.iter().position(|expr| expr.as_ref() == node.as_ref()) {
                return Ok(Transformed::new(self.value(index), true, TreeNodeRecursion::Jump));
            }
            is_all &= !node.is::<Column>();
            Ok(Transformed::no(node))
        });
        over.ok().map(|over| over.data).filter(|_| is_all)
    }

    fn value(&self, index: usize) -> Arc<dyn PhysicalExpr> {
        Arc::new(Column::new(self.batch.schema_ref().field(index).name(), index))
    }

    /// What follows of a column that compares so with a literal.
    fn compare(
        &self,
        column: &Arc<dyn PhysicalExpr>,
        op: Operator,
        literal: &Arc<dyn PhysicalExpr>,
    ) -> Option<BooleanArray> {
        let (named, value) = (column.downcast_ref::<Column>()?, literal.downcast_ref::<Literal>()?.value());
        let data_type = self.table.field(named.index()).data_type();
        // Floats may be equal and not the same.
        if value.is_null() || value.data_type() != *data_type || data_type.is_floating() {
            return None;
        }
        let (op, value) = match op {
            Operator::Eq => (Operator::IsNotDistinctFrom, None),
            Operator::Lt => (Operator::LtEq, neighbour(value, -1)),
            Operator::Gt => (Operator::GtEq, neighbour(value, 1)),
            Operator::LtEq | Operator::GtEq => (op, None),
            _ => return None,
        };
        let literal = value.map_or_else(|| literal.clone(), |value| Arc::new(Literal::new(value)));
        let follows = self.expressions.iter().enumerate().filter_map(|(index, expr)| {
            let columns = collect_columns(expr);
            let is_of_column = columns.len() == 1 && columns.contains(named);
            if !is_of_column || op != Operator::IsNotDistinctFrom && !self.keeps_order(expr, named) {
                return None;
            }
            let of_literal = expr.clone().transform_down(|node| {
                Ok(if node.is::<Column>() {
                    Transformed::yes(literal.clone())
                } else {
                    Transformed::no(node)
                })
            });
            let nothing = RecordBatchOptions::new().with_row_count(Some(1));
            let nothing = RecordBatch::try_new_with_options(Schema::empty().into(), vec![], &nothing).ok()?;
            let of_literal = of_literal.ok()?.data.evaluate(&nothing).ok()?.into_array(1).ok()?;
            let of_literal = Arc::new(Literal::new(ScalarValue::try_from_array(&of_literal, 0).ok()?));
            let found =
                self.evaluate(&(Arc::new(BinaryExpr::new(self.value(index), op, of_literal)) as _))?;
            // Without a value nothing is known of an order.
            Some(found.iter().map(|passes| Some(passes != Some(false))).collect())
        });
        follows.reduce(both)
    }

    /// Whether an expression never gets less while the column gets greater.
    fn keeps_order(&self, expr: &Arc<dyn PhysicalExpr>, column: &Column) -> bool {
        // DataFusion says so of more than does, of the time of a timestamp, for one.
        if !self.is_monotonic(expr) {
            return false;
        }
        let options = SortOptions { descending: false, nulls_first: false };
        let mut properties = EquivalenceProperties::new(self.table.clone());
        properties.add_ordering([PhysicalSortExpr { expr: Arc::new(column.clone()), options }]);
        let sorted = properties.get_expr_properties(expr.clone()).sort_properties;
        matches!(sorted, SortProperties::Ordered(options) if !options.descending)
    }

    /// Whether an expression is made of nothing but the column, whole numbers and days of it, and `date_trunc`.
    fn is_monotonic(&self, expr: &Arc<dyn PhysicalExpr>) -> bool {
        if let Some(cast) = expr.downcast_ref::<CastExpr>() {
            let Ok(from) = cast.expr().data_type(&self.table) else { return false };
            let to = cast.cast_type();
            let is_of_days =
                |data_type: &DataType| matches!(data_type, DataType::Date32 | DataType::Timestamp(..));
            let is_in_order = from.is_integer() && to.is_integer() || is_of_days(&from) && is_of_days(to);
            return is_in_order && self.is_monotonic(cast.expr());
        }
        if let Some(function) = expr.downcast_ref::<ScalarFunctionExpr>() {
            return function.name() == "date_trunc"
                && function
                    .args()
                    .iter()
                    .all(|argument| argument.is::<Literal>() || self.is_monotonic(argument));
        }
        expr.is::<Column>()
    }

    fn evaluate(&self, filter: &Arc<dyn PhysicalExpr>) -> Option<BooleanArray> {
        let found = filter.evaluate(&self.batch).ok()?.into_array(self.batch.num_rows()).ok()?;
        found.as_boolean_opt().cloned()
    }
}

/// Whether a time with a zone is part of an expression: its partition may be another in another session, and where
/// clocks are put back, it does not keep the order.
fn is_zoned(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    let is_zoned =
        |node: &Arc<dyn PhysicalExpr>| Ok(matches!(node.data_type(schema)?, DataType::Timestamp(_, Some(_))));
    expr.exists(is_zoned).unwrap_or(true)
}

fn both(left: BooleanArray, right: BooleanArray) -> BooleanArray {
    and(&left, &right).expect("a row for each partition")
}

/// The value before or behind another, of a type that has such.
fn neighbour(value: &ScalarValue, step: i32) -> Option<ScalarValue> {
    match value {
        ScalarValue::Date32(Some(day)) => Some(ScalarValue::Date32(Some(day.checked_add(step)?))),
        whole if whole.data_type().is_integer() => {
            let ScalarValue::Int64(Some(number)) = whole.cast_to(&DataType::Int64).ok()? else { return None };
            ScalarValue::Int64(Some(number.checked_add(i64::from(step))?)).cast_to(&whole.data_type()).ok()
        }
        _ => None,
    }
}

/// What passes one of the filters, if all can be told.
fn either(mut sides: impl Iterator<Item = Option<BooleanArray>>) -> Option<BooleanArray> {
    let first = sides.next()??;
    sides.try_fold(first, |passes, side| or(&passes, &side?).ok())
}

/// The values of a partition's name, if it has as many; `name` is what makes names of them.
fn parsed(name: &str, types: &[DataType]) -> Option<Vec<ScalarValue>> {
    let (mut rest, mut values) = (name, Vec::new());
    for (index, data_type) in types.iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix(", ")?;
        }
        let end = match rest.strip_prefix('\'') {
            Some(text) if is_text(data_type) => {
                let text = text.replace("''", "\u{0}\u{0}");
                text.find('\'')? + 2
            }
            _ => rest.find(", ").unwrap_or(rest.len()),
        };
        let (value, behind) = rest.split_at_checked(end)?;
        rest = behind;
        values.push(match value.strip_prefix('\'').and_then(|value| value.strip_suffix('\'')) {
            _ if value == "NULL" => ScalarValue::try_from(data_type).ok()?,
            Some(text) if is_text(data_type) => {
                ScalarValue::try_from_string(text.replace("''", "'"), data_type).ok()?
            }
            _ => ScalarValue::try_from_string(value.to_owned(), data_type).ok()?,
        });
    }
    rest.is_empty().then_some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_partitions_are_read_again() {
        let types = [DataType::Utf8View, DataType::Int64, DataType::Date32, DataType::Utf8];
        let check = |name: &str, is_read: bool| {
            let values = parsed(name, &types);
            assert_eq!(values.is_some(), is_read, "{name}");
            let Some(values) = values else { return };
            let arrays: Vec<ArrayRef> = values.iter().map(|value| value.to_array().unwrap()).collect();
            assert_eq!(super::name(&arrays, 0).unwrap(), name);
        };
        check("'a', 1, 2024-02-29, 'b'", true);
        check("'', -5, NULL, ''", true);
        check("'it''s, ''1'', 2', 7, 1969-12-31, ''''", true);
        check("NULL, NULL, NULL, 'NULL'", true);
        check("'''', 9, 2024-01-01, 'ß''中'", true);
        check("", false);
        check("'a', 1, 2024-02-29", false);
        check("'a, 1, 2024-02-29, 'b'", false);
        check("'a', x, 2024-02-29, 'b'", false);
        check("'a', 1, 2024-02-29, 'b', 1", false);
    }
}
