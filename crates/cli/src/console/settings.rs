//! The settings that dot commands change, and their effect on answers.

use std::path::Path;

use keirin::WriteOptions;

use crate::format::Format;
use crate::render::Look;
use crate::terminal::{Palette, Terminal};

/// Rows that a terminal shows unless told otherwise.
const TERMINAL_ROWS_MAX: usize = 40;

/// The settings that dot commands change.
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

/// How an answer is shown.
pub(super) fn look(settings: &Settings, terminal: Terminal, on_terminal: bool) -> Look {
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
        palette: if on_terminal { terminal.stdout_palette() } else { Palette::default() },
    }
}

/// The options with which the engine writes files.
pub(super) fn write_options(settings: &Settings, path: Option<&Path>) -> WriteOptions {
    let mut options = path.and_then(Path::to_str).map_or_else(WriteOptions::default, WriteOptions::for_path);
    options.header = settings.headers;
    if let Some(null) = &settings.null {
        options.null.clone_from(null);
    }
    options
}
