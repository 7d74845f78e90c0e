//! The name of the CPU, by which knowledge is kept: what is fastest on one is not on another.

use std::fs;

/// The name that the CPU's maker gave it, where the system tells; else its architecture.
#[must_use]
pub fn cpu_name() -> String {
    let told = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = told.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        matches!(key.trim(), "model name" | "Model" | "cpu model").then(|| value.trim().to_owned())
    });
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}
