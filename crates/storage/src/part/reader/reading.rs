//! Reading one column of one stripe: its frames, verified and decoded.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use keirin_codecs::frame::Kind;
use keirin_kernels::Selection;

use super::PartReader;
use crate::buffer::FileBytes;
use crate::column::{Column, Flags, Values};
use crate::error::{Damage, Error, Result};
use crate::header::Identity;
use crate::io::is_shortage;
use crate::part::Verify;
use crate::part::block::{BlockDecoder, Stored};
use crate::part::cache::FrameOf;
use crate::part::footer::BlockEntry;
use crate::schema::{DataType, Field};

/// Reads one column of one stripe.
pub(super) struct Reading<'a> {
    pub(super) part: &'a PartReader,
    pub(super) column: usize,
    pub(super) stripe: usize,
    pub(super) decoder: BlockDecoder<'a>,
}

impl Reading<'_> {
    pub(super) fn damage(&self, block: &BlockEntry, reason: String) -> Error {
        Error::from(Damage {
            column: Some(self.part.footer().fields[self.column].name.clone()),
            rows: Some(self.part.stripe(self.stripe)),
            stripe: u32::try_from(self.stripe).ok(),
            offset: Some(block.offset),
            ..self.part.file.damage(reason)
        })
    }

    pub(super) fn block(&self, node: usize) -> &BlockEntry {
        self.part.footer().block(node, self.stripe)
    }

    /// Hands a frame to `read`; it is verified as the part's [`Verify`] says.
    pub(super) fn frame<T>(
        &self,
        node: usize,
        frame: FrameOf,
        (file, range): (&Arc<FileBytes>, Range<usize>),
        read: impl FnOnce(Stored<'_>) -> std::result::Result<T, String>,
    ) -> Result<T> {
        self.frame_at(node, frame, (file.get(range).unwrap_or_default(), Some(file)), read)
    }

    /// As [`frame`](Self::frame), for bytes in any memory.
    fn frame_at<T>(
        &self,
        node: usize,
        frame: FrameOf,
        (bytes, file): (&[u8], Option<&Arc<FileBytes>>),
        read: impl FnOnce(Stored<'_>) -> std::result::Result<T, String>,
    ) -> Result<T> {
        let (contents, block) = (&self.part.contents, self.block(node));
        let is_verified = self.is_verified(node, frame);
        let checksum = match frame {
            FrameOf::Validity => block.validity_checksum,
            FrameOf::Values => block.value_checksum,
        };
        let (decoders, node_of_column) = (contents.decoders(node, frame), node - contents.nodes[self.column]);
        let values_max = block.values_max();
        let stored =
            Stored { file, bytes, checksum, is_verified, decoders, node: node_of_column, frame, values_max };
        let read = read(stored).map_err(|reason| {
            self.part
                .file
                .store
                .io
                .invalidate(self.part.file.known(), block.offset..block.offset + block.byte_count());
            self.damage(block, reason)
        })?;
        if !is_verified {
            contents.set_verified(self.index(node), frame);
        }
        Ok(read)
    }

    pub(super) fn index(&self, node: usize) -> usize {
        node * self.part.footer().stripe_rows.len() + self.stripe
    }

    pub(super) fn is_verified(&self, node: usize, frame: FrameOf) -> bool {
        match self.part.verify {
            Verify::Always => false,
            Verify::Once => self.part.contents.is_verified(self.index(node), frame),
            Verify::Never => true,
        }
    }

    /// Hands the frame with the values of a block to `read`, in the memory map of the file if there is one: nothing
    /// is copied, and bytes that `read` does not touch are not read.
    pub(super) fn values_in_map<T>(
        &self,
        node: usize,
        read: impl FnOnce(Stored<'_>) -> std::result::Result<T, String>,
    ) -> Result<T> {
        let block = self.block(node);
        let Some(map) = self.part.contents.map(|| self.part.file.input())? else {
            let bytes = self.bytes(block, block.byte_count())?;
            let range = place(block)..bytes.len();
            return self.frame(node, FrameOf::Values, (&bytes, range), read);
        };
        let at = |offset: u64| usize::try_from(offset).expect("a block lies inside its file");
        let range = at(block.offset + block.values_at())..at(block.offset + block.byte_count());
        let found = map.read(range, |bytes| self.frame_at(node, FrameOf::Values, (bytes, None), read));
        found.map_err(|error| self.unreadable(node, &error))?
    }

    /// The error when the memory map could not be read. Such a map shows zeros from then on, so it is dropped, and
    /// the next reader of the part makes another.
    pub(super) fn unreadable(&self, node: usize, error: &io::Error) -> Error {
        let Identity { table, number, .. } = self.part.file.identity;
        self.part.file.store.footers.forget(table, number);
        self.damage(self.block(node), format!("it cannot be read: {error}"))
    }

    /// Reads the first `byte_count` bytes of a block.
    pub(super) fn bytes(&self, block: &BlockEntry, byte_count: u64) -> Result<Arc<FileBytes>> {
        let byte_count = usize::try_from(byte_count).expect("a block lies inside its file");
        let input = self.part.file.input()?;
        let mut bytes = self.part.file.store.pool.take(byte_count);
        let read = input.read_exact_at(block.offset, &mut bytes);
        read.map_err(|error| match is_shortage(&error) {
            true => Error::io("read", &self.part.file.path)(error),
            false => self.damage(block, format!("it cannot be read: {error}")),
        })?;
        Ok(Arc::new(bytes))
    }

    /// The validity of the selected rows of a block; `bytes` begin with its frame.
    pub(super) fn validity(
        &self,
        node: usize,
        bytes: &Arc<FileBytes>,
        selection: Selection<'_>,
    ) -> Result<Option<Flags<'static>>> {
        let block = self.block(node);
        if block.validity_bytes == 0 {
            return Ok(None);
        }
        let range = 0..block.validity_bytes as usize;
        self.frame(node, FrameOf::Validity, (bytes, range), |stored| {
            self.decoder.validity(stored, block.statistics.rows, selection).map(Some)
        })
    }

    /// The selected rows of a column without children.
    pub(super) fn leaf(
        &self,
        field: &Field,
        node: usize,
        selection: Selection<'_>,
    ) -> Result<Column<'static>> {
        let block = self.block(node);
        if block.statistics.rows == 0 {
            return Ok(Column::empty(&field.data_type));
        }
        let kind = field.data_type.values();
        let (validity, values) = self.values(node, kind, selection, |stored| {
            self.decoder.values(stored, &field.data_type, block.statistics.rows, selection)
        })?;
        Ok(Column { validity, values })
    }

    /// The validity of the selected rows of a block, and what `read` returns for the frame with the values; `kind` is
    /// that of numbers.
    pub(super) fn values<T>(
        &self,
        node: usize,
        kind: Option<Kind>,
        selection: Selection<'_>,
        read: impl FnOnce(Stored<'_>) -> std::result::Result<T, String>,
    ) -> Result<(Option<Flags<'static>>, T)> {
        let block = self.block(node);
        // What was read before is in memory, probably, and need not be copied to be decoded. Numbers as they are stay in
        // the bytes that were read, if all are wanted.
        let is_known = self.is_verified(node, FrameOf::Values);
        let in_map = match selection {
            Selection::All => is_known && kind.is_some_and(|kind| !is_large(block, kind)),
            // Of a few rows most bytes are not touched.
            _ => is_known || block.validity_bytes == 0,
        };
        if in_map {
            let validity = match u64::from(block.validity_bytes) {
                0 => None,
                bytes => self.validity(node, &self.bytes(block, bytes)?, selection)?,
            };
            return Ok((validity, self.values_in_map(node, read)?));
        }
        let bytes = self.bytes(block, block.byte_count())?;
        let validity = self.validity(node, &bytes, selection)?;
        let range = place(block)..bytes.len();
        Ok((validity, self.frame(node, FrameOf::Values, (&bytes, range), read)?))
    }

    /// All rows of a column with its children, whose nodes are numbered from `node` on.
    pub(super) fn tree(&self, field: &Field, node: &mut usize) -> Result<Column<'static>> {
        let (this, block) = (*node, self.block(*node));
        if is_leaf(&field.data_type) {
            let column = self.leaf(field, *node, Selection::All)?;
            *node += 1;
            return Ok(column);
        }
        *node += 1;
        let rows = block.statistics.rows;
        let bytes = self.bytes(block, block.byte_count())?;
        let validity = self.validity(this, &bytes, Selection::All)?;
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
                let elements = self.block(first).statistics.rows;
                let range = place(block)..bytes.len();
                let offsets = self.frame(this, FrameOf::Values, (&bytes, range), |stored| {
                    self.decoder.offsets(stored, rows, elements)
                });
                Values::List { offsets: offsets?, children: inside }
            }
        };
        Ok(Column { validity, values })
    }
}

pub(super) fn number_bytes(block: &BlockEntry, kind: Kind) -> usize {
    block.statistics.rows as usize * (kind.value_bits().unwrap_or(0) / 8) as usize
}

/// Whether a block is at least as large as its decoded values; texts may be.
pub(super) fn is_large(block: &BlockEntry, kind: Kind) -> bool {
    block.value_bytes as usize >= number_bytes(block, kind)
}

/// Whether values of this type have no children.
pub(super) fn is_leaf(data_type: &DataType) -> bool {
    data_type.children().is_empty() && !matches!(data_type, DataType::Struct(_))
}

/// Where the values begin in a block.
pub(super) fn place(block: &BlockEntry) -> usize {
    usize::try_from(block.values_at()).expect("a block lies inside its file")
}

#[cfg(test)]
mod tests {
    use keirin_codecs::blocks::Codec;
    use keirin_race::Races;

    use super::*;
    use crate::part::{ColumnCodec, WriteOptions};
    use crate::tests::recovery::{new, open};
    use crate::tests::simulation::{columns, definition};

    /// The streams of blocks that are decompressed, each with its class, in the order of the classes.
    fn streams(races: &Races) -> Vec<(String, String)> {
        let all = races.all().into_iter();
        let singles = all.filter(|(kernel, ..)| kernel.ends_with("_decode"));
        singles.map(|(_, class, stream, _)| (stream, class)).collect()
    }

    #[test]
    fn unlike_frames_have_decoders_of_their_own_which_are_made_once() {
        let database = open(&new());
        let mut transaction = database.begin().unwrap();
        let table = transaction.create_table(definition("t")).unwrap();
        let codecs = vec![ColumnCodec::Raw(Codec::Lz4); 3];
        let options = WriteOptions { codecs, ..WriteOptions::default() };
        let mut writer = transaction.write_part(table, options).unwrap();
        let rows: Vec<_> = (0..3000).map(|row| (row / 100, (row % 500 > 250).then_some(4))).collect();
        for _ in 0..3 {
            writer.push(&columns(&rows)).unwrap();
            writer.end_stripe().unwrap();
        }
        let part = writer.finish().unwrap();
        transaction.add_part(table, part.clone()).unwrap();
        transaction.commit().unwrap();
        let snapshot = database.snapshot();
        let reader = snapshot.open_part(snapshot.table(table).unwrap(), &part).unwrap();
        let races = &reader.file.store.races;
        let read =
            |stripe| (0..3).for_each(|column| _ = reader.read(column, stripe, Selection::All).unwrap());
        read(0);
        // A column of numbers, one of text, and lists of numbers.
        let expected = [
            ("c 1 i32", "i32"),
            ("a i64", "i64"),
            ("b text", "text"),
            ("c u32", "u32"),
            ("b validity", "validity"),
            ("c validity", "validity"),
        ];
        let expected = expected.map(|(stream, class)| (format!("{table}.{stream}"), class.to_owned()));
        let found = streams(races);
        assert_eq!(found, expected);
        // No block after the first looks them up again.
        for (node, frame) in [(0, FrameOf::Values), (1, FrameOf::Values), (1, FrameOf::Validity)] {
            let decoders = reader.contents.decoders(node, frame);
            decoders.get(Codec::Lz4, || unreachable!("it was made for the first stripe"));
        }
        (1..3).for_each(read);
        assert_eq!(streams(races), found);
    }
}
