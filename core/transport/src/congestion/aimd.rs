//! Additive increase, multiplicative decrease (RFC 5681, with the constants of ndnget).

use weir_base::Instant;

use super::{Allowance, Congestion, CongestionControl, FromConfig, Sample, WindowBounds};
use crate::controller_constants;

/// Constants of [`Aimd`].
#[derive(Copy, Clone, Debug)]
pub(crate) struct AimdConfig {
    /// Initial window, in Interests (ndnget: 2).
    pub(crate) initial_window: f64,
    /// Largest window, in Interests.
    pub(crate) window_max: f64,
    /// Growth per round trip, in Interests (ndnget: 1).
    pub(crate) step: f64,
    /// A decrease multiplies the window by this (ndnget: 0.5).
    pub(crate) factor: f64,
}

impl Default for AimdConfig {
    fn default() -> Self {
        Self { initial_window: 2.0, window_max: 4096.0, step: 1.0, factor: 0.5 }
    }
}

controller_constants!(AimdConfig {
    step in 0.01..=100.0,
    factor in 0.01..=0.99,
});

/// Smallest slow-start threshold, in Interests (ndnget: 2).
const THRESHOLD_MIN: f64 = 2.0;

/// Additive increase, multiplicative decrease, with slow start.
#[derive(Clone, Debug)]
pub(crate) struct Aimd {
    config: AimdConfig,
    window: f64,
    threshold: f64,
}

impl Aimd {
    /// A controller in slow start.
    pub(crate) fn new(config: AimdConfig) -> Self {
        let window = config.initial_window.clamp(1.0, config.window_max.max(1.0));
        Self { config, window, threshold: f64::INFINITY }
    }
}

impl FromConfig for Aimd {
    type Config = AimdConfig;

    fn from_config(config: AimdConfig, bounds: WindowBounds) -> Self {
        let initial_window = bounds.initial_or(config.initial_window);
        Self::new(AimdConfig { initial_window, window_max: bounds.max(), ..config })
    }
}

impl CongestionControl for Aimd {
    fn on_data(&mut self, sample: &Sample) {
        if sample.mark.is_set() || !sample.window_limited {
            return;
        }
        self.window += if self.window < self.threshold {
            self.config.step
        } else {
            self.config.step / self.window
        };
        self.window = self.window.min(self.config.window_max);
    }

    fn on_congestion(&mut self, _now: Instant, _cause: Congestion) {
        self.threshold = (self.window * self.config.factor).max(THRESHOLD_MIN);
        self.window = self.threshold;
    }

    fn on_timeout(&mut self, _now: Instant) {
        self.threshold = (self.window * self.config.factor).max(THRESHOLD_MIN);
        self.window = self.config.initial_window.min(self.threshold);
    }

    fn allowance(&self) -> Allowance {
        Allowance::window(self.window)
    }
}
