//! What statements run on: memory, threads, guards, progress, what steps take, temporary files, and the stream of the answer.

mod full_disk;
pub(crate) mod guard;
pub(crate) mod machine;
pub(crate) mod memory;
pub(crate) mod pool;
pub(crate) mod process;
pub(crate) mod progress;
pub(crate) mod running;
pub(crate) mod spill_files;
pub(crate) mod steps;
pub(crate) mod stream;
pub(crate) mod temporary;
pub(crate) mod work;
