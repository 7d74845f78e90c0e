//! The upkeep of a database directory: few threads of its own merge small parts, write checkpoints and give space
//! back, as long as it is open for writing.
//!
//! The threads begin when something was changed, and look again at intervals, as files may be removed once they are old
//! enough. One of them removes
//! files, between merges if need be, so that neither keeps the other waiting. A merge books the memory that it takes
//! before it begins, and waits for another time where there is none.
//!
//! Whoever closes the database waits a little for what is soon done, so that programs that run one statement leave a
//! directory without obsolete files. Merges of many rows are stopped, and leave nothing behind.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool};
use keirin_storage::part::PartKey;
use keirin_storage::{Cancel, Database};
use parking_lot::{Condvar, Mutex};

use super::super::reading::blocks::BlockCache;
use super::super::store::write_options;

/// Threads that merge: one of so many of those that run queries, and no more than that.
const THREADS_DIVISOR: usize = 4;
const THREADS_MAX: usize = 4;
/// While there are changes, the next look comes after this.
const ROUND_INTERVAL: Duration = Duration::from_millis(200);
/// Without changes.
const IDLE_INTERVAL: Duration = Duration::from_secs(60);
/// While files wait for statements that read them.
const READERS_INTERVAL: Duration = Duration::from_secs(1);
/// A program that only reads is mostly gone by then.
const FIRST_ROUND_AFTER: Duration = Duration::from_secs(2);
/// While parts are merged, files are removed so often.
const REMOVAL_INTERVAL: Duration = Duration::from_secs(1);
/// Merges of so many rows are soon done.
const SMALL_ROWS: u64 = 1 << 20;
/// How long closing waits for what is soon done, and then for it to stop.
const CLOSE_WAIT_MAX: Duration = Duration::from_millis(if cfg!(test) { 60_000 } else { 500 });
const STOP_WAIT_MAX: Duration = Duration::from_secs(5);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Upkeep {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    database: Arc<Database>,
    block_cache: Arc<BlockCache>,
    pool: Arc<dyn MemoryPool>,
    state: Mutex<State>,
    changed: Condvar,
    /// Stops everything.
    all: Cancel,
    /// Stops what may take long: merges of many rows, and reading what the log says of files.
    large: Cancel,
}

#[derive(Debug)]
struct State {
    /// Goes up with each change of the database.
    changes: u64,
    /// By thread, the changes after which it has looked; none of a thread that has ended.
    seen: Vec<Option<u64>>,
    is_closing: bool,
}

impl State {
    fn is_all_seen(&self) -> bool {
        self.seen.iter().all(|seen| seen.is_none_or(|seen| seen == self.changes))
    }

    fn has_ended(&self) -> bool {
        self.seen.iter().all(Option::is_none)
    }
}

/// Says that a thread has ended, however.
struct Ending {
    shared: Arc<Shared>,
    thread: usize,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.shared.state.lock().seen[self.thread] = None;
        self.shared.changed.notify_all();
    }
}

impl Upkeep {
    /// Begins it; `threads` run queries.
    pub(crate) fn begin(
        database: Arc<Database>,
        block_cache: Arc<BlockCache>,
        pool: Arc<dyn MemoryPool>,
        threads: usize,
    ) -> Self {
        let count = (threads / THREADS_DIVISOR).clamp(1, THREADS_MAX);
        let state = Mutex::new(State { changes: 0, seen: vec![Some(0); count], is_closing: false });
        let (changed, all, large) = (Condvar::new(), Cancel::default(), Cancel::default());
        let shared = Arc::new(Shared { database, block_cache, pool, state, changed, all, large });
        let begin = |thread| {
            let ending = Ending { shared: shared.clone(), thread };
            let builder = std::thread::Builder::new().name("keirin upkeep".to_owned());
            // Where there is no thread to be had, inserts merge what is in their way.
            builder.spawn(move || ending.shared.run(thread)).ok()
        };
        let threads = (0..count).filter_map(begin).collect();
        Self { shared, threads: Mutex::new(threads) }
    }

    /// Says that the database was changed.
    pub(crate) fn wake(&self) {
        self.shared.state.lock().changes += 1;
        self.shared.changed.notify_all();
    }

    /// Ends it, whatever is left to be done.
    pub(crate) fn abandon(&self) {
        self.shared.all.cancel();
        self.close();
    }

    /// Ends it, so that nobody here has the database open any more.
    pub(crate) fn close(&self) {
        let Shared { state, changed, all, large, .. } = &*self.shared;
        let mut state = state.lock();
        state.is_closing = true;
        large.cancel();
        if state.changes > 0 && !all.is_cancelled() && self.shared.database.has_removable() {
            // Those who read them are gone now.
            state.changes += 1;
        }
        if state.is_all_seen() {
            all.cancel();
        }
        changed.notify_all();
        changed.wait_while_for(&mut state, |state| !state.has_ended(), CLOSE_WAIT_MAX);
        all.cancel();
        changed.wait_while_for(&mut state, |state| !state.has_ended(), STOP_WAIT_MAX);
        let has_ended = state.has_ended();
        drop(state);
        for thread in std::mem::take(&mut *self.threads.lock()) {
            if has_ended {
                // One that panicked has said so.
                let _ = thread.join();
            }
        }
    }

    /// Waits until it has looked after all changes up to now.
    #[cfg(test)]
    fn wait_until_done(&self) {
        let mut state = self.shared.state.lock();
        let wait_max = Duration::from_secs(60);
        let waited = self.shared.changed.wait_while_for(&mut state, |state| !state.is_all_seen(), wait_max);
        assert!(!waited.timed_out(), "upkeep takes too long");
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn run(&self, thread: usize) {
        let mut next_round = Instant::now() + FIRST_ROUND_AFTER;
        let mut begun = None::<Instant>;
        loop {
            let mut state = self.state.lock();
            let changes = loop {
                let has_changes = state.seen[thread] != Some(state.changes);
                if state.is_closing && (!has_changes || self.all.is_cancelled()) {
                    return;
                }
                let at = match begun {
                    _ if !has_changes => next_round,
                    Some(begun) if !state.is_closing => begun + ROUND_INTERVAL,
                    _ => Instant::now(),
                };
                if at <= Instant::now() {
                    break state.changes;
                }
                self.changed.wait_until(&mut state, at);
            };
            drop(state);
            begun = Some(Instant::now());
            self.do_round(thread == 0);
            let is_awaited = thread == 0 && self.database.has_removable();
            next_round = Instant::now() + if is_awaited { READERS_INTERVAL } else { IDLE_INTERVAL };
            self.state.lock().seen[thread] = Some(changes);
            self.changed.notify_all();
        }
    }

    /// Does what is due, as far as it can; what fails is tried again the next time.
    fn do_round(&self, removes_files: bool) {
        let mut removed_at = None::<Instant>;
        while !self.all.is_cancelled() {
            if removes_files && removed_at.is_none_or(|removed_at| removed_at.elapsed() >= REMOVAL_INTERVAL) {
                while self.database.remove_and_checkpoint(&self.large).unwrap_or(false) {}
                removed_at = Some(Instant::now());
            }
            let rows_max = if self.large.is_cancelled() { SMALL_ROWS } else { u64::MAX };
            let Ok(Some(merge)) = self.database.next_merge(rows_max) else { break };
            let consumer = MemoryConsumer::new(format!("merging parts of table {}", merge.table_name()));
            let booked = consumer.register(&self.pool);
            if booked.try_grow(usize::try_from(merge.memory_bytes()).unwrap_or(usize::MAX)).is_err() {
                break;
            }
            let cancel = if merge.row_count() > SMALL_ROWS { &self.large } else { &self.all };
            if merge.run(write_options, cancel).is_err() && !self.large.is_cancelled() {
                break;
            }
        }
        if removes_files && self.large.is_cancelled() {
            // Merges came first.
            while self.database.remove_and_checkpoint(&self.all).unwrap_or(false) {}
        }
        let snapshot = self.database.snapshot();
        let is_there = |part: &PartKey| snapshot.table(part.table)?.part(part.part);
        self.block_cache.retain(|part| is_there(part).is_some());
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use datafusion::execution::memory_pool::MemoryReservation;
    use keirin_storage::column::{Column, Values};
    use keirin_storage::io::Disk;
    use keirin_storage::part::WriteOptions;
    use keirin_storage::schema::{DataType, Definition};
    use keirin_storage::{Access, FileUse, Options};

    use super::*;
    use crate::runtime::pool::FairPool;

    /// A table with eight parts of so many rows.
    fn database(path: &Path, row_count: usize) -> Arc<Database> {
        let disk = Arc::new(Disk::create(path).unwrap());
        let database = Database::open(disk, Access::Write, Options::default()).unwrap();
        let mut transaction = database.begin().unwrap();
        let definition = Definition::new("main", "t", vec![("a", DataType::I64)]);
        let table = transaction.create_table(definition).unwrap();
        for _ in 0..8 {
            let mut writer = transaction.write_part(table, WriteOptions::default()).unwrap();
            let values = Values::I64((0_i64..).take(row_count).collect::<Vec<_>>().into());
            writer.push(&[Column { validity: None, values }]).unwrap();
            let part = writer.finish().unwrap();
            transaction.add_part(table, part).unwrap();
        }
        transaction.commit().unwrap();
        database
    }

    fn part_count(database: &Database) -> usize {
        database.snapshot().table_named("main", "t").unwrap().parts().len()
    }

    fn begin(database: &Arc<Database>) -> (Upkeep, MemoryReservation) {
        let pool = Arc::new(FairPool::new(1 << 30));
        let block_cache = BlockCache::new(&pool, 0);
        let pool: Arc<dyn MemoryPool> = pool;
        let others = MemoryConsumer::new("others").register(&pool);
        (Upkeep::begin(database.clone(), block_cache, pool, 8), others)
    }

    #[test]
    fn changes_wake_it_and_closing_waits_for_what_is_soon_done() {
        let directory = tempfile::tempdir().unwrap();
        let database = database(directory.path(), 10);
        let (upkeep, _) = begin(&database);
        upkeep.wake();
        upkeep.close();
        assert_eq!(part_count(&database), 1);
        assert_eq!(Arc::strong_count(&upkeep.shared), 1, "no thread is left");
    }

    #[test]
    fn files_go_soon_after_those_who_read_them() {
        let directory = tempfile::tempdir().unwrap();
        let database = database(directory.path(), 10);
        let mut transaction = database.begin().unwrap();
        transaction.set_retention(Duration::ZERO).unwrap();
        transaction.commit().unwrap();
        let files = || std::fs::read_dir(directory.path().join("tables/1")).unwrap().count();
        let (upkeep, _) = begin(&database);
        let read = database.snapshot();
        upkeep.wake();
        upkeep.wait_until_done();
        assert_eq!((part_count(&database), files()), (1, 9));
        drop(read);
        upkeep.close();
        assert_eq!(files(), 1);
    }

    #[test]
    fn merges_wait_for_memory() {
        let directory = tempfile::tempdir().unwrap();
        let database = database(directory.path(), 1000);
        let (upkeep, others) = begin(&database);
        others.try_grow(1 << 30).unwrap();
        upkeep.wake();
        upkeep.wait_until_done();
        assert_eq!(part_count(&database), 8);
        others.free();
        upkeep.wake();
        upkeep.wait_until_done();
        assert_eq!(part_count(&database), 1);
    }

    #[test]
    fn closing_stops_merges_of_many_rows_and_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let row_count = usize::try_from(SMALL_ROWS / 8).unwrap() + 1;
        let database = database(directory.path(), row_count);
        for is_begun in [true, false] {
            let (upkeep, _) = begin(&database);
            if !is_begun {
                upkeep.shared.large.cancel();
            }
            upkeep.wake();
            let files = || std::fs::read_dir(directory.path().join("tables/1")).unwrap().count();
            while is_begun && files() == 8 {
                std::thread::yield_now();
            }
            upkeep.close();
            let usage = database.disk_usage().unwrap();
            let kinds: Vec<_> = usage.keys().collect();
            assert!(
                !usage.contains_key(&FileUse::Orphaned) && !usage.contains_key(&FileUse::Unfinished),
                "{kinds:?}"
            );
        }
        drop(database);
        let disk = Arc::new(Disk::create(directory.path()).unwrap());
        Database::open(disk, Access::Write, Options::default()).expect("nobody has it open");
    }
}
