//! The metadata of a producer socket's objects, which lead to their latest versions, and the growth
//! of its growing objects.

use std::collections::{BTreeMap, HashMap};

use weir_base::Packet;
use weir_transport::{Answer, METADATA_KEYWORD, Metadata, Source, is_hicn_metadata};
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
    /// By the TLV-VALUE of the versioned name, the segment that is made next.
    growing: HashMap<Vec<u8>, u64>,
    /// By the TLV-VALUE of the object's name with the keyword, or of the hICN name, each with its
    /// position in `order`.
    metadata: HashMap<Vec<u8>, (u64, Packet)>,
    order: BTreeMap<u64, Vec<u8>>,
    next_order: u64,
    max: usize,
}

impl LatestVersions {
    pub(super) fn new(max: usize) -> Self {
        Self {
            growing: HashMap::new(),
            metadata: HashMap::new(),
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
        if self.metadata.get(&key).is_some_and(|(_, known)| version_of(known) > version) {
            return Some(name);
        }
        self.next_order += 1;
        self.order.insert(self.next_order, key.clone());
        if let Some((before, _)) = self.metadata.insert(key, (self.next_order, metadata)) {
            self.order.remove(&before);
        }
        if self.metadata.len() > self.max
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.metadata.remove(&oldest);
        }
        Some(name)
    }

    /// An object has grown.
    pub(super) fn update_growth(&mut self, GrowthUpdate { versioned, next }: GrowthUpdate) {
        match next {
            Some(next) => self.growing.insert(versioned.value().to_vec(), next),
            None => self.growing.remove(versioned.value()),
        };
    }

    /// The metadata for the name of an object.
    pub(super) fn latest(&self, object: &Name) -> Option<Packet> {
        let mut name = object.clone();
        name.append_keyword(METADATA_KEYWORD);
        self.metadata.get(name.value()).map(|(_, packet)| packet.clone())
    }

    /// Forgets an object that was abandoned before its end, so that no consumer starts with it.
    pub(super) fn forget_unfinished(&mut self, versioned: &Name) {
        if self.growing.remove(versioned.value()).is_none() {
            return;
        }
        let mut name = versioned.as_view().parent().to_name();
        name.append_keyword(METADATA_KEYWORD);
        let is_its = |packet: &Packet| {
            let metadata = DataView::decode(packet).ok().map(|data| Metadata::decode(data.content));
            metadata.is_some_and(|metadata| metadata.is_ok_and(|one| one.versioned == *versioned))
        };
        if self.metadata.get(name.value()).is_some_and(|(_, packet)| is_its(packet))
            && let Some((number, _)) = self.metadata.remove(name.value())
        {
            self.order.remove(&number);
        }
    }

    /// Whether an Interest requests a segment that will be made soon.
    fn is_future_segment(&self, interest: &InterestView<'_>) -> bool {
        let segment = interest.name.last().and_then(|last| last.as_segment());
        let Some(segment) = segment else { return false };
        let versioned = interest.name.parent();
        match self.growing.get(versioned.value()) {
            Some(&next) => (next..next.saturating_add(FUTURE_SEGMENTS_MAX)).contains(&segment),
            None => self.is_past_end(versioned, segment),
        }
    }

    /// Whether the segment lies beyond the end of an object that grew and has ended. Its requester
    /// did not know the end yet.
    fn is_past_end(&self, versioned: NameView<'_>, segment: u64) -> bool {
        let mut name = versioned.parent().to_name();
        name.append_keyword(METADATA_KEYWORD);
        let data =
            self.metadata.get(name.value()).and_then(|(_, packet)| DataView::decode(packet).ok());
        let metadata = data.and_then(|data| Metadata::decode(data.content).ok());
        metadata.is_some_and(|metadata| {
            metadata.versioned.as_view() == versioned
                && metadata.next_segment.is_some_and(|next| segment >= next)
        })
    }
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
            Some((_, packet)) if answers(packet) => Answer::Packet(packet.clone()),
            _ if self.is_future_segment(interest) => Answer::WhenMade,
            _ => Answer::NotFound,
        }
    }
}
