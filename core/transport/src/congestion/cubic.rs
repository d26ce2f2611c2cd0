//! CUBIC (RFC 9438) with HyStart++ (RFC 9406) and limited slow start (RFC 3742), the window counted
//! in Interests.

use weir_base::{Instant, NS_PER_MS, NS_PER_S};

use super::{Allowance, Congestion, CongestionControl, FromConfig, Sample, WindowBounds};
use crate::controller_constants;

#[derive(Copy, Clone, Debug)]
pub(crate) struct CubicConfig {
    /// Initial window, in Interests (RFC 6928: 10; ndnget: 2).
    pub(crate) initial_window: f64,
    /// Largest window, in Interests.
    pub(crate) window_max: f64,
    /// A decrease multiplies the window by this (RFC 9438, beta_cubic: 0.7).
    pub(crate) beta: f64,
    /// How steeply the window grows, in Interests per second cubed (RFC 9438, C: 0.4).
    pub(crate) steepness: f64,
    /// Whether a window that has not recovered its last maximum yields further (RFC 9438, 4.7).
    pub(crate) fast_convergence: bool,
}

impl Default for CubicConfig {
    fn default() -> Self {
        Self {
            initial_window: 10.0,
            window_max: 4096.0,
            beta: 0.7,
            steepness: 0.4,
            fast_convergence: true,
        }
    }
}

controller_constants!(CubicConfig {
    beta in 0.01..=0.99,
    steepness in 0.001..=100.0,
});

/// Smallest slow-start threshold, in Interests (RFC 9438, 4.6).
const THRESHOLD_MIN: f64 = 2.0;
/// Samples of a round before its delay is judged (RFC 9406, N_RTT_SAMPLE).
const ROUND_SAMPLES: u32 = 8;
/// Bounds of the delay that ends slow start, in nanoseconds. RFC 9406 has 4 to 16 ms for the paths
/// of TCP. A router on the same switch answers in 0.1 ms, and a queue of 4 ms would be hundreds of
/// segments.
const DELAY_MIN_NS: u64 = NS_PER_MS;
const DELAY_MAX_NS: u64 = 16 * NS_PER_MS;
/// The delay that ends slow start is the previous round trip divided by this (RFC 9406,
/// MIN_RTT_DIVISOR).
const DELAY_DIVISOR: u64 = 8;
/// Below this window, slow start doubles the window in a round trip. Above it, slow start adds half
/// of this number (RFC 3742, max_ssthresh). Otherwise the last doubling on a fast path would
/// overflow a router's queue before any delay shows.
const DOUBLING_MAX: f64 = 128.0;
/// Conservative slow start grows this many times more slowly (RFC 9406, CSS_GROWTH_DIVISOR).
const CONSERVATIVE_DIVISOR: f64 = 4.0;
/// Rounds of conservative slow start before congestion avoidance. RFC 9406 has 5 (CSS_ROUNDS), in
/// which the window triples. A face queues a few hundred segments, so here the window at most
/// doubles.
const CONSERVATIVE_ROUNDS: u32 = 3;
/// Slow start resumes when the delay proves to be noise (RFC 9406, 4.2), but only on paths with at
/// least this round trip. On shorter ones congestion avoidance loses little time. There, a thread
/// that waits for a processor looks like a queue that comes and goes.
const RESUME_RTT_NS: u64 = 10 * NS_PER_MS;

/// CUBIC: the window is a cubic function of the time since the last decrease. It is never below the
/// window that AIMD would have.
#[derive(Clone, Debug)]
pub(crate) struct Cubic {
    config: CubicConfig,
    window: f64,
    threshold: f64,
    slow_start: SlowStart,
    epoch: Option<Epoch>,
    /// The window before the last decrease (RFC 9438, W_max).
    last_max: f64,
    pace: Pace,
}

/// Sends less than the smallest window by pacing it. A router on this host answers so fast that
/// even two Interests per round trip may exceed the rate of a disk.
#[derive(Clone, Debug)]
struct Pace {
    /// Share of the window that may be used, up to 1.
    share: f64,
    smoothed_rtt_ns: u64,
    /// Mean bits of the Data that one Interest requests.
    data_bits: f64,
}

/// A decrease leaves at least this share.
const SHARE_MIN: f64 = 1.0 / 64.0;
/// Growth of the share per unmarked answer, relative to itself.
const SHARE_GROWTH: f64 = 0.05;

impl Pace {
    fn on_data(&mut self, sample: &Sample) {
        self.smoothed_rtt_ns = sample.smoothed_rtt_ns;
        let bits = 8.0 * sample.bytes as f64;
        let before = if self.data_bits == 0.0 { bits } else { self.data_bits };
        self.data_bits = before + (bits - before) / 16.0;
    }

    fn is_below_minimum(&self) -> bool {
        self.share < 1.0
    }

    fn allowance(&self, window: f64) -> Allowance {
        if !self.is_below_minimum() || self.smoothed_rtt_ns == 0 {
            return Allowance::window(window);
        }
        let bits = self.share * window * self.data_bits;
        let pacing_bps = bits * NS_PER_S as f64 / self.smoothed_rtt_ns as f64;
        Allowance { window, pacing_bps: Some((pacing_bps as u64).max(1)) }
    }
}

/// One growth period, from one decrease to the next.
#[derive(Clone, Debug)]
struct Epoch {
    start: Instant,
    /// The window to return to.
    origin: f64,
    /// Seconds from the start until the cubic returns to the origin (RFC 9438, K).
    period_s: f64,
    /// The window that AIMD would have (RFC 9438, W_est).
    estimate: f64,
}

impl Cubic {
    /// A controller in slow start.
    pub(crate) fn new(config: CubicConfig) -> Self {
        let window = config.initial_window.clamp(1.0, config.window_max.max(1.0));
        Self {
            config,
            window,
            threshold: f64::INFINITY,
            slow_start: SlowStart::default(),
            epoch: None,
            last_max: 0.0,
            pace: Pace { share: 1.0, smoothed_rtt_ns: 0, data_bits: 0.0 },
        }
    }

    /// A controller past slow start.
    pub(super) fn past_slow_start(window: f64, window_max: f64) -> Self {
        let config = CubicConfig { initial_window: window, window_max, ..CubicConfig::default() };
        Self { threshold: window, last_max: window, ..Self::new(config) }
    }

    /// Grows the window for one answer in congestion avoidance (RFC 9438, 4.2 to 4.5).
    fn grow_in_avoidance(&mut self, sample: &Sample) {
        let epoch = match &mut self.epoch {
            Some(epoch) => epoch,
            none => {
                // The argument of the cube root is not negative: the origin is at least the window.
                let origin = self.last_max.max(self.window);
                let period_s = cube_root((origin - self.window) / self.config.steepness);
                none.insert(Epoch { start: sample.now, origin, period_s, estimate: self.window })
            }
        };
        let beta = self.config.beta;
        // RFC 9438, 4.3: alpha is 1 once the window has reached its value before the decrease.
        let alpha =
            if epoch.estimate >= self.last_max { 1.0 } else { 3.0 * (1.0 - beta) / (1.0 + beta) };
        epoch.estimate += alpha / self.window;

        // RFC 9438, 4.2: the target is the cubic's value one round trip from now.
        let elapsed_ns = sample.now.ns_since(epoch.start) + sample.smoothed_rtt_ns;
        let t = elapsed_ns as f64 / NS_PER_S as f64 - epoch.period_s;
        let cubic = self.config.steepness * t * t * t + epoch.origin;
        if cubic < epoch.estimate {
            self.window = self.window.max(epoch.estimate);
        } else {
            // RFC 9438, 4.2: the window grows by at most half in a round trip.
            let target = cubic.clamp(self.window, 1.5 * self.window);
            self.window += (target - self.window) / self.window;
        }
    }

    fn decrease(&mut self, factor: f64) {
        self.last_max = if self.config.fast_convergence && self.window < self.last_max {
            self.window * (1.0 + factor) / 2.0
        } else {
            self.window
        };
        self.threshold = (self.window * factor).max(THRESHOLD_MIN);
        self.epoch = None;
    }
}

impl FromConfig for Cubic {
    type Config = CubicConfig;

    fn from_config(config: CubicConfig, bounds: WindowBounds) -> Self {
        let initial_window = bounds.initial_or(config.initial_window);
        Self::new(CubicConfig { initial_window, window_max: bounds.max(), ..config })
    }
}

impl CongestionControl for Cubic {
    fn on_data(&mut self, sample: &Sample) {
        self.pace.on_data(sample);
        if sample.mark.is_set() {
            return;
        }
        let growth = self.slow_start.on_data(sample);
        // A window that was not used in full has not shown that the path carries more.
        if !sample.window_limited {
            return;
        }
        // The window is at its minimum, and pacing uses only a share of it. The share grows first.
        if self.pace.is_below_minimum() {
            self.pace.share = (self.pace.share * (1.0 + SHARE_GROWTH)).min(1.0);
            return;
        }
        if self.window >= self.threshold {
            self.grow_in_avoidance(sample);
        } else if let Some(growth) = growth {
            let is_limited = self.window > DOUBLING_MAX;
            self.window += growth * if is_limited { DOUBLING_MAX / 2.0 / self.window } else { 1.0 };
        } else {
            self.threshold = self.window;
        }
        self.window = self.window.min(self.config.window_max);
    }

    fn on_congestion(&mut self, _now: Instant, cause: Congestion) {
        // The window cannot shrink further, so a mark lowers the pace instead.
        if cause == Congestion::Mark && self.window <= THRESHOLD_MIN {
            self.pace.share = (self.pace.share * self.config.beta).max(SHARE_MIN);
            return;
        }
        self.decrease(self.config.beta);
        self.window = self.threshold;
    }

    fn on_timeout(&mut self, _now: Instant) {
        self.decrease(self.config.beta);
        self.window = self.config.initial_window.min(self.threshold);
        self.slow_start = SlowStart::default();
    }

    fn allowance(&self) -> Allowance {
        self.pace.allowance(self.window)
    }
}

/// HyStart++: growing delay shows that the window fills the path, before a queue overflows.
#[derive(Clone, Debug, Default)]
struct SlowStart {
    /// The round ends with the answer to the Interest of this order.
    round_end: u64,
    round_samples: u32,
    round_min_ns: u64,
    last_round_min_ns: u64,
    /// In conservative slow start: the round trip below which slow start resumes, and the rounds
    /// spent so far.
    conservative: Option<(u64, u32)>,
    is_over: bool,
}

impl SlowStart {
    /// Growth of the window for one answer; `None` when slow start has ended.
    fn on_data(&mut self, sample: &Sample) -> Option<f64> {
        if self.is_over {
            return None;
        }
        if sample.sent_order >= self.round_end {
            self.start_round(sample.next_order);
        }
        if let Some(rtt_ns) = sample.direct_rtt_ns() {
            self.round_min_ns =
                if self.round_samples == 0 { rtt_ns } else { self.round_min_ns.min(rtt_ns) };
            self.round_samples += 1;
            self.check_delay(sample.min_rtt_ns);
        }
        match self.conservative {
            _ if self.is_over => None,
            Some(_) => Some(1.0 / CONSERVATIVE_DIVISOR),
            None => Some(1.0),
        }
    }

    fn start_round(&mut self, next_order: u64) {
        if self.round_samples > 0 {
            self.last_round_min_ns = self.round_min_ns;
        }
        self.round_samples = 0;
        self.round_end = next_order;
        if let Some((_, rounds)) = &mut self.conservative {
            *rounds += 1;
            self.is_over = *rounds >= CONSERVATIVE_ROUNDS;
        }
    }

    fn check_delay(&mut self, min_rtt_ns: u64) {
        if self.round_samples < ROUND_SAMPLES || self.last_round_min_ns == 0 {
            return;
        }
        match self.conservative {
            None => {
                let delay_ns =
                    (self.last_round_min_ns / DELAY_DIVISOR).clamp(DELAY_MIN_NS, DELAY_MAX_NS);
                if self.round_min_ns >= self.last_round_min_ns + delay_ns {
                    self.conservative = Some((self.round_min_ns, 0));
                }
            }
            Some((baseline_ns, _)) => {
                if self.round_min_ns < baseline_ns && min_rtt_ns >= RESUME_RTT_NS {
                    self.conservative = None;
                }
            }
        }
    }
}

/// The cube root of a non-negative number, by Newton's method. The first guess divides the exponent
/// by three.
fn cube_root(x: f64) -> f64 {
    if x <= 0.0 || !x.is_finite() {
        return 0.0;
    }
    // 0x3ff0... is 1.0. Dividing the distance of the bits from it by three divides the exponent.
    const ONE: u64 = 0x3ff0_0000_0000_0000;
    let guess = (x.to_bits() / 3).wrapping_add(ONE - ONE / 3);
    let mut root = f64::from_bits(guess);
    for _ in 0..4 {
        root = (2.0 * root + x / (root * root)) / 3.0;
    }
    root
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn cube_root_matches_std() {
        for x in [1e-9, 0.001, 0.3, 1.0, 2.0, 8.0, 27.0, 1e3, 12345.678, 1e12] {
            let expected = f64::cbrt(x);
            assert!((cube_root(x) - expected).abs() < 1e-9 * expected, "{x}: {}", cube_root(x));
        }
        assert_eq!(cube_root(0.0), 0.0);
        assert_eq!(cube_root(-1.0), 0.0);
        assert_eq!(cube_root(f64::NAN), 0.0);
    }
}
