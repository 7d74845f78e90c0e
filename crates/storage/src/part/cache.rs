//! The cache of decoded footers, shared by all readers of a part.
//!
//! Parts are immutable and the footer's hash belongs to the key, so entries never go stale. The memory map of a
//! part is kept with its footer, because making a map takes longer than reading it. The least recently used footers
//! are dropped when they take too many bytes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use keirin_codecs::blocks::{Codec, Decoder};
use keirin_kernels::map::Map;

use super::details::ColumnDetails;
use super::footer::Footer;
use crate::database::locked;
use crate::error::Result;
use crate::io::Input;
use crate::schema::Field;

/// Approximate bytes of decoded footers that are kept.
const BYTES_MAX: usize = 64 << 20;

/// A decoded footer, and what reading has found out about the part.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(super) footer: Footer,
    /// The first node of each column.
    pub(super) nodes: Vec<usize>,
    /// The first row of each stripe, and the end of the last.
    pub(super) stripe_starts: Vec<u64>,
    /// For each block the bits of the frames ([`FrameOf`]) that were verified, and [`IS_RAW`].
    found: Vec<AtomicU8>,
    /// The memory map of the file once a reader has asked for it; `None` if it cannot be mapped.
    map: OnceLock<Option<Map>>,
    /// The details of columns that somebody asked for.
    details: Vec<OnceLock<ColumnDetails>>,
    /// For each node the decoders of its validity and of its values.
    decoders: Vec<[Decoders; 2]>,
}

/// The decompressors for frames of one kind, by codec. They are kept because finding a race takes a lock and
/// several strings, too much for each block.
#[derive(Debug, Default)]
pub(super) struct Decoders {
    lz4: OnceLock<Box<Decoder>>,
    snappy: OnceLock<Box<Decoder>>,
    zstd: OnceLock<Box<Decoder>>,
}

impl Decoders {
    /// The decoder for a codec; makes one if there is none yet.
    pub(super) fn get(&self, codec: Codec, new: impl FnOnce() -> Decoder) -> &Decoder {
        let place = match codec {
            Codec::Lz4 | Codec::Lz4Hc(_) => &self.lz4,
            Codec::Snappy => &self.snappy,
            Codec::None | Codec::Zstd(_) => &self.zstd,
        };
        place.get_or_init(|| Box::new(new()))
    }
}

/// Which frame of a block; the numbers are bits of `found`.
#[derive(Clone, Copy, Debug)]
pub(super) enum FrameOf {
    Validity = 1,
    Values = 2,
}

/// A bit of `found`: the filter of the block was verified.
const FILTER: u8 = 8;

/// A bit of `found`: the values of the block are stored raw, at its end.
const IS_RAW: u8 = 4;

impl Contents {
    pub(super) fn new(footer: Footer) -> Self {
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
        let found = footer.blocks.iter().map(|_| AtomicU8::new(0)).collect();
        let node_count = footer.fields.iter().flat_map(Field::nodes).count();
        let decoders = std::iter::repeat_with(Default::default).take(node_count).collect();
        let details = footer.fields.iter().map(|_| OnceLock::new()).collect();
        Self { footer, nodes, stripe_starts, found, map: OnceLock::new(), details, decoders }
    }

    /// The memory map of the part's file, which `input` opens; `None` if it cannot be mapped. The map is kept as
    /// long as the footer.
    pub(super) fn map(&self, input: impl FnOnce() -> Result<Arc<dyn Input>>) -> Result<Option<&Map>> {
        if self.map.get().is_none() {
            let input = input()?;
            self.map.get_or_init(|| input.map());
        }
        Ok(self.map.get().and_then(Option::as_ref))
    }

    pub(super) fn decoders(&self, node: usize, frame: FrameOf) -> &Decoders {
        let [validity, values] = &self.decoders[node];
        match frame {
            FrameOf::Validity => validity,
            FrameOf::Values => values,
        }
    }

    pub(super) fn is_verified(&self, block: usize, frame: FrameOf) -> bool {
        self.found[block].load(Ordering::Relaxed) & frame as u8 != 0
    }

    pub(super) fn set_verified(&self, block: usize, frame: FrameOf) {
        self.found[block].fetch_or(frame as u8, Ordering::Relaxed);
    }

    pub(super) fn is_filter_verified(&self, block: usize) -> bool {
        self.found[block].load(Ordering::Relaxed) & FILTER != 0
    }

    pub(super) fn set_filter_verified(&self, block: usize) {
        self.found[block].fetch_or(FILTER, Ordering::Relaxed);
    }

    /// The details of a column, if they were read before.
    pub(super) fn details(&self, column: usize) -> Option<&ColumnDetails> {
        self.details[column].get()
    }

    /// Keeps the details of a column.
    pub(super) fn keep_details(&self, column: usize, details: ColumnDetails) -> &ColumnDetails {
        self.details[column].get_or_init(|| details)
    }

    pub(super) fn is_raw(&self, block: usize) -> bool {
        self.found[block].load(Ordering::Relaxed) & IS_RAW != 0
    }

    pub(super) fn set_raw(&self, block: usize) {
        self.found[block].fetch_or(IS_RAW, Ordering::Relaxed);
    }

    /// Approximate bytes that it takes, with details of all columns.
    fn byte_count(&self) -> usize {
        /// Bytes of an entry with its two bounds.
        const BLOCK_BYTES: usize = 256;
        const FIELD_BYTES: usize = 256 + size_of::<[Decoders; 2]>();
        let field_count = self.footer.fields.iter().flat_map(Field::nodes).count();
        // Of records, what is not kept makes up for what takes more in memory than in the file.
        const DETAILS_FACTOR: usize = 4;
        let records = self.footer.details.iter().map(|record| record.bytes as usize);
        let details = DETAILS_FACTOR * records.sum::<usize>();
        self.footer.blocks.len() * BLOCK_BYTES + field_count * FIELD_BYTES + details
    }
}

/// Identifies a part and its content, even if another file had the same path before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PartKey {
    /// The number of the part's table.
    pub table: u64,
    /// The number of the part.
    pub part: u64,
    /// The hash of the part's footer.
    pub hash: u64,
}

/// The decoded footers by part.
#[derive(Debug, Default)]
pub(crate) struct Footers {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    by_key: HashMap<PartKey, (Arc<Contents>, u64)>,
    bytes: usize,
    /// Goes up with each use.
    clock: u64,
}

impl Footers {
    pub(super) fn get(&self, key: PartKey) -> Option<Arc<Contents>> {
        let mut kept = locked(&self.kept);
        kept.clock += 1;
        let now = kept.clock;
        let (contents, used) = kept.by_key.get_mut(&key)?;
        *used = now;
        Some(Arc::clone(contents))
    }

    pub(crate) fn has(&self, key: PartKey) -> bool {
        locked(&self.kept).by_key.contains_key(&key)
    }

    /// Drops a part whose file is removed: its memory map would keep the bytes on disk.
    pub(crate) fn forget(&self, table: u64, part: u64) {
        let mut kept = locked(&self.kept);
        let key = kept.by_key.keys().find(|key| (key.table, key.part) == (table, part)).copied();
        if let Some((contents, _)) = key.and_then(|key| kept.by_key.remove(&key)) {
            kept.bytes -= contents.byte_count();
        }
    }

    /// Adds a footer, or returns the one that another thread has added meanwhile.
    pub(super) fn put(&self, key: PartKey, contents: Contents) -> Arc<Contents> {
        let mut kept = locked(&self.kept);
        kept.clock += 1;
        let now = kept.clock;
        let bytes = contents.byte_count();
        if let Some((there, _)) = kept.by_key.get(&key) {
            return Arc::clone(there);
        }
        let contents = Arc::new(contents);
        kept.by_key.insert(key, (Arc::clone(&contents), now));
        kept.bytes += bytes;
        while kept.bytes > BYTES_MAX {
            let oldest = kept.by_key.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| *key);
            let Some((oldest, _)) = oldest.and_then(|key| kept.by_key.remove(&key)) else { break };
            kept.bytes -= oldest.byte_count();
        }
        contents
    }
}
