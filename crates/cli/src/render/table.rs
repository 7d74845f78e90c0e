//! Answers as a table drawn with lines.
//!
//! On a terminal it shows the first and the last rows and fits the screen, and [`Shown`] says what was
//! left out. Elsewhere it shows everything, however long: the widths then come from the first rows, and
//! a later value that is wider sticks out.

use std::collections::VecDeque;

use keirin::arrow::array::RecordBatch;
use keirin::arrow::datatypes::SchemaRef;
use nu_ansi_term::Style;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::cells::{Cells, can_be_cut, escape_controls, is_number};
use super::layout::{Slot, Wish, fit};
use super::{Look, RenderError, Renderer, Shown, Sink};

/// If all rows are shown, how many of them decide the widths of the columns.
const SAMPLE_ROWS: usize = 10_000;
const SAMPLE_BYTES: usize = 32 << 20;

pub(crate) struct Table<'a> {
    schema: SchemaRef,
    look: Look,
    sink: Sink<'a>,
    rows: usize,
    /// The first rows, held until they are written.
    first: VecDeque<RecordBatch>,
    first_rows: usize,
    first_bytes: usize,
    /// If not all rows are shown: batches that hold at least the last rows to show.
    last: VecDeque<RecordBatch>,
    last_rows: usize,
    /// The layout, fixed when the header is written.
    slots: Option<Vec<Slot>>,
}

/// One value, ready to be drawn.
struct Cell {
    text: String,
    width: usize,
    is_null: bool,
}

impl<'a> Table<'a> {
    pub(crate) fn new(schema: SchemaRef, look: Look, sink: Sink<'a>) -> Self {
        Self {
            schema,
            look,
            sink,
            rows: 0,
            first: VecDeque::new(),
            first_rows: 0,
            first_bytes: 0,
            last: VecDeque::new(),
            last_rows: 0,
            slots: None,
        }
    }

    /// Keeps the first `rows_max` rows, and enough of the last ones.
    fn sample(&mut self, batch: &RecordBatch, rows_max: usize) {
        let to_first = (rows_max - self.first_rows).min(batch.num_rows());
        if to_first > 0 {
            self.first.push_back(batch.slice(0, to_first));
            self.first_rows += to_first;
        }
        let rest = batch.num_rows() - to_first;
        if rest > 0 {
            self.last.push_back(batch.slice(to_first, rest));
            self.last_rows += rest;
        }
        while let Some(front) = self.last.front() {
            if self.last_rows - front.num_rows() < rows_max / 2 {
                break;
            }
            self.last_rows -= front.num_rows();
            self.last.pop_front();
        }
    }

    /// The rows to show: all of them, or the first and the last, and how many come before the gap.
    fn shown(&mut self, rows_max: usize) -> (Vec<RecordBatch>, Option<usize>) {
        let mut batches: Vec<RecordBatch> = self.first.drain(..).collect();
        if self.rows <= rows_max {
            return (batches, None);
        }
        batches.extend(self.last.drain(..));
        let held: usize = batches.iter().map(RecordBatch::num_rows).sum();
        let tail = rows_max / 2;
        let head = rows_max - tail;
        let mut shown = Vec::new();
        let mut start = 0;
        for batch in batches {
            let rows = batch.num_rows();
            let part = |from: usize, to: usize| {
                let (from, to) = (from.clamp(start, start + rows), to.clamp(start, start + rows));
                (from < to).then(|| batch.slice(from - start, to - from))
            };
            shown.extend(part(0, head));
            shown.extend(part(held - tail, held));
            start += rows;
        }
        (shown, Some(head))
    }

    fn cells(&self, batch: &RecordBatch) -> Result<Vec<Vec<Cell>>, RenderError> {
        let cells = Cells::new(batch)?;
        let cell = |row, column| match cells.text(row, column) {
            Some(text) => {
                let text = escape_controls(&text).into_owned();
                Cell { width: text.width(), text, is_null: false }
            }
            None => Cell { width: self.look.null.width(), text: self.look.null.clone(), is_null: true },
        };
        Ok((0..batch.num_rows())
            .map(|row| (0..batch.num_columns()).map(|column| cell(row, column)).collect())
            .collect())
    }

    /// Fixes the layout by `rows` and writes the top of the table.
    fn open(&mut self, rows: &[Vec<Cell>]) -> Result<Vec<Slot>, RenderError> {
        let headers = self.headers();
        let wishes: Vec<Wish> = (0..headers.len())
            .map(|column| Wish {
                name: if self.look.headers {
                    headers[column].0.width().max(self.type_width(&headers[column].1))
                } else {
                    0
                },
                values: rows.iter().map(|row| row[column].width).max().unwrap_or(0),
                can_cut_values: can_be_cut(self.schema.field(column).data_type()),
            })
            .collect();
        let slots = fit(&wishes, self.look.width_max);
        self.rule(&slots, ['┌', '┬', '┐'])?;
        if self.look.headers {
            let bold = Style::new().bold();
            self.line(&slots, |column| (headers[column].0.as_str(), bold))?;
            if self.look.types {
                let dim = Style::new().dimmed();
                self.line(&slots, |column| (headers[column].1.as_str(), dim))?;
            }
            self.rule(&slots, ['├', '┼', '┤'])?;
        }
        Ok(slots)
    }

    /// Names and types of the columns.
    fn headers(&self) -> Vec<(String, String)> {
        let fields = self.schema.fields().iter();
        fields
            .map(|field| {
                let name = escape_controls(field.name()).into_owned();
                (name, super::type_name(field.data_type()).to_lowercase())
            })
            .collect()
    }

    fn type_width(&self, name: &str) -> usize {
        if self.look.types { name.width() } else { 0 }
    }

    fn is_number(&self, column: usize) -> bool {
        is_number(self.schema.field(column).data_type())
    }

    fn write_rows(&mut self, slots: &[Slot], rows: &[Vec<Cell>]) -> Result<(), RenderError> {
        let dim = Style::new().dimmed();
        for row in rows {
            self.line(slots, |column| {
                (row[column].text.as_str(), if row[column].is_null { dim } else { Style::new() })
            })?;
        }
        Ok(())
    }

    /// One line of values between bars.
    fn line<'t>(
        &mut self,
        slots: &[Slot],
        value: impl Fn(usize) -> (&'t str, Style),
    ) -> Result<(), RenderError> {
        if slots.is_empty() {
            return Ok(());
        }
        let mut line = String::new();
        for slot in slots {
            let (text, style, right) = match slot {
                Slot::Column { index, .. } => {
                    let (text, style) = value(*index);
                    (text, style, self.is_number(*index))
                }
                Slot::Omitted => ("…", Style::new().dimmed(), false),
            };
            let text = shorten(text, slot.width());
            let gap = " ".repeat(slot.width().saturating_sub(text.width()));
            let painted = self.look.palette.paint(style, &text);
            let (before, after) = if right { (gap.as_str(), "") } else { ("", gap.as_str()) };
            line.push_str("│ ");
            line.push_str(before);
            line.push_str(&painted);
            line.push_str(after);
            line.push(' ');
        }
        writeln!(self.sink, "{line}│")?;
        Ok(())
    }

    fn rule(&mut self, slots: &[Slot], [left, middle, right]: [char; 3]) -> Result<(), RenderError> {
        if slots.is_empty() {
            return Ok(());
        }
        let parts: Vec<String> = slots.iter().map(|slot| "─".repeat(slot.width() + 2)).collect();
        writeln!(self.sink, "{left}{}{right}", parts.join(&middle.to_string()))?;
        Ok(())
    }

    /// Writes the rows that were held back to find the widths.
    fn write_first(&mut self) -> Result<(), RenderError> {
        let mut rows = Vec::new();
        for batch in std::mem::take(&mut self.first) {
            rows.extend(self.cells(&batch)?);
        }
        let slots = self.open(&rows)?;
        self.write_rows(&slots, &rows)?;
        self.slots = Some(slots);
        Ok(())
    }
}

impl Renderer for Table<'_> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), RenderError> {
        self.rows += batch.num_rows();
        if let Some(rows_max) = self.look.rows_max {
            self.sample(batch, rows_max);
            return Ok(());
        }
        if let Some(slots) = self.slots.clone() {
            let rows = self.cells(batch)?;
            return self.write_rows(&slots, &rows);
        }
        self.first_rows += batch.num_rows();
        self.first_bytes += batch.get_array_memory_size();
        self.first.push_back(batch.clone());
        if self.first_rows >= SAMPLE_ROWS || self.first_bytes >= SAMPLE_BYTES {
            self.write_first()?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Shown, RenderError> {
        let mut shown_rows = self.rows;
        if let Some(rows_max) = self.look.rows_max {
            let (batches, head) = self.shown(rows_max);
            let mut rows = Vec::new();
            for batch in &batches {
                rows.extend(self.cells(batch)?);
            }
            shown_rows = rows.len();
            let slots = self.open(&rows)?;
            let (before, after) = rows.split_at(head.unwrap_or(rows.len()));
            self.write_rows(&slots, before)?;
            if head.is_some() {
                self.line(&slots, |_| ("⋮", Style::new().dimmed()))?;
            }
            self.write_rows(&slots, after)?;
            self.slots = Some(slots);
        } else if self.slots.is_none() {
            self.write_first()?;
        }
        let slots = self.slots.take().unwrap_or_default();
        self.rule(&slots, ['└', '┴', '┘'])?;
        let columns = slots.iter().filter(|slot| matches!(slot, Slot::Column { .. })).count();
        Ok(Shown { rows: shown_rows, columns })
    }
}

/// Cuts `text` to at most `width` character columns, with an ellipsis if there is more.
fn shorten(text: &str, width: usize) -> std::borrow::Cow<'_, str> {
    if text.width() <= width {
        return text.into();
    }
    let mut used = 0;
    let end = text
        .char_indices()
        .find(|(_, character)| {
            used += character.width().unwrap_or(0);
            used + 1 > width
        })
        .map_or(text.len(), |(offset, _)| offset);
    format!("{}…", &text[..end]).into()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use keirin::arrow::array::{ArrayRef, Float64Array, Int64Array, StringArray};

    use super::*;
    use crate::terminal::Palette;

    fn look(rows_max: Option<usize>, width_max: Option<usize>) -> Look {
        Look {
            headers: true,
            types: false,
            null: "NULL".to_owned(),
            rows_max,
            width_max,
            palette: Palette::default(),
        }
    }

    fn draw(batches: &[RecordBatch], look: Look) -> (String, Shown) {
        let mut sink = Vec::new();
        let mut table = Box::new(Table::new(batches[0].schema(), look, &mut sink));
        for batch in batches {
            table.write(batch).unwrap();
        }
        let shown = table.finish().unwrap();
        (String::from_utf8(sink).unwrap(), shown)
    }

    fn check(batches: &[RecordBatch], look: Look, expected: &str) {
        let (text, _) = draw(batches, look);
        let expected: Vec<&str> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        assert_eq!(text.lines().collect::<Vec<_>>(), expected, "\n{text}");
    }

    fn people() -> RecordBatch {
        let columns: [(&str, ArrayRef); 3] = [
            ("name", Arc::new(StringArray::from(vec![Some("Ada"), Some("漢字"), None]))),
            ("age", Arc::new(Int64Array::from(vec![Some(36), None, Some(7)]))),
            ("note\n", Arc::new(StringArray::from(vec!["a\tb", "", "\x1b[2J"]))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn numbers(from: i64, count: i64) -> RecordBatch {
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(from..from + count));
        RecordBatch::try_from_iter([("n", values)]).unwrap()
    }

    #[test]
    fn numbers_stand_right_wide_characters_count_twice_and_controls_are_spelled_out() {
        check(
            &[people()],
            look(None, None),
            "
            ┌──────┬──────┬───────────┐
            │ name │  age │ note\\n    │
            ├──────┼──────┼───────────┤
            │ Ada  │   36 │ a\\tb      │
            │ 漢字 │ NULL │           │
            │ NULL │    7 │ \\u{1b}[2J │
            └──────┴──────┴───────────┘
            ",
        );
    }

    #[test]
    fn types_stand_under_names_and_headers_can_go() {
        check(
            &[numbers(1, 1)],
            Look { types: true, ..look(None, None) },
            "
            ┌────────┐
            │      n │
            │ bigint │
            ├────────┤
            │      1 │
            └────────┘
            ",
        );
        check(
            &[numbers(1, 1)],
            Look { headers: false, ..look(None, None) },
            "
            ┌───┐
            │ 1 │
            └───┘
            ",
        );
    }

    #[test]
    fn the_middle_rows_go_whatever_the_batches() {
        check(
            &[numbers(0, 100)],
            look(Some(4), None),
            "
            ┌────┐
            │  n │
            ├────┤
            │  0 │
            │  1 │
            │  ⋮ │
            │ 98 │
            │ 99 │
            └────┘
            ",
        );
        let many: Vec<RecordBatch> = (0..100).map(|n| numbers(n, 1)).collect();
        let (one, shown) = draw(&[numbers(0, 100)], look(Some(4), None));
        assert_eq!(draw(&many, look(Some(4), None)), (one.clone(), shown));
        assert_eq!(draw(&[numbers(0, 3), numbers(3, 97)], look(Some(4), None)).0, one);
        assert_eq!(shown, Shown { rows: 4, columns: 1 });
        assert_eq!(draw(&[numbers(0, 4)], look(Some(4), None)).1.rows, 4);
        assert_eq!(draw(&[numbers(0, 5)], look(Some(4), None)).1.rows, 4);
        assert_eq!(draw(&[numbers(0, 5).project(&[]).unwrap()], look(Some(4), None)).0, "");
    }

    #[test]
    fn columns_that_do_not_fit_are_cut_then_left_out() {
        let text: ArrayRef = Arc::new(StringArray::from(vec!["the quick brown fox jumps"]));
        let number: ArrayRef = Arc::new(Float64Array::from(vec![0.1 + 0.2]));
        let batch = RecordBatch::try_from_iter([
            ("a", text.clone()),
            ("b", number.clone()),
            ("c", number),
            ("d", text),
        ])
        .unwrap();
        check(
            std::slice::from_ref(&batch),
            look(None, Some(46)),
            "
            ┌────────────────────┬───┬───────────────────┐
            │ a                  │ … │ d                 │
            ├────────────────────┼───┼───────────────────┤
            │ the quick brown f… │ … │ the quick brown … │
            └────────────────────┴───┴───────────────────┘
            ",
        );
        assert_eq!(draw(&[batch], look(None, Some(46))).1, Shown { rows: 1, columns: 2 });
    }

    #[test]
    fn all_rows_are_shown_where_nothing_limits_them() {
        let (text, shown) = draw(&[numbers(0, 9_000), numbers(9_000, 9_000)], look(None, None));
        assert_eq!(text.lines().count(), 18_000 + 4);
        assert_eq!(shown.rows, 18_000);
    }

    #[test]
    fn shortening_never_cuts_a_character_in_two() {
        let check = |text, width, expected: &str| assert_eq!(shorten(text, width), expected);
        check("abcdef", 6, "abcdef");
        check("abcdef", 4, "abc…");
        check("漢字漢字", 4, "漢…");
        check("漢字漢字", 5, "漢字…");
        check("ü", 1, "ü");
        check("abc", 1, "…");
    }
}
