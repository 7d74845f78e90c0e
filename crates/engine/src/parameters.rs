//! Values for the parameters of a statement: `?`, `$1` and `:name`.

use std::collections::BTreeMap;

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

/// The values for one run of a statement.
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
