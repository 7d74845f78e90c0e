//! Files as memory.
//!
//! Memory that belongs to a file is read as fast as any, without a copy. But where the file ends too early, or its
//! disk fails, a load has no way to say so: the system sends SIGBUS, which ends the process. So a handler puts zeros
//! where the file cannot be read, marks the map, and lets the load go on; whoever reads asks for the mark behind it
//! ([`Map::read`]) and has an error instead of a signal. The zeros reach to the end of the map, for one mapping a
//! page would be more than the system allows, and the mark is never taken away. Signals for other addresses go to
//! the handler that was there before; whoever installs one later is to pass on what is not its own.
//!
//! What is mapped must not be written to by anyone: parts of tables never are. Linux only; elsewhere there are no
//! maps.

use std::fs::File;
use std::io;
use std::ops::Range;

#[cfg(target_os = "linux")]
use linux::Mapping;

/// A file, or its beginning, as memory to read from.
#[derive(Debug)]
pub struct Map {
    #[cfg(target_os = "linux")]
    mapping: Mapping,
}

impl Map {
    /// The first so many bytes of a file; whether there are so many, reading tells.
    ///
    /// # Errors
    /// When the system refuses, there are too many maps or there cannot be any.
    pub fn new(file: &File, byte_count: usize) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        return Ok(Self { mapping: Mapping::new(file, byte_count)? });
        #[cfg(not(target_os = "linux"))]
        {
            let _ = (file, byte_count);
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    /// What `read` makes of a range of the bytes.
    ///
    /// # Errors
    /// When the range is not in the map, or some of the map could not be read, now or before.
    pub fn read<T>(&self, range: Range<usize>, read: impl FnOnce(&[u8]) -> T) -> io::Result<T> {
        #[cfg(target_os = "linux")]
        {
            let bytes = self.mapping.bytes().get(range).ok_or(io::ErrorKind::UnexpectedEof)?;
            // All loads are done before the mark is asked for.
            let value = std::hint::black_box(read(bytes));
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
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

    /// A map that the handler knows. It has no lock and takes no memory, for a signal may come anywhere.
    struct Place {
        /// The first address; [`FREE`] or [`TAKEN`] while there is none.
        start: AtomicUsize,
        end: AtomicUsize,
        is_damaged: AtomicBool,
    }

    const FREE: usize = 0;
    const TAKEN: usize = 1;
    /// The most maps at a time.
    const PLACES: usize = 1024;
    static MAPS: [Place; PLACES] = [const {
        Place { start: AtomicUsize::new(FREE), end: AtomicUsize::new(0), is_damaged: AtomicBool::new(false) }
    }; PLACES];

    /// What was done about SIGBUS before, and the size of a page; known before the handler is there.
    static BEFORE: OnceLock<(libc::sigaction, usize)> = OnceLock::new();

    #[derive(Debug)]
    pub(super) struct Mapping {
        first: NonNull<u8>,
        len: usize,
        place: usize,
    }

    // SAFETY: the memory is only read, and belongs to no thread.
    unsafe impl Send for Mapping {}
    // SAFETY: as above.
    unsafe impl Sync for Mapping {}

    impl Mapping {
        pub(super) fn new(file: &File, len: usize) -> io::Result<Self> {
            install()?;
            if len == 0 {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let take = |place: &Place| {
                place.start.compare_exchange(FREE, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            };
            let place = MAPS.iter().position(take).ok_or(io::ErrorKind::QuotaExceeded)?;
            // SAFETY: a new map at an address that the system chooses; the file stays mapped when it is closed.
            let first = unsafe {
                libc::mmap(ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
            };
            let Some(first) = NonNull::new(first.cast::<u8>()).filter(|_| first != libc::MAP_FAILED) else {
                let error = io::Error::last_os_error();
                MAPS[place].start.store(FREE, Ordering::Release);
                return Err(error);
            };
            let start = first.as_ptr().addr();
            MAPS[place].is_damaged.store(false, Ordering::Relaxed);
            MAPS[place].end.store(start + len, Ordering::Relaxed);
            MAPS[place].start.store(start, Ordering::Release);
            Ok(Self { first, len, place })
        }

        pub(super) fn bytes(&self) -> &[u8] {
            // SAFETY: so many bytes are mapped, and stay so; what cannot be read becomes zeros. Nobody writes to
            // what is mapped, as the module says.
            unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
        }

        pub(super) fn is_damaged(&self) -> bool {
            // Loads that saw zeros may not be moved behind this one. A stronger fence would keep the CPU from reading on
            // before all is there.
            fence(Ordering::Acquire);
            MAPS[self.place].is_damaged.load(Ordering::Relaxed)
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            MAPS[self.place].start.store(TAKEN, Ordering::Release);
            // SAFETY: the map is ours, and nobody has its bytes any more.
            unsafe { libc::munmap(self.first.as_ptr().cast(), self.len) };
            MAPS[self.place].start.store(FREE, Ordering::Release);
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
            // A signal may come as soon as ours is there.
            BEFORE.get_or_init(|| (before, page));
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_bus_error;
            // SAFETY: as above.
            let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
            ours.sa_sigaction = handler as usize;
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            // SAFETY: the handler has the signature that the flags say, and does nothing that a handler may not.
            unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, ptr::null_mut()) == 0 }
        });
        if *is_installed { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
    }

    /// Puts zeros where a map cannot be read. Atomics and system calls are all that a handler may use.
    extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
        let Some((before, page)) = BEFORE.get() else { return };
        // SAFETY: the system gives a handler with these flags a signal's facts, and SIGBUS has an address.
        let address = unsafe { (*info).si_addr() }.addr();
        for place in &MAPS {
            let start = place.start.load(Ordering::Acquire);
            let end = place.end.load(Ordering::Relaxed);
            if start <= TAKEN || !(start..end).contains(&address) {
                continue;
            }
            // In front of the zeros, so that whoever sees them sees the mark.
            place.is_damaged.store(true, Ordering::SeqCst);
            let first = address / page * page;
            // SAFETY: the address of a variable of this thread, which the calls below may set.
            let errno = unsafe { libc::__errno_location() };
            // SAFETY: as above.
            let kept = unsafe { *errno };
            // SAFETY: replaces pages of a map of ours, up to its end, which go on being readable.
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
            // SAFETY: as above.
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
                // SAFETY: as above, with this one.
                let handler = unsafe { std::mem::transmute::<usize, extern "C" fn(c_int)>(handler) };
                handler(signal);
            }
        }
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_that_gets_shorter_is_an_error_and_no_signal() {
        let path = std::env::temp_dir().join(format!("keirin-map-{}", std::process::id()));
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(&[7; 100_000]).unwrap();
        let map = Map::new(&file, 100_000).unwrap();
        let sum = |map: &Map, range: Range<usize>| {
            map.read(range, |bytes| bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>())
        };
        assert_eq!(sum(&map, 0..100_000).unwrap(), 700_000);
        assert_eq!(sum(&map, 1..100_001).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        file.set_len(50_000).unwrap();
        assert_eq!(sum(&map, 0..1000).unwrap(), 7000);
        assert!(sum(&map, 0..100_000).unwrap_err().to_string().contains("shorter"));
        sum(&map, 0..1000).unwrap_err();
        let other = Map::new(&file, 50_000).unwrap();
        drop(map);
        assert_eq!(sum(&other, 0..50_000).unwrap(), 350_000);
    }
}
