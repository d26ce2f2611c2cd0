use std::time::{Duration, Instant};

use weir_base::Rng;

use crate::config::{Pace, Service};

/// Computes when a paced disk would finish an operation.
pub(crate) struct Pacer {
    service: Duration,
    servers: Vec<Instant>,
    rng: Option<Rng>,
}

impl Pacer {
    pub(crate) fn new(pace: &Pace, now: Instant) -> Self {
        let servers = pace.parallelism.max(1);
        let rng = match pace.service {
            Service::Constant => None,
            Service::Exponential { seed } => Some(Rng::from_seed(seed)),
        };
        Self {
            service: Duration::from_secs_f64(f64::from(servers) / pace.ops_per_s),
            servers: vec![now; servers as usize],
            rng,
        }
    }

    /// When operations that arrive at `now` would be finished, if one server processed them one
    /// after another.
    pub(crate) fn due(&mut self, now: Instant, operations: u32) -> Instant {
        let mut service = Duration::ZERO;
        for _ in 0..operations {
            service += match &mut self.rng {
                None => self.service,
                Some(rng) => self.service.mul_f64(-(1.0 - rng.unit()).ln()),
            };
        }
        // The server that is idle first takes the operations.
        let first = self.servers.iter_mut().min().expect("there is a server");
        *first = (*first).max(now) + service;
        *first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(parallelism: u32, service: Service) -> Pace {
        Pace { ops_per_s: 1000.0, parallelism, service }
    }

    #[test]
    fn one_server_works_one_after_another_and_idle_time_is_lost() {
        let start = Instant::now();
        let mut pacer = Pacer::new(&pace(1, Service::Constant), start);
        let after = |ms| start + Duration::from_millis(ms);
        assert_eq!(pacer.due(start, 1), after(1));
        assert_eq!(pacer.due(start, 1), after(2));
        assert_eq!(pacer.due(after(10), 3), after(13));
        assert_eq!(pacer.due(after(10), 1), after(14));
    }

    #[test]
    fn several_servers_share_the_rate() {
        let start = Instant::now();
        let mut pacer = Pacer::new(&pace(4, Service::Constant), start);
        let due: Vec<_> = (0..8).map(|_| (pacer.due(start, 1) - start).as_millis()).collect();
        assert_eq!(due, [4, 4, 4, 4, 8, 8, 8, 8]);
    }

    #[test]
    fn exponential_times_have_the_mean_and_follow_from_the_seed() {
        let start = Instant::now();
        let run = |seed| {
            let mut pacer = Pacer::new(&pace(1, Service::Exponential { seed }), start);
            (0..20_000).map(|_| pacer.due(start, 1)).last().unwrap() - start
        };
        let mean_ms = run(1).as_secs_f64() / 20.0;
        assert!((0.96..1.04).contains(&mean_ms), "{mean_ms}");
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }
}
