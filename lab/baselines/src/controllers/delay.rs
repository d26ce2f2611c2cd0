//! Remote adaptive active queue management (Carofiglio, Gallo, Muscariello: Optimal multipath
//! congestion control and request forwarding in information-centric networks, Computer Networks
//! 110, 2016). The transport of paper socket-api used it, with two ideas of BBR.

use weir_base::{Instant, NS_PER_S};

use weir_transport::congestion::{
    Allowance, Congestion, CongestionControl, FromConfig, Marks, PathRules, Sample, WindowBounds,
    WindowedMinMax,
};
use weir_transport::controller_constants;

/// Constants of [`Delay`].
#[derive(Copy, Clone, Debug)]
pub(super) struct DelayConfig {
    /// Growth per round trip, in Interests (eta: 1).
    eta: f64,
    /// Factor of the window after a decrease (beta: 0.8, as in hICN's transport).
    beta: f64,
    /// Probability of a decrease per Data at the largest delay (0.2, as there).
    p_max: f64,
    /// The same without delay (0.00001, as there).
    p_min: f64,
    /// How long a round trip counts for the minimum and the maximum, in seconds. 10 is BBR's window
    /// for the minimum. The paper's 30 samples would be a fraction of a round trip on a fast path,
    /// and would forget the round trip without a queue.
    memory_s: f64,
}

impl Default for DelayConfig {
    fn default() -> Self {
        Self { eta: 1.0, beta: 0.8, p_max: 0.2, p_min: 1e-5, memory_s: 10.0 }
    }
}

controller_constants!(DelayConfig {
    eta in 0.01..=100.0,
    beta in 0.01..=0.999,
    p_max in 0.0..=1.0,
    p_min in 0.0..=1.0,
    memory_s in 0.1..=3600.0,
} p_min <= p_max);

/// Initial window, in Interests.
const INITIAL_WINDOW: f64 = 2.0;
/// Factor of the window after a loss (RFC 5681).
const LOSS_FACTOR: f64 = 0.5;
/// Slow start ends when a round trip exceeds the minimum by this fraction (HyStart++, RFC 9406).
const DELAY_PARTS: u64 = 8;

/// The window shrinks with a probability that grows with the delay: from `p_min` at the smallest
/// recent round trip to `p_max` at the largest.
#[derive(Clone, Debug)]
pub(super) struct Delay {
    config: DelayConfig,
    window: f64,
    window_max: f64,
    is_slow_start: bool,
    rtts_ns: WindowedMinMax,
    /// Sum of the probabilities since the last decrease. The next decrease happens when it reaches
    /// 1: a controller has no random numbers, and the mean is the same.
    owed: f64,
}

impl Delay {
    /// The probability of a decrease at this delay.
    fn probability(&self, rtt_ns: u64) -> f64 {
        let DelayConfig { p_max, p_min, .. } = self.config;
        let share = match self.rtts_ns.bounds() {
            Some((min, max)) if max > min => (rtt_ns - min) as f64 / (max - min) as f64,
            _ => 0.0,
        };
        p_min + (p_max - p_min).max(0.0) * share
    }

    fn shrink(&mut self, factor: f64) {
        self.window = (self.window * factor).max(1.0);
        self.is_slow_start = false;
        self.owed = 0.0;
    }
}

impl FromConfig for Delay {
    type Config = DelayConfig;

    fn from_config(config: DelayConfig, bounds: WindowBounds) -> Self {
        Self {
            config,
            window: bounds.initial_or(INITIAL_WINDOW).min(bounds.max()),
            window_max: bounds.max(),
            is_slow_start: true,
            rtts_ns: WindowedMinMax::new((config.memory_s * NS_PER_S as f64) as u64),
            owed: 0.0,
        }
    }
}

impl CongestionControl for Delay {
    fn on_data(&mut self, sample: &Sample) {
        if let Some(rtt_ns) = sample.rtt_ns {
            self.rtts_ns.add(sample.now, rtt_ns);
            let min = self.rtts_ns.bounds().map_or(rtt_ns, |(min, _)| min);
            self.is_slow_start &= rtt_ns < min + min / DELAY_PARTS;
            if !self.is_slow_start {
                self.owed += self.probability(rtt_ns);
            }
        }
        if self.owed >= 1.0 {
            self.shrink(self.config.beta);
        } else if sample.window_limited {
            self.window += if self.is_slow_start { 1.0 } else { self.config.eta / self.window };
            self.window = self.window.min(self.window_max);
        }
    }

    fn on_congestion(&mut self, _now: Instant, _cause: Congestion) {
        self.shrink(LOSS_FACTOR);
    }

    fn on_timeout(&mut self, _now: Instant) {
        self.shrink(LOSS_FACTOR);
    }

    fn allowance(&self) -> Allowance {
        Allowance::window(self.window)
    }

    fn rules(&self) -> PathRules {
        PathRules { marks: Marks::Unreported, ..PathRules::default() }
    }
}
