//! Text to statements.
//!
//! sqlparser reads the SQL; this file adds the statements that it lacks or reads differently (COPY,
//! SUMMARIZE, DESCRIBE of a query), splits scripts into statements and numbers the `?` parameters.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{
    self, Expr, Ident, ObjectName, Query, TableFactor, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Span, Token, TokenWithSpan, Tokenizer};

use crate::compile::as_of::{as_of_conditions, mark_as_of_joins};
use crate::error::{Error, ErrorKind, Result};
use crate::explain_error::explain_syntax;
use crate::sql::alterations::{Alteration, alteration};
use crate::sql::depth;
use crate::sql::dialect::KeirinDialect;
use crate::sql::numbers::{join_digits, name_units};
use crate::sql::table_clauses::{TableClauses, name_codecs, take_clauses};
use crate::sql::text::byte_offset;
use crate::sql::tokens::{
    distinct_as_operators, distinct_from_operators, exclusions_as_keys, forget_materialized,
    number_parameters, select_all_where_from_comes_first, struct_fields_in_angle_brackets, versions_as_names,
};

const DIALECT: KeirinDialect = KeirinDialect;
/// The most nesting that the parser accepts; its stack frames are large, so this also bounds its stack.
pub(crate) const NESTING_MAX: usize = 128;

/// Kinds of objects that CREATE and DROP take.
const OBJECTS: &[&str] = &["DATABASE", "FUNCTION", "INDEX", "SCHEMA", "TABLE", "TRIGGER", "VIEW"];

/// One parsed statement. Run it with [`Session::run`](crate::Session::run).
#[derive(Clone, Debug)]
pub struct Statement {
    // Shared: a tree is cloned by recursion, and a caller's stack may be small.
    pub(crate) ast: Arc<Ast>,
    // The whole script: positions in errors are positions in the text that the caller wrote.
    pub(crate) script: String,
    range: Range<usize>,
}

impl Statement {
    /// The text of the statement, without the semicolon.
    pub fn text(&self) -> &str {
        &self.script[self.range.clone()]
    }

    /// Whether it only reads, by the look of it.
    pub(crate) fn is_query(&self) -> bool {
        matches!(&*self.ast, Ast::Sql(statement) if matches!(**statement, ast::Statement::Query(_)))
    }

    /// The kind of the statement, in upper case: `SELECT`, `CREATE TABLE`, `COPY`.
    pub(crate) fn tag(&self) -> String {
        let mut words =
            self.text().split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|w| !w.is_empty());
        let first = words.next().unwrap_or_default().to_ascii_uppercase();
        match first.as_str() {
            "CREATE" | "DROP" | "ALTER" => {
                let object = words.map(str::to_ascii_uppercase).find(|word| OBJECTS.contains(&word.as_str()));
                object.map_or(first.clone(), |object| format!("{first} {object}"))
            }
            "WITH" | "FROM" | "VALUES" | "" => "SELECT".to_owned(),
            _ => first,
        }
    }
}

/// The syntax tree of a statement.
#[derive(Clone, Debug)]
pub(crate) enum Ast {
    /// Standard SQL.
    Sql(Box<ast::Statement>),
    /// CREATE TABLE, and our clauses behind the columns.
    CreateTable { statement: Box<ast::Statement>, clauses: Box<TableClauses> },
    /// `ALTER TABLE [IF EXISTS] table alterations`.
    AlterTable { table: ObjectName, if_exists: bool, alterations: Vec<Alteration> },
    /// `CHECK TABLE table`: reports damage.
    CheckTable(ObjectName),
    /// `REPAIR TABLE table`: keeps the undamaged part.
    RepairTable(ObjectName),
    /// `REPAIR DATABASE`: goes back to the last version that can be read.
    RepairDatabase,
    /// `COPY (query) TO 'path' (options)`, or a table's name instead of the query.
    CopyTo { query: Box<Query>, path: Expr, options: Vec<(Ident, Expr)> },
    /// `COPY table [(columns)] FROM 'path' (options)`.
    CopyFrom { table: ObjectName, columns: Vec<Ident>, path: Expr, options: Vec<(Ident, Expr)> },
    /// `DESCRIBE table | query`: the columns.
    Describe(Box<Query>),
    /// `SUMMARIZE table | query`: statistics of each column.
    Summarize(Box<Query>),
}

impl VisitMut for Ast {
    fn visit<V: VisitorMut>(&mut self, visitor: &mut V) -> ControlFlow<V::Break> {
        match self {
            Self::Sql(statement) | Self::CreateTable { statement, .. } => statement.visit(visitor),
            Self::Describe(query) | Self::Summarize(query) => query.visit(visitor),
            Self::AlterTable { alterations, .. } => {
                alterations.iter_mut().try_for_each(|alteration| match alteration {
                    Alteration::Standard(operation) => operation.visit(visitor),
                    _ => ControlFlow::Continue(()),
                })
            }
            Self::CheckTable(_) | Self::RepairTable(_) | Self::RepairDatabase => ControlFlow::Continue(()),
            Self::CopyTo { query, path, options } => {
                query.visit(visitor)?;
                path.visit(visitor)?;
                options.iter_mut().try_for_each(|(_, value)| value.visit(visitor))
            }
            Self::CopyFrom { path, options, .. } => {
                path.visit(visitor)?;
                options.iter_mut().try_for_each(|(_, value)| value.visit(visitor))
            }
        }
    }
}

/// Parses a script: statements separated by semicolons.
///
/// # Errors
/// [`ErrorKind::Syntax`] for the first statement that does not parse, with its place in `sql`.
pub fn parse(sql: &str) -> Result<Vec<Statement>> {
    parse_tokens(sql, |_| ())
}

/// Parses the text of a view, without positions: they would be looked up in the statement that uses the view.
pub(crate) fn parse_view(definition: &str) -> Result<ast::CreateView> {
    let statements = parse_tokens(definition, |token| token.span = Span::empty())?;
    match statements.into_iter().next().map(|statement| Arc::unwrap_or_clone(statement.ast)) {
        Some(Ast::Sql(statement)) => match *statement {
            ast::Statement::CreateView(view) => Ok(view),
            other => Err(Error::new(ErrorKind::Internal, format!("a view is defined by {other}"))),
        },
        _ => Err(Error::new(ErrorKind::Internal, "a view has no definition")),
    }
}

fn parse_tokens(sql: &str, change: impl FnMut(&mut TokenWithSpan)) -> Result<Vec<Statement>> {
    let mut tokens = Tokenizer::new(&DIALECT, sql)
        .tokenize_with_location()
        .map_err(|error| explain_syntax(sql, &[], ParserError::TokenizerError(error.to_string())))?;
    join_digits(sql, &mut tokens)?;
    refuse_empty_names(sql, &tokens)?;
    depth::with_stack(depth::levels_of_tokens(sql, &tokens)?, || {
        tokens.iter_mut().for_each(change);
        number_parameters(&mut tokens);
        select_all_where_from_comes_first(&mut tokens);
        versions_as_names(&mut tokens);
        exclusions_as_keys(&mut tokens);
        let has_as_of = as_of_conditions(&mut tokens);
        name_units(sql, &mut tokens)?;
        struct_fields_in_angle_brackets(&mut tokens);
        forget_materialized(&mut tokens);
        let has_operators = distinct_as_operators(&mut tokens);
        statements_of(sql, tokens, has_operators, has_as_of)
    })
}

/// Refuses the names `""` and ` `` `, which nothing could show or ask for.
fn refuse_empty_names(sql: &str, tokens: &[TokenWithSpan]) -> Result<()> {
    let is_empty =
        |token: &&TokenWithSpan| matches!(&token.token, Token::Word(word) if word.value.is_empty());
    let Some(token) = tokens.iter().find(is_empty) else { return Ok(()) };
    let message = format!("a name must not be empty: {}", token.token);
    Err(explain_syntax(sql, tokens, ParserError::ParserError(format!("{message}{}", token.span.start))))
}

/// Parses tokens of `sql` that were changed; `has_operators` and `has_as_of` say whether there are those of
/// [`distinct_as_operators`] and [`as_of_conditions`].
fn statements_of(
    sql: &str,
    tokens: Vec<TokenWithSpan>,
    has_operators: bool,
    has_as_of: bool,
) -> Result<Vec<Statement>> {
    let mut parser = StatementParser {
        parser: Parser::new(&DIALECT)
            .with_tokens_with_locations(tokens.clone())
            .with_recursion_limit(NESTING_MAX),
    };
    let mut statements = Vec::new();
    loop {
        while parser.parser.consume_token(&Token::SemiColon) {}
        let start = parser.parser.peek_token_ref();
        if start.token == Token::EOF {
            return Ok(statements);
        }
        let start = byte_offset(sql, start.span.start).unwrap_or(0);
        let parsed = parser.statement().and_then(|ast| match parser.parser.peek_token_ref() {
            next if next.token == Token::EOF || next.token == Token::SemiColon => Ok(ast),
            next => parser.parser.expected("end of statement", next.clone()),
        });
        let mut ast = parsed.map_err(|error| explain_syntax(sql, &tokens, error))?;
        if has_operators {
            distinct_from_operators(&mut ast);
        }
        if has_as_of {
            mark_as_of_joins(&mut ast)?;
        }
        depth::balance_unions(&mut ast);
        depth::check(&mut ast)?;
        let next = parser.parser.peek_token_ref();
        let end = if next.token == Token::EOF { None } else { byte_offset(sql, next.span.start) };
        let text = sql[start..end.unwrap_or(sql.len())].trim_end();
        statements.push(Statement {
            ast: Arc::new(ast),
            script: sql.to_owned(),
            range: start..start + text.len(),
        });
    }
}

/// Whether `sql` ends with a semicolon outside quotes and comments, so that a shell may run it. That also
/// holds for text with an error that nothing after it can mend: running it shows the error.
pub fn is_complete(sql: &str) -> bool {
    let tokens = match Tokenizer::new(&DIALECT, sql).tokenize() {
        Ok(tokens) => tokens,
        // Only the tokenizer's messages tell that a quote or comment is still open.
        Err(error) => return !["Unterminated", "EOF"].iter().any(|sign| error.message.contains(sign)),
    };
    tokens.iter().rev().find(|token| !matches!(token, Token::Whitespace(_))) == Some(&Token::SemiColon)
}

/// sqlparser's parser, preceded by our statements.
struct StatementParser<'a> {
    parser: Parser<'a>,
}

impl StatementParser<'_> {
    fn statement(&mut self) -> Result<Ast, ParserError> {
        let Token::Word(word) = &self.parser.peek_token_ref().token else {
            return self.standard();
        };
        match word.value.to_ascii_uppercase().as_str() {
            "COPY" => self.copy(),
            "CREATE" if self.is_create_table() => self.create_table(),
            "ALTER" if self.keyword(1) == Keyword::TABLE => self.alter_table(),
            "CHECK" => self.table_after(Ast::CheckTable),
            "REPAIR" if self.keyword(1) == Keyword::DATABASE => {
                self.parser.advance_token();
                self.parser.advance_token();
                Ok(Ast::RepairDatabase)
            }
            "REPAIR" => self.table_after(Ast::RepairTable),
            "SUMMARIZE" => {
                self.parser.advance_token();
                self.table_or_query().map(Ast::Summarize)
            }
            "DESCRIBE" | "DESC" => {
                self.parser.advance_token();
                self.table_or_query().map(Ast::Describe)
            }
            _ => self.standard(),
        }
    }

    fn standard(&mut self) -> Result<Ast, ParserError> {
        self.parser.parse_statement().map(|statement| Ast::Sql(Box::new(statement)))
    }

    fn keyword(&self, index: usize) -> Keyword {
        match &self.parser.peek_nth_token_ref(index).token {
            Token::Word(word) => word.keyword,
            _ => Keyword::NoKeyword,
        }
    }

    /// Whether `CREATE [OR REPLACE] TABLE` follows, and no other kind of table.
    fn is_create_table(&self) -> bool {
        match self.keyword(1) {
            Keyword::TABLE => true,
            Keyword::OR => self.keyword(2) == Keyword::REPLACE && self.keyword(3) == Keyword::TABLE,
            _ => false,
        }
    }

    fn create_table(&mut self) -> Result<Ast, ParserError> {
        self.changed(
            |tokens| take_clauses(&DIALECT, tokens),
            |parser, clauses| {
                let statement = Box::new(parser.parse_statement()?);
                Ok(Ast::CreateTable { statement, clauses: Box::new(clauses) })
            },
        )
    }

    fn alter_table(&mut self) -> Result<Ast, ParserError> {
        self.changed(
            |tokens| Ok((name_codecs(&tokens), ())),
            |parser, ()| {
                parser.expect_keywords(&[Keyword::ALTER, Keyword::TABLE])?;
                let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
                let _ = parser.parse_keyword(Keyword::ONLY);
                let table = parser.parse_object_name(false)?;
                let alterations = parser.parse_comma_separated(alteration)?;
                Ok(Ast::AlterTable { table, if_exists, alterations })
            },
        )
    }

    /// Parses the statement again from changed tokens, for clauses that sqlparser does not know.
    fn changed<T>(
        &mut self,
        change: impl FnOnce(Vec<TokenWithSpan>) -> Result<(Vec<TokenWithSpan>, T), ParserError>,
        parse: impl FnOnce(&mut Parser<'_>, T) -> Result<Ast, ParserError>,
    ) -> Result<Ast, ParserError> {
        let is_end = |token: &TokenWithSpan| matches!(token.token, Token::SemiColon | Token::EOF);
        let mut tokens = Vec::new();
        while !tokens.last().is_some_and(is_end) {
            tokens.push(self.parser.peek_nth_token_no_skip(tokens.len()));
        }
        let count = tokens.len() - 1;
        let (tokens, taken) = change(tokens)?;
        let mut parser =
            Parser::new(&DIALECT).with_tokens_with_locations(tokens).with_recursion_limit(NESTING_MAX);
        let ast = parse(&mut parser, taken)?;
        if !is_end(parser.peek_token_ref()) {
            return parser.expected("end of statement", parser.peek_token());
        }
        (0..count).for_each(|_| _ = self.parser.next_token_no_skip());
        Ok(ast)
    }

    /// The statement of `CHECK TABLE t` or `REPAIR TABLE t`.
    fn table_after(&mut self, ast: fn(ObjectName) -> Ast) -> Result<Ast, ParserError> {
        self.parser.advance_token();
        self.parser.expect_keyword(Keyword::TABLE)?;
        self.parser.parse_object_name(false).map(ast)
    }

    fn copy(&mut self) -> Result<Ast, ParserError> {
        self.parser.advance_token();
        if self.parser.peek_token_ref().token == Token::LParen {
            let query = self.parser.parse_query()?;
            self.parser.expect_keyword(Keyword::TO)?;
            return self.copy_to(query);
        }
        let table = self.parser.parse_object_name(true)?;
        let columns = if self.parser.consume_token(&Token::LParen) {
            let columns = self.parser.parse_comma_separated(Parser::parse_identifier)?;
            self.parser.expect_token(&Token::RParen)?;
            columns
        } else {
            Vec::new()
        };
        match self.parser.parse_one_of_keywords(&[Keyword::TO, Keyword::FROM]) {
            Some(Keyword::TO) => {
                let query = select_from(&columns, table)?;
                self.copy_to(query)
            }
            Some(_) => {
                let path = self.parser.parse_expr()?;
                Ok(Ast::CopyFrom { table, columns, path, options: self.copy_options()? })
            }
            None => self.parser.expected("TO or FROM", self.parser.peek_token()),
        }
    }

    fn copy_to(&mut self, query: Box<Query>) -> Result<Ast, ParserError> {
        let path = self.parser.parse_expr()?;
        Ok(Ast::CopyTo { query, path, options: self.copy_options()? })
    }

    /// `[WITH] (NAME [=] value, ...)`, `[WITH] OPTIONS (...)`, `STORED AS format`; a bare NAME means true.
    fn copy_options(&mut self) -> Result<Vec<(Ident, Expr)>, ParserError> {
        let mut options = Vec::new();
        if self.parser.parse_keywords(&[Keyword::STORED, Keyword::AS]) {
            let format = self.parser.parse_identifier()?;
            options.push((Ident::new("format"), Expr::Identifier(format)));
        }
        let _ = self.parser.parse_keyword(Keyword::WITH);
        let _ = self.parser.parse_keyword(Keyword::OPTIONS);
        if !self.parser.consume_token(&Token::LParen) {
            return Ok(options);
        }
        loop {
            let name = self.parser.parse_identifier()?;
            let _ = self.parser.consume_token(&Token::Eq);
            let next = &self.parser.peek_token_ref().token;
            let value = if matches!(next, Token::Comma | Token::RParen) {
                Expr::value(ast::Value::Boolean(true))
            } else {
                self.parser.parse_expr()?
            };
            options.push((name, value));
            if self.parser.consume_token(&Token::RParen) {
                return Ok(options);
            }
            self.parser.expect_token(&Token::Comma)?;
        }
    }

    fn table_or_query(&mut self) -> Result<Box<Query>, ParserError> {
        let _ = self.parser.parse_keyword(Keyword::TABLE);
        let is_query = match &self.parser.peek_token_ref().token {
            Token::LParen => true,
            Token::Word(word) => {
                matches!(word.keyword, Keyword::SELECT | Keyword::WITH | Keyword::FROM | Keyword::VALUES)
            }
            _ => false,
        };
        if is_query {
            return self.parser.parse_query();
        }
        let relation = self.parser.parse_table_factor()?;
        let mut query = parse_query("SELECT * FROM t")?;
        replace_relation(&mut query, relation);
        Ok(query)
    }
}

/// `SELECT columns FROM table`, or `SELECT *` if `columns` is empty.
pub(crate) fn select_from(columns: &[Ident], table: ObjectName) -> Result<Box<Query>, ParserError> {
    let mut query = parse_query("SELECT * FROM t")?;
    if let Some(TableFactor::Table { name, .. }) = relation_mut(&mut query) {
        *name = table;
    }
    if let Some(select) = select_mut(&mut query).filter(|_| !columns.is_empty()) {
        let column = |name: &Ident| ast::SelectItem::UnnamedExpr(Expr::Identifier(name.clone()));
        select.projection = columns.iter().map(column).collect();
    }
    Ok(query)
}

/// Parses SQL that the engine itself generates.
pub(crate) fn parse_standard(sql: &str) -> Result<ast::Statement> {
    parse_generated(sql, Parser::parse_statement)
        .map_err(|error| Error::new(ErrorKind::Internal, format!("{error} in {sql}")))
}

/// Parses an expression that the engine itself generates.
pub(crate) fn parse_expression(sql: &str) -> Result<Expr> {
    parse_generated(sql, Parser::parse_expr)
        .map_err(|error| Error::new(ErrorKind::Internal, format!("{error} in {sql}")))
}

fn parse_query(sql: &str) -> Result<Box<Query>, ParserError> {
    parse_generated(sql, Parser::parse_query)
}

fn parse_generated<T: VisitMut>(
    sql: &str,
    parse: fn(&mut Parser<'static>) -> Result<T, ParserError>,
) -> Result<T, ParserError> {
    let mut tokens = Tokenizer::new(&DIALECT, sql).tokenize_with_location()?;
    let has_operators = distinct_as_operators(&mut tokens);
    let mut tree = parse(&mut Parser::new(&DIALECT).with_tokens_with_locations(tokens))?;
    if has_operators {
        distinct_from_operators(&mut tree);
    }
    Ok(tree)
}

/// The SELECT of a query; `None` for a set operation or the like.
pub(crate) fn select_mut(query: &mut Query) -> Option<&mut ast::Select> {
    match query.body.as_mut() {
        ast::SetExpr::Select(select) => Some(select),
        _ => None,
    }
}

fn replace_relation(query: &mut Query, relation: TableFactor) {
    if let Some(place) = relation_mut(query) {
        *place = relation;
    }
}

fn relation_mut(query: &mut Query) -> Option<&mut TableFactor> {
    Some(&mut select_mut(query)?.from.first_mut()?.relation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_cut_at_semicolons_outside_quotes() {
        let check = |sql: &str, expected: &[&str]| {
            let statements = parse(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
            assert_eq!(statements.iter().map(Statement::text).collect::<Vec<_>>(), expected);
        };
        check("", &[]);
        check(" ; ;", &[]);
        check("SELECT 1", &["SELECT 1"]);
        check("SELECT ';' ; -- c;\n SELECT 2;", &["SELECT ';'", "SELECT 2"]);
        check(
            "COPY t TO 'x.csv' (HEADER false); DESCRIBE 'x.csv'",
            &["COPY t TO 'x.csv' (HEADER false)", "DESCRIBE 'x.csv'"],
        );
    }

    #[test]
    fn tags_say_what_a_statement_does() {
        let check = |sql: &str, expected: &str| assert_eq!(parse(sql).unwrap()[0].tag(), expected, "{sql}");
        check("select 1", "SELECT");
        check("(SELECT 1)", "SELECT");
        check("WITH a AS (SELECT 1) SELECT * FROM a", "SELECT");
        check("create or replace table t as select 1", "CREATE TABLE");
        check("DROP VIEW IF EXISTS v", "DROP VIEW");
        check("INSERT INTO t VALUES (1)", "INSERT");
        check("COPY t TO 'x.csv'", "COPY");
    }

    #[test]
    fn statements_of_ours_parse() {
        for sql in [
            "COPY (SELECT 1) TO 'a.parquet'",
            "COPY t TO 'a.parquet' (FORMAT parquet, COMPRESSION zstd)",
            "COPY t (a, b) TO 'a.csv' WITH (HEADER, DELIMITER ';')",
            "COPY t FROM 'a.csv' (DELIMITER = ';')",
            "CREATE TABLE t (a INT CODEC(Delta, LZ4) COMMENT 'x', b DECIMAL(10, 2)) ORDER BY (a DESC, b) COMMENT = 'y'",
            "CREATE OR REPLACE TABLE t (a INT) ENGINE = MergeTree() ORDER BY tuple() SETTINGS x = 1; SELECT 1",
            "CREATE TABLE t (a INT) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci",
            "CREATE TABLE t ORDER BY a AS SELECT 1 AS a ORDER BY a",
            "COPY t TO 'a' STORED AS PARQUET",
            "ALTER TABLE t ADD COLUMN a INT DEFAULT 1 CODEC(ZSTD(3)), DROP COLUMN b, RENAME COLUMN c TO d",
            "ALTER TABLE IF EXISTS t MODIFY COLUMN a BIGINT, ALTER COLUMN b TYPE TEXT USING a || 'x', MODIFY ORDER BY (a DESC)",
            "ALTER TABLE t MODIFY COLUMN a CODEC(LZ4), COMMENT COLUMN a 'x', COMMENT = 'y', ORDER BY ()",
            "CHECK TABLE s.t; REPAIR TABLE t; REPAIR DATABASE; OPTIMIZE TABLE t FINAL",
            "COPY t TO ?",
            "DESCRIBE t",
            "DESCRIBE TABLE t",
            "DESC SELECT 1",
            "DESCRIBE read_csv('x.csv', delim = ';')",
            "SUMMARIZE 'x.parquet'",
            "SUMMARIZE SELECT 1",
            "SELECT * FROM s.t AS OF VERSION 3 AS a, t AS OF TIMESTAMP '2024-01-01 00:00:00' WHERE a.b = 1",
            "FROM 'x.parquet'",
            "FROM t WHERE a > 1 ORDER BY a LIMIT 1",
            "FROM t SELECT a",
            "FROM (SELECT 1) AS t WHERE true; FROM t",
            "SELECT * FROM read_parquet(['a', 'b'], hive_partitioning := true)",
            "EXPLAIN ANALYZE SELECT * FROM 'x.parquet'",
        ] {
            parse(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
    }

    #[test]
    fn syntax_errors_point_at_the_place_and_the_keyword_meant() {
        let check = |sql: &str, expected: &str| {
            assert_eq!(parse(sql).expect_err(sql).report(sql), expected);
        };
        check(
            "SELECT 1 FORM t WHERE a = 1",
            concat!(
                "error: syntax error: expected end of statement, found t\n",
                "  line 1: SELECT 1 FORM t WHERE a = 1\n",
                "                        ^\n",
                "hint: did you mean FROM?\n",
            ),
        );
        check(
            "SELECT 1;\nSELCT 2",
            concat!(
                "error: syntax error: expected an SQL statement, found SELCT\n",
                "  line 2: SELCT 2\n",
                "          ^^^^^\n",
                "hint: did you mean SELECT?\n",
            ),
        );
        check(
            "SELECT 'abc",
            concat!(
                "error: syntax error: unterminated string literal\n",
                "  line 1: SELECT 'abc\n",
                "                 ^\n",
            ),
        );
        check(
            "SELECT (1",
            concat!(
                "error: syntax error: expected ), found EOF\n",
                "  line 1: SELECT (1\n",
                "                   ^\n",
            ),
        );
    }

    #[test]
    fn deep_nesting_is_an_error_and_no_stack_overflow() {
        let sql = format!("SELECT {}1{}", "(".repeat(100_000), ")".repeat(100_000));
        assert_eq!(parse(&sql).expect_err("too deep").kind(), ErrorKind::Syntax);
        for chain in ["1+", "a OR ", "SELECT 1 UNION ALL "] {
            let sql = format!("SELECT {}1", chain.repeat(100_000));
            assert!(parse(&sql).expect_err(chain).message().contains("in a row"));
        }
        let values = format!("INSERT INTO t VALUES (-1{})", "), (-1".repeat(100_000));
        parse(&values).expect("a list is no chain");
    }

    #[test]
    fn a_shell_runs_what_ends_with_a_semicolon() {
        let check = |sql, expected| assert_eq!(is_complete(sql), expected, "{sql}");
        check("SELECT 1;", true);
        check("SELECT 1; -- done", true);
        check("SELECT 1", false);
        check("SELECT ';", false);
        check("SELECT 1 -- ;", false);
        check("", false);
        check("SELECT \"a;", false);
        check("SELECT /* ;", false);
        check("SELECT $$;", false);
        check("SELECT $x$ a $y$;", false);
        check("SELECT E'\\'", false);
        check("SELECT U&'\\zzzz';", true);
    }
}
