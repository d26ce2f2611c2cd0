//! A window that never changes, for links whose capacity is known.

use weir_base::Instant;

use super::constants::constants;
use super::{Allowance, Congestion, CongestionControl, Make, Sample, WindowBounds};

/// Window when none is asked for: 100, as `ndnd cat` uses.
const DEFAULT_WINDOW: f64 = 100.0;

/// Always the same window, whatever the network says.
#[derive(Clone, Debug)]
pub struct Fixed {
    window: f64,
}

impl Fixed {
    /// A controller with this window, in Interests; at least 1.
    pub fn new(window: f64) -> Self {
        Self { window: window.max(1.0) }
    }
}

/// Its window is no constant: it is the first window of all controllers.
#[derive(Debug, Default)]
pub(crate) struct FixedConfig;

constants!(FixedConfig {});

impl Make for Fixed {
    type Config = FixedConfig;

    fn bounded(_config: FixedConfig, bounds: WindowBounds) -> Self {
        Self::new(bounds.initial_or(DEFAULT_WINDOW).min(bounds.max()))
    }
}

impl CongestionControl for Fixed {
    fn on_data(&mut self, _sample: &Sample) {}

    fn on_congestion(&mut self, _now: Instant, _cause: Congestion) {}

    fn on_timeout(&mut self, _now: Instant) {}

    fn allowance(&self) -> Allowance {
        Allowance::window(self.window)
    }
}
