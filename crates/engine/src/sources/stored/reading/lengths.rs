//! Lengths of text as columns of their own.
//!
//! What a query wants of text may be how long it is, or whether it is empty. Storage knows that without the text, so
//! an optimizer rule gives the scan a column with lengths in the place of the text wherever nothing else is wanted
//! of it.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array};
use arrow::compute::kernels::length::length;
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ExprSchema, ScalarValue};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::Result;
use datafusion::functions::string::octet_length::OctetLengthFunc;
use datafusion::functions::unicode::character_length::CharacterLengthFunc;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::logical_plan::TableScanBuilder;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator, SubqueryAlias, TableScan, lit};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use keirin_storage::part::LengthUnit;

use super::super::table::StoredTable;

/// A column of a table that has the lengths of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Length {
    /// The place of the other in the table's schema.
    pub(crate) of: usize,
    pub(crate) unit: LengthUnit,
}

/// The lengths of text that is at hand.
///
/// # Errors
/// When it is no text.
pub(super) fn lengths_of(text: &ArrayRef, unit: LengthUnit) -> Result<ArrayRef> {
    if unit == LengthUnit::Bytes || !matches!(text.data_type(), DataType::Utf8View) {
        return Ok(length(text)?);
    }
    let count = |text: &str| i32::try_from(text.chars().count()).unwrap_or(i32::MAX);
    let counts = text.as_string_view().iter().map(|text| text.map(count));
    Ok(Arc::new(counts.collect::<Int32Array>()))
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct TextLengths;

/// Text of a column, and the question about its length.
type Question = (Column, LengthUnit);

/// What an expression asks of the length of a column alone.
fn question(expr: &Expr) -> Option<Question> {
    match expr {
        Expr::ScalarFunction(function) => {
            let [Expr::Column(column)] = &function.args[..] else { return None };
            let inner: &dyn Any = function.func.inner().as_ref();
            let unit = match (inner.is::<OctetLengthFunc>(), inner.is::<CharacterLengthFunc>()) {
                (true, _) => LengthUnit::Bytes,
                (_, true) => LengthUnit::Characters,
                _ => return None,
            };
            Some((column.clone(), unit))
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq | Operator::NotEq, right }) => {
            match (&**left, &**right) {
                (Expr::Column(column), Expr::Literal(ScalarValue::Utf8View(Some(text)), _))
                    if text.is_empty() =>
                {
                    Some((column.clone(), LengthUnit::Bytes))
                }
                _ => None,
            }
        }
        _ => None,
    }
}

/// The columns of text of which these expressions use the length alone, with the questions that they ask about it.
fn questions<'a>(exprs: impl IntoIterator<Item = &'a Expr>, schema: &DFSchema) -> Result<Vec<Question>> {
    let mut asked: Vec<Question> = Vec::new();
    // How often a column is wanted, less the times that its length is.
    let mut others: HashMap<Column, i64> = HashMap::new();
    for expr in exprs {
        expr.apply(|expr| {
            if let Expr::Column(column) = expr {
                *others.entry(column.clone()).or_default() += 1;
            } else if let Some(question) = question(expr) {
                *others.entry(question.0.clone()).or_default() -= 1;
                if !asked.contains(&question) {
                    asked.push(question);
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    let is_text = |column: &Column| {
        schema.field_from_column(column).is_ok_and(|field| *field.data_type() == DataType::Utf8View)
    };
    asked.retain(|(column, _)| others[column] == 0 && is_text(column));
    Ok(asked)
}

/// The expression with columns of lengths, whose names `names` knows, in the place of text.
fn answered(expr: Expr, names: &HashMap<Question, Column>) -> Result<Transformed<Expr>> {
    expr.transform_down(|expr| {
        let Some(name) = question(&expr).and_then(|question| names.get(&question)) else {
            return Ok(Transformed::no(expr));
        };
        Ok(Transformed::yes(match expr {
            Expr::BinaryExpr(BinaryExpr { op, .. }) => Expr::BinaryExpr(BinaryExpr::new(
                Box::new(Expr::Column(name.clone())),
                op,
                Box::new(lit(0_i32)),
            )),
            _ => Expr::Column(name.clone()),
        }))
    })
}

/// The scan of the same table with columns of lengths that answer the questions, and the columns' names; the
/// projection is what it was.
fn with_lengths(
    scan: &TableScan,
    questions: &[Question],
) -> Result<Option<(TableScan, HashMap<Question, String>)>> {
    let provider = source_as_provider(&scan.source)?;
    let Some(table) = (provider.as_ref() as &dyn Any).downcast_ref::<StoredTable>() else {
        return Ok(None);
    };
    let (mut table, mut names) = (table.clone(), HashMap::new());
    for (column, unit) in questions {
        let Some((with, name)) = table.with_length(&column.name, *unit) else { return Ok(None) };
        table = with;
        names.insert((column.clone(), *unit), name);
    }
    let columns = scan.source.schema().fields().len();
    let projection = scan.projection.clone().unwrap_or_else(|| (0..columns).collect());
    let scan = TableScanBuilder::new(scan.table_name.clone(), provider_as_source(Arc::new(table)))
        .with_projection(Some(projection))
        .with_filters(scan.filters.clone())
        .with_fetch(scan.fetch)
        .with_statistics_requests(scan.statistics_requests.clone());
    Ok(Some((scan.build()?, names)))
}

/// The scan below aliases, and these, the outermost first.
fn scan_below(mut plan: &LogicalPlan) -> Option<(&TableScan, Vec<&SubqueryAlias>)> {
    let mut aliases = Vec::new();
    loop {
        match plan {
            LogicalPlan::TableScan(scan) => return Some((scan, aliases)),
            LogicalPlan::SubqueryAlias(alias) => {
                aliases.push(alias);
                plan = &alias.input;
            }
            _ => return None,
        }
    }
}

/// A plan that computes something of a scan.
fn above_scan(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let inputs = plan.inputs();
    let Some((scan, aliases)) = inputs.first().and_then(|input| scan_below(input)) else {
        return Ok(Transformed::no(plan));
    };
    let exprs = plan.expressions();
    let questions = questions(&exprs, inputs[0].schema())?;
    if questions.is_empty() {
        return Ok(Transformed::no(plan));
    }
    let Some((mut scan, names)) = with_lengths(scan, &questions)? else { return Ok(Transformed::no(plan)) };
    let relation =
        aliases.first().map_or_else(|| scan.table_name.clone(), |outermost| outermost.alias.clone());
    let names =
        names.into_iter().map(|(question, name)| (question, Column::new(Some(relation.clone()), name)));
    let names: HashMap<_, _> = names.collect();
    let preserver = NamePreserver::new(&plan);
    let exprs = exprs.into_iter().map(|expr| {
        let name = preserver.save(&expr);
        Ok(answered(expr, &names)?.update_data(|expr| name.restore(expr)).data)
    });
    let exprs = exprs.collect::<Result<Vec<_>>>()?;
    // What is not text goes on being read, and so do the columns of lengths.
    let schema = scan.source.schema();
    let wanted: Vec<&Column> = exprs.iter().flat_map(Expr::column_refs).collect();
    let is_wanted = |index: &usize| wanted.iter().any(|column| column.name == *schema.field(*index).name());
    let projection = (0..schema.fields().len()).filter(is_wanted).collect();
    scan = TableScanBuilder::from(scan).with_projection(Some(projection)).build()?;
    let mut input = LogicalPlan::TableScan(scan);
    for alias in aliases.into_iter().rev() {
        input = LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(Arc::new(input), alias.alias.clone())?);
    }
    Ok(Transformed::yes(plan.with_new_exprs(exprs, vec![input])?))
}

/// A scan with filters: text that they alone want is not read.
fn in_filters(scan: TableScan) -> Result<Transformed<LogicalPlan>> {
    let schema = DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?;
    let mut questions = questions(&scan.filters, &schema)?;
    // Storage asks text itself whether it is empty.
    let is_function = |expr: &Expr| matches!(expr, Expr::ScalarFunction(_));
    let mut functions = Vec::new();
    for filter in &scan.filters {
        filter.apply(|expr| {
            functions.extend(question(expr).filter(|_| is_function(expr)));
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    questions.retain(|question| functions.contains(question));
    if questions.is_empty() {
        return Ok(Transformed::no(LogicalPlan::TableScan(scan)));
    }
    let Some((with, names)) = with_lengths(&scan, &questions)? else {
        return Ok(Transformed::no(LogicalPlan::TableScan(scan)));
    };
    let name = |(question, name)| (question, Column::new(Some(scan.table_name.clone()), name));
    let names: HashMap<Question, Column> = names.into_iter().map(name).collect();
    let filters = scan.filters.into_iter().map(|filter| Ok(answered(filter, &names)?.data));
    let filters = filters.collect::<Result<Vec<_>>>()?;
    let scan = TableScanBuilder::from(with).with_filters(filters).build()?;
    Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
}

impl OptimizerRule for TextLengths {
    fn name(&self) -> &'static str {
        "text_lengths"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_) => above_scan(plan),
            LogicalPlan::TableScan(scan) if !scan.filters.is_empty() => in_filters(scan),
            plan => Ok(Transformed::no(plan)),
        }
    }
}

impl StoredTable {
    /// The table with a column of the lengths of the column of this name, and its name; none if another column is
    /// called so.
    fn with_length(&self, column: &str, unit: LengthUnit) -> Option<(Self, String)> {
        let of = self.schema.index_of(column).ok()?;
        let function = match unit {
            LengthUnit::Bytes => "octet_length",
            LengthUnit::Characters => "character_length",
        };
        let (name, length) = (format!("{function}({column})"), Length { of, unit });
        let first = self.schema.fields().len() - self.lengths.len();
        if let Ok(index) = self.schema.index_of(&name) {
            let is_same = index >= first && self.lengths[index - first] == length;
            return is_same.then(|| (self.clone(), name));
        }
        let field = Field::new(&name, DataType::Int32, self.schema.field(of).is_nullable());
        let fields: Vec<_> = self.schema.fields().iter().cloned().chain([Arc::new(field)]).collect();
        let schema = Arc::new(Schema::new_with_metadata(fields, self.schema.metadata().clone()));
        let lengths = self.lengths.iter().copied().chain([length]).collect();
        let mut table = self.clone();
        (table.schema, table.lengths) = (schema, lengths);
        Some((table, name))
    }
}
