//! Our changes to plans before DataFusion's own.

mod dependent;
mod subqueries;

pub(crate) use subqueries::Subqueries;
