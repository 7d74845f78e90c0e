//! How rows change: old ones are marked as deleted, and new ones written, in one commit.
//!
//! The rows are searched in the version with which the transaction began. So at the commit storage detects
//! whether another commit changed the same rows; then all is done again on the newer version.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::UInt64Type;
use datafusion::catalog::TableProvider;
use datafusion::common::Column;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::logical_expr::{Expr as LogicalExpr, LogicalPlan, LogicalPlanBuilder};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::sqlparser::ast::{Expr, Ident};
use futures::{StreamExt, TryStreamExt};
use keirin_kernels::{BitBuffer, Level};
use keirin_storage::{DeletionVector, Part, Table, Transaction};
use parking_lot::Mutex;

use super::{ROW_NUMBER, Target};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::progress::Progress;
use crate::session::Session;
use crate::sources::stored::{
    Partitions, PartsWriter, StoredTable, Threads, add_in_order, blocking, check_unchanged, remove_all, sole,
    write_stream,
};
use crate::statements::Answer;
use crate::statements::query::Run;

/// How often a change is tried when other statements change the same rows.
const ATTEMPTS_MAX: usize = 5;

/// Deletes the rows that meet a condition; with `assigned` adds the changed rows in their place.
pub(super) async fn change(
    session: &Session,
    target: &Target,
    assigned: Option<&[(usize, Expr)]>,
    condition: Option<&Expr>,
) -> Result<Answer> {
    let table = &target.table;
    let progress = Progress::default();
    let _alone = table.store.change_alone(table.table.number).await;
    let mut attempts = 0;
    let count = loop {
        attempts += 1;
        match try_change(session, target, table, assigned, condition, &progress).await {
            Err(error) if error.kind() == ErrorKind::Conflict && attempts < ATTEMPTS_MAX => {}
            outcome => break outcome?,
        }
    };
    table.store.wake_upkeep();
    Ok(Answer::count(async move { Ok(count) }, progress))
}

/// Deletes all rows of a table.
pub(super) async fn truncate(table: StoredTable) -> Result<Answer> {
    let _alone = table.store.change_alone(table.table.number).await;
    let remove = move || {
        let number = table.table.number;
        let mut transaction = table.store.begin_rewriting(number)?;
        check_unchanged(&transaction, &table.table)?;
        remove_all(&mut transaction, number)?;
        transaction.commit()?;
        table.store.wake_upkeep();
        Ok(())
    };
    blocking(remove).await?;
    Ok(Answer::done())
}

async fn try_change(
    session: &Session,
    target: &Target,
    table: &StoredTable,
    assigned: Option<&[(usize, Expr)]>,
    condition: Option<&Expr>,
    progress: &Progress,
) -> Result<u64> {
    let (store, planned) = (table.store.clone(), table.table.clone());
    let transaction = blocking(move || {
        let transaction = store.begin_rewriting(planned.number)?;
        check_unchanged(&transaction, &planned)?;
        Ok(transaction)
    })
    .await?;
    let table = table.at(transaction.base());
    let number = table.table.number;
    if (assigned, condition) == (None, None) {
        let count = table.table.row_count();
        return commit(transaction, move |transaction| remove_all(transaction, number), count).await;
    }
    let definition = table.table.definition.clone();
    let session = session.at(transaction.base().clone());
    let partitions = Partitions::of(&session.state(), &definition)?;
    let plan = changing(&session, target, &table, &partitions, assigned, condition).await?;
    let run = Run::new(&session, plan, progress.clone());
    let rows = run.start().await?.map_err(|error| DataFusionError::External(Box::new(error)));
    let pool = &session.shared.environment.memory_pool;
    let booked = MemoryConsumer::new(format!("changes of table {}", definition.name)).register(pool);
    let numbers = Arc::new(Mutex::new(Numbers { numbers: Vec::new(), booked }));
    let found = numbers.clone();
    let mut rows = rows.map(move |batch| {
        let batch = batch?;
        found.lock().take(&batch)?;
        Ok::<_, DataFusionError>(batch.project(&(1..batch.num_columns()).collect::<Vec<_>>())?)
    });
    let transaction = Arc::new(transaction);
    let parts = if assigned.is_some() {
        let rows = Box::pin(RecordBatchStreamAdapter::new(table.schema(), rows));
        let threads = Arc::new(Threads::new(session.shared.threads));
        let writer = PartsWriter::new(&transaction, number, &definition, &partitions, pool, &threads);
        write_stream(rows, writer).await?
    } else {
        while rows.try_next().await?.is_some() {}
        Vec::new()
    };
    let numbers = std::mem::take(&mut numbers.lock().numbers);
    let count = numbers.len() as u64;
    let transaction = sole(transaction)?;
    commit(transaction, move |transaction| replace(transaction, &table.table, numbers, parts), count).await
}

/// The query for the changed rows, for EXPLAIN.
pub(super) async fn plan(
    session: &Session,
    target: &Target,
    assigned: Option<&[(usize, Expr)]>,
    condition: Option<&Expr>,
) -> Result<LogicalPlan> {
    let partitions = Partitions::of(&session.state(), &target.table.table.definition)?;
    changing(session, target, &target.table, &partitions, assigned, condition).await
}

/// The query for the numbers of the changed rows; for an UPDATE also for their new values, in the order in
/// which they are written.
async fn changing(
    session: &Session,
    target: &Target,
    table: &StoredTable,
    partitions: &Partitions,
    assigned: Option<&[(usize, Expr)]>,
    condition: Option<&Expr>,
) -> Result<LogicalPlan> {
    let values = match assigned {
        None => Vec::new(),
        Some(assigned) => {
            let value = |index: usize| assigned.iter().find(|(column, _)| *column == index);
            let old =
                |name: &str| Expr::CompoundIdentifier(vec![target.qualifier(), Ident::with_quote('"', name)]);
            let columns = table.table.definition.fields.iter().enumerate();
            columns
                .map(|(index, field)| {
                    (index, value(index).map_or_else(|| old(&field.name), |(_, value)| value.clone()))
                })
                .collect()
        }
    };
    let plan = target.plan(session, Arc::new(table.with_row_numbers()), values, condition).await?;
    if assigned.is_some() { in_table_order(plan, table, partitions) } else { Ok(plan) }
}

/// The plan with its rows in the table's order.
fn in_table_order(plan: LogicalPlan, table: &StoredTable, partitions: &Partitions) -> Result<LogicalPlan> {
    let mut keys = partitions.sort_keys(&table.table.definition)?;
    if keys.is_empty() {
        return Ok(plan);
    }
    // Equal rows keep their previous order.
    keys.push(LogicalExpr::Column(Column::new_unqualified(ROW_NUMBER)).sort(true, false));
    Ok(LogicalPlanBuilder::from(plan).sort(keys)?.build()?)
}

/// The numbers of rows, and the reservation of their memory.
struct Numbers {
    numbers: Vec<u64>,
    booked: MemoryReservation,
}

impl Numbers {
    fn take(&mut self, batch: &RecordBatch) -> Result<(), DataFusionError> {
        let numbers = batch.column(0).as_primitive::<UInt64Type>().values();
        self.booked.try_grow(size_of_val::<[u64]>(numbers))?;
        self.numbers.extend_from_slice(numbers);
        Ok(())
    }
}

/// Changes a table and commits; `count` is the number of rows to report.
async fn commit(
    mut transaction: Transaction,
    change: impl FnOnce(&mut Transaction) -> Result<()> + Send + 'static,
    count: u64,
) -> Result<u64> {
    if count == 0 {
        return Ok(0);
    }
    blocking(move || {
        change(&mut transaction)?;
        transaction.commit()?;
        Ok(count)
    })
    .await
}

/// Deletes rows by their numbers, and adds the parts that were written in their place.
fn replace(
    transaction: &mut Transaction,
    table: &Table,
    mut numbers: Vec<u64>,
    new: Vec<Part>,
) -> Result<()> {
    numbers.sort_unstable();
    let parts = table.parts();
    for rows in numbers.chunk_by(|row, next| row >> 32 == next >> 32) {
        let part = usize::try_from(rows[0] >> 32).ok().and_then(|place| parts.get(place));
        let part = part.ok_or_else(|| Error::new(ErrorKind::Internal, "a row lies in no part"))?;
        let deletions = deletions(transaction, table, part, rows)?;
        transaction.delete_rows(table.number, part.number, &deletions)?;
    }
    add_in_order(transaction, table.number, new)
}

/// Ascending rows of one part, in the form in which storage marks deletions.
fn deletions(transaction: &Transaction, table: &Table, part: &Part, rows: &[u64]) -> Result<DeletionVector> {
    let reader = transaction.base().open_part(table, part)?;
    let mut deletions = DeletionVector::default();
    let mut rest = rows;
    for stripe in 0..reader.stripe_count() {
        let range = reader.stripe(stripe);
        let count = rest.partition_point(|row| row & u64::from(u32::MAX) < range.end);
        let (here, behind) = rest.split_at(count);
        rest = behind;
        let places = here.iter().map(|row| row & u64::from(u32::MAX)).map(|row| row - range.start);
        let places = places.map(|place| u32::try_from(place).expect("a stripe has few rows"));
        let len = usize::try_from(range.end - range.start).expect("a stripe has few rows");
        let bits = BitBuffer::from_positions(len, &places.collect::<Vec<_>>());
        let stripe = u32::try_from(stripe).expect("a part has few stripes");
        deletions.delete(Level::best(), stripe, bits.as_bits());
    }
    Ok(deletions)
}
