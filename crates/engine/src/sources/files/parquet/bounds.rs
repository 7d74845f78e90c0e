//! Checks of statistics, for the parquet crate, which converts bounds of decimals and panics where they are too long.

use parquet::basic::{ConvertedType, LogicalType, Type};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::schema::types::ColumnDescriptor;

/// Decimals of so many digits have 128 bits.
const DIGITS_128: i32 = 38;

/// Whether the bounds of row groups, and those of pages where they were read, are no longer than values.
pub(super) fn check(footer: &ParquetMetaData) -> Result<(), &'static str> {
    for (index, row_group) in footer.row_groups().iter().enumerate() {
        let pages = footer.column_index().and_then(|of_all| of_all.get(index));
        for (leaf, chunk) in row_group.columns().iter().enumerate() {
            let Some(bytes_max) = bytes_max(chunk.column_descr()) else { continue };
            let is_fine = |bound: &[u8]| bound.len() <= bytes_max;
            let bounds = chunk.statistics().into_iter();
            let mut bounds = bounds
                .flat_map(|statistics| [statistics.min_bytes_opt(), statistics.max_bytes_opt()])
                .flatten();
            let are_fine = match pages.and_then(|pages| pages.get(leaf)) {
                Some(
                    ColumnIndexMetaData::BYTE_ARRAY(pages) | ColumnIndexMetaData::FIXED_LEN_BYTE_ARRAY(pages),
                ) => pages.min_values_iter().chain(pages.max_values_iter()).flatten().all(is_fine),
                _ => true,
            };
            if !are_fine || !bounds.all(is_fine) {
                return Err("its statistics have longer values than the column");
            }
        }
    }
    Ok(())
}

/// The bytes of the longest bound of a column whose bounds are converted.
fn bytes_max(column: &ColumnDescriptor) -> Option<usize> {
    let is_decimal = matches!(column.logical_type_ref(), Some(LogicalType::Decimal { .. }))
        || column.converted_type() == ConvertedType::DECIMAL;
    let is_bytes = matches!(column.physical_type(), Type::BYTE_ARRAY | Type::FIXED_LEN_BYTE_ARRAY);
    let bytes_max = if column.type_precision() <= DIGITS_128 { 16 } else { 32 };
    (is_decimal && is_bytes).then_some(bytes_max)
}
