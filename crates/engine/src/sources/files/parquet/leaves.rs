//! Which leaves of a file's columns a projection reads: of a struct of which it takes fields, those of these fields alone.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::functions::core::getfield::GetFieldFunc;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use parquet::arrow::ProjectionMask;
use parquet::schema::types::SchemaDescriptor;

/// A column, and in it a field of a struct in a field of a struct..., or all of it.
type Taken = (usize, Vec<String>);

/// The leaves that expressions over columns of `schema` look at.
pub(super) fn leaves(
    expressions: impl Iterator<Item = Arc<dyn PhysicalExpr>>,
    schema: &Schema,
    file: &SchemaDescriptor,
) -> Result<ProjectionMask> {
    let mut taken: Vec<Taken> = Vec::new();
    for expression in expressions {
        expression.apply(|part| match field(part, schema) {
            Some(field) => {
                taken.push(field);
                Ok(TreeNodeRecursion::Jump)
            }
            None => Ok(TreeNodeRecursion::Continue),
        })?;
    }
    // Fields that the file lacks are made of their struct.
    let is_in_file =
        |(root, path): &Taken| (0..file.num_columns()).any(|leaf| is_in(file, leaf, *root, path));
    for field in &mut taken {
        if !is_in_file(field) {
            field.1.clear();
        }
    }
    let is_taken = |leaf: &usize| taken.iter().any(|(root, path)| is_in(file, *leaf, *root, path));
    Ok(ProjectionMask::leaves(file, (0..file.num_columns()).filter(is_taken)))
}

/// Whether a leaf is in the field at a path of a column.
fn is_in(file: &SchemaDescriptor, leaf: usize, root: usize, path: &[String]) -> bool {
    file.get_column_root_idx(leaf) == root
        && file.column(leaf).path().parts().get(1..).is_some_and(|parts| parts.starts_with(path))
}

/// What an expression is that takes nothing but a field of structs, or a column.
fn field(expression: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<Taken> {
    if let Some(column) = expression.downcast_ref::<Column>() {
        return Some((column.index(), Vec::new()));
    }
    let call = ScalarFunctionExpr::try_downcast_func::<GetFieldFunc>(expression.as_ref())?;
    let (first, names) = call.args().split_first()?;
    let (root, mut path) = field(first, schema)?;
    let mut data_type = schema.fields().get(root)?.data_type();
    for name in &path {
        data_type = of_field(data_type, name)?;
    }
    for name in names {
        let name = name.downcast_ref::<Literal>()?.value().try_as_str()??;
        data_type = of_field(data_type, name)?;
        path.push(name.to_owned());
    }
    Some((root, path))
}

/// The type of a field of a struct.
fn of_field<'a>(data_type: &'a DataType, name: &str) -> Option<&'a DataType> {
    let DataType::Struct(fields) = data_type else { return None };
    Some(fields.find(name)?.1.data_type())
}
