//! What a part knows beyond its footer, read when somebody asks for it.

use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64;

use super::PartReader;
use crate::column::Column;
use crate::error::{Error, Result};
use crate::io::is_shortage;
use crate::part::details::{
    ColumnDetails, FilterEntry, Place, filter_may_have, hash_of, hashes_of, read_sample_rows, zones_of,
};
use crate::part::{Constant, Sketch, Verify, Zones};

/// Where records begin: they are read from the file, so no alignment is lost.
fn at(offset: u64) -> usize {
    usize::try_from(offset).expect("it lies inside a file that is mapped")
}

impl PartReader {
    /// The approximate set of a column's values; `None` where no sketch of it was made.
    ///
    /// # Errors
    /// `Damaged` when the bytes are not what was written.
    ///
    /// # Panics
    /// When there is no such column.
    pub fn sketch(&self, column: usize) -> Result<Option<&Sketch>> {
        Ok(self.details(column)?.and_then(|details| details.sketch.as_ref()))
    }

    /// Bounds of zones of a column; `None` where they would say little more than those of stripes.
    ///
    /// # Errors
    /// `Damaged` when the bytes are not what was written.
    ///
    /// # Panics
    /// When there is no such column.
    pub fn zones(&self, column: usize) -> Result<Option<&Zones>> {
        Ok(self.details(column)?.and_then(|details| details.zones.as_ref()))
    }

    /// The numbers of rows that were drawn at random when the part was written, ascending; deleted ones are among them.
    /// None if no sample was drawn.
    ///
    /// # Errors
    /// `Damaged` when the bytes are not what was written.
    pub fn sample_rows(&self) -> Result<Vec<u64>> {
        let Some(bytes) = self.record(0)? else { return Ok(Vec::new()) };
        let rows = read_sample_rows(self.file.store.level, &bytes, self.row_count());
        rows.map_err(|malformed| self.damaged_details(0, &malformed.to_string()))
    }

    /// The values of a column in the rows of the sample, of long text the beginning; `None` for lists, structs and maps,
    /// or where no sample was drawn.
    ///
    /// # Errors
    /// `Damaged` when the bytes are not what was written.
    ///
    /// # Panics
    /// When there is no such column.
    pub fn sample(&self, column: usize) -> Result<Option<Column<'static>>> {
        let count = self.sample_rows()?.len();
        if count == 0 {
            return Ok(None);
        }
        Ok(self.read_details(column, Some(count))?.and_then(|(_, sample)| sample))
    }

    /// The hash of a value of a column for [`may_have`](Self::may_have); `None` for values of other types, and types of
    /// which there are no filters.
    ///
    /// # Panics
    /// When there is no such column.
    #[must_use]
    pub fn hash(&self, column: usize, value: &Constant<'_>) -> Option<u64> {
        hash_of(&self.fields()[column].data_type, value)
    }

    /// Whether a column has filters in this part.
    ///
    /// # Errors
    /// `Damaged` when the bytes are not what was written.
    ///
    /// # Panics
    /// When there is no such column.
    pub fn has_filters(&self, column: usize) -> Result<bool> {
        Ok(self.details(column)?.is_some_and(|details| !details.filters.is_empty()))
    }

    /// Whether a stripe may have one of the values with these hashes. Nulls are no values.
    ///
    /// # Errors
    /// `Damaged` when the bytes are not what was written.
    ///
    /// # Panics
    /// When there is no such column or stripe.
    pub fn may_have(&self, column: usize, stripe: usize, hashes: &[u64]) -> Result<bool> {
        let details = self.details(column)?;
        let entry = details.and_then(|details| details.filters.get(stripe)).filter(|entry| entry.bytes > 0);
        match entry {
            Some(entry) => self.with_filter(column, stripe, entry, |bytes| filter_may_have(bytes, hashes)),
            None => Ok(true),
        }
    }

    /// Prefetch hint: the filters of a column in all stripes will be asked soon.
    ///
    /// # Errors
    /// `Damaged` when the bytes are not what was written.
    ///
    /// # Panics
    /// When there is no such column.
    pub fn expect_filters(&self, column: usize) -> Result<()> {
        let entries = self.details(column)?.map_or(&[][..], |details| &details.filters);
        let entries = entries.iter().filter(|entry| entry.bytes > 0);
        let mut ranges = entries.map(|entry| entry.offset..entry.offset + u64::from(entry.bytes));
        self.file.store.io.expect(self.file.known(), &mut ranges);
        Ok(())
    }

    /// Applies `ask` to the bytes of a filter, which are verified as those of blocks.
    fn with_filter<T>(
        &self,
        column: usize,
        stripe: usize,
        entry: &FilterEntry,
        ask: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        let block = self.contents.nodes[column] * self.stripe_count() + stripe;
        let is_verified = match self.verify {
            Verify::Always => false,
            Verify::Once => self.contents.is_filter_verified(block),
            Verify::Never => true,
        };
        let ask = |bytes: &[u8]| {
            let is_whole = is_verified || xxh3_64(bytes) == entry.checksum;
            is_whole.then(|| ask(bytes))
        };
        let range = entry.offset..entry.offset + u64::from(entry.bytes);
        let answer = match self.contents.map(|| self.file.input())? {
            Some(map) => map.read(at(range.start)..at(range.end), ask).map_err(|error| {
                // Such a map shows zeros from then on.
                self.file.store.footers.forget(self.file.identity.table, self.file.identity.number);
                self.damaged_details_at(range.clone(), column, &format!("it cannot be read: {error}"))
            })?,
            None => ask(&self.details_bytes(range.clone(), column)?),
        };
        let answer = answer
            .ok_or_else(|| self.damaged_details_at(range, column, "the checksum of a filter is another"))?;
        if !is_verified {
            self.contents.set_filter_verified(block);
        }
        Ok(answer)
    }

    /// The details of a column, if it has any.
    fn details(&self, column: usize) -> Result<Option<&ColumnDetails>> {
        if let Some(details) = self.contents.details(column) {
            return Ok(Some(details));
        }
        let read = self.read_details(column, None)?;
        Ok(read.map(|(details, _)| self.contents.keep_details(column, details)))
    }

    fn read_details(
        &self,
        column: usize,
        sample_rows: Option<usize>,
    ) -> Result<Option<(ColumnDetails, Option<Column<'static>>)>> {
        let Some(bytes) = self.record(1 + column)? else { return Ok(None) };
        let footer = self.footer();
        let place = Place {
            level: self.file.store.level,
            field: &footer.fields[column],
            stripe_rows: &footer.stripe_rows,
            footer_at: footer.details_at,
        };
        let read = ColumnDetails::read(&bytes, place, sample_rows);
        read.map(Some).map_err(|malformed| self.damaged_details(1 + column, &malformed.to_string()))
    }

    /// Where all records lie.
    #[cfg(test)]
    pub(crate) fn details_range(&self) -> Range<usize> {
        let ranges: Vec<_> =
            (0..).map_while(|index| self.footer().details.get(index).map(|_| index)).collect();
        let ranges: Vec<_> = ranges.into_iter().filter_map(|index| self.record_range(index)).collect();
        at(ranges[0].start)..at(ranges[ranges.len() - 1].end)
    }

    /// Where a record lies.
    fn record_range(&self, index: usize) -> Option<Range<u64>> {
        let footer = self.footer();
        let record = footer.details.get(index).filter(|record| record.bytes > 0)?;
        let before: u64 = footer.details[..index].iter().map(|record| u64::from(record.bytes)).sum();
        let begin = footer.details_at + before;
        Some(begin..begin + u64::from(record.bytes))
    }

    /// The bytes of a record, if there is one.
    fn record(&self, index: usize) -> Result<Option<Vec<u8>>> {
        let Some(range) = self.record_range(index) else { return Ok(None) };
        let bytes = self.details_bytes(range, index.saturating_sub(1))?;
        if self.verify != Verify::Never && xxh3_64(&bytes) != self.footer().details[index].hash {
            return Err(self.damaged_details(index, "the checksum is another"));
        }
        Ok(Some(bytes))
    }

    fn details_bytes(&self, range: Range<u64>, column: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; at(range.end - range.start)];
        let read = self.file.input()?.read_exact_at(range.start, &mut bytes);
        read.map_err(|error| match is_shortage(&error) {
            true => Error::io("read", &self.file.path)(error),
            false => self.damaged_details_at(range, column, &format!("it cannot be read: {error}")),
        })?;
        Ok(bytes)
    }

    fn damaged_details(&self, index: usize, reason: &str) -> Error {
        let range = self.record_range(index).unwrap_or_default();
        self.damaged_details_at(range, index.saturating_sub(1), reason)
    }

    fn damaged_details_at(&self, range: Range<u64>, column: usize, reason: &str) -> Error {
        let (offset, column) = (Some(range.start), Some(self.fields()[column].name.clone()));
        self.file.store.io.invalidate(self.file.known(), range);
        let damage = self.file.damage(format!("details: {reason}"));
        crate::error::Damage { column, offset, ..damage }.into()
    }

    /// Fails if the details say something wrong of a column in a stripe, whose rows these are.
    pub(super) fn check_details(&self, column: usize, stripe: usize, rows: &Column<'_>) -> Result<()> {
        // The sample is read and checked with the first stripe.
        if stripe == 0 {
            self.sample(column)?;
        }
        let Some(details) = self.details(column)? else { return Ok(()) };
        let (level, data_type) = (self.file.store.level, &self.fields()[column].data_type);
        if let Some(zones) = &details.zones
            && zones_of(level, data_type, rows).is_none_or(|found| !zones.is_of_stripe(stripe, &found))
        {
            return Err(self.damaged_details(1 + column, "its zones have other bounds"));
        }
        if let Some(entry) = details.filters.get(stripe).filter(|entry| entry.bytes > 0) {
            let hashes = hashes_of(level, data_type, rows).unwrap_or_default();
            let has_all = |bytes: &[u8]| hashes.iter().all(|hash| filter_may_have(bytes, &[*hash]));
            if !self.with_filter(column, stripe, entry, has_all)? {
                return Err(self.damaged_details(1 + column, "a filter lacks a value"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::simulated_disk::Unreliable;
    use crate::store::{Store, part_path};
    use crate::tests::hostile::one_part;
    use crate::{Access, Database, Options};

    /// Rows are read, a check finds it, and a repair makes all of it anew.
    #[test]
    fn damaged_details_are_found_and_harm_nothing() {
        let (io, identity, part) = one_part();
        let path = part_path(identity.table, part.number);
        let reader = PartReader::open(
            Arc::new(Store::new(Arc::<Unreliable>::clone(&io), Options::default())),
            identity,
            &part,
        )
        .unwrap();
        let filter = reader.details(0).unwrap().unwrap().filters[0];
        let (records, filter) = (reader.details_range(), at(filter.offset));
        for byte in [records.start, records.start + 100, records.end - 1, filter, filter + 31] {
            let io = Arc::new(io.fork());
            io.tamper(&path, |bytes| bytes[byte] ^= 4);
            let open = || Database::open(Arc::<Unreliable>::clone(&io), Access::Write, Options::default());
            let database = open().unwrap();
            let snapshot = database.snapshot();
            let table = snapshot.table(identity.table).unwrap();
            let reader = snapshot.open_part(table, &part).unwrap();
            assert_eq!(reader.read(0, 0, keirin_kernels::Selection::All).unwrap().row_count(), 500);
            let found = database.check();
            assert!(
                !found.is_empty() && found.iter().all(|damage| damage.part == Some(part.number)),
                "{found:?}"
            );
            assert!(found[0].reason.starts_with("details: "), "{found:?}");
            let mut transaction = database.begin().unwrap();
            let lost =
                transaction.repair_part(identity.table, part.number, crate::part::WriteOptions::default());
            assert_eq!(lost.unwrap(), crate::RepairLoss::default());
            transaction.commit().unwrap();
            assert_eq!(database.check(), []);
        }
    }
}
