//! The suites by name.

mod aggregate;
mod bits;
mod blocks;
mod columns;
mod encodings;
mod filter;
mod group;
mod group_small;
mod lz4;
mod memory;
mod race;
mod snappy;
mod sort;
mod strings;

use keirin_kernels::Level;

use crate::duel::Report;

/// A named group of cases.
#[derive(Clone, Copy, Debug)]
pub struct Suite {
    /// What the command line calls it.
    pub name: &'static str,
    /// One line of help.
    pub about: &'static str,
    /// Adds the suite's cases to the report.
    pub run: fn(&mut Report),
}

/// All suites.
pub const SUITES: &[Suite] = &[
    Suite { name: "bits", about: "packed integers", run: bits::run },
    Suite { name: "encodings", about: "columns as bytes: sizes and decoding", run: encodings::run },
    Suite { name: "filter", about: "comparisons, rows kept and rows taken", run: filter::run },
    Suite { name: "group", about: "grouping, distinct counting, joining, hashing", run: group::run },
    Suite {
        name: "aggregate",
        about: "sums and extrema of columns, groups by small keys",
        run: aggregate::run,
    },
    Suite { name: "lz4", about: "LZ4 blocks decoded", run: lz4::run },
    Suite { name: "memory", about: "finding, comparing and copying bytes", run: memory::run },
    Suite { name: "race", about: "what choosing and timing a variant costs", run: race::run },
    Suite { name: "snappy", about: "Snappy blocks decoded", run: snappy::run },
    Suite { name: "sort", about: "sorting rows, and the first few of many", run: sort::run },
    Suite { name: "strings", about: "operators on columns of text", run: strings::run },
];

/// The best level, which is what a user gets, and those below it.
fn engines() -> impl Iterator<Item = (String, Level)> {
    Level::available().iter().rev().map(|level| {
        let engine = if *level == Level::best() { "keirin".to_owned() } else { format!("keirin:{level}") };
        (engine, *level)
    })
}
