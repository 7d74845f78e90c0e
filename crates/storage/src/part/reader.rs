//! Reads a part: any columns, any stripes, any rows of them.

use std::ops::Range;
use std::sync::Arc;

use keirin_kernels::Selection;
use keirin_kernels::bitmaps::positions;

use super::block::BlockDecoder;
use super::footer::{BlockEntry, Footer};
use super::statistics::Statistics;
use crate::column::{Column, Values};
use crate::deletions::DeletionVector;
use crate::error::{Damage, Error, Result};
use crate::header::{FileKind, HEADER_BYTES, Header, Identity};
use crate::io::{Input, is_shortage};
use crate::schema::{DataType, Field, SortKey};
use crate::state::Part;
use crate::store::{Store, part_path};

/// A part, opened: its footer was read and checked, its blocks are when they are read.
#[derive(Debug)]
pub struct PartReader {
    store: Arc<Store>,
    input: Box<dyn Input>,
    path: String,
    identity: Identity,
    footer: Footer,
    /// The first node of each column.
    nodes: Vec<usize>,
    /// The first row of each stripe, and the end of the last.
    stripe_starts: Vec<u64>,
}

/// What the bytes of a file fail to be, said with the file.
fn damaged(path: &str, identity: Identity, reason: String) -> Damage {
    let (table, part) = (Some(identity.table), Some(identity.number));
    Damage { path: path.to_owned(), table, part, reason, ..Damage::default() }
}

impl PartReader {
    pub(crate) fn open(store: Arc<Store>, identity: Identity, part: &Part) -> Result<Self> {
        let path = part_path(identity.table, identity.number);
        let damage = |reason: String| Error::from(damaged(&path, identity, reason));
        let name_part = |error| match error {
            Error::Damaged(found) => {
                let (table, part) = (Some(identity.table), Some(identity.number));
                Error::from(Damage { table, part, ..*found })
            }
            other => other,
        };
        let unreadable = |error: std::io::Error| {
            if is_shortage(&error) {
                return Error::io("read", &path)(error);
            }
            damage(format!("it cannot be read: {error}"))
        };
        let input = store.io.open(&path).map_err(unreadable)?;
        let tail_bytes = u64::from(part.footer_bytes) + HEADER_BYTES as u64;
        if input.byte_count() != part.file_bytes {
            let (found, expected) = (input.byte_count(), part.file_bytes);
            return Err(damage(format!("it has {found} bytes, not {expected}")));
        }
        let Some(footer_at) = part.file_bytes.checked_sub(tail_bytes) else {
            return Err(damage(format!("a footer of {tail_bytes} bytes does not fit in it")));
        };
        let mut tail = vec![0; part.footer_bytes as usize + HEADER_BYTES];
        input.read_exact_at(footer_at, &mut tail).map_err(unreadable)?;
        let (payload, header) = tail.split_at(part.footer_bytes as usize);
        let read = || {
            let header = Header::read(FileKind::Footer, header, &path)?;
            header.check_identity(identity, &path)?;
            header.check_payload(payload, &path)?;
            Ok(header)
        };
        let header = read().map_err(name_part)?;
        if header.hash != part.hash {
            return Err(damage("it is not the file that was committed".to_owned()));
        }
        let footer = Footer::read(store.level, payload, footer_at)
            .map_err(|malformed| damage(format!("footer: {malformed}")))?;
        if footer.row_count != part.row_count {
            return Err(damage(format!("it has {} rows, not {}", footer.row_count, part.row_count)));
        }
        let nodes = footer.fields.iter().scan(0, |next, field| {
            let first = *next;
            *next += field.nodes().count();
            Some(first)
        });
        let nodes = nodes.collect();
        let mut stripe_starts = vec![0];
        let mut end = 0;
        stripe_starts.extend(footer.stripe_rows.iter().map(|rows| {
            end += u64::from(*rows);
            end
        }));
        Ok(Self { store, input, path, identity, footer, nodes, stripe_starts })
    }

    /// Rows, deleted ones included.
    #[must_use]
    pub fn row_count(&self) -> u64 {
        self.footer.row_count
    }

    /// The columns that the table had when the part was written.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.footer.fields
    }

    /// What the rows are sorted by, if they are.
    #[must_use]
    pub fn keys(&self) -> &[SortKey] {
        &self.footer.keys
    }

    /// Count of stripes.
    #[must_use]
    pub fn stripe_count(&self) -> usize {
        self.footer.stripe_rows.len()
    }

    /// The rows of a stripe by their numbers in the part.
    ///
    /// # Panics
    /// When there is no such stripe.
    #[must_use]
    pub fn stripe(&self, stripe: usize) -> Range<u64> {
        self.stripe_starts[stripe]..self.stripe_starts[stripe + 1]
    }

    /// What is known of a block.
    ///
    /// # Panics
    /// When there is no such column or stripe.
    #[must_use]
    pub fn statistics(&self, column: usize, stripe: usize) -> &Statistics {
        &self.footer.block(self.nodes[column], stripe).statistics
    }

    /// Bytes of a column's blocks in a stripe, those inside it included.
    ///
    /// # Panics
    /// When there is no such column or stripe.
    #[must_use]
    pub fn stored_bytes(&self, column: usize, stripe: usize) -> u64 {
        let first = self.nodes[column];
        let nodes = first..first + self.footer.fields[column].nodes().count();
        nodes.map(|node| self.footer.block(node, stripe).byte_count()).sum()
    }

    /// Fails unless deleted rows are rows of this part.
    ///
    /// # Errors
    /// `Damaged` when a stripe is not there or has another count of rows.
    pub fn check_deletions(&self, deletions: &DeletionVector) -> Result<()> {
        let is_ours = |(stripe, rows): (u32, usize)| {
            self.footer.stripe_rows.get(stripe as usize).is_some_and(|count| *count as usize == rows)
        };
        if deletions.stripes().all(is_ours) {
            return Ok(());
        }
        Err(damaged(&self.path, self.identity, "rows are deleted that it does not have".to_owned()).into())
    }

    /// The selected rows of a column in a stripe.
    ///
    /// # Errors
    /// `Damaged` when the bytes are not what was written.
    ///
    /// # Panics
    /// When there is no such column or stripe, or the selection names rows that the stripe does not have.
    pub fn read(&self, column: usize, stripe: usize, selection: Selection<'_>) -> Result<Column<'static>> {
        let field = &self.footer.fields[column];
        let stream = format!("{}.{}", self.identity.table, field.name);
        let decoder = BlockDecoder { level: self.store.level, races: &self.store.races, stream: &stream };
        let reading = Reading { part: self, column, stripe, decoder };
        let mut node = self.nodes[column];
        if is_leaf(&field.data_type) {
            return reading.leaf(field, node, selection);
        }
        let all = reading.tree(field, &mut node)?;
        Ok(match selection {
            Selection::All => all,
            Selection::Rows(rows) => all.take(self.store.level, rows),
            Selection::Bits(bits) => all.take(self.store.level, &positions(self.store.level, bits)),
        })
    }
}

/// The reading of one column in one stripe.
struct Reading<'a> {
    part: &'a PartReader,
    column: usize,
    stripe: usize,
    decoder: BlockDecoder<'a>,
}

impl Reading<'_> {
    fn damage(&self, block: &BlockEntry, reason: String) -> Error {
        let PartReader { path, identity, footer, .. } = self.part;
        Error::from(Damage {
            column: Some(footer.fields[self.column].name.clone()),
            rows: Some(self.part.stripe(self.stripe)),
            stripe: u32::try_from(self.stripe).ok(),
            offset: Some(block.offset),
            ..damaged(path, *identity, reason)
        })
    }

    fn bytes(&self, block: &BlockEntry) -> Result<Vec<u8>> {
        let byte_count = usize::try_from(block.byte_count()).expect("a block lies inside its file");
        let mut bytes = vec![0; byte_count];
        let read = self.part.input.read_exact_at(block.offset, &mut bytes);
        read.map_err(|error| self.damage(block, format!("it cannot be read: {error}")))?;
        Ok(bytes)
    }

    /// Which of the selected rows of a block have a value; the bytes are all of the block.
    fn validity(
        &self,
        block: &BlockEntry,
        bytes: &[u8],
        selection: Selection<'_>,
    ) -> Result<Option<crate::column::Flags<'static>>> {
        if block.validity_bytes == 0 {
            return Ok(None);
        }
        let validity =
            self.decoder.validity(&bytes[..block.validity_bytes as usize], block.statistics.rows, selection);
        validity.map(Some).map_err(|reason| self.damage(block, reason))
    }

    /// Columns without others inside.
    fn leaf(&self, field: &Field, node: usize, selection: Selection<'_>) -> Result<Column<'static>> {
        let block = self.part.footer.block(node, self.stripe);
        if block.statistics.rows == 0 {
            return Ok(Column::empty(&field.data_type));
        }
        let bytes = self.bytes(block)?;
        let validity = self.validity(block, &bytes, selection)?;
        let values = bytes.get(place(block)..).unwrap_or_default();
        let values = self.decoder.values(values, &field.data_type, block.statistics.rows, selection);
        Ok(Column { validity, values: values.map_err(|reason| self.damage(block, reason))? })
    }

    /// All rows of a column and those inside, whose nodes are numbered from `node` on.
    fn tree(&self, field: &Field, node: &mut usize) -> Result<Column<'static>> {
        let block = self.part.footer.block(*node, self.stripe);
        if is_leaf(&field.data_type) {
            let column = self.leaf(field, *node, Selection::All)?;
            *node += 1;
            return Ok(column);
        }
        *node += 1;
        let rows = block.statistics.rows;
        let bytes = self.bytes(block)?;
        let validity = self.validity(block, &bytes, Selection::All)?;
        let first = *node;
        let inside = field
            .data_type
            .children()
            .iter()
            .map(|child| self.tree(child, node))
            .collect::<Result<Vec<_>>>()?;
        let values = match field.data_type {
            DataType::Struct(_) => Values::Struct { row_count: rows as usize, children: inside },
            _ if rows == 0 => Column::empty(&field.data_type).values,
            _ => {
                let elements = self.part.footer.block(first, self.stripe).statistics.rows;
                let lengths = bytes.get(place(block)..).unwrap_or_default();
                let offsets = self.decoder.offsets(lengths, rows, elements);
                let offsets = offsets.map_err(|reason| self.damage(block, reason))?;
                Values::List { offsets, children: inside }
            }
        };
        Ok(Column { validity, values })
    }
}

/// Whether it has values and nothing inside.
fn is_leaf(data_type: &DataType) -> bool {
    data_type.children().is_empty() && !matches!(data_type, DataType::Struct(_))
}

/// Where the values begin in the bytes of a block.
fn place(block: &BlockEntry) -> usize {
    usize::try_from(block.values_at()).expect("a block lies inside its file")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::{one_part, read_all};
    use crate::io::unreliable::Random;
    use crate::simulation::for_seeds;

    #[test]
    fn entries_of_an_index_that_lie_are_errors() {
        let (io, identity, part) = one_part();
        let store = Arc::new(Store::new(io));
        let open = || PartReader::open(Arc::clone(&store), identity, &part).unwrap();
        let footer_at = part.file_bytes - u64::from(part.footer_bytes) - HEADER_BYTES as u64;
        let honest = open().footer.blocks;
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
            let mut reader = open();
            reader.footer.blocks = blocks;
            if reader.footer.problem(footer_at).is_none() {
                read_all(&reader);
            }
        });
    }
}
