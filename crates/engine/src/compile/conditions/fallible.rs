//! AND and OR whose operands can fail. An error in a row for which the other operand decides does not matter:
//! `false AND error` is false and `true OR error` is true, in either order.
//!
//! A batch is first computed as a whole, which costs nothing extra while nothing fails. If one operand fails,
//! it is computed again for only the rows that the other one leaves undecided. If both fail, the batch is
//! halved, down to single rows.

use std::fmt::{self, Display, Formatter};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch, new_empty_array};
use arrow::compute::{and_kleene, concat, is_null, not, or, or_kleene, prep_null_mask_filter};
use arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion, TreeNodeRewriter};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr::expressions::{BinaryExpr, InListExpr, Literal, NotExpr};
use datafusion::physical_expr::{PhysicalExpr, conjunction, split_conjunction};

use super::can_fail::physical_node_can_fail;

/// An expression that can fail; EXPLAIN shows the inner expression. It claims to be volatile so that
/// DataFusion's rules leave it where it is: pushed down, it would see rows that another operator excludes.
#[derive(Debug, Eq)]
pub(crate) struct Fallible {
    inner: Arc<dyn PhysicalExpr>,
    /// Whether it is the condition of a filter, where NULL excludes a row as false does.
    is_filter: bool,
}

impl PartialEq for Fallible {
    fn eq(&self, other: &Self) -> bool {
        self.inner.as_ref() == other.inner.as_ref() && self.is_filter == other.is_filter
    }
}

impl Hash for Fallible {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
        self.is_filter.hash(state);
    }
}

impl Fallible {
    fn around(inner: Arc<dyn PhysicalExpr>) -> Arc<dyn PhysicalExpr> {
        Arc::new(Self { inner, is_filter: false })
    }

    fn connective(&self) -> Option<&BinaryExpr> {
        self.inner.downcast_ref::<BinaryExpr>().filter(|binary| is_connective(*binary.op()))
    }

    /// The values of `connective`, computed by parts of a batch that failed as a whole.
    fn by_rows(&self, connective: &BinaryExpr, batch: &RecordBatch) -> Result<BooleanArray> {
        let rows = batch.num_rows();
        let whole = |operand: &Arc<dyn PhysicalExpr>| {
            Ok(operand.evaluate(batch)?.into_array(rows)?.as_boolean().clone())
        };
        let (left, right) = (connective.left(), connective.right());
        let op = *connective.op();
        match (whole(left), whole(right)) {
            (Ok(left), Ok(right)) => combine(op, &left, &right),
            (Ok(known), Err(_)) => self.of_open_rows(op, &known, right, batch),
            (Err(_), Ok(known)) => self.of_open_rows(op, &known, left, batch),
            (Err(error), Err(_)) if rows <= 1 => Err(error),
            (Err(_), Err(_)) => {
                let half = rows / 2;
                let first = self.by_rows(connective, &batch.slice(0, half))?;
                let second = self.by_rows(connective, &batch.slice(half, rows - half))?;
                Ok(concat(&[&first, &second])?.as_boolean().clone())
            }
        }
    }

    /// `known op operand`, where `operand` is computed for only the rows that `known` leaves undecided.
    fn of_open_rows(
        &self,
        op: Operator,
        known: &BooleanArray,
        operand: &Arc<dyn PhysicalExpr>,
        batch: &RecordBatch,
    ) -> Result<BooleanArray> {
        let is_open = match op {
            Operator::And if self.is_filter => is_true(known),
            Operator::And => or(&is_true(known), &is_null(known)?)?,
            _ => not(&is_true(known))?,
        };
        if !is_open.has_true() {
            return Ok(known.clone());
        }
        let values = operand.evaluate_selection(batch, &is_open)?.into_array(batch.num_rows())?;
        combine(op, known, values.as_boolean())
    }
}

fn is_connective(op: Operator) -> bool {
    matches!(op, Operator::And | Operator::Or)
}

fn is_true(values: &BooleanArray) -> BooleanArray {
    if values.null_count() > 0 { prep_null_mask_filter(values) } else { values.clone() }
}

fn combine(op: Operator, left: &BooleanArray, right: &BooleanArray) -> Result<BooleanArray> {
    Ok(if op == Operator::And { and_kleene(left, right)? } else { or_kleene(left, right)? })
}

impl Display for Fallible {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl PhysicalExpr for Fallible {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.inner.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.inner.nullable(schema)
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.inner.return_field(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        if batch.num_rows() == 0 {
            // A constant that cannot be computed matters to no row.
            let data_type = self.data_type(batch.schema_ref())?;
            return Ok(ColumnarValue::Array(new_empty_array(&data_type)));
        }
        let evaluated = self.inner.evaluate(batch);
        match self.connective() {
            Some(connective) if evaluated.is_err() => {
                Ok(ColumnarValue::Array(Arc::new(self.by_rows(connective, batch)?)))
            }
            _ => evaluated,
        }
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        self.inner.children()
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let inner = self.inner.clone().with_new_children(children)?;
        Ok(Arc::new(Self { inner, is_filter: self.is_filter }))
    }

    fn fmt_sql(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.inner.fmt_sql(f)
    }

    fn is_volatile_node(&self) -> bool {
        true
    }
}

/// Which nodes [`fallible`] makes [`Fallible`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nodes {
    /// AND and OR with operands that can fail.
    Connectives,
    /// Also nodes that can fail themselves, so that DataFusion's rules do not move them.
    AllThatFail,
}

struct Rewriter<'a> {
    schema: &'a Schema,
    nodes: Nodes,
    /// A stack: for each finished node whose parent is not finished, whether it can fail.
    done: Vec<bool>,
}

impl TreeNodeRewriter for Rewriter<'_> {
    type Node = Arc<dyn PhysicalExpr>;

    fn f_up(&mut self, node: Self::Node) -> Result<Transformed<Self::Node>> {
        if node.is::<Fallible>() {
            self.done.push(true);
            return Ok(Transformed::no(node));
        }
        let children = node.children().len();
        let operands = self.done.split_off(self.done.len() - children);
        let any_operand = operands.iter().any(|operand| *operand);
        let fails_itself = physical_node_can_fail(node.as_ref(), self.schema);
        self.done.push(any_operand || fails_itself);
        if let Some(list) = node.downcast_ref::<InListExpr>()
            && operands.iter().skip(1).any(|item| *item)
        {
            return Ok(Transformed::yes(any_of(list)));
        }
        let is_connective =
            node.downcast_ref::<BinaryExpr>().is_some_and(|binary| is_connective(*binary.op()));
        let is_one = is_connective && any_operand || fails_itself && self.nodes == Nodes::AllThatFail;
        Ok(if is_one { Transformed::yes(Fallible::around(node)) } else { Transformed::no(node) })
    }

    fn f_down(&mut self, node: Self::Node) -> Result<Transformed<Self::Node>> {
        let below = if node.is::<Fallible>() { TreeNodeRecursion::Jump } else { TreeNodeRecursion::Continue };
        Ok(Transformed::new(node, false, below))
    }
}

/// `x IN (a, b)` as `x = a OR x = b`.
fn any_of(list: &InListExpr) -> Arc<dyn PhysicalExpr> {
    let equal = |item: &Arc<dyn PhysicalExpr>| -> Arc<dyn PhysicalExpr> {
        Arc::new(BinaryExpr::new(list.expr().clone(), Operator::Eq, item.clone()))
    };
    let any = list
        .list()
        .iter()
        .map(equal)
        .reduce(|any, one| Fallible::around(Arc::new(BinaryExpr::new(any, Operator::Or, one))));
    let any = any.unwrap_or_else(|| Arc::new(Literal::new(false.into())));
    if list.negated() { Arc::new(NotExpr::new(any)) } else { any }
}

/// The expression with its [`Nodes`] made [`Fallible`], and whether it can fail.
pub(super) fn fallible(
    expression: &Arc<dyn PhysicalExpr>,
    schema: &Schema,
    nodes: Nodes,
) -> Result<(Arc<dyn PhysicalExpr>, bool)> {
    let mut rewriter = Rewriter { schema, nodes, done: Vec::new() };
    let rewritten = expression.clone().rewrite(&mut rewriter)?.data;
    Ok((rewritten, rewriter.done == [true]))
}

/// What AND joins in a condition, also where it is fallible.
pub(crate) fn conjuncts(condition: &Arc<dyn PhysicalExpr>) -> Vec<&Arc<dyn PhysicalExpr>> {
    let binary = match condition.downcast_ref::<Fallible>() {
        Some(fallible) => fallible.connective(),
        None => condition.downcast_ref::<BinaryExpr>(),
    };
    match binary.filter(|binary| *binary.op() == Operator::And) {
        Some(and) => [conjuncts(and.left()), conjuncts(and.right())].concat(),
        None => vec![condition],
    }
}

/// Whether an expression has parts that differ each time, and are not only said to do so because they can fail.
pub(crate) fn has_volatile(expression: &Arc<dyn PhysicalExpr>) -> bool {
    let is_fallible = expression.is::<Fallible>();
    !is_fallible && expression.is_volatile_node() || expression.children().into_iter().any(has_volatile)
}

/// The conditions of a filter that AND joins: those that cannot fail, and the others as one condition that is
/// computed for only the rows that pass the first.
#[derive(Debug)]
pub(crate) struct Conditions {
    pub(crate) first: Vec<Arc<dyn PhysicalExpr>>,
    pub(crate) last: Option<Arc<dyn PhysicalExpr>>,
}

impl Conditions {
    /// Takes conditions over columns of `schema` apart.
    pub(crate) fn new<'a>(
        conditions: impl IntoIterator<Item = &'a Arc<dyn PhysicalExpr>>,
        schema: &Schema,
    ) -> Result<Self> {
        let (mut first, mut last) = (Vec::new(), Vec::new());
        for condition in conditions.into_iter().flat_map(split_conjunction) {
            let (condition, can_fail) = fallible(condition, schema, Nodes::Connectives)?;
            if can_fail { last.push(condition) } else { first.push(condition) }
        }
        let and = |all, one| -> Arc<dyn PhysicalExpr> {
            let inner = Arc::new(BinaryExpr::new(all, Operator::And, one));
            Arc::new(Fallible { inner, is_filter: true })
        };
        let last = last
            .into_iter()
            .reduce(and)
            .map(|last| if last.is::<Fallible>() { last } else { Fallible::around(last) });
        Ok(Self { first, last })
    }

    /// The conjunction of the conditions that cannot fail.
    pub(super) fn all_first(&self) -> Option<Arc<dyn PhysicalExpr>> {
        (!self.first.is_empty()).then(|| conjunction(self.first.iter().cloned()))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringArray};
    use arrow::datatypes::Field;
    use datafusion::common::ScalarValue;
    use datafusion::physical_expr::expressions::{cast, col, lit};

    use super::*;

    fn batch() -> RecordBatch {
        let schema = Schema::new(vec![
            Field::new("x", DataType::Int64, true),
            Field::new("s", DataType::Utf8, true),
            Field::new("ok", DataType::Boolean, true),
        ]);
        let x = Int64Array::from(vec![Some(0), Some(1), Some(5), Some(0), None]);
        let s = StringArray::from(vec![Some("7"), Some("no"), Some("7"), Some("no"), None]);
        let ok = BooleanArray::from(vec![Some(false), Some(true), Some(true), None, Some(true)]);
        RecordBatch::try_new(Arc::new(schema), vec![Arc::new(x), Arc::new(s), Arc::new(ok)]).unwrap()
    }

    fn binary(
        left: Arc<dyn PhysicalExpr>,
        op: Operator,
        right: Arc<dyn PhysicalExpr>,
    ) -> Arc<dyn PhysicalExpr> {
        Arc::new(BinaryExpr::new(left, op, right))
    }

    /// `10 / x > 3`, which fails for rows 0 and 3.
    fn divides(schema: &Schema) -> Arc<dyn PhysicalExpr> {
        binary(binary(lit(10_i64), Operator::Divide, col("x", schema).unwrap()), Operator::Gt, lit(3_i64))
    }

    /// `CAST(s AS BIGINT) = 7`, which fails for rows 1 and 3.
    fn casts(schema: &Schema) -> Arc<dyn PhysicalExpr> {
        let number = cast(col("s", schema).unwrap(), schema, DataType::Int64).unwrap();
        binary(number, Operator::Eq, lit(7_i64))
    }

    fn evaluate(expression: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<Vec<Option<bool>>> {
        let (expression, can_fail) = fallible(expression, batch.schema_ref(), Nodes::Connectives)?;
        assert!(can_fail);
        let values = expression.evaluate(batch)?.into_array(batch.num_rows())?;
        Ok(values.as_boolean().iter().collect())
    }

    #[test]
    fn an_error_of_a_row_that_is_decided_does_not_matter() {
        let batch = batch();
        let schema = batch.schema();
        let ok = || col("ok", &schema).unwrap();
        let is_some = || {
            Arc::new(NotExpr::new(Arc::new(datafusion::physical_expr::expressions::IsNullExpr::new(ok()))))
        };
        for swapped in [false, true] {
            let and = |a: Arc<dyn PhysicalExpr>, b| {
                if swapped { binary(b, Operator::And, a) } else { binary(a, Operator::And, b) }
            };
            // Row 3 is NULL AND an error.
            assert!(evaluate(&and(ok(), divides(&schema)), &batch).is_err());
            let guarded = and(and(ok(), is_some()), divides(&schema));
            let expected = vec![Some(false), Some(true), Some(false), Some(false), None];
            assert_eq!(evaluate(&guarded, &batch).unwrap(), expected);
        }
        // Both operands fail, for different rows: row 0 needs the cast, which is true there.
        let both = binary(casts(&schema), Operator::And, divides(&schema));
        assert!(evaluate(&both, &batch.slice(0, 1)).is_err());
        let either = binary(casts(&schema), Operator::Or, divides(&schema));
        let expected = vec![Some(true), Some(true), Some(true)];
        assert_eq!(evaluate(&either, &batch.slice(0, 3)).unwrap(), expected);
        // Neither operand decides row 3.
        assert!(evaluate(&either, &batch).is_err());
    }

    #[test]
    fn an_item_of_a_list_matters_only_where_no_other_is_equal() {
        let batch = batch();
        let schema = batch.schema();
        let x = col("x", &schema).unwrap();
        let ten = binary(lit(10_i64), Operator::Divide, x.clone());
        let list = datafusion::physical_expr::expressions::in_list(x, vec![lit(0_i64), ten], &false, &schema);
        let expected = vec![Some(true), Some(false), Some(false), Some(true), None];
        assert_eq!(evaluate(&list.unwrap(), &batch).unwrap(), expected);
    }

    #[test]
    fn conditions_that_can_fail_come_last() {
        let batch = batch();
        let schema = batch.schema();
        let ok = col("ok", &schema).unwrap();
        let all = conjunction([divides(&schema), ok.clone(), casts(&schema)]);
        let conditions = Conditions::new([&all], &schema).unwrap();
        assert_eq!(conditions.first, vec![ok]);
        // In a filter NULL excludes a row, too: row 4's text is NULL.
        let last = conditions.last.unwrap();
        assert!(last.evaluate(&batch.slice(4, 1)).is_ok());
        let is_one = ScalarValue::Boolean(Some(false));
        let never = Conditions::new(
            [&binary(Arc::new(Literal::new(is_one)), Operator::And, divides(&schema))],
            &schema,
        );
        assert_eq!(never.unwrap().first.len(), 1);
    }
}
