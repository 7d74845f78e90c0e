//! What signals leave behind: nothing, and the exit code that shells expect.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than any step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn keirin(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keirin"));
    command.args(["--format", "csv", "--temp-directory"]).arg(directory.join("spill"));
    command.args(arguments).current_dir(directory);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn send(child: &Child, signal: &str) {
    let sent = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status();
    assert!(sent.expect("kill starts").success());
}

/// All files and directories under `directory`, but the one for spilling.
fn left_in(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
        let name = entry.file_name().into_string().expect("text");
        if name == "spill" {
            found.extend(left_in(&entry.path()));
        } else {
            found.push(name);
        }
    }
    found
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether programs that this test starts hear SIGHUP: what runs under nohup passes its deafness on.
fn hears_hangups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    if mask & 1 == 1 {
        println!("skipped: SIGHUP is ignored here, as under nohup");
    }
    mask & 1 == 0
}

/// A COPY without end gets `signals`, one right after the other.
fn check_copy(file: &str, signals: &[&str], code: i32, stderr: Option<&str>) {
    let directory = tempfile::tempdir().expect("a directory");
    let copy = format!("COPY (SELECT value, repeat('x', 50) FROM range(0, 1000000000000)) TO '{file}'");
    let mut child = keirin(directory.path(), &["-c", &copy]).spawn().expect("the binary starts");
    let is_begun = || left_in(directory.path()).iter().any(|name| name.contains(".keirin-tmp-"));
    wait_until("the COPY begins", is_begun);
    for signal in signals {
        send(&child, signal);
    }
    let mut told = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut told).expect("text");
    assert_eq!(child.wait().expect("it ends").code(), Some(code), "{file} {signals:?}: {told}");
    assert_eq!(left_in(directory.path()), Vec::<String>::new(), "{file} {signals:?}");
    if let Some(stderr) = stderr {
        assert_eq!(told, stderr, "{file} {signals:?}");
    }
}

#[test]
fn a_copy_that_is_stopped_leaves_nothing_behind() {
    check_copy("out.csv", &["INT"], 130, Some("cancelled\n"));
    check_copy("out.parquet", &["INT"], 130, Some("cancelled\n"));
    check_copy("out.csv.gz", &["TERM"], 143, Some("cancelled: the program was told to end (SIGTERM)\n"));
    check_copy("out.parquet", &["TERM"], 143, None);
    if hears_hangups() {
        check_copy("out.csv", &["HUP"], 129, Some("cancelled: the terminal is gone (SIGHUP)\n"));
    }
}

#[test]
fn a_second_signal_ends_the_program_at_once_and_leaves_nothing_behind() {
    check_copy("out.csv", &["INT", "INT"], 130, None);
    check_copy("out.parquet", &["INT", "INT", "INT"], 130, None);
    check_copy("out.parquet", &["TERM", "TERM"], 143, None);
}

#[test]
fn an_unfinished_output_file_is_removed_too() {
    for (signals, code) in [(&["INT"][..], 130), (&["TERM"], 143), (&["INT", "INT"], 130)] {
        let directory = tempfile::tempdir().unwrap();
        let query = "SELECT * FROM range(0, 1000000000000)";
        let mut child = keirin(directory.path(), &["-c", query, "-o", "out.csv"]).spawn().unwrap();
        let has_bytes = |entry: std::fs::DirEntry| entry.metadata().is_ok_and(|file| file.len() > 0);
        wait_until("the answer begins", || {
            let entries = std::fs::read_dir(directory.path()).unwrap().flatten();
            entries.filter(|entry| entry.path().is_file()).any(has_bytes)
        });
        for signal in signals {
            send(&child, signal);
        }
        assert_eq!(child.wait().unwrap().code(), Some(code), "{signals:?}");
        assert_eq!(left_in(directory.path()), Vec::<String>::new(), "{signals:?}");
    }
}

#[test]
fn a_merge_that_is_stopped_leaves_a_table_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let run = |sql: &str| {
        let output = keirin(directory.path(), &["db", "-c", sql]).output().unwrap();
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let rows = "SELECT value * 7919 % 300007 AS a, 'text ' || value AS s FROM range(0, 300000)";
    run(&format!("CREATE TABLE t ORDER BY s AS {rows}"));
    run(&format!("INSERT INTO t {rows}"));
    let parts = || left_in(&directory.path().join("db/tables/1")).into_iter().collect::<BTreeSet<_>>();
    let before = parts();
    let mut child = keirin(directory.path(), &["db", "-c", "OPTIMIZE TABLE t FINAL"]).spawn().unwrap();
    wait_until("the merge begins", || parts() != before);
    send(&child, "INT");
    let mut told = String::new();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!((child.wait().unwrap().code(), told.as_str()), (Some(130), "cancelled\n"));
    assert_eq!(parts(), before);
    assert_eq!(run("SELECT count(*), sum(a) FROM t").lines().last(), Some("600000,90000143408"));
}

#[test]
fn a_program_that_waits_for_input_ends_when_told() {
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        if signal == "HUP" && !hears_hangups() {
            continue;
        }
        let directory = tempfile::tempdir().unwrap();
        let mut child = keirin(directory.path(), &["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut stdin, b"SELECT 1 AS a;\n").unwrap();
        // The first answer says that it waits for the second statement.
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, "a\n");
        send(&child, signal);
        assert_eq!(child.wait().unwrap().code(), Some(code), "{signal}");
        assert_eq!(left_in(directory.path()), Vec::<String>::new(), "{signal}");
    }
}

#[test]
fn a_reader_that_does_not_read_cannot_keep_a_program_from_ending() {
    let directory = tempfile::tempdir().unwrap();
    let query = "SELECT * FROM range(0, 1000000000000)";
    let mut child = keirin(directory.path(), &["-c", query]).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut String::new()).unwrap();
    // By now the pipe is full, or will be soon.
    std::thread::sleep(Duration::from_millis(300));
    send(&child, "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert_eq!(left_in(directory.path()), Vec::<String>::new());
}

#[test]
fn under_nohup_the_end_of_the_terminal_is_not_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let script = "trap '' HUP; exec \"$0\" --format csv -f -";
    let mut child = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_keirin")])
        .current_dir(directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut answers = String::new();
    std::io::Write::write_all(&mut stdin, b"SELECT 1 AS a;\n").unwrap();
    stdout.read_line(&mut answers).unwrap();
    send(&child, "HUP");
    std::io::Write::write_all(&mut stdin, b"SELECT 2 AS a;\n").unwrap();
    drop(stdin);
    stdout.read_to_string(&mut answers).unwrap();
    assert_eq!((child.wait().unwrap().code(), answers.as_str()), (Some(0), "a\n1\na\n2\n"));
}

#[test]
fn errors_that_nobody_can_read_are_no_panic() {
    let full = std::fs::File::options().write(true).open("/dev/full");
    let Ok(full) = full else { return println!("skipped: there is no /dev/full here") };
    let directory = tempfile::tempdir().unwrap();
    let mut child = keirin(directory.path(), &["-c", "SELEC"]).stderr(full).spawn().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
}
