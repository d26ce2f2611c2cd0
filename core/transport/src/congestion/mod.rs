//! Congestion controllers: how many Interests may be outstanding on a path, and how fast they may
//! be sent.
//!
//! A path reports each answer and each sign of congestion to its [`CongestionControl`], and asks it
//! what may be sent. A controller is a type that implements `CongestionControl` and [`FromConfig`].
//! [`Controller`] gives it a name, and [`Controllers`] is a table of names.
//! [`Controllers::BUILT_IN`] has the controllers of this module. Other crates add more;
//! `lab/baselines` has the controllers that papers compare with.

mod aimd;
mod built_in;
mod config;
mod constants;
mod controller;
mod cubic;
mod fixed;
mod ledbat;
mod sources;
mod weir;
mod windowed_min_max;

pub use config::{ControllerConfig, ControllerError, Controllers};
pub use constants::{Constants, ControllerConstants};
pub use controller::{Controller, FromConfig, WindowBounds};
pub use windowed_min_max::WindowedMinMax;

use weir_base::Instant;
use weir_wire::CongestionMark;

/// One answered chunk. A window counts chunks. A chunk is one Interest, unless the consumer
/// requests several consecutive segments at once.
#[derive(Copy, Clone, Debug)]
pub struct Sample {
    /// When the answer arrived.
    pub now: Instant,
    /// Round-trip time in nanoseconds; `None` if the Interest was sent more than once, because it
    /// is unknown which sending was answered (Karn's algorithm).
    pub rtt_ns: Option<u64>,
    /// The smoothed round-trip time (RFC 6298) in nanoseconds; 0 before the first sample.
    pub smoothed_rtt_ns: u64,
    /// The smallest round-trip time seen on the path, in nanoseconds; 0 before the first sample.
    pub min_rtt_ns: u64,
    /// The path label of hICN, which distinguishes upstream paths of one router. `None` for NDN
    /// packets, and while labels are unusable.
    pub label: Option<u8>,
    /// How much longer the least round trip of this label is than that of the path, in nanoseconds;
    /// 0 without a label. It is no queueing delay.
    pub detour_ns: u64,
    /// The answered Interest's number in the sending order of its path, from 0.
    pub sent_order: u64,
    /// The sending order of the next Interest: how many were sent on the path.
    pub next_order: u64,
    /// Whether the window or its pace limited the consumer. An unused window must not grow.
    pub window_limited: bool,
    /// Interests of the path found lost so far. Includes losses that were not reported because they
    /// belong to an earlier decrease.
    pub lost: u64,
    /// The marks that routers set on this answer: whether one mark is a signal of congestion, or
    /// their share is. Controllers that count marks use `round`. Others receive the first mark of a
    /// round through `on_congestion`.
    pub mark: CongestionMark,
    /// Packets of the answered chunk.
    pub packets: u32,
    /// How many of them have a mark.
    pub marked_packets: u32,
    /// Bytes of these packets.
    pub bytes: usize,
    /// The round that this answer belongs to.
    pub round: Round,
}

impl Sample {
    /// The round-trip time as if the answer had come by the shortest path. Its excess over
    /// `min_rtt_ns` is queueing delay, if all sources behind a label are equally far.
    pub(crate) fn direct_rtt_ns(&self) -> Option<u64> {
        // `detour_ns` is at most the round trip: the least one of the label includes this one.
        self.rtt_ns.map(|rtt_ns| rtt_ns.saturating_sub(self.detour_ns))
    }
}

/// The answers of one round trip so far. A round ends with the first answer to an Interest that was
/// sent after the round began.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Its number, from 1.
    pub number: u64,
    pub answers: u32,
    /// How many of them have a mark.
    pub marks: u32,
}

#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Congestion {
    /// A router marked a packet (NDNLPv2, CongestionMark).
    Mark,
    /// Later Interests were answered and this one was not.
    Loss,
    /// A router refused the Interest because of congestion.
    Nack,
}

/// What a controller allows on one path.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Allowance {
    /// Chunks that may be outstanding, at least 1.
    pub window: f64,
    /// How fast Interests may be sent, in bits per second of the Data that they request. `None`: as
    /// fast as the window allows.
    pub pacing_bps: Option<u64>,
}

impl Allowance {
    /// A window without pacing.
    pub const fn window(window: f64) -> Self {
        Self { window, pacing_bps: None }
    }
}

/// How a path detects losses, and which signs of congestion it reports to its controller.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct PathRules {
    pub timeout: Timeout,
    pub loss_detection: LossDetection,
    pub marks: Marks,
}

/// How long an Interest waits for its answer. It never waits longer than its lifetime.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Timeout {
    /// The path's estimate from its round trips, doubled by each timeout (RFC 6298).
    #[default]
    Estimated,
    /// This many nanoseconds, but at least as long as routers suppress a retransmission.
    After(u64),
}

/// When an Interest that later answers overtook is declared lost before it times out.
/// `consumer/path.rs` explains the detection.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum LossDetection {
    /// When it has taken longer than the slowest recent answers plus a margin, and routers would
    /// forward it again.
    #[default]
    AfterSlowest,
    /// As [`LossDetection::AfterSlowest`], but even before routers would forward it again. Also, if
    /// no packet arrives for twice that time, the oldest Interest is declared lost.
    AfterSlowestEarly,
    /// When three later Interests were answered: TCP's fast retransmission, for a single source on
    /// a single path.
    AfterThree,
    /// Never: it waits for its timeout.
    Never,
}

/// Which marks are reported through `on_congestion`. A [`Sample`] has all of them.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Marks {
    /// The first mark of each round trip.
    #[default]
    Reported,
    /// None: the controller takes them from the samples or ignores them.
    Unreported,
}

/// Decides how many Interests may be outstanding on one path.
///
/// The path calls [`on_congestion`](Self::on_congestion) and [`on_timeout`](Self::on_timeout) at
/// most once a round trip (conservative window adaptation). A controller that needs the number of
/// marks finds it in [`Sample::round`]. Calls must be cheap and must not allocate: `on_data` is
/// called for each chunk, `allowance` for each Interest.
///
/// A controller has no clock but the times it is given, and no randomness: a simulation with the
/// same seed must have the same result.
pub trait CongestionControl: Send {
    /// A chunk was answered, with or without a mark.
    fn on_data(&mut self, sample: &Sample);

    /// The path is congested: the window should shrink.
    fn on_congestion(&mut self, now: Instant, cause: Congestion);

    /// An Interest timed out.
    fn on_timeout(&mut self, now: Instant);

    /// What may be sent now.
    fn allowance(&self) -> Allowance;

    /// The rules of its path. They may change after each call of the other methods.
    fn rules(&self) -> PathRules {
        PathRules::default()
    }
}

#[cfg(test)]
mod tests;
