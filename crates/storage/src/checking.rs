//! The list of known damage, and the search for more.

use std::sync::Arc;

use keirin_kernels::Level;

use crate::cancel::Cancel;
use crate::column::Column;
use crate::compaction::NOT_SORTED;
use crate::database::{Database, locked};
use crate::error::{Damage, Error, Result};
use crate::part::PartReader;
use crate::schema::{Definition, Field};
use crate::snapshot::Snapshot;
use crate::sort::sort_rows;
use crate::state::{Part, Table};

impl Database {
    /// Damage that was found since the database was opened.
    #[must_use]
    pub fn damage(&self) -> Vec<Damage> {
        locked(&self.damage).clone()
    }

    /// Adds damage that a reader found to the list of [`Database::damage`].
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
            let mut order = Order::of(&reader);
            for stripe in 0..reader.stripe_count() {
                for column in 0..reader.fields().len() {
                    cancel.check()?;
                    match reader.check(column, stripe) {
                        Ok(values) => order.add(column, values),
                        Err(error) => report(error),
                    }
                }
                if !order.is_kept() {
                    report(reader.damage(NOT_SORTED.to_owned()));
                    break;
                }
            }
        }
    }
    Ok(())
}

/// Whether the rows of a part are in the order that its footer says.
struct Order {
    /// The sort columns, as the definition of a table.
    definition: Definition,
    /// For each sort column, its index among the part's columns.
    places: Vec<usize>,
    /// The sort columns of the current stripe, as far as they could be read.
    columns: Vec<Option<Column<'static>>>,
    /// The last row of the previous stripe.
    last: Option<Vec<Column<'static>>>,
}

impl Order {
    fn of(reader: &PartReader) -> Self {
        let place = |field: u32| reader.fields().iter().position(|other| other.id == field);
        let places: Vec<usize> = reader.keys().iter().filter_map(|key| place(key.field)).collect();
        let fields: Vec<Field> = places.iter().map(|place| reader.fields()[*place].clone()).collect();
        let mut definition = Definition::new("", "", Vec::new());
        definition.fields = fields;
        definition.keys = reader.keys().to_vec();
        let columns = vec![None; places.len()];
        Self { definition, places, columns, last: None }
    }

    fn add(&mut self, column: usize, values: Column<'static>) {
        for place in (0..self.places.len()).filter(|place| self.places[*place] == column) {
            self.columns[place] = Some(values.clone());
        }
    }

    /// Whether the stripe is sorted and follows the previous one. True if a column could not be read, which was
    /// reported already.
    fn is_kept(&mut self) -> bool {
        let level = Level::best();
        if self.definition.keys.len() != self.places.len() {
            return false;
        }
        let columns: Option<Vec<_>> = self.columns.iter_mut().map(Option::take).collect();
        let Some(columns) = columns.filter(|columns| !columns.is_empty()) else {
            self.last = None;
            return true;
        };
        let last_row = columns[0].row_count().checked_sub(1).and_then(|row| u32::try_from(row).ok());
        let last = last_row.map(|row| columns.iter().map(|column| column.take(level, &[row])).collect());
        let mut rows = self.last.take().unwrap_or_default();
        if rows.is_empty() {
            rows = columns;
        } else if rows.iter_mut().zip(&columns).any(|(rows, more)| rows.append(more).is_err()) {
            return true;
        }
        self.last = last;
        // The sort is stable, so a sorted stripe comes out as it went in.
        sort_rows(level, &self.definition, &rows).is_ok_and(|order| order.is_sorted())
    }
}
