//! A report as text that fits a terminal.

use std::fmt::Write;

use super::report::{Decoded, Report, Step};

/// What counters count, in words.
const WORDS: [(&str, &str); 4] = [
    ("pushdown_rows_pruned", "rows filtered out"),
    ("stripes_read", "stripes read"),
    ("stripes_pruned", "stripes left out"),
    ("blocks_cached", "blocks from the cache"),
];

/// Of the loops that decompressed, so many are told.
const LOOPS_MAX: usize = 3;

/// The width of lines, unless nothing is left out.
const WIDTH: usize = 100;

/// The report; without `is_verbose` long lines are cut, and counters of little interest left out.
pub(super) fn write(report: &Report, is_verbose: bool) -> String {
    let text = format!(
        "{} in {} on {}, busy {:.0} % of the time; planned in {}\n{}\n\n{:>8} {:>3}  {:>7}  {:>8}  step\n",
        plural(report.rows as u64, "row"),
        duration(report.milliseconds),
        plural(report.threads as u64, "thread"),
        100.0 * report.busy,
        duration(report.planning_milliseconds),
        report.headline,
        "time",
        "%",
        "rows",
        "memory",
    );
    let numbers = |of: &Step| {
        let time = of.milliseconds.map_or_else(|| without_time(of).to_owned(), duration);
        let share = of.milliseconds.map_or_else(String::new, |_| format!("{:.0}", 100.0 * of.share));
        let memory = if of.memory_bytes == 0 { String::new() } else { bytes(of.memory_bytes) };
        format!("{time:>8} {share:>3}  {:>7}  {memory:>8}  ", of.rows.map(count).unwrap_or_default())
    };
    let mut tree = Tree { text, numbers: &numbers, is_verbose };
    tree.add(&report.plan, ["", ""]);
    let mut text = tree.ended();
    let machine = &report.machine;
    let _ = write!(
        text,
        "time: of all threads, each step without its inputs; memory: booked at most\n{}: {}, {:.1} GB/s from memory, {:.1} GB/s one thread",
        machine.cpu,
        plural(machine.threads as u64, "thread"),
        machine.gb_per_second,
        machine.thread_gb_per_second,
    );
    text
}

/// The steps of a plan that did not run.
pub(super) fn write_plan(plan: &Step) -> String {
    let numbers = |of: &Step| format!("{:>8}   ", of.rows.map(count).unwrap_or_default());
    let text = format!("{:>8}   step\n", "rows");
    let mut tree = Tree { text, numbers: &numbers, is_verbose: false };
    tree.add(plan, ["", ""]);
    tree.ended().trim_end().to_owned()
}

/// Steps under each other, with lines from each to its inputs.
struct Tree<'a> {
    text: String,
    /// What stands before a step.
    numbers: &'a dyn Fn(&Step) -> String,
    is_verbose: bool,
}

impl Tree<'_> {
    /// Adds a step and those below; the branches of the tree that lead to it, and that go on below it.
    fn add(&mut self, of: &Step, [branch, below]: [&str; 2]) {
        let numbers = (self.numbers)(of);
        let own = if of.is_ours { "" } else { "*" };
        self.line(&format!("{numbers}{branch}{}{own} {}", of.operator, of.description));
        let stem = if of.inputs.is_empty() { format!("{below}   ") } else { format!("{below}│  ") };
        let stem = format!("{:width$}{stem}", "", width = numbers.chars().count());
        self.wrapped(&stem, &details(of, self.is_verbose).join("; "));
        for (index, input) in of.inputs.iter().enumerate() {
            let [branch, next] =
                if index + 1 == of.inputs.len() { ["└─ ", "   "] } else { ["├─ ", "│  "] };
            self.add(input, [&format!("{below}{branch}"), &format!("{below}{next}")]);
        }
    }

    /// Adds lines of words that begin with `stem`.
    fn wrapped(&mut self, stem: &str, words: &str) {
        let mut line = stem.to_owned();
        for word in words.split_inclusive("; ").flat_map(|part| part.split_inclusive(", ")) {
            let is_full = line.chars().count() + word.trim_end().chars().count() > WIDTH;
            if is_full && line != stem {
                _ = writeln!(self.text, "{}", line.trim_end());
                stem.clone_into(&mut line);
            }
            line.push_str(word);
        }
        if line != stem {
            self.line(&line);
        }
    }

    /// Adds a line without its end, where it is too long.
    fn line(&mut self, line: &str) {
        let line = line.trim_end();
        let is_cut = !self.is_verbose && line.chars().count() > WIDTH;
        match line.char_indices().nth(WIDTH - 1).filter(|_| is_cut) {
            Some((end, _)) => _ = writeln!(self.text, "{}…", &line[..end]),
            None => _ = writeln!(self.text, "{line}"),
        }
    }

    /// The text, with what its marks mean.
    fn ended(mut self) -> String {
        self.text.push_str("\n* an operator of DataFusion\n");
        self.text
    }
}

/// What is told of a step below its line.
pub(super) fn details(of: &Step, is_verbose: bool) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(of.why_not.iter().map(|why| format!("not Keirin's: {why}")));
    if let Some((speed, share)) = of.gb_per_second.zip(of.bandwidth_share)
        && (is_verbose || of.share >= 0.01)
    {
        lines.push(format!("{} in, {} out", bytes(of.bytes_in), bytes(of.bytes_out)));
        let of_memory =
            if share < 0.005 { String::new() } else { format!(", {:.0} % of memory's", 100.0 * share) };
        lines.push(format!("{speed:.2} GB/s{of_memory}"));
    }
    if of.spilled_bytes > 0 {
        lines.push(format!("{} spilled", bytes(of.spilled_bytes)));
    }
    let shown = if is_verbose { usize::MAX } else { LOOPS_MAX };
    let decoded = of.decoded.iter().take(shown);
    let decoded = decoded.map(|Decoded { codec, arm, bytes: decoded, gb_per_second, .. }| {
        format!("{codec} {arm} {} at {gb_per_second:.1} GB/s", bytes(*decoded))
    });
    let decoded: Vec<String> = decoded.collect();
    if !decoded.is_empty() {
        lines.push(format!("decompressed by {}", decoded.join(", ")));
    }
    let counters = of.counters.iter().filter(|counter| counter.value > 0 || is_verbose);
    lines.extend(counters.map(|counter| {
        let value = count(counter.value as u64);
        match WORDS.iter().find(|(name, _)| *name == counter.name) {
            Some((_, words)) => format!("{value} {words}"),
            None => format!("{}={value}", counter.name),
        }
    }));
    lines
}

/// What is told of a step that took no time: the step above does its work, or nobody asked for its rows.
pub(super) fn without_time(of: &Step) -> &'static str {
    if of.rows.is_some_and(|rows| rows > 0) { "above" } else { "-" }
}

fn plural(number: u64, word: &str) -> String {
    format!("{} {word}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Three digits of a number that is large, as `5.92 M`.
pub(super) fn count(number: u64) -> String {
    scaled(number as f64, &[(1e9, " G"), (1e6, " M"), (1e4, " K")], number < 10_000)
}

/// A size in units of 1,000, as `18.8 MB`.
pub(super) fn bytes(number: u64) -> String {
    scaled(
        number as f64,
        &[(1e12, " TB"), (1e9, " GB"), (1e6, " MB"), (1e3, " kB"), (1.0, " B")],
        number == 0,
    )
}

/// A time, as `386 ms`.
pub(super) fn duration(milliseconds: f64) -> String {
    scaled(milliseconds, &[(1e3, " s"), (1.0, " ms"), (1e-3, " µs")], milliseconds < 1e-3)
}

fn scaled(number: f64, units: &[(f64, &str)], is_plain: bool) -> String {
    let unit = units.iter().find(|(size, _)| number >= size * 0.9995);
    match unit.filter(|_| !is_plain) {
        None => format!("{number:.0}"),
        Some((size, unit)) => {
            let number = number / if *unit == " K" { 1e3 } else { *size };
            let digits = if number < 9.995 { 2 } else { usize::from(number < 99.95) };
            let digits = if *unit == " B" { 0 } else { digits };
            format!("{number:.digits$}{unit}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let counts = [0, 9_999, 10_000, 84_617, 5_920_123, 150_000_000, 2_000_000_000].map(count);
        assert_eq!(counts, ["0", "9999", "10.0 K", "84.6 K", "5.92 M", "150 M", "2.00 G"]);
        let sizes = [0, 999, 1_000, 18_780_000, 999_999_999].map(bytes);
        assert_eq!(sizes, ["0", "999 B", "1.00 kB", "18.8 MB", "1.00 GB"]);
        let times = [0.0, 0.0871, 1.0, 386.4, 8_385.0].map(duration);
        assert_eq!(times, ["0", "87.1 µs", "1.00 ms", "386 ms", "8.38 s"]);
    }
}
