//! Snappy blocks: our variants and the race against google/snappy and the `snap` crate.
//!
//! google/snappy is built as cargo's C++ compiler and flags say. `just bench-kernels` gives those of its own build;
//! without them, or built by GCC (12), it is 2 to 3 times as slow: then its name says so, and nothing is compared
//! with it (`build.rs` looks).

use keirin_codecs::blocks::Codec;
use keirin_kernels::Level;
use keirin_kernels::bench::google_snappy;
use keirin_kernels::snappy::{Snappy, Variant};

use super::blocks::{Contest, Decode};
use crate::duel::Report;

pub(super) fn run(report: &mut Report) {
    let variants: Vec<_> =
        Variant::racing(Level::best()).iter().map(|variant| (variant.name(), *variant)).collect();
    let google: (&str, Decode<'_>) = (env!("KEIRIN_GOOGLE_SNAPPY"), &|input, output| {
        google_snappy::uncompress(input, output).expect("a valid block");
    });
    let snap: (&str, Decode<'_>) = ("snap", &|input, output| {
        snap::raw::Decoder::new().decompress(input, output).expect("a valid block");
    });
    let is_fast = google.0 == "google/snappy";
    let contest = Contest::<Snappy> {
        codec: Codec::Snappy,
        variants: &variants,
        compress: &|block| google_snappy::compress(block).expect("a block can be compressed"),
        rivals: &if is_fast { [google, snap] } else { [snap, google] },
        crippled: usize::from(!is_fast),
    };
    contest.run(report);
}
