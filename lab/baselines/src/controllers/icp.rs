//! The Interest Control Protocol (Carofiglio, Gallo, Muscariello: ICP, INFOCOM NOMEN 2012), a
//! baseline of paper chopcop (2.2, 6.1).

use weir_base::Instant;

use weir_transport::congestion::{
    Allowance, Congestion, CongestionControl, FromConfig, LossDetection, Marks, PathRules, Sample,
    Timeout, WindowBounds,
};
use weir_transport::controller_constants;

/// Constants of [`Icp`].
#[derive(Copy, Clone, Debug)]
pub(super) struct IcpConfig {
    /// Growth per round trip, in Interests (eta: 1).
    eta: f64,
    /// Factor of the window after a decrease (beta: 0.5).
    beta: f64,
    /// Position of the timeout between the smallest and the largest round trip of the history (0.5:
    /// the middle).
    delta: f64,
    /// Number of round trips in the history (20), at most [`HISTORY_MAX`].
    history: f64,
}

/// Longest history, in round trips.
const HISTORY_MAX: usize = 128;
/// Initial window, in Interests; there is no slow start.
const INITIAL_WINDOW: f64 = 2.0;

impl Default for IcpConfig {
    fn default() -> Self {
        Self { eta: 1.0, beta: 0.5, delta: 0.5, history: 20.0 }
    }
}

controller_constants!(IcpConfig {
    eta in 0.01..=100.0,
    beta in 0.01..=0.99,
    delta in 0.0..=16.0,
    history in 2.0..=HISTORY_MAX as f64,
});

/// Additive increase for each Data and multiplicative decrease on each timeout; no other congestion
/// signal. The timeout lies between the smallest and the largest of the last round trips, over all
/// sources.
#[derive(Clone, Debug)]
pub(super) struct Icp {
    config: IcpConfig,
    window: f64,
    window_max: f64,
    /// The last round trips in nanoseconds; the oldest is overwritten.
    history_ns: [u64; HISTORY_MAX],
    samples: usize,
}

impl Icp {
    fn len(&self) -> usize {
        self.config.history as usize
    }

    /// The timeout in nanoseconds; `None` until the history is full.
    fn tau_ns(&self) -> Option<u64> {
        if self.samples < self.len() {
            return None;
        }
        let history = &self.history_ns[..self.len()];
        let (min, max) = (*history.iter().min()?, *history.iter().max()?);
        Some(min + ((max - min) as f64 * self.config.delta) as u64)
    }
}

impl FromConfig for Icp {
    type Config = IcpConfig;

    fn from_config(config: IcpConfig, bounds: WindowBounds) -> Self {
        let window = bounds.initial_or(INITIAL_WINDOW).min(bounds.max());
        let history_ns = [0; HISTORY_MAX];
        Self { config, window, window_max: bounds.max(), history_ns, samples: 0 }
    }
}

impl CongestionControl for Icp {
    fn on_data(&mut self, sample: &Sample) {
        if let Some(rtt_ns) = sample.rtt_ns {
            self.history_ns[self.samples % self.len()] = rtt_ns;
            self.samples += 1;
        }
        if sample.window_limited {
            self.window = (self.window + self.config.eta / self.window).min(self.window_max);
        }
    }

    /// Here the path reports only Nacks, which the paper does not have.
    fn on_congestion(&mut self, now: Instant, _cause: Congestion) {
        self.on_timeout(now);
    }

    fn on_timeout(&mut self, _now: Instant) {
        self.window = (self.window * self.config.beta).max(1.0);
    }

    fn allowance(&self) -> Allowance {
        Allowance::window(self.window)
    }

    fn rules(&self) -> PathRules {
        let timeout = self.tau_ns().map_or(Timeout::Estimated, Timeout::After);
        PathRules { timeout, loss_detection: LossDetection::Never, marks: Marks::Unreported }
    }
}
