//! `array_agg` and `string_agg`, which keep all of their input: the memory that they report is made complete
//! here.
//!
//! `array_agg` keeps batches. For views DataFusion counts only the views, 16 bytes each, and not the text
//! behind them; and all values are copied once when the lists are made. `string_agg` keeps texts that grow by
//! doubling, and copies them as well. All that is counted here. DataFusion spills groups for which it has no
//! memory. But each list of views that goes to disk would take the text of all lists along, so for those a
//! lack of memory is an error.

use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayData, ArrayRef, AsArray, BooleanArray};
use arrow::compute::kernels::length::length;
use arrow::compute::{cast, sum};
use arrow::datatypes::{DataType, FieldRef, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::functions_aggregate::array_agg::array_agg_udaf;
use datafusion::functions_aggregate::string_agg::string_agg_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF,
    Signature,
};

use crate::runtime::pool::FairPool;

pub(super) fn functions(pool: &Arc<FairPool>) -> [AggregateUDF; 2] {
    let function = |inner, copies, keeps_batches| {
        AggregateUDF::new_from_impl(Gathering { inner, copies, keeps_batches, pool: pool.clone() })
    };
    [
        function(array_agg_udaf(), 2, true),
        // While it grows: the old text, the new one of twice the size, and the copy in the result.
        function(string_agg_udaf(), 4, false),
    ]
}

/// Whether this is one of the two functions.
pub(crate) fn gathers(function: &AggregateUDF) -> bool {
    function.inner().is::<Gathering>()
}

/// See the [module](self).
#[derive(Debug)]
struct Gathering {
    inner: Arc<AggregateUDF>,
    /// The memory that it takes, as a multiple of the input that it keeps.
    copies: usize,
    keeps_batches: bool,
    pool: Arc<FairPool>,
}

impl PartialEq for Gathering {
    fn eq(&self, other: &Self) -> bool {
        self.inner == other.inner
    }
}

impl Eq for Gathering {}

impl Hash for Gathering {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl Gathering {
    fn counted<A: ?Sized>(&self, inner: Box<A>) -> Counted<A> {
        let texts = self.keeps_batches.then(Texts::default);
        Counted { inner, copies: self.copies, texts, booked: None }
    }

    /// A reservation of its own for values that must not be spilled.
    fn booked(&self, data_type: &DataType) -> Option<MemoryReservation> {
        (self.keeps_batches && has_views(data_type)).then(|| self.reservation())
    }

    fn reservation(&self) -> MemoryReservation {
        let pool: Arc<dyn MemoryPool> = self.pool.clone();
        MemoryConsumer::new(format!("function {}", self.inner.name())).register(&pool)
    }
}

fn has_views(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8View | DataType::BinaryView => true,
        DataType::List(field) | DataType::LargeList(field) | DataType::Map(field, _) => {
            has_views(field.data_type())
        }
        DataType::FixedSizeList(field, _) => has_views(field.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_views(field.data_type())),
        _ => false,
    }
}

impl AggregateUDFImpl for Gathering {
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
        // Such texts are one for all rows, and cannot be spilled.
        let is_one_text = !self.keeps_batches && !args.is_distinct && args.order_bys.is_empty();
        let booked = is_one_text.then(|| self.reservation());
        let inner = self.inner.accumulator(args)?;
        Ok(Box::new(Counted { booked, ..self.counted(inner) }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        let booked = self.booked(args.return_type());
        let inner = self.inner.create_groups_accumulator(args)?;
        Ok(Box::new(Counted { booked, ..self.counted(inner) }))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.inner.create_sliding_accumulator(args)
    }

    fn with_beneficial_ordering(
        self: Arc<Self>,
        beneficial_ordering: bool,
    ) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        let inner = (*self.inner).clone().with_beneficial_ordering(beneficial_ordering)?;
        let with = |inner| Self { inner: Arc::new(inner), pool: self.pool.clone(), ..*self };
        Ok(inner.map(|inner| Arc::new(with(inner)) as Arc<dyn AggregateUDFImpl>))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        self.inner.simplify()
    }

    /// With DISTINCT the reversed function of DataFusion does not turn its order round again.
    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::NotSupported
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

/// The text buffers behind views.
#[derive(Debug, Default)]
struct Texts {
    /// The addresses of the buffers that are counted: several arrays may share a buffer.
    places: HashSet<usize>,
    bytes: usize,
}

impl Texts {
    fn add(&mut self, arrays: &[ArrayRef]) {
        arrays.iter().for_each(|array| self.add_data(&array.to_data()));
    }

    fn add_data(&mut self, data: &ArrayData) {
        if matches!(data.data_type(), DataType::Utf8View | DataType::BinaryView) {
            // The first buffer holds the views themselves.
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

/// An accumulator, and the memory of the text that it keeps.
struct Counted<A: ?Sized> {
    inner: Box<A>,
    copies: usize,
    /// The text buffers of the batches that it keeps.
    texts: Option<Texts>,
    /// Its own reservation, if its values must not or cannot be spilled.
    booked: Option<MemoryReservation>,
}

impl<A: ?Sized> Counted<A> {
    fn keep(&mut self, arrays: &[ArrayRef]) {
        if let Some(texts) = &mut self.texts {
            texts.add(arrays);
        }
    }

    /// The memory that it takes if the inner accumulator reports `inner` bytes.
    fn bytes(&self, inner: usize) -> usize {
        self.copies * (inner + self.texts.as_ref().map_or(0, Texts::size))
    }
}

impl fmt::Debug for Counted<dyn Accumulator> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Counted<dyn Accumulator> {
    /// Adds texts. The operator reserves memory for what is kept when they are added; what they add is reserved before.
    fn add(
        &mut self,
        texts: &[ArrayRef],
        add: fn(&mut dyn Accumulator, &[ArrayRef]) -> Result<()>,
    ) -> Result<()> {
        self.keep(texts);
        if let Some(booked) = &self.booked {
            booked.try_resize(self.copies * text_bytes(&texts[0])?)?;
        }
        let added = add(self.inner.as_mut(), texts);
        if let Some(booked) = &self.booked {
            booked.free();
        }
        added
    }
}

/// The bytes of all texts of a column.
fn text_bytes(texts: &ArrayRef) -> Result<usize> {
    let lengths = cast(&length(texts.as_ref())?, &DataType::Int64)?;
    let bytes = sum(lengths.as_primitive::<Int64Type>()).unwrap_or_default();
    Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
}

impl Accumulator for Counted<dyn Accumulator> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(values, |inner, values| inner.update_batch(values))
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.add(states, |inner, states| inner.merge_batch(states))
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.inner.evaluate()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn size(&self) -> usize {
        self.bytes(self.inner.size())
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
        self.keep(values);
        self.inner.update_batch(values, group_indices, condition, total_num_groups)?;
        self.book()
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.keep(values);
        self.inner.merge_batch(values, group_indices, total_num_groups)?;
        self.book()
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
        if self.booked.is_some() { 0 } else { self.bytes(self.inner.size()) }
    }
}

impl Counted<dyn GroupsAccumulator> {
    fn book(&self) -> Result<()> {
        self.booked.as_ref().map_or(Ok(()), |booked| booked.try_resize(self.bytes(self.inner.size())))
    }

    /// After all groups were emitted no text is kept. If only some were, their share of the text is unknown,
    /// and all of it stays counted.
    fn emitted(&mut self, emit_to: EmitTo) {
        if let (EmitTo::All, Some(texts)) = (emit_to, &mut self.texts) {
            *texts = Texts::default();
        }
        // Emitted lists belong to the next operator; the input that they were made of is freed.
        if let Some(booked) = &self.booked {
            booked.shrink(booked.size().saturating_sub(self.bytes(self.inner.size())));
        }
    }
}
