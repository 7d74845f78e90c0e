//! The list of commands, from which the help is made.

use std::path::PathBuf;

use super::{Argument, DotCommand, files, find, settings, tables};
use crate::console::{Console, Flow};
use crate::error::Result;

/// In the order of their names.
pub(super) const COMMANDS: &[DotCommand] = &[
    DotCommand {
        name: "bail",
        arguments: "[on|off]",
        argument: Argument::OnOff,
        help: "End a script at its first error (on) or go on (off)",
        run: |console, words| settings::switch(console, words, |settings| &mut settings.bail),
    },
    DotCommand {
        name: "echo",
        arguments: "[on|off]",
        argument: Argument::OnOff,
        help: "Print statements and commands before they run",
        run: |console, words| settings::switch(console, words, |settings| &mut settings.echo),
    },
    DotCommand {
        name: "exit",
        arguments: "",
        argument: Argument::Other,
        help: "Leave, as .quit and Ctrl-D do",
        run: |_, _| Ok(Flow::Quit),
    },
    DotCommand {
        name: "format",
        arguments: "[FORMAT]",
        argument: Argument::Format,
        help: "Set or show how answers are written; .mode is the same",
        run: settings::format,
    },
    DotCommand {
        name: "headers",
        arguments: "[on|off]",
        argument: Argument::OnOff,
        help: "Show column names in tables, csv and tsv",
        run: |console, words| settings::switch(console, words, |settings| &mut settings.headers),
    },
    DotCommand {
        name: "help",
        arguments: "[COMMAND]",
        argument: Argument::Command,
        help: "Show this list, or one command",
        run: help,
    },
    DotCommand {
        name: "import",
        arguments: "FILE TABLE",
        argument: Argument::File,
        help: "Load a file into a table, which is made if there is none",
        run: files::import,
    },
    DotCommand {
        name: "maxrows",
        arguments: "[N]",
        argument: Argument::Other,
        help: "Rows that a table shows; 0 for all",
        run: |console, words| settings::limit(console, "maxrows", words, |settings| &mut settings.rows_max),
    },
    DotCommand {
        name: "maxwidth",
        arguments: "[N]",
        argument: Argument::Other,
        help: "Characters that a table is wide; 0 for no limit",
        run: |console, words| settings::limit(console, "maxwidth", words, |settings| &mut settings.width_max),
    },
    DotCommand {
        name: "mode",
        arguments: "[FORMAT]",
        argument: Argument::Format,
        help: "Set or show how answers are written; .format is the same",
        run: settings::format,
    },
    DotCommand {
        name: "nullvalue",
        arguments: "[TEXT]",
        argument: Argument::Other,
        help: "What NULL looks like, but in json, parquet and arrow",
        run: settings::null_value,
    },
    DotCommand {
        name: "once",
        arguments: "FILE",
        argument: Argument::File,
        help: "Write the next answer to a file; its ending decides the format",
        run: files::once,
    },
    DotCommand {
        name: "open",
        arguments: "[DATABASE]",
        argument: Argument::File,
        help: "Go on with another database; without a name, an empty one in memory",
        run: |console, words| console.reopen(words.first().map(PathBuf::from)).map(|()| Flow::Continue),
    },
    DotCommand {
        name: "output",
        arguments: "[FILE]",
        argument: Argument::File,
        help: "Write answers to a file; without a name, to the screen again",
        run: files::output,
    },
    DotCommand {
        name: "print",
        arguments: "[TEXT]...",
        argument: Argument::Other,
        help: "Print text among the answers",
        run: |console, words| console.print(&format!("{}\n", words.join(" "))).map(|()| Flow::Continue),
    },
    DotCommand {
        name: "quit",
        arguments: "",
        argument: Argument::Other,
        help: "Leave, as .exit and Ctrl-D do",
        run: |_, _| Ok(Flow::Quit),
    },
    DotCommand {
        name: "read",
        arguments: "FILE",
        argument: Argument::File,
        help: "Run the statements and commands in a file",
        run: |console, words| console.run_file(&PathBuf::from(&words[0])),
    },
    DotCommand {
        name: "schema",
        arguments: "[TABLE]",
        argument: Argument::Table,
        help: "Show the columns of all tables, or of one, as CREATE TABLE",
        run: tables::schema,
    },
    DotCommand {
        name: "show",
        arguments: "",
        argument: Argument::Other,
        help: "Show what these commands have set",
        run: |console, _| settings::show(console),
    },
    DotCommand {
        name: "tables",
        arguments: "[TEXT]",
        argument: Argument::Table,
        help: "List tables and views, or those whose name contains the text",
        run: tables::tables,
    },
    DotCommand {
        name: "timer",
        arguments: "[on|off]",
        argument: Argument::OnOff,
        help: "Show how long statements take",
        run: |console, words| settings::switch(console, words, |settings| &mut settings.timer),
    },
    DotCommand {
        name: "types",
        arguments: "[on|off]",
        argument: Argument::OnOff,
        help: "Show types under the names in tables",
        run: settings::types,
    },
];

fn help(console: &mut Console, words: &[String]) -> Result<Flow> {
    let text = match words.first() {
        Some(word) => {
            let command = find(word.trim_start_matches('.'))?;
            format!("{}\n    {}\n", command.usage(), command.help)
        }
        None => {
            let width = COMMANDS.iter().map(|command| command.usage().len()).max().unwrap_or(0);
            let lines =
                COMMANDS.iter().map(|command| format!("{:<width$}  {}\n", command.usage(), command.help));
            let mut text: String = lines.collect();
            text.push_str(
                "\nSQL ends with a semicolon. Files are tables: FROM 'trips.parquet'; FROM 'logs/*.csv';\n\
                 Ctrl-C stops a statement, Ctrl-R searches the history, Tab completes.\n",
            );
            text
        }
    };
    console.print(&text).map(|()| Flow::Continue)
}
