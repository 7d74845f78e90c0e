//! Query plans: text of many lines, which would not fit in a table.

use keirin::arrow::array::RecordBatch;
use nu_ansi_term::Style;

use super::cells::{Cells, escape_controls};
use super::{Look, RenderError, Renderer, Shown, Sink};

/// Writes the values of each row one below the other; the last one is the plan.
pub(crate) struct Explain<'a> {
    look: Look,
    sink: Sink<'a>,
    shown: Shown,
}

impl<'a> Explain<'a> {
    pub(crate) fn new(look: Look, sink: Sink<'a>) -> Self {
        Self { look, sink, shown: Shown::default() }
    }
}

impl Renderer for Explain<'_> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), RenderError> {
        let cells = Cells::new(batch)?;
        for row in 0..batch.num_rows() {
            for column in 0..batch.num_columns() {
                let text = cells.text(row, column).unwrap_or_default();
                let is_plan = column + 1 == batch.num_columns();
                let style = if is_plan { Style::new() } else { Style::new().bold() };
                for line in text.lines() {
                    writeln!(self.sink, "{}", self.look.palette.paint(style, &escape_controls(line)))?;
                }
            }
        }
        self.shown = Shown { rows: self.shown.rows + batch.num_rows(), columns: batch.num_columns() };
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Shown, RenderError> {
        Ok(self.shown)
    }
}
