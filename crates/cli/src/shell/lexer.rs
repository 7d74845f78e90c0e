//! SQL text cut into coloured pieces: as much of a lexer as an editor needs.
//!
//! It never fails, because its input is still being typed; tokens cover every byte, and the last one may be open: a
//! quote or a comment without its end.

use std::ops::Range;

use super::keywords::is_keyword;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Keyword,
    Word,
    /// `"name"` or `` `name` ``.
    QuotedName,
    /// `'text'`.
    Text,
    Number,
    Comment,
    Space,
    Symbol,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) range: Range<usize>,
    /// Whether the token's end is still missing.
    pub(crate) is_open: bool,
}

/// The tokens of `text`, one after the other.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut start = 0;
    while let Some(first) = text[start..].chars().next() {
        let rest = &text[start..];
        let (kind, length, is_open) = match first {
            '\'' => quoted(TokenKind::Text, rest, '\''),
            '"' | '`' => quoted(TokenKind::QuotedName, rest, first),
            '-' if rest.starts_with("--") => {
                (TokenKind::Comment, rest.find('\n').unwrap_or(rest.len()), false)
            }
            '/' if rest.starts_with("/*") => block_comment(rest),
            '0'..='9' => (TokenKind::Number, number(rest), false),
            '.' if rest[1..].starts_with(|c: char| c.is_ascii_digit()) => {
                (TokenKind::Number, number(rest), false)
            }
            c if c.is_whitespace() => (TokenKind::Space, prefix(rest, char::is_whitespace), false),
            c if is_word(c) => {
                let length = prefix(rest, is_word);
                let kind = if is_keyword(&rest[..length]) { TokenKind::Keyword } else { TokenKind::Word };
                (kind, length, false)
            }
            c => (TokenKind::Symbol, c.len_utf8(), false),
        };
        tokens.push(Token { kind, range: start..start + length, is_open });
        start += length;
    }
    tokens
}

/// Whether a character belongs to names and keywords.
fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_' || character == '$'
}

fn prefix(text: &str, belongs: impl Fn(char) -> bool) -> usize {
    text.find(|c| !belongs(c)).unwrap_or(text.len())
}

/// A quoted token; a doubled quote is a character of its text.
fn quoted(kind: TokenKind, text: &str, quote: char) -> (TokenKind, usize, bool) {
    let mut end = 1;
    while let Some(found) = text[end..].find(quote) {
        end += found + 1;
        if !text[end..].starts_with(quote) {
            return (kind, end, false);
        }
        end += 1;
    }
    (kind, text.len(), true)
}

/// Comments nest, as in the SQL standard.
fn block_comment(text: &str) -> (TokenKind, usize, bool) {
    let mut depth = 0_usize;
    let mut rest = text;
    while let Some(at) = rest.find(['/', '*']) {
        rest = &rest[at..];
        if rest.starts_with("/*") {
            depth += 1;
        } else if rest.starts_with("*/") {
            depth = depth.saturating_sub(1);
            if depth == 0 {
                return (TokenKind::Comment, text.len() - rest.len() + 2, false);
            }
        } else {
            rest = &rest[1..];
            continue;
        }
        rest = &rest[2..];
    }
    (TokenKind::Comment, text.len(), true)
}

/// `12`, `1.5`, `1e-9`, `0xff`.
fn number(text: &str) -> usize {
    let mut end = prefix(text, |c| c.is_ascii_alphanumeric() || c == '.' || c == '_');
    if text[..end].ends_with(['e', 'E']) && text[end..].starts_with(['+', '-']) {
        end += 1 + prefix(&text[end + 1..], |c| c.is_ascii_digit());
    }
    end
}

#[cfg(test)]
mod tests {
    use super::TokenKind::*;
    use super::*;

    #[test]
    fn text_is_cut_where_an_editor_would_colour_it() {
        let check = |text: &str, expected: &[(TokenKind, &str)]| {
            let found = tokens(text);
            let pieces: Vec<_> = found
                .iter()
                .filter(|token| token.kind != Space)
                .map(|token| (token.kind, &text[token.range.clone()]))
                .collect();
            assert_eq!(pieces, expected);
            let covered: String = found.iter().map(|token| &text[token.range.clone()]).collect();
            assert_eq!(covered, text);
        };
        check("select a1", &[(Keyword, "select"), (Word, "a1")]);
        check("'it''s' x", &[(Text, "'it''s'"), (Word, "x")]);
        check("\"a b\".c", &[(QuotedName, "\"a b\""), (Symbol, "."), (Word, "c")]);
        check("1.5e-3+.5", &[(Number, "1.5e-3"), (Symbol, "+"), (Number, ".5")]);
        check("1 -- x\n2", &[(Number, "1"), (Comment, "-- x"), (Number, "2")]);
        check("/* a /* b */ ü */1", &[(Comment, "/* a /* b */ ü */"), (Number, "1")]);
        check("größe", &[(Word, "größe")]);
        check("", &[]);
    }

    #[test]
    fn what_is_not_closed_is_open() {
        let check =
            |text: &str, expected| assert_eq!(tokens(text).last().unwrap().is_open, expected, "{text}");
        check("'abc", true);
        check("'abc'''", false);
        check("'abc''", true);
        check("\"abc", true);
        check("/* abc", true);
        check("/*/", true);
        check("abc", false);
    }
}
