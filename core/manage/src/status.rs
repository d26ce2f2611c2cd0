//! The structures of status datasets and notifications.

use alloc::{string::String, vec::Vec};

use weir_base::FaceId;
use weir_wire::Name;

use crate::element::Writer;
use crate::error::DecodeError;
use crate::numbers::{FaceEventKind, FacePersistency, FaceScope, LinkType};
use crate::record::{codec, record};
use crate::store_disk::CsDiskInfo;

/// Elements of structures about faces. Any of these structures may have them.
fn is_face_element(typ: u32) -> bool {
    matches!(typ, 105 | 108 | 109 | 114 | 129 | 131..=137 | 144..=152 | 193)
}

/// The description of a face.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaceInfo {
    pub face_id: FaceId,
    /// Remote FaceUri.
    pub uri: String,
    pub local_uri: String,
    /// Local or not.
    pub scope: FaceScope,
    /// When it closes.
    pub persistency: FacePersistency,
    /// How many peers it reaches.
    pub link_type: LinkType,
    /// See [`face_flags`](crate::face_flags).
    pub flags: u64,
    /// Base interval between congestion marks, in nanoseconds.
    pub base_congestion_marking_interval_ns: Option<u64>,
    /// Queue size from which on packets are marked, in bytes.
    pub default_congestion_threshold_bytes: Option<u64>,
    /// Largest frame in bytes.
    pub mtu: Option<u64>,
}

/// Packets and bytes that a face has received and sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaceCounters {
    pub in_interests: u64,
    pub in_data: u64,
    pub in_nacks: u64,
    pub out_interests: u64,
    pub out_data: u64,
    pub out_nacks: u64,
    pub in_bytes: u64,
    pub out_bytes: u64,
    /// Weir's own: frames received with several Interests.
    pub in_runs: u64,
    /// Weir's own: Interests in them.
    pub in_run_interests: u64,
    /// Weir's own: frames sent with several Interests.
    pub out_runs: u64,
    /// Weir's own: Interests in them.
    pub out_run_interests: u64,
}

/// An item of faces/list and faces/query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaceStatus {
    pub info: FaceInfo,
    /// Milliseconds until an idle face closes.
    pub expiration_period_ms: Option<u64>,
    pub counters: FaceCounters,
    /// Weir's own: the marking policy; `None` is NFD's schedule.
    pub marking_policy: Option<String>,
    /// Weir's own: milliseconds since the last packet from the peer; `None` before the first.
    pub heard_ms_ago: Option<u64>,
}

codec! {
    FaceStatus: DATASET_ITEM, ignores is_face_element;
    FACE_ID "FaceId" => info.face_id;
    URI "Uri" => info.uri;
    LOCAL_URI "LocalUri" => info.local_uri;
    EXPIRATION_PERIOD "ExpirationPeriod" => expiration_period_ms;
    FACE_SCOPE "FaceScope" => info.scope;
    FACE_PERSISTENCY "FacePersistency" => info.persistency;
    LINK_TYPE "LinkType" => info.link_type;
    BASE_CONGESTION_MARKING_INTERVAL "BaseCongestionMarkingInterval"
        => info.base_congestion_marking_interval_ns;
    DEFAULT_CONGESTION_THRESHOLD "DefaultCongestionThreshold"
        => info.default_congestion_threshold_bytes;
    MTU "Mtu" => info.mtu;
    N_IN_INTERESTS "a packet counter" => counters.in_interests;
    N_IN_DATA "a packet counter" => counters.in_data;
    N_IN_NACKS "a packet counter" => counters.in_nacks;
    N_OUT_INTERESTS "a packet counter" => counters.out_interests;
    N_OUT_DATA "a packet counter" => counters.out_data;
    N_OUT_NACKS "a packet counter" => counters.out_nacks;
    N_IN_BYTES "a packet counter" => counters.in_bytes;
    N_OUT_BYTES "a packet counter" => counters.out_bytes;
    FLAGS "Flags" => info.flags;
    MARKING_POLICY "MarkingPolicy" => marking_policy;
    N_IN_RUNS "NInRuns" => counters.in_runs, unless 0;
    N_IN_RUN_INTERESTS "NInRunInterests" => counters.in_run_interests, unless 0;
    N_OUT_RUNS "NOutRuns" => counters.out_runs, unless 0;
    N_OUT_RUN_INTERESTS "NOutRunInterests" => counters.out_run_interests, unless 0;
    LAST_HEARD "LastHeard" => heard_ms_ago;
}

/// A notification of `/localhost/nfd/faces/events`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaceEventNotification {
    pub kind: FaceEventKind,
    /// The face. Its marking settings and MTU are not sent.
    pub info: FaceInfo,
}

codec! {
    FaceEventNotification: FACE_EVENT_NOTIFICATION, ignores is_face_element;
    FACE_EVENT_KIND "FaceEventKind" => kind;
    FACE_ID "FaceId" => info.face_id;
    URI "Uri" => info.uri;
    LOCAL_URI "LocalUri" => info.local_uri;
    FACE_SCOPE "FaceScope" => info.scope;
    FACE_PERSISTENCY "FacePersistency" => info.persistency;
    LINK_TYPE "LinkType" => info.link_type;
    FLAGS "Flags" => info.flags;
}

record! {
    /// The filter of faces/query. It matches a face that agrees with every given field.
    FaceQueryFilter: FACE_QUERY_FILTER, ignores is_face_element;
    face_id: Option<FaceId> = FACE_ID "FaceId";
    /// Scheme of the remote or the local FaceUri.
    uri_scheme: Option<String> = URI_SCHEME "UriScheme";
    /// Remote FaceUri.
    uri: Option<String> = URI "Uri";
    local_uri: Option<String> = LOCAL_URI "LocalUri";
    /// Local or not.
    scope: Option<FaceScope> = FACE_SCOPE "FaceScope";
    /// When it closes.
    persistency: Option<FacePersistency> = FACE_PERSISTENCY "FacePersistency";
    /// How many peers it reaches.
    link_type: Option<LinkType> = LINK_TYPE "LinkType";
}

impl FaceQueryFilter {
    /// Whether the filter matches `face`.
    pub fn matches(&self, face: &FaceInfo) -> bool {
        fn scheme(uri: &str) -> &str {
            uri.split_once("://").map_or("", |(scheme, _)| scheme)
        }
        let agrees = |filter: &Option<String>, text: &str| {
            filter.as_ref().is_none_or(|filter| filter == text)
        };
        self.face_id.is_none_or(|face_id| face_id == face.face_id)
            && (agrees(&self.uri_scheme, scheme(&face.uri))
                || agrees(&self.uri_scheme, scheme(&face.local_uri)))
            && agrees(&self.uri, &face.uri)
            && agrees(&self.local_uri, &face.local_uri)
            && self.scope.is_none_or(|scope| scope == face.scope)
            && self.persistency.is_none_or(|persistency| persistency == face.persistency)
            && self.link_type.is_none_or(|link_type| link_type == face.link_type)
    }
}

record! {
    /// An item of faces/channels: where the router listens for peers.
    ChannelStatus: CHANNEL_STATUS, ignores is_face_element;
    /// FaceUri of the listener.
    local_uri: String = LOCAL_URI "LocalUri";
}

record! {
    /// A next hop of a FIB entry.
    #[derive(Copy)]
    NextHopRecord: DATASET_RECORD;
    /// Where Interests go.
    face_id: FaceId = FACE_ID "FaceId";
    /// Lower is better.
    cost: u64 = COST "Cost";
}

record! {
    /// An item of fib/list.
    FibEntry: DATASET_ITEM;
    /// The prefix.
    name: Name = NAME "Name";
    /// Where its Interests go.
    next_hops: Vec<NextHopRecord> = DATASET_RECORD "NextHopRecord";
}

record! {
    /// A route of a RIB entry, as rib/list reports it.
    #[derive(Copy)]
    RouteStatus: DATASET_RECORD;
    /// Where Interests go.
    face_id: FaceId = FACE_ID "FaceId";
    /// The origin of the route, see [`route_origin`](crate::route_origin).
    origin: u64 = ORIGIN "Origin";
    /// Lower is better.
    cost: u64 = COST "Cost";
    /// See [`route_flags`](crate::route_flags).
    flags: u64 = FLAGS "Flags";
    /// Milliseconds until it expires; `None` never.
    expiration_period_ms: Option<u64> = EXPIRATION_PERIOD "ExpirationPeriod";
}

record! {
    /// An item of rib/list.
    RibEntry: DATASET_ITEM;
    /// The prefix.
    name: Name = NAME "Name";
    routes: Vec<RouteStatus> = DATASET_RECORD "Route";
}

record! {
    /// An item of strategy-choice/list.
    StrategyChoice: DATASET_ITEM;
    /// The prefix.
    name: Name = NAME "Name";
    /// Versioned name of its strategy, with parameters.
    strategy: Name = STRATEGY "Strategy";
}

record! {
    CsInfo: DATASET_ITEM;
    /// Capacity in packets, see [`STORE_PACKET_BYTES`](crate::STORE_PACKET_BYTES).
    capacity: u64 = CAPACITY "Capacity";
    /// See [`store_flags`](crate::store_flags).
    flags: u64 = FLAGS "Flags";
    /// Data stored.
    entries: u64 = N_CS_ENTRIES "NCsEntries";
    /// Interests answered from the store.
    hits: u64 = N_HITS "NHits";
    /// Interests not answered from the store.
    misses: u64 = N_MISSES "NMisses";
    /// Bytes in use. An extension that other routers do not send.
    bytes: Option<u64> = STORE_BYTES "StoreBytes";
    /// Capacity in bytes. An extension that other routers do not send.
    capacity_bytes: Option<u64> = STORE_CAPACITY_BYTES "StoreCapacityBytes";
    /// The disks, if there are any. An extension that other routers do not send.
    disk: Option<CsDiskInfo> = STORE_DISK "StoreDisk";
    /// Bytes of Data sent from memory. An extension, like the other two sources.
    served_memory_bytes: Option<u64> = SERVED_MEMORY_BYTES "ServedMemoryBytes";
    /// Bytes of Data sent that was read from a disk.
    served_disk_bytes: Option<u64> = SERVED_DISK_BYTES "ServedDiskBytes";
    /// Bytes of Data sent as it arrived from a next hop.
    served_next_hop_bytes: Option<u64> = SERVED_NEXT_HOP_BYTES "ServedNextHopBytes";
    /// Each disk. An extension that other routers do not send.
    devices: Vec<CsDevice> = STORE_DEVICE "StoreDevice";
}

record! {
    /// One disk of a content store, in `cs/info`. An extension of Weir.
    CsDevice: STORE_DEVICE;
    /// The file or device.
    path: String = DEVICE_PATH "DevicePath";
    /// Bytes available for records.
    capacity_bytes: u64 = DEVICE_CAPACITY_BYTES "DeviceCapacityBytes";
    /// Read operations.
    reads: u64 = DEVICE_READS "DeviceReads";
    read_bytes: u64 = DEVICE_READ_BYTES "DeviceReadBytes";
    /// Write operations.
    writes: u64 = DEVICE_WRITES "DeviceWrites";
    /// Bytes written, including padding.
    written_bytes: u64 = DEVICE_WRITTEN_BYTES "DeviceWrittenBytes";
    /// Reads and writes that failed with a system error.
    failures: u64 = DEVICE_FAILURES "DeviceFailures";
    /// 1 if the disk has failed for good and is not used, else 0.
    is_dead: u64 = DEVICE_DEAD "DeviceDead";
}

/// Extensions of another router to status/general; some of them are critical.
fn is_foreign_extension(typ: u32) -> bool {
    (200..=208).contains(&typ)
}

/// The whole of status/general. It is not a TLV: its fields are the Content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GeneralStatus {
    /// Name and version of the program.
    pub version: String,
    /// When the program started, in milliseconds since the Unix epoch.
    pub start_unix_ms: u64,
    /// When the status was taken, in milliseconds since the Unix epoch.
    pub current_unix_ms: u64,
    /// Names in the tables.
    pub name_tree_entries: u64,
    /// FIB prefixes.
    pub fib_entries: u64,
    pub pit_entries: u64,
    /// Prefixes with measurements.
    pub measurements_entries: u64,
    /// Data stored.
    pub cs_entries: u64,
    pub in_interests: u64,
    pub in_data: u64,
    pub in_nacks: u64,
    pub out_interests: u64,
    pub out_data: u64,
    pub out_nacks: u64,
    /// PIT entries that ended with Data.
    pub satisfied_interests: u64,
    /// PIT entries that ended without Data.
    pub unsatisfied_interests: u64,
    /// Refused, evicted and stalled faces. Weir's own; other routers do not report it.
    pub crowding: Option<FaceCrowding>,
}

codec! {
    GeneralStatus, ignores is_foreign_extension;
    NFD_VERSION "NfdVersion" => version;
    START_TIMESTAMP "a counter of the general status" => start_unix_ms;
    CURRENT_TIMESTAMP "a counter of the general status" => current_unix_ms;
    N_NAME_TREE_ENTRIES "a counter of the general status" => name_tree_entries;
    N_FIB_ENTRIES "a counter of the general status" => fib_entries;
    N_PIT_ENTRIES "a counter of the general status" => pit_entries;
    N_MEASUREMENTS_ENTRIES "a counter of the general status" => measurements_entries;
    N_CS_ENTRIES "a counter of the general status" => cs_entries;
    N_IN_INTERESTS "a counter of the general status" => in_interests;
    N_IN_DATA "a counter of the general status" => in_data;
    N_IN_NACKS "a counter of the general status" => in_nacks;
    N_OUT_INTERESTS "a counter of the general status" => out_interests;
    N_OUT_DATA "a counter of the general status" => out_data;
    N_OUT_NACKS "a counter of the general status" => out_nacks;
    N_SATISFIED_INTERESTS "a counter of the general status" => satisfied_interests;
    N_UNSATISFIED_INTERESTS "a counter of the general status" => unsatisfied_interests;
}

record! {
    /// Faces that were refused, evicted or stalled since the router started.
    #[derive(Copy)]
    FaceCrowding, ignores |_| true;
    /// Connections, and datagrams of new peers, that were refused a face.
    refused: u64 = N_FACES_REFUSED "NFacesRefused";
    /// Faces of peers that were evicted for others.
    displaced: u64 = N_FACES_DISPLACED "NFacesDisplaced";
    /// Connections that were closed because their peers accepted no data.
    stalled: u64 = N_FACES_STALLED "NFacesStalled";
}

impl GeneralStatus {
    /// Decodes the Content of the dataset.
    pub fn decode_content(content: &[u8]) -> Result<Self, DecodeError> {
        let crowding = match FaceCrowding::read_fields(content) {
            Ok(crowding) => Some(crowding),
            Err(DecodeError::Missing { .. }) => None,
            Err(error) => return Err(error),
        };
        Ok(Self { crowding, ..Self::read_fields(content)? })
    }

    /// Encodes the Content of the dataset.
    pub(crate) fn encode_content(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        self.write_fields(&mut writer);
        if let Some(crowding) = &self.crowding {
            crowding.write_fields(&mut writer);
        }
        writer.into_octets()
    }
}
