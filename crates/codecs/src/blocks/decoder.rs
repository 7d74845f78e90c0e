//! Decodes the blocks of one stream, by loops that race.
//!
//! The unit of a race is some 64 KiB of each of two blocks: the loop is chosen anew in the middle of larger
//! blocks. A single block has other bottlenecks than a pair, so there are two races; the race of pairs has
//! one more arm, which decodes a single block, for streams where that is faster.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use keirin_kernels::Level;
use keirin_kernels::lz::{self, Block, Format};
use keirin_kernels::lz4::{self, Lz4};
use keirin_kernels::snappy::{self, Snappy};
use keirin_race::{Checks, Race, Races};
use zstd::bulk::Decompressor;

use super::checked::Worked;
use super::{Codec, Error, tally};

/// The arm in the race of pairs that decodes the first block alone.
const ALONE: &str = "alone";
/// Who decodes where no loops race.
const LIBRARY: &str = "library";
/// Output of one block between two choices: long enough that choosing and timing cost nothing, short enough
/// that a race is decided within the first megabytes.
const TURN_BYTES: usize = 64 << 10;
/// If bytes, mostly long runs, decode so fast that a turn takes less time than this, turns become longer:
/// choosing and timing take some 0.1 µs.
const TURN_TIME_MIN: Duration = Duration::from_micros(25);
/// A shorter turn says nothing about the speed of a loop.
const TIMED_BYTES_MIN: usize = 2 << 10;
/// Turns that became longer become shorter again if they take more than this.
const TURN_TIME_LONG: Duration = Duration::from_micros(100);
const TURN_BYTES_MAX: usize = 1 << 20;

/// The origin of similar blocks, by which races remember what was fastest.
#[derive(Clone, Copy, Debug)]
pub struct Stream<'a> {
    /// A class of streams from which conclusions about others of the class can be drawn, such as the type of
    /// their columns.
    pub class: &'a str,
    /// The name of the stream, such as that of a column.
    pub name: &'a str,
}

impl<'a> From<&'a str> for Stream<'a> {
    /// A stream in the class for all blocks.
    fn from(name: &'a str) -> Self {
        Self { class: "blocks", name }
    }
}

/// Decodes the blocks of one stream; several threads may share it.
#[derive(Debug)]
pub struct Decoder {
    pub(super) codec: Codec,
    pub(super) level: Level,
    variants: Variants,
    single: Arc<Race>,
    pairs: Arc<Race>,
    pub(super) checks: Arc<Checks>,
    /// Where faults are told, and of what.
    pub(super) races: Races,
    pub(super) stream: Box<str>,
    /// Output of one block between two choices.
    turn_bytes: AtomicUsize,
}

/// The variants that race, in the order of the arms.
#[derive(Debug)]
enum Variants {
    Lz4(Vec<lz4::Variant>),
    Snappy(Vec<snappy::Variant>),
    /// A library decodes the blocks, without a race.
    None,
}

/// The names of the races of a codec: of single blocks, and of pairs.
pub(super) fn kernels(codec: Codec) -> [String; 2] {
    ["decode", "decode_pairs"].map(|what| format!("{}_{what}", codec.name()))
}

/// The kernels that race to decode blocks, and the arms that they have on this CPU, the reference first.
#[must_use]
pub fn racing_kernels() -> Vec<(String, Vec<&'static str>)> {
    let level = Level::best();
    let lz4 = lz4::Variant::racing(level).iter().map(|variant| variant.name()).collect::<Vec<_>>();
    let snappy = snappy::Variant::racing(level).iter().map(|variant| variant.name()).collect::<Vec<_>>();
    let of_codec = |(codec, arms): (Codec, Vec<&'static str>)| {
        let pair_arms = arms.iter().copied().chain([ALONE]).collect();
        std::iter::zip(kernels(codec), [arms, pair_arms]).collect::<Vec<_>>()
    };
    [(Codec::Lz4, lz4), (Codec::Snappy, snappy)].into_iter().flat_map(of_codec).collect()
}

impl Decoder {
    /// A decoder for blocks that `codec` compressed; `stream` is their origin; `first` is one of the blocks
    /// or empty, and shows which variants need not be tried if the stream is new. Finding the races takes a
    /// lock: do it once for each stream and not for each block.
    #[must_use]
    pub fn new<'a>(codec: Codec, races: &Races, stream: impl Into<Stream<'a>>, first: &[u8]) -> Self {
        let Stream { class, name: stream } = stream.into();
        let level = Level::best();
        let [decode, decode_pairs] = kernels(codec);
        let racing = |variant: &lz4::Variant, race: &Race| race.arms().contains(&variant.name());
        let variants = match codec {
            Codec::Lz4 | Codec::Lz4Hc(_) => Variants::Lz4(match races.find(&decode, class, stream) {
                Some(race) => {
                    lz4::Variant::ALL.into_iter().filter(|variant| racing(variant, &race)).collect()
                }
                None => lz4::Variant::promising(level, first),
            }),
            Codec::Snappy => Variants::Snappy(snappy::Variant::racing(level).to_vec()),
            Codec::None | Codec::Zstd(_) => Variants::None,
        };
        let arms: Vec<&'static str> = match &variants {
            Variants::Lz4(variants) => variants.iter().map(|variant| variant.name()).collect(),
            Variants::Snappy(variants) => variants.iter().map(|variant| variant.name()).collect(),
            Variants::None => Vec::new(),
        };
        let pair_arms: Vec<&'static str> = arms.iter().copied().chain([ALONE]).collect();
        let [single, pairs] = match arms[..] {
            // There is nothing to choose.
            [] => [(); 2].map(|()| Arc::new(Race::new(&[ALONE], 0))),
            _ => [
                races.race(&decode, class, stream, &arms),
                races.race(&decode_pairs, class, stream, &pair_arms),
            ],
        };
        let (checks, turn_bytes) = (races.checks(&decode), AtomicUsize::new(TURN_BYTES));
        Self {
            codec,
            level,
            variants,
            single,
            pairs,
            checks,
            races: races.clone(),
            stream: stream.into(),
            turn_bytes,
        }
    }

    /// Decodes one block into `output`, which must have exactly its declared size.
    ///
    /// # Errors
    /// When the block is damaged; then `output` is all zeros.
    pub fn decompress(&self, input: &[u8], output: &mut [u8]) -> Result<(), Error> {
        let mut outcome = Ok(());
        self.decompress_batch([(input, output)], |_, error| outcome = Err(error));
        outcome
    }

    /// Decodes blocks as [`Decoder::decompress`], two at a time. Calls `on_error` with the index of each
    /// damaged block.
    pub fn decompress_batch<'a>(
        &self,
        blocks: impl IntoIterator<Item = (&'a [u8], &'a mut [u8])>,
        mut on_error: impl FnMut(usize, Error),
    ) {
        match &self.variants {
            Variants::Lz4(variants) => self.race::<Lz4>(blocks, variants, on_error),
            Variants::Snappy(variants) => self.race::<Snappy>(blocks, variants, on_error),
            Variants::None => {
                for (index, (input, output)) in blocks.into_iter().enumerate() {
                    let start = tally::is_watched().then(Instant::now);
                    if let Err(error) = self.by_library(input, output) {
                        output.fill(0);
                        on_error(index, error);
                    }
                    if let Some(start) = start {
                        tally::count(self.codec.name(), LIBRARY, output.len(), start.elapsed());
                    }
                }
            }
        }
    }

    fn by_library(&self, input: &[u8], output: &mut [u8]) -> Result<(), Error> {
        if self.codec == Codec::None {
            let size = Error::Size { declared: output.len(), stored: input.len() };
            return (input.len() == output.len()).then(|| output.copy_from_slice(input)).ok_or(size);
        }
        zstd_block(input, output).map_err(Error::Zstd)
    }

    fn race<'a, F: Format>(
        &self,
        blocks: impl IntoIterator<Item = (&'a [u8], &'a mut [u8])>,
        variants: &[F::Variant],
        mut on_error: impl FnMut(usize, Error),
    ) {
        let mut blocks: Vec<Block<'a, F>> =
            blocks.into_iter().map(|(input, output)| Block::new(input, output)).collect();
        if self.checks.is_distrusted() {
            lz::advance(self.level, F::EXACT, &mut blocks, usize::MAX);
        }
        let mut worked = Worked::new(blocks.len());
        let (mut first, mut is_first_turn) = (0, true);
        let is_watched = tally::is_watched();
        // The end of one turn is the start of the next.
        let mut start = Instant::now();
        loop {
            first += blocks[first..].iter().take_while(|block| block.outcome().is_some()).count();
            let rest = &mut blocks[first..];
            let waiting = rest.iter().filter(|block| block.outcome().is_none()).take(2).count();
            let turn_bytes = self.turn_bytes.load(Relaxed);
            let pair_arm = match waiting {
                0 => break,
                1 => None,
                _ => Some(self.pairs.choose()),
            };
            // The last arm of the race of pairs is [`ALONE`], not a variant.
            let (variant, single_arm) = match pair_arm.and_then(|arm| variants.get(arm)) {
                Some(variant) => (*variant, None),
                None => {
                    let arm = self.single.choose();
                    (variants[arm], Some(arm))
                }
            };
            let (blocks_at_a_time, bytes) =
                if single_arm.is_some() { (&mut rest[..1], turn_bytes) } else { (rest, 2 * turn_bytes) };
            let (before, is_pair) = (blocks_at_a_time.len(), single_arm.is_none());
            let done = lz::advance(self.level, variant, blocks_at_a_time, bytes);
            let end = Instant::now();
            let time = end - start;
            start = end;
            worked.count(bit::<F>(variant, is_pair), &blocks[first..first + before], first, time);
            if is_watched {
                let loop_of = |(race, arm): (&Race, Option<usize>)| Some(race.arms()[arm?]);
                let of_pair = || loop_of((&self.pairs, pair_arm));
                let name = loop_of((&self.single, single_arm)).or_else(of_pair).unwrap_or(ALONE);
                tally::count(self.codec.name(), name, done, time);
            }
            // The ends of the last blocks take longer for each byte, whatever the loop.
            let is_whole_turn = done >= bytes / 2;
            if is_whole_turn || is_first_turn && done >= TIMED_BYTES_MIN {
                for (race, arm) in [(&self.pairs, pair_arm), (&self.single, single_arm)] {
                    if let Some(arm) = arm {
                        race.record(arm, done as u64, time);
                    }
                }
            }
            is_first_turn = false;
            let fitting = fitting(turn_bytes, time, is_whole_turn);
            if fitting != turn_bytes {
                self.turn_bytes.store(fitting, Relaxed);
            }
        }
        let damaged = |source| Error::Damaged { codec: self.codec.name(), source };
        for (index, outcome) in self.checked(blocks, variants, &worked).into_iter().enumerate() {
            if let Err(source) = outcome {
                on_error(index, damaged(source));
            }
        }
    }
}

/// The bit of a variant that decodes single blocks or pairs.
pub(super) fn bit<F: Format>(variant: F::Variant, is_pair: bool) -> u64 {
    1 << (F::number(variant) + 32 * u32::from(is_pair))
}

/// The size of the next turns after one of `turn_bytes`.
fn fitting(turn_bytes: usize, time: Duration, is_whole_turn: bool) -> usize {
    if is_whole_turn && time < TURN_TIME_MIN {
        (2 * turn_bytes).min(TURN_BYTES_MAX)
    } else if time > TURN_TIME_LONG {
        (turn_bytes / 2).max(TURN_BYTES)
    } else {
        turn_bytes
    }
}

/// A ZSTD frame that must have exactly the size of the output.
fn zstd_block(input: &[u8], output: &mut [u8]) -> std::io::Result<()> {
    thread_local! {
        /// A context is 160 KB of memory, which would not be in the cache if it were made for each block.
        static CONTEXT: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
    }
    let size = CONTEXT.with_borrow_mut(|context| {
        let decompressor = match context {
            Some(decompressor) => decompressor,
            None => context.insert(Decompressor::new()?),
        };
        decompressor.decompress_to_buffer(input, output)
    })?;
    if size == output.len() {
        return Ok(());
    }
    Err(std::io::Error::other(format!("{size} bytes instead of {}", output.len())))
}

#[cfg(test)]
mod tests {
    use keirin_race::Choice;
    use keirin_testkit::columns::Random;

    use super::*;

    #[test]
    fn turns_last_longer_where_they_are_short_and_shorter_where_they_are_long() {
        let check = |turn_bytes: usize, microseconds: u64, is_whole: bool, expected: usize| {
            let time = Duration::from_micros(microseconds);
            assert_eq!(fitting(turn_bytes, time, is_whole), expected, "{turn_bytes} in {time:?}");
        };
        check(TURN_BYTES, 10, true, 2 * TURN_BYTES);
        check(TURN_BYTES, 10, false, TURN_BYTES);
        check(TURN_BYTES, 60, true, TURN_BYTES);
        check(TURN_BYTES, 500, true, TURN_BYTES);
        check(4 * TURN_BYTES, 60, true, 4 * TURN_BYTES);
        check(4 * TURN_BYTES, 500, false, 2 * TURN_BYTES);
        check(TURN_BYTES_MAX, 1, true, TURN_BYTES_MAX);
    }

    #[test]
    fn a_stream_keeps_the_loops_that_its_first_block_chose() {
        let races = Races::with_seed(0);
        let words = b"a stream of words and words, ".repeat(1000);
        let numbers: Vec<u8> =
            (0_u64..10_000).flat_map(|n| (n * 2_654_435_761 % 1000).to_le_bytes()).collect();
        let compressed = |bytes: &[u8]| Codec::Lz4.compress(bytes).expect("memory");
        let arms = |stream: &str, bytes: &[u8]| {
            let decoder = Decoder::new(Codec::Lz4, &races, stream, &compressed(bytes));
            let mut output = vec![0; bytes.len()];
            decoder.decompress(&compressed(bytes), &mut output).expect("a valid block");
            assert_eq!(output, bytes);
            (decoder.single.arms().to_vec(), decoder.single.clone())
        };
        let (first, race) = arms("a", &words);
        let (second, same) = arms("a", &numbers);
        assert_eq!(first, second);
        assert!(Arc::ptr_eq(&race, &same), "what was learned stays");
        if Level::best() != Level::portable() {
            assert_ne!(arms("b", &numbers).0, first, "another stream has other loops");
        }
    }

    #[test]
    fn two_blocks_at_a_time_may_lose_to_one() {
        let races = Races::with_seed(0);
        let blocks: Vec<Vec<u8>> = (0..5_u8).map(|block| [block, 1, 2, 3, 4, 5, 6].repeat(40_000)).collect();
        let stored: Vec<Vec<u8>> =
            blocks.iter().map(|block| Codec::Lz4.compress(block).expect("memory")).collect();
        let decoder = Decoder::new(Codec::Lz4, &races, "a", &stored[0]);
        races.set_choice("lz4_decode_pairs", Choice::Forced(ALONE.to_owned()));
        let mut outputs: Vec<Vec<u8>> = blocks.iter().map(|block| vec![0; block.len()]).collect();
        let inputs = stored.iter().map(|stored| &stored[..]);
        decoder.decompress_batch(inputs.zip(outputs.iter_mut().map(|output| &mut output[..])), |_, error| {
            panic!("a valid block: {error}")
        });
        assert_eq!(outputs, blocks);
        let calls =
            |race: &Race| race.standings().iter().map(|arm| (arm.arm, arm.calls > 0)).collect::<Vec<_>>();
        assert!(calls(&decoder.pairs).iter().all(|(arm, ran)| *ran == (*arm == ALONE)));
        assert!(calls(&decoder.single).iter().any(|(_, ran)| *ran));
    }

    #[test]
    fn loops_are_tried_where_they_can_win_and_not_where_they_cannot() {
        use keirin_kernels::lz4::Variant::{Extend, ExtendSkip, LongExtend, Shuffle, ShuffleSkip, Window};

        let level = Level::best();
        let check = |bytes: &[u8], tried: &[lz4::Variant], left_out: &[lz4::Variant]| {
            let block = Codec::Lz4.compress(bytes).expect("memory");
            let promising = lz4::Variant::promising(level, &block);
            let racing = |variant: &&lz4::Variant| lz4::Variant::racing(level).contains(variant);
            for variant in tried.iter().filter(racing) {
                assert!(promising.contains(variant), "{variant:?} in {promising:?}");
            }
            for variant in left_out {
                assert!(!promising.contains(variant), "{variant:?} in {promising:?}");
            }
        };
        let random = RefCell::new(Random::new(1));
        let below = |limit: u64| random.borrow_mut().below(limit);
        let column = |value: &dyn Fn(u64) -> u64| -> Vec<u8> {
            (0..16_384).flat_map(|row| value(row).to_le_bytes()).collect()
        };
        let counting = column(&|row| row / 4);
        let small_counts = column(&|_| if below(3) > 0 { 1 } else { below(6) });
        let prices = column(&|_| (below(50) + 1) * (90_000 + below(110_000)));
        let words = ["carefully ", "final ", "deposits ", "sleep ", "quickly ", "above ", "the "];
        let word = |_| words[usize::try_from(below(7)).expect("below 7")];
        let cut = |word: &'static str| word.bytes().take(usize::try_from(1 + below(9)).expect("below 10"));
        let prose: Vec<u8> = (0..10_000).map(word).flat_map(cut).collect();
        check(&counting, &[Window], &[LongExtend, ShuffleSkip]);
        check(&small_counts, &[ExtendSkip, Extend], &[LongExtend]);
        check(&prices, &[Shuffle, ShuffleSkip], &[Window, Extend, ExtendSkip, LongExtend]);
        check(&prose, &[Shuffle], &[Window, LongExtend]);
        check(&[], &[Shuffle], &[Window, Extend, LongExtend]);
    }
}
