//! Conditions that storage answers on the encoded form: a column against constants, LIKE, IS NULL, and several of
//! them about one column that are joined by OR.
//!
//! Packed integers are compared without being unpacked, and of a dictionary each entry is looked at once. Storage's
//! order of floats has two zeros, SQL's one: a comparison with zero asks for what lies beyond both or between them.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal,
};
use keirin_kernels::compare::Comparison;
use keirin_kernels::text::{
    Inequality, LikePattern, Pad, SearchMethod, Strings, compare_constant, equal_constant, like,
};
use keirin_kernels::{BitBuffer, Level, Selection, bitmaps};
use keirin_storage::part::{Constant, PartReader, Predicate};

use super::super::types::arrow_type;
use crate::expressions::functions::collations::Mapped;

/// A longer list of values is looked up by hashes, of decoded rows.
const QUESTIONS_MAX: usize = 8;

/// A condition of one column: true where one of its questions is.
#[derive(Debug)]
pub(super) struct Condition {
    /// The column's place in the schema of the table.
    pub(super) column: usize,
    /// The type of its values.
    data_type: DataType,
    /// At least one.
    questions: Vec<Question>,
}

#[derive(Debug)]
enum Question {
    IsNull,
    IsNotNull,
    Compare(Comparison, Value),
    Like {
        pattern: LikePattern,
        is_negated: bool,
    },
    /// The same of what is made of texts by a collation.
    Mapped {
        of: Mapped,
        test: Test,
    },
}

#[derive(Debug)]
enum Test {
    Compare(Comparison, Vec<u8>),
    Like { pattern: LikePattern, is_negated: bool },
}

impl Test {
    fn rows(&self, level: Level, rows: Strings<'_, i64>) -> BitBuffer {
        let inequality =
            |inequality, constant: &[u8]| compare_constant(level, rows, inequality, constant, Pad::None);
        match self {
            Self::Compare(Comparison::Equal, constant) => equal_constant(level, rows, constant),
            Self::Compare(Comparison::NotEqual, constant) => {
                bitmaps::not(level, equal_constant(level, rows, constant).as_bits())
            }
            Self::Compare(Comparison::Less, constant) => inequality(Inequality::Less, constant),
            Self::Compare(Comparison::LessEqual, constant) => inequality(Inequality::LessOrEqual, constant),
            Self::Compare(Comparison::Greater, constant) => inequality(Inequality::Greater, constant),
            Self::Compare(Comparison::GreaterEqual, constant) => {
                inequality(Inequality::GreaterOrEqual, constant)
            }
            Self::Like { pattern, is_negated } => {
                let found = like(level, rows, pattern, Selection::All, SearchMethod::WholeBuffer);
                if *is_negated { bitmaps::not(level, found.as_bits()) } else { found }
            }
        }
    }
}

#[derive(Debug)]
pub(crate) enum Value {
    Flag(bool),
    Integer(i128),
    F32(f32),
    F64(f64),
    Text(Vec<u8>),
}

impl Condition {
    /// What an expression in terms of the table's schema asks, if it is such a condition.
    pub(super) fn of(expression: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<Self> {
        if let Some(binary) = expression.downcast_ref::<BinaryExpr>()
            && *binary.op() == Operator::Or
        {
            return Self::of(binary.left(), schema)?.or(Self::of(binary.right(), schema)?);
        }
        if let Some(list) = expression.downcast_ref::<InListExpr>() {
            let asked = Asked::of(list.expr())?;
            let column = asked.column();
            let is_short = (1..=QUESTIONS_MAX).contains(&list.len()) && !list.negated();
            let equal = |item| compare(Comparison::Equal, item, &asked, schema);
            let questions = if is_short { list.list().iter().map(equal).collect() } else { None };
            return Some(Self::new(column, schema, questions?));
        }
        let (column, question) = question(expression, schema)?;
        Some(Self::new(column, schema, vec![question]))
    }

    /// A condition that holds wherever an expression in terms of the table's schema does, and maybe elsewhere.
    pub(super) fn implied_by(expression: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<Self> {
        let Some(binary) = expression.downcast_ref::<BinaryExpr>() else {
            return Self::of(expression, schema);
        };
        let implied = |side| Self::implied_by(side, schema);
        match binary.op() {
            Operator::Or => implied(binary.left())?.or(implied(binary.right())?),
            Operator::And => implied(binary.left()).or_else(|| implied(binary.right())),
            _ => Self::of(expression, schema),
        }
    }

    fn new(column: usize, schema: &Schema, questions: Vec<Question>) -> Self {
        Self { column, data_type: schema.field(column).data_type().clone(), questions }
    }

    /// One or the other, where both are about the same column.
    fn or(mut self, other: Self) -> Option<Self> {
        let is_one = self.column == other.column;
        self.questions.extend(other.questions);
        (is_one && self.questions.len() <= QUESTIONS_MAX).then_some(self)
    }

    /// Whether it is only about which rows have a value.
    pub(super) fn is_about_nulls(&self) -> bool {
        self.questions.iter().all(|question| matches!(question, Question::IsNull | Question::IsNotNull))
    }

    /// The rows of a stripe of which it is true, if storage can say that of the part's column of this place. Where few
    /// rows are wanted, only if that takes no look at all values.
    ///
    /// # Errors
    /// When the bytes are not what was written.
    pub(super) fn rows(
        &self,
        reader: &PartReader,
        column: usize,
        stripe: usize,
        wants_few: bool,
    ) -> keirin_storage::Result<Option<BitBuffer>> {
        if arrow_type(&reader.fields()[column].data_type) != self.data_type {
            return Ok(None);
        }
        let mut any: Option<BitBuffer> = None;
        for question in &self.questions {
            let Some(found) = question.rows(reader, column, stripe, wants_few)? else { return Ok(None) };
            any = Some(match any {
                Some(any) => bitmaps::or(Level::best(), any.as_bits(), found.as_bits()),
                None => found,
            });
        }
        Ok(any)
    }
}

impl Question {
    /// See [`Condition::rows`].
    fn rows(
        &self,
        reader: &PartReader,
        column: usize,
        stripe: usize,
        wants_few: bool,
    ) -> keirin_storage::Result<Option<BitBuffer>> {
        let level = Level::best();
        let predicate = match self {
            Self::IsNull => Predicate::IsNull,
            Self::IsNotNull => Predicate::IsNotNull,
            Self::Compare(comparison, Value::Text(text)) if wants_few => Predicate::Place(*comparison, text),
            Self::Mapped { of, test: Test::Compare(comparison, constant) }
                if !wants_few && of.is_trimming() =>
            {
                let matches = |rows: Strings<'_, i32>| without_spaces(level, rows, *comparison, constant);
                return reader.filter(column, stripe, &Predicate::Text(&matches));
            }
            Self::Mapped { of, test } if !wants_few => {
                let matches = |rows: Strings<'_, i32>| {
                    of.ask(level, rows, |rows: Strings<'_, i64>| test.rows(level, rows))
                };
                return reader.filter(column, stripe, &Predicate::Text(&matches));
            }
            _ if wants_few => return Ok(None),
            Self::Mapped { .. } => return Ok(None),
            Self::Compare(comparison, value) => Predicate::Compare(*comparison, value.constant()),
            Self::Like { pattern, is_negated } => {
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

/// The comparison of texts with a constant, without the spaces at their ends.
fn without_spaces(
    level: Level,
    rows: Strings<'_, i32>,
    comparison: Comparison,
    constant: &[u8],
) -> BitBuffer {
    let holds = |inequality| compare_constant(level, rows, inequality, constant, Pad::Trim);
    let is_equal = || {
        let [least, most] = [Inequality::GreaterOrEqual, Inequality::LessOrEqual].map(holds);
        bitmaps::and(level, least.as_bits(), most.as_bits())
    };
    match comparison {
        Comparison::Equal => is_equal(),
        Comparison::NotEqual => bitmaps::not(level, is_equal().as_bits()),
        Comparison::Less => holds(Inequality::Less),
        Comparison::LessEqual => holds(Inequality::LessOrEqual),
        Comparison::Greater => holds(Inequality::Greater),
        Comparison::GreaterEqual => holds(Inequality::GreaterOrEqual),
    }
}

/// A column, or what is made of its texts.
enum Asked {
    Column(usize),
    Mapped(Mapped),
}

impl Asked {
    fn of(expression: &Arc<dyn PhysicalExpr>) -> Option<Self> {
        let column = expression.downcast_ref::<Column>().map(|column| Self::Column(column.index()));
        column.or_else(|| Mapped::of(expression).map(Self::Mapped))
    }

    fn column(&self) -> usize {
        match self {
            Self::Column(column) => *column,
            Self::Mapped(mapped) => mapped.column,
        }
    }
}

/// What an expression asks of a column, if it is one question.
fn question(expression: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<(usize, Question)> {
    let column = |expression: &Arc<dyn PhysicalExpr>| Some(expression.downcast_ref::<Column>()?.index());
    if let Some(binary) = expression.downcast_ref::<BinaryExpr>() {
        let comparison = comparison(*binary.op())?;
        let (asked, comparison, literal) = match (Asked::of(binary.left()), Asked::of(binary.right())) {
            (Some(asked), None) => (asked, comparison, binary.right()),
            (None, Some(asked)) => (asked, comparison.flip(), binary.left()),
            _ => return None,
        };
        return Some((asked.column(), compare(comparison, literal, &asked, schema)?));
    }
    if let Some(is_null) = expression.downcast_ref::<IsNullExpr>() {
        return Some((column(is_null.arg())?, Question::IsNull));
    }
    if let Some(is_not_null) = expression.downcast_ref::<IsNotNullExpr>() {
        return Some((column(is_not_null.arg())?, Question::IsNotNull));
    }
    let expression = expression.downcast_ref::<LikeExpr>()?;
    let asked = Asked::of(expression.expr())?;
    let index = asked.column();
    let pattern = expression.pattern().downcast_ref::<Literal>()?.value();
    let ScalarValue::Utf8View(Some(pattern)) = pattern else { return None };
    // What a backslash means is Arrow's to say.
    let is_text = *schema.field(index).data_type() == DataType::Utf8View;
    if !is_text || expression.case_insensitive() || pattern.contains('\\') {
        return None;
    }
    let (pattern, is_negated) = (LikePattern::new(pattern, None), expression.negated());
    let question = match asked {
        Asked::Column(_) => Question::Like { pattern, is_negated },
        Asked::Mapped(of) => Question::Mapped { of, test: Test::Like { pattern, is_negated } },
    };
    Some((index, question))
}

/// The comparison of what is asked with a literal that has its type.
fn compare(
    comparison: Comparison,
    literal: &Arc<dyn PhysicalExpr>,
    asked: &Asked,
    schema: &Schema,
) -> Option<Question> {
    let literal = literal.downcast_ref::<Literal>()?.value();
    let is_alike = literal.data_type() == *schema.field(asked.column()).data_type();
    let value = if is_alike { value(literal, comparison)? } else { return None };
    Some(match (asked, value) {
        (Asked::Column(_), value) => Question::Compare(comparison, value),
        (Asked::Mapped(of), Value::Text(text)) => {
            Question::Mapped { of: of.clone(), test: Test::Compare(comparison, text) }
        }
        _ => return None,
    })
}

impl Value {
    pub(crate) fn constant(&self) -> Constant<'_> {
        match self {
            Self::Flag(flag) => Constant::Flag(*flag),
            Self::Integer(integer) => Constant::Integer(*integer),
            Self::F32(float) => Constant::F32(*float),
            Self::F64(float) => Constant::F64(*float),
            Self::Text(text) => Constant::Text(text),
        }
    }
}

/// The zero with which storage compares as SQL does with both.
fn zero(comparison: Comparison) -> Option<f32> {
    match comparison {
        Comparison::Less | Comparison::GreaterEqual => Some(-0.0),
        Comparison::Greater | Comparison::LessEqual => Some(0.0),
        Comparison::Equal | Comparison::NotEqual => None,
    }
}

/// A value to compare with, as storage has it: the planner has given it the type of the column.
pub(crate) fn value(value: &ScalarValue, comparison: Comparison) -> Option<Value> {
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
        ScalarValue::Float32(Some(0.0)) => Value::F32(zero(comparison)?),
        ScalarValue::Float32(Some(value)) if !value.is_nan() => Value::F32(*value),
        ScalarValue::Float64(Some(0.0)) => Value::F64(zero(comparison)?.into()),
        ScalarValue::Float64(Some(value)) if !value.is_nan() => Value::F64(*value),
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
