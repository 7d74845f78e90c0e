//! Decimals in 64 bits.
//!
//! Arrow computes decimals in 128 bits and looks at each value for an overflow. Most are small: here columns are
//! narrowed to 64 bits, with a bound on their values, and bounds tell for a whole batch whether a result has room. Where it
//! has not, whoever asks computes the expression as it is. What several expressions have in common is computed once.

use std::any::Any;
use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Decimal128Type, Int8Type, Int16Type, Int32Type, Int64Type, Schema,
    UInt8Type, UInt16Type, UInt32Type,
};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr, Column, Literal};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

use super::checked::{Checked, Operation};

/// Expressions of decimals that are computed together.
#[derive(Clone, Debug, Default)]
pub(crate) struct NarrowDecimals {
    /// Each after those that it is computed of.
    steps: Vec<Step>,
    /// The step of each expression, if it is one of decimals.
    results: Vec<Option<usize>>,
}

#[derive(Clone, Debug)]
struct Step {
    expression: Arc<dyn PhysicalExpr>,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// An expression that is not looked into.
    Other,
    Constant(i64),
    /// Another step, times a power of ten.
    Scaled {
        of: usize,
        factor: i64,
    },
    Add {
        left: usize,
        right: usize,
    },
    Subtract {
        left: usize,
        right: usize,
    },
    Multiply {
        left: usize,
        right: usize,
    },
}

impl Kind {
    fn is_arithmetic(&self) -> bool {
        matches!(self, Self::Add { .. } | Self::Subtract { .. } | Self::Multiply { .. })
    }
}

/// Values of 64 bits.
#[derive(Clone, Debug)]
pub(crate) struct Narrow {
    pub(crate) values: Values,
    pub(crate) nulls: Option<NullBuffer>,
    /// No value is farther from zero.
    bound: u64,
}

#[derive(Clone, Debug)]
pub(crate) enum Values {
    Each(ScalarBuffer<i64>),
    All(i64),
}

impl NarrowDecimals {
    /// What computes those of `expressions` that are decimals.
    pub(crate) fn new<'a>(
        expressions: impl Iterator<Item = &'a Arc<dyn PhysicalExpr>>,
        schema: &Schema,
    ) -> Self {
        let mut decimals = Self::default();
        for expression in expressions {
            let result = decimals.step(expression, schema);
            decimals.results.push(result);
        }
        decimals
    }

    /// Whether an expression is arithmetic of decimals that columns and literals are, and nothing else.
    pub(crate) fn is_one(expression: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
        let mut decimals = Self::default();
        let step = decimals.step(expression, schema);
        let is_own = |step: &Step| !matches!(step.kind, Kind::Other) || step.expression.is::<Column>();
        step.is_some_and(|step| decimals.steps[step].kind.is_arithmetic())
            && decimals.steps.iter().all(is_own)
    }

    /// The step that computes a decimal.
    fn step(&mut self, expression: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<usize> {
        let scale = scale_of(expression, schema)?;
        if let Some(known) = self.steps.iter().position(|step| &step.expression == expression) {
            return Some(known);
        }
        let kind = self.kind(expression, scale, schema).unwrap_or(Kind::Other);
        Some(self.push(expression, kind))
    }

    fn push(&mut self, expression: &Arc<dyn PhysicalExpr>, kind: Kind) -> usize {
        self.steps.push(Step { expression: expression.clone(), kind });
        self.steps.len() - 1
    }

    fn kind(&mut self, expression: &Arc<dyn PhysicalExpr>, scale: i8, schema: &Schema) -> Option<Kind> {
        if let Some(literal) = expression.downcast_ref::<Literal>() {
            let ScalarValue::Decimal128(Some(value), ..) = literal.value() else { return None };
            return i64::try_from(*value).ok().map(Kind::Constant);
        }
        if let Some(cast) = expression.downcast_ref::<CastExpr>() {
            return self.cast(cast, scale, schema);
        }
        let (operator, [left, right]) = operands(expression)?;
        let (left_scale, right_scale) = (scale_of(left, schema)?, scale_of(right, schema)?);
        if operator == Operator::Multiply {
            if i32::from(left_scale) + i32::from(right_scale) != i32::from(scale) {
                return None;
            }
            let (left, right) = (self.step(left, schema)?, self.step(right, schema)?);
            return Some(Kind::Multiply { left, right });
        }
        if !matches!(operator, Operator::Plus | Operator::Minus) {
            return None;
        }
        let left = self.scaled(left, scale.checked_sub(left_scale)?, schema)?;
        let right = self.scaled(right, scale.checked_sub(right_scale)?, schema)?;
        match operator {
            Operator::Plus => Some(Kind::Add { left, right }),
            Operator::Minus => Some(Kind::Subtract { left, right }),
            _ => None,
        }
    }

    /// A cast that changes no value.
    fn cast(&mut self, cast: &CastExpr, scale: i8, schema: &Schema) -> Option<Kind> {
        let DataType::Decimal128(precision, _) = cast.cast_type() else { return None };
        let inner = cast.expr();
        let (digits, from_scale) = match inner.data_type(schema).ok()? {
            DataType::Decimal128(precision, scale) => (i32::from(precision) - i32::from(scale), scale),
            DataType::Int8 | DataType::UInt8 => (3, 0),
            DataType::Int16 | DataType::UInt16 => (5, 0),
            DataType::Int32 | DataType::UInt32 => (10, 0),
            DataType::Int64 => (19, 0),
            _ => return None,
        };
        if i32::from(*precision) - i32::from(scale) < digits {
            return None;
        }
        let of = match scale_of(inner, schema) {
            Some(_) => self.step(inner, schema)?,
            None => self.push(inner, Kind::Other),
        };
        Some(Kind::Scaled { of, factor: power_of_ten(scale.checked_sub(from_scale)?)? })
    }

    /// The step of `expression` times a power of ten.
    fn scaled(&mut self, expression: &Arc<dyn PhysicalExpr>, digits: i8, schema: &Schema) -> Option<usize> {
        let of = self.step(expression, schema)?;
        let factor = power_of_ten(digits)?;
        Some(if factor == 1 { of } else { self.push_scaled(of, factor) })
    }

    fn push_scaled(&mut self, of: usize, factor: i64) -> usize {
        let is_same =
            |step: &Step| matches!(step.kind, Kind::Scaled { of: o, factor: f } if (o, f) == (of, factor));
        if let Some(known) = self.steps.iter().position(is_same) {
            return known;
        }
        // It has no expression, so it stands for none.
        let expression: Arc<dyn PhysicalExpr> = Arc::new(Literal::new(ScalarValue::Null));
        self.push(&expression, Kind::Scaled { of, factor })
    }

    /// The columns of decimals that are computed with here and nowhere else in `expressions`, by their places: they may
    /// come as integers of 64 bits.
    pub(crate) fn columns<'a>(
        &self,
        expressions: impl Iterator<Item = &'a Arc<dyn PhysicalExpr>>,
        schema: &Schema,
    ) -> Vec<usize> {
        let is_other = |step: &&Step| matches!(step.kind, Kind::Other);
        let (own, inside): (Vec<&Step>, Vec<&Step>) =
            self.steps.iter().filter(is_other).partition(|step| step.expression.is::<Column>());
        let unknown = expressions.zip(&self.results).filter(|(_, result)| result.is_none());
        let others = inside.iter().map(|step| &step.expression).chain(unknown.map(|(other, _)| other));
        let others: HashSet<usize> = others.flat_map(collect_columns).map(|column| column.index()).collect();
        let own = own.iter().flat_map(|step| collect_columns(&step.expression));
        let own = own.map(|column| column.index()).filter(|column| !others.contains(column));
        own.filter(|column| matches!(schema.field(*column).data_type(), DataType::Decimal128(..))).collect()
    }

    /// The values of the expressions of which all have room in 64 bits.
    pub(crate) fn evaluate(&self, batch: &RecordBatch) -> Result<Vec<Option<Narrow>>> {
        let mut found: Vec<Option<Narrow>> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let of = |step: usize| found[step].as_ref();
            found.push(match step.kind {
                Kind::Other => narrowed(&step.expression.evaluate(batch)?.into_array(batch.num_rows())?),
                Kind::Constant(value) => {
                    Some(Narrow { values: Values::All(value), nulls: None, bound: value.unsigned_abs() })
                }
                Kind::Scaled { of: step, factor } => of(step).and_then(|of| of.scaled(factor)),
                Kind::Add { left, right } => {
                    combined(of(left), of(right), u64::checked_add, i64::wrapping_add)
                }
                Kind::Subtract { left, right } => {
                    combined(of(left), of(right), u64::checked_add, i64::wrapping_sub)
                }
                Kind::Multiply { left, right } => {
                    combined(of(left), of(right), u64::checked_mul, i64::wrapping_mul)
                }
            });
        }
        Ok(self.results.iter().map(|result| result.and_then(|step| found[step].clone())).collect())
    }
}

fn scale_of(expression: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<i8> {
    match expression.data_type(schema) {
        Ok(DataType::Decimal128(_, scale)) => Some(scale),
        _ => None,
    }
}

fn power_of_ten(digits: i8) -> Option<i64> {
    10_i64.checked_pow(u32::try_from(digits).ok()?)
}

/// The operator and the operands of an expression, plain or checked.
fn operands(expression: &Arc<dyn PhysicalExpr>) -> Option<(Operator, [&Arc<dyn PhysicalExpr>; 2])> {
    if let Some(binary) = expression.downcast_ref::<BinaryExpr>() {
        return Some((*binary.op(), [binary.left(), binary.right()]));
    }
    let call = expression.downcast_ref::<ScalarFunctionExpr>()?;
    let function: &dyn Any = call.fun().inner().as_ref();
    let operator = match function.downcast_ref::<Checked>()?.operation() {
        Operation::Add => Operator::Plus,
        Operation::Subtract => Operator::Minus,
        Operation::Multiply => Operator::Multiply,
        Operation::Negate => return None,
    };
    let [left, right] = call.args() else { return None };
    Some((operator, [left, right]))
}

/// The values of a column, if all have room in 64 bits.
fn narrowed(column: &ArrayRef) -> Option<Narrow> {
    fn integers<T: ArrowPrimitiveType>(column: &ArrayRef) -> Option<ScalarBuffer<i64>>
    where
        T::Native: Into<i64>,
    {
        Some(column.as_primitive::<T>().values().iter().map(|value| (*value).into()).collect())
    }
    let values = match column.data_type() {
        DataType::Decimal128(..) => {
            let values = column.as_primitive::<Decimal128Type>().values();
            #[expect(clippy::cast_possible_truncation, reason = "what is cut is looked at")]
            let narrow: Vec<i64> = values.iter().map(|value| *value as i64).collect();
            let lost = narrow
                .iter()
                .zip(values.iter())
                .fold(0, |lost, (narrow, value)| lost | (*value >> 64) as i64 ^ (narrow >> 63));
            (lost == 0).then(|| narrow.into())
        }
        DataType::Int8 => integers::<Int8Type>(column),
        DataType::Int16 => integers::<Int16Type>(column),
        DataType::Int32 => integers::<Int32Type>(column),
        DataType::Int64 => Some(column.as_primitive::<Int64Type>().values().clone()),
        DataType::UInt8 => integers::<UInt8Type>(column),
        DataType::UInt16 => integers::<UInt16Type>(column),
        DataType::UInt32 => integers::<UInt32Type>(column),
        _ => None,
    }?;
    // Of a value below zero the next greater one is mirrored.
    let bits = values.iter().fold(0, |bits, value| bits | (value ^ (value >> 63))).cast_unsigned();
    let bound = if bits == 0 { 1 } else { u64::MAX >> bits.leading_zeros() };
    // -2^k has one bit more than its mirror.
    let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0).cloned();
    Some(Narrow { values: Values::Each(values), nulls, bound: bound.saturating_add(1) })
}

/// No value of 64 bits with a sign is farther from zero.
fn fits(bound: u64) -> bool {
    i64::try_from(bound).is_ok()
}

impl Narrow {
    fn scaled(&self, factor: i64) -> Option<Self> {
        let bound = self.bound.checked_mul(factor.unsigned_abs()).filter(|bound| fits(*bound))?;
        let values = match &self.values {
            _ if factor == 1 => self.values.clone(),
            Values::All(value) => Values::All(value * factor),
            Values::Each(values) => Values::Each(values.iter().map(|value| value * factor).collect()),
        };
        Some(Self { values, nulls: self.nulls.clone(), bound })
    }
}

/// The results of an operation, if they have room.
fn combined(
    left: Option<&Narrow>,
    right: Option<&Narrow>,
    bound: impl Fn(u64, u64) -> Option<u64>,
    operation: impl Fn(i64, i64) -> i64,
) -> Option<Narrow> {
    let (left, right) = (left?, right?);
    let bound = bound(left.bound, right.bound).filter(|bound| fits(*bound))?;
    let each = |values: Vec<i64>| Values::Each(values.into());
    let values = match (&left.values, &right.values) {
        (Values::All(left), Values::All(right)) => Values::All(operation(*left, *right)),
        (Values::All(left), Values::Each(right)) => {
            each(right.iter().map(|right| operation(*left, *right)).collect())
        }
        (Values::Each(left), Values::All(right)) => {
            each(left.iter().map(|left| operation(*left, *right)).collect())
        }
        (Values::Each(left), Values::Each(right)) => {
            each(left.iter().zip(right.iter()).map(|(left, right)| operation(*left, *right)).collect())
        }
    };
    Some(Narrow { values, nulls: NullBuffer::union(left.nulls.as_ref(), right.nulls.as_ref()), bound })
}

#[cfg(test)]
mod tests {
    use arrow::array::{Decimal128Array, Int32Array};
    use arrow::datatypes::Field;
    use datafusion::physical_expr::expressions::{Column, binary, cast};

    use super::*;

    /// Results are those of Arrow, or are left to it.
    #[test]
    fn narrow_results_are_the_wide_ones() {
        let decimals = |values: Vec<Option<i128>>, precision, scale| {
            let column = Decimal128Array::from(values).with_precision_and_scale(precision, scale).unwrap();
            Arc::new(column) as ArrayRef
        };
        let schema = Arc::new(Schema::new(vec![
            Field::new("a", DataType::Decimal128(15, 2), true),
            Field::new("b", DataType::Decimal128(12, 4), true),
            Field::new("i", DataType::Int32, true),
        ]));
        let column =
            |index: usize| Arc::new(Column::new(schema.field(index).name(), index)) as Arc<dyn PhysicalExpr>;
        let one = Arc::new(Literal::new(ScalarValue::Decimal128(Some(1), 20, 0))) as Arc<dyn PhysicalExpr>;
        let of = |left: &Arc<dyn PhysicalExpr>, operator, right: &Arc<dyn PhysicalExpr>| {
            binary(left.clone(), operator, right.clone(), &schema).unwrap()
        };
        let (a, b) = (column(0), column(1));
        let whole = cast(column(2), &schema, DataType::Decimal128(10, 0)).unwrap();
        let less = of(&one, Operator::Minus, &b);
        let product = of(&a, Operator::Multiply, &less);
        let expressions = [
            of(&product, Operator::Multiply, &of(&one, Operator::Plus, &a)),
            product,
            of(&a, Operator::Plus, &b),
            of(&whole, Operator::Multiply, &a),
            of(&a, Operator::Minus, &whole),
            a.clone(),
        ];
        let narrow = NarrowDecimals::new(expressions.iter(), &schema);
        let evaluate = |scale: i128| {
            let a = [Some(12_345), None, Some(-99), Some(0), Some(-(1 << 20)), Some(scale)];
            let b = [Some(5_000), Some(-1), None, Some(999_999), Some(-10_000), Some(7)];
            let i = [Some(3), Some(-4), Some(0), None, Some(i32::MIN), Some(i32::MAX)];
            let columns = vec![
                decimals(a.to_vec(), 15, 2),
                decimals(b.to_vec(), 12, 4),
                Arc::new(Int32Array::from(i.to_vec())) as ArrayRef,
            ];
            let batch = RecordBatch::try_new(schema.clone(), columns).unwrap();
            let found = narrow.evaluate(&batch).unwrap();
            let pairs = found.iter().zip(&expressions).map(|(found, expression)| {
                let found = found.as_ref()?;
                let Values::Each(values) = &found.values else { panic!("each row has a value") };
                let expected = expression.evaluate(&batch).unwrap().into_array(batch.num_rows()).unwrap();
                let expected: Vec<Option<i128>> = expected.as_primitive::<Decimal128Type>().iter().collect();
                let is_valid = |row: usize| found.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
                let rows = values.iter().enumerate();
                let values: Vec<Option<i128>> =
                    rows.map(|(row, value)| is_valid(row).then_some(i128::from(*value))).collect();
                assert_eq!(values, expected, "{expression}");
                Some(())
            });
            pairs.map(|pair| pair.is_some()).collect::<Vec<_>>()
        };
        assert_eq!(evaluate(1_000_000), [true, true, true, true, true, true]);
        assert_eq!(evaluate(999_999_999_999_999), [false, false, true, false, true, true]);
    }
}
