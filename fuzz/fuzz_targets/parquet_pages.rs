//! Any bytes as the pages of a Parquet column chunk: each is refused, or has the bytes that its header declares.
//!
//! The modules are the engine's own; a build of all of the engine would be too slow to fuzz with.

#![no_main]

use std::sync::Arc;

use bytes::Bytes;
use keirin_codecs::blocks::Codec;
use libfuzzer_sys::fuzz_target;
use parquet::column::page::PageReader;

use decoders::Decoders;
use pages::{Pages, Place, Slot, Stored};

#[path = "../../crates/engine/src/sources/files/parquet/buffers.rs"]
mod buffers;
#[path = "../../crates/engine/src/sources/files/parquet/decoders.rs"]
mod decoders;
#[path = "../../crates/engine/src/sources/files/parquet/deltas.rs"]
mod deltas;
#[path = "../../crates/engine/src/sources/files/parquet/header.rs"]
mod header;
#[path = "../../crates/engine/src/sources/files/parquet/levels.rs"]
mod levels;
#[path = "../../crates/engine/src/sources/files/parquet/pages.rs"]
mod pages;
#[path = "../../crates/engine/src/sources/files/parquet/runs.rs"]
#[allow(dead_code, reason = "of runs, levels are only counted here")]
mod runs;
#[path = "../../crates/engine/src/sources/files/parquet/suffixes.rs"]
mod suffixes;

const CODECS: [Codec; 4] = [Codec::None, Codec::Lz4, Codec::Snappy, Codec::Zstd(0)];
/// What a hostile chunk may make of itself, in pages: the fuzzer asks for no more.
const PAGES_MAX: usize = 100;

// A byte for the codec and how pages are asked for, one for the highest levels, then a chunk.
fuzz_target!(|bytes: &[u8]| {
    let Some((&[how, levels_max], chunk)) = bytes.split_first_chunk() else { return };
    let chunk = Bytes::copy_from_slice(chunk);
    let is_listed = how & 8 != 0;
    let stored = if is_listed {
        let half = chunk.len() / 2;
        let slots = [(None, 0..half), (Some(1), half..chunk.len())];
        let slot = |(rows, range): (_, std::ops::Range<usize>)| {
            Slot { at: range.start as u64, rows, bytes: Some(chunk.slice(range)) }
        };
        Stored::Listed { slots: slots.map(slot).into(), is_flat: how & 64 != 0 }
    } else {
        Stored::Whole { at: 0, bytes: chunk, values: u64::from(how >> 4) }
    };
    let place = Place { column: "c".into(), row_group: 0 };
    let decoders = Arc::new(Decoders::new(Arc::default()));
    let codec = CODECS[usize::from(how & 3)];
    let mut pages = Pages::new(place, stored, codec, decoders, Default::default(), how & 4 != 0);
    if levels_max != 0 {
        pages = pages.checked([levels_max >> 4, levels_max & 15].map(i16::from));
    }
    for turn in 0..PAGES_MAX {
        if how & 16 != 0 && turn % 3 == 1 {
            let _ = pages.peek_next_page();
            let _ = pages.at_record_boundary();
        }
        if how & 32 != 0 && turn % 5 == 2 && pages.skip_next_page().is_err() {
            break;
        }
        match pages.get_next_page() {
            Ok(Some(page)) => std::hint::black_box(page.buffer().iter().fold(0_u8, |all, byte| all ^ byte)),
            Ok(None) | Err(_) => break,
        };
    }
    // Nothing comes after an error or the end.
    let _ = pages.get_next_page();
});
