//! Faces that go over to another packet thread, whose sockets have less to do. Their packets'
//! shards stay where they are. The order of a face's packets is kept by each thread, and may be
//! lost between the last that one has and the first that the other has.

use weir_base::{FaceId, Instant};
use weir_forward::OutPacket;
use weir_wire::HopSignal;

use super::Worker;
use super::face::{Face, Socket};
use crate::cross::Crossing;
use crate::message::{FaceWork, NewSocket, ToControl, ToWorker};

/// Faces that the control thread is told of, those with the most work.
const TOLD_MAX: usize = 16;

impl Worker {
    /// Tells the control thread, now and then, how much its faces have this thread do. Only while
    /// it runs anyway: a thread that sleeps has nothing to tell.
    pub(super) fn report_work(&mut self, now: Instant) {
        if self.shards.is_none() || now < self.work_told_at.plus_ns(self.rebalance_interval_ns) {
            return;
        }
        let elapsed_ns = now.ns_since(self.work_told_at).max(1);
        self.work_told_at = now;
        let (mut total, mut movable) = (0, Vec::new());
        for face in self.faces.iter_mut() {
            let work = face.work_since_told(elapsed_ns);
            total += work;
            if work > 0 && matches!(face.socket, Socket::Own(_)) {
                movable.push(FaceWork { face: face.id, work });
            }
        }
        movable.sort_unstable_by_key(|face| std::cmp::Reverse(face.work));
        movable.truncate(TOLD_MAX);
        self.control.send(ToControl::Work { worker: self.index, total, movable });
    }

    /// Lets thread `to` have a face.
    pub(super) fn give_face(
        &mut self,
        now: Instant,
        id: FaceId,
        to: u16,
        socket: Option<NewSocket>,
    ) {
        // What was read from it goes to its shards first, and what they have for it to its socket.
        self.process(now);
        self.flush(now);
        let slot = self.faces.slot_of(id);
        let face = slot.and_then(|slot| self.faces.at(slot));
        // It may have lost its socket or its place meanwhile.
        let has_own = face.as_ref().is_some_and(|face| matches!(face.socket, Socket::Own(_)));
        if face.is_none() || !(has_own || socket.is_some()) {
            return self.control.send(ToControl::FaceMoved { id, worker: self.index });
        }
        let mut face = self.detach(slot.expect("found above"));
        let socket = match (socket, std::mem::replace(&mut face.socket, Socket::Down)) {
            (Some(socket), _) => socket,
            (None, Socket::Own(socket)) => NewSocket::Own(socket),
            _ => unreachable!("only faces with sockets of their own are given without one"),
        };
        let shards = self.shards.as_mut().expect("there is another thread");
        shards.owners.insert(id, to);
        for (index, sibling) in shards.siblings.iter().enumerate() {
            let index = index as u16;
            if index != self.index && index != to {
                let _ = sibling.send(ToWorker::FaceMoved { id, owner: to });
            }
        }
        let _ = shards.siblings[usize::from(to)]
            .send(ToWorker::TakeFace { face: Box::new(face), socket: Box::new(socket) });
        shards.ports.rouse(to);
    }

    /// Has a face that another thread had.
    pub(super) fn take_face(&mut self, mut face: Face, socket: NewSocket) {
        let id = face.id;
        self.control.send(ToControl::FaceMoved { id, worker: self.index });
        let shards = self.shards.as_mut().expect("another thread gave it");
        if shards.owners.remove(&id).is_none() {
            // It was destroyed on its way.
            return self.count_gone(&face);
        }
        // What it did before was another thread's work.
        let _ = face.work_since_told(1);
        let slot = self.faces.insert(face);
        self.attach(slot, socket);
        // At the end of the turn it sends what waits, its timers are set and its queue is counted.
        self.mark_dirty(slot);
        if let Some(face) = self.faces.at(slot)
            && self.memory.recount_reassembly(face)
        {
            self.shed_reassembly();
        }
    }

    pub(super) fn note_moved(&mut self, id: FaceId, owner: u16) {
        // Unless it was destroyed meanwhile.
        if let Some(shards) = &mut self.shards
            && let Some(known) = shards.owners.get_mut(&id)
        {
            *known = owner;
        }
    }

    /// A packet for a face that this thread no longer has, or that is gone.
    #[cold]
    pub(super) fn forward_packet(&mut self, out: OutPacket) {
        match &mut self.shards {
            Some(shards) if let Some(&owner) = shards.owners.get(&out.face) => {
                shards.ports.push(owner, Crossing::Out(out), &mut self.pool);
            }
            _ => self.counters.face_gone += 1,
        }
    }

    /// A signal likewise.
    #[cold]
    pub(super) fn forward_signal(&mut self, face: FaceId, signal: HopSignal) {
        if let Some(shards) = &mut self.shards
            && let Some(&owner) = shards.owners.get(&face)
        {
            shards.ports.push(owner, Crossing::SignalOut { face, signal }, &mut self.pool);
        }
    }
}
