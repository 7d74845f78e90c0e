//! Which encoding suits these values.
//!
//! Each encoding that has a chance is tried on a sample, whole blocks of the column from all over it, with
//! all that lies inside; it costs what [`Goal::cost`](crate::Goal) makes of its bytes and of the time in
//! which it decodes. The time is modelled ([`Node::decode_ns`](super::Node)), not taken: the same values
//! are the same bytes on every day. (Kuschewski, Sauerwein, Alhomssi, Leis: "BtrBlocks", SIGMOD 2023, choose
//! from samples, too.)
//!
//! Two things a sample does not show are looked at as a whole: whether all values are equal, and how many
//! different ones there are.

use super::{Encoding, Int, write_as};
use crate::encodings::sample;
use crate::reader::Reader;
use crate::writer::Writer;

/// A dictionary is thought of when a sample has at most one different value in so many.
const SAMPLE_ROWS_PER_ENTRY_MIN: usize = 3;
/// Runs are thought of when they are so long on average.
const RUN_MIN: usize = 2;

pub(super) fn choose<T: Int>(writer: &Writer, values: &[T]) -> Encoding {
    let Some(first) = values.first() else { return Encoding::Raw };
    if values.iter().all(|value| value == first) {
        return Encoding::Constant;
    }
    let sample = sample(values);
    let mut candidates = vec![Encoding::Raw, Encoding::Bitpack];
    if writer.may_nest() {
        candidates.push(Encoding::Delta);
        if sample.chunk_by(T::eq).count() * RUN_MIN <= sample.len() {
            candidates.push(Encoding::Runs);
        }
    }
    let mut best = (f64::INFINITY, Encoding::Raw);
    for encoding in candidates {
        if let Some(cost) = cost_of_sample(writer, encoding, &sample)
            && cost < best.0
        {
            best = (cost, encoding);
        }
    }
    if writer.may_nest()
        && let Some(cost) = cost_of_dict(writer, values, &sample)
        && cost < best.0 * values.len() as f64 / sample.len() as f64
    {
        return Encoding::Dict;
    }
    best.1
}

fn cost_of_sample<T: Int>(writer: &Writer, encoding: Encoding, sample: &[T]) -> Option<f64> {
    let mut trial = writer.trial();
    if !write_as(&mut trial, encoding, sample) {
        return None;
    }
    let node = super::open::<T>(&mut Reader::new(writer.level, &trial.bytes), sample.len());
    let node = node.expect("what was written can be read");
    Some(writer.goal.cost(trial.bytes.len() as f64, node.decode_ns()))
}

/// What a dictionary of the whole column costs: entries and codes packed.
fn cost_of_dict<T: Int>(writer: &Writer, values: &[T], sample: &[T]) -> Option<f64> {
    let (in_sample, _) = super::dict::entries_and_codes(writer.level, sample);
    if in_sample.len() > sample.len() / SAMPLE_ROWS_PER_ENTRY_MIN {
        return None;
    }
    let mut trial = writer.trial();
    if !write_as(&mut trial, Encoding::Dict, values) {
        return None;
    }
    let node = super::open::<T>(&mut Reader::new(writer.level, &trial.bytes), values.len());
    let node = node.expect("what was written can be read");
    Some(writer.goal.cost(trial.bytes.len() as f64, node.decode_ns()))
}
