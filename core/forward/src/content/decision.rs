//! The decisions of the content store and its disks about an Interest.

use weir_base::Packet;
use weir_store::disk::OnDisk;

use crate::stats::{BusyStats, DropReason};
use crate::table::fib::HopSet;

/// The result of the store stage for an Interest.
pub(crate) enum StoreOutcome {
    /// Data in memory is the answer.
    Answer(StoredData),
    /// A disk has the Data and will be read.
    Read(DiskRead),
    /// The stores of the other shards must be queried.
    QueryShards,
    /// The Interest is refused with a Congestion Nack.
    Refuse(DropReason),
    /// The store has no answer; the Interest continues to the PIT.
    Continue(ForwardingAction),
}

/// The next action for an Interest after the PIT stage, if the store has not answered it.
#[derive(Clone, Debug)]
pub enum ForwardingAction {
    /// Goes to FIB and strategy.
    Forward,
    /// Goes to FIB and strategy although a disk has its Data.
    Bypass(DiskBypass),
    /// Reads the disk that its PIT entry had bypassed. If that fails, goes to FIB and strategy.
    RetryDisk,
    /// Goes to FIB and strategy while its PIT entry waits for a disk: a retransmission.
    Hedge,
    /// Stops here: its PIT entry waits for a disk.
    Aggregate,
    /// Stops here: a retransmission that came too early.
    Suppress,
}

pub(crate) struct StoredData {
    pub(crate) packet: Packet,
    pub(crate) is_marked: bool,
}

/// The decision that an Interest bypasses the disk that has its Data.
#[derive(Clone, Copy, Debug)]
pub struct DiskBypass {
    pub(crate) reason: BypassReason,
    /// The next hops to which it may go.
    pub(crate) hops: HopSet,
    /// Its Data will be marked when it arrives from there.
    pub(crate) is_marked: bool,
}

/// Why an Interest bypasses a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BypassReason {
    /// The read queue has reached the threshold.
    QueueFull,
    /// The next hop will probably answer sooner.
    Slower,
    /// A probe that measures how long the next hop takes.
    Probe,
    /// The disk has stopped responding.
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

/// The decision that an Interest waits for a disk.
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
