//! The clauses of expressions, and expressions that the planner does not know.

use datafusion::sql::sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArgumentList, FunctionArguments, NullTreatment, WindowFrame, WindowSpec, WindowType,
};

use super::queries::{order_keys, wildcard};
use super::{refuse, unsupported};
use crate::error::{Error, ErrorKind, Result};
use crate::expressions::functions::{Kind, kind};

/// Window functions that IGNORE NULLS changes; for others the planner accepts and ignores it.
const IGNORE_NULLS: &[&str] = &["first_value", "lag", "last_value", "lead", "nth_value"];

pub(super) fn expr(expr: &Expr) -> Result<()> {
    match expr {
        Expr::Function(call) => function(call),
        Expr::Cast { kind: _, expr: _, data_type: _, array, format } => refuse(&[
            (*array, "CAST ... AS type ARRAY", "CAST(x AS type[])"),
            (format.is_some(), "CAST with FORMAT", "strptime(s, '%d.%m.%Y'), to_char(t, '%d.%m.%Y')"),
        ]),
        Expr::Like { negated: _, any, expr: _, pattern: _, escape_char: _ }
        | Expr::ILike { negated: _, any, expr: _, pattern: _, escape_char: _ } => {
            refuse(&[(*any, "LIKE ANY", "regexp_like(s, 'a|b'), or LIKE with OR")])
        }
        Expr::Struct { values: _, fields } => {
            refuse(&[(!fields.is_empty(), "STRUCT<...>(...)", "{'name': value}")])
        }
        Expr::Subquery(_)
        | Expr::Identifier(_)
        | Expr::CompoundIdentifier(_)
        | Expr::CompoundFieldAccess { .. }
        | Expr::JsonAccess { .. }
        | Expr::IsFalse(_)
        | Expr::IsNotFalse(_)
        | Expr::IsTrue(_)
        | Expr::IsNotTrue(_)
        | Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::IsUnknown(_)
        | Expr::IsNotUnknown(_)
        | Expr::IsDistinctFrom(..)
        | Expr::IsNotDistinctFrom(..)
        | Expr::InList { .. }
        | Expr::InSubquery { .. }
        | Expr::Between { .. }
        | Expr::BinaryOp { .. }
        | Expr::SimilarTo { .. }
        | Expr::RLike { .. }
        | Expr::AnyOp { .. }
        | Expr::AllOp { .. }
        | Expr::UnaryOp { .. }
        | Expr::AtTimeZone { .. }
        | Expr::Collate { .. }
        | Expr::Extract { .. }
        | Expr::Ceil { .. }
        | Expr::Floor { .. }
        | Expr::Position { .. }
        | Expr::Substring { .. }
        | Expr::Trim { .. }
        | Expr::Overlay { .. }
        | Expr::Nested(_)
        | Expr::Value(_)
        | Expr::TypedString(_)
        | Expr::Case { .. }
        | Expr::Exists { .. }
        | Expr::GroupingSets(_)
        | Expr::Cube(_)
        | Expr::Rollup(_)
        | Expr::Tuple(_)
        | Expr::Named { .. }
        | Expr::Dictionary(_)
        | Expr::Map(_)
        | Expr::Array(_)
        | Expr::Interval(_)
        | Expr::Wildcard(_)
        | Expr::QualifiedWildcard(..)
        | Expr::Lambda(_) => Ok(()),
        Expr::IsNormalized { .. } => Err(unsupported("IS NORMALIZED")),
        Expr::InUnnest { .. } => Err(unsupported("IN UNNEST(...)").with_hint("x = ANY(list)")),
        Expr::Convert { .. } => Err(unsupported("CONVERT").with_hint("CAST(x AS type)")),
        Expr::Prefixed { prefix, value: _ } => Err(unsupported(format!("{prefix} before a text"))),
        Expr::MatchAgainst { .. } => Err(unsupported("MATCH ... AGAINST")),
        Expr::OuterJoin(_) => Err(unsupported("(+)").with_hint("LEFT JOIN ... ON")),
        Expr::Prior(_) => Err(unsupported("PRIOR").with_hint("WITH RECURSIVE")),
        Expr::MemberOf(_) => Err(unsupported("MEMBER OF").with_hint("x = ANY(list)")),
    }
}

fn function(call: &Function) -> Result<()> {
    let Function { name, uses_odbc_syntax: _, parameters, args, filter, null_treatment, over, within_group } =
        call;
    if *parameters != FunctionArguments::None {
        return Err(unsupported(format!("{name} with two lists of arguments")));
    }
    order_keys(within_group)?;
    let mut treatment = null_treatment.as_ref();
    let mut has_arguments_clause = false;
    match args {
        FunctionArguments::None => {}
        FunctionArguments::Subquery(_) => {
            return Err(unsupported(format!("a query as the argument of {name}"))
                .with_hint(format!("{name}((SELECT ...)) takes the value of one")));
        }
        FunctionArguments::List(FunctionArgumentList { duplicate_treatment, args, clauses }) => {
            for clause in clauses {
                match clause {
                    FunctionArgumentClause::IgnoreOrRespectNulls(nulls) => treatment = Some(nulls),
                    FunctionArgumentClause::OrderBy(keys) => order_keys(keys)?,
                    _ => {}
                }
            }
            args.iter().try_for_each(|argument| match argument {
                FunctionArg::Unnamed(argument)
                | FunctionArg::Named { arg: argument, .. }
                | FunctionArg::ExprNamed { arg: argument, .. } => match argument {
                    FunctionArgExpr::WildcardWithOptions(options) => {
                        wildcard(options)?;
                        Err(unsupported(format!("a choice of columns in {name}(*)")))
                    }
                    FunctionArgExpr::Expr(_)
                    | FunctionArgExpr::QualifiedWildcard(_)
                    | FunctionArgExpr::Wildcard => Ok(()),
                },
            })?;
            has_arguments_clause =
                matches!(duplicate_treatment, Some(DuplicateTreatment::Distinct)) || !clauses.is_empty();
        }
    }
    if let Some(WindowType::WindowSpec(spec)) = over {
        window(spec)?;
    }
    let name = name.to_string().to_lowercase();
    let has_clauses = has_arguments_clause
        || filter.is_some()
        || treatment.is_some()
        || over.is_some()
        || !within_group.is_empty();
    match kind(&name) {
        Some(Kind::Scalar) if has_clauses => {
            let message =
                format!("function '{name}' takes no DISTINCT, ORDER BY, FILTER, OVER or IGNORE NULLS");
            Err(Error::new(ErrorKind::Invalid, message).with_hint("it gives one value for each row"))
        }
        Some(Kind::Window) if has_arguments_clause && treatment.is_none() => {
            let message = format!("window function '{name}' takes no DISTINCT and no ORDER BY of its own");
            Err(Error::new(ErrorKind::Invalid, message).with_hint("OVER (ORDER BY ...)"))
        }
        Some(Kind::Aggregate | Kind::Window)
            if over.is_some()
                && matches!(treatment, Some(NullTreatment::IgnoreNulls))
                && !IGNORE_NULLS.contains(&name.as_str()) =>
        {
            Err(unsupported(format!("IGNORE NULLS of {name} as a window function"))
                .with_hint(format!("{name}(x) FILTER (WHERE x IS NOT NULL) OVER (...)")))
        }
        _ => Ok(()),
    }
}

fn window(spec: &WindowSpec) -> Result<()> {
    let WindowSpec { window_name: _, partition_by: _, order_by, window_frame } = spec;
    if let Some(WindowFrame { units: _, start_bound: _, end_bound: _ }) = window_frame {}
    order_keys(order_by)
}
