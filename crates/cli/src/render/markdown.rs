//! Answers as a Markdown table, row by row.

use std::io::Write;

use keirin::arrow::array::RecordBatch;
use keirin::arrow::datatypes::SchemaRef;

use super::cells::{Cells, escape_controls, is_number};
use super::{Look, RenderError, Renderer, Shown, Sink};

pub(crate) struct Markdown<'a> {
    look: Look,
    sink: Sink<'a>,
    shown: Shown,
}

impl<'a> Markdown<'a> {
    /// Writes the header, without which Markdown knows no table.
    pub(crate) fn new(schema: SchemaRef, look: Look, sink: Sink<'a>) -> Result<Self, RenderError> {
        let fields = schema.fields();
        write_row(sink, fields.iter().map(|field| escape(field.name())))?;
        let rules =
            fields.iter().map(|field| if is_number(field.data_type()) { "---:" } else { "---" }.to_owned());
        write_row(sink, rules)?;
        Ok(Self { look, sink, shown: Shown { rows: 0, columns: fields.len() } })
    }
}

impl Renderer for Markdown<'_> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), RenderError> {
        let cells = Cells::new(batch)?;
        for row in 0..batch.num_rows() {
            let values = (0..batch.num_columns())
                .map(|column| escape(&cells.text(row, column).unwrap_or_else(|| self.look.null.clone())));
            write_row(self.sink, values)?;
        }
        self.shown.rows += batch.num_rows();
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Shown, RenderError> {
        Ok(self.shown)
    }
}

fn write_row(sink: &mut (dyn Write + Send), values: impl Iterator<Item = String>) -> Result<(), RenderError> {
    writeln!(sink, "| {} |", values.collect::<Vec<_>>().join(" | "))?;
    Ok(())
}

/// Escapes line ends and bars, which would end the cell.
fn escape(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(escape_controls).collect();
    lines.join("<br>").replace('\\', "\\\\").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use keirin::arrow::array::{ArrayRef, Int64Array, StringArray};

    use super::*;
    use crate::terminal::Palette;

    #[test]
    fn bars_and_line_breaks_stay_in_their_cell() {
        let columns: [(&str, ArrayRef); 2] = [
            ("a|b", Arc::new(StringArray::from(vec![Some("x|y"), None, Some("two\nlines")]))),
            ("n", Arc::new(Int64Array::from(vec![1, 2, 3]))),
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
        let mut markdown = Box::new(Markdown::new(batch.schema(), look, &mut sink).unwrap());
        markdown.write(&batch).unwrap();
        assert_eq!(markdown.finish().unwrap(), Shown { rows: 3, columns: 2 });
        assert_eq!(
            String::from_utf8(sink).unwrap(),
            "| a\\|b | n |\n| --- | ---: |\n| x\\|y | 1 |\n| NULL | 2 |\n| two<br>lines | 3 |\n"
        );
    }
}
