//! WITH RECURSIVE in a correlated subquery.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::Column;
use datafusion::common::not_impl_err;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::cte_worktable::CteWorkTable;
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::Result;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder, RecursiveQuery, TableScan};

use super::dependent::{Dependent, Names, Outer, with_keys_last};

/// The rows that a step of a recursive query begins with.
pub(super) struct WorkTable {
    known_as: String,
    /// Its name where it has the outer values.
    name: String,
    keys: Vec<Column>,
}

impl WorkTable {
    fn is_read_by(&self, scan: &TableScan) -> bool {
        work_table_of(scan).is_some_and(|name| name == self.known_as)
    }
}

/// Of which recursive query a scan reads the rows that a step begins with.
fn work_table_of(scan: &TableScan) -> Option<String> {
    let provider = source_as_provider(&scan.source).ok()?;
    provider.downcast_ref::<CteWorkTable>().map(|table| table.name().to_owned())
}

/// Refuses to read the rows that a step begins with twice: in a step they can be read only once.
pub(super) fn check_recursive(plan: &LogicalPlan) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        let LogicalPlan::RecursiveQuery(query) = node else { return Ok(TreeNodeRecursion::Continue) };
        let mut count = 0;
        query.recursive_term.apply_with_subqueries(|node| {
            let is_read = |scan: &TableScan| work_table_of(scan).is_some_and(|name| name == query.name);
            count += usize::from(matches!(node, LogicalPlan::TableScan(scan) if is_read(scan)));
            Ok(TreeNodeRecursion::Continue)
        })?;
        if count > 1 {
            return not_impl_err!(
                "a recursive query that reads '{}' twice in its recursive part",
                query.name
            );
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

impl Outer {
    /// All combinations recur at once: the rows that a step begins with have the outer values beside them.
    pub(super) fn recursive(&self, query: &RecursiveQuery, names: &mut Names) -> Result<Dependent> {
        let Some((first, keys)) = self.dependent(&query.static_term, names)? else { return Ok(None) };
        let (first, keys) = with_keys_last(first, &query.static_term, &keys, names)?;
        let name = names.fresh();
        let known = WorkTable { known_as: query.name.clone(), name: name.clone(), keys: keys.clone() };
        self.work_tables.borrow_mut().push(known);
        let next = self.dependent(&query.recursive_term, names);
        self.work_tables.borrow_mut().pop();
        let Some((next, next_keys)) = next? else { return Ok(None) };
        let (next, _) = with_keys_last(next, &query.recursive_term, &next_keys, names)?;
        let plan =
            LogicalPlanBuilder::from(first).to_recursive_query(name, next, query.is_distinct)?.build()?;
        Ok(Some((plan, keys)))
    }

    /// The rows that a step of a recursive query begins with, with the outer values.
    pub(super) fn work_table(&self, scan: &TableScan) -> Result<Dependent> {
        let work_tables = self.work_tables.borrow();
        let Some(known) = work_tables.iter().rev().find(|known| known.is_read_by(scan)) else {
            return Ok(None);
        };
        let of_outer = self.plan.schema().fields().iter().zip(&known.keys);
        let keys = of_outer
            .map(|(field, key)| Arc::new(field.as_ref().clone().with_name(&key.name).with_nullable(true)));
        let fields = scan.projected_schema.fields().iter().cloned().chain(keys);
        let table = CteWorkTable::new(&known.name, Arc::new(Schema::new(fields.collect::<Vec<_>>())));
        let plan =
            LogicalPlanBuilder::scan(scan.table_name.clone(), provider_as_source(Arc::new(table)), None)?;
        let keys = known.keys.iter().map(|key| Column::new(Some(scan.table_name.clone()), key.name.clone()));
        Ok(Some((plan.build()?, keys.collect())))
    }

    /// Whether a plan has other rows for other outer values.
    pub(super) fn is_correlated(&self, plan: &LogicalPlan) -> bool {
        let work_tables = self.work_tables.borrow();
        let reads = |node: &LogicalPlan| match node {
            LogicalPlan::TableScan(scan) => Ok(work_tables.iter().any(|known| known.is_read_by(scan))),
            _ => Ok(false),
        };
        !plan.all_out_ref_exprs().is_empty()
            || (!work_tables.is_empty() && plan.exists(reads).unwrap_or(true))
    }
}
