//! Memory-mapped files.
//!
//! Mapped memory is read as fast as any other, without a copy. But if the file is too short, or its disk
//! fails, a load has no way to report it: the system sends SIGBUS, which ends the process. So a handler
//! replaces the pages that cannot be read by zeros, marks the map, and lets the load continue; readers check
//! the mark afterwards ([`Map::read`]) and get an error instead of a signal. The zeros reach to the end of
//! the map, because one mapping for each page would be more than the system allows, and the mark is never
//! removed.
//!
//! # A handler of the whole process
//!
//! A process has one handler of SIGBUS. The first [`Map`] installs ours; SIGBUS for addresses outside of all
//! maps goes to the handler that was there before, or ends the process as it would have done without us. A
//! program that installs its own later must pass on what is not its own, and one that wants no such handler
//! calls [`switch_off`] before it opens a database: then there are no maps and no handler, and files are read
//! into memory instead. Linux only; elsewhere there are no maps.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(target_os = "linux")]
use linux::Mapping;

static IS_SWITCHED_OFF: AtomicBool = AtomicBool::new(false);

/// Makes no more maps in this process, and installs no handler of SIGBUS. Existing maps stay, and so does a
/// handler that one of them has installed: call this first.
pub fn switch_off() {
    IS_SWITCHED_OFF.store(true, Ordering::Relaxed);
}

/// A file, or its beginning, mapped to memory for reading.
#[derive(Debug)]
pub struct Map {
    #[cfg(target_os = "linux")]
    mapping: Mapping,
}

impl Map {
    /// Maps the first `byte_count` bytes of a file; if the file is shorter, reading fails.
    ///
    /// # Safety
    /// As long as the map lives, nobody may write to these bytes of the file, in this process or another.
    /// (The file may get shorter or fail to be read: then bytes turn into zeros, once, while they are being
    /// read. So a reader must not use a length or an address from the map unchecked because it checked these
    /// bytes before.)
    ///
    /// # Errors
    /// When the system refuses, there are too many maps, or there are none here or after [`switch_off`].
    pub unsafe fn new(file: &File, byte_count: usize) -> io::Result<Self> {
        if IS_SWITCHED_OFF.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        #[cfg(target_os = "linux")]
        return Ok(Self {
            // SAFETY: the caller's promise that nobody writes to these bytes.
            mapping: unsafe { Mapping::new(file, byte_count) }?,
        });
        #[cfg(not(target_os = "linux"))]
        {
            let _ = (file, byte_count);
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    /// Applies `read` to a range of the bytes.
    ///
    /// # Errors
    /// When the range is not in the map, or some of the map could not be read, now or before.
    pub fn read<T>(&self, range: Range<usize>, read: impl FnOnce(&[u8]) -> T) -> io::Result<T> {
        #[cfg(target_os = "linux")]
        {
            let bytes = self.mapping.bytes().get(range).ok_or(io::ErrorKind::UnexpectedEof)?;
            let value = read(bytes);
            if self.mapping.is_damaged() {
                return Err(io::Error::other("the file is shorter than it was, or its disk failed"));
            }
            Ok(value)
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _ = (range, read);
            Err(io::ErrorKind::Unsupported.into())
        }
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::{c_int, c_void};
    use std::fs::File;
    use std::io;
    use std::os::fd::AsRawFd;
    use std::ptr::{self, NonNull};
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence};

    /// A map that the handler knows. It uses no lock and allocates no memory, as a signal may come at any
    /// time. The start of one map with the end of another would make the handler overwrite what is between
    /// them, so both are read under a version number that counts their changes (a seqlock).
    pub(super) struct Place {
        /// Odd while the thread that made it odd changes the fields below.
        version: AtomicU64,
        /// The first address; zero if there is no map.
        start: AtomicUsize,
        end: AtomicUsize,
        is_damaged: AtomicBool,
    }

    /// The most maps at a time.
    const PLACES: usize = 1024;
    static MAPS: [Place; PLACES] = [const { Place::new() }; PLACES];

    impl Place {
        pub(super) const fn new() -> Self {
            Self {
                version: AtomicU64::new(0),
                start: AtomicUsize::new(0),
                end: AtomicUsize::new(0),
                is_damaged: AtomicBool::new(false),
            }
        }

        /// Reserves the place for the caller, who must [`Place::set`] it; false if it is in use.
        pub(super) fn take(&self) -> bool {
            let version = self.version.load(Ordering::Acquire);
            version.is_multiple_of(2)
                && self.start.load(Ordering::Relaxed) == 0
                && self
                    .version
                    .compare_exchange(version, version + 1, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        }

        /// Hides the map from the handler until [`Place::set`]; only for the owner of the place.
        pub(super) fn hide(&self) {
            self.version.fetch_add(1, Ordering::Relaxed);
        }

        /// Ends what `take` or `hide` began: publishes the map that the place stands for, `0..0` for none.
        pub(super) fn set(&self, start: usize, end: usize) {
            // A reader that sees one of these numbers also sees the odd version.
            fence(Ordering::Release);
            self.is_damaged.store(false, Ordering::Relaxed);
            self.end.store(end, Ordering::Relaxed);
            self.start.store(start, Ordering::Relaxed);
            self.version.fetch_add(1, Ordering::Release);
        }

        /// The end of the map if `address` is in it. A place that is being changed is not one that a thread
        /// reads from.
        pub(super) fn end_if_at(&self, address: usize) -> Option<usize> {
            let version = self.version.load(Ordering::Acquire);
            let start = self.start.load(Ordering::Relaxed);
            let end = self.end.load(Ordering::Relaxed);
            fence(Ordering::Acquire);
            let is_whole = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
            (is_whole && start != 0 && (start..end).contains(&address)).then_some(end)
        }
    }

    /// The previous action for SIGBUS, and the page size; both are set before the handler is installed.
    static BEFORE: OnceLock<(libc::sigaction, usize)> = OnceLock::new();

    #[derive(Debug)]
    pub(super) struct Mapping {
        first: NonNull<u8>,
        len: usize,
        place: usize,
    }

    // SAFETY: the memory is only read, and belongs to no thread.
    unsafe impl Send for Mapping {}
    // SAFETY: all that a shared mapping gives is bytes to read.
    unsafe impl Sync for Mapping {}

    impl Mapping {
        /// # Safety
        /// As long as the mapping lives, nobody may write to these bytes of the file.
        pub(super) unsafe fn new(file: &File, len: usize) -> io::Result<Self> {
            install()?;
            if len == 0 {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let place = MAPS.iter().position(Place::take).ok_or(io::ErrorKind::QuotaExceeded)?;
            // SAFETY: a new map at an address that the system chooses; the file stays mapped when it is
            // closed.
            let first = unsafe {
                libc::mmap(ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
            };
            let Some(first) = NonNull::new(first.cast::<u8>()).filter(|_| first != libc::MAP_FAILED) else {
                let error = io::Error::last_os_error();
                MAPS[place].set(0, 0);
                return Err(error);
            };
            let start = first.as_ptr().addr();
            MAPS[place].set(start, start + len);
            Ok(Self { first, len, place })
        }

        pub(super) fn bytes(&self) -> &[u8] {
            // SAFETY: so many bytes are mapped until `self` is dropped; what cannot be read becomes zeros;
            // nobody writes to them, as the caller of `new` promised.
            unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
        }

        /// Whether the bytes that this thread has read so far may be zeros from the handler.
        pub(super) fn is_damaged(&self) -> bool {
            // The handler interrupts a load of this thread: the compiler must not move loads behind this
            // check.
            compiler_fence(Ordering::SeqCst);
            // Nor may the CPU move loads behind it that saw zeros from a handler in another thread.
            fence(Ordering::Acquire);
            MAPS[self.place].is_damaged.load(Ordering::Relaxed)
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            let place = &MAPS[self.place];
            place.hide();
            // SAFETY: the map is ours, and nobody has its bytes any more.
            unsafe { libc::munmap(self.first.as_ptr().cast(), self.len) };
            place.set(0, 0);
        }
    }

    /// Installs the handler, once for the process.
    fn install() -> io::Result<()> {
        static IS_INSTALLED: OnceLock<bool> = OnceLock::new();
        let is_installed = IS_INSTALLED.get_or_init(|| {
            // SAFETY: asks for a number.
            let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) });
            // SAFETY: zeros are a value of this plain structure.
            let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
            // SAFETY: no action is set, and what there is is written to a value of this type.
            let is_known = unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut before) } == 0;
            let Some(page) = page.ok().filter(|_| is_known) else { return false };
            // A signal may come as soon as our handler is installed.
            BEFORE.get_or_init(|| (before, page));
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_bus_error;
            // SAFETY: zeros are a value of this plain structure.
            let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
            ours.sa_sigaction = handler as usize;
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            // SAFETY: the handler has the signature that the flags say, and does nothing that a handler may
            // not.
            unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, ptr::null_mut()) == 0 }
        });
        if *is_installed { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
    }

    /// Replaces the pages of a map that cannot be read by zeros. A signal handler may use only atomics and
    /// system calls.
    extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
        let Some((before, page)) = BEFORE.get() else { return };
        // SAFETY: the system gives a handler with these flags a signal's facts, and SIGBUS has an address.
        let address = unsafe { (*info).si_addr() }.addr();
        for place in &MAPS {
            let Some(end) = place.end_if_at(address) else { continue };
            // Before the zeros, so that a thread that sees them also sees the mark.
            place.is_damaged.store(true, Ordering::SeqCst);
            let first = address / page * page;
            // SAFETY: the address of a variable of this thread, which the calls below may set.
            let errno = unsafe { libc::__errno_location() };
            // SAFETY: the address is valid as long as this thread runs.
            let kept = unsafe { *errno };
            // SAFETY: replaces pages of a map of ours, up to its end, which go on being readable. The thread
            // that this handler interrupts reads from the map, so nobody drops it.
            let zeros = unsafe {
                libc::mmap(
                    ptr::without_provenance_mut(first),
                    end - first,
                    libc::PROT_READ,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                    -1,
                    0,
                )
            };
            // SAFETY: the address is valid as long as this thread runs.
            unsafe { *errno = kept };
            if zeros != libc::MAP_FAILED {
                return;
            }
        }
        match before.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {
                // The load is tried again, and ends the process as it would have done without us.
                // SAFETY: zeros are the default action.
                let default: libc::sigaction = unsafe { std::mem::zeroed() };
                // SAFETY: a valid action.
                unsafe { libc::sigaction(signal, &raw const default, ptr::null_mut()) };
            }
            handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
                // SAFETY: whoever installed it said that it has this signature.
                let handler = unsafe {
                    std::mem::transmute::<usize, extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void)>(
                        handler,
                    )
                };
                handler(signal, info, context);
            }
            handler => {
                // SAFETY: whoever installed it without SA_SIGINFO said that it has this signature.
                let handler = unsafe { std::mem::transmute::<usize, extern "C" fn(c_int)>(handler) };
                handler(signal);
            }
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "maps nothing of files")]
    fn a_file_that_gets_shorter_is_an_error_and_no_signal() {
        let path = std::env::temp_dir().join(format!("keirin-map-{}", std::process::id()));
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(&[7; 100_000]).unwrap();
        // SAFETY: nobody else has a name of the file, and nothing below writes to it; it only gets shorter.
        let map = unsafe { Map::new(&file, 100_000) }.unwrap();
        let sum = |map: &Map, range: Range<usize>| {
            map.read(range, |bytes| bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>())
        };
        assert_eq!(sum(&map, 0..100_000).unwrap(), 700_000);
        assert_eq!(sum(&map, 1..100_001).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        file.set_len(50_000).unwrap();
        assert_eq!(sum(&map, 0..1000).unwrap(), 7000);
        assert!(sum(&map, 0..100_000).unwrap_err().to_string().contains("shorter"));
        sum(&map, 0..1000).unwrap_err();
        // SAFETY: nobody else has a name of the file, and nothing below writes to it.
        let other = unsafe { Map::new(&file, 50_000) }.unwrap();
        drop(map);
        assert_eq!(sum(&other, 0..50_000).unwrap(), 350_000);
    }

    /// Tests that start and end of a place are never seen from different maps, however often it changes in
    /// between.
    #[test]
    fn a_place_is_never_seen_half_changed() {
        use std::sync::atomic::{AtomicBool, Ordering};

        /// The distance between maps, each of which is one byte longer than the one before.
        const APART: usize = 1 << 20;
        const TURNS: usize = if cfg!(miri) { 200 } else { 200_000 };
        let place = linux::Place::new();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 0..TURNS {
                    let index = 1 + turn % 7;
                    assert!(place.take());
                    place.set(index * APART, index * APART + index);
                    assert!(!place.take(), "it is somebody's");
                    place.hide();
                    place.set(0, 0);
                }
                is_done.store(true, Ordering::Relaxed);
            });
            while !is_done.load(Ordering::Relaxed) {
                for index in 1..=7 {
                    // Between the first map and the last, an address that only a mix of two maps contains.
                    assert_eq!(place.end_if_at(index * APART + APART / 2), None);
                    let end = place.end_if_at(index * APART);
                    assert!(
                        end.is_none_or(|end| end == index * APART + index),
                        "map {index} ends at {end:?}"
                    );
                }
            }
        });
    }
}
