//! Text to statements.

use datafusion::sql::parser::{DFParserBuilder, Statement as DataFusionStatement};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

use crate::error::{Error, ErrorKind, Result};

/// One parsed statement. Run it with [`Session::run`](crate::Session::run).
#[derive(Clone, Debug)]
pub struct Statement {
    pub(crate) ast: DataFusionStatement,
    text: String,
}

impl Statement {
    /// The text it was parsed from, without the semicolon.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Parses a script: statements separated by semicolons.
///
/// # Errors
/// [`ErrorKind::Syntax`] for the first statement that does not parse, with its place in `sql`.
pub fn parse(sql: &str) -> Result<Vec<Statement>> {
    let failed = |error: datafusion::error::DataFusionError| Error::new(ErrorKind::Syntax, error.to_string());
    let mut parser =
        DFParserBuilder::new(sql).with_dialect(&GenericDialect {}).build().map_err(failed)?;
    let statements = parser.parse_statements().map_err(failed)?;
    Ok(statements.into_iter().map(|ast| Statement { text: ast.to_string(), ast }).collect())
}

/// Whether `sql` ends with a semicolon outside quotes and comments: a shell may run it.
pub fn is_complete(sql: &str) -> bool {
    let Ok(tokens) = Tokenizer::new(&GenericDialect {}, sql).tokenize() else { return false };
    tokens.iter().rev().find(|token| !matches!(token, Token::Whitespace(_))) == Some(&Token::SemiColon)
}
