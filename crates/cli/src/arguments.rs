//! The command line, as `--help` tells it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::console::Resources;
use crate::format::Format;

const EXAMPLES: &str = "\
Examples:
  keirin                                      a shell, everything in memory
  keirin mydb                                 a shell on the database in directory mydb
  keirin mydb \"CREATE TABLE trips AS FROM 'trips/*.parquet'\"
  keirin -c \"SELECT * FROM 'trips.parquet' LIMIT 5\"
  keirin -c \"FROM 'logs/*.csv'\" --format jsonl | head
  keirin -c \"FROM 'in.csv'\" --output out.parquet
  keirin mydb -f report.sql --format csv > report.csv
  echo 'SELECT 6 * 7' | keirin
  keirin inspect mydb/trips                   what a table is made of, on disk
  keirin demo                                 TPC-H: makes data, runs 22 queries, checks the answers

A piped answer is complete; a table on a terminal is cut to fit (.maxrows, .maxwidth).
Lines that begin with a dot are commands of the shell, in scripts too: keirin -c .help

Exit codes: 0 all went well; 1 a statement or its data was wrong; 2 the command line was
wrong; 130 Ctrl-C; 143 SIGTERM; 129 SIGHUP.
Environment: KEIRIN_HISTORY (the shell's history file, empty for none), NO_COLOR.";

/// Keirin answers SQL over files and its own tables.
#[derive(Debug, Parser)]
#[command(
    name = "keirin",
    version,
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    subcommand_precedence_over_arg = true,
    max_term_width = 100
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) sql: SqlArguments,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make TPC-H data, run its 22 queries, check the answers and show the times
    Demo(DemoArguments),
    /// Show what a database directory is made of: its tables, a table's parts and columns, a part's blocks
    Inspect(InspectArguments),
}

#[derive(Debug, Args)]
pub(crate) struct InspectArguments {
    /// Directory of the database, or DB/TABLE, or DB/TABLE/PART
    #[arg(value_name = "DB[/TABLE[/PART]]")]
    pub(crate) path: PathBuf,
}

/// Run SQL.
#[derive(Debug, Args)]
pub(crate) struct SqlArguments {
    /// Directory of the database; made if there is none. Without it all is in memory
    pub(crate) database: Option<PathBuf>,

    /// The same as -c SQL
    #[arg(value_name = "SQL", conflicts_with_all = ["commands", "file"])]
    pub(crate) sql: Option<String>,

    /// Run this SQL or dot command and end; may be repeated
    #[arg(short = 'c', long = "command", value_name = "SQL", conflicts_with = "file")]
    pub(crate) commands: Vec<String>,

    /// Run the script in FILE and end; - is standard input; may be repeated
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub(crate) file: Vec<PathBuf>,

    /// How answers are written: table, csv, tsv, json, jsonl, markdown, vertical, parquet or arrow
    ///
    /// By default what the name of --output says, or else a table.
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<Format>,

    /// Write answers to FILE, which appears when all went well
    #[arg(short = 'o', long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Read FILE before the shell starts, instead of ~/.keirinrc
    #[arg(long, value_name = "FILE")]
    pub(crate) init: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) resources: ResourceArguments,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    /// How much data: 1 is 8.7 million rows (1 GB as text)
    #[arg(long, default_value_t = 1.0, value_parser = parse_scale)]
    pub(crate) scale: f64,

    /// Run only query N (1 to 22) and show its whole answer
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=22))]
    pub(crate) query: Option<u8>,

    #[command(flatten)]
    pub(crate) resources: ResourceArguments,
}

#[derive(Debug, Args)]
pub(crate) struct ResourceArguments {
    /// Threads that run queries; by default one per core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,

    /// Memory for queries, as 2GB or 50%; more is spilled to disk. By default 80%
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory_limit: Option<String>,

    /// Only read the database: works beside a process that has it open for writing
    #[arg(long)]
    pub(crate) readonly: bool,

    /// Where queries spill to; by default the system's directory for temporary files
    #[arg(long, value_name = "DIR")]
    pub(crate) temp_directory: Option<PathBuf>,

    /// Show no progress bar
    #[arg(long)]
    pub(crate) no_progress: bool,
}

impl ResourceArguments {
    pub(crate) fn resources(&self) -> Resources {
        Resources {
            threads: self.threads.map(usize::from),
            memory_limit: self.memory_limit.clone(),
            temp_directory: self.temp_directory.clone(),
            read_only: self.readonly,
        }
    }
}

/// A scale above 0 and at most 1000.
fn parse_scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(scale) if scale > 0.0 && scale <= 1000.0 => Ok(scale),
        _ => Err("a scale is a number above 0, at most 1000".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn subcommands_win_over_directories_of_their_name() {
        let parse = |words: &[&str]| Arguments::try_parse_from([&["keirin"], words].concat());
        assert!(parse(&["demo"]).unwrap().command.is_some());
        assert_eq!(parse(&["./demo"]).unwrap().sql.database.unwrap(), PathBuf::from("./demo"));
        assert_eq!(parse(&["mydb", "SELECT 1"]).unwrap().sql.sql.unwrap(), "SELECT 1");
        let both = parse(&["-c", "SELECT 1", "-f", "x.sql"]);
        assert!(both.is_err());
        assert_eq!(parse(&["db", "-c", "SELECT 1", "-c", ".tables"]).unwrap().sql.commands.len(), 2);
    }
}
