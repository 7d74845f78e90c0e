//! The memory pool: one limit for all queries of a database, changeable while they run.
//!
//! Operators that can spill get equal shares of what the others leave; operators that cannot take what
//! is free. A share that is too small makes its operator spill, or fail with its name. The rule
//! is that of DataFusion's `FairSpillPool`, which cannot change its limit.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use parking_lot::Mutex;

use crate::memory::format_bytes;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct FairPool {
    limit_bytes: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    spiller_count: usize,
    spillable_bytes: usize,
    unspillable_bytes: usize,
}

impl State {
    fn booked(&mut self, reservation: &MemoryReservation) -> &mut usize {
        if reservation.consumer().can_spill() {
            &mut self.spillable_bytes
        } else {
            &mut self.unspillable_bytes
        }
    }
}

impl FairPool {
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes: AtomicUsize::new(limit_bytes), state: Mutex::default() }
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
        if consumer.can_spill() {
            self.state.lock().spiller_count += 1;
        }
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        if consumer.can_spill() {
            self.state.lock().spiller_count -= 1;
        }
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        *self.state.lock().booked(reservation) += additional;
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        *self.state.lock().booked(reservation) -= shrink;
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let limit = self.limit_bytes();
        let mut state = self.state.lock();
        let available = if reservation.consumer().can_spill() {
            let share = limit.saturating_sub(state.unspillable_bytes) / state.spiller_count.max(1);
            let free = limit.saturating_sub(state.unspillable_bytes + state.spillable_bytes);
            share.saturating_sub(reservation.size()).min(free)
        } else {
            limit.saturating_sub(state.unspillable_bytes + state.spillable_bytes)
        };
        if additional > available {
            return Err(DataFusionError::ResourcesExhausted(format!(
                "{} needs {} more, {} of {} are left to it",
                reservation.consumer().name(),
                format_bytes(additional),
                format_bytes(available),
                format_bytes(limit),
            )));
        }
        *state.booked(reservation) += additional;
        Ok(())
    }

    fn reserved(&self) -> usize {
        let state = self.state.lock();
        state.spillable_bytes + state.unspillable_bytes
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

    #[test]
    fn spillers_share_what_the_others_leave() {
        let pool: Arc<FairPool> = Arc::new(FairPool::new(100));
        let shared: Arc<dyn MemoryPool> = pool.clone();
        let fixed = MemoryConsumer::new("fixed").register(&shared);
        let first = MemoryConsumer::new("first").with_can_spill(true).register(&shared);
        let second = MemoryConsumer::new("second").with_can_spill(true).register(&shared);

        fixed.try_grow(20).unwrap();
        first.try_grow(40).unwrap();
        assert!(first.try_grow(1).is_err(), "half of 80 is its share");
        second.try_grow(40).unwrap();
        assert!(fixed.try_grow(1).is_err(), "all is taken");

        drop(second);
        first.try_grow(40).unwrap();
        pool.set_limit_bytes(200);
        fixed.try_grow(100).unwrap();
        assert_eq!(pool.reserved(), 200);
    }
}
