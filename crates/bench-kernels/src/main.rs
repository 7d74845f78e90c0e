//! Runs suites of the hot loops: `keirin-bench-kernels SUITE... [--quick] [--json FILE] [--only TEXT] [--data DIR]`.
//! With `--data`, the suites of compressed blocks take the files of a folder.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use keirin_bench_kernels::{Report, SUITES};
use keirin_kernels::Level;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if let Err(unknown) = Level::check_environment() {
        eprintln!("error: {unknown}");
        return ExitCode::FAILURE;
    }
    let (mut suites, mut is_quick, mut json, mut only) = (Vec::new(), false, None, String::new());
    let mut data = None;
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => is_quick = true,
            "--json" => json = arguments.next(),
            "--only" => only = arguments.next().unwrap_or_default(),
            "--data" => match arguments.next().map(PathBuf::from).filter(|folder| folder.is_dir()) {
                Some(folder) => data = Some(folder),
                None => {
                    eprintln!("error: --data needs a folder of files");
                    return ExitCode::FAILURE;
                }
            },
            name => match SUITES.iter().find(|suite| suite.name == name) {
                Some(suite) => suites.push(suite),
                None => {
                    let names: Vec<_> = SUITES.iter().map(|suite| suite.name).collect();
                    eprintln!("error: no suite {name:?}; there are {}", names.join(", "));
                    return ExitCode::FAILURE;
                }
            },
        }
    }
    let mut is_sound = true;
    for suite in suites {
        let mut report = Report::new(suite.name, is_quick, &only);
        if let Some(folder) = &data {
            report = report.with_data(folder.clone());
        }
        (suite.run)(&mut report);
        is_sound &= report.is_sound();
        if let Some(path) = &json {
            let file = File::options().create(true).append(true).open(path);
            if let Err(error) = file.and_then(|mut file| file.write_all(report.json().as_bytes())) {
                eprintln!("error: cannot write {path}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
