//! Two writers in one directory, where locks do not work: the second is noticed before it does harm, and neither
//! removes the other's files.

use std::sync::Arc;

use keirin_kernels::{BitBuffer, Level};

use crate::io::Io;
use crate::part::WriteOptions;
use crate::simulated_disk::Unreliable;
use crate::tests::recovery::{DAY, get, insert, log_files, maintain, new, numbers, open, part_files, set};
use crate::tests::simulation::{Run, columns, for_seeds};
use crate::{Database, DeletionVector, Error, Result, Transaction};

/// A second writer beside one that has the lock.
fn open_beside(io: &Arc<Unreliable>) -> Arc<Database> {
    io.break_lock();
    open(io)
}

/// A transaction that has written a part of table `t`.
fn begin_insert(database: &Arc<Database>, number: i64) -> Result<Transaction> {
    let mut transaction = database.begin()?;
    let table = transaction.state().table_named("main", "t").expect("there").number;
    let mut writer = transaction.write_part(table, WriteOptions::default())?;
    writer.push(&columns(&[(number, Some(1))]))?;
    transaction.add_part(table, writer.finish()?)?;
    Ok(transaction)
}

/// A transaction that has deleted the first row of the first part of table `t`.
fn begin_delete(database: &Arc<Database>) -> Result<Transaction> {
    let mut transaction = database.begin()?;
    let table = Arc::clone(transaction.state().table_named("main", "t").expect("there"));
    let part = table.parts()[0];
    let bits: BitBuffer = (0..part.row_count).map(|row| row == 0).collect();
    let mut rows = DeletionVector::default();
    rows.delete(Level::best(), 0, bits.as_bits());
    transaction.delete_rows(table.number, part.number, &rows)?;
    Ok(transaction)
}

fn is_noticed<T>(database: &Arc<Database>, outcome: &Result<T>) {
    assert!(matches!(outcome, Err(Error::Locked)), "{:?}", outcome.as_ref().err());
    let stopped = database.begin().and_then(Transaction::commit);
    drop(stopped);
    let stopped = set(database, "x").expect_err("what it knows is old");
    assert!(matches!(stopped, Error::Stopped { .. }), "{stopped:?}");
    assert!(stopped.to_string().contains("shows that another process writes"), "{stopped}");
}

#[test]
fn what_another_writer_committed_is_not_removed_with_what_was_given_up() {
    for is_delete in [false, true] {
        let io = new();
        let one = open(&io);
        insert(&one, 0..10);
        let two = open_beside(&io);
        let begin = |database| if is_delete { begin_delete(database) } else { begin_insert(database, 10) };
        begin(&two).expect("it is the first").commit().expect("nobody else committed");
        let files = part_files(&io);
        is_noticed(&one, &begin(&one));
        drop(one);
        assert_eq!(part_files(&io), files);
        let expected = if is_delete { Vec::from_iter(1..10) } else { Vec::from_iter(0..11) };
        assert_eq!(numbers(&two).expect("whole"), expected);
        drop(two);
        let database = open(&io);
        assert_eq!((numbers(&database).expect("whole"), database.check()), (expected, vec![]));
    }
}

#[test]
fn what_another_writer_has_begun_is_not_removed() {
    let io = new();
    let one = open(&io);
    insert(&one, 0..10);
    let two = open_beside(&io);
    let begun = begin_insert(&two, 10).expect("it is the first");
    is_noticed(&one, &begin_insert(&one, 11));
    begun.commit().expect("nobody else committed");
    assert_eq!(numbers(&two).expect("whole"), Vec::from_iter(0..11));
}

#[test]
fn files_of_another_writer_are_nobodys_to_remove() {
    let io = new();
    let one = open(&io);
    insert(&one, 0..10);
    let two = open_beside(&io);
    let begun = begin_insert(&two, 10).expect("it is the first");
    assert_eq!(one.remove_orphans().expect("it knows of no other"), 0);
    begun.commit().expect("nobody else committed");
    io.pass(30 * DAY);
    is_noticed(&one, &one.remove_orphans());
    drop(one);
    let three = open_beside(&io);
    insert(&three, 11..12);
    io.pass(30 * DAY);
    is_noticed(&two, &two.maintain(|_| WriteOptions::default()));
    maintain(&three);
    assert_eq!(numbers(&three).expect("whole"), Vec::from_iter(0..12));
}

#[test]
fn commits_of_another_writer_are_not_set_aside() {
    let io = new();
    let one = open(&io);
    set(&one, "1").expect("room");
    let two = open_beside(&io);
    set(&two, "2").expect("room");
    is_noticed(&one, &one.repair_log());
    assert_eq!(log_files(&io, ".damaged"), [""; 0]);
    drop((one, two));
    assert_eq!(get(&open(&io)).as_deref(), Some("2"));
}

#[test]
fn a_log_that_can_be_read_again_is_not_set_aside() {
    let io = new();
    let database = open(&io);
    set(&database, "1").expect("room");
    set(&database, "2").expect("room");
    drop(database);
    let path = log_files(&io, ".commit").pop().expect("two");
    io.tamper(&path, |bytes| bytes[100] ^= 1);
    let database = open(&io);
    assert_eq!(get(&database).as_deref(), Some("1"));
    io.tamper(&path, |bytes| bytes[100] ^= 1);
    let refused = database.repair_log().expect_err("nothing is damaged any more").to_string();
    assert!(refused.contains("version 2 can be read now"), "{refused}");
    drop(database);
    assert_eq!(get(&open(&io)).as_deref(), Some("2"));
}

#[test]
fn the_sign_that_someone_writes_stays_for_whom_it_speaks() {
    let io = new();
    let (one, two) = (open(&io), open_beside(&io));
    set(&two, "2").expect("room");
    let refused = set(&one, "1");
    assert!(matches!(refused, Err(Error::Locked)), "{refused:?}");
    drop(one);
    io.open("WRITING").expect("the other still writes");
}

#[test]
fn of_two_writers_nothing_acknowledged_is_lost() {
    for_seeds(0..200, |seed| _ = Run::with_two_writers(seed, None));
}

#[test]
fn a_power_cut_at_every_operation_of_two_writers_loses_nothing() {
    let operations = (0..8).map(|seed| {
        let operations = Run::with_two_writers(seed, None);
        (1..=operations).for_each(|operation| _ = Run::with_two_writers(seed, Some(operation)));
        operations
    });
    assert!(operations.sum::<u64>() > 200, "they change something");
}
