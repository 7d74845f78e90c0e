//! LZ4 blocks decoded: each variant over single blocks and over pairs, the race, liblz4 and lz4_flex.
//!
//! A case is a file or column in blocks of one size, 8 MiB of it, repeated if it is smaller. Outputs are hot:
//! all lanes decode into the same few blocks in turn. `liblz4` is `LZ4_decompress_safe`; `keirin:cold` starts a
//! new race for each 8 MiB, `keirin` goes on with what it knows.

use std::hint::black_box;

use keirin_kernels::Level;
use keirin_kernels::lz::{self, Block};
use keirin_kernels::lz4::{Lz4, Variant};
use keirin_race::Race;

use crate::corpora;
use crate::duel::{Lane, Report, Unit};
use crate::geomean::Geomeans;

const BLOCK_BYTES: [(usize, &str); 2] = [(64 << 10, "64 KiB"), (1 << 20, "1 MiB")];
const CASE_BYTES: usize = 8 << 20;
/// So many bytes of output are decoded at once.
const BATCH_BYTES: usize = 512 << 10;

/// Adds the cases.
pub(super) fn run(report: &mut Report) {
    let corpora = corpora::all(report.is_quick());
    for (block_bytes, size) in BLOCK_BYTES {
        let mut geomeans = Geomeans::default();
        for (name, bytes) in &corpora {
            let case = format!("{name}, {size}");
            if report.wants(&case) {
                column(report, &case, bytes, block_bytes, &mut geomeans);
            }
        }
        geomeans.print(&format!("geomean, {size}"));
    }
}

fn column(report: &mut Report, case: &str, bytes: &[u8], block_bytes: usize, geomeans: &mut Geomeans) {
    let level = Level::best();
    let compress =
        |block: &[u8]| lz4::block::compress(block, None, false).expect("a block can be compressed");
    let distinct: Vec<(Vec<u8>, usize)> =
        bytes.chunks(block_bytes).map(|block| (compress(block), block.len())).collect();
    let total: usize = bytes.len();
    let stored: usize = distinct.iter().map(|(input, _)| input.len()).sum();
    if stored * 20 > total * 19 {
        return;
    }
    let mut blocks: Vec<(&[u8], usize)> = Vec::new();
    let mut count = 0;
    while count < CASE_BYTES {
        blocks.extend(distinct.iter().map(|(input, size)| (&input[..], *size)));
        count += total;
    }
    let batch_count = (BATCH_BYTES / block_bytes).max(2);
    let mut output = vec![0; batch_count * block_bytes];
    let variants = Variant::racing(level);
    let names: Vec<_> = variants.iter().map(|variant| variant.name()).collect();
    let race = Race::new(&names, 0);
    let mut lanes = Vec::new();
    let blocks = &blocks;
    let output = std::cell::RefCell::new(&mut output);
    let output = &output;
    let each = |decode: &dyn Fn(&[u8], &mut [u8])| {
        let mut output = output.borrow_mut();
        for batch in blocks.chunks(batch_count) {
            for ((input, size), output) in batch.iter().zip(output.chunks_mut(block_bytes)) {
                decode(input, &mut output[..*size]);
            }
        }
        ends(&output)
    };
    lanes.push(Lane::new("liblz4", || {
        each(&|input, output| {
            let size = i32::try_from(output.len()).expect("a small block");
            lz4::block::decompress_to_buffer(input, Some(size), output).expect("a valid block");
        })
    }));
    lanes.push(Lane::new("lz4_flex", || {
        each(&|input, output| {
            lz4_flex::block::decompress_into(input, output).expect("a valid block");
        })
    }));
    let mut copied = vec![0; batch_count * block_bytes];
    let expected = each(&|input, output| {
        lz::decode::<Lz4>(level, Variant::Plain, input, output).expect("a valid block");
    });
    lanes.push(Lane::new("memcpy", move || {
        for batch in blocks.chunks(batch_count) {
            for ((_, size), output) in batch.iter().zip(copied.chunks_mut(block_bytes)) {
                output[..*size].copy_from_slice(black_box(&bytes[..*size]));
            }
        }
        expected
    }));
    for variant in Variant::racing(level) {
        lanes.push(Lane::new(&format!("keirin:{}", variant.name()), || {
            each(&|input, output| {
                lz::decode::<Lz4>(level, *variant, input, output).expect("a valid block");
            })
        }));
    }
    let batches = |advance: &mut dyn FnMut(&mut [Block<'_, Lz4>]) -> usize| {
        let mut output = output.borrow_mut();
        for batch in blocks.chunks(batch_count) {
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
        ends(&output)
    };
    for variant in Variant::racing(level) {
        lanes.push(Lane::new(&format!("keirin:{}x2", variant.name()), || {
            batches(&mut |blocks| lz::advance(level, *variant, blocks, usize::MAX))
        }));
    }
    let raced = |race: &Race| {
        batches(&mut |blocks| {
            let arm = race.choose();
            let start = std::time::Instant::now();
            let bytes = lz::advance(level, variants[arm], blocks, 128 << 10);
            race.record(arm, bytes as u64, start.elapsed());
            bytes
        })
    };
    lanes.push(Lane::new("keirin:cold", || raced(&Race::new(&names, 1))));
    lanes.push(Lane::new("keirin", || raced(&race)));
    let engines: Vec<String> = lanes.iter().map(|lane| lane.engine().to_owned()).collect();
    let speeds = report.case(case, Unit::Bytes, count, lanes);
    geomeans.add(case, &engines, &speeds);
}

/// Enough of the bytes to see that they are the right ones.
fn ends(bytes: &[u8]) -> u64 {
    let step = (bytes.len() / 1000).max(1);
    bytes.iter().step_by(step).fold(0, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}
