//! `keirin [DATABASE]`: runs commands, scripts, standard input, or the shell.

use std::path::Path;

use clap::CommandFactory;

use crate::arguments::{Arguments, SqlArguments};
use crate::console::{Console, Flow};
use crate::error::{Failure, Result};
use crate::format::Format;
use crate::output::Output;
use crate::shell;
use crate::terminal::Terminal;

pub(crate) fn run(arguments: SqlArguments) -> Result<()> {
    if let Some(path) = &arguments.database {
        check_database_path(path)?;
    }
    let terminal = Terminal::detect();
    let commands: Vec<String> = arguments.commands.into_iter().chain(arguments.sql).collect();
    let has_script = !commands.is_empty() || !arguments.file.is_empty();
    // The shell draws on standard error, so that standard output can be redirected.
    let interactive = !has_script && terminal.stdin && terminal.stderr;

    let resources = arguments.resources.resources();
    let mut console = Console::open(arguments.database, resources, interactive)?;
    console.show_progress &= !arguments.resources.no_progress;
    if let Some(path) = &arguments.output {
        console.output = Output::file(path)?;
        console.settings.format = Format::of_file(path).unwrap_or(Format::Table);
    }
    if let Some(format) = arguments.format {
        console.settings.format = format;
    }

    if interactive {
        shell::run(&mut console, arguments.init.as_deref())?;
        return console.close();
    }
    for command in &commands {
        if console.run_text(command)? == Flow::Quit {
            return console.close();
        }
    }
    for file in &arguments.file {
        if console.run_file(file)? == Flow::Quit {
            return console.close();
        }
    }
    if !has_script {
        console.run_file(Path::new("-"))?;
    }
    console.close()
}

/// Explains the mistake when the path of the database is not a directory.
fn check_database_path(path: &Path) -> Result<()> {
    let name = path.display().to_string();
    if path.is_file() {
        return Err(Failure::usage(format!("'{name}' is a file, and a database is a directory")).with_hint(
            format!("to query the file: keirin -c \"FROM '{name}'\"; to run it: keirin -f '{name}'"),
        ));
    }
    if !path.exists() && Format::of_file(path).is_some() {
        return Err(Failure::usage(format!("there is no file '{name}'"))
            .with_hint("a database is a directory; a file is queried with FROM 'file'"));
    }
    let subcommands = Arguments::command();
    let meant = subcommands
        .get_subcommands()
        .map(clap::Command::get_name)
        .find(|subcommand| !path.exists() && strsim::damerau_levenshtein(subcommand, &name) == 1);
    if let Some(subcommand) = meant {
        return Err(Failure::usage(format!("there is no database '{name}'")).with_hint(format!(
            "did you mean keirin {subcommand}? For a new database of that name: keirin ./{name}"
        )));
    }
    let first_word = name.split_whitespace().next().unwrap_or_default().to_ascii_uppercase();
    let is_sql = ["SELECT", "FROM", "WITH", "VALUES", "SHOW", "DESCRIBE", "EXPLAIN", "COPY", "CREATE"];
    if name.contains(char::is_whitespace) && is_sql.contains(&first_word.as_str()) {
        return Err(Failure::usage(format!("'{name}' is not a directory"))
            .with_hint("SQL comes after -c: keirin -c \"SELECT ...\""));
    }
    Ok(())
}
