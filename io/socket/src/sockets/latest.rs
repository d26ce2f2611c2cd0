//! The metadata of a producer socket's objects, which lead to their latest versions, and the growth
//! of its growing objects.

use std::collections::{BTreeMap, HashMap};

use weir_base::Packet;
use weir_transport::{Answer, METADATA_KEYWORD, Metadata, NameMapping, Source, is_hicn_metadata};
use weir_wire::{DataView, InterestView, Name, NameView};

/// The present size of a growing object.
pub(crate) struct GrowthUpdate {
    pub(crate) versioned: Name,
    /// The segment that is made next, if any.
    pub(crate) next: Option<u64>,
}

/// How many segments beyond the newest one Interests may wait for. No consumer should request later
/// ones yet.
const FUTURE_SEGMENTS_MAX: u64 = 4096;

/// The metadata of the latest version of each object, and which objects grow.
pub(super) struct LatestVersions {
    mapping: NameMapping,
    /// By the TLV-VALUE of the version's name in the network, the segment that is made next.
    growing: HashMap<Vec<u8>, u64>,
    /// By the TLV-VALUE of the object's name with the keyword, or of the hICN name.
    metadata: HashMap<Vec<u8>, LatestVersion>,
    /// The keys of `metadata` by the TLV-VALUE of the version's hICN name. In NDN names the key
    /// follows from the name of the version.
    by_version: HashMap<Vec<u8>, Vec<u8>>,
    order: BTreeMap<u64, Vec<u8>>,
    next_order: u64,
    max: usize,
}

struct LatestVersion {
    /// Its key in `order`.
    order: u64,
    packet: Packet,
    /// Its key in `by_version`, if it has an hICN name.
    mapped: Option<Vec<u8>>,
}

impl LatestVersions {
    pub(super) fn new(max: usize, mapping: NameMapping) -> Self {
        Self {
            mapping,
            growing: HashMap::new(),
            metadata: HashMap::new(),
            by_version: HashMap::new(),
            order: BTreeMap::new(),
            next_order: 0,
            max,
        }
    }

    /// Adds metadata, unless those of a later version are known: concurrent publications arrive in
    /// any order. Returns the name that leads to the metadata.
    pub(super) fn add(&mut self, metadata: Packet) -> Option<Name> {
        let name = DataView::decode(&metadata).ok()?.name;
        let name = keyword_name(name).or(Some(name).filter(|it| is_hicn_metadata(*it)))?.to_name();
        let key = name.value().to_vec();
        let version = version_of(&metadata);
        if self.metadata.get(&key).is_some_and(|known| version_of(&known.packet) > version) {
            return Some(name);
        }
        self.remove(&key);
        self.next_order += 1;
        self.order.insert(self.next_order, key.clone());
        let mapped = self.mapped_version(&metadata);
        self.by_version.extend(mapped.clone().map(|version| (version, key.clone())));
        let latest = LatestVersion { order: self.next_order, packet: metadata, mapped };
        self.metadata.insert(key, latest);
        if self.metadata.len() > self.max
            && let Some(oldest) = self.order.first_key_value().map(|(_, key)| key.clone())
        {
            self.remove(&oldest);
        }
        Some(name)
    }

    fn remove(&mut self, key: &[u8]) {
        let Some(LatestVersion { order, mapped, .. }) = self.metadata.remove(key) else { return };
        self.order.remove(&order);
        if let Some(version) = mapped {
            self.by_version.remove(&version);
        }
    }

    /// The TLV-VALUE of the hICN name of the version in these metadata.
    fn mapped_version(&self, metadata: &Packet) -> Option<Vec<u8>> {
        let NameMapping::Hicn(_) = self.mapping else { return None };
        let versioned = decode(metadata)?.versioned;
        Some(self.mapping.version_prefix(versioned.as_view()).value().to_vec())
    }

    /// The metadata that name the version with this name in the network.
    fn metadata_of(&self, versioned: NameView<'_>) -> Option<Metadata> {
        let latest = match self.mapping {
            NameMapping::Identity => self.metadata.get(metadata_key(versioned.parent()).value()),
            NameMapping::Hicn(_) => {
                self.by_version.get(versioned.value()).and_then(|key| self.metadata.get(key))
            }
        };
        decode(&latest?.packet)
    }

    /// The object of a published version that a packet with this hICN name belongs to.
    pub(super) fn known_object(&self, name: NameView<'_>) -> Option<Name> {
        let versioned = match self.metadata.get(name.value()) {
            Some(latest) => decode(&latest.packet)?,
            None => self.metadata_of(name.parent())?,
        }
        .versioned;
        Some(versioned.as_view().parent().to_name())
    }

    /// An object has grown.
    pub(super) fn update_growth(&mut self, GrowthUpdate { versioned, next }: GrowthUpdate) {
        let key = self.mapping.version_prefix(versioned.as_view());
        match next {
            Some(next) => self.growing.insert(key.value().to_vec(), next),
            None => self.growing.remove(key.value()),
        };
    }

    /// The key of an object in `metadata`.
    fn key(&self, object: NameView<'_>) -> Name {
        match self.mapping {
            NameMapping::Identity => metadata_key(object),
            NameMapping::Hicn(_) => self.mapping.metadata_name(object, 0),
        }
    }

    /// The metadata for the name of an object.
    pub(super) fn latest(&self, object: &Name) -> Option<Packet> {
        let key = self.key(object.as_view());
        self.metadata.get(key.value()).map(|latest| latest.packet.clone())
    }

    /// Forgets an object that was abandoned before its end, so that no consumer starts with it.
    pub(super) fn forget_unfinished(&mut self, versioned: &Name) {
        let prefix = self.mapping.version_prefix(versioned.as_view());
        if self.growing.remove(prefix.value()).is_none() {
            return;
        }
        let key = self.key(versioned.as_view().parent());
        let latest = self.metadata.get(key.value()).and_then(|latest| decode(&latest.packet));
        if latest.is_some_and(|metadata| metadata.versioned == *versioned) {
            self.remove(key.value());
        }
    }

    /// Whether an Interest requests a segment that will be made soon.
    fn is_future_segment(&self, interest: &InterestView<'_>) -> bool {
        let segment = interest.name.last().and_then(|last| last.as_segment());
        let Some(segment) = segment.filter(|it| self.mapping.check_last(*it).is_ok()) else {
            return false;
        };
        let versioned = interest.name.parent();
        match self.growing.get(versioned.value()) {
            Some(&next) => (next..next.saturating_add(FUTURE_SEGMENTS_MAX)).contains(&segment),
            None => self.is_past_end(versioned, segment),
        }
    }

    /// Whether the segment lies beyond the end of an object that grew and has ended. Its requester
    /// did not know the end yet.
    fn is_past_end(&self, versioned: NameView<'_>, segment: u64) -> bool {
        let is_version = |metadata: &Metadata| {
            self.mapping.version_prefix(metadata.versioned.as_view()).as_view() == versioned
        };
        self.metadata_of(versioned).is_some_and(|metadata| {
            is_version(&metadata) && metadata.next_segment.is_some_and(|next| segment >= next)
        })
    }
}

/// An object's name in NDN with the keyword of its metadata.
fn metadata_key(object: NameView<'_>) -> Name {
    object.to_name().append_keyword(METADATA_KEYWORD).clone()
}

fn decode(metadata: &Packet) -> Option<Metadata> {
    Metadata::decode(DataView::decode(metadata).ok()?.content).ok()
}

/// The name up to its last metadata keyword. An object's own name may contain such keywords, too.
fn keyword_name(name: NameView<'_>) -> Option<NameView<'_>> {
    let keywords = name.components().enumerate();
    let (at, _) = keywords.filter(|(_, part)| part.is_keyword(METADATA_KEYWORD)).last()?;
    Some(name.prefix(at + 1))
}

/// The version of an object, then the number of its metadata or 0. The version counts first: a
/// growing object's metadata are made repeatedly, but do not make it newer than another version.
fn version_of(metadata: &Packet) -> Option<(u64, u64)> {
    let data = DataView::decode(metadata).ok()?;
    let object = Metadata::decode(data.content).ok()?.versioned;
    let own = data.name.parent().last()?.as_version();
    Some((object.as_view().last()?.as_version()?, own.unwrap_or(0)))
}

impl Source for LatestVersions {
    fn find(&mut self, interest: &InterestView<'_>) -> Answer {
        let name = keyword_name(interest.name).unwrap_or(interest.name);
        let found = self.metadata.get(name.value());
        let answers = |packet: &Packet| {
            DataView::decode(packet).is_ok_and(|metadata| metadata.satisfies(interest))
        };
        match found {
            Some(latest) if answers(&latest.packet) => Answer::Packet(latest.packet.clone()),
            _ if self.is_future_segment(interest) => Answer::WhenMade,
            _ => Answer::NotFound,
        }
    }
}
