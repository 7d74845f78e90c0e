//! What is known to be damaged, and the search for more.

use crate::database::{Database, locked};
use crate::error::{Damage, Error};
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
        let mut found = Vec::new();
        for table in snapshot.tables() {
            for part in table.parts() {
                self.check_part(&snapshot, table, part, &mut found);
            }
        }
        found.iter().filter(|damage| !damage.is_unknown).for_each(|damage| self.report(damage.clone()));
        found
    }

    fn check_part(&self, snapshot: &Snapshot, table: &Table, part: &Part, found: &mut Vec<Damage>) {
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
                        if let Err(error) = reader.read(column, stripe, keirin_kernels::Selection::All) {
                            report(error);
                        }
                    }
                }
            }
        }
    }
}
