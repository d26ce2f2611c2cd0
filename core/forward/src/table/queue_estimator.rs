//! Estimates a queue from outside: how many requests are served at once, and how long one takes.
//!
//! The estimator serves a disk, or everything behind a next hop. For each finished request it knows
//! how many other requests were in the queue on arrival, and how long the request took. A queue of
//! `n` equal servers has the service time `s`. The predicted time is `s` if a server was free, and
//! `s * (ahead + 1) / n` otherwise. The estimator fits `n` and `s` to the averages of what it has
//! seen:
//!
//! 1. Answers are averaged in buckets by the number found on arrival. Old averages lose weight.
//! 2. For each of 24 numbers of servers, the best `s` and the squared relative error are computed.
//! 3. Among the numbers with about the smallest error, the fewest or the most servers are chosen
//!    ([`ServerPreference`]).
//!
//! Example: requests that found 0, 1 and 3 others took 10, 10 and 20 ms. Two servers of 10 ms
//! explain this exactly. One server would predict 10, 20 and 40 ms.

use weir_base::{Instant, NS_PER_S};

/// 1 / weight of a new answer in the average of its bucket, once the bucket is full.
const ANSWERS: f64 = 256.0;
/// The average of a bucket loses half its weight after this number of answers to other buckets, or
/// after this time.
const KEEP_ANSWERS: f64 = 8192.0;
const KEEP_NS: f64 = 60.0 * NS_PER_S as f64;
/// Number of answers between two fits.
const FIT_AFTER: u64 = 32;
/// Up to this many answers, each one causes a fit.
const ANSWERS_FEW: u64 = 64;
/// How much larger than the least error the error of a chosen number of servers may be. The unit is
/// the squared relative error of one answer.
const MARGIN: f64 = 1.0;
/// Numbers of servers that are tried: 1, 2, 3, 4, 6, 8, 12 and so on, up to 4,096.
const FITS: usize = 24;
/// Numbers below this have a bucket each. Above it, an octave has eight buckets.
const EXACT: u32 = 16;
/// Eight octaves above [`EXACT`], up to 4,096.
const BUCKETS: usize = 16 + 8 * 8;

/// The answers to requests that found about the same number of others in the queue.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// Weight of the answers, and the average time that they took.
    answers: f64,
    mean_ns: f64,
    /// When the last of them arrived.
    at: Instant,
    order: u64,
}

/// Which number of servers is chosen if several explain the answers about equally well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerPreference {
    /// For a disk. A queue that is always long looks the same with one server and with several. The
    /// estimate of one server makes the queue shorter, and a shorter queue shows the difference.
    Fewest,
    /// For a path. If answers take about the same time at any load, there is no queue.
    Most,
}

/// A queue with an estimated number of equal servers. A request takes `unloaded_ns`, or longer if
/// it finds all servers busy. A path with a long delay has many servers.
#[derive(Clone, Debug)]
pub(crate) struct QueueEstimator {
    buckets: [Bucket; BUCKETS],
    preferred: ServerPreference,
    answers: u64,
    servers: f64,
    /// 0 while nothing is known.
    unloaded_ns: f64,
}

impl Bucket {
    /// The weight of the bucket's answers at answer number `order` of the queue.
    fn answers_at(&self, now: Instant, order: u64) -> f64 {
        let later = (order - self.order) as f64;
        let idle_ns = now.ns_since(self.at) as f64;
        self.answers * KEEP_ANSWERS / (KEEP_ANSWERS + later) * KEEP_NS / (KEEP_NS + idle_ns)
    }
}

fn bucket_of(number: u32) -> usize {
    if number < EXACT {
        return number as usize;
    }
    // The highest bit selects the octave, and the three bits below it one of its eight buckets.
    let octave = number.ilog2();
    let part = (number >> (octave - 3)) & 7;
    ((EXACT + 8 * (octave - 4) + part) as usize).min(BUCKETS - 1)
}

fn number_of(bucket: usize) -> f64 {
    if bucket < EXACT as usize {
        return bucket as f64;
    }
    let (octave, part) = (4 + (bucket - 16) / 8, (bucket - 16) % 8);
    let width = 1_u64 << (octave - 3);
    ((8 + part as u64) * width) as f64 + (width - 1) as f64 / 2.0
}

impl QueueEstimator {
    pub(crate) fn new(preferred: ServerPreference) -> Self {
        let buckets = [Bucket::default(); BUCKETS];
        Self { buckets, preferred, answers: 0, servers: 1.0, unloaded_ns: 0.0 }
    }

    pub(crate) fn is_known(&self) -> bool {
        self.unloaded_ns > 0.0
    }

    /// The estimated number of requests that are served at once.
    pub(crate) fn servers(&self) -> f64 {
        self.servers
    }

    /// The time of a request that does not wait, ns; 0 while nothing is known.
    pub(crate) fn unloaded_ns(&self) -> f64 {
        self.unloaded_ns
    }

    /// The time between two departures while all servers are busy, ns.
    pub(crate) fn interval_ns(&self) -> f64 {
        self.unloaded_ns / self.servers
    }

    /// The expected time of a request that finds `ahead` others, ns.
    pub(crate) fn expected_ns(&self, ahead: u32) -> f64 {
        self.unloaded_ns * ((f64::from(ahead) + 1.0) / self.servers).max(1.0)
    }

    /// Records a finished request that found `ahead` others and took `took_ns`.
    pub(crate) fn on_departure(&mut self, now: Instant, ahead: u32, took_ns: u64) {
        self.answers += 1;
        let bucket = &mut self.buckets[bucket_of(ahead)];
        let before = bucket.answers_at(now, self.answers);
        bucket.answers = before * (1.0 - 1.0 / ANSWERS) + 1.0;
        bucket.mean_ns += (took_ns.max(1) as f64 - bucket.mean_ns) / bucket.answers;
        (bucket.at, bucket.order) = (now, self.answers);
        if self.answers.is_multiple_of(FIT_AFTER) || self.answers <= ANSWERS_FEW {
            self.fit(now);
        }
    }

    /// Number of answers that the estimate is based on.
    pub(crate) fn answers(&self) -> u64 {
        self.answers
    }

    /// Finds the number of servers that explains the answers best.
    fn fit(&mut self, now: Instant) {
        let mut seen = [(0.0, 0.0, 0.0); BUCKETS];
        let mut count = 0;
        for (index, bucket) in self.buckets.iter().enumerate() {
            if bucket.answers > 0.0 {
                let answers = bucket.answers_at(now, self.answers);
                seen[count] = (number_of(index) + 1.0, answers, bucket.mean_ns);
                count += 1;
            }
        }
        let seen = &seen[..count];
        let mut fits = [(0.0, 0.0, 0.0); FITS];
        let mut servers = 1.0;
        for fit in &mut fits {
            let (error, unloaded_ns) = fit_error(seen, servers);
            *fit = (error, servers, unloaded_ns);
            servers = next_servers(servers);
        }
        let least = fits.iter().fold(f64::INFINITY, |least, fit| least.min(fit.0));
        // Numbers of servers that explain the answers about equally well.
        let mut fitting = fits.iter().filter(|fit| fit.0 <= least + MARGIN);
        let chosen = match self.preferred {
            ServerPreference::Fewest => fitting.next(),
            ServerPreference::Most => fitting.next_back(),
        };
        if let Some(&(_, servers, unloaded_ns)) = chosen {
            (self.servers, self.unloaded_ns) = (servers, unloaded_ns);
        }
    }
}

/// How badly a number of servers explains the observations (position in the queue, answers, average
/// time), and the service time that explains them best.
fn fit_error(seen: &[(f64, f64, f64)], servers: f64) -> (f64, f64) {
    // Each bucket gives an estimate of the service time. Their weighted mean is the best one, and
    // their relative variance is the error.
    let per_server = 1.0 / servers;
    let (mut all, mut sum, mut sum_of_squares) = (0.0, 0.0, 0.0);
    for &(position, answers, mean_ns) in seen {
        let unloaded_ns =
            if position > servers { mean_ns / (position * per_server) } else { mean_ns };
        all += answers;
        sum += answers * unloaded_ns;
        sum_of_squares += answers * unloaded_ns * unloaded_ns;
    }
    let mean_ns = sum / all;
    ((sum_of_squares / (mean_ns * mean_ns) - all).max(0.0), mean_ns)
}

/// The next number to try: 1, 2, 3, 4, 6, 8, 12 and so on.
fn next_servers(servers: f64) -> f64 {
    if servers < 2.0 {
        return 2.0;
    }
    let is_power = (servers as u64).is_power_of_two();
    if is_power { servers * 1.5 } else { servers / 1.5 * 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_ordered_and_contain_their_middle() {
        for number in 0..4095 {
            assert!(bucket_of(number) <= bucket_of(number + 1));
        }
        for bucket in 0..BUCKETS {
            assert_eq!(bucket_of(number_of(bucket) as u32), bucket);
        }
        assert_eq!(bucket_of(u32::MAX), BUCKETS - 1);
    }
}
