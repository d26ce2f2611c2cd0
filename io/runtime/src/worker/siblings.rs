//! One worker thread's view of the others: the rings to them, and the faces that they own. A
//! router with one thread has none.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use crossbeam_channel::Sender;
use weir_base::{FaceId, HashKey, Packet, Pool};
use weir_forward::shard::shard_of_packet;
use weir_forward::{FaceAttributes, ShardMessage};
use weir_wire::{HopSignal, LpHeader};

use crate::cross::{RingMessage, ShardRings};
use crate::face::{Face, FaceIdHasher};
use crate::face_quota::FaceClass;
use crate::message::{NewSocket, ToWorker};

/// The rings to the other threads, and the owners of their faces.
pub(crate) struct Siblings {
    index: u16,
    key: HashKey,
    pub(super) rings: ShardRings,
    /// For commands that must not be lost to a full ring. Every thread reads its queue before its
    /// rings.
    queues: Vec<Sender<ToWorker>>,
    owners: HashMap<FaceId, u16, BuildHasherDefault<FaceIdHasher>>,
}

impl Siblings {
    /// `queues`: those of all threads, including this one.
    pub(crate) fn new(
        index: u16,
        key: HashKey,
        rings: ShardRings,
        queues: Vec<Sender<ToWorker>>,
    ) -> Self {
        Self { index, key, rings, queues, owners: HashMap::default() }
    }

    fn other_shards(&self) -> impl Iterator<Item = u16> + use<> {
        let index = self.index;
        (0..self.queues.len() as u16).filter(move |&other| other != index)
    }

    fn send(&self, to: u16, command: ToWorker) {
        // Fails only after the thread has ended. It has reported that, and the router stops.
        let _ = self.queues[usize::from(to)].send(command);
    }

    // Packets to their shards.

    /// The other thread whose shard holds the packet's name. `None` if this thread's shard does.
    /// Also `None` for an invalid packet: any shard may count it.
    #[inline]
    pub(super) fn shard_of(&self, header: &LpHeader, packet: &[u8]) -> Option<u16> {
        let count = self.queues.len() as u16;
        shard_of_packet(&self.key, header, packet, count).filter(|&shard| shard != self.index)
    }

    #[inline]
    pub(super) fn send_packet(
        &mut self,
        to: u16,
        face: FaceId,
        header: LpHeader,
        packet: Packet,
        pool: &mut Pool,
    ) {
        self.rings.push(to, RingMessage::In { face, header, packet }, pool);
    }

    /// A neighbour's signal concerns every shard.
    pub(super) fn send_signal(&mut self, face: FaceId, signal: HopSignal, pool: &mut Pool) {
        for other in self.other_shards() {
            self.rings.push(other, RingMessage::SignalIn { face, signal }, pool);
        }
    }

    pub(super) fn send_message(&mut self, to: u16, message: ShardMessage, pool: &mut Pool) {
        self.rings.push(to, RingMessage::Shard { from: self.index, message }, pool);
    }

    // Packets to the thread that owns their face.

    /// The other thread that owns a face; `None` if this thread does.
    #[inline]
    pub(super) fn owner_of(&self, face: FaceId) -> Option<u16> {
        self.owners.get(&face).copied()
    }

    // Faces of other threads.

    /// Announces a new face of this thread to the other threads.
    pub(super) fn announce(&self, id: FaceId, attributes: FaceAttributes) {
        for other in self.other_shards() {
            self.send(other, ToWorker::AddRemoteFace { id, attributes, owner: self.index });
        }
    }

    pub(super) fn add_face(&mut self, id: FaceId, owner: u16) {
        self.owners.insert(id, owner);
    }

    /// Forgets a face. Returns whether another thread owned it.
    pub(super) fn remove_face(&mut self, id: FaceId) -> bool {
        self.owners.remove(&id).is_some()
    }

    /// Records that thread `owner` owns the face now, unless it was removed.
    pub(super) fn note_moved(&mut self, id: FaceId, owner: u16) {
        if let Some(known) = self.owners.get_mut(&id) {
            *known = owner;
        }
    }

    /// Moves a face of this thread to thread `to`.
    pub(super) fn hand_over(&mut self, to: u16, face: Face, socket: NewSocket) {
        let id = face.id;
        self.owners.insert(id, to);
        for other in self.other_shards().filter(|&other| other != to) {
            self.send(other, ToWorker::FaceMoved { id, owner: to });
        }
        self.send(to, ToWorker::AdoptFace { face: Box::new(face), socket: Box::new(socket) });
        self.rings.mark_for_wake(to);
    }

    /// Asks each other thread to evict a face of this class.
    pub(super) fn request_eviction(&mut self, class: FaceClass) {
        for other in self.other_shards() {
            self.send(other, ToWorker::Evict(class));
            self.rings.mark_for_wake(other);
        }
    }
}
