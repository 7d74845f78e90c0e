//! The suites, and how the SQL suites are put together from definition, data and engines.
//!
//! A suite is a name and a function that fills a [`Report`]. Those here ask engines in other
//! processes; a suite that races loops in this process (codecs, kernels, memory) is one more entry
//! with a function of its own.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::data::{Source, provide_clickbench_queries, provide_tpch_queries};
use crate::definition::{Case, parse};
use crate::engines::{Engine, EngineName, Launch};
use crate::protocol::Table;
use crate::report::{Report, is_rival};
use crate::{machine, measure, raw};

pub(crate) struct Suite {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    run: fn(&Suite, &Options) -> Result<Results, String>,
}

/// What a suite found: the table, and peak bytes by engine.
pub(crate) struct Results {
    pub(crate) report: Report,
    pub(crate) peaks: Vec<u64>,
}

pub(crate) const SUITES: [Suite; 8] = [
    Suite { name: "seed", about: "reductions at the speed of memory", run: run_sql },
    Suite { name: "clickbench", about: "the 43 queries over a wide table of web hits", run: run_sql },
    Suite { name: "tpch", about: "the 22 queries of TPC-H", run: run_sql },
    Suite { name: "h2o", about: "grouping and joining whole tables: H2O.ai's db-benchmark", run: run_sql },
    Suite { name: "strings", about: "comparing, searching and grouping text", run: run_sql },
    Suite { name: "parquet", about: "scans of Parquet files by codec", run: run_sql },
    Suite { name: "scan", about: "every column of stored tables; loading, bytes on disk", run: run_sql },
    Suite {
        name: "raw",
        about: "sums of uncompressed stored columns, beside a loop that only reads them",
        run: raw::run,
    },
];

/// What the command line says.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) engines: Vec<EngineName>,
    /// Only these cases, if any are named.
    pub(crate) queries: Vec<String>,
    pub(crate) runs: usize,
    pub(crate) threads: usize,
    pub(crate) query_timeout: Duration,
    pub(crate) source: Source,
    pub(crate) definitions: PathBuf,
    pub(crate) drivers: PathBuf,
}

impl Suite {
    /// Runs the suite, printing rows as they come.
    ///
    /// # Errors
    /// Why there are no results; what a single engine does wrong is part of the results.
    pub(crate) fn run(&self, options: &Options) -> Result<Results, String> {
        (self.run)(self, options)
    }
}

fn run_sql(suite: &Suite, options: &Options) -> Result<Results, String> {
    let cases = cases(suite.name, options)?;
    let tables = tables(&cases, &options.source)?;
    let scratch = tempfile::Builder::new().prefix("run-").tempdir_in(&options.source.cache);
    let scratch = scratch.map_err(|error| format!("{}: {error}", options.source.cache.display()))?;
    let launch = Launch {
        python: options.source.python.clone(),
        drivers: options.drivers.clone(),
        scratch: scratch.path().to_owned(),
        threads: options.threads,
        cores: cores_to_bind(options.threads),
        query_timeout: options.query_timeout,
    };
    let mut engines = start(suite.name, options, &tables, &launch);
    if engines.is_empty() {
        return Err("no engine can run".into());
    }
    print_setting(&engines, options, &launch);
    let mut report = Report::new(suite.name, engines.iter().map(|engine| engine.label.clone()).collect());
    println!("{}", report.head());
    for case in &cases {
        let needed =
            tables.iter().filter(|table| case.tables.contains(&table.name)).cloned().collect::<Vec<_>>();
        let sql = |engine: &Engine| case.sql(engine.engine());
        let (outcomes, loads) = measure::case(case, &mut engines, &needed, options.runs, &sql);
        if !loads.is_empty() {
            let loads = loads.iter().map(|(engine, load)| format!("{engine} {load}"));
            println!("    loaded: {}", loads.collect::<Vec<_>>().join(", "));
        }
        println!("{}", report.add(&case.name, outcomes));
    }
    print!("{}", report.foot());
    let peaks = engines.iter().map(|engine| engine.peak_bytes).collect::<Vec<_>>();
    let peak = |engine: &Engine| format!("{} {:.2} GiB", engine.label, gibibytes(engine.peak_bytes));
    println!("peak memory while queries ran: {}\n", engines.iter().map(peak).collect::<Vec<_>>().join(", "));
    Ok(Results { report, peaks })
}

/// The cases to run, each with its SQL.
fn cases(suite: &str, options: &Options) -> Result<Vec<Case>, String> {
    let path = options.definitions.join(format!("{suite}.sql"));
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = fs::read_to_string(&path).map_err(|error| failed(&error))?;
    let mut cases = parse(&text).map_err(|error| failed(&error))?;
    match suite {
        "clickbench" => provide_clickbench_queries(&options.source, &mut cases)?,
        "tpch" => provide_tpch_queries(&mut cases),
        _ => {}
    }
    if !options.queries.is_empty() {
        cases.retain(|case| options.queries.contains(&case.name));
        if cases.is_empty() {
            return Err(format!("no case is called {}", options.queries.join(" or ")));
        }
    }
    Ok(cases)
}

/// The tables of all cases, each once.
fn tables(cases: &[Case], source: &Source) -> Result<Vec<Table>, String> {
    let mut names = cases.iter().flat_map(|case| &case.tables).collect::<Vec<_>>();
    names.sort_unstable();
    names.dedup();
    fs::create_dir_all(&source.cache).map_err(|error| format!("{}: {error}", source.cache.display()))?;
    names.into_iter().map(|name| source.table(name)).collect()
}

/// Starts the engines; one that cannot be had is named and left out.
fn start(suite: &str, options: &Options, tables: &[Table], launch: &Launch) -> Vec<Engine> {
    let sizes = tables.iter().filter_map(|table| fs::metadata(&table.file).ok());
    let parquet_bytes = sizes.map(|metadata| metadata.len()).sum();
    let mut engines = Vec::new();
    for name in &options.engines {
        let form = name.form.unwrap_or_else(|| best_form(name.engine, suite, parquet_bytes));
        let mut engine = Engine::new(name, form, launch.clone());
        match engine.start() {
            Ok(()) => engines.push(engine),
            Err(message) => println!("skipping {}: {message}", name.label),
        }
    }
    engines
}

/// The form in which an engine is fastest, among those that fit.
///
/// Arrow in memory takes some five times the bytes of Parquet; it may take an eighth of the machine,
/// as up to three engines do it side by side.
fn best_form(engine: &str, suite: &str, parquet_bytes: u64) -> &'static str {
    let fits = machine::memory_bytes().is_none_or(|memory| parquet_bytes * 5 <= memory / 8);
    match engine {
        // One small table at a time, and the suite is about memory.
        _ if suite == "seed" => "memory",
        _ if suite == "parquet" => "parquet",
        "duckdb" => "native",
        "clickhouse" => "mergetree",
        "keirin" if suite == "scan" => "native",
        _ if fits => "memory",
        _ => "parquet",
    }
}

/// The cores for an engine of `threads` threads, where that is not all and `taskset` is there.
fn cores_to_bind(threads: usize) -> Option<String> {
    let cores = machine::allowed_cores();
    let mut taskset = Command::new("taskset");
    taskset.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    let can = threads < cores.len() && taskset.status().is_ok_and(|status| status.success());
    can.then(|| cores[..threads].iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
}

/// Prints everything that a stored result has to carry.
fn print_setting(engines: &[Engine], options: &Options, launch: &Launch) {
    print!("{}", machine::description());
    let pinned = match &launch.cores {
        Some(cores) => format!(", bound to cores {cores}"),
        None if options.threads < machine::cores() => ", not bound to cores (no taskset)".into(),
        None => String::new(),
    };
    println!("{} threads{pinned}; median of {} hot runs, interleaved", options.threads, options.runs);
    let engine = |engine: &Engine| format!("{} {} ({})", engine.label, engine.version, engine.form);
    println!("{}", engines.iter().map(engine).collect::<Vec<_>>().join(", "));
    if engines.iter().any(|engine| is_rival(&engine.label)) {
        println!("answers compared with the one that most rivals agree on (of several: duckdb's)\n");
    } else {
        println!("no rival runs: answers are only compared between runs and forms\n");
    }
}

#[expect(clippy::cast_precision_loss, reason = "for a person")]
fn gibibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1_u32 << 30)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(engine: &str, suite: &str, parquet_bytes: u64, expected: &str) {
        assert_eq!(best_form(engine, suite, parquet_bytes), expected, "{engine} {suite}");
    }

    #[test]
    fn what_does_not_fit_stays_in_files() {
        check("keirin", "tpch", 1 << 20, "memory");
        if machine::memory_bytes().is_some() {
            check("polars", "tpch", 1 << 50, "parquet");
        }
        check("duckdb", "tpch", 1 << 50, "native");
        check("clickhouse", "clickbench", 1, "mergetree");
        check("clickhouse", "seed", 1, "memory");
        check("keirin", "parquet", 1, "parquet");
        check("keirin", "scan", 1, "native");
    }
}
