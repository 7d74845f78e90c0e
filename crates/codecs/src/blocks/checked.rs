//! Blocks decoded a second time by the exact loop, to find loops that are wrong.
//!
//! The loops are tested and fuzzed, but CPUs and compilers are not all alike. Blocks of a loop that has proven nothing yet are
//! checked before anybody sees them, and then a share of all blocks ([`Checks`](keirin_race::Checks)), and whatever looks
//! damaged. Where the exact loop decodes something else, its bytes are the answer, and the loop runs no more.

use std::time::{Duration, Instant, SystemTime};

use keirin_kernels::lz::{self, Block, DecodeError, Format};
use keirin_race::Fault;

use super::decoder::{Decoder, bit, kernels};

/// The exact loop takes about so long for a byte.
const EXACT_BYTE: Duration = Duration::from_nanos(1);
/// A loop that decoded fewer bytes of a block has not shown that it is right.
const PROOF_BYTES: usize = 256;
/// Larger blocks are not checked: that takes as much memory again, which nobody has booked.
const CHECKED_BYTES_MAX: usize = 16 << 20;

/// Who decoded the blocks of a batch.
pub(super) struct Worked {
    blocks: Vec<Of>,
    time: Duration,
}

/// Who decoded a block: the bits of loops.
#[derive(Clone, Copy, Default)]
struct Of {
    /// Those that decoded any of it.
    ran: u64,
    /// Those that decoded enough to be proven by it.
    proving: u64,
    /// Bytes that loops decoded so far.
    by_loops: usize,
}

impl Worked {
    pub(super) fn new(block_count: usize) -> Self {
        Self { blocks: vec![Of::default(); block_count], time: Duration::ZERO }
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
        for (block, of) in blocks.iter().zip(&mut self.blocks[first..]) {
            if block.written() == 0 && block.outcome().is_none() {
                // Nor has any behind it been begun.
                break;
            }
            let bytes = block.by_loops() - of.by_loops;
            of.by_loops += bytes;
            of.ran |= if bytes > 0 { bit } else { 0 };
            of.proving |= if bytes >= PROOF_BYTES { bit } else { 0 };
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
        let chosen = self.checks.next_turn() % blocks.len().max(1);
        let expected = blocks.get(chosen).map_or(0, Block::written).try_into().unwrap_or(u32::MAX);
        let is_due = self.checks.are_due(worked.time, EXACT_BYTE * expected);
        let outcomes = blocks.iter_mut().zip(&worked.blocks).enumerate().map(|(index, (block, of))| {
            let outcome = block.outcome().unwrap_or(Ok(()));
            let (input, output) = block.parts();
            #[cfg(any(test, feature = "faults"))]
            super::faults::apply::<F>(&self.stream, variants, of.ran, output);
            let is_sampled = is_due && index == chosen;
            let wants_check = is_sampled || self.checks.are_new(of.ran) || outcome.is_err();
            if of.ran == 0 || !wants_check || output.len() > CHECKED_BYTES_MAX {
                return outcome;
            }
            let began = Instant::now();
            let checked = self.check::<F>(input, output, outcome, variants, *of);
            if is_sampled {
                self.checks.took(began.elapsed());
            }
            checked
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
        Of { ran, proving, .. }: Of,
    ) -> Result<(), DecodeError> {
        let mut exact = Vec::new();
        if exact.try_reserve_exact(output.len()).is_err() {
            return outcome;
        }
        exact.resize(output.len(), 0);
        let expected = lz::decode::<F>(self.level, F::EXACT, input, &mut exact);
        if expected == outcome && exact == output {
            // Zeros in the place of damaged bytes prove nothing.
            self.checks.are_right(if outcome.is_ok() { proving } else { 0 });
            return expected;
        }
        let bits = |variant: F::Variant| bit::<F>(variant, false) | bit::<F>(variant, true);
        let is_wrong = |variant: &F::Variant| {
            // Alone and as a pair.
            let mut again = [(); 3].map(|()| vec![0; exact.len()]);
            let [alone, first, second] = &mut again;
            let outcome = lz::decode::<F>(self.level, *variant, input, alone);
            let mut pair = [Block::<F>::new(input, first), Block::<F>::new(input, second)];
            lz::advance(self.level, *variant, &mut pair, usize::MAX);
            let outcomes = [Some(outcome), pair[0].outcome(), pair[1].outcome()];
            #[cfg(any(test, feature = "faults"))]
            super::faults::apply::<F>(&self.stream, variants, bits(*variant), &mut again[0]);
            outcomes.iter().any(|outcome| *outcome != Some(expected))
                || again.iter().any(|again| *again != exact)
        };
        let ran: Vec<F::Variant> =
            variants.iter().copied().filter(|variant| ran & bits(*variant) != 0).collect();
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
            self.checks.are_wrong(bits(variant));
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

    /// What loops decode by themselves: literals and matches of all kinds.
    fn words(count: usize) -> Vec<u8> {
        let word = |number: usize| format!("{} words of {}, ", number * 7919 % 5003, number * 31 % 37);
        (0..count).map(word).collect::<String>().into_bytes()
    }

    #[test]
    fn a_faulty_loop_never_changes_an_answer() {
        for (codec, arm) in [(Codec::Lz4, "plain"), (Codec::Snappy, "plain"), (Codec::Lz4, "eight")] {
            let (races, stream) = (Races::with_seed(3), format!("faulty {} {arm}", codec.name()));
            faults::plant(&stream, arm);
            let blocks: Vec<Vec<u8>> = (0..40).map(|block| words(4000 + block)).collect();
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
        let block = words(9000);
        let stored = Codec::Lz4.compress(&block).expect("memory");
        let decoder = Decoder::new(Codec::Lz4, &races, stream, &stored);
        for _ in 0..50 {
            let mut output = vec![0; block.len()];
            decoder.decompress(&stored, &mut output).expect("a valid block");
            assert!(output == block);
        }
        assert!(decoder.checks.is_distrusted());
    }

    /// What the exact loop decoded proves no loop.
    #[test]
    fn tiny_and_damaged_blocks_prove_nothing() {
        let (races, stream) = (Races::with_seed(3), "faulty after tiny blocks");
        faults::plant(stream, "shuffle");
        faults::plant(stream, "plain");
        let (tiny, block) = (b"tiny".to_vec(), words(20_000));
        let [tiny_stored, stored] = [&tiny, &block].map(|block| Codec::Lz4.compress(block).expect("memory"));
        let decoder = Decoder::new(Codec::Lz4, &races, stream, &stored);
        for _ in 0..40 {
            let mut output = vec![0; tiny.len()];
            decoder.decompress(&tiny_stored, &mut output).expect("a valid block");
            assert_eq!(output, tiny);
            let mut output = vec![0; block.len()];
            decoder.decompress(&stored[..stored.len() / 2], &mut output).expect_err("half a block");
        }
        for _ in 0..40 {
            let mut output = vec![0; block.len()];
            decoder.decompress(&stored, &mut output).expect("a valid block");
            assert!(output == block);
        }
    }
}
