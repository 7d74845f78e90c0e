//! PARTITION BY: each part has rows of one value of an expression, so that conditions on its columns leave out parts
//! by their statistics, and whole partitions go without being read.
//!
//! Rows come to be written sorted by the expression: so a part is open at a time, however many values there are.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::{SortOptions, cast, partition};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr as LogicalExpr, SortExpr, Volatility};
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};
use datafusion::sql::sqlparser::ast::{Expr, ExprWithAlias, Ident};
use keirin_storage::schema::Definition;

use super::super::arrow_schema;
use crate::bind::relations::normalized;
use crate::compile::rules::with_common_types;
use crate::error::{Error, ErrorKind, Result};
use crate::explain_error::explain;
use crate::expressions::functions;
use crate::sql::parser::parse_expression;
use crate::sql::walk::each_expression_mut;
use crate::types::sql_type_name;

/// The property of a table that has the SQL of its PARTITION BY.
pub(crate) const PARTITION: &str = "partition";
/// Partitions into which one stream of a statement may write: each takes a file at least.
pub(super) const PARTITIONS_MAX: usize = if cfg!(test) { 100 } else { 10_000 };
/// The name of a partition stands in the log for each of its parts.
const NAME_BYTES_MAX: usize = 1 << 10;

/// By what the rows of a table are kept apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Partitions {
    planned: Vec<LogicalExpr>,
    /// The same over the columns of the table.
    pub(crate) expressions: Vec<Arc<dyn PhysicalExpr>>,
    /// The columns that they are about, by their places in the table.
    columns: Vec<usize>,
    /// These columns alone.
    schema: Option<SchemaRef>,
}

impl Partitions {
    /// Those of a table.
    ///
    /// # Errors
    /// `Invalid` when rows cannot be kept apart by it: it is not one of columns alone, or not always the same.
    pub(crate) fn of(state: &SessionState, definition: &Definition) -> Result<Self> {
        let Some(text) = definition.properties.get(PARTITION) else { return Ok(Self::default()) };
        let schema = arrow_schema(definition);
        let planned_over = DFSchema::try_from(schema.clone())?;
        let (mut logical, mut expressions) = (Vec::new(), Vec::new());
        let mut used = BTreeSet::new();
        for expr in listed(parse_expression(text)?) {
            let refuse = |reason: &str| {
                let message =
                    format!("table '{}' cannot have PARTITION BY {expr}: {reason}", definition.name);
                Err(Error::new(ErrorKind::Invalid, message)
                    .with_hint("an expression of its columns, such as date_trunc('month', time)"))
            };
            let mut meant = expr.clone();
            functions::expand(&mut meant)?;
            let aliased = ExprWithAlias { expr: meant, alias: None };
            let planned = state.create_logical_expr_from_sql_expr(aliased, &planned_over);
            let planned = planned.map_err(|error| explain(&error, None))?;
            // As queries have it, so that what they say of it is recognised.
            let planned = planned.transform_up(|expr| with_common_types(expr, &planned_over)).data()?;
            if let Some(reason) = why_not(&planned)? {
                return refuse(&reason);
            }
            let physical = state.create_physical_expr(planned.clone(), &planned_over)?;
            let data_type = physical.data_type(&schema)?;
            if data_type.is_nested() || matches!(data_type, DataType::Null | DataType::Interval(_)) {
                return refuse(&format!("{} has no order", sql_type_name(&data_type)));
            }
            let columns = collect_columns(&physical);
            if columns.is_empty() {
                return refuse("it names no column");
            }
            used.extend(columns.iter().map(|column| column.index()));
            logical.push(planned);
            expressions.push(physical);
        }
        let columns: Vec<usize> = used.into_iter().collect();
        let schema = Some(Arc::new(schema.project(&columns)?));
        Ok(Self { planned: logical, expressions, columns, schema })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.expressions.is_empty()
    }

    /// What rows of a table are sorted by when they are written, where its columns are called `v0` and so on.
    pub(crate) fn sort_keys(&self, definition: &Definition) -> Result<Vec<SortExpr>> {
        let column = |index: usize| LogicalExpr::Column(Column::new_unqualified(format!("v{index}")));
        let index_of = |name: &str| definition.fields.iter().position(|field| field.name == name);
        let mut keys = Vec::new();
        for expr in &self.planned {
            let over = expr.clone().transform(|part| match &part {
                LogicalExpr::Column(named) => Ok(match index_of(&named.name) {
                    Some(index) => Transformed::yes(column(index)),
                    None => Transformed::no(part),
                }),
                _ => Ok(Transformed::no(part)),
            })?;
            keys.push(over.data.sort(true, false));
        }
        keys.extend(definition.keys.iter().filter_map(|key| {
            Some(column(definition.index_of(key.field)?).sort(!key.is_descending, key.nulls_first))
        }));
        Ok(keys)
    }

    /// What rows are sorted by when they are written, before all else.
    pub(super) fn sort_exprs(&self) -> impl Iterator<Item = PhysicalSortExpr> {
        let options = SortOptions { descending: false, nulls_first: false };
        self.expressions.iter().map(move |expr| PhysicalSortExpr { expr: expr.clone(), options })
    }

    /// Runs of rows of one partition each, with its name, of rows as storage takes them.
    pub(super) fn runs(&self, arrays: &[ArrayRef]) -> Result<Vec<(Arc<str>, Range<usize>)>> {
        let row_count = arrays.first().map_or(0, |array| array.len());
        let Some(schema) = &self.schema else { return Ok(vec![(Arc::default(), 0..row_count)]) };
        // Text may have another layout here.
        let columns = self.columns.iter().zip(schema.fields());
        let columns = columns.map(|(column, field)| cast(&arrays[*column], field.data_type()));
        let batch = RecordBatch::try_new(schema.clone(), columns.collect::<Result<_, _>>()?)?;
        let values = self.expressions.iter().map(|expr| {
            let expr = reassign_expr_columns(expr.clone(), schema)?;
            expr.evaluate(&batch)?.into_array(row_count)
        });
        let values = values.collect::<datafusion::error::Result<Vec<_>>>()?;
        let ranges = partition(&values)?.ranges();
        let names = ranges.into_iter().map(|range| Ok((name(&values, range.start)?.into(), range)));
        names.collect()
    }
}

/// Fails when a statement makes too many partitions.
pub(super) fn check_count(count: usize, table: &str) -> Result<()> {
    if count <= PARTITIONS_MAX {
        return Ok(());
    }
    let message = format!("these rows lie in more than {PARTITIONS_MAX} partitions of table '{table}'");
    Err(Error::new(ErrorKind::Resources, message).with_hint("PARTITION BY something coarser, or write fewer"))
}

/// `(a, b)` as two expressions, all else as one.
fn listed(expr: Expr) -> Vec<Expr> {
    match expr {
        Expr::Tuple(list) => list,
        Expr::Nested(inner) => listed(*inner),
        other => vec![other],
    }
}

/// What speaks against keeping rows apart by an expression.
fn why_not(expr: &LogicalExpr) -> Result<Option<String>> {
    let mut found = None;
    expr.apply(|part| {
        found = match part {
            LogicalExpr::ScalarFunction(call)
                if call.func.signature().volatility != Volatility::Immutable =>
            {
                Some(format!("{}() is not the same each time", call.func.name()))
            }
            LogicalExpr::AggregateFunction(_) | LogicalExpr::WindowFunction(_) => {
                Some("it is about more than one row".to_owned())
            }
            LogicalExpr::ScalarSubquery(_) | LogicalExpr::InSubquery(_) | LogicalExpr::Exists(_) => {
                Some("it has a subquery".to_owned())
            }
            LogicalExpr::Placeholder(_) => Some("it has a parameter".to_owned()),
            _ => None,
        };
        Ok(if found.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Whether values stand in quotes in a name.
pub(crate) fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Values of a row as SQL writes them: no two partitions have one name.
pub(crate) fn name(values: &[ArrayRef], row: usize) -> Result<String> {
    let names = values.iter().map(|array| {
        if array.is_null(row) {
            return Ok("NULL".to_owned());
        }
        let options = FormatOptions::new();
        let text = ArrayFormatter::try_new(array, &options)?.value(row).to_string();
        Ok(if is_text(array.data_type()) { format!("'{}'", text.replace('\'', "''")) } else { text })
    });
    let name = names.collect::<Result<Vec<_>>>()?.join(", ");
    if name.len() <= NAME_BYTES_MAX {
        return Ok(name);
    }
    let shown: String = name.chars().take(40).collect();
    let message =
        format!("a partition has a value of {} bytes, at most {NAME_BYTES_MAX} are possible", name.len());
    Err(Error::new(ErrorKind::Data, message).with_detail(format!("it begins with {shown}")))
}

/// The columns that a table is partitioned by, if it is, by their names.
pub(crate) fn partition_columns(definition: &Definition) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    rewrite_columns(definition, |name| _ = names.insert(normalized(name)));
    names
}

/// The SQL of PARTITION BY with another name of a column.
pub(crate) fn with_renamed(definition: &Definition, old: &str, new: &str) -> Option<String> {
    rewrite_columns(definition, |name| {
        if normalized(name) == old {
            *name = Ident::with_quote('"', new);
        }
    })
}

fn rewrite_columns(definition: &Definition, mut rewrite: impl FnMut(&mut Ident)) -> Option<String> {
    let mut expr = parse_expression(definition.properties.get(PARTITION)?).ok()?;
    each_expression_mut(&mut expr, &mut |part| match part {
        Expr::Identifier(name) => rewrite(name),
        Expr::CompoundIdentifier(names) => names.first_mut().into_iter().for_each(&mut rewrite),
        _ => {}
    });
    Some(expr.to_string())
}
