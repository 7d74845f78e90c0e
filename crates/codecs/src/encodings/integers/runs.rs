//! Values, and the ends of their runs of equal rows.
//!
//! ```text
//! | run count: u32 | values | ends: the row behind each run |
//!                    `----- two columns ------------------'
//! ```
//! Good for sorted keys and values that seldom change. Comparisons and sums process each run once.

use std::fmt;
use std::ops::Range;

use keirin_kernels::compare::Comparison;
use keirin_kernels::decode::expand_runs;
use keirin_kernels::{BitBuffer, Level};

use super::{Int, Node};
use crate::encodings::{grouped, holds, set_bits};
use crate::reader::Reader;
use crate::writer::Writer;
use crate::{Error, Result};

pub(super) fn write<T: Int>(writer: &mut Writer, values: &[T]) -> bool {
    if values.is_empty() || !writer.may_nest() {
        return false;
    }
    let (mut run_values, mut ends) = (Vec::new(), Vec::new());
    let mut end = 0_u32;
    for run in values.chunk_by(T::eq) {
        end += u32::try_from(run.len()).expect("a block has fewer than 2^32 rows");
        run_values.push(run[0]);
        ends.push(end);
    }
    writer.count(ends.len());
    writer.nested(|writer| {
        super::write(writer, &run_values);
        super::write(writer, &ends);
    });
    true
}

#[derive(Debug)]
pub(super) struct Runs<T> {
    values: Vec<T>,
    /// The ends of runs, ascending; the last is the row count.
    ends: Vec<u32>,
    count: usize,
}

impl<T: Int> Runs<T> {
    pub(super) fn open(reader: &mut Reader<'_>, count: usize) -> Result<Self> {
        let run_count = reader.count(count, "more runs than rows")?;
        let values = super::read(reader, run_count)?;
        let ends = super::read_ends(reader, run_count, count)?;
        Ok(Self { values, ends, count })
    }

    /// The index of the run with this row.
    fn run(&self, row: usize) -> usize {
        self.ends.partition_point(|end| *end as usize <= row)
    }

    /// As [`Self::run`], for a row behind a run: the nearest runs are looked at first, in steps that double.
    fn run_behind(&self, run: usize, row: u32) -> usize {
        let (mut before, mut step) = (run, 1);
        while self.ends.get(before + step).is_some_and(|end| *end <= row) {
            before += step;
            step *= 2;
        }
        let nearest = &self.ends[before + 1..self.ends.len().min(before + step)];
        before + 1 + nearest.partition_point(|end| *end <= row)
    }

    /// The value and the rows of each run in a range; rows are relative to the start of the range.
    fn runs(&self, rows: Range<usize>) -> impl Iterator<Item = (T, Range<usize>)> {
        let first = if rows.is_empty() { self.ends.len() } else { self.run(rows.start) };
        let mut start = rows.start;
        self.values[first..].iter().zip(&self.ends[first..]).map_while(move |(value, end)| {
            let end = (*end as usize).min(rows.end);
            let run = start - rows.start..end - rows.start;
            start = end;
            (!run.is_empty()).then_some((*value, run))
        })
    }
}

impl<T: Int> Node<T> for Runs<T> {
    fn len(&self) -> usize {
        self.count
    }

    fn decode_into(&self, level: Level, first: usize, out: &mut [T]) -> Result<()> {
        let run = self.run(first);
        let first = u32::try_from(first).expect("a block has fewer than 2^32 rows");
        expand_runs(level, &self.values[run..], &self.ends[run..], first, out);
        Ok(())
    }

    fn take(&self, _: Level, rows: &[u32], out: &mut Vec<T>) -> Result<()> {
        let mut run = 0;
        out.extend(rows.iter().map(|row| {
            // Rows mostly ascend: the run of the next one is the same, or not far behind it.
            if self.ends[run] <= *row {
                run = self.run_behind(run, *row);
            } else if run > 0 && self.ends[run - 1] > *row {
                run = self.run(*row as usize);
            }
            self.values[run]
        }));
        Ok(())
    }

    fn compare(&self, _: Level, comparison: Comparison, constant: T) -> Result<BitBuffer> {
        let mut words = vec![0_u64; self.count.div_ceil(64)];
        for (value, run) in self.runs(0..self.count) {
            if holds(comparison, value, constant) {
                set_bits(&mut words, run);
            }
        }
        Ok(BitBuffer::from_words(words, self.count))
    }

    fn sum(&self, _: Level, rows: Range<usize>) -> Result<i128> {
        self.runs(rows).try_fold(0_i128, |sum, (value, run)| {
            let product = value.to_i128().checked_mul(run.len() as i128).ok_or(Error::SumOverflow)?;
            sum.checked_add(product).ok_or(Error::SumOverflow)
        })
    }

    fn decode_ns(&self) -> f64 {
        self.ends.len() as f64 * 2.0 + (self.count * T::BYTES) as f64 * 0.01
    }

    fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "runs({})", grouped(self.ends.len()))
    }
}
