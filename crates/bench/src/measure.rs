//! Running a suite's cases: engines take turns, run by run, and their answers are compared.
//!
//! Per case: every engine loads what the case needs and drops what it does not; then each runs the
//! query once (reported apart), and `runs` times more in rotation, so that a noisy minute hits all.
//! Only one engine works at a time. Every answer of every run is checked.

use crate::answer::{Answer, Rule};
use crate::definition::Case;
use crate::engines::{ENGINES, Engine, Load};
use crate::protocol::{Reply, Table};
use crate::report::{Outcome, Times, is_rival};

/// One engine's part in a case.
#[derive(Default)]
struct Lane {
    nanoseconds: Vec<u64>,
    answer: Option<Answer>,
    failure: Option<Outcome>,
}

/// What loading before a case took, by engine.
pub(crate) type Loads = Vec<(String, Load)>;

/// Runs one case on all engines: an outcome each, in their order.
pub(crate) fn case(
    case: &Case,
    engines: &mut [Engine],
    tables: &[Table],
    runs: usize,
    sql: &dyn Fn(&Engine) -> String,
) -> (Vec<Outcome>, Loads) {
    let mut loads = Loads::new();
    let mut lanes = Vec::new();
    for engine in engines.iter_mut() {
        let held = engine.hold(tables);
        if let Ok(Some(load)) = held {
            loads.push((engine.label.clone(), load));
        }
        lanes.push(Lane { failure: held.err().map(Outcome::Failed), ..Lane::default() });
    }
    for _ in 0..=runs {
        for (engine, lane) in engines.iter_mut().zip(&mut lanes) {
            if lane.failure.is_none() {
                lane.run(engine, &sql(engine), &case.rule);
            }
        }
    }
    for engine in engines.iter_mut() {
        engine.note_peak();
    }
    let labels = engines.iter().map(|engine| engine.label.as_str()).collect::<Vec<_>>();
    (judge(&labels, lanes, &case.rule), loads)
}

impl Lane {
    fn run(&mut self, engine: &mut Engine, sql: &str, rule: &Rule) {
        match engine.run(sql) {
            Ok(Reply::Answer { ns, columns, rows }) => {
                self.record(ns, Answer::new(columns, rows), rule);
            }
            Ok(reply) => self.failure = Some(Outcome::Failed(format!("unexpected reply: {reply:?}"))),
            Err(message) => self.failure = Some(Outcome::Failed(message)),
        }
    }

    fn record(&mut self, ns: u64, answer: Answer, rule: &Rule) {
        self.nanoseconds.push(ns);
        let difference = self.answer.as_ref().and_then(|first| first.difference(&answer, rule));
        if let Some(difference) = difference {
            let message = format!("run {} disagrees with run 1: {difference}", self.nanoseconds.len());
            self.failure = Some(Outcome::Wrong(message));
        }
        self.answer.get_or_insert(answer);
    }
}

fn judge(labels: &[&str], lanes: Vec<Lane>, rule: &Rule) -> Vec<Outcome> {
    let answers = labels.iter().zip(&lanes).map(|(label, lane)| {
        let answer = lane.answer.as_ref().filter(|_| lane.failure.is_none());
        (*label, answer)
    });
    let answers = answers.collect::<Vec<_>>();
    let reference = reference(&answers, rule).cloned();
    let outcome = |lane: Lane| match (lane.failure, &lane.nanoseconds[..], lane.answer, &reference) {
        (Some(failure), ..) => failure,
        (None, [first, hot @ ..], Some(answer), Some(reference)) => match reference.difference(&answer, rule)
        {
            Some(difference) => Outcome::Wrong(difference),
            None => Outcome::Time(Times::new(*first, hot)),
        },
        (None, ..) => Outcome::Failed("no answer".into()),
    };
    lanes.into_iter().map(outcome).collect()
}

/// The answer that the others are measured by: the one that most rivals agree on, the first in the order
/// of [`ENGINES`] where there are several. Keirin has no vote, unless it runs alone.
fn reference<'a>(answers: &[(&str, Option<&'a Answer>)], rule: &Rule) -> Option<&'a Answer> {
    let engine = |label: &str| ENGINES.iter().position(|(name, _)| label.split(':').next() == Some(name));
    let given = answers.iter().filter_map(|(label, answer)| Some((*label, (*answer)?))).collect::<Vec<_>>();
    let votes = |answer: &Answer| {
        let agreeing =
            given.iter().filter(|(label, other)| is_rival(label) && answer.difference(other, rule).is_none());
        // Two forms of one engine are one vote.
        agreeing.map(|(label, _)| engine(label)).collect::<std::collections::BTreeSet<_>>().len()
    };
    let rivals = given.iter().filter(|(label, _)| is_rival(label));
    let ranked = rivals.max_by_key(|(label, answer)| (votes(answer), std::cmp::Reverse(engine(label))));
    ranked.or(given.first()).map(|(_, answer)| *answer)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn one_cell(value: i64) -> Answer {
        Answer::new(vec!["a".into()], vec![vec![json!(value)]])
    }

    /// `answers` are engine and value; `expected` is the value of the reference.
    fn check(answers: &[(&str, Option<i64>)], expected: Option<i64>) {
        let answers = answers.iter().map(|(label, value)| (*label, value.map(one_cell))).collect::<Vec<_>>();
        let borrowed = answers.iter().map(|(label, answer)| (*label, answer.as_ref())).collect::<Vec<_>>();
        assert_eq!(reference(&borrowed, &Rule::default()), expected.map(one_cell).as_ref());
    }

    #[test]
    fn the_majority_of_rivals_is_right() {
        check(&[("duckdb", Some(1)), ("clickhouse", Some(2)), ("polars", Some(2))], Some(2));
        check(&[("polars", Some(2)), ("duckdb", Some(1))], Some(1));
        check(&[("duckdb", None), ("polars", Some(2))], Some(2));
        check(&[("duckdb", Some(1)), ("polars", Some(2)), ("polars:parquet", Some(2))], Some(1));
    }

    #[test]
    fn keirin_has_no_vote() {
        check(&[("keirin", Some(1)), ("keirin:parquet", Some(1)), ("duckdb", Some(2))], Some(2));
        check(&[("keirin", Some(1)), ("duckdb", None)], Some(1));
        check(&[("keirin", None)], None);
    }

    #[test]
    fn an_answer_that_changes_between_runs_is_wrong() {
        for (values, expected) in [
            (&[1, 1, 1][..], None),
            (&[1, 1, 2], Some("run 3 disagrees with run 1: row 1, column 1 (a): 2, expected 1")),
        ] {
            let mut lane = Lane::default();
            for &value in values {
                lane.record(5, one_cell(value), &Rule::default());
            }
            assert_eq!(lane.failure, expected.map(|message| Outcome::Wrong(message.into())), "{values:?}");
        }
    }

    #[test]
    fn a_wrong_answer_voids_its_time_and_a_failure_is_kept() {
        let lane = |value| {
            let mut lane = Lane::default();
            lane.record(4_000_000, one_cell(value), &Rule::default());
            lane.record(2_000_000, one_cell(value), &Rule::default());
            lane
        };
        let failed = Lane { failure: Some(Outcome::Failed("died".into())), ..Lane::default() };
        let labels = ["keirin", "duckdb", "clickhouse", "polars"];
        let outcomes = judge(&labels, vec![lane(2), lane(1), failed, lane(1)], &Rule::default());
        let time = Outcome::Time(Times { first: 4.0, min: 2.0, median: 2.0 });
        let wrong = Outcome::Wrong("row 1, column 1 (a): 2, expected 1".into());
        assert_eq!(outcomes, [wrong, time.clone(), Outcome::Failed("died".into()), time]);
    }
}
