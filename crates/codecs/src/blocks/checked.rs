//! Blocks decoded a second time by the exact loop, to find loops that are wrong.
//!
//! The loops are tested and fuzzed, but CPUs and compilers are not all alike. The first block of which a loop decoded a part is
//! checked before anybody sees it, and then a share of all blocks ([`Checks`](keirin_race::Checks)), and whatever looks
//! damaged. Where the exact loop decodes something else, its bytes are the answer, and the loop runs no more.

use std::time::{Duration, Instant, SystemTime};

use keirin_kernels::lz::{self, Block, DecodeError, Format};
use keirin_race::Fault;

use super::decoder::{Decoder, bit, kernels};

/// The exact loop takes about so long for a byte.
const EXACT_BYTE: Duration = Duration::from_nanos(1);

/// Who decoded the blocks of a batch.
pub(super) struct Worked {
    /// For each block how far it has come, and the bits of the loops that decoded some of it.
    blocks: Vec<(usize, u64)>,
    time: Duration,
}

impl Worked {
    pub(super) fn new(block_count: usize) -> Self {
        Self { blocks: vec![(0, 0); block_count], time: Duration::ZERO }
    }

    /// Counts a turn of a loop with this bit, over blocks of which the first is number `first` of the batch.
    pub(super) fn count<F: Format>(
        &mut self,
        bit: u64,
        blocks: &[Block<'_, F>],
        first: usize,
        time: Duration,
    ) {
        self.time += time;
        for (block, (written, arms)) in blocks.iter().zip(&mut self.blocks[first..]) {
            if block.written() == 0 && block.outcome().is_none() {
                // Nor has any behind it been begun.
                break;
            }
            if block.written() != *written || block.outcome().is_some() && *written < usize::MAX {
                *arms |= bit;
                *written = if block.outcome().is_some() { usize::MAX } else { block.written() };
            }
        }
    }
}

impl Decoder {
    /// The outcomes of blocks that have ended, some after a check.
    pub(super) fn checked<F: Format>(
        &self,
        mut blocks: Vec<Block<'_, F>>,
        variants: &[F::Variant],
        worked: &Worked,
    ) -> Vec<Result<(), DecodeError>> {
        // One of the blocks, each in its turn.
        let chosen = worked.time.subsec_nanos() as usize % blocks.len().max(1);
        let expected = blocks.get(chosen).map_or(0, Block::written).try_into().unwrap_or(u32::MAX);
        let is_due = self.checks.are_due(worked.time, EXACT_BYTE * expected);
        let outcomes =
            blocks.iter_mut().zip(&worked.blocks).enumerate().map(|(index, (block, (_, arms)))| {
                let outcome = block.outcome().unwrap_or(Ok(()));
                let (input, output) = block.parts();
                #[cfg(any(test, feature = "faults"))]
                super::faults::apply::<F>(&self.stream, variants, *arms, output);
                let wants_check = is_due && index == chosen || self.checks.are_new(*arms) || outcome.is_err();
                if *arms == 0 || !wants_check {
                    outcome
                } else {
                    self.check::<F>(input, output, outcome, variants, *arms)
                }
            });
        outcomes.collect()
    }

    /// The outcome of the exact loop, whose bytes `output` has then.
    fn check<F: Format>(
        &self,
        input: &[u8],
        output: &mut [u8],
        outcome: Result<(), DecodeError>,
        variants: &[F::Variant],
        arms: u64,
    ) -> Result<(), DecodeError> {
        let began = Instant::now();
        let mut exact = vec![0; output.len()];
        let expected = lz::decode::<F>(self.level, F::EXACT, input, &mut exact);
        if expected == outcome && exact == output {
            self.checks.are_right(arms, began.elapsed());
            return expected;
        }
        let ran = |variant: &F::Variant| arms & (bit::<F>(*variant, false) | bit::<F>(*variant, true)) != 0;
        let is_wrong = |variant: &F::Variant| {
            let mut again = vec![0; exact.len()];
            let outcome = lz::decode::<F>(self.level, *variant, input, &mut again);
            #[cfg(any(test, feature = "faults"))]
            super::faults::apply::<F>(&self.stream, variants, bit::<F>(*variant, false), &mut again);
            outcome != expected || again != exact
        };
        let ran: Vec<F::Variant> = variants.iter().copied().filter(ran).collect();
        let wrong: Vec<F::Variant> = ran.iter().copied().filter(is_wrong).collect();
        // A fault that does not come again may be of any of them.
        let wrong = if wrong.is_empty() { ran } else { wrong };
        let difference = exact.iter().zip(&*output).position(|(expected, found)| expected != found);
        let detail = match (outcome, difference) {
            (Ok(()), Some(byte)) => format!("byte {byte} of {} differs from the exact loop's", exact.len()),
            (Ok(()), None) => "it decodes what the exact loop does not".to_owned(),
            (Err(error), _) => format!("it does not decode what the exact loop does: {error}"),
        };
        for variant in wrong {
            self.checks.are_wrong(bit::<F>(variant, false) | bit::<F>(variant, true));
            for kernel in kernels(self.codec) {
                let (stream, arm) = (self.stream.to_string(), F::name(variant));
                let (detail, time) = (detail.clone(), SystemTime::now());
                self.races.report(Fault { kernel, stream, arm, detail, time });
            }
        }
        output.copy_from_slice(&exact);
        expected
    }
}

#[cfg(test)]
mod tests {
    use keirin_race::Races;

    use super::*;
    use crate::blocks::{Codec, faults};

    #[test]
    fn a_faulty_loop_never_changes_an_answer() {
        for (codec, arm) in [(Codec::Lz4, "plain"), (Codec::Snappy, "plain"), (Codec::Lz4, "eight")] {
            let (races, stream) = (Races::with_seed(3), format!("faulty {} {arm}", codec.name()));
            faults::plant(&stream, arm);
            let blocks: Vec<Vec<u8>> = (0..40_usize)
                .map(|block| format!("{block} of all the words ").repeat(4000 + block))
                .map(Vec::from)
                .collect();
            let stored: Vec<Vec<u8>> =
                blocks.iter().map(|block| codec.compress(block).expect("memory")).collect();
            let decoder = Decoder::new(codec, &races, &*stream, &stored[0]);
            for (block, stored) in blocks.iter().zip(&stored) {
                let mut output = vec![0; block.len()];
                decoder.decompress(stored, &mut output).expect("a valid block");
                assert!(output == *block, "{arm}");
            }
            let mut outputs: Vec<Vec<u8>> = blocks.iter().map(|block| vec![0; block.len()]).collect();
            let inputs = stored.iter().map(|stored| &stored[..]);
            decoder.decompress_batch(
                inputs.zip(outputs.iter_mut().map(|output| &mut output[..])),
                |_, error| panic!("a valid block: {error}"),
            );
            assert!(outputs == blocks, "{arm}");
            let kernel = &kernels(codec)[0];
            let (_, _, _, race) = races.all().into_iter().find(|(name, ..)| name == kernel).expect("it ran");
            if race.arms().contains(&arm) {
                assert!(races.faults().iter().all(|fault| fault.arm == arm && fault.stream == stream));
                assert_eq!(races.faults().len(), 2, "{:?}", races.faults());
                assert!(
                    race.standings().iter().all(|standing| standing.is_quarantined == (standing.arm == arm))
                );
            }
        }
    }

    #[test]
    fn where_all_loops_are_wrong_the_exact_one_decodes() {
        let (races, stream) = (Races::with_seed(3), "all are faulty");
        keirin_kernels::lz4::Variant::ALL.iter().for_each(|variant| faults::plant(stream, variant.name()));
        let block = b"words and words and more of them, ".repeat(9000);
        let stored = Codec::Lz4.compress(&block).expect("memory");
        let decoder = Decoder::new(Codec::Lz4, &races, stream, &stored);
        for _ in 0..50 {
            let mut output = vec![0; block.len()];
            decoder.decompress(&stored, &mut output).expect("a valid block");
            assert!(output == block);
        }
        assert!(decoder.checks.is_distrusted());
    }
}
