//! OPTIMIZE, CHECK and REPAIR of stored tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::sql::sqlparser::ast::ObjectName;
use keirin_storage::{Damage, Part, Table};

use super::Answer;
use super::names::{object_name, stored_table};
use crate::error::{Error, ErrorKind, Result};
use crate::session::Session;
use crate::stored::{Store, blocking, check_unchanged, damage_batch, write_options};

/// How often merging is tried when others change the same parts.
const ATTEMPTS_MAX: usize = 5;

/// `OPTIMIZE TABLE t [FINAL]`: does the upkeep that is due, or with FINAL makes one part of each partition.
pub(super) async fn optimize(session: &Session, name: &ObjectName, is_final: bool) -> Result<Answer> {
    let table = stored_table(session, &object_name(session, name)?)?;
    let merge = move || match is_final {
        true => merge_all(&table.store, &table.table),
        false => {
            drop(table.store.begin()?);
            Ok(table.store.database.optimize(table.table.number, write_options)?)
        }
    };
    blocking(merge).await?;
    Ok(Answer::done())
}

/// Makes one part of each partition.
fn merge_all(store: &Store, planned: &Table) -> Result<()> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let mut transaction = store.begin_rewriting(planned.number)?;
        check_unchanged(&transaction, planned)?;
        let table = transaction.state().table(planned.number).expect("it is unchanged").clone();
        let mut partitions: BTreeMap<&str, Vec<&Part>> = BTreeMap::new();
        table.parts().into_iter().for_each(|part| partitions.entry(&part.partition).or_default().push(part));
        for parts in partitions.values() {
            if parts.len() > 1 || parts.iter().any(|part| part.deletions.is_some()) {
                let parts: Vec<u64> = parts.iter().map(|part| part.number).collect();
                transaction.compact(table.number, &parts, write_options(&table))?;
            }
        }
        match transaction.commit().map_err(Error::from) {
            Err(error) if error.kind() == ErrorKind::Conflict && attempts < ATTEMPTS_MAX => {}
            outcome => return outcome.map(drop),
        }
    }
}

/// `CHECK TABLE t`: reads all of it, and gives a row for each thing that is wrong, or one that says `ok`.
pub(super) async fn check(session: &Session, name: &ObjectName) -> Result<Answer> {
    let name = object_name(session, name)?;
    let table = stored_table(session, &name)?;
    let (store, number) = (table.store.clone(), table.table.number);
    let found = blocking(move || Ok(damage_of(&store, number))).await?;
    let checked = format!("{}.{}", name.schema, name.table);
    Ok(Answer::rows(damage_batch(&table.snapshot, &found, Some(&checked))))
}

fn damage_of(store: &Store, table: u64) -> Vec<Damage> {
    let mut found = store.database.check();
    found.retain(|damage| damage.table == Some(table));
    found
}

/// `REPAIR TABLE t`: keeps the rows that can be read of parts that are damaged, and says how many are lost.
pub(super) async fn repair(session: &Session, name: &ObjectName) -> Result<Answer> {
    let name = object_name(session, name)?;
    let table = stored_table(session, &name)?;
    let repair = move || {
        let (store, planned) = (&table.store, &table.table);
        let mut damaged: Vec<u64> =
            damage_of(store, planned.number).iter().filter_map(|damage| damage.part).collect();
        damaged.sort_unstable();
        damaged.dedup();
        let (mut lost_rows, mut undeleted) = (0, 0);
        let options = write_options(planned);
        let count = damaged.len();
        store.alter(|transaction| {
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
    let (parts, lost, undeleted) = blocking(repair).await?;
    let number =
        |value: u64| Arc::new(Int64Array::from(vec![i64::try_from(value).unwrap_or(i64::MAX)])) as ArrayRef;
    let columns = [
        ("table", Arc::new(StringArray::from(vec![name.to_string()])) as ArrayRef, false),
        ("parts_repaired", number(parts), false),
        ("rows_lost", number(lost), false),
        ("parts_with_deleted_rows_back", number(undeleted), false),
    ];
    Ok(Answer::rows(RecordBatch::try_from_iter_with_nullable(columns)?))
}

/// `REPAIR DATABASE`: sets aside the commits that cannot be read, and gives their files.
pub(super) async fn repair_database(session: &Session) -> Result<Answer> {
    let store = session
        .shared
        .store
        .clone()
        .ok_or_else(|| Error::new(ErrorKind::Unsupported, "a database in memory needs no repair"))?;
    let files = blocking(move || Ok(store.database.repair_log()?)).await?;
    let files = Arc::new(StringArray::from(files)) as ArrayRef;
    Ok(Answer::rows(RecordBatch::try_from_iter([("set_aside", files)])?))
}
