//! Memory that an application shares with its router: who makes it, and what is looked at before
//! somebody else's is used.
//!
//! The application makes it, with every page and with seals that keep its size, and hands it over:
//! it is the application's memory where that is limited. The router adds a seal that keeps anybody
//! from punching holes into it or mapping it anew for writing, and looks whether all pages are
//! there. From then on nothing that the application does can make an access fail (SIGBUS).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};

use super::ring::{Marks, Memory, Reader, Writer};

pub(super) const RING_BYTES: usize = 512 << 10;
const MARKS_BYTES: usize = 4096;
/// Octets of all of it: marks of both directions, and both rings.
pub(super) const SHARED_BYTES: usize = MARKS_BYTES + 2 * RING_BYTES;

const _: () = assert!(2 * size_of::<Marks>() <= MARKS_BYTES);

const SIZE_SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

/// A mapping, undone when dropped.
#[derive(Debug)]
struct Mapping(NonNull<u8>);

// SAFETY: the memory is used through atomics and copies alone, from any thread.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn of(file: &OwnedFd) -> io::Result<Self> {
        // SAFETY: a new mapping at a place of the system's choice touches nothing that is there.
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
        // SAFETY: the whole of a mapping that nobody uses any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), SHARED_BYTES) };
    }
}

#[derive(Debug)]
pub(super) struct Direction {
    mapping: Arc<Mapping>,
    /// 0 from the application to the router, 1 back.
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
        // SAFETY: within the mapping, aligned as its pages are, and made of atomics alone, which
        // another process may change at any time.
        unsafe { self.mapping.0.cast::<Marks>().add(self.number).as_ref() }
    }

    #[inline]
    fn put(&self, at: u32, octets: &[u8]) {
        assert!(at as usize + octets.len() <= RING_BYTES, "within the ring");
        // SAFETY: asserted; private memory and shared memory do not overlap. The other process may
        // read or write there meanwhile, and whatever it sees or leaves is its own affair.
        unsafe { ptr::copy_nonoverlapping(octets.as_ptr(), self.ring(at), octets.len()) }
    }

    #[inline]
    fn take(&self, at: u32, octets: &mut [u8]) {
        assert!(at as usize + octets.len() <= RING_BYTES, "within the ring");
        // SAFETY: as in `put`. The octets may be any, also a mixture; they are looked at only where
        // they have been copied to.
        unsafe { ptr::copy_nonoverlapping(self.ring(at), octets.as_mut_ptr(), octets.len()) }
        // What is looked at from here on is the copy: no compiler may read the ring again for it.
        compiler_fence(Ordering::SeqCst);
    }
}

/// Both directions, as one side sees them.
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

    /// An application makes them, and has a file to hand over.
    pub(super) fn create() -> io::Result<(Self, OwnedFd)> {
        if file_bytes_max() < SHARED_BYTES as u64 {
            // The system would end the program with a signal.
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let file = memory_file()?;
        // SAFETY: no memory is involved in either call.
        let is_made = unsafe {
            libc::fallocate(file.as_raw_fd(), 0, 0, SHARED_BYTES as libc::off_t) == 0
                && libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SIZE_SEALS) == 0
        };
        if !is_made {
            return Err(io::Error::last_os_error());
        }
        Ok((Self::new(Mapping::of(&file)?, 1), file))
    }

    /// A router takes over what a stranger hands it.
    pub(super) fn map_received(file: &OwnedFd) -> io::Result<Self> {
        check_size_seals(file)?;
        let mapping = Mapping::of(file)?;
        // SAFETY: no memory is involved.
        let sealed =
            unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_FUTURE_WRITE) };
        if sealed < 0 {
            return Err(io::Error::last_os_error());
        }
        // No page can go any more, so that those that are there now stay.
        check_pages(file)?;
        Ok(Self::new(mapping, 0))
    }
}

fn memory_file() -> io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    let make = |flags| {
        // SAFETY: the name is a string with its zero octet.
        match unsafe { libc::memfd_create(c"weir-face".as_ptr(), flags) } {
            // SAFETY: just made, and nobody else's.
            file @ 0.. => Ok(unsafe { OwnedFd::from_raw_fd(file) }),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // Some systems insist on it, and those before Linux 6.3 do not know it.
    make(flags | libc::MFD_NOEXEC_SEAL).or_else(|_| make(flags))
}

/// How large a file may be that this process makes (RLIMIT_FSIZE).
fn file_bytes_max() -> u64 {
    // SAFETY: a plain C structure for which zeros are a valid value; the pointer is to it.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        match libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) {
            0 => limit.rlim_cur,
            _ => 0,
        }
    }
}

/// Refuses what is not ordinary memory of the right size for good.
fn check_size_seals(file: &OwnedFd) -> io::Result<()> {
    // SAFETY: no memory is involved. Other files than memory have no seals, which is an error.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    if seals < 0 || seals & SIZE_SEALS != SIZE_SEALS {
        return Err(refusal("the memory has no seals that keep its size"));
    }
    // No multiple of huge pages, a pool of which can run out at any access.
    if status(file)?.st_size != SHARED_BYTES as libc::off_t {
        return Err(refusal("the memory has another size"));
    }
    Ok(())
}

/// Refuses memory of which pages have yet to be made, when there may be none left.
fn check_pages(file: &OwnedFd) -> io::Result<()> {
    match status(file)?.st_blocks * 512 >= SHARED_BYTES as libc::blkcnt_t {
        true => Ok(()),
        false => Err(refusal("the memory lacks pages")),
    }
}

fn status(file: &OwnedFd) -> io::Result<libc::stat> {
    // SAFETY: a plain C structure for which zeros are a valid value; the pointer is to it.
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
