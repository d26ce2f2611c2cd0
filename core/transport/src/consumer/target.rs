//! What is fetched, and its packets.

use core::ops::Range;

use weir_security::manifest::PartId;
use weir_wire::{Name, NameView};

use crate::mapping::NameMapping;
use crate::metadata::Metadata;

/// A name that is an hICN address denotes the stream of an hICN producer, except in a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The latest version of an object, found by its RDR metadata.
    Latest {
        object: Name,
        /// Whether metadata from a router's store are acceptable when no producer answers.
        allow_stored: bool,
    },
    /// The segments right below a name.
    Version {
        /// The name, usually ending in a Version component.
        versioned: Name,
    },
    /// The version named by these metadata, which were verified earlier.
    KnownMetadata { metadata: Metadata },
    /// Any Data below a name, found with CanBePrefix: an object without metadata, or one Data that
    /// is the whole object.
    Prefix { name: Name },
    /// Some of the segments right below a name; of an hICN address, packets with these suffixes.
    Range {
        versioned: Name,
        /// Which segments. The end `u64::MAX` means no end: the object may grow forever.
        segments: Range<u64>,
    },
    /// Ranges that arrive with [`ConsumerInput::Append`](super::ConsumerInput::Append), fetched in
    /// order within one window. Several may have the same name; one Data answers all of them.
    Sequence,
}

impl Target {
    /// The target that is fetched: a stream of an hICN producer has no metadata, so nothing is
    /// discovered.
    pub(crate) fn resolved(self) -> Self {
        match self {
            Self::Latest { object: name, .. } | Self::Prefix { name }
                if NameMapping::stream_address(name.as_view()).is_some() =>
            {
                Self::Version { versioned: name }
            }
            other => other,
        }
    }

    /// The requested name; empty for a sequence.
    pub fn name(&self) -> Name {
        match self {
            Self::Latest { object: name, .. }
            | Self::Version { versioned: name }
            | Self::Range { versioned: name, .. }
            | Self::Prefix { name } => name.clone(),
            Self::KnownMetadata { metadata } => metadata.versioned.clone(),
            Self::Sequence => Name::new(),
        }
    }

    /// The prefixes in the network of all requested names. With hICN names, those of a version that
    /// is found later are not among them: [`NameMapping::version_prefix`].
    pub fn prefixes(&self, mapping: NameMapping) -> impl Iterator<Item = Name> {
        let name = match self {
            Self::Sequence => Name::new(),
            other => mapping.version_prefix(other.name().as_view()),
        };
        // For the name of a version, metadata may state the end (`end_claim.rs`).
        let object = match self {
            Self::Version { versioned } if mapping != NameMapping::Identity => {
                object_of(versioned.as_view())
            }
            other => other.object(),
        };
        let metadata = object.map(|object| mapping.metadata_interest(object.as_view()).0);
        [Some(name), metadata].into_iter().flatten()
    }

    /// The name of the object whose metadata name its versions, if the target has one.
    pub(crate) fn object(&self) -> Option<Name> {
        match self {
            Self::Latest { object, .. } => Some(object.clone()),
            Self::KnownMetadata { metadata } => object_of(metadata.versioned.as_view()),
            _ => None,
        }
    }
}

/// The object that a versioned name belongs to; `None` if the name has no version.
pub(super) fn object_of(versioned: NameView<'_>) -> Option<Name> {
    versioned.last()?.as_version()?;
    Some(versioned.parent().to_name())
}

/// The driver's number of a range of a sequence.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RangeId(pub u64);

/// One packet of a target.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum PacketId {
    /// The metadata that named the version.
    Metadata,
    /// A part of the digest manifest.
    Manifest(PartId),
    /// A segment, by its number; 0 for one Data that is a whole object or range.
    Segment(u64),
}
