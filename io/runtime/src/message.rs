//! Messages between the control thread and the worker threads. No message is sent per packet,
//! except for management Interests.

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc;
use std::time::Duration;

use weir_base::{FaceId, Instant, Packet};
use weir_face::{Connected, FaceUri, Socket, UdpCounters, UdpPath, UdpPort};
use weir_forward::{Event, FaceAttributes, FaceScope, LinkType, PitTokens, RouterStats};
use weir_link::{LinkConfig, LinkDrop, PacketFormat};
use weir_manage::{ControllerStatus, FacePersistency, FaceRequest};
use weir_store::disk::DiskTierStats;
use weir_wire::LpHeader;

use crate::config::{PitTokenChoice, RuntimeConfig};
use crate::contents_request::{ContentsRequest, ReplySender};
use crate::face::Face;
use crate::face_quota::{FaceClass, Network};
use crate::reload::ReloadReport;
use crate::snapshot::{RemovedFaces, Snapshot, WorkerCounters, WorkerFace};

/// Identifies a shared UDP port within the router.
pub(crate) type PortId = u32;

/// The socket of a face that the control thread created.
#[derive(Debug)]
pub(crate) enum NewSocket {
    /// A connected socket of the face's own.
    Own(Socket),
    /// A peer of a shared port.
    Peer { port: PortId, path: UdpPath },
}

impl NewSocket {
    /// The face attributes that the router needs.
    pub(crate) fn attributes(&self, scope: FaceScope, token: PitTokenChoice) -> FaceAttributes {
        let attributes = face_attributes(self.peer(), self.is_datagram(), scope, token);
        FaceAttributes { link_type: self.link_type(), ..attributes }
    }

    fn link_type(&self) -> LinkType {
        match self {
            Self::Own(socket) => link_type(&socket.remote_uri()),
            Self::Peer { .. } => LinkType::PointToPoint,
        }
    }

    fn is_datagram(&self) -> bool {
        match self {
            Self::Peer { .. } => true,
            Self::Own(socket) => socket.remote_uri().is_datagram(),
        }
    }

    /// The peer's address; `None` for a local application, or if there are many peers.
    pub(crate) fn peer(&self) -> Option<IpAddr> {
        match self {
            Self::Peer { path, .. } => Some(path.remote.ip()),
            Self::Own(socket) if socket.is_local() => None,
            Self::Own(socket) => {
                let remote = socket.remote_uri();
                let peer = remote.socket_addr().filter(|_| !remote.is_multicast());
                peer.map(|address| address.ip())
            }
        }
    }
}

/// How many hosts a face reaches. Behind a TUN device there may be many: Data finds each of them by
/// its locator.
pub(crate) fn link_type(remote: &FaceUri) -> LinkType {
    match remote {
        FaceUri::Udp(group) if group.ip().is_multicast() => LinkType::MultiAccess,
        FaceUri::HicnTun { .. } => LinkType::MultiAccess,
        _ => LinkType::PointToPoint,
    }
}

/// The face attributes that the router needs for a face to `peer`. `is_datagram`: any
/// host can send packets to the face.
pub(crate) fn face_attributes(
    peer: Option<IpAddr>,
    is_datagram: bool,
    scope: FaceScope,
    token: PitTokenChoice,
) -> FaceAttributes {
    let tokens = match (token, is_datagram) {
        (PitTokenChoice::Off, _) => PitTokens::Off,
        (PitTokenChoice::Short | PitTokenChoice::Long, false) => PitTokens::Shard,
        (PitTokenChoice::Short, true) => PitTokens::Secret,
        (PitTokenChoice::Long, true) => PitTokens::LongSecret,
    };
    let host = peer.map(|peer| Network::host(peer).number());
    FaceAttributes { tokens, host, ..FaceAttributes::point_to_point(scope) }
}

/// Writes the face's number where path labels of hICN need it.
pub(crate) fn set_face_number(link: &mut LinkConfig, id: FaceId) {
    if let PacketFormat::Hicn(hicn) = &mut link.codec.format {
        hicn.face = id.0;
    }
}

/// A face that is added to the worker thread that will own it.
#[derive(Debug)]
pub(crate) struct NewFace {
    pub(crate) id: FaceId,
    pub(crate) attributes: FaceAttributes,
    pub(crate) link: LinkConfig,
    pub(crate) persistency: FacePersistency,
    pub(crate) socket: NewSocket,
}

/// From the control thread, or another worker thread, to a worker thread.
#[derive(Debug)]
pub(crate) enum ToWorker {
    AddFace(Box<NewFace>),
    /// Thread `owner` has this face. The shard needs to know it.
    AddRemoteFace {
        id: FaceId,
        attributes: FaceAttributes,
        owner: u16,
    },
    /// Close and remove a face, or forget a face of another thread.
    RemoveFace(FaceId),
    /// A permanent face has a socket again.
    AttachSocket {
        id: FaceId,
        socket: NewSocket,
    },
    UpdateFace {
        id: FaceId,
        link: LinkConfig,
        persistency: FacePersistency,
    },
    /// Evict the least used face of this class, if one is idle, for another peer.
    Evict(FaceClass),
    /// Move this face to thread `to`. [`ToControl::FaceMoved`] always follows. At the new thread,
    /// the face has `socket`, or its own socket if that is `None`.
    MoveFace {
        id: FaceId,
        to: u16,
        socket: Option<NewSocket>,
    },
    /// Take over a face of another thread, with this socket.
    AdoptFace {
        face: Box<Face>,
        socket: Box<NewSocket>,
    },
    /// Answer with [`ToControl::LastHeard`].
    ReportLastHeard(FaceId),
    /// Thread `owner` has this face now.
    FaceMoved {
        id: FaceId,
        owner: u16,
    },
    /// Own this socket of a shared UDP port. Unknown peers get faces with these links.
    AddPort {
        id: PortId,
        socket: Box<UdpPort>,
        links: Box<PeerLinks>,
    },
    Router(weir_forward::Command),
    /// A packet from the router's internal management face.
    Internal {
        header: LpHeader,
        packet: Packet,
    },
    /// Send a control message of hicn-light over this face.
    HicnControl {
        face: FaceId,
        message: Packet,
        /// Whether the face has routes now.
        has_routes: bool,
    },
    /// Answer with [`ToControl::Snapshot`].
    Snapshot {
        transaction: u64,
    },
    /// Drop this value. All earlier commands are in force then.
    Fence(mpsc::Sender<()>),
    /// Send the thread's index. It shows that the thread makes rounds.
    Pulse(crossbeam_channel::Sender<u16>),
    /// Flush what the sockets accept at once, and end.
    Stop,
}

/// A face's work per second, as counted by `Face::work_since_report`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FaceWork {
    pub(crate) face: FaceId,
    pub(crate) work: u64,
}

/// The work per second of all faces of a worker thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkReport {
    pub(crate) total: u64,
    /// The busiest faces that may move.
    pub(crate) movable: Vec<FaceWork>,
}

/// Settings for the peers of a shared port.
#[derive(Clone, Debug)]
pub(crate) struct PeerLinks {
    pub(crate) loopback: LinkConfig,
    pub(crate) network: LinkConfig,
    pub(crate) pit_token: PitTokenChoice,
}

impl PeerLinks {
    pub(crate) fn of(&self, peer: SocketAddr) -> &LinkConfig {
        if peer.ip().to_canonical().is_loopback() { &self.loopback } else { &self.network }
    }
}

/// The state of one worker thread.
#[derive(Debug)]
pub(crate) struct WorkerSnapshot {
    pub(crate) router: RouterStats,
    pub(crate) faces: Vec<WorkerFace>,
    /// Counters of removed faces, by transport.
    pub(crate) removed_faces: Vec<RemovedFaces>,
    /// Link drops of removed faces, in the order of [`LinkDrop::ALL`].
    pub(crate) removed_face_drops: [u64; LinkDrop::COUNT],
    pub(crate) worker: WorkerCounters,
    /// Sum over all shared UDP ports.
    pub(crate) udp: UdpCounters,
}

/// A packet for the manager. It has a bounded queue, separate from [`ToControl`], because peers can
/// send any number of them.
#[derive(Debug)]
pub(crate) enum InternalPacket {
    /// A packet for the internal management face.
    Ndn { header: LpHeader, packet: Packet },
    /// A control message of hicn-light from this face.
    HicnControl { face: FaceId, message: Packet },
    /// A report of strategy self-learning.
    Learning(Event),
}

impl InternalPacket {
    /// The face that it came from.
    pub(crate) fn ingress(&self) -> FaceId {
        match self {
            Self::Ndn { header, .. } => FaceId(header.incoming_face.unwrap_or(FaceId::INVALID.0)),
            Self::HicnControl { face, .. } => *face,
            Self::Learning(Event::Announced { face, .. } | Event::RouteRefused { face, .. }) => {
                *face
            }
            Self::Learning(_) => FaceId::INVALID,
        }
    }
}

/// Why a worker thread closed a face.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    PeerClosed,
    /// The bytes on a stream are not a sequence of packets, or break the protocol of WebSocket.
    FramingLost(String),
    /// An application wrote invalid positions into shared memory.
    RingBroken,
    /// The system reported an error.
    Failed(String),
    /// The peer was silent for the idle timeout.
    Idle,
    /// A command created a face to the same peer.
    Replaced,
    /// The least used face, evicted for another peer.
    Evicted,
    /// The peer read nothing for the stall timeout, or for the longest time while egress queues
    /// used too much memory.
    Stalled,
}

/// Why a connection is made.
#[derive(Clone, Debug)]
pub(crate) enum ConnectPurpose {
    /// A faces/create command waits for it.
    Command { txn: u64, request: FaceRequest },
    /// A static face that does not exist yet.
    Static { index: usize },
    /// A permanent face that lost its socket.
    Reconnect { face: FaceId },
    /// A static UDP face. The address of its host may have changed.
    Recheck { face: FaceId },
}

/// The state of the router, for `/health` and `/ready`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readiness {
    /// Number of worker threads.
    pub(crate) threads: u16,
    pub(crate) is_stopping: bool,
    /// Whether the index of the disks is still being recovered.
    pub(crate) is_recovering: bool,
}

impl Readiness {
    /// Whether the router serves everything that it should. Its threads may be stuck.
    pub(crate) fn is_ready(&self) -> bool {
        !self.is_stopping && !self.is_recovering
    }
}

/// The result of a connection attempt.
#[derive(Debug)]
pub(crate) struct ConnectOutcome {
    pub(crate) purpose: ConnectPurpose,
    pub(crate) result: Result<Connected, String>,
}

/// From other threads to the control thread.
#[derive(Debug)]
pub(crate) enum ToControl {
    /// A peer of a shared port got a face.
    PeerFace {
        worker: u16,
        id: FaceId,
        port: PortId,
        path: UdpPath,
    },
    /// A face's socket is closed. The face is removed too, unless it is permanent.
    FaceClosed {
        id: FaceId,
        reason: CloseReason,
        removed: bool,
    },
    /// The load of a worker thread.
    Work {
        worker: u16,
        report: WorkReport,
    },
    /// The move of a face has ended. This thread has it, if it still exists.
    FaceMoved {
        id: FaceId,
        worker: u16,
    },
    /// When a face's peer was last heard, or the face was created.
    LastHeard {
        id: FaceId,
        at: Instant,
    },
    /// Statistics of a shard's disks, sent periodically.
    Disks {
        worker: u16,
        stats: Box<DiskTierStats>,
    },
    Event {
        worker: u16,
        event: Event,
    },
    /// Answer to [`ToWorker::Snapshot`].
    Snapshot {
        transaction: u64,
        snapshot: Box<WorkerSnapshot>,
    },
    /// The thread has ended, by a panic or on request.
    Ended {
        worker: u16,
        panicked: bool,
    },
    /// Answer, and send a pulse of each worker thread.
    Examine {
        pulse: crossbeam_channel::Sender<u16>,
        answer: crossbeam_channel::Sender<Readiness>,
    },
    /// Apply a checked configuration.
    Reload {
        config: Box<RuntimeConfig>,
        answer: crossbeam_channel::Sender<ReloadReport>,
    },
    /// The requested reload has ended: with a summary, or the reason of its refusal.
    ReloadEnded(Result<String, String>),
    /// Another thread requests a snapshot of the router.
    Query(crossbeam_channel::Sender<Snapshot>),
    /// A helper thread has finished a connection attempt.
    Connected(Box<ConnectOutcome>),
    /// An application in this process connects.
    Local(Box<Socket>),
    /// A request about the store. Worker threads must answer `within` this time.
    Contents {
        question: ContentsRequest,
        within: Duration,
        answer: ReplySender,
    },
    /// Describes the controller of this router from now on.
    ControllerSource(ControllerSource),
    Stop,
}

/// Describes the controller, for status/controller. Must not block.
pub(crate) struct ControllerSource(pub(crate) Box<dyn Fn() -> ControllerStatus + Send>);

impl std::fmt::Debug for ControllerSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ControllerSource")
    }
}
