//! An application that does by hand what it likes with memory that it shares: see
//! docs/shared-memory.md.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg, setsockopt, sockopt,
};
use nix::{cmsg_space, libc};

pub(crate) const OFFER: [u8; 7] = [0x64, 5, 0xFD, 0x03, 0xB0, 1, 1];
pub(crate) const SWITCH: [u8; 7] = [0x64, 5, 0xFD, 0x03, 0xB0, 1, 0];
pub(crate) const RING_BYTES: usize = 512 << 10;
pub(crate) const SHARED_BYTES: usize = 4096 + 2 * RING_BYTES;
pub(crate) const SIZE_SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

/// Marks of the ring from the application to the router: octets from the beginning.
#[derive(Clone, Copy)]
pub(crate) enum FromApplication {
    Written = 0,
    Reader = 256,
    Writer = 384,
}

/// Of the ring from the router.
#[derive(Clone, Copy)]
pub(crate) enum FromRouter {
    Written = 512,
    Read = 512 + 128,
    Reader = 512 + 256,
    Writer = 512 + 384,
}

pub(crate) trait Mark {
    fn place(self) -> usize;
}

impl Mark for FromApplication {
    fn place(self) -> usize {
        self as usize
    }
}

impl Mark for FromRouter {
    fn place(self) -> usize {
        self as usize
    }
}

pub(crate) struct Stranger {
    stream: UnixStream,
    file: OwnedFd,
    memory: *mut u8,
    written: u32,
    seen: u32,
}

impl Stranger {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self::with(stream, memory_file(SHARED_BYTES, SIZE_SEALS))
    }

    /// One who is taken for a router, and has just been made an offer.
    pub(crate) fn of_offer(stream: UnixStream) -> Self {
        let mut octets = [0; 64];
        let (mut pieces, mut control) = ([IoSliceMut::new(&mut octets)], cmsg_space!(RawFd));
        let (fd, flags) = (stream.as_raw_fd(), MsgFlags::MSG_CMSG_CLOEXEC);
        let message = recvmsg::<()>(fd, &mut pieces, Some(&mut control), flags).unwrap();
        let Some(ControlMessageOwned::ScmRights(files)) = message.cmsgs().unwrap().next() else {
            panic!("no file came with it");
        };
        // SAFETY: the system has just given it to this process.
        let file = unsafe { OwnedFd::from_raw_fd(files[0]) };
        Self::with(stream, file)
    }

    fn with(stream: UnixStream, file: OwnedFd) -> Self {
        let memory = map(&file);
        assert!(memory != libc::MAP_FAILED.cast());
        Self { stream, file, memory, written: 0, seen: 0 }
    }

    pub(crate) fn offer(&mut self) {
        let file = self.file.try_clone().unwrap();
        self.offer_file(file.as_fd());
    }

    pub(crate) fn offer_file(&mut self, file: BorrowedFd<'_>) {
        self.send_with(&OFFER, &[file]);
    }

    pub(crate) fn send_with_file(&mut self, octets: &[u8]) {
        let file = self.file.try_clone().unwrap();
        self.send_with(octets, &[file.as_fd()]);
    }

    pub(crate) fn send_with(&mut self, octets: &[u8], files: &[BorrowedFd<'_>]) {
        self.try_send_with(octets, files).unwrap();
    }

    /// Sends what the connection takes.
    pub(crate) fn try_send_with(
        &mut self,
        octets: &[u8],
        files: &[BorrowedFd<'_>],
    ) -> nix::Result<usize> {
        let files: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
        let control = [ControlMessage::ScmRights(&files)];
        let control = if files.is_empty() { &[][..] } else { &control };
        let (pieces, flags) = ([IoSlice::new(octets)], MsgFlags::MSG_NOSIGNAL);
        sendmsg::<()>(self.stream.as_raw_fd(), &pieces, control, flags, None)
    }

    pub(crate) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Writes anywhere into the memory.
    pub(crate) fn poke(&self, place: usize, octets: &[u8]) {
        assert!(place + octets.len() <= SHARED_BYTES);
        // SAFETY: within the mapping, from memory of our own.
        unsafe { ptr::copy_nonoverlapping(octets.as_ptr(), self.memory.add(place), octets.len()) };
    }

    /// What is anywhere in the memory.
    pub(crate) fn peek(&self, place: usize, len: usize) -> Vec<u8> {
        assert!(place + len <= SHARED_BYTES);
        let mut octets = vec![0; len];
        // SAFETY: within the mapping, to memory of our own.
        unsafe { ptr::copy_nonoverlapping(self.memory.add(place), octets.as_mut_ptr(), len) };
        octets
    }

    pub(crate) fn send(&mut self, octets: &[u8]) {
        self.stream.write_all(octets).unwrap();
    }

    /// What has come over the connection.
    pub(crate) fn received(&mut self) -> Vec<u8> {
        let mut octets = vec![0; 65536];
        let read = self.stream.read(&mut octets).unwrap();
        octets.truncate(read);
        octets
    }

    /// Says that packets come through the ring from now on.
    pub(crate) fn switch(&mut self) {
        self.send(&SWITCH);
    }

    pub(crate) fn set(&self, mark: impl Mark, number: u32) {
        // SAFETY: within the mapping, and aligned.
        let mark = unsafe { &*self.memory.add(mark.place()).cast::<AtomicU32>() };
        mark.store(number, Ordering::SeqCst);
    }

    /// Writes octets into the ring, which must have room, and says so.
    pub(crate) fn write(&mut self, octets: &[u8]) {
        for octet in octets {
            let at = 4096 + self.written as usize % RING_BYTES;
            // SAFETY: within the mapping.
            unsafe { self.memory.add(at).write_volatile(*octet) };
            self.written += 1;
        }
        self.set(FromApplication::Written, self.written);
    }

    /// The next `len` octets that the router writes into its ring.
    pub(crate) fn wait_for_octets(&mut self, len: u32, limit: Duration) -> Vec<u8> {
        let end = Instant::now() + limit;
        while self.mark(FromRouter::Written) < self.seen + len {
            assert!(Instant::now() < end, "there is no more");
            std::thread::sleep(Duration::from_millis(1));
        }
        let octet = |at: u32| {
            let place = 4096 + RING_BYTES + at as usize % RING_BYTES;
            // SAFETY: within the mapping.
            unsafe { self.memory.add(place).read_volatile() }
        };
        let octets = (self.seen..self.seen + len).map(octet).collect();
        self.seen += len;
        octets
    }

    fn mark(&self, mark: impl Mark) -> u32 {
        // SAFETY: within the mapping, and aligned.
        let mark = unsafe { &*self.memory.add(mark.place()).cast::<AtomicU32>() };
        mark.load(Ordering::SeqCst)
    }

    /// Nothing takes pages or octets from the memory.
    pub(crate) fn expect_sealed(&self) {
        let fd = self.file.as_raw_fd();
        let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: no memory but the mapping is involved, and that stays as it is.
        unsafe {
            assert_eq!(libc::ftruncate(fd, 4096), -1);
            assert_eq!(libc::fallocate(fd, punch, 0, SHARED_BYTES as libc::off_t), -1);
            let range = self.memory.cast();
            assert_eq!(libc::madvise(range, SHARED_BYTES, libc::MADV_REMOVE), -1);
        }
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        // SAFETY: the whole of the mapping.
        unsafe { libc::munmap(self.memory.cast(), SHARED_BYTES) };
    }
}

/// A file of memory, with all of its pages.
pub(crate) fn memory_file(len: usize, seals: libc::c_int) -> OwnedFd {
    memory_file_with(len, len, seals)
}

/// One that has pages for `made` octets alone.
fn memory_file_with(made: usize, len: usize, seals: libc::c_int) -> OwnedFd {
    // SAFETY: a string with its zero octet; then a descriptor that is nobody else's.
    unsafe {
        let fd = libc::memfd_create(c"stranger".as_ptr(), libc::MFD_ALLOW_SEALING);
        assert!(fd >= 0);
        let file = OwnedFd::from_raw_fd(fd);
        assert_eq!(libc::fallocate(fd, 0, 0, made as libc::off_t), 0);
        assert_eq!(libc::ftruncate(fd, len as libc::off_t), 0);
        assert_eq!(libc::fcntl(fd, libc::F_ADD_SEALS, seals), 0);
        file
    }
}

fn map(file: &OwnedFd) -> *mut u8 {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let (shared, fd) = (libc::MAP_SHARED, file.as_raw_fd());
    // SAFETY: a new mapping at a place of the system's choice.
    unsafe { libc::mmap(ptr::null_mut(), SHARED_BYTES, protection, shared, fd, 0).cast() }
}

/// Files that no router must take.
pub(crate) fn bad_files() -> Vec<(&'static str, OwnedFd)> {
    let regular = |file: File| OwnedFd::from(file);
    vec![
        ("no seals", memory_file(SHARED_BYTES, 0)),
        ("may shrink", memory_file(SHARED_BYTES, libc::F_SEAL_GROW)),
        ("lacks a page", memory_file_with(SHARED_BYTES - 4096, SHARED_BYTES, SIZE_SEALS)),
        ("too small", memory_file(4096, SIZE_SEALS)),
        ("too large", memory_file(SHARED_BYTES + 4096, SIZE_SEALS)),
        ("cannot be written", memory_file(SHARED_BYTES, SIZE_SEALS | libc::F_SEAL_WRITE)),
        ("no more seals", memory_file(SHARED_BYTES, SIZE_SEALS | libc::F_SEAL_SEAL)),
        ("a file", regular(tempfile::tempfile().unwrap())),
        ("a device", regular(File::open("/dev/zero").unwrap())),
        ("a socket", UnixStream::pair().unwrap().0.into()),
    ]
}

/// A TCP connection that takes an hour to close, as its other end reads nothing, and that end.
pub(crate) fn lingering_connection() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    near.set_nonblocking(true).unwrap();
    while near.write(&[0; 1 << 16]).is_ok() {}
    near.set_nonblocking(false).unwrap();
    let linger = libc::linger { l_onoff: 1, l_linger: 3600 };
    setsockopt(&near, sockopt::Linger, &linger).unwrap();
    (near.into(), far)
}
