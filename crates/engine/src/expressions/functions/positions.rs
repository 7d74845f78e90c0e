//! Window functions of positions.
//!
//! `row_number`, `rank`, `dense_rank` and `ntile` are BIGINT, as in PostgreSQL. DataFusion's are unsigned, with which a
//! difference or quotient is no BIGINT. And `lead ... IGNORE NULLS` waits for whole partitions: DataFusion's misses values
//! when it takes rows as they come.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::compute::{SortOptions, cast};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::function::{ExpressionArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::{
    Documentation, LimitEffect, PartitionEvaluator, ReversedUDWF, Signature, WindowUDF, WindowUDFImpl,
};
use datafusion::physical_expr::PhysicalExpr;

/// Wraps the functions.
pub(super) fn register(state: &mut SessionState) -> Result<()> {
    for name in ["row_number", "rank", "dense_rank", "ntile", "lag", "lead"] {
        let inner = state.udwf(name)?;
        state.register_udwf(wrapped(inner))?;
    }
    Ok(())
}

fn wrapped(inner: Arc<WindowUDF>) -> Arc<WindowUDF> {
    Arc::new(WindowUDF::new_from_impl(Wrapped { inner }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Wrapped {
    inner: Arc<WindowUDF>,
}

impl Wrapped {
    /// Whether it gives a value of another row, not a number.
    fn is_shift(&self) -> bool {
        matches!(self.inner.name(), "lag" | "lead")
    }
}

impl WindowUDFImpl for Wrapped {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn expressions(&self, arguments: ExpressionArgs) -> Vec<Arc<dyn PhysicalExpr>> {
        self.inner.inner().expressions(arguments)
    }

    fn partition_evaluator(&self, arguments: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        let ignores_nulls = arguments.ignore_nulls();
        let inner = self.inner.inner().partition_evaluator(arguments)?;
        if !self.is_shift() {
            return Ok(Box::new(SignedValues(inner)));
        }
        Ok(if ignores_nulls && !inner.is_causal() { Box::new(WholeValues(inner)) } else { inner })
    }

    fn field(&self, arguments: WindowUDFFieldArgs) -> Result<FieldRef> {
        let field = self.inner.inner().field(arguments)?;
        Ok(match self.is_shift() {
            true => field,
            false => Arc::new(field.as_ref().clone().with_data_type(DataType::Int64)),
        })
    }

    fn sort_options(&self) -> Option<SortOptions> {
        self.inner.inner().sort_options()
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        match self.inner.inner().reverse_expr() {
            ReversedUDWF::Reversed(inner) => ReversedUDWF::Reversed(wrapped(inner)),
            other => other,
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.inner().documentation()
    }

    fn limit_effect(&self, arguments: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.inner.inner().limit_effect(arguments)
    }
}

#[derive(Debug)]
struct SignedValues(Box<dyn PartitionEvaluator>);

impl PartitionEvaluator for SignedValues {
    fn is_causal(&self) -> bool {
        self.0.is_causal()
    }

    fn evaluate_all(&mut self, values: &[ArrayRef], row_count: usize) -> Result<ArrayRef> {
        Ok(cast(&self.0.evaluate_all(values, row_count)?, &DataType::Int64)?)
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        self.0.evaluate(values, range)?.cast_to(&DataType::Int64)
    }

    fn evaluate_all_with_rank(&self, row_count: usize, ranks: &[Range<usize>]) -> Result<ArrayRef> {
        Ok(cast(&self.0.evaluate_all_with_rank(row_count, ranks)?, &DataType::Int64)?)
    }

    fn supports_bounded_execution(&self) -> bool {
        self.0.supports_bounded_execution()
    }

    fn uses_window_frame(&self) -> bool {
        self.0.uses_window_frame()
    }

    fn include_rank(&self) -> bool {
        self.0.include_rank()
    }
}

/// Of whole partitions only.
#[derive(Debug)]
struct WholeValues(Box<dyn PartitionEvaluator>);

impl PartitionEvaluator for WholeValues {
    fn evaluate_all(&mut self, values: &[ArrayRef], row_count: usize) -> Result<ArrayRef> {
        self.0.evaluate_all(values, row_count)
    }
}
