//! Runs `tests/sql/` in this process. The same files are run over the wire and on a cluster elsewhere.

mod common;

use std::path::Path;

use common::InProcess;
use keirin::Database;
use keirin_testkit::slt::{Style, run_dir};

#[test]
fn sql_behaves_as_written() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/sql");
    let style = Style { label: "keirin", sqlite: false, query_stride: 1 };
    run_dir(&directory, style, || {
        let database = Database::builder().threads(2).in_memory().expect("a database opens");
        move || Ok(InProcess(database.session()))
    });
}
