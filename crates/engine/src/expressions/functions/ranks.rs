//! `greatest`, `least`, `array_sort`, `array_max` and `array_min` of lists, structs and intervals, by the order
//! that these have in ORDER BY: NULL inside is the greatest of items, and intervals compare by their length.
//!
//! DataFusion's functions get the rank of each value in place of the value, and the ranks that they return
//! become values again.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, GenericListArray, OffsetSizeTrait, UInt32Array};
use arrow::compute::{concat, take};
use arrow::datatypes::{DataType, Field, FieldRef, UInt32Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF};

use super::wrapped::Wrapped;
use crate::compile::rules::{is_nested_in_order, nested_order};
use crate::expressions::casts::{has_intervals, intervals_in_order};

/// Wraps the functions.
pub(super) fn register(state: &mut SessionState) -> Result<()> {
    for name in ["greatest", "least"] {
        wrap(state, name, extreme)?;
    }
    for name in ["array_sort", "array_max", "array_min"] {
        wrap(state, name, of_list)?;
    }
    Ok(())
}

type Call = fn(&ScalarUDF, ScalarFunctionArgs) -> Result<ColumnarValue>;

fn wrap(state: &mut SessionState, name: &str, call: Call) -> Result<()> {
    let wrapped = Wrapped::new(state.udf(name)?, call);
    state.register_udf(Arc::new(ScalarUDF::new_from_impl(wrapped)))?;
    Ok(())
}

fn is_ranked(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(_)) || is_nested_in_order(data_type)
}

fn extreme(inner: &ScalarUDF, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
    if !is_ranked(arguments.return_field.data_type()) {
        return inner.invoke_with_args(arguments);
    }
    let is_constant = is_constant(&arguments);
    let columns = ColumnarValue::values_to_arrays(&arguments.args)?;
    let values: Vec<&dyn Array> = columns.iter().map(AsRef::as_ref).collect();
    let ranked = Ranked::new(concat(&values)?)?;
    let row_count = columns[0].len();
    let ranks = |place| ColumnarValue::Array(Arc::new(ranked.ranks.slice(place * row_count, row_count)));
    let arguments = ScalarFunctionArgs { args: (0..columns.len()).map(ranks).collect(), ..arguments };
    let ranks = called(inner, arguments, DataType::UInt32)?;
    result(ranked.values(&ranks)?, is_constant)
}

fn of_list(inner: &ScalarUDF, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
    match arguments.arg_fields[0].data_type().clone() {
        DataType::List(item) if is_ranked(item.data_type()) => of_items::<i32>(inner, arguments, item),
        DataType::LargeList(item) if is_ranked(item.data_type()) => of_items::<i64>(inner, arguments, item),
        _ => inner.invoke_with_args(arguments),
    }
}

fn of_items<O: OffsetSizeTrait>(
    inner: &ScalarUDF,
    mut arguments: ScalarFunctionArgs,
    item: FieldRef,
) -> Result<ColumnarValue> {
    let is_constant = is_constant(&arguments);
    let lists = arguments.args[0].to_array(if is_constant { 1 } else { arguments.number_rows })?;
    let lists = lists.as_list::<O>();
    let ranked = Ranked::new(lists.values().clone())?;
    let ranks = GenericListArray::<O>::try_new(
        Arc::new(Field::new_list_field(DataType::UInt32, true)),
        lists.offsets().clone(),
        Arc::new(ranked.ranks.clone()),
        lists.nulls().cloned(),
    )?;
    let returns = match inner.name() {
        "array_sort" => ranks.data_type().clone(),
        _ => DataType::UInt32,
    };
    arguments.args[0] = ColumnarValue::Array(Arc::new(ranks));
    let ranks = called(inner, arguments, returns)?;
    let values: ArrayRef = match ranks.as_list_opt::<O>() {
        None => ranked.values(&ranks)?,
        Some(sorted) => {
            let items = ranked.values(sorted.values())?;
            let (offsets, nulls) = (sorted.offsets().clone(), sorted.nulls().cloned());
            Arc::new(GenericListArray::<O>::try_new(item, offsets, items, nulls)?)
        }
    };
    result(values, is_constant)
}

fn is_constant(arguments: &ScalarFunctionArgs) -> bool {
    arguments.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)))
}

/// Calls a function with arguments of other types than it was planned for.
fn called(inner: &ScalarUDF, mut arguments: ScalarFunctionArgs, returns: DataType) -> Result<ArrayRef> {
    let field = |data_type| Arc::new(Field::new("rank", data_type, true));
    arguments.arg_fields = arguments.args.iter().map(|argument| field(argument.data_type())).collect();
    arguments.return_field = field(returns);
    let row_count = arguments.number_rows;
    inner.invoke_with_args(arguments)?.into_array(row_count)
}

fn result(values: ArrayRef, is_constant: bool) -> Result<ColumnarValue> {
    Ok(if is_constant {
        ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?)
    } else {
        ColumnarValue::Array(values)
    })
}

/// Values, and where each stands in their order.
struct Ranked {
    values: ArrayRef,
    /// NULL where the value is.
    ranks: UInt32Array,
    /// For each rank a row that has it.
    rows: Vec<u32>,
}

impl Ranked {
    fn new(values: ArrayRef) -> Result<Self> {
        let in_order =
            if has_intervals(values.data_type()) { intervals_in_order(&values)? } else { values.clone() };
        let keys = nested_order(in_order.data_type())?.convert_columns(&[in_order])?;
        let key = |row: u32| keys.row(row as usize);
        let mut order: Vec<u32> =
            (0..).take(values.len()).filter(|row| values.is_valid(*row as usize)).collect();
        order.sort_unstable_by(|one, other| key(*one).cmp(&key(*other)));
        let mut ranks = vec![None; values.len()];
        let mut rows: Vec<u32> = Vec::new();
        for row in order {
            if rows.last().is_none_or(|last| key(*last) != key(row)) {
                rows.push(row);
            }
            ranks[row as usize] = u32::try_from(rows.len() - 1).ok();
        }
        Ok(Self { values, ranks: ranks.into(), rows })
    }

    /// The values that have these ranks.
    fn values(&self, ranks: &ArrayRef) -> Result<ArrayRef> {
        let ranks = ranks.as_primitive::<UInt32Type>().iter();
        let rows: UInt32Array = ranks.map(|rank| rank.map(|rank| self.rows[rank as usize])).collect();
        Ok(take(&self.values, &rows, None)?)
    }
}
