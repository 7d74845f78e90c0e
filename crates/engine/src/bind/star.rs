//! Expands `SELECT *`, and names the columns of a SELECT.

use std::collections::HashMap;

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    ExceptSelectItem, ExcludeSelectItem, Expr, GroupByExpr, Ident, ObjectName, Query, ReplaceSelectItem,
    Select, SelectFlavor, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, WildcardAdditionalOptions,
};

use super::Names;
use super::scope::{Output, Scope, Tables, quoted};
use crate::bind::column_names::{TWIN, given_name};
use crate::bind::relations::normalized;
use crate::error::{Error, ErrorKind, Result};
use crate::sql::refused::NOBODY;
use crate::sql::walk::each_expression;

/// The names of the columns of a SELECT.
pub(super) fn names(items: &[SelectItem], scope: &Scope) -> Result<Names> {
    let mut names = Vec::with_capacity(items.len());
    for item in items {
        match item {
            SelectItem::Wildcard(options) => {
                let Some(outputs) = &scope.tables.outputs else { return Ok(None) };
                let outputs = outputs.iter().map(|output| &output.name);
                names.extend(outputs.filter(|name| !is_left_out(name, options)).cloned());
            }
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options) => {
                let parts: Vec<Ident> = name.0.iter().filter_map(|part| part.as_ident()).cloned().collect();
                let relation = scope.tables.relations.iter().find(|relation| {
                    parts.len() == 1 && relation.is_renamed && relation.planned == parts[0].value
                });
                let relation = match relation {
                    Some(relation) => Some(relation),
                    None => scope.relation(&parts)?,
                };
                let Some(columns) = relation.and_then(|relation| relation.columns.as_ref()) else {
                    return Ok(None);
                };
                names.extend(columns.iter().filter(|name| !is_left_out(name, options)).cloned());
            }
            // UNNEST of a struct gives as many columns as the struct has fields.
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } if has_unnest(expr) => {
                return Ok(None);
            }
            item => match given_name(item) {
                Some(name) => names.push(name),
                None => return Ok(None),
            },
        }
    }
    Ok(Some(names))
}

/// Expands the `*` of a SELECT over joins that merge columns.
pub(super) fn expand(select: &mut Select, tables: &Tables) -> Result<()> {
    let Some(outputs) = &tables.outputs else { return Ok(()) };
    if !select.projection.iter().any(|item| matches!(item, SelectItem::Wildcard(_))) {
        return Ok(());
    }
    let mut expanded = Vec::new();
    for item in std::mem::take(&mut select.projection) {
        let SelectItem::Wildcard(options) = item else {
            expanded.push(item);
            continue;
        };
        check_options(&options, outputs)?;
        for output in outputs.iter().filter(|output| !is_left_out(&output.name, &options)) {
            let replacement = options.opt_replace.as_ref().and_then(|list| replacement(list, &output.name));
            let expr = replacement.cloned().unwrap_or_else(|| output.expr.clone());
            let plain = SelectItem::UnnamedExpr(expr.clone());
            expanded.push(match given_name(&plain) {
                Some(name) if name == output.name => plain,
                _ => SelectItem::ExprWithAlias { expr, alias: quoted(&output.name) },
            });
        }
    }
    // The planner takes a name without a qualifier only once.
    let mut count: HashMap<String, usize> = HashMap::new();
    for item in &mut expanded {
        let Some(name) = given_name(item) else { continue };
        let earlier = count.entry(name.clone()).or_default();
        *earlier += 1;
        if *earlier > 1
            && let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item
        {
            let alias = quoted(&format!("{name}{TWIN}{earlier}"));
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
    }
    select.projection = expanded;
    Ok(())
}

/// Refuses names behind `*` that are not columns.
fn check_options(options: &WildcardAdditionalOptions, outputs: &[Output]) -> Result<()> {
    let replaced =
        options.opt_replace.iter().flat_map(|list| &list.items).map(|item| normalized(&item.column_name));
    let replaced = replaced.filter(|name| name != NOBODY);
    for name in left_out(options).chain(replaced) {
        if !outputs.iter().any(|output| output.name == name) {
            let message = format!("column '{name}' behind * is not one of its columns");
            return Err(Error::new(ErrorKind::NotFound, message));
        }
    }
    if options.opt_rename.is_some() || options.opt_ilike.is_some() {
        let message = "* with RENAME or ILIKE above a join USING columns is not supported";
        return Err(Error::new(ErrorKind::Unsupported, message).with_hint("name the columns"));
    }
    Ok(())
}

/// The columns that EXCLUDE and EXCEPT name.
pub(crate) fn left_out(options: &WildcardAdditionalOptions) -> impl Iterator<Item = String> {
    let last = |name: &ObjectName| name.0.last().and_then(|part| part.as_ident()).map(normalized);
    let mut names: Vec<String> = match &options.opt_exclude {
        Some(ExcludeSelectItem::Single(name)) => last(name).into_iter().collect(),
        Some(ExcludeSelectItem::Multiple(names)) => names.iter().filter_map(last).collect(),
        None => Vec::new(),
    };
    if let Some(ExceptSelectItem { first_element, additional_elements }) = &options.opt_except {
        names.extend(std::iter::once(first_element).chain(additional_elements).map(normalized));
    }
    names.into_iter()
}

fn is_left_out(name: &str, options: &WildcardAdditionalOptions) -> bool {
    left_out(options).any(|left_out| left_out == name)
}

fn replacement<'a>(list: &'a ReplaceSelectItem, name: &str) -> Option<&'a Expr> {
    list.items.iter().find(|item| normalized(&item.column_name) == name).map(|item| &item.expr)
}

fn has_unnest(expr: &Expr) -> bool {
    let found = each_expression(expr, &mut |part| match part {
        Expr::Function(call) if call.name.to_string().eq_ignore_ascii_case("unnest") => {
            std::ops::ControlFlow::Break(())
        }
        _ => std::ops::ControlFlow::Continue(()),
    });
    found.is_break()
}

/// `SELECT *` without a FROM.
pub(super) fn select_all() -> Select {
    Select {
        select_token: AttachedToken::empty(),
        optimizer_hints: Vec::new(),
        distinct: None,
        select_modifiers: None,
        top: None,
        top_before_distinct: false,
        projection: vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())],
        exclude: None,
        into: None,
        from: Vec::new(),
        lateral_views: Vec::new(),
        prewhere: None,
        selection: None,
        connect_by: Vec::new(),
        group_by: GroupByExpr::Expressions(Vec::new(), Vec::new()),
        cluster_by: Vec::new(),
        distribute_by: Vec::new(),
        sort_by: Vec::new(),
        having: None,
        named_window: Vec::new(),
        qualify: None,
        window_before_qualify: false,
        value_table_mode: None,
        flavor: SelectFlavor::Standard,
    }
}

/// A query that is one SELECT.
pub(super) fn query(select: Select) -> Query {
    Query {
        with: None,
        body: Box::new(SetExpr::Select(Box::new(select))),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: Vec::new(),
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: Vec::new(),
    }
}
