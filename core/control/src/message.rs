//! What routers, producers and the controller say to each other: the bodies of the REST interface.
//!
//! Names are URIs, segments lists of `[first, last]`, quantities integers with their unit in the
//! name. What is not known by this version is refused in what a client sends, and passed over in
//! what it gets, so that controllers may be newer than agents.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use weir_wire::Name;

use crate::plan::Share;
use crate::segments::Segments;

/// A router tells of itself: at its start, when something of it has changed, and every few seconds
/// as a sign of life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RouterReport {
    /// FaceUris under which other routers reach it, the best first.
    pub uris: Vec<String>,
    /// Octets that its store may hold in memory.
    pub store_bytes: u64,
    /// Octets that its store has on disks.
    #[serde(default)]
    pub disk_bytes: u64,
    /// Its faces to other routers.
    #[serde(default)]
    pub faces: Vec<FaceReport>,
    /// Prefixes that applications at this router have registered: producers are reached here.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub prefixes: Vec<Name>,
    /// The generation of the [`Configuration`] that it is set up as; 0 if there is none.
    #[serde(default)]
    pub generation: u64,
    /// What of a configuration is not set up, and is tried again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<SetupProblem>,
    /// Drawn by each agent when it starts, so that two routers of one name are told apart; 0: not
    /// told, as by agents that know nothing of it, and to controllers that do not.
    #[serde(default, skip_serializing_if = "is_not_told")]
    pub instance: u64,
}

fn is_not_told(number: &u64) -> bool {
    *number == 0
}

impl RouterReport {
    /// The configuration by whose routes the router forwards: nothing of those before is left,
    /// though a face may be missing, or rules of the store.
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

    /// The highest generation that it has heard of.
    pub(crate) fn latest_generation(&self) -> u64 {
        let of_problems = self.problems.iter().map(|problem| problem.generation);
        of_problems.fold(self.generation, u64::max)
    }
}

/// Something of a [`Configuration`] that a router has not set up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SetupProblem {
    /// The configuration's number. That of the report is as high if the router counts as set up
    /// all the same.
    pub generation: u64,
    /// What is not set up.
    pub part: SetupPart,
    /// What is wrong, for people.
    pub text: String,
}

/// A part of a [`Configuration`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SetupPart {
    /// What the store keeps and refuses.
    Rules,
    /// Faces to other routers.
    Faces,
    /// Routes.
    Routes,
    /// How the parts of objects are asked for.
    Strategies,
    /// Any of these: the router's management does not answer.
    Management,
}

/// A face of a router.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FaceReport {
    /// The FaceUri of its other end. It leads to a router if that one reports this URI.
    pub remote: String,
    /// Round-trip time to the other end in nanoseconds, if it is known.
    #[serde(default)]
    pub round_trip_ns: Option<u64>,
    /// What it carries at most, in bits per second, if it is known.
    #[serde(default)]
    pub rate_bps: Option<u64>,
    /// What it has sent and received lately, in bits per second.
    #[serde(default)]
    pub load_bps: u64,
}

/// The answer to a [`RouterReport`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Registered {
    /// The [`Configuration`] that the router is to have; 0 if there is none yet.
    pub generation: u64,
    /// The update that is expected next.
    pub expected: UpdateNumber,
    /// Nanoseconds after which a router that says nothing counts as gone.
    pub timeout_ns: u64,
}

/// The place of an [`Update`] in what a router tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UpdateNumber {
    /// A new one tells everything anew. 0 before the first.
    pub generation: u64,
    /// Counts from 1 in each generation.
    pub number: u64,
}

/// What a router's store holds now and did not hold before, and the other way round (paper
/// multipath-cache-management, Table 1: Update).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Update {
    /// Its place. Number 1 of a generation makes void what was told before.
    #[serde(flatten)]
    pub at: UpdateNumber,
    /// What has changed, at most one for each object and tier.
    pub changes: Vec<Change>,
}

/// What has changed of one object in one tier of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The name of its segments without the segment number.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub object: Name,
    /// Where.
    pub tier: Tier,
    /// Segments that are held and were not.
    #[serde(default, skip_serializing_if = "Segments::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<[u64; 2]>))]
    pub added: Segments,
    /// Segments that were held and are not.
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

/// A router was asked for segments of an object that it does not hold, and asks how to get them
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
    /// What was decided.
    pub decision: Decision,
    /// The router's [`Configuration`] with it; 0 if it has none.
    pub generation: u64,
}

/// What a controller decides about an object that a router is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// Nobody has registered a file of this name: it goes as without a controller.
    Unknown,
    /// It fits into one store: it goes as without a controller.
    Small,
    /// No store has room for any of it, or none can be reached; or its producer has registered a
    /// newer version of it, to which it gives way.
    NoRoom,
    /// Its parts are in the router's configuration.
    Planned,
}

/// What a router is to be set up as, whole. It stays in force until one with a higher generation
/// comes; routers refuse a lower one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Configuration {
    /// Its number. Every plan of the controller has one, so that numbers are passed over.
    pub generation: u64,
    /// The number of the one before, 0 for the first.
    pub parent: u64,
    /// The routers that the rest speaks of, and how they are reached.
    pub peers: Vec<Peer>,
    /// Where names are found.
    pub routes: Vec<RouteOrder>,
    /// Objects whose segments go to several routers.
    pub distributions: Vec<Distribution>,
    /// What the store keeps and refuses.
    pub rules: Vec<StoreRule>,
    /// What is to be fetched ahead of demand.
    pub prefetch: Vec<Prefetch>,
}

/// Another router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Peer {
    /// Its name.
    pub router: String,
    /// FaceUris that lead to it, the best first. A face that there is already is used.
    pub uris: Vec<String>,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RouteOrder {
    /// Names below it.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub prefix: Name,
    /// The next hop, one of [`Configuration::peers`].
    pub router: String,
    /// Its cost: the lowest is used first.
    pub cost: u64,
}

/// The parts of an object that other routers have or are to have (paper
/// multipath-cache-management, Algorithm 5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Distribution {
    /// The name of the segments without the segment number.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub object: Name,
    /// By first segment, without overlap.
    pub parts: Vec<PartOrder>,
    /// Who is asked for what is in no part, of [`Configuration::peers`]; empty: the routes say it.
    #[serde(default)]
    pub spread: Vec<Share>,
}

/// One part of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PartOrder {
    /// Who is asked for it, one of [`Configuration::peers`].
    pub router: String,
    /// The first segment.
    pub first: u64,
    /// The last.
    pub last: u64,
}

/// What a store does with segments of an object. Of two that have a segment the one with the
/// shorter range holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StoreRule {
    /// The name of the segments without the segment number.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub object: Name,
    /// The first segment.
    pub first: u64,
    /// The last.
    pub last: u64,
    /// What becomes of them.
    pub retention: Retention,
}

/// What a store does with Data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Retention {
    /// It stays, up to this many octets of memory.
    Keep {
        /// Octets of memory.
        bytes_max: u64,
    },
    /// It is not stored.
    Refuse,
}

/// Segments that a router fetches by itself (paper multipath-cache-management, Algorithm 6).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Prefetch {
    /// The name of the segments without the segment number.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub object: Name,
    /// The first segment.
    pub first: u64,
    /// The last.
    pub last: u64,
}

/// Why a request is refused: the body of every answer that is no success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Refusal {
    /// What is wrong and what to do next, for people.
    pub error: String,
    /// For a refused [`Update`]: begin a new generation if this is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<UpdateNumber>,
}
