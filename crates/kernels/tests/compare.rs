//! Comparisons at every level, of every type and length, against the operators of Rust row by row.

use std::cmp::Ordering;
use std::fmt::Debug;

use keirin_kernels::compare::{Comparable, Comparison, compare_constant};
use keirin_kernels::{BitBuffer, Level};
use keirin_testkit::columns::{Random, lengths};

mod guard;

fn holds(comparison: Comparison, order: Option<Ordering>) -> bool {
    match comparison {
        Comparison::Equal => order == Some(Ordering::Equal),
        Comparison::NotEqual => order != Some(Ordering::Equal),
        Comparison::Less => order == Some(Ordering::Less),
        Comparison::LessEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Comparison::Greater => order == Some(Ordering::Greater),
        Comparison::GreaterEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    }
}

/// Compares values with a constant, all of them drawn from `domain`, at all lengths.
fn check<T: Comparable + Debug>(domain: &[T], order: impl Fn(T, T) -> Option<Ordering>) {
    let mut random = Random::new(7);
    let longest = lengths().into_iter().max().unwrap_or_default() + 9;
    let mut draw = || domain[usize::try_from(random.below(domain.len() as u64)).expect("an index")];
    let left: Vec<T> = (0..longest).map(|_| draw()).collect();
    let one = draw();
    for (index, len) in lengths().into_iter().enumerate() {
        let offset = index % 9;
        let left = guard::AtPageEnd::new(&left[offset..offset + len]);
        let rows =
            |test: &dyn Fn(T) -> bool| -> BitBuffer { left.iter().map(|value| test(*value)).collect() };
        for level in Level::available().iter().copied() {
            for comparison in Comparison::ALL {
                let context = format!("{comparison:?} {one:?} at {level}, {len} rows");
                let expected = rows(&|value| holds(comparison, order(value, one)));
                assert_eq!(compare_constant(level, comparison, &left, one), expected, "{context}");
            }
        }
    }
}

/// A test a type: they run beside each other.
macro_rules! integers {
    ($($name:ident $T:ident)*) => {$(
        #[test]
        fn $name() {
            check(&[$T::MIN, $T::MIN + 1, $T::MAX / 2, $T::MAX / 2 + 1, 0, 1, 2, 3, $T::MAX], |a, b| Some(a.cmp(&b)));
        }
    )*};
}

integers! {
    u8_compares u8 u16_compares u16 u32_compares u32 u64_compares u64 u128_compares u128
    i8_compares i8 i16_compares i16 i32_compares i32 i64_compares i64 i128_compares i128
}

#[test]
fn the_halves_of_wide_integers_count_in_order() {
    let halves = [0, 1, u64::MAX / 2, u64::MAX / 2 + 1, u64::MAX];
    let domain: Vec<i128> = halves
        .iter()
        .flat_map(|high| halves.map(|low| (u128::from(*high) << 64 | u128::from(low)).cast_signed()))
        .collect();
    check(&domain, |a, b| Some(a.cmp(&b)));
}

macro_rules! floats {
    ($total:ident $T:ident) => {
        #[test]
        fn $total() {
            check(&domain::$T(), |a, b| Some(a.total_cmp(&b)));
        }
    };
}

mod domain {
    macro_rules! domain {
        ($($T:ident)*) => {$(
            pub(crate) fn $T() -> Vec<$T> {
                let some = [0.0, 1.0, 1.5, $T::MIN_POSITIVE, $T::MAX, $T::INFINITY, $T::NAN];
                some.iter().flat_map(|value| [*value, -*value]).collect()
            }
        )*};
    }
    domain!(f32 f64);
}

floats!(f32_has_a_total_order f32);
floats!(f64_has_a_total_order f64);
