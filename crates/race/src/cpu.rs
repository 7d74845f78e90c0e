//! The name of the CPU, by which knowledge is kept: what is fastest on one is not on another.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::sync::OnceLock;

/// The name that the CPU's maker gave it, where the system tells; else its architecture.
#[must_use]
pub fn cpu_name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let told = File::open("/proc/cpuinfo").ok().map(BufReader::new);
        let mut lines = told.into_iter().flat_map(BufRead::lines).map_while(Result::ok);
        let name = lines.find_map(|line| {
            let (key, value) = line.split_once(':')?;
            matches!(key.trim(), "model name" | "Model" | "cpu model").then(|| value.trim().to_owned())
        });
        name.filter(|name| !name.is_empty()).unwrap_or_else(|| std::env::consts::ARCH.to_owned())
    })
}
