//! Commands that read and write files.

use std::path::PathBuf;

use crate::console::{Console, Flow};
use crate::error::Result;
use crate::format::Format;
use crate::output::Output;
use crate::shell::completer::name_in_sql;

pub(super) fn import(console: &mut Console, words: &[String]) -> Result<Flow> {
    let [file, table] = words else { return Ok(Flow::Continue) };
    let file = file.replace('\'', "''");
    let exists = console.query(&format!("SELECT * FROM {} LIMIT 0", name_in_sql(table))).is_ok();
    let table = name_in_sql(table);
    let sql = if exists {
        format!("INSERT INTO {table} SELECT * FROM '{file}'")
    } else {
        format!("CREATE TABLE {table} AS SELECT * FROM '{file}'")
    };
    console.run_sql(&sql, None, 1).map(|()| Flow::Continue)
}

pub(super) fn once(console: &mut Console, words: &[String]) -> Result<Flow> {
    let path = PathBuf::from(&words[0]);
    let mut output = Output::file(&path)?;
    output.format = Format::of_file(&path);
    console.output_once = Some(output);
    Ok(Flow::Continue)
}

pub(super) fn output(console: &mut Console, words: &[String]) -> Result<Flow> {
    let next = match words.first() {
        Some(word) => {
            let path = PathBuf::from(word);
            let mut output = Output::file_at_once(&path)?;
            output.format = Format::of_file(&path);
            output
        }
        None => Output::stdout(),
    };
    std::mem::replace(&mut console.output, next).commit()?;
    Ok(Flow::Continue)
}
