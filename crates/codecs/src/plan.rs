//! Remembers the best encodings for the previous blocks of a column, for the next ones.
//!
//! Choosing takes ten times as long as encoding: each encoding is tried, and timed. The blocks of a column
//! are mostly alike, so a plan remembers the choice at each place in the tree of encodings, and parameters
//! that were found, such as the exponents of decimal numbers. It holds as long as blocks get about as small
//! as the one for which it was made, and is renewed now and then, as another choice may have become better.
//! Whatever the plan says, an encoding is only used for values that it can hold.

use std::sync::Arc;

use crate::blocks::Codec;

/// The most blocks for which a plan holds.
const BLOCKS_MAX: u32 = 64;
/// Blocks for which a plan that saves little holds at first, as its sample may have been unlucky; doubled
/// each time that nothing better is found.
const USELESS_BLOCKS: u32 = 8;
/// A plan with more stored bytes than this for each byte of the values saves little; each row counts as
/// another byte.
const USELESS_RATIO: f64 = 0.65;
/// Shorter columns say little about others, and choosing for them is quick.
const ROWS_MIN: usize = 2048;
/// A block may be larger than expected by this factor.
const TOLERANCE: f64 = 1.1;
/// A block may have one byte more for each 16 rows, whatever its expected size: choosing again takes longer
/// than reading these bytes a thousand times.
const ROWS_PER_BYTE: usize = 16;
/// If choosing again gave the same result, sizes of blocks just vary: the tolerance grows by this factor, up
/// to a limit.
const TOLERANCE_GROWTH: f64 = 1.3;
const TOLERANCE_MAX: f64 = 4.0;

/// A parameter that an encoding found for the values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Note {
    Nothing,
    /// A width, or the exponents of decimal numbers.
    Numbers([u8; 2]),
    /// The symbols of text: their bytes and lengths.
    Symbols(Arc<[(u64, u8)]>),
}

/// The choice at a place in the tree of encodings.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Place {
    /// The position in the tree: an octal digit for the child at each level.
    pub(crate) path: u32,
    pub(crate) encoding: u8,
    pub(crate) note: Note,
}

/// The choices for a block.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Chosen {
    pub(crate) places: Vec<Place>,
    pub(crate) codec: Codec,
}

/// The best choices for the previous blocks of a column.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    chosen: Option<Chosen>,
    /// Stored bytes for each byte of the values.
    ratio: f64,
    tolerance: f64,
    /// Blocks that used the plan, and the most that may.
    age: u32,
    age_max: u32,
}

impl Plan {
    /// The choices to repeat for a column of this many rows.
    pub(crate) fn known(&mut self, row_count: usize) -> Option<Chosen> {
        if row_count < ROWS_MIN || self.age >= self.age_max {
            return None;
        }
        self.age += 1;
        self.chosen.clone()
    }

    /// Whether a block that used the plan is as small as expected.
    pub(crate) fn holds(&self, row_count: usize, stored_bytes: usize, value_bytes: usize) -> bool {
        let stored_bytes = stored_bytes.saturating_sub(row_count / ROWS_PER_BYTE);
        ratio(stored_bytes, value_bytes) <= self.ratio * self.tolerance
    }

    /// The choices without their symbols, if there are any, so that these are found anew: the text of a
    /// column changes sooner than the best encoding.
    pub(crate) fn without_symbols(&self) -> Option<Chosen> {
        let is_symbols = |place: &Place| matches!(place.note, Note::Symbols(_));
        let mut chosen = self.chosen.clone().filter(|chosen| chosen.places.iter().any(is_symbols))?;
        let places = chosen.places.iter_mut().filter(|place| is_symbols(place));
        places.for_each(|place| place.note = Note::Nothing);
        Some(chosen)
    }

    /// Replaces the parameters after a block that used the choices.
    pub(crate) fn learn(&mut self, chosen: Chosen) {
        self.chosen = Some(chosen);
    }

    /// Remembers the choices for a block.
    pub(crate) fn set(&mut self, chosen: Chosen, row_count: usize, stored_bytes: usize, value_bytes: usize) {
        if row_count < ROWS_MIN {
            return;
        }
        let encodings = |chosen: &Chosen| {
            let encodings = chosen.places.iter().map(|place| (place.path, place.encoding));
            (encodings.collect::<Vec<_>>(), chosen.codec)
        };
        let is_same = self.chosen.as_ref().is_some_and(|before| encodings(before) == encodings(&chosen));
        let is_due = self.age >= self.age_max;
        self.tolerance = match is_same {
            true if is_due => self.tolerance,
            true => (self.tolerance * TOLERANCE_GROWTH).min(TOLERANCE_MAX),
            false => TOLERANCE,
        };
        self.ratio = ratio(stored_bytes, value_bytes);
        self.age_max = match self.ratio > USELESS_RATIO {
            true if is_same => (self.age_max * 2).min(BLOCKS_MAX),
            true => USELESS_BLOCKS,
            false => BLOCKS_MAX,
        };
        self.chosen = Some(chosen);
        self.age = 0;
    }
}

fn ratio(stored_bytes: usize, value_bytes: usize) -> f64 {
    /// The size of headers, which small blocks have, too.
    const BYTES: usize = 256;
    (stored_bytes + BYTES) as f64 / (value_bytes + BYTES) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(encoding: u8) -> Chosen {
        let places = vec![Place { path: 1, encoding, note: Note::Nothing }];
        Chosen { places, codec: Codec::None }
    }

    #[test]
    fn a_plan_holds_for_blocks_like_the_one_it_was_made_for() {
        let mut plan = Plan::default();
        assert_eq!(plan.known(5000), None);
        plan.set(chosen(2), 5000, 10_000, 100_000);
        assert_eq!(plan.known(5000), Some(chosen(2)));
        assert!(plan.holds(5000, 10_500, 100_000) && !plan.holds(5000, 12_000, 100_000));
        assert!(plan.holds(50_000, 12_000, 100_000), "more rows are not worth the bytes");
        // The same choice again shows that the sizes in this column vary.
        plan.set(chosen(2), 5000, 10_000, 100_000);
        assert!(plan.holds(5000, 12_000, 100_000) && !plan.holds(5000, 15_000, 100_000));
        plan.set(chosen(3), 5000, 10_000, 100_000);
        assert!(!plan.holds(5000, 12_000, 100_000));
    }

    #[test]
    fn a_plan_is_made_anew_now_and_then() {
        let mut plan = Plan::default();
        plan.set(chosen(2), 5000, 10_000, 100_000);
        assert_eq!((0..1000).take_while(|_| plan.known(5000).is_some()).count(), BLOCKS_MAX as usize);
        plan.set(chosen(2), 5000, 10_000, 100_000);
        assert!(
            plan.known(5000).is_some() && !plan.holds(5000, 12_000, 100_000),
            "age is no reason to tolerate more"
        );
    }

    #[test]
    fn a_plan_that_saves_nothing_is_soon_made_anew() {
        let mut plan = Plan::default();
        for expected in [USELESS_BLOCKS, USELESS_BLOCKS * 2, USELESS_BLOCKS * 4] {
            plan.set(chosen(0), 5000, 100_000, 100_000);
            assert_eq!((0..1000).take_while(|_| plan.known(5000).is_some()).count(), expected as usize);
        }
        plan.set(chosen(2), 5000, 10_000, 100_000);
        assert_eq!((0..1000).take_while(|_| plan.known(5000).is_some()).count(), BLOCKS_MAX as usize);
    }

    #[test]
    fn few_rows_neither_make_nor_follow_a_plan() {
        let mut plan = Plan::default();
        plan.set(chosen(2), 100, 1000, 1000);
        assert_eq!(plan.known(5000), None);
        plan.set(chosen(2), 5000, 1000, 1000);
        assert_eq!(plan.known(100), None);
    }
}
