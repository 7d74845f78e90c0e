//! What each rule does: the plan before and after it, in `plans/<rule>.txt`.
//!
//! A file has comments, statements that make tables, a query, and the two plans; `$__TEST_DIR__` is a folder for files.
//! `KEIRIN_WRITE_PLANS=1` writes the plans anew, to be read before they are committed.

mod common;

use std::fs;
use std::path::Path;

use common::query;
use keirin::Database;

const FOLDER: &str = "$__TEST_DIR__";

#[test]
fn rules_change_plans_as_written() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plans");
    let writes = std::env::var_os("KEIRIN_WRITE_PLANS").is_some();
    let mut wrong = Vec::new();
    for entry in fs::read_dir(&directory).expect("the folder is there") {
        let path = entry.expect("the folder can be read").path();
        let rule = path.file_stem().expect("a file has a name").to_str().expect("a rule's name").to_owned();
        let text = fs::read_to_string(&path).expect("the file can be read");
        let sql = text.split("\n-- before\n").next().expect("there is a first part").trim_end();
        let [before, after] = plans(&rule, sql);
        let found = format!("{sql}\n\n-- before\n{before}\n\n-- after\n{after}\n");
        if writes {
            fs::write(&path, found).expect("the file can be written");
        } else if found != text {
            wrong.push(format!("{}:\n{found}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "other plans:\n\n{}", wrong.join("\n"));
}

/// The plans before and after `rule` the first time that it changes something.
fn plans(rule: &str, sql: &str) -> [String; 2] {
    let database = Database::builder().threads(2).in_memory().expect("a database in memory");
    let session = database.session();
    let text: Vec<&str> = sql.lines().filter(|line| !line.starts_with("--")).collect();
    let directory = tempfile::tempdir().expect("a directory can be made");
    let folder = directory.path().to_str().expect("its name is text");
    let text = text.join("\n").replace(FOLDER, folder);
    let mut statements: Vec<&str> = text.split(';').map(str::trim).filter(|one| !one.is_empty()).collect();
    let asked = statements.pop().expect("there is a query");
    for statement in statements {
        query(&database, &session, statement).unwrap_or_else(|error| panic!("{rule}: {statement}: {error}"));
    }
    let steps = query(&database, &session, &format!("EXPLAIN VERBOSE {asked}"))
        .unwrap_or_else(|error| panic!("{rule}: {asked}: {error}"));
    let mut before = String::new();
    for step in steps {
        let [name, plan] = &step[..] else { panic!("{rule}: a step is a name and a plan: {step:?}") };
        if plan == "SAME TEXT AS ABOVE" || name.contains("_with_") {
            continue;
        }
        // Places are numbered by who is planned first.
        let lines =
            plan.split("\\n").map(|line| line.split_once(", place=").map_or(line, |(known, _)| known));
        let plan = lines.collect::<Vec<_>>().join("\n").replace(folder.trim_start_matches('/'), FOLDER);
        if name == rule || name.ends_with(&format!(" after {rule}")) {
            return [before, plan.trim_end().to_owned()];
        }
        before = plan.trim_end().to_owned();
    }
    panic!("{rule} changes nothing in: {asked}");
}
