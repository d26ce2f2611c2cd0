//! Low extra delay background transport (RFC 6817), with the slow start and the decrease of
//! LEDBAT++. Background transfers use the capacity that others leave.

use weir_base::{Instant, NS_PER_S};

use super::{
    Allowance, Congestion, CongestionControl, FromConfig, Sample, WindowBounds, WindowedMinMax,
};
use crate::controller_constants;

/// Constants of [`Ledbat`].
#[derive(Copy, Clone, Debug)]
pub(crate) struct LedbatConfig {
    /// The target: queueing delay that this flow may cause, in seconds (RFC 6817: up to 0.1). Here
    /// it is 0.015, which a foreground transfer over 20 ms hardly notices.
    pub(crate) target_s: f64,
    /// Growth per round trip without delay, in Interests (GAIN: 1).
    pub(crate) gain: f64,
    /// How long a round trip counts for the minimum, in seconds (BASE_HISTORY: 10 min). If it were
    /// shorter, a standing queue of other flows would look like a longer path.
    pub(crate) memory_s: f64,
}

impl Default for LedbatConfig {
    fn default() -> Self {
        Self { target_s: 0.015, gain: 1.0, memory_s: 600.0 }
    }
}

controller_constants!(LedbatConfig {
    target_s in 0.0001..=1.0,
    gain in 0.01..=10.0,
    memory_s in 1.0..=86_400.0,
});

/// Initial window, in Interests.
const INITIAL_WINDOW: f64 = 2.0;
/// A loss, mark or Nack multiplies the window by this.
const LOSS_FACTOR: f64 = 0.5;
/// Slow start ends at this share of the target.
const SLOW_START_END: f64 = 0.25;
/// The present round trip is the minimum of this many (CURRENT_FILTER).
const CURRENT_SAMPLES: usize = 4;

/// Without a queue the window grows by one per round trip. It grows more slowly as the delay
/// approaches the target, and shrinks beyond it, down to one Interest.
#[derive(Clone, Debug)]
pub(crate) struct Ledbat {
    config: LedbatConfig,
    window: f64,
    window_max: f64,
    is_slow_start: bool,
    base: WindowedMinMax,
    /// The latest round trips, and how many there were.
    current_ns: [u64; CURRENT_SAMPLES],
    count: usize,
}

impl Ledbat {
    /// The queueing delay of the latest answers, as a share of the target.
    fn queueing_share(&mut self, now: Instant, rtt_ns: u64) -> f64 {
        self.base.add(now, rtt_ns);
        self.current_ns[self.count % CURRENT_SAMPLES] = rtt_ns;
        self.count += 1;
        let known = &self.current_ns[..self.count.min(CURRENT_SAMPLES)];
        let current_ns = known.iter().copied().min().unwrap_or(rtt_ns);
        let base_ns = self.base.bounds().map_or(current_ns, |(least, _)| least);
        current_ns.saturating_sub(base_ns) as f64 / (self.config.target_s * NS_PER_S as f64)
    }

    fn decrease_window(&mut self) {
        self.window = (self.window * LOSS_FACTOR).max(1.0);
        self.is_slow_start = false;
    }
}

impl FromConfig for Ledbat {
    type Config = LedbatConfig;

    fn from_config(config: LedbatConfig, bounds: WindowBounds) -> Self {
        Self {
            config,
            window: bounds.initial_or(INITIAL_WINDOW).min(bounds.max()),
            window_max: bounds.max(),
            is_slow_start: true,
            base: WindowedMinMax::new((config.memory_s * NS_PER_S as f64) as u64),
            current_ns: [0; CURRENT_SAMPLES],
            count: 0,
        }
    }
}

impl CongestionControl for Ledbat {
    fn on_data(&mut self, sample: &Sample) {
        let Some(rtt_ns) = sample.direct_rtt_ns() else { return };
        let waited = self.queueing_share(sample.now, rtt_ns);
        self.is_slow_start &= waited < SLOW_START_END;
        if waited > 1.0 {
            // Shrinks in proportion to the excess: at most half an Interest per answer, so half of
            // the window per round trip.
            let part = (waited - 1.0).min(1.0) * LOSS_FACTOR;
            self.window = (self.window - part).max(1.0);
        } else if sample.window_limited {
            self.window += match self.is_slow_start {
                true => 1.0,
                false => self.config.gain * (1.0 - waited) / self.window,
            };
            self.window = self.window.min(self.window_max);
        }
    }

    fn on_congestion(&mut self, _now: Instant, _cause: Congestion) {
        self.decrease_window();
    }

    fn on_timeout(&mut self, _now: Instant) {
        self.window = 1.0;
        self.is_slow_start = false;
    }

    fn allowance(&self) -> Allowance {
        Allowance::window(self.window)
    }
}
