//! Rewrites clauses to syntax that the planner knows.

use std::collections::HashSet;

use datafusion::sql::sqlparser::ast::{
    self, AccessExpr, BinaryOperator, CastKind, DataType, DateTimeField, Distinct, Expr, Fetch, FunctionArg,
    FunctionArgExpr, FunctionArguments, GroupByExpr, GroupByWithModifier, Ident, Interval, Join,
    JoinOperator, LimitClause, ObjectName, Query, Select, SelectItem, SelectItemQualifiedWildcardKind,
    SetExpr, SetOperator, Statement, TableAlias, TableFactor, TableSample, TableSampleKind,
    TableSampleMethod, TableSampleQuantity, TableSampleUnit, Top, TopQuantity, UnaryOperator, UtilityOption,
    Value, ValueWithSpan, WildcardAdditionalOptions,
};

use super::unsupported;
use crate::bind::relations::normalized;
use crate::compile::rules::bare_collation;
use crate::error::{Error, ErrorKind, Result};
use crate::expressions::functions::call;
use crate::expressions::functions::collations::COLLATE;
use crate::sql::parser::{parse_expression, select_from};
use crate::sql::table_clauses::check_collation;

/// The most elements of a CUBE.
const CUBE_MAX: usize = 12;

/// Moves the options of `EXPLAIN (ANALYZE, VERBOSE)` to the fields that `EXPLAIN ANALYZE VERBOSE` sets; the format stays,
/// which has none of ours.
pub(super) fn statement(statement: &mut Statement) -> Result<()> {
    let Statement::Explain { analyze, verbose, options, .. } = statement else { return Ok(()) };
    let mut formats = Vec::new();
    for UtilityOption { name, arg } in options.take().into_iter().flatten() {
        let word = arg.as_ref().map(ToString::to_string).unwrap_or_default().to_lowercase();
        let word = word.trim_matches('\'');
        let is_on = match word {
            "" | "true" | "on" | "1" => Some(true),
            "false" | "off" | "0" => Some(false),
            _ => None,
        };
        match (name.value.to_lowercase().as_str(), is_on) {
            ("analyze", Some(is_on)) => *analyze = is_on,
            ("verbose", Some(is_on)) => *verbose = is_on,
            ("format", _) if arg.is_some() => formats.push(UtilityOption { name, arg }),
            _ => {
                let option = arg.map_or(name.to_string(), |arg| format!("{name} {arg}"));
                return Err(unsupported(format!("EXPLAIN ({option})"))
                    .with_hint("EXPLAIN (ANALYZE, VERBOSE, FORMAT JSON)"));
            }
        }
    }
    *options = (!formats.is_empty()).then_some(formats);
    Ok(())
}

/// `FETCH FIRST n ROWS ONLY` and `SELECT TOP n` are LIMIT n; MINUS is EXCEPT.
pub(super) fn query(query: &mut Query) -> Result<()> {
    minus_as_except(&mut query.body);
    if let Some(Fetch { with_ties, percent, quantity }) = &query.fetch {
        if *with_ties || *percent {
            let clause = if *percent { "FETCH ... PERCENT" } else { "FETCH ... WITH TIES" };
            return Err(unsupported(clause).with_hint("QUALIFY rank() OVER (ORDER BY ...) <= n"));
        }
        let quantity = quantity.clone().unwrap_or_else(|| number("1"));
        if set_limit(&mut query.limit_clause, quantity) {
            query.fetch = None;
        }
    }
    if let SetExpr::Select(select) = query.body.as_mut()
        && let Some(Top { with_ties: false, percent: false, quantity: Some(quantity) }) = &select.top
    {
        let quantity = match quantity {
            TopQuantity::Expr(expr) => expr.clone(),
            TopQuantity::Constant(count) => number(&count.to_string()),
        };
        if set_limit(&mut query.limit_clause, quantity) {
            select.top = None;
        }
    }
    Ok(())
}

/// Sets the limit, unless there is one.
fn set_limit(clause: &mut Option<LimitClause>, quantity: Expr) -> bool {
    match clause {
        None => {
            *clause =
                Some(LimitClause::LimitOffset { limit: Some(quantity), offset: None, limit_by: Vec::new() });
            true
        }
        Some(LimitClause::LimitOffset { limit: limit @ None, .. }) => {
            *limit = Some(quantity);
            true
        }
        Some(_) => false,
    }
}

fn minus_as_except(body: &mut SetExpr) {
    let mut bodies = vec![body];
    while let Some(body) = bodies.pop() {
        if let SetExpr::SetOperation { op, left, right, .. } = body {
            if *op == SetOperator::Minus {
                *op = SetOperator::Except;
            }
            bodies.extend([left.as_mut(), right.as_mut()]);
        }
    }
}

pub(super) fn select(select: &mut Select) -> Result<()> {
    if matches!(select.distinct, Some(Distinct::All)) {
        select.distinct = None;
    }
    if let Some(Distinct::On(keys)) = &mut select.distinct {
        for key in keys {
            if let Expr::Value(ValueWithSpan { value: Value::Number(position, _), .. }) = key {
                *key = selected(position, &select.projection, "DISTINCT ON")?;
            }
        }
    }
    if let GroupByExpr::Expressions(keys, modifiers) = &mut select.group_by {
        let with_modifier = match modifiers.as_slice() {
            [GroupByWithModifier::Rollup] => Some(Expr::Rollup as fn(Vec<Vec<Expr>>) -> Expr),
            [GroupByWithModifier::Cube] => Some(Expr::Cube as fn(Vec<Vec<Expr>>) -> Expr),
            _ => None,
        };
        if let Some(with_modifier) = with_modifier {
            let sets = std::mem::take(keys).into_iter().map(columns_of).collect();
            *keys = vec![with_modifier(sets)];
            modifiers.clear();
        }
        // As a key `(a, b)` is both columns, and `()` is none; beside grouping sets the planner forms the
        // product.
        let old = std::mem::take(keys);
        for key in old {
            keys.extend(match key {
                Expr::Tuple(columns) => columns,
                other => vec![grouping_sets(other)?],
            });
        }
        for key in keys.iter_mut() {
            let (Expr::Rollup(sets) | Expr::Cube(sets) | Expr::GroupingSets(sets)) = key else { continue };
            for column in sets.iter_mut().flatten() {
                if let Expr::Value(ValueWithSpan { value: Value::Number(position, _), .. }) = column {
                    *column = selected(position, &select.projection, "GROUP BY")?;
                }
            }
        }
        if !keys.is_empty() {
            select.projection.iter_mut().for_each(number_is_no_position);
        }
    }
    for item in &mut select.projection {
        match item {
            SelectItem::Wildcard(options) => replaced_are_there(options, &[]),
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options) => {
                let names: Vec<Ident> = name.0.iter().filter_map(|part| part.as_ident().cloned()).collect();
                replaced_are_there(options, &names);
            }
            _ => {}
        }
    }
    select.from.iter_mut().for_each(|from| semi_joins(&mut from.joins));
    Ok(())
}

/// Makes a cast of a whole number that has an alias: as a key, the planner would take it for a position of the SELECT
/// list, whatever its name.
fn number_is_no_position(item: &mut SelectItem) {
    fn is_number(expr: &Expr) -> bool {
        match expr {
            Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) => {
                digits.parse::<i64>().is_ok()
            }
            Expr::Nested(inner) | Expr::UnaryOp { expr: inner, .. } => is_number(inner),
            _ => false,
        }
    }
    if let SelectItem::ExprWithAlias { expr, .. } = item
        && is_number(expr)
    {
        *expr = Expr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(expr.clone()),
            data_type: DataType::BigInt(None),
            array: false,
            format: None,
        };
    }
}

/// The expression at a position of the SELECT list, which DISTINCT ON may name as ORDER BY does.
fn selected(position: &str, projection: &[SelectItem], clause: &str) -> Result<Expr> {
    let end = position.parse().unwrap_or(0);
    match projection.get(..end).unwrap_or_default() {
        [before @ .., SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }]
            if !before
                .iter()
                .any(|item| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))) =>
        {
            Ok(expr.clone())
        }
        _ => {
            let message = format!("the SELECT list has no expression at position {position} of {clause}");
            Err(Error::new(ErrorKind::Invalid, message).with_hint("write the expression"))
        }
    }
}

/// `SEMI JOIN` is `LEFT SEMI JOIN`.
fn semi_joins(joins: &mut [Join]) {
    for join in joins {
        let operator = std::mem::replace(&mut join.join_operator, JoinOperator::CrossApply);
        join.join_operator = match operator {
            JoinOperator::Semi(constraint) => JoinOperator::LeftSemi(constraint),
            JoinOperator::Anti(constraint) => JoinOperator::LeftAnti(constraint),
            other => other,
        };
    }
}

/// The columns of `(a, b)`, or the only one of a plain key.
fn columns_of(key: Expr) -> Vec<Expr> {
    match key {
        Expr::Tuple(columns) => columns,
        other => vec![other],
    }
}

/// ROLLUP and CUBE of several columns at a time, of a column that is there twice, or inside GROUPING SETS, written out
/// as GROUPING SETS; the planner only knows those of single columns, each of them once.
fn grouping_sets(key: Expr) -> Result<Expr> {
    let is_single = |parts: &[Vec<Expr>]| {
        let mut seen = HashSet::new();
        parts.iter().all(|part| part.len() == 1 && seen.insert(&part[0]))
    };
    let mut key = match key {
        Expr::Rollup(parts) if !is_single(&parts) => Expr::GroupingSets(rollup(&parts)),
        Expr::Cube(parts) if !is_single(&parts) => Expr::GroupingSets(cube(&parts)?),
        Expr::GroupingSets(sets) => {
            let mut written = Vec::with_capacity(sets.len());
            for mut set in sets {
                match (set.pop().map(rollup_or_cube), set.is_empty()) {
                    (Some(Expr::Rollup(parts)), true) => written.extend(rollup(&parts)),
                    (Some(Expr::Cube(parts)), true) => written.extend(cube(&parts)?),
                    (Some(Expr::GroupingSets(inner)), true) => {
                        match grouping_sets(Expr::GroupingSets(inner))? {
                            Expr::GroupingSets(inner) => written.extend(inner),
                            other => written.push(vec![other]),
                        }
                    }
                    (last, _) => {
                        set.extend(last);
                        written.push(set);
                    }
                }
            }
            Expr::GroupingSets(written)
        }
        other => other,
    };
    if let Expr::GroupingSets(sets) = &mut key {
        for set in sets {
            let mut seen = HashSet::new();
            set.retain(|key| seen.insert(key.clone()));
        }
    }
    Ok(key)
}

/// Inside GROUPING SETS the parser takes `ROLLUP (a, b)` for a function call.
fn rollup_or_cube(expr: Expr) -> Expr {
    let Expr::Function(call) = &expr else { return expr };
    let kind = match call.name.to_string().to_ascii_lowercase().as_str() {
        "rollup" => Expr::Rollup as fn(Vec<Vec<Expr>>) -> Expr,
        "cube" => Expr::Cube,
        _ => return expr,
    };
    let FunctionArguments::List(list) = &call.args else { return expr };
    let parts = list.args.iter().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(part)) => Some(columns_of(part.clone())),
        _ => None,
    });
    parts.collect::<Option<Vec<_>>>().map_or(expr, kind)
}

fn rollup(parts: &[Vec<Expr>]) -> Vec<Vec<Expr>> {
    (0..=parts.len()).rev().map(|count| parts[..count].concat()).collect()
}

fn cube(parts: &[Vec<Expr>]) -> Result<Vec<Vec<Expr>>> {
    if parts.len() > CUBE_MAX {
        return Err(unsupported(format!("CUBE of more than {CUBE_MAX} parts")));
    }
    let chosen = |set: usize| {
        let parts = parts.iter().enumerate().filter(move |(index, _)| set >> index & 1 == 0);
        parts.flat_map(|(_, part)| part.iter().cloned()).collect()
    };
    Ok((0..1_usize << parts.len()).map(chosen).collect())
}

/// A name that no column has; see [`replaced_are_there`].
pub(crate) const NOBODY: &str = "\u{1}";

/// Makes `* REPLACE (1 AS nothere)` an error, which the planner ignores. The planner does resolve the
/// replacing expressions: so each replaced column is also added as the replacement of a column that does not
/// exist.
fn replaced_are_there(options: &mut WildcardAdditionalOptions, table: &[Ident]) {
    let Some(replace) = &mut options.opt_replace else { return };
    if replace.items.iter().any(|item| item.column_name.value == NOBODY) {
        return;
    }
    let columns: Vec<Ident> = replace.items.iter().map(|item| item.column_name.clone()).collect();
    replace.items.extend(columns.into_iter().map(|column| {
        let expr = match table {
            [] => Expr::Identifier(column),
            table => Expr::CompoundIdentifier(table.iter().cloned().chain([column]).collect()),
        };
        let column_name = Ident::with_quote('"', NOBODY);
        Box::new(ast::ReplaceSelectElement { expr, column_name, as_keyword: true })
    }));
}

/// `t TABLESAMPLE BERNOULLI (10)` becomes a filter that chooses a tenth of the rows one by one.
pub(super) fn table_factor(factor: &mut TableFactor) -> Result<()> {
    if let TableFactor::NestedJoin { table_with_joins, .. } = factor {
        semi_joins(&mut table_with_joins.joins);
    }
    let (TableFactor::Table { sample, .. } | TableFactor::Derived { sample, .. }) = factor else {
        return Ok(());
    };
    let Some(TableSampleKind::BeforeTableAlias(taken) | TableSampleKind::AfterTableAlias(taken)) =
        sample.take()
    else {
        return Ok(());
    };
    let share = share_of(&taken)?;
    let alias = match factor {
        TableFactor::Table { alias, name, .. } => {
            alias.clone().or_else(|| name.0.last().and_then(|part| part.as_ident()).map(alias_named))
        }
        TableFactor::Derived { alias, .. } => alias.clone(),
        _ => None,
    };
    let mut subquery = select_from(&[], ObjectName::from(vec![Ident::new("t")]))
        .map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
    if let SetExpr::Select(select) = subquery.body.as_mut() {
        select.selection = Some(parse_expression(&format!("random() < {share}"))?);
        if let Some(from) = select.from.first_mut() {
            std::mem::swap(&mut from.relation, factor);
        }
    }
    *factor = TableFactor::Derived { lateral: false, subquery, alias, sample: None };
    Ok(())
}

fn alias_named(name: &Ident) -> TableAlias {
    TableAlias { explicit: true, name: name.clone(), columns: Vec::new(), at: None }
}

/// The share of all rows that a sample has.
fn share_of(sample: &TableSample) -> Result<f64> {
    let TableSample { modifier: _, name, quantity, seed, bucket, offset } = sample;
    let hint = "TABLESAMPLE BERNOULLI (10) takes ten of a hundred rows";
    let refused = |form: &str| Err(unsupported(format!("TABLESAMPLE {form}")).with_hint(hint));
    if seed.is_some() {
        return refused("with a seed");
    }
    if bucket.is_some() || offset.is_some() {
        return refused("of buckets");
    }
    let Some(TableSampleQuantity { parenthesized: _, value, unit }) = quantity else {
        return refused("without a share");
    };
    match (name, unit) {
        (_, Some(TableSampleUnit::Rows)) => return refused("of a number of rows"),
        (Some(TableSampleMethod::Bernoulli | TableSampleMethod::System), None)
        | (
            None | Some(TableSampleMethod::Bernoulli | TableSampleMethod::System),
            Some(TableSampleUnit::Percent),
        ) => {}
        (Some(TableSampleMethod::Row | TableSampleMethod::Block), _) => return refused("ROW or BLOCK"),
        (None, None) => return refused("without BERNOULLI, SYSTEM or PERCENT"),
    }
    let percent = match value {
        Expr::Value(ValueWithSpan { value: Value::Number(text, _), span: _ }) => text.parse::<f64>().ok(),
        _ => None,
    };
    match percent.filter(|percent| (0.0..=100.0).contains(percent)) {
        Some(percent) => Ok(percent / 100.0),
        None => {
            let message = format!("TABLESAMPLE takes a number from 0 to 100, found {value}");
            Err(Error::new(ErrorKind::Invalid, message).with_hint(hint))
        }
    }
}

pub(super) fn expr(expr: &mut Expr) -> Result<()> {
    match expr {
        Expr::Interval(interval) => {
            if let Some(written) = written_out(interval)? {
                *expr = written;
            }
            Ok(())
        }
        // The planner expects the name of a field as a text.
        Expr::CompoundFieldAccess { access_chain, .. } => {
            for access in access_chain {
                if let AccessExpr::Dot(Expr::Identifier(name)) = access {
                    *access = AccessExpr::Dot(Expr::value(Value::SingleQuotedString(normalized(name))));
                }
            }
            Ok(())
        }
        Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. } => {
            if let Some(escape) = escape_char.take() {
                with_backslashes(pattern, &escape)?;
            }
            Ok(())
        }
        Expr::Collate { expr: text, collation } => {
            let name = collation.to_string();
            check_collation(&name)?;
            let name = Expr::value(Value::SingleQuotedString(bare_collation(&name).to_owned()));
            *expr = call(COLLATE, vec![(**text).clone(), name]);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Rewrites the pattern to escape with backslashes, the only escape of the planner.
fn with_backslashes(pattern: &mut Expr, escape: &ValueWithSpan) -> Result<()> {
    let Value::SingleQuotedString(escape) = &escape.value else {
        return Err(Error::new(ErrorKind::Invalid, format!("ESCAPE takes one character, found {escape}")));
    };
    let mut characters = escape.chars();
    let (escape, None) = (characters.next(), characters.next()) else {
        return Err(Error::new(ErrorKind::Invalid, format!("ESCAPE takes one character, found '{escape}'")));
    };
    if escape == Some('\\') {
        return Ok(());
    }
    let Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), span: _ }) = pattern else {
        return Err(unsupported("ESCAPE with a pattern that is not written out"));
    };
    let mut changed = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        if Some(character) != escape {
            if character == '\\' {
                changed.push('\\');
            }
            changed.push(character);
            continue;
        }
        let Some(escaped) = rest.next() else {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("LIKE pattern '{text}' ends with its ESCAPE"),
            ));
        };
        if matches!(escaped, '%' | '_' | '\\') {
            changed.push('\\');
        }
        changed.push(escaped);
    }
    *text = changed;
    Ok(())
}

/// An INTERVAL of an expression, or in units that the planner does not know.
fn written_out(interval: &mut Interval) -> Result<Option<Expr>> {
    let Interval { value, leading_field, leading_precision, last_field, fractional_seconds_precision } =
        interval;
    if leading_precision.is_some() || last_field.is_some() || fractional_seconds_precision.is_some() {
        return Err(unsupported("INTERVAL with a precision or a second unit")
            .with_hint("INTERVAL '1 year 2 months', INTERVAL '1 day 02:03:04'"));
    }
    let Some(field) = leading_field else {
        return match constant(value) {
            Some(_) => Ok(None),
            None => {
                Err(Error::new(ErrorKind::Syntax, "syntax error: INTERVAL of an expression needs a unit")
                    .with_hint("INTERVAL (n) DAYS"))
            }
        };
    };
    let (factor, unit) = match field {
        DateTimeField::Millenium | DateTimeField::Millennium => (1000, DateTimeField::Year),
        DateTimeField::Century => (100, DateTimeField::Year),
        DateTimeField::Decade => (10, DateTimeField::Year),
        DateTimeField::Quarter => (3, DateTimeField::Month),
        DateTimeField::Year
        | DateTimeField::Years
        | DateTimeField::Month
        | DateTimeField::Months
        | DateTimeField::Week(None)
        | DateTimeField::Weeks
        | DateTimeField::Day
        | DateTimeField::Days
        | DateTimeField::Hour
        | DateTimeField::Hours
        | DateTimeField::Minute
        | DateTimeField::Minutes
        | DateTimeField::Second
        | DateTimeField::Seconds
        | DateTimeField::Millisecond
        | DateTimeField::Milliseconds
        | DateTimeField::Microsecond
        | DateTimeField::Microseconds
        | DateTimeField::Nanosecond
        | DateTimeField::Nanoseconds => (1, field.clone()),
        other => {
            let message = format!("syntax error: {other} is no unit of INTERVAL");
            return Err(Error::new(ErrorKind::Syntax, message).with_hint("INTERVAL 2 DAYS"));
        }
    };
    if constant(value).is_some() {
        if factor == 1 {
            return Ok(None);
        }
        // A constant is multiplied as text, which keeps all its digits.
        if let Some(text) = constant(value).and_then(|text| multiplied(&text, factor)) {
            **value = Expr::value(Value::SingleQuotedString(text));
            *leading_field = Some(unit);
            return Ok(None);
        }
    }
    let count = Expr::Nested(Box::new(std::mem::replace(value.as_mut(), number("0"))));
    let count = match factor {
        1 => count,
        factor => Expr::Nested(Box::new(Expr::BinaryOp {
            left: Box::new(count),
            op: BinaryOperator::Multiply,
            right: Box::new(number(&factor.to_string())),
        })),
    };
    let text = Expr::BinaryOp {
        left: Box::new(cast(count, DataType::Varchar(None))),
        op: BinaryOperator::StringConcat,
        right: Box::new(Expr::value(Value::SingleQuotedString(format!(" {unit}").to_lowercase()))),
    };
    Ok(Some(cast(text, DataType::Interval { fields: None, precision: None })))
}

/// The text of a number or text constant, with its sign.
fn constant(value: &Expr) -> Option<String> {
    match value {
        Expr::Value(value) => match &value.value {
            Value::Number(text, _) | Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) => {
                Some(text.clone())
            }
            _ => None,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => constant(expr).map(|text| format!("-{text}")),
        Expr::UnaryOp { op: UnaryOperator::Plus, expr } => constant(expr),
        Expr::Nested(expr) => constant(expr),
        _ => None,
    }
}

/// A decimal number, as text, multiplied by a small factor.
fn multiplied(text: &str, factor: i128) -> Option<String> {
    let text = text.trim();
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let product = digits.checked_mul(factor)?;
    let sign = if product < 0 { "-" } else { "" };
    let product = format!("{:0>width$}", product.unsigned_abs(), width = fraction.len() + 1);
    let (whole, fraction) = product.split_at(product.len() - fraction.len());
    Some(if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") })
}

fn cast(expr: Expr, data_type: DataType) -> Expr {
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(expr), data_type, array: false, format: None }
}

fn number(text: &str) -> Expr {
    Expr::value(Value::Number(text.to_owned(), false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_texts_are_multiplied_digit_by_digit() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(multiplied(text, 3).as_deref(), expected, "{text}");
        };
        check("2", Some("6"));
        check("-1.5", Some("-4.5"));
        check("0.05", Some("0.15"));
        check("-.5", Some("-1.5"));
        check(" 7 ", Some("21"));
        check("1 day", None);
        check("1e3", None);
    }
}
