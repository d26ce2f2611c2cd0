use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use weir_base::{Packet, Pool};
use weir_face::{Datagram, FramesSent, RecvStatus, UdpOptions, UdpPath, UdpPort};

use super::config::EmulatorError;

/// Receive buffer: what comes while the emulator has no processor, 30 ms at 1 Gbit/s, and what the
/// system adds for each datagram.
const RECEIVE_BUFFER_BYTES: usize = 16 << 20;
/// The longest packet that a descriptor gives.
const PACKET_BYTES_MAX: usize = 65_536;
/// Packets read from a descriptor before others get their turn.
const PACKETS_MAX: usize = 64;

/// A frame that reached the emulator.
#[derive(Debug)]
pub struct Arrival {
    pub(crate) frame: Packet,
    /// How long ago the system took it in.
    pub(crate) age_ns: u64,
}

/// Where the frames of one side come from and go to. It never blocks.
pub trait Port: AsFd + fmt::Display {
    /// Takes some of the frames that wait. Says whether there are more.
    ///
    /// # Errors
    /// When it is broken.
    fn receive(&mut self, pool: &mut Pool, arrivals: &mut Vec<Arrival>) -> io::Result<bool>;

    /// Sends frames from the front, as many as the system takes.
    ///
    /// # Errors
    /// When it is broken.
    fn send(&mut self, frames: &[Packet]) -> io::Result<FramesSent>;

    /// Whether it is known whom frames go to.
    fn has_peer(&self) -> bool;

    /// Frames that did not come from the peer, dropped.
    fn strangers(&self) -> u64;

    /// Frames that the system dropped before the emulator saw them.
    fn overflows(&self) -> u64;
}

/// A UDP port with one peer.
#[derive(Debug)]
pub struct UdpEnd {
    port: UdpPort,
    /// `None` until somebody sends.
    peer: Option<UdpPath>,
    datagrams: Vec<Datagram>,
    strangers: u64,
}

impl UdpEnd {
    pub(crate) fn bind(
        address: SocketAddr,
        peer: Option<SocketAddr>,
    ) -> Result<Self, EmulatorError> {
        let options = UdpOptions {
            receive_buffer_bytes: RECEIVE_BUFFER_BYTES,
            timestamps: true,
            ..UdpOptions::default()
        };
        let port = UdpPort::bind(address, &options)
            .map_err(|source| EmulatorError::Bind { address, source })?;
        let mut end = Self { port, peer: None, datagrams: Vec::with_capacity(4_096), strangers: 0 };
        if let Some(peer) = peer {
            end.set_peer(peer)?;
        }
        Ok(end)
    }

    /// Says who is at the other end of its traffic.
    pub(crate) fn set_peer(&mut self, peer: SocketAddr) -> Result<(), EmulatorError> {
        let port = self.local_addr();
        if peer.is_ipv4() != port.is_ipv4() {
            return Err(EmulatorError::Family { port, peer });
        }
        self.peer = Some(peer.into());
        Ok(())
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.port.local_addr()
    }
}

impl Port for UdpEnd {
    fn receive(&mut self, pool: &mut Pool, arrivals: &mut Vec<Arrival>) -> io::Result<bool> {
        let status = self.port.recv(pool, &mut self.datagrams)?;
        let now_unix_ns = unix_ns();
        for datagram in self.datagrams.drain(..) {
            if self.peer.get_or_insert(datagram.path).remote != datagram.path.remote {
                self.strangers += 1;
                continue;
            }
            // By how long ago it was; a step of the wall clock in between is bounded on both sides.
            let taken_in_unix_ns = datagram.taken_in_unix_ns.unwrap_or(now_unix_ns);
            let age_ns = now_unix_ns.saturating_sub(taken_in_unix_ns);
            arrivals.push(Arrival { frame: datagram.frame, age_ns });
        }
        Ok(status == RecvStatus::More)
    }

    fn send(&mut self, frames: &[Packet]) -> io::Result<FramesSent> {
        match self.peer {
            Some(peer) => self.port.send_frames(peer, frames),
            None => Ok(FramesSent::default()),
        }
    }

    fn has_peer(&self) -> bool {
        self.peer.is_some()
    }

    fn strangers(&self) -> u64 {
        self.strangers
    }

    fn overflows(&self) -> u64 {
        self.port.counters().receive_overflows
    }
}

impl AsFd for UdpEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }
}

impl fmt::Display for UdpEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the socket at {}", self.local_addr())
    }
}

/// A descriptor of which each read is one packet and each write another: a TUN device, or one of a
/// pair of datagram sockets. The system does not say when it took a packet in, so that time until
/// this thread reads it counts as being on the way to the link.
#[derive(Debug)]
pub struct PacketEnd {
    descriptor: OwnedFd,
    octets: Vec<u8>,
}

impl PacketEnd {
    pub(crate) fn new(descriptor: OwnedFd) -> io::Result<Self> {
        let flags = OFlag::from_bits_retain(fcntl(&descriptor, FcntlArg::F_GETFL)?);
        fcntl(&descriptor, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        Ok(Self { descriptor, octets: vec![0; PACKET_BYTES_MAX] })
    }
}

impl Port for PacketEnd {
    fn receive(&mut self, pool: &mut Pool, arrivals: &mut Vec<Arrival>) -> io::Result<bool> {
        for _ in 0..PACKETS_MAX {
            let len = match nix::unistd::read(&self.descriptor, &mut self.octets) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => len,
                Err(Errno::EAGAIN) => return Ok(false),
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let mut block = pool.alloc(len);
            block[..len].copy_from_slice(&self.octets[..len]);
            arrivals.push(Arrival { frame: block.freeze(len), age_ns: 0 });
        }
        Ok(true)
    }

    fn send(&mut self, frames: &[Packet]) -> io::Result<FramesSent> {
        let mut sent = FramesSent::default();
        for frame in frames {
            match nix::unistd::write(&self.descriptor, frame) {
                Ok(_) => {}
                Err(Errno::EAGAIN | Errno::EINTR) => break,
                // Of this packet alone, as UDP's errors are of one peer.
                Err(_) => {
                    sent.refused += 1;
                    sent.refused_bytes += frame.len();
                }
            }
            sent.done += 1;
        }
        Ok(sent)
    }

    fn has_peer(&self) -> bool {
        true
    }

    fn strangers(&self) -> u64 {
        0
    }

    /// Not known here: a TUN device counts them as packets that it could not send.
    fn overflows(&self) -> u64 {
        0
    }
}

impl AsFd for PacketEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl fmt::Display for PacketEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a descriptor of packets")
    }
}

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since: Duration| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
