//! Plans: who keeps which part of a file.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use weir_wire::Name;

/// Segments that a router is to keep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Part {
    pub router: String,
    /// The first segment.
    pub first: u64,
    /// The last.
    pub last: u64,
}

/// How many segments are in some parts.
pub(crate) fn segment_count(parts: &[Part]) -> u64 {
    parts.iter().map(|part| part.last - part.first + 1).sum()
}

/// A plan for one file. It never changes; another takes its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Plan {
    /// Its number: higher than that of every plan before.
    pub number: u64,
    /// The plan for this file before it, 0 if there was none.
    pub parent: u64,
    /// The name of the segments without the segment number.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub object: Name,
    /// Routers whose applications have asked for it, by name.
    pub consumers: Vec<String>,
    /// Who keeps what, by first segment. Empty in a plan that withdraws another one. What is in no
    /// part is kept as without a controller.
    pub parts: Vec<Part>,
    /// Who is asked for what is in no part, in turn; empty: the routes say it.
    #[serde(default)]
    pub spread: Vec<Share>,
}

impl Plan {
    /// Whether it withdraws the plan before it and puts nothing in its place.
    pub fn is_end(&self) -> bool {
        self.parts.is_empty() && self.spread.is_empty()
    }

    /// Whether there can be such a plan for a file of so many segments: its parts are in order, and
    /// of the file.
    pub fn is_valid(&self, segments: u64) -> bool {
        let mut next = 0;
        self.parts.iter().all(|part| {
            let is_next = next <= part.first && part.first <= part.last && part.last < segments;
            next = part.last.saturating_add(1);
            is_next
        })
    }
}

/// How much of an object a router is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Share {
    pub router: String,
    /// In proportion to the weights of the others, 1 to 1,000.
    pub weight: u64,
}
