//! Tampering: changed files are detected and named, and do not keep the rest from being read.
//!
//! `KEIRIN_SIMULATION_SEEDS=100000 cargo test --release -p keirin-storage -- --ignored tampering` tries many.

#![allow(clippy::cast_possible_truncation, reason = "all numbers are small")]

use std::sync::Arc;

use crate::io::Io;
use crate::simulated_disk::{Random, Unreliable};
use crate::tests::simulation::{Model, Run, for_seeds, model_of, read, seed_count, write_options};
use crate::{Access, Damage, Database, Error, Options};

/// A change to a file.
#[derive(Clone, Copy, Debug)]
enum Tampering {
    Flip {
        bit: usize,
    },
    Cut {
        bytes: usize,
    },
    /// Other bytes of the same length, as from a sector written to the wrong place.
    Overwrite {
        at: usize,
        seed: u64,
    },
    Remove,
}

fn tamper(io: &Unreliable, path: &str, tampering: Tampering) {
    match tampering {
        Tampering::Flip { bit } => io.tamper(path, |bytes| bytes[bit / 8] ^= 1 << (bit % 8)),
        Tampering::Cut { bytes: count } => io.tamper(path, |bytes| bytes.truncate(count)),
        Tampering::Overwrite { at, seed } => io.tamper(path, |bytes| {
            let mut random = Random::new(seed);
            bytes[at..].iter_mut().take(512).for_each(|byte| *byte = random.next().to_le_bytes()[0]);
        }),
        Tampering::Remove => io.remove(path).expect("it is there"),
    }
}

/// Whatever is done to a file, the database opens, reports the damage, and answers right or not at all.
fn check(run: &Run, path: &str, tampering: Tampering) {
    let io = Arc::new(run.io().fork());
    tamper(&io, path, tampering);
    let what = format!("{path}: {tampering:?}");
    let database = match Database::open(Arc::<Unreliable>::clone(&io), Access::Read, Options::default()) {
        Ok(database) => database,
        // A changed digit makes it another format; a directory without a marker is no database.
        Err(Error::Newer { .. } | Error::NotADatabase) if path == "KEIRIN" => return,
        Err(error) => panic!("{what}: {error:?}"),
    };
    let snapshot = database.snapshot();
    let (newest, expected) = (run.newest(), run.model_at(snapshot.version()));
    let is_last_commit = path == format!("log/{newest:020}.commit");
    if snapshot.version() < newest && !(is_last_commit && matches!(tampering, Tampering::Remove)) {
        assert!(!database.damage().is_empty(), "{what}: version {} of {newest}", snapshot.version());
    }
    assert!(database.damage().iter().all(|damage| damage.path == path), "{what}: {:?}", database.damage());
    let mut is_found = !database.damage().is_empty();
    for table in snapshot.tables() {
        match read(&snapshot, table) {
            Ok(rows) => assert_eq!(rows, expected.tables[&table.definition.name], "{what}"),
            Err(Error::Damaged(damage)) => {
                assert_eq!((damage.path.as_str(), damage.table), (path, Some(table.number)), "{what}");
                assert!(damage.part.is_some(), "{what}");
                is_found = true;
            }
            Err(error) => panic!("{what}: {error:?}"),
        }
    }
    let checked = database.check();
    let is_checked = !path.starts_with("log/") && path != "KEIRIN";
    // Of details only a check takes notice here.
    let is_of_details = checked.iter().any(is_in_details);
    assert_eq!(checked.is_empty(), !(is_found || is_of_details) || !is_checked, "{what}: {checked:?}");
    if !is_found {
        // The bytes are never read, or are padding: then nothing else may differ.
        assert_eq!(model_of(&snapshot).expect("it was read before"), *expected, "{what}");
    }

    repair(io, expected, &what);
}

/// Whether rows can be read in spite of damage.
fn is_in_details(damage: &Damage) -> bool {
    damage.reason.starts_with("details: ")
}

/// After a repair nothing is damaged, and no row has been added.
fn repair(io: Arc<Unreliable>, expected: &Model, what: &str) {
    let open = || {
        let io = Arc::<Unreliable>::clone(&io);
        Database::open(io, Access::Write, Options::default()).expect("a reader opened it")
    };
    let database = open();
    match database.begin().map(|_| ()) {
        Ok(()) => {}
        Err(Error::LogDamaged { .. }) => {
            let paths = database.repair_log().expect("no faults");
            assert!(!paths.is_empty(), "{what}");
        }
        Err(error) => panic!("{what}: {error:?}"),
    }
    let mut is_lost = false;
    let found = database.check();
    let damaged: std::collections::BTreeSet<_> =
        found.iter().filter_map(|damage| damage.table.zip(damage.part)).collect();
    for (table, part) in damaged {
        let of_part = |damage: &&Damage| (damage.table, damage.part) == (Some(table), Some(part));
        let is_of_details = found.iter().filter(of_part).all(is_in_details);
        let mut transaction = database.begin().expect("no faults");
        let lost = {
            let options = write_options(transaction.table(table).expect("it was checked"));
            transaction.repair_part(table, part, options).expect("no faults")
        };
        assert_eq!(lost.deletions || !lost.rows.is_empty(), !is_of_details, "{what}");
        is_lost |= lost.deletions;
        transaction.commit().expect("no faults");
    }
    drop(database);
    let database = open();
    assert_eq!(database.check(), [], "{what}");
    database.begin().expect("the log is whole");
    let found = model_of(&database.snapshot()).expect("all is whole");
    for (name, rows) in &found.tables {
        let expected = &expected.tables[name];
        assert!(is_lost || rows.iter().all(|row| expected.contains(row)), "{what}");
    }
}

/// Swaps the names of two files of one kind: rows are read right or not at all.
fn exchange(run: &Run, a: &str, b: &str) {
    let io = Arc::new(run.io().fork());
    let (bytes_a, bytes_b) = (io.bytes(a), io.bytes(b));
    io.tamper(a, |bytes| bytes.clone_from(&bytes_b));
    io.tamper(b, |bytes| bytes.clone_from(&bytes_a));
    let what = format!("{a} and {b}");
    let database = Database::open(io, Access::Read, Options::default()).expect("every database opens");
    let snapshot = database.snapshot();
    let expected = run.model_at(snapshot.version());
    let is_ours = |path: &str| path == a || path == b;
    let mut is_found = !database.damage().is_empty();
    assert!(database.damage().iter().all(|damage| is_ours(&damage.path)), "{what}: {:?}", database.damage());
    for table in snapshot.tables() {
        match read(&snapshot, table) {
            Ok(rows) => assert_eq!(rows, expected.tables[&table.definition.name], "{what}"),
            Err(Error::Damaged(damage)) => {
                assert!(is_ours(&damage.path), "{what}: {damage}");
                is_found = true;
            }
            Err(error) => panic!("{what}: {error:?}"),
        }
    }
    assert!(is_found || snapshot.version() == run.newest(), "{what}");
}

#[test]
fn files_that_were_exchanged_are_found_or_harmless() {
    let run = Run::without_faults(7, 30);
    let files: Vec<String> = run.io().paths().into_iter().map(|(path, _)| path).collect();
    let kind = |path: &str| path.rsplit_once('.').map(|(_, kind)| kind.to_owned());
    let mut count = 0;
    for (index, a) in files.iter().enumerate() {
        for b in files[index + 1..].iter().filter(|b| kind(a).is_some() && kind(a) == kind(b)) {
            exchange(&run, a, b);
            count += 1;
        }
    }
    assert!(count > 300, "{count} pairs");
}

fn tamper_somewhere(run: &Run, seed: u64) {
    let mut random = Random::new(seed);
    let files = run.io().paths();
    let (path, byte_count) = &files[random.below(files.len())];
    if *byte_count == 0 {
        return;
    }
    let tampering = match random.below(16) {
        0 => Tampering::Remove,
        1..=3 => Tampering::Cut { bytes: random.below(*byte_count) },
        4 => Tampering::Overwrite { at: random.below(byte_count / 512 + 1) * 512, seed },
        _ => Tampering::Flip { bit: random.below(byte_count * 8) },
    };
    check(run, path, tampering);
}

#[test]
fn every_changed_file_is_found_or_harmless() {
    let run = Run::without_faults(7, 30);
    for_seeds(0..400, |seed| tamper_somewhere(&run, seed));
    for (path, _) in run.io().paths() {
        check(&run, &path, Tampering::Remove);
        check(&run, &path, Tampering::Cut { bytes: 0 });
    }
}

#[test]
#[ignore = "takes minutes; KEIRIN_SIMULATION_SEEDS says how many"]
fn every_changed_file_is_found_or_harmless_over_many_seeds() {
    let runs: Vec<Run> = (0..20).map(|seed| Run::without_faults(seed, 10 + seed as usize * 3)).collect();
    for_seeds(0..seed_count(), |seed| tamper_somewhere(&runs[seed as usize % runs.len()], seed));
}
