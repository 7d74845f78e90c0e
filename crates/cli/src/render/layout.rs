//! How wide each column of a table becomes, and which ones are left out.
//!
//! Wide text columns are narrowed first, all to the same width; numbers and dates are never cut, because a number
//! without its last digits is another number. If that is not enough, columns in the middle are left out: the first
//! ones usually identify a row, the last ones are usually computed.

/// Characters that a column needs beside its values: `│ value ` and, once, the closing `│`.
const PADDING: usize = 3;
const CLOSING: usize = 1;
/// The place of the columns left out: `│ … `.
const OMITTED_WIDTH: usize = 1;
/// The least width of a text and of a column's name.
const TEXT_LEAST: usize = 12;
const NAME_LEAST: usize = 8;

/// The widths that one column asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) name: usize,
    pub(crate) values: usize,
    pub(crate) can_cut_values: bool,
}

impl Wish {
    fn natural(self) -> usize {
        self.name.max(self.values).max(1)
    }

    fn least(self) -> usize {
        let values = if self.can_cut_values { self.values.min(TEXT_LEAST) } else { self.values };
        values.max(self.name.min(NAME_LEAST)).max(1)
    }
}

/// One column of the table as drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Column { index: usize, width: usize },
    Omitted,
}

impl Slot {
    pub(crate) fn width(self) -> usize {
        match self {
            Self::Column { width, .. } => width,
            Self::Omitted => OMITTED_WIDTH,
        }
    }
}

/// Lays out columns with these `wishes` in `width_max`.
pub(crate) fn fit(wishes: &[Wish], width_max: Option<usize>) -> Vec<Slot> {
    let Some(width_max) = width_max else {
        return slots(0..wishes.len(), wishes, usize::MAX);
    };
    let taken = |width: usize| width + PADDING;
    let least: usize = wishes.iter().map(|wish| taken(wish.least())).sum();
    if least + CLOSING <= width_max {
        return slots(0..wishes.len(), wishes, width_max);
    }
    // Columns are taken from both ends inwards, the left one first.
    let (mut left, mut right) = (0, wishes.len());
    let mut used = CLOSING + taken(OMITTED_WIDTH);
    while left < right {
        let from_left = left <= wishes.len() - right;
        let next = if from_left { left } else { right - 1 };
        used += taken(wishes[next].least());
        if used > width_max {
            break;
        }
        if from_left { left += 1 } else { right -= 1 }
    }
    if left == 0 {
        // If not even one fits, the first is cut, whatever its type.
        let width = width_max.saturating_sub(CLOSING + PADDING + taken(OMITTED_WIDTH)).max(1);
        let only = Slot::Column { index: 0, width: width.min(wishes[0].natural()) };
        return if wishes.len() > 1 { vec![only, Slot::Omitted] } else { vec![only] };
    }
    let kept: Vec<usize> = (0..left).chain(right..wishes.len()).collect();
    let width_left = width_max.saturating_sub(taken(OMITTED_WIDTH));
    let mut places = slots(kept.into_iter(), wishes, width_left);
    places.insert(left, Slot::Omitted);
    places
}

/// Lays out the columns `indices` in `width_max`, which is enough for their least widths.
fn slots(indices: impl Iterator<Item = usize>, wishes: &[Wish], width_max: usize) -> Vec<Slot> {
    let indices: Vec<usize> = indices.collect();
    let available = width_max.saturating_sub(CLOSING + PADDING * indices.len());
    let capped = |index: usize, cap: usize| wishes[index].natural().min(cap.max(wishes[index].least()));
    let total = |cap: usize| indices.iter().map(|index| capped(*index, cap)).sum::<usize>();
    // Binary search for the greatest cap with which all fit.
    let (mut fits, mut too_wide) = (0, available.saturating_add(1));
    if total(available) <= available {
        fits = available;
    }
    while fits + 1 < too_wide {
        let middle = fits + (too_wide - fits) / 2;
        if total(middle) <= available { fits = middle } else { too_wide = middle }
    }
    let mut spare = available.saturating_sub(total(fits));
    indices
        .into_iter()
        .map(|index| {
            let width = capped(index, fits);
            let more = usize::from(spare > 0 && width < wishes[index].natural());
            spare -= more;
            Slot::Column { index, width: width + more }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: usize, values: usize) -> Wish {
        Wish { name, values, can_cut_values: true }
    }

    fn number(name: usize, values: usize) -> Wish {
        Wish { name, values, can_cut_values: false }
    }

    #[test]
    fn text_gives_way_first_and_the_middle_goes_last() {
        let check = |wishes: &[Wish], width, expected: &str| {
            let places: Vec<String> = fit(wishes, width)
                .into_iter()
                .map(|slot| match slot {
                    Slot::Column { index, width } => format!("{index}:{width}"),
                    Slot::Omitted => "…".to_owned(),
                })
                .collect();
            assert_eq!(places.join(" "), expected);
        };
        check(&[text(4, 10), number(4, 6)], None, "0:10 1:6");
        check(&[text(4, 10), number(4, 6)], Some(80), "0:10 1:6");
        check(&[text(4, 100), number(4, 6)], Some(40), "0:27 1:6");
        check(&[text(4, 100), text(4, 100), text(4, 15)], Some(60), "0:18 1:17 2:15");
        check(&[number(20, 6), number(30, 6)], Some(40), "0:17 1:16");
        check(&[number(4, 20); 5], Some(80), "0:20 1:20 … 4:20");
        check(&[number(4, 20); 3], Some(30), "0:20 …");
        check(&[number(4, 20); 3], Some(10), "0:2 …");
        check(&[number(4, 20)], Some(10), "0:2");
        check(&[text(4, 100)], Some(3), "0:1");
        check(&[], Some(80), "");
    }
}
