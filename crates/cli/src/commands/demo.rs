//! `keirin demo`: TPC-H from nothing to checked answers.
//!
//! Makes the eight tables in memory, runs the 22 queries one after the other, compares the answers with the
//! official ones where those are known, and prints the times and the rows read per second.

use std::time::{Duration, Instant};

use keirin::arrow::array::RecordBatch;
use keirin::tpch;
use nu_ansi_term::{Color, Style};

use crate::arguments::DemoArguments;
use crate::console::Console;
use crate::error::{Failure, Result};
use crate::render::{escape_controls, human};

/// The outcome of one query.
struct Run {
    batches: Vec<RecordBatch>,
    rows_read: u64,
    elapsed: Duration,
    /// `None` if no official answer is known.
    verdict: Option<std::result::Result<(), String>>,
}

pub(crate) fn run(arguments: &DemoArguments) -> Result<()> {
    let mut console = Console::open(None, arguments.resources.resources(), false)?;
    console.show_progress &= !arguments.resources.no_progress;
    load(&mut console, arguments.scale)?;
    match arguments.query {
        Some(number) => show_query(&mut console, usize::from(number), arguments.scale),
        None => run_all(&mut console, arguments.scale),
    }
}

/// Makes the tables.
fn load(console: &mut Console, scale: f64) -> Result<()> {
    let started = Instant::now();
    let mut rows = 0;
    for table in tpch::TABLES {
        let make = format!("CREATE TABLE {table} AS SELECT * FROM tpch('{table}', {scale:?})");
        console.collect(&make, &format!("making {table} "))?;
        let count = console.query(&format!("SELECT count(*) FROM {table}"))?;
        rows += crate::console::first_number(&count).unwrap_or(0);
    }
    let elapsed = human::duration(started.elapsed());
    let tables = tpch::TABLES.len();
    console.print(&format!(
        "TPC-H at scale {scale}: {tables} tables, {} in {elapsed}\n\n",
        human::plural(rows, "row")
    ))
}

fn run_query(console: &mut Console, number: usize, scale: f64) -> Result<Run> {
    let sql = tpch::QUERIES[number - 1];
    let label = format!("query {number} of {} ", tpch::QUERIES.len());
    let answer = console.collect(sql, &label)?;
    let verdict = tpch::check_answer(number, scale, &answer.batches);
    Ok(Run { batches: answer.batches, rows_read: answer.rows_read, elapsed: answer.elapsed, verdict })
}

fn run_all(console: &mut Console, scale: f64) -> Result<()> {
    let palette = console.terminal.stdout_palette();
    let bold = |text: &str| palette.paint(Style::new().bold(), text);
    let header =
        format!("{:>2}  {:<34} {:>9} {:>9} {:>12}  {}", "#", "query", "rows", "time", "rows/s", "answer");
    console.print(&format!("{}\n", bold(&header)))?;

    let mut runs = Vec::new();
    let (mut right, mut wrong) = (0, 0);
    for number in 1..=tpch::QUERIES.len() {
        let title = tpch::TITLES[number - 1];
        let run = match run_query(console, number, scale) {
            Ok(run) => run,
            Err(failure) if failure.ends_script() => return Err(failure),
            Err(failure) => {
                wrong += 1;
                console.print(&format!(
                    "{number:>2}  {title:<34} {}\n",
                    palette.paint(Color::Red.bold(), "failed")
                ))?;
                failure.print(console.terminal.stderr_palette());
                continue;
            }
        };
        let rows: usize = run.batches.iter().map(RecordBatch::num_rows).sum();
        runs.push((run.elapsed, run.rows_read));
        match &run.verdict {
            Some(Ok(())) => right += 1,
            Some(Err(_)) => wrong += 1,
            None => {}
        }
        let verdict = match &run.verdict {
            Some(Ok(())) => palette.paint(Color::Green.normal(), "right"),
            Some(Err(why)) => palette.paint(Color::Red.bold(), &format!("WRONG: {}", escape_controls(why))),
            None => "not checked".to_owned(),
        };
        let (rows, time) = (human::grouped(rows), human::duration(run.elapsed));
        let rate = rate(run.rows_read, run.elapsed);
        console.print(&format!("{number:>2}  {title:<34} {rows:>9} {time:>9} {rate:>12}  {verdict}\n"))?;
    }
    let total: Duration = runs.iter().map(|(elapsed, _)| *elapsed).sum();
    let rows_read = runs.iter().map(|(_, rows)| rows).sum();
    let checked =
        if right + wrong > 0 { format!("{right} of {} right", tpch::QUERIES.len()) } else { String::new() };
    let last = format!(
        "{:<48} {:>9} {:>12}  {checked}",
        "    total",
        human::duration(total),
        rate(rows_read, total)
    );
    console.print(&format!("{}\n", bold(last.trim_end())))?;
    console.print(&format!("{:<48} {:>9}\n", "    geometric mean", human::seconds(geometric_mean(&runs))))?;
    if checked.is_empty() {
        console.print("\nThe right answers are known at scales 0.01 and 1.\n")?;
    }
    console.print(
        "\nNext: one query with its answer    keirin demo --query 1\n\
         \x20     a file of your own           keirin -c \"FROM 'your.csv' LIMIT 10\"\n\
         \x20     the shell                    keirin\n",
    )?;
    if wrong > 0 { Err(Failure::Reported) } else { Ok(()) }
}

/// Shows one query: its text, its full answer, and whether that is right.
fn show_query(console: &mut Console, number: usize, scale: f64) -> Result<()> {
    let palette = console.terminal.stdout_palette();
    let title = format!("Query {number}: {}", tpch::TITLES[number - 1]);
    let sql = tpch::QUERIES[number - 1].trim();
    console.print(&format!(
        "{}\n\n{}\n\n",
        palette.paint(Style::new().bold(), &title),
        palette.paint(Style::new().dimmed(), sql)
    ))?;
    let run = run_query(console, number, scale)?;
    console.settings.rows_max = Some(0);
    console.show_batches(&run.batches)?;
    let verdict = match &run.verdict {
        Some(Ok(())) => "the answer is right".to_owned(),
        Some(Err(why)) => format!("the answer is WRONG: {}", escape_controls(why)),
        None => "the answer is not known at this scale".to_owned(),
    };
    let time = human::duration(run.elapsed);
    let rate = rate(run.rows_read, run.elapsed);
    console.print(&format!("{time}, {rate} rows/s, {verdict}\n"))?;
    if matches!(run.verdict, Some(Err(_))) { Err(Failure::Reported) } else { Ok(()) }
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn rate(rows: u64, elapsed: Duration) -> String {
    human::count(rows as f64 / elapsed.as_secs_f64().max(1e-9))
}

#[expect(clippy::cast_precision_loss, reason = "a handful of queries")]
fn geometric_mean(runs: &[(Duration, u64)]) -> f64 {
    let logarithms: f64 = runs.iter().map(|(elapsed, _)| elapsed.as_secs_f64().max(1e-9).ln()).sum();
    (logarithms / runs.len().max(1) as f64).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_geometric_mean_weighs_queries_alike() {
        let runs = [1, 100].map(|seconds| (Duration::from_secs(seconds), 7));
        assert!((geometric_mean(&runs) - 10.0).abs() < 1e-9);
        assert!((geometric_mean(&[]) - 1.0).abs() < 1e-9);
    }
}
