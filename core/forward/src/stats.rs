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
    /// As many reads as may be wait for the disk that has the Data.
    DiskBusy,
    /// As many Interests as may be wait before a store that blocks.
    StoreBusy,
}

impl DropReason {
    /// All reasons, in order of their number.
    pub const ALL: [Self; 13] = [
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
        Self::DiskBusy,
        Self::StoreBusy,
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
            Self::DiskBusy => "disk-busy",
            Self::StoreBusy => "store-busy",
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
    /// What busy disks led to.
    pub busy: BusyStats,
}

/// What a router did about its store's disks. Every Interest for Data on a disk counts in exactly
/// one of `reads_begun`, `reads_refused` and the `bypassed_*`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BusyStats {
    /// Interests that began to wait for a disk, or joined others that do for the same Data.
    pub reads_begun: u64,
    /// Of those, Interests that joined a pending one with the same name and selectors, which are in
    /// no other count.
    pub reads_joined: u64,
    /// Interests refused for congestion because as many reads as may be were waiting.
    pub reads_refused: u64,
    /// Interests that passed the store by because as many reads as the threshold says were waiting.
    pub bypassed_queue_full: u64,
    /// Interests that passed by because they were likely to be answered sooner elsewhere.
    pub bypassed_slower: u64,
    /// Interests that passed by to find out how long answers take from elsewhere.
    pub bypassed_probe: u64,
    /// Interests that went on because the disk had not answered for long.
    pub bypassed_stalled: u64,
    /// Reads begun over the threshold for want of a next hop, or of an available one.
    pub waited_over_threshold: u64,
    /// Pending Interests that were answered from a disk.
    pub answered: u64,
    /// Pending Interests that waited for a disk and went on: the record was damaged, the disk
    /// failed or stalled, or the Data did not do.
    pub went_on: u64,
    /// Pending Interests whose Data came from elsewhere, or whose time passed, before the read was
    /// done.
    pub overtaken: u64,
    /// Retransmissions that went upstream while a disk was still reading.
    pub hedged: u64,
    /// Interests that had passed by and were then read for, as the next hop did not answer a first
    /// time or refused.
    pub came_back: u64,
    /// Reads that nobody waited for any more when they were done.
    pub reads_late: u64,
    /// Records read whose checksum was right but that were no Data, or not that which was asked
    /// for.
    pub reads_malformed: u64,
    /// Data that left with a congestion mark because of the store.
    pub marked: u64,
    /// Interests that queue before a store that blocks, now.
    pub interests_waiting: u64,
    /// Interests that found a store that blocks busy, and queued.
    pub interests_queued: u64,
    /// Interests refused for congestion because that queue was full.
    pub interests_refused: u64,
    /// Neighbours told that this store has no room.
    pub busy_sent: u64,
    /// Neighbours told that it has again.
    pub available_sent: u64,
    /// Times that a neighbour said that its store has no room.
    pub busy_received: u64,
    /// Times that one said that it has again.
    pub available_received: u64,
    /// Time from the beginning of a wait for a disk to its end with Data.
    pub read_latency: LatencyHistogram,
    /// Time to Data of Interests that passed the store by.
    pub bypass_latency: LatencyHistogram,
}

impl BusyStats {
    /// Adds another shard's counts.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts_mut().into_iter().zip(other.clone().counts_mut()) {
            *mine += *theirs;
        }
        self.read_latency.merge(&other.read_latency);
        self.bypass_latency.merge(&other.bypass_latency);
    }

    fn counts_mut(&mut self) -> [&mut u64; 23] {
        [
            &mut self.reads_begun,
            &mut self.reads_joined,
            &mut self.reads_refused,
            &mut self.bypassed_queue_full,
            &mut self.bypassed_slower,
            &mut self.bypassed_probe,
            &mut self.bypassed_stalled,
            &mut self.waited_over_threshold,
            &mut self.answered,
            &mut self.went_on,
            &mut self.overtaken,
            &mut self.hedged,
            &mut self.came_back,
            &mut self.reads_late,
            &mut self.reads_malformed,
            &mut self.marked,
            &mut self.interests_waiting,
            &mut self.interests_queued,
            &mut self.interests_refused,
            &mut self.busy_sent,
            &mut self.available_sent,
            &mut self.busy_received,
            &mut self.available_received,
        ]
    }
}

impl RouterStats {
    pub(crate) fn drop_packet(&mut self, reason: DropReason) {
        self.drops[reason as usize] += 1;
    }
}
