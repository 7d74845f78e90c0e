//! Compaction: rewrites several parts as one, without deleted rows, in the order of the table's key.
//!
//! Sorted parts are [merged](crate::merge), others are sorted in runs first.

use std::ops::Range;
use std::sync::Arc;

use keirin_kernels::bitmaps::not;
use keirin_kernels::{Level, Selection, count_ones};

use crate::cancel::Cancel;
use crate::column::Column;
use crate::deletions::DeletionVector;
use crate::error::{Error, Result};
use crate::merge::{Input, merge};
use crate::part::{PartReader, PartWriter, WriteOptions};
use crate::schema::{Definition, INITIAL, SortKey};
use crate::sort::sort_rows;
use crate::state::{Part, Table};
use crate::transaction::Transaction;

/// Approximate bytes of rows that are sorted in memory.
pub(crate) const RUN_BYTES: usize = if cfg!(test) { 1 << 20 } else { 256 << 20 };

/// Copies of the rows in memory during a sort: as read, concatenated, and sorted.
pub(crate) const SORT_COPIES: u64 = 3;

/// A part as an input of compaction, read stripe by stripe.
pub(crate) struct Source {
    reader: PartReader,
    deletions: DeletionVector,
    /// For each column of the table its index in the part, or the initial value if the part lacks it.
    columns: Vec<std::result::Result<usize, Column<'static>>>,
    next_stripe: usize,
    cancel: Cancel,
}

/// The damage of a part that claims to be sorted and is not.
pub(crate) const NOT_SORTED: &str = "its rows are not in the order that its footer says";

pub(crate) fn row_count(columns: &[Column<'_>]) -> usize {
    columns.first().map_or(0, Column::row_count)
}

impl Source {
    pub(crate) fn open(
        transaction: &Transaction,
        table: &Table,
        part: &Part,
        deletions: DeletionVector,
        options: &WriteOptions,
    ) -> Result<Self> {
        let reader = transaction.base().open_part(table, part)?;
        reader.check_deletions(&deletions)?;
        let columns = table.definition.fields.iter().map(|field| {
            let same = reader.fields().iter().position(|other| other.id == field.id);
            match same {
                Some(index) if reader.fields()[index].data_type == field.data_type => Ok(Ok(index)),
                None if field.is_nullable && !field.properties.contains_key(INITIAL) => {
                    Ok(Err(Column::nulls(&field.data_type, 1)))
                }
                None if options.initial.contains_key(&field.id) => {
                    Ok(Err(options.initial[&field.id].clone()))
                }
                _ => {
                    let (part, name) = (part.number, &field.name);
                    Err(Error::Invalid(format!("part {part} has no column '{name}' of its type")))
                }
            }
        });
        let columns = columns.collect::<Result<_>>()?;
        let cancel = transaction.cancel().clone();
        Ok(Self { reader, deletions, columns, next_stripe: 0, cancel })
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.next_stripe == self.reader.stripe_count()
    }

    pub(crate) fn is_sorted_by(&self, keys: &[SortKey]) -> bool {
        self.reader.keys() == keys
    }

    /// Goes on reading at this stripe.
    pub(crate) fn go_to(&mut self, stripe: usize) {
        self.next_stripe = stripe;
    }

    /// The index of the next stripe.
    pub(crate) fn next_stripe(&self) -> usize {
        self.next_stripe
    }

    /// The error of a part that claims to be sorted and is not.
    pub(crate) fn not_sorted(&self) -> Error {
        self.reader.damage(NOT_SORTED.to_owned())
    }

    /// The row numbers of the next stripe.
    pub(crate) fn next_rows(&self) -> Range<u64> {
        self.reader.stripe(self.next_stripe)
    }

    /// The live rows of the next stripe; columns without rows if all are deleted.
    pub(crate) fn next(&mut self, level: Level) -> Result<Vec<Column<'static>>> {
        self.cancel.check()?;
        let stripe = self.next_stripe;
        self.next_stripe += 1;
        let number = u32::try_from(stripe).expect("a part has few stripes");
        let live = self.deletions.stripe(number).map(|deleted| not(level, deleted));
        let selection = live.as_ref().map_or(Selection::All, |live| Selection::Bits(live.as_bits()));
        let rows = self.reader.stripe(stripe);
        let row_count =
            live.as_ref().map_or(rows.end - rows.start, |live| count_ones(level, live.as_bits()) as u64);
        let row_count = usize::try_from(row_count).expect("a stripe has 65,536 rows");
        let read = |column: &std::result::Result<usize, Column<'static>>| match column {
            Ok(column) => self.reader.read(*column, stripe, selection),
            Err(lacking) => Ok(lacking.take(level, &vec![0; row_count])),
        };
        self.columns.iter().map(read).collect()
    }
}

impl Source {
    /// The next rows, sorted by the table's key: the rest of the part, or as many as make a run.
    fn next_run(&mut self, level: Level, definition: &Definition) -> Result<Vec<Column<'static>>> {
        let mut rows = empty(definition);
        while !self.is_at_end() && byte_count(&rows) < RUN_BYTES {
            let next = self.next(level)?;
            append(&mut rows, &next)?;
        }
        let order = sort_rows(level, definition, &rows)?;
        Ok(rows.iter().map(|column| column.take(level, &order)).collect())
    }
}

impl Transaction {
    /// Replaces parts of one partition by one part with their live rows, if there are any; columns that a part lacks
    /// become nulls. The rows are sorted by the table's key, or keep their order if there is
    /// none. A sorted part takes the memory of one stripe; unsorted rows are sorted in runs, and runs that are too large
    /// together become parts of their own. So do rows of so many columns that a part has not room for all; returns
    /// `false` if that makes no fewer parts.
    ///
    /// # Errors
    /// `Cancelled`; `Invalid` when there is no such table or part, the parts are of several partitions, a part lacks a column
    /// that must not be null or has another value there, or has it of another type; `Damaged` when rows cannot be
    /// read.
    pub fn compact(&mut self, table: u64, parts: &[u64], options: WriteOptions) -> Result<bool> {
        let found = Arc::clone(self.table(table)?);
        let mut entries = Vec::new();
        for part in parts {
            let missing = || Error::Invalid(format!("there is no part {part} of table {table}"));
            entries.push(found.part(*part).ok_or_else(missing)?);
        }
        entries.sort_by_key(|part| (part.order, part.number));
        let partition = entries.first().map(|part| Arc::clone(&part.partition)).unwrap_or_default();
        if let Some(other) = entries.iter().find(|part| part.partition != partition) {
            let message = format!("parts of partitions '{partition}' and '{}' stay apart", other.partition);
            return Err(Error::Invalid(message));
        }
        let is_sorted = !found.definition.keys.is_empty();
        let options = WriteOptions { is_sorted, ..options };
        let level = self.level();
        let mut merged =
            Parts { transaction: self, table, options: options.clone(), writer: None, done: Vec::new() };
        let sources = entries.into_iter().map(|part| {
            let deletions = self.base().deletions(&found, part)?;
            Source::open(self, &found, part, deletions, &options)
        });
        let mut added = Vec::new();
        if is_sorted {
            let definition = &found.definition;
            let (mut inputs, mut kept_bytes) = (Vec::new(), 0);
            for source in sources {
                let mut source = source?;
                if source.is_sorted_by(&definition.keys) {
                    inputs.push(Input::new(source));
                    continue;
                }
                while !source.is_at_end() {
                    let rows = source.next_run(level, definition)?;
                    let byte_count = byte_count(&rows);
                    if source.is_at_end() && kept_bytes + byte_count <= RUN_BYTES {
                        kept_bytes += byte_count;
                        inputs.push(Input::of_rows(source, rows));
                        break;
                    }
                    let mut writer = self.write_part(table, options.clone())?;
                    writer.push(&rows)?;
                    added.push(writer.finish()?);
                }
            }
            merge(level, definition, inputs, &mut |rows| merged.push(rows))?;
        } else {
            for source in sources {
                let mut source = source?;
                while !source.is_at_end() {
                    merged.push(&source.next(level)?)?;
                }
            }
        }
        let merged = merged.finish()?;
        let is_split = merged.len() > 1;
        added.extend(merged);
        added.iter_mut().for_each(|part| part.partition = Arc::clone(&partition));
        let is_in_vain = is_split && added.len() >= parts.len();
        self.replace_parts(table, parts, added)?;
        Ok(!is_in_vain)
    }
}

/// Writes the live rows of the next stripe.
pub(crate) fn append_live(source: &mut Source, level: Level, writer: &mut PartWriter) -> Result<()> {
    writer.push(&source.next(level)?)
}

/// Rows that become a part, or several if one has not room for all.
struct Parts<'a> {
    transaction: &'a Transaction,
    table: u64,
    options: WriteOptions,
    writer: Option<PartWriter>,
    done: Vec<Part>,
}

impl Parts<'_> {
    fn push(&mut self, rows: &[Column<'_>]) -> Result<()> {
        if row_count(rows) == 0 {
            return Ok(());
        }
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => none.insert(self.transaction.write_part(self.table, self.options.clone())?),
        };
        writer.push(rows)?;
        if writer.is_full() { self.end_part() } else { Ok(()) }
    }

    fn end_part(&mut self) -> Result<()> {
        if let Some(writer) = self.writer.take() {
            self.done.push(writer.finish()?);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<Part>> {
        self.end_part()?;
        Ok(self.done)
    }
}

pub(crate) fn empty(definition: &Definition) -> Vec<Column<'static>> {
    definition.fields.iter().map(|field| Column::empty(&field.data_type)).collect()
}

pub(crate) fn byte_count(columns: &[Column<'_>]) -> usize {
    columns.iter().map(Column::byte_count).sum()
}

pub(crate) fn append(columns: &mut [Column<'static>], rows: &[Column<'_>]) -> Result<()> {
    columns.iter_mut().zip(rows).try_for_each(|(column, rows)| column.append(rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::column::Values;
    use crate::schema::{DataType, Definition};
    use crate::tests::recovery::{new, open};

    #[test]
    fn what_is_not_sorted_is_sorted_in_bounded_memory() {
        const ROWS: i64 = 300_000;
        let database = open(&new());
        let mut definition = Definition::new("main", "t", vec![("a", DataType::I64)]);
        definition.keys = vec![SortKey { field: 0, is_descending: false, nulls_first: false }];
        let mut transaction = database.begin().unwrap();
        let table = transaction.create_table(definition).unwrap();
        let mut parts = Vec::new();
        for rows in [0..ROWS - 2000, ROWS - 2000..ROWS - 1000, ROWS - 1000..ROWS] {
            let values: Vec<i64> = rows.map(|row| row * 7919 % ROWS).collect();
            let mut writer = transaction.write_part(table, WriteOptions::default()).unwrap();
            writer.push(&[Column { validity: None, values: Values::I64(values.into()) }]).unwrap();
            let part = writer.finish().unwrap();
            parts.push(part.number);
            transaction.add_part(table, part).unwrap();
        }
        transaction.commit().unwrap();
        let mut transaction = database.begin().unwrap();
        transaction.compact(table, &parts, WriteOptions::default()).unwrap();
        transaction.commit().unwrap();

        let snapshot = database.snapshot();
        let table = snapshot.table(table).unwrap();
        let mut all = Vec::new();
        for part in table.parts() {
            let reader = snapshot.open_part(table, part).unwrap();
            let mut rows: Vec<i64> = Vec::new();
            for stripe in 0..reader.stripe_count() {
                let Values::I64(values) = reader.read(0, stripe, Selection::All).unwrap().values else {
                    panic!()
                };
                rows.extend(values.iter());
            }
            assert!(rows.is_sorted() && reader.keys().len() == 1);
            assert!(rows.len() * 8 < 2 * RUN_BYTES, "{} rows were in memory", rows.len());
            all.extend(rows);
        }
        assert!((2..6).contains(&table.parts().len()), "{} parts", table.parts().len());
        all.sort_unstable();
        assert_eq!(all, Vec::from_iter(0..ROWS));
    }

    #[test]
    fn a_part_that_is_not_sorted_as_it_says_loses_and_doubles_no_row() {
        let database = open(&new());
        let mut definition = Definition::new("main", "t", vec![("a", DataType::I64)]);
        definition.keys = vec![SortKey { field: 0, is_descending: false, nulls_first: false }];
        let mut transaction = database.begin().unwrap();
        let table = transaction.create_table(definition).unwrap();
        let write = |transaction: &mut Transaction, stripes: &[&[i64]]| {
            let options = WriteOptions { is_sorted: true, ..WriteOptions::default() };
            let mut writer = transaction.write_part(table, options).unwrap();
            for stripe in stripes {
                writer
                    .push(&[Column { validity: None, values: Values::I64(stripe.to_vec().into()) }])
                    .unwrap();
                writer.end_stripe().unwrap();
            }
            let part = writer.finish().unwrap();
            let number = part.number;
            transaction.add_part(table, part).unwrap();
            number
        };
        let whole = write(&mut transaction, &[&[1, 5], &[5, 9]]);
        // Out of order inside a stripe, and from one stripe to the next.
        let lying = [&[&[4, 3][..]][..], &[&[6, 7], &[2, 8]]];
        let lying = lying.map(|stripes| write(&mut transaction, stripes));
        transaction.commit().unwrap();
        let damaged: Vec<_> = database.check().into_iter().map(|found| (found.part, found.reason)).collect();
        assert_eq!(damaged, lying.map(|part| (Some(part), NOT_SORTED.to_owned())));
        for part in lying {
            let mut transaction = database.begin().unwrap();
            let refused = transaction.compact(table, &[whole, part], WriteOptions::default()).unwrap_err();
            assert!(matches!(&refused, Error::Damaged(found) if found.part == Some(part)), "{refused}");
            drop(transaction);
            let mut transaction = database.begin().unwrap();
            let lost = transaction.repair_part(table, part, WriteOptions::default()).unwrap();
            assert_eq!(lost, crate::RepairLoss::default());
            transaction.commit().unwrap();
        }
        assert_eq!(database.check(), []);
        let mut transaction = database.begin().unwrap();
        let parts =
            transaction.table(table).unwrap().parts().iter().map(|part| part.number).collect::<Vec<_>>();
        transaction.compact(table, &parts, WriteOptions::default()).unwrap();
        transaction.commit().unwrap();
        let snapshot = database.snapshot();
        let found = snapshot.table(table).unwrap();
        let reader = snapshot.open_part(found, found.parts()[0]).unwrap();
        let Values::I64(values) = reader.read(0, 0, Selection::All).unwrap().values else { panic!() };
        assert_eq!(values[..], [1, 2, 3, 4, 5, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn rows_of_many_columns_become_several_parts() {
        const COLUMNS: usize = 256;
        let database = open(&new());
        let names: Vec<String> = (0..COLUMNS).map(|column| format!("c{column}")).collect();
        let columns = names.iter().map(|name| (name.as_str(), DataType::I64)).collect();
        let mut transaction = database.begin().unwrap();
        let table = transaction.create_table(Definition::new("main", "t", columns)).unwrap();
        // A stripe a row, of which a part may have 64.
        let options = WriteOptions { stripe_bytes_max: Some(8 * COLUMNS), ..WriteOptions::default() };
        let rows = |rows: Range<i64>| {
            let values = || Values::I64(rows.clone().collect::<Vec<i64>>().into());
            (0..COLUMNS).map(|_| Column { validity: None, values: values() }).collect::<Vec<_>>()
        };
        let mut parts = Vec::new();
        for start in (0..60).step_by(20) {
            let mut writer = transaction.write_part(table, options.clone()).unwrap();
            writer.push(&rows(start..start + 20)).unwrap();
            let part = writer.finish().unwrap();
            parts.push(part.number);
            transaction.add_part(table, part).unwrap();
        }
        transaction.commit().unwrap();
        let mut found = Vec::new();
        // Sixty rows are two parts, and stay two.
        for is_worth_it in [true, false] {
            let mut transaction = database.begin().unwrap();
            assert_eq!(transaction.compact(table, &parts, options.clone()).unwrap(), is_worth_it);
            transaction.commit().unwrap();
            let snapshot = database.snapshot();
            let table = snapshot.table(table).unwrap();
            found.clear();
            for part in table.parts() {
                let reader = snapshot.open_part(table, part).unwrap();
                for stripe in 0..reader.stripe_count() {
                    let column = reader.read(COLUMNS - 1, stripe, Selection::All).unwrap();
                    let Values::I64(values) = column.values else { panic!() };
                    found.extend(values.iter().copied());
                }
            }
            assert_eq!(found, Vec::from_iter(0..60));
            parts = table.parts().iter().map(|part| part.number).collect();
            assert_eq!(parts.len(), 2);
        }
    }
}
