//! The shared-memory connection between an application and its local router
//! (docs/shared-memory.md).
//!
//! A face starts as a Unix connection. When there is traffic, and both ends support it, packets
//! move to two rings in memory that both have mapped. A packet then costs one copy in and one copy
//! out, and usually no system call.
//!
//! 1. The application counts received frames. After [`FRAMES_BEFORE_OFFER`], it creates a sealed
//!    memory file of about 1 MiB and sends it over the connection ([`OFFER`]).
//! 2. The router checks the file (`memory.rs`). If it accepts, it maps the file and sends
//!    [`SWITCH`] between two frames. From then on it writes to its ring. If it refuses, it sends
//!    nothing, and packets stay on the connection.
//! 3. Each end reads the connection up to the other's switch, and then the ring. So packets stay in
//!    order across the switch. The application answers the router's switch with its own.
//! 4. A writer copies whole frames into its ring, then advances `written` and issues a fence. If
//!    the reader sleeps, the writer sends a [`DOORBELL`] over the connection (`ring.rs`).
//! 5. A reader copies the bytes out of the ring, then cuts the copy into frames. When it finds
//!    nothing, it discards old doorbells, announces that it sleeps, and checks the ring once more.
//! 6. A writer without space announces that it waits. The reader rings once half of the ring is
//!    free.
//! 7. When the connection ends, the other end reads the rest of the ring, and the face closes.
//!
//! Example: the router has 200 Data of 8000 bytes for an application that sleeps. The ring holds
//! 524,288 bytes, so 65 Data fit. The router copies them and publishes every 64 KiB, so a reader
//! that is awake could start at once. Then it sets `writer` to 1 and waits, and rings once, because
//! the application sleeps. The application wakes and reads 128 KiB at a time. Once 262,144 bytes
//! are free, it sets `writer` to 0 and rings once. While both are awake, no more doorbells are
//! needed.
//!
//! The doorbell is the connection itself, not an eventfd: a hostile peer could make a write to an
//! eventfd block.
//!
//! An end must never
//! - trust a position that the peer can write,
//! - parse bytes that the peer can still change,
//! - block on the peer, or
//! - place a doorbell inside a half-sent frame of the connection.

mod atomic {
    pub(crate) use std::sync::atomic::{AtomicU32, Ordering, fence};
}
mod memory;
mod ring;

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_base::{Packet, Pool};
use weir_link::Link;
use weir_wire::tlv;

use self::memory::{Rings, SHARED_BYTES};
use self::ring::Broken;
use crate::descriptor;
use crate::socket::socket_source;
use crate::status::{RecvStatus, SendStatus};
use crate::stream::{READ_BYTES_MAX, StreamSocket, cut_frames};
use crate::uri::FaceUri;

const _: () = assert!(tlv::LP_SHARED_MEMORY == 0x03B0);
/// An offer, with the memory file attached. Like [`SWITCH`], it is an LpPacket without Fragment.
/// Receivers that do not support the field ignore it.
const OFFER: [u8; 7] = [0x64, 5, 0xFD, 0x03, 0xB0, 1, 1];
/// The sender writes its later packets to the ring.
const SWITCH: [u8; 7] = [0x64, 5, 0xFD, 0x03, 0xB0, 1, 0];
/// An empty LpPacket: the receiver must check its rings.
const DOORBELL: [u8; 2] = [0x64, 0];

/// Frames that an application receives before it makes an offer. Shared memory does not pay for a
/// few commands.
const FRAMES_BEFORE_OFFER: usize = 32;
/// After this many bytes, the writer publishes them while it writes more.
const PUBLISH_BYTES: u32 = 64 << 10;
/// Doorbells are read in blocks of this size, and at most this many blocks at a time.
const DOORBELL_READ_BYTES: usize = 512;
const DOORBELL_READS_MAX: usize = 8;

/// The memory that a router shares with all its applications, and the limit.
#[derive(Debug)]
pub struct SharedMemory {
    bytes_max: u64,
    used_bytes: AtomicU64,
    taken: AtomicU64,
    refused: AtomicU64,
}

impl SharedMemory {
    /// At most `bytes_max` bytes, for all applications together.
    pub fn new(bytes_max: u64) -> Self {
        let zero = || AtomicU64::new(0);
        Self { bytes_max, used_bytes: zero(), taken: zero(), refused: zero() }
    }

    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Refused offers: the limit is reached, or the memory is unsuitable. The application continues
    /// over its Unix connection.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Upper limit in bytes.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    fn claim(self: &Arc<Self>) -> Option<MemoryClaim> {
        let claim = |used| (used + BYTES <= self.bytes_max).then_some(used + BYTES);
        let (ok, fail) = (Ordering::Relaxed, Ordering::Relaxed);
        let claimed = self.used_bytes.fetch_update(ok, fail, claim).is_ok();
        claimed.then(|| MemoryClaim(Arc::clone(self)))
    }
}

const BYTES: u64 = SHARED_BYTES as u64;

/// A portion of a router's [`SharedMemory`], released when dropped.
#[derive(Debug)]
struct MemoryClaim(Arc<SharedMemory>);

impl Drop for MemoryClaim {
    fn drop(&mut self) {
        self.0.used_bytes.fetch_sub(BYTES, Ordering::Relaxed);
    }
}

/// Which end of the connection this is.
#[derive(Debug)]
enum Role {
    Router {
        memory: Arc<SharedMemory>,
        claim: Option<MemoryClaim>,
    },
    Application {
        frames_before_offer: usize,
        /// Created, but not sent yet.
        memory: Option<(Rings, OwnedFd)>,
    },
}

pub(crate) struct SharedSocket {
    stream: StreamSocket,
    role: Role,
    rings: Option<Rings>,
    /// This end must still send [`SWITCH`] before it writes to the ring.
    must_send_switch: bool,
    reads_ring: bool,
    writes_ring: bool,
    /// The ring had no space.
    is_blocked: bool,
}

impl SharedSocket {
    /// For a connection that a router has accepted.
    pub(crate) fn of_router(stream: StreamSocket, memory: Arc<SharedMemory>) -> Self {
        Self::new(stream, Role::Router { memory, claim: None })
    }

    /// For a connection that an application has made.
    pub(crate) fn of_application(stream: StreamSocket) -> Self {
        let frames_before_offer = FRAMES_BEFORE_OFFER;
        Self::new(stream, Role::Application { frames_before_offer, memory: None })
    }

    fn new(stream: StreamSocket, role: Role) -> Self {
        Self {
            stream,
            role,
            rings: None,
            must_send_switch: false,
            reads_ring: false,
            writes_ring: false,
            is_blocked: false,
        }
    }

    pub(crate) fn local_uri(&self) -> &FaceUri {
        self.stream.local_uri()
    }

    pub(crate) fn remote_uri(&self) -> &FaceUri {
        self.stream.remote_uri()
    }

    pub(crate) fn is_local(&self) -> bool {
        self.stream.is_local()
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.stream.held_bytes()
    }

    /// Whether packets go through shared memory in both directions.
    pub(crate) fn is_shared(&self) -> bool {
        self.reads_ring && self.writes_ring
    }

    pub(crate) fn recv(
        &mut self,
        pool: &mut Pool,
        frames: &mut Vec<Packet>,
    ) -> io::Result<RecvStatus> {
        if self.reads_ring {
            return self.recv_ring(pool, frames);
        }
        let before = frames.len();
        let status = self.stream.recv(pool, frames)?;
        // After an offer, this end expects the peer's switch.
        if self.rings.is_some() {
            let switch = frames[before..].iter().position(|frame| **frame == SWITCH);
            if let Some(at) = switch {
                // Only doorbells can follow the switch.
                frames.truncate(before + at + 1);
                self.stream.discard_partial_frame();
                self.must_send_switch |= matches!(self.role, Role::Application { .. });
                self.reads_ring = true;
                return Ok(RecvStatus::More);
            }
            return Ok(status);
        }
        match &mut self.role {
            Role::Application { frames_before_offer, .. } => {
                *frames_before_offer = frames_before_offer.saturating_sub(frames.len() - before);
            }
            Role::Router { .. } => {
                if frames[before..].iter().any(|frame| **frame == OFFER) {
                    self.handle_offer();
                }
            }
        }
        Ok(status)
    }

    /// Accepts or refuses an offer. An application makes only one.
    #[cold]
    fn handle_offer(&mut self) {
        let Role::Router { memory, claim } = &mut self.role else { return };
        let file = self.stream.take_file();
        let taken = file.and_then(|file| {
            let claimed = memory.claim()?;
            let rings = Rings::map_received(file.get()).ok()?;
            drop(file.into_memory());
            Some((claimed, rings))
        });
        match taken {
            Some((claimed, rings)) => {
                memory.taken.fetch_add(1, Ordering::Relaxed);
                (*claim, self.rings, self.must_send_switch) = (Some(claimed), Some(rings), true);
            }
            None => _ = memory.refused.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Offers memory to the router, once.
    #[cold]
    fn offer(&mut self) {
        let Role::Application { frames_before_offer, memory } = &mut self.role else { return };
        let Some((rings, file)) = memory.take().or_else(|| Rings::create().ok()) else {
            // Without memory, the connection stays as it is.
            *frames_before_offer = usize::MAX;
            return;
        };
        match descriptor::send(self.stream.as_fd(), &OFFER, file.as_fd()) {
            Ok(_) => self.rings = Some(rings),
            Err(error) if is_retryable(&error) => *memory = Some((rings, file)),
            // The system refuses to send files. Bytes may still go through.
            Err(_) => *frames_before_offer = usize::MAX,
        }
    }

    pub(crate) fn send(&mut self, link: &mut Link) -> io::Result<SendStatus> {
        if self.writes_ring {
            return self.send_ring(link);
        }
        let may_offer = self.rings.is_none()
            && matches!(self.role, Role::Application { frames_before_offer: 0, .. });
        // Offers and switches go between two frames.
        if (self.must_send_switch || may_offer) && self.stream.finish_frame(link)? {
            if may_offer {
                self.offer();
            } else if self.switch()? {
                return self.send_ring(link);
            }
        }
        self.stream.send(link)
    }

    /// Switches to the ring. Returns whether the connection had space for the message.
    fn switch(&mut self) -> io::Result<bool> {
        match self.send_control(&SWITCH) {
            Ok(()) => (self.must_send_switch, self.writes_ring) = (false, true),
            Err(error) if is_retryable(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(self.writes_ring)
    }

    pub(crate) fn tell_backlog(&mut self, link: &mut Link) {
        match &mut self.rings {
            Some(rings) if self.writes_ring => {
                link.set_socket_backlog(rings.writer.waiting().unwrap_or(0).into());
            }
            _ => self.stream.tell_backlog(link),
        }
    }

    /// Whether the peer announces free space in a full ring by input.
    pub(crate) fn signals_space_by_input(&self) -> bool {
        self.writes_ring
    }

    /// Whether the ring was full and has space now. The doorbell may have been read already.
    pub(crate) fn is_writable_again(&self) -> bool {
        self.is_blocked && self.rings.as_ref().is_some_and(|rings| rings.writer.is_woken())
    }

    fn recv_ring(&mut self, pool: &mut Pool, frames: &mut Vec<Packet>) -> io::Result<RecvStatus> {
        let rings = self.rings.as_mut().expect("there is a ring to be read");
        match rings.read(pool, frames) {
            Ok(RingRead::Nothing) => {}
            Ok(RingRead::Octets { wakes }) => {
                if wakes {
                    self.ring_doorbell()?;
                }
                return Ok(RecvStatus::More);
            }
            Ok(RingRead::FramingLost(error)) => return Ok(RecvStatus::FramingLost(error)),
            Err(Broken) => return Ok(RecvStatus::RingBroken),
        }
        let mut bells = Ok(DoorbellRead::Taken);
        let is_empty = rings.reader.sleep(|| bells = drain_doorbells(&mut self.stream));
        match (bells?, is_empty) {
            (_, Err(Broken)) => Ok(RecvStatus::RingBroken),
            (DoorbellRead::Taken, Ok(true)) => Ok(RecvStatus::Drained),
            (DoorbellRead::Closed, Ok(true)) => Ok(RecvStatus::Closed),
            // Bytes arrived meanwhile, or before the end of the connection: read them first.
            (DoorbellRead::More, _) | (_, Ok(false)) => Ok(RecvStatus::More),
        }
    }

    /// Discards pending doorbells, so that they do not wake this end again. For an end that knows
    /// there is something to read and leaves it for later.
    pub(crate) fn discard_doorbells(&mut self) -> io::Result<()> {
        if self.reads_ring && drain_doorbells(&mut self.stream)? == DoorbellRead::Closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(())
    }

    fn send_ring(&mut self, link: &mut Link) -> io::Result<SendStatus> {
        self.is_blocked = false;
        link.gather_runs(0);
        loop {
            let rings = self.rings.as_mut().expect("there is a ring to be written");
            let Ok(RingWrite { frames, wakes, has_room, waiting }) = rings.write(link) else {
                return Ok(SendStatus::RingBroken);
            };
            link.frames_sent(frames);
            if wakes {
                self.ring_doorbell()?;
            }
            link.set_socket_backlog(waiting.into());
            if !has_room {
                self.is_blocked = true;
                return Ok(SendStatus::WouldBlock);
            }
            if link.is_egress_empty() {
                return Ok(SendStatus::Drained);
            }
        }
    }

    fn ring_doorbell(&self) -> io::Result<()> {
        if !self.stream.is_between_frames() {
            // The connection still has to send the rest of that frame, which wakes the peer too.
            return Ok(());
        }
        match self.send_control(&DOORBELL) {
            // The connection is full of doorbells, so the peer is not asleep.
            Err(error) if is_retryable(&error) => Ok(()),
            // `recv` reports the end of the connection, after the rest of the ring.
            Err(error) if is_disconnect(&error) => Ok(()),
            result => result,
        }
    }

    /// Sends so few bytes that the socket accepts all or none.
    fn send_control(&self, octets: &[u8]) -> io::Result<()> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: pointer and length describe `octets`, which outlives the call.
        let sent = unsafe {
            libc::send(self.as_fd().as_raw_fd(), octets.as_ptr().cast(), octets.len(), flags)
        };
        if sent >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

fn drain_doorbells(stream: &mut StreamSocket) -> io::Result<DoorbellRead> {
    let mut bells = [0; DOORBELL_READ_BYTES];
    for _ in 0..DOORBELL_READS_MAX {
        match stream.read(&mut bells) {
            Ok(0) => return Ok(DoorbellRead::Closed),
            Ok(_) => {}
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => return Ok(DoorbellRead::Taken),
                _ if is_disconnect(&error) => return Ok(DoorbellRead::Closed),
                io::ErrorKind::Interrupted => {}
                _ => return Err(error),
            },
        }
    }
    Ok(DoorbellRead::More)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DoorbellRead {
    Taken,
    /// There may be more.
    More,
    /// The connection has ended.
    Closed,
}

fn is_retryable(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn is_disconnect(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// The result of reading the ring.
enum RingRead {
    Nothing,
    /// Frames were read. `wakes`: the writer waits for space and must be woken.
    Octets {
        wakes: bool,
    },
    /// The bytes are not frames.
    FramingLost(weir_wire::FrameError),
}

/// The result of writing to the ring.
struct RingWrite {
    frames: usize,
    wakes: bool,
    has_room: bool,
    /// Bytes that the reader has not read.
    waiting: u32,
}

impl Rings {
    /// Copies bytes out of the ring, and cuts the copy into frames.
    fn read(&mut self, pool: &mut Pool, frames: &mut Vec<Packet>) -> Result<RingRead, Broken> {
        let available = self.reader.available()? as usize;
        if available == 0 {
            return Ok(RingRead::Nothing);
        }
        let len = available.min(READ_BYTES_MAX);
        let mut block = pool.alloc(len);
        self.reader.copy(&mut block[..len]);
        let octets = block.freeze(len);
        let cut = match cut_frames(&octets, frames) {
            Ok(cut) => cut,
            Err(error) => return Ok(RingRead::FramingLost(error)),
        };
        if cut < len && len == available {
            // The peer publishes only whole frames, so it is broken.
            return Err(Broken);
        }
        Ok(RingRead::Octets { wakes: self.reader.release(cut as u32) })
    }

    /// Copies the link's frames into the ring, as far as there is space.
    fn write(&mut self, link: &Link) -> Result<RingWrite, Broken> {
        let writer = &mut self.writer;
        let (mut frames, mut wakes, mut has_room) = (0, false, true);
        for frame in link.frames() {
            let parts = [frame.prefix(), frame.payload()];
            // If the ring is full, publish before waiting: the reader frees space only by reading
            // these bytes.
            while has_room && !writer.push(parts)? {
                wakes |= writer.publish();
                has_room = writer.wait_for_space(frame.len())?;
            }
            if !has_room {
                break;
            }
            frames += 1;
            if writer.unpublished() >= PUBLISH_BYTES {
                wakes |= writer.publish();
            }
        }
        wakes |= writer.publish();
        Ok(RingWrite { frames, wakes, has_room, waiting: writer.waiting()? })
    }
}

impl fmt::Debug for SharedSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedSocket")
            .field("stream", &self.stream)
            .field("is_shared", &self.is_shared())
            .finish_non_exhaustive()
    }
}

socket_source!(SharedSocket, stream);
