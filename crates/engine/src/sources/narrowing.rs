//! Filters over statistics: what they show to hold no row that passes is not read.
//!
//! Operators above a scan narrow some filters while it runs, such as the threshold of a top-N or the keys of a join.
//! They are asked again before each stripe or row group.

use std::sync::Arc;

use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::DynamicFilterTracking;
use datafusion::physical_optimizer::pruning::{PruningPredicate, PruningPredicateBuilder};

use crate::compile::join::with_bounds;

/// The filter as one over statistics, if it can be one; of the keys of joins as they are now.
pub(crate) fn over_statistics(
    filter: &Arc<dyn PhysicalExpr>,
    builder: PruningPredicateBuilder<'_>,
) -> Option<Arc<PruningPredicate>> {
    builder.build(with_bounds(filter).ok()?)
}

/// Watches a filter that other operators narrow while it is used.
#[derive(Debug)]
pub(crate) struct Narrowing {
    filter: Arc<dyn PhysicalExpr>,
    tracking: DynamicFilterTracking,
    current: Option<Arc<PruningPredicate>>,
}

impl Narrowing {
    /// `None` for a filter that stays what it is.
    pub(crate) fn new(filter: &Arc<dyn PhysicalExpr>) -> Option<Self> {
        let tracking = DynamicFilterTracking::classify(filter);
        let is_watched = matches!(tracking, DynamicFilterTracking::Watching(_));
        is_watched.then(|| Self { filter: filter.clone(), tracking, current: None })
    }

    /// The filter as it is now; `None` as long as nothing has narrowed it, or if statistics say nothing of it.
    pub(crate) fn current(&mut self, builder: PruningPredicateBuilder<'_>) -> Option<&PruningPredicate> {
        if self.tracking.watcher().is_some_and(|watcher| watcher.changed()) {
            self.current = over_statistics(&self.filter, builder);
        }
        self.current.as_deref()
    }
}
