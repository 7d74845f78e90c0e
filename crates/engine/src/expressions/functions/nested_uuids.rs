//! UUIDs inside lists, structs and maps: whatever converts such a value leaves the texts in it as they are, so this
//! looks at them.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, GenericListArray, MapArray, OffsetSizeTrait, StructArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::expressions::uuids::{is_uuid, to_text};

/// Gives its argument, a nested value, with the texts that `to` says are UUIDs as such.
#[derive(Debug, PartialEq, Eq, Hash)]
struct NestedUuids {
    to: FieldRef,
    is_try: bool,
    signature: Signature,
}

/// Whether a value of this type has UUIDs inside.
pub(crate) fn has_uuids(data_type: &DataType) -> bool {
    let has = |field: &FieldRef| is_uuid(field) || has_uuids(field.data_type());
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => has(item),
        DataType::Struct(fields) => fields.iter().any(has),
        DataType::Map(entries, _) => has(entries),
        _ => false,
    }
}

/// `value`, which has the type of `to` but for texts that are not known to be UUIDs; others are errors, or NULL if
/// `is_try`.
pub(crate) fn nested_uuids(value: Expr, to: &FieldRef, is_try: bool) -> Expr {
    let signature = Signature::any(1, Volatility::Immutable);
    let function = ScalarUDF::new_from_impl(NestedUuids { to: to.clone(), is_try, signature });
    Expr::ScalarFunction(datafusion::logical_expr::expr::ScalarFunction::new_udf(
        Arc::new(function),
        vec![value],
    ))
}

impl ScalarUDFImpl for NestedUuids {
    fn name(&self) -> &'static str {
        if self.is_try { "keirin_try_nested_uuids" } else { "keirin_nested_uuids" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.to.data_type().clone())
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let is_nullable = arguments.arg_fields.iter().any(|field| field.is_nullable());
        let field = Field::new(self.name(), self.to.data_type().clone(), is_nullable);
        Ok(Arc::new(field.with_metadata(self.to.metadata().clone())))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = arguments.args.as_slice() else {
            return datafusion::common::internal_err!("{} takes one argument", self.name());
        };
        Ok(match value {
            ColumnarValue::Array(values) => ColumnarValue::Array(within(values, &self.to, self.is_try)?),
            ColumnarValue::Scalar(value) => {
                let one = within(&value.to_array()?, &self.to, self.is_try)?;
                ColumnarValue::Scalar(scalar(&one)?)
            }
        })
    }
}

/// The one value of an array, with what its type says of the items: `ScalarValue::try_from_array` leaves that out.
fn scalar(one: &ArrayRef) -> Result<ScalarValue> {
    Ok(match one.data_type() {
        DataType::List(_) => ScalarValue::List(Arc::new(one.as_list().clone())),
        DataType::LargeList(_) => ScalarValue::LargeList(Arc::new(one.as_list().clone())),
        DataType::FixedSizeList(..) => ScalarValue::FixedSizeList(Arc::new(one.as_fixed_size_list().clone())),
        DataType::Struct(_) => ScalarValue::Struct(Arc::new(one.as_struct().clone())),
        DataType::Map(..) => ScalarValue::Map(Arc::new(one.as_map().clone())),
        _ => ScalarValue::try_from_array(one, 0)?,
    })
}

/// The values, with the texts inside that their type `to` says are UUIDs as such.
///
/// # Errors
/// For a text that is none.
pub(crate) fn with_uuids(values: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    if has_uuids(to) { within(values, &Field::new("", to.clone(), true), false) } else { Ok(values.clone()) }
}

/// The values, as the field says that they are.
fn within(values: &ArrayRef, to: &Field, is_try: bool) -> Result<ArrayRef> {
    if is_uuid(to) {
        let texts = to_text(values, is_try).map_err(|error| DataFusionError::External(Box::new(error)))?;
        return Ok(Arc::new(texts));
    }
    Ok(match to.data_type() {
        DataType::List(item) => list::<i32>(values, item, is_try)?,
        DataType::LargeList(item) => list::<i64>(values, item, is_try)?,
        DataType::FixedSizeList(item, count) => {
            let lists = values.as_fixed_size_list();
            let items = within(lists.values(), item, is_try)?;
            Arc::new(FixedSizeListArray::try_new(item.clone(), *count, items, lists.nulls().cloned())?)
        }
        DataType::Struct(fields) => Arc::new(record(values.as_struct(), fields, is_try)?),
        DataType::Map(entries, is_sorted) => {
            let maps = values.as_map();
            let DataType::Struct(fields) = entries.data_type() else { return Ok(values.clone()) };
            let (start, offsets) = rebased(maps.offsets());
            let found = maps.entries().slice(start, offsets[offsets.len() - 1] as usize);
            let found = record(&found, fields, is_try)?;
            let nulls = maps.nulls().cloned();
            Arc::new(MapArray::try_new(entries.clone(), offsets, found, nulls, *is_sorted)?)
        }
        _ => values.clone(),
    })
}

fn list<O: OffsetSizeTrait>(values: &ArrayRef, item: &FieldRef, is_try: bool) -> Result<ArrayRef> {
    let lists = values.as_list::<O>();
    let (start, offsets) = rebased(lists.offsets());
    let items = lists.values().slice(start, offsets[offsets.len() - 1].as_usize());
    let items = within(&items, item, is_try)?;
    Ok(Arc::new(GenericListArray::try_new(item.clone(), offsets, items, lists.nulls().cloned())?))
}

fn record(values: &StructArray, fields: &Fields, is_try: bool) -> Result<StructArray> {
    let columns = values.columns().iter().zip(fields).map(|(column, field)| within(column, field, is_try));
    let columns = columns.collect::<Result<Vec<_>>>()?;
    Ok(StructArray::try_new_with_length(fields.clone(), columns, values.nulls().cloned(), values.len())?)
}

/// Where the items of some lists begin, and their offsets from there.
fn rebased<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> (usize, OffsetBuffer<O>) {
    let start = offsets[0];
    let moved: Vec<O> = offsets.iter().map(|offset| *offset - start).collect();
    (start.as_usize(), OffsetBuffer::new(moved.into()))
}
