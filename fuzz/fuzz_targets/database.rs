//! Any bytes as a file of a database whose checksums match: an error, or what has the rows that it says.

#![no_main]

use keirin_storage::fuzzing;
use keirin_storage::part::Verify;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&[kind, low, high], bytes)) = input.split_first_chunk::<3>() else { return };
    let number = usize::from(low) | usize::from(high) << 8;
    match kind % 4 {
        0 => fuzzing::record(bytes),
        1 => fuzzing::deletions(bytes, number as u64),
        // Never, so that what a checksum would have found is decoded, too.
        kind => {
            let (blocks, footer) = bytes.split_at(number.min(bytes.len()));
            fuzzing::part(blocks, footer, if kind == 2 { Verify::Always } else { Verify::Never });
        }
    }
});
