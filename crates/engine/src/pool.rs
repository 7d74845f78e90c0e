//! The memory pool: one limit for all queries of a database, changeable while they run.
//!
//! Who can spill gets an equal share of what the others leave, and never the last quarter: sorts and
//! exchanges that read spilled rows back need some memory that cannot spill, or nothing would ever end.
//! A share that is too small makes its operator spill, or fail; the message names who uses most.
//! What is only kept for speed gives way to all of them.
//! Equal shares are the rule of DataFusion's `FairSpillPool`, which cannot change its limit.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{OnceLock, Weak};

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use parking_lot::Mutex;

use crate::memory::format_bytes;

/// The part of the limit that is kept for those who cannot spill: one in so many.
const HEADROOM_DIVISOR: usize = 4;
/// The name of the one whose memory the others get when there is none left.
pub(crate) const RECLAIMABLE: &str = "decoded blocks";
/// What is left to each of those that share but have nothing yet, so that they can begin, and spill.
const IDLE_BYTES: usize = 4 << 20;
/// Users that are named when memory runs out.
const USERS_NAMED_MAX: usize = 3;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct FairPool {
    limit_bytes: AtomicUsize,
    state: Mutex<State>,
    reclaimable: OnceLock<Weak<dyn Reclaim>>,
}

/// Who has what can be reclaimed.
pub(crate) trait Reclaim: fmt::Debug + Send + Sync {
    /// Lets go of at least so many bytes, if there are as many.
    fn give_back(&self, bytes: usize);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// Needs what it asks for.
    Fixed,
    /// Spills when it does not get what it asks for.
    Spiller,
    /// Merges sorted runs from disk: takes what it can get and makes do with fewer runs at once. It says
    /// that it cannot spill; unbounded, it would leave nothing to the others.
    Merge,
    /// Gives back what others need.
    Reclaimable,
    /// Hands rows from part to part, mostly through few bytes; counted as a spiller it would take shares that
    /// it does not use.
    Exchange,
}

impl Kind {
    fn of(consumer: &MemoryConsumer) -> Self {
        if consumer.name().starts_with("RepartitionExec") {
            Self::Exchange
        } else if consumer.can_spill() {
            Self::Spiller
        } else if consumer.name().starts_with("ExternalSorterMerge") {
            Self::Merge
        } else if consumer.name() == RECLAIMABLE {
            Self::Reclaimable
        } else {
            Self::Fixed
        }
    }
}

/// Whether a join gathers batches that it makes one of, by the name that DataFusion gives it.
fn is_copied(consumer: &MemoryConsumer) -> bool {
    ["HashJoinInput", "NestedLoopJoinLoad", "CrossJoinExec"]
        .iter()
        .any(|name| consumer.name().starts_with(name))
}

#[derive(Debug)]
struct User {
    name: String,
    kind: Kind,
    bytes: usize,
}

#[derive(Debug, Default)]
struct State {
    users: HashMap<usize, User>,
    totals: HashMap<Kind, Total>,
}

/// All users of a kind.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    bytes: usize,
    users: usize,
    /// Users that have something.
    holders: usize,
}

impl State {
    fn total(&self, kind: Kind) -> Total {
        self.totals.get(&kind).copied().unwrap_or_default()
    }

    fn bytes(&self) -> usize {
        self.totals.values().map(|total| total.bytes).sum()
    }

    /// What `consumer` may still have of `limit`, when it gets what can be reclaimed.
    fn available(&self, consumer: &MemoryConsumer, limit: usize) -> usize {
        let kind = Kind::of(consumer);
        let reclaimable = if kind == Kind::Reclaimable { 0 } else { self.total(Kind::Reclaimable).bytes };
        let free = limit.saturating_sub(self.bytes() - reclaimable);
        let used = self.users.get(&consumer.id()).map_or(0, |user| user.bytes);
        let fixed_bytes = self.total(Kind::Fixed).bytes;
        let others_bytes = match kind {
            // What it has, it copies before it uses it.
            Kind::Fixed if is_copied(consumer) => return free.saturating_sub(used) / 2,
            Kind::Fixed => return free,
            Kind::Reclaimable => return free.saturating_sub(limit / HEADROOM_DIVISOR),
            Kind::Spiller => fixed_bytes + self.total(Kind::Merge).bytes + self.total(Kind::Exchange).bytes,
            // The rows that a merge holds were booked by its sort, which frees them as the merge books them.
            Kind::Merge | Kind::Exchange => fixed_bytes,
        };
        let kept = others_bytes.max(limit / HEADROOM_DIVISOR);
        let share = self.total(kind).share(limit.saturating_sub(kept), used == 0);
        // A sort that spills merges what it holds, which takes more memory than holding it.
        let is_sort = consumer.name().starts_with("ExternalSorter[");
        let share = if is_sort { share / 3 * 2 } else { share };
        let available = share.saturating_sub(used).min(free);
        if kind == Kind::Merge {
            // The last merge before a spill needs a little more than the rows that it merges.
            let spare = free.saturating_sub(limit / HEADROOM_DIVISOR);
            return available.max((2 * share).saturating_sub(used).min(spare));
        }
        available
    }

    fn add(&mut self, reservation: &MemoryReservation, bytes: usize) {
        self.update(reservation.consumer(), |booked| booked + bytes);
    }

    fn update(&mut self, consumer: &MemoryConsumer, change: impl Fn(usize) -> usize) {
        let total = self.totals.entry(Kind::of(consumer)).or_default();
        total.bytes = change(total.bytes);
        if let Some(user) = self.users.get_mut(&consumer.id()) {
            let had = user.bytes > 0;
            user.bytes = change(user.bytes);
            total.holders = total.holders + usize::from(user.bytes > 0) - usize::from(had);
        }
    }

    fn refusal(
        &self,
        consumer: &MemoryConsumer,
        additional: usize,
        available: usize,
        limit: usize,
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
        DataFusionError::ResourcesExhausted(text)
    }

    /// `a has 20 MB, b has 4 MB`: those who use most.
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
    /// What one of them may have of `bytes` that all share; `is_new` if it has nothing yet. Those that have nothing
    /// do not get a whole share, for they may never want it: the operators of a query above a sort wait for its end.
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
        Self { limit_bytes, state: Mutex::default(), reclaimable: OnceLock::new() }
    }

    /// Names, once, the one who registers as [`RECLAIMABLE`].
    pub(crate) fn set_reclaimable(&self, of: Weak<dyn Reclaim>) {
        self.reclaimable.get_or_init(|| of);
    }

    /// What someone is told who wants so many bytes more and may have fewer.
    pub(crate) fn refusal(
        &self,
        reservation: &MemoryReservation,
        additional: usize,
        available: usize,
    ) -> DataFusionError {
        self.state.lock().refusal(reservation.consumer(), additional, available, self.limit_bytes())
    }

    pub(crate) fn limit_bytes(&self) -> usize {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    /// Running operators notice when they next ask for memory.
    pub(crate) fn set_limit_bytes(&self, bytes: usize) {
        self.limit_bytes.store(bytes, Ordering::Relaxed);
    }
}

impl MemoryPool for FairPool {
    fn name(&self) -> &'static str {
        "fair"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        let mut state = self.state.lock();
        let kind = Kind::of(consumer);
        state.users.insert(consumer.id(), User { name: consumer.name().to_owned(), kind, bytes: 0 });
        state.totals.entry(kind).or_default().users += 1;
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        let mut state = self.state.lock();
        if let Some(user) = state.users.remove(&consumer.id()) {
            let total = state.totals.entry(user.kind).or_default();
            total.users -= 1;
            total.holders -= usize::from(user.bytes > 0);
        }
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
        let mut state = self.state.lock();
        let available = state.available(consumer, limit);
        if additional > available {
            return Err(state.refusal(consumer, additional, available, limit));
        }
        state.add(reservation, additional);
        let excess = state.bytes().saturating_sub(limit);
        drop(state);
        // Never of the one who asks: it gets what is free alone.
        if let Some(of) = self.reclaimable.get().filter(|_| excess > 0).and_then(Weak::upgrade) {
            of.give_back(excess);
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
    fn those_that_have_nothing_yet_are_left_enough_to_begin() {
        let (_, shared) = pool(100 << 20);
        let users: Vec<_> = (0..6)
            .map(|user| MemoryConsumer::new(format!("{user}")).with_can_spill(true).register(&shared))
            .collect();
        // A quarter is for others, and five times a little for those that wait.
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
