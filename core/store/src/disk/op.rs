use alloc::vec::Vec;
use weir_base::Packet;

/// Identifies an operation of one store. Never used again.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct DiskOpId(pub u64);

/// An operation for the driver. The driver may carry out the operations of a disk in any order, and
/// reports a [`DiskOutcome`] for each. At most
/// [`DiskTierConfig::depth`](super::DiskTierConfig::depth) operations of a disk are in progress.
#[derive(Debug)]
pub struct DiskOp {
    /// Returned with the outcome.
    pub id: DiskOpId,
    /// An index into [`DiskTierConfig::disks`](super::DiskTierConfig::disks).
    pub disk: u8,
    pub kind: DiskOpKind,
}

/// What a [`DiskOp`] does. Offsets count from the start of the file or device. Offsets and lengths
/// are multiples of [`DiskGeometry::block_bytes`](super::DiskGeometry::block_bytes).
#[derive(Debug)]
pub enum DiskOpKind {
    /// Read a record and check it with [`record::parse_data`](super::record::parse_data).
    ReadRecord {
        offset: u64,
        len: u32,
        /// The sequence number that the record must have.
        sequence: u32,
    },
    /// Read bytes, for recovery.
    ReadRaw { offset: u64, len: u32 },
    /// Write `chunks` one after another, encoded by
    /// [`record::encode_chunks`](super::record::encode_chunks).
    Write {
        offset: u64,
        /// Bytes of all chunks, including padding.
        len: u32,
        /// The sequence number of the region.
        sequence: u32,
        chunks: Vec<WriteChunk>,
    },
}

/// A chunk of a write. Each starts at a block boundary, and zeros fill the rest of its last block.
#[derive(Debug)]
pub enum WriteChunk {
    Data {
        /// The whole Data TLV.
        packet: Packet,
        /// The end of its freshness, in milliseconds since 1970; 0 if it has no FreshnessPeriod.
        fresh_until_unix_ms: u64,
    },
    /// Encoded bytes, such as headers and checkpoints.
    Raw(Vec<u8>),
}

#[derive(Clone, Debug)]
pub enum DiskOutcome {
    /// [`DiskOpKind::ReadRecord`]: the Data TLV, in a block of its own size class.
    Record {
        /// The whole Data TLV.
        packet: Packet,
        /// The end of its freshness, in milliseconds since 1970.
        fresh_until_unix_ms: u64,
    },
    /// [`DiskOpKind::ReadRecord`]: the bytes are not that record.
    Damaged(RecordFault),
    /// [`DiskOpKind::ReadRaw`]: the bytes; fewer than requested at the end of the file.
    Raw(Vec<u8>),
    /// [`DiskOpKind::Write`]: the operating system or the device has all of it.
    Written,
    /// The system reported an error. Any part of a write may have been written.
    Failed(DiskFailure),
}

/// Why bytes are not the expected record.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordFault {
    /// The bytes are no record, or a record of another store or of another use of the region.
    #[error("there is no record of this store and region")]
    Foreign,
    /// Flipped bits, or a torn write.
    #[error("the checksum does not match")]
    Checksum,
    /// The file ends before the record does.
    #[error("the file ends before the record does")]
    Truncated,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiskFailure {
    #[error("no space is left on the disk")]
    NoSpace,
    /// The disk cannot be written to.
    #[error("the disk is read-only")]
    ReadOnly,
    /// Any other error.
    #[error("input/output error")]
    Io,
}
