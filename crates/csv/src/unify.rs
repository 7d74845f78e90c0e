//! One table of several files.

use std::{collections::HashMap, sync::Arc};

use crate::{
    detect::{Column, Detected, find_column},
    error::Error,
    options::Options,
    types::Formats,
};

/// The columns of several files of one table: matched by name where all have headers, else by position;
/// each gets the narrowest type that holds what all files showed. Empty files do not count; without any
/// file there is no table. Fails if files without headers differ in width, and if [`Options::types`]
/// names a column that none of the files has.
pub fn unify(files: &[Detected], options: &Options) -> Result<Option<Detected>, Error> {
    let mut filled = files.iter().filter(|file| !file.columns.is_empty());
    let Some(first) = filled.next().or(files.first()) else { return Ok(None) };
    let mut table = first.clone();
    let by_name = files.iter().all(|file| file.dialect.header || file.columns.is_empty());
    let mut positions: HashMap<&str, usize> = positions(&first.columns);
    for file in filled {
        if !by_name && file.columns.len() != table.columns.len() {
            let (own, others) = (file.columns.len(), table.columns.len());
            let problem = format!("has {own} columns, {} has {others}", table.file);
            return Err(Error::Columns { file: Arc::clone(&file.file), problem });
        }
        for (position, column) in file.columns.iter().enumerate() {
            let same = if by_name { positions.get(column.name.as_str()).copied() } else { Some(position) };
            match same {
                Some(same) => {
                    let same = &mut table.columns[same];
                    same.evidence = same.evidence.and(column.evidence);
                }
                None => {
                    positions.insert(&column.name, table.columns.len());
                    table.columns.push(column.clone());
                }
            }
        }
    }
    let formats = Formats::new(options);
    for column in &mut table.columns {
        if column.given {
            column.reading = column.evidence.reading(&column.data_type, &formats);
        } else {
            (column.data_type, column.reading) = column.evidence.choose(&formats);
        }
    }
    check_types(&table, options)?;
    Ok(Some(table))
}

/// The position of each name.
pub(crate) fn positions(columns: &[Column]) -> HashMap<&str, usize> {
    columns.iter().enumerate().map(|(position, column)| (column.name.as_str(), position)).collect()
}

/// Refuses types for columns that the table does not have.
pub(crate) fn check_types(table: &Detected, options: &Options) -> Result<(), Error> {
    let unknown = options.types.iter().find(|(name, _)| find_column(&table.columns, name).is_none());
    let Some((unknown, _)) = unknown else { return Ok(()) };
    let names: Vec<&str> = table.columns.iter().take(50).map(|column| column.name.as_str()).collect();
    let problem = format!("has no column '{unknown}' to give a type; it has {}", names.join(", "));
    Err(Error::Columns { file: Arc::clone(&table.file), problem })
}
