//! Joins of a part that has one key, or a few, in more rows than there is memory for: the build side is cut into pieces, on
//! disk, and each piece is joined with all probe rows. Which probe rows have no pair is known after the last piece: those
//! that had none with a piece go on to the next one.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, new_null_array};
use datafusion::common::{JoinSide, internal_err, resources_err};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::utils::ColumnIndex;
use datafusion::physical_plan::metrics::BaselineMetrics;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, TryStreamExt};
use keirin_operators::join::Kind;

use super::run::{Work, begin};
use super::spilled::Spilling;
use crate::compile::parts::PartExec;

/// A build side is cut into so many pieces, and a piece again if there is no memory for it.
const PIECES: usize = 8;

/// What is left to be joined.
pub(super) struct Pieces {
    work: Arc<Work>,
    left: VecDeque<Arc<dyn ExecutionPlan>>,
    right: Arc<dyn ExecutionPlan>,
    /// The probe rows that had no pair so far, if those are asked for; none when they were given.
    rest: Option<Arc<dyn ExecutionPlan>>,
    /// The piece whose pairs were given.
    given: Option<Arc<dyn ExecutionPlan>>,
    spilling: Spilling,
    context: Arc<TaskContext>,
}

/// Cuts the build side of a part.
pub(super) async fn cut(
    left: &Arc<dyn ExecutionPlan>,
    spilling: &Spilling,
    context: &Arc<TaskContext>,
) -> Result<VecDeque<Arc<dyn ExecutionPlan>>> {
    let Some(part) = left.downcast_ref::<PartExec>() else {
        return internal_err!("a join is cut into pieces before it was cut into parts");
    };
    if part.row_count() < 2 {
        return resources_err!("a row of a join takes more memory than there is");
    }
    let piece_rows = part.row_count().div_ceil(PIECES);
    let mut rows = left.execute(0, context.clone())?;
    let mut pieces = VecDeque::new();
    let new_file = || spilling.new_file(&left.schema(), context);
    let mut piece = new_file();
    while let Some(mut batch) = rows.next().await.transpose()? {
        while batch.num_rows() > 0 {
            let count = batch.num_rows().min(piece_rows - piece.row_count());
            piece.append(&batch.slice(0, count))?;
            batch = batch.slice(count, batch.num_rows() - count);
            if piece.row_count() == piece_rows {
                let mut full = std::mem::replace(&mut piece, new_file());
                pieces.push_back(Arc::new(full.finish()?) as Arc<dyn ExecutionPlan>);
            }
        }
    }
    if piece.row_count() > 0 {
        pieces.push_back(Arc::new(piece.finish()?));
    }
    Ok(pieces)
}

impl Pieces {
    /// Joins pieces with probe rows of one partition.
    pub(super) fn new(
        work: Arc<Work>,
        left: VecDeque<Arc<dyn ExecutionPlan>>,
        right: Arc<dyn ExecutionPlan>,
        context: Arc<TaskContext>,
        spilling: Spilling,
    ) -> Self {
        let rest = work.kind.gives_unpaired_probe_rows().then(|| right.clone());
        Self { work, left, right, rest, given: None, spilling, context }
    }

    /// The next rows of the join.
    pub(super) async fn next(
        &mut self,
        baseline: BaselineMetrics,
    ) -> Result<Option<SendableRecordBatchStream>> {
        loop {
            if let Some(piece) = self.given.take()
                && let Some(rest) = &self.rest
                && !(self.left.is_empty() && self.work.kind == Kind::RightSemi)
            {
                self.rest = Some(self.without_pair(&piece, rest).await?);
            }
            let Some(piece) = self.left.pop_front() else {
                let gives_rest = self.work.kind != Kind::RightSemi;
                let rest = self.rest.take().filter(|_| gives_rest);
                let Some(rest) = rest else { return Ok(None) };
                let rows = rest.execute(0, self.context.clone())?;
                let counted = rows.inspect_ok(move |batch| {
                    baseline.record_output(batch.num_rows());
                });
                let rows = Box::pin(RecordBatchStreamAdapter::new(self.right.schema(), counted));
                return self.given_as(rows, false).map(Some);
            };
            self.given = Some(piece.clone());
            let (kind, rest) = match self.work.kind {
                Kind::Right => (Kind::Inner, None),
                Kind::Full => (Kind::Left, None),
                Kind::RightSemi | Kind::RightMark => (Kind::RightSemi, self.rest.clone()),
                Kind::RightAnti => continue,
                kind => (kind, None),
            };
            let rows = match rest {
                None => {
                    let work = Arc::new(Work { kind, ..self.work.as_ref().clone() });
                    self.joined(&work, &piece, &self.right, baseline).await?
                }
                Some(rest) => {
                    let rows = self.joined(&self.of_probe_rows(kind), &piece, &rest, baseline).await?;
                    self.given_as(rows, true)?
                }
            };
            return Ok(Some(rows));
        }
    }

    async fn joined(
        &self,
        work: &Arc<Work>,
        piece: &Arc<dyn ExecutionPlan>,
        right: &Arc<dyn ExecutionPlan>,
        baseline: BaselineMetrics,
    ) -> Result<SendableRecordBatchStream> {
        let run = begin(work, piece, right, &self.context, Some(self.spilling.clone()));
        run.stream(0, baseline).await
    }

    /// A join that gives all columns of the probe side.
    fn of_probe_rows(&self, kind: Kind) -> Arc<Work> {
        let schema = self.right.schema();
        let column = |index| ColumnIndex { index, side: JoinSide::Right };
        let output = (0..schema.fields().len()).map(column).collect();
        Arc::new(Work { kind, output, schema, ..self.work.as_ref().clone() })
    }

    /// The rows of `rest` that have no pair with a piece, on disk.
    async fn without_pair(
        &self,
        piece: &Arc<dyn ExecutionPlan>,
        rest: &Arc<dyn ExecutionPlan>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let work = self.of_probe_rows(Kind::RightAnti);
        let mut rows = self.joined(&work, piece, rest, self.spilling.unseen()).await?;
        let mut file = self.spilling.new_file(&self.right.schema(), &self.context);
        while let Some(batch) = rows.try_next().await? {
            file.append(&batch)?;
        }
        Ok(Arc::new(file.finish()?))
    }

    /// Probe rows as rows of the join: with no build row, and whether they have a pair.
    fn given_as(&self, rows: SendableRecordBatchStream, is_met: bool) -> Result<SendableRecordBatchStream> {
        let work = self.work.clone();
        let given = rows.map(move |batch| work.of_probe_rows(&batch?, is_met));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.work.schema.clone(), given)))
    }
}

impl Work {
    fn of_probe_rows(&self, batch: &RecordBatch, is_met: bool) -> Result<RecordBatch> {
        let count = batch.num_rows();
        let columns = self.output.iter().zip(self.schema.fields()).map(|(column, field)| match column.side {
            JoinSide::Right => batch.column(column.index).clone(),
            JoinSide::Left => new_null_array(field.data_type(), count),
            JoinSide::None => Arc::new(BooleanArray::from(vec![is_met; count])) as ArrayRef,
        });
        self.batch(columns.collect(), count)
    }
}
