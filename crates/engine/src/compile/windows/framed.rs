//! Functions of the rows of frames: aggregates, and values of a row so far from the begin or the end.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt64Array, new_empty_array};
use arrow::compute::{concat, interleave, take};
use arrow::datatypes::Schema;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::window::WindowExpr;

use super::edges::{Edges, Rows};
use super::frames::{Frame, Frames};
use super::running::Running;
use super::sliding::{Merged, valid_before};

pub(super) enum What {
    Sliding(Running),
    Merged(Merged),
    /// The value of one row of the frame, or another if there is no such row.
    Value {
        of: Values,
        /// Counted from 1, or from the last row with -1.
        nth: i64,
        ignores_nulls: bool,
        default: ScalarValue,
    },
}

/// What has a value for each row.
pub(super) enum Values {
    Argument(Arc<dyn PhysicalExpr>),
    /// What the rows of the partition up to each row amount to: with frames that begin with the partition, its value of the
    /// last row is that of the frame, and rows before it are not needed. Where it is NULL, it is that of no row.
    Running(Box<Running>, Edges),
}

/// See the [module](self).
pub(super) struct Framed {
    frame: Frame,
    what: What,
    /// Those of the rows looked at last, and what the function is of.
    frames: Frames,
    arguments: Vec<ArrayRef>,
    known: Option<Known>,
}

/// The rows whose value is not NULL.
struct Known {
    rows: Vec<usize>,
    /// How many there are before each row, and in all.
    before: Vec<usize>,
}

impl What {
    /// Of frames that begin with the partition. `None` if its rows cannot be told from those of others.
    pub(super) fn up_to(
        expr: &Arc<dyn WindowExpr>,
        running: Running,
        schema: &Schema,
    ) -> Result<Option<Self>> {
        let default = running.default()?;
        let partitions = Edges::new(expr.partition_by().to_vec(), schema)?;
        Ok(partitions.map(|partitions| {
            let of = Values::Running(Box::new(running), partitions);
            Self::Value { of, nth: -1, ignores_nulls: false, default }
        }))
    }
}

impl Framed {
    pub(super) fn new(frame: Frame, what: What) -> Self {
        Self { frame, what, frames: Frames::default(), arguments: Vec::new(), known: None }
    }

    pub(super) fn look(&mut self, rows: &Rows<'_>) -> Result<()> {
        let batch = rows.batch;
        self.frames = self.frame.find(batch)?;
        let evaluate =
            |argument: &Arc<dyn PhysicalExpr>| argument.evaluate(batch)?.into_array(batch.num_rows());
        self.arguments = match &mut self.what {
            What::Sliding(running) => vec![evaluate(&running.argument)?],
            What::Merged(merged) => merged.arguments().iter().map(evaluate).collect::<Result<_>>()?,
            What::Value { of: Values::Argument(argument), .. } => vec![evaluate(argument)?],
            What::Value { of: Values::Running(running, partitions), .. } => {
                let mut values = std::mem::take(&mut self.arguments);
                let seen = values.first().map_or(0, Array::len);
                if seen < batch.num_rows() {
                    let new = batch.slice(seen, batch.num_rows() - seen);
                    partitions.see(&new)?;
                    values.push(running.column(&new, &partitions.starts, None)?);
                }
                let values: Vec<&dyn Array> = values.iter().map(AsRef::as_ref).collect();
                vec![concat(&values)?]
            }
        };
        self.known = match &self.what {
            What::Value { ignores_nulls: true, .. } => self.arguments[0]
                .logical_nulls()
                .map(|nulls| Known { rows: nulls.valid_indices().collect(), before: valid_before(&nulls) }),
            _ => None,
        };
        Ok(())
    }

    /// The first row from `first` to `end` of which not all that decides its value was looked at, or `end`.
    pub(super) fn end(&self, first: usize, end: usize) -> usize {
        let row_count = self.frames.ends.len();
        let open = self.frames.ends.partition_point(|end| *end < row_count).max(first);
        match &self.what {
            What::Value { nth: 1.., .. } => (open..end).find(|row| self.place(*row).is_none()).unwrap_or(end),
            _ => end.min(open),
        }
    }

    /// The first row that is wanted for the values of rows from `end` on.
    pub(super) fn needed(&self, end: usize) -> usize {
        // Rows that follow all these begin no earlier than the last of them.
        let row = end.min(self.frames.starts.len() - 1);
        let start = self.frames.starts[row];
        let needed = match &self.what {
            What::Value { of: Values::Running(..), .. } => start.max(self.frames.ends[row].saturating_sub(1)),
            What::Value { nth: ..=1, .. } if !self.frames.has_exclusions() => {
                self.place(row).unwrap_or(start)
            }
            _ => start,
        };
        needed.min(end)
    }

    /// Forgets what it knows of the rows before this one.
    pub(super) fn forget(&mut self, row: usize) -> Result<()> {
        let arguments = std::mem::take(&mut self.arguments);
        if let (What::Value { of: Values::Running(..), .. }, Some(values)) = (&self.what, arguments.first()) {
            let rest = values.slice(row, values.len() - row);
            // In a buffer of its own.
            self.arguments = vec![concat(&[rest.as_ref(), new_empty_array(rest.data_type()).as_ref()])?];
        }
        (self.frames, self.known) = (Frames::default(), None);
        Ok(())
    }

    /// The row whose value is that of the function.
    fn place(&self, row: usize) -> Option<usize> {
        let What::Value { of, nth, .. } = &self.what else { return None };
        let among = self.frames.pieces(row).map(|piece| match &self.known {
            Some(known) => known.before[piece.start]..known.before[piece.end],
            None => piece,
        });
        // Others that come first.
        let mut others = usize::try_from(nth.unsigned_abs()).ok()?.checked_sub(1)?;
        let mut skipped = |piece: &Range<usize>| {
            let skipped = others;
            others = others.saturating_sub(piece.len());
            (skipped < piece.len()).then_some(skipped)
        };
        let place = match nth {
            0.. => among.into_iter().find_map(|piece| skipped(&piece).map(|skipped| piece.start + skipped)),
            _ => among
                .into_iter()
                .rev()
                .find_map(|piece| skipped(&piece).map(|skipped| piece.end - 1 - skipped)),
        }?;
        let place = self.known.as_ref().map_or(place, |known| known.rows[place]);
        let is_none = matches!(of, Values::Running(..)) && self.arguments[0].is_null(place);
        (!is_none).then_some(place)
    }

    pub(super) fn column(&self, rows: Range<usize>) -> Result<ArrayRef> {
        Ok(match &self.what {
            What::Sliding(running) => running.of_frames(&self.arguments[0], &self.frames, rows)?,
            What::Merged(merged) => merged.of_frames(&self.arguments, &self.frames, rows)?,
            What::Value { default, .. } if default.is_null() => {
                let places: UInt64Array = rows.map(|row| self.place(row).map(|place| place as u64)).collect();
                take(&self.arguments[0], &places, None)?
            }
            What::Value { default, .. } => {
                let default = default.to_array_of_size(1)?;
                let places = rows.map(|row| self.place(row).map_or((1, 0), |place| (0, place)));
                interleave(&[&self.arguments[0], &default], &places.collect::<Vec<_>>())?
            }
        })
    }
}
