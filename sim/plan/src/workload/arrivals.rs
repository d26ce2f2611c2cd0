//! Arrival processes.

use weir_base::{NS_PER_S, Rng};

use super::random::exponential;
use super::{Arrivals, WorkloadError};

/// Higher rates are below the resolution of time.
const RATE_MAX_HZ: f64 = 1e9;

/// Generates the times of an arrival process in order.
#[derive(Clone, Debug)]
pub(crate) struct ArrivalProcess {
    start_ns: u64,
    rng: Rng,
    state: ArrivalState,
}

#[derive(Clone, Debug)]
enum ArrivalState {
    /// Times are computed from the count of earlier ones, so errors do not accumulate.
    Constant { rate_hz: f64, count: u64 },
    /// Mean interval, and the time of the last arrival since the start.
    Poisson { mean_ns: f64, at_ns: f64 },
    /// Times of a constant rate on a clock that stops during pauses.
    OnOff { rate_hz: f64, on_ns: f64, off_ns: f64, count: u64, burst: Burst },
    /// Time of the next arrival since the start, and the remaining arrivals of its burst (`left`).
    Bursts { gap_ns: f64, size: u32, off_ns: (f64, f64), at_ns: f64, left: u32 },
}

#[derive(Clone, Copy, Debug)]
struct Burst {
    /// Start of the burst, since the start of the process.
    begins_ns: f64,
    /// The same without pauses.
    begins_on_ns: f64,
    len_ns: f64,
}

impl ArrivalProcess {
    /// The process of `plan` from `start_ns` on. Constant arrivals and bursts start at once.
    pub(crate) fn new(plan: &Arrivals, start_ns: u64, seed: u64) -> Result<Self, WorkloadError> {
        let mut rng = Rng::from_seed(seed);
        let state = match *plan {
            Arrivals::Constant { rate_hz } => {
                ArrivalState::Constant { rate_hz: check_rate(rate_hz)?, count: 0 }
            }
            Arrivals::Poisson { rate_hz } => ArrivalState::Poisson {
                mean_ns: NS_PER_S as f64 / check_rate(rate_hz)?,
                at_ns: 0.0,
            },
            Arrivals::OnOff { rate_hz, on_ns, off_ns } => {
                if on_ns == 0 {
                    return Err(WorkloadError::value("on_ns", "is 0; write a length above 0"));
                }
                let len_ns = exponential(&mut rng, on_ns as f64);
                ArrivalState::OnOff {
                    rate_hz: check_rate(rate_hz)?,
                    on_ns: on_ns as f64,
                    off_ns: off_ns as f64,
                    count: 0,
                    burst: Burst { begins_ns: 0.0, begins_on_ns: 0.0, len_ns },
                }
            }
            Arrivals::Bursts { rate_hz, size, off_ns, off_max_ns } => {
                if size == 0 {
                    return Err(WorkloadError::value("size", "is 0; write at least 1"));
                }
                if off_max_ns < off_ns {
                    return Err(WorkloadError::value("off_max_ns", "is less than `off_ns`"));
                }
                let gap_ns = NS_PER_S as f64 / check_rate(rate_hz)?;
                let off_ns = (off_ns as f64, off_max_ns as f64);
                ArrivalState::Bursts { gap_ns, size, off_ns, at_ns: 0.0, left: size }
            }
        };
        Ok(Self { start_ns, rng, state })
    }

    /// The next time, ns from the start of the run. Times never decrease.
    pub(crate) fn next_ns(&mut self) -> u64 {
        let rng = &mut self.rng;
        let since_start_ns = match &mut self.state {
            ArrivalState::Constant { rate_hz, count } => next_at_rate(*rate_hz, count),
            ArrivalState::Poisson { mean_ns, at_ns } => {
                *at_ns += exponential(rng, *mean_ns);
                *at_ns
            }
            ArrivalState::OnOff { rate_hz, on_ns, off_ns, count, burst } => {
                let at_on_ns = next_at_rate(*rate_hz, count);
                // An arrival after the end of this burst belongs to a later one, with a pause
                // before each.
                while at_on_ns >= burst.begins_on_ns + burst.len_ns {
                    burst.begins_on_ns += burst.len_ns;
                    burst.begins_ns += burst.len_ns + exponential(rng, *off_ns);
                    burst.len_ns = exponential(rng, *on_ns);
                }
                burst.begins_ns + (at_on_ns - burst.begins_on_ns)
            }
            ArrivalState::Bursts { gap_ns, size, off_ns: (least, most), at_ns, left } => {
                let now_ns = *at_ns;
                *left -= 1;
                if *left == 0 {
                    *left = *size;
                    *at_ns += *least + (*most - *least) * rng.unit();
                } else {
                    *at_ns += *gap_ns;
                }
                now_ns
            }
        };
        self.start_ns.saturating_add(since_start_ns as u64)
    }
}

fn next_at_rate(rate_hz: f64, count: &mut u64) -> f64 {
    let at_ns = *count as f64 * NS_PER_S as f64 / rate_hz;
    *count += 1;
    at_ns
}

fn check_rate(rate_hz: f64) -> Result<f64, WorkloadError> {
    if rate_hz > 0.0 && rate_hz <= RATE_MAX_HZ {
        return Ok(rate_hz);
    }
    let problem = format!("is {rate_hz}; write a rate above 0 and at most {RATE_MAX_HZ:e}");
    Err(WorkloadError::value("rate_hz", problem))
}

impl Arrivals {
    /// Highest arrival rate per second.
    pub(crate) fn peak_rate_hz(&self) -> f64 {
        match *self {
            Self::Constant { rate_hz }
            | Self::Poisson { rate_hz }
            | Self::OnOff { rate_hz, .. }
            | Self::Bursts { rate_hz, .. } => rate_hz,
        }
    }
}
