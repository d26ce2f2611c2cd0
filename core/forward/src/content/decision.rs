//! What the content store and its disks make of an Interest.

use weir_base::Packet;
use weir_store::disk::OnDisk;

use crate::stats::DropReason;
use crate::table::fib::HopSet;

/// Where an Interest goes from the content store.
#[derive(Clone, Debug)]
pub enum StoreDecision {
    /// Nowhere: this Data answers it.
    Answer(StoredData),
    /// To FIB and strategy.
    Forward,
    /// There too, although a disk has what it asks for.
    Bypass(DiskBypass),
    /// Nowhere: a disk is asked.
    ReadDisk(DiskRead),
    /// To the disk that it had passed by, or else to FIB and strategy.
    RetryDisk,
    /// Nowhere yet: the other shards are asked.
    AskShards,
    /// Nowhere: its PIT entry waits already.
    Aggregate,
    /// The same, and it is dropped because it is a retransmission before its time.
    Suppress,
    /// Upstream as well as to the disk that its PIT entry waits for: a retransmission.
    Hedge,
    /// Nowhere: a Nack for congestion.
    Refuse(Refusal),
}

/// Data from memory.
#[derive(Clone, Debug)]
pub struct StoredData {
    pub(crate) packet: Packet,
    pub(crate) is_marked: bool,
}

/// Why the store refuses an Interest.
#[derive(Clone, Copy, Debug)]
pub struct Refusal(pub(crate) DropReason);

/// An Interest passes by a disk that has its Data.
#[derive(Clone, Copy, Debug)]
pub struct DiskBypass {
    pub(crate) reason: BypassReason,
    /// The next hops that it may go to.
    pub(crate) hops: HopSet,
    /// Its Data is to be marked when it comes from there.
    pub(crate) is_marked: bool,
}

/// Why an Interest passes by a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BypassReason {
    /// As many reads as the threshold says wait for it.
    QueueFull,
    /// The next hop is likely to answer sooner.
    Slower,
    /// To find out how long the next hop takes.
    Probe,
    /// It has not answered for long.
    Stalled,
}

/// An Interest is to wait for a disk.
#[derive(Clone, Copy, Debug)]
pub struct DiskRead {
    pub(crate) found: OnDisk,
    /// The queue is over its threshold.
    pub(crate) is_over_threshold: bool,
    /// The Data is to be marked.
    pub(crate) is_marked: bool,
}

/// Whether an Interest is to wait in a queue of the store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum QueueDecision {
    Bypass(DiskBypass),
    Wait { is_over_threshold: bool, is_marked: bool },
}
