//! From text to one syntax tree: tokens corrected, clauses of other dialects said in words that the planner
//! knows, depth limited, what nothing would read refused.

pub(crate) mod alterations;
pub(crate) mod depth;
pub(crate) mod dialect;
pub(crate) mod numbers;
pub(crate) mod parser;
pub(crate) mod refused;
pub(crate) mod table_clauses;
pub(crate) mod text;
pub(crate) mod tokens;
pub(crate) mod types;
pub(crate) mod walk;
