//! The second level of a producer's output buffer: a file of the content store's own disk tier.

use std::fs;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

use weir_disk::{DiskFileConfig, DiskPorts};
use weir_store::disk::{DiskOp, DiskOpId, DiskOutcome, DiskTierConfig};
use weir_transport::ProducerInput;

use super::SocketError;
use crate::connection::random_u64;

/// Operations under way at a time.
const DEPTH: u32 = 32;
/// Records that wait to be written at most. A producer that waits while its disk is behind has
/// fewer.
const WRITES_MAX: u32 = 1 << 16;
/// Octets of a record beside its content: name, signature, headers.
const RECORD_OVERHEAD_BYTES: u64 = 512;
/// Octets of memory that index and filter may take for a typical record, twice what they need.
const INDEX_BYTES_PER_RECORD: u64 = 32;
/// What they may take however small the disk is.
const INDEX_BYTES_MIN: u64 = 16 << 20;
/// How long what is under way may take to end when the producer is gone.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Reads and writes it. Nothing here waits for a disk.
pub(crate) struct OutputDisk {
    /// There until it is dropped.
    ports: Option<DiskPorts>,
    outcomes: Vec<(DiskOpId, DiskOutcome)>,
}

impl OutputDisk {
    /// Makes a file of `bytes` octets in a folder. It has no name: nothing of it is left when the
    /// producer is gone, however it ends.
    pub(crate) fn open(
        folder: &Path,
        bytes: u64,
        segment_bytes: u64,
    ) -> Result<(Self, DiskTierConfig), SocketError> {
        let path = folder.join(format!("weir-output-{:016x}", random_u64()?));
        // Blocks of 512 octets, which waste less of the file, and a page cache that keeps what the
        // system has memory for.
        let config = DiskFileConfig { direct: false, ..DiskFileConfig::new(path, Some(bytes)) };
        Self::start(config, segment_bytes)
    }

    fn start(
        config: DiskFileConfig,
        segment_bytes: u64,
    ) -> Result<(Self, DiskTierConfig), SocketError> {
        let path = config.path.clone();
        let set = weir_disk::open(&[config], 1)
            .map_err(|error| SocketError::Option(format!("disk: {error}")))?;
        fs::remove_file(&path)?;
        let (geometry, typical) = (set.geometry(0, 0), segment_bytes + RECORD_OVERHEAD_BYTES);
        let records = u64::from(geometry.regions) * geometry.region_bytes / typical;
        let disks = vec![geometry];
        let tier = DiskTierConfig {
            record_bytes_typical: typical as u32,
            index_bytes_max: (records * INDEX_BYTES_PER_RECORD).max(INDEX_BYTES_MIN),
            depth: DEPTH,
            writes_max: WRITES_MAX,
            ..DiskTierConfig::new(disks, set.store_id(), set.hash_key(), weir_disk::checksum)
        };
        let (_, ports) =
            set.start(DEPTH, 1).map_err(|error| SocketError::System(format!("disk: {error}")))?;
        let ports = ports.into_iter().next();
        Ok((Self { ports, outcomes: Vec::new() }, tier))
    }

    /// What becomes readable when something has ended.
    pub(crate) fn sources(&self) -> Vec<BorrowedFd<'_>> {
        self.ports.iter().flat_map(DiskPorts::sources).collect()
    }

    /// Appends what has ended.
    pub(crate) fn take(&mut self, inputs: &mut Vec<ProducerInput>) {
        let Some(ports) = &mut self.ports else { return };
        ports.drain(&mut self.outcomes);
        let done = self.outcomes.drain(..);
        inputs.extend(done.map(|(id, outcome)| ProducerInput::DiskDone { id, outcome }));
    }

    /// Begins what is to be done. Once a turn, whatever happened in it.
    pub(crate) fn submit(&mut self, ops: &mut Vec<DiskOp>) {
        let Some(ports) = &mut self.ports else { return };
        ops.drain(..).for_each(|op| ports.submit(op));
        ports.flush();
    }
}

impl Drop for OutputDisk {
    fn drop(&mut self) {
        let Some(ports) = self.ports.take().filter(|ports| ports.under_way() > 0) else { return };
        // The thread that drops it has others to answer for. If there is none to do this, what is
        // under way is left to the device.
        let closing = std::thread::Builder::new().name("disk-close".into());
        let _ = closing.spawn(move || ports.close(CLOSE_TIMEOUT));
    }
}

#[cfg(test)]
mod tests;
