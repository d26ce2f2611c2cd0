//! What is fetched, and what its units are called.

use alloc::vec::Vec;
use core::ops::Range;

use weir_wire::Name;

use super::layout::Layout;
use super::pieces::Pieces;

/// What to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The latest version of an object, found by its RDR metadata.
    Latest {
        /// Name of the object.
        object: Name,
        /// Whether metadata from a router's store will do when no producer answers.
        allow_stored: bool,
    },
    /// The segments right below a name.
    Version {
        /// The name, usually with a Version component at its end.
        versioned: Name,
    },
    /// Whatever a router or producer has below a name, found with CanBePrefix: an object without
    /// metadata, or one Data that is the whole object.
    Prefix {
        /// The name.
        name: Name,
    },
    /// Some of the segments right below a name.
    Range {
        /// The name.
        versioned: Name,
        /// Which. An end of `u64::MAX` is none: the object may grow for ever.
        segments: Range<u64>,
    },
    /// Pieces that come with [`ConsumerInput::Append`](super::ConsumerInput::Append), one after
    /// another within one window. Several may have the same name at one time; one Data answers all
    /// of them.
    Sequence,
}

impl Target {
    /// The name that is asked for; the empty one for a sequence.
    pub fn name(&self) -> Name {
        match self {
            Self::Latest { object: name, .. }
            | Self::Version { versioned: name }
            | Self::Range { versioned: name, .. }
            | Self::Prefix { name } => name.clone(),
            Self::Sequence => Name::new(),
        }
    }
}

/// The driver's number of a piece of a sequence.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PieceId(pub u64);

/// What is asked for with one Interest. A segment is a chunk of one unit.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Unit {
    /// The chunk's number.
    pub chunk: u64,
    /// The unit's place in it.
    pub offset: u32,
}

impl Unit {
    /// The one unit of a segment.
    pub const fn segment(number: u64) -> Self {
        Self { chunk: number, offset: 0 }
    }
}

/// What a packet is a part of.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The metadata that named the version.
    Metadata,
    /// A part of the digest manifest, by number.
    Manifest(u64),
    /// A unit of the object.
    Unit(Unit),
}

/// The place of metadata, which has none in the order of units.
pub(crate) const METADATA_INDEX: u64 = u64::MAX;

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
            Self::Object(layout) => (PieceId(0), layout.part_of(index)),
            Self::Sequence(pieces) => pieces.part_of(index),
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
        super::layout::name_below(prefix, segment)
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
