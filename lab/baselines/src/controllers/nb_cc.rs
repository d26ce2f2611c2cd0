//! The consumer of paper nb-cache (III-E.4, V-C.4).

use weir_base::Instant;
use weir_transport::congestion::{
    Allowance, Congestion, CongestionControl, FromConfig, Sample, WindowBounds,
};
use weir_transport::controller_constants;

/// Window at the start, in Interests.
const INITIAL_WINDOW: f64 = 2.0;

/// It has none to change.
#[derive(Debug, Default)]
pub(super) struct NbCcConfig;

controller_constants!(NbCcConfig {});

/// One Interest more for each unmarked Data, half as many on a mark: the window doubles each round
/// trip until a router reports that its store, and the stores behind it, can take no more. Routers
/// report that late (lazy notification), so the window grows boldly.
#[derive(Clone, Debug)]
pub(super) struct NbCc {
    window: f64,
    window_initial: f64,
    window_max: f64,
}

impl FromConfig for NbCc {
    type Config = NbCcConfig;

    fn from_config(_config: NbCcConfig, bounds: WindowBounds) -> Self {
        let window = bounds.initial_or(INITIAL_WINDOW).min(bounds.max());
        Self { window, window_initial: window, window_max: bounds.max() }
    }
}

impl CongestionControl for NbCc {
    fn on_data(&mut self, sample: &Sample) {
        if sample.window_limited && !sample.mark.is_set() {
            self.window = (self.window + 1.0).min(self.window_max);
        }
    }

    /// The paper has marks only; a loss or a Nack for congestion means the same.
    fn on_congestion(&mut self, _now: Instant, _cause: Congestion) {
        self.window = (self.window / 2.0).max(1.0);
    }

    fn on_timeout(&mut self, _now: Instant) {
        self.window = self.window.min(self.window_initial);
    }

    fn allowance(&self) -> Allowance {
        Allowance::window(self.window)
    }
}
