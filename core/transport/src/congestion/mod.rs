//! Congestion controllers: how many Interests may be outstanding, and how fast they may leave. One
//! file each behind `CongestionControl`.

mod aimd;
mod cubic;
mod fixed;
mod nb_cc;

pub(crate) use aimd::Aimd;
#[cfg(test)]
pub(crate) use aimd::AimdConfig;
pub use cubic::{Cubic, CubicConfig};
pub use fixed::Fixed;
pub use nb_cc::{NbCc, NbCcConfig};

use alloc::boxed::Box;

use weir_base::Instant;

/// What a controller learns from one answered Interest.
#[derive(Copy, Clone, Debug)]
pub struct Sample {
    /// When the answer came.
    pub now: Instant,
    /// Round-trip time in nanoseconds; `None` when the Interest had been sent more than once.
    pub rtt_ns: Option<u64>,
    /// The smoothed round-trip time in nanoseconds; 0 before the first sample.
    pub smoothed_rtt_ns: u64,
    /// The smallest round-trip time seen, in nanoseconds; 0 before the first sample.
    pub min_rtt_ns: u64,
    /// Place of the answered Interest in the order of sending on its path, counted from 0.
    pub sent_order: u64,
    /// How many Interests have been sent on the path so far: the place the next one will take.
    pub next_order: u64,
    /// Whether the window was what held the consumer back. An unused window does not grow.
    pub window_limited: bool,
    /// A router marked this answer (NDNLPv2, CongestionMark). Controllers that count marks take
    /// them from `round`; the others hear of the first one of a round in
    /// `on_congestion`.
    pub is_marked: bool,
    /// The round trip that this answer is part of.
    pub round: Round,
}

/// The answers of one round trip so far. A round ends with the first answer to an Interest that was
/// sent after it began.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Its number, from 1.
    pub number: u64,
    /// Answers in it.
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
    /// A Nack with reason Congestion.
    Nack,
}

/// What a controller allows on one path.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) struct Allowance {
    /// Interests that may be outstanding, at least 1.
    pub window: f64,
    /// How fast Interests may leave, in bits of the Data they ask for per second; `None`: as fast
    /// as the window lets them.
    pub pacing_bps: Option<u64>,
}

impl Allowance {
    /// A window without pacing.
    pub(crate) const fn window(window: f64) -> Self {
        Self { window, pacing_bps: None }
    }
}

/// Decides how many Interests may be outstanding on one path.
///
/// The path calls [`on_congestion`](Self::on_congestion) at most once a round trip (conservative
/// window adaptation), so that a controller need not count signals. One that wants the number of
/// marks finds it in [`Sample::round`].
pub(crate) trait CongestionControl: Send {
    /// A unit was answered, with a mark or without.
    fn on_data(&mut self, sample: &Sample);

    /// The path is congested: shrink.
    fn on_congestion(&mut self, now: Instant, cause: Congestion);

    /// Nothing came back for a whole timeout: start over.
    fn on_timeout(&mut self, now: Instant);

    /// What may be sent now.
    fn allowance(&self) -> Allowance;
}

/// The window that a controller starts with, and the largest.
#[derive(Copy, Clone, Debug)]
pub(crate) struct WindowBounds {
    /// Interests at the start, at least 1; for [`Fixed`] for good. `None`: the controller's own.
    pub initial: Option<u32>,
    /// Interests at most.
    pub max: u32,
}

impl WindowBounds {
    /// The window at the start, `default` unless one was asked for.
    fn initial_or(self, default: f64) -> f64 {
        self.initial.map_or(default, |window| f64::from(window.max(1)))
    }

    fn max(self) -> f64 {
        f64::from(self.max.max(1))
    }
}

/// Registers controllers: a variant of [`Controller`], its word, and what makes one.
macro_rules! controllers {
    ($($(#[$meta:meta])* $kind:ident = $word:literal => $make:expr,)+) => {
        /// Which controller to use, by the name that people give.
        #[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
        pub enum Controller {
            $($(#[$meta])* $kind,)+
        }

        weir_base::words!(Controller { $($kind = $word,)+ });

        impl Controller {
            /// Makes the controller of one path.
            pub(crate) fn make(self, bounds: WindowBounds) -> Box<dyn CongestionControl> {
                match self {
                    $(Self::$kind => Box::new($make(bounds)),)+
                }
            }
        }
    };
}

controllers! {
    /// [`Cubic`] with its default constants.
    #[default] Cubic = "cubic" => Cubic::bounded,
    /// `Aimd` with its default constants.
    Aimd = "aimd" => Aimd::bounded,
    /// [`Fixed`]: always the same window.
    Fixed = "fixed" => Fixed::bounded,
    /// [`NbCc`]: what the consumer of paper nb-cache does.
    NbCc = "nb-cc" => NbCc::bounded,
}

#[cfg(test)]
mod tests;
