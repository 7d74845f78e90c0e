//! The decoders of a file: one for each codec and column, so that the fastest loop for a column is found
//! once.
//!
//! Measurements of a column stay with its file. The same column of another file starts from them: files of
//! one table are alike, while two files that both have an `id` need not be.

use std::collections::HashMap;
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use keirin_codecs::blocks::{Codec, Decoder, Stream};
use keirin_race::Races;
use parking_lot::Mutex;
use parquet::basic::Compression;

/// The decoders of a file; the prototype that a source holds has no file yet.
pub(super) struct Decoders {
    races: Arc<Races>,
    file: String,
    of_columns: Mutex<HashMap<(Codec, String), Arc<Decoder>>>,
}

impl Decoders {
    pub(super) fn new(races: Arc<Races>) -> Self {
        Self { races, file: String::new(), of_columns: Mutex::default() }
    }

    /// Empty decoders for a file.
    pub(super) fn of_file(&self, file: String) -> Self {
        Self { races: self.races.clone(), file, of_columns: Mutex::default() }
    }

    /// The decoder of a column; `first` is one of its blocks.
    pub(super) fn decoder(&self, codec: Codec, column: &str, first: &[u8]) -> Arc<Decoder> {
        let mut decoders = self.of_columns.lock();
        let new = || {
            let stream = Stream { class: column, name: &format!("{} {column}", self.file) };
            Arc::new(Decoder::new(codec, &self.races, stream, first))
        };
        decoders.entry((codec, column.to_owned())).or_insert_with(new).clone()
    }
}

impl Debug for Decoders {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoders").field("races", &self.races).finish_non_exhaustive()
    }
}

/// Our codec for `compression`, if we have it. Compression levels do not matter to decoders.
pub(super) fn codec(compression: Compression) -> Option<Codec> {
    match compression {
        Compression::UNCOMPRESSED => Some(Codec::None),
        Compression::SNAPPY => Some(Codec::Snappy),
        Compression::LZ4_RAW => Some(Codec::Lz4),
        Compression::ZSTD(_) => Some(Codec::Zstd(0)),
        _ => None,
    }
}
