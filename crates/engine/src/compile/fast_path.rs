//! `keirin.fast_path`: whether our own operators take over parts of a plan, and `keirin.plan_cache`.
//!
//! Without our operators, DataFusion's give the same answers; tests compare both.

use datafusion::common::extensions_options;
use datafusion::config::{ConfigExtension, ConfigOptions};

extensions_options! {
    /// The settings that rules read from the options of a plan.
    pub(crate) struct FastPath {
        /// Whether our own operators take over parts of a plan.
        pub fast_path: bool, default = true
        /// Whether the plan of a query is kept for when its text comes again.
        pub plan_cache: bool, default = true
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
