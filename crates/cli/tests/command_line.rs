//! The real binary, as scripts use it: arguments, pipes, formats, exit codes, errors.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

fn keirin(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keirin"));
    command.args(arguments).stdin(Stdio::null()).env_remove("NO_COLOR");
    command
}

fn run(arguments: &[&str]) -> Output {
    keirin(arguments).output().expect("the binary starts")
}

fn run_with_input(arguments: &[&str], input: &str) -> Output {
    let mut child = keirin(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input.as_bytes()).expect("the binary reads");
    drop(stdin);
    child.wait_with_output().expect("the binary ends")
}

/// Exit code, standard output and standard error are exactly these.
fn check(output: &Output, code: i32, stdout: &str, stderr: &str) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    let found = (output.status.code(), text(&output.stdout), text(&output.stderr));
    assert_eq!(found, (Some(code), stdout.to_owned(), stderr.to_owned()));
}

fn path_in(directory: &TempDir, name: &str) -> String {
    directory.path().join(name).to_str().expect("text").to_owned()
}

#[test]
fn an_answer_is_a_table() {
    let table = "\
┌────┬───┬──────┐
│  n │ s │ z    │
├────┼───┼──────┤
│ 42 │ x │ NULL │
└────┴───┴──────┘
1 row
";
    let sql = "SELECT 42 AS n, 'x' AS s, NULL AS z";
    check(&run(&["-c", sql]), 0, table, "");
    check(&run_with_input(&[], sql), 0, table, "");
    check(&run_with_input(&["-f", "-"], sql), 0, table, "");
}

#[cfg(unix)]
#[test]
fn standard_input_is_a_file_too() {
    let count = |rows: &str| {
        let sql = "SELECT count(*) AS n, max(a) AS a FROM '/dev/stdin'";
        check(&run_with_input(&["--format", "csv", "-c", sql], rows), 0, "n,a\n2,7\n", "");
    };
    count("a,b\n7,x\n5,y\n");
    count("{\"a\": 7}\n{\"a\": 5}\n");
    count("[{\"a\": 7}, {\"a\": 5}]");
}

#[test]
fn every_format_has_its_shape() {
    let sql = "SELECT * FROM (VALUES (1, 'a,b'), (2, NULL)) AS t(n, s) ORDER BY n";
    for (format, expected) in [
        ("csv", "n,s\n1,\"a,b\"\n2,\n"),
        ("tsv", "n\ts\n1\ta,b\n2\t\n"),
        ("jsonl", "{\"n\":1,\"s\":\"a,b\"}\n{\"n\":2,\"s\":null}\n"),
        ("markdown", "| n | s |\n| ---: | --- |\n| 1 | a,b |\n| 2 | NULL |\n"),
        ("vertical", "── row 1 ──\nn │ 1\ns │ a,b\n── row 2 ──\nn │ 2\ns │ NULL\n"),
        ("line", "── row 1 ──\nn │ 1\ns │ a,b\n── row 2 ──\nn │ 2\ns │ NULL\n"),
    ] {
        check(&run(&["--format", format, "-c", sql]), 0, expected, "");
        check(&run(&["-c", &format!(".mode {format}"), "-c", sql]), 0, expected, "");
    }
    check(
        &run(&["-c", ".mode csv", "-c", ".headers off", "-c", ".nullvalue NA", "-c", sql]),
        0,
        "1,\"a,b\"\n2,NA\n",
        "",
    );

    let json = run(&["--format", "json", "-c", sql]);
    let text = String::from_utf8(json.stdout).unwrap();
    let compact: String = text.split_whitespace().collect();
    assert_eq!(compact, "[{\"n\":1,\"s\":\"a,b\"},{\"n\":2,\"s\":null}]");

    assert!(run(&["--format", "parquet", "-c", sql]).stdout.starts_with(b"PAR1"));
    assert!(run(&["--format", "arrow", "-c", sql]).stdout.starts_with(b"ARROW1"));
}

#[test]
fn numbers_keep_all_their_digits() {
    let sql = "SELECT 0.1::double + 0.2::double AS d, '12345678901234567.89'::decimal(20, 2) AS e";
    check(&run(&["--format", "csv", "-c", sql]), 0, "d,e\n0.30000000000000004,12345678901234567.89\n", "");
}

#[test]
fn errors_go_to_standard_error_with_the_place() {
    let expected = "\
error: syntax error: expected an SQL statement, found SELEC
  line 2: SELEC 1
          ^^^^^
hint: did you mean SELECT?
";
    check(&run(&["-c", "\nSELEC 1"]), 1, "", expected);

    let directory = tempfile::tempdir().unwrap();
    let script = path_in(&directory, "a.sql");
    std::fs::write(&script, "SELECT 1 AS a;\n\n-- then\nSELECT\n  nonsense;\n").unwrap();
    let output = run(&["-f", &script, "--format", "csv"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "a\n1\n");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains(&format!("  in {script}\n  line 5:   nonsense;\n            ^")), "{stderr}");
}

#[test]
fn errors_speak_of_sql_and_say_what_to_do() {
    let check = |sql: &str, expected: &str| {
        let output = run(&["-c", "CREATE TABLE t AS SELECT 1 AS a, 'x' AS s", "-c", sql]);
        assert_eq!(output.status.code(), Some(1), "{sql}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        let lines: Vec<&str> = stderr.lines().filter(|line| !line.starts_with("  ")).collect();
        assert_eq!(lines.join("\n"), expected, "{sql}");
    };
    check(
        "INSERT INTO t SELECT 1",
        "error: INSERT gives more or fewer columns than the table takes\n\
         hint: name those that it gives: INSERT INTO t (a, b) SELECT ...; DESCRIBE t lists all",
    );
    check(
        "SELECT a FROM t WHERE a > 'abc'",
        "error: 'abc' is not a BIGINT\nhint: TRY_CAST gives NULL where a value does not convert",
    );
    check(
        "SELECT CAST('it''s' AS INT)",
        "error: 'it's' is not an INTEGER\nhint: TRY_CAST gives NULL where a value does not convert",
    );
    check(
        "SELECT sum(s) FROM t",
        "error: function 'sum' does not take (VARCHAR)\n\
         detail: there is sum(DECIMAL), sum(UBIGINT), sum(BIGINT), sum(DOUBLE), sum(DURATION), sum(INTERVAL)",
    );
    check(
        "SELECT substr(1, 2, 3, 4)",
        "error: function 'substr' does not take (BIGINT, BIGINT, BIGINT, BIGINT)\n\
         detail: there is substr(str: VARCHAR, start_pos: BIGINT), \
         substr(str: VARCHAR, start_pos: BIGINT, length: BIGINT)",
    );
    check(
        "SELECT s, count(*) FROM t",
        "error: column in SELECT must be in GROUP BY or an aggregate function\n\
         hint: add it to GROUP BY, or take any of its values with any_value(...)",
    );
}

#[test]
fn a_script_ends_at_its_first_error_unless_told_to_go_on() {
    let script = "SELECT 1 AS a;\nSELEC;\nSELECT 2 AS a;\n";
    let stops = run_with_input(&["--format", "csv"], script);
    assert_eq!((stops.status.code(), stops.stdout.as_slice()), (Some(1), &b"a\n1\n"[..]));
    let goes_on = run_with_input(&["--format", "csv"], &format!(".bail off\n{script}"));
    assert_eq!((goes_on.status.code(), goes_on.stdout.as_slice()), (Some(1), &b"a\n1\na\n2\n"[..]));
    let one_line = ".bail off\nSELECT 1 AS a; SELECT nope; SELECT 2 AS a;\nSELECT 3 AS a;\n";
    let goes_on = run_with_input(&["--format", "csv"], one_line);
    assert_eq!((goes_on.status.code(), goes_on.stdout.as_slice()), (Some(1), &b"a\n1\na\n2\na\n3\n"[..]));
}

#[test]
fn exit_codes_tell_what_was_wrong() {
    let check = |arguments: &[&str], code| {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?} {output:?}");
        assert_eq!(code == 0, output.stderr.is_empty(), "{arguments:?} {output:?}");
    };
    check(&["-c", "SELECT 1"], 0);
    check(&["--help"], 0);
    check(&["-c", ""], 0);
    check(&["-c", "SELECT 1/0"], 1);
    check(&["-f", "/nowhere/a.sql"], 1);
    check(&["-f", "/"], 1);
    check(&["-c", ".nonsense"], 1);
    check(&["--nonsense"], 2);
    check(&["--format", "xml"], 2);
    check(&["--memory-limit", "lots", "-c", "SELECT 1"], 2);
    check(&["--threads", "0", "-c", "SELECT 1"], 2);
    check(&["-c", "SELECT 1", "-f", "a.sql"], 2);
    check(&["SELECT 1"], 2);
    check(&["nothing-here.parquet", "-c", "SELECT 1"], 2);
    check(&["dmeo"], 2);
    assert!(!Path::new("nothing-here.parquet").exists() && !Path::new("dmeo").exists());
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    for format in ["csv", "table", "markdown", "jsonl"] {
        let mut child = keirin(&["--format", format, "-c", "SELECT * FROM range(0, 1000000000)"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(!line.is_empty());
        drop(reader);
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!((child.wait().unwrap().code(), stderr.as_str()), (Some(0), ""), "{format}");
    }
}

#[test]
fn ctrl_c_ends_a_script_with_130() {
    let child = keirin(&[
        "-c",
        "SELECT 1 AS a",
        "-c",
        "SELECT count(*) FROM range(0, 1000000000000) WHERE value % 7 = 1",
    ])
    .args(["--format", "csv"])
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    let mut child = child;
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut lines = String::new();
    // The first answer says that the handler is there.
    reader.read_line(&mut lines).unwrap();
    let interrupted = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "cancelled\n");
}

#[test]
fn an_output_file_appears_whole_or_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let csv = path_in(&directory, "out.csv");
    check(&run(&["-c", "SELECT 1 AS a", "-o", &csv]), 0, "", "");
    assert_eq!(std::fs::read_to_string(&csv).unwrap(), "a\n1\n");

    let failed = run(&["-c", "SELECT 2 AS a", "-c", "SELEC", "-o", &csv]);
    assert_eq!(failed.status.code(), Some(1));
    assert_eq!(std::fs::read_to_string(&csv).unwrap(), "a\n1\n");

    let parquet = path_in(&directory, "out.parquet");
    check(&run(&["-c", "SELECT 1 AS a", "-o", &parquet]), 0, "", "");
    let read = format!("SELECT * FROM '{parquet}'");
    check(&run(&["--format", "csv", "-c", &read]), 0, "a\n1\n", "");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
}

#[test]
fn a_file_whose_format_is_one_answer_gets_one() {
    let directory = tempfile::tempdir().unwrap();
    let check = |name: &str, commands: &[&str], expected: Result<&str, &str>| {
        let path = path_in(&directory, name);
        let mut command = keirin(&["-o", &path]);
        for sql in commands {
            command.args(["-c", sql]);
        }
        let output = command.output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        match expected {
            Ok(content) => {
                assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""), "{name}");
                assert_eq!(std::fs::read_to_string(&path).unwrap(), content, "{name}");
                std::fs::remove_file(&path).unwrap();
            }
            Err(message) => {
                assert_eq!(output.status.code(), Some(1), "{name}");
                assert!(stderr.contains(message), "{name}: {stderr}");
                assert!(!Path::new(&path).exists(), "{name}");
            }
        }
    };
    let two = ["SELECT 1 AS a", "SELECT 2 AS a"];
    check("two.jsonl", &two, Ok("{\"a\":1}\n{\"a\":2}\n"));
    check("two.csv", &two, Ok("a\n1\na\n2\n"));
    check("two.json", &two, Err("a json file holds one answer, and this would be the second\nhint: jsonl"));
    check("two.parquet", &two, Err("a parquet file holds one answer"));
    check("two.arrow", &two, Err("an arrow file holds one answer"));
    let none = ["CREATE TABLE t (a int)"];
    check("none.csv", &none, Ok(""));
    check("none.json", &none, Err("json files cannot be empty"));
    check("none.parquet", &none, Err("parquet files cannot be empty"));
    check("text.parquet", &[".print x", "SELECT 1"], Err("no text fits into a parquet file"));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    // A pipe takes one array after the other.
    let piped = run(&["--format", "json", "-c", two[0], "-c", two[1]]);
    assert_eq!(
        (piped.status.code(), piped.stdout.iter().filter(|byte| **byte == b'[').count()),
        (Some(0), 2)
    );
}

#[test]
fn dot_commands_work_in_scripts() {
    let directory = tempfile::tempdir().unwrap();
    let csv = path_in(&directory, "a.csv");
    let parquet = path_in(&directory, "in.parquet");
    let inner = path_in(&directory, "inner.sql");
    std::fs::write(&inner, ".print inner\nSELECT count(*) AS n FROM t;\n").unwrap();
    let script = format!(
        ".mode csv\n\
         COPY (SELECT 1 AS a, 'x' AS \"B\") TO '{parquet}';\n\
         .import '{parquet}' t\n\
         .import '{parquet}' t\n\
         CREATE VIEW v AS SELECT a FROM t;\n\
         .tables\n\
         .schema t\n\
         .read {inner}\n\
         .once {csv}\n\
         SELECT a FROM v;\n\
         .print 'the end'\n\
         .quit\n\
         SELECT nonsense;\n"
    );
    let expected = "t\nv (view)\nCREATE TABLE t (\n  a BIGINT,\n  \"B\" VARCHAR\n);\ninner\nn\n2\nthe end\n";
    let output = run_with_input(&[], &script);
    let schema_is_nullable = String::from_utf8(output.stdout.clone()).unwrap().replace(" NOT NULL", "");
    assert_eq!(schema_is_nullable, expected, "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(&csv).unwrap(), "a\n1\n1\n");
}

#[test]
fn dot_commands_show_what_they_set_and_say_what_is_wrong() {
    let shown = |script: &str, expected: &str| check(&run_with_input(&[], script), 0, expected, "");
    shown(".timer\n.bail\n.timer on\n.timer\n.timer off", "off\non\non\n");
    shown(".nullvalue\n.nullvalue NA\n.nullvalue", "NULL, and in files what they use\nNA\n");
    shown(".types\n.types off\n.types\n.maxrows 7\n.maxrows", "on a terminal\noff\n7\n");
    shown(".help nullv", ".nullvalue [TEXT]\n    What NULL looks like, but in json, parquet and arrow\n");
    let wrong = |line: &str, expected: &str| check(&run_with_input(&[], line), 1, "", expected);
    wrong(".help nope", "error: there is no command .nope\nhint: .help lists them\n");
    wrong(".import x.csv", "error: .import: an argument is missing\nhint: usage: .import FILE TABLE\n");
    wrong(".quit now", "error: .quit: too many arguments\nhint: usage: .quit\n");
    wrong(".timer maybe", "error: expected on or off, found 'maybe'\n");
    wrong(
        ".mode xml",
        "error: there is no format 'xml'; there are table, csv, tsv, json, jsonl, markdown, vertical, parquet, arrow\n",
    );
}

#[test]
fn a_script_that_reads_itself_is_told_so() {
    let directory = tempfile::tempdir().unwrap();
    let script = path_in(&directory, "loop.sql");
    std::fs::write(&script, format!(".read {script}\n")).unwrap();
    let output = run(&["-f", &script]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("reads itself"));

    std::fs::write(&script, "SELECT 1;\n.read nowhere.sql\n").unwrap();
    let stderr = String::from_utf8(run(&["-f", &script]).stderr).unwrap();
    let expected = "line 2: cannot read 'nowhere.sql': no such file or directory\n";
    assert_eq!(stderr, format!("error: {script}, {expected}"));
}

#[test]
fn pipes_get_everything_and_no_colours() {
    let output = run(&["-c", "SELECT value, repeat('x', 300) AS wide FROM range(0, 1000)"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 1000 + 5);
    assert!(text.contains(&"x".repeat(300)) && !text.contains('\x1b'));
    assert!(text.ends_with("\n1,000 rows\n"));
}

#[test]
fn the_demo_answers_right() {
    let output = run(&["demo", "--scale", "0.01", "--query", "6"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("│ 1193053.2253 │") && text.contains("the answer is right"), "{text}");
}

#[test]
fn a_database_directory_keeps_its_tables() {
    let directory = tempfile::tempdir().expect("a directory");
    let database = path_in(&directory, "db");
    let csv = |sql: &str| run(&[&database, "--readonly", "--format", "csv", "-c", sql]);
    check(&run(&[&database, "CREATE TABLE t AS SELECT 1 AS a"]), 0, "", "");
    check(&csv("SELECT a FROM t"), 0, "a\n1\n", "");
    let refused = format!(
        "error: database '{database}' was opened for reading only\nhint: open it without --readonly\n"
    );
    check(&csv("INSERT INTO t VALUES (2)"), 1, "", &refused);
}

#[test]
fn inspect_draws_what_a_database_is_made_of() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let path = path_in(&directory, "db");
    let create = "CREATE TABLE t PARTITION BY a < 10 COMMENT 'numbers' AS \
                  SELECT value AS a, 'x' AS b FROM generate_series(1, 100000); CREATE SCHEMA s; CREATE TABLE s.u (a INT)";
    check(&run(&[&path, "-c", create]), 0, "", "");
    let shown = |behind: &str| {
        let output = run(&["inspect", &format!("{path}{behind}")]);
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stdout).expect("text")
    };
    let contains = |text: &str, expected: &[&str]| {
        assert!(expected.iter().all(|part| text.contains(part)), "{expected:?} in {text}");
    };
    contains(&shown(""), &["main   │ t", "100000", " KB", "████", "a < 10", "numbers", "s      │ u"]);
    contains(&shown("/t"), &["false", "true", "a      │ BIGINT", " GB/s", "b      │ VARCHAR", "constant"]);
    contains(&shown("/s.u"), &["0 rows", "a      │ INTEGER"]);
    let parts =
        run(&[&path, "--format", "csv", "-c", "SELECT part FROM system.parts WHERE partition = 'true'"]);
    let part = String::from_utf8(parts.stdout).expect("text").lines().nth(1).expect("a part").to_owned();
    contains(&shown(&format!("/t/{part}")), &["a      │     0 │", "made_of"]);

    let refused = |behind: &str, code: i32, stderr: &str| {
        check(&run(&["inspect", &format!("{path}{behind}")]), code, "", stderr);
    };
    refused("/v", 1, "error: there is no table 'main.v'\nhint: tables are t, s.u\n");
    refused("/t/x", 2, "error: 'x' is not the number of a part\n");
    refused("/t/1/2", 2, "error: inspect takes DB, DB/TABLE or DB/TABLE/PART\n");

    std::fs::remove_file(directory.path().join(format!("db/tables/1/{part}.kpart"))).expect("it is there");
    contains(&shown("/t"), &["main.t", &part, "is damaged: it is missing"]);
}
