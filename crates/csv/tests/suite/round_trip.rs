//! Random tables in random dialects come back as they were, and random text is read as a plain state
//! machine over bytes reads it, wherever chunks are cut.

use keirin_csv::Options;
use proptest::prelude::*;

use crate::{read, rows_of_text};

#[derive(Debug, Clone, Copy)]
struct Style {
    delimiter: u8,
    quote: u8,
    escape: u8,
    line_end: &'static str,
    quote_all: bool,
    last_line_end: bool,
}

fn style() -> impl Strategy<Value = Style> {
    let delimiter = prop::sample::select(vec![b',', b'\t', b';', b'|', b'x', 1]);
    let quote = prop::sample::select(vec![b'"', b'\'']);
    let line_end = prop::sample::select(vec!["\n", "\r\n", "\r"]);
    (delimiter, quote, any::<bool>(), line_end, any::<bool>(), any::<bool>()).prop_map(
        |(delimiter, quote, doubled, line_end, quote_all, last_line_end)| {
            let escape = if doubled { quote } else { b'\\' };
            Style { delimiter, quote, escape, line_end, quote_all, last_line_end }
        },
    )
}

impl Style {
    fn options(self, chunk_bytes: usize) -> Options {
        Options {
            delimiter: Some(self.delimiter),
            quote: Some(Some(self.quote)),
            escape: Some(Some(self.escape)),
            comment: Some(None),
            header: Some(false),
            skip_lines: Some(0),
            nulls: Some(vec![String::new()]),
            all_text: true,
            chunk_bytes,
            batch_rows: chunk_bytes,
            ..Options::default()
        }
    }

    fn write(self, table: &[Vec<Option<String>>]) -> Vec<u8> {
        let mut text = String::new();
        for (row, cells) in table.iter().enumerate() {
            for (column, cell) in cells.iter().enumerate() {
                if column > 0 {
                    text.push(char::from(self.delimiter));
                }
                let Some(cell) = cell else { continue };
                let special =
                    |c: char| c.is_ascii() && [self.delimiter, self.quote, b'\n', b'\r'].contains(&(c as u8));
                let blank = cell.trim().is_empty();
                if self.quote_all || blank || cell.contains(special) {
                    text.push(char::from(self.quote));
                    for c in cell.chars() {
                        if [char::from(self.quote), char::from(self.escape)].contains(&c) {
                            text.push(char::from(self.escape));
                        }
                        text.push(c);
                    }
                    text.push(char::from(self.quote));
                } else {
                    text.push_str(cell);
                }
            }
            if self.last_line_end || row + 1 < table.len() {
                text.push_str(self.line_end);
            }
        }
        text.into_bytes()
    }
}

fn table() -> impl Strategy<Value = Vec<Vec<Option<String>>>> {
    // Two columns at least: in one, a NULL at the end of the file without a line end leaves no trace.
    (2usize..5).prop_flat_map(|width| {
        let cell = prop::option::of("([a,\t;|'\"\\\\\n\r x\u{1}ä]|\r\n){0,8}|.{0,70}");
        prop::collection::vec(prop::collection::vec(cell, width), 1..20)
    })
}

/// The rules as a machine that takes one byte after another: rows of cells, and for bad records `None`.
fn naive(text: &[u8], style: Style) -> Vec<Option<Vec<Option<Vec<u8>>>>> {
    let mut rows = Vec::new();
    let mut start = 0;
    while start < text.len() {
        let (mut at, mut cells, mut bad) = (start, Vec::new(), false);
        let (mut closed, mut any_quoted) = (true, false);
        loop {
            let mut cell = Vec::new();
            let quoted = text.get(at) == Some(&style.quote);
            any_quoted |= quoted;
            if quoted {
                at += 1;
                closed = false;
                while let Some(&byte) = text.get(at) {
                    let next = text.get(at + 1);
                    if byte == style.escape && (style.escape != style.quote || next == Some(&style.quote)) {
                        cell.extend(next);
                        at += 2;
                    } else if byte == style.quote {
                        closed = true;
                        at += 1;
                        break;
                    } else {
                        cell.push(byte);
                        at += 1;
                    }
                }
                if !closed {
                    break;
                }
            }
            while let Some(&byte) =
                text.get(at).filter(|&&byte| byte != style.delimiter && byte != b'\n' && byte != b'\r')
            {
                if !quoted {
                    cell.push(byte);
                } else if byte != b' ' && byte != b'\t' {
                    bad = true;
                }
                at += 1;
            }
            cells.push((quoted || !cell.is_empty()).then_some(cell));
            if text.get(at) != Some(&style.delimiter) {
                break;
            }
            at += 1;
        }
        if !closed {
            at = start
                + text[start..].iter().position(|byte| b"\n\r".contains(byte)).unwrap_or(text.len() - start);
            bad = true;
        }
        let blank = cells.len() == 1 && !any_quoted && text[start..at].trim_ascii().is_empty();
        start = at + if text[at..].starts_with(b"\r\n") { 2 } else { 1 };
        if !blank {
            rows.push((!bad).then_some(cells));
        }
    }
    rows
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn tables_come_back_as_they_were_written(table in table(), style in style(), chunk_bytes in 1usize..40) {
        // A byte order mark, so that a first cell that looks like one is none.
        let text = ["\u{FEFF}".as_bytes(), &style.write(&table)].concat();
        for chunk_bytes in [chunk_bytes, 1 << 20] {
            // Given names fix the width.
            let columns = (0..table[0].len()).map(|i| i.to_string()).collect();
            let found = read(&text, &Options { columns, ..style.options(chunk_bytes) }).unwrap();
            prop_assert_eq!(&found.rows, &table, "{:?}", String::from_utf8_lossy(&text));
        }
    }

    #[test]
    fn tables_are_recognised_without_being_told(table in table(), style in style()) {
        // A header of names and a column of numbers make it a file as people write them.
        let width = table[0].len();
        let mut full = vec![(0..=width).map(|i| Some(format!("name{i}"))).collect::<Vec<_>>()];
        full.extend(table.iter().enumerate().map(|(i, row)| {
            [vec![Some(format!("{i}.5"))], row.clone()].concat()
        }));
        let delimiter = if style.delimiter.is_ascii_punctuation() { style.delimiter } else { b'\t' };
        let style = Style { delimiter, quote_all: true, escape: style.quote, ..style };
        let text = style.write(&full);
        let options = Options { nulls: Some(vec![String::new()]), ..Options::default() };
        let found = read(&text, &options).unwrap();
        prop_assert_eq!(found.rows.len(), table.len(), "{:?}", String::from_utf8_lossy(&text));
        prop_assert_eq!(found.columns.len(), width + 1);
    }

    #[test]
    fn any_text_is_read_as_byte_by_byte(
        text in prop::collection::vec(prop::sample::select(b"ab,,\"\"'\n\r \\\t".to_vec()), 0..200),
        style in style(),
        chunk_bytes in 1usize..40,
    ) {
        let style = Style { delimiter: b',', ..style };
        let expected = naive(&text, style);
        // The width is that of most records; let one rule the file.
        let text = [b"a,a\n".repeat(60), text].concat();
        let mut rows = vec![vec![Some(b"a".to_vec()), Some(b"a".to_vec())]; 60];
        let mut bad = 0;
        for record in expected {
            match record {
                Some(mut cells) => {
                    if cells.len() == 3 && cells[2].is_none() {
                        cells.pop();
                    }
                    if cells.len() == 2 {
                        rows.push(cells);
                    } else {
                        bad += 1;
                    }
                }
                None => bad += 1,
            }
        }
        let whole = Options { ignore_errors: true, ..style.options(1 << 20) };
        let found = read(&text, &whole).unwrap();
        prop_assert_eq!(&found.rows, &rows_of_text(&rows), "{:?}", String::from_utf8_lossy(&text));
        prop_assert_eq!(found.rejects.len(), bad);
        let tiny = Options { ignore_errors: true, ..style.options(chunk_bytes) };
        prop_assert_eq!(read(&text, &tiny).unwrap(), found);
    }
}
