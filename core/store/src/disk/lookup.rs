use super::address::{Key, RecordAddress};
use weir_base::{Instant, Packet};

/// Data that an Interest asks for and that lies on a disk, as far as the index can tell.
#[derive(Copy, Clone, Debug)]
pub struct OnDisk {
    /// The disk, an index into [`DiskTierConfig::disks`](super::DiskTierConfig::disks).
    pub disk: u8,
    /// Reads that wait for the disk or are under way, not counting those this one would share.
    pub reads_waiting: u32,
    /// Whether the disk has not answered for long.
    pub is_stalled: bool,
    pub(super) key: Key,
    pub(super) address: RecordAddress,
}

/// Identifies a read that Interests wait for; never used again.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct ReadId(pub u64);

/// A read was not begun: as many as may be are waiting.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
#[error("as many reads as may be are waiting for the disk")]
pub struct ReadRefused;

/// A read has ended, or is not to be waited for any longer.
#[derive(Debug)]
pub struct FinishedRead {
    pub read: ReadId,
    /// What came of it.
    pub outcome: ReadOutcome,
}

#[derive(Debug)]
pub enum ReadOutcome {
    Data {
        /// A whole Data TLV that has not been decoded yet.
        packet: Packet,
        fresh_until: Instant,
    },
    /// The record is damaged or gone, or the disk failed: it will not be read from there.
    Unavailable,
    /// The disk does not answer. The read may still end with Data later.
    Stalled,
}

impl ReadOutcome {
    #[cfg(test)]
    pub(crate) fn is_data(&self) -> bool {
        matches!(self, Self::Data { .. })
    }
}
