//! The memory file that an application shares with its router, and the checks before a received
//! file is used.
//!
//! The application creates the file with all pages and with seals that fix its size. The memory
//! thus counts against the application's limit. The router adds a seal. It prevents anyone from
//! punching holes into the file, and from mapping it for writing again. The router then checks that
//! all pages exist. After that, nothing that the application does can make an access fail (SIGBUS).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};

use super::ring::{Marks, Memory, Reader, Writer};

pub(super) const RING_BYTES: usize = 512 << 10;
const MARKS_BYTES: usize = 4096;
/// Size of the file: the marks of both directions, and both rings.
pub(super) const SHARED_BYTES: usize = MARKS_BYTES + 2 * RING_BYTES;

const _: () = assert!(2 * size_of::<Marks>() <= MARKS_BYTES);

const SIZE_SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

/// A mapping, removed when dropped.
#[derive(Debug)]
struct Mapping(NonNull<u8>);

// SAFETY: the memory is only accessed through atomics and copies, from any thread.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn of(file: &OwnedFd) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let at = unsafe {
            libc::mmap(
                ptr::null_mut(),
                SHARED_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(at.cast()) {
            Some(place) if at != libc::MAP_FAILED => Ok(Self(place)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, which is no longer used.
        unsafe { libc::munmap(self.0.as_ptr().cast(), SHARED_BYTES) };
    }
}

#[derive(Debug)]
pub(super) struct Direction {
    mapping: Arc<Mapping>,
    /// 0: from the application to the router; 1: back.
    number: usize,
}

impl Direction {
    fn ring(&self, at: u32) -> *mut u8 {
        let offset = MARKS_BYTES + self.number * RING_BYTES + at as usize;
        // SAFETY: callers stay within the ring, which is within the mapping.
        unsafe { self.mapping.0.as_ptr().add(offset) }
    }
}

impl Memory for Direction {
    const LEN: u32 = RING_BYTES as u32;

    fn marks(&self) -> &Marks {
        // SAFETY: within the mapping, aligned to its pages, and consisting of atomics only, which
        // another process may change at any time.
        unsafe { self.mapping.0.cast::<Marks>().add(self.number).as_ref() }
    }

    #[inline]
    fn put(&self, at: u32, octets: &[u8]) {
        assert!(at as usize + octets.len() <= RING_BYTES, "within the ring");
        // SAFETY: the range was checked; private and shared memory do not overlap. The other
        // process may access the ring at the same time. This can damage only the ring's bytes,
        // and this process does not rely on them.
        unsafe { ptr::copy_nonoverlapping(octets.as_ptr(), self.ring(at), octets.len()) }
    }

    #[inline]
    fn take(&self, at: u32, octets: &mut [u8]) {
        assert!(at as usize + octets.len() <= RING_BYTES, "within the ring");
        // SAFETY: as in `put`. The bytes may be any mixture. They are interpreted only after the
        // copy.
        unsafe { ptr::copy_nonoverlapping(self.ring(at), octets.as_mut_ptr(), octets.len()) }
        // From here on only the copy is read: the compiler must not read the ring again.
        compiler_fence(Ordering::SeqCst);
    }
}

/// Both rings, as one end uses them.
#[derive(Debug)]
pub(super) struct Rings {
    pub(super) reader: Reader<Direction>,
    pub(super) writer: Writer<Direction>,
}

impl Rings {
    fn new(mapping: Mapping, reads: usize) -> Self {
        let mapping = Arc::new(mapping);
        let direction = |number| Direction { mapping: Arc::clone(&mapping), number };
        Self { reader: Reader::new(direction(reads)), writer: Writer::new(direction(1 - reads)) }
    }

    /// For an application: creates the rings, and the file to send.
    pub(super) fn create() -> io::Result<(Self, OwnedFd)> {
        if file_bytes_max() < SHARED_BYTES as u64 {
            // The system would end the program with a signal (SIGXFSZ).
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let file = memory_file()?;
        // SAFETY: neither call involves memory.
        let is_made = unsafe {
            libc::fallocate(file.as_raw_fd(), 0, 0, SHARED_BYTES as libc::off_t) == 0
                && libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SIZE_SEALS) == 0
        };
        if !is_made {
            return Err(io::Error::last_os_error());
        }
        Ok((Self::new(Mapping::of(&file)?, 1), file))
    }

    /// For a router: maps a file received from an untrusted application.
    pub(super) fn map_received(file: &OwnedFd) -> io::Result<Self> {
        check_size_seals(file)?;
        // Map first: after the seal, the system refuses writable mappings.
        let mapping = Mapping::of(file)?;
        // SAFETY: no memory is involved.
        let sealed =
            unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_FUTURE_WRITE) };
        if sealed < 0 {
            return Err(io::Error::last_os_error());
        }
        // No page can disappear any more, so pages that exist now stay.
        check_pages(file)?;
        Ok(Self::new(mapping, 0))
    }
}

fn memory_file() -> io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    let make = |flags| {
        // SAFETY: the name is a C string.
        match unsafe { libc::memfd_create(c"weir-face".as_ptr(), flags) } {
            // SAFETY: a new descriptor without another owner.
            file @ 0.. => Ok(unsafe { OwnedFd::from_raw_fd(file) }),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // Some systems require MFD_NOEXEC_SEAL. Linux before 6.3 rejects it.
    make(flags | libc::MFD_NOEXEC_SEAL).or_else(|_| make(flags))
}

/// The largest file that this process may create (RLIMIT_FSIZE).
fn file_bytes_max() -> u64 {
    // SAFETY: the pointer refers to a plain C structure for which zeros are valid.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        match libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) {
            0 => limit.rlim_cur,
            _ => 0,
        }
    }
}

/// Checks that the file is ordinary memory whose size is fixed and correct.
fn check_size_seals(file: &OwnedFd) -> io::Result<()> {
    // SAFETY: no memory is involved. Files that are not memory have no seals, which is an error.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    if seals < 0 || seals & SIZE_SEALS != SIZE_SEALS {
        return Err(refusal("the memory has no seals that keep its size"));
    }
    // The size also excludes files of huge pages, because it is no multiple of their size. The pool
    // of huge pages could run out at any access.
    if status(file)?.st_size != SHARED_BYTES as libc::off_t {
        return Err(refusal("the memory has another size"));
    }
    Ok(())
}

/// Checks that all pages exist. A missing page could fail to be allocated later.
fn check_pages(file: &OwnedFd) -> io::Result<()> {
    match status(file)?.st_blocks * 512 >= SHARED_BYTES as libc::blkcnt_t {
        true => Ok(()),
        false => Err(refusal("the memory lacks pages")),
    }
}

fn status(file: &OwnedFd) -> io::Result<libc::stat> {
    // SAFETY: the pointer refers to a plain C structure for which zeros are valid.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        match libc::fstat(file.as_raw_fd(), &raw mut status) {
            0 => Ok(status),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn refusal(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}
