//! Messages between the control thread and the packet threads. Never on the path of a packet,
//! except for management Interests.

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc;
use std::time::Duration;

use weir_base::{FaceId, Instant, Packet};
use weir_face::{Connected, FaceUri, Socket, UdpCounters, UdpPath, UdpPort};
use weir_forward::{FaceAttributes, FaceScope, PitTokens, RouterStats};
use weir_link::{LinkConfig, LinkDrop};
use weir_manage::{FacePersistency, FaceRequest};
use weir_store::disk::DiskTierStats;
use weir_wire::LpHeader;

use crate::config::PitTokenChoice;
use crate::face::Face;
use crate::face_quota::{FaceClass, Network};
use crate::questions::{ContentsRequest, ReplySender};
use crate::snapshot::{Snapshot, WorkerCounters, WorkerFace};

/// Identifies a shared UDP port within the whole router.
pub(crate) type PortId = u32;

/// The socket of a face that the control thread made.
#[derive(Debug)]
pub(crate) enum NewSocket {
    /// The face's own, connected.
    Own(Socket),
    /// A peer of a shared port.
    Peer { port: PortId, path: UdpPath },
}

impl NewSocket {
    /// What the router must know of a face with this socket.
    pub(crate) fn attributes(&self, scope: FaceScope, token: PitTokenChoice) -> FaceAttributes {
        face_attributes(self.peer(), matches!(self, Self::Peer { .. }), scope, token)
    }

    /// The peer's address, unless it is an application of this machine.
    pub(crate) fn peer(&self) -> Option<IpAddr> {
        match self {
            Self::Peer { path, .. } => Some(path.remote.ip()),
            Self::Own(socket) if socket.is_local() => None,
            Self::Own(socket) => match socket.remote_uri() {
                FaceUri::Tcp(address) => Some(address.ip()),
                _ => None,
            },
        }
    }
}

/// What the router must know of a face to `peer`, a datagram's sender or not.
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

/// A face to be added to the packet thread that will own it.
#[derive(Debug)]
pub(crate) struct NewFace {
    pub(crate) id: FaceId,
    pub(crate) attributes: FaceAttributes,
    pub(crate) link: LinkConfig,
    pub(crate) persistency: FacePersistency,
    pub(crate) socket: NewSocket,
}

/// From the control thread (or a sibling) to a packet thread.
#[derive(Debug)]
pub(crate) enum ToWorker {
    AddFace(Box<NewFace>),
    /// Thread `owner` has this face: the shard must know it.
    AddRemoteFace {
        id: FaceId,
        attributes: FaceAttributes,
        owner: u16,
    },
    /// Close and remove a face, or forget one that another thread has.
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
    /// Close the least used face of this class, if one is silent: another peer needs its place.
    Evict(FaceClass),
    /// Give this face to thread `to`. [`ToControl::FaceMoved`] follows in any case. There it has
    /// `socket`, or else its own.
    MoveFace {
        id: FaceId,
        to: u16,
        socket: Option<NewSocket>,
    },
    /// Take a face that another thread had, with this socket.
    AdoptFace {
        face: Box<Face>,
        socket: Box<NewSocket>,
    },
    /// Answer with [`ToControl::Reported`].
    ReportLastHeard(FaceId),
    /// Thread `owner` has this face now.
    FaceMoved {
        id: FaceId,
        owner: u16,
    },
    /// Own this socket of a shared UDP port. Peers that are not configured get faces with these
    /// links.
    AddPort {
        id: PortId,
        socket: Box<UdpPort>,
        links: Box<PeerLinks>,
    },
    Router(weir_forward::Command),
    /// A packet from the router's own management face.
    Internal {
        header: LpHeader,
        packet: Packet,
    },
    /// Answer with [`ToControl::Snapshot`].
    Snapshot {
        transaction: u64,
    },
    /// Drop this: everything that was sent before is in force then.
    Fence(mpsc::Sender<()>),
    /// Flush what can be flushed at once, and end.
    Stop,
}

/// The work that a face causes in a second, as `Face::work_since_report` counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FaceWork {
    pub(crate) face: FaceId,
    pub(crate) work: u64,
}

/// The work of all faces of a packet thread in a second.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkReport {
    pub(crate) total: u64,
    /// Of the faces that may be moved, those that cause most.
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

/// One packet thread at one time.
#[derive(Debug)]
pub(crate) struct WorkerSnapshot {
    pub(crate) router: RouterStats,
    pub(crate) faces: Vec<WorkerFace>,
    /// Link drops of faces that are gone, in the order of [`LinkDrop::FULL_SHARE`].
    pub(crate) removed_face_drops: [u64; LinkDrop::COUNT],
    pub(crate) worker: WorkerCounters,
    /// Of all shared UDP ports together.
    pub(crate) udp: UdpCounters,
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
    PeerClosed,
    /// The bytes on a stream are no sequence of packets.
    FramingLost(String),
    /// An application wrote nonsense into memory that it shares.
    RingBroken,
    /// The system reports an error.
    Failed(String),
    /// The peer was silent for the idle timeout.
    Idle,
    /// A command made a face to the same peer.
    Replaced,
    /// There was no room for another peer, and this one was used least.
    Evicted,
    /// The peer accepted nothing for the stall timeout, or for longest while too much waited.
    Stalled,
}

/// Why a connection is made.
#[derive(Clone, Debug)]
pub(crate) enum ConnectPurpose {
    /// A faces/create command waits for it.
    Command { txn: u64, request: FaceRequest },
    /// A face of the configuration that does not exist yet.
    Static { index: usize },
    /// A permanent face that lost its socket.
    Reconnect { face: FaceId },
    /// A UDP face of the configuration, whose host may have another address by now.
    Recheck { face: FaceId },
}

/// The result of an attempt to connect.
#[derive(Debug)]
pub(crate) struct ConnectOutcome {
    pub(crate) purpose: ConnectPurpose,
    pub(crate) result: Result<Connected, String>,
}

/// From a packet thread to the control thread.
#[derive(Debug)]
pub(crate) enum ToControl {
    /// A peer of a shared port got a face.
    PeerFace {
        worker: u16,
        id: FaceId,
        port: PortId,
        path: UdpPath,
    },
    /// A face's socket is closed. The face itself is gone too, unless it is permanent.
    FaceClosed {
        id: FaceId,
        reason: CloseReason,
        removed: bool,
    },
    /// How much work the faces of a packet thread cause.
    Work {
        worker: u16,
        report: WorkReport,
    },
    /// The move of a face has ended: this thread has it, if it still exists.
    FaceMoved {
        id: FaceId,
        worker: u16,
    },
    /// When the peer of a face was last heard, or the face was made.
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
        event: weir_forward::Event,
    },
    /// Answer to [`ToWorker::Snapshot`].
    Snapshot {
        transaction: u64,
        snapshot: Box<WorkerSnapshot>,
    },
    /// The thread has ended, by panic or on request.
    Ended {
        worker: u16,
        panicked: bool,
    },
    /// Another thread requests the state of the whole router.
    Query(crossbeam_channel::Sender<Snapshot>),
    /// A helper thread has made, or failed to make, a connection.
    Connected(Box<ConnectOutcome>),
    /// An application in this process connects.
    Local(Box<Socket>),
    /// Another thread asks about the store. Packet threads must answer `within` this time.
    Contents {
        question: ContentsRequest,
        within: Duration,
        answer: ReplySender,
    },
    Stop,
}
