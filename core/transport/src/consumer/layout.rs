//! The fetch order of the segments and manifest parts of one object, and their names.

use alloc::vec::Vec;
use core::net::Ipv6Addr;
use core::ops::Range;

use weir_security::manifest::{LEVELS_MAX, ManifestShape, PartId};
use weir_wire::tlv;
use weir_wire::{Name, NameView};

use super::target::PacketId;
use crate::mapping::NameMapping;
use crate::segment_set::SegmentSet;

/// Maps each packet of an object to its index: segments in order, each manifest part before the
/// packets that it lists. hICN's library numbers all packets in this order, so the suffix of a
/// packet of a [stream](Layout::stream_address) is its index.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    mapping: NameMapping,
    prefix: Vec<u8>,
    /// For each manifest level, from level 1: the prefix of its parts' names, and the segment
    /// number of part 0.
    manifest_prefixes: Vec<(Vec<u8>, u64)>,
    manifest: Option<ManifestShape>,
    /// The object is one Data with the prefix as its name and no segment number.
    is_whole: bool,
    /// The address of an hICN producer's stream.
    stream_address: Option<Ipv6Addr>,
    /// Numbers are suffixes, even if the name is an address.
    has_plain_numbers: bool,
    /// The segments to fetch. Others have an index, too.
    wanted: Range<u64>,
}

impl Layout {
    /// The layout of the version that applications call `versioned`.
    pub(crate) fn new(versioned: NameView<'_>, mapping: NameMapping) -> Self {
        let mut layout = Self {
            mapping,
            prefix: Vec::new(),
            manifest_prefixes: Vec::new(),
            manifest: None,
            is_whole: false,
            stream_address: None,
            has_plain_numbers: false,
            wanted: 0..u64::MAX,
        };
        layout.set_version(versioned);
        layout
    }

    pub(crate) fn set_version(&mut self, versioned: NameView<'_>) {
        let below = |level| {
            let (prefix, first) = self.mapping.manifest_prefix(versioned, level);
            (prefix.value().to_vec(), first)
        };
        self.manifest_prefixes = (1..=LEVELS_MAX).map(below).collect();
        self.prefix = self.mapping.version_prefix(versioned).value().to_vec();
        self.stream_address =
            NameMapping::stream_address(versioned).filter(|_| !self.has_plain_numbers);
    }

    /// Segments are packets of these numbers, even if the name is an hICN address. Precedes
    /// [`Layout::set_version`].
    pub(crate) fn set_plain_numbers(&mut self) {
        (self.has_plain_numbers, self.stream_address) = (true, None);
    }

    /// The address of a stream of an hICN producer: packets with suffixes from 0 on, without
    /// metadata. `None` for other objects.
    pub(crate) fn stream_address(&self) -> Option<Ipv6Addr> {
        self.stream_address
    }

    /// Whether the object is a stream, and its manifests are known to list its segments.
    pub(crate) fn has_stream_manifest(&self) -> bool {
        self.stream_address.is_some() && self.manifest.is_some()
    }

    pub(crate) fn manifest(&self) -> Option<ManifestShape> {
        self.manifest
    }

    pub(crate) fn set_manifest(&mut self, manifest: Option<ManifestShape>) {
        self.manifest = manifest;
    }

    pub(crate) fn set_whole(&mut self) {
        self.is_whole = true;
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    pub(crate) fn set_wanted(&mut self, segments: Range<u64>) {
        self.wanted = segments;
    }

    pub(crate) fn wants_all(&self) -> bool {
        self.wanted == (0..u64::MAX)
    }

    pub(crate) fn first_segment(&self) -> u64 {
        self.wanted.start
    }

    /// The first index to fetch: that of the first segment, or of the highest part above it.
    pub(crate) fn first_index(&self) -> u64 {
        match self.manifest {
            Some(shape) => {
                let number = self.wanted.start / shape.segments_below(shape.levels);
                index_of_part(shape, PartId { level: shape.levels, number })
            }
            None => self.wanted.start,
        }
    }

    /// One past the last index to fetch, for this last segment; `None` if neither it nor the end of
    /// the wanted range is known.
    pub(crate) fn end_index(&self, last_segment: Option<u64>) -> Option<u64> {
        let wanted = (self.wanted.end < u64::MAX).then(|| self.wanted.end.saturating_sub(1));
        let last = last_segment.into_iter().chain(wanted).min()?;
        if last < self.wanted.start || self.wanted.is_empty() {
            return Some(self.first_index());
        }
        Some(self.index_of_segment(last).saturating_add(1))
    }

    pub(crate) fn packet_at(&self, index: u64) -> PacketId {
        let Some(shape) = self.manifest else { return PacketId::Segment(index) };
        // Descends from the highest level. The first index of a part's range is the part itself,
        // and its children follow in order.
        let mut level = shape.levels;
        let (mut number, mut rest) = (index / indices(shape, level), index % indices(shape, level));
        while level > 0 && rest > 0 {
            rest -= 1;
            level -= 1;
            let size = indices(shape, level);
            number = number * shape.digests_per_part() + rest / size;
            rest %= size;
        }
        match level {
            0 => PacketId::Segment(number),
            _ => PacketId::Manifest(PartId { level, number }),
        }
    }

    pub(crate) fn index_of(&self, packet: PacketId) -> Option<u64> {
        match (packet, self.manifest) {
            (PacketId::Segment(segment), _) => Some(self.index_of_segment(segment)),
            (PacketId::Manifest(id), Some(shape)) if id.level <= shape.levels => {
                id.number.checked_mul(shape.segments_below(id.level))?;
                Some(index_of_part(shape, id))
            }
            _ => None,
        }
    }

    fn index_of_segment(&self, segment: u64) -> u64 {
        match self.manifest {
            Some(shape) => index_of_part(shape, PartId { level: 0, number: segment }),
            None => segment,
        }
    }

    /// The level and number of a packet that a manifest part of the next level lists. Segments have
    /// level 0. `None` for packets verified by their signature.
    pub(crate) fn manifest_position(&self, packet: PacketId) -> Option<(u8, u64)> {
        match (packet, self.manifest?) {
            (PacketId::Segment(segment), _) => Some((0, segment)),
            (PacketId::Manifest(id), shape) if id.level < shape.levels => {
                Some((id.level, id.number))
            }
            _ => None,
        }
    }

    /// The manifest part that lists a packet; `None` for packets verified by their signature.
    pub(crate) fn listing_part(&self, packet: PacketId) -> Option<PacketId> {
        let (level, number) = self.manifest_position(packet)?;
        let number = number / self.manifest?.digests_per_part();
        Some(PacketId::Manifest(PartId { level: level + 1, number }))
    }

    /// One past the last index of everything below a manifest part.
    pub(crate) fn end_of_part(&self, packet: PacketId) -> Option<u64> {
        let (PacketId::Manifest(id), Some(shape)) = (packet, self.manifest) else { return None };
        Some(self.index_of(packet)?.saturating_add(indices(shape, id.level)))
    }

    /// The segments that a manifest part lists, directly or through other parts, if it is full.
    pub(crate) fn segments_below(&self, part: PartId) -> Range<u64> {
        let below = self.manifest.map_or(0, |shape| shape.segments_below(part.level));
        let first = part.number.saturating_mul(below);
        first..first.saturating_add(below)
    }

    /// The segments at these indices.
    pub(crate) fn segments_at(&self, range: &Range<u64>) -> Range<u64> {
        let segment = |index| match self.packet_at(index) {
            PacketId::Segment(segment) => Some(segment),
            _ => None,
        };
        // Manifest parts precede the packets that they list, so the first indices may be parts.
        let first = range.clone().find_map(segment);
        let last = range.clone().rev().find_map(segment);
        first.zip(last).map_or(0..0, |(first, last)| first..last + 1)
    }

    /// The manifest parts that list these segments, directly or through other parts.
    pub(crate) fn parts_above(&self, segments: &Range<u64>) -> impl Iterator<Item = PacketId> {
        let shape = self.manifest.filter(|_| !segments.is_empty());
        let (first, last) = (segments.start, segments.end.saturating_sub(1));
        shape.into_iter().flat_map(move |shape| {
            (1..=shape.levels).flat_map(move |level| {
                let below = shape.segments_below(level);
                let part = move |number| PacketId::Manifest(PartId { level, number });
                (first / below..=last / below).map(part)
            })
        })
    }

    /// The segments to fetch, for this last segment.
    pub(crate) fn wanted_segments(&self, last_segment: Option<u64>) -> Range<u64> {
        let end = last_segment.map_or(self.wanted.end, |last| last.saturating_add(1));
        let end = end.min(self.wanted.end);
        self.wanted.start.min(end)..end
    }

    /// Whether a packet need not be fetched: its segments have been received or are not wanted.
    pub(crate) fn is_received(
        &self,
        packet: PacketId,
        have: &SegmentSet,
        last: Option<u64>,
    ) -> bool {
        match (packet, self.manifest) {
            (PacketId::Segment(segment), _) => {
                !self.wanted.contains(&segment) || have.contains(segment)
            }
            (PacketId::Manifest(id), Some(shape)) => {
                let segments = shape.segments_below(id.level);
                let first = id.number.saturating_mul(segments);
                let end = first.saturating_add(segments).min(self.wanted.end);
                let end = last.map_or(end, |last| end.min(last.saturating_add(1)));
                have.contains_all(first.max(self.wanted.start), end)
            }
            _ => false,
        }
    }

    pub(crate) fn packet_of_name(&self, name: &[u8]) -> Option<PacketId> {
        if self.is_whole {
            return (name == self.prefix).then_some(PacketId::Segment(0));
        }
        let rest = name.strip_prefix(self.prefix.as_slice())?;
        if self.stream_address.is_some() {
            return Some(self.packet_at(tlv::segment(rest)?));
        }
        if let Some(number) = tlv::segment(rest) {
            let part = self.mapping.part_of_number(number).map(PacketId::Manifest);
            return Some(part.unwrap_or(PacketId::Segment(number)));
        }
        (1..).zip(&self.manifest_prefixes).find_map(|(level, (prefix, _))| {
            let number = tlv::segment(name.strip_prefix(prefix.as_slice())?)?;
            Some(PacketId::Manifest(PartId { level, number }))
        })
    }

    /// The prefix and the segment number that name a packet.
    pub(crate) fn interest_name(&self, packet: PacketId) -> (&[u8], Option<u64>) {
        match packet {
            PacketId::Segment(_) if self.is_whole => (&self.prefix, None),
            PacketId::Metadata => (&self.prefix, None),
            _ if self.stream_address.is_some() => (&self.prefix, self.index_of(packet)),
            PacketId::Segment(segment) => (&self.prefix, Some(segment)),
            PacketId::Manifest(id) => {
                let (prefix, first) = &self.manifest_prefixes[usize::from(id.level) - 1];
                (prefix, Some(first.saturating_add(id.number)))
            }
        }
    }
}

/// How many indices a full part of a level and everything below it have. A segment, level 0, has 1.
fn indices(shape: ManifestShape, level: u8) -> u64 {
    (0..level).fold(1, |below, _| 1 + shape.digests_per_part() * below)
}

/// The index of a manifest part, or, at level 0, of a segment.
fn index_of_part(shape: ManifestShape, PartId { level, number }: PartId) -> u64 {
    let first = number.saturating_mul(shape.segments_below(level));
    // Before it come all earlier segments, the parts that list them, and the parts above its own
    // first segment.
    (1..=shape.levels).fold(first, |index, other| {
        let parts = first / shape.segments_below(other) + u64::from(other > level);
        index.saturating_add(parts)
    })
}

/// The name with value `prefix`, plus a segment number if there is one.
pub(crate) fn name_below(prefix: &[u8], segment: Option<u64>) -> Name {
    let mut name = NameView::from_value(prefix).map(NameView::to_name).unwrap_or_default();
    if let Some(segment) = segment {
        name.append_segment(segment);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of(layout: &Layout, packet: PacketId) -> Name {
        let (prefix, segment) = layout.interest_name(packet);
        name_below(prefix, segment)
    }

    fn layout(manifest: Option<ManifestShape>) -> Layout {
        mapped(NameMapping::Identity, manifest)
    }

    fn mapped(mapping: NameMapping, manifest: Option<ManifestShape>) -> Layout {
        let name: Name = "/a/54=%01".parse().unwrap();
        let mut layout = Layout::new(name.as_view(), mapping);
        layout.set_manifest(manifest);
        layout
    }

    #[test]
    fn packets_map_to_indices_and_back() {
        let shapes = [(1, 1), (3, 1), (248, 1), (1, 2), (3, 2), (20, 2)];
        let shapes =
            shapes.into_iter().map(|(per_part, levels)| ManifestShape::new(per_part, levels));
        let hicn = "hicn:2001:db8::/32".parse().unwrap();
        let mappings = [NameMapping::Identity, hicn];
        let cases = shapes.chain([None]).flat_map(|shape| mappings.map(|mapping| (shape, mapping)));
        for (shape, mapping) in cases {
            let layout = mapped(mapping, shape);
            let mut segments = 0;
            let mut parts = [0; LEVELS_MAX as usize];
            for index in 0..1000 {
                let part = layout.packet_at(index);
                assert_eq!(layout.index_of(part), Some(index), "{shape:?}");
                match part {
                    PacketId::Segment(segment) => {
                        assert_eq!(segment, segments);
                        assert_eq!(layout.end_index(Some(segment)), Some(index + 1));
                        segments += 1;
                        // Its listing parts came earlier in the order.
                        let Some(shape) = shape else { continue };
                        for level in 1..=shape.levels {
                            let above = segment / shape.segments_below(level) + 1;
                            assert_eq!(parts[usize::from(level) - 1], above);
                        }
                    }
                    PacketId::Manifest(PartId { level, number }) => {
                        assert_eq!(number, parts[usize::from(level) - 1]);
                        parts[usize::from(level) - 1] += 1;
                    }
                    PacketId::Metadata => panic!("metadata has no index"),
                }
                let name = name_of(&layout, part);
                assert_eq!(layout.packet_of_name(name.value()), Some(part));
            }
        }
    }

    /// hICN's library: manifest 0, the packets it lists, manifest 4, and so on.
    #[test]
    fn suffixes_of_a_stream_are_indices() {
        let name: Name = "/32=hicn/8=%B0%01/8=00/8=00/8=00/8=00/8=00/8=00/8=00".parse().unwrap();
        let mut layout = Layout::new(name.as_view(), NameMapping::Identity);
        for shape in [None, ManifestShape::new(3, 1)] {
            layout.set_manifest(shape);
            for suffix in 0..20 {
                let packet = layout.packet_at(suffix);
                let mut name = name.clone();
                name.append_segment(suffix);
                assert_eq!(name_of(&layout, packet), name);
                assert_eq!(layout.packet_of_name(name.value()), Some(packet));
                let is_part = matches!(packet, PacketId::Manifest(_));
                assert_eq!(is_part, shape.is_some() && suffix % 4 == 0);
            }
        }
    }

    #[test]
    fn range_starts_with_listing_parts() {
        let mut layout = layout(ManifestShape::new(3, 2));
        layout.set_wanted(14..16);
        let have = SegmentSet::new();
        let from = layout.first_index();
        let end = layout.end_index(Some(100)).unwrap();
        let wanted = (from..end).map(|index| layout.packet_at(index));
        let wanted: Vec<_> =
            wanted.filter(|part| !layout.is_received(*part, &have, None)).collect();
        let (top, leaf) = (PartId { level: 2, number: 1 }, PartId::leaf);
        let segment = |number| PacketId::Segment(number);
        let parts = [PacketId::Manifest(top), PacketId::Manifest(leaf(4)), segment(14)];
        assert_eq!(wanted, [&parts[..], &[PacketId::Manifest(leaf(5)), segment(15)]].concat());
    }

    #[test]
    fn rejects_foreign_names() {
        let layout = layout(ManifestShape::new(3, 1));
        for name in ["/a/54=%01", "/a/54=%01/8=%00", "/a/54=%02/50=%00", "/a/54=%01/50=%00/b", "/"]
        {
            let name: Name = name.parse().unwrap();
            assert_eq!(layout.packet_of_name(name.value()), None, "{name}");
        }
    }

    #[test]
    fn skips_manifest_of_received_segments() {
        let layout = layout(ManifestShape::new(3, 1));
        let mut have = SegmentSet::new();
        for segment in [0, 1, 2, 3] {
            have.insert(segment);
        }
        assert!(layout.is_received(PacketId::Manifest(PartId::leaf(0)), &have, None));
        assert!(!layout.is_received(PacketId::Manifest(PartId::leaf(1)), &have, None));
        assert!(layout.is_received(PacketId::Manifest(PartId::leaf(1)), &have, Some(3)));
        assert!(layout.is_received(PacketId::Segment(3), &have, None));
        assert!(!layout.is_received(PacketId::Segment(4), &have, None));
    }

    #[test]
    fn a_whole_object_is_its_own_segment() {
        let name: Name = "/a/b".parse().unwrap();
        let mut layout = Layout::new(name.as_view(), NameMapping::Identity);
        layout.set_whole();
        assert_eq!(layout.packet_of_name(name.value()), Some(PacketId::Segment(0)));
        assert_eq!(name_of(&layout, PacketId::Segment(0)), name);
    }
}
