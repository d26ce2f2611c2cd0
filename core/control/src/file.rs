//! Files that producers have.

// What derived schemas name.
#[cfg(feature = "openapi")]
use alloc::{string::String, vec::Vec};

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
}

impl File {
    /// Segments that a file may have at most.
    pub(crate) const SEGMENTS_MAX: u64 = 1 << 48;
    /// Octets that a packet has at most (NDN packet format, by convention of NFD).
    pub(crate) const PACKET_BYTES_MAX: u64 = 8800;

    /// Octets of memory that one of its segments takes in a store, at most.
    pub(crate) fn stored_bytes_each(&self) -> u64 {
        self.packet_bytes + self.packet_bytes / BLOCK_SHARE + STORE_OVERHEAD_BYTES
    }

    /// Octets of memory that it takes in a store as a whole, at most.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.segments.saturating_mul(self.stored_bytes_each())
    }
}
