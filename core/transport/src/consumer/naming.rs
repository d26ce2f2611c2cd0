//! What the units of a target are called.

use alloc::vec::Vec;

use weir_security::manifest::{LEVELS_MAX, PartId};
use weir_wire::Name;

use super::layout::{Layout, name_below};
use super::pieces::Pieces;
use super::target::{Part, PieceId};

/// The place of metadata, which has none in the order of units.
pub(crate) const METADATA_INDEX: u64 = u64::MAX;
/// The places of the first part of each level of a manifest whose shape is not known yet end before
/// that of metadata.
const PROBES_FROM: u64 = METADATA_INDEX - LEVELS_MAX as u64;

/// The place of the first part of a level while the shape of the manifest is not known.
pub(crate) fn probe_index(level: u8) -> u64 {
    METADATA_INDEX - u64::from(level)
}

/// Whether the place is one of those.
pub(crate) fn is_probe(index: u64) -> bool {
    (PROBES_FROM..METADATA_INDEX).contains(&index)
}

/// Names of units by their place in the order in which they are wanted.
#[derive(Debug)]
pub(crate) enum Naming {
    Object(Layout),
    Sequence(Pieces),
}

impl Naming {
    /// What the unit `index` is.
    pub(crate) fn part_of(&self, index: u64) -> (PieceId, Part) {
        match self {
            _ if index == METADATA_INDEX => (PieceId(0), Part::Metadata),
            _ if is_probe(index) => {
                let level = (METADATA_INDEX - index) as u8;
                (PieceId(0), Part::Manifest(PartId { level, number: 0 }))
            }
            Self::Object(layout) => (PieceId(0), layout.part_of(index)),
            Self::Sequence(pieces) => pieces.part_of(index),
        }
    }

    /// The number of the segment that the unit `index` of an object is.
    pub(crate) fn segment_of(&self, index: u64) -> Option<u64> {
        match (self, self.part_of(index).1) {
            (Self::Object(layout), Part::Unit(unit)) if !layout.is_whole() => Some(unit.chunk),
            _ => None,
        }
    }

    /// The value of the prefix and the segment number that name the unit `index`.
    pub(crate) fn interest_name(&self, index: u64) -> (&[u8], Option<u64>) {
        match self {
            Self::Object(layout) => layout.interest_name(layout.part_of(index)),
            Self::Sequence(pieces) => pieces.interest_name(index),
        }
    }

    /// The name of the unit `index`.
    pub(crate) fn name_of(&self, index: u64) -> Name {
        let (prefix, segment) = self.interest_name(index);
        name_below(prefix, segment)
    }

    /// Replaces `found` by the places of the units that have this name.
    pub(crate) fn find(&self, name: &[u8], found: &mut Vec<u64>) {
        found.clear();
        match self {
            Self::Object(layout) => {
                let part = layout.part_of_name(name);
                found.extend(part.and_then(|part| layout.index_of(part)));
            }
            Self::Sequence(pieces) => pieces.find(name, found),
        }
    }
}
