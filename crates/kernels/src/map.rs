//! Files as memory.
//!
//! Memory that belongs to a file is read as fast as any, without a copy. But where the file ends too early, or its
//! disk fails, a load has no way to say so: the system sends SIGBUS, which ends the process. So a handler puts zeros
//! where the file cannot be read, marks the map, and lets the load go on; whoever reads asks for the mark behind it
//! ([`Map::read`]) and has an error instead of a signal. The zeros reach to the end of the map, for one mapping a
//! page would be more than the system allows, and the mark is never taken away.
//!
//! # A handler of the whole process
//!
//! A process has one handler of SIGBUS. The first [`Map`] installs ours; SIGBUS for addresses outside of all maps goes
//! to the handler that was there before, or ends the process as it would have done without us. A program that installs
//! its own later must pass on what is not its own, and one that wants nothing of this calls [`switch_off`] before it
//! opens a database: then there are no maps and no handler, and files are read into memory instead. Linux only;
//! elsewhere there are no maps.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(target_os = "linux")]
use linux::Mapping;

static IS_SWITCHED_OFF: AtomicBool = AtomicBool::new(false);

/// Makes no more maps in this process and installs no handler of SIGBUS. Maps that there are stay, and so does a
/// handler that one of them has installed: call it first.
pub fn switch_off() {
    IS_SWITCHED_OFF.store(true, Ordering::Relaxed);
}

/// A file, or its beginning, as memory to read from.
#[derive(Debug)]
pub struct Map {
    #[cfg(target_os = "linux")]
    mapping: Mapping,
}

impl Map {
    /// The first `byte_count` bytes of a file; whether there are so many, reading tells.
    ///
    /// # Safety
    /// As long as the map lives, nobody writes to these bytes of the file, in this process or another. (The file may get
    /// shorter or fail to be read: that turns bytes into zeros while they are read, once. Whoever reads must not
    /// take an unchecked length or address from bytes of the map that it looked at before.)
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

    /// What `read` makes of a range of the bytes.
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

    /// A map that the handler knows. It has no lock and takes no memory, for a signal may come anywhere. The address of
    /// one map with the end of another would make the handler overwrite what is between them, so both are read under a
    /// number that counts their changes (a seqlock).
    pub(super) struct Place {
        /// Odd while the thread that made it so changes what follows.
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

        /// Makes the place the caller's to [`Place::set`], if it is nobody's.
        pub(super) fn take(&self) -> bool {
            let version = self.version.load(Ordering::Acquire);
            version.is_multiple_of(2)
                && self.start.load(Ordering::Relaxed) == 0
                && self
                    .version
                    .compare_exchange(version, version + 1, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        }

        /// Hides the map from the handler until [`Place::set`]; the caller owns it.
        pub(super) fn hide(&self) {
            self.version.fetch_add(1, Ordering::Relaxed);
        }

        /// Ends what `take` or `hide` began: what the place stands for from now on, `0..0` for nothing.
        pub(super) fn set(&self, start: usize, end: usize) {
            // Whoever sees one of these numbers sees the odd version, too.
            fence(Ordering::Release);
            self.is_damaged.store(false, Ordering::Relaxed);
            self.end.store(end, Ordering::Relaxed);
            self.start.store(start, Ordering::Relaxed);
            self.version.fetch_add(1, Ordering::Release);
        }

        /// The end of the map if `address` is in it. A place that is being changed is none that a thread reads from.
        pub(super) fn end_if_at(&self, address: usize) -> Option<usize> {
            let version = self.version.load(Ordering::Acquire);
            let start = self.start.load(Ordering::Relaxed);
            let end = self.end.load(Ordering::Relaxed);
            fence(Ordering::Acquire);
            let is_whole = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
            (is_whole && start != 0 && (start..end).contains(&address)).then_some(end)
        }
    }

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
    // SAFETY: all that a shared mapping gives is bytes to read.
    unsafe impl Sync for Mapping {}

    impl Mapping {
        /// # Safety
        /// Nobody writes to these bytes of the file as long as the mapping lives.
        pub(super) unsafe fn new(file: &File, len: usize) -> io::Result<Self> {
            install()?;
            if len == 0 {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let place = MAPS.iter().position(Place::take).ok_or(io::ErrorKind::QuotaExceeded)?;
            // SAFETY: a new map at an address that the system chooses; the file stays mapped when it is closed.
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
            // SAFETY: so many bytes are mapped until `self` is dropped; what cannot be read becomes zeros; nobody
            // writes to them, as the caller of `new` promised.
            unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
        }

        /// Whether what this thread has read so far may be zeros of the handler.
        pub(super) fn is_damaged(&self) -> bool {
            // The handler runs in the middle of a load of this thread: the compiler may not move loads behind this.
            compiler_fence(Ordering::SeqCst);
            // Nor may the CPU move loads behind it that saw zeros which another thread's handler made.
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
            // A signal may come as soon as ours is there.
            BEFORE.get_or_init(|| (before, page));
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_bus_error;
            // SAFETY: zeros are a value of this plain structure.
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
            let Some(end) = place.end_if_at(address) else { continue };
            // In front of the zeros, so that whoever sees them sees the mark.
            place.is_damaged.store(true, Ordering::SeqCst);
            let first = address / page * page;
            // SAFETY: the address of a variable of this thread, which the calls below may set.
            let errno = unsafe { libc::__errno_location() };
            // SAFETY: the address is valid as long as this thread runs.
            let kept = unsafe { *errno };
            // SAFETY: replaces pages of a map of ours, up to its end, which go on being readable. The thread that this
            // handler interrupts reads from the map, so nobody drops it.
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

    /// The two halves of a place are never those of different maps, however often it changes hands in between.
    #[test]
    fn a_place_is_never_seen_half_changed() {
        use std::sync::atomic::{AtomicBool, Ordering};

        /// Maps are so far apart, and one byte longer each.
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
                    // Between the first map and the last: the start of one and the end of another hold it.
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
