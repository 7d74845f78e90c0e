//! Errors of rows that something else excludes are no errors: `WHERE x <> 0 AND 10 / x > 2` gives the rows for which
//! it is true, whichever condition is computed first, wherever, and over however many rows at a time.
//!
//! An error is raised only if its row survives everything that decides about it: the other conditions of its filter
//! and of the joins around it, the other side of its AND or OR, the branches before its own of CASE and COALESCE.
//! What DataFusion does for speed must then not happen to what [can fail](can_fail()):
//!
//! - AND and OR compute both sides for whole batches: [`CarefulPlan`] makes them [`Careful`](careful::Careful), and
//!   puts conditions that can fail into a filter above the others.
//! - Filters go below joins and groupings, which see more rows: [`PushDown`] keeps those that can fail where they are.
//! - What conditions have in common is computed before any of them: [`AfterCommon`] puts it back.
//! - Projections go below filters that need few columns: [`Projections`] keeps those that can fail where they are.
//! - Arguments of aggregates are computed for the rows that FILTER excludes: [`Arguments`] makes them conditional.

mod can_fail;
mod careful;
mod logical;
mod physical;

pub(crate) use can_fail::can_fail;
pub(crate) use careful::Conditions;
pub(crate) use logical::{Arguments, optimizer_rules};
pub(crate) use physical::physical_rules;
