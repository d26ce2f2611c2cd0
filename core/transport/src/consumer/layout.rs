//! The order in which the units and manifest parts of one object are fetched, and what they are
//! called.

use alloc::vec::Vec;
use core::ops::Range;

use weir_security::manifest::MANIFEST_KEYWORD;
use weir_wire::tlv;
use weir_wire::{Name, NameView};

use super::target::{Part, Unit};
use crate::segment_set::SegmentSet;

/// Numbers the packets of an object in the order in which they are wanted: the segments, and before
/// those that a manifest part lists, the part.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    prefix: Vec<u8>,
    manifest_prefix: Vec<u8>,
    digests_per_part: Option<u64>,
    /// The object is one Data of the prefix's name, without a segment number.
    is_whole: bool,
    /// The segments that are wanted; others count, but are not fetched.
    wanted: Range<u64>,
}

impl Layout {
    pub(crate) fn new(prefix: NameView<'_>) -> Self {
        let mut layout = Self {
            prefix: Vec::new(),
            manifest_prefix: Vec::new(),
            digests_per_part: None,
            is_whole: false,
            wanted: 0..u64::MAX,
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

    /// The place to begin with: that of the first segment, or of the manifest part that lists it.
    pub(crate) fn first_index(&self) -> u64 {
        match self.digests_per_part {
            Some(per_part) => (self.wanted.start / per_part).saturating_mul(per_part + 1),
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
        let Some(per_part) = self.digests_per_part else { return Part::Unit(Unit::segment(index)) };
        let (group, place) = (index / (per_part + 1), index % (per_part + 1));
        match place {
            0 => Part::Manifest(group),
            _ => Part::Unit(Unit::segment(group * per_part + place - 1)),
        }
    }

    pub(crate) fn index_of(&self, part: Part) -> Option<u64> {
        match part {
            Part::Metadata => None,
            Part::Unit(unit) => Some(self.index_of_segment(unit.chunk)),
            Part::Manifest(number) => number.checked_mul(self.digests_per_part? + 1),
        }
    }

    fn index_of_segment(&self, segment: u64) -> u64 {
        match self.digests_per_part {
            // One manifest part before every group, that of the segment included.
            Some(per_part) => segment.saturating_add(segment / per_part).saturating_add(1),
            None => segment,
        }
    }

    /// Whether `part` need not be fetched: its segments are there, or are not wanted.
    pub(crate) fn is_had(&self, part: Part, have: &SegmentSet, last: Option<u64>) -> bool {
        match (part, self.digests_per_part) {
            (Part::Unit(unit), _) => {
                !self.wanted.contains(&unit.chunk) || have.contains(unit.chunk)
            }
            (Part::Manifest(number), Some(per_part)) => {
                let first = number.saturating_mul(per_part);
                let end = first.saturating_add(per_part).min(self.wanted.end);
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
        if let Some(segment) = tlv::segment(rest) {
            return Some(Part::Unit(Unit::segment(segment)));
        }
        tlv::segment(name.strip_prefix(self.manifest_prefix.as_slice())?).map(Part::Manifest)
    }

    /// The value of the prefix and the segment number that name a part.
    pub(crate) fn interest_name(&self, part: Part) -> (&[u8], Option<u64>) {
        match part {
            Part::Unit(_) if self.is_whole => (&self.prefix, None),
            Part::Unit(unit) => (&self.prefix, Some(unit.chunk)),
            Part::Manifest(number) => (&self.manifest_prefix, Some(number)),
            Part::Metadata => (&self.prefix, None),
        }
    }
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
                assert_eq!(layout.index_of(part), Some(unit));
                match part {
                    Part::Unit(Unit { chunk: segment, .. }) => {
                        assert_eq!(segment, segments);
                        assert!(per_part.is_none_or(|per_part| segment / per_part + 1 == parts));
                        assert_eq!(layout.end_index(Some(segment)), Some(unit + 1));
                        segments += 1;
                    }
                    Part::Manifest(number) => {
                        assert_eq!(number, parts);
                        parts += 1;
                    }
                    Part::Metadata => panic!("metadata has no unit"),
                }
                let name = name_of(&layout, part);
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
        assert!(layout.is_had(Part::Unit(Unit::segment(3)), &have, None));
        assert!(!layout.is_had(Part::Unit(Unit::segment(4)), &have, None));
    }

    #[test]
    fn a_whole_object_is_its_own_segment() {
        let name: Name = "/a/b".parse().unwrap();
        let mut layout = Layout::new(name.as_view());
        layout.set_whole();
        assert_eq!(layout.part_of_name(name.value()), Some(Part::Unit(Unit::segment(0))));
        assert_eq!(name_of(&layout, Part::Unit(Unit::segment(0))), name);
    }
}
