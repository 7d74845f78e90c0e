//! The memory pool: one limit for all queries of a database, changeable while they run.
//!
//! Statements get equal budgets of what consumers that cannot spill leave, and within each those that can get
//! equal shares, and never the last quarter: sorts and exchanges that read spilled rows back need some memory
//! that cannot spill, or no query would ever end. A request beyond the share makes its operator spill, or fail;
//! the message names the largest consumers. The cache of decoded blocks, which only saves time, gives its
//! memory to all of them.
//!
//! Not all memory is reserved: batches between operators are not, nor is what the allocator keeps after it
//! was freed. In a process that is little else than a database the pool counts that, too
//! ([`crate::runtime::process`]): consumers that can spill do so when the process has 3/4 of the limit, for what is
//! on its way to disk takes memory, too.
//!
//! Equal shares are the rule of DataFusion's `FairSpillPool`, which cannot change its limit.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{OnceLock, Weak};

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use parking_lot::Mutex;

use crate::runtime::memory::format_bytes;
use crate::runtime::process::ProcessMemory;

/// The share of the limit that is left to consumers that cannot spill: 1/4.
const HEADROOM_DIVISOR: usize = 4;
/// The name of the consumer whose memory is reclaimed for others when none is left.
pub(crate) const RECLAIMABLE: &str = "decoded blocks";
/// The name, before its partition, of a consumer that merges sorted runs from disk; that of DataFusion's sorts.
pub(crate) const MERGE: &str = "ExternalSorterMerge";
/// The bytes that stay free for each consumer of a kind that holds nothing yet, so that it can begin, and
/// spill.
const IDLE_BYTES: usize = 4 << 20;
/// A merge of runs from disk uses at least three times its reservation (decoded batches, batches read ahead,
/// keys in row format), and more where several read at the same time, so it may reserve only 1/6 of its share.
const READ_BACK_DIVISOR: usize = 6;
/// A consumer that cannot spill is large if it has more than 1/4 of the limit.
const LARGE_DIVISOR: usize = 4;
/// A large consumer gets no more memory when the process exceeds the limit by more than 1/8.
const EXCESS_DIVISOR: usize = 8;
/// A consumer that can spill does so when the process has 3/4 of the limit.
const WRITING_DIVISOR: usize = 4;
/// The number of consumers that an error names when memory runs out.
const USERS_NAMED_MAX: usize = 3;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct FairPool {
    limit_bytes: AtomicUsize,
    state: Mutex<State>,
    statement_count: AtomicU64,
    reclaimable: OnceLock<Weak<dyn Reclaim>>,
    /// The memory of the process, if all of it counts against the limit.
    process: Option<ProcessMemory>,
}

/// The owner of reclaimable memory.
pub(crate) trait Reclaim: fmt::Debug + Send + Sync {
    /// Frees at least `bytes` bytes, or all if there are fewer.
    fn give_back(&self, bytes: usize);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// Cannot spill: needs all it asks for.
    Fixed,
    /// Spills when a request is refused.
    Spiller,
    /// Merges sorted runs from disk: makes do with fewer runs at once if a request is refused. It declares
    /// that it cannot spill; treated so, it would leave nothing to the others.
    Merge,
    /// Gives its memory back when others need it.
    Reclaimable,
    /// Passes rows between partitions, mostly with few bytes; counted as a spiller it would take shares that
    /// it does not use.
    Exchange,
}

impl Kind {
    fn of(consumer: &MemoryConsumer) -> Self {
        if consumer.name().starts_with("RepartitionExec") {
            Self::Exchange
        } else if consumer.can_spill() {
            Self::Spiller
        } else if consumer.name().starts_with(MERGE) {
            Self::Merge
        } else if consumer.name() == RECLAIMABLE {
            Self::Reclaimable
        } else {
            Self::Fixed
        }
    }
}

/// Whether the consumer is a join's buffer of batches that are concatenated; recognised by DataFusion's name
/// for it.
fn is_copied(consumer: &MemoryConsumer) -> bool {
    ["HashJoinInput", "NestedLoopJoinLoad", "CrossJoinExec"]
        .iter()
        .any(|name| consumer.name().starts_with(name))
}

/// A statement, which has a budget of its own; `None` stands for the database's own work.
type Statement = Option<u64>;

#[derive(Debug)]
struct User {
    name: String,
    kind: Kind,
    statement: Statement,
    bytes: usize,
    /// Whether a request of it was ever refused.
    was_refused: bool,
}

#[derive(Debug, Default)]
struct State {
    users: HashMap<usize, User>,
    /// Of each statement that has consumers of a kind, by both.
    totals: HashMap<Kind, HashMap<Statement, Total>>,
}

/// The sums over consumers of a kind.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    bytes: usize,
    users: usize,
    /// Consumers that have memory.
    holders: usize,
}

impl State {
    /// What all consumers of a kind have.
    fn bytes_of(&self, kind: Kind) -> usize {
        self.totals.get(&kind).into_iter().flat_map(HashMap::values).map(|total| total.bytes).sum()
    }

    fn bytes(&self) -> usize {
        self.totals.keys().map(|kind| self.bytes_of(*kind)).sum()
    }

    /// How much of `bytes`, which all consumers of a kind share, one of a statement may have; `is_new` if it has nothing
    /// yet.
    fn share(&self, kind: Kind, statement: Statement, bytes: usize, is_new: bool) -> usize {
        let Some(statements) = self.totals.get(&kind) else { return bytes };
        let own = statements.get(&statement).copied().unwrap_or_default();
        let of_statements = Total {
            bytes: 0,
            users: statements.len(),
            holders: statements.values().filter(|total| total.holders > 0).count(),
        };
        own.share(of_statements.share(bytes, own.holders == 0), is_new)
    }

    /// How much `reservation` may grow under `limit`, in a process that has `grown` by this many bytes;
    /// reclaimable memory counts as free.
    fn available(&self, reservation: &MemoryReservation, limit: usize, grown: usize) -> usize {
        let bookable = self.bookable(reservation, limit);
        let used = reservation.size();
        let room = match Kind::of(reservation.consumer()) {
            // The memory of a merge was taken into account when the rows were sorted.
            Kind::Merge => return bookable,
            // A small consumer may still finish, if others spill.
            Kind::Fixed if used < limit / LARGE_DIVISOR => return bookable,
            Kind::Fixed => limit + limit / EXCESS_DIVISOR,
            // A consumer that cannot begin cannot spill either.
            _ if used == 0 => return bookable,
            // What is on its way to disk takes memory, too.
            _ => limit - limit / WRITING_DIVISOR,
        };
        bookable.min(room.saturating_sub(grown).max(IDLE_BYTES.saturating_sub(used)))
    }

    /// As [`Self::available`], judged by the reservations alone.
    fn bookable(&self, reservation: &MemoryReservation, limit: usize) -> usize {
        let consumer = reservation.consumer();
        let kind = Kind::of(consumer);
        let reclaimable = if kind == Kind::Reclaimable { 0 } else { self.bytes_of(Kind::Reclaimable) };
        let free = limit.saturating_sub(self.bytes() - reclaimable);
        let (used, statement) =
            self.users.get(&consumer.id()).map_or((0, None), |user| (user.bytes, user.statement));
        let fixed_bytes = self.bytes_of(Kind::Fixed);
        let others_bytes = match kind {
            // A join copies what it has gathered before it uses it, so it needs that much again.
            Kind::Fixed if is_copied(consumer) => return free.saturating_sub(used) / 2,
            Kind::Fixed => return free,
            Kind::Reclaimable => return free.saturating_sub(limit / HEADROOM_DIVISOR),
            Kind::Spiller => fixed_bytes + self.bytes_of(Kind::Merge) + self.bytes_of(Kind::Exchange),
            // The rows of a merge were reserved by its sort, which releases them as the merge reserves them.
            Kind::Merge | Kind::Exchange => fixed_bytes,
        };
        let kept = others_bytes.max(limit / HEADROOM_DIVISOR);
        let share = self.share(kind, statement, limit.saturating_sub(kept), used == 0);
        // A merge of runs from disk has one reservation for all of them; of rows in memory each batch has its
        // own.
        let is_alone = used > 0 && reservation.size() == used;
        let reads_back = kind == Kind::Merge && is_alone;
        let share = match consumer.name() {
            // A sort that spills first merges its rows in memory, which takes more memory than holding them.
            name if name.starts_with("ExternalSorter[") => share / 3 * 2,
            _ if reads_back => share / READ_BACK_DIVISOR,
            // Groups that were spilled are merged at the end, which needs memory for the runs and for the
            // merged groups.
            name if name.contains("AggregateStream[") && self.was_refused(consumer) => {
                if is_alone {
                    share / READ_BACK_DIVISOR
                } else {
                    share / 2
                }
            }
            _ => share,
        };
        let available = share.saturating_sub(used).min(free);
        if kind == Kind::Merge && !reads_back {
            // The last merge before a spill needs a little more than the rows that it merges, while another
            // sort may already take the memory that they had.
            let spare = free.saturating_sub(limit / HEADROOM_DIVISOR / 4);
            return available.max((2 * share).saturating_sub(used).min(spare));
        }
        available
    }

    fn was_refused(&self, consumer: &MemoryConsumer) -> bool {
        self.users.get(&consumer.id()).is_some_and(|user| user.was_refused)
    }

    fn add(&mut self, reservation: &MemoryReservation, bytes: usize) {
        self.update(reservation.consumer(), |booked| booked + bytes);
    }

    fn update(&mut self, consumer: &MemoryConsumer, change: impl Fn(usize) -> usize) {
        let Some(user) = self.users.get_mut(&consumer.id()) else { return };
        let total = self.totals.entry(user.kind).or_default().entry(user.statement).or_default();
        let (had, has) = (user.bytes, change(user.bytes));
        user.bytes = has;
        total.bytes = total.bytes - had + has;
        total.holders = total.holders + usize::from(has > 0) - usize::from(had > 0);
    }

    fn register(&mut self, statement: Statement, consumer: &MemoryConsumer) {
        let kind = Kind::of(consumer);
        let name = consumer.name().to_owned();
        self.users.insert(consumer.id(), User { name, kind, statement, bytes: 0, was_refused: false });
        self.totals.entry(kind).or_default().entry(statement).or_default().users += 1;
    }

    fn unregister(&mut self, consumer: &MemoryConsumer) {
        let Some(user) = self.users.remove(&consumer.id()) else { return };
        let Some(statements) = self.totals.get_mut(&user.kind) else { return };
        let Some(total) = statements.get_mut(&user.statement) else { return };
        total.bytes -= user.bytes;
        total.users -= 1;
        total.holders -= usize::from(user.bytes > 0);
        if total.users == 0 {
            statements.remove(&user.statement);
        }
    }

    fn refusal(
        &self,
        consumer: &MemoryConsumer,
        additional: usize,
        available: usize,
        limit: usize,
        grown: usize,
    ) -> DataFusionError {
        let mut text = format!(
            "{} needs {} more, {} of {} are left to it",
            consumer.name(),
            format_bytes(additional),
            format_bytes(available),
            format_bytes(limit),
        );
        let largest = self.largest();
        if !largest.is_empty() {
            text = format!("{text}; {largest}");
        }
        if grown > limit {
            let unbooked = format_bytes(grown.saturating_sub(self.bytes()));
            text =
                format!("{text}; {unbooked} more are on their way between operators or not given back yet");
        }
        DataFusionError::ResourcesExhausted(text)
    }

    /// The largest consumers: `a has 20 MB, b has 4 MB`.
    fn largest(&self) -> String {
        let is_named = |user: &&User| user.bytes > 0 && user.kind != Kind::Reclaimable;
        let mut users: Vec<&User> = self.users.values().filter(is_named).collect();
        users.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
        let named = users.iter().take(USERS_NAMED_MAX);
        let named: Vec<String> =
            named.map(|user| format!("{} has {}", user.name, format_bytes(user.bytes))).collect();
        named.join(", ")
    }
}

impl Total {
    /// How much of `bytes`, which all consumers of the kind share, one of them may have; `is_new` if it has
    /// nothing yet. No whole share is kept for consumers without memory, for they may never need it:
    /// operators above a sort wait for its end.
    fn share(&self, bytes: usize, is_new: bool) -> usize {
        let holders = (self.holders + usize::from(is_new)).clamp(1, self.users.max(1));
        let idle = self.users.saturating_sub(holders);
        let equal = bytes / self.users.max(1);
        (bytes - idle * equal.min(IDLE_BYTES)) / holders
    }
}

impl FairPool {
    pub(crate) fn new(limit_bytes: usize) -> Self {
        let limit_bytes = AtomicUsize::new(limit_bytes);
        let (state, statement_count, reclaimable) = (Mutex::default(), AtomicU64::new(0), OnceLock::new());
        Self { limit_bytes, state, statement_count, reclaimable, process: None }
    }

    /// Applies the limit to all memory that the process allocates from now on.
    pub(crate) fn of_process(limit_bytes: usize) -> Self {
        let pool = Self { process: ProcessMemory::from_now(), ..Self::new(limit_bytes) };
        pool.set_limit_bytes(limit_bytes);
        pool
    }

    /// A number for a statement, which is to have a budget.
    pub(crate) fn next_statement(&self) -> u64 {
        self.statement_count.fetch_add(1, Ordering::Relaxed)
    }

    /// As [`MemoryPool::register`], for a consumer of a statement.
    pub(crate) fn register_for(&self, statement: u64, consumer: &MemoryConsumer) {
        self.state.lock().register(Some(statement), consumer);
    }

    /// Sets, once, the owner of the memory that is registered as [`RECLAIMABLE`].
    pub(crate) fn set_reclaimable(&self, of: Weak<dyn Reclaim>) {
        self.reclaimable.get_or_init(|| of);
    }

    /// The error for a request of `additional` bytes of which only `available` are allowed.
    pub(crate) fn refusal(
        &self,
        reservation: &MemoryReservation,
        additional: usize,
        available: usize,
    ) -> DataFusionError {
        let (limit, grown) = (self.limit_bytes(), self.grown_bytes());
        self.state.lock().refusal(reservation.consumer(), additional, available, limit, grown)
    }

    /// By how much the process has grown since the start, or 0 if that is not counted. Beyond the limit the
    /// allocator first returns freed memory to the system.
    pub(crate) fn grown_bytes(&self) -> usize {
        self.process.as_ref().map_or(0, |process| process.grown_bytes(self.limit_bytes()))
    }

    fn reclaim(&self, bytes: usize) {
        if let Some(of) = self.reclaimable.get().and_then(Weak::upgrade) {
            of.give_back(bytes);
        }
    }

    pub(crate) fn limit_bytes(&self) -> usize {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    /// Running operators notice the new limit with their next request.
    pub(crate) fn set_limit_bytes(&self, bytes: usize) {
        self.limit_bytes.store(bytes, Ordering::Relaxed);
        self.process.iter().for_each(|process| process.fit_to(bytes));
    }
}

impl MemoryPool for FairPool {
    fn name(&self) -> &'static str {
        "fair"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.state.lock().register(None, consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.state.lock().unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.state.lock().add(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.state.lock().update(reservation.consumer(), |booked| booked - shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let limit = self.limit_bytes();
        let consumer = reservation.consumer();
        let mut grown = self.grown_bytes();
        if grown > limit && Kind::of(consumer) != Kind::Reclaimable {
            self.reclaim(grown - limit);
            grown = self.process.as_ref().map_or(0, |process| process.recount(limit));
        }
        let mut state = self.state.lock();
        let mut available = state.available(reservation, limit, grown);
        let writing = limit - limit / WRITING_DIVISOR;
        if additional > available && grown > writing && Kind::of(consumer) == Kind::Spiller {
            drop(state);
            // Freed memory that the allocator keeps must not send everything to disk.
            grown = self.process.as_ref().map_or(0, |process| process.recount(writing));
            state = self.state.lock();
            available = state.available(reservation, limit, grown);
        }
        if additional > available {
            if let Some(user) = state.users.get_mut(&consumer.id()) {
                user.was_refused = true;
            }
            return Err(state.refusal(consumer, additional, available, limit, grown));
        }
        state.add(reservation, additional);
        let excess = state.bytes().saturating_sub(limit);
        drop(state);
        // A reclaimable consumer cannot cause this: it only gets free memory.
        if excess > 0 {
            self.reclaim(excess);
        }
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.state.lock().bytes()
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.limit_bytes())
    }
}

impl fmt::Display for FairPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fair(limit: {})", format_bytes(self.limit_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn pool(limit_bytes: usize) -> (Arc<FairPool>, Arc<dyn MemoryPool>) {
        let pool = Arc::new(FairPool::new(limit_bytes));
        (pool.clone(), pool)
    }

    #[test]
    fn spillers_share_what_the_others_leave() {
        let (pool, shared) = pool(100);
        let fixed = MemoryConsumer::new("fixed").register(&shared);
        let first = MemoryConsumer::new("first").with_can_spill(true).register(&shared);
        let second = MemoryConsumer::new("second").with_can_spill(true).register(&shared);

        fixed.try_grow(40).unwrap();
        first.try_grow(30).unwrap();
        assert!(first.try_grow(1).is_err(), "half of 60 is its share");
        second.try_grow(30).unwrap();
        assert!(fixed.try_grow(1).is_err(), "all is taken");

        drop(second);
        first.try_grow(30).unwrap();
        pool.set_limit_bytes(200);
        fixed.try_grow(100).unwrap();
        assert_eq!(pool.reserved(), 200);
    }

    #[test]
    fn statements_have_equal_budgets_however_many_consumers_they_have() {
        const MB: usize = 1 << 20;
        let (pool, shared) = pool(100 * MB);
        let register = |statement| {
            let spiller = MemoryConsumer::new("spiller").with_can_spill(true).register(&shared);
            pool.unregister(spiller.consumer());
            pool.register_for(statement, spiller.consumer());
            spiller
        };
        let [alone, one, other] = [1, 2, 2].map(register);
        one.try_grow(67 * MB).unwrap();
        assert!(
            one.try_grow(1).is_err(),
            "a quarter is for others, and twice `IDLE_BYTES` for those without memory"
        );
        one.shrink(60 * MB);
        other.try_grow(28 * MB).unwrap();
        alone.try_grow(37 * MB).unwrap();
        assert!(alone.try_grow(MB).is_err(), "half of three quarters");
        assert!(one.try_grow(12 * MB).is_err(), "half of the other half");
        one.try_grow(11 * MB).unwrap();
        drop((one, other));
        alone.try_grow(38 * MB).unwrap();
        assert_eq!(pool.reserved(), 75 * MB);
        drop(alone);
        assert!(pool.state.lock().totals.values().all(HashMap::is_empty), "nothing is left of a statement");
    }

    #[test]
    fn those_that_have_nothing_yet_are_left_enough_to_begin() {
        let (_, shared) = pool(100 << 20);
        let users: Vec<_> = (0..6)
            .map(|user| MemoryConsumer::new(format!("{user}")).with_can_spill(true).register(&shared))
            .collect();
        // A quarter is for others, and five times `IDLE_BYTES` for the consumers without memory.
        users[0].try_grow(55 << 20).unwrap();
        assert!(users[0].try_grow(1).is_err());
        users[1..].iter().for_each(|user| user.try_grow(IDLE_BYTES).unwrap());
        assert!(users[0].try_grow(1).is_err(), "it has more than its share now");
        users[0].shrink(50 << 20);
        users[1].try_grow(8 << 20).unwrap();
        assert!(users[1].try_grow(1 << 20).is_err(), "an equal share of three quarters");
    }

    #[test]
    fn what_is_copied_leaves_room_for_the_copy() {
        let (_, shared) = pool(100);
        let join = MemoryConsumer::new("HashJoinInput[0]").register(&shared);
        join.try_grow(30).unwrap();
        join.try_grow(20).unwrap();
        assert!(join.try_grow(1).is_err());
        MemoryConsumer::new("fixed").register(&shared).try_grow(50).unwrap();
    }

    #[test]
    fn spillers_leave_a_quarter_to_those_who_cannot() {
        let (pool, shared) = pool(100);
        let spiller = MemoryConsumer::new("spiller").with_can_spill(true).register(&shared);
        spiller.try_grow(75).unwrap();
        assert!(spiller.try_grow(1).is_err());
        MemoryConsumer::new("fixed").register(&shared).try_grow(25).unwrap();
        drop(spiller);
        assert_eq!(pool.reserved(), 0);
    }

    #[test]
    fn parts_of_a_reservation_count_together() {
        let (_, shared) = pool(100);
        let spiller = MemoryConsumer::new("spiller").with_can_spill(true).register(&shared);
        spiller.try_grow(70).unwrap();
        let part = spiller.split(60);
        assert!(part.try_grow(6).is_err() && spiller.try_grow(6).is_err());
    }

    #[test]
    fn merges_share_what_sorts_may_have() {
        let (_, shared) = pool(100);
        let [first, second] =
            [0, 1].map(|part| MemoryConsumer::new(format!("ExternalSorterMerge[{part}]")).register(&shared));
        first.try_grow(74).unwrap();
        assert!(first.try_grow(2).is_err(), "a quarter stays free");
        first.shrink(37);
        second.try_grow(37).unwrap();
        assert!(first.try_grow(2).is_err() && second.try_grow(2).is_err(), "a quarter stays free");
    }

    #[test]
    fn what_reads_runs_back_takes_less_than_what_merges_rows_in_memory() {
        let (_, shared) = pool(128);
        let merge = MemoryConsumer::new("ExternalSorterMerge[0]").register(&shared);
        merge.try_grow(4).unwrap();
        merge.try_grow(12).unwrap();
        assert!(merge.try_grow(1).is_err(), "a sixth of 96");
        let cursor = merge.new_empty();
        cursor.try_grow(60).unwrap();
        drop((merge, cursor));

        let groups =
            MemoryConsumer::new("FinalHashAggregateStream[0]").with_can_spill(true).register(&shared);
        groups.try_grow(90).unwrap();
        assert!(groups.try_grow(10).is_err(), "all of 96");
        groups.free();
        groups.try_grow(20).unwrap();
        assert!(groups.try_grow(10).is_err(), "it spilled, and will read back");
        groups.new_empty().try_grow(20).unwrap();
    }

    #[test]
    fn a_process_that_has_the_limit_spills() {
        const LIMIT: usize = 128 << 20;
        let (pool, shared) = pool(LIMIT);
        let [spiller, merge, other] = ["ExternalSorter[0]", "ExternalSorterMerge[0]", "fixed"].map(|name| {
            MemoryConsumer::new(name).with_can_spill(name == "ExternalSorter[0]").register(&shared)
        });
        let available = |reservation: &MemoryReservation, grown| {
            pool.state.lock().available(reservation, LIMIT, grown) >> 20
        };
        assert_eq!(available(&spiller, LIMIT), 64, "it has to begin");
        spiller.try_grow(2 << 20).unwrap();
        assert_eq!([LIMIT / 2, LIMIT, 2 * LIMIT].map(|grown| available(&spiller, grown)), [32, 2, 2]);
        assert_eq!(available(&merge, 2 * LIMIT), available(&merge, 0), "its rows are there already");
        other.try_grow(10 << 20).unwrap();
        assert_eq!(available(&other, 2 * LIMIT), 116);
        other.try_grow(30 << 20).unwrap();
        assert_eq!([LIMIT, 2 * LIMIT].map(|grown| available(&other, grown)), [16, 0]);
    }

    #[test]
    fn the_largest_users_are_named() {
        let (_, shared) = pool(100);
        let users: Vec<_> = [("small", 1), ("large", 50), ("middle", 40), ("tiny", 1)]
            .into_iter()
            .map(|(name, bytes)| {
                let user = MemoryConsumer::new(name).register(&shared);
                user.try_grow(bytes).unwrap();
                user
            })
            .collect();
        let error = users[0].try_grow(9).unwrap_err().to_string();
        assert!(error.contains("small needs 9 B more, 8 B of 100 B are left to it"), "{error}");
        assert!(error.contains("large has 50 B, middle has 40 B, small has 1 B"), "{error}");
    }
}
