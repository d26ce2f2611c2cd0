//! Counters of one shard: plain numbers that the driver reads when somebody asks.

use alloc::collections::BTreeMap;

use weir_base::{Histogram, counters};
use weir_store::StoreStats;

/// Why a packet ended here. Every packet that is not sent on has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum DropReason {
    /// The packet format forbids it; [`RouterStats::malformed`] says which rule.
    Malformed,
    /// The name has more components than names may have.
    LongName,
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
    /// Data for an Interest that was not sent to its face.
    NotRequested,
    /// Data in the name of a peer that returns PIT tokens, without the right one.
    Spoofed,
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
    pub const ALL: [Self; 16] = [
        Self::Malformed,
        Self::LongName,
        Self::UnknownFace,
        Self::Scope,
        Self::HopLimit,
        Self::Loop,
        Self::PitFull,
        Self::Suppressed,
        Self::NoNextHop,
        Self::Unsolicited,
        Self::NotRequested,
        Self::Spoofed,
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
            Self::LongName => "long-name",
            Self::UnknownFace => "unknown-face",
            Self::Scope => "scope",
            Self::HopLimit => "hop-limit",
            Self::Loop => "loop",
            Self::PitFull => "pit-full",
            Self::Suppressed => "suppressed",
            Self::NoNextHop => "no-next-hop",
            Self::Unsolicited => "unsolicited",
            Self::NotRequested => "not-asked",
            Self::Spoofed => "spoofed",
            Self::UnexpectedNack => "unexpected-nack",
            Self::HopLimitSpent => "hop-limit-spent",
            Self::DiskBusy => "disk-busy",
            Self::StoreBusy => "store-busy",
        }
    }
}

/// Times in nanoseconds by power of two; the last bucket begins at 2^33 ns, about 8.6 s.
pub type LatencyHistogram = Histogram<1, 35>;

counters! {
    /// Counters and sizes of one shard.
    pub struct RouterStats {
        /// Interests received.
        in_interests: Total;
        /// Data received.
        in_data: Total;
        /// Nacks received.
        in_nacks: Total;
        /// Interests sent.
        out_interests: Total;
        /// Data sent.
        out_data: Total;
        /// Nacks sent.
        out_nacks: Total;
        /// PIT entries that ended with Data.
        satisfied: Total, "interests_satisfied";
        /// PIT entries that ended without Data.
        unsatisfied: Total, "interests_unsatisfied";
        /// PIT entries that were evicted for those of others.
        displaced: Total, "interests_displaced";
        /// Interests that found a PIT entry with a downstream, retransmissions included.
        aggregated: Total, "interests_aggregated";
        /// Interests for a segment that a router keeps, by strategy multipath, and that went to
        /// another next hop. That one has refused, has not answered for long, or is no next hop.
        parts_passed_by: Total, "parts_passed_by";
        /// Interests with CanBePrefix that went on before all other shards had said what they have.
        shard_timeouts: Total, "shard_timeouts";
        /// Entries in the PIT.
        pit_entries: Now, "pit_entries";
        /// Octets of memory that PIT entries take.
        pit_bytes: Now, "pit_bytes";
        /// Prefixes in the FIB.
        fib_entries: Shared, "fib_entries";
        /// Entries in the dead nonce list.
        dead_nonces: Now, "dead_nonces";
    }
    also {
        /// Drops, indexed by [`DropReason`].
        drops: [u64; DropReason::ALL.len()],
        /// Malformed packets by the decoder's reason.
        malformed: BTreeMap<&'static str, u64>,
        /// The content store.
        store: StoreStats,
        /// Time from the last sending of an Interest to its Data.
        upstream_latency: LatencyHistogram,
        /// What busy disks led to.
        busy: BusyStats,
    }
}

counters! {
    /// What a router did about its store's disks. Every Interest for Data on a disk counts in
    /// exactly one of `reads_begun`, `reads_refused` and the `bypassed_*`.
    #[derive(Copy)]
    pub struct BusyStats {
        /// Interests that began to wait for a disk, or joined others that do for the same Data.
        reads_begun: Total, "disk_waits";
        /// Of those, Interests that joined a pending one with the same name and selectors, which
        /// are in no other count.
        reads_joined: Total, "disk_waits_joined";
        /// Interests refused for congestion because as many reads as may be were waiting.
        reads_refused: Total, "disk_waits_refused";
        /// Interests that passed the store by because as many reads as the threshold says were
        /// waiting.
        bypassed_queue_full: Total, "disk_bypassed"{"reason" = "queue-full"}, status 50;
        /// Interests that passed by because they were likely to be answered sooner elsewhere.
        bypassed_slower: Total, "disk_bypassed"{"reason" = "slower"}, status 52;
        /// Interests that passed by to find out how long answers take from elsewhere.
        bypassed_probe: Total, "disk_bypassed"{"reason" = "probe"}, status 54;
        /// Interests that went on because the disk had not answered for long.
        bypassed_stalled: Total, "disk_bypassed"{"reason" = "stalled"}, status 56;
        /// Reads begun over the threshold for want of a next hop, or of an available one.
        waited_over_threshold: Total, "disk_waited_over_threshold";
        /// Pending Interests that were answered from a disk.
        answered: Total, "disk_answered", status 48;
        /// Pending Interests that waited for a disk and went on: the record was damaged, the disk
        /// failed or stalled, or the Data did not do.
        went_on: Total, "disk_went_on", status 58;
        /// Pending Interests whose Data came from elsewhere, or whose time passed, before the read
        /// was done.
        overtaken: Total, "disk_overtaken";
        /// Retransmissions that went upstream while a disk was still reading.
        hedged: Total, "disk_hedged";
        /// Interests that had passed by and were then read for, as the next hop did not answer a
        /// first time or refused.
        came_back: Total, "disk_came_back";
        /// Reads done when no Interest waited for them any more.
        reads_late: Total, "disk_reads_late";
        /// Records read whose checksum was right but that were no Data, or not that which was
        /// asked for.
        reads_malformed: Total, "disk_reads_malformed";
        /// Data that left with a congestion mark because of the store.
        marked: Total, "disk_marked", status 60;
        /// Interests of the router itself for segments that its store lost.
        refill_interests: Total, "disk_refill_interests";
        /// Interests that queue before a store that blocks.
        interests_waiting: Now, "disk_interests_waiting";
        /// Interests that found a store that blocks busy, and queued.
        interests_queued: Total, "disk_interests_queued";
        /// Interests refused for congestion because that queue was full.
        interests_refused: Total, "disk_interests_refused";
        /// Neighbours told that this store has no room.
        busy_sent: Total, "disk_alphas_sent";
        /// Neighbours told that it has again.
        available_sent: Total, "disk_betas_sent";
        /// Times that a neighbour said that its store has no room.
        busy_received: Total, "disk_alphas_received";
        /// Times that one said that it has again.
        available_received: Total, "disk_betas_received";
    }
    also {
        /// Time from the beginning of a wait for a disk to its end with Data.
        read_latency: LatencyHistogram,
        /// Time to Data of Interests that passed the store by.
        bypass_latency: LatencyHistogram,
    }
}

impl RouterStats {
    pub(crate) fn drop_packet(&mut self, reason: DropReason) {
        self.drops[reason as usize] += 1;
    }
}
