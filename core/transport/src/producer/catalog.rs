//! What a producer serves, by name.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound;

use weir_base::Packet;
use weir_security::manifest::MANIFEST_KEYWORD;
use weir_wire::{DataView, DecodeError, InterestView, NameView, tlv};

/// An object, by the number that its [`Source`] assigns. A [`Catalog`] numbers objects in order of
/// addition, while none is removed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u64);

/// How to answer an Interest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// With this segment, which the driver builds. If the Interest's name ends in an implicit
    /// digest, the producer compares it afterwards.
    Segment {
        object: ObjectId,
        /// The number of a segment, or of a packet added with [`Catalog::add_read_packet`].
        segment: u64,
    },
    Packet(Packet),
    /// When the segment is made, which will happen. The Interest waits until then, at most for its
    /// lifetime. The application is not notified.
    WhenMade,
    /// Not at all: this source has no such name.
    NotFound,
}

/// Finds what exists, by name.
pub trait Source {
    fn find(&mut self, interest: &InterestView<'_>) -> Answer;

    /// Whether something of this name or below it may exist.
    fn has_below(&self, _name: NameView<'_>) -> bool {
        true
    }
}

#[derive(Clone, Debug)]
struct Object {
    versioned: Vec<u8>,
    segments: u64,
}

/// A packet with a name of its own.
#[derive(Clone, Debug)]
enum WholePacket {
    Packet(Packet),
    /// The driver reads it, as this number of an object.
    ReadByCaller(ObjectId, u64),
}

impl WholePacket {
    fn answer(&self) -> Answer {
        match *self {
            Self::Packet(ref packet) => Answer::Packet(packet.clone()),
            Self::ReadByCaller(object, segment) => Answer::Segment { object, segment },
        }
    }
}

/// Finds the answers to Interests: segments of objects, and complete packets (metadata, manifest
/// parts, certificates).
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    objects: Vec<Object>,
    /// By the TLV-VALUE of the versioned name.
    versions: BTreeMap<Vec<u8>, ObjectId>,
    /// By the TLV-VALUE of the packet's name.
    packets: BTreeMap<Vec<u8>, WholePacket>,
    /// The object requested last. The next Interest is usually for it, too.
    last_requested: Option<ObjectId>,
    /// Numbers of removed objects.
    free_ids: Vec<ObjectId>,
}

impl Catalog {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an object of `segments` segments right below `versioned`. Replaces an object of the
    /// same name.
    ///
    /// # Panics
    /// `segments` is 0.
    pub fn add_object(&mut self, versioned: NameView<'_>, segments: u64) -> ObjectId {
        assert!(segments > 0, "an empty object has one empty segment");
        let object = Object { versioned: versioned.value().to_vec(), segments };
        let id = match self.free_ids.pop() {
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

    /// Adds a complete Data packet.
    pub fn add_packet(&mut self, packet: Packet) -> Result<(), DecodeError> {
        let name = DataView::decode(&packet)?.name.value().to_vec();
        self.packets.insert(name, WholePacket::Packet(packet));
        Ok(())
    }

    /// Adds a packet with its own name that the driver reads like a segment. `number` must not be
    /// that of a segment.
    pub fn add_read_packet(&mut self, name: NameView<'_>, object: ObjectId, number: u64) {
        self.packets.insert(name.value().to_vec(), WholePacket::ReadByCaller(object, number));
    }

    /// Removes an object, and the complete packets of these names. A packet or version that has
    /// replaced one stays. The number will be reused: a driver that still reads for this object
    /// must finish first.
    pub fn remove<'a>(
        &mut self,
        object: ObjectId,
        packets: impl IntoIterator<Item = NameView<'a>>,
    ) {
        let Object { versioned, segments } = &mut self.objects[object.0 as usize];
        let versioned = core::mem::take(versioned);
        *segments = 0;
        self.free_ids.push(object);
        self.last_requested = self.last_requested.filter(|&last| last != object);
        if self.versions.get(&versioned) == Some(&object) {
            self.versions.remove(&versioned);
        }
        self.remove_packets(object, packets);
    }

    /// Removes complete packets of an object, unless another packet has replaced them.
    pub fn remove_packets<'a>(
        &mut self,
        object: ObjectId,
        packets: impl IntoIterator<Item = NameView<'a>>,
    ) {
        for name in packets {
            let is_its = match self.packets.get(name.value()) {
                Some(&WholePacket::ReadByCaller(of, _)) => of == object,
                other => other.is_some(),
            };
            if is_its {
                self.packets.remove(name.value());
            }
        }
    }

    /// Fast path: another segment of the object requested last.
    fn find_in_last_requested(&self, name: &[u8]) -> Option<Answer> {
        let object_id = self.last_requested?;
        let object = &self.objects[object_id.0 as usize];
        let segment = tlv::segment(name.strip_prefix(object.versioned.as_slice())?)?;
        let answer = Answer::Segment { object: object_id, segment };
        (segment < object.segments).then_some(answer)
    }

    fn search_names(&mut self, interest: &InterestView<'_>) -> Answer {
        let (name, digest) = split_digest(interest.name);
        if let Some(whole) = self.packets.get(name.value()) {
            let fits = match (whole, digest) {
                (WholePacket::Packet(packet), Some(digest)) => {
                    DataView::decode(packet).is_ok_and(|data| data.implicit_digest() == digest)
                }
                _ => true,
            };
            return if fits { whole.answer() } else { Answer::NotFound };
        }
        if let Some(segment) = name.last().and_then(|last| last.as_segment())
            && let Some(&object) = self.versions.get(name.parent().value())
        {
            self.last_requested = Some(object);
            let exists = segment < self.objects[object.0 as usize].segments;
            return if exists { Answer::Segment { object, segment } } else { Answer::NotFound };
        }
        if digest.is_some() || !interest.can_be_prefix {
            return Answer::NotFound;
        }
        self.search_prefix(name)
    }

    /// The packet or the latest object below a prefix; for an object, its first segment.
    fn search_prefix(&self, prefix: NameView<'_>) -> Answer {
        let prefix = prefix.value();
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let packet = self.packets.range::<[u8], _>(from).next();
        let packet = packet.filter(|(name, _)| name.starts_with(prefix));
        // A prefix that ends in a keyword, such as `metadata`, requests the packet below it. Any
        // other prefix requests the object itself.
        if let Some((_, packet)) = packet
            && ends_in_keyword(prefix)
        {
            return packet.answer();
        }
        let object = self.versions.range::<[u8], _>(from).next();
        match (object.filter(|(name, _)| name.starts_with(prefix)), packet) {
            (Some((name, &object)), _) => {
                // A prefix that names a version requests exactly that one. A shorter one requests
                // the latest version.
                let latest = (name.len() > prefix.len()).then(|| self.latest_version_of(name));
                let object = latest.flatten().unwrap_or(object);
                Answer::Segment { object, segment: 0 }
            }
            (None, Some((_, packet))) => packet.answer(),
            (None, None) => Answer::NotFound,
        }
    }

    /// The latest version of the object that has the version `versioned`.
    fn latest_version_of(&self, versioned: &[u8]) -> Option<ObjectId> {
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
        match self.find_in_last_requested(interest.name.value()) {
            Some(answer) => answer,
            None => self.search_names(interest),
        }
    }

    fn has_below(&self, name: NameView<'_>) -> bool {
        let from = (Bound::Included(name.value()), Bound::Unbounded);
        let packet = self.packets.range::<[u8], _>(from).next().map(|(name, _)| name);
        let object = self.versions.range::<[u8], _>(from).next().map(|(name, _)| name);
        [packet, object].into_iter().flatten().any(|found| found.starts_with(name.value()))
    }
}

/// Splits off an implicit digest at the end of a name.
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

    fn lookup(catalog: &mut Catalog, uri: &str, can_be_prefix: bool) -> Answer {
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
    fn finds_segments_by_full_name() {
        let mut catalog = catalog();
        for _ in 0..2 {
            assert_eq!(lookup(&mut catalog, "/a/b/54=%01/50=%09", false), segment(0, 9));
            assert_eq!(lookup(&mut catalog, "/a/b/54=%01/50=%00", false), segment(0, 0));
            assert_eq!(lookup(&mut catalog, "/a/b/54=%02/50=%02", false), segment(1, 2));
            assert_eq!(lookup(&mut catalog, "/a/b/54=%02/50=%03", false), Answer::NotFound);
            assert_eq!(lookup(&mut catalog, "/a/b/54=%03/50=%00", false), Answer::NotFound);
            assert_eq!(lookup(&mut catalog, "/a/b/54=%01/50=%00/x", false), Answer::NotFound);
        }
    }

    #[test]
    fn prefix_finds_latest_or_named_version() {
        let mut catalog = catalog();
        assert_eq!(lookup(&mut catalog, "/a/b", true), segment(1, 0));
        assert_eq!(lookup(&mut catalog, "/a/b/54=%01", true), segment(0, 0));
        assert_eq!(lookup(&mut catalog, "/a/b", false), Answer::NotFound);
        assert_eq!(lookup(&mut catalog, "/a/d", true), Answer::NotFound);
        assert_eq!(lookup(&mut catalog, "/a", true), segment(1, 0));
    }

    #[test]
    fn finds_metadata_and_manifests() {
        let mut catalog = catalog();
        let metadata = Answer::Packet(packet("/a/b/32=metadata/54=%02/50=%00"));
        let manifest = Answer::Packet(packet("/a/b/54=%02/32=manifest/50=%00"));
        assert_eq!(lookup(&mut catalog, "/a/b/32=metadata", true), metadata);
        assert_eq!(lookup(&mut catalog, "/a/b/32=metadata/54=%02", true), metadata);
        assert_eq!(lookup(&mut catalog, "/a/b/32=metadata/54=%02/50=%00", false), metadata);
        assert_eq!(lookup(&mut catalog, "/a/b/54=%02/32=manifest/50=%00", false), manifest);
        assert_eq!(lookup(&mut catalog, "/a/b/54=%02/32=manifest/50=%01", false), Answer::NotFound);
        assert_eq!(lookup(&mut catalog, "/a/b/32=metadata", false), Answer::NotFound);
    }

    #[test]
    fn full_name_selects_packet() {
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
        assert_eq!(answer, Answer::NotFound);
        let mut segment = name("/a/b/54=%01/50=%00");
        segment.append_implicit_digest([7; 32]);
        let wire = Interest::new(segment).encode();
        let answer = catalog.find(&InterestView::decode(&wire).unwrap());
        assert_eq!(answer, Answer::Segment { object: ObjectId(0), segment: 0 });
    }

    #[test]
    fn finds_parts_by_name_and_number() {
        let mut catalog = catalog();
        for (number, uri) in
            [(3, "/a/c/32=metadata/54=%01/50=%00"), (4, "/a/c/54=%01/32=manifest/50=%00")]
        {
            catalog.add_read_packet(name(uri).as_view(), ObjectId(2), number);
            assert_eq!(lookup(&mut catalog, uri, false), segment(2, number));
            let mut full = name(uri);
            full.append_implicit_digest([7; 32]);
            let wire = Interest::new(full).encode();
            // The driver compares the digest.
            assert_eq!(catalog.find(&InterestView::decode(&wire).unwrap()), segment(2, number));
        }
        assert_eq!(lookup(&mut catalog, "/a/c/32=metadata", true), segment(2, 3));
        assert_eq!(lookup(&mut catalog, "/a/c", true), segment(2, 0));
    }

    #[test]
    fn remove_keeps_replacement() {
        let mut catalog = catalog();
        let part = name("/a/b/54=%02/32=manifest/50=%01");
        catalog.add_read_packet(part.as_view(), ObjectId(1), 3);
        assert_eq!(lookup(&mut catalog, "/a/b/54=%02/50=%00", false), segment(1, 0));
        let metadata = name("/a/b/32=metadata/54=%02/50=%00");
        catalog.remove(ObjectId(1), [part.as_view(), metadata.as_view()]);
        for uri in ["/a/b/54=%02/50=%00", "/a/b/54=%02/32=manifest/50=%01"] {
            assert_eq!(lookup(&mut catalog, uri, false), Answer::NotFound);
        }
        assert_eq!(lookup(&mut catalog, "/a/b/32=metadata", true), Answer::NotFound);
        assert_eq!(lookup(&mut catalog, "/a/b", true), segment(0, 0));
        // The same version again, and then the removal of the first.
        let again = catalog.add_object(name("/a/b/54=%01").as_view(), 4);
        assert_eq!((again, catalog.objects.len() - catalog.free_ids.len()), (ObjectId(1), 3));
        catalog.add_read_packet(part.as_view(), again, 4);
        catalog.remove(ObjectId(0), [part.as_view()]);
        assert_eq!(lookup(&mut catalog, "/a/b/54=%01/50=%03", false), segment(1, 3));
        assert_eq!(lookup(&mut catalog, "/a/b/54=%02/32=manifest/50=%01", false), segment(1, 4));
    }
}
