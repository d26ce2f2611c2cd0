//! The configuration of a consumer.

use weir_base::{RttConfig, words};

use super::schedule::PathSchedule;
use crate::congestion::{Controller, ControllerConstants};
use crate::interest::Selectors;
use crate::mapping::NameMapping;

/// How a consumer fetches.
#[derive(Clone, Debug)]
pub struct ConsumerConfig {
    /// InterestLifetime, in milliseconds.
    pub lifetime_ms: u64,
    /// How often an Interest is sent again before its segment fails.
    pub retries_max: u32,
    pub schedule: PathSchedule,
    pub controller: Controller,
    /// The controller's constants that differ from its defaults.
    pub constants: ControllerConstants,
    /// The initial window, or the fixed one; `None`: the controller's own.
    pub window: Option<u32>,
    /// Upper bound of outstanding chunks per path.
    pub window_max: u32,
    /// Segments per chunk, 1 to [`CHUNK_SEGMENTS_MAX`](crate::CHUNK_SEGMENTS_MAX). Windows count
    /// chunks, and all Interests of a chunk are sent together (paper chopcop, 3: chunks of 32
    /// packets). When a chunk is lost, only its missing segments are requested again.
    pub chunk_segments: u32,
    /// Minimum time between two decreases of a window, in nanoseconds, independent of round trips
    /// (paper nb-cache: 50 ms). `None`: one round trip.
    pub decrease_interval_ns: Option<u64>,
    /// Whether an Interest counts as lost only when its lifetime ends (paper nb-cache). Later
    /// answers and the estimated timeout are then ignored.
    pub waits_for_lifetime: bool,
    /// Whether lost segments are requested again. If not, each segment is requested once. A lost,
    /// refused or damaged segment is then reported as missed and skipped.
    pub is_reliable: bool,
    /// Whether segments without an answer are set aside, so that all others are fetched before the
    /// fetch fails with [`Incomplete`](super::ConsumerError::Incomplete). If not, the first such
    /// segment ends the fetch.
    pub sets_aside: bool,
    /// Whether routers are queried for their holdings of the object.
    pub holdings: HoldingsMode,
    /// Upper bound of segments that are requested, being verified or waiting for the reader; at
    /// least one chunk.
    pub reader_segments_max: u32,
    /// Upper bound of segments of a growing object that are requested before they exist.
    pub ahead_max: u32,
    /// What happens to new segments of a growing object while the reader's buffer is full.
    pub behind: LagPolicy,
    pub verification: Verification,
    /// What happens to a segment that fails verification.
    pub on_bad: OnBad,
    /// Whether segments from stores must be fresh.
    pub must_be_fresh: bool,
    /// Whether to look for a digest manifest when the metadata do not mention one.
    pub look_for_manifest: bool,
    /// Whether segments are verified by the manifest, if there is one. If not, each is verified by
    /// its own signature.
    pub use_manifest: bool,
    /// Constants of the timeout.
    pub rtt: RttConfig,
    /// How names of applications become names of the network.
    pub mapping: NameMapping,
    /// Whether [`TraceEvent`](super::TraceEvent)s are wanted.
    pub trace: bool,
}

/// Whether the router of each path is queried for its holdings of the object (paper
/// multipath-cache-management, Algorithm 1; docs/holdings.md). A segment is then requested from a
/// router that holds it. Segments that no router holds go to all, as the schedule decides.
/// Sequences query no router.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum HoldingsMode {
    /// Routers are not queried.
    #[default]
    Ignore,
    /// Routers are queried while the fetch begins.
    Ask,
    /// The fetch begins when all routers have answered, or after a second (as in the paper).
    Wait,
}

words!(HoldingsMode { Ignore = "ignore", Ask = "ask", Wait = "wait" });

/// How verified segments are delivered.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum ReaderMode {
    /// No delivery: the driver stores the packets that it verifies.
    #[default]
    None,
    /// In order of arrival.
    Unordered,
    /// In order of their numbers. Early ones wait.
    InOrder,
}

/// What is verified. The driver always carries it out.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Verification {
    /// Signatures, and digests listed by a signed manifest.
    #[default]
    Signatures,
    /// Each segment, in a way that only the driver knows.
    ByDriver,
    Off,
}

/// What happens to a segment that fails verification.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum OnBad {
    /// It is requested again: by its digest if that is known, then fresh. Then the fetch fails.
    #[default]
    RequestAgain,
    /// It is delivered, marked as not verified.
    Deliver,
    Fail,
}

/// What happens to new segments of a growing object while the reader's buffer is full.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum LagPolicy {
    /// They are fetched later, if they are still available.
    #[default]
    InOrder,
    /// They are skipped. When the reader has read the fetched segments, the newest segment is next.
    Skip,
}

words!(LagPolicy { InOrder = "in-order", Skip = "skip" });
words!(OnBad { RequestAgain = "ask-again", Deliver = "deliver", Fail = "abort" });

impl ConsumerConfig {
    /// The selectors of every Interest for a segment.
    pub(crate) fn selectors(&self) -> Selectors {
        Selectors {
            must_be_fresh: self.must_be_fresh,
            lifetime_ms: self.lifetime_ms,
            ..Selectors::default()
        }
    }
}

impl Default for ConsumerConfig {
    /// Lifetime 4 s and 15 retries, as in ndnget. 4096 segments of 8 kB in flight fill 2.6 Gbit/s
    /// over 100 ms.
    fn default() -> Self {
        Self {
            lifetime_ms: 4000,
            retries_max: 15,
            schedule: PathSchedule::default(),
            controller: Controller::default(),
            constants: ControllerConstants::default(),
            window: None,
            window_max: 4096,
            chunk_segments: 1,
            decrease_interval_ns: None,
            waits_for_lifetime: false,
            is_reliable: true,
            sets_aside: true,
            holdings: HoldingsMode::Ignore,
            reader_segments_max: 8192,
            ahead_max: 64,
            behind: LagPolicy::InOrder,
            verification: Verification::Signatures,
            on_bad: OnBad::RequestAgain,
            must_be_fresh: false,
            look_for_manifest: true,
            use_manifest: true,
            rtt: RttConfig::default(),
            mapping: NameMapping::Identity,
            trace: false,
        }
    }
}
