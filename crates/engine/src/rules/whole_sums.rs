//! Sums beside `count(DISTINCT y)` stay whole.
//!
//! DataFusion takes `sum(x), count(DISTINCT y)` for sums of what is summed for each `y`. Floats would be rounded more than
//! once then, a partial sum of BIGINTs can overflow where the whole does not, and a sum of sums of DECIMALs has more digits
//! than what the sum is compared with.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, LogicalPlan};
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
        if let LogicalPlan::Aggregate(aggregate) = &plan {
            let schema = aggregate.input.schema();
            for expr in &aggregate.aggr_expr {
                let is_decimal = matches!(expr.get_type(schema)?, DataType::Decimal128(..));
                if is_decimal && is_sum(expr) || !may_be_cut(expr, schema)? {
                    return Ok(Transformed::no(plan));
                }
            }
        }
        self.0.rewrite(plan, config)
    }
}

fn is_sum(expr: &Expr) -> bool {
    matches!(expr, Expr::AggregateFunction(call) if call.func.name() == "sum")
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
