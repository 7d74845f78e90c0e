//! The knowledge of races as text.
//!
//! ```text
//! keirin races 1
//! AMD EPYC 9R45
//! lz4 <tab> text <tab> hits.URL <tab> wide <tab> 212.5 <tab> 81.3
//! ```
//! The second line is the CPU; then comes a line for each arm: kernel, class, stream, arm, the mean in picoseconds
//! per unit and the variance of single times. Names have their tabs, line ends and backslashes escaped.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use crate::race::ARM_COUNT_MAX;
use crate::races::Key;

const HEADER: &str = "keirin races 1";
/// Times above an hour per unit are invalid.
const MEAN_MAX: f32 = 3.6e15;

/// What is known of an arm.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Record {
    pub(crate) arm: String,
    pub(crate) mean: f32,
    pub(crate) noise: f32,
}

/// The text of what was learned cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// It was not written by this version of Keirin.
    Header {
        /// The first line.
        found: String,
    },
    /// A line is damaged.
    Line {
        /// Its number, counted from one.
        line: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// There are more races than are ever kept.
    TooMany {
        /// The most that are taken.
        limit: usize,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header { found } => write!(f, "races begin with {found:?}, expected {HEADER:?}"),
            Self::Line { line, problem } => write!(f, "line {line} of the races: {problem}"),
            Self::TooMany { limit } => write!(f, "more than {limit} races"),
        }
    }
}

impl std::error::Error for LoadError {}

/// Writes records for one CPU.
pub(crate) fn write<'a>(cpu: &str, records: impl Iterator<Item = (&'a Key, Record)>) -> String {
    let mut text = format!("{HEADER}\n{}\n", escaped(cpu));
    for (key, record) in records {
        for name in [&key.kernel, &key.class, &key.stream, &record.arm] {
            text.push_str(&escaped(name));
            text.push('\t');
        }
        let _ = writeln!(text, "{}\t{}", record.mean, record.noise);
    }
    text
}

/// Reads what [`write`] wrote; `None` if it holds for another CPU.
pub(crate) fn read(
    text: &str,
    cpu: &str,
    race_count_max: usize,
) -> Result<Option<BTreeMap<Key, Vec<Record>>>, LoadError> {
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default();
    if header != HEADER {
        return Err(LoadError::Header { found: header.chars().take(40).collect() });
    }
    if lines.next() != Some(&escaped(cpu)) {
        return Ok(None);
    }
    let mut races = BTreeMap::<Key, Vec<Record>>::new();
    for (index, line) in lines.enumerate() {
        let (key, record) = parse(line).map_err(|problem| LoadError::Line { line: index + 3, problem })?;
        let arms = races.entry(key).or_default();
        arms.push(record);
        if arms.len() > ARM_COUNT_MAX {
            return Err(LoadError::Line { line: index + 3, problem: "more arms than a race has" });
        }
        if races.len() > race_count_max {
            return Err(LoadError::TooMany { limit: race_count_max });
        }
    }
    Ok(Some(races))
}

fn parse(line: &str) -> Result<(Key, Record), &'static str> {
    let mut fields = line.split('\t');
    let found = [(); 6].map(|()| fields.next());
    let ([Some(kernel), Some(class), Some(stream), Some(arm), Some(mean), Some(noise)], None) =
        (found, fields.next())
    else {
        return Err("expected six fields");
    };
    let key = Key { kernel: unescaped(kernel)?, class: unescaped(class)?, stream: unescaped(stream)? };
    let mean = mean.parse().map_err(|_| "the mean is no number")?;
    let noise = noise.parse().map_err(|_| "the variance is no number")?;
    if !(0.0..MEAN_MAX).contains(&mean) || mean == 0.0 || !(0.0..MEAN_MAX * MEAN_MAX).contains(&noise) {
        return Err("mean and variance must be positive times");
    }
    Ok((key, Record { arm: unescaped(arm)?, mean, noise }))
}

fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r")
}

fn unescaped(name: &str) -> Result<String, &'static str> {
    let mut result = String::with_capacity(name.len());
    let mut characters = name.chars();
    while let Some(character) = characters.next() {
        result.push(match character {
            '\\' => match characters.next() {
                Some('\\') => '\\',
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                _ => return Err("a backslash that escapes nothing"),
            },
            other => other,
        });
    }
    Ok(result)
}
