//! Any bytes as a Snappy stream: an error, or no more bytes than are allowed; and any bytes, in a stream, come back.

#![no_main]

use keirin_codecs::blocks::{Codec, Decoder, snappy_frames};
use keirin_race::Races;
use libfuzzer_sys::fuzz_target;

const LIMIT: usize = 1 << 18;

fuzz_target!(|input: &[u8]| {
    let Some((&[mode], bytes)) = input.split_first_chunk::<1>() else { return };
    let decoder = Decoder::new(Codec::Snappy, &Races::default(), "fuzz", &[]);
    match mode % 4 {
        0 => {
            let stream = snappy_frames::compress(bytes).expect("a small input");
            assert!(snappy_frames::decompress(&decoder, &stream, LIMIT).expect("what was written") == bytes);
        }
        // Behind a start of a stream, to come to the chunks.
        1 => check(&decoder, &[b"\xFF\x06\x00\x00sNaPpY", bytes].concat()),
        _ => check(&decoder, bytes),
    }
});

fn check(decoder: &Decoder, stream: &[u8]) {
    if let Ok(bytes) = snappy_frames::decompress(decoder, stream, LIMIT) {
        assert!(bytes.len() <= LIMIT);
        let again = snappy_frames::compress(&bytes).expect("no more than the limit");
        assert!(snappy_frames::decompress(decoder, &again, LIMIT).expect("what was written") == bytes);
    }
}
