//! Filters that are not moved past columns of one name.
//!
//! DataFusion's rule that moves filters down, those of plans and those that joins and sorts make while they run, finds
//! the columns of an input by their names. Where two have one name, as above a join of tables that both have an `id`,
//! it takes the first: `l RIGHT JOIN r ON l.k = r.id WHERE l.id IS NULL` lost the rows of `r` that this asks for. So
//! while the rule runs, a [`Fence`] stands above each operator whose columns have no names of their own. Most filters
//! are below by then: in the logical plan, columns are known by their tables.
//!
//! A filter on a key of a semi join goes to the side that is asked, too, by the name that the key has on the other. If
//! that side has another column of this name, rows were lost: `EXISTS (SELECT 1 FROM s WHERE s.b = f.a AND s.a = f.b)`
//! looked for values of `f.a` in `s.a`. There the fence stands above that side.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};

use super::Fence;

/// A rule that moves filters down. See the [module](self).
#[derive(Debug)]
pub(crate) struct SameNames(pub(crate) Arc<dyn PhysicalOptimizerRule + Send + Sync>);

impl PhysicalOptimizerRule for SameNames {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        options: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let fenced = plan.transform_up(|node| {
            if let Some(join) = with_fenced_set(&node)? {
                return Ok(Transformed::yes(join));
            }
            Ok(match has_same_names(&node) {
                true => Transformed::yes(Arc::new(Fence::temporary(node)) as Arc<dyn ExecutionPlan>),
                false => Transformed::no(node),
            })
        })?;
        let moved = self.0.optimize(fenced.data, options)?;
        if !fenced.transformed {
            return Ok(moved);
        }
        Fence::without_temporary(moved)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

/// The semi join with a fence above the side that it asks, if a filter on a key could take another column there for it.
fn with_fenced_set(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(join) = plan.downcast_ref::<HashJoinExec>() else { return Ok(None) };
    let (given, asked) = match join.join_type() {
        JoinType::LeftSemi => (0, 1),
        JoinType::RightSemi => (1, 0),
        _ => return Ok(None),
    };
    let mut sides = [join.left().clone(), join.right().clone()];
    let schemas = [sides[0].schema(), sides[1].schema()];
    let is_misled = join.on().iter().any(|(left, right)| {
        let keys = [left, right].map(|key| key.downcast_ref::<Column>());
        let Some(key) = keys[given] else { return false };
        let found = schemas[asked].index_of(schemas[given].field(key.index()).name());
        found.is_ok_and(|found| keys[asked].is_none_or(|partner| partner.index() != found))
    });
    if !is_misled {
        return Ok(None);
    }
    sides[asked] = Arc::new(Fence::temporary(sides[asked].clone()));
    Ok(Some(replace_children_if_necessary(plan.clone(), sides.to_vec())?))
}

fn has_same_names(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let schema = plan.schema();
    let mut names = HashSet::with_capacity(schema.fields().len());
    !schema.fields().iter().all(|field| names.insert(field.name()))
}
