//! How to fetch.

use weir_base::{RttConfig, words};

use super::schedule::PathSchedule;
use crate::congestion::{Controller, ControllerConstants};
use crate::interest::Selectors;
use crate::mapping::NameMapping;

/// How to fetch.
#[derive(Clone, Debug)]
pub struct ConsumerConfig {
    /// InterestLifetime, in milliseconds.
    pub lifetime_ms: u64,
    /// How often an Interest is sent again before its segment is given up.
    pub retries_max: u32,
    /// Which of several paths are used.
    pub schedule: PathSchedule,
    /// The congestion controller of each path.
    pub controller: Controller,
    /// Its constants that are other than its defaults.
    pub constants: ControllerConstants,
    /// Its window at the start, or for good if fixed; `None` leaves it to the controller.
    pub window: Option<u32>,
    /// Chunks outstanding on a path at most.
    pub window_max: u32,
    /// Segments of a chunk, 1 to [`CHUNK_SEGMENTS_MAX`](crate::CHUNK_SEGMENTS_MAX): windows count
    /// chunks, and a chunk is asked for at once (paper chopcop, 3: chunks of 32 packets). Of one
    /// that is lost, what has not come is asked for again.
    pub chunk_segments: u32,
    /// A controller hears of congestion once in this time, ns, where a round trip is not to be
    /// measured (paper nb-cache: 50 ms); `None`: once a round trip.
    pub decrease_interval_ns: Option<u64>,
    /// Whether an Interest counts as lost when its lifetime is over and not before (paper
    /// nb-cache): neither when later ones are answered nor when the timeout has passed.
    pub waits_for_lifetime: bool,
    /// Whether a lost segment is requested again. If not, each segment is requested once, and one
    /// that is lost, refused or damaged is reported as missed and skipped.
    pub is_reliable: bool,
    /// Whether segments of an object that get no answer are set aside, so that all the others are
    /// fetched before it fails with [`Fail`](super::ConsumerError::Incomplete). If not, it
    /// fails with the first of them.
    pub sets_aside: bool,
    /// Whether routers are asked what they hold of the object.
    pub holdings: HoldingsMode,
    /// Segments requested, being verified or waiting for the reader: at most this many, or one
    /// chunk.
    pub reader_segments_max: u32,
    /// Segments of an object that grows that are asked for before they are made, at most.
    pub ahead_max: u32,
    /// What becomes of segments that an object grows by while the reader has no room.
    pub behind: LagPolicy,
    pub verification: Verification,
    /// What becomes of a segment that is not what its producer signed.
    pub on_bad: OnBad,
    /// Whether stored segments must be fresh.
    pub must_be_fresh: bool,
    /// Whether to look for a digest manifest when metadata does not tell.
    pub look_for_manifest: bool,
    /// Whether segments are held against a manifest that there is. If not, each is verified by its
    /// own signature.
    pub use_manifest: bool,
    /// The constants of the timeout.
    pub rtt: RttConfig,
    /// What the names of objects become in the network.
    pub mapping: NameMapping,
    /// Whether [`TraceEvent`](super::TraceEvent)s are wanted.
    pub trace: bool,
}

/// Whether the router of each path is asked which segments of the object it holds (paper
/// multipath-cache-management, Algorithm 1; docs/holdings.md). A segment that one holds then goes
/// to one that does, and what none holds to all, as the schedule decides. Sequences ask no router.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum HoldingsMode {
    /// They are not asked.
    #[default]
    Ignore,
    /// They are asked, and the fetch begins meanwhile.
    Ask,
    /// They are asked, and the fetch begins when all have answered, or a second has passed, as in
    /// the paper.
    Wait,
}

words!(HoldingsMode { Ignore = "ignore", Ask = "ask", Wait = "wait" });

/// How verified segments are handed out.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum ReaderMode {
    /// Not at all: the driver keeps what it verifies.
    #[default]
    None,
    /// As they come.
    Unordered,
    /// In their order; what comes too early waits.
    InOrder,
}

/// What is verified, always as an operation of the driver.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Verification {
    /// Signatures, and digests that a signed manifest lists.
    #[default]
    Signatures,
    /// Whatever the driver holds each segment against.
    ByDriver,
    Off,
}

/// What becomes of a segment that is not what its producer signed.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum OnBad {
    /// It is asked for again: by its digest if that is known, then fresh, then given up.
    #[default]
    RequestAgain,
    /// It is handed out all the same, marked as not verified.
    Deliver,
    Fail,
}

/// What becomes of segments that an object grows by while the reader has no room.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum LagPolicy {
    /// They are fetched later, as far as there is anyone who still has them.
    #[default]
    InOrder,
    /// They are passed over: once the reader has taken what was fetched, the newest segment is
    /// next.
    Skip,
}

words!(LagPolicy { InOrder = "in-order", Skip = "skip" });
words!(OnBad { RequestAgain = "ask-again", Deliver = "deliver", Fail = "abort" });

impl ConsumerConfig {
    /// What every Interest for a segment says besides its name.
    pub(crate) fn selectors(&self) -> Selectors {
        Selectors {
            must_be_fresh: self.must_be_fresh,
            lifetime_ms: self.lifetime_ms,
            ..Selectors::default()
        }
    }
}

impl Default for ConsumerConfig {
    /// Lifetime 4 s and 15 retries as ndnget has them; 4096 segments of 8 kB in flight fill 2.6
    /// Gbit/s over 100 ms.
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
