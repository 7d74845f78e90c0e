//! Files of parts as memory: the one place of this crate where what the compiler cannot see is promised.

#![expect(unsafe_code, reason = "that nobody writes to a file is known to whoever knows the files")]

use std::fs::File;

use keirin_kernels::map::Map;

/// A file as memory; `None` if it cannot be that.
pub(super) fn map(file: &File, byte_count: u64) -> Option<Map> {
    let byte_count = usize::try_from(byte_count).ok()?;
    // SAFETY: what is mapped are files of parts, and those never change: a part is written under another name, synced
    // and published, and from then on only read and removed, by us and by every other process that keeps to the format
    // (a removed file stays as long as it is mapped). Where a file is cut or its disk fails nevertheless, bytes become
    // zeros while they are read: what reads maps here (checksums, headers of frames, sums and unpacking of numbers) takes
    // no unchecked length or address from bytes that it looked at before.
    unsafe { Map::new(file, byte_count) }.ok()
}
