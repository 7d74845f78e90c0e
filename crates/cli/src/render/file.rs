//! Answers in file formats, which the engine writes batch by batch.

use keirin::arrow::array::RecordBatch;
use keirin::arrow::datatypes::SchemaRef;
use keirin::{BatchWriter, OutputFormat, WriteOptions};

use super::{RenderError, Renderer, Shown, Sink};

pub(crate) struct File<'a> {
    writer: BatchWriter<Sink<'a>>,
    shown: Shown,
}

impl<'a> File<'a> {
    pub(crate) fn new(
        format: OutputFormat,
        schema: SchemaRef,
        options: &WriteOptions,
        sink: Sink<'a>,
    ) -> Result<Self, RenderError> {
        let shown = Shown { rows: 0, columns: schema.fields().len() };
        Ok(Self { writer: BatchWriter::new(format, schema, options, sink)?, shown })
    }
}

impl Renderer for File<'_> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), RenderError> {
        self.shown.rows += batch.num_rows();
        Ok(self.writer.write(batch)?)
    }

    fn finish(self: Box<Self>) -> Result<Shown, RenderError> {
        self.writer.finish()?;
        Ok(self.shown)
    }
}
