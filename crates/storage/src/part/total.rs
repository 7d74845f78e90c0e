//! Totals of columns.

use keirin_codecs::frame::Kind;
use keirin_kernels::Level;
use keirin_kernels::aggregate::{DecimalSum, ExactSum, sum_two};
use keirin_kernels::aligned::{Number, numbers};

/// The exact sum of all that was added.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Total {
    /// The sum of integers and decimals.
    pub integers: i128,
    /// The sum of floats.
    pub floats: ExactSum,
}

impl Total {
    /// Adds two slices of raw numbers of equal length. Returns false and leaves the total unchanged if it would
    /// overflow 128 bits or the numbers are not aligned.
    pub(super) fn add_two(&mut self, level: Level, kind: Kind, bytes: [&[u8]; 2]) -> bool {
        fn columns<T: Number>(bytes: [&[u8]; 2]) -> Option<[&[T]; 2]> {
            Some([numbers(bytes[0])?, numbers(bytes[1])?])
        }
        macro_rules! integers {
            (i128) => {
                columns(bytes).and_then(|columns| {
                    let mut sum = DecimalSum::default();
                    sum.add_two(level, columns);
                    self.integers.checked_add(sum.value()?)
                })
            };
            ($number:ident) => {
                columns::<$number>(bytes)
                    .and_then(|columns| self.integers.checked_add(sum_two(level, columns)))
            };
        }
        macro_rules! floats {
            ($number:ty) => {
                columns::<$number>(bytes).map(|columns| {
                    self.floats.add_two(level, columns);
                    self.integers
                })
            };
        }
        let sum = by_number!(kind, integers, floats, None);
        self.integers = sum.unwrap_or(self.integers);
        sum.is_some()
    }
}
