//! The suites by name.

mod memory;
mod race;
mod sort;
mod strings;

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
    Suite { name: "memory", about: "finding, comparing and copying bytes", run: memory::run },
    Suite { name: "race", about: "what choosing and timing a variant costs", run: race::run },
    Suite { name: "sort", about: "sorting rows, and the first few of many", run: sort::run },
    Suite { name: "strings", about: "operators on columns of text", run: strings::run },
];
