//! The structures of status datasets and notifications.

use alloc::{string::String, vec::Vec};

use weir_base::FaceId;
use weir_wire::Name;

use crate::element::{Element, Elements, Writer};
use crate::error::DecodeError;
use crate::numbers::{FaceEventKind, FacePersistency, FaceScope, LinkType, types};
use crate::store_disk::CsDiskInfo;

fn required<T>(field: Option<T>, element: &'static str) -> Result<T, DecodeError> {
    field.ok_or(DecodeError::Missing { element })
}

/// What a face is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaceInfo {
    /// Its identifier.
    pub face_id: FaceId,
    /// Remote FaceUri.
    pub uri: String,
    /// Local FaceUri.
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
    /// Queue from which marking starts, in octets.
    pub default_congestion_threshold_bytes: Option<u64>,
    /// Largest frame in octets.
    pub mtu: Option<u64>,
}

/// Packets and octets that a face has moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaceCounters {
    /// Interests received.
    pub in_interests: u64,
    /// Data received.
    pub in_data: u64,
    /// Nacks received.
    pub in_nacks: u64,
    /// Interests sent.
    pub out_interests: u64,
    /// Data sent.
    pub out_data: u64,
    /// Nacks sent.
    pub out_nacks: u64,
    /// Octets received.
    pub in_bytes: u64,
    /// Octets sent.
    pub out_bytes: u64,
    /// Weir's own: frames received that stood for several Interests.
    pub in_runs: u64,
    /// Weir's own: Interests in them.
    pub in_run_interests: u64,
    /// Weir's own: frames sent that stood for several Interests.
    pub out_runs: u64,
    /// Weir's own: Interests in them.
    pub out_run_interests: u64,
}

/// An item of faces/list and faces/query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaceStatus {
    /// What the face is.
    pub info: FaceInfo,
    /// Milliseconds until an idle face closes.
    pub expiration_period_ms: Option<u64>,
    /// What it has moved.
    pub counters: FaceCounters,
    /// Weir's own: what decides which packets are marked; `None` is NFD's schedule.
    pub marking_policy: Option<String>,
    /// Weir's own: milliseconds since the peer was last heard; `None` is never.
    pub heard_ms_ago: Option<u64>,
}

/// Every element that some structure about faces holds.
#[derive(Default)]
struct FaceFields {
    kind: Option<u64>,
    face_id: Option<FaceId>,
    uri_scheme: Option<String>,
    uri: Option<String>,
    local_uri: Option<String>,
    expiration_period_ms: Option<u64>,
    scope: Option<FaceScope>,
    persistency: Option<FacePersistency>,
    link_type: Option<LinkType>,
    interval_ns: Option<u64>,
    threshold_bytes: Option<u64>,
    marking_policy: Option<String>,
    heard_ms_ago: Option<u64>,
    mtu: Option<u64>,
    counters: [Option<u64>; 12],
    flags: Option<u64>,
}

/// Those of NFD, then our own, which others leave out.
const COUNTER_TYPES: [u32; 12] = [
    types::N_IN_INTERESTS,
    types::N_IN_DATA,
    types::N_IN_NACKS,
    types::N_OUT_INTERESTS,
    types::N_OUT_DATA,
    types::N_OUT_NACKS,
    types::N_IN_BYTES,
    types::N_OUT_BYTES,
    types::N_IN_RUNS,
    types::N_IN_RUN_INTERESTS,
    types::N_OUT_RUNS,
    types::N_OUT_RUN_INTERESTS,
];

impl FaceFields {
    fn decode(value: &[u8]) -> Result<Self, DecodeError> {
        let mut fields = Self::default();
        for element in Elements::new(value) {
            let element = element?;
            match element.typ {
                types::FACE_EVENT_KIND => fields.kind = Some(element.number()?),
                types::FACE_ID => fields.face_id = Some(FaceId(element.number()?)),
                types::URI_SCHEME => fields.uri_scheme = Some(element.text("UriScheme")?),
                types::URI => fields.uri = Some(element.text("Uri")?),
                types::LOCAL_URI => fields.local_uri = Some(element.text("LocalUri")?),
                types::EXPIRATION_PERIOD => fields.expiration_period_ms = Some(element.number()?),
                types::FACE_SCOPE => {
                    fields.scope = Some(FaceScope::from_number(element.number()?)?);
                }
                types::FACE_PERSISTENCY => {
                    fields.persistency = Some(FacePersistency::from_number(element.number()?)?);
                }
                types::LINK_TYPE => {
                    fields.link_type = Some(LinkType::from_number(element.number()?)?);
                }
                types::BASE_CONGESTION_MARKING_INTERVAL => {
                    fields.interval_ns = Some(element.number()?);
                }
                types::DEFAULT_CONGESTION_THRESHOLD => {
                    fields.threshold_bytes = Some(element.number()?);
                }
                types::MTU => fields.mtu = Some(element.number()?),
                types::FLAGS => fields.flags = Some(element.number()?),
                types::MARKING_POLICY => {
                    fields.marking_policy = Some(element.text("MarkingPolicy")?);
                }
                types::LAST_HEARD => fields.heard_ms_ago = Some(element.number()?),
                other => match COUNTER_TYPES.iter().position(|typ| *typ == other) {
                    Some(index) => fields.counters[index] = Some(element.number()?),
                    None => element.skip()?,
                },
            }
        }
        Ok(fields)
    }

    fn counters(&self) -> Result<FaceCounters, DecodeError> {
        let counter = |index: usize| required(self.counters[index], "a packet counter");
        let own = |index: usize| self.counters[index].unwrap_or(0);
        Ok(FaceCounters {
            in_interests: counter(0)?,
            in_data: counter(1)?,
            in_nacks: counter(2)?,
            out_interests: counter(3)?,
            out_data: counter(4)?,
            out_nacks: counter(5)?,
            in_bytes: counter(6)?,
            out_bytes: counter(7)?,
            in_runs: own(8),
            in_run_interests: own(9),
            out_runs: own(10),
            out_run_interests: own(11),
        })
    }

    fn info(self) -> Result<FaceInfo, DecodeError> {
        Ok(FaceInfo {
            face_id: required(self.face_id, "FaceId")?,
            uri: required(self.uri, "Uri")?,
            local_uri: required(self.local_uri, "LocalUri")?,
            scope: required(self.scope, "FaceScope")?,
            persistency: required(self.persistency, "FacePersistency")?,
            link_type: required(self.link_type, "LinkType")?,
            flags: required(self.flags, "Flags")?,
            base_congestion_marking_interval_ns: self.interval_ns,
            default_congestion_threshold_bytes: self.threshold_bytes,
            mtu: self.mtu,
        })
    }
}

impl Element for FaceStatus {
    const TYPE: u32 = types::DATASET_ITEM;

    fn decode_value(value: &[u8]) -> Result<Self, DecodeError> {
        let mut fields = FaceFields::decode(value)?;
        let expiration_period_ms = fields.expiration_period_ms;
        let counters = fields.counters()?;
        let marking_policy = fields.marking_policy.take();
        let heard_ms_ago = fields.heard_ms_ago;
        let info = fields.info()?;
        Ok(Self { info, expiration_period_ms, counters, marking_policy, heard_ms_ago })
    }

    fn encode_value(&self, writer: &mut Writer) {
        let Self { info, counters, .. } = self;
        writer
            .number(types::FACE_ID, info.face_id.0)
            .text(types::URI, &info.uri)
            .text(types::LOCAL_URI, &info.local_uri)
            .number_if(types::EXPIRATION_PERIOD, self.expiration_period_ms)
            .number(types::FACE_SCOPE, info.scope.number())
            .number(types::FACE_PERSISTENCY, info.persistency.number())
            .number(types::LINK_TYPE, info.link_type.number())
            .number_if(
                types::BASE_CONGESTION_MARKING_INTERVAL,
                info.base_congestion_marking_interval_ns,
            )
            .number_if(types::DEFAULT_CONGESTION_THRESHOLD, info.default_congestion_threshold_bytes)
            .number_if(types::MTU, info.mtu)
            .number(types::N_IN_INTERESTS, counters.in_interests)
            .number(types::N_IN_DATA, counters.in_data)
            .number(types::N_IN_NACKS, counters.in_nacks)
            .number(types::N_OUT_INTERESTS, counters.out_interests)
            .number(types::N_OUT_DATA, counters.out_data)
            .number(types::N_OUT_NACKS, counters.out_nacks)
            .number(types::N_IN_BYTES, counters.in_bytes)
            .number(types::N_OUT_BYTES, counters.out_bytes)
            .number(types::FLAGS, info.flags);
        if let Some(policy) = &self.marking_policy {
            writer.text(types::MARKING_POLICY, policy);
        }
        let some = |count: u64| Some(count).filter(|&count| count > 0);
        writer
            .number_if(types::N_IN_RUNS, some(counters.in_runs))
            .number_if(types::N_IN_RUN_INTERESTS, some(counters.in_run_interests))
            .number_if(types::N_OUT_RUNS, some(counters.out_runs))
            .number_if(types::N_OUT_RUN_INTERESTS, some(counters.out_run_interests))
            .number_if(types::LAST_HEARD, self.heard_ms_ago);
    }
}

/// A notification of `/localhost/nfd/faces/events`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaceEventNotification {
    /// What happened.
    pub kind: FaceEventKind,
    /// To which face; its marking settings and MTU are not part of a notification.
    pub info: FaceInfo,
}

impl Element for FaceEventNotification {
    const TYPE: u32 = types::FACE_EVENT_NOTIFICATION;

    fn decode_value(value: &[u8]) -> Result<Self, DecodeError> {
        let fields = FaceFields::decode(value)?;
        let kind = FaceEventKind::from_number(required(fields.kind, "FaceEventKind")?)?;
        Ok(Self { kind, info: fields.info()? })
    }

    fn encode_value(&self, writer: &mut Writer) {
        writer
            .number(types::FACE_EVENT_KIND, self.kind.number())
            .number(types::FACE_ID, self.info.face_id.0)
            .text(types::URI, &self.info.uri)
            .text(types::LOCAL_URI, &self.info.local_uri)
            .number(types::FACE_SCOPE, self.info.scope.number())
            .number(types::FACE_PERSISTENCY, self.info.persistency.number())
            .number(types::LINK_TYPE, self.info.link_type.number())
            .number(types::FLAGS, self.info.flags);
    }
}

/// Which faces faces/query asks for: those that agree with every field given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaceQueryFilter {
    /// The face.
    pub face_id: Option<FaceId>,
    /// Scheme of the remote or the local FaceUri.
    pub uri_scheme: Option<String>,
    /// Remote FaceUri.
    pub uri: Option<String>,
    /// Local FaceUri.
    pub local_uri: Option<String>,
    /// Local or not.
    pub scope: Option<FaceScope>,
    /// When it closes.
    pub persistency: Option<FacePersistency>,
    /// How many peers it reaches.
    pub link_type: Option<LinkType>,
}

impl FaceQueryFilter {
    /// Whether `face` is asked for.
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

impl Element for FaceQueryFilter {
    const TYPE: u32 = types::FACE_QUERY_FILTER;

    fn decode_value(value: &[u8]) -> Result<Self, DecodeError> {
        let fields = FaceFields::decode(value)?;
        Ok(Self {
            face_id: fields.face_id,
            uri_scheme: fields.uri_scheme,
            uri: fields.uri,
            local_uri: fields.local_uri,
            scope: fields.scope,
            persistency: fields.persistency,
            link_type: fields.link_type,
        })
    }

    fn encode_value(&self, writer: &mut Writer) {
        writer.number_if(types::FACE_ID, self.face_id.map(|face| face.0));
        if let Some(scheme) = &self.uri_scheme {
            writer.text(types::URI_SCHEME, scheme);
        }
        if let Some(uri) = &self.uri {
            writer.text(types::URI, uri);
        }
        if let Some(uri) = &self.local_uri {
            writer.text(types::LOCAL_URI, uri);
        }
        writer
            .number_if(types::FACE_SCOPE, self.scope.map(FaceScope::number))
            .number_if(types::FACE_PERSISTENCY, self.persistency.map(FacePersistency::number))
            .number_if(types::LINK_TYPE, self.link_type.map(LinkType::number));
    }
}

/// An item of faces/channels: where the router waits for peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelStatus {
    /// FaceUri of the listener.
    pub local_uri: String,
}

impl Element for ChannelStatus {
    const TYPE: u32 = types::CHANNEL_STATUS;

    fn decode_value(value: &[u8]) -> Result<Self, DecodeError> {
        let fields = FaceFields::decode(value)?;
        Ok(Self { local_uri: required(fields.local_uri, "LocalUri")? })
    }

    fn encode_value(&self, writer: &mut Writer) {
        writer.text(types::LOCAL_URI, &self.local_uri);
    }
}

/// A next hop of a FIB entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHopRecord {
    /// Where Interests go.
    pub face_id: FaceId,
    /// Lower is better.
    pub cost: u64,
}

impl Element for NextHopRecord {
    const TYPE: u32 = types::DATASET_RECORD;

    fn decode_value(value: &[u8]) -> Result<Self, DecodeError> {
        let (mut face_id, mut cost) = (None, None);
        for element in Elements::new(value) {
            let element = element?;
            match element.typ {
                types::FACE_ID => face_id = Some(FaceId(element.number()?)),
                types::COST => cost = Some(element.number()?),
                _ => element.skip()?,
            }
        }
        Ok(Self { face_id: required(face_id, "FaceId")?, cost: required(cost, "Cost")? })
    }

    fn encode_value(&self, writer: &mut Writer) {
        writer.number(types::FACE_ID, self.face_id.0).number(types::COST, self.cost);
    }
}

fn decode_named<R: Element>(value: &[u8]) -> Result<(Name, Vec<R>), DecodeError> {
    let (mut name, mut records) = (None, Vec::new());
    for element in Elements::new(value) {
        let element = element?;
        if element.typ == types::NAME {
            name = Some(element.name()?);
        } else if element.typ == R::TYPE {
            records.push(R::decode_value(element.value)?);
        } else {
            element.skip()?;
        }
    }
    Ok((required(name, "Name")?, records))
}

fn encode_named<R: Element>(name: &Name, records: &[R], writer: &mut Writer) {
    writer.name(name);
    for record in records {
        writer.element(record);
    }
}

/// An item of fib/list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FibEntry {
    /// The prefix.
    pub name: Name,
    /// Where its Interests go.
    pub next_hops: Vec<NextHopRecord>,
}

impl Element for FibEntry {
    const TYPE: u32 = types::DATASET_ITEM;

    fn decode_value(value: &[u8]) -> Result<Self, DecodeError> {
        let (name, next_hops) = decode_named(value)?;
        Ok(Self { name, next_hops })
    }

    fn encode_value(&self, writer: &mut Writer) {
        encode_named(&self.name, &self.next_hops, writer);
    }
}

/// A route of a RIB entry, as rib/list tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteStatus {
    /// Where Interests go.
    pub face_id: FaceId,
    /// Who made it, see [`route_origin`](crate::route_origin).
    pub origin: u64,
    /// Lower is better.
    pub cost: u64,
    /// See [`route_flags`](crate::route_flags).
    pub flags: u64,
    /// Milliseconds that it has left; `None`: stays.
    pub expiration_period_ms: Option<u64>,
}

impl Element for RouteStatus {
    const TYPE: u32 = types::DATASET_RECORD;

    fn decode_value(value: &[u8]) -> Result<Self, DecodeError> {
        let (mut face_id, mut origin, mut cost, mut flags) = (None, None, None, None);
        let mut expiration_period_ms = None;
        for element in Elements::new(value) {
            let element = element?;
            match element.typ {
                types::FACE_ID => face_id = Some(FaceId(element.number()?)),
                types::ORIGIN => origin = Some(element.number()?),
                types::COST => cost = Some(element.number()?),
                types::FLAGS => flags = Some(element.number()?),
                types::EXPIRATION_PERIOD => expiration_period_ms = Some(element.number()?),
                _ => element.skip()?,
            }
        }
        Ok(Self {
            face_id: required(face_id, "FaceId")?,
            origin: required(origin, "Origin")?,
            cost: required(cost, "Cost")?,
            flags: required(flags, "Flags")?,
            expiration_period_ms,
        })
    }

    fn encode_value(&self, writer: &mut Writer) {
        writer
            .number(types::FACE_ID, self.face_id.0)
            .number(types::ORIGIN, self.origin)
            .number(types::COST, self.cost)
            .number(types::FLAGS, self.flags)
            .number_if(types::EXPIRATION_PERIOD, self.expiration_period_ms);
    }
}

/// An item of rib/list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RibEntry {
    /// The prefix.
    pub name: Name,
    /// Its routes.
    pub routes: Vec<RouteStatus>,
}

impl Element for RibEntry {
    const TYPE: u32 = types::DATASET_ITEM;

    fn decode_value(value: &[u8]) -> Result<Self, DecodeError> {
        let (name, routes) = decode_named(value)?;
        Ok(Self { name, routes })
    }

    fn encode_value(&self, writer: &mut Writer) {
        encode_named(&self.name, &self.routes, writer);
    }
}

/// An item of strategy-choice/list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrategyChoice {
    /// The prefix.
    pub name: Name,
    /// Versioned name of its strategy, with parameters.
    pub strategy: Name,
}

impl Element for StrategyChoice {
    const TYPE: u32 = types::DATASET_ITEM;

    fn decode_value(value: &[u8]) -> Result<Self, DecodeError> {
        let (mut name, mut strategy) = (None, None);
        for element in Elements::new(value) {
            let element = element?;
            match element.typ {
                types::NAME => name = Some(element.name()?),
                types::STRATEGY => strategy = Some(element.inner_name()?),
                _ => element.skip()?,
            }
        }
        Ok(Self { name: required(name, "Name")?, strategy: required(strategy, "Strategy")? })
    }

    fn encode_value(&self, writer: &mut Writer) {
        writer.name(&self.name).nested(types::STRATEGY, |inner| {
            inner.name(&self.strategy);
        });
    }
}

/// The item of cs/info.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsInfo {
    /// Capacity in packets, see [`STORE_PACKET_BYTES`](crate::STORE_PACKET_BYTES).
    pub capacity: u64,
    /// See [`store_flags`](crate::store_flags).
    pub flags: u64,
    /// Data stored.
    pub entries: u64,
    /// Interests answered from the store.
    pub hits: u64,
    /// Interests not answered from the store.
    pub misses: u64,
    /// Octets in use. An extension: other routers do not say.
    pub bytes: Option<u64>,
    /// Capacity in octets. An extension: other routers do not say.
    pub capacity_bytes: Option<u64>,
    /// The disks, if there are any. An extension: other routers do not say.
    pub disk: Option<CsDiskInfo>,
}

impl Element for CsInfo {
    const TYPE: u32 = types::DATASET_ITEM;

    fn decode_value(value: &[u8]) -> Result<Self, DecodeError> {
        let (mut capacity, mut flags, mut entries) = (None, None, None);
        let (mut hits, mut misses) = (None, None);
        let (mut bytes, mut capacity_bytes, mut disk) = (None, None, None);
        for element in Elements::new(value) {
            let element = element?;
            match element.typ {
                types::CAPACITY => capacity = Some(element.number()?),
                types::FLAGS => flags = Some(element.number()?),
                types::N_CS_ENTRIES => entries = Some(element.number()?),
                types::N_HITS => hits = Some(element.number()?),
                types::N_MISSES => misses = Some(element.number()?),
                types::STORE_BYTES => bytes = Some(element.number()?),
                types::STORE_CAPACITY_BYTES => capacity_bytes = Some(element.number()?),
                types::STORE_DISK => disk = Some(CsDiskInfo::decode_value(element.value)?),
                _ => element.skip()?,
            }
        }
        Ok(Self {
            capacity: required(capacity, "Capacity")?,
            flags: required(flags, "Flags")?,
            entries: required(entries, "NCsEntries")?,
            hits: required(hits, "NHits")?,
            misses: required(misses, "NMisses")?,
            bytes,
            capacity_bytes,
            disk,
        })
    }

    fn encode_value(&self, writer: &mut Writer) {
        writer
            .number(types::CAPACITY, self.capacity)
            .number(types::FLAGS, self.flags)
            .number(types::N_CS_ENTRIES, self.entries)
            .number(types::N_HITS, self.hits)
            .number(types::N_MISSES, self.misses)
            .number_if(types::STORE_BYTES, self.bytes)
            .number_if(types::STORE_CAPACITY_BYTES, self.capacity_bytes);
        if let Some(disk) = &self.disk {
            writer.element(disk);
        }
    }
}

/// The whole of status/general. It is not one TLV: its fields are the Content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GeneralStatus {
    /// Which program, which version.
    pub version: String,
    /// When it started, in milliseconds since the Unix epoch.
    pub start_unix_ms: u64,
    /// When the status was taken, in milliseconds since the Unix epoch.
    pub current_unix_ms: u64,
    /// Names in the tables.
    pub name_tree_entries: u64,
    /// FIB prefixes.
    pub fib_entries: u64,
    /// Interests outstanding.
    pub pit_entries: u64,
    /// Prefixes with measurements.
    pub measurements_entries: u64,
    /// Data stored.
    pub cs_entries: u64,
    /// Interests received.
    pub in_interests: u64,
    /// Data received.
    pub in_data: u64,
    /// Nacks received.
    pub in_nacks: u64,
    /// Interests sent.
    pub out_interests: u64,
    /// Data sent.
    pub out_data: u64,
    /// Nacks sent.
    pub out_nacks: u64,
    /// PIT entries that Data came for.
    pub satisfied_interests: u64,
    /// PIT entries that timed out.
    pub unsatisfied_interests: u64,
    /// What became of faces for lack of room. Weir's own; other routers do not tell it.
    pub crowding: Option<FaceCrowding>,
}

/// What became of faces for lack of room, since the router started.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct FaceCrowding {
    /// Datagrams of peers, and connections, that got no face.
    pub refused: u64,
    /// Faces of peers that gave way to others.
    pub displaced: u64,
    /// Connections that closed because their peers took nothing.
    pub stalled: u64,
}

const CROWDING_NUMBERS: [u32; 3] =
    [types::N_FACES_REFUSED, types::N_FACES_DISPLACED, types::N_FACES_STALLED];

const GENERAL_NUMBERS: [u32; 15] = [
    types::START_TIMESTAMP,
    types::CURRENT_TIMESTAMP,
    types::N_NAME_TREE_ENTRIES,
    types::N_FIB_ENTRIES,
    types::N_PIT_ENTRIES,
    types::N_MEASUREMENTS_ENTRIES,
    types::N_CS_ENTRIES,
    types::N_IN_INTERESTS,
    types::N_IN_DATA,
    types::N_IN_NACKS,
    types::N_OUT_INTERESTS,
    types::N_OUT_DATA,
    types::N_OUT_NACKS,
    types::N_SATISFIED_INTERESTS,
    types::N_UNSATISFIED_INTERESTS,
];

impl GeneralStatus {
    /// From the Content of the dataset.
    pub fn decode_content(content: &[u8]) -> Result<Self, DecodeError> {
        let mut version = None;
        let mut numbers = [None; GENERAL_NUMBERS.len()];
        let mut crowding = [None; CROWDING_NUMBERS.len()];
        for element in Elements::new(content) {
            let element = element?;
            if element.typ == types::NFD_VERSION {
                version = Some(element.text("NfdVersion")?);
            } else if let Some(at) = CROWDING_NUMBERS.iter().position(|typ| *typ == element.typ) {
                crowding[at] = Some(element.number()?);
            } else if let Some(at) = GENERAL_NUMBERS.iter().position(|typ| *typ == element.typ) {
                numbers[at] = Some(element.number()?);
            } else if !(200..=208).contains(&element.typ) {
                // 200 to 208 are another router's extensions, some of them odd.
                element.skip()?;
            }
        }
        let number = |at: usize| required(numbers[at], "a counter of the general status");
        Ok(Self {
            version: required(version, "NfdVersion")?,
            start_unix_ms: number(0)?,
            current_unix_ms: number(1)?,
            name_tree_entries: number(2)?,
            fib_entries: number(3)?,
            pit_entries: number(4)?,
            measurements_entries: number(5)?,
            cs_entries: number(6)?,
            in_interests: number(7)?,
            in_data: number(8)?,
            in_nacks: number(9)?,
            out_interests: number(10)?,
            out_data: number(11)?,
            out_nacks: number(12)?,
            satisfied_interests: number(13)?,
            unsatisfied_interests: number(14)?,
            crowding: match crowding {
                [Some(refused), Some(displaced), Some(stalled)] => {
                    Some(FaceCrowding { refused, displaced, stalled })
                }
                _ => None,
            },
        })
    }

    /// As the Content of the dataset.
    pub(crate) fn encode_content(&self) -> Vec<u8> {
        let numbers = [
            self.start_unix_ms,
            self.current_unix_ms,
            self.name_tree_entries,
            self.fib_entries,
            self.pit_entries,
            self.measurements_entries,
            self.cs_entries,
            self.in_interests,
            self.in_data,
            self.in_nacks,
            self.out_interests,
            self.out_data,
            self.out_nacks,
            self.satisfied_interests,
            self.unsatisfied_interests,
        ];
        let mut writer = Writer::default();
        writer.text(types::NFD_VERSION, &self.version);
        for (typ, number) in GENERAL_NUMBERS.into_iter().zip(numbers) {
            writer.number(typ, number);
        }
        if let Some(FaceCrowding { refused, displaced, stalled }) = self.crowding {
            for (typ, number) in CROWDING_NUMBERS.into_iter().zip([refused, displaced, stalled]) {
                writer.number(typ, number);
            }
        }
        writer.into_octets()
    }
}
