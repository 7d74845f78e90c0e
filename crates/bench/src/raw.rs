//! The suite `raw`: whole statements that sum up an uncompressed column of a stored table, and beside them a loop that
//! reads the same files as fast as we know how, with as many threads, and does nothing else.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use keirin_kernels::{Level, bench, map::Map};
use keirin_storage::io::{Disk, Io};

use crate::answer::{Answer, Rule};
use crate::keirin_engine::{Keirin, NATIVE};
use crate::machine;
use crate::protocol::Reply;
use crate::report::{Outcome, Report, Times};
use crate::suites::{Options, Results, Suite};

/// A column: its name, type and bytes a value, and what its values are made of.
type Case = (&'static str, &'static str, u64, &'static str);

const CASES: [Case; 7] = [
    ("bigint", "BIGINT", 8, "value * 7919 % 1000000007"),
    ("double", "DOUBLE", 8, "value * 7919 % 1000000007 / 999.9"),
    ("int", "INT", 4, "value * 7919 % 2000000011 - 1000000000"),
    ("float", "FLOAT", 4, "value * 7919 % 2000003 / 99.9"),
    ("smallint", "SMALLINT", 2, "value * 7919 % 60013 - 30000"),
    ("tinyint", "TINYINT", 1, "value * 7919 % 251 - 125"),
    ("decimal", "DECIMAL(38, 2)", 16, "value * 7919 % 1000000007"),
];
/// Bytes that a thread of the loop takes at a time: as many as a block of 64-bit values has.
const PIECE_BYTES: usize = 1 << 19;

pub(crate) fn run(suite: &Suite, options: &Options) -> Result<Results, String> {
    let cache = &options.source.cache;
    fs::create_dir_all(cache).map_err(|error| format!("{}: {error}", cache.display()))?;
    let is_wanted =
        |case: &&Case| options.queries.is_empty() || options.queries.iter().any(|name| name == case.0);
    let cases = CASES.iter().filter(is_wanted).collect::<Vec<_>>();
    if cases.is_empty() {
        return Err(format!("no case is called {}", options.queries.join(" or ")));
    }
    print!("{}", machine::description());
    println!("{} threads; median of {} hot runs, interleaved\n", options.threads, options.runs);
    let mut report = Report::new(suite.name, vec!["keirin".into(), "read-limit".into()]);
    println!("{}", report.head());
    for case in cases {
        let directory = tempfile::Builder::new().prefix("raw-").tempdir_in(cache);
        let directory = directory.map_err(|error| format!("{}: {error}", cache.display()))?;
        let outcomes = measure(directory.path(), case, options);
        let nothing = || Outcome::Failed("not measured".into());
        println!("{}", report.add(case.0, outcomes.unwrap_or_else(|outcome| vec![outcome, nothing()])));
    }
    println!("{}", report.foot());
    Ok(Results { report, peaks: Vec::new() })
}

/// What Keirin took, and what reading took; or what went wrong with Keirin.
fn measure(directory: &Path, case: &Case, options: &Options) -> Result<Vec<Outcome>, Outcome> {
    let (_, data_type, width, values) = case;
    let rows = options.source.seed_rows;
    let keirin =
        Keirin::open(NATIVE.into(), options.threads, directory.to_owned()).map_err(Outcome::Failed)?;
    let made = format!("SELECT CAST({values} AS {data_type}) AS x FROM generate_series(1, {rows})");
    // What is merged now is not merged while time is taken.
    for sql in [
        &format!("CREATE TABLE t (x {data_type} NOT NULL CODEC(NONE))"),
        &format!("INSERT INTO t {made}"),
        "OPTIMIZE TABLE t",
    ] {
        keirin.execute(sql).map_err(Outcome::Failed)?;
    }
    let (_, expected) = timed(&keirin, &format!("SELECT sum(x) FROM ({made})"))?;
    let maps = maps(&directory.join("tables")).map_err(Outcome::Failed)?;
    let bytes = maps.iter().map(|(_, bytes)| *bytes as u64).sum::<u64>();
    if bytes < rows * width || bytes > rows * width / 100 * 101 + (1 << 20) {
        return Err(Outcome::Failed(format!("{rows} values of {width} bytes are in {bytes} bytes of files")));
    }
    let (mut keirin_ns, mut limit_ns) = (Vec::new(), Vec::new());
    for _ in 0..=options.runs {
        let (ns, answer) = timed(&keirin, "SELECT sum(x) FROM t")?;
        if let Some(difference) = expected.difference(&answer, &Rule::default()) {
            return Err(Outcome::Wrong(difference));
        }
        keirin_ns.push(ns);
        limit_ns.push(read_all(&maps, options.threads).map_err(|error| Outcome::Failed(error.to_string()))?);
    }
    Ok([keirin_ns, limit_ns].map(|ns| Outcome::Time(Times::new(ns[0], &ns[1..]))).into())
}

fn timed(keirin: &Keirin, sql: &str) -> Result<(u64, Answer), Outcome> {
    match keirin.run(sql).map_err(Outcome::Failed)? {
        Reply::Answer { ns, columns, rows } => Ok((ns, Answer::new(columns, rows))),
        reply => Err(Outcome::Failed(format!("unexpected reply: {reply:?}"))),
    }
}

/// All files under a directory that are not empty, and their bytes.
fn maps(directory: &Path) -> Result<Vec<(Map, usize)>, String> {
    let failed = |error: io::Error| format!("{}: {error}", directory.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            found.extend(maps(&path)?);
            continue;
        }
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let file =
            Disk::open(directory).open(name).map_err(|error| format!("{}: {error}", path.display()))?;
        let bytes = usize::try_from(file.byte_count()).expect("a file fits the memory");
        if bytes > 0 {
            found
                .push((file.map().ok_or_else(|| format!("{}: it cannot be mapped", path.display()))?, bytes));
        }
    }
    Ok(found)
}

/// Nanoseconds in which threads read all files.
fn read_all(maps: &[(Map, usize)], threads: usize) -> io::Result<u64> {
    let pieces = maps.iter().flat_map(|(map, bytes)| {
        (0..*bytes).step_by(PIECE_BYTES).map(move |start| (map, start..(start + PIECE_BYTES).min(*bytes)))
    });
    let (pieces, next, ready) = (pieces.collect::<Vec<_>>(), AtomicUsize::new(0), Barrier::new(threads));
    let read = || {
        ready.wait();
        let start = Instant::now();
        while let Some((map, range)) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
            std::hint::black_box(map.read(range.clone(), |bytes| bench::read(Level::best(), bytes))?);
        }
        io::Result::Ok((start, Instant::now()))
    };
    std::thread::scope(|scope| {
        let threads = (0..threads).map(|_| scope.spawn(read)).collect::<Vec<_>>();
        let times = threads.into_iter().map(|thread| thread.join().expect("reading does not panic"));
        let times = times.collect::<io::Result<Vec<_>>>()?;
        let (start, end) = (times.iter().map(|time| time.0).min(), times.iter().map(|time| time.1).max());
        let taken = start.zip(end).map_or(0, |(start, end)| (end - start).as_nanos());
        Ok(u64::try_from(taken).unwrap_or(u64::MAX))
    })
}
