//! The clauses of CREATE TABLE behind its columns, and CODEC(...) of columns.
//!
//! sqlparser accepts these clauses in one order only, and neither codecs nor the direction of ORDER BY. So
//! the clauses are parsed here and removed from the tokens, and `CODEC(x)` becomes `OPTIONS(codec = 'x')`,
//! which it does accept.

use datafusion::sql::sqlparser::ast::{
    ColumnDef, ColumnOption, CreateTable, DataType, Expr, OrderByExpr, SqlOption, TableConstraint, Value,
};
use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Word};
use keirin_collation::UnknownCollation;

use crate::compile::rules::collation_named;
use crate::error::{Error, ErrorKind, Result};

const CODEC: &str = "codec";

/// The clauses that apply to a table as a whole.
#[derive(Clone, Debug, Default)]
pub(crate) struct TableClauses {
    pub(crate) order_by: Vec<OrderByExpr>,
    pub(crate) partition_by: Option<Expr>,
    pub(crate) comment: Option<String>,
    pub(crate) collation: Option<String>,
    /// Clauses of other databases that have no effect here, as they are written.
    pub(crate) ignored: Vec<&'static str>,
}

/// Removes the clauses from the tokens of a CREATE TABLE.
pub(crate) fn take_clauses(
    dialect: &'static dyn Dialect,
    tokens: Vec<TokenWithSpan>,
) -> Result<(Vec<TokenWithSpan>, TableClauses), ParserError> {
    let end = end_of_columns(&tokens);
    let mut kept = name_codecs(&tokens[..end]);
    quote_columns(&mut kept);
    let mut parser = Parser::new(dialect).with_tokens_with_locations(tokens[end..].to_vec());
    let mut clauses = TableClauses::default();
    while clauses.take_next(&mut parser)? {}
    // The rest is left to the parser: AS query, LIKE, or an error.
    while let Some(token) = parser.next_token_no_skip() {
        kept.push(token.clone());
    }
    Ok((kept, clauses))
}

/// Where the clauses begin: behind the list of columns, or behind the name if there is none.
fn end_of_columns(tokens: &[TokenWithSpan]) -> usize {
    let is_clause = |token: &Token| {
        let Token::Word(word) = token else { return false };
        matches!(word.keyword, Keyword::AS | Keyword::SELECT | Keyword::ORDER | Keyword::COMMENT)
            || matches!(word.keyword, Keyword::PARTITION | Keyword::ENGINE | Keyword::LIKE)
    };
    let mut depth = 0;
    for (index, token) in tokens.iter().enumerate() {
        match &token.token {
            Token::LParen => depth += 1,
            Token::RParen if depth <= 1 => return index + 1,
            Token::RParen => depth -= 1,
            token if depth == 0 && is_clause(token) => return index,
            _ => {}
        }
    }
    tokens.len()
}

/// Quotes `key` and `index` where they are column names: `(key VARCHAR, index INT)`. To the parser they begin
/// an index, as in `(a INT, KEY by_a (a))`.
fn quote_columns(tokens: &mut [TokenWithSpan]) {
    let places: Vec<usize> =
        (0..tokens.len()).filter(|place| !matches!(tokens[*place].token, Token::Whitespace(_))).collect();
    let mut depth = 0;
    let mut is_column = false;
    for (index, place) in places.iter().enumerate() {
        let at = |offset: usize| places.get(index + offset).map(|place| &tokens[*place].token);
        let keyword = |offset: usize| match at(offset) {
            Some(Token::Word(word)) => Some(word.keyword),
            _ => None,
        };
        let is_key = is_column
            && matches!(&tokens[*place].token, Token::Word(word)
                if word.quote_style.is_none() && matches!(word.keyword, Keyword::KEY | Keyword::INDEX));
        // An index has columns in parentheses, a type has numbers or other types there.
        let is_index = match (keyword(1), at(2)) {
            (Some(Keyword::USING), _) | (None, _) => true,
            (Some(Keyword::STRUCT | Keyword::MAP | Keyword::ARRAY), _) => false,
            (_, Some(Token::LParen)) => !matches!(at(3), Some(Token::Number(..))),
            (_, Some(Token::Word(word))) => word.keyword == Keyword::USING,
            _ => false,
        };
        is_column = false;
        match &tokens[*place].token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        if depth == 1 && matches!(tokens[*place].token, Token::LParen | Token::Comma) {
            is_column = true;
        }
        if is_key
            && !is_index
            && let Token::Word(word) = &mut tokens[*place].token
        {
            *word = Word {
                value: word.value.to_ascii_lowercase(),
                quote_style: Some('"'),
                keyword: Keyword::NoKeyword,
            };
        }
    }
}

/// `CODEC(x)` as `OPTIONS(codec = 'x')`.
pub(crate) fn name_codecs(tokens: &[TokenWithSpan]) -> Vec<TokenWithSpan> {
    let mut named = Vec::with_capacity(tokens.len());
    let mut rest = tokens.iter();
    while let Some(token) = rest.next() {
        let is_codec = matches!(&token.token, Token::Word(word)
            if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(CODEC));
        let mut ahead = rest.clone().filter(|token| !matches!(token.token, Token::Whitespace(_)));
        if !is_codec || ahead.next().is_none_or(|next| next.token != Token::LParen) {
            named.push(token.clone());
            continue;
        }
        let (mut depth, mut text) = (0, String::new());
        for inside in rest.by_ref() {
            match &inside.token {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                _ => {}
            }
            text.push_str(&inside.token.to_string());
            if depth == 0 && inside.token == Token::RParen {
                break;
            }
        }
        let text = text.trim();
        let text = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')).unwrap_or(text);
        let tokens = [
            Token::make_keyword("OPTIONS"),
            Token::LParen,
            Token::make_word(CODEC, None),
            Token::Eq,
            Token::SingleQuotedString(text.trim().to_owned()),
            Token::RParen,
        ];
        named.extend(tokens.map(|new| TokenWithSpan { token: new, span: token.span }));
    }
    named
}

/// The text inside a column's `CODEC(...)`, if this is one.
pub(crate) fn codec_of_option(option: &ColumnOption) -> Option<&str> {
    let ColumnOption::Options(options) = option else { return None };
    options.iter().find_map(|option| match option {
        SqlOption::KeyValue { key, value: Expr::Value(value) } if key.value == CODEC => match &value.value {
            Value::SingleQuotedString(text) => Some(text.as_str()),
            _ => None,
        },
        _ => None,
    })
}

/// Refuses an unknown collation.
///
/// # Errors
/// [`ErrorKind::NotFound`].
pub(crate) fn check_collation(name: &str) -> Result<()> {
    let unknown = |error: UnknownCollation| {
        let refused = Error::new(ErrorKind::NotFound, format!("collation '{name}' not found"));
        refused.with_hint(format!("did you mean {}? SHOW COLLATION lists all", error.nearest.join(", ")))
    };
    collation_named(name).map(drop).map_err(unknown)
}

/// The notice about clauses of a CREATE TABLE that have no effect.
pub(crate) fn notice(table: &CreateTable, clauses: &TableClauses) -> Option<String> {
    let options = || table.columns.iter().flat_map(|column| &column.options).map(|option| &option.option);
    let mut lines: Vec<String> = Vec::new();
    for clause in &clauses.ignored {
        lines.push(String::from(match *clause {
            "PRIMARY KEY" => "PRIMARY KEY is not enforced: rows are sorted by it where there is no ORDER BY",
            "SETTINGS" => "SETTINGS is read over: settings are the session's",
            _ => "ENGINE is read over: all tables are stored in one way",
        }));
    }
    let has_key = table.constraints.iter().any(|one| matches!(one, TableConstraint::PrimaryKey(_)))
        || options().any(|option| matches!(option, ColumnOption::PrimaryKey(_)));
    if has_key && !clauses.ignored.contains(&"PRIMARY KEY") {
        lines.push("PRIMARY KEY is not enforced".to_owned());
    }
    let is_unique = table.constraints.iter().any(|one| matches!(one, TableConstraint::Unique(_)))
        || options().any(|option| matches!(option, ColumnOption::Unique(_)));
    if is_unique {
        lines.push("UNIQUE is not enforced".to_owned());
    }
    let has_length = |column: &&ColumnDef| {
        use DataType::{Char, CharVarying, Character, CharacterVarying, Nvarchar, Varchar};
        matches!(
            column.data_type,
            Char(Some(_))
                | CharVarying(Some(_))
                | Character(Some(_))
                | CharacterVarying(Some(_))
                | Nvarchar(Some(_))
                | Varchar(Some(_))
        )
    };
    if let Some(column) = table.columns.iter().find(has_length) {
        lines.push(format!("the length of {} is not enforced", column.data_type));
    }
    (!lines.is_empty()).then(|| lines.join("; "))
}

impl TableClauses {
    /// Refuses clauses with invalid values.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for an unknown collation.
    pub(crate) fn check(&self) -> Result<()> {
        self.collation.as_deref().map_or(Ok(()), check_collation)
    }

    /// Parses the next clause, if it is one of ours.
    fn take_next(&mut self, parser: &mut Parser<'_>) -> Result<bool, ParserError> {
        if parser.parse_keywords(&[Keyword::ORDER, Keyword::BY]) {
            self.order_by = order_by(parser)?;
        } else if parser.parse_keywords(&[Keyword::PARTITION, Keyword::BY]) {
            // ClickHouse writes `tuple()` for no partitioning.
            let partition = parser.parse_expr()?;
            self.partition_by = (partition.to_string() != "tuple()").then_some(partition);
        } else if parser.parse_keywords(&[Keyword::PRIMARY, Keyword::KEY]) {
            // Nothing enforces the key; as in ClickHouse it becomes the beginning of the order.
            let keys = order_by(parser)?;
            self.ignored.push("PRIMARY KEY");
            if self.order_by.is_empty() {
                self.order_by = keys;
            }
        } else if parser.parse_keyword(Keyword::COMMENT) {
            let _ = parser.consume_token(&Token::Eq);
            self.comment = Some(parser.parse_literal_string()?);
        } else if parser.parse_keyword(Keyword::ENGINE) {
            // There is only one engine; scripts for other databases name theirs.
            let _ = parser.consume_token(&Token::Eq);
            parser.parse_identifier()?;
            skip_parentheses(parser);
            self.ignored.push("ENGINE");
        } else if parser.parse_keyword(Keyword::SETTINGS) {
            parser.parse_comma_separated(|parser| {
                parser.parse_identifier()?;
                parser.expect_token(&Token::Eq)?;
                parser.parse_expr()
            })?;
            self.ignored.push("SETTINGS");
        } else if parser.parse_keyword(Keyword::CHARSET)
            || parser.parse_keywords(&[Keyword::DEFAULT, Keyword::CHARSET])
            || parser.parse_keywords(&[Keyword::CHARACTER, Keyword::SET])
            || parser.parse_keywords(&[Keyword::DEFAULT, Keyword::CHARACTER, Keyword::SET])
        {
            // All text is UTF-8.
            let _ = parser.consume_token(&Token::Eq);
            parser.parse_identifier()?;
        } else if parser.parse_keyword(Keyword::COLLATE)
            || parser.parse_keywords(&[Keyword::DEFAULT, Keyword::COLLATE])
        {
            let _ = parser.consume_token(&Token::Eq);
            self.collation = Some(parser.parse_identifier()?.value);
        } else {
            return Ok(false);
        }
        Ok(true)
    }
}

/// `a DESC, b` or `(a DESC, b)` or `()`, or ClickHouse's `tuple()`.
pub(crate) fn order_by(parser: &mut Parser<'_>) -> Result<Vec<OrderByExpr>, ParserError> {
    let is_tuple = matches!(&parser.peek_token_ref().token, Token::Word(word)
        if word.value.eq_ignore_ascii_case("tuple"));
    if is_tuple {
        parser.advance_token();
    }
    if !parser.consume_token(&Token::LParen) {
        return parser.parse_comma_separated(Parser::parse_order_by_expr);
    }
    if parser.consume_token(&Token::RParen) {
        return Ok(Vec::new());
    }
    let keys = parser.parse_comma_separated(Parser::parse_order_by_expr)?;
    parser.expect_token(&Token::RParen)?;
    Ok(keys)
}

fn skip_parentheses(parser: &mut Parser<'_>) {
    let mut depth = 0;
    loop {
        match parser.peek_token_ref().token {
            Token::LParen => depth += 1,
            Token::RParen if depth > 0 => depth -= 1,
            Token::EOF => return,
            _ if depth == 0 => return,
            _ => {}
        }
        parser.advance_token();
        if depth == 0 {
            return;
        }
    }
}
