//! Files that are damaged on purpose: an error or what can be read, never a panic, never without end.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use keirin::{Database, ErrorKind};
use keirin_testkit::data;
use keirin_testkit::slt::for_each_parallel;

/// Far more than any of these small files needs, in any build.
const TIME_MAX: Duration = Duration::from_secs(20);
const MEMORY_BYTES: usize = 64 << 20;

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("the pack has the directory");
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.expect("the directory can be read").path()).collect();
    files.retain(|file| file.extension().is_none_or(|extension| extension != "md"));
    files.sort();
    files
}

/// Reads all of each file with `function`; returns those that could be read, fails on panics and delays.
fn read(files: &[PathBuf], function: &str) -> Vec<String> {
    let outcomes = for_each_parallel(files, |file| {
        let name = file.file_name().expect("a file has a name").to_string_lossy().into_owned();
        let started = Instant::now();
        let database = Database::builder()
            .threads(1)
            .memory_limit_bytes(MEMORY_BYTES)
            .in_memory()
            .expect("a database opens");
        let sql = format!("SELECT * FROM {function}('{}')", file.display());
        let outcome = database.block_on(async { database.session().sql(&sql).await?.collect().await });
        assert!(started.elapsed() < TIME_MAX, "{name} took {:.0?}", started.elapsed());
        match outcome {
            Ok(_) => Ok(Some(name)),
            Err(error) if error.kind() == ErrorKind::Internal => {
                Err(format!("{name}: {}", error.report(&sql)))
            }
            Err(error) if error.message().is_empty() => Err(format!("{name}: an error without a message")),
            Err(_) => Ok(None),
        }
    });
    let wrong: Vec<&String> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    outcomes.into_iter().flatten().flatten().collect()
}

#[test]
fn bad_parquet_files_are_refused() {
    let Some(pack) = data::pack("parquet_arrow") else { return };
    let readable = read(&files(&pack.join("parquet_testing/bad_data")), "read_parquet");
    // Its dictionary indexes have width 0, which is odd but means the first word of the dictionary.
    assert_eq!(readable, ["ARROW-GH-43605.parquet"]);
}

#[test]
fn parquet_files_made_by_fuzzers_are_read_or_refused() {
    let Some(pack) = data::pack("parquet_arrow") else { return };
    let files = files(&pack.join("arrow_testing/parquet/fuzzing"));
    let readable = read(&files, "read_parquet");
    println!("{} of {} can be read", readable.len(), files.len());
    assert!(readable.len() < files.len());
}

#[test]
fn arrow_files_made_by_fuzzers_are_read_or_refused() {
    let Some(pack) = data::pack("parquet_arrow") else { return };
    for kind in ["arrow-ipc-file", "arrow-ipc-stream"] {
        let files = files(&pack.join("arrow_testing").join(kind));
        let readable = read(&files, "read_arrow");
        println!("{kind}: {} of {} can be read", readable.len(), files.len());
        assert!(readable.len() < files.len());
    }
}
