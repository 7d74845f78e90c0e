//! What we are talking to: which streams are terminals, how wide they are, whether they show colours.

use std::io::{IsTerminal, Write};

use crossterm::event::DisableBracketedPaste;
use nu_ansi_term::Style;

/// Width where there is no terminal to ask.
const DEFAULT_WIDTH: usize = 80;

/// The standard streams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terminal {
    pub(crate) stdin: bool,
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
    colours: bool,
}

impl Terminal {
    pub(crate) fn detect() -> Self {
        // https://no-color.org: any value but the empty one.
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self {
            stdin: std::io::stdin().is_terminal(),
            stdout: std::io::stdout().is_terminal(),
            stderr: std::io::stderr().is_terminal(),
            colours: !no_colour && !dumb,
        }
    }

    /// Colours for standard output.
    pub(crate) fn stdout_palette(self) -> Palette {
        Palette { colours: self.colours && self.stdout }
    }

    /// Colours for standard error, where the shell's prompt lives too.
    pub(crate) fn stderr_palette(self) -> Palette {
        Palette { colours: self.colours && self.stderr }
    }

    /// Columns of the terminal now: it may have been resized since the last answer. Only the system is asked:
    /// `crossterm::terminal::size` runs `tput` where there is no terminal, two processes for each answer.
    pub(crate) fn width() -> usize {
        crossterm::terminal::window_size().map_or(DEFAULT_WIDTH, |size| usize::from(size.columns)).max(1)
    }
}

/// Tells a person something on standard error. When nobody is there any more, nothing is lost.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Gives the terminal back as it was, for a program that ends in the middle of a line.
pub(crate) fn restore() {
    if crossterm::terminal::is_raw_mode_enabled().unwrap_or(false) {
        let _ = crossterm::terminal::disable_raw_mode();
        let _ = crossterm::execute!(std::io::stderr(), DisableBracketedPaste);
        tell("");
    }
}

/// Paints or leaves plain.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Palette {
    pub(crate) colours: bool,
}

impl Palette {
    pub(crate) fn paint(self, style: Style, text: &str) -> String {
        if self.colours && !text.is_empty() { style.paint(text).to_string() } else { text.to_owned() }
    }
}
