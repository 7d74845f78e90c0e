//! `range` and `generate_series` as tables of timestamps in microseconds.
//!
//! DataFusion's functions step in nanoseconds and take no other unit, so such a series would end in 2262.

use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::catalog::{TableFunction, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Column, ScalarValue, plan_err};
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, cast};

/// Replaces DataFusion's functions.
pub(super) fn register(state: &mut SessionState) {
    for name in ["generate_series", "range"] {
        if let Some(inner) = state.table_functions().get(name).cloned() {
            state.register_udtf(name, Arc::new(Series { inner }));
        }
    }
}

#[derive(Debug)]
struct Series {
    inner: Arc<TableFunction>,
}

impl TableFunctionImpl for Series {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let exprs = args.exprs().iter().map(in_nanoseconds).collect::<Result<Vec<_>>>()?;
        let table =
            self.inner.create_table_provider_with_args(TableFunctionArgs::new(&exprs, args.session()))?;
        let schema = table.schema();
        let DataType::Timestamp(TimeUnit::Nanosecond, zone) = schema.field(0).data_type() else {
            return Ok(table);
        };
        let (name, micros) =
            (schema.field(0).name(), DataType::Timestamp(TimeUnit::Microsecond, zone.clone()));
        let value = cast(Expr::Column(Column::from_name(name)), micros).alias(name);
        let source = provider_as_source(table);
        let plan = LogicalPlanBuilder::scan(self.inner.name(), source, None)?.project([value])?.build()?;
        Ok(Arc::new(ViewTable::new(plan, None)))
    }
}

fn in_nanoseconds(expr: &Expr) -> Result<Expr> {
    let Expr::Literal(value, metadata) = expr else { return Ok(expr.clone()) };
    let DataType::Timestamp(_, zone) = value.data_type() else { return Ok(expr.clone()) };
    match value.cast_to(&DataType::Timestamp(TimeUnit::Nanosecond, zone)) {
        Ok(value) if value.is_null() => Ok(Expr::Literal(ScalarValue::Null, metadata.clone())),
        Ok(value) => Ok(Expr::Literal(value, metadata.clone())),
        Err(_) => plan_err!("a series of timestamps is between the years 1678 and 2261; {value} is not"),
    }
}
