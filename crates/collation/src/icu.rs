//! Collations of languages, by the sort keys of ICU4X (CLDR root and its tailorings, tertiary strength).
//!
//! The bytes of a sort key become scalars of the same number, which keeps their order. Keys may change with the version
//! of the data, so they must not be stored.

use std::fmt;
use std::sync::Arc;

use icu_collator::options::CollatorOptions;
use icu_collator::{CollatorBorrowed, CollatorPreferences};
use icu_locale_core::Locale;

use crate::codes::push;

/// Makes sort keys.
#[derive(Clone)]
pub(crate) struct SortKeys(Arc<CollatorBorrowed<'static>>);

impl fmt::Debug for SortKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SortKeys").finish_non_exhaustive()
    }
}

impl SortKeys {
    /// For one of the locales of this crate.
    pub(crate) fn new(locale: &str) -> Self {
        let locale: Locale = locale.parse().expect("the locales of this crate are well formed");
        let preferences = CollatorPreferences::from(&locale);
        let collator = CollatorBorrowed::try_new(preferences, CollatorOptions::default());
        Self(Arc::new(collator.expect("the data of all locales is compiled in")))
    }

    pub(crate) fn append(&self, text: &str, key: &mut Vec<u8>) {
        let mut bytes = Vec::with_capacity(text.len() * 2);
        let Ok(()) = self.0.write_sort_key_to(text, &mut bytes);
        bytes.into_iter().for_each(|byte| push(char::from(byte), key));
    }

    pub(crate) fn compare(&self, left: &str, right: &str) -> std::cmp::Ordering {
        self.0.compare(left, right)
    }
}
