//! Changes to the tokens of a script before they are parsed: `?` parameters get numbers, a FROM that comes
//! first gets its SELECT, the version of a table becomes the last part of its name, the fields of a STRUCT
//! get angle brackets, MATERIALIZED is dropped, IS DISTINCT FROM becomes an operator, and what a window excludes a key of
//! its partitions.

use std::convert::Infallible;
use std::ops::ControlFlow;

use crate::compile::windows::EXCLUDE_MARK;
use crate::sql::walk::walk;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Value, VisitMut, VisitorMut};
use datafusion::sql::sqlparser::keywords::{
    Keyword, RESERVED_FOR_COLUMN_ALIAS, RESERVED_FOR_IDENTIFIER, RESERVED_FOR_TABLE_ALIAS,
};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// Turns the n-th `?` into `$n`, in the order of the text.
pub(crate) fn number_parameters(tokens: &mut [TokenWithSpan]) {
    let mut count = 0;
    for token in tokens {
        match &mut token.token {
            Token::SemiColon => count = 0,
            Token::Placeholder(name) if name == "?" => {
                count += 1;
                *name = format!("${count}");
            }
            _ => {}
        }
    }
}

/// `FROM t WHERE ...` means `SELECT * FROM t WHERE ...`: puts the missing tokens in front.
pub(crate) fn select_all_where_from_comes_first(tokens: &mut Vec<TokenWithSpan>) {
    let is_word = |token: &Token, keyword| matches!(token, Token::Word(word) if word.keyword == keyword);
    let mut starts = Vec::new();
    // The index of a FROM that begins the statement, until its SELECT is seen; whether the statement has no
    // token yet; and the depth of parentheses.
    let (mut start, mut is_first, mut depth) = (None, true, 0_i32);
    for (index, token) in tokens.iter().map(|token| &token.token).enumerate() {
        match token {
            Token::Whitespace(_) => continue,
            Token::SemiColon => {
                starts.extend(start.take());
                (is_first, depth) = (true, 0);
                continue;
            }
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            token if is_first && is_word(token, Keyword::FROM) => start = Some(index),
            token if depth == 0 && is_word(token, Keyword::SELECT) => start = None,
            _ => {}
        }
        is_first = false;
    }
    starts.extend(start);
    for index in starts.into_iter().rev() {
        let span = tokens[index].span;
        let missing = [Token::make_keyword("SELECT"), Token::Mul].map(|token| TokenWithSpan { token, span });
        tokens.splice(index..index, missing);
    }
}

/// Drops the word from `WITH q AS [NOT] MATERIALIZED (...)`: a query of WITH is always planned where it is
/// used.
pub(crate) fn forget_materialized(tokens: &mut Vec<TokenWithSpan>) {
    let keyword = |token: Option<&TokenWithSpan>| match token.map(|token| &token.token) {
        Some(Token::Word(word)) if word.quote_style.is_none() => Some(word.keyword),
        _ => None,
    };
    let places: Vec<usize> =
        (0..tokens.len()).filter(|place| !matches!(tokens[*place].token, Token::Whitespace(_))).collect();
    for (index, place) in places.iter().enumerate().rev() {
        if keyword(tokens.get(*place)) != Some(Keyword::MATERIALIZED)
            || places.get(index + 1).is_none_or(|next| tokens[*next].token != Token::LParen)
        {
            continue;
        }
        let before = |count: usize| index.checked_sub(count).map(|index| places[index]);
        let at = |place: Option<usize>| keyword(place.and_then(|place| tokens.get(place)));
        let first = match at(before(1)) {
            Some(Keyword::AS) => Some(*place),
            Some(Keyword::NOT) if at(before(2)) == Some(Keyword::AS) => before(1),
            _ => None,
        };
        if let Some(first) = first {
            tokens.drain(first..=*place);
        }
    }
}

/// Makes a key of partitions of the EXCLUDE at the end of a window's frame: of `OVER (w ORDER BY x ROWS 2 PRECEDING EXCLUDE
/// TIES)` comes `OVER (w PARTITION BY keirin_exclude('TIES') ORDER BY x ROWS 2 PRECEDING)`.
pub(crate) fn exclusions_as_keys(tokens: &mut Vec<TokenWithSpan>) {
    let word = |token: &TokenWithSpan| match &token.token {
        Token::Word(word) if word.quote_style.is_none() => word.value.to_ascii_uppercase(),
        Token::RParen => ")".to_owned(),
        _ => String::new(),
    };
    let is_space = |token: &TokenWithSpan| matches!(token.token, Token::Whitespace(_));
    for place in (0..tokens.len()).rev() {
        if word(&tokens[place]) != "EXCLUDE" {
            continue;
        }
        let before = tokens[..place].iter().rfind(|token| !is_space(token)).map(word).unwrap_or_default();
        let ends: Vec<usize> =
            (place + 1..tokens.len()).filter(|end| !is_space(&tokens[*end])).take(3).collect();
        let words: Vec<String> = ends.iter().map(|end| word(&tokens[*end])).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (excluded, end) = match words[..] {
            _ if !["ROW", "PRECEDING", "FOLLOWING"].contains(&before.as_str()) => continue,
            ["CURRENT", "ROW", ")"] => (Some("CURRENT ROW"), ends[2]),
            ["NO", "OTHERS", ")"] => (None, ends[2]),
            ["GROUP", ")", ..] => (Some("GROUP"), ends[1]),
            ["TIES", ")", ..] => (Some("TIES"), ends[1]),
            _ => continue,
        };
        let span = tokens[place].span;
        tokens.drain(place..end);
        let mut depth = 0;
        let open = tokens[..place].iter().rposition(|token| {
            depth += match token.token {
                Token::RParen => 1,
                Token::LParen => -1,
                _ => 0,
            };
            depth < 0
        });
        let (Some(excluded), Some(open)) = (excluded, open) else { continue };
        // Behind the name of the window that is extended.
        let mut inside = (open + 1..place).filter(|inside| !is_space(&tokens[*inside]));
        let clauses = ["PARTITION", "ORDER", "ROWS", "RANGE", "GROUPS"];
        let start = inside.find(|start| clauses.contains(&word(&tokens[*start]).as_str())).unwrap_or(place);
        let by = inside.next().filter(|_| word(&tokens[start]) == "PARTITION");
        let mark = [
            Token::make_word(EXCLUDE_MARK, None),
            Token::LParen,
            Token::SingleQuotedString(excluded.to_owned()),
            Token::RParen,
        ];
        let (place, made): (usize, Vec<Token>) = match by {
            Some(by) => (by + 1, mark.into_iter().chain([Token::Comma]).collect()),
            None => {
                let words = [Token::make_keyword("PARTITION"), Token::make_keyword("BY")];
                (start, words.into_iter().chain(mark).collect())
            }
        };
        tokens.splice(place..place, made.into_iter().map(|token| TokenWithSpan { token, span }));
    }
}

const DISTINCT: &str = "IS DISTINCT FROM";
const NOT_DISTINCT: &str = "IS NOT DISTINCT FROM";

/// Makes one operator of the words IS [NOT] DISTINCT FROM: of words the parser takes all that follows for the right
/// operand, `a IS DISTINCT FROM (b AND c)`, of operators what binds closer than NOT, AND and OR. Says whether there are
/// any; [`distinct_from_operators`] is for the tree.
pub(crate) fn distinct_as_operators(tokens: &mut Vec<TokenWithSpan>) -> bool {
    let keyword = |token: &Token| match token {
        Token::Word(word) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    };
    let mut is_changed = false;
    for start in (0..tokens.len()).rev() {
        if keyword(&tokens[start].token) != Keyword::IS {
            continue;
        }
        let words = tokens.iter().enumerate().skip(start + 1);
        let words = words.filter(|(_, token)| !matches!(token.token, Token::Whitespace(_)));
        let (places, words): (Vec<usize>, Vec<Keyword>) =
            words.take(3).map(|(place, token)| (place, keyword(&token.token))).unzip();
        let (operator, end) = match words.as_slice() {
            [Keyword::DISTINCT, Keyword::FROM, ..] => (DISTINCT, places[1]),
            [Keyword::NOT, Keyword::DISTINCT, Keyword::FROM] => (NOT_DISTINCT, places[2]),
            _ => continue,
        };
        let span = tokens[start].span.union(&tokens[end].span);
        let token = Token::CustomBinaryOperator(operator.to_owned());
        tokens.splice(start..=end, [TokenWithSpan { token, span }]);
        is_changed = true;
    }
    is_changed
}

/// Gives the operators of [`distinct_as_operators`] in a parsed tree their meaning.
pub(crate) fn distinct_from_operators(tree: &mut impl VisitMut) {
    struct Operators;

    impl VisitorMut for Operators {
        type Break = Infallible;

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Infallible> {
            let Expr::BinaryOp { left, op: BinaryOperator::Custom(operator), right } = expr else {
                return ControlFlow::Continue(());
            };
            let meant = match operator.as_str() {
                DISTINCT => Expr::IsDistinctFrom,
                NOT_DISTINCT => Expr::IsNotDistinctFrom,
                _ => return ControlFlow::Continue(()),
            };
            let operand = |side: &mut Expr| Box::new(std::mem::replace(side, Expr::value(Value::Null)));
            *expr = meant(operand(left), operand(right));
            ControlFlow::Continue(())
        }
    }

    let ControlFlow::Continue(()) = walk(tree, &mut Operators);
}

/// The prefixes of the last part of a name that denotes the version of a table. Nobody types them.
pub(crate) const VERSION_MARK: &str = "\u{1}version ";
pub(crate) const TIMESTAMP_MARK: &str = "\u{1}timestamp ";

/// Turns `t AS OF VERSION 3` and `t AS OF TIMESTAMP '...'`, which the parser's dialect lacks, into such
/// names.
pub(crate) fn versions_as_names(tokens: &mut Vec<TokenWithSpan>) {
    let is_word = |token: &Token, text: &str| {
        matches!(token, Token::Word(word)
        if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(text))
    };
    let mut index = 0;
    while index < tokens.len() {
        let start = index;
        index += 1;
        if !is_word(&tokens[start].token, "as") {
            continue;
        }
        let is_space = |place: &usize| matches!(tokens[*place].token, Token::Whitespace(_));
        let places: Vec<usize> = (index..tokens.len()).filter(|place| !is_space(place)).take(3).collect();
        let &[of, kind, value] = places.as_slice() else { return };
        let name = match &tokens[value].token {
            _ if !is_word(&tokens[of].token, "of") => continue,
            Token::Number(number, _) if is_word(&tokens[kind].token, "version") => {
                format!("{VERSION_MARK}{number}")
            }
            Token::SingleQuotedString(time) if is_word(&tokens[kind].token, "timestamp") => {
                format!("{TIMESTAMP_MARK}{time}")
            }
            _ => continue,
        };
        let new = [Token::Period, Token::make_word(&name, Some('"'))];
        let span = tokens[start].span.union(&tokens[value].span);
        tokens.splice(start..=value, new.map(|token| TokenWithSpan { token, span }));
    }
}

/// Keywords before an operand: `STRUCT(NOT a)` is a value.
const PREFIXES: &[Keyword] = &[Keyword::CASE, Keyword::NOT];

/// Keywords after an operand: `STRUCT(a IS NULL)` is a value.
const INFIXES: &[Keyword] = &[
    Keyword::AND,
    Keyword::AS,
    Keyword::AT,
    Keyword::BETWEEN,
    Keyword::COLLATE,
    Keyword::DIV,
    Keyword::ILIKE,
    Keyword::IN,
    Keyword::IS,
    Keyword::LIKE,
    Keyword::NOT,
    Keyword::NOTNULL,
    Keyword::OR,
    Keyword::OVERLAPS,
    Keyword::REGEXP,
    Keyword::RLIKE,
    Keyword::SIMILAR,
    Keyword::WITH,
    Keyword::WITHOUT,
    Keyword::XOR,
];

/// Keywords before the name of an object: in `CREATE TABLE struct (a INT)` the word is no type, in `(table
/// STRUCT(a INT))` it is.
const NAMED: &[Keyword] =
    &[Keyword::EXISTS, Keyword::FUNCTION, Keyword::INTO, Keyword::ON, Keyword::TABLE, Keyword::VIEW];

/// Turns `STRUCT(a INT, b TEXT)` into `STRUCT<a INT, b TEXT>`, which the parser's dialect reads. A STRUCT of
/// values stays: in it no name is followed by another.
pub(crate) fn struct_fields_in_angle_brackets(tokens: &mut [TokenWithSpan]) {
    // For each open parenthesis, whether it begins the fields of a struct.
    let mut open = Vec::new();
    // The indices of the last five tokens that are not white space.
    let mut before = [None::<usize>; 5];
    for index in 0..tokens.len() {
        match &tokens[index].token {
            Token::Whitespace(_) => continue,
            Token::SemiColon => open.clear(),
            Token::LParen => open.push((index, false)),
            Token::RParen => {
                if let Some((start, true)) = open.pop() {
                    tokens[start].token = Token::Lt;
                    tokens[index].token = Token::Gt;
                }
            }
            Token::Word(field_type) => {
                let token = |place: Option<usize>| place.map(|place| &tokens[place].token);
                let keyword = |place| match token(place) {
                    Some(Token::Word(word)) => Some(word.keyword),
                    _ => None,
                };
                let [verb, in_front, name, bracket, field] = before;
                let is_name = keyword(in_front).is_some_and(|word| NAMED.contains(&word))
                    && keyword(verb).is_some_and(|word| !matches!(word, Keyword::ADD | Keyword::COLUMN));
                if let Some((start, is_fields)) = open.last_mut()
                    && bracket == Some(*start)
                {
                    *is_fields = keyword(name) == Some(Keyword::STRUCT)
                        && token(in_front) != Some(&Token::Period)
                        && !is_name
                        && keyword(field).is_some_and(|word| !PREFIXES.contains(&word))
                        && !INFIXES.contains(&field_type.keyword);
                }
            }
            _ => {}
        }
        before.rotate_left(1);
        before[4] = Some(index);
    }
}

/// Keywords that begin a clause or are values where a name may stand, so names like them need quotes.
const QUOTED: &[Keyword] = &[
    Keyword::CHECK,
    Keyword::COMMENT,
    Keyword::CONSTRAINT,
    Keyword::CURRENT_CATALOG,
    Keyword::CURRENT_DATE,
    Keyword::CURRENT_ROLE,
    Keyword::CURRENT_SCHEMA,
    Keyword::CURRENT_TIME,
    Keyword::CURRENT_TIMESTAMP,
    Keyword::CURRENT_USER,
    Keyword::ENGINE,
    Keyword::FALSE,
    Keyword::FOREIGN,
    Keyword::FULLTEXT,
    Keyword::INDEX,
    Keyword::KEY,
    Keyword::LOCALTIME,
    Keyword::LOCALTIMESTAMP,
    Keyword::NULL,
    Keyword::PRIMARY,
    Keyword::SESSION_USER,
    Keyword::SPATIAL,
    Keyword::SYSTEM_USER,
    Keyword::TRUE,
    Keyword::UNIQUE,
    Keyword::USER,
];

/// A name, in quotes unless it can be read without them.
pub(crate) fn quoted(name: &str) -> String {
    let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let reserved = [
        RESERVED_FOR_IDENTIFIER,
        RESERVED_FOR_COLUMN_ALIAS,
        RESERVED_FOR_TABLE_ALIAS,
        PREFIXES,
        INFIXES,
        NAMED,
        QUOTED,
    ];
    let is_reserved = match Token::make_keyword(name) {
        Token::Word(word) => reserved.iter().any(|words| words.contains(&word.keyword)),
        _ => true,
    };
    if is_plain && !is_reserved { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::ast::{DataType, Expr, Statement};
    use datafusion::sql::sqlparser::keywords::ALL_KEYWORDS;

    use super::*;
    use crate::sql::parser::{Ast, parse};

    #[test]
    fn every_keyword_is_a_name_when_quoted_as_needed() {
        for keyword in ALL_KEYWORDS {
            let name = keyword.to_ascii_lowercase();
            let word = quoted(&name);
            let sql = format!(
                "CREATE TABLE {word} ({word} MAP(TEXT, INT), s STRUCT({word} STRUCT({word} INT)), {word} STRUCT(a INT)) \
                 ORDER BY ({word}, {word} DESC)"
            );
            let parsed = parse(&sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
            let Ast::CreateTable { statement, clauses } = &*parsed[0].ast else { panic!("{sql}") };
            let Statement::CreateTable(table) = statement.as_ref() else { panic!("{sql}") };
            assert!(table.name.to_string().trim_matches('"') == name, "{sql}");
            for (index, column) in table.columns.iter().enumerate() {
                assert_eq!(column.name.value, if index == 1 { "s" } else { &name }, "{sql}");
            }
            assert!(matches!(table.columns[2].data_type, DataType::Struct(..)), "{sql}");
            for key in &clauses.order_by {
                assert!(matches!(&key.expr, Expr::Identifier(ident) if ident.value == name), "{sql}");
            }
        }
    }
}
