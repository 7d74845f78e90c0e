//! What is done with rows, a chunk at a time: the operators of a query, without SQL, Arrow or I/O. None begins threads,
//! but several may work on one grouping.
//!
//! An operator takes columns as slices and bitmaps, with the kernels' conventions of nulls and text, and keeps its
//! state between chunks. Whoever drives it knows where chunks come from.
//!
//! ```
//! use keirin_kernels::Level;
//! use keirin_operators::{Groups, KeyColumn, KeyType, KeyValues};
//!
//! let mut groups = Groups::new(&[KeyType { width: Some(4), is_nullable: false }]);
//! let mut numbers = Vec::new();
//! let keys = KeyColumn { values: KeyValues::Bytes4(&[30, 10, 30]), validity: None };
//! groups.find_or_insert(Level::best(), &[keys], 3, &mut numbers);
//! assert_eq!(numbers, [0, 1, 0]);
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`arguments`] | numbers and texts that aggregates are computed of |
//! | [`grouping`] | groups of rows that several threads have, with states of aggregates |
//! | [`groups`] | the group of each row, by keys of any number of columns |
//! | [`join`] | which rows of two sides have the same key |
//! | [`ordered`] | which rows of one side are between two bounds |
//! | [`packed`] | several key columns as one number |
//! | [`pattern`] | regular expressions without an automaton |
//! | [`states`] | what aggregates keep of each group |
//! | [`texts`] | texts by number, shared by threads |
//! | [`wide`] | sums of several words |

#![forbid(unsafe_code)]

pub mod arguments;
pub mod grouping;
pub mod groups;
mod heap;
pub mod join;
pub mod ordered;
pub mod packed;
pub mod pattern;
pub mod states;
pub mod texts;
pub mod wide;

pub use groups::{Groups, KeyColumn, KeyType, KeyValues, OwnedKeys, OwnedValues};
