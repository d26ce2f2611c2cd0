//! The disk of a producer's output buffer: a file of the content store's disk tier.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

use weir_base::{Instant, NS_PER_S};
use weir_client::{monotonic_now, random_u64};
use weir_disk::{DiskFileConfig, DiskPorts};
use weir_store::disk::{DiskOp, DiskOpId, DiskOutcome, DiskTierConfig, OfferAt};
use weir_transport::ProducerInput;

use super::SocketError;

/// Concurrent operations.
const QUEUE_DEPTH: u32 = 32;
/// Upper bound of records that wait to be written. A producer that waits while its disk is behind
/// has fewer.
const WRITE_BACKLOG_BYTES_MAX: u64 = 512 << 20;
/// Bytes of a record besides its content: name, signature, headers.
const RECORD_OVERHEAD_BYTES: u64 = 512;
/// Memory for index and filter per typical record, twice the need.
const INDEX_BYTES_PER_RECORD: u64 = 32;
/// Minimum of that memory, however small the disk is.
const INDEX_BYTES_MIN: u64 = 16 << 20;
/// How long pending operations may take to end after the producer is gone.
const CLOSE_TIMEOUT_NS: u64 = 2 * NS_PER_S;

/// Reads and writes the file. Nothing here waits for a disk except [`OutputDisk::close`]. Once an
/// operation has started, the disk must stay on its thread, because an io_uring belongs to one
/// thread.
pub(crate) struct OutputDisk {
    ports: DiskPorts,
    outcomes: Vec<(DiskOpId, DiskOutcome)>,
}

/// A disk, and the configuration of the tier above it.
pub(crate) type OpenDisk = (OutputDisk, DiskTierConfig);

impl OutputDisk {
    /// Creates a file of `bytes` bytes in a folder, without a name. It disappears with the
    /// producer, however that ends, and also if the program ends before the file is complete.
    pub(crate) fn open(
        folder: &Path,
        bytes: u64,
        segment_bytes: u64,
        stalled_after_ns: u64,
    ) -> Result<OpenDisk, SocketError> {
        let path = folder.join(format!("weir-output-{:016x}", random_u64()?));
        // Blocks of 512 bytes waste less of the file. The page cache uses spare memory of the
        // system.
        let config = DiskFileConfig { direct: false, ..DiskFileConfig::new(path, Some(bytes)) };
        Self::start(config, segment_bytes, stalled_after_ns)
    }

    fn start(
        config: DiskFileConfig,
        segment_bytes: u64,
        stalled_after_ns: u64,
    ) -> Result<OpenDisk, SocketError> {
        let config = DiskFileConfig { unnamed: true, ..config };
        let set = weir_disk::open(&[config], 1).map_err(|error| SocketError::Disk {
            errno: error.errno(),
            reason: error.to_string(),
        })?;
        let (geometry, typical) = (set.geometry(0, 0), segment_bytes + RECORD_OVERHEAD_BYTES);
        let records = u64::from(geometry.regions) * geometry.region_bytes / typical;
        let disks = vec![geometry];
        let tier = DiskTierConfig {
            record_bytes_typical: typical as u32,
            index_bytes_max: (records * INDEX_BYTES_PER_RECORD).max(INDEX_BYTES_MIN),
            depth: QUEUE_DEPTH,
            offer_at: OfferAt::Eviction,
            write_backlog_bytes_max: WRITE_BACKLOG_BYTES_MAX,
            stalled_after_ns,
            ..DiskTierConfig::new(disks, set.store_id(), set.hash_key(), weir_disk::checksum)
        };
        let (_, ports) = set
            .start(QUEUE_DEPTH, 1)
            .map_err(|error| SocketError::System(format!("disk: {error}")))?;
        let ports = ports.into_iter().next().expect("the ports of one shard");
        Ok((Self { ports, outcomes: Vec::new() }, tier))
    }

    /// Descriptors that become readable when an operation has ended.
    pub(crate) fn sources(&self) -> Vec<BorrowedFd<'_>> {
        self.ports.sources().to_vec()
    }

    /// Appends finished operations.
    pub(crate) fn take_completions(&mut self, inputs: &mut Vec<ProducerInput>) {
        self.ports.drain(&mut self.outcomes);
        let done = self.outcomes.drain(..);
        inputs.extend(done.map(|(id, outcome)| ProducerInput::DiskDone { id, outcome }));
    }

    /// Starts operations. Must be called once in each turn.
    pub(crate) fn submit(&mut self, ops: &mut Vec<DiskOp>) {
        ops.drain(..).for_each(|op| self.ports.submit(op));
        self.ports.flush();
    }

    /// Whether reads or writes are pending.
    pub(crate) fn is_busy(&self) -> bool {
        self.ports.under_way() > 0
    }

    /// Continues pending operations and ignores their results. Returns whether some remain.
    fn drive(&mut self) -> bool {
        self.ports.drain(&mut self.outcomes);
        self.outcomes.clear();
        // Submits the rest of partially completed operations.
        self.ports.flush();
        self.is_busy()
    }

    /// Waits for pending operations, at most `within`. Returns whether all have ended. The rest is
    /// left to the device, with its memory.
    fn close(self, within: Duration) -> bool {
        self.ports.close(within)
    }
}

/// Disks of removed producers, until their pending operations have ended or timed out. Belongs to
/// the thread that used them, which still watches their descriptors.
#[derive(Default)]
pub(crate) struct ClosingDisks {
    /// With their deadlines.
    disks: Vec<(OutputDisk, Instant)>,
    /// Disks whose operations did not all end.
    #[cfg(test)]
    unfinished: usize,
}

impl ClosingDisks {
    pub(crate) fn add(&mut self, now: Instant, disk: OutputDisk) {
        self.disks.push((disk, now.plus_ns(CLOSE_TIMEOUT_NS)));
    }

    /// Continues their operations, and drops ended ones. Must be called when one of their
    /// descriptors becomes readable, and at the returned time.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Instant> {
        let over: Vec<_> =
            self.disks.extract_if(.., |(disk, until)| !disk.drive() || *until <= now).collect();
        over.into_iter().for_each(|(disk, _)| self.close(disk, Duration::ZERO));
        self.disks.iter().map(|&(_, until)| until).min()
    }

    /// Waits for all disks together, at most as long as a single one may take.
    pub(crate) fn wait(&mut self, now: Instant) {
        let until = now.plus_ns(CLOSE_TIMEOUT_NS);
        for (disk, _) in std::mem::take(&mut self.disks) {
            let left = Duration::from_nanos(until.ns_since(monotonic_now()));
            self.close(disk, left);
        }
    }

    fn close(&mut self, disk: OutputDisk, within: Duration) {
        let _has_ended = disk.close(within);
        #[cfg(test)]
        {
            self.unfinished += usize::from(!_has_ended);
        }
    }
}

#[cfg(test)]
mod tests;
