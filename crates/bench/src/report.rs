//! What was measured, for people (a table) and for programs (JSON lines).
//!
//! Times are medians of the hot runs in milliseconds. A wrong answer has no time. Sums and means
//! run over the cases that every engine in the table answered, so that they compare.

use std::fmt::Write as _;

use serde_json::{Value, json};

const COLUMN_WIDTH_MIN: usize = 12;

/// How one engine did in one case.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    Time(Times),
    /// The first difference from the reference answer.
    Wrong(String),
    /// What the engine said.
    Failed(String),
}

/// Milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Times {
    pub(crate) first: f64,
    pub(crate) min: f64,
    pub(crate) median: f64,
}

impl Times {
    /// From the nanoseconds of a first run and the hot runs after it.
    #[expect(clippy::cast_precision_loss, reason = "times are below 2^53 ns")]
    pub(crate) fn new(first: u64, hot: &[u64]) -> Self {
        let milliseconds = |ns: u64| ns as f64 / 1e6;
        let mut hot = if hot.is_empty() { vec![first] } else { hot.to_vec() };
        hot.sort_unstable();
        let median = f64::midpoint(milliseconds(hot[(hot.len() - 1) / 2]), milliseconds(hot[hot.len() / 2]));
        Self { first: milliseconds(first), min: milliseconds(hot[0]), median }
    }
}

impl Outcome {
    fn median(&self) -> Option<f64> {
        match self {
            Self::Time(times) => Some(times.median),
            Self::Wrong(_) | Self::Failed(_) => None,
        }
    }
}

/// One suite's results as they come in: a column an engine, a row a case.
#[derive(Debug)]
pub(crate) struct Report {
    suite: String,
    engines: Vec<String>,
    cases: Vec<(String, Vec<Outcome>)>,
}

impl Report {
    pub(crate) fn new(suite: &str, engines: Vec<String>) -> Self {
        Self { suite: suite.into(), engines, cases: Vec::new() }
    }

    /// The head of the table.
    pub(crate) fn head(&self) -> String {
        let names =
            self.engines.iter().enumerate().map(|(index, name)| self.cell(index, name)).collect::<String>();
        let ratio = if self.has_ratio() { "  keirin/best rival" } else { "" };
        format!("{:<24}{names}{ratio}", format!("{}, ms", self.suite))
    }

    /// Adds a case; returns its row and, below, what went wrong in it.
    pub(crate) fn add(&mut self, case: &str, outcomes: Vec<Outcome>) -> String {
        let mut row = format!("{case:<24}");
        let best = outcomes.iter().filter_map(Outcome::median).min_by(f64::total_cmp);
        for (index, outcome) in outcomes.iter().enumerate() {
            let cell = match outcome {
                Outcome::Time(times) => {
                    // With one engine there is no race to win.
                    let won = outcomes.len() > 1 && Some(times.median) == best;
                    format!("{}{}", if won { "*" } else { "" }, digits(times.median))
                }
                Outcome::Wrong(_) => "WRONG".into(),
                Outcome::Failed(_) => "failed".into(),
            };
            row += &self.cell(index, &cell);
        }
        if let Some(ratio) = self.ratio(&outcomes) {
            let _ = write!(row, " {:>18}", format!("{ratio:.2}"));
        }
        for (engine, outcome) in self.engines.iter().zip(&outcomes) {
            match outcome {
                Outcome::Time(_) => {}
                Outcome::Wrong(message) => {
                    let _ = write!(row, "\n    {engine} is WRONG: {message}");
                }
                Outcome::Failed(message) => {
                    let line = message.lines().next().unwrap_or_default();
                    let _ =
                        write!(row, "\n    {engine} failed: {}", line.chars().take(160).collect::<String>());
                }
            }
        }
        self.cases.push((case.into(), outcomes));
        row
    }

    /// Total, geometric mean and the number of first places.
    pub(crate) fn foot(&self) -> String {
        let whole =
            |(_, outcomes): &&(String, Vec<Outcome>)| outcomes.iter().all(|one| one.median().is_some());
        let shared = self.cases.iter().filter(whole).map(|(_, outcomes)| outcomes).collect::<Vec<_>>();
        let column = |index: usize| shared.iter().filter_map(move |outcomes| outcomes[index].median());
        let mut foot = String::new();
        let mut line = |name: &str, cell: &dyn Fn(usize) -> String, ratio: Option<f64>| {
            let cells = (0..self.engines.len()).map(|index| self.cell(index, &cell(index)));
            let ratio = ratio.map_or(String::new(), |ratio| format!(" {:>18}", format!("{ratio:.2}")));
            let _ = writeln!(foot, "{name:<24}{}{ratio}", cells.collect::<String>());
        };
        if !shared.is_empty() {
            let per_case = |of: fn(&mut dyn Iterator<Item = f64>) -> Option<f64>| {
                let envelope = shared.iter().filter_map(|outcomes| self.best_rival(outcomes));
                let ours = of(&mut column(self.keirin()?))?;
                self.has_ratio().then(|| Some(ours / of(&mut { envelope })?)).flatten()
            };
            line("total", &|index| digits(column(index).sum()), per_case(|times| Some(times.sum())));
            let mean = |index| geometric_mean(&mut column(index)).map_or("-".into(), digits);
            line("geometric mean", &mean, per_case(geometric_mean));
        }
        if self.engines.len() > 1 {
            let firsts = |index: usize| {
                let first = |(_, outcomes): &&(String, Vec<Outcome>)| {
                    let best = outcomes.iter().filter_map(Outcome::median).min_by(f64::total_cmp);
                    best.is_some() && outcomes[index].median() == best
                };
                self.cases.iter().filter(first).count().to_string()
            };
            line("first places", &firsts, None);
        }
        if shared.len() < self.cases.len() {
            let _ = writeln!(
                foot,
                "total and mean over the {} of {} cases that every engine answered",
                shared.len(),
                self.cases.len()
            );
        }
        foot
    }

    /// The results as JSON lines; `peaks` are bytes by engine.
    pub(crate) fn json(&self, peaks: &[u64]) -> String {
        let mut lines = Vec::new();
        for (case, outcomes) in &self.cases {
            for (engine, outcome) in self.engines.iter().zip(outcomes) {
                let record = |metric: &str, value: f64| self.record(case, engine, metric, json!(value), "ms");
                match outcome {
                    Outcome::Time(times) => {
                        lines.push(record("time", times.median));
                        lines.push(record("time_min", times.min));
                        lines.push(record("time_first", times.first));
                    }
                    Outcome::Wrong(message) | Outcome::Failed(message) => {
                        let mut line = self.record(case, engine, "time", Value::Null, "ms");
                        let wrong = matches!(outcome, Outcome::Wrong(_));
                        line[if wrong { "wrong" } else { "error" }] = json!(message);
                        lines.push(line);
                    }
                }
            }
        }
        for (engine, &peak) in self.engines.iter().zip(peaks).filter(|(_, peak)| **peak > 0) {
            lines.push(self.record("all", engine, "memory", json!(peak), "bytes"));
        }
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// Whether every answer was right and every engine gave one.
    pub(crate) fn keirin_is_sound(&self) -> bool {
        let ours = |label: &str| label == "keirin" || label.starts_with("keirin:");
        self.cases.iter().all(|(_, outcomes)| {
            self.engines
                .iter()
                .zip(outcomes)
                .all(|(engine, outcome)| !ours(engine) || outcome.median().is_some())
        })
    }

    fn record(&self, case: &str, engine: &str, metric: &str, value: Value, unit: &str) -> Value {
        json!({"suite": self.suite, "case": case, "engine": engine, "metric": metric, "value": value, "unit": unit})
    }

    /// `text` in the column of an engine, which is as wide as its name.
    fn cell(&self, index: usize, text: &str) -> String {
        format!(" {text:>width$}", width = self.engines[index].len().max(COLUMN_WIDTH_MIN))
    }

    fn keirin(&self) -> Option<usize> {
        self.engines.iter().position(|name| name == "keirin")
    }

    fn has_ratio(&self) -> bool {
        self.keirin().is_some() && self.engines.iter().any(|name| is_rival(name))
    }

    fn best_rival(&self, outcomes: &[Outcome]) -> Option<f64> {
        let rivals = self.engines.iter().zip(outcomes).filter(|(name, _)| is_rival(name));
        rivals.filter_map(|(_, outcome)| outcome.median()).min_by(f64::total_cmp)
    }

    fn ratio(&self, outcomes: &[Outcome]) -> Option<f64> {
        Some(outcomes[self.keirin()?].median()? / self.best_rival(outcomes)?)
    }
}

/// Whether an engine, by its label, is not Keirin in some form.
pub(crate) fn is_rival(label: &str) -> bool {
    label != "keirin" && !label.starts_with("keirin:")
}

fn geometric_mean(times: &mut dyn Iterator<Item = f64>) -> Option<f64> {
    let (mut count, mut sum) = (0.0, 0.0);
    for time in times {
        count += 1.0;
        sum += time.ln();
    }
    (count > 0.0).then(|| (sum / count).exp())
}

/// Three digits or more.
fn digits(milliseconds: f64) -> String {
    match milliseconds {
        small if small < 1.0 => format!("{small:.3}"),
        middle if middle < 100.0 => format!("{middle:.2}"),
        large => format!("{large:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(median: f64) -> Outcome {
        Outcome::Time(Times { first: median, min: median, median })
    }

    fn report() -> Report {
        Report::new("s", vec!["keirin".into(), "keirin:parquet".into(), "duckdb".into(), "polars".into()])
    }

    #[test]
    fn the_median_is_of_the_hot_runs() {
        for (first, hot, expected) in [
            (9_000_000, &[3_000_000, 1_000_000, 2_000_000][..], (9.0, 1.0, 2.0)),
            (9_000_000, &[4_000_000, 1_000_000][..], (9.0, 1.0, 2.5)),
            (9_000_000, &[][..], (9.0, 9.0, 9.0)),
        ] {
            let times = Times::new(first, hot);
            assert_eq!((times.first, times.min, times.median), expected, "{hot:?}");
        }
    }

    #[test]
    fn rows_mark_the_best_and_give_the_ratio_to_the_best_rival() {
        let mut report = report();
        let row = report.add("a", vec![time(10.0), time(1.0), time(20.0), time(5.0)]);
        let words = row.split_whitespace().collect::<Vec<_>>();
        assert_eq!(words, ["a", "10.00", "*1.00", "20.00", "5.00", "2.00"]);
    }

    #[test]
    fn a_wrong_answer_has_no_time_and_wins_nothing() {
        let mut report = report();
        let wrong = Outcome::Wrong("row 1: 2, expected 1".into());
        let row = report.add("a", vec![wrong, time(4.0), Outcome::Failed("boom\nstack".into()), time(5.0)]);
        let lines = row.lines().collect::<Vec<_>>();
        assert_eq!(
            lines[0].split_whitespace().collect::<Vec<_>>(),
            ["a", "WRONG", "*4.00", "failed", "5.00"]
        );
        assert_eq!(lines[1..], ["    keirin is WRONG: row 1: 2, expected 1", "    duckdb failed: boom"]);
        assert!(!report.keirin_is_sound());
    }

    #[test]
    fn totals_run_over_the_cases_that_all_answered() {
        let mut report = report();
        report.add("a", vec![time(2.0), time(3.0), time(1.0), time(4.0)]);
        report.add("b", vec![time(8.0), time(3.0), time(16.0), time(4.0)]);
        report.add("c", vec![time(100.0), time(3.0), Outcome::Failed("x".into()), time(4.0)]);
        let foot = report.foot();
        let lines = foot.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect::<Vec<_>>();
        assert_eq!(lines[0], ["total", "10.00", "6.00", "17.00", "8.00", "2.00"]);
        assert_eq!(lines[1], ["geometric", "mean", "4.00", "3.00", "4.00", "4.00", "2.00"]);
        assert_eq!(lines[2], ["first", "places", "0", "2", "1", "0"]);
        assert_eq!(lines[3].join(" "), "total and mean over the 2 of 3 cases that every engine answered");
        assert!(report.keirin_is_sound());
    }

    #[test]
    fn columns_line_up_under_long_names() {
        let mut report = Report::new("s", vec!["clickhouse:mergetree".into(), "duckdb".into()]);
        let head = report.head();
        let row = report.add("a", vec![time(1.0), time(2.0)]);
        let foot = report.foot();
        let lines = [&head, &row].into_iter().map(String::as_str).chain(foot.lines());
        assert_eq!(lines.map(str::len).collect::<Vec<_>>(), [58; 5]);
    }

    #[test]
    fn without_rivals_there_is_no_ratio() {
        let mut report = Report::new("s", vec!["keirin".into()]);
        assert_eq!(report.add("a", vec![time(250.0)]).split_whitespace().collect::<Vec<_>>(), ["a", "250"]);
        assert_eq!(
            report.foot().split_whitespace().collect::<Vec<_>>(),
            ["total", "250", "geometric", "mean", "250"]
        );
    }

    #[test]
    fn json_is_one_object_a_line() {
        let mut report = Report::new("s", vec!["keirin".into(), "duckdb".into()]);
        report.add("q01", vec![time(1.5), Outcome::Wrong("no".into())]);
        let text = report.json(&[4096, 0]);
        let expected = [
            json!({"suite": "s", "case": "q01", "engine": "keirin", "metric": "time", "value": 1.5, "unit": "ms"}),
            json!({"suite": "s", "case": "q01", "engine": "keirin", "metric": "time_min", "value": 1.5, "unit": "ms"}),
            json!({"suite": "s", "case": "q01", "engine": "keirin", "metric": "time_first", "value": 1.5, "unit": "ms"}),
            json!({"suite": "s", "case": "q01", "engine": "duckdb", "metric": "time", "value": null, "unit": "ms", "wrong": "no"}),
            json!({"suite": "s", "case": "all", "engine": "keirin", "metric": "memory", "value": 4096, "unit": "bytes"}),
        ];
        let found = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect::<Vec<_>>();
        assert_eq!(found, expected);
    }
}
