//! The consumer of paper nb-cache (III-E.4, V-C.4).

use weir_base::Instant;

use super::constants::constants;
use super::{Allowance, Congestion, CongestionControl, Make, Sample, WindowBounds};

/// Constants of [`NbCc`].
#[derive(Copy, Clone, Debug)]
pub struct NbCcConfig {
    /// Window at the start, in Interests.
    pub initial_window: f64,
    /// Largest window, in Interests.
    pub window_max: f64,
}

impl Default for NbCcConfig {
    fn default() -> Self {
        Self { initial_window: 2.0, window_max: 4096.0 }
    }
}

constants!(NbCcConfig {});

/// One Interest more for every unmarked Data, half as many on a mark: a window that doubles each
/// round trip until a router says that its store, and those behind it, can take no more. Routers
/// say so late (lazy notification), so it grows boldly.
#[derive(Clone, Debug)]
pub struct NbCc {
    config: NbCcConfig,
    window: f64,
}

impl NbCc {
    /// A controller with its initial window.
    pub fn new(config: NbCcConfig) -> Self {
        Self { window: config.initial_window.clamp(1.0, config.window_max.max(1.0)), config }
    }
}

impl Make for NbCc {
    type Config = NbCcConfig;

    fn bounded(config: NbCcConfig, bounds: WindowBounds) -> Self {
        let initial_window = bounds.initial_or(config.initial_window);
        Self::new(NbCcConfig { initial_window, window_max: bounds.max() })
    }
}

impl CongestionControl for NbCc {
    fn on_data(&mut self, sample: &Sample) {
        if sample.window_limited && !sample.mark.is_set() {
            self.window = (self.window + 1.0).min(self.config.window_max);
        }
    }

    /// The paper has marks only; a loss or a Nack for congestion says the same and more.
    fn on_congestion(&mut self, _now: Instant, _cause: Congestion) {
        self.window = (self.window / 2.0).max(1.0);
    }

    fn on_timeout(&mut self, _now: Instant) {
        self.window = self.config.initial_window.clamp(1.0, self.window);
    }

    fn allowance(&self) -> Allowance {
        Allowance::window(self.window)
    }
}
