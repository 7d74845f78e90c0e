//! Engines as separate processes: which there are, how they are started, asked and stopped.
//!
//! An engine that dies or takes too long is killed and started again for the next case; it is never
//! an error of the run. What it prints goes to a log whose end is quoted when it fails.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use crate::keirin_engine;
use crate::protocol::{Reply, Request, Table};

/// Loading is allowed this many times what a query is.
const LOAD_TIMEOUTS: u32 = 6;

/// The engines by name and the forms they may take.
pub(crate) const ENGINES: [(&str, &[&str]); 5] = [
    ("keirin", &keirin_engine::FORMS),
    ("duckdb", &["native", "memory", "parquet"]),
    ("clickhouse", &["mergetree", "mergetree-zstd", "memory", "parquet"]),
    ("polars", &["memory", "parquet"]),
    ("datafusion", &["memory", "parquet"]),
];

/// An engine as asked for: `duckdb`, or `duckdb:parquet` for one form of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EngineName {
    /// As given, and as reported.
    pub(crate) label: String,
    pub(crate) engine: &'static str,
    pub(crate) form: Option<&'static str>,
}

impl std::str::FromStr for EngineName {
    type Err = String;

    fn from_str(label: &str) -> Result<Self, String> {
        let (name, form) = label.split_once(':').map_or((label, None), |(name, form)| (name, Some(form)));
        let names = ENGINES.map(|(name, _)| name).join(", ");
        let (engine, forms) = *ENGINES
            .iter()
            .find(|(engine, _)| *engine == name)
            .ok_or_else(|| format!("no engine {name:?}; there are {names}"))?;
        let find = |form| {
            let known = forms.iter().find(|known| **known == form).copied();
            known.ok_or_else(|| format!("no form {form:?} of {engine}; there are {}", forms.join(", ")))
        };
        Ok(Self { label: label.into(), engine, form: form.map(find).transpose()? })
    }
}

/// What loading took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Load {
    pub(crate) seconds: f64,
    /// What the tables take on disk, if that is where they are.
    pub(crate) stored_bytes: Option<u64>,
    /// Of all cores together, with what puts the rows in order afterwards; nothing where that cannot be known.
    pub(crate) cpu_seconds: Option<f64>,
    /// The largest resident size, with what was there before.
    pub(crate) peak_bytes: u64,
}

impl Load {
    /// Of this and another.
    fn and(self, other: Self) -> Self {
        Self {
            seconds: self.seconds + other.seconds,
            stored_bytes: self.stored_bytes.zip(other.stored_bytes).map(|(this, other)| this + other),
            cpu_seconds: self.cpu_seconds.zip(other.cpu_seconds).map(|(this, other)| this + other),
            peak_bytes: self.peak_bytes.max(other.peak_bytes),
        }
    }
}

impl std::fmt::Display for Load {
    #[expect(clippy::cast_precision_loss, reason = "for a person")]
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} s", self.seconds)?;
        let bytes = self.stored_bytes.map(|bytes| format!("{:.1} MB", bytes as f64 / 1e6));
        let cpu = self.cpu_seconds.map(|seconds| format!("{seconds:.1} s CPU"));
        let peak = Some(format!("peak {:.2} GiB", self.peak_bytes as f64 / f64::from(1_u32 << 30)));
        write!(f, " ({})", [bytes, cpu, peak].into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

/// What starting an engine needs.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) python: PathBuf,
    /// `benchmarks/engines`.
    pub(crate) drivers: PathBuf,
    /// Databases and logs; emptied at the end.
    pub(crate) scratch: PathBuf,
    pub(crate) threads: usize,
    /// The cores to bind to, `0,1`, as some engines use more threads than they are told; or not.
    pub(crate) cores: Option<String>,
    pub(crate) query_timeout: Duration,
}

/// An engine and, while it lives, its process.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) label: String,
    pub(crate) form: &'static str,
    pub(crate) version: String,
    /// Largest resident size seen while queries ran, in bytes.
    pub(crate) peak_bytes: u64,
    engine: &'static str,
    launch: Launch,
    process: Option<Process>,
    loaded: BTreeSet<String>,
    /// Tables that could not be loaded, and why: not tried again for every case.
    refused: BTreeMap<String, String>,
    starts: usize,
}

#[derive(Debug)]
struct Process {
    child: Child,
    requests: ChildStdin,
    replies: Receiver<String>,
    log: PathBuf,
}

impl Engine {
    pub(crate) fn new(name: &EngineName, form: &'static str, launch: Launch) -> Self {
        Self {
            label: name.label.clone(),
            engine: name.engine,
            form,
            version: String::new(),
            peak_bytes: 0,
            launch,
            process: None,
            loaded: BTreeSet::new(),
            refused: BTreeMap::new(),
            starts: 0,
        }
    }

    /// Which engine it is, whatever its form.
    pub(crate) fn engine(&self) -> &'static str {
        self.engine
    }

    /// Starts the process unless it runs.
    ///
    /// # Errors
    /// Why the engine cannot be used here.
    pub(crate) fn start(&mut self) -> Result<(), String> {
        if self.process.is_some() {
            return Ok(());
        }
        self.starts += 1;
        let name = format!("{}-{}", self.label.replace(':', "-"), self.starts);
        let directory = self.launch.scratch.join(&name);
        fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        let log = self.launch.scratch.join(format!("{name}.log"));
        self.process = Some(Process::spawn(&mut self.command()?, log)?);
        let open = Request::Open { form: self.form.into(), threads: self.launch.threads, directory };
        match self.ask(&open, self.launch.query_timeout)? {
            Reply::Opened { version } => self.version = version,
            reply => return Err(format!("unexpected reply: {reply:?}")),
        }
        Ok(())
    }

    fn command(&self) -> Result<Command, String> {
        let program = if self.engine == "keirin" {
            let own =
                std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
            vec![own.into_os_string(), "engine".into(), "keirin".into()]
        } else {
            let python = self.launch.python.clone();
            if !python.is_file() {
                return Err(format!("no {}; run benchmarks/setup, or give --python", python.display()));
            }
            let driver = self.launch.drivers.join(format!("drive_{}.py", self.engine));
            vec![python.into_os_string(), driver.into_os_string()]
        };
        let cores = self.launch.cores.iter();
        let wrapper = cores.flat_map(|cores| ["taskset".into(), "-c".into(), cores.into()]);
        let mut words = wrapper.chain(program);
        let mut command = Command::new(words.next().expect("a program"));
        command.args(words).env("POLARS_MAX_THREADS", self.launch.threads.to_string());
        Ok(command)
    }

    /// Brings the engine to hold exactly `tables`; returns what loading took, if it had to.
    ///
    /// # Errors
    /// What the engine says, or that it died.
    pub(crate) fn hold(&mut self, tables: &[Table]) -> Result<Option<Load>, String> {
        self.start()?;
        let surplus = self.loaded.iter().filter(|name| !tables.iter().any(|table| table.name == **name));
        for name in surplus.cloned().collect::<Vec<_>>() {
            self.ask(&Request::Drop { name: name.clone() }, self.launch.query_timeout)?;
            self.loaded.remove(&name);
        }
        let mut load = None;
        for table in tables.iter().filter(|table| !self.loaded.contains(&table.name)).collect::<Vec<_>>() {
            if let Some(message) = self.refused.get(&table.name) {
                return Err(message.clone());
            }
            let request = Request::Load { table: table.clone() };
            self.forget_peak();
            let cpu_before = self.cpu_seconds();
            match self.ask(&request, self.launch.query_timeout * LOAD_TIMEOUTS) {
                Ok(Reply::Loaded { ns, bytes }) => {
                    let cpu_seconds = self.cpu_seconds().zip(cpu_before).map(|(now, before)| now - before);
                    let one = Load {
                        seconds: Duration::from_nanos(ns).as_secs_f64(),
                        stored_bytes: bytes,
                        cpu_seconds,
                        peak_bytes: self.resident_peak(),
                    };
                    load = Some(load.map_or(one, |others: Load| others.and(one)));
                }
                Ok(reply) => return Err(format!("unexpected reply: {reply:?}")),
                Err(message) => {
                    let message = format!("cannot load {}: {message}", table.name);
                    self.refused.insert(table.name.clone(), message.clone());
                    // What it loaded of it is in the way.
                    self.stop();
                    return Err(message);
                }
            }
            self.loaded.insert(table.name.clone());
        }
        self.forget_peak();
        Ok(load)
    }

    /// Runs a query: nanoseconds, columns, rows.
    ///
    /// # Errors
    /// What the engine says, that it died, or that it took too long.
    pub(crate) fn run(&mut self, sql: &str) -> Result<Reply, String> {
        self.ask(&Request::Run { sql: sql.into() }, self.launch.query_timeout)
    }

    fn ask(&mut self, request: &Request, timeout: Duration) -> Result<Reply, String> {
        let process = self.process.as_mut().ok_or("not running")?;
        match process.ask(request, timeout) {
            Ok(Reply::Error { message }) => Err(message),
            Ok(reply) => Ok(reply),
            Err(message) => {
                // Nobody knows what state it is in.
                self.stop();
                Err(message)
            }
        }
    }

    /// Notes the largest resident size since the last [`Self::hold`].
    pub(crate) fn note_peak(&mut self) {
        self.peak_bytes = self.peak_bytes.max(self.resident_peak());
    }

    /// The largest resident size since it was last forgotten; 0 where the kernel does not say.
    fn resident_peak(&self) -> u64 {
        let status =
            self.process_file("status").and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kib.unwrap_or(0) * 1024
    }

    /// The time that all cores gave to the process so far.
    fn cpu_seconds(&self) -> Option<f64> {
        /// Of all Linux that there is.
        const TICKS_A_SECOND: f64 = 100.0;
        let stat = fs::read_to_string(self.process_file("stat")?).ok()?;
        // The name of the program, in brackets, may have spaces; times are the 14th and 15th value.
        let values = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let ticks = values.skip(11).take(2).map(|value| value.parse::<f64>().ok());
        ticks.sum::<Option<f64>>().map(|ticks| ticks / TICKS_A_SECOND)
    }

    /// Starts the kernel's high-water mark anew, so that loading does not count.
    fn forget_peak(&self) {
        if let Some(path) = self.process_file("clear_refs") {
            // Where the kernel will not, the peak includes loading.
            let _ = fs::write(path, "5");
        }
    }

    fn process_file(&self, name: &str) -> Option<PathBuf> {
        let process = self.process.as_ref()?;
        Some(Path::new("/proc").join(process.child.id().to_string()).join(name))
    }

    fn stop(&mut self) {
        self.loaded.clear();
        if let Some(mut process) = self.process.take() {
            // It may be gone already.
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Process {
    fn spawn(command: &mut Command, log: PathBuf) -> Result<Self, String> {
        let errors = File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        let program = command.get_program().to_owned();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().map_err(|error| format!("{}: {error}", program.display()))?;
        let requests = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, replies) = channel();
        // Ends with the process, whose death closes the pipe.
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, requests, replies, log })
    }

    fn ask(&mut self, request: &Request, timeout: Duration) -> Result<Reply, String> {
        let mut line = serde_json::to_string(request).map_err(|error| error.to_string())?;
        line.push('\n');
        if self.requests.write_all(line.as_bytes()).and_then(|()| self.requests.flush()).is_err() {
            return Err(self.epitaph());
        }
        match self.replies.recv_timeout(timeout) {
            Ok(reply) => {
                serde_json::from_str(&reply).map_err(|error| format!("a reply that is none: {error}"))
            }
            Err(RecvTimeoutError::Timeout) => Err(format!("no answer within {} s", timeout.as_secs())),
            Err(RecvTimeoutError::Disconnected) => Err(self.epitaph()),
        }
    }

    /// How the process ended, with the last line of its log.
    fn epitaph(&mut self) -> String {
        let status = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let last = log.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        format!("died ({status}): {last}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(label: &str, expected: Result<(&str, Option<&str>), &str>) {
        let name = label.parse::<EngineName>();
        let found = name.as_ref().map(|name| (name.engine, name.form)).map_err(String::as_str);
        assert_eq!(found, expected, "{label}");
    }

    #[test]
    fn engines_are_named_with_or_without_a_form() {
        check("duckdb", Ok(("duckdb", None)));
        check("keirin:parquet", Ok(("keirin", Some("parquet"))));
        check(
            "oracle",
            Err("no engine \"oracle\"; there are keirin, duckdb, clickhouse, polars, datafusion"),
        );
        check("polars:native", Err("no form \"native\" of polars; there are memory, parquet"));
    }

    fn process(script: &str, log: &Path) -> Process {
        Process::spawn(Command::new("sh").args(["-c", script]), log.to_owned()).unwrap()
    }

    #[test]
    fn death_and_silence_are_told_apart() {
        let scratch = tempfile::tempdir().unwrap();
        let request = Request::Drop { name: "t".into() };
        let log = scratch.path().join("log");
        let mut dying = process("read line; echo 'Segmentation fault' >&2; exit 3", &log);
        let error = dying.ask(&request, Duration::from_secs(20)).unwrap_err();
        assert_eq!(error, "died (exit status: 3): Segmentation fault");
        let mut silent = process("read line; exec sleep 100", &log);
        let error = silent.ask(&request, Duration::from_millis(100)).unwrap_err();
        assert_eq!(error, "no answer within 0 s");
        silent.child.kill().unwrap();
        let mut noisy = process("read line; echo hello", &log);
        let error = noisy.ask(&request, Duration::from_secs(20)).unwrap_err();
        assert!(error.starts_with("a reply that is none: "), "{error}");
        let mut sound = process("read line; echo '{\"reply\":\"dropped\"}'", &log);
        assert_eq!(sound.ask(&request, Duration::from_secs(20)), Ok(Reply::Dropped));
    }
}
