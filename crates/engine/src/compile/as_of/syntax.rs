//! Tokens and trees of ASOF JOIN.

use std::ops::ControlFlow;
use std::path::Path;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, Join, JoinConstraint, JoinOperator, Select, SetExpr, TableAlias,
    TableFactor, Value, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use super::MARK;
use crate::error::{Error, ErrorKind, Result};
use crate::sql::dialect::KeirinDialect;
use crate::sql::walk::walk;

/// What stands in the MATCH_CONDITION of a join whose condition is behind ON or USING.
const PAIRS: &str = "inner";
const LEFT_ROWS: &str = "left";
const OTHER: &str = "other";

/// Gives each `ASOF [INNER | LEFT [OUTER]] JOIN t ON ...` the MATCH_CONDITION that the parser wants, which only says what
/// kind of join it is. Says whether there are any; [`mark_as_of_joins`] is for the tree.
pub(crate) fn as_of_conditions(tokens: &mut Vec<TokenWithSpan>) -> bool {
    use Keyword::{
        ANTI, CROSS, FULL, GROUP, HAVING, INNER, JOIN, LEFT, LIMIT, MATCH_CONDITION, NATURAL, ON, ORDER,
        OUTER, RIGHT, SEMI, UNION, USING, WHERE,
    };
    let keyword = |token: &TokenWithSpan| match &token.token {
        Token::Word(word) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    };
    let is_space = |token: &TokenWithSpan| matches!(token.token, Token::Whitespace(_));
    let mut has_any = false;
    for start in (0..tokens.len()).rev() {
        let before = tokens[..start].iter().rfind(|token| !is_space(token));
        let is_behind_table = before.is_some_and(|before| match &before.token {
            Token::Word(_) => ![Keyword::AS, Keyword::FROM, JOIN].contains(&keyword(before)),
            Token::RParen | Token::SingleQuotedString(_) => true,
            _ => false,
        });
        if keyword(&tokens[start]) != Keyword::ASOF || !is_behind_table {
            continue;
        }
        let words = (start + 1..tokens.len()).filter(|place| !is_space(&tokens[*place]));
        let places: Vec<usize> = words.take(3).collect();
        let words: Vec<Keyword> = places.iter().map(|place| keyword(&tokens[*place])).collect();
        let (kind, dropped) = match words[..] {
            [JOIN, ..] => (PAIRS, 0),
            [INNER, JOIN, ..] => (PAIRS, 1),
            [LEFT, JOIN, ..] => (LEFT_ROWS, 1),
            [LEFT, OUTER, JOIN] => (LEFT_ROWS, 2),
            [RIGHT | FULL | SEMI | ANTI, JOIN, ..] => (OTHER, 1),
            [RIGHT | FULL | LEFT, OUTER | SEMI | ANTI, JOIN] => (OTHER, 2),
            _ => continue,
        };
        has_any = true;
        let mut depth = 0;
        let condition = (places[dropped] + 1..tokens.len()).find(|place| {
            match &tokens[*place].token {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                _ => {}
            }
            let ends = [
                ON,
                USING,
                MATCH_CONDITION,
                WHERE,
                JOIN,
                LEFT,
                INNER,
                RIGHT,
                FULL,
                CROSS,
                NATURAL,
                GROUP,
                HAVING,
                ORDER,
                LIMIT,
                UNION,
            ];
            let is_end = ends.contains(&keyword(&tokens[*place]))
                || matches!(tokens[*place].token, Token::SemiColon | Token::Comma | Token::EOF);
            depth < 0 || depth == 0 && is_end
        });
        let condition = condition.unwrap_or(tokens.len());
        if tokens.get(condition).map(keyword) != Some(MATCH_CONDITION) {
            let kind = Token::SingleQuotedString(kind.to_owned());
            let made = [Token::make_keyword("MATCH_CONDITION"), Token::LParen, kind, Token::RParen];
            let span = tokens.get(condition).unwrap_or(&tokens[start]).span;
            tokens.splice(condition..condition, made.map(|token| TokenWithSpan { token, span }));
        }
        tokens.drain(places[0]..places[dropped]);
    }
    has_any
}

/// Makes joins with a marked condition of the ASOF JOINs in a tree.
///
/// # Errors
/// [`ErrorKind::Syntax`] for a join without a condition that compares.
pub(crate) fn mark_as_of_joins(tree: &mut impl VisitMut) -> Result<()> {
    struct Joins;

    impl VisitorMut for Joins {
        type Break = Error;

        fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
            all_marked(select.from.iter_mut().flat_map(|tables| &mut tables.joins))
        }

        fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
            match factor {
                TableFactor::NestedJoin { table_with_joins, .. } => all_marked(&mut table_with_joins.joins),
                _ => ControlFlow::Continue(()),
            }
        }
    }

    match walk(tree, &mut Joins) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

fn all_marked<'a>(joins: impl IntoIterator<Item = &'a mut Join>) -> ControlFlow<Error> {
    match joins.into_iter().try_for_each(marked) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    }
}

fn marked(join: &mut Join) -> Result<()> {
    let JoinOperator::AsOf { match_condition, constraint } = &mut join.join_operator else { return Ok(()) };
    let none = || Expr::value(Value::Null);
    let condition = std::mem::replace(match_condition, none());
    let kind = match &condition {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(kind) => Some(kind.clone()),
            _ => None,
        },
        _ => None,
    };
    let syntax = |message: &str| Error::new(ErrorKind::Syntax, format!("syntax error: {message}"));
    if kind.as_deref() == Some(OTHER) {
        return Err(syntax("ASOF JOIN is INNER or LEFT"));
    }
    let constraint = std::mem::replace(constraint, JoinConstraint::None);
    let constraint = match (&kind, constraint) {
        (None, JoinConstraint::On(equal)) => {
            let (left, right) = (Box::new(equal), Box::new(called(condition)?));
            JoinConstraint::On(Expr::BinaryOp { left, op: BinaryOperator::And, right })
        }
        (None, JoinConstraint::None) => JoinConstraint::On(called(condition)?),
        (Some(_), JoinConstraint::On(mut conditions)) => {
            if mark_comparisons(&mut conditions)? == 0 {
                return Err(syntax("ASOF JOIN needs a condition with <, <=, > or >= beside those with ="));
            }
            JoinConstraint::On(conditions)
        }
        (Some(_), JoinConstraint::Using(columns)) => {
            let Some(column) = columns.last().and_then(|name| name.0.last()).and_then(|part| part.as_ident())
            else {
                return Err(syntax("ASOF JOIN needs a column to compare in USING"));
            };
            filter_by_mark(&mut join.relation, &column.value)?;
            JoinConstraint::Using(columns)
        }
        (None, _) => return Err(syntax("MATCH_CONDITION of ASOF JOIN is followed by ON, or by nothing")),
        (Some(_), _) => return Err(syntax("ASOF JOIN needs ON, USING or MATCH_CONDITION")),
    };
    join.join_operator = match kind.as_deref() {
        Some(PAIRS) => JoinOperator::Inner(constraint),
        _ => JoinOperator::LeftOuter(constraint),
    };
    Ok(())
}

/// Marks the comparisons that AND joins, and returns how many there are.
fn mark_comparisons(condition: &mut Expr) -> Result<usize> {
    use BinaryOperator::{And, Gt, GtEq, Lt, LtEq};
    match condition {
        Expr::Nested(inner) => mark_comparisons(inner),
        Expr::BinaryOp { left, op: And, right } => Ok(mark_comparisons(left)? + mark_comparisons(right)?),
        Expr::BinaryOp { op: Gt | GtEq | Lt | LtEq, .. } => {
            *condition = called(std::mem::replace(condition, Expr::value(Value::Null)))?;
            Ok(1)
        }
        _ => Ok(0),
    }
}

/// The parser of text of our own, whose tokens are nowhere.
fn parser(text: &str) -> Result<Parser<'static>> {
    let internal = |error: &dyn std::fmt::Display| Error::new(ErrorKind::Internal, error.to_string());
    let tokens = Tokenizer::new(&KeirinDialect, text).tokenize().map_err(|error| internal(&error))?;
    Ok(Parser::new(&KeirinDialect).with_tokens(tokens))
}

/// The mark around a condition.
fn called(condition: Expr) -> Result<Expr> {
    let internal = |what: &str| Error::new(ErrorKind::Internal, what.to_owned());
    let mut call =
        parser(&format!("{MARK}(true)"))?.parse_expr().map_err(|error| internal(&error.to_string()))?;
    let mut condition = Some(condition);
    crate::sql::walk::each_expression_mut(&mut call, &mut |inner| {
        if matches!(inner, Expr::Value(_))
            && let Some(condition) = condition.take()
        {
            *inner = condition;
        }
    });
    Ok(call)
}

/// The name of a table, or that of a file without its folder and its ending.
fn short_name(name: &Ident) -> Ident {
    match Path::new(&name.value).file_stem().and_then(|stem| stem.to_str()) {
        Some(stem) if name.quote_style == Some('\'') => Ident::with_quote('"', stem),
        _ => name.clone(),
    }
}

/// Makes `t` the rows of `t` for which the mark around the name of a column is true, under the same name.
fn filter_by_mark(relation: &mut TableFactor, column: &str) -> Result<()> {
    let internal = |what: &str| Error::new(ErrorKind::Internal, what.to_owned());
    let mut query = parser(&format!("SELECT * FROM t WHERE {MARK}('{}')", column.replace('\'', "''")))?
        .parse_query()
        .map_err(|error| internal(&error.to_string()))?;
    let SetExpr::Select(select) = query.body.as_mut() else { return Err(internal("a query is no query")) };
    let alias = match &*relation {
        TableFactor::Table { alias: Some(alias), .. } | TableFactor::Derived { alias: Some(alias), .. } => {
            Some(alias.name.clone())
        }
        TableFactor::Table { name, .. } => name.0.last().and_then(|part| part.as_ident()).map(short_name),
        _ => None,
    };
    let alias = alias.map(|name: Ident| TableAlias { explicit: true, name, columns: Vec::new(), at: None });
    let from = &mut select.from[0].relation;
    std::mem::swap(from, relation);
    *relation = TableFactor::Derived { lateral: false, subquery: query, alias, sample: None };
    Ok(())
}
