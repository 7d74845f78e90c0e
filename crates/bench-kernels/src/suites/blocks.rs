//! Compressed blocks decoded: each variant over single blocks and over pairs, the race, and the rivals.
//!
//! A case is a file or column in blocks of one size. Outputs are hot: all lanes decode into the same few blocks
//! in turn, those of a case of less than 8 MiB several times. `keirin` is the race, which goes on with what it
//! knows; `keirin:cold` is a new one each time, so that it pays for what it tries in its first 8 to 16 MiB.
//! Caches and predictors are warm for all.
//!
//! Files of less than a megabyte are joined: decoded again and again, they are learned by heart by the
//! predictor of branches, which flatters decoders that branch much (liblz4 by half) and is met nowhere else.

use std::cell::RefCell;
use std::hint::black_box;

use keirin_codecs::blocks::{Codec, Decoder};
use keirin_kernels::Level;
use keirin_kernels::lz::{self, Block, Format};
use keirin_race::{Races, Standing};

use crate::corpora;
use crate::duel::{Lane, Report, Unit};
use crate::geomean::Geomeans;

const BLOCK_BYTES: [(usize, &str); 2] = [(64 << 10, "64 KiB"), (1 << 20, "1 MiB")];
/// So many bytes of output are decoded at once.
const BATCH_BYTES: usize = 512 << 10;
/// A cold race has at least so many bytes.
const COLD_BYTES: usize = 8 << 20;

/// Decodes a whole block, or panics.
pub(super) type Decode<'a> = &'a dyn Fn(&[u8], &mut [u8]);

/// A format, how it is compressed, and who else decodes it; the first rival is the one to beat.
pub(super) struct Contest<'a, F: Format> {
    pub(super) codec: Codec,
    pub(super) variants: &'a [(&'static str, F::Variant)],
    pub(super) compress: &'a dyn Fn(&[u8]) -> Vec<u8>,
    pub(super) rivals: &'a [(&'static str, Decode<'a>)],
    /// The last so many of them are not what their authors would run.
    pub(super) crippled: usize,
}

impl<F: Format> Contest<'_, F> {
    /// Adds the cases.
    pub(super) fn run(&self, report: &mut Report) {
        let corpora = match report.data() {
            Some(folder) => corpora::of_folder(folder),
            None => corpora::all(report.is_quick()),
        };
        for (block_bytes, size) in BLOCK_BYTES {
            let mut geomeans = Geomeans::default();
            for (name, bytes) in &corpora {
                let case = format!("{name}, {size}");
                if report.wants(&case) {
                    self.case(report, &case, bytes, block_bytes, &mut geomeans);
                }
            }
            geomeans.print(&format!("geomean, {size}"));
        }
    }

    fn case(
        &self,
        report: &mut Report,
        case: &str,
        bytes: &[u8],
        block_bytes: usize,
        geomeans: &mut Geomeans,
    ) {
        let level = Level::best();
        let blocks: Vec<(Vec<u8>, usize)> =
            bytes.chunks(block_bytes).map(|block| ((self.compress)(block), block.len())).collect();
        let stored: usize = blocks.iter().map(|(input, _)| input.len()).sum();
        if stored * 20 > bytes.len() * 19 {
            return; // It does not compress, and says nothing about decoding.
        }
        let start = || Decoder::new(self.codec, &Races::with_seed(0), case, &blocks[0].0);
        let races = Races::with_seed(0);
        let warm = Decoder::new(self.codec, &races, case, &blocks[0].0);
        let batch_count = (BATCH_BYTES / block_bytes).max(2);
        let passes = COLD_BYTES.div_ceil(bytes.len());
        let all = || (0..passes).flat_map(|_| blocks.chunks(batch_count));
        let output = RefCell::new(vec![0; batch_count * block_bytes]);

        let each = |decode: Decode<'_>| {
            let mut output = output.borrow_mut();
            for batch in all() {
                for ((input, size), output) in batch.iter().zip(output.chunks_mut(block_bytes)) {
                    decode(input, &mut output[..*size]);
                }
            }
            sample(&output)
        };
        let batches = |advance: &dyn Fn(&mut [Block<'_, F>])| {
            let mut output = output.borrow_mut();
            for batch in all() {
                let outputs = output.chunks_mut(block_bytes);
                let mut decoding: Vec<_> = batch
                    .iter()
                    .zip(outputs)
                    .map(|((input, size), output)| Block::new(input, &mut output[..*size]))
                    .collect();
                let mut rest = &mut decoding[..];
                while !rest.is_empty() {
                    advance(rest);
                    let ended = rest.iter().take_while(|block| block.outcome().is_some()).count();
                    rest = &mut rest[ended..];
                }
            }
            sample(&output)
        };
        let raced = |decoder: &Decoder| {
            let mut output = output.borrow_mut();
            for batch in all() {
                let outputs = output.chunks_mut(block_bytes);
                let blocks = batch
                    .iter()
                    .zip(outputs)
                    .map(|((input, size), output)| (&input[..], &mut output[..*size]));
                decoder.decompress_batch(blocks, |_, error| panic!("a valid block: {error}"));
            }
            sample(&output)
        };

        let mut copy = vec![0; batch_count * block_bytes];
        let mut lanes = Vec::new();
        let (rivals, crippled) = self.rivals.split_at(self.rivals.len() - self.crippled);
        for (name, decode) in rivals {
            lanes.push(Lane::new(name, || each(decode)));
        }
        let checksum = each(self.rivals[0].1);
        lanes.push(Lane::new("memcpy", || {
            for batch in all() {
                for ((_, size), output) in batch.iter().zip(copy.chunks_mut(block_bytes)) {
                    output[..*size].copy_from_slice(black_box(&bytes[..*size]));
                }
            }
            checksum
        }));
        for (name, variant) in self.variants {
            lanes.push(Lane::new(&format!("keirin:{name}"), || {
                each(&|input, output| {
                    lz::decode::<F>(level, *variant, input, output).expect("a valid block");
                })
            }));
        }
        for (name, variant) in self.variants {
            lanes.push(Lane::new(&format!("keirin:{name} x2"), || {
                batches(&|blocks| {
                    lz::advance(level, *variant, blocks, usize::MAX);
                })
            }));
        }
        lanes.push(Lane::new("keirin:cold", || raced(&start())));
        lanes.push(Lane::new("keirin", || raced(&warm)));
        let engines: Vec<String> = lanes.iter().map(|lane| lane.engine().to_owned()).collect();
        for (name, decode) in crippled {
            lanes.push(Lane::new(name, || each(decode)).without_ratio());
        }
        let mut speeds = report.case(case, Unit::Bytes, passes * bytes.len(), lanes);
        speeds.truncate(engines.len());
        geomeans.add(case, &engines, &speeds);
        let standings: Vec<_> = races
            .all()
            .iter()
            .flat_map(|(kernel, .., race)| race.standings().into_iter().map(|arm| (kernel.clone(), arm)))
            .collect();
        let sum =
            |count: fn(&Standing) -> u64| standings.iter().map(|(_, arm)| count(arm)).sum::<u64>() as f64;
        let turn = sum(|arm| arm.picoseconds) / sum(|arm| arm.calls) / 1e6;
        if let Some((kernel, most)) = standings.iter().max_by_key(|(_, arm)| arm.units) {
            let share = 100.0 * most.units as f64 / sum(|arm| arm.units);
            println!("    turns of {turn:.1} µs; {share:.0} % of the bytes by {} ({kernel})", most.arm);
        }
    }
}

/// Enough of the bytes to see that they are the right ones.
fn sample(bytes: &[u8]) -> u64 {
    let some = bytes.iter().step_by((bytes.len() / 1000).max(1));
    some.fold(0, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}
