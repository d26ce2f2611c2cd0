use serde::{Deserialize, Serialize};
use weir_base::{Instant, Rng};

use crate::config::{ConfigError, check_probability};
use crate::random::{self, Chance};
use crate::server::{Server, ServerConfig};
use crate::service::{Sampler, ServiceTime};

/// A disk: reads and writes in one queue, served first come first served by `parallelism` channels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskConfig {
    /// Time of a read, whatever its size.
    #[serde(default)]
    pub read: ServiceTime,
    /// Time of a write, whatever its size.
    #[serde(default)]
    pub write: ServiceTime,
    /// Time of a read for each 1,024 octets, beside `read`.
    #[serde(default)]
    pub read_ns_per_kib: u64,
    /// Time of a write for each 1,024 octets, beside `write`.
    #[serde(default)]
    pub write_ns_per_kib: u64,
    /// Operations served at the same time.
    #[serde(default = "one")]
    pub parallelism: u32,
    /// Operations that may wait, beside those in service.
    #[serde(default = "queue_default")]
    pub queue_max: u32,
    /// Of an operation to end in [`DiskError`], after its time.
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
    /// A disk that needs no time.
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
    /// Checks what makes no sense.
    ///
    /// # Errors
    /// No parallelism, a probability outside 0 to 1, a histogram from which nothing can be drawn.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.parallelism == 0 {
            return Err(ConfigError::Zero("parallelism"));
        }
        check_probability("error_probability", self.error_probability)?;
        self.read.check()?;
        self.write.check()
    }
}

/// What a disk is asked for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct DiskOp {
    pub id: u64,
    /// Read or write.
    pub kind: DiskOpKind,
    pub bytes: u32,
}

/// Kind of a [`DiskOp`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum DiskOpKind {
    Read,
    Write,
}

/// The queue is full; the operation was not taken.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the disk's queue is full")]
pub struct DiskFull(pub DiskOp);

/// The disk failed to carry out an operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the disk reports an error")]
pub struct DiskError;

/// An operation that has ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    pub id: u64,
    /// Whether it was carried out.
    pub result: Result<(), DiskError>,
    pub op: DiskOp,
    pub at: Instant,
}

/// The disk of a [`DiskConfig`]; driven like a [`Server`].
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
    /// A disk at rest; all its draws follow from `seed`. A parallelism of 0 counts as 1.
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

    /// Asks for an operation.
    ///
    /// # Errors
    /// [`DiskFull`] with the operation; nothing is drawn for it.
    pub fn submit(&mut self, now: Instant, op: DiskOp) -> Result<(), DiskFull> {
        // Brings the queue up to date.
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

    /// When the next operation is there to be taken: that may be in the past.
    pub fn next_completion(&self) -> Option<Instant> {
        self.server.next_completion()
    }

    /// One operation that has ended by `now`, in the order of ending; call until `None`.
    pub fn complete(&mut self, now: Instant) -> Option<Completion> {
        let (at, (op, result)) = self.server.complete_timed(now)?;
        Some(Completion { id: op.id, result, op, at })
    }

    /// Serves nothing from `now` to `until`, see [`Server::stall`].
    pub fn stall(&mut self, now: Instant, until: Instant) {
        self.server.stall(now, until);
    }

    /// From now on, operations end in [`DiskError`] with this probability. Those that have been
    /// taken end as they would have.
    pub fn set_error_probability(&mut self, probability: f64) {
        self.error = Chance::new(probability);
    }

    /// Forgets all operations, as when its host crashes, and gives them back in the order of their
    /// numbers. They count as taken.
    pub fn clear(&mut self) -> Vec<DiskOp> {
        let mut ops: Vec<_> = self.server.clear().map(|(op, _)| op).collect();
        ops.sort_unstable_by_key(|op| op.id);
        ops
    }
}

#[cfg(test)]
mod tests;
