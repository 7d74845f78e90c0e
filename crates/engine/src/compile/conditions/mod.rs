//! An error in a row that another condition excludes is no error: `WHERE x <> 0 AND 10 / x > 2` gives the
//! rows for which it is true, whichever condition is computed first, wherever, and in batches of any size.
//!
//! An error is raised only if its row passes everything that decides about it: the other conditions of its
//! filter and of the joins around it, the other side of its AND or OR, the branches before its own in CASE
//! and COALESCE. So some optimizations of DataFusion must not be applied to what [can fail](can_fail()):
//!
//! - AND and OR compute both sides for whole batches: [`WrapFallible`] makes them
//!   [`Fallible`](fallible::Fallible), and puts conditions that can fail into a filter above the others.
//! - Filters are pushed below joins and groupings, which see more rows: [`PushDown`] keeps those that can
//!   fail above.
//! - Common subexpressions are computed before all conditions: [`AfterCommon`] puts them back.
//! - Projections are pushed below filters that need few columns: [`Projections`] keeps those that can fail
//!   above.
//! - Arguments of aggregates are computed also for rows that FILTER excludes: [`Arguments`] makes them
//!   conditional.

mod can_fail;
mod fallible;
mod logical;
mod physical;

pub(crate) use can_fail::can_fail;
pub(crate) use fallible::{Conditions, conjuncts, has_volatile};
pub(crate) use logical::{Arguments, optimizer_rules};
pub(crate) use physical::{physical_rules, wrapped, wrapped_filter};
