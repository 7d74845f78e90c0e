//! Views that repeat: rows of a dictionary have one view, so that most rows need no look at their text.

use crate::group_table::NO_GROUP;
use crate::{BitBuffer, Bits, Level};

/// Views that are remembered, at places that their bits choose: 20 KiB, in the first-level cache.
const PLACES_BITS: u32 = 10;
/// By so many rows it is judged whether views repeat.
const TRIED_ROWS: usize = 1024;

/// Rows of which each other row has the view of one: those with different views, or a few more, since one that was
/// forgotten comes again.
#[derive(Debug)]
pub struct Repeated {
    /// These rows, ascending.
    pub rows: Vec<u32>,
    /// For each row, the place in `rows` of the one with its view.
    pub places: Vec<u32>,
    /// The place of all rows without a value.
    null: Option<u32>,
}

impl Repeated {
    /// `None` if so few views repeat that looking for them takes longer than it saves.
    ///
    /// # Panics
    /// When there are other views than bits, or 2^32 or more.
    #[must_use]
    pub fn new(level: Level, views: &[u128], validity: Option<Bits<'_>>) -> Option<Self> {
        assert!(validity.is_none_or(|validity| validity.len() == views.len()), "a bit a view");
        assert!(u32::try_from(views.len()).is_ok(), "row numbers have 32 bits");
        let tried = views.get(..TRIED_ROWS)?;
        let first = repeated(level, tried, validity.map(|validity| validity.slice(0, TRIED_ROWS)));
        if first.rows.len() > TRIED_ROWS / 4 * 3 {
            return None;
        }
        Some(repeated(level, views, validity))
    }

    /// Which of `rows` have a value; none if all have.
    pub(super) fn validity(&self) -> Option<BitBuffer> {
        let null = self.null?;
        Some((0..self.rows.len()).map(|place| place != null as usize).collect())
    }
}

kernel! {
    fn repeated(views: &[u128], validity: Option<Bits<'_>>) -> Repeated = repeated_plain;
}

#[inline(always)]
fn repeated_plain(views: &[u128], validity: Option<Bits<'_>>) -> Repeated {
    match validity {
        None => repeated_if(views, |_| true),
        Some(validity) => repeated_if(views, |row| validity.get(row)),
    }
}

#[inline(always)]
fn repeated_if(views: &[u128], is_valid: impl Fn(usize) -> bool) -> Repeated {
    let mut known = [0_u128; 1 << PLACES_BITS];
    let mut known_places = [NO_GROUP; 1 << PLACES_BITS];
    let mut found = Repeated { rows: Vec::new(), places: Vec::new(), null: None };
    let Repeated { rows, places, null } = &mut found;
    let mut next = |row: usize| {
        rows.push(row as u32);
        (rows.len() - 1) as u32
    };
    places.extend(views.iter().enumerate().map(|(row, view)| {
        if !is_valid(row) {
            return *null.get_or_insert_with(|| next(row));
        }
        // Multiplication mixes well enough: where two meet, both come again.
        let mixed =
            (*view as u64 ^ ((view >> 64) as u64).rotate_left(23)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let home = (mixed >> (u64::BITS - PLACES_BITS)) as usize;
        // Nothing is written for a view that is known: the next row would wait for it.
        let mut place = known_places[home];
        if known[home] != *view || place == NO_GROUP {
            place = next(row);
            known[home] = *view;
            known_places[home] = place;
        }
        place
    }));
    found
}
