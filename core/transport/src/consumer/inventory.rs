//! What a target consists of: the names of its packets, which of them are here, and where it ends.

use weir_security::manifest::PartId;
use weir_wire::Name;

use super::layout::Layout;
use super::naming::Naming;
use super::ranges::Ranges;
use super::target::{PacketId, RangeId, Target};
use crate::mapping::{MappingError, NameMapping};
use crate::metadata::Metadata;
use crate::segment_set::SegmentSet;

/// What to do about a packet that is next in the fetch order.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Fetch,
    /// It is here already, or not wanted.
    Skip,
    /// It came before the scoreboard took over, and is with the reader or will be.
    AlreadyReceived,
}

#[derive(Debug)]
pub(super) struct Inventory {
    pub(super) naming: Naming,
    /// What is known of the object, once it is found.
    pub(super) metadata: Option<Metadata>,
    /// Segments that were here at the start or have been verified.
    pub(super) received: SegmentSet,
    /// Whether verified segments are added to those: not of an object that is fetched in part.
    tracks_received: bool,
    last_segment: Option<u64>,
    last_is_from_segment: bool,
    /// These came before the scoreboard took over.
    first_manifest_part: Option<PartId>,
    has_first_segment: bool,
}

impl Inventory {
    pub(super) fn new(target: &Target, mapping: NameMapping, seed: u64) -> Self {
        let naming = match target {
            Target::Sequence => Naming::Sequence(Ranges::new(seed)),
            Target::Range { versioned, segments } => {
                let mut layout = Layout::new(versioned.as_view(), mapping);
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

    /// Whether the packets of this index are wanted: not of a range that was given up.
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

    /// The first part of a manifest came before the scoreboard took over.
    pub(super) fn set_first_manifest_part(&mut self, id: PartId) {
        self.first_manifest_part = Some(id);
    }

    /// The first segment came before the scoreboard took over. Returns its index if it is needed.
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

    /// Whether a segment that is not verified said which one is the last.
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

    /// What a segment said of the last one does not count any more.
    pub(super) fn forget_last(&mut self) {
        self.last_is_from_segment = false;
        self.last_segment = None;
    }

    /// The end of the indices to fetch; `None` of a sequence, and while it is not known.
    pub(super) fn end_index(&self) -> Option<u64> {
        self.layout()?.end_index(self.last_segment)
    }

    /// Whether a packet of an object is here or not wanted.
    pub(super) fn is_received(&self, index: u64) -> bool {
        self.layout().is_some_and(|layout| {
            layout.is_received(layout.packet_at(index), &self.received, self.last_segment)
        })
    }

    /// What to do about the packet of this index.
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

    /// The digest of the Content of the only segment there is, as verified metadata states it.
    pub(super) fn digest_of_sole(&self, packet: PacketId, last: Option<u64>) -> Option<[u8; 32]> {
        let metadata = self.metadata.as_ref()?;
        let is_sole =
            packet == PacketId::Segment(0) && (metadata.last_segment, last) == (Some(0), Some(0));
        metadata.content_digest.filter(|_| is_sole)
    }
}
