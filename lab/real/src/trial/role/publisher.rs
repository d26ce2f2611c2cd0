//! The publisher of a growing object.

use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_base::NS_PER_S;
use weir_base::units::Size;
use weir_socket::{Identity, LiveWriter, Producer, ProducerOptions};

use super::super::super::proc::own_cpu_ns;
use super::super::keys::Key;
use super::{RoleError, RoleSpec, content, digits, input_lines, print_line};

/// Head of a message: its number and the time of its publication.
pub(super) const HEAD_BYTES: usize = 16;

/// System time, common to all processes, ns.
pub(super) fn now_ns() -> Result<u64, RoleError> {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
        .map_err(|error| RoleError::System(error.into()))?;
    Ok(time.tv_sec() as u64 * NS_PER_S + time.tv_nsec() as u64)
}

/// Publishes half of the messages, then further ones until all subscribers have joined, then the
/// other half. Counts in the first and the last period.
pub(super) fn publish(spec: &RoleSpec) -> Result<(), RoleError> {
    let trial = &spec.trial;
    if trial.size.bytes < HEAD_BYTES as u64 {
        return Err(RoleError::Failed(format!("a message has {HEAD_BYTES} bytes at least")));
    }
    let key = Key::generate(trial.signature).map_err(RoleError::Failed)?;
    let identity = Identity { signer: key.signer, certificate: None };
    let options = ProducerOptions {
        segment_size: Size { bytes: trial.size.bytes },
        ..ProducerOptions::default()
    };
    let session = spec.session()?;
    let producer = Producer::bind_with(&session, spec.prefix(), identity, options)?;
    let mut feed = MessageFeed {
        live: producer.publish_live(&spec.prefix())?,
        filling: content(trial.size.bytes, 0),
        gap: Duration::from_nanos(trial.gap.ns),
        due: Instant::now(),
    };
    let lines = input_lines();
    print_line(&json!({ "ready": true, "key": digits(&key.verifying_key) }))?;
    lines.recv().map_err(|_| RoleError::Orphaned)?;
    feed.due = Instant::now();
    let before = Counts::of(&producer)?;
    for _ in 0..trial.count.div_ceil(2) {
        feed.next()?;
        std::thread::sleep(feed.pause());
    }
    let mut counted = Counts::of(&producer)?.since(&before);
    let (begun, mut joining) = (Counts::of(&producer)?, 0);
    print_line(&json!({ "half": true }))?;
    loop {
        // A line means that all late subscribers have joined. Until then, publishing continues.
        match lines.recv_timeout(feed.pause()) {
            Ok(_) => break,
            Err(RecvTimeoutError::Disconnected) => return Err(RoleError::Orphaned),
            Err(RecvTimeoutError::Timeout) => feed.next()?,
        }
        joining += 1;
    }
    let before = Counts::of(&producer)?;
    let while_joining = before.since(&begun);
    for _ in 0..(trial.count / 2).max(1) {
        std::thread::sleep(feed.pause());
        feed.next()?;
    }
    std::thread::sleep(feed.pause());
    counted.add(&Counts::of(&producer)?.since(&before));
    let messages = feed.live.next_segment();
    feed.live.finish()?;
    print_line(&json!({
        "messages": messages,
        "counted": counted.to_json(messages - joining),
        "joining": while_joining.to_json(joining),
    }))?;
    // Published messages are available as long as this process runs.
    while lines.recv().is_ok() {}
    Err(RoleError::Orphaned)
}

struct MessageFeed {
    live: LiveWriter,
    filling: Vec<u8>,
    gap: Duration,
    /// When the next message is due.
    due: Instant,
}

impl MessageFeed {
    /// Time until the next message is due.
    fn pause(&self) -> Duration {
        self.due.saturating_duration_since(Instant::now())
    }

    fn next(&mut self) -> Result<(), RoleError> {
        self.due += self.gap;
        let mut message = self.filling.clone();
        message[..8].copy_from_slice(&self.live.next_segment().to_be_bytes());
        message[8..HEAD_BYTES].copy_from_slice(&now_ns()?.to_be_bytes());
        Ok(self.live.append(&message)?)
    }
}

/// The cost of publishing, since the start or over a period.
struct Counts {
    interests: u64,
    metadata: u64,
    octets: u64,
    cpu_ns: u64,
}

impl Counts {
    fn of(producer: &Producer) -> Result<Self, RoleError> {
        let stats = producer.stats()?;
        Ok(Self {
            interests: stats.interests,
            metadata: stats.metadata,
            octets: stats.octets,
            cpu_ns: own_cpu_ns(),
        })
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            interests: self.interests - before.interests,
            metadata: self.metadata - before.metadata,
            octets: self.octets - before.octets,
            cpu_ns: self.cpu_ns - before.cpu_ns,
        }
    }

    fn add(&mut self, more: &Self) {
        self.interests += more.interests;
        self.metadata += more.metadata;
        self.octets += more.octets;
        self.cpu_ns += more.cpu_ns;
    }

    fn to_json(&self, messages: u64) -> Value {
        json!({
            "messages": messages,
            "interests": self.interests,
            "metadata": self.metadata,
            "octets": self.octets,
            "cpu_ns": self.cpu_ns,
        })
    }
}
