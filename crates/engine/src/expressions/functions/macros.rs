//! Functions that are expanded: `year(d)` becomes `date_part('year', d)` before the planner sees it.
//!
//! [`DEFINITIONS`] holds signatures and their SQL, in which the arguments replace the names of the
//! parameters. DISTINCT, ORDER BY, FILTER and OVER of the call move to the outermost function of the SQL, if
//! that is an aggregate or a window function; FILTER also moves to aggregates further inside. An argument
//! that the SQL mentions twice is written twice: the optimizer mostly eliminates the common subexpression.
//! Volatile arguments, which differ each time, are refused there.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, CaseWhen, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArguments, Ident, ObjectName, UnaryOperator, Value, VisitMut, VisitorMut,
};

use super::definitions::{DEFINITIONS, SPECIAL};
use super::quotient::QUOTIENT;
use super::similar::PATTERN;
use super::{literals, templates};
use crate::bind::relations::normalized;
use crate::error::{Error, ErrorKind, Result};
use crate::sql::parser::parse_expression;
use crate::sql::walk::{each_expression, each_expression_mut, walk};

struct Macro {
    parameters: Vec<String>,
    body: Expr,
}

/// Stands for the condition of FILTER in a body; no parameter can have this name.
const FILTER: &str = "$filter";

static MACROS: LazyLock<HashMap<&'static str, Vec<Macro>>> = LazyLock::new(|| {
    let mut macros: HashMap<&str, Vec<Macro>> = HashMap::new();
    for (signature, body) in DEFINITIONS {
        let (name, parameters) = signature.split_once('(').expect("a signature has parentheses");
        let parameters = parameters.trim_end_matches(')').split(", ").filter(|name| !name.is_empty());
        let body = parse_expression(body).expect("a definition is SQL");
        macros
            .entry(name)
            .or_default()
            .push(Macro { parameters: parameters.map(str::to_owned).collect(), body });
    }
    macros
});

/// The names of the functions that are expanded.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    signatures().filter_map(|(signature, _)| signature.split('(').next())
}

/// Every signature with its SQL.
pub(crate) fn signatures() -> impl Iterator<Item = (&'static str, &'static str)> {
    DEFINITIONS.iter().chain(SPECIAL).copied()
}

/// Expands the function calls in `statement`.
///
/// # Errors
/// [`ErrorKind::Invalid`] for a number of arguments that the function does not take.
pub(crate) fn expand(statement: &mut impl VisitMut) -> Result<()> {
    match walk(statement, &mut Expander { repeated: 0 }) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// The most nodes of long arguments in one statement that may be duplicated: each nested call doubles them.
const REPEATED_MAX: usize = 50_000;
/// An argument of more nodes than this is long.
const PARTS_SHORT: usize = 50;

struct Expander {
    /// Nodes of long arguments that were duplicated so far.
    repeated: usize,
}

impl VisitorMut for Expander {
    type Break = Error;

    fn post_visit_select(&mut self, select: &mut ast::Select) -> ControlFlow<Error> {
        for ast::NamedWindowDefinition(_, window) in &mut select.named_window {
            if let ast::NamedWindowExpr::WindowSpec(window) = window {
                literals::restore_frame(window);
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<Error> {
        if let ast::SetExpr::Values(values) = query.body.as_mut() {
            literals::meet(values);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        if let Expr::BinaryOp { left, op: BinaryOperator::DuckIntegerDivide, right } = expr {
            *expr = call(QUOTIENT, vec![(**left).clone(), (**right).clone()]);
            return ControlFlow::Continue(());
        }
        if let Some(meant) = condition(expr) {
            *expr = meant;
            return ControlFlow::Continue(());
        }
        match literals::meaning(expr) {
            Ok(Some(meant)) => *expr = meant,
            Ok(None) => {}
            Err(error) => return ControlFlow::Break(error),
        }
        let Expr::Function(call) = expr else { return ControlFlow::Continue(()) };
        if let Some(ast::WindowType::WindowSpec(window)) = &mut call.over {
            literals::restore_frame(window);
        }
        match meaning(call, &mut self.repeated) {
            Ok(Some(meant)) => *expr = meant,
            Ok(None) => {}
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }
}

/// Rewrites conditions that the planner gets wrong: `SIMILAR TO`, which must match the whole text, and `x =
/// ANY(list)`, which is NULL if no item is equal and some item is NULL.
fn condition(expr: &Expr) -> Option<Expr> {
    let not = |expr| Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(nested(&expr)) };
    match expr {
        Expr::SimilarTo { negated, expr, pattern, escape_char } => {
            let escape = match escape_char.as_ref().map(|escape| &escape.value) {
                Some(Value::SingleQuotedString(escape)) => escape.as_str(),
                _ => "\\",
            };
            let pattern = call(PATTERN, vec![(**pattern).clone(), text(escape)]);
            let matches = call("regexp_like", vec![(**expr).clone(), pattern]);
            Some(if *negated { not(matches) } else { matches })
        }
        Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, .. }
            if !matches!(right.as_ref(), Expr::Subquery(_)) =>
        {
            let (left, right, compare_op) = (left.clone(), right.clone(), BinaryOperator::NotEq);
            Some(not(Expr::AllOp { left, compare_op, right }))
        }
        _ => None,
    }
}

fn meaning(call: &Function, repeated: &mut usize) -> Result<Option<Expr>> {
    let [part] = call.name.0.as_slice() else { return Ok(None) };
    let Some(name) = part.as_ident() else { return Ok(None) };
    let name = normalized(name);
    let FunctionArguments::List(list) = &call.args else { return Ok(None) };
    let has_clauses = list.duplicate_treatment.is_some()
        || !list.clauses.is_empty()
        || call.filter.is_some()
        || call.over.is_some()
        || call.null_treatment.is_some()
        || !call.within_group.is_empty();
    let takes_none = || {
        let message = format!("function '{name}' takes no DISTINCT, ORDER BY, FILTER or OVER");
        Err(Error::new(ErrorKind::Invalid, message))
    };
    if let Some(meant) = special(&name, &list.args)? {
        return if has_clauses { takes_none() } else { Ok(Some(meant)) };
    }
    // DataFusion's own `any_value` accepts ORDER BY but ignores it.
    let is_ordered = list.clauses.iter().any(|clause| matches!(clause, FunctionArgumentClause::OrderBy(_)));
    let meant_name = if name == "any_value" && is_ordered { "any" } else { name.as_str() };
    let Some(macros) = MACROS.get(meant_name) else { return Ok(None) };
    let arguments = list.args.iter().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    });
    let Some(mut arguments) = arguments.collect::<Option<Vec<Expr>>>() else { return Ok(None) };
    let mut clauses = list.clauses.clone();
    // MySQL's GROUP_CONCAT(x SEPARATOR ';').
    if let Some(index) =
        clauses.iter().position(|clause| matches!(clause, FunctionArgumentClause::Separator(_)))
        && let FunctionArgumentClause::Separator(separator) = clauses.remove(index)
    {
        arguments.push(Expr::Value(separator));
    }
    if matches!(name.as_str(), "group_concat" | "listagg" | "string_agg")
        && let [first, rest @ ..] = arguments.as_slice()
        && clauses.iter().any(|clause| matches!(clause, FunctionArgumentClause::OrderBy(_)))
        && call.over.is_none()
    {
        let separator = rest.first().cloned().unwrap_or_else(|| text(","));
        let list = ast::FunctionArgumentList { clauses, ..list.clone() };
        return Ok(Some(joined_in_order(first, separator, list, call.filter.as_deref())));
    }
    let Some(chosen) = macros.iter().find(|one| one.parameters.len() == arguments.len()) else {
        // The planner may have a function of this name with another number of arguments; else it is an error.
        if super::is_planners(&name) {
            return Ok(None);
        }
        let forms = macros.iter().map(|one| format!("{name}({})", one.parameters.join(", ")));
        let message = format!("function '{name}' does not take {} arguments", arguments.len());
        return Err(
            Error::new(ErrorKind::Invalid, message).with_hint(forms.collect::<Vec<_>>().join(", or "))
        );
    };
    for (parameter, argument) in chosen.parameters.iter().zip(&arguments) {
        let mentions = mentions(&chosen.body, parameter);
        if mentions > 1 {
            let parts = parts(argument);
            *repeated += if parts > PARTS_SHORT { (mentions - 1) * parts } else { 0 };
        }
        if *repeated > REPEATED_MAX {
            let message =
                format!("function '{name}' is nested too deep: its argument is written more than once");
            return Err(
                Error::new(ErrorKind::Invalid, message).with_hint("compute the argument in a subquery")
            );
        }
        if mentions > 1
            && let Some(volatile) = volatile_call(argument)
        {
            let message = format!("function '{name}' cannot take {volatile}, which differs each time");
            return Err(Error::new(ErrorKind::Invalid, message)
                .with_hint("compute the argument in a subquery and pass the column"));
        }
    }
    let mut meant = written_out(chosen, &arguments, call.filter.as_deref());
    if !has_clauses {
        return Ok(Some(meant));
    }
    if !is_aggregate(&chosen.body) {
        let is_only_filter = list.duplicate_treatment.is_none()
            && list.clauses.is_empty()
            && call.over.is_none()
            && call.null_treatment.is_none()
            && call.within_group.is_empty()
            && call.filter.as_deref().and_then(volatile_call).is_none();
        let is_filtered = is_only_filter && aggregates(&mut chosen.body.clone(), |_| {}) > 0;
        return if is_filtered { Ok(Some(meant)) } else { takes_none() };
    }
    let Expr::Function(function) = &mut meant else { return takes_none() };
    if let FunctionArguments::List(inner) = &mut function.args {
        if list.duplicate_treatment.is_some() {
            inner.duplicate_treatment = list.duplicate_treatment;
        }
        inner.clauses.extend(clauses);
    }
    function.over.clone_from(&call.over);
    function.null_treatment = call.null_treatment;
    function.within_group.clone_from(&call.within_group);
    Ok(Some(meant))
}

/// `string_agg` with ORDER BY, computed by way of a list: the planner sorts its whole input for it, and
/// refuses a second one with another order.
fn joined_in_order(
    first: &Expr,
    separator: Expr,
    mut list: ast::FunctionArgumentList,
    filter: Option<&Expr>,
) -> Expr {
    list.args.truncate(1);
    let is_value = Expr::IsNotNull(Box::new(nested(first)));
    let mut collected = call("array_agg", Vec::new());
    if let Expr::Function(function) = &mut collected {
        function.args = FunctionArguments::List(list);
        function.filter = Some(Box::new(match filter {
            Some(condition) => both(Some(Box::new(is_value)), condition),
            None => is_value,
        }));
    }
    call("array_to_string", vec![collected, separator])
}

/// `first AND second`.
fn both(first: Option<Box<Expr>>, second: &Expr) -> Expr {
    let second = nested(second);
    match first {
        Some(first) => Expr::BinaryOp {
            left: Box::new(nested(&first)),
            op: BinaryOperator::And,
            right: Box::new(second),
        },
        None => second,
    }
}

/// Whether an expression is the call of an aggregate or of a window function.
fn is_aggregate(expr: &Expr) -> bool {
    matches!(expr, Expr::Function(call) if super::is_planners_aggregate(&call.name.to_string()))
}

/// Applies `change` to each call of an aggregate in `expr`, and returns how many there are.
fn aggregates(expr: &mut Expr, mut change: impl FnMut(&mut Function)) -> usize {
    let mut count = 0;
    each_expression_mut(expr, &mut |part| {
        if is_aggregate(part)
            && let Expr::Function(call) = part
        {
            count += 1;
            change(call);
        }
    });
    count
}

/// How often `body` mentions `parameter`.
fn mentions(body: &Expr, parameter: &str) -> usize {
    let mut count = 0;
    let _ = each_expression(body, &mut |part| {
        count += usize::from(matches!(part, Expr::Identifier(name) if name.value == parameter));
        ControlFlow::Continue(())
    });
    count
}

/// How many nodes `expr` has.
fn parts(expr: &Expr) -> usize {
    let mut count = 0;
    let _ = each_expression(expr, &mut |_| {
        count += 1;
        ControlFlow::Continue(())
    });
    count
}

/// The name of a volatile function that `expr` calls, if it calls one.
fn volatile_call(expr: &Expr) -> Option<String> {
    let mut found = None;
    let _ = each_expression(expr, &mut |part| match part {
        Expr::Function(call) if super::is_volatile(&call.name.to_string()) => {
            found = Some(call.to_string());
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    });
    found
}

/// The body with the arguments in place of the parameters, and its aggregates restricted by `filter`.
fn written_out(chosen: &Macro, arguments: &[Expr], filter: Option<&Expr>) -> Expr {
    struct Substitute<'a> {
        chosen: &'a Macro,
        arguments: &'a [Expr],
        filter: Option<&'a Expr>,
        // How deep the visitor is inside an argument that was put in, which must not be changed.
        foreign: usize,
    }
    impl VisitorMut for Substitute<'_> {
        type Break = std::convert::Infallible;

        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
            if self.foreign > 0 {
                self.foreign += 1;
                return ControlFlow::Continue(());
            }
            let Expr::Identifier(name) = &*expr else { return ControlFlow::Continue(()) };
            if name.value == FILTER
                && let Some(condition) = self.filter
            {
                *expr = nested(condition);
                self.foreign = 1;
            } else if let Some(index) = self.chosen.parameters.iter().position(|known| *known == name.value) {
                *expr = match (&self.arguments[index], name.value.as_str()) {
                    (Expr::Identifier(word), "unit") => text(&word.value),
                    (argument, _) => nested(argument),
                };
                self.foreign = 1;
            }
            ControlFlow::Continue(())
        }

        fn post_visit_expr(&mut self, _: &mut Expr) -> ControlFlow<Self::Break> {
            self.foreign = self.foreign.saturating_sub(1);
            ControlFlow::Continue(())
        }
    }
    let mut body = chosen.body.clone();
    if filter.is_some() {
        let condition = Expr::Identifier(Ident::new(FILTER));
        aggregates(&mut body, |call| {
            call.filter = Some(Box::new(both(call.filter.take(), &condition)));
        });
    }
    let _ = walk(&mut body, &mut Substitute { chosen, arguments, filter, foreign: 0 });
    body
}

/// Expands the functions of [`SPECIAL`].
fn special(name: &str, arguments: &[FunctionArg]) -> Result<Option<Expr>> {
    let expressions = || {
        let expressions = arguments.iter().map(|argument| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
            _ => None,
        });
        expressions.collect::<Option<Vec<Expr>>>()
    };
    Ok(match (name, expressions().as_deref()) {
        ("list_value", Some(elements)) => Some(call("make_array", elements.to_vec())),
        ("multiif", Some([pairs @ .., otherwise])) if pairs.len() % 2 == 0 && !pairs.is_empty() => {
            let pairs = pairs.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone()));
            Some(case(None, pairs, otherwise.clone()))
        }
        ("field", Some([wanted, others @ ..])) if !others.is_empty() => {
            let positions = others.iter().zip(1..).map(|(other, position)| (other.clone(), number(position)));
            Some(case(Some(wanted.clone()), positions, number(0)))
        }
        ("date_format" | "formatdatetime", Some([time, pattern])) => {
            let Some(pattern) = literal(pattern) else {
                let message = format!("the pattern of {name} must be written out");
                return Err(Error::new(ErrorKind::Invalid, message).with_hint("to_char takes any pattern"));
            };
            Some(call("to_char", vec![time.clone(), text(&mysql_pattern(pattern))]))
        }
        ("to_char", Some([time, pattern])) => match literal(pattern).map(templates::pattern_of) {
            Some(Ok(Some(pattern))) => Some(call("to_char", vec![time.clone(), text(&pattern)])),
            Some(Err(error)) => return Err(error),
            _ => None,
        },
        ("strftime", Some([first, second])) => {
            // SQLite takes the pattern first, DuckDB takes both orders.
            let (time, pattern) = match literal(first) {
                Some(pattern) if pattern.contains('%') => (second, first),
                _ => (first, second),
            };
            let pattern = match literal(pattern) {
                Some(pattern) => text(&letters(pattern, |letter| match letter {
                    'f' => Some("%6f"),
                    'g' => Some("%3f"),
                    _ => None,
                })),
                None => pattern.clone(),
            };
            Some(call("to_char", vec![time.clone(), pattern]))
        }
        ("struct_pack", _) => {
            let mut fields = Vec::new();
            for argument in arguments {
                match argument {
                    FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. }
                    | FunctionArg::ExprNamed {
                        name: Expr::Identifier(name),
                        arg: FunctionArgExpr::Expr(value),
                        ..
                    } => fields.extend([text(&normalized(name)), value.clone()]),
                    other => {
                        let message = format!("struct_pack takes names with values, found {other}");
                        return Err(Error::new(ErrorKind::Invalid, message).with_hint("struct_pack(a := 1)"));
                    }
                }
            }
            Some(call("named_struct", fields))
        }
        _ => None,
    })
}

/// MySQL's pattern of a time, converted to the letters of `to_char`.
fn mysql_pattern(pattern: &str) -> String {
    letters(pattern, |letter| {
        Some(match letter {
            'i' => "%M",
            's' => "%S",
            'M' => "%B",
            'W' => "%A",
            'h' => "%I",
            'f' => "%6f",
            'k' => "%-H",
            'l' => "%-I",
            'c' => "%-m",
            'e' => "%-d",
            'r' => "%I:%M:%S %p",
            'u' => "%V",
            'v' => "%V",
            'x' => "%G",
            _ => return None,
        })
    })
}

/// `pattern` with the letters after `%` replaced where `other` returns a replacement.
fn letters(pattern: &str, other: impl Fn(char) -> Option<&'static str>) -> String {
    let mut changed = String::with_capacity(pattern.len());
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        changed.push(character);
        let Some(letter) = (character == '%').then(|| characters.next()).flatten() else { continue };
        match other(letter) {
            Some(new) => {
                changed.pop();
                changed.push_str(new);
            }
            None => changed.push(letter),
        }
    }
    changed
}

fn case(operand: Option<Expr>, whens: impl Iterator<Item = (Expr, Expr)>, otherwise: Expr) -> Expr {
    Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: operand.map(Box::new),
        conditions: whens.map(|(condition, result)| CaseWhen { condition, result }).collect(),
        else_result: Some(Box::new(otherwise)),
    }
}

/// A call of the function `name`.
pub(crate) fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    let arguments =
        arguments.into_iter().map(|argument| FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)));
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(ast::FunctionArgumentList {
            duplicate_treatment: None,
            args: arguments.collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// The expression as an operand. A number gets parentheses too: alone in ORDER BY it would be a position.
fn nested(expr: &Expr) -> Expr {
    match expr {
        Expr::Value(value) if matches!(value.value, Value::Number(..)) => {
            Expr::Nested(Box::new(expr.clone()))
        }
        Expr::BinaryOp { .. }
        | Expr::UnaryOp { .. }
        | Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::Between { .. }
        | Expr::Like { .. }
        | Expr::InList { .. } => Expr::Nested(Box::new(expr.clone())),
        other => other.clone(),
    }
}

fn literal(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

pub(super) fn text(value: &str) -> Expr {
    Expr::value(Value::SingleQuotedString(value.to_owned()))
}

fn number(value: i32) -> Expr {
    Expr::value(Value::Number(value.to_string(), false))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn functions_are_written_out() {
        let check = |sql: &str, expected: &str| {
            let mut expr = parse_expression(sql).unwrap();
            expand(&mut expr).unwrap_or_else(|error| panic!("{sql}: {error}"));
            assert_eq!(expr.to_string(), expected);
        };
        check("mod(a + 1, b)", "(a + 1) % b");
        check("mod(mod(b, a), a)", "(b % a) % a");
        check("year(mod(d, unit))", "date_part('year', (d % unit))");
        check("dateadd(day, 1, d)", "d + CAST(CAST((1) AS VARCHAR) || ' ' || 'day' AS INTERVAL)");
        check("count_if(a > 1) FILTER (WHERE b)", "count(*) FILTER (WHERE (a > 1) AND b)");
        check(
            "group_concat(DISTINCT a ORDER BY a SEPARATOR ';')",
            "array_to_string(array_agg(DISTINCT a ORDER BY a) FILTER (WHERE a IS NOT NULL), ';')",
        );
        check("sumIf(a, b) OVER (ORDER BY c)", "sum(a) FILTER (WHERE b) OVER (ORDER BY c)");
        check("multiIf(a, 1, b, 2, 3)", "CASE WHEN a THEN 1 WHEN b THEN 2 ELSE 3 END");
        check("field(a, 'x', 'y')", "CASE a WHEN 'x' THEN 1 WHEN 'y' THEN 2 ELSE 0 END");
        check("date_format(t, '%H:%i:%s %% %M')", "to_char(t, '%H:%M:%S %% %B')");
        check("strftime('%Y', t)", "to_char(t, '%Y')");
        check("struct_pack(a := 1)", "named_struct('a', 1)");
        check("7 // 2", "keirin_quotient(7, 2)");
        check("other.year(d)", "other.year(d)");
    }

    #[test]
    fn a_wrong_number_of_arguments_shows_the_right_one() {
        let mut expr = parse_expression("mod(1)").unwrap();
        let error = expand(&mut expr).expect_err("too few");
        assert_eq!(error.to_string(), "function 'mod' does not take 1 arguments");
        assert_eq!(error.hint(), Some("mod(a, b)"));
    }

    #[test]
    fn every_signature_stands_once() {
        let mut seen = HashSet::new();
        for (name, macros) in MACROS.iter() {
            for one in macros {
                assert!(seen.insert((*name, one.parameters.len())), "{name} of {}", one.parameters.len());
            }
        }
    }
}
