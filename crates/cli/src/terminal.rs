//! The terminal: which streams are one, its width, and whether it shows colours.

use std::io::{IsTerminal, Write};

use crossterm::event::DisableBracketedPaste;
use nu_ansi_term::Style;

/// Width if there is no terminal.
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

    /// The current width of the terminal, which may have been resized. Asks the system only: without a terminal
    /// `crossterm::terminal::size` would run `tput`, two processes for each answer.
    pub(crate) fn width() -> usize {
        crossterm::terminal::window_size().map_or(DEFAULT_WIDTH, |size| usize::from(size.columns)).max(1)
    }
}

/// Prints a message on standard error; a failure is ignored.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Restores the terminal's mode, for a program that ends while a line is edited.
pub(crate) fn restore() {
    if crossterm::terminal::is_raw_mode_enabled().unwrap_or(false) {
        let _ = crossterm::terminal::disable_raw_mode();
        let _ = crossterm::execute!(std::io::stderr(), DisableBracketedPaste);
        tell("");
    }
}

/// Colours text, or leaves it plain.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Palette {
    pub(crate) colours: bool,
}

impl Palette {
    pub(crate) fn paint(self, style: Style, text: &str) -> String {
        if self.colours && !text.is_empty() { style.paint(text).to_string() } else { text.to_owned() }
    }
}
