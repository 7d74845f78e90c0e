//! Casts whose values have another order than those they are made of.
//!
//! DataFusion takes the casts of the least and the greatest value of a column for those of its casts: of 5 to 24 as texts
//! `min` was '5' and `max` was '24', from the statistics of a table on disk. It looks for casts of columns in projections;
//! those within an [`Unordered`] it does not see.

use std::fmt::{self, Display, Formatter};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::CastExpr;

/// A cast that keeps no order. See the [module](self).
#[derive(Debug, Eq)]
pub(crate) struct Unordered(Arc<dyn PhysicalExpr>);

impl Unordered {
    /// `expression`, over columns of `schema`, with this around it, if it has to be.
    pub(crate) fn around(
        expression: &Arc<dyn PhysicalExpr>,
        schema: &Schema,
    ) -> Result<Option<Arc<dyn PhysicalExpr>>> {
        let mut inner = expression;
        while let Some(cast) = inner.downcast_ref::<CastExpr>() {
            if !keeps_order(&cast.expr().data_type(schema)?, cast.cast_type()) {
                return Ok(Some(Arc::new(Self(expression.clone()))));
            }
            inner = cast.expr();
        }
        Ok(None)
    }
}

/// Whether a cast gives values in the order of those it takes.
fn keeps_order(from: &DataType, to: &DataType) -> bool {
    use DataType::{
        Binary, BinaryView, Date32, Date64, Duration, LargeBinary, LargeUtf8, Timestamp, Utf8, Utf8View,
    };
    let is_text = |data_type: &DataType| {
        matches!(data_type, Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView)
    };
    let is_number = |data_type: &DataType| {
        data_type.is_numeric() || matches!(data_type, Date32 | Date64 | Duration(_) | Timestamp(_, None))
    };
    from == to || is_text(from) && is_text(to) || is_number(from) && is_number(to)
}

impl PartialEq for Unordered {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_ref() == other.0.as_ref()
    }
}

impl Hash for Unordered {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Display for Unordered {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PhysicalExpr for Unordered {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.0.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.0.nullable(schema)
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.0.return_field(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        self.0.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.0]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        Ok(Arc::new(Self(children.swap_remove(0))))
    }

    fn fmt_sql(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.fmt_sql(f)
    }
}
