//! Which way to store values is the cheapest: the only judge.
//!
//! Each way that has a chance is tried on a sample, whole pieces of the column from all over it, with all that lies
//! inside. Its bytes, and where frames are made these compressed, cost what [`Goal`] says, together with the time
//! in which the sample comes back: opened and decoded a few times, of which the shortest counts, since nothing but
//! noise makes a run longer. A way that is not [`BETTER`] than a simpler one, which was looked at before, loses.
//! What lies inside another encoding is chosen by modelled times: its own would be too short to be taken.
//! (Kuschewski, Sauerwein, Alhomssi, Leis: "BtrBlocks", SIGMOD 2023, choose from samples, too.)

use std::time::Instant;

use keirin_race::Races;

use crate::Goal;
use crate::blocks::{Codec, Decoder};
use crate::writer::Writer;

/// Fewer rows, which are no sample but all there are, come back in less time than the clock shows well.
pub(crate) const TIMED_ROWS_MIN: usize = 4096;
/// Times that a sample is decoded.
const RUNS: usize = 3;
/// The share of the cost of the best so far below which another one is better.
const BETTER: f64 = 0.97;
/// How much more a compressed block costs, but where bytes are all that counts: it answers nothing, and gives no
/// part of its rows, before all of it was decompressed.
const COMPRESSED: f64 = 1.25;
/// Modelled nanoseconds for a decompressed byte.
const LZ4_NS: f64 = 0.2;
const ZSTD_NS: f64 = 0.7;

/// Ways that were looked at, of which it knows the best.
#[derive(Debug)]
pub(crate) struct Judge<'w, W> {
    writer: &'w Writer,
    is_timed: bool,
    best: Option<(f64, W, Codec)>,
    written: Option<(W, Writer)>,
}

/// The best way, how its bytes are compressed, and the column written so, if that was done to look at it.
pub(crate) type Verdict<W> = (W, Codec, Option<Writer>);

impl<'w, W: Copy + PartialEq> Judge<'w, W> {
    /// Of a column of so many rows.
    pub(crate) fn new(writer: &'w Writer, row_count: usize) -> Self {
        Self { writer, is_timed: writer.is_timed(row_count), best: None, written: None }
    }

    /// Looks at what a way makes of a sample, which is one of `scale` as large as it. `decode` opens and decodes
    /// it, which is modelled to take so many nanoseconds.
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
        let is_handicapped = codec != Codec::None && goal != Goal::Smallest;
        let cost = goal.cost(byte_count as f64, ns) * scale * if is_handicapped { COMPRESSED } else { 1.0 };
        if self.best.is_none_or(|(best, ..)| cost < best * BETTER) {
            self.best = Some((cost, way, codec));
        }
    }

    /// Keeps what was written to look at a way, all of the column and no sample, if none is better so far.
    pub(crate) fn keep(&mut self, way: W, written: Writer) {
        if self.best.is_some_and(|(_, best, _)| best == way) {
            self.written = Some((way, written));
        }
    }

    /// The best of all.
    pub(crate) fn verdict(self) -> Option<Verdict<W>> {
        let (_, best, codec) = self.best?;
        let written = self.written.filter(|(way, _)| *way == best).map(|(_, written)| written);
        Some((best, codec, written))
    }
}

/// How long the fastest of a few runs takes.
pub(crate) fn shortest_ns(run: &mut dyn FnMut()) -> f64 {
    let times = (0..RUNS).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed().as_nanos() as f64
    });
    times.fold(f64::INFINITY, f64::min)
}

/// How frames may be compressed for a goal: what is written every day by what compresses at once.
pub(crate) fn codecs(goal: Goal) -> &'static [Codec] {
    match goal {
        Goal::Smallest => &[Codec::Zstd(9)],
        Goal::Balanced | Goal::Fastest => &[],
    }
}

/// What may be laid over a frame of so many encoded bytes afterwards, and the percentage that must not be left of
/// them to be worth it. A sample hardly shows it: matches lie far apart.
pub(crate) fn afterwards(goal: Goal, byte_count: usize) -> Option<(Codec, usize)> {
    /// Fewer bytes are read as fast as many.
    const BYTES_MIN: usize = 1 << 10;
    /// At the goal's price of a byte and some 0.2 ns for a decompressed one.
    const KEEP_PERCENT: usize = 60;
    (goal == Goal::Balanced && byte_count >= BYTES_MIN).then_some((Codec::Lz4, KEEP_PERCENT))
}
