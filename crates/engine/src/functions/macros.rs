//! Functions that are written out: `year(d)` becomes `date_part('year', d)` before the planner sees it.
//!
//! [`DEFINITIONS`] holds a signature and the SQL it stands for, in which the parameters' names are replaced
//! by the arguments. DISTINCT, ORDER BY, FILTER and OVER of the call move to the function that the SQL is.
//! An argument that the SQL mentions twice is computed once: the optimizer finds common subexpressions.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, CaseWhen, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArguments, Ident, ObjectName, Value, VisitMut, VisitorMut,
};

use crate::error::{Error, ErrorKind, Result};
use crate::parser::parse_expression;
use crate::relations::normalized;

/// Signature and meaning. A parameter `unit` takes a word as well as a text: `dateadd(day, 1, d)`.
const DEFINITIONS: &[(&str, &str)] = &[
    // Numbers.
    ("ceiling(x)", "ceil(x)"),
    ("div(a, b)", "(a - a % b) / b"),
    ("isfinite(x)", "abs(x) < CAST('Infinity' AS DOUBLE)"),
    ("isinf(x)", "abs(x) = CAST('Infinity' AS DOUBLE)"),
    ("mod(a, b)", "a % b"),
    ("sign(x)", "CASE WHEN x > 0 THEN 1 WHEN x < 0 THEN -1 WHEN x IS NOT NULL THEN 0 END"),
    ("truncate(x)", "trunc(x)"),
    ("truncate(x, digits)", "trunc(x, digits)"),
    ("xor(a, b)", "a ^ b"),
    // Conditions.
    ("if(condition, a, b)", "CASE WHEN condition THEN a ELSE b END"),
    ("iff(condition, a, b)", "CASE WHEN condition THEN a ELSE b END"),
    ("iif(condition, a, b)", "CASE WHEN condition THEN a ELSE b END"),
    ("isnull(x)", "x IS NULL"),
    ("isnotnull(x)", "x IS NOT NULL"),
    // Text.
    ("base64(x)", "encode(x, 'base64pad')"),
    ("char(code)", "chr(code)"),
    ("charindex(part, s)", "strpos(s, part)"),
    ("editdist3(a, b)", "levenshtein(a, b)"),
    ("empty(x)", "len(x) = 0"),
    ("endswith(s, part)", "ends_with(s, part)"),
    ("from_base64(s)", "decode(s, 'base64pad')"),
    ("lcase(s)", "lower(s)"),
    ("lengthutf8(s)", "char_length(s)"),
    ("locate(part, s)", "strpos(s, part)"),
    ("lowerutf8(s)", "lower(s)"),
    ("match(s, pattern)", "regexp_like(s, pattern)"),
    ("mid(s, start, count)", "substr(s, start, count)"),
    ("notempty(x)", "len(x) > 0"),
    ("ord(s)", "ascii(s)"),
    ("prefix(s, part)", "starts_with(s, part)"),
    (
        "regexp_extract(s, pattern)",
        "CASE WHEN s IS NOT NULL THEN coalesce((regexp_match(s, '(' || pattern || ')'))[1], '') END",
    ),
    (
        "regexp_extract(s, pattern, number)",
        "CASE WHEN s IS NOT NULL THEN coalesce((regexp_match(s, '(' || pattern || ')'))[number + 1], '') END",
    ),
    ("regexp_full_match(s, pattern)", "regexp_like(s, '^(?:' || pattern || ')$')"),
    ("regexp_matches(s, pattern)", "regexp_like(s, pattern)"),
    ("regexp_matches(s, pattern, flags)", "regexp_like(s, pattern, flags)"),
    ("replaceall(s, part, new)", "replace(s, part, new)"),
    ("replaceregexpall(s, pattern, new)", "regexp_replace(s, pattern, new, 'g')"),
    ("replaceregexpone(s, pattern, new)", "regexp_replace(s, pattern, new)"),
    ("space(count)", "repeat(' ', count)"),
    ("split(s, separator)", "string_to_array(s, separator)"),
    ("splitbychar(separator, s)", "string_to_array(s, separator)"),
    ("splitbystring(separator, s)", "string_to_array(s, separator)"),
    ("startswith(s, part)", "starts_with(s, part)"),
    ("str_split(s, separator)", "string_to_array(s, separator)"),
    ("strcmp(a, b)", "CASE WHEN a < b THEN -1 WHEN a > b THEN 1 WHEN a = b THEN 0 END"),
    ("string_split(s, separator)", "string_to_array(s, separator)"),
    ("suffix(s, part)", "ends_with(s, part)"),
    ("to_base64(x)", "encode(x, 'base64pad')"),
    ("ucase(s)", "upper(s)"),
    ("unhex(s)", "decode(s, 'hex')"),
    ("unicode(s)", "ascii(s)"),
    ("upperutf8(s)", "upper(s)"),
    // Dates and times.
    ("adddate(d, days)", "d + CAST(CAST(days AS VARCHAR) || ' day' AS INTERVAL)"),
    ("curdate()", "current_date()"),
    ("curtime()", "current_time()"),
    ("date(x)", "CAST(x AS DATE)"),
    ("date_add(d, step)", "d + step"),
    ("date_add(unit, count, d)", "d + CAST(CAST(count AS VARCHAR) || ' ' || unit AS INTERVAL)"),
    ("date_sub(d, step)", "d - step"),
    ("dateadd(unit, count, d)", "d + CAST(CAST(count AS VARCHAR) || ' ' || unit AS INTERVAL)"),
    ("date_sub(unit, start, end)", "keirin_date_sub(unit, start, end)"),
    ("date_diff(unit, start, end)", "keirin_date_diff(unit, start, end)"),
    ("datediff(end, start)", "keirin_date_diff('day', start, end)"),
    ("datediff(unit, start, end)", "keirin_date_diff(unit, start, end)"),
    ("day(d)", "date_part('day', d)"),
    ("dayname(d)", "to_char(d, '%A')"),
    ("dayofmonth(d)", "date_part('day', d)"),
    ("dayofweek(d)", "date_part('dow', d)"),
    ("dayofyear(d)", "date_part('doy', d)"),
    ("epoch(t)", "CAST(date_part('epoch', t) AS DOUBLE)"),
    ("epoch_us(t)", "CAST(round(date_part('epoch', t) * 1000000) AS BIGINT)"),
    ("epoch_ms(t)", "CAST(round(date_part('epoch', t) * 1000) AS BIGINT)"),
    ("hex(s)", "upper(encode(s, 'hex'))"),
    ("hour(t)", "date_part('hour', t)"),
    ("isodow(d)", "date_part('isodow', d)"),
    ("last_day(d)", "CAST(date_trunc('month', d) + INTERVAL '1 month' - INTERVAL '1 day' AS DATE)"),
    ("minute(t)", "date_part('minute', t)"),
    ("month(d)", "date_part('month', d)"),
    ("monthname(d)", "to_char(d, '%B')"),
    ("quarter(d)", "date_part('quarter', d)"),
    ("second(t)", "date_part('second', t)"),
    ("strptime(s, pattern)", "to_timestamp(s, pattern)"),
    ("timestampadd(unit, count, d)", "d + CAST(CAST(count AS VARCHAR) || ' ' || unit AS INTERVAL)"),
    ("timestampdiff(unit, start, end)", "keirin_date_sub(unit, start, end)"),
    ("todate(x)", "CAST(x AS DATE)"),
    ("todatetime(x)", "CAST(x AS TIMESTAMP)"),
    ("todayofmonth(d)", "date_part('day', d)"),
    ("todayofweek(d)", "date_part('isodow', d)"),
    ("todayofyear(d)", "date_part('doy', d)"),
    ("tohour(t)", "date_part('hour', t)"),
    ("tominute(t)", "date_part('minute', t)"),
    ("tomonday(d)", "CAST(date_trunc('week', d) AS DATE)"),
    ("tomonth(d)", "date_part('month', d)"),
    ("toquarter(d)", "date_part('quarter', d)"),
    ("tosecond(t)", "date_part('second', t)"),
    ("tostartofday(t)", "date_trunc('day', t)"),
    ("tostartofhour(t)", "date_trunc('hour', t)"),
    ("tostartofminute(t)", "date_trunc('minute', t)"),
    ("tostartofmonth(d)", "CAST(date_trunc('month', d) AS DATE)"),
    ("tostartofquarter(d)", "CAST(date_trunc('quarter', d) AS DATE)"),
    ("tostartofyear(d)", "CAST(date_trunc('year', d) AS DATE)"),
    ("tounixtimestamp(t)", "CAST(floor(date_part('epoch', t)) AS BIGINT)"),
    ("toyear(d)", "date_part('year', d)"),
    ("toyyyymm(d)", "date_part('year', d) * 100 + date_part('month', d)"),
    ("toyyyymmdd(d)", "date_part('year', d) * 10000 + date_part('month', d) * 100 + date_part('day', d)"),
    ("unix_timestamp()", "CAST(floor(date_part('epoch', now())) AS BIGINT)"),
    ("unix_timestamp(t)", "CAST(floor(date_part('epoch', t)) AS BIGINT)"),
    ("week(d)", "date_part('week', d)"),
    ("weekday(d)", "date_part('dow', d)"),
    ("weekofyear(d)", "date_part('week', d)"),
    ("year(d)", "date_part('year', d)"),
    // Conversions.
    ("tofloat32(x)", "CAST(x AS REAL)"),
    ("tofloat64(x)", "CAST(x AS DOUBLE)"),
    ("toint8(x)", "CAST(x AS TINYINT)"),
    ("toint16(x)", "CAST(x AS SMALLINT)"),
    ("toint32(x)", "CAST(x AS INTEGER)"),
    ("toint64(x)", "CAST(x AS BIGINT)"),
    ("tostring(x)", "CAST(x AS VARCHAR)"),
    ("touint8(x)", "CAST(x AS TINYINT UNSIGNED)"),
    ("touint16(x)", "CAST(x AS SMALLINT UNSIGNED)"),
    ("touint32(x)", "CAST(x AS INTEGER UNSIGNED)"),
    ("touint64(x)", "CAST(x AS BIGINT UNSIGNED)"),
    // Aggregates.
    ("any(x)", "first_value(x) FILTER (WHERE x IS NOT NULL)"),
    ("approx_count_distinct(x)", "approx_distinct(x)"),
    ("approx_quantile(x, share)", "approx_percentile_cont(x, share)"),
    ("arg_max(x, key)", "first_value(x ORDER BY key DESC) FILTER (WHERE x IS NOT NULL AND key IS NOT NULL)"),
    ("arg_min(x, key)", "first_value(x ORDER BY key) FILTER (WHERE x IS NOT NULL AND key IS NOT NULL)"),
    ("argmax(x, key)", "first_value(x ORDER BY key DESC) FILTER (WHERE x IS NOT NULL AND key IS NOT NULL)"),
    ("argmin(x, key)", "first_value(x ORDER BY key) FILTER (WHERE x IS NOT NULL AND key IS NOT NULL)"),
    ("avgif(x, condition)", "avg(x) FILTER (WHERE condition)"),
    ("count_if(condition)", "count(*) FILTER (WHERE condition)"),
    ("countif(condition)", "count(*) FILTER (WHERE condition)"),
    ("every(condition)", "bool_and(condition)"),
    ("first(x)", "first_value(x)"),
    ("group_concat(x)", "string_agg(CAST(x AS VARCHAR), ',')"),
    ("group_concat(x, separator)", "string_agg(CAST(x AS VARCHAR), separator)"),
    ("grouparray(x)", "array_agg(x) FILTER (WHERE x IS NOT NULL)"),
    ("groupuniqarray(x)", "array_agg(DISTINCT x) FILTER (WHERE x IS NOT NULL)"),
    ("last(x)", "last_value(x)"),
    ("list(x)", "array_agg(x)"),
    ("listagg(x)", "string_agg(CAST(x AS VARCHAR), ',')"),
    ("listagg(x, separator)", "string_agg(CAST(x AS VARCHAR), separator)"),
    ("max_by(x, key)", "first_value(x ORDER BY key DESC) FILTER (WHERE x IS NOT NULL AND key IS NOT NULL)"),
    ("maxif(x, condition)", "max(x) FILTER (WHERE condition)"),
    ("min_by(x, key)", "first_value(x ORDER BY key) FILTER (WHERE x IS NOT NULL AND key IS NOT NULL)"),
    ("minif(x, condition)", "min(x) FILTER (WHERE condition)"),
    (
        "quantile(x, share)",
        "array_element(array_agg(x ORDER BY x) FILTER (WHERE x IS NOT NULL), greatest(1, CAST(ceil(share * count(x)) AS BIGINT)))",
    ),
    (
        "quantile_disc(x, share)",
        "array_element(array_agg(x ORDER BY x) FILTER (WHERE x IS NOT NULL), greatest(1, CAST(ceil(share * count(x)) AS BIGINT)))",
    ),
    ("string_agg(x)", "string_agg(x, ',')"),
    ("sumif(x, condition)", "sum(x) FILTER (WHERE condition)"),
    ("uniq(x)", "approx_distinct(x)"),
    ("uniqexact(x)", "count(DISTINCT x)"),
    ("variance(x)", "var_samp(x)"),
    // Lists and structs.
    ("array_value(x)", "make_array(x)"),
    ("arraydistinct(l)", "array_distinct(l)"),
    ("arrayelement(l, position)", "array_element(l, position)"),
    ("arrayjoin(l)", "unnest(l)"),
    ("arrayreverse(l)", "array_reverse(l)"),
    ("arraysort(l)", "array_sort(l)"),
    ("arraystringconcat(l, separator)", "array_to_string(l, separator)"),
    ("has(l, x)", "array_has(l, x)"),
    ("hasall(l, others)", "array_has_all(l, others)"),
    ("hasany(l, others)", "array_has_any(l, others)"),
    ("indexof(l, x)", "coalesce(array_position(l, x), 0)"),
    ("list_min(l)", "array_min(l)"),
    ("list_unique(l)", "array_length(array_distinct(l))"),
    ("struct_extract(s, field)", "get_field(s, field)"),
    // The session.
    ("current_database()", "'keirin'"),
    ("current_schema()", "'main'"),
    ("database()", "'keirin'"),
    ("gen_random_uuid()", "uuid()"),
    ("generateuuidv4()", "uuid()"),
    ("newid()", "uuid()"),
    ("pg_typeof(x)", "typeof(x)"),
    ("today()", "current_date()"),
    ("version()", concat!("'Keirin ", env!("CARGO_PKG_VERSION"), "'")),
];

/// Functions of any number of arguments, or that look into them: see [`special`].
const SPECIAL: &[(&str, &str)] = &[
    ("date_format(t, pattern)", "to_char, with MySQL's letters in the pattern"),
    ("field(x, a, b, ...)", "the position of x among the others, or 0"),
    ("formatdatetime(t, pattern)", "to_char, with MySQL's letters in the pattern"),
    ("list_value(a, b, ...)", "make_array(a, b, ...)"),
    ("multiif(condition, a, ..., b)", "CASE WHEN condition THEN a ... ELSE b END"),
    ("strftime(t, pattern)", "to_char(t, pattern)"),
    ("struct_pack(name := x, ...)", "named_struct('name', x, ...)"),
];

struct Macro {
    parameters: Vec<String>,
    body: Expr,
}

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

/// The names of the functions that are written out.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    signatures().filter_map(|(signature, _)| signature.split('(').next())
}

/// Every signature with what it stands for.
pub(crate) fn signatures() -> impl Iterator<Item = (&'static str, &'static str)> {
    DEFINITIONS.iter().chain(SPECIAL).copied()
}

/// Writes out the functions in `statement` that are short for something else.
///
/// # Errors
/// [`ErrorKind::Invalid`] for a number of arguments that the function does not take.
pub(crate) fn expand(statement: &mut impl VisitMut) -> Result<()> {
    match statement.visit(&mut Expander) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Expander;

impl VisitorMut for Expander {
    type Break = Error;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        // DuckDB's `//` is the planner's `/`, which divides integers as integers.
        if let Expr::BinaryOp { op: op @ BinaryOperator::DuckIntegerDivide, .. } = expr {
            *op = BinaryOperator::Divide;
        }
        let Expr::Function(call) = expr else { return ControlFlow::Continue(()) };
        match meaning(call) {
            Ok(Some(meant)) => *expr = meant,
            Ok(None) => {}
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }
}

fn meaning(call: &Function) -> Result<Option<Expr>> {
    let [part] = call.name.0.as_slice() else { return Ok(None) };
    let Some(name) = part.as_ident() else { return Ok(None) };
    let name = normalized(name);
    let FunctionArguments::List(list) = &call.args else { return Ok(None) };
    if let Some(meant) = special(&name, &list.args)? {
        return Ok(Some(meant));
    }
    let Some(macros) = MACROS.get(name.as_str()) else { return Ok(None) };
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
        // The planner's own function of this name, which takes another number of arguments, or its error.
        if super::is_planners(&name) {
            return Ok(None);
        }
        let forms = macros.iter().map(|one| format!("{name}({})", one.parameters.join(", ")));
        let message = format!("function '{name}' does not take {} arguments", arguments.len());
        return Err(
            Error::new(ErrorKind::Invalid, message).with_hint(forms.collect::<Vec<_>>().join(", or "))
        );
    };
    let mut meant = written_out(chosen, &arguments);
    let has_clauses = list.duplicate_treatment.is_some()
        || !clauses.is_empty()
        || call.filter.is_some()
        || call.over.is_some()
        || call.null_treatment.is_some()
        || !call.within_group.is_empty();
    if !has_clauses {
        return Ok(Some(meant));
    }
    let Expr::Function(function) = &mut meant else {
        let message = format!("function '{name}' takes no DISTINCT, ORDER BY, FILTER or OVER");
        return Err(Error::new(ErrorKind::Invalid, message));
    };
    if let FunctionArguments::List(inner) = &mut function.args {
        if list.duplicate_treatment.is_some() {
            inner.duplicate_treatment = list.duplicate_treatment;
        }
        inner.clauses.extend(clauses);
    }
    if let Some(condition) = &call.filter {
        function.filter = Some(Box::new(both(function.filter.take(), condition)));
    }
    function.over.clone_from(&call.over);
    function.null_treatment = call.null_treatment;
    function.within_group.clone_from(&call.within_group);
    Ok(Some(meant))
}

/// `string_agg` in an order: by way of a list, since the planner sorts all its input for it and refuses a
/// second one with another order.
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

/// The body with the arguments in the place of the parameters.
fn written_out(chosen: &Macro, arguments: &[Expr]) -> Expr {
    struct Substitute<'a> {
        chosen: &'a Macro,
        arguments: &'a [Expr],
        // What was put in is looked through next; it is not ours to change.
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
            if let Some(index) = self.chosen.parameters.iter().position(|known| *known == name.value) {
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
    let _ = VisitMut::visit(&mut body, &mut Substitute { chosen, arguments, foreign: 0 });
    body
}

/// The functions of [`SPECIAL`].
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
        ("strftime", Some([first, second])) => {
            // SQLite has the pattern first, DuckDB takes both.
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

/// MySQL's pattern of a time in the letters of `to_char`.
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

/// `pattern` with other letters after `%`, where `other` knows one.
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

fn call(name: &str, arguments: Vec<Expr>) -> Expr {
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

/// The expression as an operand. A number goes into parentheses too: alone in ORDER BY it is a position.
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

fn text(value: &str) -> Expr {
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
        check("7 // 2", "7 / 2");
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
