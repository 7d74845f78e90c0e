//! The whole runner, with Keirin and with rivals made of shell.

#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Runs a suite over 1,000 rows; `python` is the program that plays the rivals.
fn run(suite: &str, folder: &Path, python: &Path, arguments: &[&str]) -> (Output, Vec<Value>) {
    let json = folder.join("results.jsonl");
    let output = Command::new(env!("CARGO_BIN_EXE_keirin-bench"))
        .args([suite, "--rows", "1000", "--runs", "2", "--threads", "1"])
        .arg("--cache")
        .arg(folder.join("cache"))
        .arg("--python")
        .arg(python)
        .arg("--json")
        .arg(&json)
        .args(arguments)
        .output()
        .expect("the runner starts");
    let text = fs::read_to_string(json).unwrap_or_default();
    (output, text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect())
}

/// A program that answers every request with `on_run` when it is a query, and politely otherwise.
fn rival(folder: &Path, on_run: &str) -> std::path::PathBuf {
    let path = folder.join("rival");
    let script = format!(
        r#"#!/bin/sh
while read -r line; do
  case $line in
    *'"do":"open"'*) echo '{{"reply":"opened","version":"0"}}' ;;
    *'"do":"load"'*) echo '{{"reply":"loaded","ns":1}}' ;;
    *'"do":"drop"'*) echo '{{"reply":"dropped"}}' ;;
    *) {on_run} ;;
  esac
done
"#
    );
    fs::write(&path, script).expect("a new file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    path
}

fn values<'a>(results: &'a [Value], engine: &str, metric: &str) -> Vec<&'a Value> {
    let wanted = |line: &&Value| line["engine"] == engine && line["metric"] == metric;
    results.iter().filter(wanted).map(|line| &line["value"]).collect()
}

#[test]
fn keirin_runs_alone_and_a_missing_rival_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("no-python");
    let engines = ["--engines", "keirin,keirin:parquet,duckdb"];
    let (output, results) = run("seed", folder.path(), &missing, &engines);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("skipping duckdb: no "), "{text}");
    assert!(text.contains("no rival runs"), "{text}");
    for engine in ["keirin", "keirin:parquet"] {
        let times = values(&results, engine, "time");
        assert_eq!(times.len(), 5, "{text}");
        assert!(times.iter().all(|time| time.as_f64().is_some_and(|time| time > 0.0)), "{results:?}");
    }
    let keys = ["suite", "case", "engine", "metric", "value", "unit"];
    assert!(results.iter().all(|line| keys.iter().all(|key| line.get(key).is_some())), "{results:?}");
    let left = fs::read_dir(folder.path().join("cache")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(
        left.into_iter().all(|name| name.to_string_lossy().ends_with(".parquet")),
        "scratch files stay behind"
    );
}

#[test]
fn raw_columns_are_summed_and_nothing_stays_behind() {
    let folder = tempfile::tempdir().unwrap();
    let (output, results) = run("raw", folder.path(), Path::new("none"), &[]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for engine in ["keirin", "read-limit"] {
        let times = values(&results, engine, "time");
        assert_eq!(times.len(), 7, "{text}");
        assert!(times.iter().all(|time| time.as_f64().is_some_and(|time| time > 0.0)), "{results:?}");
    }
    assert_eq!(fs::read_dir(folder.path().join("cache")).unwrap().count(), 0, "files stay behind");
}

#[test]
fn a_disagreement_with_the_rivals_voids_the_time() {
    let folder = tempfile::tempdir().unwrap();
    let answer = r#"echo '{"reply":"answer","ns":1,"columns":["a"],"rows":[[-1]]}'"#;
    let python = rival(folder.path(), answer);
    let arguments = ["--engines", "keirin,duckdb", "--queries", "sum_nonull"];
    let (output, results) = run("seed", folder.path(), &python, &arguments);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("keirin is WRONG: row 1, column 1 (a): "), "{text}");
    assert_eq!(values(&results, "keirin", "time"), [&Value::Null]);
    assert_eq!(values(&results, "duckdb", "time"), [&Value::from(1e-6)]);
}

#[test]
fn a_rival_that_dies_does_not_stop_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let python = rival(folder.path(), "echo 'out of luck' >&2; exit 3");
    let arguments = ["--engines", "duckdb,keirin", "--queries", "sum_nonull,gb_avg_256"];
    let (output, results) = run("seed", folder.path(), &python, &arguments);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert_eq!(text.matches("duckdb failed: died (exit status: 3): out of luck").count(), 2, "{text}");
    assert_eq!(values(&results, "keirin", "time").len(), 2);
    assert!(values(&results, "keirin", "time").iter().all(|time| time.is_f64()));
}

#[test]
fn a_table_that_cannot_be_loaded_is_tried_once() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("seed_f64.parquet"), "not Parquet").unwrap();
    let data = data.display().to_string();
    let arguments =
        ["--engines", "keirin", "--queries", "sum_nonull,count_where,gb_avg_256", "--data", &data];
    let (output, results) = run("seed", folder.path(), Path::new("none"), &arguments);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.matches("keirin failed: cannot load seed_f64: ").count(), 2, "{text}");
    assert_eq!(values(&results, "keirin", "time").iter().filter(|time| time.is_f64()).count(), 1, "{text}");
    assert!(!output.status.success());
}
