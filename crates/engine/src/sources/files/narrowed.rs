//! The fields of structs that a projection asks for.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef, Fields, Schema};
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::projection::ProjectionExec;

/// What is asked for of a value.
#[derive(Clone, Debug)]
enum Asked {
    All,
    /// Fields of a struct, by name; none of a value that nobody asks for.
    Fields(Vec<(String, Asked)>),
}

impl Asked {
    fn add(&mut self, path: &[&str]) {
        let Self::Fields(fields) = self else { return };
        let Some((first, rest)) = path.split_first() else {
            *self = Self::All;
            return;
        };
        let position = fields.iter().position(|(name, _)| name == first).unwrap_or_else(|| {
            fields.push(((*first).to_owned(), Self::Fields(Vec::new())));
            fields.len() - 1
        });
        fields[position].1.add(rest);
    }

    /// A field with only what is asked for.
    fn of(&self, field: &FieldRef) -> FieldRef {
        let (Self::Fields(asked), DataType::Struct(fields)) = (self, field.data_type()) else {
            return field.clone();
        };
        let kept: Fields = fields
            .iter()
            .filter_map(|field| {
                let (_, asked) = asked.iter().find(|(name, _)| name == field.name())?;
                Some(asked.of(field))
            })
            .collect();
        // Of a struct without fields nothing would be read, not even whether it is NULL.
        if kept.is_empty() {
            return field.clone();
        }
        Arc::new(field.as_ref().clone().with_data_type(DataType::Struct(kept)))
    }
}

/// The columns of `schema` with only those fields that the projection takes; `None` if that is all.
pub(super) fn narrowed(projection: &ProjectionExec, schema: &Schema) -> Option<Vec<FieldRef>> {
    let is_struct = |field: &FieldRef| matches!(field.data_type(), DataType::Struct(_));
    if !schema.fields().iter().any(is_struct) {
        return None;
    }
    let mut asked = vec![Asked::Fields(Vec::new()); schema.fields().len()];
    for column in projection.expr() {
        ask(&column.expr, &mut asked);
    }
    let fields: Vec<FieldRef> =
        asked.iter().zip(schema.fields()).map(|(asked, field)| asked.of(field)).collect();
    (fields[..] != schema.fields()[..]).then_some(fields)
}

fn ask(expression: &Arc<dyn PhysicalExpr>, asked: &mut [Asked]) {
    if let Some((column, path)) = path_of(expression) {
        if let Some(asked) = asked.get_mut(column) {
            asked.add(&path);
        }
        return;
    }
    for child in expression.children() {
        ask(child, asked);
    }
}

/// The column of a chain of `get_field`, and the names of the fields, outermost first.
fn path_of(expression: &Arc<dyn PhysicalExpr>) -> Option<(usize, Vec<&str>)> {
    if let Some(column) = expression.downcast_ref::<Column>() {
        return Some((column.index(), Vec::new()));
    }
    let call = expression.downcast_ref::<ScalarFunctionExpr>().filter(|call| call.name() == "get_field")?;
    let (value, names) = call.args().split_first()?;
    let (column, mut path) = path_of(value)?;
    for name in names {
        path.push(name.downcast_ref::<Literal>()?.value().try_as_str().flatten()?);
    }
    Some((column, path))
}
