//! Random workloads on a file system that loses whatever a real one may lose, compared with a model.
//!
//! A seed determines a run: sessions of statements with faults, each ended by a power cut or a killed process. The
//! invariants: the effect of an acknowledged statement stays for ever, a failed one has none, one of unknown
//! outcome has either, for good; every open succeeds, and old versions never change.
//!
//! `KEIRIN_SIMULATION_SEED=n cargo test -p keirin-storage simulation` replays one seed, `n..m` several;
//! `KEIRIN_SIMULATION_SEEDS=100000 cargo test --release -p keirin-storage -- --ignored` runs many.

#![allow(clippy::cast_possible_truncation, reason = "all numbers are small")]

mod model;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::database::micros;
use crate::io::Io;
use crate::simulated_disk::{Faults, Random, Unreliable};
use crate::{Access, Database, Error, Options, Result, Transaction};
pub(crate) use model::{Model, Row, columns, definition, model_of, read, write_options};
use model::{RETENTION, Statement, commit, prepare};

/// A run: the expected content of the database, and of each version.
pub(crate) struct Run {
    random: Random,
    io: Arc<Unreliable>,
    model: Model,
    /// The model after a statement whose outcome is unknown.
    perhaps: Option<Model>,
    /// By version: the time of its commit, and its content.
    history: BTreeMap<u64, (i64, Model)>,
    next_row: i64,
    /// The latest time that the clock has shown.
    latest: Duration,
}

impl Run {
    fn new(seed: u64) -> Self {
        let random = Random::new(seed);
        let io = Arc::new(Unreliable::new(seed ^ 0xD15C));
        let history = BTreeMap::from([(0, (0, Model::default()))]);
        Self {
            random,
            io,
            model: Model::default(),
            perhaps: None,
            history,
            next_row: 0,
            latest: Duration::ZERO,
        }
    }

    /// The run after `statements` statements without faults.
    pub(crate) fn without_faults(seed: u64, statements: usize) -> Self {
        let mut run = Self::new(seed);
        run.session(statements, Faults::default());
        run
    }

    pub(crate) fn io(&self) -> &Unreliable {
        &self.io
    }

    pub(crate) fn newest(&self) -> u64 {
        *self.history.last_key_value().expect("there is always version 0").0
    }

    pub(crate) fn model_at(&self, version: u64) -> &Model {
        // A version without a statement is one of maintenance, which changes no row.
        let (_, (_, model)) = self.history.range(..=version).next_back().expect("there is always version 0");
        model
    }

    fn open(&self, access: Access) -> Result<Arc<Database>> {
        let io: Arc<Unreliable> = Arc::clone(&self.io);
        Database::open(io, access, Options { checkpoint_every: 5, ..Options::default() })
    }

    /// Compares a freshly opened database with the model, which learns the outcome of the last statement.
    fn check(&mut self, database: &Arc<Database>) -> Result<()> {
        if let Some(damage) = database.damage().pop() {
            assert!(self.io.had_fault(), "{damage}");
            return Err(damage.into());
        }
        let snapshot = database.snapshot();
        let found = model_of(&snapshot)?;
        match self.perhaps.take() {
            Some(perhaps) if found == perhaps => self.model = perhaps,
            _ => assert_eq!(found, self.model),
        }
        self.remember(database);
        Ok(())
    }

    fn remember(&mut self, database: &Arc<Database>) {
        let snapshot = database.snapshot();
        let before = self.history.insert(snapshot.version(), (snapshot.time(), self.model.clone()));
        assert!(before.is_none_or(|(_, model)| model == self.model), "a version is for ever");
        self.history.split_off(&(snapshot.version() + 1));
    }

    /// Checks that an old version has not changed, unless it is out of the retention.
    fn check_old(&mut self, database: &Arc<Database>) -> Result<()> {
        let newest = database.snapshot().version();
        let version = self.random.below(newest as usize + 1) as u64;
        self.latest = self.latest.max(self.io.now());
        let replaced = self.history.get(&(version + 1)).map_or(i64::MIN, |(time, _)| *time);
        let is_retained = version == newest || replaced >= micros(self.latest - RETENTION);
        match database.as_of_version(version).and_then(|snapshot| model_of(&snapshot)) {
            Ok(found) => assert_eq!(found, *self.model_at(version), "version {version}"),
            Err(error) if self.io.had_fault() => return Err(error),
            Err(error) => assert!(
                !is_retained,
                "version {version} of {newest}, replaced at {replaced}, looked for at {:?}, {:?} at the latest, newest at {}: {error}",
                self.io.now(),
                self.latest,
                database.snapshot().time()
            ),
        }
        Ok(())
    }

    /// Opens, runs statements until something stops it, and ends in a power cut or a killed process.
    fn session(&mut self, statements: usize, faults: Faults) {
        self.io.set_faults(faults);
        if let Err(error) = self.try_session(statements) {
            assert!(self.io.had_fault(), "{error:?} without a fault");
        }
        let cut = self.io.must_restart() || self.random.once_in(2);
        self.io = Arc::new(self.io.restarted(cut));
    }

    fn try_session(&mut self, statements: usize) -> Result<()> {
        let database = self.open(Access::Write)?;
        let outcome = self.run_statements(&database, statements);
        if self.random.once_in(2) {
            self.io.kill();
        }
        outcome
    }

    fn run_statements(&mut self, database: &Arc<Database>, statements: usize) -> Result<()> {
        self.check(database)?;
        for _ in 0..statements {
            if self.random.once_in(4) {
                self.io.pass(Duration::from_secs(self.random.below(50) as u64));
            }
            if self.random.once_in(40) {
                self.latest = self.latest.max(self.io.now());
                self.io.set_clock(self.io.now() - Duration::from_secs(self.random.below(100) as u64));
            }
            let statement = self.model.statement(&mut self.random, &mut self.next_row);
            // A group writes its rows when it commits, so they would come after those of a concurrent statement.
            let beside = self.random.once_in(4) && !matches!(statement, Statement::GroupInsert(..));
            let beside = beside.then(|| self.model.statement(&mut self.random, &mut self.next_row));
            self.execute(database, &statement, beside.as_ref())?;
            if self.random.once_in(8) {
                self.check_old(database)?;
            }
            if self.random.once_in(8) {
                let reader = self.open(Access::Read)?;
                if reader.damage().is_empty() {
                    assert_eq!(model_of(&reader.snapshot())?, self.model, "another process");
                }
            }
        }
        Ok(())
    }

    /// Executes a statement, and concurrently perhaps another, which commits after it.
    fn execute(
        &mut self,
        database: &Arc<Database>,
        first: &Statement,
        beside: Option<&Statement>,
    ) -> Result<()> {
        let base = self.model.clone();
        let mut transactions = Vec::new();
        for statement in std::iter::once(first).chain(beside) {
            let outcome = database.begin().and_then(|mut transaction| {
                prepare(database, &mut transaction, statement)?;
                Ok(transaction)
            });
            transactions.push((statement, outcome));
        }
        for (index, (statement, transaction)) in transactions.into_iter().enumerate() {
            let before = self.model.clone();
            let next = || match statement {
                // The second statement has not seen the effect of the first.
                _ if before != base && statement.is_of_rows_that_it_has_seen() => {
                    base.after(statement).after(first)
                }
                _ => before.after(statement),
            };
            match transaction.and_then(|transaction| commit(database, statement, transaction)) {
                Ok(_) => {
                    self.model = next();
                    self.remember(database);
                }
                Err(error @ Error::OutcomeUnknown(_)) => {
                    self.perhaps = Some(next());
                    return Err(error);
                }
                // Not committed: the following statements must find the tables unchanged.
                Err(error) => {
                    // Maintenance commits at once, before the first.
                    let is_late = index == 1 || beside.is_some_and(Statement::is_upkeep);
                    let is_conflict = is_late && matches!(error, Error::Conflict { .. });
                    assert!(is_conflict || self.io.had_fault(), "{statement:?}: {error:?} without a fault");
                    database.begin().map(|_| ())?;
                    assert_eq!(model_of(&database.snapshot())?, self.model, "{statement:?} failed");
                }
            }
        }
        Ok(())
    }

    /// Two concurrent writers, each of which knows only its own changes since it opened the database; the power is
    /// cut at an operation. Returns the count of operations.
    pub(crate) fn with_two_writers(seed: u64, cut_at: Option<u64>) -> u64 {
        let mut run = Self::new(seed);
        let statements = run.random.below(8);
        run.session(statements, Faults::default());
        let before = run.io.operations();
        let cut_at = cut_at.map(|operation| before + operation);
        run.io.set_faults(Faults { cut_at, ..Faults::default() });
        if let Err(error) = run.try_two_writers() {
            assert!(run.io.had_fault(), "{error:?} without a fault");
        }
        let operations = run.io.operations() - before;
        let cut = run.io.must_restart() || run.random.once_in(2);
        run.io = Arc::new(run.io.restarted(cut));
        run.finish();
        operations
    }

    fn try_two_writers(&mut self) -> Result<()> {
        let first = self.open(Access::Write)?;
        self.check(&first)?;
        let mut writers = vec![Some(Beside { database: first, model: self.model.clone(), begun: None })];
        for _ in 0..4 + self.random.below(20) {
            if writers.len() == 1 && self.random.once_in(3) {
                self.io.break_lock();
                let database = self.open(Access::Write)?;
                writers.push(Some(Beside { database, model: self.model.clone(), begun: None }));
            }
            if self.random.once_in(8) {
                self.io.pass(Duration::from_secs(self.random.below(10) as u64 * 24 * 3600));
            }
            let index = self.random.below(writers.len());
            let Some(writer) = &mut writers[index] else { continue };
            match self.step(writer) {
                // The writer's state is outdated.
                Err(Error::Locked | Error::Stopped { .. }) if writers.len() > 1 => writers[index] = None,
                outcome => outcome?,
            }
            let reader = self.open(Access::Read)?;
            assert_eq!((reader.damage(), model_of(&reader.snapshot())?), (vec![], self.model.clone()));
        }
        Ok(())
    }

    /// One step of a writer: it begins a statement, commits the one that it has begun, or removes orphans.
    fn step(&mut self, writer: &mut Beside) -> Result<()> {
        let Some((statement, transaction)) = writer.begun.take() else {
            if self.random.once_in(8) {
                return writer.database.remove_orphans().map(|_| ());
            }
            let statement = writer.model.statement(&mut self.random, &mut self.next_row);
            let mut transaction = writer.database.begin()?;
            prepare(&writer.database, &mut transaction, &statement)?;
            writer.begun = Some((statement, transaction));
            return Ok(());
        };
        match commit(&writer.database, &statement, transaction) {
            Ok(_) => {
                let next = writer.model.after(&statement);
                if next != writer.model {
                    assert_eq!(writer.model, self.model, "{statement:?} is built on an old version");
                    (self.model, writer.model) = (next.clone(), next);
                }
                if writer.model == self.model {
                    self.remember(&writer.database);
                }
                Ok(())
            }
            // The writer's own maintenance conflicts.
            Err(Error::Conflict { .. }) if statement.is_upkeep() => Ok(()),
            Err(error @ Error::OutcomeUnknown(_)) => {
                self.perhaps = Some(writer.model.after(&statement));
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Ends the run: without faults everything must be there and whole.
    fn finish(mut self) {
        let database = self.open(Access::Write).expect("every database opens");
        self.check(&database).expect("all of it can be read");
        assert_eq!(database.check(), []);
        let mut transaction = database.begin().expect("it can be written to");
        transaction.set_property("p", Some("last")).expect("it is short");
        transaction.commit().expect("it can be written to");
    }
}

/// A writer that may not be the only one.
struct Beside {
    database: Arc<Database>,
    /// The model as this writer knows it.
    model: Model,
    /// The statement that it has not committed yet.
    begun: Option<(Statement, Transaction)>,
}

/// A run of several sessions with faults of every kind.
fn simulate(seed: u64) {
    let mut run = Run::new(seed);
    for _ in 0..1 + run.random.below(4) {
        let statements = run.random.below(12);
        let at = run.io.operations() + 1 + run.random.below(30 + 25 * statements) as u64;
        let random = &mut run.random;
        let mut rare = |times: usize| if random.once_in(3) { times + random.below(200) } else { 0 };
        let (disk_full, failed_sync, read_error, short) = (rare(50), rare(30), rare(200), rare(2));
        let cut_at = (!random.once_in(4)).then_some(at);
        run.session(
            statements,
            Faults { cut_at, disk_full, failed_sync, read_error, short, ..Faults::default() },
        );
    }
    run.finish();
}

/// How many seeds a long test runs.
pub(crate) fn seed_count() -> u64 {
    let seeds = std::env::var("KEIRIN_SIMULATION_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    seeds.unwrap_or(100_000)
}

/// Runs a test for many seeds and says which failed.
pub(crate) fn for_seeds(seeds: Range<u64>, test: impl Fn(u64)) {
    let chosen = std::env::var("KEIRIN_SIMULATION_SEED").ok();
    let chosen = chosen.and_then(|chosen| match chosen.split_once("..") {
        Some((first, end)) => Some(first.parse().ok()?..end.parse().ok()?),
        None => chosen.parse().ok().map(|seed| seed..seed + 1),
    });
    for seed in chosen.unwrap_or(seeds) {
        let run = std::panic::AssertUnwindSafe(|| test(seed));
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("replay it with KEIRIN_SIMULATION_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost() {
    for_seeds(0..200, simulate);
}

#[test]
#[ignore = "takes many minutes; KEIRIN_SIMULATION_SEEDS says how many"]
fn nothing_acknowledged_is_lost_over_many_seeds() {
    for_seeds(0..seed_count(), simulate);
}

/// One workload, cut at each of its operations in turn.
#[test]
fn a_power_cut_at_every_operation_loses_nothing() {
    let sessions = |cut_at: Option<u64>, seed: u64| {
        let mut run = Run::new(seed);
        run.session(15, Faults { cut_at, ..Faults::default() });
        let operations = run.io.operations();
        run.finish();
        operations
    };
    let operations = sessions(None, 1);
    assert!(operations > 50, "a workload that changes something");
    (1..=operations).for_each(|operation| _ = sessions(Some(operation), 1));
}

/// The simulation must notice a database that does not sync.
#[test]
fn missing_syncs_are_noticed() {
    for lying_syncs in [[true, false], [false, true]] {
        let is_noticed = |seed| {
            let run = std::panic::AssertUnwindSafe(|| {
                let mut run = Run::new(seed);
                run.session(10, Faults { lying_syncs, ..Faults::default() });
                run.finish();
            });
            std::panic::catch_unwind(run).is_err()
        };
        assert!((0..50).any(is_noticed), "{lying_syncs:?}");
    }
}
