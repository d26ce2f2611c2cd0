use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use serde::{Deserialize, Serialize};
use weir_base::{Instant, Rng};

use crate::config::ConfigError;
use crate::random;
use crate::service::{Sampler, ServiceTime};

/// The configuration of a [`Server`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerConfig {
    /// Service time of one job.
    pub service: ServiceTime,
    /// Jobs served at the same time.
    #[serde(default = "one")]
    pub parallelism: u32,
    /// Limit on the jobs in the system, waiting and in service: the K of M/M/c/K.
    pub capacity: u32,
}

fn one() -> u32 {
    1
}

impl ServerConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    /// The parallelism or the capacity is 0, or a histogram has no usable weight.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.parallelism == 0 {
            return Err(ConfigError::Zero("parallelism"));
        }
        if self.capacity == 0 {
            return Err(ConfigError::Zero("capacity"));
        }
        self.service.check()
    }
}

struct InService<T> {
    ends_ns: u64,
    /// The order of starting. Jobs that end at the same time leave in this order.
    sequence: u64,
    service_ns: u64,
    job: T,
}

impl<T> InService<T> {
    fn key(&self) -> (u64, u64) {
        (self.ends_ns, self.sequence)
    }
}

impl<T> PartialEq for InService<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for InService<T> {}

impl<T> PartialOrd for InService<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Reversed, so that the heap returns the job that ends first.
impl<T> Ord for InService<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

/// A first-come, first-served queue with one or more servers and a limit: G/G/c/K.
///
/// The caller offers jobs. At the time of [`next_completion`](Self::next_completion) it calls
/// [`complete`](Self::complete) until that returns `None`. A late call changes no times: a job
/// starts when its server became idle, not when the caller noticed. Finished jobs do not count
/// against the limit. Times must not decrease.
pub struct Server<T> {
    sampler: Sampler,
    parallelism: usize,
    capacity: usize,
    rng: Rng,
    /// Waiting jobs with their service times.
    waiting: VecDeque<(T, u64)>,
    serving: BinaryHeap<InService<T>>,
    /// Finished jobs that the caller has not taken, with the time of completion.
    ended: VecDeque<(u64, T)>,
    sequence: u64,
    stalled_until_ns: u64,
    /// Total service time of finished jobs.
    served_ns: u64,
}

impl<T> Server<T> {
    /// An empty server. All random numbers come from `seed`. A parallelism or capacity of 0 counts
    /// as 1.
    pub fn new(config: ServerConfig, seed: u64) -> Self {
        Self {
            sampler: Sampler::new(&config.service),
            parallelism: config.parallelism.max(1) as usize,
            capacity: config.capacity.max(1) as usize,
            rng: random::stream(seed, 3),
            waiting: VecDeque::new(),
            serving: BinaryHeap::new(),
            ended: VecDeque::new(),
            sequence: 0,
            stalled_until_ns: 0,
            served_ns: 0,
        }
    }

    /// Offers a job with a random service time.
    ///
    /// # Errors
    /// Returns the job if the system is full. No random number is drawn for it.
    pub fn offer(&mut self, now: Instant, job: T) -> Result<(), T> {
        self.advance(now);
        if self.is_full() {
            return Err(job);
        }
        let service_ns = self.sampler.sample(&mut self.rng);
        self.offer_with(now, job, service_ns)
    }

    /// Offers a job that needs `service_ns`.
    ///
    /// # Errors
    /// Returns the job if the system is full.
    pub fn offer_with(&mut self, now: Instant, job: T, service_ns: u64) -> Result<(), T> {
        self.advance(now);
        if self.is_full() {
            return Err(job);
        }
        if self.serving.len() < self.parallelism {
            self.start(now.as_ns(), job, service_ns);
        } else {
            self.waiting.push_back((job, service_ns));
        }
        Ok(())
    }

    fn start(&mut self, now_ns: u64, job: T, service_ns: u64) {
        let ends_ns = now_ns.max(self.stalled_until_ns).saturating_add(service_ns);
        let sequence = self.sequence;
        self.sequence += 1;
        self.serving.push(InService { ends_ns, sequence, service_ns, job });
    }

    /// Finishes the jobs that end by `now`, and starts waiting jobs in their place.
    fn advance(&mut self, now: Instant) {
        while let Some(first) = self.serving.peek()
            && first.ends_ns <= now.as_ns()
            && let Some(done) = self.serving.pop()
        {
            self.served_ns += done.service_ns;
            self.ended.push_back((done.ends_ns, done.job));
            if let Some((job, service_ns)) = self.waiting.pop_front() {
                self.start(done.ends_ns, job, service_ns);
            }
        }
    }

    /// When the next job ends; this may be in the past.
    pub fn next_completion(&self) -> Option<Instant> {
        let ended = self.ended.front().map(|&(ends_ns, _)| ends_ns);
        let next = ended.or_else(|| self.serving.peek().map(|first| first.ends_ns));
        next.map(Instant::from_ns)
    }

    /// One job that has ended by `now`, in the order of ending.
    pub fn complete(&mut self, now: Instant) -> Option<T> {
        self.complete_timed(now).map(|(_, job)| job)
    }

    /// As [`complete`](Self::complete), with the time of completion.
    pub(crate) fn complete_timed(&mut self, now: Instant) -> Option<(Instant, T)> {
        self.advance(now);
        self.ended.pop_front().map(|(ends_ns, job)| (Instant::from_ns(ends_ns), job))
    }

    /// Jobs waiting and in service, at the latest time given to any other call.
    pub fn len(&self) -> usize {
        self.waiting.len() + self.serving.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Jobs waiting.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether the server would reject another job.
    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.capacity
    }

    /// Serves nothing from `now` to `until`. Jobs in service resume afterwards. A stall within
    /// another one only extends it.
    pub fn stall(&mut self, now: Instant, until: Instant) {
        self.advance(now);
        let from_ns = now.as_ns().max(self.stalled_until_ns);
        let longer_ns = until.as_ns().saturating_sub(from_ns);
        if longer_ns == 0 {
            return;
        }
        self.stalled_until_ns = until.as_ns();
        // All jobs shift by the same time, so their order stays.
        let mut serving = std::mem::take(&mut self.serving).into_vec();
        for job in &mut serving {
            job.ends_ns = job.ends_ns.saturating_add(longer_ns);
        }
        self.serving = serving.into();
    }

    /// Total service time until `now` over all servers, without stalls. Divided by time and
    /// parallelism, it gives the utilisation.
    pub(crate) fn busy_ns(&mut self, now: Instant) -> u64 {
        self.advance(now);
        let from_ns = now.as_ns().max(self.stalled_until_ns);
        let given =
            |job: &InService<T>| job.service_ns.saturating_sub(job.ends_ns.saturating_sub(from_ns));
        self.served_ns + self.serving.iter().map(given).sum::<u64>()
    }

    /// Drops all jobs, as a restart of the host does, and returns them in no particular order. The
    /// service that unfinished jobs received no longer counts.
    pub(crate) fn clear(&mut self) -> impl Iterator<Item = T> + use<T> {
        let ended = std::mem::take(&mut self.ended).into_iter().map(|(_, job)| job);
        let serving = std::mem::take(&mut self.serving).into_vec().into_iter().map(|job| job.job);
        let waiting = std::mem::take(&mut self.waiting).into_iter().map(|(job, _)| job);
        ended.chain(serving).chain(waiting)
    }
}

impl<T> std::fmt::Debug for Server<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("waiting", &self.waiting.len())
            .field("serving", &self.serving.len())
            .field("ended", &self.ended.len())
            .field("parallelism", &self.parallelism)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
