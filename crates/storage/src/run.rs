//! Sorted runs: as many rows as memory has room for, sorted by the table's key before they are written.
//!
//! Larger inputs are never sorted as a whole: each run becomes a part, and maintenance merges parts. A run whose
//! rows all follow those of the previous run goes into the same part, so that sorted input becomes one part.

use std::sync::Arc;

use keirin_kernels::Level;

use crate::cancel::Cancel;
use crate::column::Column;
use crate::error::Result;
use crate::schema::Definition;
use crate::sort::{sort_rows, sort_rows_unless};

/// Rows of one table in memory, to be sorted and written as a new part or appended to one.
#[derive(Debug)]
pub struct Run {
    definition: Arc<Definition>,
    columns: Vec<Column<'static>>,
    /// The row numbers in sorted order; shorter than the rows until they are sorted.
    order: Vec<u32>,
    /// Whether the rows are known not to come in the order of the key.
    is_mixed: bool,
    /// The last row of the previous sorted run.
    last: Option<Vec<Column<'static>>>,
    cancel: Cancel,
}

impl Run {
    /// An empty run of a table.
    #[must_use]
    pub fn new(definition: Arc<Definition>) -> Self {
        let columns = definition.fields.iter().map(|field| Column::empty(&field.data_type)).collect();
        let cancel = Cancel::default();
        Self { definition, columns, order: Vec::new(), is_mixed: false, last: None, cancel }
    }

    /// The same run, which is no longer sorted or written when this is cancelled.
    #[must_use]
    pub fn stopped_by(self, cancel: &Cancel) -> Self {
        Self { cancel: cancel.clone(), ..self }
    }

    pub(crate) fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    pub(crate) fn columns(&self) -> &[Column<'static>] {
        &self.columns
    }

    pub(crate) fn order(&self) -> &[u32] {
        &self.order
    }

    /// Count of rows.
    #[must_use]
    pub fn row_count(&self) -> usize {
        self.columns.first().map_or(0, Column::row_count)
    }

    /// Appends rows: as many columns as the table has, of its types, all of one length.
    ///
    /// # Errors
    /// `Invalid` when a column has another type, or the run would have 2 GiB of text.
    pub fn append(&mut self, rows: &[Column<'_>]) -> Result<()> {
        self.columns.iter_mut().zip(rows).try_for_each(|(column, rows)| column.append(rows))
    }

    /// Whether the rows came in the order of the table's key and follow the previous run: then nothing is gained by
    /// collecting more of them.
    ///
    /// # Errors
    /// `Invalid` when a key is of a type without an order; `Cancelled`.
    pub fn is_in_order(&mut self) -> Result<bool> {
        /// As many rows show of most unsorted runs that they are.
        const FEW: usize = 1024;
        if self.is_mixed {
            return Ok(false);
        }
        let few: Vec<_> =
            self.columns.iter().map(|column| column.slice(0..FEW.min(self.row_count()))).collect();
        let is_ascending = |order: &[u32]| (0..).zip(order).all(|(place, row)| place == *row);
        self.is_mixed = !is_ascending(&sort_rows(Level::best(), &self.definition, &few)?);
        if !self.is_mixed {
            self.set_order()?;
            self.is_mixed = !is_ascending(&self.order) || !self.follows()?;
        }
        Ok(!self.is_mixed)
    }

    /// Sorts the rows by the table's key, if it has one, and returns whether they all follow the previous run.
    ///
    /// # Errors
    /// `Invalid` when a key is of a type without an order; `Cancelled`.
    pub fn sort(&mut self) -> Result<bool> {
        self.set_order()?;
        let follows = self.follows()?;
        if let Some(last) = self.order.last() {
            self.last = Some(self.row(*last));
        }
        Ok(follows)
    }

    fn set_order(&mut self) -> Result<()> {
        if self.order.len() != self.row_count() {
            self.order = sort_rows_unless(Level::best(), &self.definition, &self.columns, &self.cancel)?;
        }
        Ok(())
    }

    fn row(&self, row: u32) -> Vec<Column<'static>> {
        self.columns.iter().map(|column| column.take(Level::best(), &[row])).collect()
    }

    /// Whether the first row follows the last one of the previous run, or equals it.
    fn follows(&self) -> Result<bool> {
        let (Some(first), Some(last)) = (self.order.first(), &self.last) else { return Ok(true) };
        let mut pair = last.clone();
        pair.iter_mut().zip(&self.row(*first)).try_for_each(|(column, first)| column.append(first))?;
        Ok(sort_rows(Level::best(), &self.definition, &pair)? == [0, 1])
    }

    /// Removes the rows and keeps the memory for the next ones.
    pub fn clear(&mut self) {
        self.columns.iter_mut().for_each(Column::clear);
        self.order.clear();
        self.is_mixed = false;
    }
}

#[cfg(test)]
mod tests {
    use keirin_kernels::Selection;

    use super::*;
    use crate::column::{Flags, Values};
    use crate::part::{STRIPE_ROWS, WriteOptions};
    use crate::schema::{DataType, SortKey};
    use crate::tests::recovery::{new, open};

    fn definition(keys: Vec<SortKey>) -> Definition {
        let columns = vec![("a", DataType::I64), ("b", DataType::Text)];
        Definition { keys, ..Definition::new("main", "t", columns) }
    }

    fn text_of(key: &i64) -> String {
        format!("{key}{}", &"xxxxx"[usize::try_from(key % 5).unwrap()..])
    }

    /// Rows with these keys, every seventh null, and with text that tells which row it is.
    fn rows(keys: &[i64]) -> Vec<Column<'static>> {
        let validity = keys.iter().map(|key| key % 7 != 0).collect();
        let texts: Vec<String> = keys.iter().map(text_of).collect();
        let mut offsets = vec![0];
        offsets.extend(texts.iter().scan(0, |end, text| {
            *end += i32::try_from(text.len()).unwrap();
            Some(*end)
        }));
        let text = Values::Text { offsets: offsets.into(), bytes: texts.concat().into_bytes().into() };
        vec![
            Column { validity: Some(Flags::Owned(validity)), values: Values::I64(keys.to_vec().into()) },
            Column { validity: None, values: text },
        ]
    }

    /// Writes the runs to a table with `thread_count` threads and returns the texts of all its rows.
    fn written(definition: &Definition, runs: &[&[i64]], thread_count: usize) -> Vec<String> {
        let database = open(&new());
        let mut transaction = database.begin().unwrap();
        let table = transaction.create_table(definition.clone()).unwrap();
        let mut writer = transaction.write_part(table, WriteOptions::default()).unwrap();
        let mut run = Run::new(Arc::new(definition.clone()));
        for keys in runs {
            run.append(&rows(keys)).unwrap();
            assert_eq!(run.row_count(), keys.len());
            run.sort().unwrap();
            writer.push_run(&run, thread_count).unwrap();
            run.clear();
        }
        let part = writer.finish().unwrap();
        transaction.add_part(table, part).unwrap();
        transaction.commit().unwrap();
        let snapshot = database.snapshot();
        let table = snapshot.table(table).unwrap();
        let reader = snapshot.open_part(table, table.parts()[0]).unwrap();
        let mut texts = Vec::new();
        for stripe in 0..reader.stripe_count() {
            let [keys, text] = [0, 1].map(|column| reader.read(column, stripe, Selection::All).unwrap());
            let Values::Text { offsets, bytes } = &text.values else { panic!("{text:?}") };
            for row in 0..text.row_count() {
                let [start, end] = [row, row + 1].map(|row| usize::try_from(offsets[row]).unwrap());
                let text = String::from_utf8(bytes[start..end].to_vec()).unwrap();
                let key: i64 = text.trim_end_matches('x').parse().unwrap();
                assert_eq!(keys.validity_bits().is_none_or(|bits| bits.get(row)), key % 7 != 0);
                texts.push(text);
            }
        }
        texts
    }

    #[test]
    fn rows_are_written_in_order_by_any_number_of_threads() {
        let key = SortKey { field: 0, is_descending: false, nulls_first: true };
        let count = i64::try_from(STRIPE_ROWS * 3 + 77).unwrap();
        let mixed: Vec<i64> = (0..count).map(|row| row * 7919 % count).collect();
        let tail: Vec<i64> = (count..count * 2).collect();
        for (keys, runs) in
            [(vec![], vec![&mixed[..], &[], &tail, &tail[..5]]), (vec![key], vec![&mixed[..], &[]])]
        {
            let definition = definition(keys.clone());
            let mut expected: Vec<i64> = runs.concat();
            if !keys.is_empty() {
                expected.sort_by_key(|key| (key % 7 != 0, if key % 7 == 0 { 0 } else { *key }));
                // Rows without a key keep their order.
                let nulls = mixed.iter().filter(|key| *key % 7 == 0).copied().collect::<Vec<_>>();
                expected[..nulls.len()].copy_from_slice(&nulls);
            }
            let expected: Vec<String> = expected.iter().map(text_of).collect();
            for thread_count in [0, 1, 3, 16] {
                assert_eq!(written(&definition, &runs, thread_count), expected, "{thread_count} threads");
            }
        }
    }

    #[test]
    fn a_run_knows_whether_it_comes_behind_the_one_before() {
        let key = SortKey { field: 0, is_descending: true, nulls_first: false };
        let check = |keys: Vec<SortKey>, runs: &[&[i64]], expected: &[bool]| {
            let mut run = Run::new(Arc::new(definition(keys)));
            for (keys, follows) in runs.iter().zip(expected) {
                run.append(&rows(keys)).unwrap();
                let is_sorted = run.definition.keys.is_empty() || keys.is_sorted_by(|key, next| key >= next);
                for _ in 0..2 {
                    assert_eq!(run.is_in_order().unwrap(), *follows && is_sorted, "{keys:?}");
                }
                assert_eq!(run.sort().unwrap(), *follows, "{keys:?}");
                run.clear();
            }
        };
        check(vec![], &[&[5, 1], &[9], &[2]], &[true, true, true]);
        check(vec![key], &[&[5, 9], &[], &[1, 5], &[3]], &[true, true, true, false]);
        check(vec![key], &[&[8, 1], &[2]], &[true, false]);
        // Every seventh has no key, and comes last.
        check(vec![key], &[&[8, 7], &[14], &[3]], &[true, true, false]);
    }
}
