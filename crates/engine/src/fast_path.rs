//! `keirin.fast_path`: whether our own operators take over parts of a plan.
//!
//! Without them, DataFusion's operators give the same answers; tests compare both.

use datafusion::common::extensions_options;
use datafusion::config::{ConfigExtension, ConfigOptions};

extensions_options! {
    /// The settings that rules read from the options of a plan.
    pub(crate) struct FastPath {
        /// Whether our own operators take over parts of a plan.
        pub fast_path: bool, default = true
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
