//! The changes of ALTER TABLE: those that sqlparser knows, and those of ClickHouse and MySQL that it does
//! not.

use datafusion::sql::sqlparser::ast::{self, Ident};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::sql::table_clauses::order_by;

/// One change of ALTER TABLE.
#[derive(Clone, Debug)]
pub(crate) enum Alteration {
    /// A change as sqlparser parses it.
    Standard(Box<ast::AlterTableOperation>),
    /// `[MODIFY] ORDER BY keys`.
    OrderBy(Vec<ast::OrderByExpr>),
    /// `[MODIFY] COMMENT [=] 'text'`.
    Comment(String),
    /// `MODIFY | ALTER COLUMN c CODEC(...) | COMMENT 'text'`, `COMMENT COLUMN c 'text'`: options without a type.
    Column(Ident, Vec<ast::ColumnOptionDef>),
}

/// Parses one change.
pub(crate) fn alteration(parser: &mut Parser<'_>) -> Result<Alteration, ParserError> {
    if let Some(ours) = parser.maybe_parse(own_alteration)? {
        return Ok(ours);
    }
    parser.parse_alter_table_operation().map(|operation| Alteration::Standard(Box::new(operation)))
}

/// Parses a change that sqlparser does not know; anything else is an error.
fn own_alteration(parser: &mut Parser<'_>) -> Result<Alteration, ParserError> {
    let is_modify = parser.parse_one_of_keywords(&[Keyword::MODIFY, Keyword::ALTER]).is_some();
    if parser.parse_keywords(&[Keyword::ORDER, Keyword::BY]) {
        return order_by(parser).map(Alteration::OrderBy);
    }
    if parser.parse_keywords(&[Keyword::COMMENT, Keyword::COLUMN]) {
        let column = parser.parse_identifier()?;
        let option = ast::ColumnOption::Comment(parser.parse_literal_string()?);
        return Ok(Alteration::Column(column, vec![ast::ColumnOptionDef { name: None, option }]));
    }
    if parser.parse_keyword(Keyword::COMMENT) {
        let _ = parser.consume_token(&Token::Eq);
        return parser.parse_literal_string().map(Alteration::Comment);
    }
    let mut options = Vec::new();
    if is_modify {
        let _ = parser.parse_keyword(Keyword::COLUMN);
        let column = parser.parse_identifier()?;
        let had_set = parser.parse_keywords(&[Keyword::SET, Keyword::DATA]);
        if parser.parse_keyword(Keyword::TYPE) {
            let data_type = parser.parse_data_type()?;
            let using = parser.parse_keyword(Keyword::USING).then(|| parser.parse_expr()).transpose()?;
            let op = ast::AlterColumnOperation::SetDataType { data_type, using, had_set };
            let operation = ast::AlterTableOperation::AlterColumn { column_name: column, op };
            return Ok(Alteration::Standard(Box::new(operation)));
        }
        while let Some(option) = parser.parse_optional_column_option()? {
            options.push(ast::ColumnOptionDef { name: None, option });
        }
        if !options.is_empty() {
            return Ok(Alteration::Column(column, options));
        }
    }
    parser.expected("a change of a table", parser.peek_token())
}
