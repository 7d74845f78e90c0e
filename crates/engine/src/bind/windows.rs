//! Named windows, written out: `OVER (w ROWS ...)` with `WINDOW w AS (PARTITION BY ...)`.
//!
//! A window that extends another one takes its PARTITION BY, and its ORDER BY if it has one (SQL:2016, 7.15).
//! The planner resolves `OVER w` in a SELECT list only, and ignores what an extended window inherits.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, Ident, NamedWindowDefinition, NamedWindowExpr, ObjectNamePart, OrderBy, Query, Select,
    VisitorMut, WindowSpec, WindowType,
};

use crate::bind::relations::normalized;
use crate::compile::windows::EXCLUDE_MARK;
use crate::error::{Error, ErrorKind, Result};
use crate::sql::walk::walk;

/// Expands the named windows of a SELECT in all of its expressions.
pub(super) fn write_out(select: &mut Select, order_by: Option<&mut OrderBy>) -> Result<()> {
    let mut windows: Vec<(String, WindowSpec)> = Vec::with_capacity(select.named_window.len());
    for NamedWindowDefinition(name, meaning) in &select.named_window {
        let key = normalized(name);
        if windows.iter().any(|(known, _)| *known == key) {
            return Err(Error::new(ErrorKind::Invalid, format!("window '{key}' is defined twice")));
        }
        // A window may extend those before it.
        let spec = match meaning {
            NamedWindowExpr::NamedWindow(base) => known(&windows, base)?.clone(),
            NamedWindowExpr::WindowSpec(spec) => extended(&windows, spec.clone())?,
        };
        windows.push((key, spec));
    }
    select.named_window.clear();
    let mut visitor = Windows { windows, depth: 0 };
    let mut visit = |part: &mut dyn FnMut(&mut Windows) -> ControlFlow<Error>| match part(&mut visitor) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    };
    visit(&mut |visitor| walk(&mut select.projection, visitor))?;
    visit(&mut |visitor| walk(&mut select.qualify, visitor))?;
    if let Some(Distinct::On(keys)) = &mut select.distinct {
        visit(&mut |visitor| walk(keys, visitor))?;
    }
    if let Some(order_by) = order_by {
        visit(&mut |visitor| walk(order_by, visitor))?;
    }
    Ok(())
}

struct Windows {
    windows: Vec<(String, WindowSpec)>,
    /// How many subqueries of the SELECT enclose the current node: they do not see its windows.
    depth: usize,
}

impl VisitorMut for Windows {
    type Break = Error;

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<Error> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Error> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        let Expr::Function(call) = expr else { return ControlFlow::Continue(()) };
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        let window = match &call.over {
            None => return ControlFlow::Continue(()),
            Some(WindowType::NamedWindow(name)) => known(&self.windows, name).cloned(),
            Some(WindowType::WindowSpec(spec)) => extended(&self.windows, spec.clone()),
        };
        match window {
            Ok(spec) => {
                call.over = Some(WindowType::WindowSpec(spec));
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(error),
        }
    }
}

fn known<'a>(windows: &'a [(String, WindowSpec)], name: &Ident) -> Result<&'a WindowSpec> {
    let key = normalized(name);
    let found = windows.iter().find(|(known, _)| *known == key).map(|(_, spec)| spec);
    found.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("window '{key}' not found"))
            .with_hint("WINDOW name AS (...) behind HAVING gives a window a name; it may use those before it")
    })
}

/// `spec` completed by the window that it extends.
fn extended(windows: &[(String, WindowSpec)], mut spec: WindowSpec) -> Result<WindowSpec> {
    let Some(name) = spec.window_name.take() else { return Ok(spec) };
    let base = known(windows, &name)?;
    let refused = |what: &str, hint: &str| {
        let error = Error::new(ErrorKind::Invalid, format!("window '{}' {what}", normalized(&name)));
        Err(error.with_hint(hint.to_owned()))
    };
    let marks: Vec<Expr> = spec.partition_by.extract_if(.., |key| is_exclude_mark(key)).collect();
    if !spec.partition_by.is_empty() {
        return refused("cannot be given another PARTITION BY", "PARTITION BY belongs to the first window");
    }
    if !spec.order_by.is_empty() && !base.order_by.is_empty() {
        return refused("has an ORDER BY and cannot be given another one", "write the window out");
    }
    if base.window_frame.is_some() {
        return refused(
            "has a frame and cannot be extended",
            &format!("OVER {name} without parentheses uses it"),
        );
    }
    spec.partition_by = marks.into_iter().chain(base.partition_by.iter().cloned()).collect();
    if spec.order_by.is_empty() {
        spec.order_by.clone_from(&base.order_by);
    }
    Ok(spec)
}

/// Whether a key of partitions is what became of EXCLUDE.
fn is_exclude_mark(key: &Expr) -> bool {
    let Expr::Function(call) = key else { return false };
    matches!(&call.name.0[..], [ObjectNamePart::Identifier(name)] if name.value == EXCLUDE_MARK)
}
