//! `sum` of whole numbers and of DECIMAL(38, s): partial totals are wider than the result, and only the final
//! total must fit. Sums of floats are exact ([`floats`](super::floats)).
//!
//! Partial totals of whole numbers are DECIMAL(38, 0), those of DECIMAL(38, s) have 256 bits. So whether a
//! sum fails does not depend on the order of the rows or on how they are dealt out to threads. Groups of
//! DECIMAL(38, s) start with 128 bits and switch to 256 before a total can overflow. All other types, smaller
//! DECIMALs included, use DataFusion's own `sum`, which also sums the widened values for groups and for
//! DISTINCT.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::functions_aggregate::sum::Sum;
use datafusion::logical_expr::expr::{AggregateFunction, ScalarFunction};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, Expr, GroupsAccumulator, Operator, ReversedUDAF, ScalarUDF, Signature,
};

use super::checked::{Checked, Operation};
use super::floats::What;
use super::totals::{DecimalGroups, DistinctWindow, Narrow, Total, Widened, WidenedGroups, wide_type};

/// See the [module](self).
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct CheckedSum {
    inner: Sum,
}

fn is_checked(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Int64 | DataType::UInt64 | DataType::Decimal128(DECIMAL128_MAX_PRECISION, _)
    )
}

fn wide_field(field: &FieldRef) -> FieldRef {
    Arc::new(Field::new(field.name(), wide_type(field.data_type()), field.is_nullable()))
}

fn wide_args(args: AccumulatorArgs<'_>) -> AccumulatorArgs<'_> {
    AccumulatorArgs { return_field: wide_field(&args.return_field), ..args }
}

impl AggregateUDFImpl for CheckedSum {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arg_types)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        if *args.return_type() == DataType::Float64 {
            return Ok(What::Sum.state_fields(&args));
        }
        if is_checked(args.return_type()) {
            let return_field = wide_field(&args.return_field);
            return self.inner.state_fields(StateFieldsArgs { return_field, ..args });
        }
        self.inner.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if *args.return_type() == DataType::Float64 {
            return Ok(What::Sum.accumulator(args.is_distinct));
        }
        let narrow = Narrow::new(&args);
        match (is_checked(args.return_type()), args.is_distinct) {
            (false, _) => self.inner.accumulator(args),
            (true, false) => Ok(Box::new(Total::new(narrow))),
            (true, true) => {
                let inner = self.inner.accumulator(wide_args(args))?;
                Ok(Box::new(Widened { inner, narrow }))
            }
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        if *args.return_type() == DataType::Float64 {
            return !args.is_distinct;
        }
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        if *args.return_type() == DataType::Float64 {
            return Ok(What::Sum.groups());
        }
        if !is_checked(args.return_type()) {
            return self.inner.create_groups_accumulator(args);
        }
        let narrow = Narrow::new(&args);
        if matches!(narrow.data_type, DataType::Decimal128(..)) {
            let wide = AccumulatorArgs { return_field: wide_field(&args.return_field), ..args };
            let wide = self.inner.create_groups_accumulator(wide)?;
            let inner = self.inner.create_groups_accumulator(args)?;
            return Ok(Box::new(DecimalGroups { inner, wide: Some(wide), bound: 0, narrow }));
        }
        let inner = self.inner.create_groups_accumulator(wide_args(args))?;
        Ok(Box::new(WidenedGroups { inner, narrow }))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if *args.return_type() == DataType::Float64 && !args.is_distinct {
            return Ok(What::Sum.sliding());
        }
        let narrow = Narrow::new(&args);
        match (is_checked(args.return_type()), args.is_distinct) {
            (false, _) => self.inner.create_sliding_accumulator(args),
            (true, false) => Ok(Box::new(Total::new(narrow))),
            (true, true) if matches!(narrow.data_type, DataType::Decimal128(..)) => {
                self.inner.create_sliding_accumulator(args)
            }
            (true, true) => Ok(Box::new(DistinctWindow { sum: 0, counts: HashMap::new(), narrow })),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.inner.reverse_expr()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn simplify_expr_op_literal(
        &self,
        function: &AggregateFunction,
        argument: &Expr,
        op: Operator,
        literal: &Expr,
        is_argument_left: bool,
    ) -> Result<Option<Expr>> {
        // `sum(x + c)` becomes `sum(x) + c * count(x)`, which must not wrap either; both parts are BIGINT
        // then.
        if !matches!(literal, Expr::Literal(ScalarValue::Int64(_), _)) {
            return Ok(None);
        }
        // Names leave casts out: without one of its own, `count(x)` may be what the query has under that name.
        let argument = argument.clone().alias(format!("{argument} of sums"));
        let simplified =
            self.inner.simplify_expr_op_literal(function, &argument, op, literal, is_argument_left)?;
        simplified.map(|expr| expr.transform_up(checked_operator).data()).transpose()
    }
}

/// Replaces a plain operator by a checked one.
fn checked_operator(expr: Expr) -> Result<Transformed<Expr>> {
    let Expr::BinaryExpr(binary) = &expr else { return Ok(Transformed::no(expr)) };
    let operation = match binary.op {
        Operator::Plus => Operation::Add,
        Operator::Minus => Operation::Subtract,
        Operator::Multiply => Operation::Multiply,
        _ => return Ok(Transformed::no(expr)),
    };
    let function = Arc::new(ScalarUDF::new_from_impl(Checked::new(operation)));
    let arguments = vec![binary.left.as_ref().clone(), binary.right.as_ref().clone()];
    Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(function, arguments))))
}
