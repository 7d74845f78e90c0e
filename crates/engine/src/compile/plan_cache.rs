//! Plans of a session's queries over tables, kept for when the same text comes again: a query over
//! little data takes as long to plan as to run.
//!
//! What a text means depends on the version of the database, on settings, and on the moment. So plans are kept for
//! one version; every statement that is no query forgets them ([`Change`]), in whichever session; and only plans are
//! kept that read nothing but tables and call nothing that depends on the time or the session.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use keirin_storage::Snapshot;
use parking_lot::Mutex;

use crate::compile::join::{Filters, with_own_state};
use crate::sources::stored::{StoredScan, is_dynamic};

/// So many plans are kept for a session, those used last.
const PLANS_MAX: usize = 64;
/// Longer texts are planned anew.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// Counts the statements of a database that may change what a text means, when they begin and when they end.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    count: AtomicU64,
    /// Those of all sessions.
    caches: Mutex<Vec<Weak<PlanCache>>>,
}

impl Changes {
    fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// The plans of a session, none yet.
    pub(crate) fn cache(&self) -> Arc<PlanCache> {
        let cache = Arc::<PlanCache>::default();
        self.caches.lock().push(Arc::downgrade(&cache));
        cache
    }

    /// Lets go of plans that are not used any more, and of the files that they hold.
    fn forget_plans(&self) {
        let mut caches = self.caches.lock();
        caches.retain(|cache| cache.upgrade().is_some_and(|cache| cache.clear()));
    }
}

/// A statement that may change what a text means. Plans made before it began, or while it ran, are not used after.
pub(crate) struct Change(Arc<Changes>);

impl Change {
    pub(crate) fn begin(changes: &Arc<Changes>) -> Self {
        changes.count.fetch_add(1, Ordering::AcqRel);
        Self(changes.clone())
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        self.0.count.fetch_add(1, Ordering::AcqRel);
        self.0.forget_plans();
    }
}

/// A query, planned.
#[derive(Clone)]
pub(crate) struct Planned {
    /// The analyzed plan.
    pub(crate) logical: LogicalPlan,
    physical: Arc<dyn ExecutionPlan>,
    /// Held while a copy is made: operators that share something find each other by being copied together.
    copying: Arc<Mutex<()>>,
}

impl Planned {
    /// `physical`, which has not run yet, for `logical`. `None` if the same text may need another plan even
    /// though nothing has changed, or the plan cannot run a second time.
    pub(crate) fn new(logical: &LogicalPlan, physical: &Arc<dyn ExecutionPlan>) -> Option<Self> {
        let is_fixed = !depends_on_moment(logical).ok()? && runs_again(physical).ok()?;
        // A copy: what runs keeps what it has read.
        let fresh = || with_own_state(physical.clone()).ok();
        let physical = is_fixed.then(fresh).flatten()?;
        Some(Self { logical: logical.clone(), physical, copying: Arc::default() })
    }

    /// The plan, to run once.
    ///
    /// # Errors
    /// What its operators say; none of those that are kept does.
    pub(crate) fn fresh(&self) -> Result<Arc<dyn ExecutionPlan>> {
        let _copying = self.copying.lock();
        with_own_state(self.physical.clone())
    }
}

/// Whether a query's plan has what is only right at this moment, or in this place.
fn depends_on_moment(plan: &LogicalPlan) -> Result<bool> {
    let mut depends = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            depends |= expression.exists(|part| {
                Ok(match part {
                    Expr::ScalarFunction(call) => call.func.signature().volatility == Volatility::Stable,
                    Expr::ScalarVariable(..) | Expr::Placeholder(_) => true,
                    _ => false,
                })
            })?;
            Ok(if depends { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(depends)
}

/// Whether a plan gives the same answer again, once its state is reset: its operators are known to forget what
/// they have read.
fn runs_again(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    const OPERATORS: [&str; 32] = [
        "AggregateExec",
        "BoundedWindowAggExec",
        "CoalesceBatchesExec",
        "CoalescePartitionsExec",
        "CooperativeExec",
        "CrossJoinExec",
        "EmptyExec",
        "ExchangeExec",
        "FilterExec",
        "GlobalLimitExec",
        "GroupExec",
        "HashJoinExec",
        "InOrderExec",
        "InterleaveExec",
        "JoinExec",
        "LocalLimitExec",
        "NestedLoopJoinExec",
        "ParallelGroupExec",
        "PlaceholderRowExec",
        "ProjectionExec",
        "RepartitionExec",
        "SharedExec",
        "SortExec",
        "SortExec(TopK)",
        "SortPreservingMergeExec",
        "SortRowsExec",
        "StoredAggregate",
        "StoredGroup",
        "StoredScan",
        "UnionExec",
        "WindowAggExec",
        "WindowRowsExec",
    ];
    let filters = Filters::of(plan)?;
    let mut runs_again = true;
    plan.apply(|node| {
        runs_again &= OPERATORS.contains(&node.name());
        // What could not be opened may be there the next time.
        runs_again &= node.downcast_ref::<StoredScan>().is_none_or(StoredScan::is_whole);
        // What another operator has found would go on filtering. Joins and sorts get new filters, and the scans that they
        // filter, too.
        if node.children().is_empty() || node.is::<FilterExec>() {
            let is_scan = node.is::<StoredScan>();
            node.apply_expressions(&mut |expression| {
                runs_again &= !is_dynamic(expression) || is_scan && filters.are_all_of(expression)?;
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        Ok(if runs_again { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(runs_again)
}

/// See the [module](self).
#[derive(Default)]
pub(crate) struct PlanCache(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// What the plans were made for.
    moment: Option<Moment>,
    /// Texts and their plans; the one used last is last.
    plans: Vec<(Box<str>, Planned)>,
}

/// A time during which a text means the same.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    snapshot: Snapshot,
    changes: u64,
}

impl Moment {
    /// Must be taken before anything else of a statement is looked up.
    pub(crate) fn new(snapshot: &Snapshot, changes: &Changes) -> Self {
        Self { snapshot: snapshot.clone(), changes: changes.count() }
    }

    fn is(&self, other: &Self) -> bool {
        self.changes == other.changes && self.snapshot.is(&other.snapshot)
    }
}

impl fmt::Debug for PlanCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlanCache").finish_non_exhaustive()
    }
}

impl PlanCache {
    /// The plan of `text`, if it was kept and is still right.
    pub(crate) fn find(&self, text: &str, moment: &Moment) -> Option<Planned> {
        let mut kept = self.0.lock();
        if !kept.moment.as_ref().is_some_and(|kept| kept.is(moment)) {
            return None;
        }
        let place = kept.plans.iter().position(|(kept, _)| **kept == *text)?;
        let found = kept.plans.remove(place);
        let planned = found.1.clone();
        kept.plans.push(found);
        Some(planned)
    }

    /// Forgets all plans; true.
    fn clear(&self) -> bool {
        let kept = std::mem::take(&mut *self.0.lock());
        drop(kept);
        true
    }

    /// Forgets the plan of `text`.
    pub(crate) fn forget(&self, text: &str) {
        self.0.lock().plans.retain(|(kept, _)| **kept != *text);
    }

    /// Keeps the plan of `text`, which was made at `moment`.
    pub(crate) fn keep(&self, text: &str, moment: &Moment, planned: Planned) {
        if text.len() > TEXT_BYTES_MAX {
            return;
        }
        let mut kept = self.0.lock();
        if !kept.moment.as_ref().is_some_and(|kept| kept.is(moment)) {
            *kept = Kept { moment: Some(moment.clone()), plans: Vec::new() };
        }
        kept.plans.retain(|(kept, _)| **kept != *text);
        if kept.plans.len() == PLANS_MAX {
            kept.plans.remove(0);
        }
        kept.plans.push((text.into(), planned));
    }
}
