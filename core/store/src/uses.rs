//! Counters of an object, in memory and in the index of the disks.

use weir_base::{Instant, NS_PER_MS};

/// The part of an object that one tier holds.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub struct TierShare {
    pub packets: u64,
    /// In memory the sum of the packets, on disk the sum of the records. For more than eight
    /// packets in memory it is an estimate from the newest eight.
    pub bytes: u64,
}

impl TierShare {
    pub(crate) fn add(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// How often the store has answered with an object's Data.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub struct ObjectUses {
    pub hits: u64,
    /// Bytes of these answers.
    pub served_bytes: u64,
    /// The last answer, or the last arrival if that is later. Zero if it is not known.
    pub last_use: Instant,
}

impl ObjectUses {
    /// Milliseconds from the last use until `now`. `None` if the last use is not known.
    pub fn ms_since_last(&self, now: Instant) -> Option<u64> {
        (self.last_use > Instant::ZERO).then(|| now.ns_since(self.last_use) / NS_PER_MS)
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.hits += other.hits;
        self.served_bytes += other.served_bytes;
        self.last_use = self.last_use.max(other.last_use);
    }
}
