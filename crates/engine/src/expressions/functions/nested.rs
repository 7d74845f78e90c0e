//! Functions of texts that take other types as well: `concat` joins lists, `octet_length` and `bit_length` measure
//! bytes. And the lookup in a map.

use std::sync::Arc;

use arrow::array::{Array, AsArray, UInt32Array, make_comparator};
use arrow::compute::{SortOptions, take};
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::{DFSchema, exec_err, internal_err, plan_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::FunctionRegistry;
use datafusion::functions_nested::concat::array_concat_udf;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawFieldAccessExpr};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ExprSchemable, GetFieldAccess, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};

use super::any_type::{bits_of_bytes, length_of_values};
use crate::types::sql_type_name;

/// A function that takes a map and a key.
pub(crate) const MAP_VALUE: &str = "keirin_map_value";

pub(super) fn functions(registry: &dyn FunctionRegistry) -> Result<Vec<ScalarUDF>> {
    let overloaded = |name, other, others: Arc<ScalarUDF>| {
        let signature = Signature::user_defined(Volatility::Immutable);
        let texts = registry.udf(name)?;
        Ok::<_, DataFusionError>(ScalarUDF::new_from_impl(Overloaded { texts, other, others, signature }))
    };
    Ok(vec![
        overloaded("concat", Other::Lists, array_concat_udf())?,
        overloaded("octet_length", Other::Bytes, Arc::new(length_of_values()))?,
        overloaded("bit_length", Other::Bytes, Arc::new(bits_of_bytes()))?,
        map_value(),
    ])
}

/// The value of a key in a map.
pub(crate) fn lookup(map: Expr, key: Expr, schema: &DFSchema) -> Result<Expr> {
    if let (Ok(DataType::Map(entries, _)), Ok(value)) = (map.get_type(schema), key.get_type(schema))
        && let DataType::Struct(fields) = entries.data_type()
        && compared(fields[0].data_type(), &value).is_none()
    {
        let names = [fields[0].data_type(), &value].map(sql_type_name);
        return plan_err!("a map with keys of type {} has no key of type {}", names[0], names[1]);
    }
    Ok(map_value().call(vec![map, key]))
}

fn map_value() -> ScalarUDF {
    ScalarUDF::new_from_impl(MapValue { signature: Signature::user_defined(Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Overloaded {
    texts: Arc<ScalarUDF>,
    other: Other,
    /// The function of values of the other type.
    others: Arc<ScalarUDF>,
    signature: Signature,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Other {
    Lists,
    Bytes,
}

impl Overloaded {
    fn of<'a>(&self, mut types: impl Iterator<Item = &'a DataType>) -> &Arc<ScalarUDF> {
        let is_other = |data_type: &DataType| match self.other {
            Other::Lists => {
                matches!(data_type, DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..))
            }
            Other::Bytes => data_type.is_binary(),
        };
        if types.any(is_other) { &self.others } else { &self.texts }
    }
}

impl ScalarUDFImpl for Overloaded {
    fn name(&self) -> &str {
        self.texts.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let function = self.of(types.iter());
        let fields: Vec<FieldRef> =
            types.iter().map(|one| Arc::new(Field::new("x", one.clone(), true))).collect();
        let fields = fields_with_udf(&fields, function.as_ref())?;
        Ok(fields.iter().map(|field| field.data_type().clone()).collect())
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.of(types.iter()).return_type(types)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types = arguments.arg_fields.iter().map(|field| field.data_type());
        self.of(types).clone().return_field_from_args(arguments)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let types: Vec<_> = arguments.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        self.of(types.iter()).invoke_with_args(arguments)
    }

    fn simplify(&self, arguments: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let types = arguments.iter().map(|argument| context.get_data_type(argument));
        let types = types.collect::<Result<Vec<_>>>()?;
        let function = self.of(types.iter());
        Ok(match function.simplify(arguments, context)? {
            ExprSimplifyResult::Original(arguments) => {
                ExprSimplifyResult::Simplified(function.call(arguments))
            }
            simplified => simplified,
        })
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.texts.documentation()
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct MapValue {
    signature: Signature,
}

impl ScalarUDFImpl for MapValue {
    fn name(&self) -> &'static str {
        MAP_VALUE
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// The map and the key with the type in which keys are compared.
    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [DataType::Map(entries, is_sorted), key] = types else {
            return plan_err!("a subscript needs a map and a key");
        };
        let DataType::Struct(fields) = entries.data_type() else { return internal_err!("a map has entries") };
        let Some(common) = compared(fields[0].data_type(), key) else { return plan_err!("no such key") };
        let key_field = fields[0].as_ref().clone().with_data_type(common.clone());
        let fields = Fields::from(vec![Arc::new(key_field), fields[1].clone()]);
        let entries = entries.as_ref().clone().with_data_type(DataType::Struct(fields));
        Ok(vec![DataType::Map(Arc::new(entries), *is_sorted), common])
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let DataType::Map(entries, _) = &types[0] else { return internal_err!("{} is no map", types[0]) };
        let DataType::Struct(fields) = entries.data_type() else { return internal_err!("a map has entries") };
        Ok(fields[1].data_type().clone())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let (Some(maps), keys) = (arrays[0].as_map_opt(), &arrays[1]) else {
            return exec_err!("a subscript needs a map");
        };
        let compare = make_comparator(maps.keys(), keys, SortOptions::default())?;
        let place = |row: usize| {
            if maps.is_null(row) || keys.is_null(row) {
                return None;
            }
            let entries =
                maps.value_offsets()[row].cast_unsigned()..maps.value_offsets()[row + 1].cast_unsigned();
            entries.into_iter().find(|entry| compare(*entry as usize, row).is_eq())
        };
        let places: UInt32Array = (0..maps.len()).map(place).collect();
        Ok(ColumnarValue::Array(take(maps.values(), &places, None)?))
    }
}

/// The type in which keys of a map are compared with a value; `None` if they have nothing in common.
fn compared(key: &DataType, value: &DataType) -> Option<DataType> {
    use DataType::{Date32, Float64, LargeUtf8, Null, Timestamp, Utf8, Utf8View};
    let is_text = |data_type: &DataType| matches!(data_type, Utf8 | LargeUtf8 | Utf8View);
    match (key, value) {
        (key, value) if key.is_numeric() && value.is_numeric() => {
            if key.is_floating() || value.is_floating() {
                Some(Float64)
            } else {
                comparison_coercion(key, value)
            }
        }
        (Date32, Timestamp(..)) => Some(value.clone()),
        (Timestamp(coarse, _), Timestamp(fine, _)) if coarse < fine => Some(value.clone()),
        (Timestamp(..), Date32 | Timestamp(..)) | (_, Null) => Some(key.clone()),
        // A text is the key that it says.
        (key, value) if key == value || is_text(key) || is_text(value) => Some(key.clone()),
        (key, value) if (key.is_nested() && value.is_nested()) || (key.is_binary() && value.is_binary()) => {
            Some(key.clone())
        }
        _ => None,
    }
}

/// Plans subscripts of maps. The planner's own take only constants that have the very type of the keys.
#[derive(Debug)]
pub(crate) struct MapSubscripts;

impl ExprPlanner for MapSubscripts {
    fn plan_field_access(
        &self,
        access: RawFieldAccessExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawFieldAccessExpr>> {
        if !matches!(access.expr.get_type(schema), Ok(DataType::Map(..))) {
            return Ok(PlannerResult::Original(access));
        }
        let key = match access.field_access {
            GetFieldAccess::ListIndex { key } => *key,
            GetFieldAccess::NamedStructField { name } => lit(name),
            GetFieldAccess::ListRange { .. } => return Ok(PlannerResult::Original(access)),
        };
        Ok(PlannerResult::Planned(lookup(access.expr, key, schema)?))
    }
}
