//! A face, as the worker thread that owns it sees it.

use std::hash::Hasher;
use std::mem;
use std::net::IpAddr;

use weir_base::{FaceId, Instant, NS_PER_S, Packet};
use weir_face::UdpPath;
use weir_link::Link;
use weir_manage::FacePersistency;

/// Bytes that count as much work as one packet. A packet's bytes count in addition to the packet.
const WORK_BYTES: u64 = 2048;

/// The socket that a face sends and receives on.
#[derive(Debug)]
pub(crate) enum FaceSocket {
    Own(weir_face::Socket),
    /// One peer of the shared UDP port in this slot.
    Peer {
        port: u32,
        path: UdpPath,
    },
    /// A permanent face whose peer is unreachable.
    Down,
}

/// A face with its link, its socket and its membership in the thread's lists.
#[derive(Debug)]
pub(crate) struct Face {
    pub(crate) id: FaceId,
    pub(crate) link: Link,
    pub(crate) socket: FaceSocket,
    /// The peer's address; `None` for a local application.
    pub(crate) peer: Option<IpAddr>,
    pub(crate) persistency: FacePersistency,
    /// How the peer is or was last connected, for metrics; empty before the first socket.
    pub(crate) transport: &'static str,
    /// Whether a program has registered prefixes for the face with hicn-light's messages.
    pub(crate) has_routes: bool,
    /// The last [extension](Face::extend_idle).
    extended: Option<Extension>,
    created: Instant,
    /// Whether the face is in the list of faces with something to send.
    pub(crate) is_dirty: bool,
    /// Whether the face is in the list of sources with something to read.
    pub(crate) is_ready: bool,
    /// Whether the kernel reports when the socket is writable. The face of a UDP peer is then in
    /// its port's list of blocked faces.
    pub(crate) awaits_writable: bool,
    /// The face's own socket is full and has not become writable since.
    pub(crate) is_socket_full: bool,
    /// Frames that were read but not processed.
    pub(crate) unread: Vec<Packet>,
    /// Packets dropped while a permanent face had no socket.
    pub(crate) down_drops: u64,
    blocked: Option<Blocked>,
    pub(crate) counted: CountedBytes,
    /// Work that was included in the last report to the control thread.
    work_reported: u64,
}

/// Bytes of this face that are included in the thread's memory budgets.
#[derive(Debug, Default)]
pub(crate) struct CountedBytes {
    pub(crate) egress: u64,
    pub(crate) reassembly: u64,
    pub(crate) connection: u64,
}

/// When the idle timeout of a producer's face was extended.
#[derive(Clone, Copy, Debug)]
struct Extension {
    at: Instant,
    /// Interests sent until `at`.
    interests: u64,
}

/// A connection whose peer reads nothing.
#[derive(Clone, Copy, Debug)]
struct Blocked {
    since: Instant,
    /// Bytes sent until `since`.
    out_bytes: u64,
}

impl Face {
    pub(crate) fn new(
        id: FaceId,
        link: Link,
        socket: FaceSocket,
        persistency: FacePersistency,
        created: Instant,
    ) -> Self {
        Self {
            id,
            link,
            socket,
            peer: None,
            persistency,
            transport: "",
            has_routes: false,
            extended: None,
            created,
            is_dirty: false,
            is_ready: false,
            awaits_writable: false,
            is_socket_full: false,
            unread: Vec::new(),
            down_drops: 0,
            blocked: None,
            counted: CountedBytes::default(),
            work_reported: 0,
        }
    }

    /// The socket is full.
    pub(crate) fn note_blocked(&mut self, now: Instant) {
        self.is_socket_full = true;
        let out_bytes = self.link.counters().out_bytes;
        // If the peer has read something since, the blocked time starts again.
        if self.blocked.is_none_or(|blocked| blocked.out_bytes != out_bytes) {
            self.blocked = Some(Blocked { since: now, out_bytes });
        }
    }

    /// The socket has accepted everything.
    pub(crate) fn note_drained(&mut self) {
        self.blocked = None;
    }

    /// When the connection stopped accepting bytes; `None` if it accepts them.
    pub(crate) fn blocked_since(&self) -> Option<Instant> {
        self.blocked.map(|blocked| blocked.since)
    }

    /// Closes the socket and drops all queued packets.
    pub(crate) fn close_socket(&mut self) -> FaceSocket {
        self.link.discard_all();
        self.awaits_writable = false;
        self.is_socket_full = false;
        self.blocked = None;
        mem::replace(&mut self.socket, FaceSocket::Down)
    }

    /// The face's work per second since the last call, `elapsed_ns` ago: packets received and sent,
    /// plus one for each [`WORK_BYTES`].
    pub(crate) fn work_since_report(&mut self, elapsed_ns: u64) -> u64 {
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
        let since = work - mem::replace(&mut self.work_reported, work);
        since.saturating_mul(NS_PER_S) / elapsed_ns
    }

    /// When the peer last sent a frame, or the face was created.
    pub(crate) fn last_heard(&self) -> Instant {
        self.link.last_received().unwrap_or(self.created)
    }

    /// When the face closes unless its peer sends something. Only on-demand UDP faces close when
    /// idle. An idle connection may belong to a router that has nothing to request yet, so it is
    /// evicted only for another peer.
    pub(crate) fn idle_deadline(&self, idle_timeout_ns: u64) -> Option<Instant> {
        let is_idle_kind = self.persistency == FacePersistency::OnDemand
            && matches!(self.socket, FaceSocket::Peer { .. });
        let extended_at = self.extended.map(|extended| extended.at);
        let since = extended_at.map_or(self.last_heard(), |at| at.max(self.last_heard()));
        is_idle_kind.then(|| since.plus_ns(idle_timeout_ns))
    }

    /// Keeps an idle face for another timeout, if it belongs to a producer that was asked nothing.
    /// hICN's producers do not register again, and nothing else shows that they are alive. Returns
    /// `false` if Interests were sent during a whole timeout and the peer was silent.
    pub(crate) fn extend_idle(&mut self, now: Instant) -> bool {
        let interests = self.link.counters().out_interests;
        let heard_at = self.last_heard();
        // Interests before the last frame may have been answered by it.
        let is_unanswered =
            self.extended.is_some_and(|last| last.at >= heard_at && last.interests != interests);
        if !self.has_routes || is_unanswered {
            return false;
        }
        self.extended = Some(Extension { at: now, interests });
        true
    }
}

/// Hashes face identifiers. The router assigns them almost consecutively, so no peer can cause
/// collisions.
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
