//! Values for the parameters of a statement: `?`, `$1` and `:name`.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{self, Expr, Spanned, UnaryOperator, VisitMut, VisitorMut};

use crate::error::{Error, ErrorKind, Result};
use crate::sql::text::{byte_range, nearest};
use crate::sql::walk::walk;

/// A value bound to a parameter.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// SQL NULL.
    Null,
    /// BOOLEAN.
    Boolean(bool),
    /// BIGINT.
    Int64(i64),
    /// DOUBLE.
    Float64(f64),
    /// VARCHAR.
    Text(String),
    /// VARBINARY.
    Binary(Vec<u8>),
}

macro_rules! value_from {
    ($($from:ty => $variant:ident),* $(,)?) => {$(
        impl From<$from> for Value {
            fn from(value: $from) -> Self {
                Self::$variant(value.into())
            }
        }
    )*};
}

value_from!(bool => Boolean, i32 => Int64, u32 => Int64, i64 => Int64, f64 => Float64, &str => Text, String => Text, Vec<u8> => Binary);

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// The parameter values for one run of a statement.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Parameters {
    /// The statement has no parameters.
    #[default]
    None,
    /// Values for `?` in order, or for `$1`, `$2`...
    Positional(Vec<Value>),
    /// Values for `:name`.
    Named(BTreeMap<String, Value>),
}

impl<V: Into<Value>> FromIterator<V> for Parameters {
    fn from_iter<I: IntoIterator<Item = V>>(values: I) -> Self {
        Self::Positional(values.into_iter().map(Into::into).collect())
    }
}

impl<V: Into<Value>, const N: usize> From<[V; N]> for Parameters {
    fn from(values: [V; N]) -> Self {
        values.into_iter().collect()
    }
}

impl<K: Into<String>, V: Into<Value>, const N: usize> From<[(K, V); N]> for Parameters {
    fn from(values: [(K, V); N]) -> Self {
        Self::Named(values.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

impl Parameters {
    /// Replaces the parameters of `statement`, which was parsed from `sql`, by the values.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a parameter without a value.
    pub(crate) fn bind(&self, statement: &mut impl VisitMut, sql: &str) -> Result<()> {
        match walk(statement, &mut Binder { parameters: self, sql }) {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(()),
        }
    }

    fn value(&self, placeholder: &str) -> Result<&Value> {
        let name = &placeholder[1..];
        match self {
            Self::Positional(values) => {
                let index = name.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
                index.and_then(|index| values.get(index)).ok_or_else(|| {
                    let message = format!("parameter {placeholder} has no value: {} are given", values.len());
                    Error::new(ErrorKind::Invalid, message)
                })
            }
            Self::Named(values) => values.get(name).ok_or_else(|| {
                let error = Error::new(ErrorKind::Invalid, format!("parameter {placeholder} has no value"));
                match nearest(name, values.keys().map(String::as_str)) {
                    Some(given) => error.with_hint(format!("a value is given for '{given}'")),
                    None => error,
                }
            }),
            Self::None => {
                Err(Error::new(ErrorKind::Invalid, format!("parameter {placeholder} has no value"))
                    .with_hint("give values with Session::sql_with or Session::run"))
            }
        }
    }
}

/// Replaces placeholders by literals: they work wherever a literal does, also in LIMIT and file options.
struct Binder<'a> {
    parameters: &'a Parameters,
    sql: &'a str,
}

impl VisitorMut for Binder<'_> {
    type Break = Error;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        let Expr::Value(value) = expr else { return ControlFlow::Continue(()) };
        let ast::Value::Placeholder(name) = &value.value else { return ControlFlow::Continue(()) };
        match self.parameters.value(name) {
            Ok(value) => *expr = literal(value),
            Err(error) => {
                return ControlFlow::Break(match byte_range(self.sql, expr.span()) {
                    Some(span) => error.with_span(span),
                    None => error,
                });
            }
        }
        ControlFlow::Continue(())
    }
}

fn literal(value: &Value) -> Expr {
    let number = |text: String| Expr::value(ast::Value::Number(text, false));
    match value {
        Value::Null => Expr::value(ast::Value::Null),
        Value::Boolean(value) => Expr::value(ast::Value::Boolean(*value)),
        Value::Int64(value) if *value < 0 => Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr: Box::new(number(value.unsigned_abs().to_string())),
        },
        Value::Int64(value) => number(value.to_string()),
        // A cast of a text: NaN, infinities and exponents have no literal.
        Value::Float64(value) => Expr::Cast {
            kind: ast::CastKind::Cast,
            expr: Box::new(Expr::value(ast::Value::SingleQuotedString(value.to_string()))),
            data_type: ast::DataType::Double(ast::ExactNumberInfo::None),
            array: false,
            format: None,
        },
        Value::Text(text) => Expr::value(ast::Value::SingleQuotedString(text.clone())),
        Value::Binary(bytes) => Expr::value(ast::Value::HexStringLiteral(
            bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        )),
    }
}
