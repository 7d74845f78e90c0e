//! Completion: file names in quotes, tables after FROM, columns, functions and keywords elsewhere, and the
//! shell's own commands.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use reedline::{Completer, CompletionResult, Span, Suggestion};

use super::dot_commands::{self, Argument};
use super::keywords;
use super::lexer::{Token, TokenKind, tokens};
use super::names::Names;
use crate::format::Format;

/// Keywords that are followed by a table.
const BEFORE_TABLES: &[&str] =
    &["FROM", "JOIN", "INTO", "TABLE", "UPDATE", "DESCRIBE", "DESC", "SUMMARIZE", "COPY", "VIEW"];

pub(crate) struct SqlCompleter {
    pub(crate) names: Arc<Mutex<Names>>,
}

/// What can stand at the cursor, and the part of it that is typed already.
#[derive(Debug, PartialEq, Eq)]
enum Context {
    /// A path inside open quotes.
    File {
        typed: Range<usize>,
    },
    Table {
        typed: Range<usize>,
    },
    /// Any expression; `of` is the name before a dot.
    Expression {
        typed: Range<usize>,
        of: Option<String>,
    },
    Nothing,
}

impl Completer for SqlCompleter {
    fn complete(&mut self, line: &str, position: usize) -> CompletionResult {
        let before = &line[..position];
        let mut found = if before.starts_with('.') { self.command(before) } else { self.sql(line, before) };
        found.dedup_by(|a, b| a.value == b.value);
        CompletionResult::fresh(found)
    }
}

impl SqlCompleter {
    fn sql(&self, line: &str, before: &str) -> Vec<Suggestion> {
        match context(before) {
            Context::File { typed } => files(&before[typed.clone()], typed, true),
            Context::Table { typed } => {
                let prefix = &before[typed.clone()];
                let names = self.names.lock();
                let tables = names.tables.iter().map(|(name, _)| name_in_sql(name));
                let mut found = matching(tables, prefix, &typed, true);
                if !prefix.is_empty() {
                    found.extend(matching(keywords::completions(prefix), prefix, &typed, true));
                    found.extend(matching(
                        names.functions.iter().map(|name| format!("{name}(")),
                        prefix,
                        &typed,
                        false,
                    ));
                }
                found
            }
            Context::Expression { typed, of } => {
                let prefix = &before[typed.clone()];
                let columns = self.columns(line, of.as_deref()).into_iter().map(|name| name_in_sql(&name));
                let mut found = matching(columns, prefix, &typed, false);
                if of.is_none() && !prefix.is_empty() {
                    let names = self.names.lock();
                    found.extend(matching(keywords::completions(prefix), prefix, &typed, true));
                    found.extend(matching(
                        names.functions.iter().map(|name| format!("{name}(")),
                        prefix,
                        &typed,
                        false,
                    ));
                    found.extend(matching(
                        names.tables.iter().map(|(name, _)| name_in_sql(name)),
                        prefix,
                        &typed,
                        false,
                    ));
                }
                found
            }
            Context::Nothing => Vec::new(),
        }
    }

    /// The columns of table `of`, or else of all tables and files that `line` names, or else of all tables.
    fn columns(&self, line: &str, of: Option<&str>) -> Vec<String> {
        let mut names = self.names.lock();
        let same = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
        let of_table = |names: &Names, table: &str| {
            names.tables.iter().find(|(name, _)| same(name, table)).map(|(_, columns)| columns.clone())
        };
        if let Some(columns) = of.and_then(|table| of_table(&names, table)) {
            return columns;
        }
        let relations = relations(line);
        if relations.is_empty() {
            // SELECT comes before FROM, so the tables are not known yet.
            return names.tables.iter().flat_map(|(_, columns)| columns.clone()).collect();
        }
        let mut columns = Vec::new();
        for name in relations {
            columns.extend(match name {
                Relation::Table(name) => of_table(&names, &name).unwrap_or_default(),
                Relation::File(path) => names.file_columns(&path),
            });
        }
        columns
    }

    fn command(&self, before: &str) -> Vec<Suggestion> {
        let Some((name, arguments)) = before.split_once(char::is_whitespace) else {
            return matching(
                dot_commands::names().map(|name| format!(".{name}")),
                before,
                &(0..before.len()),
                true,
            );
        };
        let start = before.len() - arguments.trim_start().len();
        let word_start = before[start..].rfind(char::is_whitespace).map_or(start, |at| start + at + 1);
        let word = &before[word_start..];
        let typed = word_start..before.len();
        match dot_commands::argument(name.trim_start_matches('.')) {
            Some(Argument::OnOff) => matching(["on", "off"].map(str::to_owned), word, &typed, false),
            Some(Argument::Format) => {
                matching(Format::all().map(|(name, _)| name.to_owned()), word, &typed, false)
            }
            Some(Argument::File) => {
                let quoted = word.starts_with('\'');
                let typed = if quoted { typed.start + 1..typed.end } else { typed };
                files(&before[typed.clone()], typed, quoted)
            }
            Some(Argument::Table) => {
                let names = self.names.lock();
                matching(names.tables.iter().map(|(name, _)| name.clone()), word, &typed, false)
            }
            Some(Argument::Command) => {
                matching(dot_commands::names().map(str::to_owned), word, &typed, false)
            }
            Some(Argument::Other) | None => Vec::new(),
        }
    }
}

/// What can be completed after this text.
fn context(before: &str) -> Context {
    let tokens = tokens(before);
    let end = before.len();
    let (typed, earlier) = match tokens.as_slice() {
        [.., last] if last.is_open => {
            return match last.kind {
                TokenKind::Text => Context::File { typed: last.range.start + 1..end },
                _ => Context::Nothing,
            };
        }
        [.., last] if last.kind == TokenKind::Comment || last.kind == TokenKind::Number => {
            return Context::Nothing;
        }
        [earlier @ .., last] if matches!(last.kind, TokenKind::Word | TokenKind::Keyword) => {
            (last.range.clone(), earlier)
        }
        all => (end..end, all),
    };
    let text = |token: &Token| &before[token.range.clone()];
    if let [.., name, dot] = earlier
        && text(dot) == "."
        && matches!(name.kind, TokenKind::Word | TokenKind::Keyword | TokenKind::QuotedName)
    {
        return Context::Expression { typed, of: Some(text(name).trim_matches(['"', '`']).to_owned()) };
    }
    let previous =
        earlier.iter().rev().find(|token| !matches!(token.kind, TokenKind::Space | TokenKind::Comment));
    match previous {
        Some(token) if BEFORE_TABLES.iter().any(|word| word.eq_ignore_ascii_case(text(token))) => {
            Context::Table { typed }
        }
        _ => Context::Expression { typed, of: None },
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Relation {
    Table(String),
    File(String),
}

/// The tables and files after FROM, JOIN and their like, anywhere in `line`.
fn relations(line: &str) -> Vec<Relation> {
    let tokens: Vec<Token> = tokens(line)
        .into_iter()
        .filter(|token| !matches!(token.kind, TokenKind::Space | TokenKind::Comment))
        .collect();
    let text = |token: &Token| &line[token.range.clone()];
    let after_table_word = tokens
        .windows(2)
        .filter(|pair| BEFORE_TABLES.iter().any(|word| word.eq_ignore_ascii_case(text(&pair[0]))));
    after_table_word
        .filter_map(|pair| match pair[1].kind {
            TokenKind::Text if !pair[1].is_open => {
                let quoted = text(&pair[1]);
                Some(Relation::File(quoted[1..quoted.len() - 1].replace("''", "'")))
            }
            TokenKind::Word | TokenKind::QuotedName => {
                Some(Relation::Table(text(&pair[1]).trim_matches(['"', '`']).to_owned()))
            }
            _ => None,
        })
        .collect()
}

/// A name as written in SQL: in quotes if it would not be read as itself otherwise.
pub(crate) fn name_in_sql(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !keywords::is_keyword(name);
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

fn suggestion(value: String, typed: &Range<usize>, append_whitespace: bool) -> Suggestion {
    Suggestion { value, span: Span::new(typed.start, typed.end), append_whitespace, ..Suggestion::default() }
}

/// The candidates that begin with `prefix`, ignoring case.
fn matching(
    candidates: impl IntoIterator<Item = String>,
    prefix: &str,
    typed: &Range<usize>,
    append_whitespace: bool,
) -> Vec<Suggestion> {
    let lower = prefix.to_lowercase();
    let begins = |name: &String| name.trim_start_matches('"').to_lowercase().starts_with(&lower);
    let mut found: Vec<String> = candidates.into_iter().filter(begins).collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().map(|value| suggestion(value, typed, append_whitespace)).collect()
}

/// The files and directories whose path begins with `prefix`.
fn files(prefix: &str, typed: Range<usize>, quoted: bool) -> Vec<Suggestion> {
    let (directory, start) = prefix.rfind('/').map_or(("", prefix), |at| prefix.split_at(at + 1));
    let path = if directory.is_empty() { Path::new(".") } else { Path::new(directory) };
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    let mut found: Vec<String> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let hidden = name.starts_with('.') && !start.starts_with('.');
            if !name.starts_with(start) || hidden || name.contains(char::is_control) {
                return None;
            }
            let is_directory = entry.path().is_dir();
            let end = match (is_directory, quoted) {
                (true, _) => "/",
                (false, true) => "'",
                (false, false) => "",
            };
            let name = if quoted { name.replace('\'', "''") } else { name };
            Some(format!("{directory}{name}{end}"))
        })
        .collect();
    found.sort_unstable();
    found.into_iter().map(|value| suggestion(value, &typed, false)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cursor_asks_for_what_can_stand_there() {
        let expression =
            |typed: Range<usize>, of: Option<&str>| Context::Expression { typed, of: of.map(str::to_owned) };
        let check = |before: &str, expected: Context| assert_eq!(context(before), expected, "{before}");
        check("", expression(0..0, None));
        check("SEL", expression(0..3, None));
        check("SELECT pas", expression(7..10, None));
        check("SELECT t.pas", expression(9..12, Some("t")));
        check("SELECT \"T x\".", expression(13..13, Some("T x")));
        check("SELECT * FROM tr", Context::Table { typed: 14..16 });
        check("SELECT * FROM ", Context::Table { typed: 14..14 });
        check("SELECT * FROM 'data/tr", Context::File { typed: 15..22 });
        check("SELECT 'done' ", expression(14..14, None));
        check("SELECT 1 -- FROM", Context::Nothing);
        check("SELECT 12", Context::Nothing);
    }

    #[test]
    fn relations_are_found_wherever_they_stand() {
        let table = |name: &str| Relation::Table(name.to_owned());
        let file = |name: &str| Relation::File(name.to_owned());
        let check = |line: &str, expected: &[Relation]| assert_eq!(relations(line), expected, "{line}");
        check("SELECT a FROM t JOIN \"U\" ON 1", &[table("t"), table("U")]);
        check("SELECT a FROM 'it''s.csv'", &[file("it's.csv")]);
        check("SELECT a, b, 'c'", &[]);
    }

    #[test]
    fn columns_come_from_the_tables_on_both_sides_of_the_cursor() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trips.csv");
        std::fs::write(&path, "passengers,fare\n1,2.5\n").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let session = keirin::Database::in_memory().unwrap().session();
        let names = Names::new(Arc::new(runtime), session);
        let mut completer = SqlCompleter { names: Arc::new(Mutex::new(names)) };
        let mut check = |line: &str, expected: &str| {
            let line = line.replace("FILE", &path.display().to_string());
            let (position, line) = (line.find('|').unwrap(), line.replace('|', ""));
            let found = completer.complete(&line, position);
            let values: Vec<&str> = found.suggestions().iter().map(|found| found.value.as_str()).collect();
            assert!(values.contains(&expected), "{line}: {values:?}");
        };
        check("SELECT pas| FROM 'FILE'", "passengers");
        check("SELECT fare, | FROM 'FILE' LIMIT 1;", "passengers");
        check("FROM 'FILE' WHERE fa|", "fare");
    }

    #[test]
    fn names_are_quoted_where_sql_would_read_another() {
        let check = |name, expected: &str| assert_eq!(name_in_sql(name), expected);
        check("trips", "trips");
        check("Trips", "\"Trips\"");
        check("a b", "\"a b\"");
        check("order", "\"order\"");
        check("2x", "\"2x\"");
        check("a\"b", "\"a\"\"b\"");
    }

    #[test]
    fn files_end_with_what_comes_next() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a'b.csv"), "").unwrap();
        std::fs::write(directory.path().join(".hidden"), "").unwrap();
        std::fs::create_dir(directory.path().join("abc")).unwrap();
        let base = format!("{}/", directory.path().display());
        let values = |prefix: &str, quoted| -> Vec<String> {
            let found = files(&format!("{base}{prefix}"), 0..0, quoted);
            found.into_iter().map(|suggestion| suggestion.value[base.len()..].to_owned()).collect()
        };
        assert_eq!(values("a", true), ["a''b.csv'", "abc/"]);
        assert_eq!(values("", false), ["a'b.csv", "abc/"]);
        assert_eq!(values(".h", true), [".hidden'"]);
        assert!(values("x", true).is_empty());
    }
}
