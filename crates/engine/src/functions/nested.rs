//! `concat`, which joins lists as well as texts, and the lookup in a map by a key that is a list or a struct.

use std::sync::Arc;

use arrow::array::{Array, AsArray, UInt32Array, make_comparator};
use arrow::compute::{SortOptions, take};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{exec_err, internal_err};
use datafusion::error::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::functions_nested::concat::array_concat_udf;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};

/// A function that takes a map and a key.
pub(crate) const MAP_VALUE: &str = "keirin_map_value";

pub(super) fn functions(registry: &dyn FunctionRegistry) -> Result<Vec<ScalarUDF>> {
    let texts = registry.udf("concat")?;
    Ok(vec![ScalarUDF::new_from_impl(Concat::new(texts)), map_value()])
}

pub(crate) fn map_value() -> ScalarUDF {
    ScalarUDF::new_from_impl(MapValue { signature: Signature::any(2, Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Concat {
    texts: Arc<ScalarUDF>,
    lists: Arc<ScalarUDF>,
    signature: Signature,
}

impl Concat {
    fn new(texts: Arc<ScalarUDF>) -> Self {
        Self { texts, lists: array_concat_udf(), signature: Signature::user_defined(Volatility::Immutable) }
    }

    fn of<'a>(&self, mut types: impl Iterator<Item = &'a DataType>) -> &Arc<ScalarUDF> {
        let is_list = |data_type: &DataType| {
            matches!(data_type, DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..))
        };
        if types.any(is_list) { &self.lists } else { &self.texts }
    }
}

impl ScalarUDFImpl for Concat {
    fn name(&self) -> &'static str {
        "concat"
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
        function.simplify(arguments, context)
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
