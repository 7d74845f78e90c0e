//! Tests of the crate as a whole: random workloads, faults, tampering and forged bytes on a simulated disk.

pub(crate) mod hostile;
pub(crate) mod recovery;
mod retention;
pub(crate) mod simulation;
mod tampering;
mod two_writers;
