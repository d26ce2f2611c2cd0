//! Files that producers have.

// What derived schemas name.
#[cfg(feature = "openapi")]
use alloc::string::String;
use alloc::string::ToString;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use weir_wire::Name;

/// Octets of memory that a packet takes in a store beside its own: an entry, a name node, and what
/// its block is larger. Rather too many than too few: a part that is larger than planned does not
/// stay whole.
const STORE_OVERHEAD_BYTES: u64 = 512;
/// Blocks have sizes an eighth apart.
const BLOCK_SHARE: u64 = 8;

/// A file: an object that a producer serves in numbered segments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct File {
    /// The name of its segments without the segment number, with the version.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: Name,
    /// How many segments it has: 0 to one less.
    pub segments: u64,
    /// Octets of its content.
    pub size_bytes: u64,
    /// Octets of its largest Data packet.
    pub packet_bytes: u64,
    /// What those who read it fetch beside its segments: its digest manifest, a list for each
    /// level.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub manifest: Vec<List>,
}

/// Packets that are numbered like segments and list digests of those of a file. `multipath` asks
/// for number k of a list where it asks for segment k.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct List {
    /// The name of the packets without their number: the file's, and what comes before the number.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: Name,
    /// How many there are: 0 to one less.
    pub packets: u64,
}

impl File {
    /// Segments that a file may have at most.
    const SEGMENTS_MAX: u64 = 1 << 48;
    /// Lists that it may have at most.
    const LISTS_MAX: usize = 4;
    /// Octets of a name as text, at most: databases have names as keys.
    const NAME_BYTES_MAX: usize = 2000;
    /// Octets that a packet has at most (NDN packet format, by convention of NFD).
    const PACKET_BYTES_MAX: u64 = 8800;

    /// Whether there can be such a file.
    pub fn is_valid(&self) -> bool {
        let name = self.name.as_view();
        // Each lists several packets of the file or of the list before.
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

    /// Whether another one is the same, but that it has a manifest and this has none.
    pub(crate) fn lacks_manifest_of(&self, other: &Self) -> bool {
        self.manifest.is_empty() && *self == Self { manifest: Vec::new(), ..other.clone() }
    }

    /// Octets of memory that its manifest takes in a store, at most.
    pub(crate) fn manifest_bytes(&self) -> u64 {
        let packets: u64 = self.manifest.iter().map(|list| list.packets).sum();
        packets.saturating_mul(self.stored_bytes_per_segment())
    }

    /// Octets of memory that one of its segments takes in a store, at most.
    pub(crate) fn stored_bytes_per_segment(&self) -> u64 {
        self.packet_bytes + self.packet_bytes / BLOCK_SHARE + STORE_OVERHEAD_BYTES
    }

    /// Octets of memory that it takes in a store as a whole, at most.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.segments.saturating_mul(self.stored_bytes_per_segment())
    }
}
