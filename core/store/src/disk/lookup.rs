use super::address::{Key, RecordAddress};
use weir_base::{Instant, Packet};

/// A record that answers an Interest, according to the index. Reading it may show otherwise.
#[derive(Copy, Clone, Debug)]
pub struct OnDisk {
    /// An index into [`DiskTierConfig::disks`](super::DiskTierConfig::disks).
    pub disk: u8,
    /// Reads that wait for the disk or are in progress. A read that this lookup could join does not
    /// count.
    pub reads_waiting: u32,
    /// Whether the disk has not responded for a long time.
    pub is_stalled: bool,
    pub(super) key: Key,
    pub(super) address: RecordAddress,
}

/// Identifies a read. Never used again.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct ReadId(pub u64);

/// The disk's limit of waiting reads is reached, so the read did not begin.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
#[error("too many reads are waiting for the disk")]
pub struct ReadRefused;

/// A read has ended, or its Interests should not wait for it any longer.
#[derive(Debug)]
pub struct FinishedRead {
    pub read: ReadId,
    pub outcome: ReadOutcome,
}

#[derive(Debug)]
pub enum ReadOutcome {
    Data {
        /// The whole Data TLV, not decoded yet.
        packet: Packet,
        fresh_until: Instant,
    },
    /// The record is damaged or gone, or the disk failed.
    Unavailable,
    /// The disk does not respond. The read may still return Data later.
    Stalled,
}

impl ReadOutcome {
    #[cfg(test)]
    pub(crate) fn is_data(&self) -> bool {
        matches!(self, Self::Data { .. })
    }
}
