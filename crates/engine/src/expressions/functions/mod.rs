//! Functions that users of DuckDB, ClickHouse, MySQL and PostgreSQL try first and DataFusion lacks.
//!
//! Most are other functions under another name, or a short expression: [`macros`] expands them before
//! planning, from a table of definitions. The rest are implemented here, one file for each group.

mod aggregates;
pub(crate) mod any_type;
mod bounded;
pub(crate) mod collations;
mod count;
mod date_diff;
mod definitions;
mod entries;
mod extraction;
mod gathering;
mod literals;
mod macros;
mod marks;
mod mysql;
pub(crate) mod nested;
pub(crate) mod nested_uuids;
#[cfg(test)]
mod odd_arguments;
pub(crate) mod once;
mod positions;
pub(crate) mod quotient;
mod ranks;
mod rounding;
mod series;
mod session;
mod similar;
mod table_calls;
mod templates;
mod times;
mod truncation;
pub(crate) mod uuids;
mod wrapped;

use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::SessionStateDefaults;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::planner::ExprPlanner;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::compile::as_of;
use crate::compile::windows::exclude_mark;
use crate::expressions::casts;
use crate::runtime::pool::FairPool;
use crate::sql::types::SessionZone;

pub(crate) use bounded::{bounded_concatenation, gentle};
pub(crate) use gathering::gathers;
pub(crate) use macros::{call, expand, signatures};
pub(crate) use marks::mark;

/// Registers our functions with the planner of a session in `zone`.
///
/// Those that may need much memory reserve it in `pool`, which `threads` threads share.
pub(crate) fn register(
    state: &mut SessionState,
    zone: &SessionZone,
    pool: &Arc<FairPool>,
    threads: usize,
) -> Result<()> {
    for function in ours(zone).into_iter().chain(nested::functions(state)?) {
        state.register_udf(Arc::new(function))?;
    }
    for function in
        aggregates::functions().into_iter().chain(gathering::functions(pool)).chain([count::function()])
    {
        state.register_udaf(Arc::new(function))?;
    }
    series::register(state);
    state.register_relation_planner(Arc::new(table_calls::TableCalls))?;
    extraction::register(state)?;
    entries::register(state)?;
    bounded::register(state, pool, threads)?;
    positions::register(state)?;
    ranks::register(state)?;
    Ok(())
}

/// What plans the syntax that stands for functions, such as subscripts.
pub(crate) fn expr_planners() -> Vec<Arc<dyn ExprPlanner>> {
    let ours: Arc<dyn ExprPlanner> = Arc::new(nested::MapSubscripts);
    std::iter::once(ours).chain(SessionStateDefaults::default_expr_planners()).collect()
}

/// A function whose result type does not depend on its arguments.
#[derive(Debug)]
struct Function {
    name: &'static str,
    signature: Signature,
    returns: DataType,
    run: fn(ScalarFunctionArgs) -> Result<ColumnarValue>,
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.returns.clone())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        (self.run)(arguments)
    }
}

fn ours(zone: &SessionZone) -> Vec<ScalarUDF> {
    let mut functions = any_type::functions();
    functions.extend(casts::functions(zone));
    functions.extend(collations::functions());
    functions.extend(date_diff::functions());
    functions.extend(mysql::functions());
    functions.extend(once::functions());
    functions.extend(quotient::functions());
    functions.push(as_of::mark());
    functions.push(exclude_mark());
    functions.extend(rounding::functions());
    functions.extend(session::functions());
    functions.extend(similar::functions());
    functions.extend(times::functions(zone));
    functions.extend(truncation::functions());
    functions.extend(uuids::functions());
    functions
}

/// The names of all functions, from which errors suggest one.
pub(crate) fn names() -> &'static HashSet<String> {
    static NAMES: LazyLock<HashSet<String>> = LazyLock::new(|| {
        let mut names = planners().clone();
        names.extend(macros::names().map(str::to_owned));
        names.extend(ours(&SessionZone::default()).iter().map(|function| function.name().to_owned()));
        names.retain(|name| !name.starts_with("keirin_"));
        names
    });
    &NAMES
}

/// The names of the planner's own functions.
fn planners() -> &'static HashSet<String> {
    static NAMES: LazyLock<HashSet<String>> = LazyLock::new(|| {
        let mut names = HashSet::new();
        let mut add = |name: &str, aliases: &[String]| {
            names.insert(name.to_owned());
            names.extend(aliases.iter().cloned());
        };
        for function in SessionStateDefaults::default_scalar_functions() {
            add(function.name(), function.aliases());
        }
        for function in SessionStateDefaults::default_aggregate_functions() {
            add(function.name(), function.aliases());
        }
        for function in SessionStateDefaults::default_window_functions() {
            add(function.name(), function.aliases());
        }
        names
    });
    &NAMES
}

/// The planner's kinds of functions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// One value for each row.
    Scalar,
    /// One value for a group of rows.
    Aggregate,
    /// One value for each row, from rows around it.
    Window,
}

/// The kind of the planner's function of this name, in lower case.
pub(crate) fn kind(name: &str) -> Option<Kind> {
    static KINDS: LazyLock<HashMap<String, Kind>> = LazyLock::new(|| {
        let mut kinds = HashMap::from([("unnest".to_owned(), Kind::Scalar)]);
        let mut add = |name: &str, aliases: &[String], kind: Kind| {
            kinds.extend(aliases.iter().cloned().chain([name.to_owned()]).map(|name| (name, kind)));
        };
        for function in SessionStateDefaults::default_window_functions() {
            add(function.name(), function.aliases(), Kind::Window);
        }
        for function in SessionStateDefaults::default_aggregate_functions() {
            add(function.name(), function.aliases(), Kind::Aggregate);
        }
        for function in SessionStateDefaults::default_scalar_functions() {
            add(function.name(), function.aliases(), Kind::Scalar);
        }
        for function in ours(&SessionZone::default()) {
            add(function.name(), function.aliases(), Kind::Scalar);
        }
        kinds
    });
    KINDS.get(name).copied()
}

/// Whether the planner has a function of this name.
fn is_planners(name: &str) -> bool {
    planners().contains(name)
}

/// Whether the planner has an aggregate or a window function of this name.
pub(crate) fn is_planners_aggregate(name: &str) -> bool {
    matches!(kind(name), Some(Kind::Aggregate | Kind::Window))
}

/// Whether the planner's function of this name is volatile.
pub(crate) fn is_volatile(name: &str) -> bool {
    static NAMES: LazyLock<HashSet<String>> = LazyLock::new(|| {
        let functions = SessionStateDefaults::default_scalar_functions();
        let volatile = functions.iter().filter(|one| one.signature().volatility == Volatility::Volatile);
        volatile.flat_map(|one| one.aliases().iter().cloned().chain([one.name().to_owned()])).collect()
    });
    NAMES.contains(&name.to_ascii_lowercase())
}
