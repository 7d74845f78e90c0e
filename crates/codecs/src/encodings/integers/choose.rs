//! Chooses an encoding for integers.
//!
//! Promising encodings are tried on a sample (`judge`). Two properties that a sample does not show are
//! computed for all values: whether all are equal, and how many distinct ones there are.

use super::{Encoding, Int, write_as};
use crate::blocks::Codec;
use crate::encodings::sample;
use crate::judge::{Judge, Verdict};
use crate::reader::Reader;
use crate::writer::Writer;

/// A dictionary is tried if a sample has at least this many rows for each distinct value; a whole column has
/// more.
const SAMPLE_ROWS_PER_ENTRY_MIN: f64 = 3.0;
/// The same for 64-bit values, such as hashes of text, of which a dictionary saves more.
const SAMPLE_ROWS_PER_WIDE_ENTRY_MIN: f64 = 1.5;
/// Runs are tried if a sample has at least this many rows for each run.
const RUN_MIN: usize = 2;

pub(super) fn choose<T: Int>(writer: &Writer, values: &[T]) -> Verdict<Encoding> {
    let Some(first) = values.first() else { return (Encoding::Raw, Codec::None, None) };
    if values.iter().all(|value| value == first) {
        return (Encoding::Constant, Codec::None, None);
    }
    let sample = sample(values);
    let mut judge = Judge::new(writer, values.len(), Some(Encoding::Raw));
    let row_count = values.len();
    let mut consider = |encoding, values: &[T], scale| {
        let mut trial = writer.trial();
        if write_as(&mut trial, encoding, values) {
            let open = || super::open::<T>(&mut Reader::new(writer.level, &trial.bytes), values.len());
            let decode_ns = open().expect("what was written can be read").decode_ns();
            let mut out = vec![T::default(); values.len()];
            judge.consider(encoding, &trial.bytes, scale, decode_ns, || {
                let decoded = open().and_then(|node| node.decode_into(writer.level, 0, &mut out));
                decoded.expect("what was written can be read");
            });
            if values.len() == row_count {
                judge.keep(encoding, trial);
            }
        }
    };
    let scale = values.len() as f64 / sample.len() as f64;
    consider(Encoding::Raw, &sample, scale);
    consider(Encoding::Bitpack, &sample, scale);
    if writer.may_nest() {
        if sample.chunk_by(T::eq).count() * RUN_MIN <= sample.len() {
            consider(Encoding::Runs, &sample, scale);
        }
        consider(Encoding::Delta, &sample, scale);
        let (entries, _) = super::dict::entries_and_codes(writer.level, &sample);
        let rows_per_entry_min = match T::BITS {
            64.. => SAMPLE_ROWS_PER_WIDE_ENTRY_MIN,
            _ => SAMPLE_ROWS_PER_ENTRY_MIN,
        };
        if entries.len() as f64 * rows_per_entry_min <= sample.len() as f64 {
            consider(Encoding::Dict, values, 1.0);
        }
    }
    judge.verdict().expect("values as they are were considered")
}
