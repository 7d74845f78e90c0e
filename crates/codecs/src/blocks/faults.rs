//! Loops made wrong on purpose, for tests.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use keirin_kernels::lz::Format;

use super::decoder::bit;

static PLANTED: Mutex<BTreeSet<(String, String)>> = Mutex::new(BTreeSet::new());

/// From now on the loop `arm` decodes a wrong byte in each block of streams whose names begin with `stream`.
pub fn plant(stream: &str, arm: &str) {
    PLANTED.lock().unwrap_or_else(PoisonError::into_inner).insert((stream.to_owned(), arm.to_owned()));
}

/// Makes a block wrong of which faulty ones among `variants` decoded a part.
pub(super) fn apply<F: Format>(stream: &str, variants: &[F::Variant], arms: u64, output: &mut [u8]) {
    let planted = PLANTED.lock().unwrap_or_else(PoisonError::into_inner);
    let is_faulty = |variant: &F::Variant| {
        let ran = arms & (bit::<F>(*variant, false) | bit::<F>(*variant, true)) != 0;
        ran && planted.iter().any(|(of, arm)| stream.starts_with(of.as_str()) && arm == F::name(*variant))
    };
    if variants.iter().any(is_faulty)
        && let Some(byte) = output.last_mut()
    {
        *byte ^= 1;
    }
}
