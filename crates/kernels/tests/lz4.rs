//! LZ4 blocks of every shape, and what is left of them after damage, by every variant at every level, from and
//! into buffers that end where memory ends or begin where it begins, against a decoder of one byte at a time.

#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

use keirin_kernels::Level;
use keirin_kernels::lz::{self, Block, DecodeError, Reason};
use keirin_kernels::lz4::{Lz4, Variant};
use keirin_testkit::columns::Random;
use keirin_testkit::oracle;
use keirin_testkit::oracle::lz::{Sequence, Shape};
use proptest::prelude::*;

mod guard;

use guard::AtPageEnd;

type Outcome = Result<Vec<u8>, DecodeError>;

/// What is there before a block is decoded, and must never be seen after.
const STALE: u8 = 0xA5;

fn sizes() -> Vec<usize> {
    if cfg!(miri) { vec![0, 5, 200, 700] } else { vec![0, 1, 5, 13, 64, 100, 150, 300, 1_000, 5_000, 70_000] }
}

fn ways() -> impl Iterator<Item = (Level, Variant)> + Clone {
    Level::available().iter().flat_map(|level| Variant::ALL.map(|variant| (*level, variant)))
}

fn single(level: Level, variant: Variant, input: &[u8], output: &mut [u8]) -> Outcome {
    output.fill(STALE);
    let outcome = lz::decode::<Lz4>(level, variant, input, output);
    finish(outcome, output)
}

/// The outcome with the bytes; after an error they are zeros.
fn finish(outcome: Result<(), DecodeError>, output: &[u8]) -> Outcome {
    if outcome.is_err() {
        assert!(output.iter().all(|byte| *byte == 0), "an error shows bytes");
    }
    outcome.map(|()| output.to_vec())
}

/// What comes out, which is the same by all variants.
fn check(input: &[u8], size: usize) -> Outcome {
    let outcome = check_at(input, size, AtPageEnd::new);
    assert_eq!(check_at(input, size, AtPageEnd::begins_a_page), outcome);
    outcome
}

/// Decodes two blocks side by side.
fn decode_pair(
    level: Level,
    variant: Variant,
    inputs: [&[u8]; 2],
    outputs: [&mut [u8]; 2],
) -> [Result<(), DecodeError>; 2] {
    let [first, second] = outputs;
    let mut blocks = [Block::<Lz4>::new(inputs[0], first), Block::new(inputs[1], second)];
    lz::advance(level, variant, &mut blocks, usize::MAX);
    blocks.map(|block| block.outcome().expect("all bytes were asked for"))
}

/// The same, between pages that cannot be read.
fn check_at(input: &[u8], size: usize, place: fn(&[u8]) -> AtPageEnd<u8>) -> Outcome {
    let naive = oracle::lz::lz4(input, size).filter(|bytes| bytes.len() == size);
    let input = place(input);
    let mut output = place(&vec![STALE; size]);
    let expected = single(Level::portable(), Variant::Exact, &input, &mut output);
    assert_eq!(expected.as_ref().ok(), naive.as_ref());
    for (level, variant) in ways() {
        let outcome = single(level, variant, &input, &mut output);
        assert_eq!(outcome, expected, "{level} {}", variant.name());
        let mut other = place(&vec![STALE; size]);
        output.fill(STALE);
        let outcomes = decode_pair(level, variant, [&input, &input], [&mut output, &mut other]);
        for (outcome, output) in outcomes.into_iter().zip([&output, &other]) {
            assert_eq!(finish(outcome, output), expected, "{level} {} side by side", variant.name());
        }
    }
    expected
}

fn block(shape: Shape, size: usize, seed: u64) -> (Vec<u8>, Vec<u8>) {
    let mut random = Random::new(seed);
    let sequences = if size == 0 { Vec::new() } else { shape.sequences(size, &mut random) };
    let last: Vec<u8> = (0..random.below(20)).map(|byte| byte as u8).collect();
    let block = oracle::lz::lz4_block(&sequences, &last);
    let output = oracle::lz::lz4(&block, usize::MAX).expect("a valid block");
    (block, output)
}

#[test]
fn every_variant_decodes_every_shape() {
    for (index, shape) in Shape::ALL.into_iter().enumerate() {
        for size in sizes() {
            let (block, output) = block(shape, size, index as u64);
            assert_eq!(check(&block, output.len()), Ok(output));
        }
    }
}

#[test]
fn every_offset_up_to_130_repeats_its_pattern() {
    let lengths = if cfg!(miri) { vec![4, 70] } else { (4..100).chain([255, 300, 1_000]).collect() };
    for offset in (1..=130).step_by(if cfg!(miri) { 31 } else { 1 }) {
        let first = Sequence { literals: (0..offset as u8).collect(), offset, length: 4 };
        let matches = lengths.iter().map(|length| Sequence { literals: vec![7, 8], offset, length: *length });
        let sequences: Vec<_> = [first].into_iter().chain(matches).collect();
        let block = oracle::lz::lz4_block(&sequences, &[1; 100]);
        let output = oracle::lz::lz4(&block, usize::MAX).expect("a valid block");
        assert_eq!(check(&block, output.len()), Ok(output), "{offset}");
    }
}

#[test]
fn blocks_side_by_side_do_not_disturb_each_other() {
    let blocks: Vec<_> =
        sizes().into_iter().enumerate().map(|(index, size)| block(Shape::ALL[index % 6], size, 9)).collect();
    for (level, variant) in ways() {
        for (a, (first, second)) in blocks.iter().zip(blocks.iter().rev()).enumerate() {
            let mut outputs =
                [AtPageEnd::new(&vec![STALE; first.1.len()]), AtPageEnd::new(&vec![STALE; second.1.len()])];
            let [left, right] = &mut outputs;
            // The second of every third pair is damaged; the first must not notice.
            let cut = if a % 3 == 0 { second.0.len() - 1 } else { second.0.len() };
            let inputs = [AtPageEnd::new(&first.0), AtPageEnd::new(&second.0[..cut])];
            let outcomes = decode_pair(level, variant, [&inputs[0], &inputs[1]], [left, right]);
            assert_eq!(outcomes[0], Ok(()));
            assert_eq!(&outputs[0][..], first.1);
            assert_eq!(finish(outcomes[1], &outputs[1]).is_ok(), a % 3 != 0);
            if a % 3 != 0 {
                assert_eq!(&outputs[1][..], second.1);
            }
        }
    }
}

#[test]
fn blocks_can_be_decoded_piece_by_piece_by_changing_variants() {
    let size = if cfg!(miri) { 400 } else { 50_000 };
    let blocks: Vec<_> = (0..5).map(|seed| block(Shape::ALL[seed as usize], size, seed)).collect();
    for bytes in [1, 100, 6_000, 70_000].into_iter().skip(if cfg!(miri) { 2 } else { 0 }) {
        let mut outputs: Vec<_> = blocks.iter().map(|(_, output)| vec![STALE; output.len()]).collect();
        let mut decoding: Vec<_> = blocks
            .iter()
            .zip(&mut outputs)
            .map(|((input, _), output)| Block::<Lz4>::new(input, output))
            .collect();
        let mut written = 0;
        let mut ways = ways().cycle();
        while decoding.iter().any(|block| block.outcome().is_none()) {
            let (level, variant) = ways.next().expect("a cycle");
            let more = lz::advance(level, variant, &mut decoding, bytes);
            assert!(more > 0, "no progress");
            written += more;
        }
        assert!(decoding.iter().all(|block| block.outcome() == Some(Ok(()))));
        assert_eq!(written, blocks.iter().map(|(_, output)| output.len()).sum::<usize>());
        assert!(blocks.iter().zip(&outputs).all(|((_, expected), output)| expected == output));
    }
}

#[test]
fn damaged_blocks_are_refused_or_have_the_declared_length() {
    for (index, shape) in Shape::ALL.into_iter().enumerate().take(if cfg!(miri) { 1 } else { 6 }) {
        let (block, output) = block(shape, if cfg!(miri) { 150 } else { 400 }, index as u64);
        for cut in (0..block.len()).step_by(if cfg!(miri) { 20 } else { 1 }) {
            assert!(check(&block[..cut], output.len()).is_err());
        }
        for at in (0..block.len()).step_by(if cfg!(miri) { 20 } else { 1 }) {
            for change in [0x01, 0xF0] {
                let mut damaged = block.clone();
                damaged[at] ^= change;
                // `check` compares all; what comes out is not ours to say.
                let _ = check(&damaged, output.len());
            }
        }
        assert!(check(&block, output.len() + 1).is_err());
        assert!(check(&block, output.len() - 1).is_err());
    }
}

#[test]
fn errors_name_the_place() {
    let check = |input: &[u8], size, position, reason| {
        assert_eq!(check(input, size), Err(DecodeError { position, reason }));
    };
    check(&[], 0, 0, Reason::InputEnds);
    check(&[0x10], 1, 1, Reason::InputEnds);
    check(&[0x10, 1], 2, 2, Reason::OutputShort(1));
    check(&[0x20, 1, 2], 1, 1, Reason::OutputFull);
    check(&[0xF0, 255, 255], 1_000, 3, Reason::InputEnds);
    check(&[0x10, 1, 0, 0, 0], 5, 2, Reason::Offset { offset: 0, written: 1 });
    check(&[0x10, 1, 2, 0, 0], 5, 2, Reason::Offset { offset: 2, written: 1 });
    check(&[0x10, 1, 1], 5, 3, Reason::InputEnds);
    check(&[0x10, 1, 1, 0, 0], 4, 2, Reason::OutputFull);
    check(&[0x1F, 1, 1, 0, 255, 255, 255], 1_000, 7, Reason::InputEnds);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 300 }))]

    #[test]
    fn no_bytes_are_decoded_differently_by_two_variants(
        input in prop::collection::vec(prop_oneof![Just(0_u8), Just(255), any::<u8>(), 0x10..0x20_u8], 0..400),
        size in 0..2_000_usize,
    ) {
        let _ = check(&input, size);
    }

    #[test]
    fn what_another_encoder_makes_comes_back(text in prop::collection::vec(b'a'..b'e', 0..3_000)) {
        let block = lz4_flex::block::compress(&text);
        prop_assert_eq!(check(&block, text.len()), Ok(text));
    }
}

#[test]
fn blocks_end_however_few_bytes_are_asked_for_at_once() {
    let size = if cfg!(miri) { 300 } else { 5_000 };
    let (input, expected) = block(Shape::ALL[0], size, 1);
    for bytes in 1..5 {
        let mut outputs = [(); 2].map(|()| vec![STALE; expected.len()]);
        let [first, second] = &mut outputs;
        let mut blocks = [Block::<Lz4>::new(&input, first), Block::new(&input, second)];
        let mut turns = 0;
        while blocks.iter().any(|block| block.outcome().is_none()) {
            lz::advance(Level::best(), Variant::Plain, &mut blocks, bytes);
            turns += 1;
            assert!(turns <= 2 * expected.len() + 2, "{bytes} bytes at once");
        }
        assert_eq!(outputs, [expected.clone(), expected.clone()]);
    }
}

#[test]
fn a_batch_of_blocks_of_all_sizes_comes_back() {
    let blocks: Vec<_> = (0..40_u64)
        .map(|index| {
            block(
                Shape::ALL[index as usize % Shape::ALL.len()],
                [3000, 0, 1, 70, 0, 1][index as usize % 6],
                index,
            )
        })
        .collect();
    let mut outputs: Vec<_> = blocks.iter().map(|(_, output)| vec![STALE; output.len()]).collect();
    let pairs = blocks.iter().zip(&mut outputs);
    let mut batch: Vec<_> = pairs.map(|((input, _), output)| Block::<Lz4>::new(input, output)).collect();
    while batch.iter().any(|block| block.outcome().is_none()) {
        lz::advance(Level::best(), Variant::Plain, &mut batch, 5000);
    }
    assert!(batch.iter().all(|block| block.outcome() == Some(Ok(()))));
    drop(batch);
    assert!(outputs.iter().zip(&blocks).all(|(output, (_, expected))| output == expected));
}
