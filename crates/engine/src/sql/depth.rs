//! Limits on how deep SQL may be nested.
//!
//! We, the parser and the planner walk, clone and drop syntax trees by recursion, and not every such
//! recursion checks its stack. So depth is limited three times: in the tokens, where whatever can become a
//! level of the tree is counted roughly, so that a tree that is too deep can be built and dropped on a stack
//! large enough for it; in the parsed tree; and in the statement that is planned, with views replaced by
//! their queries.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, Expr, Ident, ObjectNamePart, Query, Select, SetExpr, SetOperator, SetQuantifier, TableFactor,
    VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::bind::relations::normalized;
use crate::error::{Error, ErrorKind, Result};
use crate::sql::parser::NESTING_MAX;
use crate::sql::text::byte_range;
use crate::sql::walk::walk;

/// Levels of a statement: not only parentheses count, but also operators in a row, joins of a FROM and set
/// operations.
const DEPTH_MAX: usize = 1000;
/// A query inside another counts as this many levels: planning takes longer with each enclosing query.
const QUERY_LEVELS: usize = 5;
/// A set operation inside another counts as this many levels: walking them takes more stack.
const SET_LEVELS: usize = 4;
/// Chains of at least this many UNIONs become a balanced tree. Shorter ones keep the order in which their
/// types are unified.
const UNIONS_BALANCED_MIN: usize = 64;
/// Queries nested in expressions and in WITH: the planner visits each twice for every enclosing one, so 2^n
/// times.
const BRANCHES_MAX: usize = 16;
/// Relations that a statement may read; each use of a view or of a query of WITH counts all relations inside.
const RELATIONS_MAX: usize = 20_000;
/// Nested brackets in the text. The parser allows fewer, but not every construct counts them.
const BRACKETS_MAX: usize = 400;
/// Successive NOTs, of which the parser allows as many as brackets; behind SELECT it is two levels deep itself.
const NEGATIONS_MAX: usize = NESTING_MAX - 3;
/// Tokens between two commas or brackets, names and constants not counted: more could become a tree too deep
/// for [`PARSING_STACK_BYTES`].
const ROW_MAX: usize = 20_000;
/// Levels for which any stack has room.
const ROW_SMALL: usize = 200;
/// Dropping a level of the tree takes less than 3 kB, also in unoptimised builds; the parser's own recursion
/// is bounded.
const PARSING_STACK_BYTES: usize = 96 << 20;
/// The stack that parsing needs when nothing is deep.
const PARSING_STACK_SMALL_BYTES: usize = 512 << 10;

/// Runs `parse` on a stack that is large enough to build and drop a tree of `levels` levels.
pub(crate) fn with_stack<T>(levels: usize, parse: impl FnOnce() -> T) -> T {
    if levels > ROW_SMALL {
        stacker::grow(PARSING_STACK_BYTES, parse)
    } else {
        stacker::maybe_grow(PARSING_STACK_SMALL_BYTES, PARSING_STACK_BYTES, parse)
    }
}

/// An upper bound of the levels of the tree that `tokens` become: the tokens that may become levels are
/// counted between commas, and of several brackets the deepest counts.
///
/// # Errors
/// [`ErrorKind::Syntax`] for more levels than the largest parsing stack has room for.
pub(crate) fn levels_of_tokens(sql: &str, tokens: &[TokenWithSpan]) -> Result<usize> {
    let mut open = vec![Bracket::default()];
    let mut longest = 0;
    let mut before = None;
    for token in tokens {
        if matches!(token.token, Token::Whitespace(_)) {
            continue;
        }
        let innermost = open.len() - 1;
        let bracket = &mut open[innermost];
        bracket.take(&token.token, before);
        let levels = bracket.levels();
        longest = longest.max(levels);
        let is_negated = bracket.negations > NEGATIONS_MAX;
        if levels > ROW_MAX || is_negated || bracket.subscripts > BRACKETS_MAX || open.len() > BRACKETS_MAX {
            let error = too_deep(if is_negated { NESTING_MAX } else { DEPTH_MAX });
            return Err(match byte_range(sql, token.span) {
                Some(span) => error.with_span(span),
                None => error,
            });
        }
        match &token.token {
            Token::LParen | Token::LBracket | Token::LBrace => open.push(Bracket::default()),
            Token::Lt if is_type_with_parts(before) => {
                open.push(Bracket { is_type: true, ..Bracket::default() });
            }
            Token::Gt => close_type(&mut open),
            Token::ShiftRight => (0..2).for_each(|_| close_type(&mut open)),
            Token::RParen | Token::RBracket | Token::RBrace => {
                // A `<` that is still open here was a comparison, not the beginning of a type's parts.
                while open.last().is_some_and(|bracket| bracket.is_type) {
                    close(&mut open);
                }
                close(&mut open);
            }
            Token::SemiColon => open = vec![Bracket::default()],
            _ => {}
        }
        before = Some(&token.token);
    }
    Ok(longest)
}

/// The tokens so far inside one pair of brackets.
#[derive(Default)]
struct Bracket {
    /// Whether the bracket is the `<` of a type: `ARRAY<INT>`.
    is_type: bool,
    /// Counted tokens since the last comma.
    row: usize,
    /// The most levels of any bracket since the last comma.
    inside: usize,
    /// The most levels between two commas so far.
    past: usize,
    /// Set operations so far. They nest in each other, whatever commas are between them.
    set_operations: usize,
    /// Successive subscripts, or `[]` of types.
    subscripts: usize,
    /// Successive NOTs. Where there are too many, the parser takes the first one for a name.
    negations: usize,
}

impl Bracket {
    fn take(&mut self, token: &Token, before: Option<&Token>) {
        let is_not = matches!(token, Token::Word(word) if word.keyword == Keyword::NOT);
        self.negations = if is_not { self.negations + 1 } else { 0 };
        match token {
            Token::Comma => self.begin_row(),
            Token::Number(..) | Token::SingleQuotedString(_) | Token::Placeholder(_) => {}
            Token::Word(word) => match word.keyword {
                Keyword::NoKeyword => {}
                Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT | Keyword::MINUS => {
                    self.set_operations += 1;
                    self.row += 1;
                }
                Keyword::SELECT if follows_set_operator(before) => self.begin_row(),
                _ => self.row += 1,
            },
            Token::LBracket => {
                self.row += 1;
                self.subscripts = if before == Some(&Token::RBracket) { self.subscripts + 1 } else { 1 };
            }
            _ => self.row += 1,
        }
    }

    fn begin_row(&mut self) {
        self.past = self.past.max(self.row + self.inside);
        (self.row, self.inside) = (0, 0);
    }

    fn levels(&self) -> usize {
        self.set_operations + self.past.max(self.row + self.inside)
    }
}

fn close(open: &mut Vec<Bracket>) {
    if open.len() < 2 {
        return;
    }
    if let (Some(closed), Some(around)) = (open.pop(), open.last_mut()) {
        around.inside = around.inside.max(closed.levels());
    }
}

fn close_type(open: &mut Vec<Bracket>) {
    if open.last().is_some_and(|bracket| bracket.is_type) {
        close(open);
    }
}

/// Whether a `<` after this token begins the parts of a type.
fn is_type_with_parts(before: Option<&Token>) -> bool {
    matches!(before, Some(Token::Word(word))
        if matches!(word.keyword, Keyword::ARRAY | Keyword::MAP | Keyword::STRUCT | Keyword::TABLE))
}

/// Whether a SELECT after this token is the right side of a set operation.
fn follows_set_operator(before: Option<&Token>) -> bool {
    matches!(before, Some(Token::Word(word)) if matches!(word.keyword,
        Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT | Keyword::MINUS | Keyword::ALL | Keyword::DISTINCT | Keyword::NAME))
}

/// Turns long chains of UNION, each over the one before, into balanced trees with the same rows.
pub(crate) fn balance_unions(statement: &mut impl VisitMut) {
    struct Unions;
    impl VisitorMut for Unions {
        type Break = Infallible;

        fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Infallible> {
            balance(&mut query.body);
            ControlFlow::Continue(())
        }
    }
    let ControlFlow::Continue(()) = walk(statement, &mut Unions);
}

fn balance(body: &mut Box<SetExpr>) {
    let union_of = |body: &SetExpr| match body {
        SetExpr::SetOperation { op: SetOperator::Union, set_quantifier, .. } => Some(*set_quantifier),
        _ => None,
    };
    let Some(wanted @ (SetQuantifier::All | SetQuantifier::Distinct | SetQuantifier::None)) = union_of(body)
    else {
        return;
    };
    let mut count = 0;
    let mut next = body.as_ref();
    while let SetExpr::SetOperation { op: SetOperator::Union, set_quantifier, left, .. } = next
        && *set_quantifier == wanted
    {
        count += 1;
        next = left.as_ref();
    }
    if count < UNIONS_BALANCED_MIN {
        return;
    }
    let nothing =
        SetExpr::Values(ast::Values { explicit_row: false, value_keyword: false, rows: Vec::new() });
    let mut rest = std::mem::replace(body.as_mut(), nothing);
    let mut parts = Vec::with_capacity(count + 1);
    for _ in 0..count {
        rest = match rest {
            SetExpr::SetOperation { left, right, .. } => {
                parts.push(right);
                *left
            }
            other => other,
        };
    }
    parts.push(Box::new(rest));
    parts.reverse();
    while parts.len() > 1 {
        let mut pairs = Vec::with_capacity(parts.len().div_ceil(2));
        let mut left_over = parts.into_iter();
        while let Some(left) = left_over.next() {
            pairs.push(match left_over.next() {
                Some(right) => Box::new(SetExpr::SetOperation {
                    left,
                    op: SetOperator::Union,
                    set_quantifier: wanted,
                    right,
                }),
                None => left,
            });
        }
        parts = pairs;
    }
    if let Some(whole) = parts.pop() {
        *body = whole;
    }
}

/// Refuses a statement that is nested too deep, or reads too many relations, to be planned.
///
/// # Errors
/// [`ErrorKind::Syntax`].
pub(crate) fn check(statement: &mut impl VisitMut) -> Result<()> {
    let mut measure = Measure { depth: 0, branches: 0, scopes: vec![Scope::default()] };
    match walk(statement, &mut measure) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

fn too_deep(levels_max: usize) -> Error {
    let message = format!("SQL is nested more than {levels_max} levels deep, operators in a row counted");
    Error::new(ErrorKind::Syntax, message)
        .with_hint("use IN (...) instead of a chain of ORs, VALUES instead of a chain of UNIONs")
}

/// The levels of a query, and the relations that it reads.
#[derive(Clone, Copy, Default)]
struct Size {
    levels: usize,
    relations: usize,
}

/// A query that is being walked.
#[derive(Default)]
struct Scope {
    /// The depth at which it begins.
    depth: usize,
    size: Size,
    /// Names of WITH whose queries are not visited yet; the visitor meets these queries first, in this order.
    unseen: VecDeque<String>,
    /// The sizes of the queries of WITH.
    named: HashMap<String, Size>,
    /// Whether the query is itself one of WITH.
    is_named: bool,
}

struct Measure {
    depth: usize,
    branches: usize,
    /// The enclosing queries, outermost first; the first is the statement itself.
    scopes: Vec<Scope>,
}

impl Measure {
    fn scope(&mut self) -> &mut Scope {
        let last = self.scopes.len() - 1;
        &mut self.scopes[last]
    }

    /// Adds something of this size at the current place.
    fn note(&mut self, size: Size) -> ControlFlow<Error> {
        let reached = self.depth + size.levels;
        let scope = self.scope();
        scope.size.levels = scope.size.levels.max(reached - scope.depth);
        scope.size.relations = scope.size.relations.saturating_add(size.relations);
        if reached > DEPTH_MAX {
            return ControlFlow::Break(too_deep(DEPTH_MAX));
        }
        if scope.size.relations > RELATIONS_MAX {
            let message = format!("the statement reads more than {RELATIONS_MAX} relations");
            return ControlFlow::Break(Error::new(ErrorKind::Syntax, message).with_hint(
                "each use of a view or of a query of WITH counts with all that is inside; CREATE TABLE ... AS keeps rows",
            ));
        }
        ControlFlow::Continue(())
    }

    fn enter(&mut self, levels: usize) -> ControlFlow<Error> {
        self.depth += levels;
        self.note(Size::default())
    }

    fn branch(&mut self, is_branch: bool) -> ControlFlow<Error> {
        self.branches += usize::from(is_branch);
        if self.branches > BRANCHES_MAX {
            let message = format!("queries are inside each other more than {BRANCHES_MAX} deep");
            let error = Error::new(ErrorKind::Syntax, message);
            return ControlFlow::Break(
                error.with_hint("queries in FROM, and queries of one WITH, may be more"),
            );
        }
        ControlFlow::Continue(())
    }

    fn leave(&mut self, levels: usize) {
        self.depth -= levels;
    }
}

impl VisitorMut for Measure {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        let names = query.with.iter().flat_map(|with| &with.cte_tables);
        let unseen = names.map(|cte| normalized(&cte.alias.name)).collect();
        let is_named = !self.scope().unseen.is_empty();
        self.scopes.push(Scope { depth: self.depth, unseen, is_named, ..Scope::default() });
        self.branch(is_named)?;
        self.enter(levels_of_query(query))
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        self.leave(levels_of_query(query));
        let Some(inner) = self.scopes.pop() else { return ControlFlow::Continue(()) };
        self.branches -= usize::from(inner.is_named);
        match self.scope().unseen.pop_front() {
            Some(name) => {
                self.scope().named.insert(name, inner.size);
                ControlFlow::Continue(())
            }
            None => self.note(inner.size),
        }
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        self.enter(levels_of_select(select))
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        self.leave(levels_of_select(select));
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        let known = match factor {
            TableFactor::Table { name, args: None, .. } => match name.0.as_slice() {
                [ObjectNamePart::Identifier(name)] => self.named(name),
                _ => None,
            },
            _ => None,
        };
        self.depth += 1;
        let known = known.unwrap_or_default();
        self.note(Size { levels: known.levels, relations: known.relations + 1 })
    }

    fn post_visit_table_factor(&mut self, _: &mut TableFactor) -> ControlFlow<Error> {
        self.leave(1);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        self.branch(is_query(expr))?;
        self.enter(levels_of_expr(expr))
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        self.leave(levels_of_expr(expr));
        self.branches -= usize::from(is_query(expr));
        ControlFlow::Continue(())
    }

    fn pre_visit_statement(&mut self, _: &mut ast::Statement) -> ControlFlow<Error> {
        self.enter(1)
    }

    fn post_visit_statement(&mut self, _: &mut ast::Statement) -> ControlFlow<Error> {
        self.leave(1);
        ControlFlow::Continue(())
    }
}

impl Measure {
    /// The size of the query of WITH that a name means here.
    fn named(&self, name: &Ident) -> Option<Size> {
        let name = normalized(name);
        self.scopes.iter().rev().find_map(|scope| scope.named.get(&name).copied())
    }
}

/// The nested set operations of a query, plus its pipe operators, which nest as well.
fn levels_of_query(query: &Query) -> usize {
    let mut deepest = 0;
    let mut bodies = vec![(query.body.as_ref(), 0)];
    while let Some((body, level)) = bodies.pop() {
        deepest = deepest.max(level);
        if let SetExpr::SetOperation { left, right, .. } = body {
            bodies.push((left.as_ref(), level + 1));
            bodies.push((right.as_ref(), level + 1));
        }
    }
    QUERY_LEVELS + SET_LEVELS * deepest + query.pipe_operators.len()
}

/// The joins of a SELECT: each is one level above the one before.
fn levels_of_select(select: &Select) -> usize {
    select.from.iter().map(|from| 1 + from.joins.len()).sum::<usize>() + select.lateral_views.len()
}

fn is_query(expr: &Expr) -> bool {
    matches!(expr, Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. })
}

/// The levels that an expression adds; each field or subscript behind it is one level above the one before.
fn levels_of_expr(expr: &Expr) -> usize {
    match expr {
        Expr::CompoundFieldAccess { access_chain, .. } => 1 + access_chain.len(),
        Expr::CompoundIdentifier(parts) => parts.len(),
        Expr::JsonAccess { path, .. } => 1 + path.path.len(),
        _ => 1,
    }
}
