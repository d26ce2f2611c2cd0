//! What the control thread asks of a packet thread, and closing faces.

use mio::Interest;
use weir_base::{FaceId, Instant};
use weir_face::{UdpCounters, UdpPort};
use weir_forward::{Command, Input};
use weir_link::Link;
use weir_manage::FacePersistency;

use super::face::{Face, Socket};
use super::{Port, Source, Worker};
use crate::message::{
    CloseReason, NewFace, NewSocket, PeerLinks, PortId, ToControl, ToWorker, WorkerSnapshot,
};
use crate::snapshot::WorkerFace;

impl Worker {
    pub(super) fn handle_command(&mut self, now: Instant, command: ToWorker) {
        match command {
            ToWorker::AddFace(face) => self.add_face(now, *face),
            ToWorker::AddRemoteFace { id, attributes, owner } => {
                if let Some(shards) = &mut self.shards {
                    shards.owners.insert(id, owner);
                }
                let face = id;
                self.inputs.push(Input::Command(Command::AddFace { face, attributes }));
            }
            ToWorker::RemoveFace(id) => self.remove_face(id),
            ToWorker::AttachSocket { id, socket } => self.attach_socket(id, socket),
            ToWorker::UpdateFace { id, link, persistency } => {
                let Some(slot) = self.faces.slot_of(id) else { return };
                if let Some(face) = self.faces.at(slot) {
                    face.link.set_config(link);
                    face.persistency = persistency;
                }
                // Another discipline lets go what the one before held back.
                self.mark_dirty(slot);
            }
            ToWorker::Displace(among) => self.displace(now, among),
            ToWorker::GiveFace { id, to, socket } => self.give_face(now, id, to, socket),
            ToWorker::TakeFace { face, socket } => self.take_face(*face, *socket),
            ToWorker::TellHeard(id) => {
                let slot = self.faces.slot_of(id);
                if let Some(face) = slot.and_then(|slot| self.faces.at(slot)) {
                    let at = face.heard();
                    self.control.send(ToControl::Heard { id, at });
                }
            }
            ToWorker::FaceMoved { id, owner } => self.note_moved(id, owner),
            ToWorker::AddPort { id, socket, links } => self.add_port(id, *socket, *links),
            ToWorker::Router(command) => self.inputs.push(Input::Command(command)),
            ToWorker::Internal { header, packet } => {
                self.inputs.push(Input::Packet { face: FaceId::INTERNAL, header, packet });
            }
            ToWorker::Fence(fence) => drop(fence),
            ToWorker::Snapshot { transaction } => {
                let snapshot = Box::new(self.snapshot(now));
                self.control.send(ToControl::Snapshot { transaction, snapshot });
            }
            ToWorker::Stop => self.is_stopping = true,
        }
    }

    fn add_face(&mut self, now: Instant, new: NewFace) {
        let NewFace { id, attributes, link, persistency, socket } = new;
        let slot =
            self.faces.insert(Face::new(id, Link::new(link), Socket::Down, persistency, now));
        let face = id;
        self.inputs.push(Input::Command(Command::AddFace { face, attributes }));
        self.attach(slot, socket);
    }

    fn attach_socket(&mut self, id: FaceId, socket: NewSocket) {
        // The face may have been destroyed while its connection was being made.
        if let Some(slot) = self.faces.slot_of(id) {
            self.attach(slot, socket);
        }
    }

    pub(super) fn attach(&mut self, slot: u32, socket: NewSocket) {
        self.leave_port(slot);
        let peer = socket.peer();
        let socket = match socket {
            NewSocket::Own(mut socket) => {
                let token = Source::Face(slot).token();
                let registered =
                    self.poll.registry().register(&mut socket, token, Interest::READABLE);
                if let Err(error) = registered {
                    return self.close_socket(slot, CloseReason::Failed(error.to_string()));
                }
                Socket::Own(socket)
            }
            NewSocket::Peer { port, path } => {
                let port = self.port_slots[&port];
                if let Some(known) = self.ports[port].socket.peer_key(path) {
                    // The peer's first packet was faster than the command.
                    self.close_socket(known as u32, CloseReason::Replaced);
                }
                self.ports[port].socket.add_peer(path, u64::from(slot));
                Socket::Peer { port, path }
            }
        };
        let Some(face) = self.faces.at(slot) else {
            return;
        };
        face.socket = socket;
        face.peer = peer;
        (face.awaits_writable, face.is_full) = (false, false);
        if matches!(face.socket, Socket::Own(_)) {
            // What came before the socket was registered raises no event on some systems.
            self.mark_ready(Source::Face(slot));
        }
    }

    /// The face in `slot` is no peer of its UDP port any more: it gets another address.
    fn leave_port(&mut self, slot: u32) {
        let Some(face) = self.faces.at(slot) else { return };
        if let Socket::Peer { port, path } = face.socket {
            face.socket = Socket::Down;
            let port = &mut self.ports[port];
            port.socket.remove_peer(path);
            port.blocked.retain(|&blocked| blocked != slot);
        }
    }

    fn add_port(&mut self, id: PortId, socket: UdpPort, links: PeerLinks) {
        let slot = self.ports.insert(Port {
            id,
            socket,
            links,
            is_ready: false,
            awaits_writable: false,
            blocked: Vec::new(),
        });
        self.port_slots.insert(id, slot);
        let source = Source::Port(slot);
        let socket = &mut self.ports[slot].socket;
        if let Err(error) =
            self.poll.registry().register(socket, source.token(), Interest::READABLE)
        {
            tracing::error!(%error, "watching a UDP port");
        }
        self.mark_ready(source);
    }

    fn remove_face(&mut self, id: FaceId) {
        if let Some(shards) = &mut self.shards
            && shards.owners.remove(&id).is_some()
        {
            self.inputs.push(Input::Command(Command::RemoveFace { face: id }));
            return;
        }
        if let Some(slot) = self.faces.slot_of(id) {
            self.drop_face(slot);
        }
    }

    /// Ends a face's socket. The face itself goes too, unless it is permanent: then it waits for
    /// another socket, and keeps its next hops.
    pub(super) fn close_socket(&mut self, slot: u32, reason: CloseReason) {
        let Some(face) = self.faces.at(slot) else {
            return;
        };
        match reason {
            CloseReason::Displaced => self.counters.faces_displaced += 1,
            CloseReason::Stalled => self.counters.faces_stalled += 1,
            CloseReason::RingBroken => self.counters.rings_broken += 1,
            _ => {}
        }
        let id = face.id;
        let is_permanent = face.persistency == FacePersistency::Permanent;
        if is_permanent {
            let mut socket = std::mem::replace(&mut face.socket, Socket::Down);
            face.link.discard_all();
            face.awaits_writable = false;
            face.is_full = false;
            face.blocked = None;
            self.memory.forget(std::mem::take(&mut face.counted));
            self.memory.recount_reassembly(face);
            if let Socket::Own(socket) = &mut socket {
                let _ = self.poll.registry().deregister(socket);
            }
        } else {
            self.drop_face(slot);
        }
        self.control.send(ToControl::FaceClosed { id, reason, removed: !is_permanent });
    }

    fn drop_face(&mut self, slot: u32) {
        let face = self.detach(slot);
        self.count_gone(&face);
        self.inputs.push(Input::Command(Command::RemoveFace { face: face.id }));
    }

    pub(super) fn count_gone(&mut self, face: &Face) {
        for (sum, (_, count)) in self.gone_drops.iter_mut().zip(face.link.counters().drops.iter()) {
            *sum += count;
        }
    }

    /// Takes a face out of all that this thread has of it, but for its shard.
    pub(super) fn detach(&mut self, slot: u32) -> Face {
        let mut face = self.faces.remove(slot);
        self.timers.cancel(slot);
        self.memory.forget(std::mem::take(&mut face.counted));
        match &mut face.socket {
            Socket::Own(socket) => {
                let _ = self.poll.registry().deregister(socket);
            }
            Socket::Peer { port, path } => {
                let port = &mut self.ports[*port];
                port.socket.remove_peer(*path);
                port.blocked.retain(|&blocked| blocked != slot);
            }
            Socket::Down => {}
        }
        self.dirty.retain(|&dirty| dirty != slot);
        self.ready.retain(|&source| source != Source::Face(slot));
        (face.is_dirty, face.is_ready) = (false, false);
        face
    }

    pub(super) fn close_idle(&mut self, now: Instant) {
        let idle: Vec<u32> = self
            .faces
            .iter()
            .filter(|(_, face)| {
                face.idle_deadline(self.idle_timeout_ns).is_some_and(|deadline| deadline <= now)
            })
            .map(|(slot, _)| slot)
            .collect();
        for slot in idle {
            self.close_socket(slot, CloseReason::Idle);
        }
    }

    /// Sends what the sockets take at once, and lets go of everything.
    pub(super) fn close_all(&mut self) {
        let slots: Vec<u32> = self.faces.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            if let Some(face) = self.faces.at(slot)
                && let Socket::Own(socket) = &mut face.socket
            {
                let _ = socket.send(&mut face.link);
            }
        }
    }

    fn udp_counters(&self) -> UdpCounters {
        let mut sum = UdpCounters::default();
        for (_, port) in self.ports.iter() {
            let counters = port.socket.counters();
            sum.receive_overflows += counters.receive_overflows;
            sum.truncated += counters.truncated;
            sum.receive_errors += counters.receive_errors;
            sum.send_errors += counters.send_errors;
        }
        sum
    }

    fn snapshot(&self, now: Instant) -> WorkerSnapshot {
        let mut worker = self.counters;
        worker.ring_overflow = self.shards.as_ref().map_or(0, |shards| shards.ports.overflows);
        let faces = self.faces.iter().map(|(_, face)| WorkerFace {
            id: face.id,
            counters: face.link.counters().clone(),
            queue_bytes: face.link.queue_bytes(),
            down_drops: face.down_drops,
            thread: self.index,
            is_shared: matches!(&face.socket, Socket::Own(socket) if socket.is_shared()),
            heard_ns_ago: face.link.last_received().map(|at| now.ns_since(at)),
            expires_in_ns: face
                .idle_deadline(self.idle_timeout_ns)
                .map(|deadline| deadline.ns_since(now)),
        });
        WorkerSnapshot {
            router: self.router.stats(),
            faces: faces.collect(),
            gone_drops: self.gone_drops,
            worker,
            udp: self.udp_counters(),
        }
    }
}
