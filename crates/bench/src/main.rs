//! `keirin-bench`: Keirin and its rivals over the same data, side by side, answers compared.
//!
//! A suite is a definition (queries as data), tables (Parquet, made once) and engines, each a process
//! of its own behind one line protocol. The modules, from the question to the answer: `definition`,
//! `data`, `protocol`, `engines` with `keirin_engine`, `measure`, `answer`, `report`; `suites` puts
//! them together. `raw` has no rival but memory. `benchmarks/README.md` says what is timed.

#![forbid(unsafe_code)]

mod answer;
mod data;
mod definition;
mod engines;
mod keirin_engine;
mod machine;
mod measure;
mod protocol;
mod raw;
mod report;
mod suites;

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::data::Source;
use crate::engines::EngineName;
use crate::suites::{Options, SUITES};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures Keirin and its rivals over the same data and compares their answers.
///
/// A rival that is not installed is skipped (benchmarks/setup installs them all).
#[derive(Debug, Parser)]
#[command(name = "keirin-bench", version, after_help = suites_help(), subcommand_negates_reqs = true)]
struct Arguments {
    #[command(subcommand)]
    hidden: Option<Hidden>,
    /// Suites to run, or `all`
    #[arg(required = true, value_name = "SUITE", value_parser = suite_names())]
    suites: Vec<String>,
    /// Engines, each NAME or NAME:FORM (duckdb:parquet)
    #[arg(long, value_delimiter = ',', default_value = "keirin,duckdb,clickhouse,polars,datafusion")]
    engines: Vec<EngineName>,
    /// Only these cases (q01,q05)
    #[arg(long, value_delimiter = ',', value_name = "CASES")]
    queries: Vec<String>,
    /// Rows of the tables of seed and raw, of hits and of h2o [default: 100 million, for the last two 10 million]
    #[arg(long)]
    rows: Option<u64>,
    /// TPC-H scale factor of tpch and strings [default: 1]
    #[arg(long, value_parser = scale)]
    scale: Option<f64>,
    /// Threads each engine may use [default: all cores]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Hot runs of each query, after one that is reported apart [default: 5]
    #[arg(long)]
    runs: Option<usize>,
    /// Little data and two runs: for seeing that it works, not how fast
    #[arg(long)]
    quick: bool,
    /// Append results to FILE, one JSON object a line
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Take tables from DIR, `TABLE.parquet` each, where they are there
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where tables are kept once made [default: bench-data in the target directory]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// The Python that has the rivals [default: benchmarks/.venv/bin/python]
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Seconds after which a query is given up
    #[arg(long, default_value_t = 300)]
    timeout: u64,
}

#[derive(Debug, Subcommand)]
enum Hidden {
    /// Answers the benchmark protocol on standard input
    #[command(hide = true)]
    Engine { name: String },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match &arguments.hidden {
        Some(Hidden::Engine { name }) if name == "keirin" => match keirin_engine::run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error.to_string()),
        },
        Some(Hidden::Engine { name }) => fail(&format!("no engine {name:?} in this program")),
        None => match run(&arguments) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => fail("keirin gave a wrong answer or none"),
            Err(message) => fail(&message),
        },
    }
}

fn fail(message: &str) -> ExitCode {
    eprintln!("error: {message}");
    ExitCode::FAILURE
}

/// Runs the suites; says whether all of Keirin's answers were right.
fn run(arguments: &Arguments) -> Result<bool, String> {
    let mut json = match &arguments.json {
        Some(path) => {
            let file = File::options().create(true).append(true).open(path);
            Some(file.map_err(|error| format!("{}: {error}", path.display()))?)
        }
        None => None,
    };
    let options = options(arguments);
    let (mut sound, mut results_count) = (true, 0);
    let wanted = |name: &str| arguments.suites.iter().any(|suite| suite == name || suite == "all");
    for suite in keirin_bench_kernels::SUITES.iter().filter(|suite| wanted(suite.name)) {
        let mut report = keirin_bench_kernels::Report::new(suite.name, arguments.quick, "");
        (suite.run)(&mut report);
        results_count += 1;
        sound &= report.is_sound();
        if let Some(file) = &mut json {
            file.write_all(report.json().as_bytes())
                .map_err(|error| format!("cannot write results: {error}"))?;
        }
    }
    for suite in SUITES.iter().filter(|suite| wanted(suite.name)) {
        let results = match suite.run(&options) {
            Ok(results) => results,
            // The rest can still run where data or engines of this one are missing.
            Err(message) => {
                println!("skipping suite {}: {message}\n", suite.name);
                continue;
            }
        };
        results_count += 1;
        sound &= results.report.keirin_is_sound();
        if let Some(file) = &mut json {
            let text = results.report.json(&results.peaks);
            file.write_all(text.as_bytes()).map_err(|error| format!("cannot write results: {error}"))?;
        }
    }
    if results_count == 0 && !arguments.queries.is_empty() {
        return Err("nothing ran; are the cases in --queries right?".into());
    }
    Ok(sound)
}

fn options(arguments: &Arguments) -> Options {
    let benchmarks = benchmarks_directory();
    let quick = arguments.quick;
    let venv = || benchmarks.join(".venv/bin/python");
    let packs = || benchmarks.join("../../shared/data");
    Options {
        engines: arguments.engines.clone(),
        queries: arguments.queries.clone(),
        runs: arguments.runs.unwrap_or(if quick { 2 } else { 5 }),
        threads: arguments.threads.map_or_else(machine::cores, usize::from),
        query_timeout: Duration::from_secs(arguments.timeout),
        source: Source {
            folder: arguments.data.clone(),
            cache: arguments.cache.clone().unwrap_or_else(cache_directory),
            packs: std::env::var_os("KEIRIN_DATA").map_or_else(packs, PathBuf::from),
            python: arguments.python.clone().unwrap_or_else(venv),
            seed_rows: arguments.rows.unwrap_or(if quick { 1_000_000 } else { 100_000_000 }),
            hits_rows: arguments.rows.unwrap_or(if quick { 0 } else { 10_000_000 }),
            h2o_rows: arguments.rows.unwrap_or(if quick { 1_000_000 } else { 10_000_000 }).max(1_000_000),
            scale: arguments.scale.unwrap_or(if quick { 0.01 } else { 1.0 }),
        },
        definitions: benchmarks.join("definitions"),
        drivers: benchmarks.join("engines"),
    }
}

/// `benchmarks/` of the repository this program was built in.
fn benchmarks_directory() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../benchmarks"))
}

/// `bench-data` beside the profile's directory that this program lies in.
fn cache_directory() -> PathBuf {
    let own = std::env::current_exe().ok();
    let target = own.as_deref().and_then(|path| path.parent()?.parent());
    target.map_or_else(std::env::temp_dir, PathBuf::from).join("bench-data")
}

fn suite_names() -> Vec<&'static str> {
    let mut names: Vec<_> = SUITES.iter().map(|suite| suite.name).collect();
    names.extend(keirin_bench_kernels::SUITES.iter().map(|suite| suite.name));
    // A suite of queries and a suite of loops may share a name: then both run.
    names.sort_unstable();
    names.dedup();
    names.push("all");
    names
}

fn suites_help() -> String {
    let line = |(name, about): (&str, &str)| format!("  {name:<12} {about}\n");
    let queries = SUITES.iter().map(|suite| (suite.name, suite.about));
    let loops = keirin_bench_kernels::SUITES.iter().map(|suite| (suite.name, suite.about));
    format!("Suites:\n{}", queries.chain(loops).map(line).collect::<String>())
}

fn scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(scale) if scale > 0.0 && scale <= 100_000.0 => Ok(scale),
        _ => Err("a scale factor is a number above 0, such as 0.01 or 10".into()),
    }
}
