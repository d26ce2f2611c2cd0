//! The consumer of paper nb-cache (III-E.4, V-C.4).

use weir_base::Instant;
use weir_transport::congestion::{
    Allowance, Congestion, CongestionControl, FromConfig, Sample, WindowBounds,
};
use weir_transport::controller_constants;

/// Initial window, in Interests.
const INITIAL_WINDOW: f64 = 2.0;

/// It has no constants.
#[derive(Debug, Default)]
pub(super) struct NbCcConfig;

controller_constants!(NbCcConfig {});

/// One Interest more for each unmarked Data, and half as many after a mark. The window doubles each
/// round trip until a router signals that its store and the stores behind it are at capacity.
/// Routers signal this late (lazy notification), so the window may grow fast.
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

    /// The paper has only marks. A loss or a Nack for congestion is treated like one.
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
