//! Our changes to plans: logical ones before DataFusion's own, physical ones after.

mod dependent;
mod large_top;
mod subqueries;

pub(crate) use large_top::LargeTop;
pub(crate) use subqueries::Subqueries;
