//! Retention: how long old files and versions stay, and that they are removed afterwards.

#![allow(clippy::cast_possible_truncation, reason = "all numbers are small")]

use std::sync::Arc;
use std::time::Duration;

use crate::database::micros;
use crate::header::FileKind;
use crate::io::Io;
use crate::log;
use crate::part::WriteOptions;
use crate::simulated_disk::Unreliable;
use crate::tests::recovery::{
    DAY, compact, get, insert, log_files, maintain, new, numbers, open, part_files, set,
};
use crate::tests::simulation::{columns, definition, read};
use crate::{Access, Cancel, Changes, Database, Error, FileUse, Options};

#[test]
fn parts_of_commits_that_are_gone_stay_for_days() {
    let io = new();
    let database = open(&io);
    insert(&database, 0..10);
    insert(&database, 10..20);
    drop(database);
    io.remove("log/00000000000000000002.commit").expect("there");
    io.pass(30 * DAY);
    let database = open(&io);
    assert_eq!(database.damage(), []);
    assert_eq!(numbers(&database).expect("whole"), Vec::from_iter(0..10));
    insert(&database, 20..30);
    maintain(&database);
    assert_eq!(part_files(&io).len(), 3);
    io.pass(6 * DAY);
    maintain(&database);
    drop(database);
    let database = open(&io);
    maintain(&database);
    assert_eq!(part_files(&io).len(), 3);
    io.pass(2 * DAY);
    maintain(&database);
    assert_eq!(part_files(&io).len(), 2, "noticed eight days ago");
    assert_eq!(log_files(&io, "orphans"), [""; 0]);
    assert_eq!(numbers(&database).expect("whole"), Vec::from_iter((0..10).chain(20..30)));
}

#[test]
fn a_checkpoint_without_its_commit_makes_no_orphans() {
    let io = new();
    let database = open(&io);
    insert(&database, 0..10);
    insert(&database, 10..20);
    compact(&database);
    // A power cut may take the name of the commit and leave that of a checkpoint, which says the same.
    database.checkpoint().expect("room");
    drop(database);
    io.remove("log/00000000000000000003.commit").expect("there");
    let database = open(&io);
    insert(&database, 20..30);
    assert_eq!(database.remove_orphans().expect("no faults"), 0);
    assert_eq!(part_files(&io).len(), 4);
    let earlier = database.as_of_version(2).expect("it is retained");
    let table = earlier.table_named("main", "t").expect("it was there");
    assert_eq!(read(&earlier, table).expect("whole").len(), 20);
    io.pass(2 * DAY);
    drop(earlier);
    maintain(&database);
    assert_eq!(part_files(&io).len(), 2, "they are out of the retention");
}

#[test]
fn a_clock_that_is_set_forward_makes_nothing_old() {
    let io = new();
    let database = open(&io);
    insert(&database, 0..10);
    insert(&database, 10..20);
    compact(&database);
    let files: Arc<dyn Io> = Arc::<Unreliable>::clone(&io);
    let reader = Database::open(files, Access::Read, Options::default()).expect("a database");
    let earlier = reader.as_of_version(2).expect("it is retained");
    maintain(&database);
    io.set_clock(io.now() + 365 * DAY);
    maintain(&database);
    assert_eq!(part_files(&io).len(), 3, "a reader may have them");
    io.pass(DAY);
    maintain(&database);
    assert_eq!(part_files(&io).len(), 1, "now they are old by any clock");
    // A reader of the old version gets an error that says why, and nothing counts as damaged.
    let table = earlier.table_named("main", "t").expect("there");
    let late = read(&earlier, table).expect_err("it is out of the retention");
    assert!(matches!(late, Error::Replaced { version: 2, newest: 3, .. }), "{late:?}");
    assert_eq!(database.check(), []);
}

#[test]
fn a_commit_before_the_first_is_passed_over() {
    let io = new();
    let database = open(&io);
    insert(&database, 0..10);
    io.put("log/00000000000000000000.commit", b"");
    io.put("log/09223372036854775808.commit", b"");
    maintain(&database);
    insert(&database, 10..20);
    drop(database);
    let database = open(&io);
    maintain(&database);
    assert_eq!((database.damage(), numbers(&database).expect("whole").len()), (vec![], 20));
}

#[test]
fn what_a_crash_left_goes_when_asked_for() {
    let io = new();
    let database = open(&io);
    insert(&database, 0..10);
    let transaction = database.begin().expect("it can be written to");
    let table = database.snapshot().table_named("main", "t").expect("there").number;
    let mut writer = transaction.write_part(table, WriteOptions::default()).expect("room");
    writer.push(&columns(&[(1, None)])).expect("rows");
    writer.finish().expect("room");
    assert_eq!(database.remove_orphans().expect("no faults"), 0, "someone is making it");
    io.kill();
    drop((transaction, database));
    let io = Arc::new(io.restarted(false));
    let database = open(&io);
    assert_eq!(part_files(&io).len(), 2);
    compact(&database);
    let usage = database.disk_usage().expect("no faults");
    assert_eq!(
        [FileUse::Current, FileUse::Obsolete, FileUse::Orphaned].map(|of| usage[&of].files),
        [1, 1, 1]
    );
    let removed = database.vacuum(&Cancel::default()).expect("no faults").expect("nothing was set aside");
    assert_eq!(removed, usage[&FileUse::Orphaned]);
    assert_eq!(part_files(&io).len(), 2);
    io.pass(2 * DAY);
    let removed = database.vacuum(&Cancel::default()).expect("no faults").expect("nothing was set aside");
    assert_eq!(removed, usage[&FileUse::Obsolete]);
    assert_eq!((part_files(&io).len(), database.disk_usage().expect("no faults").len()), (1, 2));
    assert_eq!(database.check(), []);
}

#[test]
fn a_table_that_did_not_come_to_be_leaves_no_directory() {
    let (io, tables) = (new(), |io: &dyn Io| io.list("tables").expect("a database").len());
    let database = open(&io);
    insert(&database, 0..10);
    let made = |rows| {
        let mut transaction = database.begin().expect("it can be written to");
        let table = transaction.create_table(definition("u")).expect("new");
        let mut writer = transaction.write_part(table, WriteOptions::default()).expect("room");
        writer.push(&columns(rows)).expect("rows");
        (transaction, writer)
    };
    let (transaction, writer) = made(&[(1, None)]);
    writer.finish().expect("room");
    assert_eq!(tables(&*io), 2);
    assert_eq!(database.remove_orphans().expect("no faults"), 0, "someone is making it");
    drop(transaction);
    assert_eq!(tables(&*io), 1);

    let (transaction, writer) = made(&[(1, None)]);
    io.kill();
    drop((transaction, writer, database));
    let io = Arc::new(io.restarted(false));
    let database = open(&io);
    assert_eq!(tables(&*io), 2);
    assert_eq!(database.remove_orphans().expect("no faults"), 1);
    assert_eq!((tables(&*io), database.check()), (1, vec![]));
    insert(&database, 10..20);
}

#[test]
fn files_stay_within_the_retention_and_while_they_are_read() {
    let io = new();
    let database = open(&io);
    let mut transaction = database.begin().expect("it can be written to");
    transaction.set_retention(10 * DAY).expect("short");
    transaction.commit().expect("room");
    insert(&database, 0..10);
    insert(&database, 10..20);
    let read_on = database.snapshot();
    compact(&database);
    io.pass(9 * DAY);
    maintain(&database);
    drop(database);
    let database = open(&io);
    maintain(&database);
    assert_eq!(part_files(&io).len(), 3, "kept in the database is how long");
    assert!(database.as_of_version(3).is_ok_and(|old| old.table_named("main", "t").is_some()));
    let here = database.as_of_version(3).expect("retained");
    io.pass(2 * DAY);
    maintain(&database);
    assert_eq!(part_files(&io).len(), 3, "someone in this process reads them");
    drop((here, read_on));
    maintain(&database);
    assert_eq!(part_files(&io).len(), 1);
    let gone = database.as_of_version(3);
    assert!(matches!(gone, Err(Error::NoVersion { version: 3, oldest: 4, newest: 4 })), "{gone:?}");

    let mut transaction = database.begin().expect("it can be written to");
    let table = transaction.state().table_named("main", "t").expect("there").number;
    transaction.drop_table(table).expect("there");
    transaction.commit().expect("room");
    io.pass(11 * DAY);
    maintain(&database);
    assert_eq!((part_files(&io).len(), io.list("tables").expect("there")), (0, Vec::new()));
}

#[test]
fn of_the_log_enough_stays_for_a_damaged_checkpoint() {
    let io = new();
    let database = open(&io);
    for version in 1..=40 {
        set(&database, &version.to_string()).expect("room");
        if version % 5 == 0 {
            database.checkpoint().expect("room");
        }
        io.pass(Duration::from_secs(600));
        maintain(&database);
    }
    let checkpoints = log_files(&io, ".checkpoint");
    assert!((2..6).contains(&checkpoints.len()), "{checkpoints:?}");
    assert!(log_files(&io, ".commit").len() < 20);
    for version in [1, 20] {
        let outcome = database.as_of_version(version);
        let expected = (34..=35).contains(&match &outcome {
            Err(Error::NoVersion { oldest, newest: 40, .. }) => *oldest,
            _ => 0,
        });
        assert!(expected, "{version}: {outcome:?}");
    }
    io.pass(DAY);
    maintain(&database);
    drop(database);
    let checkpoints = log_files(&io, ".checkpoint");
    assert_eq!(checkpoints.len(), 2, "nobody needs more, but one may get damaged");
    io.tamper(&checkpoints[1], |bytes| bytes[70] ^= 1);
    let database = open(&io);
    assert_eq!((get(&database), database.snapshot().version()), (Some("40".to_owned()), 40));
    assert_eq!(database.damage().len(), 1);
    set(&database, "41").expect("a checkpoint alone is damaged");
    database.checkpoint().expect("room");
}

#[test]
fn versions_are_found_by_their_times() {
    let io = new();
    let database = open(&io);
    let mut times = vec![i64::MIN];
    for version in 1..=30 {
        io.pass(Duration::from_secs(10));
        assert_eq!(set(&database, &version.to_string()).expect("room"), version);
        times.push(database.snapshot().time());
    }
    for (version, time) in times.iter().enumerate().skip(1) {
        let at = |time| database.as_of_time(time).expect("retained").version();
        assert_eq!((at(*time), at(*time - 1)), (version as u64, version as u64 - 1));
    }
    assert_eq!(database.as_of_time(i64::MAX).expect("retained").version(), 30);
    io.pass(Duration::from_secs(3600 - 100));
    let gone = database.as_of_time(times[10]);
    assert!(matches!(gone, Err(Error::NoVersion { version: 10, .. })), "{gone:?}");
}

#[test]
fn commits_say_what_they_changed() {
    let io = new();
    let database = open(&io);
    let mut times = Vec::new();
    let mut next = || {
        times.push(database.snapshot().time());
        io.pass(Duration::from_secs(10));
    };
    insert(&database, 0..10);
    next();
    insert(&database, 10..13);
    next();
    compact(&database);
    next();
    set(&database, "x").expect("room");
    database.checkpoint().expect("room");
    next();
    let mut transaction = database.begin().expect("nobody else");
    let table = transaction.state().table_named("main", "t").expect("there").number;
    transaction.drop_table(table).expect("there");
    transaction.commit().expect("room");
    next();
    // The version; the counts of changed objects, of rows added and removed, of parts added and removed.
    let commits = || -> Vec<(u64, Option<[u64; 5]>)> {
        let counts = |changes: Changes| {
            let Changes {
                relations,
                schemas,
                properties,
                rows_added,
                rows_removed,
                parts_added,
                parts_removed,
            } = changes;
            [
                (relations.len() + schemas.len() + properties.len()) as u64,
                rows_added,
                rows_removed,
                parts_added,
                parts_removed,
            ]
        };
        let commits = database.commits().expect("the log is there").into_iter();
        commits.map(|commit| (commit.version, commit.changes.map(counts))).collect()
    };
    let all = [[1, 10, 0, 1, 0], [1, 3, 0, 1, 0], [1, 13, 13, 1, 2], [1, 0, 0, 0, 0], [1, 0, 13, 0, 1]];
    let all: Vec<_> = (1..).zip(all.map(Some)).collect();
    assert_eq!(commits(), all);
    // After an unreadable commit no version is readable up to the next checkpoint, here that of version 4. A time
    // never gives another version than before the damage.
    for damaged in 1..=5 {
        let path = log::path(FileKind::Commit, damaged);
        io.tamper(&path, |bytes| bytes[70] ^= 1);
        let mut left = all.clone();
        left.retain(|(version, _)| *version < damaged || *version >= 4.max(damaged));
        left.iter_mut()
            .filter(|(version, _)| damaged <= 4 && *version == 4)
            .for_each(|(_, what)| *what = None);
        left.retain(|(version, _)| (damaged, *version) != (5, 5));
        assert_eq!(commits(), left, "{damaged}");
        for (version, time) in (1..).zip(&times) {
            match database.as_of_time(*time) {
                Ok(found) => assert_eq!(found.version(), version, "{damaged}"),
                Err(_) => assert!((damaged - 1..4.max(damaged)).contains(&version), "{damaged} {version}"),
            }
        }
        io.tamper(&path, |bytes| bytes[70] ^= 1);
    }
}

#[test]
fn a_clock_that_was_wrong_once_keeps_nothing_for_ever() {
    let io = new();
    let database = open(&io);
    insert(&database, 0..10);
    let now = io.now();
    io.set_clock(now + 30_000 * DAY);
    insert(&database, 10..20);
    compact(&database);
    io.set_clock(now + Duration::from_secs(60));
    insert(&database, 20..30);
    let time = database.snapshot().time();
    assert!(time < micros(now + Duration::from_secs(120)), "it follows the clock again");
    drop(database);
    io.pass(Duration::from_secs(3700));
    let database = open(&io);
    maintain(&database);
    assert_eq!(part_files(&io).len(), 2, "of three that were made one");
    assert_eq!(numbers(&database).expect("whole"), Vec::from_iter(0..30));
    assert!(matches!(database.as_of_version(2), Err(Error::NoVersion { .. })));
}

#[test]
fn opening_reads_a_checkpoint_and_the_commits_behind_it() {
    let io = new();
    let database = open(&io);
    for number in 0..150 {
        insert(&database, number..number + 1);
        if number == 139 {
            database.checkpoint().expect("room");
        }
    }
    drop(database);
    let before = io.opened();
    let database = open(&io);
    // The marker, the checkpoint and the commit of its version, ten commits, what races learnt, and the file that marks a
    // writer.
    assert_eq!(io.opened() - before, 15);
    assert_eq!(numbers(&database).expect("whole").len(), 150);
}
