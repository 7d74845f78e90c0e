//! Scripts: pieces of text one after the other, until one fails.

use std::io::{BufRead, BufReader};
use std::path::Path;

use super::{Console, Flow};
use crate::error::{Failure, Result};
use crate::script::{Piece, Script};
use crate::shell::dot_commands;

/// How deep scripts may be nested.
const SCRIPTS_NESTED_MAX: usize = 32;

impl Console {
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
                    self.run_command(&line).map_err(|failure| match script.source() {
                        Some(source) => failure.at(source, line_number),
                        None => failure,
                    })
                }
            };
            match outcome {
                Ok(Flow::Continue) => {}
                Ok(Flow::Quit) => return Ok(Flow::Quit),
                Err(failure) => {
                    self.go_on_after(failure)?;
                    failed = true;
                }
            }
        }
        if failed { Err(Failure::Reported) } else { Ok(Flow::Continue) }
    }

    /// Prints the failure of a statement or command behind which a script goes on; returns one that ends it.
    fn go_on_after(&self, failure: Failure) -> Result<()> {
        if failure.ends_script() || self.settings.bail {
            return Err(failure);
        }
        failure.print(self.terminal.stderr_palette());
        Ok(())
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
        let mut failed = false;
        for statement in statements {
            if self.settings.echo {
                self.print(&format!("{};\n", statement.text()))?;
            }
            if let Err(failure) = self.run_statement(&statement).map_err(located) {
                self.go_on_after(failure)?;
                failed = true;
            }
        }
        if failed { Err(Failure::Reported) } else { Ok(()) }
    }
}
