//! What the shell, scripts and the demo share: a session, how answers look, where they go.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use keirin::arrow::array::RecordBatch;
use keirin::arrow::datatypes::SchemaRef;
use keirin::{Database, Parameters, ResultStream, Session, Statement, StatementKind, WriteOptions};
use tokio::runtime::Runtime;

use crate::error::{Failure, Result};
use crate::format::Format;
use crate::interrupts::{Interrupt, Interrupts};
use crate::output::Output;
use crate::progress::{Progress, REDRAW};
use crate::render::{self, Explain, Look, RenderError, Renderer, Shown, human};
use crate::script::{Piece, Script};
use crate::shell::dot_commands;
use crate::terminal::Terminal;

/// Rows that a terminal shows unless told otherwise.
const TERMINAL_ROWS_MAX: usize = 40;
/// Scripts that read scripts that read scripts.
const SCRIPTS_NESTED_MAX: usize = 32;

/// Whether there is more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Continue,
    Quit,
}

/// How a database is opened.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resources {
    pub(crate) threads: Option<usize>,
    /// As users write it: `2GB`, `50%`.
    pub(crate) memory_limit: Option<String>,
    pub(crate) temp_directory: Option<PathBuf>,
}

/// What dot commands change.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) format: Format,
    pub(crate) headers: bool,
    /// `None`: NULL for people, and in files what their format says.
    pub(crate) null: Option<String>,
    /// `None`: shown on a terminal.
    pub(crate) types: Option<bool>,
    /// `None`: as many as fit a terminal, or all; 0: all.
    pub(crate) rows_max: Option<usize>,
    /// `None`: the terminal's, or no limit; 0: no limit.
    pub(crate) width_max: Option<usize>,
    pub(crate) timer: bool,
    pub(crate) echo: bool,
    pub(crate) bail: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            format: Format::Table,
            headers: true,
            null: None,
            types: None,
            rows_max: None,
            width_max: None,
            timer: false,
            echo: false,
            bail: true,
        }
    }
}

/// What a statement gave that ran for ourselves.
pub(crate) struct Answer {
    pub(crate) batches: Vec<RecordBatch>,
    pub(crate) rows_read: u64,
    pub(crate) elapsed: Duration,
}

/// See the [module](self).
pub(crate) struct Console {
    /// Keeps its database open.
    pub(crate) session: Session,
    /// `None`: in memory.
    pub(crate) database_path: Option<PathBuf>,
    pub(crate) settings: Settings,
    pub(crate) terminal: Terminal,
    pub(crate) interactive: bool,
    pub(crate) show_progress: bool,
    /// Something may have changed the names that completion offers.
    pub(crate) names_changed: bool,
    pub(crate) output: Output,
    /// Where the next answer goes instead.
    pub(crate) output_once: Option<Output>,
    pub(crate) interrupts: Interrupts,
    /// Waits for the database's threads on this one: they may be too busy to ring its clocks.
    pub(crate) runtime: Arc<Runtime>,
    resources: Resources,
    scripts_nested: usize,
}

/// How long the end of the program waits for a stopped query to remove its files.
const STOP_WAIT_MAX: Duration = Duration::from_secs(2);

impl Drop for Console {
    fn drop(&mut self) {
        self.session.wait_until_idle(STOP_WAIT_MAX);
    }
}

impl Console {
    /// Opens the database at `path`, or one in memory.
    pub(crate) fn open(path: Option<PathBuf>, resources: Resources, interactive: bool) -> Result<Self> {
        let terminal = Terminal::detect();
        let session = open_session(path.as_deref(), &resources)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.map_err(|error| Failure::file("start the clock", error))?;
        Ok(Self {
            session,
            database_path: path,
            settings: Settings { timer: interactive, ..Settings::default() },
            terminal,
            interactive,
            show_progress: terminal.stderr,
            names_changed: true,
            output: Output::stdout(),
            output_once: None,
            interrupts: Interrupts::install(interactive),
            runtime: Arc::new(runtime),
            resources,
            scripts_nested: 0,
        })
    }

    /// Goes on with another database; settings of the shell stay.
    pub(crate) fn reopen(&mut self, path: Option<PathBuf>) -> Result<()> {
        self.session = open_session(path.as_deref(), &self.resources)?;
        self.database_path = path;
        self.names_changed = true;
        Ok(())
    }

    /// Runs the script in file `path`; `-` is standard input.
    pub(crate) fn run_file(&mut self, path: &Path) -> Result<Flow> {
        if path == Path::new("-") {
            return self.run_script(&mut Script::new(std::io::stdin().lock(), None));
        }
        let name = path.display().to_string();
        let failed = |error| Failure::file(format!("read '{name}'"), error);
        let file = std::fs::File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.is_dir() {
            return Err(failed(std::io::ErrorKind::IsADirectory.into()));
        }
        if self.scripts_nested == SCRIPTS_NESTED_MAX {
            return Err(Failure::command(format!("'{name}' reads itself, or scripts are nested too deep")));
        }
        self.scripts_nested += 1;
        let flow = self.run_script(&mut Script::new(BufReader::new(file), Some(name.clone())));
        self.scripts_nested -= 1;
        flow
    }

    /// Runs `text`, which the user gave us directly.
    pub(crate) fn run_text(&mut self, text: &str) -> Result<Flow> {
        self.run_script(&mut Script::new(text.as_bytes(), None))
    }

    fn run_script<R: BufRead>(&mut self, script: &mut Script<R>) -> Result<Flow> {
        let mut failed = false;
        while let Some(piece) = script.next_piece()? {
            let outcome = match piece {
                Piece::Sql { text, first_line } => {
                    self.run_sql(&text, script.source(), first_line).map(|()| Flow::Continue)
                }
                Piece::Command { line, line_number } => {
                    self.run_command(&line).map_err(|failure| match (failure, script.source()) {
                        (Failure::Command { message, hint }, Some(source)) => Failure::Command {
                            message: format!("{source}, line {line_number}: {message}"),
                            hint,
                        },
                        (failure, _) => failure,
                    })
                }
            };
            match outcome {
                Ok(Flow::Continue) => {}
                Ok(Flow::Quit) => return Ok(Flow::Quit),
                Err(failure @ (Failure::Interrupted | Failure::OutputClosed)) => return Err(failure),
                Err(failure) if self.settings.bail => return Err(failure),
                Err(failure) => {
                    failure.print(self.terminal.stderr_palette());
                    failed = true;
                }
            }
        }
        if failed { Err(Failure::Reported) } else { Ok(Flow::Continue) }
    }

    fn run_command(&mut self, line: &str) -> Result<Flow> {
        if self.settings.echo {
            self.print(&format!("{line}\n"))?;
        }
        dot_commands::run(self, line)
    }

    /// Runs the statements of `sql`, which begins at line `first_line` of `source`.
    pub(crate) fn run_sql(&mut self, sql: &str, source: Option<&str>, first_line: usize) -> Result<()> {
        let located = |failure| match failure {
            Failure::Sql { error, .. } => {
                Failure::Sql { error, sql: sql.to_owned(), source: source.map(str::to_owned), first_line }
            }
            other => other,
        };
        let statements = keirin::parse(sql).map_err(|error| located(Failure::engine(error)))?;
        for statement in statements {
            if self.settings.echo {
                self.print(&format!("{};\n", statement.text()))?;
            }
            self.run_statement(&statement).map_err(located)?;
        }
        Ok(())
    }

    /// Runs one statement and shows its answer.
    fn run_statement(&mut self, statement: &Statement) -> Result<()> {
        let mut progress = self.progress("");
        let mut interrupt = self.interrupts.watch();
        let session = self.session.clone();
        let runtime = self.runtime.clone();
        runtime.block_on(async {
            let run = during(session.run(statement, Parameters::None), &mut interrupt, &mut progress);
            let stream = run.await?.map_err(Failure::engine)?;
            progress.follow(stream.progress());
            match stream.kind() {
                StatementKind::Rows => self.show(stream, &mut interrupt, &mut progress).await,
                StatementKind::Count | StatementKind::Done => {
                    let (kind, tag) = (stream.kind(), stream.tag().to_owned());
                    let batches = during(stream.collect(), &mut interrupt, &mut progress)
                        .await?
                        .map_err(Failure::engine)?;
                    progress.clear();
                    self.names_changed = true;
                    let rows = (kind == StatementKind::Count).then(|| first_number(&batches)).flatten();
                    self.tell_status(&tag, rows, progress.elapsed());
                    Ok(())
                }
            }
        })
    }

    /// Writes the rows of `stream` in the format of the day.
    async fn show(
        &mut self,
        mut stream: ResultStream,
        interrupt: &mut Interrupt,
        progress: &mut Progress,
    ) -> Result<()> {
        let mut output = self.output_once.take();
        let once = output.is_some();
        let to = output.as_mut().unwrap_or(&mut self.output);
        let on_terminal = to.is_stdout() && self.terminal.stdout;
        let format = to.format.unwrap_or(self.settings.format);
        let look = look(&self.settings, self.terminal, on_terminal);
        let options = write_options(&self.settings, to.path());
        check_binary(format, on_terminal, to.answers)?;
        to.answers += 1;

        let is_table = format == Format::Table && stream.tag() != "EXPLAIN";
        // A table on a terminal comes at the end; anything else would be torn by the bar.
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
                while let Some(batch) = during(stream.next(), interrupt, progress).await? {
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
        let written = if is_table {
            writeln!(to, "{}", palette.paint(nu_ansi_term::Style::new().dimmed(), &footer))
        } else {
            Ok(())
        };
        written.and_then(|()| to.flush()).map_err(|error| to.failure(error))?;
        if !is_table && self.settings.timer {
            eprintln!(
                "{}",
                self.terminal.stderr_palette().paint(nu_ansi_term::Style::new().dimmed(), &footer)
            );
        }
        match output {
            Some(output) if once => output.commit(),
            _ => Ok(()),
        }
    }

    fn progress(&self, label: &str) -> Progress {
        if self.show_progress {
            Progress::new(label, self.terminal.stderr_palette())
        } else {
            Progress::hidden()
        }
    }

    /// Runs `sql` for ourselves.
    pub(crate) fn query(&self, sql: &str) -> Result<Vec<RecordBatch>> {
        self.answer(sql, Progress::hidden()).map(|answer| answer.batches)
    }

    /// Runs `sql` and collects the answer; `label` says on the progress bar what is being done.
    pub(crate) fn collect(&self, sql: &str, label: &str) -> Result<Answer> {
        self.answer(sql, self.progress(label))
    }

    fn answer(&self, sql: &str, mut progress: Progress) -> Result<Answer> {
        let mut interrupt = self.interrupts.watch();
        let located = |error| Failure::Sql { error, sql: sql.to_owned(), source: None, first_line: 1 };
        self.runtime.block_on(async {
            let stream =
                during(self.session.sql(sql), &mut interrupt, &mut progress).await?.map_err(located)?;
            let source = stream.progress();
            progress.follow(source.clone());
            let batches = during(stream.collect(), &mut interrupt, &mut progress).await?.map_err(located)?;
            Ok(Answer { batches, rows_read: source.rows(), elapsed: progress.elapsed() })
        })
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

    /// The columns that `sql` would answer with.
    pub(crate) fn schema_of(&self, sql: &str) -> Result<SchemaRef> {
        let mut progress = Progress::hidden();
        let mut interrupt = self.interrupts.watch();
        self.runtime.block_on(async {
            let stream = during(self.session.sql(sql), &mut interrupt, &mut progress).await?;
            Ok(stream.map_err(Failure::engine)?.schema())
        })
    }

    /// Writes text among the answers.
    pub(crate) fn print(&mut self, text: &str) -> Result<()> {
        let written = self.output.write_all(text.as_bytes()).and_then(|()| self.output.flush());
        written.map_err(|error| self.output.failure(error))
    }

    /// Tells a person that a statement without rows is done.
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
        eprintln!("{}", self.terminal.stderr_palette().paint(nu_ansi_term::Style::new().dimmed(), &status));
    }

    /// The end: files get their names.
    pub(crate) fn close(mut self) -> Result<()> {
        std::mem::replace(&mut self.output, Output::stdout()).commit()
    }
}

/// Waits for `future`; meanwhile Ctrl-C is heard and the bar drawn.
pub(crate) async fn during<T>(
    future: impl Future<Output = T>,
    interrupt: &mut Interrupt,
    progress: &mut Progress,
) -> Result<T> {
    let mut future = pin!(future);
    let mut redraw = tokio::time::interval(REDRAW);
    loop {
        tokio::select! {
            biased;
            () = interrupt.pressed() => {
                progress.clear();
                return Err(Failure::Interrupted);
            }
            output = &mut future => return Ok(output),
            _ = redraw.tick() => progress.draw(),
        }
    }
}

/// Opens the database at `path`, or one in memory.
fn open_session(path: Option<&Path>, resources: &Resources) -> Result<Session> {
    let mut builder = Database::builder();
    if let Some(threads) = resources.threads {
        builder = builder.threads(threads);
    }
    if let Some(directory) = &resources.temp_directory {
        builder = builder.temp_directory(directory);
    }
    let database = match path {
        Some(path) => builder.open(path),
        None => builder.in_memory(),
    };
    let database = database.map_err(Failure::engine)?;
    let session = database.session();
    if let Some(limit) = &resources.memory_limit {
        let set = format!("SET keirin.memory_limit = '{}'", limit.replace('\'', "''"));
        let outcome = database.block_on(async { session.sql(&set).await?.collect().await });
        outcome.map_err(|error| Failure::usage(format!("--memory-limit: {}", error.message())))?;
    }
    Ok(session)
}

fn look(settings: &Settings, terminal: Terminal, on_terminal: bool) -> Look {
    let limit = |set: Option<usize>, default: usize| match set {
        Some(0) => None,
        Some(limit) => Some(limit),
        None => on_terminal.then_some(default),
    };
    Look {
        headers: settings.headers,
        types: settings.types.unwrap_or(on_terminal),
        null: settings.null.clone().unwrap_or_else(|| "NULL".to_owned()),
        rows_max: limit(settings.rows_max, TERMINAL_ROWS_MAX),
        width_max: limit(settings.width_max, Terminal::width()),
        palette: if on_terminal { terminal.stdout_palette() } else { crate::terminal::Palette::default() },
    }
}

/// How the engine writes files, as far as the user has a say.
fn write_options(settings: &Settings, path: Option<&Path>) -> WriteOptions {
    let mut options = path.and_then(Path::to_str).map_or_else(WriteOptions::default, WriteOptions::for_path);
    options.header = settings.headers;
    if let Some(null) = &settings.null {
        options.null.clone_from(null);
    }
    options
}

/// A Parquet or Arrow file is bytes, and one answer.
fn check_binary(format: Format, on_terminal: bool, answers: usize) -> Result<()> {
    if !format.is_binary() {
        return Ok(());
    }
    let name = format.name();
    if on_terminal {
        return Err(Failure::command(format!("{name} is not for a terminal"))
            .with_hint("write to a file with --output FILE or .once FILE, or into a pipe"));
    }
    if answers > 0 {
        return Err(Failure::command(format!(
            "a {name} file holds one answer, and this would be the second"
        ))
        .with_hint("use COPY (query) TO 'file', or .once FILE before each query"));
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
        RenderError::Engine(error) => Failure::engine(error),
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

/// The number of rows that a statement says it wrote.
pub(crate) fn first_number(batches: &[RecordBatch]) -> Option<usize> {
    let batch = batches.iter().find(|batch| batch.num_rows() > 0 && batch.num_columns() > 0)?;
    render::Cells::new(batch).ok()?.text(0, 0)?.parse().ok()
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
