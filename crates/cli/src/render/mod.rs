//! Answers as readable text: a table, Markdown, one value a line, plans.
//!
//! A renderer gets the batches as they come and holds a bounded number of rows. Values are not trusted: control
//! characters are escaped, so that no data can control the terminal.

mod cells;
mod explain;
mod file;
pub(crate) mod human;
mod layout;
mod markdown;
mod table;
mod vertical;

use std::io::Write;

use keirin::WriteOptions;
use keirin::arrow::array::RecordBatch;
use keirin::arrow::datatypes::SchemaRef;
use keirin::arrow::error::ArrowError;

use crate::format::Format;
use crate::terminal::Palette;

pub(crate) use cells::{Cells, escape_controls};
pub(crate) use explain::Explain;
use file::File;
pub(crate) use keirin::sql_type_name as type_name;
use markdown::Markdown;
use table::Table;
use vertical::Vertical;

/// Where renderers write: the program's output.
pub(crate) type Sink<'a> = &'a mut (dyn Write + Send);

/// How answers are shown.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    /// Column names above the values.
    pub(crate) headers: bool,
    /// Column types under the names.
    pub(crate) types: bool,
    /// The text shown for NULL.
    pub(crate) null: String,
    /// Rows shown, from the start and from the end; `None` shows all.
    pub(crate) rows_max: Option<usize>,
    /// Width of the screen in columns of characters; `None` shows all.
    pub(crate) width_max: Option<usize>,
    pub(crate) palette: Palette,
}

/// How much of an answer was shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// Writes one answer.
pub(crate) trait Renderer {
    /// Takes the next batch and may write some of it.
    fn write(&mut self, batch: &RecordBatch) -> Result<(), RenderError>;

    /// Writes the rest.
    fn finish(self: Box<Self>) -> Result<Shown, RenderError>;
}

/// Why an answer could not be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RenderError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Arrow(#[from] ArrowError),
    #[error(transparent)]
    Engine(#[from] keirin::Error),
}

/// The renderer for `format`; `options` are for the formats of files.
pub(crate) fn renderer<'a>(
    format: Format,
    schema: SchemaRef,
    look: Look,
    options: &WriteOptions,
    sink: Sink<'a>,
) -> Result<Box<dyn Renderer + 'a>, RenderError> {
    Ok(match (format, format.of_engine()) {
        (_, Some(format)) => Box::new(File::new(format, schema, options, sink)?),
        (Format::Markdown, None) => Box::new(Markdown::new(schema, look, sink)?),
        (Format::Vertical, None) => Box::new(Vertical::new(schema, look, sink)),
        _ => Box::new(Table::new(schema, look, sink)),
    })
}
