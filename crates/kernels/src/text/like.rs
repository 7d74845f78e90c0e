//! `LIKE` over a column.
//!
//! A pattern consists of pieces between `%`, a piece of literals between `_`. The first and the last piece
//! may be anchored to the ends of the row; each other piece is matched as far left as possible, which never
//! loses a match, because a piece has a fixed count of characters. `_` is one UTF-8 character.
//!
//! A literal is searched in the buffer of all rows rather than row by row; only for hits the row is looked up
//! and the rest of the pattern tried. With one hit in a hundred rows this is 5 to 17 times as fast as our
//! search row by row, with one in two still twice; with two or more hits a row it continues row by row. If
//! few rows are selected most of the buffer does not count, and a search row by row is faster; so
//! [`SearchMethod`] is for the caller to race.

use super::columns::{Offset, Strings, Text};
use super::equal::{ends_with, equal_constant, starts_with};
use super::find::{Finder, find};
use super::rows::{for_each_row, retain};
use super::scan::is_begin;
use super::search::{EACH_ROW_BLOCK, contains, contains_rows};
use crate::bits::WORD_BITS;
use crate::{BitBuffer, Level, Selection};

/// How a column is searched; the result is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchMethod {
    /// Searches the buffer of all rows at once.
    WholeBuffer,
    /// Searches each selected row.
    EachRow,
}

impl SearchMethod {
    /// All methods; the first is the default.
    pub const ALL: [Self; 2] = [Self::WholeBuffer, Self::EachRow];

    /// The name of the method in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::WholeBuffer => "whole-buffer",
            Self::EachRow => "each-row",
        }
    }
}

/// A pattern that is prepared for many rows.
#[derive(Clone, Debug)]
pub struct LikePattern {
    pieces: Vec<Piece>,
    /// Whether there is a `%`; if not, there is one piece, which must match the whole row.
    is_open: bool,
    /// Whether the first piece must be at the start of the row.
    is_start_anchored: bool,
    /// Whether the last piece must be at the end of the row.
    is_end_anchored: bool,
}

/// The text between two `%`: any characters (`_`), then literals, each followed by any characters.
#[derive(Clone, Debug, Default)]
struct Piece {
    any_before: usize,
    literals: Vec<Literal>,
}

#[derive(Clone, Debug)]
struct Literal {
    finder: Finder,
    any_behind: usize,
}

impl LikePattern {
    /// Parses a pattern. The character after the escape is a literal; an escape at the end stands for itself.
    #[must_use]
    pub fn new(pattern: &str, escape: Option<char>) -> Self {
        let mut pieces = vec![PieceText::default()];
        let mut characters = pattern.chars();
        let mut is_open_last = false;
        let is_start_anchored = !pattern.starts_with('%') || escape == Some('%');
        let mut is_open = false;
        while let Some(character) = characters.next() {
            let piece = pieces.last_mut().expect("there is always one");
            is_open_last = false;
            if Some(character) == escape {
                piece.literal(characters.next().unwrap_or(character));
            } else if character == '%' {
                (is_open, is_open_last) = (true, true);
                pieces.push(PieceText::default());
            } else if character == '_' {
                piece.any();
            } else {
                piece.literal(character);
            }
        }
        // Pieces between `%%`, and before or after a `%` at an end, are empty and match anything.
        let has_meaning = |piece: &PieceText| !is_open || piece.any_before > 0 || !piece.literals.is_empty();
        let pieces = pieces.into_iter().filter(has_meaning).map(PieceText::prepare).collect();
        Self { pieces, is_open, is_start_anchored, is_end_anchored: !is_open_last }
    }

    /// Whether a text matches.
    #[must_use]
    pub fn matches(&self, level: Level, text: &[u8]) -> bool {
        self.end_of_match(level, text).is_some()
    }

    fn end_of_match(&self, level: Level, text: &[u8]) -> Option<()> {
        let (mut rest, mut pieces) = (text, self.pieces.as_slice());
        if self.is_start_anchored
            && let Some((first, others)) = pieces.split_first()
        {
            rest = &rest[first.end_at_start(rest)?..];
            pieces = others;
        }
        if !self.is_open {
            return rest.is_empty().then_some(());
        }
        if self.is_end_anchored
            && let Some((last, others)) = pieces.split_last()
        {
            rest = &rest[..last.start_at_end(rest)?];
            pieces = others;
        }
        for piece in pieces {
            rest = &rest[piece.find_end(level, rest)?..];
        }
        Some(())
    }

    /// The test that rows must pass: the whole pattern, if it is as simple as a single literal.
    fn shape(&self) -> Shape<'_> {
        let plain = match self.pieces.as_slice() {
            [piece] => piece.as_literal(),
            _ => None,
        };
        match (self.is_open, self.is_start_anchored, self.is_end_anchored, plain) {
            (false, _, _, Some(finder)) => Shape::Equal(finder),
            (true, true, false, Some(finder)) => Shape::Start { finder, is_all: true },
            (true, false, true, Some(finder)) => Shape::End { finder, is_all: true },
            (true, false, false, Some(finder)) => Shape::Contains { finder, is_all: true },
            _ => self.necessary(),
        }
    }

    /// A test that matching rows must pass before the rest of the pattern is tried: the longest of the
    /// literals that may be anywhere, or else one at an end.
    fn necessary(&self) -> Shape<'_> {
        let is_all = false;
        let starts = usize::from(self.is_start_anchored);
        let ends = self.pieces.len().saturating_sub(usize::from(self.is_end_anchored)).max(starts);
        let inner =
            self.pieces.get(starts..ends).unwrap_or_default().iter().flat_map(|piece| &piece.literals);
        if let Some(literal) = inner.max_by_key(|literal| literal.finder.needle().len()) {
            return Shape::Contains { finder: &literal.finder, is_all };
        }
        if self.is_start_anchored
            && let Some(Piece { any_before: 0, literals }) = self.pieces.first()
            && let Some(Literal { finder, .. }) = literals.first()
        {
            return Shape::Start { finder, is_all };
        }
        if self.is_end_anchored
            && let Some(Literal { finder, any_behind: 0 }) =
                self.pieces.last().and_then(|piece| piece.literals.last())
        {
            return Shape::End { finder, is_all };
        }
        let literals = self.pieces.iter().flat_map(|piece| &piece.literals);
        match literals.max_by_key(|literal| literal.finder.needle().len()) {
            Some(literal) => Shape::Contains { finder: &literal.finder, is_all },
            None => Shape::NoLiteral,
        }
    }
}

/// A test that rows must pass; `is_all` if it is the whole pattern.
enum Shape<'a> {
    Equal(&'a Finder),
    Start { finder: &'a Finder, is_all: bool },
    End { finder: &'a Finder, is_all: bool },
    Contains { finder: &'a Finder, is_all: bool },
    NoLiteral,
}

/// A piece while the pattern is parsed.
#[derive(Default)]
struct PieceText {
    any_before: usize,
    literals: Vec<(String, usize)>,
}

impl PieceText {
    fn literal(&mut self, character: char) {
        match self.literals.last_mut() {
            Some((literal, 0)) => literal.push(character),
            _ => self.literals.push((character.to_string(), 0)),
        }
    }

    fn any(&mut self) {
        *self.literals.last_mut().map_or(&mut self.any_before, |(_, any_behind)| any_behind) += 1;
    }

    fn prepare(self) -> Piece {
        let prepare = |(literal, any_behind): (String, usize)| Literal {
            finder: Finder::new(literal.as_bytes()),
            any_behind,
        };
        Piece { any_before: self.any_before, literals: self.literals.into_iter().map(prepare).collect() }
    }
}

impl Piece {
    fn as_literal(&self) -> Option<&Finder> {
        match self.literals.as_slice() {
            [Literal { finder, any_behind: 0 }] if self.any_before == 0 => Some(finder),
            _ => None,
        }
    }

    /// The end of the piece if the text begins with it.
    fn end_at_start(&self, text: &[u8]) -> Option<usize> {
        self.end_of_literals(text, skip(text, 0, self.any_before)?)
    }

    fn end_of_literals(&self, text: &[u8], mut at: usize) -> Option<usize> {
        for Literal { finder, any_behind } in &self.literals {
            let needle = finder.needle();
            if !text[at..].starts_with(needle) {
                return None;
            }
            at = skip(text, at + needle.len(), *any_behind)?;
        }
        Some(at)
    }

    /// The start of the piece if the text ends with it.
    fn start_at_end(&self, text: &[u8]) -> Option<usize> {
        let mut end = text.len();
        for Literal { finder, any_behind } in self.literals.iter().rev() {
            end = skip_back(text, end, *any_behind)?;
            let needle = finder.needle();
            if !text[..end].ends_with(needle) {
                return None;
            }
            end -= needle.len();
        }
        skip_back(text, end, self.any_before)
    }

    /// The end of the leftmost occurrence of the piece in the text.
    fn find_end(&self, level: Level, text: &[u8]) -> Option<usize> {
        let mut at = skip(text, 0, self.any_before)?;
        let Some(first) = self.literals.first() else { return Some(at) };
        loop {
            let hit = at + find(level, &text[at..], &first.finder)?;
            if let Some(end) = self.end_of_literals(text, hit) {
                return Some(end);
            }
            at = hit + 1;
        }
    }
}

/// The position `count` characters after `at`.
fn skip(text: &[u8], mut at: usize, count: usize) -> Option<usize> {
    for _ in 0..count {
        text.get(at)?;
        at += 1;
        while text.get(at).is_some_and(|byte| !is_begin(*byte)) {
            at += 1;
        }
    }
    Some(at)
}

/// The position `count` characters before `end`.
fn skip_back(text: &[u8], mut end: usize, count: usize) -> Option<usize> {
    for _ in 0..count {
        end = end.checked_sub(1)?;
        while end > 0 && !is_begin(text[end]) {
            end -= 1;
        }
    }
    Some(end)
}

/// Selects the rows that match the pattern among the selected ones; the result has a bit for each row of the
/// column.
///
/// # Panics
/// When the selection has not as many bits as rows or names a row that is not there, or there are 2^32 rows.
#[must_use]
pub fn like<O: Offset>(
    level: Level,
    column: Strings<'_, O>,
    pattern: &LikePattern,
    selection: Selection<'_>,
    method: SearchMethod,
) -> BitBuffer {
    if method == SearchMethod::EachRow {
        return like_each_row(level, column, pattern, selection);
    }
    let (rows, is_all) = match pattern.shape() {
        Shape::NoLiteral => return like_each_row(level, column, pattern, selection),
        Shape::Equal(finder) => (equal_constant(level, column, finder.needle()), true),
        Shape::Start { finder, is_all } => (starts_with(level, column, finder.needle()), is_all),
        Shape::End { finder, is_all } => (ends_with(level, column, finder.needle()), is_all),
        Shape::Contains { finder, is_all } => (contains(level, column, finder), is_all),
    };
    keep_matches(level, column, pattern, selection, rows, is_all)
}

fn like_each_row<T: Text>(
    level: Level,
    column: T,
    pattern: &LikePattern,
    selection: Selection<'_>,
) -> BitBuffer {
    let row_count = column.row_count();
    let mut words = vec![0; row_count.div_ceil(WORD_BITS)];
    if let Shape::Contains { finder, is_all } = pattern.shape() {
        contains_each_row(level, column, finder, selection, &mut words);
        let rows = BitBuffer::from_words(words, row_count);
        return keep_matches(level, column, pattern, Selection::All, rows, is_all);
    }
    for_each_row(row_count, selection, |row| {
        words[row / WORD_BITS] |= u64::from(pattern.matches(level, column.row(row))) << (row % WORD_BITS);
    });
    BitBuffer::from_words(words, row_count)
}

/// Sets the bits of the selected rows that contain the needle.
fn contains_each_row<T: Text>(
    level: Level,
    column: T,
    finder: &Finder,
    selection: Selection<'_>,
    words: &mut [u64],
) {
    let (mut rows, mut count) = ([0; EACH_ROW_BLOCK], 0);
    for_each_row(column.row_count(), selection, |row| {
        rows[count] = u32::try_from(row).expect("a batch has fewer rows");
        count += 1;
        if count == rows.len() {
            contains_rows(level, column, finder, &rows, words);
            count = 0;
        }
    });
    contains_rows(level, column, finder, &rows[..count], words);
}

/// Selects the rows that match among those that may; if not `is_all`, by the whole pattern.
fn keep_matches<T: Text>(
    level: Level,
    column: T,
    pattern: &LikePattern,
    selection: Selection<'_>,
    rows: BitBuffer,
    is_all: bool,
) -> BitBuffer {
    let row_count = column.row_count();
    let selected = match selection {
        Selection::All => None,
        _ => {
            let mut words = vec![0; row_count.div_ceil(WORD_BITS)];
            for_each_row(row_count, selection, |row| {
                assert!(row < row_count, "row {row} is selected of {row_count}");
                words[row / WORD_BITS] |= 1 << (row % WORD_BITS);
            });
            Some(words)
        }
    };
    let mut words = rows.into_words();
    for (index, word) in words.iter_mut().enumerate() {
        *word &= selected.as_ref().map_or(u64::MAX, |words| words[index]);
        if !is_all {
            *word = retain(index * WORD_BITS, *word, |row| pattern.matches(level, column.row(row)));
        }
    }
    BitBuffer::from_words(words, row_count)
}
