//! Checks of statistics, for the parquet crate, which converts bounds of decimals and panics where they are too long, or empty.

use datafusion::arrow::datatypes::{DataType, Schema};
use parquet::basic::Type;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::page_index::column_index::ColumnIndexMetaData;

/// Whether the bounds of row groups, and those of pages where they were read, are such of columns that are read as `schema`.
pub(super) fn check(footer: &ParquetMetaData, schema: &Schema) -> Result<(), &'static str> {
    let columns = footer.file_metadata().schema_descr();
    for (index, row_group) in footer.row_groups().iter().enumerate() {
        let pages = footer.column_index().and_then(|of_all| of_all.get(index));
        for (leaf, chunk) in row_group.columns().iter().enumerate() {
            let is_bytes = matches!(chunk.column_type(), Type::BYTE_ARRAY | Type::FIXED_LEN_BYTE_ARRAY);
            let field = schema.fields().get(columns.get_column_root_idx(leaf)).filter(|_| is_bytes);
            let Some(bytes_max) = field.and_then(|field| bytes_max(field.data_type())) else { continue };
            let is_fine = |bound: &[u8]| (1..=bytes_max).contains(&bound.len());
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
                return Err("its statistics have values that the column cannot have");
            }
        }
    }
    Ok(())
}

/// The bytes of the longest bound of a column whose bounds are converted to numbers.
fn bytes_max(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => data_type.primitive_width(),
        _ => None,
    }
}
