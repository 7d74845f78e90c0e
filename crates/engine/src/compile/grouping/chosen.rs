//! The first groups, for `GROUP BY ... LIMIT`.
//!
//! Where any groups will do, those that are met first are it, and all other rows are passed over. The partitions
//! choose together: until there are enough, each offers the keys that it meets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::ArrayRef;
use datafusion::error::Result;
use keirin_operators::Groups;
use parking_lot::Mutex;

use super::keys::Keys;

/// A choice of more groups than this is not worth making.
pub(super) const CHOSEN_MAX: usize = 10_000;

/// `LIMIT` of the groups of a plan.
#[derive(Debug)]
pub(super) struct Choice {
    count: usize,
    run: Mutex<Option<Run>>,
}

/// A run of the plan: which partitions were begun, and what they choose.
#[derive(Debug)]
struct Run {
    begun: Vec<bool>,
    chosen: Arc<Chosen>,
}

/// The groups that partitions choose together.
#[derive(Debug)]
pub(super) struct Chosen {
    count: usize,
    is_done: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Open(Option<Groups>),
    Done(Vec<ArrayRef>),
}

impl Choice {
    /// Of so many groups.
    pub(super) fn new(count: usize) -> Self {
        Self { count, run: Mutex::default() }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// What the partitions of a run choose; a partition that was begun before begins another run.
    pub(super) fn chosen(&self, partition: usize, partition_count: usize) -> Arc<Chosen> {
        let mut run = self.run.lock();
        if let Some(run) = run.as_mut().filter(|run| !run.begun[partition]) {
            run.begun[partition] = true;
            return run.chosen.clone();
        }
        let state = Mutex::new(State::Open(None));
        let chosen = Arc::new(Chosen { count: self.count, is_done: AtomicBool::new(false), state });
        let mut begun = vec![false; partition_count];
        begun[partition] = true;
        *run = Some(Run { begun, chosen: chosen.clone() });
        chosen
    }
}

impl Chosen {
    /// The keys that were chosen, if there are enough.
    pub(super) fn done(&self) -> Option<Vec<ArrayRef>> {
        if !self.is_done.load(Ordering::Acquire) {
            return None;
        }
        match &*self.state.lock() {
            State::Done(keys) => Some(keys.clone()),
            State::Open(_) => None,
        }
    }

    /// Takes the keys of some rows, unless there are enough: then they are given.
    pub(super) fn offer(
        &self,
        keys: &Keys,
        columns: &[ArrayRef],
        row_count: usize,
    ) -> Result<Option<Vec<ArrayRef>>> {
        let mut state = self.state.lock();
        let groups = match &mut *state {
            State::Done(chosen) => return Ok(Some(chosen.clone())),
            State::Open(groups) => groups,
        };
        let open = groups.get_or_insert_with(|| keys.groups());
        keys.number(open, columns, row_count, true, &mut Vec::new())?;
        if open.len() >= self.count
            && let Some(mut groups) = groups.take()
        {
            *state = State::Done(keys.columns(&mut groups)?);
            self.is_done.store(true, Ordering::Release);
        }
        Ok(None)
    }
}
