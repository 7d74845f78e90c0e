//! What the partitions of a scan do: they take stripes from one list until there are no more, or from runs of
//! their own, and read what filters leave of them.

use std::any::Any;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::metrics::{BaselineMetrics, Count};
use parking_lot::Mutex;

use super::super::administration::details;
use super::super::open::{OpenPart, OpenTable, Place};
use super::ahead::Ahead;
use super::filter::Filter;
use super::prune::{self, First, excludes, kept, over_statistics};
use super::read::{ReadCounts, Rest, Stripe, external};
use crate::runtime::{steps, work};
use crate::sources::narrowing::Narrowing;

/// What the partitions of a run share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) table: Arc<OpenTable>,
    pub(super) projection: Vec<usize>,
    pub(super) schema: SchemaRef,
    pub(super) filters: Vec<Filter>,
    pub(super) condition: Option<Arc<dyn PhysicalExpr>>,
    pub(super) first: Option<First>,
    /// Stripes that may have rows: the places of their parts, and theirs in the parts.
    pub(super) stripes: OnceLock<Vec<(usize, usize)>>,
    /// For some of the stripes which of their zones may have rows.
    pub(super) zones: OnceLock<HashMap<(usize, usize), Vec<bool>>>,
    pub(super) next: AtomicUsize,
    /// By part: see [`Self::worths`].
    pub(super) worths: OnceLock<Vec<usize>>,
    pub(super) ahead: Ahead,
    /// What the partitions that are done have handed in, merged.
    pub(super) handed_in: Mutex<HandedIn>,
}

#[derive(Debug, Default)]
pub(super) struct HandedIn {
    partitions: usize,
    merged: Option<Box<dyn Any + Send>>,
}

impl Shared {
    /// The stripes, chosen by the first that asks; `pruned` counts those that are left out.
    fn stripes(&self, pruned: &Count, rows_pruned: &Count) -> &[(usize, usize)] {
        self.stripes.get_or_init(|| {
            let predicate =
                self.condition.as_ref().and_then(|condition| over_statistics(condition, &self.table));
            let columns: Vec<usize> =
                self.condition.iter().flat_map(collect_columns).map(|column| column.index()).collect();
            let (mut stripes, mut in_zones) = (Vec::new(), HashMap::new());
            for (place, part) in self.table.parts.iter().enumerate() {
                // A part that cannot be opened is an error when its turn comes.
                let Ok(part) = part else {
                    stripes.push((place, 0));
                    continue;
                };
                let mut kept = kept(&self.table, part, 0..part.reader.stripe_count(), predicate.as_deref());
                if let Some(predicate) = predicate.as_deref().filter(|_| kept.contains(&true)) {
                    for (stripe, zones) in details::zones(&self.table, part, &kept, predicate, &columns) {
                        kept[stripe] = zones.contains(&true);
                        in_zones.insert((place, stripe), zones);
                    }
                }
                for (stripe, is_kept) in kept.into_iter().enumerate() {
                    if is_kept {
                        stripes.push((place, stripe));
                    } else {
                        let rows = part.reader.stripe(stripe);
                        pruned.add(1);
                        rows_pruned.add(usize::try_from(rows.end - rows.start).unwrap_or(0));
                    }
                }
            }
            if let Some(first) = self.first {
                prune::order(&self.table, first, &mut stripes);
            }
            _ = self.zones.set(in_zones);
            stripes
        })
    }

    /// Takes the next stripes of a part that lie one behind the other: an even number, for sums read them by turns, and
    /// as many as are worth it, but few when the end is near, that all partitions come to it at about the same time.
    fn take_run(&self, stripes: &[(usize, usize)], partitions: usize) -> Range<usize> {
        let mut start = self.next.load(Ordering::Relaxed);
        while let Some((place, first)) = stripes.get(start).copied() {
            let most = self.worths()[place].min((stripes.len() - start) / (4 * partitions) / 2 * 2).max(1);
            let is_next = |(index, stripe): &(usize, &(usize, usize))| **stripe == (place, first + index);
            let end = start + stripes[start..].iter().enumerate().take(most).take_while(is_next).count();
            match self.next.compare_exchange_weak(start, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return start..end,
                Err(next) => start = next,
            }
        }
        0..0
    }

    /// How many stripes of each part are worth taking at a time, if they are like its first.
    fn worths(&self) -> &[usize] {
        let worth = |part: &Result<_, _>| part.as_ref().map_or(1, |part| self.worth(part));
        self.worths.get_or_init(|| self.table.parts.iter().map(worth).collect())
    }

    /// One where nothing is read as it lies in a file of this machine.
    fn worth(&self, part: &OpenPart) -> usize {
        /// Sums of so many bytes are about as fast as of more.
        const BYTES: u64 = 2 << 20;
        const STRIPES_MAX: u64 = 16;
        if part.reader.stripe_count() == 0 || part.reader.is_fetched() {
            return 1;
        }
        let raw = self.projection.iter().map(|index| match part.column(*index) {
            Place::Here(column) => {
                let stored = part.reader.stored_bytes(*column, 0);
                if stored >= part.reader.value_bytes(*column, 0) { stored } else { 0 }
            }
            _ => 0,
        });
        match raw.sum() {
            0 => 1,
            bytes => (BYTES / bytes).clamp(1, STRIPES_MAX).next_multiple_of(2) as usize,
        }
    }
}

/// What so many columns of the stripe of a part take when they are decoded, about.
fn decoded_bytes<'a>(part: &OpenPart, columns: impl IntoIterator<Item = &'a usize>, stripe: usize) -> usize {
    let bytes = columns.into_iter().map(|index| match part.column(*index) {
        Place::Here(column) | Place::Cast(column, _) => part.reader.value_bytes(*column, stripe),
        _ => 0,
    });
    usize::try_from(bytes.sum::<u64>()).unwrap_or(usize::MAX)
}

fn one(stripe: usize) -> Range<usize> {
    stripe..stripe + 1
}

/// One partition of a run.
pub(crate) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) narrowing: Option<Narrowing>,
    /// Which run of the list it reads, unless it takes what comes.
    pub(super) run: Option<usize>,
    /// Whether it takes several stripes at a time.
    pub(super) takes_runs: bool,
    /// How many partitions there are, which is how many runs.
    pub(super) partitions: usize,
    /// Whether a run is a part.
    pub(super) is_by_part: bool,
    /// What is left of its run.
    pub(super) own: Option<Range<usize>>,
    /// How far ahead of it files were told what will be read.
    pub(super) ahead: Ahead,
    pub(super) remaining: Option<usize>,
    /// Columns of batches that are dictionaries or narrow where they are stored as such.
    pub(super) coded: Vec<usize>,
    /// Rows of a large stripe that were not read yet.
    pub(super) rest: Option<Rest>,
    /// Rows of about this size are read at a time.
    pub(super) read_bytes_max: usize,
    pub(super) reservation: MemoryReservation,
    pub(super) counts: ReadCounts,
    pub(super) stripes_read: Count,
    pub(super) stripes_pruned: Count,
    pub(super) baseline: BaselineMetrics,
    /// What it is measured as, where another operator's thread does its work.
    pub(super) measured: Option<Arc<steps::Step>>,
}

pub(crate) enum Step<T> {
    /// What was made of a stripe.
    Found(T),
    /// A stripe without rows that are wanted.
    Nothing,
    End,
}

/// A step of `worker`, who comes back, on a thread for such work.
pub(crate) async fn blocking_step<W: Send + 'static, T: Send + 'static>(
    mut worker: W,
    step: impl FnOnce(&mut W) -> Result<Step<T>> + Send + 'static,
) -> Result<(Step<T>, W)> {
    let task = work::spawn(move || (step(&mut worker), worker));
    let (step, worker) =
        task.join().await.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))?;
    Ok((step?, worker))
}

impl Worker {
    /// Has these columns of batches, whatever the schema says, as dictionaries if they are text that is stored as such, and
    /// as integers of 64 bits if they are decimals that have room there.
    pub(crate) fn with_coded(mut self, columns: Vec<usize>) -> Self {
        self.coded = columns;
        self
    }

    /// Takes several stripes at a time, which are worth more together, where no rows are left out.
    pub(super) fn take_runs(&mut self) {
        self.takes_runs = self.run.is_none() && self.remaining.is_none() && self.shared.condition.is_none();
    }

    /// What `read` makes of the next stripe of which rows pass all filters, or of the next stripes of a part.
    pub(super) fn step<T>(&mut self, read: impl FnOnce(&mut [Stripe<'_>]) -> Result<T>) -> Result<Step<T>> {
        self.step_within(usize::MAX, read)
    }

    /// As [`step`](Self::step); `read` decodes no more than about so many bytes of a stripe.
    fn step_within<T>(
        &mut self,
        bytes_max: usize,
        read: impl FnOnce(&mut [Stripe<'_>]) -> Result<T>,
    ) -> Result<Step<T>> {
        let _timer = self.baseline.elapsed_compute().timer();
        if self.remaining == Some(0) {
            return Ok(Step::End);
        }
        let shared = &*self.shared;
        let stripes = shared.stripes(&self.stripes_pruned, &self.counts.rows_dropped);
        let taken = match self.run {
            None if self.takes_runs => shared.take_run(stripes, self.partitions),
            None => one(shared.next.fetch_add(1, Ordering::Relaxed)),
            Some(run) => {
                let place = |run| match self.is_by_part {
                    true => stripes.partition_point(|(part, _)| *part < run),
                    false => stripes.len() * run / self.partitions,
                };
                let own = self.own.get_or_insert_with(|| place(run)..place(run + 1));
                own.next().map_or(0..0, one)
            }
        };
        let Some([(part_index, _), ..]) = stripes.get(taken.clone()) else { return Ok(Step::End) };
        let table = &shared.table;
        let part = table.parts[*part_index].as_ref().map_err(|error| external(error.clone()))?;
        let end = self.own.as_ref().map_or(stripes.len(), |own| own.end);
        let ahead = if self.own.is_some() { &self.ahead } else { &shared.ahead };
        if self.remaining.is_none() {
            ahead.expect(shared, taken.start..end);
        }
        let mut wanted = Vec::with_capacity(taken.len());
        for (_, number) in &stripes[taken] {
            let mut stripe = Stripe::new(table, (*part_index, part), *number, &self.counts);
            let narrowing = self.narrowing.as_mut();
            if narrowing.is_some_and(|narrowing| excludes(narrowing, table, part, stripe.number)) {
                self.stripes_pruned.add(1);
                self.counts.rows_dropped.add(stripe.row_count());
                continue;
            }
            self.stripes_read.add(1);
            let rows_before = stripe.row_count();
            // Runs of stripes are added up as they are stored.
            if !self.takes_runs {
                let filtered = shared.filters.iter().flat_map(|filter| filter.columns());
                self.reservation.try_grow(decoded_bytes(part, filtered, stripe.number))?;
            }
            if let Some(zones) = shared.zones.get().and_then(|zones| zones.get(&(*part_index, *number))) {
                stripe.keep_zones(zones)?;
            }
            stripe.filter(&shared.filters, self.remaining)?;
            let rows = stripe.row_count();
            if part.reader.is_fetched() {
                ahead.passed(rows > 0);
            }
            if rows == 0 {
                continue;
            }
            if !self.takes_runs {
                let bytes = decoded_bytes(part, &shared.projection, stripe.number);
                self.reservation.try_grow((bytes / rows_before.max(1) * rows).min(bytes_max))?;
            }
            part.expect(&shared.projection, stripe.number..stripe.number + 1);
            if let Some(remaining) = &mut self.remaining {
                *remaining -= rows;
            }
            self.baseline.record_output(rows);
            wanted.push(stripe);
        }
        if wanted.is_empty() { Ok(Step::Nothing) } else { Ok(Step::Found(read(&mut wanted)?)) }
    }

    /// The next rows: of a stripe, or of a slice of one that is large for the memory that there is.
    fn next_batch(&mut self) -> Result<Step<RecordBatch>> {
        let (shared, bytes_max, coded) = (self.shared.clone(), self.read_bytes_max, self.coded.clone());
        let read = |stripe: &mut Stripe<'_>| {
            let bytes = decoded_bytes(stripe.part, &shared.projection, stripe.number);
            let rows = stripe.part.reader.stripe(stripe.number);
            let row_bytes = bytes / usize::try_from(rows.end - rows.start).unwrap_or(usize::MAX).max(1);
            let rest = stripe.split_off((bytes_max / row_bytes.max(1)).max(1));
            Ok((stripe.coded_batch(&shared.projection, &coded, &shared.schema)?, rest))
        };
        let (batch, rest) = match self.rest.take() {
            Some(rest) => {
                let _timer = self.baseline.elapsed_compute().timer();
                self.reservation.try_grow(bytes_max)?;
                read(&mut rest.stripe(&shared.table, &self.counts)?)?
            }
            None => match self.step_within(bytes_max, |stripes| read(&mut stripes[0]))? {
                Step::Found(found) => found,
                Step::Nothing => return Ok(Step::Nothing),
                Step::End => return Ok(Step::End),
            },
        };
        self.rest = rest;
        Ok(Step::Found(batch))
    }

    /// The next rows. Where stripes have few or none, several are read at a time, for each change of threads takes
    /// about as long as a condition over a stripe that is easy to answer.
    pub(crate) fn next_batches(&mut self) -> Result<Step<Vec<RecordBatch>>> {
        /// Work after which a change of threads hardly counts.
        const WORK: Duration = Duration::from_millis(1);
        /// Rows that give whoever gets them enough to do.
        const ROWS_ENOUGH: usize = 8192;
        let measured = self.measured.clone();
        let _entered = measured.as_ref().map(steps::Step::enter);
        self.reservation.free();
        debug_assert!(!self.takes_runs, "a batch is one stripe's");
        // Whoever narrows a filter is to see rows before more are read, which it may exclude.
        let rows_enough = if self.narrowing.is_some() { 1 } else { ROWS_ENOUGH };
        let started = Instant::now();
        let (mut batches, mut rows, mut bytes) = (Vec::new(), 0, 0);
        loop {
            match self.next_batch()? {
                Step::Found(batch) => {
                    rows += batch.num_rows();
                    bytes += batch.get_array_memory_size();
                    self.book(bytes)?;
                    self.measured.iter().for_each(|step| step.gave(&batch));
                    batches.push(batch);
                }
                Step::Nothing => {}
                Step::End if batches.is_empty() => return Ok(Step::End),
                Step::End => break,
            }
            if rows >= rows_enough || self.rest.is_some() || started.elapsed() >= WORK {
                break;
            }
        }
        Ok(if batches.is_empty() { Step::Nothing } else { Step::Found(batches) })
    }

    /// Whether it has given all rows of the stripes that it has begun.
    pub(crate) fn is_between_stripes(&self) -> bool {
        self.rest.is_none()
    }

    /// Whether there are no more stripes for it.
    pub(super) fn is_at_end(&self) -> bool {
        let is_taken = |stripes: &Vec<_>| self.shared.next.load(Ordering::Relaxed) >= stripes.len();
        let has_none = match (self.run, &self.own) {
            (None, _) => self.shared.stripes.get().is_some_and(is_taken),
            (Some(_), own) => own.as_ref().is_some_and(|own| own.is_empty()),
        };
        self.rest.is_none() && (has_none || self.remaining == Some(0))
    }

    /// Hands in what this partition made, once, to be merged with what those have that were done before; the last gets it
    /// all. As with the stripes, all partitions are to be executed here.
    pub(super) fn hand_in<T: Send + 'static>(&self, own: T, merge: impl FnOnce(&mut T, T)) -> Option<T> {
        let mut handed_in = self.shared.handed_in.lock();
        let before = handed_in.merged.take().and_then(|merged| merged.downcast::<T>().ok());
        let all = match before {
            Some(mut all) => {
                merge(&mut all, own);
                all
            }
            None => Box::new(own),
        };
        handed_in.partitions += 1;
        if handed_in.partitions == self.partitions {
            return Some(*all);
        }
        handed_in.merged = Some(all);
        None
    }

    /// Books so many bytes of memory.
    pub(super) fn book(&self, bytes: usize) -> Result<()> {
        self.reservation.try_resize(bytes)
    }
}
