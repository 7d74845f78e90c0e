//! The work list of a scan, from which all partitions of a run take what they read next.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use parking_lot::Mutex;

/// What the partitions of a run of a scan share; a partition that is asked for again begins another run.
pub(crate) struct Runs<T>(Mutex<Option<Run<T>>>);

struct Run<T> {
    /// By partition.
    begun: Vec<bool>,
    shared: Arc<T>,
}

impl<T> Default for Runs<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> Debug for Runs<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runs").finish_non_exhaustive()
    }
}

impl<T> Runs<T> {
    /// What `partition`, one of so many, shares with the others of its run; made by the first of them.
    ///
    /// # Errors
    /// Those of `make`.
    pub(crate) fn begin<E>(
        &self,
        partition: usize,
        partitions: usize,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let mut run = self.0.lock();
        if let Some(run) = run.as_mut().filter(|run| !run.begun[partition]) {
            run.begun[partition] = true;
            return Ok(run.shared.clone());
        }
        let shared = Arc::new(make()?);
        let begun = (0..partitions).map(|other| other == partition).collect();
        *run = Some(Run { begun, shared: shared.clone() });
        Ok(shared)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn partitions_share_what_the_first_made_until_one_comes_again() {
        let runs = Runs::default();
        let mut made = 0..;
        let mut begin = |partition| *runs.begin(partition, 2, || made.next().ok_or(())).unwrap();
        assert_eq!([0, 1, 1, 0, 0].map(&mut begin), [0, 0, 1, 1, 2]);
        let failing: Result<_, &str> = Runs::<Infallible>::default().begin(0, 1, || Err("no"));
        assert_eq!(failing.err(), Some("no"));
    }
}
