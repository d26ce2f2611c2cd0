//! The state of the whole router at one time, summed over its worker threads.

use std::path::PathBuf;

use weir_base::FaceId;
use weir_disk::DiskCounters;
use weir_face::{FaceUri, UdpCounters};
use weir_forward::RouterStats;
use weir_link::{LinkCounters, LinkDrop};
use weir_manage::ManagerStats;

/// Counters and sizes of a router.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Sum over all shards.
    pub router: RouterStats,
    /// Faces in order of their identifiers.
    pub faces: Vec<FaceSnapshot>,
    /// Counters of removed faces, by transport.
    pub removed_faces: Vec<RemovedFaces>,
    /// Link drops by reason, including those of removed faces, in the order of [`LinkDrop::ALL`].
    pub link_drops: Vec<(LinkDrop, u64)>,
    /// Drops outside of links and shards: reason and count.
    pub runtime_drops: Vec<(&'static str, u64)>,
    /// Memory that applications share with the router; `None` if shared memory is disabled.
    pub shared_memory: Option<SharedMemorySnapshot>,
    /// The disks of the store, in the order of the configuration.
    pub disks: Vec<DiskSnapshot>,
    pub management: ManagerStats,
    /// Whether the router is neither stopping nor recovering the index of its disks.
    pub is_ready: bool,
    /// When the first trust anchor expires, in seconds since 1970; `None` without trust anchors.
    pub anchor_expires_unix_s: Option<i64>,
}

/// Memory that applications share with the router (docs/shared-memory.md). Refused offers and
/// broken rings are in [`Snapshot::runtime_drops`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedMemorySnapshot {
    /// Faces that use shared memory in both directions.
    pub faces: u64,
    /// Bytes of accepted memory, including that of faces that have not switched yet.
    pub used_bytes: u64,
    pub bytes_max: u64,
    pub taken: u64,
}

#[derive(Clone, Debug)]
pub struct DiskSnapshot {
    /// The file or device.
    pub path: PathBuf,
    /// How it is read and written: `io_uring` or `threads`.
    pub engine: &'static str,
    /// Bytes available for records.
    pub capacity_bytes: u64,
    pub counters: DiskCounters,
    /// Whether its engine has ended for good.
    pub is_dead: bool,
}

/// Sums over the faces of one transport that were removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovedFaces {
    /// As in [`FaceSnapshot::transport`].
    pub transport: &'static str,
    pub kind: RemovedKind,
    pub counters: LinkCounters,
}

/// Which faces a sum of [`RemovedFaces`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RemovedKind {
    /// Faces that their peers had created.
    OnDemand,
    /// Other faces.
    Listed,
    /// Faces that peers had created and that exist, but became persistent or permanent: what they
    /// had counted by then.
    Upgraded,
}

#[derive(Clone, Debug)]
pub struct FaceSnapshot {
    pub id: FaceId,
    pub uri: String,
    pub local_uri: String,
    /// How the peer is connected: `udp4`, `tcp6`, `unix` and so on.
    pub transport: &'static str,
    /// Whether the peer created the face, which then ends with the connection or when idle.
    pub is_on_demand: bool,
    /// Index of the worker thread that owns the face.
    pub thread: u16,
    /// Whether it has a socket. Only permanent faces can be down.
    pub up: bool,
    pub counters: LinkCounters,
    /// Bytes in its egress queue.
    pub queue_bytes: u64,
    /// Packets dropped while it was down.
    pub down_drops: u64,
    /// Time in ns until the face closes, if its peer stays silent.
    pub expires_in_ns: Option<u64>,
    /// Time in ns since the peer's last frame; `None` if there was none.
    pub heard_ns_ago: Option<u64>,
}

/// Counters of one face, as its worker thread knows them.
#[derive(Clone, Debug)]
pub(crate) struct WorkerFace {
    pub(crate) id: FaceId,
    pub(crate) thread: u16,
    /// Empty if the face never had a socket.
    pub(crate) transport: &'static str,
    pub(crate) is_on_demand: bool,
    pub(crate) counters: LinkCounters,
    pub(crate) queue_bytes: u64,
    /// Packets dropped because a permanent face had no socket.
    pub(crate) down_drops: u64,
    /// Whether its packets go through shared memory.
    pub(crate) is_shared: bool,
    /// Time in ns until an on-demand face closes, if its peer stays silent.
    pub(crate) expires_in_ns: Option<u64>,
    pub(crate) heard_ns_ago: Option<u64>,
}

/// Counters of a worker thread that belong to no face.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WorkerCounters {
    /// Packets that the shard sent to a removed face.
    pub(crate) face_gone: u64,
    /// Interests whose next hop was the null face.
    pub(crate) null_face: u64,
    /// Management Interests that exceeded the control thread's queue.
    pub(crate) management_overflow: u64,
    /// Packets lost to full rings between threads.
    pub(crate) ring_overflow: u64,
    /// Datagrams from unknown peers that are not NDN packets.
    pub(crate) unknown_peer_malformed: u64,
    /// Datagrams from unknown peers that got no face because of a limit.
    pub(crate) unknown_peer_refused: u64,
    /// Streams closed because their bytes are not a sequence of packets, and WebSockets closed
    /// because the peer broke the protocol.
    pub(crate) framing_lost: u64,
    /// Applications' faces closed because of invalid positions in shared memory.
    pub(crate) rings_broken: u64,
    /// Peers' faces evicted for others.
    pub(crate) faces_evicted: u64,
    /// Connections closed because their peers read nothing.
    pub(crate) faces_stalled: u64,
    /// Errors that broke a UDP port.
    pub(crate) port_errors: u64,
    /// Iterations of the event loop.
    pub(crate) loops: u64,
}

impl FaceSnapshot {
    pub(crate) fn new(face: &WorkerFace, remote: &FaceUri, local_uri: String, up: bool) -> Self {
        let transport =
            if face.transport.is_empty() { metric_transport(remote) } else { face.transport };
        Self {
            id: face.id,
            uri: remote.to_string(),
            local_uri,
            transport,
            is_on_demand: face.is_on_demand,
            thread: face.thread,
            up,
            counters: face.counters.clone(),
            queue_bytes: face.queue_bytes,
            down_drops: face.down_drops,
            expires_in_ns: face.expires_in_ns,
            heard_ns_ago: face.heard_ns_ago,
        }
    }
}

/// The transport of a face as metrics name it: the scheme of its URI, but one name for both ends of
/// a connection.
pub(crate) fn metric_transport(remote: &FaceUri) -> &'static str {
    match remote.scheme() {
        "fd" => "unix",
        "wsclient" => "ws",
        scheme => scheme,
    }
}

impl Snapshot {
    /// Adds the counters of removed faces.
    pub(crate) fn add_removed_faces(&mut self, removed: &[RemovedFaces]) {
        for other in removed {
            let is_same = |known: &&mut RemovedFaces| {
                (known.transport, known.kind) == (other.transport, other.kind)
            };
            match self.removed_faces.iter_mut().find(is_same) {
                Some(known) => known.counters += &other.counters,
                None => self.removed_faces.push(other.clone()),
            }
        }
    }

    /// Adds the counters of a worker thread.
    pub(crate) fn add_worker(&mut self, worker: &WorkerCounters) {
        let counts = [
            ("face-displaced", worker.faces_evicted),
            ("face-gone", worker.face_gone),
            ("face-stalled", worker.faces_stalled),
            ("framing-lost", worker.framing_lost),
            ("management-overflow", worker.management_overflow),
            ("null-face", worker.null_face),
            ("port-error", worker.port_errors),
            ("ring-overflow", worker.ring_overflow),
            ("shared-memory-broken", worker.rings_broken),
            ("stranger-malformed", worker.unknown_peer_malformed),
            ("stranger-refused", worker.unknown_peer_refused),
        ];
        for (reason, count) in counts {
            self.add_runtime_drop(reason, count);
        }
    }

    /// Adds the counters of UDP ports.
    pub(crate) fn add_udp(&mut self, udp: &UdpCounters) {
        let counts = [
            ("udp-receive-overflow", udp.receive_overflows),
            ("udp-truncated", udp.truncated),
            ("udp-receive-error", udp.receive_errors),
        ];
        for (reason, count) in counts {
            self.add_runtime_drop(reason, count);
        }
    }

    pub(crate) fn add_runtime_drop(&mut self, reason: &'static str, count: u64) {
        match self.runtime_drops.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, sum)) => *sum += count,
            None => self.runtime_drops.push((reason, count)),
        }
    }

    /// Adds link drops of faces, in the order of [`LinkDrop::ALL`].
    pub(crate) fn add_link_drops(&mut self, counts: impl IntoIterator<Item = u64>) {
        if self.link_drops.is_empty() {
            self.link_drops = LinkDrop::ALL.into_iter().map(|reason| (reason, 0)).collect();
        }
        for ((_, sum), count) in self.link_drops.iter_mut().zip(counts) {
            *sum += count;
        }
    }
}
