//! The interactive shell: an editor around the console.

mod completer;
pub(crate) mod dot_commands;
mod highlighter;
mod keywords;
mod lexer;
mod menu;
mod names;
mod prompt;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use nu_ansi_term::{Color, Style};
use parking_lot::Mutex;
use reedline::{
    ColumnarMenu, DefaultHinter, EditCommand, Emacs, FileBackedHistory, InputMode, KeyCode, KeyModifiers,
    MenuBuilder, Reedline, ReedlineEvent, ReedlineMenu, Signal, ValidationResult, Validator,
    default_emacs_keybindings,
};

use self::completer::SqlCompleter;
use self::highlighter::SqlHighlighter;
use self::menu::CompletionMenu;
use self::names::Names;
use self::prompt::SqlPrompt;
use crate::console::{Console, Flow};
use crate::error::{Failure, Result};
use crate::script;
use crate::terminal::tell;

const HISTORY_LINES: usize = 10_000;
const MENU: &str = "completion";

/// Reads and runs lines until the user leaves.
pub(crate) fn run(console: &mut Console, init: Option<&Path>) -> Result<()> {
    let palette = console.terminal.stderr_palette();
    if read_init_file(console, init)? == Flow::Quit {
        return Ok(());
    }
    greet(console);
    let names = Arc::new(Mutex::new(Names::new(console.runtime.clone(), console.session.clone())));
    console.names_changed = false;
    let mut editor = editor(names.clone(), palette.colours);
    loop {
        if std::mem::take(&mut console.names_changed) {
            *names.lock() = Names::new(console.runtime.clone(), console.session.clone());
        }
        let line = match editor.read_line(&SqlPrompt) {
            Ok(Signal::Success(line)) => line,
            Ok(Signal::CtrlC) => continue,
            Ok(_) => return Ok(()),
            Err(error) => return Err(Failure::file("read from the terminal", error)),
        };
        console.signals.forget();
        // Saved after each line: a user who closes the terminal does not wait for us.
        let _ = editor.sync_history();
        match console.run_text(&line) {
            Ok(Flow::Continue) => {}
            Ok(Flow::Quit) => return Ok(()),
            Err(failure) if failure.ends_shell() => return Err(failure),
            Err(failure) => failure.print(palette),
        }
    }
}

/// Runs the init file: the one that the user named, or the default one if it exists.
fn read_init_file(console: &mut Console, init: Option<&Path>) -> Result<Flow> {
    if let Some(path) = init {
        return console.run_file(path);
    }
    let Some(path) = std::env::home_dir().map(|home| home.join(".keirinrc")).filter(|path| path.exists())
    else {
        return Ok(Flow::Continue);
    };
    // An error in the init file must not lock its owner out.
    match console.run_file(&path) {
        Err(failure) if !failure.ends_shell() => {
            failure.print(console.terminal.stderr_palette());
            Ok(Flow::Continue)
        }
        outcome => outcome,
    }
}

fn greet(console: &Console) {
    let place = match &console.database_path {
        Some(path) => format!("database {}", path.display()),
        None => "in memory, gone when you leave".to_owned(),
    };
    tell(&format!("Keirin {} ({place})", env!("CARGO_PKG_VERSION")));
    let palette = console.terminal.stderr_palette();
    let hint =
        "SQL ends with a semicolon: FROM 'file.parquet'; SHOW TABLES; .help lists commands, Ctrl-D leaves.";
    tell(&palette.paint(Style::new().dimmed(), hint));
}

fn editor(names: Arc<Mutex<Names>>, colours: bool) -> Reedline {
    let mut keys = default_emacs_keybindings();
    let complete =
        ReedlineEvent::UntilFound(vec![ReedlineEvent::Menu(MENU.to_owned()), ReedlineEvent::MenuNext]);
    keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, complete);
    keys.add_binding(KeyModifiers::SHIFT, KeyCode::BackTab, ReedlineEvent::MenuPrevious);
    // Enter arrives as Ctrl-J if it was typed while a statement ran and the terminal was not in raw mode.
    keys.add_binding(KeyModifiers::CONTROL, KeyCode::Char('j'), ReedlineEvent::Enter);
    let newline = ReedlineEvent::Edit(vec![EditCommand::InsertNewline]);
    keys.add_binding(KeyModifiers::ALT, KeyCode::Enter, newline);

    let menu = ColumnarMenu::default()
        .with_name(MENU)
        .with_columns(4)
        .with_text_style(Style::new())
        .with_selected_text_style(Style::new().reverse())
        .with_match_text_style(Style::new().fg(Color::Cyan))
        .with_selected_match_text_style(Style::new().fg(Color::Cyan).reverse())
        .with_marker("> ")
        // The completer needs the whole line: a statement's tables may stand after the cursor.
        .with_input_mode(InputMode::FullBuffer)
        // Characters of names and paths; any other ends the word and closes the menu.
        .with_word_chars("_./-");
    let mut editor = Reedline::create()
        .with_completer(Box::new(SqlCompleter { names }))
        .with_menu(ReedlineMenu::EngineCompleter(Box::new(CompletionMenu(menu))))
        .with_quick_completions(true)
        .with_partial_completions(true)
        .with_edit_mode(Box::new(Emacs::new(keys)))
        .with_validator(Box::new(EndsWithSemicolon))
        .with_highlighter(Box::new(SqlHighlighter))
        .with_hinter(Box::new(DefaultHinter::default().with_style(Style::new().dimmed())))
        .with_ansi_colors(colours)
        .use_bracketed_paste(true);
    if let Some(history) = history() {
        editor = editor.with_history(Box::new(history));
    }
    editor
}

/// The history file, created if need be. Without one the shell still works.
fn history() -> Option<FileBackedHistory> {
    let path = history_path()?;
    let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    let opened = made.map_err(|error| error.to_string()).and_then(|()| {
        FileBackedHistory::with_file(HISTORY_LINES, path.clone()).map_err(|error| error.to_string())
    });
    opened.inspect_err(|error| tell(&format!("warning: no history: '{}': {error}", path.display()))).ok()
}

/// `KEIRIN_HISTORY`, or the place for state in the XDG base directory specification.
fn history_path() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("KEIRIN_HISTORY") {
        return (!path.is_empty()).then(|| path.into());
    }
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let state = state.or_else(|| Some(std::env::home_dir()?.join(".local/state")))?;
    Some(state.join("keirin/history"))
}

/// Enter runs a complete statement, and otherwise begins a new line.
struct EndsWithSemicolon;

impl Validator for EndsWithSemicolon {
    fn validate(&self, text: &str) -> ValidationResult {
        let is_command = script::is_command(text) && !text.trim().contains('\n');
        if text.trim().is_empty() || is_command || keirin::is_complete(text) {
            ValidationResult::Complete
        } else {
            ValidationResult::Incomplete
        }
    }
}
