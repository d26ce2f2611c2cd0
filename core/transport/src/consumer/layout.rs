//! The order in which the units and manifest parts of one object are fetched, and what they are
//! called.

use alloc::vec::Vec;
use core::ops::Range;

use weir_security::manifest::{LEVELS_MAX, PartId, Shape};
use weir_wire::tlv;
use weir_wire::{Name, NameView};

use super::target::{Part, Unit};
use crate::mapping::NameMapping;
use crate::segment_set::SegmentSet;

/// Numbers the packets of an object in the order in which they are wanted: the segments, and before
/// what a manifest part lists, the part.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// What names are made with.
    mapping: NameMapping,
    prefix: Vec<u8>,
    /// What the numbers of the manifest's parts are below, level 1 first, and what is added to
    /// them.
    manifest_prefixes: Vec<(Vec<u8>, u64)>,
    manifest: Option<Shape>,
    /// The object is one Data of the prefix's name, without a segment number.
    is_whole: bool,
    /// The segments that are wanted; others count, but are not fetched.
    wanted: Range<u64>,
}

impl Layout {
    /// That of the version which the application calls so.
    pub(crate) fn new(versioned: NameView<'_>, mapping: NameMapping) -> Self {
        let mut layout = Self {
            mapping,
            prefix: Vec::new(),
            manifest_prefixes: Vec::new(),
            manifest: None,
            is_whole: false,
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
    }

    pub(crate) fn set_manifest(&mut self, manifest: Option<Shape>) {
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

    /// Whether every segment is wanted.
    pub(crate) fn wants_all(&self) -> bool {
        self.wanted == (0..u64::MAX)
    }

    /// The segment to begin with.
    pub(crate) fn first_segment(&self) -> u64 {
        self.wanted.start
    }

    /// The place to begin with: that of the first segment, or of the highest part above it.
    pub(crate) fn first_index(&self) -> u64 {
        match self.manifest {
            Some(shape) => {
                let number = self.wanted.start / shape.segments_below(shape.levels);
                index_of_part(shape, PartId { level: shape.levels, number })
            }
            None => self.wanted.start,
        }
    }

    /// Where the places end that may be fetched of an object with this last segment; `None` if
    /// neither that nor the end of what is wanted is known.
    pub(crate) fn end_index(&self, last_segment: Option<u64>) -> Option<u64> {
        let wanted = (self.wanted.end < u64::MAX).then(|| self.wanted.end.saturating_sub(1));
        let last = last_segment.into_iter().chain(wanted).min()?;
        if last < self.wanted.start || self.wanted.is_empty() {
            return Some(self.first_index());
        }
        Some(self.index_of_segment(last).saturating_add(1))
    }

    pub(crate) fn part_of(&self, index: u64) -> Part {
        let Some(shape) = self.manifest else { return Part::Unit(Unit::segment(index)) };
        let mut level = shape.levels;
        let (mut number, mut place) = (index / places(shape, level), index % places(shape, level));
        while level > 0 && place > 0 {
            place -= 1;
            level -= 1;
            let size = places(shape, level);
            number = number * shape.digests_per_part() + place / size;
            place %= size;
        }
        match level {
            0 => Part::Unit(Unit::segment(number)),
            _ => Part::Manifest(PartId { level, number }),
        }
    }

    pub(crate) fn index_of(&self, part: Part) -> Option<u64> {
        match (part, self.manifest) {
            (Part::Unit(unit), _) => Some(self.index_of_segment(unit.chunk)),
            (Part::Manifest(id), Some(shape)) if id.level <= shape.levels => {
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

    /// The number among all that manifest parts of the next level list, and the level of what is
    /// listed: 0 for segments. `None` where a signature says what is right.
    pub(crate) fn listed_as(&self, part: Part) -> Option<(u8, u64)> {
        match (part, self.manifest?) {
            (Part::Unit(unit), _) => Some((0, unit.chunk)),
            (Part::Manifest(id), shape) if id.level < shape.levels => Some((id.level, id.number)),
            _ => None,
        }
    }

    /// The part of the manifest that lists this one; `None` where a signature says what is right.
    pub(crate) fn lister_of(&self, part: Part) -> Option<Part> {
        let (level, number) = self.listed_as(part)?;
        let number = number / self.manifest?.digests_per_part();
        Some(Part::Manifest(PartId { level: level + 1, number }))
    }

    /// Where the places end of all that is below a part of the manifest.
    pub(crate) fn end_of_part(&self, part: Part) -> Option<u64> {
        let (Part::Manifest(id), Some(shape)) = (part, self.manifest) else { return None };
        Some(self.index_of(part)?.saturating_add(places(shape, id.level)))
    }

    /// The segments at these places, which lie one after another.
    pub(crate) fn segments_at(&self, indices: &Range<u64>) -> Range<u64> {
        let segment = |index| match self.part_of(index) {
            Part::Unit(unit) => Some(unit.chunk),
            _ => None,
        };
        // Manifest parts precede what they list: a few places are none.
        let first = indices.clone().find_map(segment);
        let last = indices.clone().rev().find_map(segment);
        first.zip(last).map_or(0..0, |(first, last)| first..last + 1)
    }

    /// The parts of the manifest that list these segments, or list such parts.
    pub(crate) fn parts_above(&self, segments: &Range<u64>) -> impl Iterator<Item = Part> {
        let shape = self.manifest.filter(|_| !segments.is_empty());
        let (first, last) = (segments.start, segments.end.saturating_sub(1));
        shape.into_iter().flat_map(move |shape| {
            (1..=shape.levels).flat_map(move |level| {
                let below = shape.segments_below(level);
                let part = move |number| Part::Manifest(PartId { level, number });
                (first / below..=last / below).map(part)
            })
        })
    }

    /// The segments that are wanted of an object with this last segment.
    pub(crate) fn wanted_segments(&self, last_segment: Option<u64>) -> Range<u64> {
        let end = last_segment.map_or(self.wanted.end, |last| last.saturating_add(1));
        let end = end.min(self.wanted.end);
        self.wanted.start.min(end)..end
    }

    /// Whether `part` need not be fetched: its segments are there, or are not wanted.
    pub(crate) fn is_had(&self, part: Part, have: &SegmentSet, last: Option<u64>) -> bool {
        match (part, self.manifest) {
            (Part::Unit(unit), _) => {
                !self.wanted.contains(&unit.chunk) || have.contains(unit.chunk)
            }
            (Part::Manifest(id), Some(shape)) => {
                let segments = shape.segments_below(id.level);
                let first = id.number.saturating_mul(segments);
                let end = first.saturating_add(segments).min(self.wanted.end);
                let end = last.map_or(end, |last| end.min(last.saturating_add(1)));
                have.contains_all(first.max(self.wanted.start), end)
            }
            _ => false,
        }
    }

    /// What a name is the name of.
    pub(crate) fn part_of_name(&self, name: &[u8]) -> Option<Part> {
        if self.is_whole {
            return (name == self.prefix).then_some(Part::Unit(Unit::segment(0)));
        }
        let rest = name.strip_prefix(self.prefix.as_slice())?;
        if let Some(number) = tlv::segment(rest) {
            let part = self.mapping.part_of_number(number).map(Part::Manifest);
            return Some(part.unwrap_or(Part::Unit(Unit::segment(number))));
        }
        (1..).zip(&self.manifest_prefixes).find_map(|(level, (prefix, _))| {
            let number = tlv::segment(name.strip_prefix(prefix.as_slice())?)?;
            Some(Part::Manifest(PartId { level, number }))
        })
    }

    /// The value of the prefix and the segment number that name a part.
    pub(crate) fn interest_name(&self, part: Part) -> (&[u8], Option<u64>) {
        match part {
            Part::Unit(_) if self.is_whole => (&self.prefix, None),
            Part::Unit(unit) => (&self.prefix, Some(unit.chunk)),
            Part::Manifest(id) => {
                let (prefix, first) = &self.manifest_prefixes[usize::from(id.level) - 1];
                (prefix, Some(first.saturating_add(id.number)))
            }
            Part::Metadata => (&self.prefix, None),
        }
    }
}

/// Places that a full part of a level takes with all below it; 1 for level 0, which is a segment.
fn places(shape: Shape, level: u8) -> u64 {
    (0..level).fold(1, |below, _| 1 + shape.digests_per_part() * below)
}

/// The place of a part of the manifest, or, on level 0, of a segment.
fn index_of_part(shape: Shape, PartId { level, number }: PartId) -> u64 {
    let first = number.saturating_mul(shape.segments_below(level));
    // Before it come the segments before its own, the parts before these, and those above it.
    (1..=shape.levels).fold(first, |index, other| {
        let parts = first / shape.segments_below(other) + u64::from(other > level);
        index.saturating_add(parts)
    })
}

/// The name whose value is `prefix`, with a segment number after it if there is one.
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

    fn name_of(layout: &Layout, part: Part) -> Name {
        let (prefix, segment) = layout.interest_name(part);
        name_below(prefix, segment)
    }

    fn layout(manifest: Option<Shape>) -> Layout {
        mapped(NameMapping::Identity, manifest)
    }

    fn mapped(mapping: NameMapping, manifest: Option<Shape>) -> Layout {
        let name: Name = "/a/54=%01".parse().unwrap();
        let mut layout = Layout::new(name.as_view(), mapping);
        layout.set_manifest(manifest);
        layout
    }

    #[test]
    fn units_and_parts_are_one_to_one() {
        let shapes = [(1, 1), (3, 1), (248, 1), (1, 2), (3, 2), (20, 2)];
        let shapes = shapes.into_iter().map(|(per_part, levels)| Shape::new(per_part, levels));
        let hicn = "hicn:2001:db8::/32".parse().unwrap();
        let mappings = [NameMapping::Identity, hicn];
        let cases = shapes.chain([None]).flat_map(|shape| mappings.map(|mapping| (shape, mapping)));
        for (shape, mapping) in cases {
            let layout = mapped(mapping, shape);
            let mut segments = 0;
            let mut parts = [0; LEVELS_MAX as usize];
            for index in 0..1000 {
                let part = layout.part_of(index);
                assert_eq!(layout.index_of(part), Some(index), "{shape:?}");
                match part {
                    Part::Unit(Unit { chunk: segment, .. }) => {
                        assert_eq!(segment, segments);
                        assert_eq!(layout.end_index(Some(segment)), Some(index + 1));
                        segments += 1;
                        // Whatever lists it came before it.
                        let Some(shape) = shape else { continue };
                        for level in 1..=shape.levels {
                            let above = segment / shape.segments_below(level) + 1;
                            assert_eq!(parts[usize::from(level) - 1], above);
                        }
                    }
                    Part::Manifest(PartId { level, number }) => {
                        assert_eq!(number, parts[usize::from(level) - 1]);
                        parts[usize::from(level) - 1] += 1;
                    }
                    Part::Metadata => panic!("metadata has no unit"),
                }
                let name = name_of(&layout, part);
                assert_eq!(layout.part_of_name(name.value()), Some(part));
            }
        }
    }

    #[test]
    fn a_range_begins_with_the_parts_above_it() {
        let mut layout = layout(Shape::new(3, 2));
        layout.set_wanted(14..16);
        let have = SegmentSet::new();
        let from = layout.first_index();
        let end = layout.end_index(Some(100)).unwrap();
        let wanted = (from..end).map(|index| layout.part_of(index));
        let wanted: Vec<_> = wanted.filter(|part| !layout.is_had(*part, &have, None)).collect();
        let (top, leaf) = (PartId { level: 2, number: 1 }, PartId::leaf);
        let segment = |number| Part::Unit(Unit::segment(number));
        let parts = [Part::Manifest(top), Part::Manifest(leaf(4)), segment(14)];
        assert_eq!(wanted, [&parts[..], &[Part::Manifest(leaf(5)), segment(15)]].concat());
    }

    #[test]
    fn other_names_are_no_parts() {
        let layout = layout(Shape::new(3, 1));
        for name in ["/a/54=%01", "/a/54=%01/8=%00", "/a/54=%02/50=%00", "/a/54=%01/50=%00/b", "/"]
        {
            let name: Name = name.parse().unwrap();
            assert_eq!(layout.part_of_name(name.value()), None, "{name}");
        }
    }

    #[test]
    fn manifest_parts_of_what_is_there_are_not_fetched() {
        let layout = layout(Shape::new(3, 1));
        let mut have = SegmentSet::new();
        for segment in [0, 1, 2, 3] {
            have.insert(segment);
        }
        assert!(layout.is_had(Part::Manifest(PartId::leaf(0)), &have, None));
        assert!(!layout.is_had(Part::Manifest(PartId::leaf(1)), &have, None));
        assert!(layout.is_had(Part::Manifest(PartId::leaf(1)), &have, Some(3)));
        assert!(layout.is_had(Part::Unit(Unit::segment(3)), &have, None));
        assert!(!layout.is_had(Part::Unit(Unit::segment(4)), &have, None));
    }

    #[test]
    fn a_whole_object_is_its_own_segment() {
        let name: Name = "/a/b".parse().unwrap();
        let mut layout = Layout::new(name.as_view(), NameMapping::Identity);
        layout.set_whole();
        assert_eq!(layout.part_of_name(name.value()), Some(Part::Unit(Unit::segment(0))));
        assert_eq!(name_of(&layout, Part::Unit(Unit::segment(0))), name);
    }
}
