//! LZ4 blocks of liblz4's fast level: our variants and the race against `LZ4_decompress_safe` and lz4_flex.

use keirin_codecs::blocks::Codec;
use keirin_kernels::Level;
use keirin_kernels::lz4::{Lz4, Variant};

use super::blocks::Contest;
use crate::duel::Report;

pub(super) fn run(report: &mut Report) {
    let variants: Vec<_> =
        Variant::racing(Level::best()).iter().map(|variant| (variant.name(), *variant)).collect();
    let contest = Contest::<Lz4> {
        codec: Codec::Lz4,
        variants: &variants,
        compress: &|block| lz4::block::compress(block, None, false).expect("a block can be compressed"),
        rivals: &[
            ("liblz4", &|input, output| {
                let size = i32::try_from(output.len()).expect("a small block");
                lz4::block::decompress_to_buffer(input, Some(size), output).expect("a valid block");
            }),
            ("lz4_flex", &|input, output| {
                lz4_flex::block::decompress_into(input, output).expect("a valid block");
            }),
        ],
        crippled: 0,
    };
    contest.run(report);
}
