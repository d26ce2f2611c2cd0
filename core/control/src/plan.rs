//! Plans: which router keeps which part of a file.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use weir_wire::Name;

/// A part of a file: consecutive segments that one router must keep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Part {
    pub router: String,
    /// The first segment.
    pub first: u64,
    /// The last segment.
    pub last: u64,
}

/// The number of segments in several parts.
pub(crate) fn segment_count(parts: &[Part]) -> u64 {
    parts.iter().map(|part| part.last - part.first + 1).sum()
}

/// A plan for one file. A plan never changes; a new plan replaces it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Plan {
    /// Its number, higher than that of every plan before it.
    pub number: u64,
    /// The number of the file's plan before this one; 0 if there was none.
    pub parent: u64,
    /// The name of the segments without the segment number.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub object: Name,
    /// Names of the routers whose applications have requested the file.
    pub consumers: Vec<String>,
    /// The parts in the order of segments. A plan without parts and without `spread` ends the plan
    /// before it. Segments that are in no part are cached as without a controller.
    pub parts: Vec<Part>,
    /// Next hops for segments that are in no part, used in turn. If it is empty, the routes decide.
    #[serde(default)]
    pub spread: Vec<Share>,
}

impl Plan {
    /// Whether it ends the plan before it and puts nothing in its place.
    pub fn is_end(&self) -> bool {
        self.parts.is_empty() && self.spread.is_empty()
    }

    /// Whether its parts are in order, do not overlap, and are within a file of this many segments.
    pub fn is_valid(&self, segments: u64) -> bool {
        let mut next = 0;
        self.parts.iter().all(|part| {
            let is_next = next <= part.first && part.first <= part.last && part.last < segments;
            next = part.last.saturating_add(1);
            is_next
        })
    }
}

/// A next hop and the share of the Interests that it gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Share {
    pub router: String,
    /// Its weight in proportion to the weights of the others, 1 to 1,000.
    pub weight: u64,
}
