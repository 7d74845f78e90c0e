//! Recovery of databases that were damaged, copied or left in an unusual state.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use keirin_kernels::{BitBuffer, Level};

use crate::header::{self, FileKind, Identity};
use crate::io::Io;
use crate::log::{self, Record};
use crate::part::WriteOptions;
use crate::simulated_disk::{Faults, Unreliable};
use crate::tests::simulation::{Row, columns, definition, read};
use crate::{Access, Database, DeletionVector, Error, Options, RepairLoss, Result};

pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);

pub(crate) fn try_open(io: &Arc<Unreliable>, access: Access) -> Result<Arc<Database>> {
    Database::open(Arc::<Unreliable>::clone(io), access, Options::default())
}

pub(crate) fn open(io: &Arc<Unreliable>) -> Arc<Database> {
    try_open(io, Access::Write).expect("every database opens")
}

pub(crate) fn new() -> Arc<Unreliable> {
    Arc::new(Unreliable::new(1))
}

pub(crate) fn set(database: &Arc<Database>, value: &str) -> Result<u64> {
    let mut transaction = database.begin()?;
    transaction.set_property("p", Some(value))?;
    transaction.commit()
}

pub(crate) fn get(database: &Database) -> Option<String> {
    database.snapshot().properties().get("p").cloned()
}

/// Inserts rows of these numbers as a part into table `t`, which is created if need be.
pub(crate) fn insert(database: &Arc<Database>, numbers: std::ops::Range<i64>) -> u64 {
    insert_into(database, "t", numbers)
}

/// As [`insert`], for a table of any name.
pub(crate) fn insert_into(database: &Arc<Database>, name: &str, numbers: std::ops::Range<i64>) -> u64 {
    let mut transaction = database.begin().expect("it can be written to");
    let found = transaction.state().table_named("main", name).map(|table| table.number);
    let table = found.unwrap_or_else(|| transaction.create_table(definition(name)).expect("new"));
    let rows: Vec<Row> = numbers.map(|number| (number, Some(1))).collect();
    let mut writer = transaction.write_part(table, WriteOptions::default()).expect("room");
    writer.push(&columns(&rows)).expect("rows of the table");
    let part = writer.finish().expect("room");
    let number = part.number;
    transaction.add_part(table, part).expect("new");
    transaction.commit().expect("room");
    number
}

/// The numbers in table `t`.
pub(crate) fn numbers(database: &Database) -> Result<Vec<i64>> {
    let snapshot = database.snapshot();
    let Some(table) = snapshot.table_named("main", "t") else { return Ok(Vec::new()) };
    Ok(read(&snapshot, table)?.into_iter().map(|row| row.0).collect())
}

/// Replaces all parts of table `t` by one.
pub(crate) fn compact(database: &Arc<Database>) {
    let mut transaction = database.begin().expect("it can be written to");
    let table = Arc::clone(transaction.state().table_named("main", "t").expect("there"));
    let parts: Vec<u64> = table.parts().iter().map(|part| part.number).collect();
    transaction.compact(table.number, &parts, WriteOptions::default()).expect("whole");
    transaction.commit().expect("room");
}

pub(crate) fn maintain(database: &Arc<Database>) {
    while database.maintain(|_| WriteOptions::default()).expect("no faults") {}
}

pub(crate) fn part_files(io: &Unreliable) -> Vec<String> {
    let paths = io.paths().into_iter().map(|(path, _)| path);
    paths.filter(|path| path.ends_with(".kpart") || path.ends_with(".kdel")).collect()
}

pub(crate) fn log_files(io: &Unreliable, suffix: &str) -> Vec<String> {
    let paths = io.paths().into_iter().map(|(path, _)| path);
    paths.filter(|path| path.starts_with("log/") && path.ends_with(suffix)).collect()
}

#[test]
fn a_database_without_its_log_is_not_taken_for_an_empty_one() {
    let io = new();
    insert(&open(&io), 0..10);
    for path in log_files(&io, "") {
        io.remove(&path).expect("there");
    }
    let parts = part_files(&io);
    let reader = try_open(&io, Access::Read).expect("every database opens");
    assert_eq!(reader.damage().len(), 1, "{:?}", reader.damage());
    let database = open(&io);
    assert!(matches!(set(&database, "x"), Err(Error::LogDamaged { version: 0 })));
    assert!(database.maintain(|_| WriteOptions::default()).is_err());
    assert_eq!(database.repair_log().expect("no faults"), ["log/lost.damaged"]);
    assert_eq!(database.damage(), []);
    assert!(insert(&database, 0..10) > 2, "numbers of files that are there are taken");
    io.pass(100 * DAY);
    maintain(&database);
    assert_eq!(database.remove_orphans().expect("no faults"), 0);
    drop(database);
    let database = open(&io);
    maintain(&database);
    assert_eq!(numbers(&database).expect("whole"), Vec::from_iter(0..10));
    assert!(parts.iter().all(|part| part_files(&io).contains(part)), "they may yet be rescued");
}

#[test]
fn a_damaged_checkpoint_of_the_newest_version_is_replaced() {
    let io = new();
    let database = open(&io);
    set(&database, "1").expect("room");
    database.checkpoint().expect("room");
    drop(database);
    io.tamper("log/00000000000000000001.checkpoint", |bytes| bytes[70] ^= 1);
    let database = open(&io);
    assert_eq!(database.damage().len(), 1);
    database.checkpoint().expect("nothing speaks against it");
    set(&database, "2").expect("nothing speaks against it");
    drop(database);
    assert_eq!(open(&io).damage(), []);
}

#[test]
fn what_only_the_cache_has_is_not_built_on() {
    let lost = (0..100).filter(|seed| {
        let io = Arc::new(Unreliable::new(*seed));
        let database = open(&io);
        set(&database, "1").expect("room");
        io.set_faults(Faults {
            refused: Some(("sync_directory", ErrorKind::Other, false)),
            ..Faults::default()
        });
        assert!(matches!(set(&database, "2"), Err(Error::OutcomeUnknown(_))));
        io.set_faults(Faults::default());
        let stopped = set(&database, "3");
        assert!(matches!(stopped, Err(Error::Stopped { .. })), "{stopped:?}");
        drop(database);

        // The process ends and the machine goes on: the cache shows a commit that may not be on disk.
        let io = Arc::new(io.restarted(false));
        let database = open(&io);
        assert_eq!(get(&database).as_deref(), Some("2"));
        set(&database, "4").expect("room");
        set(&database, "5").expect("room");
        io.kill();
        drop(database);
        let io = Arc::new(io.restarted(true));
        let database = open(&io);
        assert_eq!((get(&database).as_deref(), database.damage()), (Some("5"), vec![]), "seed {seed}");
        set(&database, "6").expect("the log is whole");
        log_files(&io, ".commit").len() < 5
    });
    assert!(lost.count() > 10, "the commit that could not be synced got lost now and then");
}

#[test]
fn an_empty_database_whose_marker_cannot_be_read_gets_no_other_id() {
    let io = new();
    drop(open(&io));
    for path in log_files(&io, "") {
        io.remove(&path).expect("it is there");
    }
    io.tamper("KEIRIN", |bytes| bytes[0] ^= 1);
    let refused = try_open(&io, Access::Write).expect_err("whose log would it be?").to_string();
    assert!(refused.contains("KEIRIN"), "{refused}");
    io.tamper("KEIRIN", |bytes| bytes[0] ^= 1);
    let database = open(&io);
    set(&database, "1").expect("room");
    drop(database);
    assert_eq!(open(&io).damage(), []);
}

#[test]
fn what_a_writer_has_shown_stays() {
    for seed in 0..100 {
        let io = Arc::new(Unreliable::new(seed));
        let database = open(&io);
        set(&database, "1").expect("room");
        io.set_faults(Faults {
            refused: Some(("sync_directory", ErrorKind::Other, false)),
            ..Faults::default()
        });
        assert!(matches!(set(&database, "2"), Err(Error::OutcomeUnknown(_))));
        io.kill();
        drop(database);
        // The cache shows a commit that may not be on disk, and the next process ends without a commit of its own.
        let io = Arc::new(io.restarted(false));
        assert_eq!(get(&open(&io)).as_deref(), Some("2"));
        let io = Arc::new(io.restarted(true));
        assert_eq!(get(&open(&io)).as_deref(), Some("2"), "seed {seed}");
    }
}

#[test]
fn what_a_reader_has_shown_stays() {
    let survived = |is_read: bool| {
        let versions = (0..100).map(|seed| {
            let io = Arc::new(Unreliable::new(seed));
            let database = open(&io);
            set(&database, "1").expect("room");
            let earlier = try_open(&io, Access::Read).expect("a database");
            io.set_faults(Faults { lying_syncs: [false, true], ..Faults::default() });
            set(&database, "2").expect("room");
            io.set_faults(Faults::default());
            if is_read && seed % 2 == 0 {
                earlier.refresh().expect("no faults");
                assert_eq!(get(&earlier).as_deref(), Some("2"));
            } else if is_read {
                assert_eq!(get(&try_open(&io, Access::Read).expect("a database")).as_deref(), Some("2"));
            }
            get(&open(&Arc::new(io.restarted(true)))).expect("the first is durable")
        });
        versions.filter(|version| version == "2").count()
    };
    assert_eq!(survived(true), 100);
    assert!(survived(false) < 80, "without a reader, the commit may be lost");
}

#[test]
fn a_name_that_a_listing_lacks_is_no_gap() {
    let io = new();
    let database = open(&io);
    let reader = try_open(&io, Access::Read).expect("a database");
    for value in ["1", "2", "3"] {
        set(&database, value).expect("room");
    }
    io.set_faults(Faults { unlisted: Some("00000000000000000002.commit"), ..Faults::default() });
    reader.refresh().expect("no faults");
    for database in [reader, try_open(&io, Access::Read).expect("a database")] {
        assert_eq!((get(&database).as_deref(), database.damage()), (Some("3"), vec![]));
    }
    io.set_faults(Faults::default());
    io.remove("log/00000000000000000002.commit").expect("there");
    let damage = try_open(&io, Access::Read).expect("every database opens").damage();
    assert!(damage.len() == 1 && damage[0].reason == "it is missing", "{damage:?}");
}

#[test]
fn a_commit_that_gets_no_name_stops_nothing_without_need() {
    let attempt = |kind, is_done| {
        let io = new();
        let database = open(&io);
        set(&database, "1").expect("room");
        io.set_faults(Faults { refused: Some(("publish", kind, is_done)), ..Faults::default() });
        let outcome = set(&database, "2");
        io.set_faults(Faults::default());
        let next = set(&database, "3").is_ok();
        assert_eq!(log_files(&io, ".tmp").len(), usize::from(!next));
        drop(database);
        let newest = get(&open(&io)).expect("at least the first");
        (outcome, next, newest)
    };
    let full = attempt(ErrorKind::StorageFull, false);
    assert!(matches!(full, (Err(Error::Io { .. }), true, newest) if newest == "3"), "nothing was changed");
    let unknown = attempt(ErrorKind::Other, false);
    assert!(matches!(unknown, (Err(Error::OutcomeUnknown(_)), false, newest) if newest == "1"));
    let answer_lost = attempt(ErrorKind::Other, true);
    assert!(matches!(answer_lost, (Ok(2), true, newest) if newest == "3"), "it is there");
}

#[test]
fn a_second_writer_that_no_lock_keeps_out_is_noticed() {
    let io = new();
    let database = open(&io);
    set(&database, "1").expect("room");
    let other = Arc::new(io.fork());
    set(&open(&other), "theirs").expect("room");
    io.put("log/00000000000000000002.commit", &other.bytes("log/00000000000000000002.commit"));
    assert!(matches!(set(&database, "ours"), Err(Error::Locked)));
    assert!(matches!(set(&database, "ours"), Err(Error::Stopped { .. })), "what it knows is old");
    drop(database);
    assert_eq!(get(&open(&io)).as_deref(), Some("theirs"));
}

#[test]
fn strange_names_are_passed_over() {
    let io = new();
    let database = open(&io);
    let part = insert(&database, 0..10);
    drop(database);
    for directory in ["tables/05", "tables/18446744073709551615", "tables/9223372036854775808", "tables/x"] {
        io.create_directory(directory).expect("new");
        io.put(&format!("{directory}/7.kpart"), b"");
    }
    for file in
        ["tables/7", "tables/1/07.kpart", "tables/1/18446744073709551615.kpart", "tables/1/9.kpart.bak"]
    {
        io.put(file, b"");
    }
    for file in
        ["log/1.commit", "log/18446744073709551615.commit", "log/0000000000000000000x.commit", "log/y"]
    {
        io.put(file, b"");
    }
    let database = open(&io);
    assert_eq!(database.damage(), []);
    let next = insert(&database, 10..20);
    assert!(next > part && next < 100, "{next}");
    io.pass(30 * DAY);
    maintain(&database);
    assert_eq!(database.remove_orphans().expect("no faults"), 0);
    assert!(io.paths().iter().any(|(path, _)| path == "tables/1/07.kpart"), "it is none of ours");
    assert_eq!(numbers(&database).expect("whole"), Vec::from_iter(0..20));
}

#[test]
fn what_a_later_version_wrote_is_refused_and_not_called_damaged() {
    let io = new();
    let database = open(&io);
    set(&database, "1").expect("room");
    let snapshot = database.snapshot();
    let identity = Identity { database: snapshot.database, table: 0, number: 2 };
    let actions = vec![crate::state::Action::DropTable { table: 1 }];
    let record = Record { previous: snapshot.hash, time: snapshot.time(), next_number: 1, actions };
    let mut payload = record.write();
    const KIND: usize = 28;
    payload[KIND] = 200;
    drop(database);
    io.put(&log::path(FileKind::Commit, 2), &header::file(FileKind::Commit, identity, &payload).0);
    for access in [Access::Read, Access::Write] {
        let refused = try_open(&io, access);
        assert!(matches!(refused, Err(Error::Newer { found: 200, .. })), "{refused:?}");
        let text = refused.expect_err("it was just seen").to_string();
        assert!(text.contains("has actions of kind 200; this version reads up to 9"), "{text}");
    }
}

#[test]
fn a_commit_of_another_copy_is_not_followed() {
    let io = new();
    let database = open(&io);
    set(&database, "1").expect("room");
    drop(database);
    let other = Arc::new(io.fork());
    for (io, value) in [(&io, "ours"), (&other, "theirs")] {
        let database = open(io);
        set(&database, value).expect("room");
        set(&database, value).expect("room");
    }
    let path = log::path(FileKind::Commit, 3);
    let theirs = other.bytes(&path);
    io.tamper(&path, |bytes| *bytes = theirs);
    let database = open(&io);
    assert_eq!((get(&database).as_deref(), database.snapshot().version()), (Some("ours"), 2));
    assert!(database.is_behind(), "of the last there is no answer");
    let damage = database.damage();
    assert_eq!(damage[0].reason, "it does not follow the commit before it", "{damage:?}");
}

#[test]
fn a_part_of_another_copy_is_not_read() {
    let io = new();
    drop(open(&io));
    let empty = Arc::new(io.fork());
    insert(&open(&io), 0..10);
    let path = part_files(&io).remove(0);
    let byte_count = io.bytes(&path).len();
    let mut theirs = (1..100).map(|first| {
        let other = Arc::new(empty.fork());
        insert(&open(&other), first..first + 10);
        other.bytes(&path)
    });
    let theirs = theirs.find(|theirs| theirs.len() == byte_count);
    io.tamper(&path, |bytes| *bytes = theirs.expect("one of equal length, which nothing else gives away"));
    let refused = numbers(&open(&io)).expect_err("the rows are not those that were committed").to_string();
    assert!(refused.contains("it is not the file that was committed"), "{refused}");
}

#[test]
fn a_log_of_which_nothing_can_be_read_says_so_of_the_log_alone() {
    let io = new();
    insert(&open(&io), 0..10);
    let paths = [log_files(&io, ".checkpoint"), log_files(&io, ".commit")].concat();
    paths.iter().for_each(|path| io.tamper(path, |bytes| bytes.clear()));
    let database = open(&io);
    let damaged: Vec<String> = database.damage().into_iter().map(|damage| damage.path).collect();
    assert_eq!(damaged, paths);
    assert!(matches!(set(&database, "x"), Err(Error::LogDamaged { version: 0 })));
    database.repair_log().expect("no faults");
    set(&database, "x").expect("it is repaired");
    drop(database);
    assert_eq!(open(&io).damage(), []);
}

#[test]
fn a_repair_beside_unreadable_checkpoints_keeps_what_was_committed() {
    for newest_too in [false, true] {
        let io = new();
        let database = open(&io);
        insert(&database, 0..10);
        database.checkpoint().expect("room");
        // Only the checkpoint says what came before it.
        io.pass(100 * DAY);
        maintain(&database);
        if !newest_too {
            set(&database, "1").expect("room");
        }
        let commits = log_files(&io, ".commit");
        let checkpoints = log_files(&io, ".checkpoint");
        checkpoints.iter().for_each(|path| io.tamper(path, |bytes| bytes[70] ^= 1));
        let aside = database.repair_log().expect("no faults");
        assert_eq!(aside, checkpoints, "beside {commits:?}");
        drop(database);
        let database = open(&io);
        assert_eq!((database.damage(), numbers(&database).expect("whole")), (vec![], Vec::from_iter(0..10)));
        set(&database, "2").expect("it is repaired");
    }
}

#[test]
fn a_repair_while_files_cannot_be_read_loses_nothing() {
    let io = new();
    let database = open(&io);
    insert(&database, 0..10);
    database.checkpoint().expect("room");
    io.set_faults(Faults { read_error: 1, ..Faults::default() });
    let outcome = (0..20).map(|_| database.repair_log()).collect::<Vec<_>>();
    io.set_faults(Faults::default());
    assert!(outcome.iter().any(|outcome| matches!(outcome, Err(Error::Io { .. }))), "{outcome:?}");
    drop(database);
    let database = open(&io);
    assert_eq!((database.damage(), numbers(&database).expect("whole")), (vec![], Vec::from_iter(0..10)));
}

#[test]
fn a_repair_whose_names_may_be_lost_ends_writing() {
    let io = new();
    let database = open(&io);
    set(&database, "1").expect("room");
    set(&database, "2").expect("room");
    drop(database);
    io.tamper("log/00000000000000000002.commit", |bytes| bytes[100] ^= 1);
    let database = open(&io);
    io.set_faults(Faults { refused: Some(("sync_directory", ErrorKind::Other, false)), ..Faults::default() });
    let refused = database.repair_log();
    assert!(matches!(refused, Err(Error::Io { .. })), "{refused:?}");
    io.set_faults(Faults::default());
    for stopped in [database.repair_log().map(|_| 0), set(&database, "3")] {
        assert!(matches!(stopped, Err(Error::Stopped { .. })), "{stopped:?}");
    }
}

/// A read that fails once is tried again, before rows are given up for it.
#[test]
fn a_repair_while_a_disk_fails_now_and_then_loses_hardly_anything() {
    const RUNS: u64 = 300;
    let (mut faults, mut lost) = (0, 0);
    for seed in 0..RUNS {
        let io = Arc::new(Unreliable::new(seed));
        let database = open(&io);
        let part = insert(&database, 0..10);
        let mut transaction = database.begin().expect("it can be written to");
        let table = transaction.state().table_named("main", "t").expect("there").number;
        io.set_faults(Faults { read_error: 12, ..Faults::default() });
        let outcome = transaction.repair_part(table, part, WriteOptions::default());
        io.set_faults(Faults::default());
        faults += u64::from(io.had_fault());
        match outcome {
            Ok(outcome) => lost += u64::from(outcome != RepairLoss::default()),
            // The statement fails, and nothing was changed.
            Err(error) => assert!(matches!(error, Error::Io { .. } | Error::Damaged(_)), "{error:?}"),
        }
    }
    assert!(faults > RUNS / 5, "{faults} of {RUNS} runs had faults");
    // Two reads in a row may fail.
    assert!(lost < RUNS / 15, "{lost} of {RUNS} runs lost rows");
}

#[test]
fn deletions_of_another_copy_are_not_read() {
    let io = new();
    let part = insert(&open(&io), 0..10);
    let delete = |io: &Arc<Unreliable>, row: usize| {
        let mut vector = DeletionVector::default();
        let bits: BitBuffer = (0..10).map(|other| other == row).collect();
        vector.delete(Level::best(), 0, bits.as_bits());
        let database = open(io);
        let mut transaction = database.begin().expect("it can be written to");
        let table = transaction.state().table_named("main", "t").expect("there").number;
        transaction.delete_rows(table, part, &vector).expect("there");
        transaction.commit().expect("room");
        io.bytes(&part_files(io).into_iter().find(|path| path.ends_with(".kdel")).expect("it was written"))
    };
    let copy = Arc::new(io.fork());
    let byte_count = delete(&io, 0).len();
    let theirs =
        (1..10).map(|row| delete(&Arc::new(copy.fork()), row)).find(|theirs| theirs.len() == byte_count);
    let path = part_files(&io).into_iter().find(|path| path.ends_with(".kdel")).expect("it was written");
    io.tamper(&path, |bytes| *bytes = theirs.expect("one of equal length, which nothing else gives away"));
    let refused = numbers(&open(&io)).expect_err("not the rows that were deleted").to_string();
    assert!(refused.contains("it is not the file that was committed"), "{refused}");
}

#[test]
fn a_marker_that_is_missing_damaged_or_of_another_database_loses_no_row() {
    let theirs = {
        let io = Arc::new(Unreliable::new(2));
        drop(open(&io));
        io.bytes("KEIRIN")
    };
    type Hurt<'a> = &'a dyn Fn(&Unreliable);
    let cases: [(Hurt<'_>, bool); 3] = [
        (&|io| io.remove("KEIRIN").expect("there"), true),
        (&|io| io.tamper("KEIRIN", |bytes| bytes[24] ^= 8), true),
        (&|io| io.tamper("KEIRIN", |bytes| bytes.clone_from(&theirs)), false),
    ];
    for (hurt, can_be_written_to) in cases {
        let io = new();
        insert(&open(&io), 0..10);
        hurt(&io);
        for access in [Access::Read, Access::Write] {
            let database = try_open(&io, access).expect("every database opens");
            assert_eq!(numbers(&database).expect("whole"), Vec::from_iter(0..10));
            assert!(database.damage().len() == 1 && database.damage()[0].path == "KEIRIN");
        }
        let database = open(&io);
        assert_eq!(set(&database, "x").is_ok(), can_be_written_to);
        assert_eq!(database.repair_log().expect("no faults"), ["KEIRIN"]);
        set(&database, "y").expect("it is repaired");
        drop(database);
        let database = open(&io);
        assert_eq!((database.damage(), numbers(&database).expect("whole")), (vec![], Vec::from_iter(0..10)));
    }
}

#[test]
fn rows_that_a_part_does_not_have_cannot_be_deleted() {
    let io = new();
    let database = open(&io);
    let part = insert(&database, 0..10);
    let table = database.snapshot().table_named("main", "t").expect("there").number;
    let delete = |stripe: u32, rows: usize| {
        let mut vector = DeletionVector::default();
        let bits: BitBuffer = (0..rows).map(|row| row == 0).collect();
        vector.delete(Level::best(), stripe, bits.as_bits());
        let mut transaction = database.begin().expect("it can be written to");
        transaction.delete_rows(table, part, &vector)?;
        transaction.commit()
    };
    delete(0, 10).expect("one of the rows");
    for (stripe, rows) in [(0, 9), (0, 11), (1, 10), (u32::MAX, 1)] {
        let refused = delete(stripe, rows);
        assert!(matches!(refused, Err(Error::Invalid(_))), "{stripe} {rows}: {refused:?}");
    }
    assert_eq!(numbers(&database).expect("whole"), Vec::from_iter(1..10));
}

#[test]
fn what_the_system_refuses_is_an_error_and_no_damage() {
    let io = new();
    insert(&open(&io), 0..10);
    for operation in ["open", "list", "lock"] {
        io.set_faults(Faults {
            refused: Some((operation, ErrorKind::PermissionDenied, false)),
            ..Faults::default()
        });
        let refused = try_open(&io, Access::Write);
        assert!(matches!(refused, Err(Error::Io { .. })), "{operation}: {refused:?}");
        io.set_faults(Faults::default());
    }
    let database = open(&io);
    io.set_faults(Faults {
        refused: Some(("open", ErrorKind::PermissionDenied, false)),
        ..Faults::default()
    });
    assert!(matches!(database.as_of_version(0), Err(Error::Io { .. })));
    io.set_faults(Faults::default());
    assert_eq!((database.damage(), database.check()), (vec![], vec![]));
}

#[test]
fn a_process_that_ends_well_leaves_no_trace() {
    let io = new();
    let has_trace = || io.paths().iter().any(|(path, _)| path == "WRITING");
    let database = open(&io);
    assert!(!has_trace(), "it has not written");
    set(&database, "1").expect("room");
    assert!(has_trace());
    drop(database);
    assert!(!has_trace());
    let database = open(&io);
    set(&database, "2").expect("room");
    io.kill();
    drop(database);
    let io = Arc::new(io.restarted(false));
    let database = open(&io);
    set(&database, "3").expect("room");
    drop(database);
    let checkpoints = log_files(&io, ".checkpoint");
    assert_eq!(
        checkpoints[1..],
        ["log/00000000000000000002.checkpoint"],
        "of what may be in the cache alone"
    );
    assert!(!io.paths().iter().any(|(path, _)| path == "WRITING"));
}
