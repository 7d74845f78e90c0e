//! `keirin.fast_path`: whether our own operators take over parts of a plan, `keirin.plan_cache` and the settings of collations.
//!
//! Without our operators, DataFusion's give the same answers; tests compare both.

use datafusion::common::extensions_options;
use datafusion::config::{ConfigExtension, ConfigOptions};
use keirin_collation::{Collation, PadOrder};

/// The collation that compares bytes as they are.
pub(crate) const PLAIN: &str = "utf8mb4_0900_bin";
/// The names of [`PadOrder`]s.
pub(crate) const TIDB: &str = "tidb";
pub(crate) const MYSQL: &str = "mysql";

extensions_options! {
    /// The settings that rules read from the options of a plan.
    pub(crate) struct FastPath {
        /// Whether our own operators take over parts of a plan.
        pub fast_path: bool, default = true
        /// Whether the plan of a query is kept for when its text comes again.
        pub plan_cache: bool, default = true
        /// The collation of texts for which none is declared or written.
        pub collation: String, default = PLAIN.to_owned()
        /// Whether trailing spaces count as TiDB or as MySQL has it.
        pub collation_pad_order: String, default = TIDB.to_owned()
    }
}

impl ConfigExtension for FastPath {
    const PREFIX: &'static str = "keirin";
}

/// The name of the option in DataFusion's configuration.
pub(crate) const FAST_PATH_OPTION: &str = "keirin.fast_path";

/// Whether our own operators take over parts of a plan.
pub(crate) fn is_on(options: &ConfigOptions) -> bool {
    options.extensions.get::<FastPath>().is_none_or(|options| options.fast_path)
}

/// The name of that option.
pub(crate) const PLAN_CACHE_OPTION: &str = "keirin.plan_cache";

/// Whether the plan of a query is kept for when its text comes again.
pub(crate) fn keeps_plans(options: &ConfigOptions) -> bool {
    options.extensions.get::<FastPath>().is_none_or(|options| options.plan_cache)
}

/// The names of the options for texts.
pub(crate) const COLLATION_OPTION: &str = "keirin.collation";
pub(crate) const PAD_ORDER_OPTION: &str = "keirin.collation_pad_order";

/// The collation of texts for which none is declared or written, and how spaces at the end of texts count.
pub(crate) fn collation(options: &ConfigOptions) -> (Option<Collation>, PadOrder) {
    let Some(options) = options.extensions.get::<FastPath>() else { return (None, PadOrder::Tidb) };
    let order = if options.collation_pad_order == MYSQL { PadOrder::Mysql } else { PadOrder::Tidb };
    let is_plain = options.collation == PLAIN;
    (if is_plain { None } else { Collation::find(&options.collation).ok() }, order)
}
