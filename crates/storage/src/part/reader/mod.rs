//! Reads a part: any columns, any stripes, any rows of them.

use std::ops::Range;
use std::sync::Arc;

use keirin_codecs::frame::Kind;
use keirin_codecs::strings;
use keirin_kernels::bitmaps::{self, positions};
use keirin_kernels::{BitBuffer, Selection};

use super::Verify;
use super::block::{BlockDecoder, LengthUnit, Stored, Stream, TextValues};
use super::cache::{Contents, FrameOf, PartKey};
use super::filter::{self, Predicate};
use super::footer::Footer;
use super::statistics::Statistics;
use crate::column::{Column, Flags, Values};
use crate::deletions::DeletionVector;
use crate::error::{Damage, Error, Result};
use crate::header::{FileKind, HEADER_BYTES, Header, Identity};
use crate::schema::{DataType, Field, SortKey};
use crate::state::{Part, State};
use crate::store::Store;
use file::PartFile;
use reading::{Reading, is_leaf, place};

mod details;
mod file;
mod reading;
mod sum;

/// An open part: its footer was read and checked; blocks are checked when they are read.
#[derive(Debug)]
pub struct PartReader {
    file: PartFile,
    contents: Arc<Contents>,
    verify: Verify,
}

/// Text of rows as it is stored, not checked to be UTF-8.
#[derive(Debug)]
pub enum Text {
    /// Row after row.
    Rows(Column<'static>),
    /// Rows as indices into the entries of a dictionary.
    Entries {
        /// A bit for each row that has a value; none if all have.
        validity: Option<Flags<'static>>,
        /// For each row the index of its entry, within bounds.
        codes: Vec<u32>,
        /// Where each entry begins, and the last ends; ascending, within the bytes.
        offsets: Vec<i32>,
        /// The bytes of all entries.
        bytes: Vec<u8>,
    },
}

impl PartReader {
    pub(crate) fn open(store: Arc<Store>, identity: Identity, part: &Part) -> Result<Self> {
        let file = PartFile::new(store, identity, part);
        let (store, path) = (&file.store, &file.path);
        let damage = |reason: String| Error::from(file.damage(reason));
        let name_part = |error| match error {
            Error::Damaged(found) => {
                let (table, part) = (Some(identity.table), Some(identity.number));
                Error::from(Damage { table, part, ..*found })
            }
            other => other,
        };
        let input = file.input()?;
        let Some(Range { start: footer_at, .. }) = part.footer_range() else {
            return Err(damage(format!("a footer of {} bytes does not fit in it", part.footer_bytes)));
        };
        let verify = store.verify();
        if let Some(contents) = store.footers.get(file.key) {
            return Ok(Self { file, contents, verify });
        }
        let wrong = |error| {
            store.io.invalidate(file.known(), footer_at..part.file_bytes);
            error
        };
        let mut tail = vec![0; part.footer_bytes as usize + HEADER_BYTES];
        let read = input.read_exact_at(footer_at, &mut tail);
        read.map_err(|error| file.unreadable(error))?;
        let (payload, header) = tail.split_at(part.footer_bytes as usize);
        let read = || {
            let header = Header::read(FileKind::Footer, header, path)?;
            header.check_identity(identity, path)?;
            header.check_payload(payload, path)?;
            Ok(header)
        };
        let header = read().map_err(name_part).map_err(wrong)?;
        if header.hash != part.hash {
            return Err(wrong(damage("it is not the file that was committed".to_owned())));
        }
        let footer = Footer::read(store.level, payload, footer_at, header.format)
            .map_err(|malformed| wrong(damage(format!("footer: {malformed}"))))?;
        if footer.row_count != part.row_count {
            return Err(damage(format!("it has {} rows, not {}", footer.row_count, part.row_count)));
        }
        let contents = store.footers.put(file.key, Contents::new(footer));
        Ok(Self { file, contents, verify })
    }

    /// The same part, read in a version.
    pub(crate) fn in_version(mut self, version: &Arc<State>) -> Self {
        self.file.version = Some(Arc::clone(version));
        self
    }

    /// Reads a column in a stripe and checks the footer's statistics against its values.
    pub(crate) fn check(&self, column: usize, stripe: usize) -> Result<Column<'static>> {
        let read = self.read(column, stripe, Selection::All)?;
        self.check_details(column, stripe, &read)?;
        let mut node = self.contents.nodes[column];
        let claim = self.false_claim(&self.footer().fields[column], &read, &mut node, stripe);
        match claim {
            None => Ok(read),
            Some((node, claim)) => {
                let reading = self.reading(column, stripe);
                Err(reading.damage(reading.block(node), format!("its statistics are wrong: {claim}")))
            }
        }
    }

    /// The first wrong statistics of a column and its children, with the node they belong to.
    fn false_claim(
        &self,
        field: &Field,
        column: &Column<'_>,
        node: &mut usize,
        stripe: usize,
    ) -> Option<(usize, String)> {
        let this = *node;
        *node += 1;
        let claim =
            self.footer().block(this, stripe).statistics.false_claim(self.file.store.level, field, column);
        if let Some(claim) = claim {
            return Some((this, claim));
        }
        let (Values::List { children, .. } | Values::Struct { children, .. }) = &column.values else {
            return None;
        };
        let mut inside = field.data_type.children().iter().zip(children);
        inside.find_map(|(field, child)| self.false_claim(field, child, node, stripe))
    }

    /// An error that the part as a whole is damaged.
    pub(crate) fn damage(&self, reason: String) -> Error {
        self.file.damage(reason).into()
    }

    /// Whether the part is remote, so that [`expect`](Self::expect) has an effect.
    #[must_use]
    pub fn is_fetched(&self) -> bool {
        self.file.store.io.is_far()
    }

    /// Prefetch hint: these columns of these stripes will be read soon.
    ///
    /// # Panics
    /// When there is no such column or stripe.
    pub fn expect(&self, columns: &[usize], stripes: Range<usize>) {
        let nodes = columns.iter().flat_map(|column| {
            let first = self.contents.nodes[*column];
            first..first + self.footer().fields[*column].nodes().count()
        });
        let blocks = nodes.flat_map(|node| {
            let stripes = stripes.clone();
            stripes.map(move |stripe| self.footer().block(node, stripe))
        });
        let mut ranges = blocks.map(|block| block.offset..block.offset + block.byte_count());
        self.file.store.io.expect(self.file.known(), &mut ranges);
    }

    fn footer(&self) -> &Footer {
        &self.contents.footer
    }

    /// The same part, read with every checksum verified.
    pub(crate) fn verifying(self) -> Self {
        Self { verify: Verify::Always, ..self }
    }

    /// Identifies the part and its content.
    #[must_use]
    pub fn key(&self) -> PartKey {
        self.file.key
    }

    /// When the checksums of its blocks are verified.
    #[must_use]
    pub fn verify(&self) -> Verify {
        self.verify
    }

    /// Rows, deleted ones included.
    #[must_use]
    pub fn row_count(&self) -> u64 {
        self.footer().row_count
    }

    /// The columns that the table had when the part was written.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.footer().fields
    }

    /// The keys that the rows are sorted by; none if they are not.
    #[must_use]
    pub fn keys(&self) -> &[SortKey] {
        &self.footer().keys
    }

    /// Count of stripes.
    #[must_use]
    pub fn stripe_count(&self) -> usize {
        self.footer().stripe_rows.len()
    }

    /// The rows of a stripe by their numbers in the part.
    ///
    /// # Panics
    /// When there is no such stripe.
    #[must_use]
    pub fn stripe(&self, stripe: usize) -> Range<u64> {
        self.contents.stripe_starts[stripe]..self.contents.stripe_starts[stripe + 1]
    }

    /// The statistics of a block.
    ///
    /// # Panics
    /// When there is no such column or stripe.
    #[must_use]
    pub fn statistics(&self, column: usize, stripe: usize) -> &Statistics {
        &self.footer().block(self.contents.nodes[column], stripe).statistics
    }

    /// Approximate count of distinct values of a column in all stripes; 0 if they were not counted.
    ///
    /// # Panics
    /// When there is no such column.
    #[must_use]
    pub fn distinct(&self, column: usize) -> u64 {
        self.footer().distinct[self.contents.nodes[column]]
    }

    /// Bytes of the blocks of a column and its children in a stripe.
    ///
    /// # Panics
    /// When there is no such column or stripe.
    #[must_use]
    pub fn stored_bytes(&self, column: usize, stripe: usize) -> u64 {
        let first = self.contents.nodes[column];
        let nodes = first..first + self.footer().fields[column].nodes().count();
        nodes.map(|node| self.footer().block(node, stripe).byte_count()).sum()
    }

    /// Bytes that the values of a column in a stripe take when decoded: numbers by their width, text with four
    /// bytes each for its length.
    ///
    /// # Panics
    /// When there is no such column or stripe.
    #[must_use]
    pub fn value_bytes(&self, column: usize, stripe: usize) -> u64 {
        let first = self.contents.nodes[column];
        let nodes = self.footer().fields[column].nodes().enumerate();
        let bytes = nodes.map(|(node, field)| {
            let Statistics { rows, text_bytes, .. } = self.footer().block(first + node, stripe).statistics;
            let bits = match field.data_type.values() {
                None => 0,
                Some(Kind::Flags) => 1,
                Some(Kind::I8 | Kind::U8) => 8,
                Some(Kind::I16 | Kind::U16) => 16,
                Some(Kind::I32 | Kind::U32 | Kind::F32 | Kind::Text) => 32,
                Some(Kind::I64 | Kind::U64 | Kind::F64) => 64,
                Some(Kind::I128) => 128,
            };
            u64::from(rows) * bits / 8 + u64::from(text_bytes)
        });
        bytes.sum()
    }

    /// Fails if a deletion vector does not fit the stripes of this part.
    ///
    /// # Errors
    /// `Damaged` when a stripe is not there or has another count of rows.
    pub fn check_deletions(&self, deletions: &DeletionVector) -> Result<()> {
        let is_ours = |(stripe, rows): (u32, usize)| {
            self.footer().stripe_rows.get(stripe as usize).is_some_and(|count| *count as usize == rows)
        };
        if deletions.stripes().all(is_ours) {
            return Ok(());
        }
        Err(self.damage("rows are deleted that it does not have".to_owned()))
    }

    /// Describes the encodings of the blocks of a column and its children in a stripe, with the speed at which they
    /// were just decoded.
    ///
    /// # Errors
    /// `Damaged` when the bytes are not what was written.
    ///
    /// # Panics
    /// When there is no such column or stripe.
    pub fn explain(&self, column: usize, stripe: usize) -> Result<Vec<String>> {
        let field = &self.footer().fields[column];
        let reading = self.reading(column, stripe);
        let first = self.contents.nodes[column];
        let nodes =
            (first..first + field.nodes().count()).filter(|node| reading.block(*node).value_bytes > 0);
        let explain = |node| {
            let block = reading.block(node);
            let bytes = reading.bytes(block, block.byte_count())?;
            let range = place(block)..bytes.len();
            reading.frame(node, FrameOf::Values, (&bytes, range), |stored| reading.decoder.explain(stored))
        };
        nodes.map(explain).collect()
    }

    /// The selected rows of a column in a stripe.
    ///
    /// # Errors
    /// `Damaged` when the bytes are not what was written.
    ///
    /// # Panics
    /// When there is no such column or stripe, or the selection names rows that the stripe does not have.
    pub fn read(&self, column: usize, stripe: usize, selection: Selection<'_>) -> Result<Column<'static>> {
        let field = &self.footer().fields[column];
        let reading = self.reading(column, stripe);
        let mut node = self.contents.nodes[column];
        if is_leaf(&field.data_type) {
            return reading.leaf(field, node, selection);
        }
        let all = reading.tree(field, &mut node)?;
        Ok(match selection {
            Selection::All => all,
            Selection::Rows(rows) => all.take(self.file.store.level, rows),
            Selection::Bits(bits) => all.take(self.file.store.level, &positions(self.file.store.level, bits)),
        })
    }

    /// The selected rows of a column of text or binary in a stripe, as they are stored.
    ///
    /// # Errors
    /// `Damaged` when the bytes are not what was written.
    ///
    /// # Panics
    /// When there is no such column or stripe, it has no text, or the selection names rows that the stripe does not
    /// have.
    pub fn read_text(&self, column: usize, stripe: usize, selection: Selection<'_>) -> Result<Text> {
        let field = &self.footer().fields[column];
        let reading = self.reading(column, stripe);
        let node = self.contents.nodes[column];
        let rows = reading.block(node).statistics.rows;
        if rows == 0 {
            return Ok(Text::Rows(Column::empty(&field.data_type)));
        }
        let (validity, values) =
            reading.values(node, None, selection, |stored| reading.decoder.text(stored, rows, selection))?;
        Ok(match values {
            TextValues::Rows(values) => Text::Rows(Column { validity, values }),
            TextValues::Entries { codes, entries: strings::Buffer { offsets, bytes } } => {
                Text::Entries { validity, codes, offsets, bytes }
            }
        })
    }

    /// The selected rows of a column of decimals in a stripe, in 64 bits each; `None` if some have no room.
    ///
    /// # Errors
    /// `Damaged` when the bytes are not what was written.
    ///
    /// # Panics
    /// When there is no such column or stripe, it has no decimals, or the selection names rows that the stripe does not
    /// have.
    pub fn read_narrow(
        &self,
        column: usize,
        stripe: usize,
        selection: Selection<'_>,
    ) -> Result<Option<Column<'static>>> {
        let reading = self.reading(column, stripe);
        let node = self.contents.nodes[column];
        let Statistics { rows, min, max, .. } = &reading.block(node).statistics;
        let has_room = |bound: &Vec<u8>| {
            let bound = bound.as_slice().try_into().map(i128::from_le_bytes);
            bound.is_ok_and(|bound| i64::try_from(bound).is_ok())
        };
        if *rows == 0 || ![min, max].into_iter().flatten().all(has_room) {
            return Ok(None);
        }
        let (validity, values) = reading.values(node, Some(Kind::I128), selection, |stored| {
            reading.decoder.narrow(stored, *rows, selection)
        })?;
        Ok(values.map(|values| Column { validity, values: Values::I64(values) }))
    }

    /// The lengths of the selected rows of a column of text or binary in a stripe, without decoding the text where
    /// possible.
    ///
    /// # Errors
    /// `Damaged` when the bytes are not what was written.
    ///
    /// # Panics
    /// When there is no such column or stripe, it has no text, or the selection names rows that the stripe does not
    /// have.
    pub fn read_lengths(
        &self,
        column: usize,
        stripe: usize,
        selection: Selection<'_>,
        unit: LengthUnit,
    ) -> Result<Column<'static>> {
        let reading = self.reading(column, stripe);
        let node = self.contents.nodes[column];
        let Statistics { rows, flags, .. } = reading.block(node).statistics;
        if rows == 0 {
            return Ok(Column::empty(&DataType::I32));
        }
        let unit = if flags.is_ascii() { LengthUnit::Bytes } else { unit };
        let read = |stored: Stored<'_>| reading.decoder.lengths(stored, rows, selection, unit);
        // If the block was verified before, the bytes of the text need not be read.
        let (validity, lengths) = match unit {
            LengthUnit::Bytes if reading.is_verified(node, FrameOf::Values) => {
                let block = reading.block(node);
                let bytes = reading.bytes(block, u64::from(block.validity_bytes))?;
                (reading.validity(node, &bytes, selection)?, reading.values_in_map(node, read)?)
            }
            _ => reading.values(node, None, selection, read)?,
        };
        Ok(Column { validity, values: Values::I32(lengths.into()) })
    }

    fn reading(&self, column: usize, stripe: usize) -> Reading<'_> {
        let Store { level, races, pool, .. } = &*self.file.store;
        let stream = Stream { table: self.file.identity.table, column: &self.footer().fields[column].name };
        let decoder = BlockDecoder { level: *level, races, pool, stream };
        Reading { part: self, column, stripe, decoder }
    }

    /// The rows of a stripe for which a predicate is true, evaluated on the encoded block: a bit for each row.
    /// `None`, with nothing read, if the column's type does not support the predicate.
    ///
    /// # Errors
    /// `Damaged` when the bytes are not what was written.
    ///
    /// # Panics
    /// When there is no such column or stripe.
    pub fn filter(
        &self,
        column: usize,
        stripe: usize,
        predicate: &Predicate<'_>,
    ) -> Result<Option<BitBuffer>> {
        let (field, node) = (&self.footer().fields[column], self.contents.nodes[column]);
        let reading = self.reading(column, stripe);
        let (level, block) = (self.file.store.level, reading.block(node));
        let row_count = block.statistics.rows as usize;
        let (bytes, found) = match predicate {
            Predicate::IsNull | Predicate::IsNotNull => {
                let is_null = matches!(predicate, Predicate::IsNull);
                if block.statistics.nulls == 0 {
                    return Ok(Some(filter::same_bits(!is_null, row_count)));
                }
                let bytes = reading.bytes(block, u64::from(block.validity_bytes))?;
                let validity = reading.validity(node, &bytes, Selection::All)?;
                let validity = validity.expect("there are nulls").into_owned();
                return Ok(Some(if is_null { bitmaps::not(level, validity.as_bits()) } else { validity }));
            }
            _ if !filter::can_ask(&field.data_type, predicate) => return Ok(None),
            _ => {
                let read = |stored: Stored<'_>| {
                    reading.decoder.filter(stored, &field.data_type, block.statistics.rows, predicate)
                };
                if block.validity_bytes == 0 {
                    return reading.values_in_map(node, read);
                }
                let bytes = reading.bytes(block, block.byte_count())?;
                let range = place(block)..bytes.len();
                let found = reading.frame(node, FrameOf::Values, (&bytes, range), read)?;
                (bytes, found)
            }
        };
        let validity = reading.validity(node, &bytes, Selection::All)?;
        Ok(match (found, validity) {
            (Some(found), Some(validity)) => Some(bitmaps::and(level, found.as_bits(), validity.as_bits())),
            (found, _) => found,
        })
    }
}

#[cfg(test)]
mod tests {
    use keirin_codecs::blocks::Codec;
    use keirin_codecs::frame;

    use super::*;
    use crate::fuzzing::read_all;
    use crate::part::{ColumnCodec, WriteOptions};
    use crate::schema::Definition;
    use crate::simulated_disk::{Random, Unreliable};
    use crate::store::part_path;
    use crate::tests::hostile::one_part;
    use crate::tests::simulation::for_seeds;
    use crate::{Access, Database, Options};

    /// A table with two columns.
    fn new_database(verify: Verify) -> (Arc<Unreliable>, Arc<Database>, u64) {
        let io = Arc::new(Unreliable::new(1));
        let options = Options { verify, ..Options::default() };
        let database = Database::open(Arc::<Unreliable>::clone(&io), Access::Write, options).unwrap();
        let mut transaction = database.begin().unwrap();
        let columns = vec![("a", DataType::I64), ("b", DataType::I64)];
        let table = transaction.create_table(Definition::new("main", "t", columns)).unwrap();
        transaction.commit().unwrap();
        (io, database, table)
    }

    /// Adds a part with two columns of numbers that are stored raw.
    fn two_raw_columns(database: &Arc<Database>, table: u64, first: i64) -> Part {
        let mut transaction = database.begin().unwrap();
        let codecs = vec![ColumnCodec::Raw(Codec::None); 2];
        let options = WriteOptions { codecs, ..WriteOptions::default() };
        let mut writer = transaction.write_part(table, options).unwrap();
        let numbers = |first: i64| Column {
            validity: None,
            values: Values::I64((first..first + 100).collect::<Vec<_>>().into()),
        };
        writer.push(&[numbers(first), numbers(first + 1000)]).unwrap();
        let part = writer.finish().unwrap();
        transaction.add_part(table, part.clone()).unwrap();
        transaction.commit().unwrap();
        part
    }

    /// Blocks of the same shape are swapped: each is whole, but at the wrong place.
    #[test]
    fn blocks_that_changed_places_are_found() {
        for verify in [Verify::Always, Verify::Once, Verify::Never] {
            let (io, database, table) = new_database(verify);
            let parts = [0, 5000].map(|first| two_raw_columns(&database, table, first));
            let snapshot = database.snapshot();
            let open = |part| snapshot.open_part(snapshot.table(table).unwrap(), part).unwrap();
            let block = |part, column| {
                let entry = open(part).footer().block(column, 0).clone();
                let at = usize::try_from(entry.offset).unwrap();
                at..at + usize::try_from(entry.byte_count()).unwrap()
            };
            let paths = [&parts[0], &parts[1]].map(|part| part_path(table, part.number));
            let whole = io.bytes(&paths[0]);
            let other = io.bytes(&paths[1]);
            let (a, b) = (block(&parts[0], 0), block(&parts[0], 1));
            for replacement in [&whole[b], &other[block(&parts[1], 0)]] {
                assert_eq!(replacement.len(), a.len());
                io.tamper(&paths[0], |bytes| bytes[a.clone()].copy_from_slice(replacement));
                let error = open(&parts[0]).read(0, 0, Selection::All).unwrap_err().to_string();
                assert!(error.contains("another block"), "{error}");
                io.tamper(&paths[0], |bytes| bytes.copy_from_slice(&whole));
                open(&parts[0]).read(0, 0, Selection::All).unwrap();
            }
        }
    }

    /// A flipped bit of raw values is noticed by verification only.
    #[test]
    fn checksums_are_verified_when_they_should_be() {
        for (verify, is_noticed_first, is_noticed_later) in
            [(Verify::Always, true, true), (Verify::Once, true, false), (Verify::Never, false, false)]
        {
            let (io, database, table) = new_database(verify);
            let part = two_raw_columns(&database, table, 0);
            let snapshot = database.snapshot();
            let open = || snapshot.open_part(snapshot.table(table).unwrap(), &part).unwrap();
            let last = open().footer().block(0, 0).clone();
            let last = usize::try_from(last.offset + last.byte_count()).unwrap() - 1;
            let flip = || io.tamper(&part_path(table, part.number), |bytes| bytes[last] ^= 1);
            flip();
            assert_eq!(open().read(0, 0, Selection::All).is_err(), is_noticed_first, "{verify:?}");
            flip();
            open().read(0, 0, Selection::All).unwrap();
            flip();
            assert_eq!(open().read(0, 0, Selection::All).is_err(), is_noticed_later, "{verify:?}");
            assert_eq!(database.check().len(), 1, "{verify:?}");
        }
    }

    #[test]
    fn entries_of_an_index_that_lie_are_errors() {
        let (io, identity, part) = one_part();
        let path = part_path(identity.table, part.number);
        let options = Options { verify: Verify::Always, ..Options::default() };
        let store = Arc::new(Store::new(Arc::<Unreliable>::clone(&io), options));
        let open = || PartReader::open(Arc::clone(&store), identity, &part).unwrap();
        let footer_at = part.file_bytes - u64::from(part.footer_bytes) - HEADER_BYTES as u64;
        let honest = open().footer().blocks.clone();
        let file = io.bytes(&path);
        for_seeds(0..20_000, |seed| {
            let mut random = Random::new(seed);
            let mut blocks = honest.clone();
            for _ in 0..1 + random.below(3) {
                let other = honest[random.below(honest.len())].clone();
                let index = random.below(blocks.len());
                let block = &mut blocks[index];
                match random.below(6) {
                    0 => block.offset = random.next() >> random.below(64) & !63,
                    1 => block.offset = other.offset,
                    2 => block.validity_bytes = other.validity_bytes,
                    3 => block.value_bytes = u32::MAX >> random.below(32),
                    4 => block.statistics.rows = other.statistics.rows,
                    _ => *block = other,
                }
            }
            // The forged index also repeats the checksums at the forged offsets.
            for block in &mut blocks {
                let checksum = |at: u64| {
                    let at = usize::try_from(at).unwrap();
                    frame::checksum_of(file.get(at..).unwrap_or_default()).unwrap_or(0)
                };
                block.validity_checksum = checksum(block.offset);
                block.value_checksum = checksum(block.offset.saturating_add(block.values_at()));
            }
            let reader = open();
            let footer = Footer { blocks, ..reader.footer().clone() };
            if footer.problem(footer_at).is_none() {
                read_all(&PartReader { contents: Arc::new(Contents::new(footer)), ..reader });
            }
        });
    }

    #[test]
    fn statistics_that_lie_are_found_by_a_check() {
        let (io, identity, part) = one_part();
        let path = part_path(identity.table, part.number);
        let file = io.bytes(&path);
        let open = |io: Arc<Unreliable>, part: &Part| {
            PartReader::open(Arc::new(Store::new(io, Options::default())), identity, part).unwrap()
        };
        let honest = open(Arc::new(io.fork()), &part);
        let footer_at = file.len() - HEADER_BYTES - part.footer_bytes as usize;
        type Lie<'a> = &'a dyn Fn(&mut Statistics);
        // Nodes: numbers, text, lists, and the elements of the lists.
        let lies: [(usize, Lie<'_>); 8] = [
            (0, &|statistics| statistics.min = Some(1_i64.to_le_bytes().to_vec())),
            (0, &|statistics| statistics.max = Some(1_000_i64.to_le_bytes().to_vec())),
            (0, &|statistics| statistics.sum = Some(1)),
            (1, &|statistics| statistics.nulls -= 1),
            (1, &|statistics| statistics.text_bytes += 1),
            (1, &|statistics| statistics.max = Some(b"xxx".to_vec())),
            (2, &|statistics| statistics.nulls -= 1),
            (3, &|statistics| statistics.max = None),
        ];
        for (case, (node, lie)) in lies.into_iter().enumerate() {
            let mut footer = honest.footer().clone();
            lie(&mut footer.blocks[node].statistics);
            let payload = footer.write(keirin_kernels::Level::best()).unwrap();
            let (last, hash) = crate::header::write(FileKind::Footer, identity, &payload);
            let changed = [&file[..footer_at], &payload, &last].concat();
            let footer_bytes = u32::try_from(payload.len()).unwrap();
            let file_bytes = changed.len() as u64;
            let io = Arc::new(io.fork());
            io.tamper(&path, |bytes| *bytes = changed);
            let reader = open(io, &Part { hash, footer_bytes, file_bytes, ..part.clone() });
            let found: Vec<String> = (0..3)
                .filter_map(|column| reader.check(column, 0).err())
                .map(|error| error.to_string())
                .collect();
            // A missing bound claims nothing.
            let expected = usize::from(case != 7);
            assert_eq!(found.len(), expected, "lie {case}: {found:?}");
            assert!(found.iter().all(|found| found.contains("its statistics are wrong")), "{found:?}");
        }
    }
}
