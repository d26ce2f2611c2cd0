//! What the control thread and the packet threads say to each other. Never on the path of a
//! packet, except for management Interests.

use std::net::SocketAddr;

use weir_base::{FaceId, Packet};
use weir_face::{Socket, UdpCounters, UdpPort};
use weir_forward::{FaceScope, LinkType, RouterStats};
use weir_link::{LinkConfig, LinkCounters, LinkDrop};
use weir_manage::FacePersistency;
use weir_store::disk::DiskTierStats;
use weir_wire::LpHeader;

/// Identifies a shared UDP port within the whole router.
pub(crate) type PortId = u32;

/// The socket of a face that the control thread made.
#[derive(Debug)]
pub(crate) enum NewSocket {
    /// The face's own, connected.
    Own(Socket),
    /// A peer of a shared port.
    Peer { port: PortId, address: SocketAddr },
}

/// A face to be added to the packet thread that will own it.
#[derive(Debug)]
pub(crate) struct NewFace {
    pub(crate) id: FaceId,
    pub(crate) scope: FaceScope,
    pub(crate) link_type: LinkType,
    pub(crate) link: LinkConfig,
    pub(crate) persistency: FacePersistency,
    pub(crate) socket: NewSocket,
}

/// From the control thread (or a sibling) to a packet thread.
#[derive(Debug)]
pub(crate) enum ToWorker {
    /// Own this face.
    AddFace(Box<NewFace>),
    /// Thread `owner` has this face: the shard must know it.
    AddRemoteFace { id: FaceId, scope: FaceScope, link_type: LinkType, owner: u16 },
    /// Close and forget a face, or forget one that another thread has.
    RemoveFace(FaceId),
    /// A permanent face has a socket again.
    AttachSocket { id: FaceId, socket: NewSocket },
    /// Change a face.
    UpdateFace { id: FaceId, link: LinkConfig, persistency: FacePersistency },
    /// Own this shared UDP port. Peers that nobody declared get faces with these links.
    AddPort { id: PortId, socket: Box<UdpPort>, links: PeerLinks },
    /// A command for the shard.
    Router(weir_forward::Command),
    /// A packet from the router's own management face.
    Internal { header: LpHeader, packet: Packet },
    /// Answer with [`ToControl::Snapshot`].
    Snapshot { transaction: u64 },
    /// Flush what can be flushed at once, and end.
    Stop,
}

/// Link settings for the peers of a shared port.
#[derive(Clone, Debug)]
pub(crate) struct PeerLinks {
    pub(crate) loopback: LinkConfig,
    pub(crate) network: LinkConfig,
}

impl PeerLinks {
    pub(crate) fn of(&self, peer: SocketAddr) -> &LinkConfig {
        if peer.ip().to_canonical().is_loopback() { &self.loopback } else { &self.network }
    }
}

/// Counters of one face and what its packet thread knows of it.
#[derive(Clone, Debug)]
pub(crate) struct WorkerFace {
    pub(crate) id: FaceId,
    pub(crate) counters: LinkCounters,
    pub(crate) queue_bytes: u64,
    /// Packets dropped because a permanent face had no socket.
    pub(crate) down_drops: u64,
    /// Until an on-demand face closes if its peer stays silent, ns.
    pub(crate) expires_in_ns: Option<u64>,
}

/// One packet thread at one time.
#[derive(Debug)]
pub(crate) struct WorkerSnapshot {
    pub(crate) router: RouterStats,
    pub(crate) faces: Vec<WorkerFace>,
    /// Link drops of faces that are gone, in the order of [`LinkDrop::ALL`].
    pub(crate) gone_drops: [u64; LinkDrop::COUNT],
    pub(crate) worker: WorkerCounters,
    /// Of all shared UDP ports together.
    pub(crate) udp: UdpCounters,
}

/// Counters of a packet thread that belong to no face.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WorkerCounters {
    /// Packets the shard sent to a face that is gone.
    pub(crate) face_gone: u64,
    /// Management Interests beyond what the control thread's queue holds.
    pub(crate) management_overflow: u64,
    /// Packets lost to full rings between threads.
    pub(crate) ring_overflow: u64,
    /// Datagrams from unknown peers that are no NDN packets.
    pub(crate) unknown_peer_malformed: u64,
    /// Datagrams from unknown peers while there were as many faces as may be.
    pub(crate) unknown_peer_refused: u64,
    /// Streams that closed because what came could not be cut into packets.
    pub(crate) framing_lost: u64,
    /// Errors that broke a UDP port.
    pub(crate) port_errors: u64,
    /// Turns of the event loop.
    pub(crate) loops: u64,
}

/// A packet for the router's own management face: kept apart from [`ToControl`] because strangers
/// can send as many as they like, so this queue is bounded.
#[derive(Debug)]
pub(crate) struct InternalPacket {
    pub(crate) header: LpHeader,
    pub(crate) packet: Packet,
}

/// Why a packet thread closed a face.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// The peer closed.
    PeerClosed,
    /// What came on a stream is no sequence of packets.
    FramingLost(String),
    /// The system reports an error.
    Failed(String),
    /// Silence for the idle timeout.
    Idle,
    /// A command made a face to the same peer.
    Replaced,
}

/// From a packet thread to the control thread.
#[derive(Debug)]
pub(crate) enum ToControl {
    /// A peer of a shared port got a face.
    PeerFace { worker: u16, id: FaceId, port: PortId, peer: SocketAddr },
    /// A face's socket is closed. The face itself is gone too, unless it is permanent.
    FaceClosed { id: FaceId, reason: CloseReason, removed: bool },
    /// What a shard counts of its disks, now and then.
    Disks { worker: u16, stats: Box<DiskTierStats> },
    /// An event of a shard.
    Event { event: weir_forward::Event },
    /// Answer to [`ToWorker::Snapshot`].
    Snapshot { transaction: u64, snapshot: Box<WorkerSnapshot> },
    /// The thread has ended, by panic or because it was told to.
    Ended { worker: u16, panicked: bool },
    /// Somebody outside asks for the state of the whole router.
    Query(crossbeam_channel::Sender<crate::Snapshot>),
    /// A helper thread has made, or failed to make, a connection.
    Connected(Box<crate::control::ConnectOutcome>),
    /// Stop the router.
    Stop,
}
