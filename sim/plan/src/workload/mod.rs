//! What consumers ask for and producers answer, as data and as generators.

mod arrivals;
mod collection;
mod content;
mod error;
mod naming;
mod popularity;
pub(crate) mod random;
mod sizes;
mod trace;

use serde::{Deserialize, Serialize};
use weir_transport::{HoldingsMode, PathSchedule};

pub(crate) use self::arrivals::ArrivalProcess;
pub(crate) use self::collection::ContentError;
pub use self::collection::{Collection, ObjectShape};
pub use self::error::WorkloadError;
pub use self::naming::{Naming, ParsedName};
pub(crate) use self::popularity::ObjectChooser;
pub use self::trace::Trace;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsumerPlan {
    /// When it begins, ns from the start of the run.
    #[serde(default)]
    pub start_ns: u64,
    /// When it stops asking for new things; `None`: at the end of the run. Objects that it has
    /// begun it may still end; at the end of the run it stops in their middle.
    #[serde(default)]
    pub stop_ns: Option<u64>,
    /// InterestLifetime, ms.
    #[serde(default = "default_lifetime_ms")]
    pub lifetime_ms: u64,
    /// How long it compares the octets of a Data with those that were produced, as others verify a
    /// signature, before the Data counts, ns. Single Interests ([`Demand::Arrivals`]) take no time.
    #[serde(default)]
    pub verify_ns: u64,
    /// What its controllers take for a round trip, in which they hear of congestion once, ns;
    /// `None`: what they measure.
    #[serde(default)]
    pub decrease_interval_ns: Option<u64>,
    /// Whether an Interest of a window counts as lost when its lifetime is over and not before.
    #[serde(default)]
    pub waits_for_lifetime: bool,
    /// Segments that its windows count as one chunk (paper chopcop, 3).
    #[serde(default = "default_chunk_units")]
    pub chunk_units: u32,
    /// Which of its links are used, if it has several.
    #[serde(default)]
    pub schedule: PathSchedule,
    /// Whether it asks the routers that its links lead to what they hold of the object, if it
    /// fetches whole objects.
    #[serde(default, skip_serializing_if = "is_ignore")]
    pub holdings: HoldingsMode,
    /// The windows of its links from the second on, at the start or for good, where they are not as
    /// the first one's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path_windows: Vec<Option<u32>>,
    /// It asks for nothing but what the plan's controller orders the router that it is at to fetch
    /// ahead.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub prefetches: bool,
    pub names: Names,
    pub demand: Demand,
}

impl ConsumerPlan {
    /// A consumer that asks for `names` as `demand` says, from the start of the run to its end.
    pub fn new(names: Names, demand: Demand) -> Self {
        Self {
            start_ns: 0,
            stop_ns: None,
            lifetime_ms: default_lifetime_ms(),
            verify_ns: 0,
            decrease_interval_ns: None,
            waits_for_lifetime: false,
            chunk_units: default_chunk_units(),
            schedule: PathSchedule::default(),
            holdings: HoldingsMode::default(),
            path_windows: Vec::new(),
            prefetches: false,
            names,
            demand,
        }
    }

    /// Whether it is one of the transport: all but single Interests.
    pub(crate) fn has_window(&self) -> bool {
        !matches!(self.demand, Demand::Arrivals { .. })
    }
}

fn is_ignore(holdings: &HoldingsMode) -> bool {
    *holdings == HoldingsMode::Ignore
}

fn default_lifetime_ms() -> u64 {
    4000
}

fn default_chunk_units() -> u32 {
    1
}

/// How a consumer asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Demand {
    /// Single Interests at moments of their own, whatever becomes of them (open loop): for a
    /// trace's segments; for all segments of one object after another when popularity is
    /// sequential; else for any segment of the object drawn.
    Arrivals { arrivals: Arrivals },
    /// At most a constant number of Interests in flight, by the transport's consumer (closed loop,
    /// as ccncatchunks2 does it): for all segments of an object in order, then the next object; or
    /// for a trace's segments, which begin and complete no object. What is lost or refused is asked
    /// for again as the transport does it, up to 16 times in all.
    Window {
        /// Interests outstanding.
        window: u32,
        /// Interests to be answered in all; `None`: until the end. It may end amid an object.
        #[serde(default)]
        count: Option<u64>,
    },
    /// As many Interests in flight as a congestion controller of the transport allows, over the
    /// same things as [`Demand::Window`] (the consumer of paper nb-cache, III-E.4, which goes on
    /// sending while no more than its window is unanswered).
    Controlled {
        /// One of the transport's, with constants, as a `ControllerConfig` is written.
        controller: String,
        /// Initial window; `None`: the controller's own.
        #[serde(default)]
        window: Option<u32>,
        /// Interests to be answered in all; `None`: until the end. It may end amid an object.
        #[serde(default)]
        count: Option<u64>,
    },
    /// Whole objects, each by a consumer of the transport with a congestion controller of its own.
    /// Of a trace only the objects count.
    Objects {
        /// When objects begin; `None`: the next one when the last is complete.
        #[serde(default)]
        arrivals: Option<Arrivals>,
        /// Objects to fetch in all; `None`: until the end.
        #[serde(default)]
        count: Option<u64>,
        /// One of the transport's, with constants, as a `ControllerConfig` is written.
        controller: String,
        /// Initial window, or that of `fixed`.
        #[serde(default)]
        window: Option<u32>,
    },
}

/// Moments of an arrival process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Arrivals {
    /// At equal distances.
    Constant {
        /// Arrivals a second.
        rate_hz: f64,
    },
    /// At exponential distances.
    Poisson {
        /// Arrivals a second.
        rate_hz: f64,
    },
    /// Bursts of equal distances and silences, both of exponential length.
    OnOff {
        /// Arrivals a second while on.
        rate_hz: f64,
        /// Mean length of a burst, ns.
        on_ns: u64,
        /// Mean length of a silence, ns.
        off_ns: u64,
    },
    /// Bursts of a number of arrivals at equal distances, and silences of uniform length.
    Bursts {
        /// Arrivals a second within a burst.
        rate_hz: f64,
        size: u32,
        /// The least length of a silence, from the last arrival of a burst on, ns.
        off_ns: u64,
        /// The greatest, ns.
        off_max_ns: u64,
    },
}

/// Which names are asked for. The name of a segment is
/// `prefix/<filler components>/<object>/seg=<segment>`, `components` components in all. The object
/// is written with eight digits or more, so that names are of one length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Names {
    /// URI of the prefix, that of a producer.
    pub prefix: String,
    /// Components of the whole name; 0: as few as there can be.
    #[serde(default)]
    pub components: u32,
    pub popularity: Popularity,
    pub sizes: Sizes,
    /// Octets of content of a segment but the last.
    pub segment_bytes: u32,
}

/// Which of the objects is next. Object 0 is the most popular one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Popularity {
    /// One after the other, round and round.
    Sequential {
        objects: u64,
    },
    Uniform {
        objects: u64,
    },
    /// Probability proportional to `rank^-exponent`.
    Zipf {
        objects: u64,
        /// 0 is uniform.
        exponent: f64,
    },
    /// Probability proportional to `(rank + shift)^-exponent`.
    ZipfMandelbrot {
        objects: u64,
        /// 0 is uniform.
        exponent: f64,
        /// Flattens the head.
        shift: f64,
    },
    /// `(object, segment)` in this order, round and round.
    Trace {
        /// What is asked for. Shared by many consumers.
        requests: std::sync::Arc<[(u64, u64)]>,
    },
}

/// How large objects are, octets. The size of an object follows from its number and the seed
/// of the producer's prefix alone, so that consumers and producers agree without talking.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Sizes {
    Fixed {
        bytes: u64,
    },
    /// Log-normal, cut at both ends.
    LogNormal {
        mean_bytes: u64,
        /// Standard deviation of the logarithm.
        sigma: f64,
        min_bytes: u64,
        max_bytes: u64,
    },
    /// Object `i` has the `i mod len`-th of these, octets.
    List {
        bytes: std::sync::Arc<[u64]>,
    },
}

/// A producer: answers every Interest under its prefix that the naming of [`Names`] allows, with
/// octets that follow from the name, so that whoever receives them can check them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProducerPlan {
    /// What it has; [`Names::popularity`] says only how many objects there are.
    pub names: Names,
    /// FreshnessPeriod, ms.
    #[serde(default = "default_freshness_ms")]
    pub freshness_ms: u64,
    /// Time from an Interest to its Data, ns.
    #[serde(default)]
    pub delay_ns: u64,
}

fn default_freshness_ms() -> u64 {
    3_600_000
}

#[cfg(test)]
mod tests;
