//! The encodings that were last chosen for the columns of each table: the next part of the table begins with them.
//!
//! Choosing an encoding takes as long as writing several blocks. The encoder notices at once when a plan no longer
//! suits, so the plans need not be exact.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::block::Plans;
use super::writer::WriteOptions;
use crate::database::locked;
use crate::schema::Definition;

/// Tables whose plans are kept.
const TABLES_MAX: usize = 1 << 10;

/// The plans of a database's tables, by table number.
#[derive(Debug, Default)]
pub(crate) struct TablePlans {
    kept: Mutex<BTreeMap<u64, Kept>>,
}

#[derive(Debug)]
struct Kept {
    definition: Arc<Definition>,
    options: WriteOptions,
    plans: Vec<Plans>,
}

impl TablePlans {
    /// The plans of a table; none if its columns or codecs have changed.
    pub(super) fn get(&self, table: u64, definition: &Definition, options: &WriteOptions) -> Vec<Plans> {
        let kept = locked(&self.kept);
        let found = kept.get(&table).filter(|kept| {
            kept.definition.fields == definition.fields && kept.options.codecs == options.codecs
        });
        found.map_or_else(Vec::new, |kept| kept.plans.clone())
    }

    pub(super) fn put(
        &self,
        table: u64,
        definition: Arc<Definition>,
        options: WriteOptions,
        plans: Vec<Plans>,
    ) {
        let mut kept = locked(&self.kept);
        if kept.len() >= TABLES_MAX {
            kept.pop_first();
        }
        kept.insert(table, Kept { definition, options, plans });
    }
}
