//! Several loops that do the same work, timed side by side.
//!
//! Each lane runs once to be warmed and to give its answer, which must be the first lane's. Then the lanes
//! take turns: each sample repeats the work for at least [`SAMPLE_MIN`] of the thread's own time, and the time
//! of a lane is the median of its samples. A noisy moment hits one sample of one lane or all lanes alike; a
//! wrong answer has no time. Data is hot: as far as it fits, in the caches, where a run before each sample
//! leaves it.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Duration;

use keirin_kernels::bench::thread_time;
use serde_json::json;

/// The shortest sample: far longer than reading the clock, far shorter than a slice of the scheduler.
const SAMPLE_MIN: Duration = Duration::from_micros(300);
const SAMPLES: usize = 31;
const SAMPLES_QUICK: usize = 1;
/// A case that takes longer than this has fewer samples.
const CASE_LONG: Duration = Duration::from_secs(10);
const SAMPLES_LONG: usize = 7;

/// One implementation of the work.
pub struct Lane<'a> {
    engine: String,
    work: Box<dyn FnMut() -> u64 + 'a>,
}

impl<'a> Lane<'a> {
    /// `engine` is `keirin` (what a user gets), `keirin:VARIANT` or the rival; `work` returns a checksum of
    /// its answer, or anything constant where answers may differ.
    pub fn new(engine: &str, work: impl FnMut() -> u64 + 'a) -> Self {
        Self { engine: engine.to_owned(), work: Box::new(work) }
    }

    /// What it was named.
    #[must_use]
    pub fn engine(&self) -> &str {
        &self.engine
    }

    fn sample(&mut self, repeats: u32) -> Duration {
        // What the lane before left in the caches would favour one lane.
        black_box((self.work)());
        let start = thread_time();
        for _ in 0..repeats {
            black_box((self.work)());
        }
        thread_time() - start
    }
}

/// What a case counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Reported as GB/s.
    Bytes,
    /// Reported as ns a row.
    Rows,
    /// Reported as ns a call.
    Calls,
}

/// The results of a suite, printed as they come.
#[derive(Debug)]
pub struct Report {
    suite: &'static str,
    is_quick: bool,
    only: String,
    json: String,
    is_sound: bool,
}

impl Report {
    /// An empty report; with `only`, cases whose name lacks that text are left out.
    #[must_use]
    pub fn new(suite: &'static str, is_quick: bool, only: &str) -> Self {
        println!("{suite}");
        Self { suite, is_quick, only: only.to_owned(), json: String::new(), is_sound: true }
    }

    /// Whether little data is enough.
    #[must_use]
    pub fn is_quick(&self) -> bool {
        self.is_quick
    }

    /// Whether the case is to be run: worth asking before data is made.
    #[must_use]
    pub fn wants(&self, case: &str) -> bool {
        case.contains(&self.only)
    }

    /// Whether all lanes gave the answers that they had to.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.is_sound
    }

    /// One JSON object a line.
    #[must_use]
    pub fn json(&self) -> &str {
        &self.json
    }

    /// Notes the size of an encoding, and prints it beside that of the values with what it is made of.
    pub fn size(&mut self, case: &str, engine: &str, byte_count: usize, value_bytes: usize, made_of: &str) {
        if !self.wants(case) {
            return;
        }
        let ratio = value_bytes as f64 / byte_count.max(1) as f64;
        println!("  {case}: {engine:<20} {byte_count:>10} bytes {ratio:>7.2}x  {made_of}");
        let object = json!({
            "suite": self.suite, "case": case, "engine": engine, "metric": "size", "value": byte_count, "unit": "bytes",
        });
        let _ = writeln!(self.json, "{object}");
    }

    /// Times the lanes over work of `count` units and prints a line for each; the first gives the answer.
    /// Returns the units per second of each lane.
    pub fn case(&mut self, case: &str, unit: Unit, count: usize, mut lanes: Vec<Lane<'_>>) -> Vec<f64> {
        if !self.wants(case) || lanes.is_empty() {
            return Vec::new();
        }
        let answers: Vec<u64> = lanes.iter_mut().map(|lane| (lane.work)()).collect();
        let repeats: Vec<u32> = lanes
            .iter_mut()
            .map(|lane| {
                let once = lane.sample(1).as_nanos().max(1);
                u32::try_from(SAMPLE_MIN.as_nanos().div_ceil(once)).expect("a sample is below a second")
            })
            .collect();
        let mut times = vec![Vec::new(); lanes.len()];
        let start = thread_time();
        for sample in 0..if self.is_quick { SAMPLES_QUICK } else { SAMPLES } {
            if sample >= SAMPLES_LONG && thread_time() - start > CASE_LONG {
                break;
            }
            for ((lane, repeats), times) in lanes.iter_mut().zip(&repeats).zip(&mut times) {
                times.push(lane.sample(*repeats).as_secs_f64() / f64::from(*repeats));
            }
        }
        let medians: Vec<f64> = times
            .into_iter()
            .map(|mut times| {
                times.sort_unstable_by(f64::total_cmp);
                times[times.len() / 2]
            })
            .collect();
        println!("  {case}");
        for (index, lane) in lanes.iter().enumerate() {
            if answers[index] != answers[0] {
                println!("    {:<24} WRONG: {} is not {}", lane.engine, answers[index], answers[0]);
                self.is_sound = false;
                continue;
            }
            self.line(case, &lane.engine, unit, count, medians[index], medians[0] / medians[index]);
        }
        medians.iter().map(|seconds| count as f64 / seconds).collect()
    }

    fn line(&mut self, case: &str, engine: &str, unit: Unit, count: usize, seconds: f64, ratio: f64) {
        let (metric, value, name) = match unit {
            Unit::Bytes => ("throughput", count as f64 / seconds / 1e9, "GB/s"),
            Unit::Rows | Unit::Calls => ("time", seconds * 1e9 / count as f64, "ns"),
        };
        let per = match unit {
            Unit::Bytes => "",
            Unit::Rows => "/row",
            Unit::Calls => "/call",
        };
        println!("    {engine:<24} {value:>10.3} {:<8} {ratio:>6.2}x", format!("{name}{per}"));
        let object = json!({
            "suite": self.suite, "case": case, "engine": engine, "metric": metric, "value": value, "unit": name,
        });
        let _ = writeln!(self.json, "{object}");
    }
}
