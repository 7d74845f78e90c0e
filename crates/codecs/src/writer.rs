//! Writes encodings, and holds the state on which their choice depends.

use keirin_kernels::Level;

use crate::blocks::Codec;
use crate::goal::Clock;
use crate::judge::Verdict;
use crate::plan::{Chosen, Note, Place};
use crate::reader::DEPTH_LIMIT;
use crate::{Choice, Goal, judge, strings};

/// Growing bytes, and how to choose the encodings of what is appended.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) level: Level,
    choice: Choice,
    /// Whether the bytes as a whole may be compressed.
    may_compress: bool,
    /// How many encodings enclose the one being written.
    depth: u32,
    /// Choices to repeat where possible.
    known: Option<Chosen>,
    /// The choices that were made.
    places: Vec<Place>,
    /// The position in the tree of the column being written, and how many children of it were written.
    path: u32,
    child: u32,
    /// The entries of an outermost dictionary.
    pub(crate) entries: Option<strings::Buffer>,
    pub(crate) bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn new(level: Level, choice: Choice) -> Self {
        let (known, places, bytes) = (None, Vec::new(), Vec::new());
        let (may_compress, entries) = (false, None);
        Self { level, choice, may_compress, depth: 0, known, places, path: 0, child: 0, entries, bytes }
    }

    /// A writer for a frame: its bytes may be compressed if `choice` allows it, and `known` choices are
    /// repeated.
    pub(crate) fn for_frame(level: Level, choice: Choice, known: Option<Chosen>) -> Self {
        Self { may_compress: choice.may_compress, known, ..Self::new(level, choice) }
    }

    /// The written bytes, and the choices made for them.
    pub(crate) fn finish(self, codec: Codec) -> (Vec<u8>, Chosen) {
        (self.bytes, Chosen { places: self.places, codec })
    }

    /// Appends a column: by `write_as` with the known encoding, if there is one and it can hold the values;
    /// else with the one that `choose` returns. Returns how to compress it.
    pub(crate) fn column<E: Copy>(
        &mut self,
        all: &[E],
        choose: impl FnOnce(&Self) -> Verdict<E>,
        mut write_as: impl FnMut(&mut Self, E) -> bool,
    ) -> Codec {
        let outside = (self.path, self.child);
        // No encoding has more than seven child columns.
        (self.path, self.child) = (outside.0 * 8 + outside.1 + 1, 0);
        let place = self.places.len();
        self.places.push(Place { path: self.path, encoding: 0, note: Note::Nothing });
        let known = self.known.as_ref().and_then(|known| {
            let place = known.places.iter().find(|place| place.path == self.path)?;
            Some((*all.get(usize::from(place.encoding))?, place.encoding, known.codec))
        });
        let (encoding, codec) = match known {
            Some((encoding, id, codec)) if write_as(self, encoding) => (id, codec),
            _ => {
                let (encoding, codec, written) = choose(self);
                // Parameters that were found for another encoding do not apply to this one.
                let path = self.path;
                self.known.iter_mut().for_each(|known| known.places.retain(|place| place.path != path));
                let start = self.bytes.len();
                if let Some(mut written) = written {
                    self.places.truncate(place);
                    self.places.append(&mut written.places);
                    self.bytes.append(&mut written.bytes);
                    self.entries = written.entries;
                } else {
                    self.places.truncate(place + 1);
                    self.child = 0;
                    let is_written = write_as(self, encoding);
                    assert!(is_written, "the encoding was chosen because it can hold the values");
                }
                (self.bytes[start], codec)
            }
        };
        self.places[place].encoding = encoding;
        (self.path, self.child) = (outside.0, outside.1 + 1);
        codec
    }

    /// Skips the positions of child columns that are absent this time.
    pub(crate) fn skip_columns(&mut self, count: u32) {
        self.child += count;
    }

    /// The known parameters for this column.
    pub(crate) fn known_note(&self) -> Option<&Note> {
        let known = self.known.as_ref()?;
        known.places.iter().find(|place| place.path == self.path).map(|place| &place.note)
    }

    /// Keeps parameters that were found for this column.
    pub(crate) fn keep_note(&mut self, note: Note) {
        let place = self.places.iter_mut().rfind(|place| place.path == self.path);
        // Outside of any column, when an encoding was requested explicitly, nothing is kept.
        if let Some(place) = place {
            place.note = note;
        }
    }

    /// Another writer for the same position, to try an encoding.
    pub(crate) fn trial(&self) -> Self {
        let Self { level, choice, may_compress, depth, path, .. } = *self;
        let places = vec![Place { path, encoding: 0, note: Note::Nothing }];
        Self { may_compress, depth, path, places, ..Self::new(level, choice) }
    }

    pub(crate) fn goal(&self) -> Goal {
        self.choice.goal
    }

    /// Whether the choice at this depth, for this many rows, uses measured times.
    pub(crate) fn is_timed(&self, row_count: usize) -> bool {
        self.depth == 0 && row_count >= judge::TIMED_ROWS_MIN && self.choice.clock == Clock::Measured
    }

    /// Whether the column being written is the outermost.
    pub(crate) fn is_outermost(&self) -> bool {
        self.depth == 0
    }

    /// The codecs to try for a column at this depth.
    pub(crate) fn codecs(&self) -> &'static [Codec] {
        if self.may_compress && self.depth == 0 { judge::codecs(self.choice.goal) } else { &[] }
    }

    /// Whether an encoding at this depth may have others inside.
    pub(crate) fn may_nest(&self) -> bool {
        self.depth + 1 < DEPTH_LIMIT
    }

    /// Appends a count that `Reader::count` reads.
    pub(crate) fn count(&mut self, count: usize) {
        let count = u32::try_from(count).expect("a block has fewer than 2^32 rows");
        self.bytes.extend_from_slice(&count.to_le_bytes());
    }

    /// Calls `write` one level deeper.
    pub(crate) fn nested<T>(&mut self, write: impl FnOnce(&mut Self) -> T) -> T {
        self.depth += 1;
        let written = write(self);
        self.depth -= 1;
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn going_by_what_was_chosen_chooses_the_same() {
        let choice = Choice { clock: Clock::Modelled, may_compress: true, ..Choice::default() };
        let check = |rows: u32, text: &dyn Fn(u32) -> String| {
            let level = Level::best();
            let texts: Vec<String> = (0..rows).map(text).collect();
            let buffer: strings::Buffer = texts.iter().map(String::as_bytes).collect();
            let write = |known| {
                let mut writer = Writer::for_frame(level, choice, known);
                let codec = strings::write(&mut writer, buffer.rows(level));
                (writer.entries.is_some(), writer.finish(codec))
            };
            let first = write(None);
            assert_eq!(write(Some(first.1.1.clone())), first, "{rows} rows as {}", texts[0]);
        };
        // All rows are in the sample; a dictionary is tried on all rows; only samples are tried.
        check(1000, &|row| format!("https://example.com/{}", row * row));
        check(20_000, &|row| format!("https://example.com/{}", row % 3000 * 77_777));
        check(20_000, &|row| format!("https://example.com/{}", row * 77_777));
    }
}
