//! What is known to be damaged, and the search for more.

use std::sync::Arc;

use crate::cancel::Cancel;
use crate::database::{Database, locked};
use crate::error::{Damage, Error, Result};
use crate::snapshot::Snapshot;
use crate::state::{Part, Table};

impl Database {
    /// What was found to be damaged since the database was opened.
    #[must_use]
    pub fn damage(&self) -> Vec<Damage> {
        locked(&self.damage).clone()
    }

    /// Adds damage to what [`Database::damage`] says, for who found it while reading.
    pub fn report(&self, found: Damage) {
        let mut damage = locked(&self.damage);
        if !damage.contains(&found) {
            damage.push(found);
        }
    }

    /// Reads all of the newest version and reports what is damaged.
    pub fn check(&self) -> Vec<Damage> {
        let snapshot = self.snapshot();
        let check = |table: &Arc<Table>| self.check_parts(&snapshot, table, &Cancel::default());
        snapshot.tables().flat_map(|table| check(table).expect("nobody stops it")).collect()
    }

    /// Reads all of a table's newest version and reports what is damaged.
    ///
    /// # Errors
    /// `Cancelled`.
    pub fn check_table(&self, table: u64, cancel: &Cancel) -> Result<Vec<Damage>> {
        let snapshot = self.snapshot();
        snapshot.table(table).map_or(Ok(Vec::new()), |table| self.check_parts(&snapshot, table, cancel))
    }

    fn check_parts(&self, snapshot: &Snapshot, table: &Table, cancel: &Cancel) -> Result<Vec<Damage>> {
        let mut found = Vec::new();
        for part in table.parts() {
            check_part(snapshot, table, part, cancel, &mut found)?;
        }
        found.iter().filter(|damage| !damage.is_unknown).for_each(|damage| self.report(damage.clone()));
        Ok(found)
    }
}

fn check_part(
    snapshot: &Snapshot,
    table: &Table,
    part: &Part,
    cancel: &Cancel,
    found: &mut Vec<Damage>,
) -> Result<()> {
    let mut report = |error: Error| {
        found.push(match error {
            Error::Damaged(damage) => *damage,
            other => Damage {
                path: crate::store::part_path(table.number, part.number),
                table: Some(table.number),
                part: Some(part.number),
                reason: match std::error::Error::source(&other) {
                    Some(cause) => format!("{other}: {cause}"),
                    None => other.to_string(),
                },
                is_unknown: true,
                ..Damage::default()
            },
        });
    };
    let deletions = snapshot.deletions(table, part).map_err(&mut report);
    match snapshot.open_part(table, part) {
        Err(error) => report(error),
        Ok(reader) => {
            let reader = reader.verifying();
            if let Ok(deletions) = deletions {
                reader.check_deletions(&deletions).unwrap_or_else(&mut report);
            }
            for column in 0..reader.fields().len() {
                for stripe in 0..reader.stripe_count() {
                    cancel.check()?;
                    if let Err(error) = reader.read(column, stripe, keirin_kernels::Selection::All) {
                        report(error);
                    }
                }
            }
        }
    }
    Ok(())
}
