//! All races of a program: by kernel, class of data, and stream.
//!
//! A stream is a source of similar blocks, such as a column of a table; a class groups similar streams. A new race
//! starts from the ratios between arms that were saved for its stream, else from those of the most experienced race
//! of its class, else from nothing.
//!
//! Streams come and go with tables, and users choose their names, so the least recently used races are dropped when
//! there are too many.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::checks::{Checks, Fault};
use crate::race::Race;
use crate::text::{self, LoadError, Record};

/// The most races that are kept.
const RACE_COUNT_MAX: usize = 65_536;
/// The most races whose knowledge is saved, the last ones used.
const SAVED_COUNT_MAX: usize = 8_192;
/// One race in this many is dropped when there are too many.
const FORGOTTEN_SHARE: usize = 8;

/// Names a race.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) kernel: String,
    pub(crate) class: String,
    pub(crate) stream: String,
}

impl Key {
    fn class(&self) -> (String, String) {
        (self.kernel.clone(), self.class.clone())
    }
}

/// The races of a program. Finding one takes a lock: do it once a column, not once a block. Clones share the races.
#[derive(Clone, Default)]
pub struct Races {
    state: Arc<Mutex<State>>,
    seed: u64,
}

#[derive(Default)]
struct State {
    races: BTreeMap<Key, Kept>,
    /// For each kernel and class, the race with the most calls when it was last used.
    veterans: BTreeMap<(String, String), Arc<Race>>,
    /// Counts look-ups of races.
    now: u64,
    /// Loaded records of streams that have no race yet.
    saved: BTreeMap<Key, Vec<Record>>,
    /// How kernels choose, if not freely.
    choices: BTreeMap<String, Choice>,
    /// By kernel.
    checks: BTreeMap<String, Arc<Checks>>,
    /// The first that were found.
    faults: Vec<Fault>,
}

/// How the races of a kernel choose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// By what they learn.
    #[default]
    Race,
    /// The arm that is believed to be the fastest runs, and nothing is learned.
    Frozen,
    /// The arm of this name runs. Races that do not have it, as arms differ between CPUs and streams, choose freely.
    Forced(String),
}

impl Choice {
    fn apply(&self, race: &Race) {
        race.release();
        match self {
            Self::Race => {}
            Self::Frozen => race.freeze(),
            Self::Forced(arm) => _ = race.force(arm),
        }
    }
}

#[derive(Debug)]
struct Kept {
    race: Arc<Race>,
    /// The look-up that used it last.
    used: u64,
}

impl fmt::Debug for Races {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Races").field("count", &self.state().races.len()).finish_non_exhaustive()
    }
}

impl Races {
    /// Races whose choices depend on `seed` and the measured times alone.
    #[must_use]
    pub fn with_seed(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// The race of `kernel` over `stream`, which is of `class`; a new one if there is none with these arms.
    ///
    /// # Panics
    /// As [`Race::new`].
    pub fn race(&self, kernel: &str, class: &str, stream: &str, arms: &[&'static str]) -> Arc<Race> {
        let key = Key { kernel: kernel.to_owned(), class: class.to_owned(), stream: stream.to_owned() };
        let mut state = self.state();
        if let Some(race) = state.used(&key).filter(|race| race.arms() == arms) {
            return race;
        }
        let race = Arc::new(Race::new(arms, self.seed ^ hash(&key)));
        state.start(&key, &race);
        let faults = state.faults.iter().filter(|fault| fault.kernel == kernel);
        let are_left: Vec<bool> = faults.filter_map(|fault| race.quarantine(fault.arm).ok()).collect();
        if are_left.contains(&false) {
            state.checks.entry(kernel.to_owned()).or_default().distrust();
        }
        if let Some(choice) = state.choices.get(kernel) {
            choice.apply(&race);
        }
        if state.races.len() >= RACE_COUNT_MAX {
            state.forget_some();
        }
        let kept = Kept { race: race.clone(), used: 0 };
        state.races.insert(key.clone(), kept);
        state.used(&key);
        race
    }

    /// The race that [`Races::race`] made for this stream, whatever its arms.
    #[must_use]
    pub fn find(&self, kernel: &str, class: &str, stream: &str) -> Option<Arc<Race>> {
        let key = Key { kernel: kernel.to_owned(), class: class.to_owned(), stream: stream.to_owned() };
        self.state().used(&key)
    }

    /// Every race with kernel, class and stream, in this order.
    #[must_use]
    pub fn all(&self) -> Vec<(String, String, String, Arc<Race>)> {
        let named = |(key, kept): (&Key, &Kept)| {
            (key.kernel.clone(), key.class.clone(), key.stream.clone(), kept.race.clone())
        };
        self.state().races.iter().map(named).collect()
    }

    /// Whether any arm has run.
    #[must_use]
    pub fn have_run(&self) -> bool {
        self.state().races.values().any(|kept| kept.race.calls() > 0)
    }

    /// Sets how all races of `kernel` choose, now and later.
    pub fn set_choice(&self, kernel: &str, choice: Choice) {
        let mut state = self.state();
        state.of_kernel(kernel).for_each(|race| choice.apply(race));
        state.choices.insert(kernel.to_owned(), choice);
    }

    /// How the races of `kernel` choose.
    #[must_use]
    pub fn choice(&self, kernel: &str) -> Choice {
        self.state().choices.get(kernel).cloned().unwrap_or_default()
    }

    /// The checks of a kernel's work.
    #[must_use]
    pub fn checks(&self, kernel: &str) -> Arc<Checks> {
        self.state().checks.entry(kernel.to_owned()).or_default().clone()
    }

    /// Takes an arm that was wrong out of all races of its kernel, now and later.
    pub fn report(&self, fault: Fault) {
        let mut state = self.state();
        let is_known = |known: &Fault| (&known.kernel, known.arm) == (&fault.kernel, fault.arm);
        if state.faults.iter().any(is_known) {
            return;
        }
        let are_left: Vec<bool> =
            state.of_kernel(&fault.kernel).filter_map(|race| race.quarantine(fault.arm).ok()).collect();
        if are_left.contains(&false) {
            state.checks.entry(fault.kernel.clone()).or_default().distrust();
        }
        state.faults.push(fault);
    }

    /// The first fault of each arm.
    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        self.state().faults.clone()
    }

    /// The knowledge gained on the CPU called `cpu`, as text for [`Self::load`].
    #[must_use]
    pub fn save(&self, cpu: &str) -> String {
        let state = self.state();
        let mut used: Vec<_> = state.races.iter().collect();
        used.sort_by_key(|(_, kept)| Reverse(kept.used));
        used.truncate(SAVED_COUNT_MAX);
        let unused_max = SAVED_COUNT_MAX - used.len();
        let learned = used.into_iter().flat_map(|(key, Kept { race, .. })| {
            let record = |index| {
                let (mean, noise) = race.known(index)?;
                Some(Record { arm: race.arms()[index].to_owned(), mean, noise })
            };
            (0..race.arms().len()).filter_map(record).map(move |record| (key, record))
        });
        let unused = state.saved.iter().filter(|(key, _)| !state.races.contains_key(*key)).take(unused_max);
        let unused =
            unused.flat_map(|(key, records)| records.iter().cloned().map(move |record| (key, record)));
        text::write(cpu, learned.chain(unused))
    }

    /// Loads the text of [`Self::save`]. Existing races keep what they know; a text of another CPU changes nothing.
    ///
    /// # Errors
    /// When the text is damaged: then nothing is loaded.
    pub fn load(&self, text: &str, cpu: &str) -> Result<(), LoadError> {
        if let Some(records) = text::read(text, cpu, RACE_COUNT_MAX)? {
            self.state().saved.extend(records);
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No update leaves the maps half done, so a thread that panicked has not damaged them.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn of_kernel<'a>(&'a self, kernel: &'a str) -> impl Iterator<Item = &'a Arc<Race>> {
        self.races.iter().filter(move |(key, _)| key.kernel == kernel).map(|(_, kept)| &kept.race)
    }

    /// The race of a key, if there is one; marks it as used now.
    fn used(&mut self, key: &Key) -> Option<Arc<Race>> {
        self.now += 1;
        let kept = self.races.get_mut(key)?;
        kept.used = self.now;
        let race = kept.race.clone();
        let veteran = self.veterans.entry(key.class()).or_insert_with(|| race.clone());
        if race.calls() > veteran.calls() {
            *veteran = race.clone();
        }
        Some(race)
    }

    /// Drops the least recently used races; holders of one keep it.
    fn forget_some(&mut self) {
        let mut times: Vec<u64> = self.races.values().map(|kept| kept.used).collect();
        let (_, oldest_kept, _) = times.select_nth_unstable(self.races.len() / FORGOTTEN_SHARE);
        let oldest_kept = *oldest_kept;
        self.races.retain(|_, kept| kept.used >= oldest_kept);
    }

    /// Starts a new race from what is known of its stream, or else of its class.
    fn start(&self, key: &Key, race: &Race) {
        if let Some(records) = self.saved.get(key) {
            for record in records {
                if let Some(index) = race.arms().iter().position(|arm| *arm == record.arm) {
                    race.begin_from(index, (record.mean, record.noise));
                }
            }
            return;
        }
        let Some(veteran) = self.veterans.get(&key.class()) else { return };
        for (index, name) in race.arms().iter().enumerate() {
            let known = veteran.arms().iter().position(|arm| arm == name).and_then(|arm| veteran.known(arm));
            if let Some(known) = known {
                race.begin_from(index, known);
            }
        }
    }
}

/// A seed from a name (FNV-1a), so that races of one program choose independently.
fn hash(key: &Key) -> u64 {
    let bytes = [&key.kernel, &key.class, &key.stream].into_iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3))
}
