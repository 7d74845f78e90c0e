//! Failures that end a statement or the program, their messages and exit codes.
//!
//! Exit codes: 0 for success (also if a reader of our output left early, as `head` does), 1 for an error in a
//! statement or its data, 2 for a wrong command line, 128 plus its number for a signal. Messages go to standard
//! error; nothing in them that comes from data can control the terminal.

use std::io;
use std::process::ExitCode;

use nu_ansi_term::{Color, Style};

use crate::render::escape_controls;
use crate::signals::Signal;
use crate::terminal::{self, Palette};

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

#[derive(Debug)]
pub(crate) enum Failure {
    /// The engine's error for a statement of `sql`, which begins at line `first_line` of `source`.
    Sql { error: keirin::Error, sql: String, source: Option<String>, first_line: usize },
    /// A dot command, or an answer that cannot be shown as asked.
    Command { message: String, hint: Option<String> },
    /// The command line is wrong.
    Usage { message: String, hint: Option<String> },
    /// The operating system's error, with what we were doing to which file.
    File { doing: String, error: io::Error },
    /// The failure was reported already; only the exit code is left.
    Reported,
    /// Ctrl-C or another signal.
    Stopped(Signal),
    /// The reader of our output has closed it.
    OutputClosed,
}

impl Failure {
    pub(crate) fn command(message: impl Into<String>) -> Self {
        Self::Command { message: message.into(), hint: None }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::Usage { message: message.into(), hint: None }
    }

    /// Adds a hint to the failure, if its kind has one.
    pub(crate) fn with_hint(mut self, text: impl Into<String>) -> Self {
        if let Self::Command { hint, .. } | Self::Usage { hint, .. } = &mut self {
            *hint = Some(text.into());
        }
        self
    }

    /// Adds the place in the script to the failure of a dot command.
    pub(crate) fn at(self, source: &str, line: usize) -> Self {
        let (message, hint) = match self {
            Self::Command { message, hint } => (message, hint),
            Self::File { doing, error } => (format!("cannot {doing}: {}", os_message(&error)), None),
            other => return other,
        };
        Self::Command { message: format!("{source}, line {line}: {message}"), hint }
    }

    /// An error that belongs to no place in a text.
    pub(crate) fn engine(error: keirin::Error) -> Self {
        Self::Sql { error, sql: String::new(), source: None, first_line: 1 }
    }

    pub(crate) fn file(doing: impl Into<String>, error: io::Error) -> Self {
        Self::File { doing: doing.into(), error }
    }

    /// Whether the failure ends even a script that continues after errors.
    pub(crate) fn ends_script(&self) -> bool {
        matches!(self, Self::Stopped(_) | Self::OutputClosed)
    }

    /// Whether the failure ends even the shell.
    pub(crate) fn ends_shell(&self) -> bool {
        match self {
            Self::Stopped(signal) => signal.ends_shell(),
            failure => matches!(failure, Self::OutputClosed),
        }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::OutputClosed => 0,
            Self::Sql { .. } | Self::Command { .. } | Self::File { .. } | Self::Reported => 1,
            Self::Usage { .. } => 2,
            Self::Stopped(signal) => signal.exit_code(),
        })
    }

    /// The message for the user; empty if there is nothing to say.
    pub(crate) fn report(&self) -> String {
        match self {
            Self::Sql { error, sql, source, first_line } => {
                // Line numbers count from the start of the file; line ends stand for the text before the statement.
                let lines_before = "\n".repeat(first_line.saturating_sub(1));
                let moved = match error.span() {
                    Some(span) => {
                        let by = lines_before.len();
                        error.clone().with_span(span.start + by..span.end + by)
                    }
                    None => error.clone(),
                };
                let report = moved.report(&(lines_before + sql));
                match (source, report.split_once('\n')) {
                    (Some(source), Some((message, rest))) => format!("{message}\n  in {source}\n{rest}"),
                    _ => report,
                }
            }
            Self::Command { message, hint } | Self::Usage { message, hint } => {
                let hint = hint.as_ref().map_or_else(String::new, |hint| format!("hint: {hint}\n"));
                format!("error: {message}\n{hint}")
            }
            Self::File { doing, error } => format!("error: cannot {doing}: {}\n", os_message(error)),
            Self::Stopped(signal) => format!("{}\n", signal.describe()),
            Self::Reported | Self::OutputClosed => String::new(),
        }
    }

    /// Prints the message on standard error.
    pub(crate) fn print(&self, palette: Palette) {
        for line in self.report().lines() {
            terminal::tell(&decorate(&escape_controls(line), palette));
        }
    }
}

/// The operating system's message without Rust's `(os error 2)`, in lower case as all our messages.
fn os_message(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_lowercase().chain(characters).collect())
}

/// Colours the label of a line, and the carets.
fn decorate(line: &str, palette: Palette) -> String {
    let red = Style::new().fg(Color::Red).bold();
    if !line.is_empty() && line.trim_start().chars().all(|c| c == '^') {
        return palette.paint(red, line);
    }
    for (label, style) in
        [("error:", red), ("hint:", Style::new().fg(Color::Cyan)), ("detail:", Style::new().bold())]
    {
        if let Some(rest) = line.strip_prefix(label) {
            return format!("{}{rest}", palette.paint(style, label));
        }
    }
    line.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_count_from_the_start_of_the_file() {
        let error = keirin::Error::new(keirin::ErrorKind::NotFound, "no table x").with_span(14..15);
        let failure = Failure::Sql {
            error,
            sql: "SELECT *\nFROM x;".to_owned(),
            source: Some("a.sql".to_owned()),
            first_line: 7,
        };
        assert_eq!(failure.report(), "error: no table x\n  in a.sql\n  line 8: FROM x;\n               ^\n");
    }

    #[test]
    fn system_errors_read_like_ours() {
        let failure = Failure::file("read 'x.sql'", io::Error::from_raw_os_error(2));
        assert_eq!(failure.report(), "error: cannot read 'x.sql': no such file or directory\n");
    }
}
