//! The workload: what consumers request and producers answer, as data and as generators.

mod arrivals;
mod collection;
mod content;
mod error;
mod live;
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
pub(crate) use self::live::LiveChannels;
pub use self::naming::{Naming, ParsedName};
pub(crate) use self::popularity::ObjectChooser;
pub use self::trace::Trace;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsumerPlan {
    /// Start time, ns from the start of the run.
    #[serde(default)]
    pub start_ns: u64,
    /// When it stops to request new content; `None`: at the end of the run. Objects in progress may
    /// still complete, but only until the end of the run.
    #[serde(default)]
    pub stop_ns: Option<u64>,
    /// InterestLifetime, ms.
    #[serde(default = "default_lifetime_ms")]
    pub lifetime_ms: u64,
    /// Time to compare a Data with what was produced, ns, before the Data counts. It stands for the
    /// verification of a signature. Single Interests ([`Demand::Arrivals`]) take no time.
    #[serde(default)]
    pub verify_ns: u64,
    /// The round trip that its controllers assume, ns: they react to congestion once per round
    /// trip. `None`: the measured one.
    #[serde(default)]
    pub decrease_interval_ns: Option<u64>,
    /// Whether an Interest of a window is lost only when its lifetime ends.
    #[serde(default)]
    pub waits_for_lifetime: bool,
    /// Segments in one chunk, the unit of its windows (paper chopcop, 3).
    #[serde(default = "default_chunk_units")]
    pub chunk_units: u32,
    /// How it uses several links.
    #[serde(default)]
    pub schedule: PathSchedule,
    /// Whether it queries its routers' holdings of an object before fetching the whole object.
    #[serde(default, skip_serializing_if = "is_ignore")]
    pub holdings: HoldingsMode,
    /// Initial or fixed windows of its second and later links, where they differ from the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path_windows: Vec<Option<u32>>,
    /// Whether it fetches only what the controller orders its router to prefetch.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub prefetches: bool,
    pub names: Names,
    pub demand: Demand,
}

impl ConsumerPlan {
    /// A consumer of `names` with the given demand, from the start of the run to its end.
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

    /// Whether it is a transport consumer. Only single Interests are not.
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

/// How a consumer requests content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Demand {
    /// Single Interests at times that do not depend on answers (open loop). It requests the
    /// segments of a trace; if popularity is sequential, all segments of one object after another;
    /// otherwise any segment of a random object.
    Arrivals { arrivals: Arrivals },
    /// A constant number of Interests in flight, by the transport consumer (closed loop, like
    /// ccncatchunks2). It requests all segments of an object in order and then the next object, or
    /// the segments of a trace. A trace starts and completes no objects. Lost and rejected
    /// Interests are retransmitted, up to 16 transmissions in total.
    Window {
        /// Interests in flight.
        window: u32,
        /// Number of Interests to be answered; `None`: no limit. The end may lie within an object.
        #[serde(default)]
        count: Option<u64>,
    },
    /// As many Interests in flight as a congestion controller of the transport allows, for the same
    /// segments as [`Demand::Window`]. This is the consumer of paper nb-cache, III-E.4, which sends
    /// while fewer Interests than its window are unanswered.
    Controlled {
        /// A controller with its constants, written like a `ControllerConfig`.
        controller: String,
        /// Initial window; `None`: the controller's default.
        #[serde(default)]
        window: Option<u32>,
        /// Number of Interests to be answered; `None`: no limit. The end may lie within an object.
        #[serde(default)]
        count: Option<u64>,
    },
    /// Whole objects, each by a transport consumer with its own congestion controller. Of a trace,
    /// only the objects count.
    Objects {
        /// When objects start; `None`: each after the one before is complete.
        #[serde(default)]
        arrivals: Option<Arrivals>,
        /// Number of objects; `None`: no limit.
        #[serde(default)]
        count: Option<u64>,
        /// A controller with its constants, written like a `ControllerConfig`.
        controller: String,
        /// Initial window, or the fixed one.
        #[serde(default)]
        window: Option<u32>,
    },
    /// A player of live channels ([`Names::live`]), each drawn by the popularity. It loads the
    /// playlist of a channel in one quality, fetches the listed segments in order, and reloads the
    /// playlist as RFC 8216 (6.3.4) says.
    Live {
        /// How long it watches a channel, ns. The first channel is watched for a part of it, drawn
        /// uniformly, so that players do not switch together.
        switch_ns: u64,
        quality: QualityChoice,
        /// A controller with its constants, written like a `ControllerConfig`.
        controller: String,
        /// Initial window, or the fixed one.
        #[serde(default)]
        window: Option<u32>,
    },
}

/// Which quality of a live channel a player fetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QualityChoice {
    /// The highest one, so that all viewers of a channel fetch the same.
    One,
    /// One drawn uniformly for each channel that it watches.
    Drawn,
    /// The highest one that its measured throughput carries, chosen after each segment.
    Adaptive,
}

/// The times of an arrival process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Arrivals {
    /// At equal intervals.
    Constant {
        /// Arrivals per second.
        rate_hz: f64,
    },
    /// At exponential intervals.
    Poisson {
        /// Arrivals per second.
        rate_hz: f64,
    },
    /// Bursts with equal intervals, and pauses. Both have exponential lengths.
    OnOff {
        /// Arrivals per second during a burst.
        rate_hz: f64,
        /// Mean length of a burst, ns.
        on_ns: u64,
        /// Mean length of a pause, ns.
        off_ns: u64,
    },
    /// Bursts of a fixed number of arrivals at equal intervals, and pauses of uniform length.
    Bursts {
        /// Arrivals per second during a burst.
        rate_hz: f64,
        size: u32,
        /// Minimum pause, from the last arrival of a burst, ns.
        off_ns: u64,
        /// Maximum pause, ns.
        off_max_ns: u64,
    },
}

/// The names that are requested. A segment's name is `prefix/<filler
/// components>/<object>/seg=<segment>` with `components` components in total. The object has at
/// least eight digits, so that names have equal lengths.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Names {
    /// URI of the prefix, which is a producer's.
    pub prefix: String,
    /// Components of the whole name; 0: the minimum.
    #[serde(default)]
    pub components: u32,
    pub popularity: Popularity,
    pub sizes: Sizes,
    /// Content bytes of every segment except the last.
    pub segment_bytes: u32,
    /// The objects of `popularity` are live channels. `sizes` lists the bytes of one segment of
    /// video in each quality, lowest first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<LivePlan>,
}

/// Live channels. Their segments of video are objects that exist from a moment on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LivePlan {
    /// Length of a segment of video, ns.
    pub segment_ns: u64,
    /// Segments in a playlist.
    pub listed: u64,
}

/// Which object is next. Object 0 is the most popular one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Popularity {
    /// One after the other, cyclically.
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
        /// Flattens the head of the distribution.
        shift: f64,
    },
    /// `(object, segment)` in this order, cyclically.
    Trace {
        /// The requests, shared by many consumers.
        requests: std::sync::Arc<[(u64, u64)]>,
    },
}

/// Object sizes in bytes. A size depends only on the object's number and the producer's prefix, so
/// consumers and producers agree without communication.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Sizes {
    Fixed {
        bytes: u64,
    },
    /// Log-normal, truncated at both ends.
    LogNormal {
        mean_bytes: u64,
        /// Standard deviation of the logarithm.
        sigma: f64,
        min_bytes: u64,
        max_bytes: u64,
    },
    /// Object `i` has the size with index `i mod len`, in bytes.
    List {
        bytes: std::sync::Arc<[u64]>,
    },
}

/// A producer. It answers every Interest under its prefix that follows the naming of [`Names`],
/// with bytes that depend on the name only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProducerPlan {
    /// Its objects. Only the number of objects in [`Names::popularity`] counts.
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
