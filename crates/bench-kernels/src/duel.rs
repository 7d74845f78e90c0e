//! Several loops that do the same work, timed side by side.
//!
//! Each lane runs once to give its answer, which must be the first lane's. Then the lanes take turns: each sample
//! repeats the work for at least [`SAMPLE_MIN`] of the thread's own time, and the time of a lane is the median of
//! its samples. A noisy moment hits one sample of one lane or all lanes alike; a wrong answer has no time.
//!
//! Data is as hot as the lanes leave it to each other. A lane finds in the caches what the one before it left, never
//! its own tables, as long as these are larger than a sample; so the order changes from round to round, and each
//! lane comes behind every other. A lane with small tables has no more of the caches than that earns it.
//!
//! A rival that was built without its fast paths says so in its name, and nothing is compared with it.

use std::fmt::Write as _;
use std::hint::black_box;
use std::path::{Path, PathBuf};
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
    is_comparable: bool,
}

impl<'a> Lane<'a> {
    /// `engine` is `keirin` (what a user gets), `keirin:VARIANT` or the rival; `work` returns a checksum of
    /// its answer, or anything constant where answers may differ.
    pub fn new(engine: &str, work: impl FnMut() -> u64 + 'a) -> Self {
        Self { engine: engine.to_owned(), work: Box::new(work), is_comparable: true }
    }

    /// A rival that is not what its authors would run: its time is shown, but no ratio to anything.
    #[must_use]
    pub fn without_ratio(mut self) -> Self {
        self.is_comparable = false;
        self
    }

    /// What it was named.
    #[must_use]
    pub fn engine(&self) -> &str {
        &self.engine
    }

    fn sample(&mut self, repeats: u32) -> Duration {
        let start = thread_time();
        for _ in 0..repeats {
            black_box((self.work)());
        }
        thread_time() - start
    }
}

/// The lanes of a round: from another one on each time, and every other time backwards.
fn order(lane_count: usize, round: usize) -> impl Iterator<Item = usize> {
    let is_backwards = round % 2 == 1;
    (0..lane_count).map(move |place| {
        let index = (place + round / 2) % lane_count;
        if is_backwards { lane_count - 1 - index } else { index }
    })
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
    data: Option<PathBuf>,
    json: String,
    is_sound: bool,
}

impl Report {
    /// An empty report; with `only`, cases whose name lacks that text are left out.
    #[must_use]
    pub fn new(suite: &'static str, is_quick: bool, only: &str) -> Self {
        println!("{suite}");
        Self { suite, is_quick, only: only.to_owned(), data: None, json: String::new(), is_sound: true }
    }

    /// With files of a folder instead of the usual ones, where a suite takes files.
    #[must_use]
    pub fn with_data(mut self, folder: PathBuf) -> Self {
        self.data = Some(folder);
        self
    }

    /// The folder of files that were asked for.
    #[must_use]
    pub fn data(&self) -> Option<&Path> {
        self.data.as_deref()
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
            for index in order(lanes.len(), sample) {
                let (lane, repeats) = (&mut lanes[index], repeats[index]);
                times[index].push(lane.sample(repeats).as_secs_f64() / f64::from(repeats));
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
            let ratio = lane.is_comparable.then_some(medians[0] / medians[index]);
            self.line(case, &lane.engine, unit, count, medians[index], ratio);
        }
        medians.iter().map(|seconds| count as f64 / seconds).collect()
    }

    fn line(&mut self, case: &str, engine: &str, unit: Unit, count: usize, seconds: f64, ratio: Option<f64>) {
        let (metric, value, name) = match unit {
            Unit::Bytes => ("throughput", count as f64 / seconds / 1e9, "GB/s"),
            Unit::Rows | Unit::Calls => ("time", seconds * 1e9 / count as f64, "ns"),
        };
        let per = match unit {
            Unit::Bytes => "",
            Unit::Rows => "/row",
            Unit::Calls => "/call",
        };
        let ratio = ratio.map_or("no ratio".to_owned(), |ratio| format!("{ratio:>6.2}x"));
        println!("    {engine:<24} {value:>10.3} {:<8} {ratio}", format!("{name}{per}"));
        let object = json!({
            "suite": self.suite, "case": case, "engine": engine, "metric": metric, "value": value, "unit": name,
        });
        let _ = writeln!(self.json, "{object}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lane_runs_once_a_round_and_follows_others() {
        for lane_count in 1..6 {
            let mut firsts = vec![0; lane_count];
            for round in 0..2 * lane_count {
                let mut lanes: Vec<usize> = order(lane_count, round).collect();
                firsts[lanes[0]] += 1;
                lanes.sort_unstable();
                assert!(lanes.into_iter().eq(0..lane_count));
            }
            assert!(firsts.iter().all(|count| *count == 2), "{firsts:?}");
        }
    }
}
