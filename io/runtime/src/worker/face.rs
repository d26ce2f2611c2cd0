//! The faces that one packet thread owns.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::{IpAddr, SocketAddr};

use weir_base::{FaceId, Instant, NS_PER_S, Slab};
use weir_link::Link;
use weir_manage::FacePersistency;

/// A connection from elsewhere closes when no packet has come over it for this long.
const FIRST_PACKET_NS: u64 = 10 * NS_PER_S;

/// What a face sends and receives through.
#[derive(Debug)]
pub(super) enum Socket {
    /// The face's own.
    Own(weir_face::Socket),
    /// One peer of the shared UDP port in this slot.
    Peer { port: u32, address: SocketAddr },
    /// A permanent face whose peer is not there.
    Down,
}

#[derive(Debug)]
pub(super) struct Face {
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
    pub(super) down_drops: u64,
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
            down_drops: 0,
        }
    }

    /// When the peer was last heard of.
    pub(super) fn heard(&self) -> Instant {
        self.link.last_received().unwrap_or(self.created)
    }

    /// When the face closes unless its peer is heard of: an on-demand UDP face does, and a
    /// connection from elsewhere that has not sent a packet yet.
    pub(super) fn idle_deadline(&self, idle_timeout_ns: u64) -> Option<Instant> {
        if self.persistency != FacePersistency::OnDemand || self.peer.is_none() {
            return None;
        }
        match &self.socket {
            Socket::Peer { .. } => Some(self.heard().plus_ns(idle_timeout_ns)),
            Socket::Own(_) if self.link.last_received().is_none() => {
                Some(self.created.plus_ns(FIRST_PACKET_NS))
            }
            Socket::Own(_) | Socket::Down => None,
        }
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

#[cfg(test)]
mod tests {
    use weir_base::{NS_PER_MS, Packet, Pool};
    use weir_face::{Connected, FaceUri};
    use weir_link::LinkConfig;

    use super::*;

    #[test]
    fn a_silent_connection_from_elsewhere_ends_and_a_local_one_does_not() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let remote = FaceUri::Tcp(listener.local_addr().expect("it is bound"));
        let connected = Connected::to(&remote, std::time::Duration::from_secs(5));
        let Ok(Connected::Socket(socket)) = connected else { panic!("{connected:?}") };
        let created = Instant::from_ns(5);
        let link = Link::new(LinkConfig::stream());
        let mut face =
            Face::new(FaceId(300), link, Socket::Own(socket), FacePersistency::OnDemand, created);
        assert_eq!(face.idle_deadline(NS_PER_MS), None);
        face.peer = Some([192, 0, 2, 1].into());
        assert_eq!(face.idle_deadline(NS_PER_MS), Some(created.plus_ns(FIRST_PACKET_NS)));
        let interest = vec![5, 5, 7, 3, 8, 1, b'a'];
        face.link.receive(created, Packet::from(interest), &mut Pool::new(0));
        assert_eq!(face.idle_deadline(NS_PER_MS), None, "it has spoken");
    }
}
