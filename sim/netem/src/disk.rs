use serde::{Deserialize, Serialize};
use weir_base::{Instant, Rng};

use crate::config::{ConfigError, check_probability};
use crate::random::{self, Chance};
use crate::server::{Server, ServerConfig};
use crate::service::{Sampler, ServiceTime};

/// A disk with one queue for reads and writes, which `parallelism` channels serve in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskConfig {
    /// Time of a read, independent of its size.
    #[serde(default)]
    pub read: ServiceTime,
    /// Time of a write, independent of its size.
    #[serde(default)]
    pub write: ServiceTime,
    /// Additional time for each 1,024 bytes of a read.
    #[serde(default)]
    pub read_ns_per_kib: u64,
    /// Additional time for each 1,024 bytes of a write.
    #[serde(default)]
    pub write_ns_per_kib: u64,
    /// Operations served at the same time.
    #[serde(default = "one")]
    pub parallelism: u32,
    /// Operations that may wait; those in service do not count.
    #[serde(default = "queue_default")]
    pub queue_max: u32,
    /// Probability that an operation ends in [`DiskError`] after its normal time.
    #[serde(default)]
    pub error_probability: f64,
}

fn one() -> u32 {
    1
}

/// The queue of paper nb-cache.
fn queue_default() -> u32 {
    2_000
}

impl Default for DiskConfig {
    /// A disk that takes no time.
    fn default() -> Self {
        Self {
            read: ServiceTime::default(),
            write: ServiceTime::default(),
            read_ns_per_kib: 0,
            write_ns_per_kib: 0,
            parallelism: one(),
            queue_max: queue_default(),
            error_probability: 0.0,
        }
    }
}

impl DiskConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    /// The parallelism is 0, a probability is outside 0 to 1, or a histogram has no usable weight.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.parallelism == 0 {
            return Err(ConfigError::Zero("parallelism"));
        }
        check_probability("error_probability", self.error_probability)?;
        self.read.check()?;
        self.write.check()
    }
}

/// An operation on a disk.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct DiskOp {
    pub id: u64,
    /// Read or write.
    pub kind: DiskOpKind,
    pub bytes: u32,
}

/// The kind of a [`DiskOp`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum DiskOpKind {
    Read,
    Write,
}

/// The queue is full, and the disk rejected the operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the disk's queue is full")]
pub struct DiskFull(pub DiskOp);

/// The disk failed to execute an operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the disk reports an error")]
pub struct DiskError;

/// A finished operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    pub id: u64,
    /// Whether the operation succeeded.
    pub result: Result<(), DiskError>,
    pub op: DiskOp,
    pub at: Instant,
}

/// Models the disk of a [`DiskConfig`]. Drive it like a [`Server`].
#[derive(Debug)]
pub struct DiskModel {
    server: Server<(DiskOp, Result<(), DiskError>)>,
    read: Sampler,
    write: Sampler,
    read_ns_per_kib: u64,
    write_ns_per_kib: u64,
    error: Chance,
    service_rng: Rng,
    error_rng: Rng,
}

impl DiskModel {
    /// An idle disk. All random numbers come from `seed`. A parallelism of 0 counts as 1.
    pub fn new(config: DiskConfig, seed: u64) -> Self {
        let parallelism = config.parallelism.max(1);
        let server = ServerConfig {
            service: ServiceTime::default(),
            parallelism,
            capacity: config.queue_max.saturating_add(parallelism),
        };
        Self {
            server: Server::new(server, seed),
            read: Sampler::new(&config.read),
            write: Sampler::new(&config.write),
            read_ns_per_kib: config.read_ns_per_kib,
            write_ns_per_kib: config.write_ns_per_kib,
            error: Chance::new(config.error_probability),
            service_rng: random::stream(seed, 4),
            error_rng: random::stream(seed, 5),
        }
    }

    /// Submits an operation.
    ///
    /// # Errors
    /// [`DiskFull`] returns the operation. No random number is drawn for it.
    pub fn submit(&mut self, now: Instant, op: DiskOp) -> Result<(), DiskFull> {
        // Updates the queue to `now`.
        self.server.busy_ns(now);
        if self.server.is_full() {
            return Err(DiskFull(op));
        }
        let (sampler, ns_per_kib) = match op.kind {
            DiskOpKind::Read => (&self.read, self.read_ns_per_kib),
            DiskOpKind::Write => (&self.write, self.write_ns_per_kib),
        };
        let moving_ns = u128::from(op.bytes) * u128::from(ns_per_kib) / 1024;
        let moving_ns = u64::try_from(moving_ns).unwrap_or(u64::MAX);
        let service_ns = sampler.sample(&mut self.service_rng).saturating_add(moving_ns);
        let fails = self.error.happens(&mut self.error_rng);
        let result = if fails { Err(DiskError) } else { Ok(()) };
        self.server.offer_with(now, (op, result), service_ns).map_err(|(op, _)| DiskFull(op))
    }

    /// When the next operation ends; this may be in the past.
    pub fn next_completion(&self) -> Option<Instant> {
        self.server.next_completion()
    }

    /// One operation that has ended by `now`, in the order of ending. Call until it returns `None`.
    pub fn complete(&mut self, now: Instant) -> Option<Completion> {
        let (at, (op, result)) = self.server.complete_timed(now)?;
        Some(Completion { id: op.id, result, op, at })
    }

    /// Serves nothing from `now` to `until`, see [`Server::stall`].
    pub fn stall(&mut self, now: Instant, until: Instant) {
        self.server.stall(now, until);
    }

    /// Sets the probability of [`DiskError`] for operations submitted from now on.
    pub fn set_error_probability(&mut self, probability: f64) {
        self.error = Chance::new(probability);
    }

    /// Drops all operations, as a crash of the host does, and returns them in the order of their
    /// numbers.
    pub fn clear(&mut self) -> Vec<DiskOp> {
        let mut ops: Vec<_> = self.server.clear().map(|(op, _)| op).collect();
        ops.sort_unstable_by_key(|op| op.id);
        ops
    }
}

#[cfg(test)]
mod tests;
