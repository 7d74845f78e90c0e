//! One statement and its answer: rows in the current format, or a line that it is done.

use std::io::Write;
use std::time::Duration;

use futures::StreamExt;
use keirin::arrow::array::RecordBatch;
use keirin::{Parameters, ResultStream, Statement, StatementKind, WriteOptions};
use nu_ansi_term::Style;

use super::settings::{look, write_options};
use super::{Console, during, first_number};
use crate::error::{Failure, Result};
use crate::format::Format;
use crate::output::Output;
use crate::progress::Progress;
use crate::render::{self, Explain, RenderError, Renderer, Shown, human};
use crate::signals::SignalWatch;
use crate::terminal::tell;

/// How long to wait for a cancelled statement to end: silently, and then with a message.
const QUIET_WAIT_MAX: Duration = Duration::from_millis(500);
const END_WAIT_MAX: Duration = Duration::from_secs(60);

impl Console {
    /// Runs one statement and shows its answer.
    pub(super) fn run_statement(&mut self, statement: &Statement) -> Result<()> {
        let mut progress = self.progress("");
        let mut signals = self.signals.watch();
        let session = self.session.clone();
        let runtime = self.runtime.clone();
        let outcome = runtime.block_on(async {
            let run = during(session.run(statement, Parameters::None), &mut signals, &mut progress);
            let stream = run.await?.map_err(Failure::engine)?;
            progress.follow(stream.progress());
            if let Some(notice) = stream.notice() {
                progress.clear();
                tell(
                    &self.terminal.stderr_palette().paint(Style::new().dimmed(), &format!("note: {notice}")),
                );
            }
            match stream.kind() {
                StatementKind::Rows => self.show(stream, &mut signals, &mut progress).await,
                StatementKind::Count | StatementKind::Done => {
                    let (kind, tag) = (stream.kind(), stream.tag().to_owned());
                    let batches = during(stream.collect(), &mut signals, &mut progress)
                        .await?
                        .map_err(Failure::engine)?;
                    progress.clear();
                    self.names_changed = true;
                    let rows = (kind == StatementKind::Count).then(|| first_number(&batches)).flatten();
                    self.tell_status(&tag, rows, progress.elapsed());
                    Ok(())
                }
            }
        });
        if matches!(outcome, Err(Failure::Stopped(_))) && self.interactive {
            self.wait_for_end();
        }
        outcome?;
        progress.clear();
        signals.end();
        Ok(())
    }

    /// Waits until all work of a cancelled statement has ended, so that "cancelled" is true.
    fn wait_for_end(&self) {
        if self.session.wait_until_idle(QUIET_WAIT_MAX) {
            return;
        }
        let say = |text: &str| tell(&self.terminal.stderr_palette().paint(Style::new().dimmed(), text));
        say("stopping: a step of the statement is still at work; Ctrl-C ends the program");
        if !self.session.wait_until_idle(END_WAIT_MAX) {
            say("note: a step of the statement goes on in the background");
        }
    }

    /// Writes the rows of `stream` in the current format.
    async fn show(
        &mut self,
        mut stream: ResultStream,
        signals: &mut SignalWatch,
        progress: &mut Progress,
    ) -> Result<()> {
        let mut output = self.output_once.take();
        let once = output.is_some();
        let to = output.as_mut().unwrap_or(&mut self.output);
        let on_terminal = to.is_stdout() && self.terminal.stdout;
        let format = to.format.unwrap_or(self.settings.format);
        let look = look(&self.settings, self.terminal, on_terminal);
        let options = write_options(&self.settings, to.path());
        check_one_answer(format, on_terminal, to)?;
        to.answers += 1;

        let is_table = format == Format::Table && stream.tag() != "EXPLAIN";
        // A table on a terminal is written at the end; other formats are written as rows come, which the progress
        // bar would disturb.
        let streams_to_terminal = on_terminal && !(is_table && look.rows_max.is_some());
        let schema = stream.schema();
        let columns = schema.fields().len();
        let palette = look.palette;
        let mut rows = 0;
        let shown = {
            let renderer: std::result::Result<Box<dyn Renderer + '_>, RenderError> =
                match (stream.tag(), format) {
                    ("EXPLAIN", Format::Table) => Ok(Box::new(Explain::new(look, to))),
                    _ => render::renderer(format, schema, look, &options, to),
                };
            let written: Result<std::result::Result<Shown, RenderError>> = async {
                let mut renderer = match renderer {
                    Ok(renderer) => renderer,
                    Err(error) => return Ok(Err(error)),
                };
                while let Some(batch) = during(stream.next(), signals, progress).await? {
                    let batch = batch.map_err(Failure::engine)?;
                    if streams_to_terminal {
                        progress.clear();
                    }
                    rows += batch.num_rows();
                    if let Err(error) = renderer.write(&batch) {
                        return Ok(Err(error));
                    }
                    progress.draw();
                }
                progress.clear();
                Ok(renderer.finish())
            }
            .await;
            written?
        };
        let elapsed = progress.elapsed();
        let to = output.as_mut().unwrap_or(&mut self.output);
        let shown = shown.map_err(|error| render_failure(to, error))?;
        let footer = footer(rows, columns, shown, self.settings.timer.then_some(elapsed));
        let written =
            if is_table { writeln!(to, "{}", palette.paint(Style::new().dimmed(), &footer)) } else { Ok(()) };
        written.and_then(|()| to.flush()).map_err(|error| to.failure(error))?;
        if !is_table && self.settings.timer {
            tell(&self.terminal.stderr_palette().paint(Style::new().dimmed(), &footer));
        }
        match output {
            Some(output) if once => output.commit(),
            _ => Ok(()),
        }
    }

    /// Shows batches as a table on standard output.
    pub(crate) fn show_batches(&mut self, batches: &[RecordBatch]) -> Result<()> {
        let Some(first) = batches.first() else { return self.print("0 rows\n") };
        let look = look(&self.settings, self.terminal, self.terminal.stdout);
        let mut draw = || {
            let options = WriteOptions::default();
            let mut table =
                render::renderer(Format::Table, first.schema(), look.clone(), &options, &mut self.output)?;
            batches.iter().try_for_each(|batch| table.write(batch))?;
            table.finish()
        };
        let shown = draw().map_err(|error| render_failure(&self.output, error))?;
        let rows = batches.iter().map(RecordBatch::num_rows).sum();
        self.print(&format!("{}\n", footer(rows, first.num_columns(), shown, None)))
    }

    /// Tells an interactive user that a statement without rows is done.
    fn tell_status(&self, tag: &str, rows: Option<usize>, elapsed: Duration) {
        let somebody_looks = self.interactive || (self.terminal.stdout && self.terminal.stderr);
        if !somebody_looks {
            return;
        }
        let mut status = tag.to_owned();
        if let Some(rows) = rows {
            status = format!("{status}: {}", human::plural(rows, "row"));
        }
        if self.settings.timer {
            status = format!("{status} in {}", human::duration(elapsed));
        }
        tell(&self.terminal.stderr_palette().paint(Style::new().dimmed(), &status));
    }
}

/// Fails if the output already holds an answer in a format that allows only one, or if binary data would go to a
/// terminal.
fn check_one_answer(format: Format, on_terminal: bool, output: &Output) -> Result<()> {
    let name = format.name();
    if format.is_binary() && on_terminal {
        return Err(Failure::command(format!("{name} is not for a terminal"))
            .with_hint("write to a file with --output FILE or .once FILE, or into a pipe"));
    }
    if output.answers > 0 && output.holds_one_answer(format) {
        let hint = "use COPY (query) TO 'file', or .once FILE before each query";
        let hint =
            if format == Format::Json { format!("jsonl takes several; or {hint}") } else { hint.into() };
        let article = if format == Format::Arrow { "an" } else { "a" };
        return Err(Failure::command(format!(
            "{article} {name} file holds one answer, and this would be the second"
        ))
        .with_hint(hint));
    }
    Ok(())
}

fn render_failure(output: &Output, error: RenderError) -> Failure {
    match error {
        _ if output.is_closed() => Failure::OutputClosed,
        RenderError::Io(error) => output.failure(error),
        RenderError::Arrow(error) => {
            Failure::engine(keirin::Error::new(keirin::ErrorKind::Unsupported, error.to_string()))
        }
        RenderError::Engine(error) => match error.message().strip_prefix("cannot write: ") {
            Some(reason) if error.kind() == keirin::ErrorKind::Io => {
                Failure::command(format!("cannot write to {}: {reason}", output.name()))
            }
            _ => Failure::engine(error),
        },
    }
}

/// `3 rows`, `1,000 rows (40 shown), 19 columns (8 shown) in 0.012 s`.
fn footer(rows: usize, columns: usize, shown: Shown, elapsed: Option<Duration>) -> String {
    let part = |number: usize, shown: usize, noun: &str| {
        let text = human::plural(number, noun);
        if shown < number { format!("{text} ({} shown)", human::grouped(shown)) } else { text }
    };
    let mut footer = part(rows, shown.rows, "row");
    if shown.columns < columns {
        footer = format!("{footer}, {}", part(columns, shown.columns, "column"));
    }
    match elapsed {
        Some(elapsed) => format!("{footer} in {}", human::duration(elapsed)),
        None => footer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_footer_says_what_was_left_out() {
        let check = |rows, columns, shown, elapsed, expected: &str| {
            let (shown_rows, shown_columns) = shown;
            let shown = Shown { rows: shown_rows, columns: shown_columns };
            assert_eq!(footer(rows, columns, shown, elapsed), expected);
        };
        check(1, 2, (1, 2), None, "1 row");
        check(0, 2, (0, 2), None, "0 rows");
        check(1000, 19, (40, 8), None, "1,000 rows (40 shown), 19 columns (8 shown)");
        check(3, 1, (3, 1), Some(Duration::from_millis(12)), "3 rows in 0.012 s");
    }
}
