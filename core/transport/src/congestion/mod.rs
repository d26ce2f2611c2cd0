//! Congestion controllers: how many Interests may be outstanding on a path, and how fast they may
//! be sent.
//!
//! [`CongestionControl`] is the interface to a path, which reports every answer and every sign of
//! congestion and asks what may be sent. A controller is a type that implements it and
//! [`FromConfig`]; [`Controller`] gives it a name. [`Controllers`] is a table of names in which a
//! text is looked up. [`Controllers::BUILT_IN`] are those below; other crates add their own, as
//! `lab/baselines` does for those that papers compare with.

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

/// One answered chunk. A chunk is what a window counts: one Interest, unless the consumer requests
/// several consecutive segments at once.
#[derive(Copy, Clone, Debug)]
pub struct Sample {
    /// When the answer came.
    pub now: Instant,
    /// Round-trip time in nanoseconds; `None` when the Interest had been sent more than once, so
    /// that it is not known which one was answered (Karn's algorithm).
    pub rtt_ns: Option<u64>,
    /// The smoothed round-trip time (RFC 6298) in nanoseconds; 0 before the first sample.
    pub smoothed_rtt_ns: u64,
    /// The smallest round-trip time seen on the path, in nanoseconds; 0 before the first sample.
    pub min_rtt_ns: u64,
    /// Number of the answered Interest in the order of sending on its path, from 0.
    pub sent_order: u64,
    /// How many Interests have been sent on the path: the number of the next one.
    pub next_order: u64,
    /// Whether the window, or its pace, limited the consumer. An unused window must not grow.
    pub window_limited: bool,
    /// Interests on the path found lost so far, including those that were not reported because they
    /// belong to an earlier decrease.
    pub lost: u64,
    /// The marks that routers set on this answer, and whether one mark is a signal of congestion or
    /// their share is. Controllers that count marks take them from `round`; the others are notified
    /// of the first one of a round by `on_congestion`.
    pub mark: CongestionMark,
    /// Packets that the answered chunk came in.
    pub packets: u32,
    /// Marked packets among them.
    pub marked_packets: u32,
    /// Octets of these packets.
    pub bytes: usize,
    /// The round trip that this answer belongs to.
    pub round: Round,
}

/// The answers of one round trip so far. A round ends with the first answer to an Interest that was
/// sent after it began.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Its number, from 1.
    pub number: u64,
    pub answers: u32,
    /// Marked answers among them.
    pub marks: u32,
}

/// Why a controller must slow down.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Congestion {
    /// A router marked a packet (NDNLPv2, CongestionMark).
    Mark,
    /// Later Interests were answered, this one was not.
    Loss,
    /// A router refused the Interest because of congestion.
    Nack,
}

/// What a controller allows on one path.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Allowance {
    /// Chunks that may be outstanding, at least 1.
    pub window: f64,
    /// How fast Interests may be sent, in bits of the Data that they request per second; `None`: as
    /// fast as the window allows.
    pub pacing_bps: Option<u64>,
}

impl Allowance {
    /// A window without pacing.
    pub const fn window(window: f64) -> Self {
        Self { window, pacing_bps: None }
    }
}

/// How the path of a controller detects losses, and which signs of congestion it reports.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct PathRules {
    pub timeout: Timeout,
    pub loss_detection: LossDetection,
    pub marks: Marks,
}

/// How long an Interest waits for its answer. The end of its lifetime ends the wait in any case.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Timeout {
    /// The path's estimate from its round trips, which doubles with each timeout (RFC 6298).
    #[default]
    Estimated,
    /// This many nanoseconds, but not less than routers suppress a retransmission for.
    After(u64),
}

/// When an Interest counts as lost although later ones were answered and it has not timed out.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum LossDetection {
    /// Once it has taken longer than the slowest recent answers, with a margin, and routers would
    /// forward it again.
    #[default]
    AfterSlowest,
    /// As soon as it has taken that long, which on a short path is before routers forward it again.
    /// And when no packet has come for twice as long, the oldest counts as lost.
    AfterSlowestEarly,
    /// Once three later ones were answered (TCP's fast retransmission, for one source and one
    /// path).
    AfterThree,
    /// Never: it waits for its timeout.
    Never,
}

/// Which marks are reported by `on_congestion`. A [`Sample`] has them all.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Marks {
    /// The first one of a round trip.
    #[default]
    Reported,
    /// None: the controller takes them from the samples, or ignores them.
    Unreported,
}

/// Decides how many Interests may be outstanding on one path.
///
/// The path calls [`on_congestion`](Self::on_congestion) and [`on_timeout`](Self::on_timeout) at
/// most once a round trip (conservative window adaptation), so that a controller need not count
/// signals. One that needs the number of marks finds it in [`Sample::round`]. Calls must be cheap
/// and must not allocate: `on_data` comes with every chunk, `allowance` with every Interest.
///
/// The time of the path is the only clock that a controller has, and it has no randomness: a run
/// with one seed must have one result.
pub trait CongestionControl: Send {
    /// A chunk was answered, with a mark or without.
    fn on_data(&mut self, sample: &Sample);

    /// The path is congested: the window should shrink.
    fn on_congestion(&mut self, now: Instant, cause: Congestion);

    /// An Interest timed out.
    fn on_timeout(&mut self, now: Instant);

    /// What may be sent now.
    fn allowance(&self) -> Allowance;

    /// The rules of its path, which may change with each call of the other functions.
    fn rules(&self) -> PathRules {
        PathRules::default()
    }
}

#[cfg(test)]
mod tests;
