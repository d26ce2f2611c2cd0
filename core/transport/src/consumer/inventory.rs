//! What a target consists of: the names of its packets, which of them have been received, and its
//! end.

use weir_security::manifest::PartId;
use weir_wire::Name;

use super::layout::Layout;
use super::naming::Naming;
use super::ranges::Ranges;
use super::target::{PacketId, RangeId, Target};
use crate::mapping::{MappingError, NameMapping};
use crate::metadata::Metadata;
use crate::segment_set::SegmentSet;

/// What to do with the next packet in the fetch order.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Fetch,
    /// It has been received, or is not wanted.
    Skip,
    /// It was received before the scoreboard started. The reader has it or will get it.
    AlreadyReceived,
}

#[derive(Debug)]
pub(super) struct Inventory {
    pub(super) naming: Naming,
    /// The metadata, once the object is found.
    pub(super) metadata: Option<Metadata>,
    /// Segments that the driver had at the start, or that have been verified.
    pub(super) received: SegmentSet,
    /// Whether verified segments are recorded. They are not if only a part of the object is
    /// fetched.
    tracks_received: bool,
    last_segment: Option<u64>,
    last_is_from_segment: bool,
    /// Packets received before the scoreboard started.
    first_manifest_part: Option<PartId>,
    has_first_segment: bool,
}

impl Inventory {
    pub(super) fn new(target: &Target, mapping: NameMapping, seed: u64) -> Self {
        let naming = match target {
            Target::Sequence => Naming::Sequence(Ranges::new(seed)),
            Target::Range { versioned, segments } => {
                let mut layout = Layout::new(versioned.as_view(), mapping);
                layout.set_plain_numbers();
                layout.set_wanted(segments.clone());
                Naming::Object(layout)
            }
            _ => Naming::Object(Layout::new(Name::new().as_view(), mapping)),
        };
        Self {
            naming,
            metadata: None,
            received: SegmentSet::new(),
            tracks_received: !matches!(target, Target::Range { .. }),
            last_segment: None,
            last_is_from_segment: false,
            first_manifest_part: None,
            has_first_segment: false,
        }
    }

    /// The layout of an object; a sequence has none.
    pub(super) fn layout(&self) -> Option<&Layout> {
        match &self.naming {
            Naming::Object(layout) => Some(layout),
            Naming::Sequence(_) => None,
        }
    }

    pub(super) fn layout_mut(&mut self) -> &mut Layout {
        match &mut self.naming {
            Naming::Object(layout) => layout,
            Naming::Sequence(_) => unreachable!("a sequence has no layout"),
        }
    }

    /// Whether it is the stream of an hICN producer.
    pub(super) fn is_stream(&self) -> bool {
        self.layout().is_some_and(|layout| layout.stream_address().is_some())
    }

    /// Whether the packet of this index is wanted. Those of a cancelled range are not.
    pub(super) fn is_wanted(&self, index: u64) -> bool {
        match &self.naming {
            Naming::Sequence(ranges) => ranges.is_wanted(index),
            Naming::Object(_) => true,
        }
    }

    /// The packet of this index, and its range.
    pub(super) fn packet_at(&self, index: u64) -> (RangeId, PacketId) {
        self.naming.packet_at(index)
    }

    /// The version is known.
    pub(super) fn set_metadata(&mut self, metadata: Metadata, is_whole: bool) {
        let layout = self.layout_mut();
        if is_whole {
            layout.set_whole();
        }
        layout.set_version(metadata.versioned.as_view());
        self.metadata = Some(metadata);
    }

    /// The first part of the manifest arrived before the scoreboard started.
    pub(super) fn set_first_manifest_part(&mut self, id: PartId) {
        self.first_manifest_part = Some(id);
    }

    /// The first segment arrived before the scoreboard started. Returns its index if it is needed.
    pub(super) fn take_first_segment(&mut self) -> Option<u64> {
        let layout = self.layout()?;
        let first = layout.first_segment();
        if self.received.contains(first) {
            return None;
        }
        let index = layout.index_of(PacketId::Segment(first));
        self.has_first_segment = true;
        index
    }

    pub(super) fn add_verified(&mut self, segment: u64) {
        if self.tracks_received && self.layout().is_some_and(Layout::wants_all) {
            self.received.insert(segment);
        }
    }

    pub(super) fn last_segment(&self) -> Option<u64> {
        self.last_segment
    }

    /// Whether an unverified segment set the last segment number.
    pub(super) fn last_is_from_segment(&self) -> bool {
        self.last_is_from_segment
    }

    /// Sets the number of the last segment. Returns whether it is new.
    pub(super) fn set_last(
        &mut self,
        last: u64,
        is_from_segment: bool,
        mapping: NameMapping,
    ) -> Result<bool, MappingError> {
        self.last_is_from_segment = is_from_segment;
        if self.last_segment == Some(last) {
            return Ok(false);
        }
        mapping.check_last(last)?;
        self.last_segment = Some(last);
        Ok(true)
    }

    /// Discards the last segment number that a segment stated.
    pub(super) fn forget_last(&mut self) {
        self.last_is_from_segment = false;
        self.last_segment = None;
    }

    /// One past the last index to fetch; `None` for a sequence, or while unknown.
    pub(super) fn end_index(&self) -> Option<u64> {
        self.layout()?.end_index(self.last_segment)
    }

    /// Whether a packet of an object has been received or is not wanted.
    pub(super) fn is_received(&self, index: u64) -> bool {
        self.layout().is_some_and(|layout| {
            layout.is_received(layout.packet_at(index), &self.received, self.last_segment)
        })
    }

    /// What to do with the packet of this index.
    pub(super) fn need(&self, index: u64) -> Need {
        let Some(layout) = self.layout() else { return Need::Fetch };
        let packet = layout.packet_at(index);
        match packet {
            PacketId::Manifest(id) if self.first_manifest_part == Some(id) => Need::Skip,
            PacketId::Segment(segment)
                if self.has_first_segment && segment == layout.first_segment() =>
            {
                Need::AlreadyReceived
            }
            _ if layout.is_received(packet, &self.received, self.last_segment) => Need::Skip,
            _ => Need::Fetch,
        }
    }

    /// The Content digest of a sole segment, as verified metadata states it.
    pub(super) fn digest_of_sole(&self, packet: PacketId, last: Option<u64>) -> Option<[u8; 32]> {
        let metadata = self.metadata.as_ref()?;
        let is_sole =
            packet == PacketId::Segment(0) && (metadata.last_segment, last) == (Some(0), Some(0));
        metadata.content_digest.filter(|_| is_sole)
    }
}
