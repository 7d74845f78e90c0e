//! The progress bar, on standard error if that is a terminal: it shows for statements that take longer than half a
//! second, and is cleared before the answer.
//!
//! One line, rewritten in place. It leaves room for the `^C` that the terminal echoes: if that wrapped, the line
//! could not be cleared.

use std::io::Write;
use std::time::{Duration, Instant};

use nu_ansi_term::{Color, Style};
use unicode_width::UnicodeWidthStr;

use crate::render::human;
use crate::terminal::{Palette, Terminal};

/// How long a statement runs before the bar appears.
const PATIENCE: Duration = Duration::from_millis(500);
/// Time between two redraws.
pub(crate) const REDRAW: Duration = Duration::from_millis(100);
/// Width of the bar, in characters.
const BAR_WIDTH: usize = 24;
/// Room for the echo of Ctrl-C.
const MARGIN: usize = 3;
const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

pub(crate) struct Progress {
    started: Instant,
    enabled: bool,
    palette: Palette,
    label: String,
    source: Option<keirin::Progress>,
    drawn: Option<Instant>,
    pictures: usize,
}

impl Progress {
    /// A bar that appears after [`PATIENCE`]; `label` tells what is running.
    pub(crate) fn new(label: &str, palette: Palette) -> Self {
        Self {
            started: Instant::now(),
            enabled: true,
            palette,
            label: label.to_owned(),
            source: None,
            drawn: None,
            pictures: 0,
        }
    }

    /// Measures the time and shows nothing.
    pub(crate) fn hidden() -> Self {
        let mut progress = Self::new("", Palette::default());
        progress.enabled = false;
        progress
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Shows the progress of this query from now on.
    pub(crate) fn follow(&mut self, source: keirin::Progress) {
        self.source = Some(source);
    }

    /// Draws the current state of the bar.
    pub(crate) fn draw(&mut self) {
        let elapsed = self.elapsed();
        let drawn_lately = self.drawn.is_some_and(|drawn| drawn.elapsed() < REDRAW / 2);
        if !self.enabled || elapsed < PATIENCE || drawn_lately {
            return;
        }
        self.drawn = Some(Instant::now());
        self.pictures += 1;
        let fraction = self.source.as_ref().and_then(keirin::Progress::fraction);
        let (rows, bytes) = self.source.as_ref().map_or((0, 0), |source| (source.rows(), source.bytes()));
        let message = message(rows, bytes, fraction, elapsed);
        let (done, left) =
            fraction.map_or((SPINNER[self.pictures % SPINNER.len()].to_owned(), String::new()), bar);
        let room = Terminal::width().saturating_sub(MARGIN);
        let width = self.label.width() + done.width() + left.width() + 1 + message.width();
        let line = if width <= room {
            let done = self.palette.paint(Style::new().fg(Color::Cyan), &done);
            format!("{}{done}{} {message}", self.label, self.palette.paint(Style::new().dimmed(), &left))
        } else {
            message.chars().take(room).collect()
        };
        // A bar that cannot be drawn is no reason to fail.
        let _ = write!(std::io::stderr(), "\r{line}\x1b[K");
    }

    /// Removes the bar for good.
    pub(crate) fn clear(&mut self) {
        self.enabled = false;
        if self.drawn.take().is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The part of the bar that is done, and the rest.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "of 0 to 24")]
#[expect(clippy::cast_precision_loss, reason = "24 is exact")]
fn bar(fraction: f64) -> (String, String) {
    let done = (fraction.clamp(0.0, 1.0) * BAR_WIDTH as f64).round() as usize;
    ("━".repeat(done), "─".repeat(BAR_WIDTH - done))
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
    fn the_bar_is_as_long_as_what_is_done() {
        let check = |fraction, done: usize| assert_eq!(bar(fraction).0.chars().count(), done, "{fraction}");
        check(0.0, 0);
        check(0.5, 12);
        check(1.0, 24);
        check(7.0, 24);
    }

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
