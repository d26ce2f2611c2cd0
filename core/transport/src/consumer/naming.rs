//! Names of the packets of a target by their index, for an object or a sequence.

use alloc::vec::Vec;

use weir_security::manifest::{LEVELS_MAX, PartId};
use weir_wire::Name;

use super::layout::{Layout, name_below};
use super::ranges::Ranges;
use super::target::{PacketId, RangeId};

/// The index of metadata, which are not in the fetch order.
pub(crate) const METADATA_INDEX: u64 = u64::MAX;
/// While the manifest's shape is unknown, the first part of each level has an index between this
/// one and that of metadata.
const PROBES_FROM: u64 = METADATA_INDEX - LEVELS_MAX as u64;

/// The index of the first part of a level while the manifest's shape is unknown.
pub(crate) fn probe_index(level: u8) -> u64 {
    METADATA_INDEX - u64::from(level)
}

/// Whether an index belongs to such a part.
pub(crate) fn is_probe(index: u64) -> bool {
    (PROBES_FROM..METADATA_INDEX).contains(&index)
}

#[derive(Debug)]
pub(crate) enum Naming {
    Object(Layout),
    Sequence(Ranges),
}

impl Naming {
    /// The packet of this index, and its range; range 0 unless the target is a sequence.
    pub(crate) fn packet_at(&self, index: u64) -> (RangeId, PacketId) {
        match self {
            _ if index == METADATA_INDEX => (RangeId(0), PacketId::Metadata),
            _ if is_probe(index) => {
                let level = (METADATA_INDEX - index) as u8;
                (RangeId(0), PacketId::Manifest(PartId { level, number: 0 }))
            }
            Self::Object(layout) => (RangeId(0), layout.packet_at(index)),
            Self::Sequence(ranges) => ranges.packet_at(index),
        }
    }

    /// The segment number of this index, for a segment of an object.
    pub(crate) fn segment_of(&self, index: u64) -> Option<u64> {
        match (self, self.packet_at(index).1) {
            (Self::Object(layout), PacketId::Segment(segment)) if !layout.is_whole() => {
                Some(segment)
            }
            _ => None,
        }
    }

    /// The prefix and the segment number that name the packet of this index.
    pub(crate) fn interest_name(&self, index: u64) -> (&[u8], Option<u64>) {
        match self {
            Self::Object(layout) => layout.interest_name(layout.packet_at(index)),
            Self::Sequence(ranges) => ranges.interest_name(index),
        }
    }

    /// The name of the packet of this index.
    pub(crate) fn name_of(&self, index: u64) -> Name {
        let (prefix, segment) = self.interest_name(index);
        name_below(prefix, segment)
    }

    /// Sets `found` to the indices of the packets with this name.
    pub(crate) fn find(&self, name: &[u8], found: &mut Vec<u64>) {
        found.clear();
        match self {
            Self::Object(layout) => {
                let packet = layout.packet_of_name(name);
                found.extend(packet.and_then(|packet| layout.index_of(packet)));
            }
            Self::Sequence(ranges) => ranges.find(name, found),
        }
    }
}
