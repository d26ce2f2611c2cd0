//! The faces that one packet thread owns.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::IpAddr;

use weir_base::{FaceId, Instant, NS_PER_S, Packet, Slab};
use weir_face::UdpPath;
use weir_link::Link;
use weir_manage::FacePersistency;

/// Octets that cost as much as one packet; they count in addition to packets.
const WORK_BYTES: u64 = 2048;

/// What a face sends and receives through.
#[derive(Debug)]
pub(super) enum Socket {
    /// The face's own.
    Own(weir_face::Socket),
    /// One peer of the shared UDP port in this slot.
    Peer { port: u32, path: UdpPath },
    /// A permanent face whose peer is not there.
    Down,
}

/// A face, as the packet thread that owns it knows it.
#[derive(Debug)]
pub(crate) struct Face {
    pub(super) id: FaceId,
    pub(super) link: Link,
    pub(super) socket: Socket,
    /// Where the peer is, when it is no application of this machine.
    pub(super) peer: Option<IpAddr>,
    pub(super) persistency: FacePersistency,
    pub(super) created: Instant,
    /// In the list of faces with something to send.
    pub(super) is_dirty: bool,
    /// In the list of faces with something to read.
    pub(super) is_ready: bool,
    /// The socket took no more, so we wait to hear that it is writable; a peer's face is then in
    /// its port's list of those blocked.
    pub(super) awaits_writable: bool,
    /// The face's own socket took no more, and has not been said to be writable since.
    pub(super) is_full: bool,
    /// Frames that were read and have yet to be looked at.
    pub(super) unread: Vec<Packet>,
    pub(super) down_drops: u64,
    /// Since when a connection takes nothing.
    pub(super) blocked: Option<Blocked>,
    pub(super) counted: Counted,
    /// What it had its thread do until the control thread was last told.
    work_told: u64,
}

/// What the thread's bounds have counted of a face.
#[derive(Debug, Default)]
pub(super) struct Counted {
    pub(super) egress_bytes: u64,
    pub(super) reassembly_bytes: u64,
    pub(super) connection_bytes: u64,
}

/// A connection that takes no more for now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocked {
    pub(super) since: Instant,
    /// Octets sent until then.
    out_bytes: u64,
}

impl Face {
    pub(super) fn new(
        id: FaceId,
        link: Link,
        socket: Socket,
        persistency: FacePersistency,
        created: Instant,
    ) -> Self {
        Self {
            id,
            link,
            socket,
            peer: None,
            persistency,
            created,
            is_dirty: false,
            is_ready: false,
            awaits_writable: false,
            is_full: false,
            unread: Vec::new(),
            down_drops: 0,
            blocked: None,
            counted: Counted::default(),
            work_told: 0,
        }
    }

    /// The socket took no more.
    pub(super) fn note_blocked(&mut self, now: Instant) {
        let out_bytes = self.link.counters().out_bytes;
        if self.blocked.is_none_or(|blocked| blocked.out_bytes != out_bytes) {
            self.blocked = Some(Blocked { since: now, out_bytes });
        }
    }

    /// What it has had its thread do since this was last asked, `elapsed_ns` ago, a second: packets
    /// that came and went, and one more for each [`WORK_BYTES`].
    pub(super) fn work_since_told(&mut self, elapsed_ns: u64) -> u64 {
        let counters = self.link.counters();
        let packets = [
            counters.in_interests,
            counters.in_data,
            counters.in_nacks,
            counters.out_interests,
            counters.out_data,
            counters.out_nacks,
        ];
        let bytes = counters.in_bytes + counters.out_bytes;
        let work = packets.iter().sum::<u64>() + bytes / WORK_BYTES;
        let since = work - std::mem::replace(&mut self.work_told, work);
        since.saturating_mul(NS_PER_S) / elapsed_ns
    }

    /// When the peer was last heard of.
    pub(super) fn heard(&self) -> Instant {
        self.link.last_received().unwrap_or(self.created)
    }

    /// When the face closes unless its peer is heard of; only on-demand UDP faces do. A silent
    /// connection may be that of a router with nothing to ask yet: it ends when others want its
    /// place.
    pub(super) fn idle_deadline(&self, idle_timeout_ns: u64) -> Option<Instant> {
        let is_idle_kind = self.persistency == FacePersistency::OnDemand
            && matches!(self.socket, Socket::Peer { .. });
        is_idle_kind.then(|| self.heard().plus_ns(idle_timeout_ns))
    }
}

/// Faces in slots that stay put, found by identifier.
#[derive(Debug, Default)]
pub(super) struct Faces {
    slots: Slab<Face>,
    by_id: HashMap<FaceId, u32, BuildHasherDefault<FaceIdHasher>>,
}

impl Faces {
    pub(super) fn insert(&mut self, face: Face) -> u32 {
        let id = face.id;
        let slot = self.slots.insert(face);
        let previous = self.by_id.insert(id, slot);
        assert!(previous.is_none(), "identifiers are never given twice");
        slot
    }

    pub(super) fn remove(&mut self, slot: u32) -> Face {
        let face = self.slots.remove(slot);
        self.by_id.remove(&face.id);
        face
    }

    #[inline]
    pub(super) fn slot_of(&self, id: FaceId) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    #[inline]
    pub(super) fn at(&mut self, slot: u32) -> Option<&mut Face> {
        self.slots.get_mut(slot)
    }

    /// Gives back memory that only a busier time needed.
    pub(super) fn shrink(&mut self) {
        self.iter_mut().for_each(|face| face.link.shrink());
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Face> {
        self.slots.iter_mut().map(|(_, face)| face)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Face)> {
        self.slots.iter()
    }
}

/// Spreads identifiers. They are ours, and nearly consecutive, so that no peer can make them
/// collide.
#[derive(Default)]
pub(crate) struct FaceIdHasher(u64);

impl Hasher for FaceIdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut octets = [0; 8];
            octets[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(octets));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(26);
    }
}
