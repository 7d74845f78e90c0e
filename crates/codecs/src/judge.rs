//! Finds the cheapest way to store values; all choices are made here.
//!
//! Each promising encoding is tried on a sample, whole pieces spread over the column, including its inner
//! encodings. Its cost by [`Goal`] is that of its bytes, when frames are made compressed ones, and of the
//! time to restore the sample: it is opened and decoded a few times, and the shortest time counts, since only
//! noise makes a run longer. An encoding that is not [`BETTER`] than a simpler one, which was tried before,
//! loses. Inner encodings are chosen by modelled times: their own would be too short to measure. (Kuschewski,
//! Sauerwein, Alhomssi, Leis: "BtrBlocks", SIGMOD 2023, choose from samples, too.)

use std::time::Instant;

use keirin_race::Races;

use crate::Goal;
use crate::blocks::{Codec, Decoder};
use crate::writer::Writer;

/// Columns of fewer rows are decoded whole, in less time than the clock measures well.
pub(crate) const TIMED_ROWS_MIN: usize = 4096;
/// How many times a sample is decoded.
const RUNS: usize = 3;
/// Another encoding is better if its cost is below this share of the best cost so far.
const BETTER: f64 = 0.97;
/// The factor on the cost of values that are read where they lie, unless only bytes count: the sample is decoded in the
/// near caches, which does not show what the decoded copy of a column costs.
const IN_PLACE: f64 = 0.85;
/// The factor on the cost of a compressed block, unless only bytes count: no predicate and no part of its
/// rows can be computed before all of it was decompressed.
const COMPRESSED: f64 = 1.25;
/// Modelled nanoseconds to decompress a byte.
const LZ4_NS: f64 = 0.2;
const ZSTD_NS: f64 = 0.7;

/// Compares ways to store a column, and keeps the best so far.
#[derive(Debug)]
pub(crate) struct Judge<'w, W> {
    writer: &'w Writer,
    is_timed: bool,
    in_place: Option<W>,
    best: Option<(f64, W, Codec)>,
    written: Option<(W, Writer)>,
}

/// The best way, the codec for its bytes, and the column written in this way, if that was done during the
/// trial.
pub(crate) type Verdict<W> = (W, Codec, Option<Writer>);

impl<'w, W: Copy + PartialEq> Judge<'w, W> {
    /// A judge for a column of this many rows; those stored `in_place` are read where they lie, if the column is no part of
    /// another one.
    pub(crate) fn new(writer: &'w Writer, row_count: usize, in_place: Option<W>) -> Self {
        let in_place = in_place.filter(|_| writer.is_outermost());
        Self { writer, is_timed: writer.is_timed(row_count), in_place, best: None, written: None }
    }

    /// Considers a way by its result on a sample; the column is `scale` times as large. `decode` opens and
    /// decodes the sample, which by the model takes `modelled_ns`.
    pub(crate) fn consider(
        &mut self,
        way: W,
        encoded: &[u8],
        scale: f64,
        modelled_ns: f64,
        mut decode: impl FnMut(),
    ) {
        let decode_ns = if self.is_timed { shortest_ns(&mut decode) } else { modelled_ns };
        self.enter(way, Codec::None, scale, encoded.len(), decode_ns);
        for codec in self.writer.codecs() {
            let Ok(compressed) = codec.compress(encoded) else { continue };
            if compressed.len() < encoded.len() {
                let decompress_ns = self.decompress_ns(*codec, &compressed, encoded.len());
                self.enter(way, *codec, scale, compressed.len(), decode_ns + decompress_ns);
            }
        }
    }

    fn decompress_ns(&self, codec: Codec, compressed: &[u8], byte_count: usize) -> f64 {
        if !self.is_timed {
            let ns = if matches!(codec, Codec::Zstd(_)) { ZSTD_NS } else { LZ4_NS };
            return byte_count as f64 * ns;
        }
        let decoder = Decoder::new(codec, &Races::default(), "sample", compressed);
        let mut output = vec![0; byte_count];
        shortest_ns(&mut || decoder.decompress(compressed, &mut output).expect("what was compressed"))
    }

    fn enter(&mut self, way: W, codec: Codec, scale: f64, byte_count: usize, ns: f64) {
        let goal = self.writer.goal();
        let factor = match codec {
            _ if goal == Goal::Smallest => 1.0,
            Codec::None if self.in_place == Some(way) => IN_PLACE,
            Codec::None => 1.0,
            _ => COMPRESSED,
        };
        let cost = goal.cost(byte_count as f64, ns) * scale * factor;
        if self.best.is_none_or(|(best, ..)| cost < best * BETTER) {
            self.best = Some((cost, way, codec));
        }
    }

    /// Keeps the bytes of a trial with the whole column, not a sample, if its way is the best so far.
    pub(crate) fn keep(&mut self, way: W, written: Writer) {
        if self.best.is_some_and(|(_, best, _)| best == way) {
            self.written = Some((way, written));
        }
    }

    /// The best way.
    pub(crate) fn verdict(self) -> Option<Verdict<W>> {
        let (_, best, codec) = self.best?;
        let written = self.written.filter(|(way, _)| *way == best).map(|(_, written)| written);
        Some((best, codec, written))
    }
}

/// The duration of the fastest of a few runs.
pub(crate) fn shortest_ns(run: &mut dyn FnMut()) -> f64 {
    let times = (0..RUNS).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed().as_nanos() as f64
    });
    times.fold(f64::INFINITY, f64::min)
}

/// The codecs to try on a sample for a goal; for everyday writing none, but see [`afterwards`].
pub(crate) fn codecs(goal: Goal) -> &'static [Codec] {
    match goal {
        Goal::Smallest => &[Codec::Zstd(9)],
        Goal::Balanced | Goal::Fastest => &[],
    }
}

/// The codec to try on a frame of encoded bytes after the choice, and the percentage of its bytes below which
/// the compressed ones are kept. A sample does not show the gain: matches are far apart.
pub(crate) fn afterwards(goal: Goal, byte_count: usize) -> Option<(Codec, usize)> {
    /// Fewer bytes are read as fast as many.
    const BYTES_MIN: usize = 1 << 10;
    /// From the goal's price of a byte and some 0.2 ns to decompress one.
    const KEEP_PERCENT: usize = 60;
    (goal == Goal::Balanced && byte_count >= BYTES_MIN).then_some((Codec::Lz4, KEEP_PERCENT))
}
