//! What a suite asks, as data: the files in `benchmarks/definitions`.
//!
//! A definition is SQL with directives in its comments; a case begins at `-- case:`.
//!
//! ```sql
//! -- case: q07                          the name in reports
//! -- tables: hits                       what must be loaded
//! -- order: 2, 1                        columns (from 1) whose sequence must agree
//! -- ties: free                         a LIMIT cuts ties: compare nothing but those columns
//! -- replace polars: STRLEN => LENGTH   a word that an engine spells differently
//! SELECT ...                            for every engine
//! -- sql duckdb:                        instead, for one engine
//! SELECT ...
//! ```
//!
//! A case without SQL gets it from elsewhere (TPC-H from the library, ClickBench from its pack).

use std::collections::BTreeMap;

use crate::answer::Rule;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) tables: Vec<String>,
    pub(crate) rule: Rule,
    sql: String,
    sql_by_engine: BTreeMap<String, String>,
    /// Engine, what to replace, by what.
    replacements: Vec<(String, String, String)>,
}

impl Case {
    /// The SQL for an engine; empty where the definition leaves it to others.
    pub(crate) fn sql(&self, engine: &str) -> String {
        let sql = self.sql_by_engine.get(engine).unwrap_or(&self.sql);
        let sql = sql.trim().trim_end_matches(';').to_owned();
        let ours = self.replacements.iter().filter(|(name, ..)| name == engine);
        ours.fold(sql, |sql, (_, from, to)| sql.replace(from, to))
    }

    /// Fills in the SQL of a case whose definition has none for `engine`, or for all.
    pub(crate) fn provide(&mut self, engine: Option<&str>, sql: &str) {
        match engine {
            Some(engine) => {
                self.sql_by_engine.entry(engine.to_owned()).or_insert_with(|| sql.to_owned());
            }
            None if self.sql.trim().is_empty() => sql.clone_into(&mut self.sql),
            None => {}
        }
    }
}

/// Reads a definition file.
///
/// # Errors
/// The line that is wrong, with its number.
pub(crate) fn parse(text: &str) -> Result<Vec<Case>, String> {
    let mut cases = Vec::<Case>::new();
    let mut engine = None;
    for (index, line) in text.lines().enumerate() {
        let wrong = |what: &str| format!("line {}: {what}: {line}", index + 1);
        let directive = line.strip_prefix("-- ").and_then(|comment| comment.split_once(':'));
        if let Some(("case", name)) = directive {
            cases.push(Case { name: name.trim().into(), ..Case::default() });
            engine = None;
            continue;
        }
        let Some(case) = cases.last_mut() else {
            if line.starts_with("--") || line.trim().is_empty() {
                continue;
            }
            return Err(wrong("SQL before the first case"));
        };
        let words = directive.map(|(key, value)| (key.split_once(' ').unwrap_or((key, "")), value.trim()));
        match words {
            Some((("tables", ""), names)) => case.tables = list(names).map(str::to_owned).collect(),
            Some((("order", ""), columns)) => {
                let column = |text: &str| text.parse::<usize>().ok().and_then(|column| column.checked_sub(1));
                let columns = list(columns).map(column).collect::<Option<_>>();
                case.rule.order = columns.ok_or_else(|| wrong("columns are numbers from 1"))?;
            }
            Some((("ties", ""), "free")) => case.rule.ties_free = true,
            Some((("sql", name), "")) => engine = Some(name.to_owned()),
            Some((("replace", name), change)) => {
                let (from, to) = change.split_once(" => ").ok_or_else(|| wrong("expected FROM => TO"))?;
                case.replacements.push((name.into(), from.into(), to.into()));
            }
            Some((("case" | "tables" | "order" | "ties" | "sql", _), _)) => {
                return Err(wrong("no such directive"));
            }
            _ if line.starts_with("--") => {}
            _ => {
                let sql = match &engine {
                    Some(engine) => case.sql_by_engine.entry(engine.clone()).or_default(),
                    None => &mut case.sql,
                };
                sql.push_str(line);
                sql.push('\n');
            }
        }
    }
    Ok(cases)
}

fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "-- Prose: not a directive.\n\n-- case: one\n-- tables: t, u\n-- order: 2, 1\n\
        -- ties: free\n-- replace duckdb: b => c\nSELECT a,\n  b\n-- sql polars:\nSELECT d;\n\n-- case: two\n";

    #[test]
    fn directives_and_sql_are_told_apart() {
        let cases = parse(TEXT).unwrap();
        assert_eq!(cases.len(), 2);
        assert_eq!(cases[0].tables, ["t", "u"]);
        assert_eq!(cases[0].rule, Rule { order: vec![1, 0], ties_free: true });
        assert_eq!(cases[1], Case { name: "two".into(), ..Case::default() });
    }

    #[test]
    fn engines_have_their_dialects() {
        let case = &parse(TEXT).unwrap()[0];
        for (engine, expected) in
            [("keirin", "SELECT a,\n  b"), ("duckdb", "SELECT a,\n  c"), ("polars", "SELECT d")]
        {
            assert_eq!(case.sql(engine), expected, "{engine}");
        }
    }

    #[test]
    fn provided_sql_never_overrides_a_definition() {
        let mut case = parse("-- case: x\n-- sql polars:\nP\n").unwrap().remove(0);
        case.provide(Some("polars"), "A");
        case.provide(Some("duckdb"), "B");
        case.provide(None, "C");
        case.provide(None, "D");
        assert_eq!([case.sql("polars"), case.sql("duckdb"), case.sql("keirin")], ["P", "B", "C"]);
    }

    #[test]
    fn mistakes_name_their_line() {
        for (text, expected) in [
            ("SELECT 1\n", "line 1: SQL before the first case: SELECT 1"),
            ("-- case: x\n-- order: 0\n", "line 2: columns are numbers from 1: -- order: 0"),
            ("-- case: x\n-- ties: fre\n", "line 2: no such directive: -- ties: fre"),
            ("-- case: x\n-- replace duckdb: a\n", "line 2: expected FROM => TO: -- replace duckdb: a"),
        ] {
            assert_eq!(parse(text).unwrap_err(), expected);
        }
    }

    #[test]
    fn the_definitions_we_ship_are_sound() {
        let folder = crate::benchmarks_directory().join("definitions");
        let mut names = std::collections::BTreeSet::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let cases = parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
            assert!(!cases.is_empty(), "{}", path.display());
            for case in cases {
                assert!(!case.tables.is_empty(), "{} in {}", case.name, path.display());
                assert!(names.insert((path.clone(), case.name.clone())), "{} twice", case.name);
            }
        }
    }
}
