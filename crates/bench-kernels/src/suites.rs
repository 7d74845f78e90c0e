//! The suites by name.

mod race;

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
pub const SUITES: &[Suite] =
    &[Suite { name: "race", about: "what choosing and timing a variant costs", run: race::run }];
