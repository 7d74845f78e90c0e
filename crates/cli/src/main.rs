//! The `keirin` program: parses the arguments and runs the subcommand, nothing else.

#![forbid(unsafe_code)]

mod arguments;
mod commands;
mod console;
mod error;
mod format;
mod output;
mod progress;
mod render;
mod script;
mod shell;
mod signals;
mod terminal;

use std::process::ExitCode;

use clap::Parser;

use crate::arguments::{Arguments, Command};
use crate::terminal::Terminal;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    keirin::hide_caught_panics();
    let arguments = Arguments::parse();
    // Tables may have thousands of parts. If the limit cannot be raised, their files are opened and closed more
    // often.
    #[cfg(unix)]
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    let outcome = match arguments.command {
        None => commands::sql::run(arguments.sql),
        Some(Command::Demo(demo)) => commands::demo::run(&demo),
        Some(Command::Inspect(inspect)) => commands::inspect::run(&inspect),
    };
    // Work that was cancelled and has not ended yet must leave no files behind either.
    let _none = keirin::remove_temporary_files();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print(Terminal::detect().stderr_palette());
            failure.exit_code()
        }
    }
}
