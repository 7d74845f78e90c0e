//! Turns errors of DataFusion and of sqlparser into ours.
//!
//! Those of the parser say what was expected, what was found and where; for a mistyped keyword the intended
//! one is added. Planning errors carry a place in the SQL and the names that would have been right. Execution
//! errors carry an Arrow, Parquet or file error below layers of context. Only this file takes them apart, so
//! that no other file formats a foreign error.

use arrow::error::ArrowError;
use datafusion::common::{Column, Diagnostic, SchemaError, Span};
use datafusion::error::DataFusionError;
use datafusion::parquet::errors::ParquetError;
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{Location, Span as TokenSpan, Token, TokenWithSpan};

use crate::error::{Error, ErrorKind};
use crate::expressions::functions;
use crate::sources::stored::ROW_NUMBER;
use crate::sql::parser::NESTING_MAX;
use crate::sql::text::{byte_offset, byte_range, nearest};

/// How many column names are listed when one is not found.
const NAMES_LISTED_MAX: usize = 12;
/// Keywords that are suggested where the parser expects one and finds a similar word.
const SUGGESTED_KEYWORDS: &[&str] = &[
    "ALTER",
    "COPY",
    "CREATE",
    "DELETE",
    "DESCRIBE",
    "DISTINCT",
    "DROP",
    "EXPLAIN",
    "FROM",
    "GROUP",
    "HAVING",
    "INSERT",
    "INTO",
    "JOIN",
    "LIMIT",
    "OFFSET",
    "ORDER",
    "RESET",
    "SELECT",
    "SET",
    "SHOW",
    "SUMMARIZE",
    "UNION",
    "UPDATE",
    "VALUES",
    "WHERE",
    "WITH",
];

impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Self {
        explain(&error, None)
    }
}

impl From<ArrowError> for Error {
    fn from(error: ArrowError) -> Self {
        explain_arrow(&error)
    }
}

/// Our error for `error`, with its place in `sql`, the text that was planned.
pub(crate) fn explain(error: &DataFusionError, sql: Option<&str>) -> Error {
    match error {
        DataFusionError::Shared(inner) => explain(inner, sql),
        DataFusionError::Collection(errors) => match errors.first() {
            Some(first) => explain(first, sql),
            None => sentence(ErrorKind::Internal, "an error without a cause"),
        },
        DataFusionError::Diagnostic(diagnostic, inner) => place(explain(inner, sql), diagnostic, sql),
        DataFusionError::Context(context, inner) => {
            let inner = explain(inner, sql);
            // The context of type checking repeats the message and is dropped; that of files and operators is
            // kept.
            let is_rule = || context.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            let is_noise = context.len() > 200 || context.starts_with("Optimizer rule") || is_rule();
            if inner.detail().is_some() || is_noise { inner } else { inner.with_detail(context) }
        }
        DataFusionError::External(inner) => explain_any(inner.as_ref()),
        DataFusionError::ArrowError(inner, _) => explain_arrow(inner),
        DataFusionError::ParquetError(inner) => explain_parquet(inner),
        DataFusionError::ObjectStore(inner) => explain_store(inner),
        DataFusionError::IoError(inner) => match inner.get_ref() {
            Some(cause) => explain_any(cause),
            None => sentence(ErrorKind::Io, &inner.to_string()),
        },
        DataFusionError::SchemaError(inner, _) => explain_schema(inner, sql),
        DataFusionError::SQL(inner, _) => sentence(ErrorKind::Syntax, &inner.to_string()),
        DataFusionError::NotImplemented(text) if text.starts_with("Unsupported CAST from ") => {
            sentence(ErrorKind::Unsupported, &sql_types(text))
        }
        DataFusionError::NotImplemented(text) => explain_unsupported(without_tree(text)),
        DataFusionError::Plan(text) => explain_plan(without_tree(text)),
        DataFusionError::Configuration(text) => sentence(ErrorKind::Invalid, text),
        // "Invalid batch column at '1' has null but schema specifies non-nullable"
        DataFusionError::Execution(text) if text.contains("specifies non-nullable") => would_become_null(),
        DataFusionError::Execution(text) => sentence(ErrorKind::Data, text),
        DataFusionError::ResourcesExhausted(text) => explain_resources(text),
        DataFusionError::ExecutionJoin(inner) if inner.is_cancelled() => {
            sentence(ErrorKind::Cancelled, &inner.to_string())
        }
        DataFusionError::ExecutionJoin(inner) => explain_panic(&inner.to_string()),
        DataFusionError::Internal(text) => {
            // Removes DataFusion's request to report bugs to its project.
            let text = text.split(".\nThis issue was likely caused").next().unwrap_or(text);
            if let Some(what) = refused_unnest(text) {
                return sentence(ErrorKind::Unsupported, what)
                    .with_hint("unnest one level in a subquery and the next around it");
            }
            sentence(ErrorKind::Internal, text)
        }
        other => sentence(ErrorKind::Internal, &other.to_string()),
    }
}

/// The error of a statement that panicked with this text.
pub(crate) fn explain_panic(text: &str) -> Error {
    // Arrow counts the bytes of a text column, or the elements of a list column, in 32 bits, and panics
    // instead of returning an error.
    if text.contains("offset overflow") {
        let message = "a function gave more than 2 GB of text, or more than 2147483647 elements, at a time";
        return Error::new(ErrorKind::Resources, message).with_hint("shorten the texts or lists");
    }
    Error::new(ErrorKind::Internal, "the statement broke off: a bug in Keirin").with_detail(text)
}

/// What our message says of an UNNEST that the planner refuses with an error of its own.
fn refused_unnest(text: &str) -> Option<&'static str> {
    if text.contains("unnest on struct can only be applied at the root level") {
        Some("a struct is unnested inside another expression: it is several columns, not a value")
    } else if text.contains("unnest on non-list or struct type") {
        Some("unnest is of something that is neither a list nor a struct")
    } else {
        None
    }
}

/// The message without the syntax tree that the planner appends.
fn without_tree(text: &str) -> &str {
    if text.starts_with("compound identifier: [") {
        return "no column has so many names in front of it";
    }
    if !["span: Span(", "quote_style: ", "ValueWithSpan {"].iter().any(|sign| text.contains(sign)) {
        return text;
    }
    match text.split_once(": ") {
        Some(("Unsupported ast node in sqltorel" | "Unsupported ast node in create_relation", _)) => {
            "this form of SQL is not supported"
        }
        Some((message, _)) => message,
        None => text.split('{').next().unwrap_or(text),
    }
}

/// An error that crossed a boundary in a box: ours, Arrow's, DataFusion's, or another.
fn explain_any(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Error {
    if let Some(ours) = error.downcast_ref::<Error>() {
        ours.clone()
    } else if let Some(inner) = error.downcast_ref::<DataFusionError>() {
        explain(inner, None)
    } else if let Some(inner) = error.downcast_ref::<ArrowError>() {
        explain_arrow(inner)
    } else if let Some(inner) = error.downcast_ref::<ParquetError>() {
        explain_parquet(inner)
    } else if let Some(inner) = error.downcast_ref::<object_store::Error>() {
        explain_store(inner)
    } else {
        sentence(ErrorKind::Data, &error.to_string())
    }
}

fn explain_arrow(error: &ArrowError) -> Error {
    match error {
        ArrowError::ExternalError(inner) => explain_any(inner.as_ref()),
        ArrowError::DivideByZero => {
            sentence(ErrorKind::Data, "division by zero").with_hint("NULLIF(divisor, 0) gives NULL instead")
        }
        ArrowError::MemoryError(text) => explain_resources(text),
        ArrowError::NotYetImplemented(text) => sentence(ErrorKind::Unsupported, text),
        ArrowError::SchemaError(text) => sentence(ErrorKind::Invalid, text),
        ArrowError::IoError(text, _) => sentence(ErrorKind::Io, text),
        ArrowError::CastError(text) => explain_cast(text),
        // "Column 'a' is declared as non-nullable but contains null values", with a name of the plan.
        ArrowError::InvalidArgumentError(text) if text.contains("declared as non-nullable") => {
            would_become_null()
        }
        ArrowError::ArithmeticOverflow(text)
        | ArrowError::ComputeError(text)
        | ArrowError::ParseError(text)
        | ArrowError::InvalidArgumentError(text)
        | ArrowError::CsvError(text)
        | ArrowError::JsonError(text)
        | ArrowError::IpcError(text)
        | ArrowError::ParquetError(text)
        | ArrowError::CDataInterface(text) => sentence(ErrorKind::Data, text),
        other => sentence(ErrorKind::Data, &other.to_string()),
    }
}

fn would_become_null() -> Error {
    Error::new(ErrorKind::Data, "a column that is NOT NULL would become NULL")
}

fn explain_parquet(error: &ParquetError) -> Error {
    match error {
        ParquetError::External(inner) => explain_any(inner.as_ref()),
        ParquetError::General(text) | ParquetError::EOF(text) | ParquetError::ArrowError(text) => {
            sentence(ErrorKind::Data, text)
        }
        ParquetError::NYI(text) => sentence(ErrorKind::Unsupported, text),
        other => sentence(ErrorKind::Data, &other.to_string()),
    }
}

fn explain_store(error: &object_store::Error) -> Error {
    match error {
        object_store::Error::NotFound { path, .. } => {
            sentence(ErrorKind::NotFound, &format!("file '/{path}' does not exist"))
        }
        other => sentence(ErrorKind::Io, &other.to_string()),
    }
}

fn explain_schema(error: &SchemaError, sql: Option<&str>) -> Error {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => {
            let error = column_not_found(field, valid_fields);
            match field.spans().first().and_then(|span| range(&span, sql?)) {
                Some(span) => error.with_span(span),
                None => error,
            }
        }
        SchemaError::AmbiguousReference { field } => {
            let error =
                Error::new(ErrorKind::Invalid, format!("column '{}' is in more than one table", field.name))
                    .with_hint(format!("say which: table.{}", field.name));
            match field.spans().first().and_then(|span| range(&span, sql?)) {
                Some(span) => error.with_span(span),
                None => error,
            }
        }
        SchemaError::DuplicateQualifiedField { name, .. }
        | SchemaError::DuplicateUnqualifiedField { name } => {
            Error::new(ErrorKind::Invalid, format!("two columns are named '{name}'"))
                .with_hint("rename one with AS")
        }
    }
}

fn column_not_found(field: &Column, valid: &[Column]) -> Error {
    let names: Vec<&str> = valid.iter().map(Column::name).filter(|name| *name != ROW_NUMBER).collect();
    let error = Error::new(ErrorKind::NotFound, format!("column '{}' not found", field.flat_name()));
    let hint = match nearest(&field.name, names.iter().copied()) {
        Some(name) if name.eq_ignore_ascii_case(&field.name) => {
            Some(format!("names with capitals are written in double quotes: \"{name}\""))
        }
        Some(name) => Some(format!("did you mean `{name}`?")),
        None => None,
    };
    let listed = names.iter().take(NAMES_LISTED_MAX).copied().collect::<Vec<_>>().join(", ");
    let error = match names.len() {
        0 => error,
        count if count > NAMES_LISTED_MAX => {
            error.with_detail(format!("columns are {listed} and {} more", count - NAMES_LISTED_MAX))
        }
        _ => error.with_detail(format!("columns are {listed}")),
    };
    match hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

fn explain_unsupported(text: &str) -> Error {
    if text.starts_with("Aggregate can not be used as a sliding accumulator") {
        let message =
            "this aggregate has no OVER with a frame whose first row moves, such as ROWS 1 PRECEDING";
        return Error::new(ErrorKind::Unsupported, message)
            .with_hint("let it begin with UNBOUNDED PRECEDING; string_agg: array_to_string(array_agg(x) OVER (...), ',')");
    }
    sentence(ErrorKind::Unsupported, text)
}

fn explain_plan(text: &str) -> Error {
    // "Invalid function 'summ'.\nDid you mean 'sum'?"
    if let Some(name) = text.strip_prefix("Invalid function '").and_then(|rest| rest.split('\'').next()) {
        let error = Error::new(ErrorKind::NotFound, format!("function '{name}' not found"));
        return match nearest(name, functions::names().iter().map(String::as_str)) {
            Some(meant) => error.with_hint(format!("did you mean `{meant}`?")),
            None => error,
        };
    }
    if let Some(error) = explain_call(text) {
        return error;
    }
    if text.starts_with("Aggregate ORDER BY is not implemented for window functions") {
        let message = "an aggregate with an ORDER BY of its own, as arg_max and max_by have, takes no OVER";
        return Error::new(ErrorKind::Unsupported, message).with_hint(
            "first_value(x) OVER (... ORDER BY key DESC NULLS LAST), or group in a subquery and join",
        );
    }
    if text.contains("would exceed max scale") {
        let message = "a product of DECIMALs has more than 38 digits behind the point";
        return Error::new(ErrorKind::Invalid, message)
            .with_hint("CAST an operand to DOUBLE, which rounds, or to a DECIMAL with fewer digits there");
    }
    // "Cannot get result type for temporal operation Interval(MonthDayNano) * Int64: ..."
    if let Some((_, operation)) = text.split_once("for temporal operation ")
        && let Some((operation, _)) = operation.split_once(": ")
    {
        return Error::new(ErrorKind::Invalid, format!("there is no {}", sql_types(operation)))
            .with_hint("an INTERVAL of a number of units is written INTERVAL (n * 2) DAYS");
    }
    // "Argument #2 must be an INTEGER or NULL, got Column(...)"
    if text.contains("got Column(") || text.contains("got OuterReferenceColumn(") {
        let message = "an argument of a table function is a column";
        return Error::new(ErrorKind::Unsupported, message)
            .with_hint("unnest takes columns: FROM t, unnest(range(0, t.n))");
    }
    if text.starts_with("Cannot automatically convert ") {
        return sentence(ErrorKind::Invalid, &sql_types(text));
    }
    if let Some((message, _)) = text.split_once(": While expanding wildcard") {
        return sentence(ErrorKind::Invalid, message)
            .with_hint("add it to GROUP BY, or take any of its values with any_value(...)");
    }
    if text.contains("Column count doesn't match insert query") {
        let message = "INSERT gives more or fewer columns than the table takes";
        return Error::new(ErrorKind::Invalid, message)
            .with_hint("name those that it gives: INSERT INTO t (a, b) SELECT ...; DESCRIBE t lists all");
    }
    let kind = if text.ends_with("already exists") {
        ErrorKind::AlreadyExists
    } else if text.contains("not found") || text.contains("doesn't exist") || text.contains("does not exist")
    {
        ErrorKind::NotFound
    } else {
        ErrorKind::Invalid
    };
    sentence(kind, text)
}

/// A call with wrong arguments; the planner reports it as an internal error.
fn explain_call(text: &str) -> Option<Error> {
    let (_, rest) = text.split_once("No function matches the given name and argument types '")?;
    let (call, rest) = rest.split_once('\'')?;
    let (name, arguments) = call.split_once('(')?;
    let error =
        Error::new(ErrorKind::Invalid, format!("function '{name}' does not take ({}", sql_types(arguments)));
    let (_, candidates) = rest.split_once("Candidate functions:")?;
    // In some versions of the text tabs and newlines are escaped.
    let candidates = candidates.replace("\\t", " ").replace("\\n", " ");
    let candidates: Vec<_> = candidates.split_whitespace().collect();
    let candidates = sql_types(&candidates.join(" ")).replace(&format!(") {name}("), &format!("), {name}("));
    // A function that decides by itself what it takes does not list it.
    Some(if candidates.contains("UserDefined") {
        error
    } else {
        error.with_detail(format!("there is {candidates}"))
    })
}

/// `text` with Arrow's type names replaced by SQL's, and without the units of moments and intervals.
fn sql_types(text: &str) -> String {
    const UNITS: [&str; 5] = ["(MonthDayNano)", "(ns)", "(µs)", "(ms)", "(s)"];
    let text = UNITS.iter().fold(text.to_owned(), |text, unit| text.replace(unit, ""));
    const NAMES: &[(&str, &str)] = &[
        ("Boolean", "BOOLEAN"),
        ("Date32", "DATE"),
        ("Decimal", "DECIMAL"),
        ("Decimal128", "DECIMAL"),
        ("Decimal256", "DECIMAL"),
        ("Duration", "DURATION"),
        ("Float32", "REAL"),
        ("Float64", "DOUBLE"),
        ("Int16", "SMALLINT"),
        ("Int32", "INTEGER"),
        ("Int64", "BIGINT"),
        ("Int8", "TINYINT"),
        ("Interval", "INTERVAL"),
        ("LargeUtf8", "VARCHAR"),
        ("List", "LIST"),
        ("String", "VARCHAR"),
        ("Struct", "STRUCT"),
        ("Time64", "TIME"),
        ("Timestamp", "TIMESTAMP"),
        ("UInt64", "UBIGINT"),
        ("Utf8", "VARCHAR"),
        ("Utf8View", "VARCHAR"),
    ];
    let mut found = String::with_capacity(text.len());
    for word in text.split_inclusive(|c: char| !c.is_alphanumeric()) {
        let name = word.trim_end_matches(|c: char| !c.is_alphanumeric());
        let ours = NAMES.iter().find(|(theirs, _)| *theirs == name).map_or(name, |(_, ours)| ours);
        found.push_str(ours);
        found.push_str(&word[name.len()..]);
    }
    found
}

/// "Cannot cast string 'x' to value of Int64 type".
fn explain_cast(text: &str) -> Error {
    let parts = text.strip_prefix("Cannot cast string '").and_then(|rest| {
        let (value, name) = rest.strip_suffix(" type")?.rsplit_once("' to value of ")?;
        Some((value, sql_types(name)))
    });
    let error = match parts {
        Some((value, name)) => {
            let article = if name.starts_with(['A', 'E', 'I', 'O']) { "an" } else { "a" };
            Error::new(ErrorKind::Data, format!("'{value}' is not {article} {name}"))
        }
        // What chrono says of a format that asks for more than there is.
        None if text.eq_ignore_ascii_case("format error") => {
            return Error::new(ErrorKind::Data, "the format asks for a part that the value does not have")
                .with_hint("a DATE has no zone for %z, a TIME no year for %Y");
        }
        None => sentence(ErrorKind::Data, text),
    };
    error.with_hint("TRY_CAST gives NULL where a value does not convert")
}

fn explain_resources(text: &str) -> Error {
    Error::new(ErrorKind::Resources, "the memory limit is reached").with_detail(text.trim()).with_hint(
        "raise it with SET keirin.memory_limit = '...', or lower keirin.threads: each thread needs its share",
    )
}

/// Our error for one of the parser, which puts the place at the end of its message.
pub(crate) fn explain_syntax(sql: &str, tokens: &[TokenWithSpan], error: ParserError) -> Error {
    let text = match error {
        ParserError::RecursionLimitExceeded => {
            return Error::new(
                ErrorKind::Syntax,
                format!("SQL is nested more than {NESTING_MAX} levels deep"),
            )
            .with_hint("split the expression, or use IN (...) instead of a chain of ORs");
        }
        ParserError::TokenizerError(text) | ParserError::ParserError(text) => text,
    };
    let (message, location) = split_location(&text);
    let message = lower_first(&message.replace("Expected: ", "expected ").replace(", found: ", ", found "));
    let error = Error::new(ErrorKind::Syntax, format!("syntax error: {message}"));
    let Some(location) = location else {
        // An error without a place is at the end of the text.
        return if text.contains("found: EOF") {
            error.with_span(sql.trim_end().len()..sql.len())
        } else {
            error
        };
    };
    let found = tokens.iter().position(|token| token.span.start == location);
    let span = match found {
        Some(index) => byte_range(sql, tokens[index].span),
        None => byte_offset(sql, location).map(|start| start..start),
    };
    let error = match span {
        Some(span) => error.with_span(span),
        None => error,
    };
    match found.and_then(|index| mistyped_keyword(&tokens[..=index])) {
        Some(keyword) => error.with_hint(format!("did you mean {keyword}?")),
        None => error,
    }
}

/// The keyword that the token at the error, or the one before it, was probably meant to be.
fn mistyped_keyword(tokens: &[TokenWithSpan]) -> Option<&'static str> {
    tokens
        .iter()
        .rev()
        .filter_map(|token| match &token.token {
            Token::Word(word) if word.quote_style.is_none() => Some(word.value.as_str()),
            _ => None,
        })
        .take(2)
        .filter(|word| !SUGGESTED_KEYWORDS.iter().any(|keyword| keyword.eq_ignore_ascii_case(word)))
        .find_map(|word| nearest(word, SUGGESTED_KEYWORDS.iter().copied()))
}

/// Splits `... at Line: 2, Column: 7` off the end of a message.
fn split_location(text: &str) -> (&str, Option<Location>) {
    let Some((message, place)) = text.rsplit_once(" at Line: ") else { return (text, None) };
    let location = place.split_once(", Column: ").and_then(|(line, column)| {
        Some(Location { line: line.trim().parse().ok()?, column: column.trim().parse().ok()? })
    });
    (message, location)
}

/// An error in our form from a foreign text: the message is its first line, lower case, no full stop; the
/// rest is detail.
fn sentence(kind: ErrorKind, text: &str) -> Error {
    let text = text.trim();
    let (first, rest) = text.split_once('\n').map_or((text, ""), |(first, rest)| (first, rest.trim()));
    let error = Error::new(kind, lower_first(first.trim_end_matches('.')));
    if rest.is_empty() { error } else { error.with_detail(rest) }
}

/// Lower-cases the first word, unless it is an abbreviation or a name.
fn lower_first(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next();
    let second = characters.clone().next();
    match first {
        Some(first) if second.is_none_or(|second| second.is_lowercase() || second == ' ') => {
            first.to_lowercase().chain(characters).collect()
        }
        _ => text.to_owned(),
    }
}

/// Adds what a diagnostic holds: the place, and its advice if the error has no hint yet.
fn place(error: Error, diagnostic: &Diagnostic, sql: Option<&str>) -> Error {
    let span = diagnostic.span.as_ref().or_else(|| diagnostic.notes.first()?.span.as_ref());
    let error = match span.and_then(|span| range(span, sql?)) {
        Some(span) if error.span().is_none() => error.with_span(span),
        _ => error,
    };
    match diagnostic.helps.first() {
        Some(help) if error.hint().is_none() && !help.message.contains("possible column") => {
            error.with_hint(lower_first(&help.message))
        }
        _ => error,
    }
}

fn range(span: &Span, sql: &str) -> Option<std::ops::Range<usize>> {
    let location = |place: datafusion::common::Location| Location { line: place.line, column: place.column };
    byte_range(sql, TokenSpan { start: location(span.start), end: location(span.end) })
}
