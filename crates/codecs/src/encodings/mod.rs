//! The encodings of each type, one file each.

use keirin_kernels::BitBuffer;
use keirin_kernels::compare::Comparison;

pub mod integers;

/// Rows that are decoded together: their values stay in the nearest cache. Deltas restart as often.
pub(crate) const BLOCK: usize = 1024;

/// `count` bits of which all are set or none.
fn same_bits(is_set: bool, count: usize) -> BitBuffer {
    BitBuffer::from_words(vec![if is_set { !0 } else { 0 }; count.div_ceil(64)], count)
}

/// Whether `left` compares so with `right`.
fn holds<T: Ord>(comparison: Comparison, left: T, right: T) -> bool {
    match comparison {
        Comparison::Equal => left == right,
        Comparison::NotEqual => left != right,
        Comparison::Less => left < right,
        Comparison::LessEqual => left <= right,
        Comparison::Greater => left > right,
        Comparison::GreaterEqual => left >= right,
    }
}

/// `1204` as `1,204`.
fn grouped(count: usize) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
