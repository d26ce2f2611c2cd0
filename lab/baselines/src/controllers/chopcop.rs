//! RIC, the receiver of paper chopcop (3.3).

use weir_base::Instant;

use weir_transport::congestion::{
    Allowance, Congestion, CongestionControl, FromConfig, LossDetection, Marks, PathRules, Sample,
    Timeout, WindowBounds,
};
use weir_transport::controller_constants;

/// Constants of [`Chopcop`]. The paper gives none of them; the laboratory varies them.
#[derive(Copy, Clone, Debug)]
pub(super) struct ChopcopConfig {
    /// Growth per window of received chunks, in chunks (1: TCP's).
    alpha: f64,
    /// Factor of the window after a timeout (0.5: TCP's).
    beta_0: f64,
    /// Factor of the window after a chunk with all packets marked (Eq. 3). It equals that after a
    /// timeout, because the queue then is at least twice q_max.
    beta_1: f64,
    /// Factor of the window after a chunk without marked packets, if such a chunk shrank it (Eq.
    /// 3). With 0.9 and one marked packet of 32, the window shrinks by a ninth. This agrees with
    /// the deviation of the paper's window (2.57 of 23.27).
    beta_2: f64,
    /// Weight of the previous mean round trip (Eq. 4). 0.875: TCP's.
    sigma: f64,
    /// Timeout in mean round trips (Eq. 5). 4: the paper's router holds up to 300 ms of Data, and
    /// its path has a round trip of 110 ms. Together they are 3.7 round trips.
    delta: f64,
    /// For this many mean round trips after a decrease, marked chunks leave the window unchanged.
    /// 0: every marked chunk shrinks it.
    rest: f64,
    /// Window at which slow start ends, in chunks. By default unlimited, so that the first mark
    /// ends it.
    threshold: f64,
}

/// Initial window, in chunks.
const INITIAL_WINDOW: f64 = 2.0;

impl Default for ChopcopConfig {
    fn default() -> Self {
        Self {
            alpha: 1.0,
            beta_0: 0.5,
            beta_1: 0.5,
            beta_2: 0.9,
            sigma: 0.875,
            delta: 4.0,
            rest: 0.0,
            threshold: f64::INFINITY,
        }
    }
}

controller_constants!(ChopcopConfig {
    alpha in 0.01..=100.0,
    beta_0 in 0.01..=0.999,
    beta_1 in 0.01..=0.999,
    beta_2 in 0.01..=0.999,
    sigma in 0.0..=0.999,
    delta in 1.0..=64.0,
    rest in 0.0..=64.0,
    threshold in 1.0..=f64::INFINITY,
} beta_1 <= beta_2);

/// A window of chunks that grows until packets are marked. A chunk with marked packets shrinks it,
/// in proportion to the fraction of marked packets.
#[derive(Clone, Debug)]
pub(super) struct Chopcop {
    config: ChopcopConfig,
    window: f64,
    window_max: f64,
    is_slow_start: bool,
    /// Mean round trip in nanoseconds (Eq. 4); `None` before the first one.
    rtt_ns: Option<f64>,
    /// Marked chunks are ignored until then.
    rests_until: Instant,
}

impl Chopcop {
    fn shrink(&mut self, beta: f64) {
        self.window = (self.window * beta).max(1.0);
        self.is_slow_start = false;
    }
}

impl FromConfig for Chopcop {
    type Config = ChopcopConfig;

    fn from_config(config: ChopcopConfig, bounds: WindowBounds) -> Self {
        let window = bounds.initial_or(INITIAL_WINDOW).min(bounds.max());
        Self {
            config,
            window,
            window_max: bounds.max(),
            is_slow_start: true,
            rtt_ns: None,
            rests_until: Instant::ZERO,
        }
    }
}

impl CongestionControl for Chopcop {
    fn on_data(&mut self, sample: &Sample) {
        let ChopcopConfig { alpha, beta_1, beta_2, sigma, threshold, .. } = self.config;
        if let Some(rtt_ns) = sample.rtt_ns {
            let rtt_ns = rtt_ns as f64;
            self.rtt_ns =
                Some(self.rtt_ns.map_or(rtt_ns, |mean| sigma * mean + (1.0 - sigma) * rtt_ns));
        }
        if sample.marked_packets > 0 && sample.now < self.rests_until {
            return;
        }
        if sample.marked_packets > 0 {
            let rest_ns = self.config.rest * self.rtt_ns.unwrap_or_default();
            self.rests_until = sample.now.plus_ns(rest_ns as u64);
            let share = f64::from(sample.marked_packets) / f64::from(sample.packets.max(1));
            self.shrink(beta_2 - (beta_2 - beta_1) * share);
        } else if sample.window_limited {
            self.is_slow_start &= self.window < threshold;
            self.window += if self.is_slow_start { 1.0 } else { alpha / self.window };
            self.window = self.window.min(self.window_max);
        }
    }

    /// Here the path reports only Nacks, which the paper does not have.
    fn on_congestion(&mut self, now: Instant, _cause: Congestion) {
        self.on_timeout(now);
    }

    fn on_timeout(&mut self, _now: Instant) {
        self.shrink(self.config.beta_0);
    }

    fn allowance(&self) -> Allowance {
        Allowance::window(self.window)
    }

    fn rules(&self) -> PathRules {
        let after = |mean: f64| Timeout::After((self.config.delta * mean) as u64);
        let timeout = self.rtt_ns.map_or(Timeout::Estimated, after);
        PathRules { timeout, loss_detection: LossDetection::Never, marks: Marks::Unreported }
    }
}
