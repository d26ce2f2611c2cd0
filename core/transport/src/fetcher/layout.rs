//! The order in which segments and manifest parts are fetched, and what they are called.

use alloc::vec::Vec;

use weir_security::manifest::MANIFEST_KEYWORD;
use weir_wire::tlv;
use weir_wire::{Name, NameView};

use crate::segment_set::SegmentSet;

/// What a packet is a part of.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The metadata that named the version.
    Metadata,
    /// A part of the digest manifest, by number.
    Manifest(u64),
    /// A segment of the object, by number.
    Segment(u64),
}

/// Numbers the packets of an object in the order in which they are wanted: the segments, and before
/// those that a manifest part lists, the part.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    prefix: Vec<u8>,
    manifest_prefix: Vec<u8>,
    digests_per_part: Option<u64>,
    /// The object is one Data of the prefix's name, without a segment number.
    is_whole: bool,
}

impl Layout {
    pub(crate) fn new(prefix: NameView<'_>) -> Self {
        let mut layout = Self {
            prefix: Vec::new(),
            manifest_prefix: Vec::new(),
            digests_per_part: None,
            is_whole: false,
        };
        layout.set_prefix(prefix);
        layout
    }

    pub(crate) fn set_prefix(&mut self, prefix: NameView<'_>) {
        let mut manifest = prefix.to_name();
        manifest.append_keyword(MANIFEST_KEYWORD);
        self.prefix = prefix.value().to_vec();
        self.manifest_prefix = manifest.value().to_vec();
    }

    pub(crate) fn set_digests_per_part(&mut self, count: Option<u64>) {
        debug_assert_ne!(count, Some(0));
        self.digests_per_part = count;
    }

    pub(crate) fn set_whole(&mut self) {
        self.is_whole = true;
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// How many units an object with this last segment has.
    pub(crate) fn units(&self, last_segment: u64) -> u64 {
        self.unit_of_segment(last_segment).saturating_add(1)
    }

    pub(crate) fn part_of(&self, unit: u64) -> Part {
        let Some(per_part) = self.digests_per_part else { return Part::Segment(unit) };
        let (group, place) = (unit / (per_part + 1), unit % (per_part + 1));
        match place {
            0 => Part::Manifest(group),
            _ => Part::Segment(group * per_part + place - 1),
        }
    }

    pub(crate) fn unit_of(&self, part: Part) -> Option<u64> {
        match part {
            Part::Metadata => None,
            Part::Segment(segment) => Some(self.unit_of_segment(segment)),
            Part::Manifest(number) => number.checked_mul(self.digests_per_part? + 1),
        }
    }

    fn unit_of_segment(&self, segment: u64) -> u64 {
        match self.digests_per_part {
            // One manifest part before every group, that of the segment included.
            Some(per_part) => segment.saturating_add(segment / per_part).saturating_add(1),
            None => segment,
        }
    }

    /// Whether `part` need not be fetched because the segments are there.
    pub(crate) fn is_had(&self, part: Part, have: &SegmentSet, last: Option<u64>) -> bool {
        match (part, self.digests_per_part) {
            (Part::Segment(segment), _) => have.contains(segment),
            (Part::Manifest(number), Some(per_part)) => {
                let first = number.saturating_mul(per_part);
                let end = first.saturating_add(per_part);
                let end = last.map_or(end, |last| end.min(last.saturating_add(1)));
                have.contains_all(first, end)
            }
            _ => false,
        }
    }

    /// What a name is the name of.
    pub(crate) fn part_of_name(&self, name: &[u8]) -> Option<Part> {
        if self.is_whole {
            return (name == self.prefix).then_some(Part::Segment(0));
        }
        let rest = name.strip_prefix(self.prefix.as_slice())?;
        if let Some(segment) = segment_number(rest) {
            return Some(Part::Segment(segment));
        }
        segment_number(name.strip_prefix(self.manifest_prefix.as_slice())?).map(Part::Manifest)
    }

    /// The value of the prefix and the segment number that name a part.
    pub(crate) fn interest_name(&self, part: Part) -> (&[u8], Option<u64>) {
        match part {
            Part::Segment(_) if self.is_whole => (&self.prefix, None),
            Part::Segment(segment) => (&self.prefix, Some(segment)),
            Part::Manifest(number) => (&self.manifest_prefix, Some(number)),
            Part::Metadata => (&self.prefix, None),
        }
    }

    pub(crate) fn name_of(&self, part: Part) -> Name {
        let (prefix, segment) = self.interest_name(part);
        let mut name = NameView::from_value(prefix).map(NameView::to_name).unwrap_or_default();
        if let Some(segment) = segment {
            name.append_segment(segment);
        }
        name
    }
}

/// The number if `components` is exactly one Segment component.
fn segment_number(components: &[u8]) -> Option<u64> {
    match *components {
        [typ, len, ref value @ ..]
            if u32::from(typ) == tlv::SEGMENT_NAME_COMPONENT && usize::from(len) == value.len() =>
        {
            tlv::nni(value)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(digests_per_part: Option<u64>) -> Layout {
        let name: Name = "/a/54=%01".parse().unwrap();
        let mut layout = Layout::new(name.as_view());
        layout.set_digests_per_part(digests_per_part);
        layout
    }

    #[test]
    fn units_and_parts_are_one_to_one() {
        for per_part in [None, Some(1), Some(3), Some(248)] {
            let layout = layout(per_part);
            let mut segments = 0;
            let mut parts = 0;
            for unit in 0..1000 {
                let part = layout.part_of(unit);
                assert_eq!(layout.unit_of(part), Some(unit));
                match part {
                    Part::Segment(segment) => {
                        assert_eq!(segment, segments);
                        assert!(per_part.is_none_or(|per_part| segment / per_part + 1 == parts));
                        assert_eq!(layout.units(segment), unit + 1);
                        segments += 1;
                    }
                    Part::Manifest(number) => {
                        assert_eq!(number, parts);
                        parts += 1;
                    }
                    Part::Metadata => panic!("metadata has no unit"),
                }
                let name = layout.name_of(part);
                assert_eq!(layout.part_of_name(name.value()), Some(part));
            }
        }
    }

    #[test]
    fn other_names_are_no_parts() {
        let layout = layout(Some(3));
        for name in ["/a/54=%01", "/a/54=%01/8=%00", "/a/54=%02/50=%00", "/a/54=%01/50=%00/b", "/"]
        {
            let name: Name = name.parse().unwrap();
            assert_eq!(layout.part_of_name(name.value()), None, "{name}");
        }
    }

    #[test]
    fn manifest_parts_of_what_is_there_are_not_fetched() {
        let layout = layout(Some(3));
        let mut have = SegmentSet::new();
        for segment in [0, 1, 2, 3] {
            have.insert(segment);
        }
        assert!(layout.is_had(Part::Manifest(0), &have, None));
        assert!(!layout.is_had(Part::Manifest(1), &have, None));
        assert!(layout.is_had(Part::Manifest(1), &have, Some(3)));
        assert!(layout.is_had(Part::Segment(3), &have, None));
        assert!(!layout.is_had(Part::Segment(4), &have, None));
    }

    #[test]
    fn a_whole_object_is_its_own_segment() {
        let name: Name = "/a/b".parse().unwrap();
        let mut layout = Layout::new(name.as_view());
        layout.set_whole();
        assert_eq!(layout.part_of_name(name.value()), Some(Part::Segment(0)));
        assert_eq!(layout.name_of(Part::Segment(0)), name);
    }
}
