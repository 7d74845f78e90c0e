//! google/snappy through its C interface.

use snappy_src::{snappy_compress, snappy_max_compressed_length, snappy_uncompress};

/// The compressed bytes, or the library's status.
///
/// # Errors
/// When the library fails.
pub fn compress(block: &[u8]) -> Result<Vec<u8>, u32> {
    // SAFETY: a computation on a number.
    let mut size = unsafe { snappy_max_compressed_length(block.len()) };
    let mut output = vec![0_u8; size];
    // SAFETY: both buffers have the sizes that are passed, and the library writes no more than `size`.
    let status = unsafe {
        snappy_compress(block.as_ptr().cast(), block.len(), output.as_mut_ptr().cast(), &raw mut size)
    };
    output.truncate(size);
    if status == 0 { Ok(output) } else { Err(status) }
}

/// Decodes `input` into `output`, or returns the library's status.
///
/// # Errors
/// When the library fails, or the size is another.
pub fn uncompress(input: &[u8], output: &mut [u8]) -> Result<(), u32> {
    let mut size = output.len();
    // SAFETY: both buffers have the sizes that are passed, and the library writes no more than `size`.
    let status = unsafe {
        snappy_uncompress(input.as_ptr().cast(), input.len(), output.as_mut_ptr().cast(), &raw mut size)
    };
    if status == 0 && size == output.len() { Ok(()) } else { Err(status) }
}
