//! Any bytes as Snappy blocks.

#![no_main]

#[path = "../blocks.rs"]
mod blocks;

use keirin_kernels::snappy::{Snappy, Variant};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| blocks::check::<Snappy>(bytes, &Variant::ALL));
