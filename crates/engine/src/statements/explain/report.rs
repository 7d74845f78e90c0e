//! What the steps of a query took, gathered from its plan after it ran.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use datafusion::physical_plan::metrics::MetricValue;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlan, displayable};
use serde::Serialize;

use crate::compile::why_not;
use crate::runtime::guard::unguarded;
use crate::runtime::machine::Machine;
use crate::sources::files;

/// A query that ran.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// What limits the query, in one sentence.
    pub(super) headline: String,
    pub(super) rows: usize,
    pub(super) milliseconds: f64,
    pub(super) planning_milliseconds: f64,
    pub(super) threads: usize,
    /// The share of the threads' time in which they worked for a step.
    pub(super) busy: f64,
    pub(super) machine: MachineReport,
    pub(super) plan: Step,
}

#[derive(Debug, Serialize)]
pub(super) struct MachineReport {
    pub(super) cpu: &'static str,
    pub(super) threads: usize,
    /// Gigabytes (10^9) a second that one thread reads from memory, and all together.
    pub(super) thread_gb_per_second: f64,
    pub(super) gb_per_second: f64,
}

/// A step of the plan: an operator, in all partitions.
#[derive(Debug, Default, Serialize)]
pub(super) struct Step {
    pub(super) operator: String,
    /// Whether it is an operator of Keirin's own; others are DataFusion's.
    pub(super) is_ours: bool,
    /// Why there is none of ours in its place, where there could be.
    pub(super) why_not: Option<String>,
    pub(super) description: String,
    /// The time that threads worked for it, without that for its inputs; `None` where the step above does its work.
    pub(super) milliseconds: Option<f64>,
    /// Of the time of all steps.
    pub(super) share: f64,
    /// Rows that it gave; of a query that did not run, how many it is expected to give.
    pub(super) rows: Option<u64>,
    /// Bytes of its inputs' rows; of a scan, those that it read.
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    /// Gigabytes (10^9), in and out, in a second of a thread.
    pub(super) gb_per_second: Option<f64>,
    /// Of what a thread reads from memory at the same time.
    pub(super) bandwidth_share: Option<f64>,
    /// The most memory that was booked for it at one time.
    pub(super) memory_bytes: u64,
    pub(super) spilled_bytes: u64,
    pub(super) decoded: Vec<Decoded>,
    pub(super) counters: Vec<Counter>,
    pub(super) inputs: Vec<Step>,
}

/// What a loop decompressed.
#[derive(Debug, Serialize)]
pub(super) struct Decoded {
    pub(super) codec: &'static str,
    pub(super) arm: &'static str,
    pub(super) bytes: u64,
    pub(super) milliseconds: f64,
    pub(super) gb_per_second: f64,
}

/// What an operator counts besides.
#[derive(Debug, Serialize)]
pub(super) struct Counter {
    pub(super) name: String,
    pub(super) value: usize,
}

/// What people call operators, by the names that these have in plans: those of ours.
const OURS: [(&str, &str); 17] = [
    ("StoredScan", "Scan"),
    ("StoredAggregate", "Aggregate blocks"),
    ("StoredGroup", "Group blocks"),
    ("DataSourceExec", "Scan"),
    ("TpchExec", "Scan"),
    ("GivenScan", "Scan"),
    ("ParallelGroupExec", "Group"),
    ("GroupExec", "Group"),
    ("ExchangeExec", "Exchange"),
    ("JoinExec", "Join"),
    ("SortRowsExec", "Sort"),
    ("WindowRowsExec", "Window"),
    ("SharedExec", "Shared"),
    ("PartExec", "Part"),
    ("LateRowsExec", "Fetch columns"),
    ("InOrderExec", "In order"),
    ("WriteExec", "Write"),
];

/// And those of DataFusion's.
const THEIRS: [(&str, &str); 8] = [
    ("ProjectionExec", "Project"),
    ("RepartitionExec", "Exchange"),
    ("CoalescePartitionsExec", "Gather"),
    ("SortPreservingMergeExec", "Merge"),
    ("GlobalLimitExec", "Limit"),
    ("LocalLimitExec", "Limit"),
    ("AggregateExec", "Group"),
    ("SortExec(TopK)", "Top"),
];

impl Report {
    /// The report of `plan`, which gave so many rows and took so long, for planning and for the rest.
    pub(super) fn new(
        plan: &Arc<dyn ExecutionPlan>,
        rows: usize,
        [planning, elapsed]: [Duration; 2],
        threads: usize,
        machine: &Machine,
    ) -> Self {
        let mut plan = Step::measured(plan, machine);
        let worked = plan.sum(&|step| step.milliseconds.unwrap_or(0.0));
        plan.share(worked);
        let offered = milliseconds(elapsed) * threads as f64;
        let busy = if offered > 0.0 { (worked / offered).min(1.0) } else { 0.0 };
        let machine = MachineReport {
            cpu: machine.cpu,
            threads: machine.threads,
            thread_gb_per_second: machine.thread_bandwidth / 1e9,
            gb_per_second: machine.bandwidth / 1e9,
        };
        Self {
            headline: headline(&plan, busy),
            rows,
            milliseconds: milliseconds(elapsed),
            planning_milliseconds: milliseconds(planning),
            threads,
            busy,
            machine,
            plan,
        }
    }
}

impl Step {
    /// A step that did not run, with those below.
    pub(super) fn planned(plan: &Arc<dyn ExecutionPlan>) -> Self {
        if let Some(input) = below_fence(plan) {
            return Self::planned(input);
        }
        let rows = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new());
        let rows = rows.ok().and_then(|statistics| statistics.num_rows.get_value().copied());
        let inputs = plan.children().into_iter().map(Self::planned).collect();
        Self { rows: rows.map(|rows| rows as u64), inputs, ..Self::named(plan) }
    }

    fn named(plan: &Arc<dyn ExecutionPlan>) -> Self {
        let name = plan.name();
        let called = |names: &[(&str, &'static str)]| {
            names.iter().find(|(known, _)| *known == name).map(|(_, operator)| *operator)
        };
        let ours = called(&OURS).or_else(|| files::scan_bytes(plan.as_ref()).map(|_| "Scan"));
        let operator = ours.or_else(|| called(&THEIRS)).unwrap_or_else(|| name.trim_end_matches("Exec"));
        let line = displayable(plan.as_ref()).one_line().to_string();
        // Of a top-N the name says so, and the line has another one.
        let description = line.trim().trim_start_matches(|letter: char| letter.is_alphanumeric());
        let description = description.trim_start_matches([':', ',', ' ']);
        Self {
            operator: operator.to_owned(),
            is_ours: ours.is_some(),
            why_not: if ours.is_some() { None } else { why_not(plan) },
            description: without_places(description),
            ..Self::default()
        }
    }

    fn measured(plan: &Arc<dyn ExecutionPlan>, machine: &Machine) -> Self {
        let (plan, measured) = unguarded(plan);
        if let Some(input) = below_fence(plan) {
            return Self::measured(input, machine);
        }
        let inputs = plan.children().into_iter().map(|input| Self::measured(input, machine)).collect();
        let mut step = Self { inputs, ..Self::named(plan) };
        let mut read = None;
        for metric in
            plan.metrics().map(|metrics| metrics.aggregate_by_name()).iter().flat_map(|all| all.iter())
        {
            let value = metric.value().as_usize();
            match (metric.value(), metric.value().name()) {
                (MetricValue::OutputRows(_), _) => step.rows = Some(value as u64),
                (MetricValue::SpilledBytes(_), _) => step.spilled_bytes = value as u64,
                (_, "bytes_scanned") => read = Some(value as u64),
                (
                    MetricValue::Count { .. } | MetricValue::SpillCount(_) | MetricValue::SpilledRows(_),
                    name,
                ) => {
                    step.counters.push(Counter { name: name.to_owned(), value });
                }
                _ => {}
            }
        }
        step.counters.sort_by(|one, other| one.name.cmp(&other.name));
        // Of what the step does itself for its input, it takes in what that would.
        let given =
            |input: &Self| if input.milliseconds.is_some() { input.bytes_out } else { input.bytes_in };
        let given = step.inputs.iter().map(given).sum();
        step.bytes_in = read.unwrap_or(given);
        let Some(measured) = measured else { return step };
        let time = measured.time();
        step.rows = step.rows.max(Some(measured.rows()));
        step.bytes_out = measured.bytes();
        step.memory_bytes = measured.memory();
        if time.is_zero() && measured.rows() == 0 {
            return step;
        }
        step.milliseconds = Some(milliseconds(time));
        let bytes = (step.bytes_in + step.bytes_out) as f64;
        if bytes > 0.0 && !time.is_zero() {
            let bandwidth = bytes / time.as_secs_f64();
            // All threads share what the memory gives.
            let of_thread = (machine.bandwidth / machine.threads as f64).min(machine.thread_bandwidth);
            step.gb_per_second = Some(bandwidth / 1e9);
            step.bandwidth_share = Some(bandwidth / of_thread);
        }
        step.decoded = measured.decoded().decoded().into_iter().map(Decoded::of).collect();
        step.decoded.sort_by_key(|decoded| Reverse(decoded.bytes));
        step
    }

    /// Says of the whole plan, and of no step by itself, why it is not ours.
    pub(super) fn blame(&mut self, why: &str) {
        fn acquit(step: &mut Step) {
            step.why_not = None;
            step.inputs.iter_mut().for_each(acquit);
        }
        acquit(self);
        self.why_not = Some(why.to_owned());
    }

    /// The sum of `value` over this step and all below.
    pub(super) fn sum(&self, value: &impl Fn(&Self) -> f64) -> f64 {
        value(self) + self.inputs.iter().map(|input| input.sum(value)).sum::<f64>()
    }

    fn share(&mut self, of: f64) {
        self.share = self.milliseconds.filter(|_| of > 0.0).map_or(0.0, |time| time / of);
        self.inputs.iter_mut().for_each(|input| input.share(of));
    }

    /// The step that took the longest, of this and those below.
    fn longest(&self) -> &Self {
        let longer = |one: &Self, other: &Self| one.milliseconds.partial_cmp(&other.milliseconds);
        let below = self.inputs.iter().map(Self::longest);
        below
            .chain([self])
            .max_by(|one, other| longer(one, other).unwrap_or(std::cmp::Ordering::Equal))
            .unwrap_or(self)
    }
}

impl Decoded {
    fn of((codec, arm, decoded): (&'static str, &'static str, keirin_codecs::blocks::Decoded)) -> Self {
        let seconds = decoded.time.as_secs_f64().max(1e-9);
        Self {
            codec,
            arm,
            bytes: decoded.bytes,
            milliseconds: milliseconds(decoded.time),
            gb_per_second: decoded.bytes as f64 / seconds / 1e9,
        }
    }
}

/// What limits a query whose threads worked in this share of their time.
fn headline(plan: &Step, busy: f64) -> String {
    let longest = plan.longest();
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let what =
        match longest.description.split([',', ' ']).next().and_then(|first| first.strip_prefix("table=")) {
            Some(table) => format!("{} of {table}", longest.operator),
            None => longest.operator.clone(),
        };
    let share = percent(longest.share);
    let speed = match (longest.gb_per_second, longest.bandwidth_share) {
        (Some(speed), Some(share)) => {
            format!(", at {speed:.2} GB/s, {} of the memory bandwidth", percent(share))
        }
        _ => String::new(),
    };
    if busy < 0.5 {
        let idle = percent(1.0 - busy);
        return format!("threads waited {idle} of the time; {share} of their work was {what}{speed}");
    }
    format!("{share} of the work was {what}{speed}")
}

/// The input of a fence, which is there for the planner and does nothing.
fn below_fence(plan: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    plan.children().into_iter().next().filter(|_| plan.name() == "Fence")
}

fn milliseconds(time: Duration) -> f64 {
    1e3 * time.as_secs_f64()
}

/// The text without the places of columns: `a@0` is `a`.
fn without_places(text: &str) -> String {
    let mut pieces = text.split('@');
    let mut shown = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let digits = piece.bytes().take_while(u8::is_ascii_digit).count();
        let is_place =
            digits > 0 && shown.ends_with(|last: char| last.is_alphanumeric() || "_)*\"".contains(last));
        if is_place {
            shown.push_str(&piece[digits..]);
        } else {
            shown.push('@');
            shown.push_str(piece);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_columns_are_left_out() {
        assert_eq!(
            without_places("gby=[a@0 as a, sum(b)@12], x = 'me@home'"),
            "gby=[a as a, sum(b)], x = 'me@home'"
        );
        assert_eq!(without_places("@1 @x"), "@1 @x");
    }
}
