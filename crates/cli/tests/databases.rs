//! Database directories under real processes: killed, copied while they are written to, with files missing, read
//! beside a writer.
//!
//! Long runs: `KEIRIN_TEST_KILLS=200 KEIRIN_TEST_SECONDS=60 cargo test -p keirin-cli --test databases -- --ignored`.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use xxhash_rust::xxh3::xxh3_64;

/// Rows of a statement; all have its number, and their values sum up to 0.
const ROWS: u64 = 100;
/// A statement of which the number is a multiple of this deletes the rows of one so many before it.
const DELETES_EVERY: u64 = 7;
const DELETED_BEFORE: u64 = 20;

fn keirin(database: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keirin"));
    command.arg(database).args(["--format", "csv", "--threads", "2"]).args(arguments);
    command.stdin(Stdio::null()).env_remove("NO_COLOR");
    command
}

/// The rows of an answer, or what the program says is wrong.
fn try_query(database: &Path, sql: &str) -> Result<Vec<String>, String> {
    let output = keirin(database, &["-c", sql]).output().expect("the binary starts");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    if output.status.success() {
        Ok(text(&output.stdout).lines().skip(1).map(str::to_owned).collect())
    } else {
        Err(text(&output.stderr))
    }
}

fn query(database: &Path, sql: &str) -> Vec<String> {
    try_query(database, sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

fn contains(text: &str, expected: &[&str]) {
    assert!(expected.iter().all(|part| text.contains(part)), "{expected:?} in {text}");
}

/// A directory with a database that has an empty table `t`.
fn new_database() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let path = directory.path().join("db");
    query(&path, "CREATE TABLE t (n BIGINT, v BIGINT) PARTITION BY n % 3 ORDER BY v");
    (directory, path)
}

/// What a loader does with a number, and says that it has done it.
fn statements(number: u64) -> String {
    let mut text = format!(
        "INSERT INTO t SELECT {number}, {number} * (2 * (value % 2) - 1) FROM generate_series(1, {ROWS});\n"
    );
    if number.is_multiple_of(DELETES_EVERY) && number >= DELETED_BEFORE {
        text += &format!("DELETE FROM t WHERE n = {};\n", number - DELETED_BEFORE);
    }
    if number.is_multiple_of(5) {
        text += &format!("UPDATE t SET v = -v WHERE n % 4 = {};\n", number % 4);
    }
    if number.is_multiple_of(11) {
        text += "OPTIMIZE TABLE t FINAL;\n";
    }
    text + &format!("SELECT '{}' AS answer;\n", done(number))
}

/// What a loader says when it is done with a number.
fn done(number: u64) -> String {
    format!("done {number}")
}

/// A process that does what it is told, line by line.
struct Running {
    child: Child,
    input: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Running {
    fn start(database: &Path, arguments: &[&str]) -> Self {
        let mut command = keirin(database, &[&["-f", "-"], arguments].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the binary starts");
        let input = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Self { child, input, answers }
    }

    fn tell(&mut self, statements: &str) {
        let input = self.input.as_mut().expect("it is open");
        input.write_all(statements.as_bytes()).expect("the process reads");
    }

    /// The next line of its answers; none when it has ended.
    fn answer(&mut self) -> Option<String> {
        self.answers.next().map(|line| line.expect("text"))
    }

    /// Loads the statements of `number`, and waits until they are acknowledged.
    fn load(&mut self, number: u64) {
        self.tell(&statements(number));
        while self.answer().expect("it runs") != done(number) {}
    }

    /// Ends it where it is, and gives the lines that were still on their way.
    fn kill(mut self) -> Vec<String> {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it was started");
        self.answers.map_while(Result::ok).collect()
    }
}

impl Running {
    fn end(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().expect("it was started").success());
    }
}

/// Everything of the numbers that were acknowledged is done, and of every statement all rows are there or none.
fn check_rows(database: &Path, acknowledged: &BTreeSet<u64>) {
    assert_eq!(query(database, "SELECT * FROM system.damage"), Vec::<String>::new());
    contains(&query(database, "CHECK TABLE t").join("\n"), &["ok"]);
    let mut found = BTreeSet::new();
    for row in query(database, "SELECT n, count(*), sum(v) FROM t GROUP BY n") {
        let values: Vec<i64> = row.split(',').map(|value| value.parse().expect("a number")).collect();
        assert_eq!(values[1..], [i64::try_from(ROWS).expect("small"), 0], "{row}");
        found.insert(u64::try_from(values[0]).expect("a count"));
    }
    for number in acknowledged {
        let deletes = number + DELETED_BEFORE;
        let is_there = found.contains(number);
        if !deletes.is_multiple_of(DELETES_EVERY) {
            assert!(is_there, "{number} is lost");
        } else if acknowledged.contains(&deletes) {
            assert!(!is_there, "{number} is there again");
        }
    }
}

/// A number from the environment, for long runs.
fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

fn kill_loaders(rounds: u64) {
    let (_directory, path) = new_database();
    let (mut next, mut acknowledged) = (0, BTreeSet::new());
    for round in 0..rounds {
        let mut loader = Running::start(&path, &[]);
        loader.load(next);
        acknowledged.insert(next);
        // It is killed somewhere in what it has not answered yet.
        let ahead: String = (next + 1..next + 40).map(statements).collect();
        loader.tell(&ahead);
        let wait = Duration::from_micros(round.wrapping_mul(2_654_435_769) % 400_000);
        println!("round {round}: killed after {wait:?}");
        std::thread::sleep(wait);
        for line in loader.kill() {
            if let Some(number) = line.strip_prefix("done ") {
                acknowledged.insert(number.parse().expect("a number"));
            }
        }
        check_rows(&path, &acknowledged);
        let last = query(&path, "SELECT max(n) FROM t").remove(0);
        next = last.parse::<u64>().expect("a number") + 1;
    }
}

#[test]
#[cfg(unix)]
fn a_second_writer_without_a_lock_takes_nothing_from_the_first() {
    let (_directory, path) = new_database();
    query(&path, "INSERT INTO t VALUES (1, 1)");
    let mut first = Running::start(&path, &[]);
    first.tell("SELECT count(*) AS n FROM t;\n");
    assert_eq!([first.answer(), first.answer()].map(Option::unwrap), ["n", "1"]);
    fs::remove_file(path.join("LOCK")).expect("there");
    query(&path, "INSERT INTO t VALUES (2, 2)");
    first.tell("INSERT INTO t VALUES (3, 3);\n");
    drop(first.input.take());
    assert!(!first.child.wait().expect("it was started").success(), "it cannot write any more");
    assert_eq!(query(&path, "SELECT n FROM t ORDER BY n"), ["1", "2"]);
    contains(&query(&path, "CHECK TABLE t").join("\n"), &["ok"]);
}

#[test]
fn killed_loaders_lose_nothing() {
    kill_loaders(3);
}

#[test]
#[ignore = "takes minutes"]
fn many_killed_loaders_lose_nothing() {
    kill_loaders(from_environment("KEIRIN_TEST_KILLS", 200));
}

/// Scans in one process while another inserts, deletes, updates and merges.
fn read_beside_a_writer(duration: Duration) {
    let (_directory, path) = new_database();
    let mut writer = Running::start(&path, &[]);
    let mut reader = Running::start(&path, &["--readonly"]);
    writer.load(0);
    let started = Instant::now();
    let (mut number, mut counts) = (0, Vec::new());
    let is_new = |counts: &[String]| counts.iter().collect::<BTreeSet<_>>().len() > 3;
    // Where one round takes seconds, more of them.
    while started.elapsed() < duration || (!is_new(&counts) && started.elapsed() < duration * 20) {
        // Both are at work at the same time; each answers when it is done.
        number += 1;
        writer.tell(&statements(number));
        for _ in 0..3 {
            reader.tell(&format!("SELECT sum(v), count(*) % {ROWS}, count(DISTINCT n) FROM t;\n"));
            let row = loop {
                let line = reader.answer().expect("it reads");
                if line.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
                    break line;
                }
            };
            let count = row.strip_prefix("0,0,").unwrap_or_else(|| panic!("two versions in one: {row}"));
            counts.push(count.to_owned());
        }
        while writer.answer().expect("it writes") != done(number) {}
    }
    assert!(is_new(&counts), "the reader sees what is new: {counts:?}");
    reader.end();
    writer.end();
    check_rows(&path, &(0..=number).collect());
}

#[test]
fn a_reader_beside_a_writer_sees_one_version_at_a_time() {
    read_beside_a_writer(Duration::from_secs(3));
}

#[test]
#[ignore = "takes a minute"]
fn a_reader_beside_a_writer_sees_one_version_for_long() {
    read_beside_a_writer(Duration::from_secs(from_environment("KEIRIN_TEST_SECONDS", 60)));
}

#[test]
fn a_copy_made_while_rows_were_inserted_is_of_use() {
    let (directory, path) = new_database();
    let mut loader = Running::start(&path, &[]);
    loader.load(0);
    let insert =
        |number| format!("INSERT INTO t SELECT {number}, 101 - 2 * value FROM generate_series(1, {ROWS});\n");
    loader.tell(&(1..200).map(insert).collect::<String>());
    for name in ["a", "b", "c"] {
        let copy = directory.path().join(name);
        let mut cp = Command::new("cp");
        let copied = cp.env("LC_ALL", "C").arg("-r").arg(&path).arg(&copy).output().expect("there is cp");
        // Files come and go while it copies.
        let complaints = String::from_utf8(copied.stderr).expect("text");
        let is_gone = |line: &str| line.ends_with("No such file or directory");
        assert!(complaints.lines().all(is_gone), "{complaints}");
        // What was copied is whole, or said to be missing and the rest can be had.
        if let Err(error) = try_query(&copy, "SELECT sum(v) FROM t") {
            contains(&error, &["table 't'", "part", "missing", "REPAIR TABLE"]);
            query(&copy, "REPAIR TABLE t");
        }
        check_rows(&copy, &BTreeSet::new());
        query(&copy, "INSERT INTO t VALUES (-1, 0)");
    }
    loader.kill();
}

/// The newest of the files in a directory whose names end so.
fn newest(directory: &Path, suffix: &str) -> PathBuf {
    let names = fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("a name").path());
    let of_kind = names.filter(|path| path.to_string_lossy().ends_with(suffix));
    of_kind.max().expect("there is one")
}

#[test]
fn without_its_newest_commit_a_database_is_what_it_was_before() {
    let (_directory, path) = new_database();
    query(&path, "INSERT INTO t VALUES (1, 1)");
    query(&path, "INSERT INTO t VALUES (2, 2)");
    fs::remove_file(newest(&path.join("log"), ".commit")).expect("it is there");
    assert_eq!(query(&path, "SELECT n FROM t"), ["1"]);
    query(&path, "INSERT INTO t VALUES (3, 3)");
    assert_eq!(query(&path, "SELECT n FROM t ORDER BY n"), ["1", "3"]);
}

#[test]
fn a_part_that_is_missing_is_named_and_the_rest_is_there() {
    let (_directory, path) = new_database();
    query(&path, "CREATE TABLE u AS SELECT 7 AS a");
    for number in 0..3 {
        query(&path, &format!("INSERT INTO t VALUES ({number}, 0)"));
    }
    let number = query(&path, "SELECT number FROM system.tables WHERE name = 't'").remove(0);
    let part = newest(&path.join("tables").join(number), ".kpart");
    fs::remove_file(&part).expect("it is there");
    let part = part.file_stem().expect("a name").to_string_lossy().into_owned();

    assert_eq!(query(&path, "SELECT a FROM u"), ["7"]);
    let error = try_query(&path, "SELECT sum(n) FROM t").expect_err("a part is missing");
    contains(&error, &["table 't'", &part, "missing", "CHECK TABLE", "REPAIR TABLE"]);
    contains(&query(&path, "CHECK TABLE t").join("\n"), &["t", &part, "missing"]);
    let known = query(&path, "CHECK TABLE t; SELECT \"table\", part, 'known' FROM system.damage");
    contains(&known.join("\n"), &[&format!("main.t,{part},known")]);
    query(&path, "REPAIR TABLE t");
    assert_eq!(query(&path, "SELECT n FROM t ORDER BY n"), ["0", "1"]);
    query(&path, "INSERT INTO t VALUES (9, 0)");
}

#[test]
fn a_database_of_a_newer_version_is_refused_and_left_alone() {
    let (_directory, path) = new_database();
    let marker = path.join("KEIRIN");
    let newer = fs::read_to_string(&marker).expect("text").replace("format 1", "format 2");
    // The check of a newer format may be another.
    let newer = newer.lines().take(2).collect::<Vec<_>>().join("\n");
    fs::write(&marker, &newer).expect("there is room");
    for arguments in [&[][..], &["--readonly"]] {
        let output = keirin(&path, &[&["-c", "SELECT 1"], arguments].concat()).output().expect("it starts");
        assert_eq!(output.status.code(), Some(1));
        let error = String::from_utf8(output.stderr).expect("text");
        contains(&error, &["format 2", "newer version of Keirin"]);
    }
    assert_eq!(fs::read_to_string(&marker).expect("text"), newer);
}

/// Gives a file the next format, in the header that begins at `header` of its bytes.
fn make_newer(path: &Path, header: impl Fn(usize) -> usize) {
    let mut bytes = fs::read(path).expect("it is there");
    let header = header(bytes.len());
    bytes[header + 8] += 1;
    let hash = xxh3_64(&bytes[header..header + 56]).to_le_bytes();
    bytes[header + 56..header + 64].copy_from_slice(&hash);
    fs::write(path, bytes).expect("there is room");
}

#[test]
fn a_part_of_a_newer_version_is_told_from_damage_and_the_rest_is_there() {
    let (_directory, path) = new_database();
    query(&path, "CREATE TABLE u AS SELECT 7 AS a");
    query(&path, "INSERT INTO t VALUES (1, 1)");
    query(&path, "INSERT INTO t VALUES (2, 2)");
    let file =
        query(&path, "SELECT file FROM system.parts WHERE \"table\" = 't' ORDER BY part DESC").remove(0);
    // The header of the footer is the last that a part has.
    make_newer(&path.join(&file), |length| length - 64);
    let expected = ["table 't'", &file, "format 3", "up to 2", "newer version of Keirin"];
    contains(&try_query(&path, "SELECT sum(v) FROM t").expect_err("it is newer"), &expected);
    let checked = query(&path, "CHECK TABLE t").join("\n");
    contains(&checked, &["not checked", &file, "could not be checked", "format 3"]);
    assert!(!checked.contains("damaged"), "{checked}");
    contains(&try_query(&path, "REPAIR TABLE t").expect_err("it is newer"), &expected[1..]);
    assert!(path.join(&file).exists());
    assert_eq!(query(&path, "SELECT a FROM u"), ["7"]);
    assert_eq!(query(&path, "SELECT v FROM t WHERE n = 1"), ["1"]);
    query(&path, "INSERT INTO t VALUES (4, 4)");
    assert_eq!(query(&path, "SELECT v FROM t WHERE n % 3 = 1 ORDER BY v"), ["1", "4"]);
}

#[test]
fn a_commit_of_a_newer_version_is_refused_and_left_alone() {
    let (_directory, path) = new_database();
    query(&path, "INSERT INTO t VALUES (1, 1)");
    let commit = newest(&path.join("log"), ".commit");
    make_newer(&commit, |_| 0);
    let newer = fs::read(&commit).expect("it is there");
    let name = commit.file_name().expect("a name").to_string_lossy().into_owned();
    for arguments in [&[][..], &["--readonly"]] {
        let output = keirin(&path, &[&["-c", "SELECT 1"], arguments].concat()).output().expect("it starts");
        assert_eq!(output.status.code(), Some(1));
        let error = String::from_utf8(output.stderr).expect("text");
        contains(&error, &[&name, "format 2", "up to 1", "newer version of Keirin"]);
    }
    assert_eq!(fs::read(&commit).expect("it is there"), newer);
}

#[test]
fn a_table_has_more_parts_than_files_may_be_open() {
    let (_directory, path) = new_database();
    let limited = |sql: &str| {
        let mut command = Command::new("sh");
        let script = "ulimit -n 256 && exec \"$0\" \"$@\"";
        command.args(["-c", script, env!("CARGO_BIN_EXE_keirin")]).arg(&path);
        let output = command.args(["--format", "csv", "-c", sql]).output().expect("there is a shell");
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        assert!(output.status.success(), "{sql}: {}", text(&output.stderr));
        text(&output.stdout).lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    limited("CREATE TABLE p (n BIGINT, v BIGINT) PARTITION BY n");
    limited("INSERT INTO p SELECT value % 300, value FROM range(0, 3000)");
    assert_eq!(limited("SELECT count(*) FROM system.parts"), ["300"]);
    assert_eq!(limited("SELECT sum(v), count(DISTINCT n) FROM p"), ["4498500,300"]);
    assert_eq!(limited("SELECT count(*) FROM p a JOIN p b ON a.v = b.v + 1"), ["2999"]);
    let columns = "SELECT count(*) FROM system.columns WHERE \"table\" = 'p' AND value_bytes = 24000";
    assert_eq!(limited(columns), ["2"]);
    limited("UPDATE p SET v = v + 1");
    limited("OPTIMIZE TABLE p FINAL");
    assert_eq!(limited("CHECK TABLE p").len(), 1);
    assert_eq!(limited("SELECT sum(v) FROM p"), ["4501500"]);
}

/// Names and sizes of the files of parts.
fn part_files(database: &Path) -> Vec<(PathBuf, u64)> {
    let tables = fs::read_dir(database.join("tables")).expect("a database").flatten();
    let files = tables.flat_map(|table| fs::read_dir(table.path()).into_iter().flatten().flatten());
    files.filter_map(|file| Some((file.path(), file.metadata().ok()?.len()))).collect()
}

#[test]
fn what_a_killed_load_left_goes_when_asked_for() {
    let (_directory, path) = new_database();
    query(&path, "INSERT INTO t VALUES (1, 1)");
    let kept = part_files(&path);
    let load = "CREATE TABLE big AS SELECT uuid() AS u FROM range(0, 1000000000000)";
    let mut child = keirin(&path, &["-c", load]).spawn().expect("the binary starts");
    let deadline = Instant::now() + Duration::from_secs(120);
    while part_files(&path).iter().map(|(_, bytes)| bytes).sum::<u64>() < 1 << 20 {
        assert!(Instant::now() < deadline, "it writes nothing");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    let usage = |kind: &str| {
        query(&path, &format!("SELECT files, bytes > 1000000 FROM system.disk_usage WHERE kind = '{kind}'"))
    };
    assert_eq!(usage("current"), ["1,false"]);
    let orphans = part_files(&path).len() - 1;
    assert_eq!(usage("orphaned"), [format!("{orphans},true")]);
    let removed = query(&path, "VACUUM").remove(0);
    assert!(removed.starts_with(&format!("{orphans},")), "{removed}");
    assert_eq!(part_files(&path), kept);
    assert_eq!((usage("orphaned"), query(&path, "VACUUM")), (vec![], vec!["0,0".to_owned()]));
    assert_eq!(query(&path, "SELECT v FROM t"), ["1"]);
}

#[test]
fn programs_that_run_one_statement_leave_few_parts_and_no_garbage() {
    let (_directory, path) = new_database();
    for number in 0..24 {
        query(&path, &format!("INSERT INTO t VALUES (3, {number})"));
        assert!(!path.join("WRITING").exists(), "it ended well");
    }
    let parts = query(&path, "SELECT count(*) FROM system.parts").remove(0);
    assert!(parts.parse::<u64>().expect("a number") < 20, "{parts} parts of 24 rows");
    let garbage = "SELECT * FROM system.disk_usage WHERE kind NOT IN ('current', 'obsolete', 'log')";
    assert_eq!(query(&path, garbage), [""; 0]);
}
