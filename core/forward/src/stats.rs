//! Counters of one shard: plain numbers that the driver reads when somebody asks.

use alloc::collections::BTreeMap;

use weir_store::StoreStats;

/// Why a packet ended here. Every packet that is not sent on has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum DropReason {
    /// The packet format forbids it; [`RouterStats::malformed`] says which rule.
    Malformed,
    /// The face is not known (any more).
    UnknownFace,
    /// `/localhost` on a non-local face.
    Scope,
    /// HopLimit 0 on arrival.
    HopLimit,
    /// A nonce that was here before.
    Loop,
    /// The PIT is full.
    PitFull,
    /// A retransmission too soon after the last.
    Suppressed,
    /// No next hop is left to try.
    NoNextHop,
    /// Data that no Interest asked for.
    Unsolicited,
    /// A Nack to no pending Interest, with another nonce, or from a face with several peers.
    UnexpectedNack,
    /// An outgoing Interest whose HopLimit has run out.
    HopLimitSpent,
}

impl DropReason {
    /// All reasons, in order of their number.
    pub const ALL: [Self; 11] = [
        Self::Malformed,
        Self::UnknownFace,
        Self::Scope,
        Self::HopLimit,
        Self::Loop,
        Self::PitFull,
        Self::Suppressed,
        Self::NoNextHop,
        Self::Unsolicited,
        Self::UnexpectedNack,
        Self::HopLimitSpent,
    ];

    /// The reason as a metric label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::UnknownFace => "unknown-face",
            Self::Scope => "scope",
            Self::HopLimit => "hop-limit",
            Self::Loop => "loop",
            Self::PitFull => "pit-full",
            Self::Suppressed => "suppressed",
            Self::NoNextHop => "no-next-hop",
            Self::Unsolicited => "unsolicited",
            Self::UnexpectedNack => "unexpected-nack",
            Self::HopLimitSpent => "hop-limit-spent",
        }
    }
}

/// Times by power of two: bucket `i` counts times in `[2^i, 2^(i+1))` us, the first also what is
/// less, the last also what is more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatencyHistogram {
    /// Counts by bucket.
    pub buckets: [u64; Self::BUCKETS],
    /// Sum of all times, ns.
    pub sum_ns: u64,
}

impl LatencyHistogram {
    /// Number of buckets; the last begins at 2^23 us, about 8 s.
    pub const BUCKETS: usize = 24;

    pub(crate) fn record(&mut self, time_ns: u64) {
        let time_us = (time_ns / 1000).max(1);
        let bucket = (time_us.ilog2() as usize).min(Self::BUCKETS - 1);
        self.buckets[bucket] += 1;
        self.sum_ns = self.sum_ns.saturating_add(time_ns);
    }

    /// Upper bound of a bucket, us (exclusive).
    #[must_use]
    pub const fn upper_us(bucket: usize) -> u64 {
        1 << (bucket + 1)
    }

    /// Adds another shard's counts.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(other.buckets) {
            *mine += theirs;
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }
}

/// Counters and sizes of one shard.
#[derive(Clone, Debug, Default)]
pub struct RouterStats {
    /// Interests received.
    pub in_interests: u64,
    /// Data received.
    pub in_data: u64,
    /// Nacks received.
    pub in_nacks: u64,
    /// Interests sent.
    pub out_interests: u64,
    /// Data sent.
    pub out_data: u64,
    /// Nacks sent.
    pub out_nacks: u64,
    /// PIT entries that ended with Data.
    pub satisfied: u64,
    /// PIT entries that ended without.
    pub unsatisfied: u64,
    /// Interests that joined a pending one instead of being sent.
    pub aggregated: u64,
    /// Drops, indexed by [`DropReason`].
    pub drops: [u64; DropReason::ALL.len()],
    /// Malformed packets by the decoder's reason.
    pub malformed: BTreeMap<&'static str, u64>,
    /// Entries in the PIT now.
    pub pit_entries: usize,
    /// Prefixes in the FIB now.
    pub fib_entries: usize,
    /// Entries in the dead nonce list now.
    pub dead_nonces: usize,
    /// The content store.
    pub store: StoreStats,
    /// Time from the last sending of an Interest to its Data.
    pub upstream_latency: LatencyHistogram,
}

impl RouterStats {
    pub(crate) fn drop_packet(&mut self, reason: DropReason) {
        self.drops[reason as usize] += 1;
    }
}
