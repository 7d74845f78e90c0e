//! Sums beside `count(DISTINCT y)` stay whole.
//!
//! DataFusion takes `sum(x), count(DISTINCT y)` for sums of what is summed for each `y`. Floats would be rounded more than
//! once then, and a partial sum of BIGINTs can overflow where the whole does not. A sum of sums of DECIMALs would have more
//! digits than the sum.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, LogicalPlan, Projection, cast};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::single_distinct_to_groupby::SingleDistinctToGroupBy;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// DataFusion's rule, but for such sums.
#[derive(Debug, Default)]
pub(crate) struct WholeSums(SingleDistinctToGroupBy);

impl OptimizerRule for WholeSums {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Aggregate(aggregate) = &plan else { return Ok(Transformed::no(plan)) };
        for expr in &aggregate.aggr_expr {
            if !may_be_cut(expr, aggregate.input.schema())? {
                return Ok(Transformed::no(plan));
            }
        }
        let schema = plan.schema().clone();
        self.0.rewrite(plan, config)?.map_data(|plan| with_types(plan, &schema))
    }
}

/// The columns of a projection in the types of a schema.
fn with_types(plan: LogicalPlan, schema: &DFSchema) -> Result<LogicalPlan> {
    let LogicalPlan::Projection(projection) = plan else { return Ok(plan) };
    let pairs = projection.expr.into_iter().zip(schema.iter());
    let expressions = pairs.map(|(expr, (qualifier, field))| {
        if expr.get_type(projection.input.schema())? == *field.data_type() {
            return Ok(expr);
        }
        Ok(cast(expr.unalias(), field.data_type().clone()).alias_qualified(qualifier.cloned(), field.name()))
    });
    let expressions = expressions.collect::<Result<_>>()?;
    Ok(LogicalPlan::Projection(Projection::try_new(expressions, projection.input)?))
}

/// Whether a sum is that of any partial ones, of which none overflows: of integers and DECIMALs with so few digits that no
/// table has enough rows for that.
pub(crate) fn may_be_cut(expr: &Expr, schema: &DFSchema) -> Result<bool> {
    const DIGITS_MAX: u8 = 28;
    let Expr::AggregateFunction(call) = expr else { return Ok(true) };
    let [argument] = &call.params.args[..] else { return Ok(true) };
    if call.func.name() != "sum" || call.params.distinct {
        return Ok(true);
    }
    let narrow = |data_type: &DataType| {
        data_type.is_integer() && !matches!(data_type, DataType::Int64 | DataType::UInt64)
    };
    Ok(match argument.get_type(schema)? {
        DataType::Decimal128(digits, _) => digits <= DIGITS_MAX,
        data_type if data_type.is_integer() => match argument {
            Expr::Cast(Cast { expr, .. }) => narrow(&expr.get_type(schema)?),
            _ => narrow(&data_type),
        },
        _ => false,
    })
}
