//! Groups with the states of their aggregates.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{take, take_record_batch};
use arrow::datatypes::{DataType, Float32Type, Float64Type, SchemaRef};
use datafusion::error::Result;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{
    AggregateExec, AggregateInputMode, AggregateOutputMode, aggregate_expressions,
};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::GroupsAccumulatorAdapter;
use keirin_operators::Groups;
use keirin_operators::groups::NO_GROUP;

use super::chosen::Chosen;
use super::first::First;
use super::keys::{KeyRows, Keys};
use super::parallel::ParallelGroupExec;
use crate::sources::stored::StoredScan;

/// Rows that are grouped at a time: their group numbers and arguments stay in the second cache.
const CHUNK_ROWS: usize = 1 << 14;
/// Rows of which keys are chosen at a time: all keys of the last of them are.
const CHOICE_ROWS: usize = 1 << 8;

/// Groups of rows, or of the states that other tables made of rows.
pub(super) struct Table {
    keys: Keys,
    key_expressions: Vec<Arc<dyn PhysicalExpr>>,
    aggregates: Vec<Aggregate>,
    input: AggregateInputMode,
    groups: Groups,
    choosing: Choosing,
    /// What tells most rows that are passed over.
    partly: Option<Partly>,
    /// The group of each row of a chunk, by kernels and by accumulators.
    numbers: Vec<u32>,
    places: Vec<usize>,
}

/// Whether groups are chosen, of which there are enough at some time.
enum Choosing {
    /// All are wanted.
    Not,
    /// Each row is of a group that was offered to the others.
    Open(Arc<Chosen>),
    /// The groups that there are are all that are wanted.
    Done(Arc<Chosen>),
}

/// The numbers among the keys of groups that were chosen, which are faster to compare than the texts beside them.
struct Partly {
    /// Their places among all keys.
    places: Vec<usize>,
    keys: Keys,
    groups: Groups,
}

struct Aggregate {
    arguments: Vec<Arc<dyn PhysicalExpr>>,
    filter: Option<Arc<dyn PhysicalExpr>>,
    states: Box<dyn GroupsAccumulator>,
}

/// What rows of an aggregate's input are computed to.
struct Evaluated {
    arguments: Vec<ArrayRef>,
    filter: Option<BooleanArray>,
}

/// The states of an aggregate's groups.
fn states(aggregate: &Arc<AggregateFunctionExpr>) -> Result<Box<dyn GroupsAccumulator>> {
    if aggregate.groups_accumulator_supported() {
        return aggregate.create_groups_accumulator();
    }
    let aggregate = aggregate.clone();
    Ok(Box::new(GroupsAccumulatorAdapter::new(move || aggregate.create_accumulator())))
}

impl Aggregate {
    fn evaluate(&self, batch: &RecordBatch) -> Result<Evaluated> {
        let arguments = self.arguments.iter();
        let arguments = arguments.map(|argument| argument.evaluate(batch)?.into_array(batch.num_rows()));
        let filter = self.filter.as_ref().map(|filter| {
            let flags = filter.evaluate(batch)?.into_array(batch.num_rows())?;
            Ok(flags.as_boolean().clone())
        });
        let filter: Option<Result<BooleanArray>> = filter;
        Ok(Evaluated { arguments: arguments.collect::<Result<_>>()?, filter: filter.transpose()? })
    }
}

/// The keys of what `aggregate` groups, if our tables number them.
pub(super) fn keys(aggregate: &AggregateExec) -> Option<Keys> {
    let input = aggregate.input();
    let columns = aggregate
        .group_expr()
        .expr()
        .iter()
        .map(|(key, _)| Some((key.data_type(&input.schema()).ok()?, may_be_null(key, input))));
    Keys::new(columns.collect::<Option<Vec<_>>>()?)
}

/// Whether rows of `input` may have no value: what is computed may be null where its function says that it is not.
pub(crate) fn may_be_null(expression: &Arc<dyn PhysicalExpr>, input: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(literal) = expression.downcast_ref::<Literal>() {
        return literal.value().is_null();
    }
    let Some(column) = expression.downcast_ref::<Column>().map(Column::index) else { return true };
    let is_free = match (input.downcast_ref::<StoredScan>(), input.downcast_ref::<ParallelGroupExec>()) {
        (Some(scan), _) => !scan.may_have_nulls(column),
        (_, Some(groups)) => !groups.may_be_null(column),
        _ => false,
    };
    input.schema().field(column).is_nullable() && !is_free
}

/// All rows of `batch`, so many at a time.
fn pieces(batch: &RecordBatch, rows: usize) -> impl Iterator<Item = RecordBatch> {
    let starts = (0..batch.num_rows()).step_by(rows);
    starts.map(move |start| batch.slice(start, rows.min(batch.num_rows() - start)))
}

/// Floats of which equal ones have equal bits: one zero and one NaN. Other keys are as they are.
pub(crate) fn one_float(keys: ArrayRef) -> ArrayRef {
    match keys.data_type() {
        DataType::Float32 => {
            let one = |value: f32| if value.is_nan() { f32::NAN } else { value + 0.0 };
            Arc::new(keys.as_primitive::<Float32Type>().unary::<_, Float32Type>(one))
        }
        DataType::Float64 => {
            let one = |value: f64| if value.is_nan() { f64::NAN } else { value + 0.0 };
            Arc::new(keys.as_primitive::<Float64Type>().unary::<_, Float64Type>(one))
        }
        _ => keys,
    }
}

impl Table {
    /// No groups of what `aggregate` groups, whose keys are `keys`; all of them, or those that are `chosen`.
    pub(super) fn new(aggregate: &AggregateExec, keys: Keys, chosen: Option<Arc<Chosen>>) -> Result<Self> {
        let input = aggregate.mode().input_mode();
        let key_count = aggregate.group_expr().num_group_exprs();
        let arguments = aggregate_expressions(aggregate.aggr_expr(), aggregate.mode(), key_count)?;
        let expressions = aggregate.aggr_expr().iter().zip(arguments).zip(aggregate.filter_expr());
        let aggregates = expressions.map(|((expression, arguments), filter)| {
            // What is merged was filtered before.
            let filter = filter.clone().filter(|_| input == AggregateInputMode::Raw);
            Ok(Aggregate { arguments, filter, states: states(expression)? })
        });
        Ok(Self {
            key_expressions: aggregate.group_expr().input_exprs(),
            aggregates: aggregates.collect::<Result<_>>()?,
            input,
            groups: keys.groups(),
            choosing: chosen.map_or(Choosing::Not, Choosing::Open),
            partly: None,
            keys,
            numbers: Vec::new(),
            places: Vec::new(),
        })
    }

    /// Count of groups.
    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }

    /// Memory in use.
    pub(super) fn bytes(&self) -> usize {
        let states: usize = self.aggregates.iter().map(|aggregate| aggregate.states.size()).sum();
        self.groups.bytes() + states + self.places.capacity() * size_of::<(u32, usize)>()
    }

    fn evaluate_keys(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        let keys = self.key_expressions.iter();
        keys.map(|key| Ok(one_float(key.evaluate(batch)?.into_array(batch.num_rows())?))).collect()
    }

    /// Adds rows.
    pub(super) fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        for chunk in pieces(batch, CHUNK_ROWS) {
            if !matches!(self.choosing, Choosing::Open(_)) {
                self.add_chunk(&chunk)?;
            } else if !self.add_known(&chunk)? {
                pieces(&chunk, CHOICE_ROWS).try_for_each(|piece| self.add_chunk(&piece))?;
            }
        }
        Ok(())
    }

    /// Adds rows while groups are chosen, if all are of groups that there are, which were offered; says whether they are.
    fn add_known(&mut self, batch: &RecordBatch) -> Result<bool> {
        let keys = self.evaluate_keys(batch)?;
        self.keys.number(&mut self.groups, &keys, batch.num_rows(), false, &mut self.numbers)?;
        let are_known = !self.numbers.contains(&NO_GROUP);
        if are_known {
            self.add_arguments(batch)?;
        }
        Ok(are_known)
    }

    /// Whether groups are chosen.
    pub(super) fn is_choosing(&self) -> bool {
        !matches!(self.choosing, Choosing::Not)
    }

    /// Takes the groups that were chosen by all as those that there are.
    fn choose(&mut self, chosen: Arc<Chosen>, keys: &[ArrayRef], batch: &RecordBatch) -> Result<()> {
        let count = keys[0].len();
        self.keys.number(&mut self.groups, keys, count, true, &mut self.numbers)?;
        self.choosing = Choosing::Done(chosen);
        let types = &self.keys.types;
        let places: Vec<usize> = (0..types.len()).filter(|place| types[*place].width.is_some()).collect();
        let parts =
            places.iter().map(|place| (self.keys.data_types[*place].clone(), types[*place].is_nullable));
        if places.len() < types.len()
            && let Some(part) = Keys::new(parts)
        {
            let columns: Vec<ArrayRef> = places.iter().map(|place| keys[*place].clone()).collect();
            let mut groups = part.groups();
            part.number(&mut groups, &columns, count, true, &mut self.numbers)?;
            self.partly = Some(Partly { places, keys: part, groups });
        }
        // Each has a state, if no row. Without a filter accumulators would take it that each group has a value.
        let no_rows = batch.slice(0, 0);
        for aggregate in &mut self.aggregates {
            let arguments = aggregate.evaluate(&no_rows)?.arguments;
            let filter = BooleanArray::new_null(0);
            aggregate.states.update_batch(&arguments, &[], Some(&filter), self.groups.len())?;
        }
        Ok(())
    }

    /// The rows of `numbers` that have a group.
    fn found(&self) -> UInt32Array {
        let rows = (0..).zip(&self.numbers).filter(|(_, number)| **number != NO_GROUP);
        rows.map(|(row, _)| row).collect()
    }

    fn add_chunk(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut keys = self.evaluate_keys(batch)?;
        let (mut batch, taken) = (batch, &mut None);
        if let Some(Partly { places, keys: part, groups }) = &mut self.partly {
            let columns: Vec<ArrayRef> = places.iter().map(|place| keys[*place].clone()).collect();
            part.number(groups, &columns, batch.num_rows(), false, &mut self.numbers)?;
            let rows = self.found();
            if rows.is_empty() {
                return Ok(());
            }
            batch = taken.insert(take_record_batch(batch, &rows)?);
            keys = self.evaluate_keys(batch)?;
        }
        if let Choosing::Open(chosen) = &self.choosing {
            let chosen = chosen.clone();
            let chosen_keys = match chosen.done() {
                Some(chosen_keys) => Some(chosen_keys),
                None => chosen.offer(&self.keys, &keys, batch.num_rows())?,
            };
            if let Some(chosen_keys) = chosen_keys {
                self.choose(chosen, &chosen_keys, batch)?;
            }
        }
        let grows = !matches!(self.choosing, Choosing::Done(_));
        self.keys.number(&mut self.groups, &keys, batch.num_rows(), grows, &mut self.numbers)?;
        if grows {
            return self.add_arguments(batch);
        }
        let rows = self.found();
        self.numbers.retain(|number| *number != NO_GROUP);
        if rows.is_empty() { Ok(()) } else { self.add_arguments(&take_record_batch(batch, &rows)?) }
    }

    /// Adds rows to the groups of `numbers`.
    fn add_arguments(&mut self, batch: &RecordBatch) -> Result<()> {
        if self.aggregates.is_empty() {
            return Ok(());
        }
        self.places.clear();
        self.places.extend(self.numbers.iter().map(|number| *number as usize));
        let (places, group_count) = (&self.places, self.groups.len());
        for aggregate in &mut self.aggregates {
            let Evaluated { arguments, filter } = aggregate.evaluate(batch)?;
            match self.input {
                AggregateInputMode::Raw => {
                    aggregate.states.update_batch(&arguments, places, filter.as_ref(), group_count)?;
                }
                AggregateInputMode::Partial => {
                    aggregate.states.merge_batch(&arguments, places, group_count)?;
                }
            }
        }
        Ok(())
    }

    /// Takes all groups, a row each: their keys, and what their aggregates are or, for another table, their states. Of
    /// the former it gives those that may come `first`.
    pub(super) fn take(
        &mut self,
        output: AggregateOutputMode,
        schema: &SchemaRef,
        first: Option<&First>,
    ) -> Result<Taken> {
        // Those that were chosen are there no more: they have to be taken again.
        if let Choosing::Done(chosen) = &self.choosing {
            self.choosing = Choosing::Open(chosen.clone());
            self.partly = None;
        }
        let mut states = Vec::new();
        for aggregate in &mut self.aggregates {
            match output {
                AggregateOutputMode::Partial => states.extend(aggregate.states.state(EmitTo::All)?),
                AggregateOutputMode::Final => states.push(aggregate.states.evaluate(EmitTo::All)?),
            }
        }
        let first = first.filter(|_| output == AggregateOutputMode::Final);
        let chosen = first.map(|first| first.choose(&states)).transpose()?.flatten();
        if let Some(chosen) = &chosen {
            states = states.iter().map(|state| Ok(take(state, chosen, None)?)).collect::<Result<_>>()?;
        }
        let row_count = chosen.as_ref().map_or(self.groups.len(), Array::len);
        let keys = self.keys.rows(&mut self.groups, chosen.as_ref().map(|chosen| &chosen.values()[..]))?;
        Ok(Taken { schema: schema.clone(), keys, states, start: 0, row_count })
    }

    /// Each row as a group of its own.
    pub(super) fn pass(&self, batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
        let mut columns = self.evaluate_keys(batch)?;
        for aggregate in &self.aggregates {
            let Evaluated { arguments, filter } = aggregate.evaluate(batch)?;
            columns.extend(aggregate.states.convert_to_state(&arguments, filter.as_ref())?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
    }
}

/// Groups that were taken from a table, to be sent a few at a time.
pub(super) struct Taken {
    schema: SchemaRef,
    keys: Vec<KeyRows>,
    states: Vec<ArrayRef>,
    start: usize,
    row_count: usize,
}

impl Taken {
    /// The next groups, as many as there are up to `count`.
    pub(super) fn next(&mut self, count: usize) -> Result<Option<RecordBatch>> {
        let (start, count) = (self.start, count.min(self.row_count - self.start));
        if count == 0 {
            return Ok(None);
        }
        let keys = self.keys.iter_mut().map(|keys| keys.take(start, count));
        let states = self.states.iter().map(|state| Ok(state.slice(start, count)));
        let columns = keys.chain(states).collect::<Result<_>>()?;
        self.start += count;
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        Ok(Some(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?))
    }

    /// Memory in use.
    pub(super) fn bytes(&self) -> usize {
        let states: usize = self.states.iter().map(Array::get_array_memory_size).sum();
        states + self.keys.iter().map(KeyRows::bytes).sum::<usize>()
    }
}
