//! The progress bar: for statements that take longer than half a second, on a terminal, on standard
//! error, gone when the answer comes.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::render::human;

/// Answers that come sooner need no bar.
const PATIENCE: Duration = Duration::from_millis(500);
/// Time between two pictures.
pub(crate) const REDRAW: Duration = Duration::from_millis(100);
/// Steps of the bar.
const STEPS: u32 = 1000;

pub(crate) struct Progress {
    started: Instant,
    drawn: Option<Instant>,
    enabled: bool,
    bar: Option<ProgressBar>,
    source: Option<keirin::Progress>,
    label: String,
}

impl Progress {
    /// A bar that appears when it is time, if `enabled`; `label` tells what is running.
    pub(crate) fn new(enabled: bool, label: impl Into<String>) -> Self {
        Self { started: Instant::now(), drawn: None, enabled, bar: None, source: None, label: label.into() }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// From now on the bar shows how far this query is.
    pub(crate) fn follow(&mut self, source: keirin::Progress) {
        self.source = Some(source);
    }

    /// Draws the bar as things stand.
    pub(crate) fn draw(&mut self) {
        let elapsed = self.elapsed();
        let drawn_lately = self.drawn.is_some_and(|drawn| drawn.elapsed() < REDRAW / 2);
        if !self.enabled || elapsed < PATIENCE || drawn_lately {
            return;
        }
        self.drawn = Some(Instant::now());
        let fraction = self.source.as_ref().and_then(keirin::Progress::fraction);
        let bar = self.bar.get_or_insert_with(|| {
            ProgressBar::with_draw_target(Some(STEPS.into()), ProgressDrawTarget::stderr())
        });
        let template =
            if fraction.is_some() { "{prefix}{bar:24} {wide_msg}" } else { "{prefix}{spinner} {wide_msg}" };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("━╸─"));
        }
        bar.set_prefix(self.label.clone());
        bar.set_position(fraction.map_or(0, steps));
        let (rows, bytes) = self.source.as_ref().map_or((0, 0), |source| (source.rows(), source.bytes()));
        bar.set_message(message(rows, bytes, fraction, elapsed));
        bar.tick();
    }

    /// Takes the bar away; it does not come back.
    pub(crate) fn clear(&mut self) {
        self.enabled = false;
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

#[expect(clippy::cast_possible_truncation, reason = "of 0 to 1000")]
fn steps(fraction: f64) -> u64 {
    (fraction.clamp(0.0, 1.0) * f64::from(STEPS)) as u64
}

/// `43 %, 102 M rows, 1.2 GB, 45 M rows/s, 3 s left`, as far as it is known.
fn message(rows: u64, bytes: u64, fraction: Option<f64>, elapsed: Duration) -> String {
    let mut parts = Vec::new();
    if let Some(fraction) = fraction {
        parts.push(format!("{:.0} %", (fraction * 100.0).floor()));
    }
    if rows > 0 {
        parts.push(format!("{} rows", human::count(rows as f64)));
    }
    if bytes > 0 {
        parts.push(human::bytes(bytes as f64));
    }
    if rows > 0 {
        parts.push(format!("{} rows/s", human::count(rows as f64 / elapsed.as_secs_f64())));
    }
    match fraction {
        // The first per cent says little about the rest.
        Some(fraction) if fraction > 0.01 => {
            let left = elapsed.as_secs_f64() * (1.0 - fraction) / fraction;
            parts.push(format!("{} left", human::duration_coarse(left)));
        }
        _ => parts.push(human::duration_coarse(elapsed.as_secs_f64())),
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_says_what_is_known() {
        let check = |rows, bytes, fraction, seconds, expected: &str| {
            assert_eq!(message(rows, bytes, fraction, Duration::from_secs(seconds)), expected);
        };
        check(0, 0, None, 2, "2 s");
        check(3_000_000, 0, None, 2, "3.0 M rows, 1.5 M rows/s, 2 s");
        check(3_000_000, 24_000_000, Some(0.25), 2, "25 %, 3.0 M rows, 24 MB, 1.5 M rows/s, 6 s left");
        check(1, 0, Some(0.001), 90, "0 %, 1 rows, 0 rows/s, 1 min 30 s");
    }
}
