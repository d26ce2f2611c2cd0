//! What the content store and its disks decide about an Interest.

use weir_base::Packet;
use weir_store::disk::OnDisk;

use crate::stats::{BusyStats, DropReason};
use crate::table::fib::HopSet;

/// What becomes of an Interest at the content store.
pub(crate) enum StoreOutcome {
    /// Data in memory answers it.
    Answer(StoredData),
    /// A disk has its Data and will be read.
    Read(DiskRead),
    /// The stores of the other shards are asked.
    QueryShards,
    /// A Nack for congestion.
    Refuse(DropReason),
    /// The store does not answer: on to the PIT.
    Continue(ForwardingAction),
}

/// How an Interest that the store has not answered continues from the PIT.
#[derive(Clone, Debug)]
pub enum ForwardingAction {
    /// To FIB and strategy.
    Forward,
    /// To FIB and strategy although a disk has its Data.
    Bypass(DiskBypass),
    /// To the disk that its PIT entry had bypassed, else to FIB and strategy.
    RetryDisk,
    /// To FIB and strategy while its PIT entry waits for a disk: a retransmission.
    Hedge,
    /// Nowhere: its PIT entry waits for a disk.
    Aggregate,
    /// Nowhere: a retransmission that came too early.
    Suppress,
}

pub(crate) struct StoredData {
    pub(crate) packet: Packet,
    pub(crate) is_marked: bool,
}

/// An Interest bypasses the disk that has its Data.
#[derive(Clone, Copy, Debug)]
pub struct DiskBypass {
    pub(crate) reason: BypassReason,
    /// The next hops that it may go to.
    pub(crate) hops: HopSet,
    /// Its Data will be marked when it comes from there.
    pub(crate) is_marked: bool,
}

/// Why an Interest bypasses a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BypassReason {
    /// The queue of reads has reached the threshold.
    QueueFull,
    /// The next hop will probably answer sooner.
    Slower,
    /// To measure how long the next hop takes.
    Probe,
    /// The disk has not responded for long.
    Stalled,
}

impl BypassReason {
    pub(crate) fn count(self, stats: &mut BusyStats) {
        match self {
            Self::QueueFull => stats.bypassed_queue_full += 1,
            Self::Slower => stats.bypassed_slower += 1,
            Self::Probe => stats.bypassed_probe += 1,
            Self::Stalled => stats.bypassed_stalled += 1,
        }
    }
}

/// An Interest waits for a disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiskRead {
    pub(crate) found: OnDisk,
    /// The queue is over its threshold.
    pub(crate) is_over_threshold: bool,
    /// The Data will be marked.
    pub(crate) is_marked: bool,
}

/// Whether an Interest waits in a queue of the store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum QueueDecision {
    Bypass(DiskBypass),
    Wait { is_over_threshold: bool, is_marked: bool },
}
