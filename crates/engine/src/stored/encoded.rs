//! Conditions that storage answers on the encoded form: a column against a constant, LIKE, IS NULL.
//!
//! Packed integers are compared without being unpacked, and of a dictionary each entry is looked at once. Floats are
//! left to Arrow, whose order has two zeros.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, Column, IsNotNullExpr, IsNullExpr, LikeExpr, Literal,
};
use keirin_kernels::compare::Comparison;
use keirin_kernels::text::{LikePattern, SearchMethod, Strings, like};
use keirin_kernels::{BitBuffer, Level, Selection, bitmaps};
use keirin_storage::part::{Constant, PartReader, Predicate};

use super::types::arrow_type;

/// A condition of one column.
#[derive(Debug)]
pub(super) struct Condition {
    /// The column's place in the schema of the table.
    pub(super) column: usize,
    /// The type of its values.
    data_type: DataType,
    question: Question,
}

#[derive(Debug)]
enum Question {
    IsNull,
    IsNotNull,
    Compare(Comparison, Value),
    Like { pattern: LikePattern, is_negated: bool },
}

#[derive(Debug)]
enum Value {
    Flag(bool),
    Integer(i128),
    Text(Vec<u8>),
}

impl Condition {
    /// What an expression in terms of the table's schema asks, if it is such a condition.
    pub(super) fn of(expression: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<Self> {
        let column = |expression: &Arc<dyn PhysicalExpr>| Some(expression.downcast_ref::<Column>()?.index());
        let constant = |expression: &Arc<dyn PhysicalExpr>, column: usize| {
            let value = expression.downcast_ref::<Literal>()?.value();
            (value.data_type() == *schema.field(column).data_type()).then(|| value.clone())
        };
        let (column, question) = if let Some(binary) = expression.downcast_ref::<BinaryExpr>() {
            let comparison = comparison(*binary.op())?;
            match (column(binary.left()), column(binary.right())) {
                (Some(index), None) => {
                    (index, Question::Compare(comparison, value(&constant(binary.right(), index)?)?))
                }
                (None, Some(index)) => {
                    (index, Question::Compare(comparison.flip(), value(&constant(binary.left(), index)?)?))
                }
                _ => return None,
            }
        } else if let Some(is_null) = expression.downcast_ref::<IsNullExpr>() {
            (column(is_null.arg())?, Question::IsNull)
        } else if let Some(is_not_null) = expression.downcast_ref::<IsNotNullExpr>() {
            (column(is_not_null.arg())?, Question::IsNotNull)
        } else {
            let expression = expression.downcast_ref::<LikeExpr>()?;
            let index = column(expression.expr())?;
            let Some(ScalarValue::Utf8View(Some(pattern))) = constant(expression.pattern(), index) else {
                return None;
            };
            // What a backslash means is Arrow's to say.
            if expression.case_insensitive() || pattern.contains('\\') {
                return None;
            }
            let (pattern, is_negated) = (LikePattern::new(&pattern, None), expression.negated());
            (index, Question::Like { pattern, is_negated })
        };
        Some(Self { column, data_type: schema.field(column).data_type().clone(), question })
    }

    /// Whether it is only about which rows have a value.
    pub(super) fn is_about_nulls(&self) -> bool {
        matches!(self.question, Question::IsNull | Question::IsNotNull)
    }

    /// The rows of a stripe of which it is true, if storage can say that of the part's column of this place.
    ///
    /// # Errors
    /// When the bytes are not what was written.
    pub(super) fn rows(
        &self,
        reader: &PartReader,
        column: usize,
        stripe: usize,
    ) -> keirin_storage::Result<Option<BitBuffer>> {
        if arrow_type(&reader.fields()[column].data_type) != self.data_type {
            return Ok(None);
        }
        let level = Level::best();
        let predicate = match &self.question {
            Question::IsNull => Predicate::IsNull,
            Question::IsNotNull => Predicate::IsNotNull,
            Question::Compare(comparison, value) => Predicate::Compare(*comparison, value.constant()),
            Question::Like { pattern, is_negated } => {
                let matches = |rows: Strings<'_, i32>| {
                    let found = like(level, rows, pattern, Selection::All, SearchMethod::WholeBuffer);
                    if *is_negated { bitmaps::not(level, found.as_bits()) } else { found }
                };
                return reader.filter(column, stripe, &Predicate::Text(&matches));
            }
        };
        reader.filter(column, stripe, &predicate)
    }
}

impl Value {
    fn constant(&self) -> Constant<'_> {
        match self {
            Self::Flag(flag) => Constant::Flag(*flag),
            Self::Integer(integer) => Constant::Integer(*integer),
            Self::Text(text) => Constant::Text(text),
        }
    }
}

/// A value as storage has it: the planner has given it the type of the column.
fn value(value: &ScalarValue) -> Option<Value> {
    Some(match value {
        ScalarValue::Boolean(Some(flag)) => Value::Flag(*flag),
        ScalarValue::Int8(Some(value)) => Value::Integer(i128::from(*value)),
        ScalarValue::Int16(Some(value)) => Value::Integer(i128::from(*value)),
        ScalarValue::Int32(Some(value)) | ScalarValue::Date32(Some(value)) => {
            Value::Integer(i128::from(*value))
        }
        ScalarValue::Int64(Some(value))
        | ScalarValue::TimestampSecond(Some(value), _)
        | ScalarValue::TimestampMillisecond(Some(value), _)
        | ScalarValue::TimestampMicrosecond(Some(value), _)
        | ScalarValue::TimestampNanosecond(Some(value), _) => Value::Integer(i128::from(*value)),
        ScalarValue::UInt8(Some(value)) => Value::Integer(i128::from(*value)),
        ScalarValue::UInt16(Some(value)) => Value::Integer(i128::from(*value)),
        ScalarValue::UInt32(Some(value)) => Value::Integer(i128::from(*value)),
        ScalarValue::UInt64(Some(value)) => Value::Integer(i128::from(*value)),
        ScalarValue::Decimal128(Some(value), _, _) => Value::Integer(*value),
        ScalarValue::Utf8View(Some(text)) => Value::Text(text.as_bytes().to_vec()),
        _ => return None,
    })
}

fn comparison(operator: Operator) -> Option<Comparison> {
    Some(match operator {
        Operator::Eq => Comparison::Equal,
        Operator::NotEq => Comparison::NotEqual,
        Operator::Lt => Comparison::Less,
        Operator::LtEq => Comparison::LessEqual,
        Operator::Gt => Comparison::Greater,
        Operator::GtEq => Comparison::GreaterEqual,
        _ => return None,
    })
}
