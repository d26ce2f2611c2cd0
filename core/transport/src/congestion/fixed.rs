//! A window that never changes, for links whose capacity is known.

use weir_base::Instant;

use super::{Allowance, Congestion, CongestionControl, FromConfig, Sample, WindowBounds};
use crate::controller_constants;

/// Window when none is asked for: 100, as `ndnd cat` uses.
const DEFAULT_WINDOW: f64 = 100.0;

/// It has none to change: its window is the first window of all controllers.
#[derive(Debug, Default)]
pub(crate) struct FixedConfig;

controller_constants!(FixedConfig {});

/// Always the same window, whatever happens on the path.
#[derive(Clone, Debug)]
pub(crate) struct Fixed {
    window: f64,
}

impl FromConfig for Fixed {
    type Config = FixedConfig;

    fn from_config(_config: FixedConfig, bounds: WindowBounds) -> Self {
        Self { window: bounds.initial_or(DEFAULT_WINDOW).min(bounds.max()) }
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
