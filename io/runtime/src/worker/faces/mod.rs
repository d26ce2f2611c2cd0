//! The sockets of a worker thread: its faces, the shared UDP ports, and the lists of faces that
//! wait to be read, to send, and for timers.
//!
//! This module does not know shards or other threads. It returns what the worker must do. The
//! worker closes a face with [`Faces::close`], which removes it from every list.

mod memory;
mod ports;
mod read;
mod send;
mod source;
mod table;
mod timers;

use std::collections::VecDeque;
use std::time::Duration;
use std::{io, mem};

use mio::{Events, Poll};
use weir_base::{FaceId, Instant, NS_PER_MS, TimerWheel};
use weir_face::{UdpPath, UdpPort};
use weir_forward::{FaceAttributes, FaceScope};
use weir_link::{Link, LinkConfig};
use weir_manage::FacePersistency;

use self::memory::MemoryBudgets;
use self::ports::UdpPorts;
pub(super) use self::read::ReadEnd;
pub(super) use self::send::FlushEvent;
pub(super) use self::source::Source;
pub(crate) use self::source::WAKER_TOKEN;
use self::source::interest;
pub(super) use self::table::FaceTable;
use crate::face::{Face, FaceSocket};
use crate::memory::MemoryShares;
use crate::message::{CloseReason, NewSocket, PeerLinks, PortId, face_attributes, set_face_number};
use crate::rate_limited_log::RateLimitedLog;
use crate::snapshot::metric_transport;

/// The faces of one thread and their sockets.
pub(super) struct Faces {
    poll: Poll,
    table: FaceTable,
    ports: UdpPorts,
    memory: MemoryBudgets,
    /// When links must be polled, by face slot.
    timers: TimerWheel,
    expired: Vec<u32>,
    /// Sources with something to read, in the order in which they are served.
    ready: VecDeque<Source>,
    /// Faces with something to send.
    dirty: VecDeque<u32>,
    /// Bytes queued on faces since the last flush of all faces.
    unsent_bytes: usize,
    /// Number of faces removed so far. If it has changed, a slot that was looked up before may
    /// belong to another face.
    removed: u64,
    too_large: RateLimitedLog,
}

/// The result of closing a face.
pub(super) enum ClosedFace {
    /// The face is permanent and waits for a new socket.
    Down(FaceId),
    Removed(Box<Face>),
}

fn transport_of(socket: &NewSocket) -> &'static str {
    match socket {
        NewSocket::Own(socket) => metric_transport(&socket.remote_uri()),
        NewSocket::Peer { path, .. } => udp_transport(*path),
    }
}

/// The transport of a peer of a shared port. hICN packets over UDP count as UDP.
fn udp_transport(path: UdpPath) -> &'static str {
    if path.remote.ip().to_canonical().is_ipv4() { "udp4" } else { "udp6" }
}

impl Faces {
    pub(super) fn new(poll: Poll, memory: &MemoryShares, now: Instant) -> Self {
        Self {
            poll,
            table: FaceTable::default(),
            ports: UdpPorts::default(),
            memory: MemoryBudgets::new(memory),
            timers: TimerWheel::new(NS_PER_MS, now),
            expired: Vec::new(),
            ready: VecDeque::new(),
            dirty: VecDeque::new(),
            unsent_bytes: 0,
            removed: 0,
            too_large: RateLimitedLog::default(),
        }
    }

    // Events of the kernel, and lists.

    pub(super) fn poll(
        &mut self,
        events: &mut Events,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        self.poll.poll(events, timeout)
    }

    pub(super) fn take_events(&mut self, events: &Events) {
        for event in events {
            let Some(source) = Source::of(event.token()) else {
                continue;
            };
            if event.is_readable() || event.is_read_closed() || event.is_error() {
                self.mark_ready(source);
            }
            if event.is_writable() {
                self.on_writable(source);
            }
        }
    }

    /// Adds a source to the list of those with something to read.
    pub(super) fn mark_ready(&mut self, source: Source) {
        let is_ready = match source {
            Source::Face(slot) => self.table.at(slot).map(|face| &mut face.is_ready),
            Source::Port(slot) => self.ports.is_ready_mut(slot),
        };
        // The event may be for a face that was closed in this turn.
        let Some(is_ready) = is_ready else {
            return;
        };
        if !mem::replace(is_ready, true) {
            self.ready.push_back(source);
        }
    }

    fn on_writable(&mut self, source: Source) {
        match source {
            Source::Face(slot) => {
                if let Some(face) = self.table.at(slot) {
                    face.is_socket_full = false;
                }
                self.mark_dirty(slot);
            }
            Source::Port(port) => {
                for slot in self.ports.take_blocked(port) {
                    if let Some(face) = self.table.at(slot) {
                        face.awaits_writable = false;
                    }
                    self.mark_dirty(slot);
                }
            }
        }
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(super) fn ready_len(&self) -> usize {
        self.ready.len()
    }

    pub(super) fn next_ready(&mut self) -> Option<Source> {
        self.ready.pop_front()
    }

    fn mark_dirty(&mut self, slot: u32) {
        if let Some(face) = self.table.at(slot)
            && !mem::replace(&mut face.is_dirty, true)
        {
            self.dirty.push_back(slot);
        }
    }

    // Adding, changing and removing faces.

    /// Adds a face that has no socket yet, or one of a UDP peer that `ports` already knows.
    pub(super) fn insert(&mut self, face: Face) -> u32 {
        self.table.insert(face)
    }

    /// Adds a face for an unknown peer of the port in slot `port`. The peer's datagrams find it
    /// from now on.
    pub(super) fn insert_peer(
        &mut self,
        now: Instant,
        id: FaceId,
        port: u32,
        path: UdpPath,
    ) -> u32 {
        let mut link = self.ports.links(port).of(path.remote).clone();
        link.reseed(id.0);
        set_face_number(&mut link, id);
        let link = Link::new(link);
        let socket = FaceSocket::Peer { port, path };
        let mut face = Face::new(id, link, socket, FacePersistency::OnDemand, now);
        face.peer = Some(path.remote.ip());
        face.transport = udp_transport(path);
        let slot = self.table.insert(face);
        self.ports.add_peer(port, path, slot);
        slot
    }

    pub(super) fn add_port(&mut self, id: PortId, socket: UdpPort, links: PeerLinks) {
        let slot = self.ports.add(self.poll.registry(), id, socket, links);
        self.mark_ready(Source::Port(slot));
    }

    /// Gives a face its socket. If the peer already has another face, because its first packet
    /// arrived before the command, returns that face's slot. The caller must close it.
    pub(super) fn attach(
        &mut self,
        slot: u32,
        socket: NewSocket,
    ) -> Result<Option<u32>, CloseReason> {
        self.leave_port(slot);
        let (peer, transport) = (socket.peer(), transport_of(&socket));
        let mut replaced = None;
        let socket = match socket {
            NewSocket::Own(mut socket) => {
                let token = Source::Face(slot).token();
                self.poll
                    .registry()
                    .register(&mut socket, token, interest(false))
                    .map_err(failed)?;
                FaceSocket::Own(socket)
            }
            NewSocket::Peer { port, path } => {
                let port = self.ports.slot_of(port);
                replaced = self.ports.peer(port, path);
                // Closing the replaced face later must not remove the new face's entry.
                if let Some(replaced) = replaced {
                    self.leave_port(replaced);
                }
                self.ports.add_peer(port, path, slot);
                FaceSocket::Peer { port, path }
            }
        };
        if let Some(face) = self.table.at(slot) {
            face.socket = socket;
            face.peer = peer;
            face.transport = transport;
            (face.awaits_writable, face.is_socket_full) = (false, false);
            if matches!(face.socket, FaceSocket::Own(_)) {
                // Data that arrived before the registration raises no event on some systems.
                self.mark_ready(Source::Face(slot));
            }
        }
        Ok(replaced)
    }

    /// Removes the face in `slot` from the peers of its UDP port.
    fn leave_port(&mut self, slot: u32) {
        let Some(face) = self.table.at(slot) else { return };
        if let FaceSocket::Peer { port, path } = face.socket {
            face.socket = FaceSocket::Down;
            self.ports.remove_peer(port, path, slot);
        }
    }

    pub(super) fn update(&mut self, id: FaceId, link: LinkConfig, persistency: FacePersistency) {
        let Some(slot) = self.table.slot_of(id) else { return };
        if let Some(face) = self.table.at(slot) {
            face.link.set_config(link);
            face.persistency = persistency;
        }
        // The new discipline may release packets that the old one held back.
        self.mark_dirty(slot);
    }

    /// Closes a face's socket and, unless the face is permanent, removes the face.
    pub(super) fn close(&mut self, slot: u32) -> Option<ClosedFace> {
        let face = self.table.at(slot)?;
        if face.persistency != FacePersistency::Permanent {
            return Some(ClosedFace::Removed(Box::new(self.detach(slot))));
        }
        let id = face.id;
        let socket = face.close_socket();
        self.memory.forget(mem::take(&mut face.counted));
        // The link keeps its partial packets, so they still count.
        self.memory.recount_reassembly(face);
        if let FaceSocket::Own(mut socket) = socket {
            let _ = self.poll.registry().deregister(&mut socket);
        }
        Some(ClosedFace::Down(id))
    }

    /// Removes a face from the table and all lists.
    pub(super) fn detach(&mut self, slot: u32) -> Face {
        let mut face = self.table.remove(slot);
        // A batch that is being processed must look up its slots again.
        self.removed += 1;
        self.timers.cancel(slot);
        self.memory.forget(mem::take(&mut face.counted));
        match &mut face.socket {
            FaceSocket::Own(socket) => {
                let _ = self.poll.registry().deregister(socket);
            }
            FaceSocket::Peer { port, path } => self.ports.remove_peer(*port, *path, slot),
            FaceSocket::Down => {}
        }
        self.dirty.retain(|&dirty| dirty != slot);
        self.ready.retain(|&source| source != Source::Face(slot));
        (face.is_dirty, face.is_ready) = (false, false);
        face
    }

    /// Removes a face that moves to another thread. Returns it with the socket that it will have
    /// there: `socket`, or else its own. Returns `None` if the face, or its own socket, is gone.
    pub(super) fn detach_for_move(
        &mut self,
        id: FaceId,
        socket: Option<NewSocket>,
    ) -> Option<(Face, NewSocket)> {
        let slot = self.table.slot_of(id)?;
        let has_own = matches!(self.table.at(slot)?.socket, FaceSocket::Own(_));
        if !has_own && socket.is_none() {
            return None;
        }
        let mut face = self.detach(slot);
        let own = match mem::replace(&mut face.socket, FaceSocket::Down) {
            FaceSocket::Own(own) => Some(NewSocket::Own(own)),
            FaceSocket::Peer { .. } | FaceSocket::Down => None,
        };
        Some((face, socket.or(own)?))
    }

    /// Activates a face that came from another thread, and counts its partial packets. At the end
    /// of the turn, the face sends its queue and sets its timers.
    pub(super) fn resume_moved(&mut self, slot: u32) {
        self.mark_dirty(slot);
        if let Some(face) = self.table.at(slot)
            && self.memory.recount_reassembly(face)
        {
            self.memory.shed_reassembly(&mut self.table);
        }
    }

    pub(super) fn removed(&self) -> u64 {
        self.removed
    }

    // Accessors for the worker.

    pub(super) fn table(&self) -> &FaceTable {
        &self.table
    }

    pub(super) fn table_mut(&mut self) -> &mut FaceTable {
        &mut self.table
    }

    pub(super) fn ports(&self) -> &UdpPorts {
        &self.ports
    }

    /// The attributes of a face to a peer of a port.
    pub(super) fn peer_attributes(&self, port: u32, path: UdpPath) -> FaceAttributes {
        let token = self.ports.links(port).pit_token;
        face_attributes(Some(path.remote.ip()), true, FaceScope::NonLocal, token)
    }

    /// Frees memory that only an earlier peak needed.
    pub(super) fn shrink(&mut self) {
        self.table.iter_mut().for_each(|face| face.link.shrink());
    }
}

fn failed(error: io::Error) -> CloseReason {
    CloseReason::Failed(error.to_string())
}
