//! The shared UDP ports of one worker thread. A port finds its peers' faces by slot.

use std::collections::HashMap;
use std::{io, mem};

use mio::{Interest, Registry};
use weir_base::{Instant, Pool, Slab};
use weir_face::{Datagram, RecvStatus, SendStatus, UdpCounters, UdpPath, UdpPort};
use weir_link::Link;

use super::source::{Source, interest};
use crate::message::{PeerLinks, PortId};
use crate::rate_limited_log::RateLimitedLog;

struct Port {
    id: PortId,
    socket: UdpPort,
    links: PeerLinks,
    is_ready: bool,
    awaits_writable: bool,
    /// Slots of faces that wait until the port is writable.
    blocked: Vec<u32>,
}

/// All ports, by slot and by identifier, with error counters.
#[derive(Default)]
pub(in crate::worker) struct UdpPorts {
    slots: Slab<Port>,
    by_id: HashMap<PortId, u32>,
    errors: u64,
    failures: RateLimitedLog,
}

impl UdpPorts {
    pub(super) fn add(
        &mut self,
        registry: &Registry,
        id: PortId,
        socket: UdpPort,
        links: PeerLinks,
    ) -> u32 {
        let slot = self.slots.insert(Port {
            id,
            socket,
            links,
            is_ready: false,
            awaits_writable: false,
            blocked: Vec::new(),
        });
        self.by_id.insert(id, slot);
        let token = Source::Port(slot).token();
        let socket = &mut self.slots[slot].socket;
        if let Err(error) = registry.register(socket, token, Interest::READABLE) {
            tracing::error!(%error, "cannot watch a UDP port");
        }
        slot
    }

    pub(super) fn slot_of(&self, id: PortId) -> u32 {
        self.by_id[&id]
    }

    pub(in crate::worker) fn id_of(&self, slot: u32) -> PortId {
        self.slots[slot].id
    }

    /// The settings of faces for unknown peers.
    pub(super) fn links(&self, slot: u32) -> &PeerLinks {
        &self.slots[slot].links
    }

    /// Whether the port is in the list of sources with something to read.
    pub(super) fn is_ready_mut(&mut self, slot: u32) -> Option<&mut bool> {
        self.slots.get_mut(slot).map(|port| &mut port.is_ready)
    }

    /// The slot of the face to this peer.
    pub(super) fn peer(&self, slot: u32, path: UdpPath) -> Option<u32> {
        self.slots[slot].socket.peer_key(path).map(|key| key as u32)
    }

    pub(super) fn add_peer(&mut self, slot: u32, path: UdpPath, face: u32) {
        self.slots[slot].socket.add_peer(path, u64::from(face));
    }

    pub(super) fn remove_peer(&mut self, slot: u32, path: UdpPath, face: u32) {
        let port = &mut self.slots[slot];
        port.socket.remove_peer(path);
        port.blocked.retain(|&blocked| blocked != face);
    }

    pub(super) fn recv(
        &mut self,
        slot: u32,
        pool: &mut Pool,
        datagrams: &mut Vec<Datagram>,
    ) -> Option<io::Result<RecvStatus>> {
        let port = self.slots.get_mut(slot)?;
        port.is_ready = false;
        Some(port.socket.recv(pool, datagrams))
    }

    /// Sends the queue of a peer's link. Returns whether the port is full.
    pub(super) fn send(&mut self, slot: u32, path: UdpPath, link: &mut Link) -> io::Result<bool> {
        match self.slots[slot].socket.send(path, link)? {
            SendStatus::Drained => Ok(false),
            SendStatus::WouldBlock | SendStatus::RingBroken => Ok(true),
        }
    }

    pub(super) fn add_blocked(&mut self, slot: u32, face: u32) {
        self.slots[slot].blocked.push(face);
    }

    /// Takes the faces that waited until the port is writable.
    pub(super) fn take_blocked(&mut self, slot: u32) -> Vec<u32> {
        self.slots.get_mut(slot).map(|port| mem::take(&mut port.blocked)).unwrap_or_default()
    }

    /// Asks the kernel for writability events only while faces wait for them.
    pub(super) fn watch_writable(&mut self, slot: u32, registry: &Registry) {
        let port = &mut self.slots[slot];
        let awaits = !port.blocked.is_empty();
        if mem::replace(&mut port.awaits_writable, awaits) == awaits {
            return;
        }
        let token = Source::Port(slot).token();
        if let Err(error) = registry.reregister(&mut port.socket, token, interest(awaits)) {
            self.errors += 1;
            tracing::error!(%error, "cannot watch a UDP port");
        }
    }

    /// Reports the fill level of the system's send queue, for links that shape Interests.
    pub(super) fn report_backlog(&mut self, slot: u32, link: &mut Link) {
        if let Some(port) = self.slots.get_mut(slot) {
            port.socket.tell_backlog(link);
        }
    }

    /// Counts a failure of the port, which peers may have caused.
    pub(super) fn note_failure(&mut self, now: Instant, error: &io::Error) {
        self.errors += 1;
        if let Some(count) = self.failures.add(now) {
            tracing::error!(%error, count, "a UDP port has failed");
        }
    }

    pub(in crate::worker) fn errors(&self) -> u64 {
        self.errors
    }

    pub(in crate::worker) fn counters(&self) -> UdpCounters {
        let mut sum = UdpCounters::default();
        for (_, port) in self.slots.iter() {
            sum += port.socket.counters();
        }
        sum
    }
}
