//! Congestion controllers: how many Interests may be outstanding, and how fast they may leave. One
//! file each behind `CongestionControl`.

mod aimd;
mod chopcop;
mod constants;
mod cubic;
mod delay;
mod fixed;
mod icp;
mod ictp;
mod lately;
mod ledbat;
mod nb_cc;
mod sources;
mod weir;

pub(crate) use aimd::Aimd;
#[cfg(test)]
pub(crate) use aimd::AimdConfig;
pub(crate) use chopcop::Chopcop;
pub(crate) use constants::Constants;
pub use constants::{ControllerConfig, ControllerConstants, ControllerError};
pub(crate) use cubic::Cubic;
#[cfg(test)]
pub(crate) use cubic::CubicConfig;
pub(crate) use delay::Delay;
pub use fixed::Fixed;
pub(crate) use icp::Icp;
pub(crate) use ictp::Ictp;
pub(crate) use ledbat::Ledbat;
pub use nb_cc::{NbCc, NbCcConfig};
pub(crate) use weir::Weir;

use alloc::boxed::Box;

use weir_base::Instant;
use weir_wire::CongestionMark;

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
    /// Whether the window, or its pace, was what held the consumer back. An unused window does not
    /// grow.
    pub window_limited: bool,
    /// Interests on the path found lost so far, also those that `on_congestion` and `on_timeout`
    /// were not told of.
    pub lost: u64,
    /// The marks that routers set on this answer, and whether they are whole signals of congestion
    /// or count by their share. Controllers that count marks take them from `round`; the others
    /// hear of the first one of a round in `on_congestion`.
    pub mark: CongestionMark,
    /// Packets that the answered chunk came in.
    pub packets: u32,
    /// Marked packets among them.
    pub marked_packets: u32,
    /// Octets of these packets.
    pub bytes: usize,
    /// The round trip that this answer is part of.
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

/// How the path of a controller finds what is lost, and which signs of congestion it passes on.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    pub timeout: Timeout,
    pub overtaken: Overtaken,
    pub marks: Marks,
}

/// How long an Interest waits for its answer. The end of its lifetime ends the wait in any case.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Timeout {
    /// By the path's estimate of its round trip, which doubles each time (RFC 6298).
    #[default]
    Estimated,
    /// This many nanoseconds, but not less than routers suppress a retransmission for.
    After(u64),
}

/// What becomes of an Interest that is not answered when later ones are.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Overtaken {
    /// It is lost once it has taken longer than the slowest answers lately, with a margin, and may
    /// be asked for again.
    #[default]
    Timed,
    /// It is lost already when it has taken that long, which on a short path is before routers take
    /// another Interest for it; and when nothing has come for twice as long, the oldest is.
    Early,
    /// It is lost (TCP, which knows one source and one path).
    AtOnce,
    /// It waits for its timeout.
    Never,
}

/// What a marked answer is besides a [`Sample`].
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Marks {
    /// The first of a round trip is told to `on_congestion`.
    #[default]
    Heard,
    /// Nothing: the controller takes marks from the samples, or does not know them.
    Unheard,
}

/// Decides how many Interests may be outstanding on one path.
///
/// The path calls [`on_congestion`](Self::on_congestion) at most once a round trip (conservative
/// window adaptation), so that a controller need not count signals. One that wants the number of
/// marks finds it in [`Sample::round`].
pub(crate) trait CongestionControl: Send {
    /// A chunk was answered, with a mark or without.
    fn on_data(&mut self, sample: &Sample);

    /// The path is congested: shrink.
    fn on_congestion(&mut self, now: Instant, cause: Congestion);

    /// Nothing came back for a whole timeout: start over.
    fn on_timeout(&mut self, now: Instant);

    /// What may be sent now.
    fn allowance(&self) -> Allowance;

    /// The rules of its path, which may change with each call of the others.
    fn rules(&self) -> Rules {
        Rules::default()
    }
}

/// A controller that a text can choose.
trait Make: CongestionControl + Sized + 'static {
    type Config: Constants;

    /// A controller within `bounds`.
    fn bounded(config: Self::Config, bounds: WindowBounds) -> Self;
}

fn config<C: Make>(constants: &ControllerConstants) -> C::Config {
    let mut config = C::Config::default();
    for (key, value) in constants.iter() {
        let is_known = config.set(key, value);
        debug_assert!(is_known, "{key}");
    }
    config
}

fn make<C: Make>(
    constants: &ControllerConstants,
    bounds: WindowBounds,
) -> Box<dyn CongestionControl> {
    Box::new(C::bounded(config::<C>(constants), bounds))
}

fn constant<C: Make>(key: &str, value: f64) -> Option<&'static str> {
    let key = C::Config::KEYS.iter().find(|known| **known == key)?;
    C::Config::default().set(key, value).then_some(key)
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

/// Registers controllers: a variant of [`Controller`], its word, and its type.
macro_rules! controllers {
    ($($(#[$meta:meta])* $kind:ident = $word:literal => $control:ty,)+) => {
        /// Which controller to use, by the name that people give.
        #[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
        pub enum Controller {
            $($(#[$meta])* $kind,)+
        }

        weir_base::words!(Controller { $($kind = $word,)+ });

        impl Controller {
            /// Makes the controller of one path.
            pub(crate) fn make(
                self,
                constants: &ControllerConstants,
                bounds: WindowBounds,
            ) -> Box<dyn CongestionControl> {
                match self {
                    $(Self::$kind => make::<$control>(constants, bounds),)+
                }
            }

            /// The names of the constants that a [`ControllerConfig`] may change.
            pub fn constants(self) -> &'static [&'static str] {
                match self {
                    $(Self::$kind => <$control as Make>::Config::KEYS,)+
                }
            }

            /// Two constants that contradict each other, as the first must not be above the second.
            fn out_of_order(
                self,
                constants: &ControllerConstants,
            ) -> Option<[(&'static str, f64); 2]> {
                match self {
                    $(Self::$kind => config::<$control>(constants).out_of_order(),)+
                }
            }

            /// The name of a constant, if there is one that may have this value.
            fn constant(self, key: &str, value: f64) -> Option<&'static str> {
                match self {
                    $(Self::$kind => constant::<$control>(key, value),)+
                }
            }
        }
    };
}

controllers! {
    /// `Cubic`: that of TCP. The default.
    #[default] Cubic = "cubic" => Cubic,
    /// `Aimd`: what ndnget does.
    Aimd = "aimd" => Aimd,
    /// [`Fixed`]: always the same window.
    Fixed = "fixed" => Fixed,
    /// `Icp`: a timer by least and greatest round trip.
    Icp = "icp" => Icp,
    /// `Icp` again: what is different of HR-ICP is in the routers, the shaping of Interests.
    HrIcp = "hr-icp" => Icp,
    /// `Ictp`: that of TCP Reno.
    Ictp = "ictp" => Ictp,
    /// `Chopcop`: the receiver of paper chopcop.
    Chopcop = "chopcop" => Chopcop,
    /// [`NbCc`]: what the consumer of paper nb-cache does.
    NbCc = "nb-cc" => NbCc,
    /// `Delay`: what the transport of paper socket-api did.
    Delay = "delay" => Delay,
    /// `Ledbat`: for what nobody waits for.
    Ledbat = "ledbat" => Ledbat,
    /// `Weir`: our own.
    Weir = "weir" => Weir,
}

#[cfg(test)]
mod receivers_tests;
#[cfg(test)]
mod tests;
