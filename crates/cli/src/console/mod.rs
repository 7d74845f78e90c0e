//! What the shell, scripts and the demo share: a session, and the format and destination of answers.

mod answers;
mod scripts;
mod settings;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use keirin::arrow::array::RecordBatch;
use keirin::arrow::datatypes::SchemaRef;
use keirin::{Database, Session};
use tokio::runtime::Runtime;

pub(crate) use self::settings::Settings;
use crate::error::{Failure, Result};
use crate::output::Output;
use crate::progress::{Progress, REDRAW};
use crate::render;
use crate::signals::{SignalWatch, Signals};
use crate::terminal::Terminal;

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
    pub(crate) read_only: bool,
}

/// The answer of a statement that the program runs for itself.
pub(crate) struct Answer {
    pub(crate) batches: Vec<RecordBatch>,
    pub(crate) rows_read: u64,
    pub(crate) elapsed: Duration,
}

/// See the [module](self).
pub(crate) struct Console {
    /// The session; it keeps the database open.
    pub(crate) session: Session,
    /// `None` for a database in memory.
    pub(crate) database_path: Option<PathBuf>,
    pub(crate) settings: Settings,
    pub(crate) terminal: Terminal,
    pub(crate) interactive: bool,
    pub(crate) show_progress: bool,
    /// Whether the names that completion offers may have changed.
    pub(crate) names_changed: bool,
    pub(crate) output: Output,
    /// The destination of the next answer only.
    pub(crate) output_once: Option<Output>,
    pub(crate) signals: Signals,
    /// A runtime on this thread, for waiting: timers on the database's busy threads could be late.
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
        let signals = Signals::install(interactive);
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
            signals,
            runtime: Arc::new(runtime),
            resources,
            scripts_nested: 0,
        })
    }

    /// Switches to another database; settings of the shell stay.
    pub(crate) fn reopen(&mut self, path: Option<PathBuf>) -> Result<()> {
        let place = |path: &Option<PathBuf>| path.as_ref().and_then(|path| path.canonicalize().ok());
        if place(&path).is_some_and(|place_of_it| place(&self.database_path) == Some(place_of_it)) {
            // Nobody else may write to it, this session neither, until it is closed.
            self.session = open_session(None, &self.resources)?;
            self.database_path = None;
            self.names_changed = true;
        }
        self.session = open_session(path.as_deref(), &self.resources)?;
        self.database_path = path;
        self.names_changed = true;
        Ok(())
    }

    fn progress(&self, label: &str) -> Progress {
        if self.show_progress {
            Progress::new(label, self.terminal.stderr_palette())
        } else {
            Progress::hidden()
        }
    }

    /// Runs `sql` for the program itself.
    pub(crate) fn query(&self, sql: &str) -> Result<Vec<RecordBatch>> {
        self.answer(sql, Progress::hidden()).map(|answer| answer.batches)
    }

    /// Runs `sql` and collects the answer; `label` says on the progress bar what is being done.
    pub(crate) fn collect(&self, sql: &str, label: &str) -> Result<Answer> {
        self.answer(sql, self.progress(label))
    }

    fn answer(&self, sql: &str, mut progress: Progress) -> Result<Answer> {
        let mut signals = self.signals.watch();
        let located = |error| Failure::Sql { error, sql: sql.to_owned(), source: None, first_line: 1 };
        self.runtime.block_on(async {
            let stream =
                during(self.session.sql(sql), &mut signals, &mut progress).await?.map_err(located)?;
            let source = stream.progress();
            progress.follow(source.clone());
            let batches = during(stream.collect(), &mut signals, &mut progress).await?.map_err(located)?;
            Ok(Answer { batches, rows_read: source.rows(), elapsed: progress.elapsed() })
        })
    }

    /// The columns of the answer to `sql`.
    pub(crate) fn schema_of(&self, sql: &str) -> Result<SchemaRef> {
        let mut progress = Progress::hidden();
        let mut signals = self.signals.watch();
        self.runtime.block_on(async {
            let stream = during(self.session.sql(sql), &mut signals, &mut progress).await?;
            Ok(stream.map_err(Failure::engine)?.schema())
        })
    }

    /// Writes text among the answers.
    pub(crate) fn print(&mut self, text: &str) -> Result<()> {
        let format = self.output.format.unwrap_or(self.settings.format);
        let on_terminal = self.output.is_stdout() && self.terminal.stdout;
        if self.output.holds_one_answer(format) && !on_terminal {
            let name = format.name();
            return Err(Failure::command(format!("no text fits into a {name} file beside its answer")));
        }
        let written = self.output.write_all(text.as_bytes()).and_then(|()| self.output.flush());
        written.map_err(|error| self.output.failure(error))
    }

    /// Ends the program: output files get their names.
    pub(crate) fn close(mut self) -> Result<()> {
        let output = std::mem::replace(&mut self.output, Output::stdout());
        let format = output.format.unwrap_or(self.settings.format);
        if let Some(path) = output.path()
            && output.answers == 0
            && output.holds_one_answer(format)
        {
            let (path, name) = (path.display(), format.name());
            return Err(Failure::command(format!(
                "no statement gave an answer for '{path}', and {name} files cannot be empty"
            )));
        }
        output.commit()
    }
}

/// Waits for `future` while handling signals and drawing the bar.
pub(crate) async fn during<T>(
    future: impl Future<Output = T>,
    signals: &mut SignalWatch,
    progress: &mut Progress,
) -> Result<T> {
    let mut future = pin!(future);
    let mut redraw = tokio::time::interval(REDRAW);
    loop {
        tokio::select! {
            biased;
            signal = signals.received() => {
                progress.clear();
                return Err(Failure::Stopped(signal));
            }
            output = &mut future => return Ok(output),
            _ = redraw.tick() => progress.draw(),
        }
    }
}

/// Opens the database at `path`, or one in memory.
fn open_session(path: Option<&Path>, resources: &Resources) -> Result<Session> {
    let mut builder = Database::builder().whole_process(true);
    if let Some(threads) = resources.threads {
        builder = builder.threads(threads);
    }
    if let Some(directory) = &resources.temp_directory {
        builder = builder.temp_directory(directory);
    }
    let database = match path {
        Some(path) => builder.read_only(resources.read_only).open(path),
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

/// The number of rows that a statement says it wrote.
pub(crate) fn first_number(batches: &[RecordBatch]) -> Option<usize> {
    let batch = batches.iter().find(|batch| batch.num_rows() > 0 && batch.num_columns() > 0)?;
    render::Cells::new(batch).ok()?.text(0, 0)?.parse().ok()
}
