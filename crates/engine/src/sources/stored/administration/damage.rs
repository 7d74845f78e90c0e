//! Damage as rows: what CHECK TABLE and `system.damage` show.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use keirin_storage::{Damage, State};

use super::super::store::Store;

/// A row for each thing that is damaged; without any, and with the name of a table, one that says `ok`.
pub(crate) fn damage_batch(state: &State, found: &[Damage], checked: Option<&str>) -> RecordBatch {
    let rows: Vec<Option<&Damage>> = match checked {
        Some(_) if found.is_empty() => vec![None],
        _ => found.iter().map(Some).collect(),
    };
    let table = |damage: &Damage| {
        let definition = &state.table(damage.table?)?.definition;
        Some(format!("{}.{}", definition.schema, definition.name))
    };
    let text = |value: &dyn Fn(&Damage) -> Option<String>, ok: Option<&str>| {
        let values = rows.iter().map(|row| row.map_or_else(|| ok.map(str::to_owned), value));
        Arc::new(StringArray::from(values.collect::<Vec<_>>())) as ArrayRef
    };
    let number = |value: &dyn Fn(&Damage) -> Option<u64>| {
        let values = rows.iter().map(|row| row.and_then(value).and_then(|value| i64::try_from(value).ok()));
        Arc::new(Int64Array::from(values.collect::<Vec<_>>())) as ArrayRef
    };
    let columns = [
        ("table", text(&table, checked)),
        ("status", text(&|damage| Some(status(damage).to_owned()), Some("ok"))),
        ("column", text(&|damage| damage.column.clone(), None)),
        ("part", number(&|damage| damage.part)),
        ("first_row", number(&|damage| damage.rows.as_ref().map(|rows| rows.start))),
        ("last_row", number(&|damage| damage.rows.as_ref().map(|rows| rows.end.saturating_sub(1)))),
        ("problem", text(&|damage| Some(damage.to_string()), None)),
    ];
    let columns = columns.into_iter().map(|(name, column)| (name, column, true));
    RecordBatch::try_from_iter_with_nullable(columns).expect("columns of one length")
}

fn status(damage: &Damage) -> &'static str {
    if damage.is_unknown { "not checked" } else { "damaged" }
}

/// All that was found to be damaged since the database was opened.
pub(crate) fn known_damage(store: &Store) -> RecordBatch {
    damage_batch(&store.database.snapshot(), &store.database.damage(), None)
}
