//! Congestion controllers: how many Interests may be outstanding. One file each behind
//! [`CongestionControl`].

mod aimd;
mod cubic;
mod fixed;
mod nb_cc;

pub use aimd::{Aimd, AimdConfig};
pub use cubic::{Cubic, CubicConfig};
pub use fixed::Fixed;
pub use nb_cc::{NbCc, NbCcConfig};

use alloc::boxed::Box;
use core::fmt;
use core::str::FromStr;

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
    /// Place of the answered Interest in the order of sending, counted from 0.
    pub sent_order: u64,
    /// How many Interests have been sent so far: the place the next one will take.
    pub next_order: u64,
    /// Whether the window was what held the consumer back. A window that nobody uses does not grow.
    pub window_limited: bool,
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

/// Decides how many Interests may be outstanding.
///
/// The pipeline calls [`on_congestion`](Self::on_congestion) at most once a round trip
/// (conservative window adaptation), so that a controller need not count signals.
pub trait CongestionControl: Send {
    /// A segment was answered without a sign of congestion.
    fn on_data(&mut self, sample: &Sample);

    /// The path is congested: shrink.
    fn on_congestion(&mut self, now: Instant, cause: Congestion);

    /// Nothing came back for a whole timeout: start over.
    fn on_timeout(&mut self, now: Instant);

    /// Interests that may be outstanding, at least 1.
    fn window(&self) -> f64;
}

/// Which controller to use, by the name that people give.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub enum Controller {
    /// [`Cubic`] with its default constants.
    #[default]
    Cubic,
    /// [`Aimd`] with its default constants.
    Aimd,
    /// [`Fixed`]: always the same window.
    Fixed,
    /// [`NbCc`]: what the consumer of paper nb-cache does.
    NbCc,
}

impl Controller {
    /// Every controller, in the order shown to people.
    pub const ALL: [Self; 4] = [Self::Cubic, Self::Aimd, Self::Fixed, Self::NbCc];

    /// Makes the controller. `window` is the window of [`Fixed`] and the initial one of the others
    /// (`None`: their defaults); `window_max` bounds all.
    pub fn make(self, window: Option<u32>, window_max: u32) -> Box<dyn CongestionControl> {
        let window_max = f64::from(window_max.max(1));
        match self {
            Self::Cubic => {
                let mut config = CubicConfig { window_max, ..CubicConfig::default() };
                if let Some(window) = window {
                    config.initial_window = f64::from(window.max(1));
                }
                Box::new(Cubic::new(config))
            }
            Self::Aimd => {
                let mut config = AimdConfig { window_max, ..AimdConfig::default() };
                if let Some(window) = window {
                    config.initial_window = f64::from(window.max(1));
                }
                Box::new(Aimd::new(config))
            }
            Self::Fixed => {
                let window =
                    window.map_or(fixed::DEFAULT_WINDOW, |window| f64::from(window.max(1)));
                Box::new(Fixed::new(window.min(window_max)))
            }
            Self::NbCc => {
                let mut config = NbCcConfig { window_max, ..NbCcConfig::default() };
                if let Some(window) = window {
                    config.initial_window = f64::from(window.max(1));
                }
                Box::new(NbCc::new(config))
            }
        }
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cubic => "cubic",
            Self::Aimd => "aimd",
            Self::Fixed => "fixed",
            Self::NbCc => "nb-cc",
        })
    }
}

/// The text names no controller.
#[derive(Clone, Eq, PartialEq, Debug, thiserror::Error)]
#[error("unknown congestion controller: use cubic, aimd, fixed or nb-cc")]
pub struct UnknownController;

impl FromStr for Controller {
    type Err = UnknownController;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|controller| match controller {
                Self::Cubic => text == "cubic",
                Self::Aimd => text == "aimd",
                Self::Fixed => text == "fixed",
                Self::NbCc => text == "nb-cc",
            })
            .ok_or(UnknownController)
    }
}

#[cfg(test)]
mod tests;
