//! Answers with one value a line, for rows that are wider than any screen.

use keirin::arrow::array::RecordBatch;
use keirin::arrow::datatypes::SchemaRef;
use nu_ansi_term::Style;
use unicode_width::UnicodeWidthStr;

use super::cells::{Cells, escape_controls};
use super::{Look, RenderError, Renderer, Shown, Sink};

pub(crate) struct Vertical<'a> {
    names: Vec<String>,
    name_width: usize,
    look: Look,
    sink: Sink<'a>,
    rows: usize,
}

impl<'a> Vertical<'a> {
    pub(crate) fn new(schema: SchemaRef, look: Look, sink: Sink<'a>) -> Self {
        let names: Vec<String> =
            schema.fields().iter().map(|field| escape_controls(field.name()).into_owned()).collect();
        let name_width = names.iter().map(|name| name.width()).max().unwrap_or(0);
        Self { names, name_width, look, sink, rows: 0 }
    }
}

impl Renderer for Vertical<'_> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), RenderError> {
        let cells = Cells::new(batch)?;
        let dim = Style::new().dimmed();
        for row in 0..batch.num_rows() {
            self.rows += 1;
            writeln!(self.sink, "{}", self.look.palette.paint(dim, &format!("── row {} ──", self.rows)))?;
            for (column, name) in self.names.iter().enumerate() {
                let gap = " ".repeat(self.name_width - name.width());
                let name = self.look.palette.paint(Style::new().bold(), name);
                let value = match cells.text(row, column) {
                    // Further lines are aligned with the first.
                    Some(text) => {
                        let lines: Vec<_> = text.split('\n').map(escape_controls).collect();
                        lines.join(&format!("\n{}", " ".repeat(self.name_width + 3)))
                    }
                    None => self.look.palette.paint(dim, &self.look.null),
                };
                writeln!(self.sink, "{gap}{name} │ {value}")?;
            }
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Shown, RenderError> {
        Ok(Shown { rows: self.rows, columns: self.names.len() })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use keirin::arrow::array::{ArrayRef, StringArray};

    use super::*;
    use crate::terminal::Palette;

    #[test]
    fn names_line_up_and_lines_stay_in_their_column() {
        let columns: [(&str, ArrayRef); 2] = [
            ("id", Arc::new(StringArray::from(vec![Some("x"), None]))),
            ("text", Arc::new(StringArray::from(vec!["two\nlines", "\x07"]))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let look = Look {
            headers: true,
            types: false,
            null: "NULL".to_owned(),
            rows_max: None,
            width_max: None,
            palette: Palette::default(),
        };
        let mut sink = Vec::new();
        let mut vertical = Box::new(Vertical::new(batch.schema(), look, &mut sink));
        vertical.write(&batch).unwrap();
        assert_eq!(vertical.finish().unwrap(), Shown { rows: 2, columns: 2 });
        let expected =
            "── row 1 ──\n  id │ x\ntext │ two\n       lines\n── row 2 ──\n  id │ NULL\ntext │ \\u{7}\n";
        assert_eq!(String::from_utf8(sink).unwrap(), expected);
    }
}
