use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, SystemTime};

use weir_base::{Packet, Pool};
use weir_face::{Datagram, FramesSent, RecvStatus, UdpOptions, UdpPath, UdpPort};

use super::config::EmulatorError;

/// Receive buffer: 30 ms of datagrams at 1 Gbit/s while the emulator has no processor, plus the
/// system's overhead for each.
const RECEIVE_BUFFER_BYTES: usize = 16 << 20;
/// A frame that arrived.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) frame: Packet,
    /// How long ago the system received it.
    pub(crate) age_ns: u64,
}

/// A UDP port with one peer.
#[derive(Debug)]
pub(crate) struct UdpEnd {
    port: UdpPort,
    /// `None` until it is set or the first frame arrives.
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

    /// Sets the peer.
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

    /// Reads waiting frames without blocking. Returns whether there are more.
    pub(crate) fn receive(
        &mut self,
        pool: &mut Pool,
        arrivals: &mut Vec<Arrival>,
    ) -> io::Result<bool> {
        let status = self.port.recv(pool, &mut self.datagrams)?;
        let now_unix_ns = unix_ns();
        for datagram in self.datagrams.drain(..) {
            // An unknown peer is set by its first frame. Frames of all others are dropped.
            if self.peer.get_or_insert(datagram.path).remote != datagram.path.remote {
                self.strangers += 1;
                continue;
            }
            // The age connects the kernel's wall clock to the emulator's clock. A step of the wall
            // clock affects only frames that wait at that moment.
            let taken_in_unix_ns = datagram.received_unix_ns.unwrap_or(now_unix_ns);
            let age_ns = now_unix_ns.saturating_sub(taken_in_unix_ns);
            arrivals.push(Arrival { frame: datagram.frame, age_ns });
        }
        Ok(status == RecvStatus::More)
    }

    /// Sends frames from the front until the system accepts no more.
    pub(crate) fn send(&mut self, frames: &[Packet]) -> io::Result<FramesSent> {
        match self.peer {
            Some(peer) => self.port.send_frames(peer, frames),
            None => Ok(FramesSent::default()),
        }
    }

    pub(crate) fn has_peer(&self) -> bool {
        self.peer.is_some()
    }

    /// Frames dropped because another address sent them.
    pub(crate) fn foreign_frames(&self) -> u64 {
        self.strangers
    }

    /// Frames that the system dropped before the emulator read them.
    pub(crate) fn overflows(&self) -> u64 {
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

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since: Duration| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
