//! The Information Centric Transport Protocol (Salsano and others: Transport-layer issues in
//! information centric networks, ACM ICN 2012): TCP's behaviour at the receiver. A baseline of
//! paper chopcop (2.2, 6.1).

use weir_base::Instant;

use weir_transport::congestion::{
    Allowance, Congestion, CongestionControl, FromConfig, LossDetection, Marks, PathRules, Sample,
    WindowBounds,
};
use weir_transport::controller_constants;

/// Constants of [`Ictp`].
#[derive(Copy, Clone, Debug)]
pub(super) struct IctpConfig {
    /// Factor of the window after a fast retransmission (RFC 5681: 0.5).
    beta: f64,
}

impl Default for IctpConfig {
    fn default() -> Self {
        Self { beta: 0.5 }
    }
}

controller_constants!(IctpConfig { beta in 0.01..=0.99, });

/// Initial window, in Interests (RFC 5681).
const INITIAL_WINDOW: f64 = 2.0;
/// Window after a timeout, in Interests (RFC 5681, loss window).
const LOSS_WINDOW: f64 = 1.0;
/// Smallest slow-start threshold, in Interests (RFC 5681, Eq. 4).
const THRESHOLD_MIN: f64 = 2.0;

/// TCP Reno's slow start, congestion avoidance and fast retransmission, with Data as
/// acknowledgements. Data out of order counts as a loss, and marks are ignored.
#[derive(Clone, Debug)]
pub(super) struct Ictp {
    config: IctpConfig,
    window: f64,
    window_max: f64,
    threshold: f64,
}

impl FromConfig for Ictp {
    type Config = IctpConfig;

    fn from_config(config: IctpConfig, bounds: WindowBounds) -> Self {
        let window = bounds.initial_or(INITIAL_WINDOW).min(bounds.max());
        Self { config, window, window_max: bounds.max(), threshold: f64::INFINITY }
    }
}

impl CongestionControl for Ictp {
    fn on_data(&mut self, sample: &Sample) {
        if sample.window_limited {
            self.window += if self.window < self.threshold { 1.0 } else { 1.0 / self.window };
            self.window = self.window.min(self.window_max);
        }
    }

    fn on_congestion(&mut self, _now: Instant, _cause: Congestion) {
        self.threshold = (self.window * self.config.beta).max(THRESHOLD_MIN);
        self.window = self.threshold.min(self.window_max);
    }

    fn on_timeout(&mut self, now: Instant) {
        self.on_congestion(now, Congestion::Loss);
        self.window = LOSS_WINDOW;
    }

    fn allowance(&self) -> Allowance {
        Allowance::window(self.window)
    }

    fn rules(&self) -> PathRules {
        PathRules {
            loss_detection: LossDetection::AfterThree,
            marks: Marks::Unreported,
            ..PathRules::default()
        }
    }
}
