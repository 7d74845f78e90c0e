//! Which of several implementations of a loop is fastest, on this CPU and this data.
//!
//! A [`Race`] has arms, one for each implementation. For every block of work it picks an arm by Thompson
//! sampling, and learns from the time that the arm took; [`Races`] holds all races of a program, gives new
//! ones a start from what similar ones know, and turns what was learned into text and back.
//!
//! ```
//! use keirin_race::Races;
//!
//! let races = Races::default();
//! let race = races.race("sum", "few keys", "trips.passenger_count", &["plain", "runs"]);
//! let values = vec![1_u64; 65_536];
//! let sum = race.run(values.len() as u64, |arm| match arm {
//!     0 => values.iter().sum::<u64>(),
//!     _ => values.chunk_by(|a, b| a == b).map(|run| run[0] * run.len() as u64).sum(),
//! });
//! assert_eq!(sum, 65_536);
//! println!("{:?}", race.standings());
//! ```
//!
//! Modules: `arm` is what is believed of one implementation, `race` chooses, `checks` finds arms that are wrong, `races` keeps, `text` saves,
//! by the name that `cpu` finds.
//! Threads share races without locks. One choice costs 50 to 80 ns and the readings of the clock, so a race
//! is run once a block (20 µs of work or more), never once a value. A race does not know what its arms do;
//! the caller offers only those that the CPU has, the first of which is the reference.

#![forbid(unsafe_code)]

mod arm;
mod checks;
mod cpu;
mod race;
mod races;
mod text;

pub use checks::{Checks, Fault};
pub use cpu::cpu_name;
pub use race::{ARM_COUNT_MAX, Race, Standing, UnknownArm};
pub use races::{Choice, Races};
pub use text::LoadError;
