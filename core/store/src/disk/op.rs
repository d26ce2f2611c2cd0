use alloc::vec::Vec;
use weir_base::Packet;

/// Identifies an operation of one store; never used again.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct DiskOpId(pub u64);

/// What the store wants of a disk. The driver carries out operations of one disk in any order and
/// answers each with a [`DiskOutcome`]. No more than
/// [`DiskTierConfig::depth`](super::DiskTierConfig::depth) of a disk are under way at once.
#[derive(Debug)]
pub struct DiskOp {
    /// Comes back with the outcome.
    pub id: DiskOpId,
    /// An index into [`DiskTierConfig::disks`](super::DiskTierConfig::disks).
    pub disk: u8,
    /// What to do.
    pub kind: DiskOpKind,
}

/// Kind of a [`DiskOp`]. Offsets are from the start of the file or device; offsets and lengths are
/// multiples of [`DiskGeometry::block_bytes`](super::DiskGeometry::block_bytes).
#[derive(Debug)]
pub enum DiskOpKind {
    /// Read a record, and check it with [`record::parse_data`](super::record::open_data).
    ReadRecord {
        /// Where it begins.
        offset: u64,
        /// Octets to read.
        len: u32,
        /// The sequence number of the region that it must bear.
        sequence: u32,
    },
    /// Read octets, for recovery.
    ReadRaw {
        /// Where they begin.
        offset: u64,
        /// Octets to read.
        len: u32,
    },
    /// Write `parts` one after another with [`record::encode_chunks`](super::record::lay_out).
    Write {
        /// Where the first begins.
        offset: u64,
        /// Octets that all parts take, padding included.
        len: u32,
        /// The sequence number of the region.
        sequence: u32,
        chunks: Vec<WriteChunk>,
    },
}

/// A part of a write. Each begins at a multiple of the block size; what is left of its last block
/// is zeros.
#[derive(Debug)]
pub enum WriteChunk {
    Data {
        /// The whole Data TLV.
        packet: Packet,
        /// Until when it is fresh, milliseconds since 1970; 0 when it never was.
        fresh_until_unix_ms: u64,
    },
    /// Octets that are ready: headers, checkpoints.
    Raw(Vec<u8>),
}

/// How an operation went.
#[derive(Clone, Debug)]
pub enum DiskOutcome {
    /// [`DiskOpKind::ReadRecord`]: the Data TLV in a block of its own size class.
    Record {
        /// The whole Data TLV.
        packet: Packet,
        /// Until when it is fresh, milliseconds since 1970.
        fresh_until_unix_ms: u64,
    },
    /// [`DiskOpKind::ReadRecord`]: what was read is not that record.
    Damaged(RecordFault),
    /// [`DiskOpKind::ReadRaw`]: what was read; shorter where the file ends before.
    Raw(Vec<u8>),
    /// [`DiskOpKind::ImageWrite`]: all of it is with the operating system or the device.
    Written,
    /// The system reports an error; for a write, any part of it may have been written.
    Failed(DiskFailure),
}

/// Why octets are not the record that should be there.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordFault {
    /// Something else is there: no record, or one of another store or an older region.
    #[error("no record of this store and region is there")]
    Foreign,
    /// The checksum is wrong: flipped bits or a torn write.
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
    /// It cannot be written to.
    #[error("the disk is read-only")]
    ReadOnly,
    /// Any other error of the system.
    #[error("input/output error")]
    Io,
}
