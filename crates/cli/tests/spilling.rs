//! Statements that spill when the disk is full, when they are cancelled, and when the program is killed: a clear error, and
//! no file is left.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than any statement takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// Statements that do not fit in 64 MB, by what spills.
const STATEMENTS: [(&str, &str); 7] = [
    (
        "a sort",
        "SELECT max(k) FROM (SELECT value * 7 % 1000003 AS k FROM range(20000000) ORDER BY k OFFSET 5)",
    ),
    (
        "a top-n",
        "SELECT max(t) FROM (SELECT value || 'abcdefgh' AS t FROM range(8000000) ORDER BY t LIMIT 6000000)",
    ),
    (
        "groups",
        "SELECT max(n) FROM (SELECT value % 9000000 AS k, count(*) AS n FROM range(18000000) GROUP BY k)",
    ),
    ("distinct values", "SELECT count(DISTINCT value % 9000000) FROM range(18000000)"),
    ("distinct rows", "SELECT count(*) FROM (SELECT DISTINCT value || 'x' FROM range(9000000))"),
    (
        "a join",
        "SELECT count(*) FROM (SELECT value || 'a' AS k FROM range(6000000)) a JOIN (SELECT value || 'a' AS k FROM range(6000000)) b USING (k)",
    ),
    (
        "a window",
        "SELECT max(r) FROM (SELECT row_number() OVER (PARTITION BY value % 1000 ORDER BY value * 7 % 1000003) AS r FROM range(10000000))",
    ),
];

/// The program, which spills to `spilled`, with files of at most `blocks` of 512 bytes.
fn keirin(spilled: &Path, blocks: &str, script: &str) -> Child {
    Command::new("sh")
        .args(["-c", "ulimit -f $0; trap '' XFSZ; exec \"$@\"", blocks, env!("CARGO_BIN_EXE_keirin")])
        .args([
            "--memory-limit",
            "64MB",
            "--threads",
            "2",
            "--format",
            "csv",
            "--no-progress",
            "--temp-directory",
        ])
        .arg(spilled)
        .args(["-c", script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a shell starts")
}

/// The files below a directory.
fn files(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path.display().to_string()) }
    }
    found
}

/// Waits until there is a file with rows.
fn wait_for_rows(child: &mut Child, spilled: &Path) {
    let begun = Instant::now();
    let has_rows =
        || files(spilled).iter().any(|file| fs::metadata(file).is_ok_and(|file| file.len() > 1000));
    while !has_rows() {
        assert!(child.try_wait().expect("a child").is_none(), "it ended without spilling");
        assert!(begun.elapsed() < PATIENCE, "it does not spill");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_full_disk_is_named_and_nothing_is_left() {
    let spilled = tempfile::tempdir().expect("a directory");
    for (what, statement) in STATEMENTS {
        let output = keirin(spilled.path(), "40", statement).wait_with_output().expect("a child");
        let told = String::from_utf8_lossy(&output.stderr);
        let place = format!("cannot spill to '{}", spilled.path().display());
        assert_eq!(output.status.code(), Some(1), "{what}: {told}");
        assert!(told.contains(&place) && told.contains("file too large"), "{what}: {told}");
        assert_eq!(files(spilled.path()), Vec::<String>::new(), "{what}");
    }
}

#[test]
fn a_statement_that_is_cancelled_while_it_spills_leaves_nothing() {
    let spilled = tempfile::tempdir().expect("a directory");
    for (what, statement) in STATEMENTS {
        let mut child = keirin(spilled.path(), "unlimited", statement);
        wait_for_rows(&mut child, spilled.path());
        let begun = Instant::now();
        let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        assert!(sent.expect("kill starts").success());
        let output = child.wait_with_output().expect("a child");
        println!("{what}: ended {:?} after it was told", begun.elapsed());
        assert_eq!(output.status.code(), Some(130), "{what}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(files(spilled.path()), Vec::<String>::new(), "{what}");
    }
}

#[test]
fn what_a_killed_program_has_spilled_is_removed_by_the_next_one() {
    let spilled = tempfile::tempdir().expect("a directory");
    for (what, statement) in STATEMENTS {
        let mut child = keirin(spilled.path(), "unlimited", statement);
        wait_for_rows(&mut child, spilled.path());
        child.kill().expect("a child");
        child.wait().expect("a child");
        assert!(!files(spilled.path()).is_empty(), "{what}: it had time to tidy up");
        let next = keirin(spilled.path(), "unlimited", "SELECT 1").wait_with_output().expect("a child");
        assert!(next.status.success(), "{what}");
        assert_eq!(files(spilled.path()), Vec::<String>::new(), "{what}");
    }
}
