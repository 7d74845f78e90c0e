//! Large columns in huge pages: small ones cost a third of the bandwidth, which no loop could win back.

/// `rows` values; the system is asked for huge pages before the first is written.
pub(crate) fn vec<T>(rows: usize, make: impl FnMut() -> T) -> Vec<T> {
    let mut values = Vec::with_capacity(rows);
    advise(&values);
    values.extend(std::iter::repeat_with(make).take(rows));
    values
}

#[cfg(target_os = "linux")]
fn advise<T>(values: &Vec<T>) {
    const PAGE: usize = 4096;
    let start = (values.as_ptr() as usize).next_multiple_of(PAGE);
    let end = values.as_ptr() as usize + values.capacity() * size_of::<T>();
    if start < end {
        // SAFETY: advice about whole pages of an allocation of ours changes no byte; failing changes nothing.
        #[allow(unsafe_code, reason = "there is no safe way to ask for huge pages")]
        unsafe {
            libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_HUGEPAGE);
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn advise<T>(_values: &Vec<T>) {}
