//! Corrects numbers and the units of intervals in the tokens: a word glued to a number, or behind an
//! INTERVAL, is part of it or an error. The parser would take it for the name of a column.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use crate::error::{Error, ErrorKind, Result};
use crate::sql::text::{byte_range, nearest};

/// The units of INTERVAL in the parser's words, each with its synonyms.
const UNITS: &[(&str, &[&str])] = &[
    ("MILLENNIUM", &["MILLENNIUMS", "MILLENNIA", "MILLENIUM", "MIL", "MILS"]),
    ("CENTURY", &["CENTURIES", "CENT", "C"]),
    ("DECADE", &["DECADES", "DEC", "DECS"]),
    ("YEAR", &["YEARS", "YR", "YRS", "Y"]),
    ("QUARTER", &["QUARTERS"]),
    ("MONTH", &["MONTHS", "MON", "MONS"]),
    ("WEEK", &["WEEKS", "W"]),
    ("DAY", &["DAYS", "D"]),
    ("HOUR", &["HOURS", "HR", "HRS", "H"]),
    ("MINUTE", &["MINUTES", "MIN", "MINS", "M"]),
    ("SECOND", &["SECONDS", "SEC", "SECS", "S"]),
    ("MILLISECOND", &["MILLISECONDS", "MSEC", "MSECS", "MS"]),
    ("MICROSECOND", &["MICROSECONDS", "USEC", "USECS", "US"]),
    ("NANOSECOND", &["NANOSECONDS", "NSEC", "NSECS", "NS"]),
];

/// Reads `1_000` as a number, and refuses other words that are glued to one: `123abc`.
pub(crate) fn join_digits(sql: &str, tokens: &mut Vec<TokenWithSpan>) -> Result<()> {
    let glued = |pair: &[TokenWithSpan]| {
        let is_number = matches!(pair[0].token, Token::Number(..) | Token::HexStringLiteral(_));
        is_number && (unquoted(&pair[1].token).is_some() || matches!(pair[1].token, Token::Number(..)))
    };
    if !tokens.windows(2).any(glued) {
        return Ok(());
    }
    let mut joined: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    for token in tokens.drain(..) {
        let Some(last) = joined.last_mut() else {
            joined.push(token);
            continue;
        };
        let word = unquoted(&token.token).map(|word| word.value.as_str());
        match (&mut last.token, word, &token.token) {
            (Token::Number(digits, _), Some(word), _) if is_digits_behind(digits, word) => {
                digits.push_str(&word.replace('_', ""));
                last.span = last.span.union(&token.span);
            }
            // The tokenizer cuts `1_000.5` into three tokens.
            (Token::Number(digits, _), None, Token::Number(fraction, _))
                if fraction.starts_with('.') && !digits.contains(['.', 'e', 'E']) =>
            {
                digits.push_str(fraction);
                last.span = last.span.union(&token.span);
            }
            (Token::Number(..) | Token::HexStringLiteral(_), Some(_), _) => {
                let span = byte_range(sql, last.span.union(&token.span));
                let text = span.clone().and_then(|span| sql.get(span)).unwrap_or_default();
                let error = Error::new(
                    ErrorKind::Syntax,
                    format!("syntax error: '{text}' is neither a number nor a name"),
                );
                let error = error.with_hint("a name that begins with a digit is written in double quotes");
                return Err(match span {
                    Some(span) => error.with_span(span),
                    None => error,
                });
            }
            _ => joined.push(token),
        }
    }
    *tokens = joined;
    Ok(())
}

/// Whether a word behind digits continues the number: `_000`, or `_000e3`.
fn is_digits_behind(digits: &str, word: &str) -> bool {
    let (groups, exponent) = word.split_once(['e', 'E']).unwrap_or((word, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let mut groups = groups.split('_');
    digits.ends_with(|last: char| last.is_ascii_digit())
        && groups.next() == Some("")
        && groups.all(is_number)
        && is_number(exponent)
}

/// Replaces the unit behind INTERVAL and its value by the parser's word, and refuses an unknown unit.
pub(crate) fn name_units(sql: &str, tokens: &mut [TokenWithSpan]) -> Result<()> {
    for index in 0..tokens.len() {
        let is_interval =
            unquoted(&tokens[index].token).is_some_and(|word| word.keyword == Keyword::INTERVAL);
        let Some(value) = next(tokens, index + 1).filter(|_| is_interval) else { continue };
        let Some(end) = end_of_value(tokens, value) else { continue };
        let is_number = match &tokens[value].token {
            Token::Number(..) | Token::Minus | Token::Plus => true,
            // A text with units of its own may be followed by an alias.
            Token::SingleQuotedString(text) => text.trim().parse::<f64>().is_ok(),
            _ => false,
        };
        let follows = next(tokens, end);
        let word = follows.and_then(|place| Some((place, unquoted(&tokens[place].token)?)));
        let unit = word.and_then(|(place, word)| Some((place, unit(&word.value)?)));
        match (unit, word) {
            (Some((place, unit)), Some((_, word)))
                if is_number || word.keyword != Keyword::NoKeyword || word.value.len() > 1 =>
            {
                tokens[place].token = Token::make_keyword(unit);
            }
            (None, Some((place, word))) if is_number && word.keyword == Keyword::NoKeyword => {
                let message = format!("'{}' is no unit of INTERVAL", word.value);
                return Err(with_hint(sql, &tokens[place], message, &word.value));
            }
            (None, _) if matches!(tokens[value].token, Token::Number(..)) => {
                let place = &tokens[follows.unwrap_or(value)];
                return Err(with_hint(sql, place, "INTERVAL and a number need a unit".to_owned(), ""));
            }
            _ => {}
        }
    }
    Ok(())
}

fn with_hint(sql: &str, place: &TokenWithSpan, message: String, written: &str) -> Error {
    let error = Error::new(ErrorKind::Syntax, format!("syntax error: {message}"));
    let words = UNITS.iter().flat_map(|(unit, others)| others.iter().chain([unit])).copied();
    let error = match nearest(written, words).filter(|_| written.len() > 2) {
        Some(meant) => error.with_hint(format!("did you mean {meant}?")),
        None => error.with_hint("INTERVAL 2 DAYS, INTERVAL '2 days', INTERVAL (n) DAYS"),
    };
    match byte_range(sql, place.span) {
        Some(span) => error.with_span(span),
        None => error,
    }
}

fn unit(word: &str) -> Option<&'static str> {
    let is = |name: &str| name.eq_ignore_ascii_case(word);
    UNITS
        .iter()
        .find(|(unit, others)| is(unit) || others.iter().any(|other| is(other)))
        .map(|(unit, _)| *unit)
}

/// The index behind the value of an INTERVAL: a constant, a name, a call or a parenthesised expression.
fn end_of_value(tokens: &[TokenWithSpan], value: usize) -> Option<usize> {
    match &tokens[value].token {
        Token::Number(..) | Token::SingleQuotedString(_) | Token::Placeholder(_) => Some(value + 1),
        Token::Minus | Token::Plus => {
            let number = next(tokens, value + 1)?;
            matches!(tokens[number].token, Token::Number(..)).then_some(number + 1)
        }
        Token::LParen => end_of_brackets(tokens, value),
        Token::Word(word) if word.keyword == Keyword::NoKeyword || word.quote_style.is_some() => {
            let mut end = value + 1;
            loop {
                match next(tokens, end).map(|place| (place, &tokens[place].token)) {
                    Some((place, Token::Period)) => end = next(tokens, place + 1)? + 1,
                    Some((place, Token::LParen)) => end = end_of_brackets(tokens, place)?,
                    _ => return Some(end),
                }
            }
        }
        _ => None,
    }
}

fn end_of_brackets(tokens: &[TokenWithSpan], start: usize) -> Option<usize> {
    let mut depth = 0;
    for (index, token) in tokens.iter().enumerate().skip(start) {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen if depth == 1 => return Some(index + 1),
            Token::RParen => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The index of the first token from `start` on that is no white space.
fn next(tokens: &[TokenWithSpan], start: usize) -> Option<usize> {
    (start..tokens.len()).find(|place| !matches!(tokens[*place].token, Token::Whitespace(_)))
}

fn unquoted(token: &Token) -> Option<&Word> {
    match token {
        Token::Word(word) if word.quote_style.is_none() => Some(word),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;

    fn tokens(sql: &str) -> Vec<TokenWithSpan> {
        Tokenizer::new(&GenericDialect {}, sql).tokenize_with_location().unwrap()
    }

    fn text(tokens: &[TokenWithSpan]) -> String {
        tokens.iter().map(|token| token.token.to_string()).collect()
    }

    #[test]
    fn digits_are_joined_and_words_are_not() {
        let check = |sql: &str, expected: Option<&str>| {
            let mut tokens = tokens(sql);
            let joined = join_digits(sql, &mut tokens).is_ok().then(|| text(&tokens));
            assert_eq!(joined.as_deref(), expected, "{sql}");
        };
        check("1_000_000", Some("1000000"));
        check("1_000.000_5 + 2_5e1_0", None);
        check("1_000.000_5 + 2_5e1", Some("1000.0005 + 25e1"));
        check("1 _000, a1b, t.c1, 1e5", Some("1 _000, a1b, t.c1, 1e5"));
        for wrong in ["123abc", "1_", "1__0", "1_a", "1_000_", "0x1Fz", "1.5x"] {
            check(wrong, None);
        }
    }

    #[test]
    fn units_are_named_as_the_parser_knows_them() {
        let check = |sql: &str, expected: Option<&str>| {
            let mut tokens = tokens(sql);
            let named = name_units(sql, &mut tokens).is_ok().then(|| text(&tokens));
            assert_eq!(named.as_deref(), expected, "{sql}");
        };
        check("INTERVAL 2 quarters", Some("INTERVAL 2 QUARTER"));
        check("interval '2' d", Some("interval '2' DAY"));
        check("INTERVAL (a + b(1)) Hrs)", Some("INTERVAL (a + b(1)) HOUR)"));
        check("INTERVAL t.n decades", Some("INTERVAL t.n DECADE"));
        check("INTERVAL -1 mons", Some("INTERVAL -1 MONTH"));
        check("INTERVAL '1 day' d, interval", Some("INTERVAL '1 day' d, interval"));
        check(
            "CREATE TABLE t (a INTERVAL, d INTERVAL NOT NULL)",
            Some("CREATE TABLE t (a INTERVAL, d INTERVAL NOT NULL)"),
        );
        check("RANGE INTERVAL '1' DAY PRECEDING", Some("RANGE INTERVAL '1' DAY PRECEDING"));
        check("x + INTERVAL '1' AND y", Some("x + INTERVAL '1' AND y"));
        for wrong in ["INTERVAL 2 fortnights", "INTERVAL '2' foobars", "INTERVAL 2", "INTERVAL 2, 3"] {
            check(wrong, None);
        }
    }
}
