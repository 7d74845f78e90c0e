//! `array_agg` that says how much memory it has.
//!
//! It keeps the batches that it is given. DataFusion counts of text in views the views alone, 16 bytes each, and not
//! the text; and what is kept is copied once when the lists are made. Both are counted here.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayData, ArrayRef, BooleanArray};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions_aggregate::array_agg::array_agg_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF,
    Signature,
};

/// What is kept is copied once.
const COPIES: usize = 2;

pub(super) fn function() -> AggregateUDF {
    AggregateUDF::new_from_impl(ArrayAgg { inner: array_agg_udaf() })
}

/// See the [module](self).
#[derive(Debug, PartialEq, Eq, Hash)]
struct ArrayAgg {
    inner: Arc<AggregateUDF>,
}

impl AggregateUDFImpl for ArrayAgg {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments)
    }

    fn return_field(&self, arguments: &[FieldRef]) -> Result<FieldRef> {
        self.inner.inner().return_field(arguments)
    }

    fn is_nullable(&self) -> bool {
        self.inner.is_nullable()
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Counted { inner: self.inner.accumulator(args)?, texts: Texts::default() }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(Counted { inner: self.inner.create_groups_accumulator(args)?, texts: Texts::default() }))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.inner.create_sliding_accumulator(args)
    }

    fn with_beneficial_ordering(
        self: Arc<Self>,
        beneficial_ordering: bool,
    ) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        let inner = (*self.inner).clone().with_beneficial_ordering(beneficial_ordering)?;
        Ok(inner.map(|inner| Arc::new(Self { inner: Arc::new(inner) }) as Arc<dyn AggregateUDFImpl>))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        self.inner.simplify()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.inner.reverse_udf()
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arguments)
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.inner.default_value(data_type)
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.inner.supports_null_handling_clause()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

/// The buffers behind views.
#[derive(Debug, Default)]
struct Texts {
    /// Where they are: several arrays may have the same.
    places: HashSet<usize>,
    bytes: usize,
}

impl Texts {
    fn add(&mut self, arrays: &[ArrayRef]) {
        arrays.iter().for_each(|array| self.add_data(&array.to_data()));
    }

    fn add_data(&mut self, data: &ArrayData) {
        if matches!(data.data_type(), DataType::Utf8View | DataType::BinaryView) {
            // The first are the views.
            for text in data.buffers().iter().skip(1) {
                if self.places.insert(text.data_ptr().addr().get()) {
                    self.bytes += text.capacity();
                }
            }
        }
        data.child_data().iter().for_each(|child| self.add_data(child));
    }

    fn size(&self) -> usize {
        self.bytes + self.places.capacity() * size_of::<usize>()
    }
}

/// An accumulator with the text that it keeps.
struct Counted<A: ?Sized> {
    inner: Box<A>,
    texts: Texts,
}

impl fmt::Debug for Counted<dyn Accumulator> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Accumulator for Counted<dyn Accumulator> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.texts.add(values);
        self.inner.update_batch(values)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.texts.add(states);
        self.inner.merge_batch(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.inner.evaluate()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn size(&self) -> usize {
        COPIES * (self.inner.size() + self.texts.size())
    }
}

impl GroupsAccumulator for Counted<dyn GroupsAccumulator> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        condition: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.texts.add(values);
        self.inner.update_batch(values, group_indices, condition, total_num_groups)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.texts.add(values);
        self.inner.merge_batch(values, group_indices, total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let lists = self.inner.evaluate(emit_to)?;
        self.emitted(emit_to);
        Ok(lists)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let lists = self.inner.state(emit_to)?;
        self.emitted(emit_to);
        Ok(lists)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        condition: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.inner.convert_to_state(values, condition)
    }

    fn size(&self) -> usize {
        COPIES * (self.inner.size() + self.texts.size())
    }
}

impl Counted<dyn GroupsAccumulator> {
    /// All that was kept is gone; of the first groups nobody knows how much was theirs.
    fn emitted(&mut self, emit_to: EmitTo) {
        if matches!(emit_to, EmitTo::All) {
            self.texts = Texts::default();
        }
    }
}
