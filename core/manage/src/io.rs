//! What goes into the [`Manager`](crate::Manager) and what comes out of it.

use alloc::{string::String, vec::Vec};

use weir_base::{FaceId, Packet};
use weir_store::Holding;
use weir_wire::Name;

use crate::numbers::{FaceEventKind, FacePersistency};
use crate::rib::Route;
use crate::status::{CsInfo, FaceInfo, FaceStatus, GeneralStatus, NextHopRecord};

/// Who is at the face that a management Interest came from. The driver knows; a signature may give
/// more rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// Another host.
    Remote,
    /// A program of this host. It may do what concerns its own face: see
    /// [`ManagerConfig::local_registration`](crate::ManagerConfig::local_registration).
    Application,
    /// A program of this host that runs as a user who may command the router.
    Operator,
}

/// One thing that the manager is given.
#[derive(Clone, Debug)]
pub enum ManagerInput {
    /// An Interest that the router sent to the internal face.
    Interest {
        /// The face it came from, as IncomingFaceId tells.
        ingress: FaceId,
        /// What is known of who is at that face.
        sender: Sender,
        /// Exactly one Interest TLV.
        packet: Packet,
    },
    /// Answers [`Action::CreateFace`]. The [`ManagerInput::FaceEvent`] of the new face may come
    /// before or after.
    FaceCreated {
        txn: u64,
        /// The face, or why there is none.
        result: Result<FaceInfo, FaceError>,
    },
    /// Answers [`Action::UpdateFace`].
    FaceUpdated {
        txn: u64,
        /// The face as it is now, or why it could not be changed.
        result: Result<FaceInfo, FaceError>,
    },
    /// A face was created, destroyed, went up or down. Every face has to be told of, the internal
    /// one excepted, since commands are checked against the faces known here.
    FaceEvent { kind: FaceEventKind, info: FaceInfo },
    /// Answers [`Action::EraseStore`].
    StoreErased {
        txn: u64,
        /// Data erased, all shards together.
        erased: u64,
        /// Whether there is more Data under the prefix.
        more: bool,
    },
    /// Answers [`Action::Snapshot`].
    Snapshot { txn: u64, snapshot: Snapshot },
    /// Answers [`Action::ListHoldings`].
    Holdings {
        txn: u64,
        /// What is held of the object, at most one for each tier.
        holdings: Vec<Holding>,
        /// Whether more may be held.
        is_partial: bool,
    },
    /// Where the router waits for peers: FaceUris for faces/channels.
    Channels(Vec<String>),
    /// A route of the configuration file.
    AddRoute { prefix: Name, route: Route },
    /// A strategy of the configuration file: prefix and strategy name.
    SetStrategy {
        prefix: Name,
        /// Strategy name, with or without version and parameters.
        strategy: Name,
    },
    /// Nothing but the time has come: see [`Manager::next_wakeup`](crate::Manager::next_wakeup).
    Wakeup,
}

/// Answer to [`Action::Snapshot`].
#[derive(Clone, Debug)]
pub enum Snapshot {
    Faces(Vec<FaceStatus>),
    /// The content store, all shards together; `capacity` and `flags` are filled in by the manager.
    Store(CsInfo),
    /// The router's counters; `version`, times and `fib_entries` are filled in by the manager.
    General(GeneralStatus),
}

/// What a snapshot is to hold.
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
    /// There is a face to that peer already (answered 409 with that face).
    Exists(FaceInfo),
    /// The face to be changed is gone (404).
    NotFound,
    /// The router cannot do what was asked (406); says what.
    Unsupported(String),
    /// The peer could not be reached (504); says why.
    ConnectFailed(String),
    /// Anything else (500); says what.
    Internal(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaceRequest {
    /// Canonical remote FaceUri: numeric address and port.
    pub uri: String,
    /// Canonical local FaceUri.
    pub local_uri: Option<String>,
    /// Persistent or permanent.
    pub persistency: FacePersistency,
    pub changes: FaceChanges,
}

/// Settings of a face; `None` leaves them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaceChanges {
    pub persistency: Option<FacePersistency>,
    /// Largest frame in octets, or [`MTU_AUTO`](crate::MTU_AUTO).
    pub mtu: Option<u64>,
    /// Whether the peer may use local fields.
    pub local_fields: Option<bool>,
    /// Whether lost frames are sent again.
    pub reliability: Option<bool>,
    /// Whether egress queues mark packets.
    pub congestion_marking: Option<bool>,
    /// Base interval between congestion marks, in nanoseconds.
    pub base_congestion_marking_interval_ns: Option<u64>,
    /// Queue from which marking starts, in octets.
    pub default_congestion_threshold_bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    /// Capacity in octets, all shards together.
    pub capacity_bytes: u64,
    /// Whether Data is taken in.
    pub admit: bool,
    /// Whether Interests are answered.
    pub serve: bool,
}

/// Something for the driver to do, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make a face; answer with [`ManagerInput::FaceCreated`].
    CreateFace { txn: u64, request: FaceRequest },
    /// Change a face; answer with [`ManagerInput::FaceUpdated`].
    UpdateFace { txn: u64, face: FaceId, changes: FaceChanges },
    /// Close a face; its [`ManagerInput::FaceEvent`] follows as for any face.
    DestroyFace { face: FaceId },
    /// Replace the next hops of a FIB prefix in every shard; none removes the prefix.
    SetNextHops {
        prefix: Name,
        /// All of its next hops, by face.
        next_hops: Vec<NextHopRecord>,
    },
    /// Choose the strategy of a prefix in every shard; `None` goes back to the shorter prefix's.
    SetStrategy {
        prefix: Name,
        /// Versioned strategy name with parameters, checked.
        strategy: Option<Name>,
    },
    /// Change the content store.
    ConfigureStore(StoreSettings),
    /// Erase Data; answer with [`ManagerInput::StoreErased`].
    EraseStore {
        txn: u64,
        /// Everything under this name.
        prefix: Name,
        /// At most this many, all shards together.
        limit: u64,
    },
    /// Look up which segments of an object are held; answer with [`ManagerInput::Holdings`].
    ListHoldings {
        txn: u64,
        /// The name of the segments without the segment number.
        object: Name,
    },
    /// Take counters; answer with [`ManagerInput::Snapshot`].
    Snapshot { txn: u64, kind: SnapshotKind },
}

/// Data for the router, to be handed to it as coming from the internal face.
#[derive(Clone, Debug)]
pub struct OutData {
    /// The face whose Interest it answers; the internal face for notifications. Only the PIT knows
    /// who else waits, so this is for logs, and for finding a shard where that takes more than the
    /// name.
    pub face: FaceId,
    /// Exactly one Data TLV.
    pub packet: Packet,
    /// Whether to tag it NoCache (NDNLPv2, CachePolicy).
    pub no_cache: bool,
}

/// What the manager wants done: appended to by the manager, drained by the driver.
#[derive(Clone, Debug, Default)]
pub struct ManagerOutbox {
    /// Data to send, in order.
    pub data: Vec<OutData>,
    /// Things to do, in order; before the data, so that an answer follows what it tells of.
    pub actions: Vec<Action>,
}
