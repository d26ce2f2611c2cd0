//! Commands of the control thread and of other worker threads.

use weir_base::{FaceId, Instant};
use weir_face::UdpCounters;
use weir_forward::{Command, Input};
use weir_link::Link;
use weir_manage::FacePersistency;

use super::Worker;
use crate::face::{Face, FaceSocket};
use crate::message::{CloseReason, NewFace, NewSocket, ToControl, ToWorker, WorkerSnapshot};
use crate::snapshot::WorkerFace;

impl Worker {
    pub(super) fn take_commands(&mut self, now: Instant) {
        while let Ok(command) = self.commands.try_recv() {
            self.handle_command(now, command);
        }
    }

    fn handle_command(&mut self, now: Instant, command: ToWorker) {
        match command {
            ToWorker::AddFace(face) => self.add_face(now, *face),
            ToWorker::AddRemoteFace { id, attributes, owner } => {
                if let Some(siblings) = &mut self.siblings {
                    siblings.add_face(id, owner);
                }
                self.shard.command(Command::AddFace { face: id, attributes });
            }
            ToWorker::RemoveFace(id) => self.remove_face(id),
            ToWorker::AttachSocket { id, socket } => {
                // The face may have been removed while its connection was being made.
                if let Some(slot) = self.faces.table().slot_of(id) {
                    self.attach(slot, socket);
                }
            }
            ToWorker::UpdateFace { id, link, persistency } => {
                let table = self.faces.table();
                if let Some(face) = table.slot_of(id).and_then(|slot| table.get(slot)) {
                    self.stats.note_persistency(face, persistency);
                }
                self.faces.update(id, link, persistency);
            }
            ToWorker::Evict(class) => {
                if let Some((slot, _)) =
                    self.admission.pop_least_used(now, class, self.faces.table())
                {
                    self.close_face(slot, CloseReason::Evicted);
                }
            }
            ToWorker::MoveFace { id, to, socket } => self.move_face(now, id, to, socket),
            ToWorker::AdoptFace { face, socket } => self.adopt_face(*face, *socket),
            ToWorker::ReportLastHeard(id) => {
                if let Some(face) = self.faces.table_mut().find_mut(id) {
                    let at = face.last_heard();
                    self.control.send(ToControl::LastHeard { id, at });
                }
            }
            ToWorker::FaceMoved { id, owner } => {
                if let Some(siblings) = &mut self.siblings {
                    siblings.note_moved(id, owner);
                }
            }
            ToWorker::AddPort { id, socket, links } => self.faces.add_port(id, *socket, *links),
            ToWorker::Router(command) => self.shard.command(command),
            ToWorker::Internal { header, packet } => {
                self.shard.push(Input::Packet { face: FaceId::INTERNAL, header, packet });
            }
            ToWorker::HicnControl { face, message, has_routes } => {
                if let Some(slot) = self.faces.table().slot_of(face) {
                    self.faces.enqueue_control(slot, message, has_routes);
                    // The next command may remove the face.
                    self.flush(now);
                }
            }
            ToWorker::Fence(fence) => drop(fence),
            ToWorker::Pulse(pulse) => {
                // The examining thread may have stopped waiting.
                let _ = pulse.send(self.index);
            }
            ToWorker::Snapshot { transaction } => {
                let snapshot = Box::new(self.snapshot(now));
                self.control.send(ToControl::Snapshot { transaction, snapshot });
            }
            ToWorker::Stop => self.is_stopping = true,
        }
    }

    fn add_face(&mut self, now: Instant, new: NewFace) {
        let NewFace { id, attributes, link, persistency, socket } = new;
        let face = Face::new(id, Link::new(link), FaceSocket::Down, persistency, now);
        let slot = self.faces.insert(face);
        self.shard.command(Command::AddFace { face: id, attributes });
        self.attach(slot, socket);
    }

    fn attach(&mut self, slot: u32, socket: NewSocket) {
        match self.faces.attach(slot, socket) {
            Ok(Some(replaced)) => self.close_face(replaced, CloseReason::Replaced),
            Ok(None) => {}
            Err(reason) => self.close_face(slot, reason),
        }
    }

    fn remove_face(&mut self, id: FaceId) {
        if let Some(siblings) = &mut self.siblings
            && siblings.remove_face(id)
        {
            self.shard.command(Command::RemoveFace { face: id });
        } else if let Some(slot) = self.faces.table().slot_of(id) {
            let face = self.faces.detach(slot);
            self.stats.add_closed_socket(&face.socket);
            self.remove_from_shard(&face);
        }
    }

    /// Moves a face to thread `to`, which has less work, or receives the datagrams of the face's
    /// new address. The shards do not move. Each thread keeps the order of the face's packets. Only
    /// the last packets read here and the first ones read there may be reordered.
    fn move_face(&mut self, now: Instant, id: FaceId, to: u16, socket: Option<NewSocket>) {
        // Forward packets that were read from the face, and send those that are queued for it.
        self.forward(now);
        self.flush(now);
        let siblings = self.siblings.as_mut().expect("there is another thread");
        match self.faces.detach_for_move(id, socket) {
            Some((face, socket)) => siblings.hand_over(to, face, socket),
            // The face may have lost its socket or been removed meanwhile.
            None => self.control.send(ToControl::FaceMoved { id, worker: self.index }),
        }
    }

    /// Takes over a face of another thread.
    fn adopt_face(&mut self, mut face: Face, socket: NewSocket) {
        let id = face.id;
        self.control.send(ToControl::FaceMoved { id, worker: self.index });
        let siblings = self.siblings.as_mut().expect("another thread gave it");
        if !siblings.remove_face(id) {
            // The face was removed during the move.
            return self.stats.add_removed_face(&face);
        }
        // Earlier work was done by the other thread.
        let _ = face.work_since_report(1);
        let slot = self.faces.insert(face);
        self.attach(slot, socket);
        self.faces.resume_moved(slot);
    }

    /// The counters of all UDP sockets of this thread, including those that were closed.
    fn udp_counters(&self) -> UdpCounters {
        let mut sum = self.faces.ports().counters();
        sum += self.stats.closed_udp();
        for (_, face) in self.faces.table().iter() {
            if let FaceSocket::Own(socket) = &face.socket
                && let Some(counters) = socket.udp_counters()
            {
                sum += counters;
            }
        }
        sum
    }

    fn snapshot(&self, now: Instant) -> WorkerSnapshot {
        let mut worker = self.stats.counters;
        worker.port_errors = self.faces.ports().errors();
        worker.ring_overflow =
            self.siblings.as_ref().map_or(0, |siblings| siblings.rings.overflows);
        let faces = self.faces.table().iter().map(|(_, face)| WorkerFace {
            id: face.id,
            counters: face.link.counters().clone(),
            queue_bytes: face.link.queue_bytes(),
            down_drops: face.down_drops,
            thread: self.index,
            transport: face.transport,
            is_on_demand: face.persistency == FacePersistency::OnDemand,
            is_shared: matches!(&face.socket, FaceSocket::Own(socket) if socket.is_shared()),
            heard_ns_ago: face.link.last_received().map(|at| now.ns_since(at)),
            expires_in_ns: self.sweep.idle_deadline(face).map(|deadline| deadline.ns_since(now)),
        });
        WorkerSnapshot {
            router: self.shard.stats(),
            faces: faces.collect(),
            removed_faces: self.stats.removed_faces(),
            removed_face_drops: self.stats.removed_face_drops(),
            worker,
            udp: self.udp_counters(),
        }
    }
}
