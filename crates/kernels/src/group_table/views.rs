//! Views that repeat: rows of a dictionary have one view, so that most rows need no look at their text.

use crate::group_table::NO_GROUP;
use crate::{BitBuffer, Bits, Level};

/// Views that are remembered, at places that their bits choose: 20 KiB, in the first-level cache.
const PLACES_BITS: u32 = 10;
/// By so many rows it is judged whether views repeat.
const TRIED_ROWS: usize = 1024;

/// The different views of rows, or a few more: one that was forgotten comes again.
pub(super) struct Repeated {
    pub(super) views: Vec<u128>,
    /// The place in `views` of the view of each row.
    pub(super) places: Vec<u32>,
    /// The one place of all rows without a value.
    null: Option<u32>,
}

impl Repeated {
    /// `None` if so few views repeat that looking for them takes longer than it saves.
    pub(super) fn new(level: Level, views: &[u128], validity: Option<Bits<'_>>) -> Option<Self> {
        let tried = views.get(..TRIED_ROWS)?;
        let first = repeated(level, tried, validity.map(|validity| validity.slice(0, TRIED_ROWS)));
        if first.views.len() > TRIED_ROWS / 4 * 3 {
            return None;
        }
        Some(repeated(level, views, validity))
    }

    /// Which of the views have a value; all if there are no rows without one.
    pub(super) fn validity(&self) -> Option<BitBuffer> {
        let null = self.null?;
        Some((0..self.views.len()).map(|place| place != null as usize).collect())
    }
}

kernel! {
    fn repeated(views: &[u128], validity: Option<Bits<'_>>) -> Repeated = repeated_plain;
}

#[inline(always)]
fn repeated_plain(views: &[u128], validity: Option<Bits<'_>>) -> Repeated {
    let mut known = [0_u128; 1 << PLACES_BITS];
    let mut known_places = [NO_GROUP; 1 << PLACES_BITS];
    let mut found = Repeated { views: Vec::new(), places: Vec::with_capacity(views.len()), null: None };
    for (row, view) in views.iter().enumerate() {
        let mut next = || {
            found.views.push(*view);
            (found.views.len() - 1) as u32
        };
        if validity.is_some_and(|validity| !validity.get(row)) {
            let place = found.null.unwrap_or_else(&mut next);
            found.null = Some(place);
            found.places.push(place);
            continue;
        }
        // An odd number with as many ones as zeros mixes well enough: a collision costs a lookup.
        let mixed =
            (*view as u64 ^ ((view >> 64) as u64).rotate_left(23)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let home = (mixed >> (u64::BITS - PLACES_BITS)) as usize;
        let is_known = known[home] == *view && known_places[home] != NO_GROUP;
        let place = if is_known { known_places[home] } else { next() };
        known[home] = *view;
        known_places[home] = place;
        found.places.push(place);
    }
    found
}
