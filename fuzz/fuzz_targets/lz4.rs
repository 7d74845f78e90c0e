//! Any bytes as LZ4 blocks.

#![no_main]

#[path = "../blocks.rs"]
mod blocks;

use keirin_kernels::lz4::{Lz4, Variant};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| blocks::check::<Lz4>(bytes, &Variant::ALL));
