//! Memory maps of parts: the only unsafe code of this crate.

#![expect(unsafe_code, reason = "that nobody writes to a file is known to whoever knows the files")]

use std::fs::File;

use keirin_kernels::map::Map;

/// The memory map of a file; `None` if it cannot be mapped.
pub(super) fn map(file: &File, byte_count: u64) -> Option<Map> {
    let byte_count = usize::try_from(byte_count).ok()?;
    // SAFETY: only files of parts are mapped, and those never change: a part is written under another name, synced
    // and published, and from then on only read and removed, by this and every other process that keeps to the
    // format (a removed file stays while it is mapped). If a file is truncated or its disk fails nevertheless,
    // bytes become zeros while they are read: the readers of maps (checksums, headers of frames, sums and unpacking
    // of numbers) take no unchecked length or address from bytes that they looked at before.
    unsafe { Map::new(file, byte_count) }.ok()
}
