//! The inputs and outputs of the [`Manager`](crate::Manager).

use alloc::{string::String, vec::Vec};

use weir_base::{FaceId, Packet};
use weir_store::Holding;
use weir_wire::Name;

use crate::contents::{ContentsAnswer, ContentsTask};
use crate::controller::ControllerStatus;
use crate::numbers::{FaceEventKind, FacePersistency};
use crate::rib::Route;
use crate::status::{CsInfo, FaceInfo, FaceStatus, GeneralStatus, NextHopRecord};

/// The sender of a management Interest, as the driver knows it. A signature may give it more
/// rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// Another host.
    Remote,
    /// A program of this host. It may change settings that affect only its own face, see
    /// [`ManagerConfig::local_registration`](crate::ManagerConfig::local_registration).
    Application,
    /// A program of this host whose user may command the router.
    Operator,
}

#[derive(Clone, Debug)]
pub enum ManagerInput {
    /// An Interest that the router sent to the internal face.
    Interest {
        /// The face that it came from, from its IncomingFaceId.
        ingress: FaceId,
        /// Who is at this face.
        sender: Sender,
        /// Exactly one Interest TLV.
        packet: Packet,
    },
    /// Data that answers an Interest of [`ManagerOutbox::interests`].
    Data {
        /// Exactly one Data TLV.
        packet: Packet,
    },
    /// A Nack for an Interest of [`ManagerOutbox::interests`].
    Nack {
        /// The Interest.
        packet: Packet,
    },
    /// A report of strategy self-learning.
    Learning(LearningInput),
    /// A control message of hicn-light. The driver passes only those of programs of this host.
    HicnControl {
        /// The face that it came from.
        ingress: FaceId,
        /// The datagram; its content is unchecked.
        message: Packet,
    },
    /// Answers [`Action::CreateFace`]. The [`ManagerInput::FaceEvent`] of the new face may come
    /// before or after it.
    FaceCreated { txn: u64, result: Result<FaceInfo, FaceError> },
    /// Answers [`Action::UpdateFace`].
    FaceUpdated {
        txn: u64,
        /// The face as it is now, or the error.
        result: Result<FaceInfo, FaceError>,
    },
    /// A face was created or destroyed, or went up or down. The driver must report every face
    /// except the internal one, because commands are checked against the known faces.
    FaceEvent { kind: FaceEventKind, info: FaceInfo },
    /// Answers [`Action::EraseStore`].
    StoreErased {
        txn: u64,
        /// Number of erased Data packets, in all shards.
        erased: u64,
        /// Whether more Data remains under the prefix.
        more: bool,
    },
    /// Answers [`Action::Snapshot`].
    Snapshot { txn: u64, snapshot: Snapshot },
    /// Answers [`Action::ListHoldings`].
    Holdings {
        txn: u64,
        /// The stored segments of the object, at most one entry for each tier.
        holdings: Vec<Holding>,
        /// Whether more segments may be stored.
        is_partial: bool,
    },
    /// Answers [`Action::Contents`].
    Contents { txn: u64, answer: ContentsAnswer },
    /// Answers [`Action::ReportController`]. `None` without a controller.
    Controller { txn: u64, status: Option<ControllerStatus> },
    /// Answers [`Action::Reload`].
    Reloaded {
        txn: u64,
        /// A summary of the changes, or why the configuration was refused.
        result: Result<String, String>,
    },
    /// FaceUris on which the router listens, for faces/channels.
    Channels(Vec<String>),
    /// A route of the configuration file.
    AddRoute { prefix: Name, route: Route },
    /// A route is no longer in the configuration file.
    RemoveRoute { prefix: Name, face: FaceId, origin: u64 },
    /// A strategy of the configuration file: prefix and strategy name.
    SetStrategy {
        prefix: Name,
        /// The name of the strategy, with or without version and parameters.
        strategy: Name,
    },
    /// A strategy is no longer in the configuration file. If a command has chosen another one for
    /// this prefix since, that choice stays.
    UnsetStrategy { prefix: Name, strategy: Name },
    /// The store's settings in the configuration file have changed.
    ConfigureStore(StoreSettings),
    /// No input: a timer is due, see [`Manager::next_wakeup`](crate::Manager::next_wakeup).
    Wakeup,
}

/// A report of strategy self-learning, from an event of the router.
#[derive(Clone, Debug)]
pub enum LearningInput {
    /// Data for a discovery Interest came from `face` with this prefix announcement
    /// ([`weir_forward::Event::Announced`]).
    Announced { face: FaceId, announcement: Packet },
    /// The face has refused an Interest of this name ([`weir_forward::Event::RouteRefused`]).
    RouteRefused { face: FaceId, name: Name },
    /// Answered by [`Action::SetAnnouncement`] ([`weir_forward::Event::AnnouncementNeeded`]).
    AnnouncementNeeded { prefix: Name },
}

/// Answer to [`Action::Snapshot`].
#[derive(Clone, Debug)]
pub enum Snapshot {
    Faces(Vec<FaceStatus>),
    /// The content store, all shards together. The manager sets `capacity` and `flags`.
    Store(CsInfo),
    /// The router's counters. The manager sets `version`, times and `fib_entries`.
    General(GeneralStatus),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotKind {
    /// [`Snapshot::Faces`].
    Faces,
    /// [`Snapshot::Store`].
    Store,
    /// [`Snapshot::General`].
    General,
}

/// Why a face was not created or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaceError {
    /// A face to this peer exists (answered with 409 and the face).
    Exists(FaceInfo),
    /// The face has closed (404).
    NotFound,
    /// The router does not support the request (406), with the reason.
    Unsupported(String),
    /// The peer could not be reached (504), with the reason.
    ConnectFailed(String),
    /// Another error (500), with the reason.
    Internal(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaceRequest {
    /// Remote FaceUri. If it is not canonical, such as `udp://router.example`, the driver must
    /// resolve it without blocking.
    pub uri: String,
    /// Canonical local FaceUri.
    pub local_uri: Option<String>,
    /// Persistent or permanent.
    pub persistency: FacePersistency,
    pub changes: FaceChanges,
}

/// Settings of a face; `None` leaves a setting unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaceChanges {
    pub persistency: Option<FacePersistency>,
    /// Largest frame in bytes, or [`MTU_AUTO`](crate::MTU_AUTO).
    pub mtu: Option<u64>,
    /// Whether the peer may use local fields.
    pub local_fields: Option<bool>,
    /// Whether lost frames are retransmitted.
    pub reliability: Option<bool>,
    /// Whether egress queues mark packets.
    pub congestion_marking: Option<bool>,
    /// Base interval between congestion marks, in nanoseconds.
    pub base_congestion_marking_interval_ns: Option<u64>,
    /// Queue size from which on packets are marked, in bytes.
    pub default_congestion_threshold_bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    /// Capacity in bytes, all shards together.
    pub capacity_bytes: u64,
    /// Whether new Data is stored.
    pub admit: bool,
    /// Whether stored Data answers Interests.
    pub serve: bool,
}

/// An action for the driver. Actions must be run in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Create a face; answer with [`ManagerInput::FaceCreated`].
    CreateFace { txn: u64, request: FaceRequest },
    /// Change a face; answer with [`ManagerInput::FaceUpdated`].
    UpdateFace { txn: u64, face: FaceId, changes: FaceChanges },
    /// Close a face. Its [`ManagerInput::FaceEvent`] follows, as for any face.
    DestroyFace { face: FaceId },
    /// Replace the next hops of a FIB prefix in every shard. An empty list removes the prefix.
    SetNextHops {
        prefix: Name,
        /// All next hops, sorted by cost and face.
        next_hops: Vec<NextHopRecord>,
    },
    /// Set the strategy of a prefix in every shard. With `None`, the strategy of the shorter prefix
    /// applies.
    SetStrategy {
        prefix: Name,
        /// The name of the strategy with version and parameters; it was checked.
        strategy: Option<Name>,
    },
    /// Set the announcement of a prefix in every shard. `None` if it has no route.
    SetAnnouncement { prefix: Name, announcement: Option<Packet> },
    /// Change the content store.
    ConfigureStore(StoreSettings),
    /// Erase Data; answer with [`ManagerInput::StoreErased`].
    EraseStore {
        txn: u64,
        /// Everything under this name.
        prefix: Name,
        /// Maximum number of Data packets, in all shards.
        limit: u64,
    },
    /// Find the stored segments of an object; answer with [`ManagerInput::Holdings`].
    ListHoldings {
        txn: u64,
        /// The name of the segments without the segment number.
        object: Name,
    },
    /// List or change what the store holds; answer with [`ManagerInput::Contents`].
    Contents { txn: u64, task: ContentsTask },
    /// Describe the controller; answer with [`ManagerInput::Controller`].
    ReportController { txn: u64 },
    /// Read the configuration again; answer with [`ManagerInput::Reloaded`].
    Reload { txn: u64 },
    /// Read counters; answer with [`ManagerInput::Snapshot`].
    Snapshot { txn: u64, kind: SnapshotKind },
}

/// Data that must be passed to the router as if it came from the internal face.
#[derive(Clone, Debug)]
pub struct OutData {
    /// The face whose Interest it answers; the internal face for notifications. Only the PIT knows
    /// the other downstreams. Drivers use this face for logs, and to find the shard if the name
    /// alone does not decide it.
    pub face: FaceId,
    /// Exactly one Data TLV.
    pub packet: Packet,
    /// Whether to mark it as NoCache (NDNLPv2, CachePolicy).
    pub no_cache: bool,
}

/// The answer to a control message of hicn-light.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HicnAnswer {
    /// The face that must send it.
    pub face: FaceId,
    /// A whole datagram.
    pub message: Vec<u8>,
    /// Whether the face has routes now.
    pub has_routes: bool,
    /// Whether the driver must close the face afterwards.
    pub is_closing: bool,
}

/// The output of the manager. The manager appends to it and the driver drains it.
#[derive(Clone, Debug, Default)]
pub struct ManagerOutbox {
    /// Data to send, in order.
    pub data: Vec<OutData>,
    /// Interests that must be passed to the router as if they came from the internal face. Their
    /// Data and Nacks come back as inputs.
    pub interests: Vec<Packet>,
    /// Answers to send, in order.
    pub hicn_answers: Vec<HicnAnswer>,
    /// Actions, in order. They must be run before all packets are sent, so that an answer follows
    /// its action, and an Interest finds its next hop.
    pub actions: Vec<Action>,
}
