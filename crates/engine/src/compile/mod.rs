//! From a plan to operators: rules for plans, the operators of ours that take over parts of them, and the
//! plans that are kept.

pub(crate) mod as_of;
pub(crate) mod conditions;
pub(crate) mod fast_path;
pub(crate) mod grouping;
pub(crate) mod in_order;
pub(crate) mod join;
mod parts;
pub(crate) mod plan_cache;
pub(crate) mod rules;
pub(crate) mod sorting;
pub(crate) mod subplans;
mod why_not;
pub(crate) mod windows;

pub(crate) use why_not::why_not;
