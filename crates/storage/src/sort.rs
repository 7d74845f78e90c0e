//! Sorting rows by a table's key.

use keirin_kernels::Level;
use keirin_kernels::sort::{self, Key, Method};
use keirin_kernels::text::Strings;

use crate::cancel::Cancel;
use crate::column::{Column, Values};
use crate::error::{Error, Result};
use crate::schema::{DataType, Definition};

/// The row numbers in the order of the table's keys; a stable sort. Text and UUIDs are ordered by their bytes,
/// floats by the total order.
///
/// # Errors
/// `Invalid` when a key is of a type without an order.
///
/// # Panics
/// When the columns are not those of the table, or have 2^32 rows.
pub(crate) fn sort_rows(level: Level, definition: &Definition, columns: &[Column<'_>]) -> Result<Vec<u32>> {
    sort_rows_unless(level, definition, columns, &Cancel::default())
}

/// As [`sort_rows`], unless it is cancelled meanwhile.
///
/// # Errors
/// As [`sort_rows`]; `Cancelled`.
///
/// # Panics
/// As [`sort_rows`].
pub(crate) fn sort_rows_unless(
    level: Level,
    definition: &Definition,
    columns: &[Column<'_>],
    cancel: &Cancel,
) -> Result<Vec<u32>> {
    let row_count = columns.first().map_or(0, Column::row_count);
    let indices: Vec<usize> =
        definition.keys.iter().filter_map(|key| definition.index_of(key.field)).collect();
    // Integers that order as the bytes of the UUIDs do.
    let uuids: Vec<Option<Vec<i128>>> = indices
        .iter()
        .map(|index| match (&definition.fields[*index].data_type, &columns[*index].values) {
            (DataType::Uuid, Values::I128(values)) => {
                Some(values.iter().map(|value| value.swap_bytes() ^ i128::MIN).collect())
            }
            _ => None,
        })
        .collect();
    let keys = definition.keys.iter().zip(&indices).zip(&uuids).map(|((key, index), uuids)| {
        let (column, field) = (&columns[*index], &definition.fields[*index]);
        let unordered = || {
            let message = format!("table '{}' cannot be sorted by column '{}'", definition.name, field.name);
            Error::Invalid(message)
        };
        let values = match (&column.values, uuids) {
            (_, Some(uuids)) => sort::Values::I128(uuids),
            _ if !field.data_type.is_ordered() => return Err(unordered()),
            (Values::Flags(flags), _) => sort::Values::Bool(flags.as_bits()),
            (Values::I8(values), _) => sort::Values::I8(values),
            (Values::I16(values), _) => sort::Values::I16(values),
            (Values::I32(values), _) => sort::Values::I32(values),
            (Values::I64(values), _) => sort::Values::I64(values),
            (Values::I128(values), _) => sort::Values::I128(values),
            (Values::U8(values), _) => sort::Values::U8(values),
            (Values::U16(values), _) => sort::Values::U16(values),
            (Values::U32(values), _) => sort::Values::U32(values),
            (Values::U64(values), _) => sort::Values::U64(values),
            (Values::F32(values), _) => sort::Values::F32(values),
            (Values::F64(values), _) => sort::Values::F64(values),
            (Values::Text { offsets, bytes }, _) => {
                let strings = Strings::new(level, offsets, bytes);
                sort::Values::Text(strings.map_err(|error| Error::Invalid(error.to_string()))?)
            }
            (Values::List { .. } | Values::Struct { .. }, _) => return Err(unordered()),
        };
        let validity = column.validity_bits();
        Ok(Key { values, validity, is_descending: key.is_descending, nulls_first: key.nulls_first })
    });
    let keys = keys.collect::<Result<Vec<_>>>()?;
    let is_wanted = || !cancel.is_cancelled();
    sort::sort_rows_while(level, Method::Radix, &keys, row_count, &is_wanted).ok_or(Error::Cancelled)
}
