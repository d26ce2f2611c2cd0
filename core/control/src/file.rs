//! Files that producers register.

// Derived schemas use this name.
#[cfg(feature = "openapi")]
use alloc::string::String;
use alloc::string::ToString;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use weir_wire::Name;

/// Bytes of memory that a packet takes in a store in addition to its own: the entry, a name node,
/// and unused bytes of its block. An overestimate is safe; after an underestimate a store would
/// evict segments of its part.
const STORE_OVERHEAD_BYTES: u64 = 512;
/// Block sizes of a store grow in steps of an eighth, so a packet wastes at most this share of its
/// size.
const BLOCK_SHARE: u64 = 8;

/// A file: an object that a producer serves in numbered segments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct File {
    /// The name of its segments without the segment number; it includes the version.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: Name,
    /// The number of segments. They are numbered from 0.
    pub segments: u64,
    /// Size of the content in bytes.
    pub size_bytes: u64,
    /// Size of the largest Data packet in bytes.
    pub packet_bytes: u64,
    /// The digest manifest, which readers fetch in addition to the segments: one list for each
    /// level.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub manifest: Vec<List>,
}

/// Numbered packets that list the digests of a file's segments. Strategy `multipath` sends an
/// Interest for packet k of a list to the router that it uses for segment k.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct List {
    /// The name of the packets without their number. It begins with the file's name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: Name,
    /// The number of packets. They are numbered from 0.
    pub packets: u64,
}

impl File {
    /// Maximum number of segments.
    const SEGMENTS_MAX: u64 = 1 << 48;
    /// Maximum number of lists in a manifest.
    const LISTS_MAX: usize = 4;
    /// Maximum length of a name as text, in bytes. Databases use names as keys.
    const NAME_BYTES_MAX: usize = 2000;
    /// Maximum size of a packet in bytes (NDN packet format; NFD's convention).
    const PACKET_BYTES_MAX: u64 = 8800;

    /// Whether a file can have these properties. Producers and databases may report anything.
    pub fn is_valid(&self) -> bool {
        let name = self.name.as_view();
        // A list holds several digests in each packet. So it has no more packets than the file, and
        // its name is below the file's.
        let is_below = |list: &List| {
            list.name != self.name
                && name.is_prefix_of(list.name.as_view())
                && (1..=self.segments).contains(&list.packets)
        };
        !name.is_empty()
            && self.name.to_string().len() <= Self::NAME_BYTES_MAX
            && (1..=Self::SEGMENTS_MAX).contains(&self.segments)
            && (1..=Self::PACKET_BYTES_MAX).contains(&self.packet_bytes)
            && self.manifest.len() <= Self::LISTS_MAX
            && self.manifest.iter().all(is_below)
    }

    /// Whether `other` is this file with a manifest, and this one has none.
    pub(crate) fn lacks_manifest_of(&self, other: &Self) -> bool {
        self.manifest.is_empty() && *self == Self { manifest: Vec::new(), ..other.clone() }
    }

    /// Bytes of memory that the manifest takes in a store, at most.
    pub(crate) fn manifest_bytes(&self) -> u64 {
        let packets: u64 = self.manifest.iter().map(|list| list.packets).sum();
        packets.saturating_mul(self.stored_bytes_per_segment())
    }

    /// Bytes of memory that one segment takes in a store, at most.
    pub(crate) fn stored_bytes_per_segment(&self) -> u64 {
        self.packet_bytes + self.packet_bytes / BLOCK_SHARE + STORE_OVERHEAD_BYTES
    }

    /// Bytes of memory that all segments take in a store, at most.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.segments.saturating_mul(self.stored_bytes_per_segment())
    }
}
