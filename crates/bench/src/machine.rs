//! What a result must carry to mean something: machine, commit, command.

use std::fs;
use std::process::Command;

/// Lines that describe where and how this run was made.
pub(crate) fn description() -> String {
    let arguments = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown CPU", |(_, model)| model.trim());
    let memory = memory_bytes().map_or_else(String::new, |bytes| format!(", {} GiB", bytes >> 30));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "keirin-bench {arguments}\ncommit {}, {} build\n{model}, {} cores{memory}, {} {}\n",
        commit(),
        if cfg!(debug_assertions) { "DEBUG (times mean nothing)" } else { "release" },
        cores(),
        std::env::consts::OS,
        kernel.trim(),
    )
}

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The cores that this process, and so an engine, may run on; none where the system does not tell.
pub(crate) fn allowed_cores() -> Vec<usize> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.map(|list| core_list(list.trim())).unwrap_or_default()
}

/// The cores of a list such as `0-3,8`.
fn core_list(text: &str) -> Vec<usize> {
    let ranges = text.split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    ranges.flatten().collect()
}

/// Memory of the machine, where the system tells.
pub(crate) fn memory_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
}

fn commit() -> String {
    let git = |arguments: &[&str]| {
        let folder = crate::benchmarks_directory();
        let output = Command::new("git").arg("-C").arg(folder).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".into() };
    let clean = git(&["status", "--porcelain"]).is_none_or(|changes| changes.is_empty());
    format!("{commit}{}", if clean { "" } else { " with changes" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_lists_are_ranges_and_single_cores() {
        for (text, expected) in [("0", &[0][..]), ("0-2", &[0, 1, 2]), ("1,4-5", &[1, 4, 5]), ("", &[])] {
            assert_eq!(core_list(text), expected, "{text}");
        }
    }
}
