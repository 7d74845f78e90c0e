//! A table of one version, open for reading: its parts, and where they have its columns.
//!
//! Parts keep the columns that they were written with. A column of the table is found in a part by the number of
//! its field; it may have had another type, or not have been there.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::{ColumnStatistics, ScalarValue};
use keirin_storage::part::{PartReader, Statistics};
use keirin_storage::schema::SortKey;
use keirin_storage::{Database, DeletionVector, Error as StorageError, Part, Snapshot, Table};

use super::reading::blocks::BlockCache;
use super::reading::lengths::Length;
use super::store::{NEWER_HINT, REPLACED_HINT};
use super::types::arrow_type;
use crate::error::{Error, ErrorKind, Result};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct OpenTable {
    database: Arc<Database>,
    /// Where decoded blocks may be kept.
    pub(super) blocks: Option<Arc<BlockCache>>,
    pub(super) table: Arc<Table>,
    /// See [`Columns`].
    pub(super) schema: SchemaRef,
    pub(super) has_row_numbers: bool,
    /// Those that cannot be opened are errors when their rows are wanted.
    pub(super) parts: Vec<Result<OpenPart>>,
    /// What is known of each column of the schema: planning asks more than once.
    pub(super) statistics: Vec<OnceLock<ColumnStatistics>>,
}

/// A part, and where it has the columns of the table.
#[derive(Debug)]
pub(super) struct OpenPart {
    /// Its place among the parts.
    place: usize,
    pub(super) reader: PartReader,
    pub(super) deletions: DeletionVector,
    columns: Vec<Place>,
}

/// Where a part has a column of the table.
#[derive(Debug)]
pub(super) enum Place {
    /// Its rows are numbered.
    Numbers,
    /// At this place among its columns.
    Here(usize),
    /// At this place, with another type.
    Cast(usize, DataType),
    /// Nowhere: the part is older, and each row has this value.
    Nowhere(ScalarValue),
    /// In another column, whose lengths they are.
    Length(Length),
}

/// The columns and parts of a table that are wanted.
#[derive(Debug)]
pub(crate) struct Columns<'a> {
    /// Those of the table, behind [`ROW_NUMBER`](super::ROW_NUMBER) if rows are numbered, and in front of lengths.
    pub(super) schema: SchemaRef,
    pub(super) has_row_numbers: bool,
    pub(super) lengths: &'a [Length],
    /// The values of fields, by their numbers, in parts that are older.
    pub(super) initial: &'a HashMap<u32, ScalarValue>,
    /// Which of the parts.
    pub(super) kept: &'a [bool],
}

impl OpenTable {
    /// Opens the parts of a table of `snapshot` that are wanted.
    pub(crate) fn open(
        database: &Arc<Database>,
        blocks: Option<Arc<BlockCache>>,
        snapshot: &Snapshot,
        table: &Arc<Table>,
        columns: &Columns<'_>,
    ) -> Self {
        let mut open = Self {
            database: database.clone(),
            blocks,
            table: table.clone(),
            schema: columns.schema.clone(),
            has_row_numbers: columns.has_row_numbers,
            parts: Vec::new(),
            statistics: vec![OnceLock::new(); columns.schema.fields().len()],
        };
        snapshot.expect_parts(table);
        let parts = table.parts().into_iter().enumerate().filter(|(place, _)| columns.kept[*place]);
        let parts = parts.map(|(place, part)| open.part(snapshot, place, part, columns));
        open.parts = parts.collect();
        open
    }

    fn part(&self, snapshot: &Snapshot, place: usize, part: &Part, wanted: &Columns<'_>) -> Result<OpenPart> {
        let read = || {
            let reader = snapshot.open_part(&self.table, part)?;
            let deletions = snapshot.deletions(&self.table, part)?;
            reader.check_deletions(&deletions)?;
            Ok((reader, deletions))
        };
        let (reader, deletions) = read().map_err(|error| self.explain(error))?;
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        columns.extend(self.has_row_numbers.then_some(Place::Numbers));
        for (place, field) in self.table.definition.fields.iter().enumerate() {
            // At the same place, if columns are as they were.
            let is_there = reader.fields().get(place).is_some_and(|other| other.id == field.id);
            let search = || reader.fields().iter().position(|other| other.id == field.id);
            let found = if is_there { Some(place) } else { search() };
            columns.push(match found {
                Some(index) if reader.fields()[index].data_type == field.data_type => Place::Here(index),
                // Children may be others even if the column is the same.
                Some(index) => Place::Cast(index, arrow_type(&reader.fields()[index].data_type)),
                None => {
                    let null = || ScalarValue::try_from(&arrow_type(&field.data_type));
                    let value = wanted.initial.get(&field.id).cloned().map_or_else(null, Ok);
                    Place::Nowhere(value?)
                }
            });
        }
        columns.extend(wanted.lengths.iter().map(|length| Place::Length(*length)));
        Ok(OpenPart { place, reader, deletions, columns })
    }

    /// Says what happened to which table, and lets the database remember damage.
    pub(super) fn explain(&self, error: StorageError) -> Error {
        let name = &self.table.definition.name;
        let kind = match &error {
            StorageError::Damaged(damage) => {
                self.database.report((**damage).clone());
                ErrorKind::Data
            }
            StorageError::Io { .. } => ErrorKind::Io,
            StorageError::Replaced { .. } => ErrorKind::NotFound,
            _ => ErrorKind::Invalid,
        };
        let is_newer = matches!(error, StorageError::Newer { .. });
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        let error = Error::new(kind, format!("cannot read table '{name}': {error}{cause}"));
        match kind {
            ErrorKind::Data => error
                .with_hint("CHECK TABLE lists what is damaged, REPAIR TABLE keeps the rows that are whole"),
            ErrorKind::NotFound => error.with_hint(REPLACED_HINT),
            _ if is_newer => error.with_hint(NEWER_HINT),
            _ => error,
        }
    }

    /// How the rows of each part are sorted, if that is the same for all and as the table wants it.
    pub(super) fn keys(&self) -> &[SortKey] {
        let keys = &self.table.definition.keys[..];
        let is_sorted = |part: &Result<OpenPart>| part.as_ref().is_ok_and(|part| part.reader.keys() == keys);
        if self.parts.iter().all(is_sorted) { keys } else { &[] }
    }

    /// The place in the schema of a field.
    pub(super) fn index_of(&self, field: u32) -> Option<usize> {
        Some(self.table.definition.index_of(field)? + usize::from(self.has_row_numbers))
    }
}

impl OpenPart {
    pub(super) fn column(&self, index: usize) -> &Place {
        &self.columns[index]
    }

    /// What is read of the part for columns of the table.
    fn stored(&self, columns: &[usize]) -> Vec<usize> {
        let place = |index: usize| match self.columns[index] {
            Place::Length(length) => &self.columns[length.of],
            _ => &self.columns[index],
        };
        let stored = columns.iter().filter_map(|index| match place(*index) {
            Place::Here(column) | Place::Cast(column, _) => Some(*column),
            _ => None,
        });
        stored.collect()
    }

    /// Bytes of columns in a stripe.
    pub(super) fn stored_bytes(&self, columns: &[usize], stripe: usize) -> u64 {
        self.stored(columns).into_iter().map(|column| self.reader.stored_bytes(column, stripe)).sum()
    }

    /// Says that columns of some stripes will be read soon.
    pub(super) fn expect(&self, columns: &[usize], stripes: Range<usize>) {
        if self.reader.is_fetched() {
            self.reader.expect(&self.stored(columns), stripes);
        }
    }

    /// The statistics of a column that the part has as the table has it.
    pub(super) fn statistics(&self, index: usize, stripe: usize) -> Option<&Statistics> {
        match self.columns[index] {
            Place::Here(column) => Some(self.reader.statistics(column, stripe)),
            _ => None,
        }
    }

    /// The number of the first row of a stripe.
    pub(super) fn first_number(&self, stripe: usize) -> u64 {
        (self.place as u64) << 32 | self.reader.stripe(stripe).start
    }
}
