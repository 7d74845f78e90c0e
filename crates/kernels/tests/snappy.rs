//! Snappy blocks of every shape, and what is left of them after damage, by every variant at every level, from
//! and into buffers that end where memory ends, against a decoder of one byte at a time.

#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

use keirin_kernels::Level;
use keirin_kernels::lz::{self, Block, DecodeError, Reason};
use keirin_kernels::snappy::{Snappy, Variant, decoded_len};
use keirin_testkit::columns::Random;
use keirin_testkit::oracle;
use keirin_testkit::oracle::lz::Shape;
use proptest::prelude::*;

mod guard;

use guard::AtPageEnd;

type Outcome = Result<Vec<u8>, DecodeError>;

/// What is there before a block is decoded, and must never be seen after.
const STALE: u8 = 0xA5;

fn ways() -> impl Iterator<Item = (Level, Variant)> {
    Level::available().iter().flat_map(|level| Variant::ALL.map(|variant| (*level, variant)))
}

/// The outcome with the bytes; after an error they are zeros.
fn finish(outcome: Result<(), DecodeError>, output: &[u8]) -> Outcome {
    if outcome.is_err() {
        assert!(output.iter().all(|byte| *byte == 0), "an error shows bytes");
    }
    outcome.map(|()| output.to_vec())
}

/// What comes out, which is the same by all variants, alone and beside another block.
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
    let mut blocks = [Block::<Snappy>::new(inputs[0], first), Block::new(inputs[1], second)];
    lz::advance(level, variant, &mut blocks, usize::MAX);
    blocks.map(|block| block.outcome().expect("all bytes were asked for"))
}

/// The same, between pages that cannot be read.
fn check_at(input: &[u8], size: usize, place: fn(&[u8]) -> AtPageEnd<u8>) -> Outcome {
    let naive = oracle::lz::snappy(input, size).filter(|bytes| bytes.len() == size);
    let input = place(input);
    let mut output = place(&vec![STALE; size]);
    let mut beside = vec![STALE; size];
    let outcome = lz::decode::<Snappy>(Level::portable(), Variant::Exact, &input, &mut output);
    let expected = finish(outcome, &output);
    assert_eq!(expected.as_ref().ok(), naive.as_ref());
    for (level, variant) in ways() {
        output.fill(STALE);
        let outcome = lz::decode::<Snappy>(level, variant, &input, &mut output);
        assert_eq!(finish(outcome, &output), expected, "{level} {}", variant.name());
        output.fill(STALE);
        beside.fill(STALE);
        let outcomes = decode_pair(level, variant, [&input; 2], [&mut beside, &mut output]);
        assert_eq!(finish(outcomes[0], &beside), expected, "{level} {} first", variant.name());
        assert_eq!(finish(outcomes[1], &output), expected, "{level} {} second", variant.name());
    }
    expected
}

fn block(shape: Shape, size: usize, seed: u64) -> (Vec<u8>, Vec<u8>) {
    let mut random = Random::new(seed);
    let sequences = if size == 0 { Vec::new() } else { shape.sequences(size, &mut random) };
    let last: Vec<u8> = (0..random.below(20)).map(|byte| byte as u8).collect();
    oracle::lz::snappy_block(&sequences, &last)
}

#[test]
fn every_variant_decodes_every_shape() {
    let sizes: &[usize] =
        if cfg!(miri) { &[0, 200, 500] } else { &[0, 1, 5, 13, 64, 100, 150, 300, 1_000, 5_000, 70_000] };
    for (index, shape) in Shape::ALL.into_iter().enumerate() {
        for size in sizes {
            let (block, output) = block(shape, *size, index as u64);
            assert_eq!(check(&block, output.len()), Ok(output));
        }
    }
}

#[test]
fn damaged_blocks_are_refused_or_have_the_declared_length() {
    let step = if cfg!(miri) { 30 } else { 1 };
    for (index, shape) in Shape::ALL.into_iter().enumerate().take(if cfg!(miri) { 1 } else { 6 }) {
        let (block, output) = block(shape, if cfg!(miri) { 150 } else { 400 }, index as u64);
        for cut in (0..block.len()).step_by(step) {
            assert!(check(&block[..cut], output.len()).is_err());
        }
        for at in (0..block.len()).step_by(step) {
            for change in [0x01, 0xF2] {
                let mut damaged = block.clone();
                damaged[at] ^= change;
                // `check` compares all; what comes out is not ours to say.
                let _ = check(&damaged, output.len());
            }
        }
        assert!(check(&block, output.len() + 1).is_err());
    }
}

#[test]
fn errors_name_the_place() {
    let check = |input: &[u8], size, position, reason| {
        assert_eq!(check(input, size), Err(DecodeError { position, reason }));
    };
    check(&[], 0, 0, Reason::Header);
    check(&[0x80], 0, 0, Reason::Header);
    check(&[0xFF; 6], 0, 0, Reason::Header);
    check(&[1, 0, 7], 2, 0, Reason::Header);
    check(&[2, 0, 7], 2, 3, Reason::OutputShort(1));
    check(&[1, 4, 7, 7], 1, 2, Reason::OutputFull);
    check(&[2, 4, 7], 2, 2, Reason::InputEnds);
    check(&[2, 0xF0], 2, 2, Reason::InputEnds);
    check(&[5, 0, 7, 1, 0], 5, 4, Reason::Offset { offset: 0, written: 1 });
    check(&[5, 0, 7, 1, 2], 5, 4, Reason::Offset { offset: 2, written: 1 });
    check(&[5, 0, 7, 3, 1, 0, 0], 5, 7, Reason::InputEnds);
    check(&[4, 0, 7, 1, 1], 4, 4, Reason::OutputFull);
}

#[test]
fn the_declared_size_is_read_without_a_decoder() {
    assert_eq!(decoded_len(&[]), None);
    assert_eq!(decoded_len(&[0]), Some((0, 1)));
    assert_eq!(decoded_len(&[0xFE, 0xFF, 0x7F, 9]), Some((2_097_150, 3)));
    assert_eq!(decoded_len(&[0xFF, 0xFF, 0xFF, 0xFF, 0x0F]), Some((u32::MAX, 5)));
    assert_eq!(decoded_len(&[0xFF, 0xFF, 0xFF, 0xFF, 0x1F]), None);
    assert_eq!(decoded_len(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x00]), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 200 }))]

    #[test]
    fn no_bytes_are_decoded_differently_by_two_variants(
        elements in prop::collection::vec(prop_oneof![Just(0_u8), Just(5), any::<u8>(), 0xE0..=0xFF_u8], 0..400),
        size in 0..2_000_usize,
    ) {
        let mut input = oracle::lz::varint(size);
        input.extend(elements);
        let _ = check(&input, size);
    }

    #[test]
    fn what_another_encoder_makes_comes_back(text in prop::collection::vec(b'a'..b'e', 0..3_000)) {
        let block = snap::raw::Encoder::new().compress_vec(&text).expect("a small block");
        prop_assert_eq!(check(&block, text.len()), Ok(text));
    }
}
