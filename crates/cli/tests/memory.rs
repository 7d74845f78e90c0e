//! The memory limit holds: hungry queries answer, or say who asked for too much, and the process stays near it.
#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const MB: u64 = 1 << 20;
/// How much more than the limit the process may take, in percent of it: what is on its way between operators.
const EXCESS_PERCENT: u64 = 25;
/// Longer than any query takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(600);

/// The memory of a process that no file stands behind.
fn anonymous_bytes(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Runs `script` within so much memory; its last statement may fail for want of it. Whether it did not.
fn check(directory: &std::path::Path, limit_mb: u64, script: &str) -> bool {
    let mut child = Command::new(env!("CARGO_BIN_EXE_keirin"))
        .args(["--format", "csv", "--threads", "2", "--memory-limit", &format!("{limit_mb}MB"), "-f", "-"])
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    stdin.write_all(b"SELECT count(*) AS ready FROM range(0, 100000);\n").expect("it listens");
    let mut line = String::new();
    stdout.read_line(&mut line).expect("text");
    assert_eq!(line, "ready\n");
    let idle = anonymous_bytes(child.id()).expect("it lives");
    // Answers are read and thrown away as they come.
    let reader = std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
    stdin.write_all(script.as_bytes()).expect("it listens");
    drop(stdin);
    let begun = Instant::now();
    let mut highest = idle;
    while child.try_wait().expect("a child").is_none() {
        highest = highest.max(anonymous_bytes(child.id()).unwrap_or(0));
        if begun.elapsed() > PATIENCE {
            child.kill().expect("a child");
            panic!("{script} does not end");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut told = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut told).expect("text");
    reader.join().expect("a thread").expect("a pipe");
    let status = child.wait().expect("a child");
    let growth = (highest - idle) / MB;
    println!("{limit_mb} MB: {growth} MB, {:?}: {script}{told}", begun.elapsed());
    let names_who_asked = told.contains(" needs ") && told.contains("left to it");
    assert!(status.success() || names_who_asked, "{script}: {status}: {told}");
    assert!(
        growth * 100 <= limit_mb * (100 + EXCESS_PERCENT),
        "{script} took {growth} MB with a limit of {limit_mb} MB: {told}"
    );
    status.success()
}

/// As [`check`]; it must not fail.
fn answers(directory: &std::path::Path, limit_mb: u64, script: &str) {
    assert!(check(directory, limit_mb, script), "{script} fails with {limit_mb} MB");
}

/// So many rows of a number and 1.2 KB of text.
fn wide(rows: u32) -> String {
    format!("(SELECT value AS a, repeat(CAST(value + 100000 AS VARCHAR), 200) AS s FROM range(0, {rows}))")
}

/// 240 MB.
const MANY: u32 = 200_000;
/// 2.4 GB.
const VERY_MANY: u32 = 2_000_000;

#[test]
fn functions_ask_before_they_allocate() {
    let directory = tempfile::tempdir().unwrap();
    let check = |limit_mb, query: &str| _ = check(directory.path(), limit_mb, &format!("{query};\n"));
    // Few rows at a time, which no exchange gathers to a batch.
    check(128, "SELECT sum(u) FROM (SELECT unnest(generate_series(1, 100000)) AS u FROM range(500))");
    check(
        128,
        "SELECT max(n), sum(length(r)) FROM (SELECT r, row_number() OVER () AS n FROM \
                (SELECT repeat('abcdefghij', 10000 + value) AS r FROM range(0, 5000)))",
    );
    check(128, "SELECT length(repeat('x', 1000000000))");
    check(128, "SELECT max(length(repeat('x', value))) FROM range(0, 100000)");
    check(128, "SELECT length(s) FROM (SELECT repeat('x', value * 10) AS s FROM range(0, 5000))");
    check(128, "SELECT max(length(rpad('x', CAST(value AS INT), 'yz'))) FROM range(0, 100000)");
    check(128, "SELECT length(replace(repeat('x', 10000000), 'x', 'yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy'))");
    check(128, "SELECT length(regexp_replace(repeat('x', 2000000), 'x', repeat('y', 100), 'g'))");
    check(128, "SELECT length(concat(s, s, s, s, s, s, s, s)) FROM (SELECT repeat('x', 10000000) AS s)");
    let s = "(SELECT repeat('x', 10000) AS s FROM range(0, 20000))";
    check(128, &format!("SELECT max(length(concat(s, s, s, s, s, s, s, s, s, s, s, s))) FROM {s}"));
    check(128, "SELECT array_length(range(0, 1000000000))");
    check(128, "SELECT count(*) FROM (SELECT unnest(range(0, 500000)) FROM range(0, 20))");
    check(2048, "SELECT length(repeat('x', 2000000000))");
}

#[test]
fn aggregates_book_what_they_keep() {
    let directory = tempfile::tempdir().unwrap();
    let check = |limit_mb, query: &str| _ = check(directory.path(), limit_mb, &format!("{query};\n"));
    let groups = "(SELECT value AS g, CAST(uuid() AS VARCHAR) AS s FROM range(0, 60000))";
    check(
        128,
        &format!(
            "SELECT count(d) FROM (SELECT g, count(s), count(DISTINCT s) AS d FROM {groups} GROUP BY g)"
        ),
    );
    check(512, "SELECT count(DISTINCT repeat(CAST(value AS VARCHAR), 5)) FROM range(0, 300000)");
    check(128, "SELECT median(value * 1.5e0) FROM range(0, 3000000)");
    for (limit_mb, rows) in [(128, MANY), (512, 3 * MANY), (2048, VERY_MANY)] {
        let wide = wide(rows);
        check(limit_mb, &format!("SELECT array_length(array_agg(s)) FROM {wide}"));
        check(limit_mb, &format!("SELECT length(string_agg(s, ',')) FROM {wide}"));
        for gathered in ["array_length(array_agg(s))", "length(string_agg(s, ','))"] {
            let grouped = format!("SELECT a % 1000 AS g, {gathered} AS n FROM {wide} GROUP BY g");
            check(limit_mb, &format!("SELECT sum(n) FROM ({grouped})"));
        }
        check(limit_mb, &format!("SELECT count(*) FROM (SELECT s, count(*) FROM {wide} GROUP BY s)"));
    }
}

#[test]
fn windows_and_answers_stay_near_the_limit() {
    let directory = tempfile::tempdir().unwrap();
    let check = |limit_mb, query: &str| _ = check(directory.path(), limit_mb, &format!("{query};\n"));
    for (limit_mb, rows) in [(128, MANY), (512, 3 * MANY), (2048, VERY_MANY)] {
        let wide = wide(rows);
        let sums = format!("SELECT s, sum(a) OVER () AS n FROM {wide}");
        check(limit_mb, &format!("SELECT max(n + length(s)) FROM ({sums})"));
    }
    let numbered = |rows| format!("SELECT s, row_number() OVER (ORDER BY s DESC) AS n FROM {}", wide(rows));
    check(128, &format!("SELECT max(n + length(s)) FROM ({})", numbered(MANY)));
    check(512, &format!("SELECT max(n + length(s)) FROM ({})", numbered(MANY)));
    check(128, &format!("SELECT s FROM {}", wide(MANY)));
}

#[test]
fn sorts_and_joins_go_to_disk() {
    let directory = tempfile::tempdir().unwrap();
    let check = |limit_mb, query: &str| answers(directory.path(), limit_mb, &format!("{query};\n"));
    for (limit_mb, rows) in [(128, MANY), (512, 3 * MANY), (2048, VERY_MANY)] {
        let wide = wide(rows);
        check(limit_mb, &format!("SELECT * FROM {wide} ORDER BY s DESC"));
        let lengths = "max(length(l.s) + length(r.s))";
        check(limit_mb, &format!("SELECT {lengths} FROM {wide} l JOIN {wide} r ON l.a = r.a"));
    }
    check(128, &format!("SELECT * FROM {} ORDER BY a % 7, s DESC", wide(MANY)));
    check(512, &format!("SELECT * FROM {} ORDER BY a % 7, s DESC", wide(3 * MANY)));
    // Stored rows come in larger batches than those that are merged.
    let texts = "'a row of a table ' || value * 7919 % 3000017 AS s, value % 1000 AS k, value / 3.0 AS x";
    let table = format!(".open rows\nCREATE TABLE t AS SELECT {texts} FROM range(0, 3000000)");
    check(256, &table);
    for sorted in [
        "SELECT max(length(s) + x) FROM (SELECT * FROM t ORDER BY s DESC, x OFFSET 3)",
        "SELECT max(n + x) FROM (SELECT s, x, row_number() OVER (PARTITION BY k ORDER BY s) AS n FROM t)",
        "SELECT max(n + x) FROM (SELECT s, x, row_number() OVER (ORDER BY x % 5, s) AS n FROM t)",
    ] {
        check(48, &format!(".open rows\n{sorted}"));
    }
}

#[test]
fn wide_rows_are_written_and_merged_within_the_limit() {
    let directory = tempfile::tempdir().unwrap();
    let texts: Vec<String> = (0..60)
        .map(|column| format!("repeat(CAST(value * 97 % 10007 + {column} AS VARCHAR), 200) AS c{column}"))
        .collect();
    let rows =
        |from: u32| format!("SELECT value AS a, {} FROM range({from}, {})", texts.join(", "), from + 6000);
    let script = format!(
        ".open wide\nCREATE TABLE t ORDER BY (a) AS {};\nINSERT INTO t {};\nOPTIMIZE TABLE t FINAL;\n",
        rows(0),
        rows(6000),
    );
    answers(directory.path(), 1024, &script);
}

#[test]
fn wide_rows_are_loaded_and_read_within_the_limit() {
    let directory = tempfile::tempdir().unwrap();
    let check = |limit_mb, script: &str| _ = check(directory.path(), limit_mb, script);
    let text = |column| format!("repeat(CAST(value * 97 % 10007 + {column} AS VARCHAR), 200) AS c{column}");
    for columns in [60, 100] {
        let texts: Vec<String> = (0..columns).map(text).collect();
        let rows = format!("SELECT value AS a, {} FROM range(0, 10000)", texts.join(", "));
        check(512, &format!(".open loaded{columns}\nCREATE TABLE t AS {rows};\n"));
        check(512, &format!(".open loaded{columns}\nSELECT * FROM t;\n"));
        check(512, &format!(".open sorted{columns}\nCREATE TABLE t ORDER BY (c7) AS {rows};\n"));
        // Stripes that were written with more memory are larger.
        check(8192, &format!(".open large{columns}\nCREATE TABLE t AS {rows};\n"));
        check(256, &format!(".open large{columns}\nSELECT * FROM t;\n"));
        check(512, &format!(".open large{columns}\nSELECT * FROM t WHERE a % 3 > 0;\n"));
        check(512, &format!(".open large{columns}\nCREATE TABLE u AS SELECT * FROM t;\n"));
        check(512, &format!(".open large{columns}\nCREATE TABLE v ORDER BY (c7) AS SELECT * FROM t;\n"));
    }
}

#[test]
fn tables_and_files_are_booked_while_they_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let check = |limit_mb, script: &str| _ = check(directory.path(), limit_mb, script);
    let wide = wide(MANY);
    check(128, &format!("CREATE TABLE t AS SELECT * FROM {wide};\n"));
    for file in ["w.parquet", "w.csv", "w.json", "w.arrow"] {
        check(512, &format!("COPY {wide} TO '{file}';\n"));
        check(128, &format!("SELECT max(length(s)) FROM '{file}';\n"));
        check(128, &format!("SELECT * FROM '{file}' ORDER BY s DESC;\n"));
    }
}
