//! The smallest and the largest value of each key.

use super::{SmallKey, for_each_dense};
use crate::aggregate::Ordered;
use crate::compare::Comparable;
use crate::{Bits, Level, Selection};

/// The smallest and the largest value by key, in the order of `aggregate::min`, and the count of values.
#[derive(Clone, Debug)]
pub struct Extrema<T: Ordered> {
    /// The smallest and the largest value's ordered key, and the count, for each group key.
    states: Vec<(T::Key, T::Key, u64)>,
}

impl<T: Ordered> Extrema<T> {
    /// No rows, for keys of type `K`.
    #[must_use]
    pub fn new<K: SmallKey>() -> Self {
        Self { states: vec![(T::HIGHEST.key(), T::LOWEST.key(), 0); K::COUNT] }
    }

    /// Adds the selected rows whose value is valid.
    ///
    /// # Panics
    /// When there are not as many keys as values or bits, a row number is out of range, or keys are of
    /// another type than in [`Extrema::new`].
    pub fn add<K: SmallKey>(
        &mut self,
        level: Level,
        keys: &[K],
        values: &[T],
        validity: Option<Bits<'_>>,
        selection: Selection<'_>,
    ) where
        T: Comparable,
    {
        assert_eq!(self.states.len(), K::COUNT, "keys are of the type that the extrema are for");
        for_each_dense(level, keys, values, validity, selection, |keys, values| {
            extrema(level, keys, values, &mut self.states);
        });
    }

    /// Adds the extrema of another instance for the same types.
    ///
    /// # Panics
    /// When the other is for another type of group keys.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!(self.states.len(), other.states.len(), "extrema for keys of the same type");
        for (state, other) in self.states.iter_mut().zip(&other.states) {
            *state = (state.0.min(other.0), state.1.max(other.1), state.2 + other.2);
        }
    }

    /// Adds a key's smallest and largest of `count` values, which may come from elsewhere.
    ///
    /// # Panics
    /// When there is no such key.
    pub fn add_one(&mut self, key: usize, least: T, greatest: T, count: u64) {
        let state = &mut self.states[key];
        *state = (state.0.min(least.key()), state.1.max(greatest.key()), state.2 + count);
    }

    /// Calls `give` for each key with rows, in order, with its smallest and its largest value and their
    /// count.
    pub fn for_each(&self, mut give: impl FnMut(usize, T, T, u64)) {
        for (key, (least, greatest, count)) in self.states.iter().enumerate().filter(|(_, state)| state.2 > 0)
        {
            give(key, T::from_key(*least), T::from_key(*greatest), *count);
        }
    }
}

kernel! {
    fn extrema[K: SmallKey, T: Ordered][K, T](
        keys: &[K], values: &[T], states: &mut [(T::Key, T::Key, u64)]
    ) = extrema_plain;
}

#[inline(always)]
fn extrema_plain<K: SmallKey, T: Ordered>(keys: &[K], values: &[T], states: &mut [(T::Key, T::Key, u64)]) {
    for (key, value) in keys.iter().zip(values) {
        let (state, value) = (&mut states[key.index()], value.key());
        // Stores only on change: a new extreme is rare, so rows of the same key need not wait for stores.
        if value < state.0 {
            state.0 = value;
        }
        if value > state.1 {
            state.1 = value;
        }
        state.2 += 1;
    }
}
