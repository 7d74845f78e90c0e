//! Our changes to plans: logical ones before DataFusion's own, physical ones after.

mod date_intervals;
mod dependent;
mod large_top;
mod subqueries;

pub(crate) use date_intervals::keep_hours;
pub(crate) use large_top::LargeTop;
pub(crate) use subqueries::Subqueries;
