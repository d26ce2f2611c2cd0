//! Counters of one shard. The driver reads them when a report needs them.

use alloc::collections::BTreeMap;

use weir_base::{Histogram, counters};
use weir_store::{PrefixStats, StoreStats};

/// Why a packet was dropped. Every packet that is not sent on has a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum DropReason {
    /// The packet violates the packet format; [`RouterStats::malformed`] counts each rule.
    Malformed,
    /// The name has too many components.
    LongName,
    /// The face does not exist, or has closed.
    UnknownFace,
    /// A name under `/localhost` on a non-local face.
    Scope,
    /// HopLimit was 0 on arrival.
    HopLimit,
    /// The nonce was seen before: the Interest loops.
    Loop,
    PitFull,
    /// The retransmission came too soon after the previous Interest.
    Suppressed,
    /// No next hop is left to try.
    NoNextHop,
    /// No Interest requested the Data.
    Unsolicited,
    /// The Interest was not sent to the face that the Data came from.
    NotRequested,
    /// The peer returns PIT tokens, but this Data has a wrong one or none.
    Spoofed,
    /// A Nack for no pending Interest, with another nonce, or from a face with several peers.
    UnexpectedNack,
    /// The HopLimit of an outgoing Interest has reached 0.
    HopLimitSpent,
    /// The queue of the disk that has the Data is full.
    DiskBusy,
    /// The queue in front of a blocking store is full.
    StoreBusy,
}

impl DropReason {
    /// All reasons, in the order of their numbers.
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

/// Times in ns, in buckets by powers of two. The last bucket begins at 2^33 ns, about 8.6 s.
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
        /// Bytes of Data sent to applications and routers, by the source of the Data: memory, disk
        /// or next-hop.
        memory_bytes: Total, "served_bytes"{"source" = "memory"};
        /// Bytes of Data sent that was read from a disk.
        disk_bytes: Total, "served_bytes"{"source" = "disk"};
        /// Bytes of Data sent as it arrived from a next hop.
        next_hop_bytes: Total, "served_bytes"{"source" = "next-hop"};
        /// Pending Interests that were answered with Data.
        satisfied: Total, "interests_satisfied";
        /// Pending Interests that ended without Data: they timed out or were refused.
        unsatisfied: Total, "interests_unsatisfied";
        /// Pending Interests that were evicted because the PIT was full.
        displaced: Total, "interests_evicted";
        /// Interests that joined a pending one of the same name, retransmissions included.
        aggregated: Total, "interests_aggregated";
        /// Interests that strategy multipath diverted from the face that owns their segment. The
        /// face had refused, had not answered for long, or is not a next hop.
        parts_passed_by: Total, "multipath_diverted_interests";
        /// Prefix announcements that were ignored: they are no Data, or their prefix is not one of
        /// the Data that they came with.
        announcements_ignored: Total, "announcements_ignored";
        /// Interests with CanBePrefix that continued before all other shards had replied.
        shard_timeouts: Total, "shard_timeouts";
        /// Pending Interests (entries of the PIT).
        pit_entries: Now, "pit_entries";
        /// Memory of pending Interests.
        pit_bytes: Now, "pit_bytes";
        /// Prefixes with a route (entries of the FIB).
        fib_entries: Shared, "fib_entries";
        /// Entries in the dead nonce list, which detects loops.
        dead_nonces: Now, "dead_nonces";
    }
    also {
        /// Drops, indexed by [`DropReason`].
        drops: [u64; DropReason::ALL.len()],
        /// Malformed packets by the decoder's reason.
        malformed: BTreeMap<&'static str, u64>,
        /// The content store.
        store: StoreStats,
        /// Hits and misses of the prefixes that the operator has chosen.
        store_prefixes: PrefixStats,
        /// Time from the last transmission of an Interest to its Data.
        upstream_latency: LatencyHistogram,
        /// Counters of busy disks.
        busy: BusyStats,
    }
}

counters! {
    /// What a router did about busy disks. Every Interest for Data on a disk counts in exactly one
    /// of `reads_begun`, `reads_refused` and the `bypassed_*`.
    #[derive(Copy)]
    pub struct BusyStats {
        /// Interests for Data on disk that waited for it to be read.
        reads_begun: Total, "disk_waits";
        /// Interests that joined one that waits for a disk already, with the same name and
        /// selectors. `disk_waits` includes them.
        reads_joined: Total, "disk_waits_joined";
        /// Interests refused for congestion because the read queue of the disk was full.
        reads_refused: Total, "disk_waits_refused";
        /// Interests for Data on disk that went to a next hop instead, by reason: the disk's queue
        /// was long (queue-full), the next hop was expected to be faster (slower), to measure the
        /// next hop (probe), or the disk had stopped responding (stalled).
        bypassed_queue_full: Total, "disk_bypassed"{"reason" = "queue-full"}, status 50;
        /// Interests that bypassed a disk because the next hop would probably answer sooner.
        bypassed_slower: Total, "disk_bypassed"{"reason" = "slower"}, status 52;
        /// Interests that bypassed a disk to measure how long the next hop takes.
        bypassed_probe: Total, "disk_bypassed"{"reason" = "probe"}, status 54;
        /// Interests that bypassed a disk because it had stopped responding.
        bypassed_stalled: Total, "disk_bypassed"{"reason" = "stalled"}, status 56;
        /// Interests that waited for a disk with a long queue because no next hop was available.
        waited_over_threshold: Total, "disk_waited_over_threshold";
        /// Interests that were answered with Data read from disk.
        answered: Total, "disk_answered", status 48;
        /// Pending Interests that waited for a disk and were then forwarded: the record was
        /// damaged, the disk failed or stalled, or the Data did not match.
        went_on: Total, "disk_forwarded_after_wait", status 58;
        /// Pending Interests whose Data came from elsewhere, or that expired, before the read was
        /// done.
        overtaken: Total, "disk_waits_overtaken";
        /// Retransmissions that were sent to a next hop while a disk was still reading.
        hedged: Total, "disk_hedged";
        /// Interests that had bypassed a disk and were then read from it, because the next hop did
        /// not answer or refused.
        came_back: Total, "disk_bypass_returns";
        /// Disk reads that finished when no Interest waited for them any more.
        reads_late: Total, "disk_reads_late";
        /// Records on disk whose checksum was right, but that were not the requested Data.
        reads_malformed: Total, "disk_reads_malformed";
        /// Data sent with a congestion mark because a disk was busy.
        marked: Total, "disk_marked", status 60;
        /// Interests of the router itself for segments that its store has lost.
        refill_interests: Total, "disk_refill_interests";
        /// Interests that wait in front of a blocking store.
        interests_waiting: Now, "disk_interests_waiting";
        /// Interests that found a blocking store busy, and were queued.
        interests_queued: Total, "disk_interests_queued";
        /// Interests refused for congestion because that queue was full.
        interests_refused: Total, "disk_interests_refused";
        /// Signals sent to neighbours that the disks of this router are busy.
        busy_sent: Total, "disk_busy_signals_sent";
        /// Signals sent to neighbours that the disks of this router are available again.
        available_sent: Total, "disk_available_signals_sent";
        /// Signals of neighbours that their disks are busy.
        busy_received: Total, "disk_busy_signals_received";
        /// Signals of neighbours that their disks are available again.
        available_received: Total, "disk_available_signals_received";
    }
    also {
        /// Time that answered Interests waited for a disk.
        read_latency: LatencyHistogram,
        /// Time to Data of Interests that bypassed a disk.
        bypass_latency: LatencyHistogram,
    }
}

impl RouterStats {
    pub(crate) fn drop_packet(&mut self, reason: DropReason) {
        self.drops[reason as usize] += 1;
    }
}
