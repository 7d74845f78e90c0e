//! Order as if texts were followed by infinitely many spaces, as keys that bytes compare.
//!
//! ```text
//! key   := ( unit | run flag length )* SPACE END
//! run   := SPACE, once for all spaces in a row
//! flag  := 1: the unit behind the run is below the space | 3: above
//! END   := 2: spaces for ever
//! length of a run: ascending scalars behind flag 1, descending ones behind flag 3
//! ```
//! Where two texts have spaces, that one is less whose run leads down; if both lead down, the one that does so first.

use std::cmp::Ordering;

const BELOW: u8 = 1;
const END: u8 = 2;
const ABOVE: u8 = 3;
/// Longer runs are written in steps of this length. The scalars below are valid.
const STEP: u32 = 0xCFFF;

/// Rewrites the units from `begin` on; the byte `space` stands for spaces only.
pub(crate) fn rewrite(key: &mut Vec<u8>, begin: usize, space: u8) {
    let end = key.len();
    let mut at = begin;
    loop {
        let run = key[at..end].iter().position(|byte| *byte == space).map_or(end, |place| at + place);
        key.extend_from_within(at..run);
        let length = key[run..end].iter().position(|byte| *byte != space);
        key.push(space);
        let Some(length) = length else {
            key.push(END);
            break;
        };
        at = run + length;
        let is_below = key[at] < space;
        key.push(if is_below { BELOW } else { ABOVE });
        append_length(key, length, is_below);
    }
    key.drain(begin..end);
}

fn append_length(key: &mut Vec<u8>, length: usize, is_below: bool) {
    let mut push = |steps: u32| {
        let number = if is_below { steps } else { STEP - steps };
        crate::codes::push(char::from_u32(number).expect("below the surrogates"), key);
    };
    let step = STEP as usize;
    (0..length / step).for_each(|_| push(STEP));
    push(u32::try_from(length % step).expect("below a step"));
}

/// Compares sequences of units as if `space` followed for ever.
pub(crate) fn compare(
    left: impl Iterator<Item = u8>,
    right: impl Iterator<Item = u8>,
    space: u8,
) -> Ordering {
    let (mut left, mut right) = (left, right);
    loop {
        let order = match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (left, right) => left.unwrap_or(space).cmp(&right.unwrap_or(space)),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}
