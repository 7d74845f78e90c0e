//! Several processes and threads over one database: killed in the middle, reading beside a writer, writing at
//! once.
//!
//! The processes are this test program again, told by the environment what to do.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use keirin_codecs::blocks::Codec;
use keirin_kernels::{BitBuffer, Level, Selection};
use keirin_storage::column::{Column, Values};
use keirin_storage::io::Disk;
use keirin_storage::part::{ColumnCodec, Total, WriteOptions};
use keirin_storage::schema::{DataType, Definition};
use keirin_storage::{Access, Database, DeletionVector, Error, Options, PartitionedRows, Result, Snapshot};
use tempfile::TempDir;

const DIRECTORY: &str = "KEIRIN_TEST_LOADER_DIRECTORY";
/// Rows of a statement; all have its number.
const ROWS: usize = 100;

fn open(path: &Path, access: Access) -> Result<Arc<Database>> {
    let started = Instant::now();
    loop {
        let options = Options { checkpoint_every: 10, ..Options::default() };
        match Database::open(Arc::new(Disk::create(path).expect("a directory")), access, options) {
            // A process that another test starts has all that is open here until it is another program.
            Err(Error::Locked) if started.elapsed() < Duration::from_secs(10) => std::thread::yield_now(),
            opened => return opened,
        }
    }
}

/// The numbers of all rows that are not deleted, in order.
fn numbers(snapshot: &Snapshot) -> Vec<i64> {
    let table = snapshot.table_named("main", "t").expect("it was created first");
    let mut numbers = Vec::new();
    for part in table.parts() {
        let deletions = snapshot.deletions(table, part).expect("whole");
        let reader = snapshot.open_part(table, part).expect("whole");
        for stripe in 0..reader.stripe_count() {
            let column = reader.read(0, stripe, Selection::All).expect("whole");
            let Values::I64(values) = &column.values else { panic!("{column:?}") };
            let deleted = deletions.stripe(u32::try_from(stripe).expect("few stripes"));
            let rows = (0..values.len()).filter(|row| deleted.is_none_or(|deleted| !deleted.get(*row)));
            numbers.extend(rows.map(|row| values[row]));
        }
    }
    numbers
}

fn insert(database: &Arc<Database>, number: i64) -> Result<()> {
    let mut transaction = database.begin()?;
    let table = transaction.state().table_named("main", "t").expect("it was created first").number;
    let mut writer = transaction.write_part(table, WriteOptions::default())?;
    writer.push(&[Column { validity: None, values: Values::I64(vec![number; ROWS].into()) }])?;
    transaction.add_part(table, writer.finish()?)?;
    transaction.commit().map(|_| ())
}

/// Rows of a table that has no partitions.
fn together(columns: Vec<Column<'static>>) -> PartitionedRows {
    vec![(Arc::default(), columns)]
}

fn create(path: &Path) {
    let database = open(path, Access::Write).expect("an empty directory");
    let mut transaction = database.begin().expect("nobody else");
    transaction.create_table(Definition::new("main", "t", vec![("a", DataType::I64)])).expect("new");
    transaction.commit().expect("nobody else");
}

/// Loads, deletes and compacts until it is killed, and says which statements are acknowledged.
#[test]
#[ignore = "the other process of the tests here"]
fn loader() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let database = open(Path::new(&directory), Access::Write).expect("a database");
    let mut number = numbers(&database.snapshot()).last().map_or(0, |last| last + 1);
    loop {
        insert(&database, number).expect("room");
        println!("acknowledged {number}");
        number += 1;
        let snapshot = database.snapshot();
        let table = snapshot.table_named("main", "t").expect("there");
        let parts = table.parts();
        let mut transaction = database.begin().expect("nobody else");
        if number % 7 == 0 {
            // The first statement that is left is deleted, in whichever part it is.
            let first = numbers(&snapshot)[0];
            let part = parts[0];
            let reader = snapshot.open_part(table, part).expect("whole");
            let column = reader.read(0, 0, Selection::All).expect("whole");
            let Values::I64(values) = &column.values else { panic!("{column:?}") };
            let mut vector = DeletionVector::default();
            let rows: BitBuffer = values.iter().map(|value| *value == first).collect();
            vector.delete(Level::best(), 0, rows.as_bits());
            transaction.delete_rows(table.number, part.number, &vector).expect("rows");
        } else if parts.len() > 6 {
            let some: Vec<u64> = parts[1..5].iter().map(|part| part.number).collect();
            transaction.compact(table.number, &some, WriteOptions::default()).expect("whole");
        }
        transaction.commit().expect("nobody else");
    }
}

fn start_loader(directory: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--ignored", "--exact", "loader", "--nocapture"]).env(DIRECTORY, directory);
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("this program runs")
}

/// Sums a column that lies in its file as it is, while the file is whole and when it is not any more.
#[test]
#[ignore = "the other process of the tests here"]
fn summer() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let directory = Path::new(&directory);
    let database = open(directory, Access::Write).expect("an empty directory");
    let mut transaction = database.begin().expect("nobody else");
    let columns = vec![("a", DataType::F64)];
    let table = transaction.create_table(Definition::new("main", "t", columns)).expect("new");
    let options = WriteOptions { codecs: vec![ColumnCodec::Raw(Codec::None)], ..WriteOptions::default() };
    let mut writer = transaction.write_part(table, options).expect("new");
    writer
        .push(&[Column { validity: None, values: Values::F64(vec![0.5; 2 * 65_536].into()) }])
        .expect("rows");
    transaction.add_part(table, writer.finish().expect("room")).expect("new");
    transaction.commit().expect("nobody else");
    let snapshot = database.snapshot();
    let table = snapshot.table(table).expect("there");
    let reader = snapshot.open_part(table, table.parts()[0]).expect("whole");
    for _ in 0..2 {
        let mut total = Total::default();
        assert_eq!(reader.sum(0, 0..2, &mut total).expect("whole"), Some(2 * 65_536));
        assert_eq!(total.floats.value().to_bits(), 65_536_f64.to_bits());
    }
    let path = directory.join(format!("tables/{}/{}.kpart", table.number, table.parts()[0].number));
    let whole = std::fs::read(&path).expect("there");
    std::fs::File::options().write(true).open(&path).expect("there").set_len(20_000).expect("ours");
    for _ in 0..2 {
        println!("{}", reader.sum(0, 0..2, &mut Total::default()).expect_err("it is not whole"));
    }
    // The disk failed for a moment: whoever opens the part now reads it again.
    std::fs::write(&path, whole).expect("ours");
    let reader = snapshot.open_part(table, table.parts()[0]).expect("whole");
    let mut total = Total::default();
    assert_eq!(reader.sum(0, 0..2, &mut total).expect("whole again"), Some(2 * 65_536));
    assert_eq!(total.floats.value().to_bits(), 65_536_f64.to_bits());
}

#[test]
fn a_part_that_gets_shorter_while_it_is_read_is_an_error_and_not_the_end() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--ignored", "--exact", "summer", "--nocapture"]).env(DIRECTORY, directory.path());
    let output = command.output().expect("this program runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text.matches("it cannot be read").count(), 2, "{text}");
}

/// Every statement is there as a whole, in order, without gaps.
fn check_numbers(numbers: &[i64]) {
    assert!(numbers.chunks(ROWS).all(|rows| rows.len() == ROWS && rows.iter().all(|row| *row == rows[0])));
    let statements: Vec<i64> = numbers.iter().step_by(ROWS).copied().collect();
    assert!(statements.windows(2).all(|pair| pair[1] == pair[0] + 1), "{statements:?}");
}

/// Kills a loading process some milliseconds after its first statements, again and again.
fn kill_loaders(rounds: u32) {
    let directory = tempfile::tempdir().expect("a directory");
    create(directory.path());
    for round in 0..rounds {
        let mut loader = start_loader(directory.path());
        let mut lines = BufReader::new(loader.stdout.take().expect("a pipe")).lines();
        let mut acknowledged = -1;
        let mut note = |line: String| {
            if let Some((_, number)) = line.split_once("acknowledged ") {
                acknowledged = number.parse().expect("a number");
            }
        };
        for line in lines.by_ref() {
            let line = line.expect("text");
            let is_first = line.contains("acknowledged");
            note(line);
            if is_first {
                break;
            }
        }
        let started = Instant::now();
        let wait = Duration::from_micros(u64::from(round.wrapping_mul(2_654_435_769) % 40_000));
        while started.elapsed() < wait {
            note(lines.next().expect("it runs").expect("text"));
        }
        loader.kill().expect("it runs");
        loader.wait().expect("it was started");
        // What it had written to the pipe before counts as acknowledged.
        lines.map_while(std::result::Result::ok).for_each(&mut note);
        let database = open(directory.path(), Access::Write).expect("every database opens");
        assert_eq!(database.damage(), []);
        let numbers = numbers(&database.snapshot());
        check_numbers(&numbers);
        assert!(numbers.last().is_none_or(|last| *last >= acknowledged), "{acknowledged} is lost");
        assert_eq!(database.check(), []);
    }
}

#[test]
fn killed_processes_lose_nothing() {
    kill_loaders(5);
}

#[test]
#[ignore = "takes a minute"]
fn two_hundred_killed_processes_lose_nothing() {
    kill_loaders(200);
}

#[test]
fn a_reader_sees_one_version_at_a_time() {
    let directory = tempfile::tempdir().expect("a directory");
    create(directory.path());
    let reader = open(directory.path(), Access::Read).expect("a database");
    let mut loader = start_loader(directory.path());
    let started = Instant::now();
    let mut versions = 0;
    while versions < 30 && started.elapsed() < Duration::from_secs(20) {
        let before = reader.snapshot().version();
        reader.refresh().expect("whole");
        versions += u32::from(reader.snapshot().version() > before);
        check_numbers(&numbers(&reader.snapshot()));
    }
    loader.kill().expect("it runs");
    loader.wait().expect("it was started");
    assert!(versions > 0 && reader.damage().is_empty());
}

/// Four threads insert ten times each by `insert`.
fn insert_at_once(insert: impl Fn(&Arc<Database>, i64) + Sync) -> (TempDir, Arc<Database>) {
    let directory = tempfile::tempdir().expect("a directory");
    create(directory.path());
    let database = open(directory.path(), Access::Write).expect("a database");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (database, insert) = (&database, &insert);
            scope.spawn(move || (0..10).for_each(|number| insert(database, thread * 10 + number)));
        }
    });
    let mut numbers = numbers(&database.snapshot());
    numbers.sort_unstable();
    let expected: Vec<i64> = (0..40).flat_map(|number| vec![number; ROWS]).collect();
    assert_eq!(numbers, expected);
    assert_eq!(database.check(), []);
    (directory, database)
}

#[test]
fn threads_write_at_once() {
    let (_directory, database) = insert_at_once(|database, number| insert(database, number).expect("room"));
    assert_eq!(database.snapshot().version(), 41);
}

#[test]
fn inserts_that_wait_are_committed_together() {
    let rows = |number: i64| vec![Column { validity: None, values: Values::I64(vec![number; ROWS].into()) }];
    let refused = std::sync::atomic::AtomicUsize::new(0);
    let (_directory, database) = insert_at_once(|database, number| {
        let snapshot = database.snapshot();
        let table = snapshot.table_named("main", "t").expect("there");
        let version = database.insert(table, together(rows(number)), WriteOptions::default()).expect("room");
        assert!(version > snapshot.version());
        // One that is refused takes no other with it.
        let nothing = database.insert(table, together(Vec::new()), WriteOptions::default());
        refused.fetch_add(usize::from(nothing.is_err()), std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(refused.into_inner(), 40);
    let snapshot = database.snapshot();
    let table = snapshot.table_named("main", "t").expect("there");
    assert_eq!(table.parts().len() as u64, snapshot.version() - 1, "a commit is a part");
    let version = database.insert(
        table,
        together(rows(0)[..1].iter().map(|column| column.take(Level::best(), &[])).collect()),
        WriteOptions::default(),
    );
    assert_eq!(version.expect("nothing to do"), snapshot.version());

    let mut transaction = database.begin().expect("nobody else");
    transaction.drop_table(table.number).expect("there");
    transaction.commit().expect("nobody else");
    let late = database.insert(table, together(rows(1)), WriteOptions::default());
    assert!(matches!(late, Err(Error::Conflict { .. })), "{late:?}");
}

fn part_count(database: &Database) -> usize {
    database.snapshot().table_named("main", "t").expect("there").parts().len()
}

/// 1,000 single rows from eight threads; meanwhile one merges parts, if `is_maintained`. Gives the most parts that
/// there were.
fn insert_single_rows(is_maintained: bool) -> (TempDir, Arc<Database>, usize) {
    let directory = tempfile::tempdir().expect("a directory");
    create(directory.path());
    let database = open(directory.path(), Access::Write).expect("a database");
    let left = std::sync::atomic::AtomicI64::new(1000);
    let most = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let insert = || {
            loop {
                let number = left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
                if number <= 0 {
                    return;
                }
                let snapshot = database.snapshot();
                let table = snapshot.table_named("main", "t").expect("there");
                most.fetch_max(table.parts().len(), std::sync::atomic::Ordering::Relaxed);
                let rows = vec![Column { validity: None, values: Values::I64(vec![number].into()) }];
                database.insert(table, together(rows), WriteOptions::default()).expect("room");
            }
        };
        (0..8).for_each(|_| _ = scope.spawn(insert));
        let is_over = || left.load(std::sync::atomic::Ordering::Relaxed) <= 0;
        while is_maintained && !is_over() {
            if !database.maintain(|_| WriteOptions::default()).expect("room") {
                std::thread::yield_now();
            }
        }
    });
    let mut found = numbers(&database.snapshot());
    found.sort_unstable();
    assert_eq!(found, Vec::from_iter(1..=1000));
    (directory, database, most.into_inner())
}

#[test]
fn single_rows_end_in_few_parts() {
    let (_directory, database, _) = insert_single_rows(true);
    while database.maintain(|_| WriteOptions::default()).expect("room") {}
    // As many as groups of one to eight rows leave.
    assert!(part_count(&database) <= 32, "{} parts", part_count(&database));
    assert_eq!(database.check(), []);
}

#[test]
fn inserts_hold_parts_down_when_nobody_else_does() {
    let (_directory, database, most) = insert_single_rows(false);
    assert!(most <= 80, "{most} parts");
    assert_eq!(database.check(), []);
}

#[test]
fn compaction_gives_way_to_who_rewrites_rows() {
    let directory = tempfile::tempdir().expect("a directory");
    create(directory.path());
    let database = open(directory.path(), Access::Write).expect("a database");
    (0..20).for_each(|number| insert(&database, number).expect("room"));
    let maintain = || while database.maintain(|_| WriteOptions::default()).expect("room") {};
    let table = database.snapshot().table_named("main", "t").expect("there").number;
    let mut rewriting = database.begin_rewriting(table).expect("nobody else");
    maintain();
    assert_eq!(part_count(&database), 20);
    let parts: Vec<u64> =
        rewriting.base().table(table).expect("there").parts().iter().map(|part| part.number).collect();
    rewriting.replace_parts(table, &parts[..10], Vec::new()).expect("there");
    rewriting.commit().expect("nobody has touched them");
    assert_eq!(part_count(&database), 10);
    maintain();
    assert!(part_count(&database) < 10, "it is over");
    check_numbers(&numbers(&database.snapshot()));
    assert_eq!(database.check(), []);
}
