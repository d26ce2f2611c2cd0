//! Messages between routers, producers and the controller: the bodies of the REST interface.
//!
//! Names are URIs. Sets of segments are lists of `[first, last]`. Quantities are integers with
//! their unit in the key. The controller refuses a request with an unknown field; clients ignore
//! unknown fields in answers. So a controller may be newer than its agents.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use weir_wire::Name;

use crate::plan::Share;
use crate::segments::Segments;

/// The state of a router. An agent sends it at its start, after each change, and every few seconds
/// as a sign of life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RouterReport {
    /// FaceUris under which other routers reach this router, the best first.
    pub uris: Vec<String>,
    /// Capacity of the store in memory, in bytes.
    pub store_bytes: u64,
    /// Capacity of the store on disks, in bytes.
    #[serde(default)]
    pub disk_bytes: u64,
    /// Faces to other routers.
    #[serde(default)]
    pub faces: Vec<FaceReport>,
    /// Prefixes that applications have registered at this router: producers are reached here.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub prefixes: Vec<Name>,
    /// The generation of the [`Configuration`] that is completely set up; 0 without one.
    #[serde(default)]
    pub generation: u64,
    /// What could not be set up. The agent tries it again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<SetupProblem>,
    /// A random number that each agent draws at its start. It distinguishes two routers with one
    /// name. 0: not reported, by older agents or to older controllers.
    #[serde(default, skip_serializing_if = "is_not_told")]
    pub instance: u64,
    /// How its store is used, for people. Not reported by older agents or to older controllers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_use: Option<StoreUse>,
}

/// How a router's store is used. No decision depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StoreUse {
    /// Interests that the store could answer, since the router started.
    pub hits: u64,
    /// Interests that it could not answer.
    pub misses: u64,
    /// Memory in use, in bytes.
    pub memory_bytes: u64,
    /// Bytes on the disks.
    #[serde(default)]
    pub disk_bytes: u64,
}

fn is_not_told(number: &u64) -> bool {
    *number == 0
}

impl RouterReport {
    /// The generation by whose routes the router forwards: none of its older routes is left. A face
    /// or store rules may still be missing.
    pub(crate) fn routed_generation(&self) -> u64 {
        let is_about_routes = |problem: &SetupProblem| match problem.part {
            SetupPart::Routes | SetupPart::Management => true,
            SetupPart::Rules | SetupPart::Faces | SetupPart::Strategies => false,
        };
        if self.problems.iter().any(is_about_routes) {
            self.generation
        } else {
            self.latest_generation()
        }
    }

    /// The highest generation that the router has received.
    pub(crate) fn latest_generation(&self) -> u64 {
        let of_problems = self.problems.iter().map(|problem| problem.generation);
        of_problems.fold(self.generation, u64::max)
    }
}

/// A part of a [`Configuration`] that a router could not set up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SetupProblem {
    /// The generation of that configuration. If the report has the same generation, the
    /// configuration counts as set up in spite of this problem.
    pub generation: u64,
    /// The part that is not set up.
    pub part: SetupPart,
    /// The cause, for people.
    pub text: String,
}

/// A part of a [`Configuration`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SetupPart {
    /// Rules of the store.
    Rules,
    /// Faces to other routers.
    Faces,
    /// Routes.
    Routes,
    /// Strategies that send Interests for parts of objects to several routers.
    Strategies,
    /// Any of these: the management of the router does not answer.
    Management,
}

/// A face of a router.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FaceReport {
    /// The FaceUri of the other end. The face is a link if another router reports this URI.
    pub remote: String,
    /// Round-trip time to the other end in nanoseconds, if it is known.
    #[serde(default)]
    pub round_trip_ns: Option<u64>,
    /// Capacity in bits per second, if the operator has set it.
    #[serde(default)]
    pub rate_bps: Option<u64>,
    /// Recent traffic in both directions, in bits per second.
    #[serde(default)]
    pub load_bps: u64,
}

/// The answer to a [`RouterReport`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Registered {
    /// The generation of the [`Configuration`] that the router must set up; 0 if there is none yet.
    pub generation: u64,
    /// The update that the controller expects next.
    pub expected: UpdateNumber,
    /// A router that does not report for this many nanoseconds counts as lost.
    pub timeout_ns: u64,
}

/// The position of an [`Update`] in the sequence of a router's updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UpdateNumber {
    /// A new generation begins with an empty list of holdings and reports all of them again. 0
    /// before the first.
    pub generation: u64,
    /// Counts from 1 in each generation.
    pub number: u64,
}

/// Changes of a router's holdings (paper multipath-cache-management, Table 1: Update).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Update {
    /// Its position. Number 1 of a generation deletes the holdings of the generation before.
    #[serde(flatten)]
    pub at: UpdateNumber,
    /// The changes, at most one for each object and tier.
    pub changes: Vec<Change>,
}

/// A change of the segments that one tier of a store holds of one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The name of the segments without the segment number.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub object: Name,
    /// The tier of the store.
    pub tier: Tier,
    /// Segments that the tier holds now and did not hold before.
    #[serde(default, skip_serializing_if = "Segments::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<[u64; 2]>))]
    pub added: Segments,
    /// Segments that the tier held before and does not hold now.
    #[serde(default, skip_serializing_if = "Segments::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<[u64; 2]>))]
    pub removed: Segments,
}

/// A tier of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Memory.
    Memory,
    /// Disks.
    Disk,
}

/// A router has received Interests for an object that it does not hold, and requests a decision
/// (paper multipath-cache-management, Table 1: Forward).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Forward {
    /// The name of the segments without the segment number.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub object: Name,
}

/// The answer to a [`Forward`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Forwarded {
    /// The decision.
    pub decision: Decision,
    /// The generation of the router's [`Configuration`] that contains the decision; 0 if it has
    /// none.
    pub generation: u64,
}

/// The controller's decision about an object that a router lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// No producer has registered a file of this name. The router handles it as without a
    /// controller.
    Unknown,
    /// The file fits into the router's own store. The router handles it as without a controller.
    Small,
    /// No plan: no reachable store has space for the file, or its producer has registered a newer
    /// version of it.
    NoRoom,
    /// The file has a plan, and the router's configuration contains its parts.
    Planned,
}

/// Everything that a router must set up. It stays in force until one with a higher generation
/// arrives; routers refuse a lower one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Configuration {
    /// Its number. Plans use numbers of the same sequence, so generations have gaps.
    pub generation: u64,
    /// The generation of the configuration before it; 0 for the first.
    pub parent: u64,
    /// The routers that the other fields mention, with their addresses.
    pub peers: Vec<Peer>,
    /// Routes to prefixes.
    pub routes: Vec<RouteOrder>,
    /// Objects whose segments are requested from several routers.
    pub distributions: Vec<Distribution>,
    /// Rules of the store: what it keeps and what it refuses.
    pub rules: Vec<StoreRule>,
    /// Segments to fetch before a consumer requests them.
    pub prefetch: Vec<Prefetch>,
}

/// Another router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Peer {
    /// Its name.
    pub router: String,
    /// Its FaceUris, the best first. If a face to one of them exists, the router uses it.
    pub uris: Vec<String>,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RouteOrder {
    /// The prefix of the names.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub prefix: Name,
    /// The next hop, one of [`Configuration::peers`].
    pub router: String,
    /// Its cost. The route of lowest cost is used first.
    pub cost: u64,
}

/// Which routers have, or will have, which parts of an object (paper multipath-cache-management,
/// Algorithm 5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Distribution {
    /// The name of the segments without the segment number.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub object: Name,
    /// The parts in the order of segments, without overlap.
    pub parts: Vec<PartOrder>,
    /// Next hops for segments that are in no part, of [`Configuration::peers`]. If it is empty, the
    /// routes decide.
    #[serde(default)]
    pub spread: Vec<Share>,
}

/// One part of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PartOrder {
    /// The router to request it from, one of [`Configuration::peers`].
    pub router: String,
    /// The first segment.
    pub first: u64,
    /// The last segment.
    pub last: u64,
}

/// How a store treats segments of an object. If two rules cover a segment, the one with the shorter
/// range applies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StoreRule {
    /// The name of the segments without the segment number.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub object: Name,
    /// The first segment.
    pub first: u64,
    /// The last segment.
    pub last: u64,
    /// The treatment.
    pub retention: Retention,
}

/// How a store treats Data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Retention {
    /// It is kept and never evicted, up to this much memory.
    Keep {
        /// Bytes of memory.
        bytes_max: u64,
    },
    /// It is not stored.
    Refuse,
}

/// Segments that a router fetches before a consumer requests them (paper
/// multipath-cache-management, Algorithm 6).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Prefetch {
    /// The name of the segments without the segment number.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub object: Name,
    /// The first segment.
    pub first: u64,
    /// The last segment.
    pub last: u64,
}

/// The body of every answer that reports an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Refusal {
    /// The error and what to do next, for people.
    pub error: String,
    /// After a refused [`Update`]: the update that the controller expects. If this is another one,
    /// the router must begin a new generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<UpdateNumber>,
}
