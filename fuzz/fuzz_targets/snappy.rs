//! Any bytes as Snappy blocks: every variant at every level, alone, beside another block and in pieces, from and
//! into buffers of exactly their size, gives the bytes and the error of the exact loop.

#![no_main]

use keirin_kernels::Level;
use keirin_kernels::lz::{self, Block};
use keirin_kernels::snappy::{Snappy, Variant};
use libfuzzer_sys::fuzz_target;

/// What was in the output before, and must not be seen after.
const STALE: u8 = 0xA5;

fuzz_target!(|bytes: &[u8]| {
    let Some((&[low, high, cut], rest)) = bytes.split_first_chunk::<3>() else { return };
    let size = usize::from(low) | usize::from(high) << 8;
    let at = rest.len() * usize::from(cut) / 255;
    // The size in front, so that nearly all inputs come to the elements.
    let header = [low | 0x80, (high << 1 | low >> 7) | 0x80, high >> 6];
    // Of their own, so that the sanitizer sees their ends.
    let inputs = [[&header[..], &rest[..at]].concat(), [&header[..], &rest[at..]].concat()];
    let expected = inputs.each_ref().map(|input| {
        let mut output = vec![STALE; size];
        let outcome = lz::decode::<Snappy>(Level::portable(), Variant::Exact, input, &mut output);
        assert!(outcome.is_ok() || output.iter().all(|byte| *byte == 0));
        (outcome, output)
    });
    for level in Level::available() {
        for variant in Variant::ALL {
            let mut outputs = [(); 2].map(|()| vec![STALE; size]);
            let [first, second] = &mut outputs;
            let outcomes =
                lz::decode_pair::<Snappy>(*level, variant, [&inputs[0], &inputs[1]], [first, second]);
            for index in 0..2 {
                assert_eq!(outcomes[index], expected[index].0, "{level} {variant:?} pair");
                assert!(outputs[index] == expected[index].1, "{level} {variant:?} pair");
            }
            let mut output = vec![STALE; size];
            let outcome = lz::decode::<Snappy>(*level, variant, &inputs[0], &mut output);
            assert_eq!(outcome, expected[0].0, "{level} {variant:?}");
            assert!(output == expected[0].1, "{level} {variant:?}");
        }
    }
    let mut output = vec![STALE; size];
    let mut blocks = [Block::<Snappy>::new(&inputs[0], &mut output)];
    let mut variants = Variant::ALL.into_iter().cycle();
    while blocks[0].outcome().is_none() {
        lz::advance(Level::best(), variants.next().expect("a cycle"), &mut blocks, 1000);
    }
    assert_eq!(blocks[0].outcome(), Some(expected[0].0));
    assert!(output == expected[0].1);
});
