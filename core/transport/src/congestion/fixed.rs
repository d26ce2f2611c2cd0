//! A window that never changes, for links whose capacity is known.

use weir_base::Instant;

use super::{Allowance, Congestion, CongestionControl, FromConfig, Sample, WindowBounds};
use crate::controller_constants;

/// Window if none is configured: 100, as in `ndnd cat`.
const DEFAULT_WINDOW: f64 = 100.0;

/// `fixed` has no constants: its window is the initial window of all controllers.
#[derive(Debug, Default)]
pub(crate) struct FixedConfig;

controller_constants!(FixedConfig {});

/// Keeps the same window in all conditions.
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
