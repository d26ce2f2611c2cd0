//! What a producer serves, by name.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound;

use weir_base::Packet;
use weir_security::manifest::MANIFEST_KEYWORD;
use weir_wire::{DataView, DecodeError, InterestView, NameView, tlv};

/// An object, by the number that its [`Source`] gives it; in a [`Catalog`], the order of adding, as
/// long as none is removed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u64);

/// How an Interest is to be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// With this segment, to be put together by the driver. Where the Interest's name ends in an
    /// implicit digest, that is compared afterwards.
    Segment {
        object: ObjectId,
        /// Its number, one that the object has, or that of a part ([`Catalog::add_part`]).
        segment: u64,
    },
    Packet(Packet),
    /// Once it is made, which is certain to be tried: the Interest waits as long as it lives, and
    /// nobody needs to be told of it.
    Later,
    /// Not: there is no such thing here.
    Unknown,
}

/// Knows what there is, by name.
pub trait Source {
    fn find(&mut self, interest: &InterestView<'_>) -> Answer;

    /// Whether there may be something of this name or below it.
    fn has_below(&self, _name: NameView<'_>) -> bool {
        true
    }
}

#[derive(Clone, Debug)]
struct Object {
    versioned: Vec<u8>,
    segments: u64,
}

/// A packet that has a name of its own.
#[derive(Clone, Debug)]
enum Whole {
    Packet(Packet),
    /// The driver has it, by this number of an object.
    Part(ObjectId, u64),
}

impl Whole {
    fn answer(&self) -> Answer {
        match *self {
            Self::Packet(ref packet) => Answer::Packet(packet.clone()),
            Self::Part(object, segment) => Answer::Segment { object, segment },
        }
    }
}

/// Finds the answers to Interests: segments of objects, and packets that are kept whole (metadata,
/// manifest parts, certificates).
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    objects: Vec<Object>,
    /// By the value of the versioned name.
    versions: BTreeMap<Vec<u8>, ObjectId>,
    /// By the value of the packet's name.
    packets: BTreeMap<Vec<u8>, Whole>,
    /// The object asked for last: the next Interest is for it, too.
    last: Option<ObjectId>,
    /// Numbers of objects that have been removed.
    free: Vec<ObjectId>,
}

impl Catalog {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an object of `segments` segments right below `versioned`. One that has the name already
    /// is replaced.
    ///
    /// # Panics
    /// When `segments` is 0.
    pub fn add_object(&mut self, versioned: NameView<'_>, segments: u64) -> ObjectId {
        assert!(segments > 0, "an empty object has one empty segment");
        let object = Object { versioned: versioned.value().to_vec(), segments };
        let id = match self.free.pop() {
            Some(id) => {
                self.objects[id.0 as usize] = object;
                id
            }
            None => {
                self.objects.push(object);
                ObjectId(self.objects.len() as u64 - 1)
            }
        };
        self.versions.insert(versioned.value().to_vec(), id);
        id
    }

    /// Adds a Data packet that is kept whole.
    pub fn add_packet(&mut self, packet: Packet) -> Result<(), DecodeError> {
        let name = DataView::decode(&packet)?.name.value().to_vec();
        self.packets.insert(name, Whole::Packet(packet));
        Ok(())
    }

    /// Adds a packet by name that the driver reads as it reads segments: as that of this `number`,
    /// which no segment of the object has.
    pub fn add_part(&mut self, name: NameView<'_>, object: ObjectId, number: u64) {
        self.packets.insert(name.value().to_vec(), Whole::Part(object, number));
    }

    /// Takes an object away, and the whole packets of these names. What has come in the place of
    /// one stays. Its number is that of an object that comes later; whoever still reads for it
    /// waits until that has ended.
    pub fn remove<'a>(
        &mut self,
        object: ObjectId,
        packets: impl IntoIterator<Item = NameView<'a>>,
    ) {
        let Object { versioned, segments } = &mut self.objects[object.0 as usize];
        let versioned = core::mem::take(versioned);
        *segments = 0;
        self.free.push(object);
        self.last = self.last.filter(|&last| last != object);
        if self.versions.get(&versioned) == Some(&object) {
            self.versions.remove(&versioned);
        }
        self.remove_packets(object, packets);
    }

    /// Takes whole packets of an object away, but not what has come in the place of one.
    pub fn remove_packets<'a>(
        &mut self,
        object: ObjectId,
        packets: impl IntoIterator<Item = NameView<'a>>,
    ) {
        for name in packets {
            let is_its = match self.packets.get(name.value()) {
                Some(&Whole::Part(of, _)) => of == object,
                other => other.is_some(),
            };
            if is_its {
                self.packets.remove(name.value());
            }
        }
    }

    /// The short way for the common case: another segment of the object asked for last.
    fn segment_of_last(&self, name: &[u8]) -> Option<Answer> {
        let object_id = self.last?;
        let object = &self.objects[object_id.0 as usize];
        let segment = tlv::segment(name.strip_prefix(object.versioned.as_slice())?)?;
        let answer = Answer::Segment { object: object_id, segment };
        (segment < object.segments).then_some(answer)
    }

    fn search(&mut self, interest: &InterestView<'_>) -> Answer {
        let (name, digest) = split_digest(interest.name);
        if let Some(whole) = self.packets.get(name.value()) {
            let fits = match (whole, digest) {
                (Whole::Packet(packet), Some(digest)) => {
                    DataView::decode(packet).is_ok_and(|data| data.implicit_digest() == digest)
                }
                _ => true,
            };
            return if fits { whole.answer() } else { Answer::Unknown };
        }
        if let Some(segment) = name.last().and_then(|last| last.as_segment())
            && let Some(&object) = self.versions.get(name.parent().value())
        {
            self.last = Some(object);
            let exists = segment < self.objects[object.0 as usize].segments;
            return if exists { Answer::Segment { object, segment } } else { Answer::Unknown };
        }
        if digest.is_some() || !interest.can_be_prefix {
            return Answer::Unknown;
        }
        self.search_prefix(name)
    }

    /// The packet or the latest object below a prefix; of an object, its first segment.
    fn search_prefix(&self, prefix: NameView<'_>) -> Answer {
        let prefix = prefix.value();
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let packet = self.packets.range::<[u8], _>(from).next();
        let packet = packet.filter(|(name, _)| name.starts_with(prefix));
        // What is asked for is a keyword's content if the prefix ends in one, else the object
        // itself.
        if let Some((_, packet)) = packet
            && ends_in_keyword(prefix)
        {
            return packet.answer();
        }
        let object = self.versions.range::<[u8], _>(from).next();
        match (object.filter(|(name, _)| name.starts_with(prefix)), packet) {
            (Some((name, &object)), _) => {
                // Unless the prefix says which version.
                let latest = (name.len() > prefix.len()).then(|| self.latest_beside(name));
                let object = latest.flatten().unwrap_or(object);
                Answer::Segment { object, segment: 0 }
            }
            (None, Some((_, packet))) => packet.answer(),
            (None, None) => Answer::Unknown,
        }
    }

    /// The latest version of the object that `versioned` is a version of.
    fn latest_beside(&self, versioned: &[u8]) -> Option<ObjectId> {
        let name = NameView::from_value(versioned).ok()?;
        name.last()?.as_version()?;
        let object = name.parent().value();
        let from = (Bound::Included(versioned), Bound::Unbounded);
        self.versions
            .range::<[u8], _>(from)
            .take_while(|(name, _)| {
                name.strip_prefix(object)
                    .and_then(|rest| tlv::read_single(rest).ok())
                    .is_some_and(|(typ, _)| typ == tlv::VERSION_NAME_COMPONENT)
            })
            .last()
            .map(|(_, &object)| object)
    }
}

impl Source for Catalog {
    #[inline]
    fn find(&mut self, interest: &InterestView<'_>) -> Answer {
        match self.segment_of_last(interest.name.value()) {
            Some(answer) => answer,
            None => self.search(interest),
        }
    }

    fn has_below(&self, name: NameView<'_>) -> bool {
        let from = (Bound::Included(name.value()), Bound::Unbounded);
        let packet = self.packets.range::<[u8], _>(from).next().map(|(name, _)| name);
        let object = self.versions.range::<[u8], _>(from).next().map(|(name, _)| name);
        [packet, object].into_iter().flatten().any(|found| found.starts_with(name.value()))
    }
}

/// The name without an implicit digest at its end, and that.
fn split_digest(name: NameView<'_>) -> (NameView<'_>, Option<[u8; 32]>) {
    let digest = name
        .last()
        .filter(|last| u32::from(last.typ) == tlv::IMPLICIT_SHA256_DIGEST_COMPONENT)
        .and_then(|last| <[u8; 32]>::try_from(last.value).ok());
    if digest.is_some() { (name.parent(), digest) } else { (name, None) }
}

fn ends_in_keyword(name: &[u8]) -> bool {
    NameView::from_value(name).ok().and_then(NameView::last).is_some_and(|last| {
        let is_keyword = u32::from(last.typ) == tlv::KEYWORD_NAME_COMPONENT;
        is_keyword && (last.value == MANIFEST_KEYWORD || last.value == crate::METADATA_KEYWORD)
    })
}

#[cfg(test)]
mod tests {
    use weir_wire::{Component, Data, Interest, Name};

    use super::*;

    fn name(uri: &str) -> Name {
        uri.parse().unwrap()
    }

    fn packet(uri: &str) -> Packet {
        let data =
            Data::new(name(uri)).final_block_id(Component::segment(0)).content(uri.as_bytes());
        data.encode_with_digest().into()
    }

    fn ask(catalog: &mut Catalog, uri: &str, can_be_prefix: bool) -> Answer {
        let wire = Interest::new(name(uri)).can_be_prefix(can_be_prefix).encode();
        catalog.find(&InterestView::decode(&wire).unwrap())
    }

    fn catalog() -> Catalog {
        let mut catalog = Catalog::new();
        catalog.add_object(name("/a/b/54=%01").as_view(), 10);
        catalog.add_object(name("/a/b/54=%02").as_view(), 3);
        catalog.add_object(name("/a/c/54=%01").as_view(), 1);
        for uri in ["/a/b/32=metadata/54=%02/50=%00", "/a/b/54=%02/32=manifest/50=%00"] {
            catalog.add_packet(packet(uri)).unwrap();
        }
        catalog
    }

    fn segment(object: u64, segment: u64) -> Answer {
        Answer::Segment { object: ObjectId(object), segment }
    }

    #[test]
    fn segments_are_found_by_their_full_names() {
        let mut catalog = catalog();
        for _ in 0..2 {
            assert_eq!(ask(&mut catalog, "/a/b/54=%01/50=%09", false), segment(0, 9));
            assert_eq!(ask(&mut catalog, "/a/b/54=%01/50=%00", false), segment(0, 0));
            assert_eq!(ask(&mut catalog, "/a/b/54=%02/50=%02", false), segment(1, 2));
            assert_eq!(ask(&mut catalog, "/a/b/54=%02/50=%03", false), Answer::Unknown);
            assert_eq!(ask(&mut catalog, "/a/b/54=%03/50=%00", false), Answer::Unknown);
            assert_eq!(ask(&mut catalog, "/a/b/54=%01/50=%00/x", false), Answer::Unknown);
        }
    }

    #[test]
    fn prefixes_lead_to_the_latest_version_or_the_one_named() {
        let mut catalog = catalog();
        assert_eq!(ask(&mut catalog, "/a/b", true), segment(1, 0));
        assert_eq!(ask(&mut catalog, "/a/b/54=%01", true), segment(0, 0));
        assert_eq!(ask(&mut catalog, "/a/b", false), Answer::Unknown);
        assert_eq!(ask(&mut catalog, "/a/d", true), Answer::Unknown);
        assert_eq!(ask(&mut catalog, "/a", true), segment(1, 0));
    }

    #[test]
    fn metadata_and_manifests_are_found() {
        let mut catalog = catalog();
        let metadata = Answer::Packet(packet("/a/b/32=metadata/54=%02/50=%00"));
        let manifest = Answer::Packet(packet("/a/b/54=%02/32=manifest/50=%00"));
        assert_eq!(ask(&mut catalog, "/a/b/32=metadata", true), metadata);
        assert_eq!(ask(&mut catalog, "/a/b/32=metadata/54=%02", true), metadata);
        assert_eq!(ask(&mut catalog, "/a/b/32=metadata/54=%02/50=%00", false), metadata);
        assert_eq!(ask(&mut catalog, "/a/b/54=%02/32=manifest/50=%00", false), manifest);
        assert_eq!(ask(&mut catalog, "/a/b/54=%02/32=manifest/50=%01", false), Answer::Unknown);
        assert_eq!(ask(&mut catalog, "/a/b/32=metadata", false), Answer::Unknown);
    }

    #[test]
    fn full_names_choose_the_packet() {
        let mut catalog = catalog();
        let digest =
            DataView::decode(&packet("/a/b/32=metadata/54=%02/50=%00")).unwrap().implicit_digest();
        let mut full = name("/a/b/32=metadata/54=%02/50=%00");
        full.append_implicit_digest(digest);
        let wire = Interest::new(full).encode();
        let answer = catalog.find(&InterestView::decode(&wire).unwrap());
        assert!(matches!(answer, Answer::Packet(_)), "{answer:?}");
        let mut other = name("/a/b/32=metadata/54=%02/50=%00");
        other.append_implicit_digest([7; 32]);
        let wire = Interest::new(other).encode();
        let answer = catalog.find(&InterestView::decode(&wire).unwrap());
        assert_eq!(answer, Answer::Unknown);
        let mut segment = name("/a/b/54=%01/50=%00");
        segment.append_implicit_digest([7; 32]);
        let wire = Interest::new(segment).encode();
        let answer = catalog.find(&InterestView::decode(&wire).unwrap());
        assert_eq!(answer, Answer::Segment { object: ObjectId(0), segment: 0 });
    }

    #[test]
    fn parts_are_found_as_packets_are_and_asked_for_by_number() {
        let mut catalog = catalog();
        for (number, uri) in
            [(3, "/a/c/32=metadata/54=%01/50=%00"), (4, "/a/c/54=%01/32=manifest/50=%00")]
        {
            catalog.add_part(name(uri).as_view(), ObjectId(2), number);
            assert_eq!(ask(&mut catalog, uri, false), segment(2, number));
            let mut full = name(uri);
            full.append_implicit_digest([7; 32]);
            let wire = Interest::new(full).encode();
            // The driver compares the digest.
            assert_eq!(catalog.find(&InterestView::decode(&wire).unwrap()), segment(2, number));
        }
        assert_eq!(ask(&mut catalog, "/a/c/32=metadata", true), segment(2, 3));
        assert_eq!(ask(&mut catalog, "/a/c", true), segment(2, 0));
    }

    #[test]
    fn what_is_removed_is_gone_and_what_took_its_place_is_not() {
        let mut catalog = catalog();
        let part = name("/a/b/54=%02/32=manifest/50=%01");
        catalog.add_part(part.as_view(), ObjectId(1), 3);
        assert_eq!(ask(&mut catalog, "/a/b/54=%02/50=%00", false), segment(1, 0));
        let metadata = name("/a/b/32=metadata/54=%02/50=%00");
        catalog.remove(ObjectId(1), [part.as_view(), metadata.as_view()]);
        for uri in ["/a/b/54=%02/50=%00", "/a/b/54=%02/32=manifest/50=%01"] {
            assert_eq!(ask(&mut catalog, uri, false), Answer::Unknown);
        }
        assert_eq!(ask(&mut catalog, "/a/b/32=metadata", true), Answer::Unknown);
        assert_eq!(ask(&mut catalog, "/a/b", true), segment(0, 0));
        // The same version once more, and then the end of the first.
        let again = catalog.add_object(name("/a/b/54=%01").as_view(), 4);
        assert_eq!((again, catalog.objects.len() - catalog.free.len()), (ObjectId(1), 3));
        catalog.add_part(part.as_view(), again, 4);
        catalog.remove(ObjectId(0), [part.as_view()]);
        assert_eq!(ask(&mut catalog, "/a/b/54=%01/50=%03", false), segment(1, 3));
        assert_eq!(ask(&mut catalog, "/a/b/54=%02/32=manifest/50=%01", false), segment(1, 4));
    }
}
