//! The meaning of trailing spaces in equality and order.
//!
//! [`Pad`] costs nothing for a block that is known to have no trailing spaces (see [`Facts`](super::Facts)):
//! then equality is byte equality with the trimmed constant.

use std::cmp::Ordering;

/// How trailing spaces are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pad {
    /// As bytes like all others.
    None,
    /// They are cut off before bytes are compared (TiDB): `'a' < 'a\t'`.
    Trim,
    /// The shorter text is padded with spaces (MySQL, standard SQL): `'a\t' < 'a'`.
    Fill,
}

impl Pad {
    /// Compares two texts.
    #[must_use]
    #[inline(always)]
    pub fn compare(self, left: &[u8], right: &[u8]) -> Ordering {
        match self {
            Self::None => left.cmp(right),
            Self::Trim => trimmed(left).cmp(trimmed(right)),
            Self::Fill => compare_filled(left, right),
        }
    }

    #[inline(always)]
    pub(super) fn fill(self) -> u8 {
        if self == Self::Fill { b' ' } else { 0 }
    }
}

/// A text without its trailing spaces.
#[must_use]
#[inline(always)]
pub fn trimmed(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
    &text[..end]
}

fn compare_filled(left: &[u8], right: &[u8]) -> Ordering {
    let common = left.len().min(right.len());
    let behind = |text: &[u8]| text[common..].iter().find(|byte| **byte != b' ').map(|byte| byte.cmp(&b' '));
    left[..common].cmp(&right[..common]).then_with(|| {
        let left_behind = behind(left);
        left_behind.or_else(|| behind(right).map(Ordering::reverse)).unwrap_or(Ordering::Equal)
    })
}
