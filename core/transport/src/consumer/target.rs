//! What is fetched, and what it is made of.

use core::ops::Range;

use weir_security::manifest::PartId;
use weir_wire::Name;

use crate::metadata::{METADATA_KEYWORD, Metadata};

/// What to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The latest version of an object, found by its RDR metadata.
    Latest {
        object: Name,
        /// Whether metadata from a router's store will do when no producer answers.
        allow_stored: bool,
    },
    /// The segments right below a name.
    Version {
        /// The name, usually with a Version component at its end.
        versioned: Name,
    },
    /// The version that this metadata, verified before, names.
    KnownMetadata { metadata: Metadata },
    /// Whatever a router or producer has below a name, found with CanBePrefix: an object without
    /// metadata, or one Data that is the whole object.
    Prefix { name: Name },
    /// Some of the segments right below a name.
    Range {
        versioned: Name,
        /// Which. An end of `u64::MAX` is none: the object may grow for ever.
        segments: Range<u64>,
    },
    /// Ranges that come with [`ConsumerInput::Append`](super::ConsumerInput::Append), one after
    /// another within one window. Several may have the same name at one time; one Data answers all
    /// of them.
    Sequence,
}

impl Target {
    /// The name that is asked for; the empty one for a sequence.
    pub(crate) fn name(&self) -> Name {
        match self {
            Self::Latest { object: name, .. }
            | Self::Version { versioned: name }
            | Self::Range { versioned: name, .. }
            | Self::Prefix { name } => name.clone(),
            Self::KnownMetadata { metadata } => metadata.versioned.clone(),
            Self::Sequence => Name::new(),
        }
    }

    /// What the names of all that is asked for lie below, or are.
    pub fn prefixes(&self) -> impl Iterator<Item = Name> {
        let metadata =
            self.object().map(|mut object| object.append_keyword(METADATA_KEYWORD).clone());
        [Some(self.name()), metadata].into_iter().flatten()
    }

    /// The name of the object whose metadata tell of its versions, if it is one that has them.
    pub(crate) fn object(&self) -> Option<Name> {
        match self {
            Self::Latest { object, .. } => Some(object.clone()),
            Self::KnownMetadata { metadata } => {
                let versioned = metadata.versioned.as_view();
                versioned.last()?.as_version()?;
                Some(versioned.parent().to_name())
            }
            _ => None,
        }
    }
}

/// The driver's number of a range of a sequence.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RangeId(pub u64);

/// One packet of what is fetched.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum PacketId {
    /// The metadata that named the version.
    Metadata,
    /// A part of the digest manifest.
    Manifest(PartId),
    /// A segment, by its number; 0 for one Data that is a whole object or range.
    Segment(u64),
}
