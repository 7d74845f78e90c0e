//! What was decompressed, by whom and how fast, counted for whoever asks.
//!
//! A thread that [watches](Tally::watch) has all blocks that it decodes counted; others pay for a look at a
//! thread-local variable in each turn.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

thread_local! {
    static WATCHED: RefCell<Option<Arc<Tally>>> = const { RefCell::new(None) };
}

/// What threads decompressed while they watched.
#[derive(Debug, Default)]
pub struct Tally(Mutex<BTreeMap<(&'static str, &'static str), Decoded>>);

/// What a loop did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Bytes of output.
    pub bytes: u64,
    /// The time that they took.
    pub time: Duration,
}

impl Tally {
    /// Has the blocks counted that this thread decodes from now on, by `tally` or by none; returns who counted before.
    pub fn watch(tally: Option<Arc<Self>>) -> Option<Arc<Self>> {
        WATCHED.with_borrow_mut(|watched| std::mem::replace(watched, tally))
    }

    /// The names of codecs and loops, and what each did, by name.
    #[must_use]
    pub fn decoded(&self) -> Vec<(&'static str, &'static str, Decoded)> {
        let decoded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        decoded.iter().map(|((codec, variant), decoded)| (*codec, *variant, *decoded)).collect()
    }
}

/// Whether this thread watches.
pub(super) fn is_watched() -> bool {
    WATCHED.with_borrow(Option::is_some)
}

/// Counts what `variant` of a codec decoded.
pub(super) fn count(codec: &'static str, variant: &'static str, bytes: usize, time: Duration) {
    WATCHED.with_borrow(|watched| {
        let Some(tally) = watched else { return };
        let mut decoded = tally.0.lock().unwrap_or_else(PoisonError::into_inner);
        let decoded = decoded.entry((codec, variant)).or_default();
        decoded.bytes += bytes as u64;
        decoded.time += time;
    });
}
