//! Any bytes as compressed blocks: every variant at every level, alone, beside another block and in pieces, from
//! and into buffers of exactly their size, gives the bytes and the error of the exact loop.

use std::fmt::Debug;

use keirin_kernels::Level;
use keirin_kernels::lz::{self, Block, Format};

/// What was in the output before, and must not be seen after.
const STALE: u8 = 0xA5;

/// Two bytes of output size and one that says where the input is cut in two, then two blocks. The first of the
/// variants is the exact loop.
pub fn check<F: Format>(bytes: &[u8], variants: &[F::Variant])
where
    F::Variant: Debug,
{
    let Some((&[low, high, cut], rest)) = bytes.split_first_chunk::<3>() else { return };
    let size = usize::from(low) | usize::from(high) << 8;
    let at = rest.len() * usize::from(cut) / 255;
    // Of their own, so that the sanitizer sees their ends.
    let inputs = [&rest[..at], &rest[at..]].map(Box::<[u8]>::from);
    let outputs = || [(); 2].map(|()| vec![STALE; size].into_boxed_slice());
    let expected = inputs.each_ref().map(|input| {
        let [mut output, _] = outputs();
        let outcome = lz::decode::<F>(Level::portable(), variants[0], input, &mut output);
        assert!(outcome.is_ok() || output.iter().all(|byte| *byte == 0));
        (outcome, output)
    });
    for level in Level::available() {
        for variant in variants {
            let mut outputs = outputs();
            let [first, second] = &mut outputs;
            let mut blocks = [Block::<F>::new(&inputs[0], first), Block::new(&inputs[1], second)];
            lz::advance(*level, *variant, &mut blocks, usize::MAX);
            let outcomes = blocks.map(|block| block.outcome());
            for index in 0..2 {
                assert_eq!(outcomes[index], Some(expected[index].0), "{level} {variant:?} pair");
                assert!(outputs[index] == expected[index].1, "{level} {variant:?} pair");
            }
            let output = &mut outputs[0];
            output.fill(STALE);
            let outcome = lz::decode::<F>(*level, *variant, &inputs[0], output);
            assert_eq!(outcome, expected[0].0, "{level} {variant:?}");
            assert!(*output == expected[0].1, "{level} {variant:?}");
        }
    }
    // Another variant every thousand bytes, in the middle of both blocks.
    let mut outputs = outputs();
    let [first, second] = &mut outputs;
    let mut blocks = [Block::<F>::new(&inputs[0], first), Block::new(&inputs[1], second)];
    let mut variants = variants.iter().cycle();
    while blocks.iter().any(|block| block.outcome().is_none()) {
        lz::advance(Level::best(), *variants.next().expect("a cycle"), &mut blocks, 1000);
    }
    for (block, (outcome, _)) in blocks.iter().zip(&expected) {
        assert_eq!(block.outcome(), Some(*outcome));
    }
    for (output, (_, expected)) in outputs.iter().zip(&expected) {
        assert!(output == expected);
    }
}
