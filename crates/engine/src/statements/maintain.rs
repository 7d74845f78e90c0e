//! OPTIMIZE, CHECK and REPAIR of stored tables, and VACUUM. All of them stop soon after they are cancelled.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::sql::sqlparser::ast::{ObjectName, VacuumStatement};
use keirin_storage::{Cancel, Part, Snapshot, Table};

use super::Answer;
use super::names::{object_name, stored_table};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::work::{blocking, cancellable};
use crate::session::Session;
use crate::sources::stored::{Store, check_unchanged, damage_batch, write_options};

/// A merge takes no more memory where there are more than two parts: columns of text that are sorted together have to stay
/// below 2 GiB.
const MERGE_BYTES_MAX: u64 = 1 << 30;
/// How often merging is tried when other statements change the same parts.
const ATTEMPTS_MAX: usize = 5;

/// `OPTIMIZE TABLE t [FINAL]`: does the maintenance that is due, or with FINAL merges each partition into one
/// part.
pub(super) async fn optimize(session: &Session, name: &ObjectName, is_final: bool) -> Result<Answer> {
    let table = stored_table(session, &object_name(session, name)?).await?;
    let pool: Arc<dyn MemoryPool> = session.shared.pool.clone();
    let merge = move |cancel: &Cancel| match is_final {
        true => merge_all(&table.store, &table.table, &pool, cancel),
        false => {
            drop(table.store.begin()?);
            let reserve = |bytes| reserve(&pool, &table.table, bytes);
            table.store.database.optimize(table.table.number, write_options, reserve, cancel)
        }
    };
    cancellable(merge).await?;
    Ok(Answer::done())
}

/// Reserves the memory of a merge of parts of `table`.
fn reserve(pool: &Arc<dyn MemoryPool>, table: &Table, bytes: u64) -> Result<MemoryReservation> {
    let consumer = MemoryConsumer::new(format!("merging parts of table {}", table.definition.name));
    let reservation = consumer.register(pool);
    reservation.try_grow(usize::try_from(bytes).unwrap_or(usize::MAX))?;
    Ok(reservation)
}

/// How many of the first of these parts can be merged at once, and the memory for that. Two at least, if there are two.
fn affordable(
    snapshot: &Snapshot,
    table: &Table,
    parts: &[&Part],
    pool: &Arc<dyn MemoryPool>,
) -> Result<(usize, MemoryReservation)> {
    let mut count = parts.len();
    loop {
        let bytes = snapshot.merge_bytes(table, parts[..count].iter().copied());
        let is_least = count <= 2;
        if bytes <= MERGE_BYTES_MAX || is_least {
            match reserve(pool, table, bytes) {
                Err(_) if !is_least => {}
                reserved => return Ok((count, reserved?)),
            }
        }
        count = (count / 2).max(2);
    }
}

/// Merges each partition into one part, in several rounds if there is no memory for all parts at once.
fn merge_all(store: &Store, planned: &Table, pool: &Arc<dyn MemoryPool>, cancel: &Cancel) -> Result<()> {
    let (mut attempts, mut planned, mut part_count) = (0, planned.clone(), usize::MAX);
    loop {
        attempts += 1;
        let mut transaction = store.begin_rewriting(planned.number)?;
        transaction.stop_when(cancel);
        check_unchanged(&transaction, &planned)?;
        let table = transaction.state().table(planned.number).expect("it is unchanged").clone();
        let mut partitions: BTreeMap<&str, Vec<&Part>> = BTreeMap::new();
        table.parts().into_iter().for_each(|part| partitions.entry(&part.partition).or_default().push(part));
        let base = transaction.base().clone();
        let mut is_last = true;
        for parts in partitions.values() {
            let mut rest = &parts[..];
            while !rest.is_empty() {
                let (count, _reserved) = affordable(&base, &table, rest, pool)?;
                is_last &= count == parts.len();
                let merged = &rest[..count];
                rest = &rest[count..];
                if merged.len() > 1 || merged.iter().any(|part| part.deletions.is_some()) {
                    let merged: Vec<u64> = merged.iter().map(|part| part.number).collect();
                    transaction.compact(table.number, &merged, write_options(&table))?;
                }
            }
        }
        match transaction.commit().map_err(Error::from) {
            Err(error) if error.kind() == ErrorKind::Conflict && attempts < ATTEMPTS_MAX => continue,
            outcome => {
                store.wake_upkeep();
                outcome?;
            }
        }
        let before = std::mem::replace(&mut part_count, table.parts().len());
        if is_last || part_count >= before {
            return Ok(());
        }
        // What was merged is merged in the next round.
        let merged = store.database.snapshot();
        let Some(merged) = merged.table(planned.number) else { return Ok(()) };
        (attempts, planned) = (0, Table::clone(merged));
    }
}

/// `VACUUM`: removes the files that no version within the retention needs, and, whatever their age, those
/// that a crashed process left behind; reports how many files and bytes that were.
pub(super) async fn vacuum(session: &Session, statement: &VacuumStatement) -> Result<Answer> {
    let plain = VacuumStatement {
        full: false,
        sort_only: false,
        delete_only: false,
        reindex: false,
        recluster: false,
        table_name: None,
        threshold: None,
        boost: false,
    };
    if *statement != plain {
        return Err(Error::new(ErrorKind::Unsupported, format!("{statement} is not supported"))
            .with_hint("VACUUM is for the whole database; OPTIMIZE TABLE merges the parts of one table"));
    }
    let store = session.shared.store.clone();
    let vacuum = move |cancel: &Cancel| {
        drop(store.begin()?);
        store.database.vacuum(cancel)?.ok_or_else(|| {
            let message = "nothing is removed while part of the log is set aside";
            Error::new(ErrorKind::Invalid, message).with_hint(
                "rescue what you need of the files in log/ that end in .damaged, then move them elsewhere",
            )
        })
    };
    let removed = cancellable(vacuum).await?;
    let columns =
        [("files_removed", number(removed.files), false), ("bytes_removed", number(removed.bytes), false)];
    Ok(Answer::rows(RecordBatch::try_from_iter_with_nullable(columns)?))
}

fn number(value: u64) -> ArrayRef {
    Arc::new(Int64Array::from(vec![i64::try_from(value).unwrap_or(i64::MAX)]))
}

/// `CHECK TABLE t`: reads the whole table, and returns a row for each damage, or one that says `ok`.
pub(super) async fn check(session: &Session, name: &ObjectName) -> Result<Answer> {
    let name = object_name(session, name)?;
    let table = stored_table(session, &name).await?;
    let (store, number) = (table.store.clone(), table.table.number);
    let found = cancellable(move |cancel| Ok(store.database.check_table(number, cancel)?)).await?;
    let checked = format!("{}.{}", name.schema, name.table);
    Ok(Answer::rows(damage_batch(&table.snapshot, &found, Some(&checked))))
}

/// `REPAIR TABLE t`: keeps the readable rows of damaged parts, and reports how many are lost.
pub(super) async fn repair(session: &Session, name: &ObjectName) -> Result<Answer> {
    let name = object_name(session, name)?;
    let table = stored_table(session, &name).await?;
    let repair = move |cancel: &Cancel| {
        let (store, planned) = (&table.store, &table.table);
        let found = store.database.check_table(planned.number, cancel)?;
        let mut damaged: Vec<u64> = found.iter().filter_map(|damage| damage.part).collect();
        damaged.sort_unstable();
        damaged.dedup();
        let (mut lost_rows, mut undeleted) = (0, 0);
        let options = write_options(planned);
        let count = damaged.len();
        store.alter(|transaction| {
            transaction.stop_when(cancel);
            for part in damaged {
                if transaction.state().table(planned.number).is_none_or(|table| table.part(part).is_none()) {
                    continue;
                }
                let lost = transaction.repair_part(planned.number, part, options.clone())?;
                lost_rows += lost.rows.iter().map(|rows| rows.end - rows.start).sum::<u64>();
                undeleted += u64::from(lost.deletions);
            }
            Ok(())
        })?;
        Ok((count as u64, lost_rows, undeleted))
    };
    let (parts, lost, undeleted) = cancellable(repair).await?;
    let columns = [
        ("table", Arc::new(StringArray::from(vec![name.to_string()])) as ArrayRef, false),
        ("parts_repaired", number(parts), false),
        ("rows_lost", number(lost), false),
        ("parts_with_deleted_rows_back", number(undeleted), false),
    ];
    Ok(Answer::rows(RecordBatch::try_from_iter_with_nullable(columns)?))
}

/// `REPAIR DATABASE`: sets aside the commits that cannot be read, and returns their files.
pub(super) async fn repair_database(session: &Session) -> Result<Answer> {
    let store = session.shared.store.clone();
    let files = blocking(move || Ok(store.database.repair_log()?)).await?;
    let files = Arc::new(StringArray::from(files)) as ArrayRef;
    Ok(Answer::rows(RecordBatch::try_from_iter([("set_aside", files)])?))
}
