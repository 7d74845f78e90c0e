//! The order of text: collations of MySQL and TiDB, and of languages, as keys that plain bytes compare.
//!
//! All that works on text (grouping, joining, sorting, hashing) compares bytes. So a collation is two maps of texts to
//! texts, and nothing else needs to know of it: a *key* has the collation's order and equality in its bytes, and
//! *folded* text has one character for all that `LIKE` takes as the same.
//!
//! ```
//! use keirin_collation::{Collation, Keys, PadOrder};
//!
//! let keys = Keys::new(Collation::find("utf8mb4_0900_ai_ci")?, PadOrder::default());
//! assert_eq!(keys.key("Straße"), keys.key("STRASSE"));
//! assert!(keys.key("Ärger") < keys.key("Zorn"));
//! assert_eq!(keys.fold("É"), keys.fold("e"));
//! # Ok::<(), keirin_collation::UnknownCollation>(())
//! ```
//!
//! Modules: `collation` says which there are, `keys` applies one, `pad` makes spaces follow texts, `weighing` keeps
//! what is made of a `table` of weights: `codes` writes weights as UTF-8, `map` maps the characters of texts; `icu` asks
//! ICU4X.
//!
//! # Promises
//! - Keys and folded texts are valid UTF-8. ASCII text keeps its length where it has one level and no character without
//!   a weight.
//! - `memcmp` of keys is the collation's order: weights follow each other as published, contractions are not made
//!   (as in MySQL and TiDB), and equal keys mean equal weights.
//! - Above U+2CEA1, `_0900_` follows the published table as MySQL does; TiDB computes weights there, so that tags and
//!   variation selectors are not ignored.

#![forbid(unsafe_code)]

mod codes;
mod collation;
#[cfg(feature = "icu")]
mod icu;
mod keys;
mod map;
mod pad;
mod table;
mod weighing;

pub use collation::{Collation, UnknownCollation};
pub use keys::{Keys, PadOrder};
