//! Checks how routers use their disks, and that disks keep what they acknowledged.

use weir_forward::{Mark, RouterStats};
use weir_store::disk::{DiskOpKind, DiskTierConfig};

/// Checks the number of operations that a shard runs on one disk at the same time.
pub(crate) fn check_depth(operations: u32, depth: u32) -> Result<(), String> {
    if operations <= depth {
        return Ok(());
    }
    Err(format!("a disk runs {operations} operations, more than its depth of {depth}"))
}

/// Checks that an operation covers whole blocks.
pub(crate) fn aligned(kind: &DiskOpKind, block_bytes: u32) -> Result<(), String> {
    let (offset, len) = match *kind {
        DiskOpKind::ReadRecord { offset, len, .. }
        | DiskOpKind::ReadRaw { offset, len }
        | DiskOpKind::Write { offset, len, .. } => (offset, len),
    };
    if offset.is_multiple_of(block_bytes.into()) && len.is_multiple_of(block_bytes) && len > 0 {
        return Ok(());
    }
    Err(format!(
        "an operation of {len} bytes at {offset} is not aligned to blocks of {block_bytes} bytes"
    ))
}

/// Upper bound on the bytes of one record on disk.
const RECORD_BYTES_MAX: u64 = 72 << 10;

/// Checks the queues of a shard before its disks.
pub(crate) fn queues(
    stats: &RouterStats,
    tier: &DiskTierConfig,
    interests_max: u64,
) -> Result<(), String> {
    let bound = |what: &str, len: u64, max: u64| {
        if len <= max {
            return Ok(());
        }
        Err(format!("{len} {what}, more than the limit of {max}"))
    };
    let disk = &stats.store.disk;
    let disks = tier.disks.len() as u64;
    bound("reads wait for disks", disk.reads_waiting, disks * u64::from(tier.reads_max))?;
    let backlog_max = tier.write_backlog_bytes_max + disks * RECORD_BYTES_MAX;
    bound("bytes wait to be written", disk.write_backlog_bytes, backlog_max)?;
    bound("Interests wait before the store", stats.busy.interests_waiting, interests_max)
}

/// Checks that no operation waits for a disk at the end of a run.
pub(crate) fn drained(stats: &RouterStats, under_way: usize) -> Result<(), String> {
    let disk = &stats.store.disk;
    let left = [
        ("operations are active on disks", under_way as u64),
        ("reads wait for disks", disk.reads_waiting),
        ("records wait to be written", disk.writes_waiting),
        ("Interests wait before the store", stats.busy.interests_waiting),
    ];
    match left.iter().find(|(_, count)| *count > 0) {
        None => Ok(()),
        Some((what, count)) => Err(format!("{count} {what} although no packet is in flight")),
    }
}

/// Checks a mark on Data from the store. `reads_peak` is the longest queue that one shard had
/// before its disks since that queue was last empty.
pub(crate) fn mark(mark: Mark, reads_peak: u64, threshold: u32) -> Result<(), String> {
    if mark == Mark::Off {
        return Err("the store marked Data although marking is switched off".into());
    }
    if reads_peak >= u64::from(threshold) {
        return Ok(());
    }
    Err(format!(
        "the store marked Data, but at most {reads_peak} reads waited; the threshold is {threshold}"
    ))
}

/// Checks a mark set by NB-CC, which may mark only when no other next hop is available. A neighbour
/// that never signalled that it is unavailable was available all the time.
pub(crate) fn lazy_mark(available_hops: usize) -> Result<(), String> {
    if available_hops == 0 {
        return Ok(());
    }
    Err(format!(
        "the store marked Data although {available_hops} other next hops were available all the \
         time"
    ))
}

/// Checks that the store still finds a record that it acknowledged and did not evict.
pub(crate) fn acknowledged(is_found: bool, offset: u64, sequence: u32) -> Result<(), String> {
    if is_found {
        return Ok(());
    }
    Err(format!(
        "the record at offset {offset} of a disk (generation {sequence} of its region) was \
         acknowledged and not evicted, but the store does not find it"
    ))
}

/// Checks that the filter admits a record that is in the index.
pub(crate) fn filter(is_wrong: bool, offset: u64) -> Result<(), String> {
    if !is_wrong {
        return Ok(());
    }
    Err(format!(
        "the filter rejects the record at offset {offset} of a disk, although it is in the index"
    ))
}

#[cfg(test)]
mod tests {
    use weir_base::HashKey;
    use weir_store::disk::DiskGeometry;

    use super::*;

    #[test]
    fn detects_excess_and_unaligned_operations() {
        assert_eq!(check_depth(8, 8), Ok(()));
        assert!(check_depth(9, 8).unwrap_err().contains("9 operations"));
        let read = |offset, len| DiskOpKind::ReadRaw { offset, len };
        assert_eq!(aligned(&read(4096, 8192), 4096), Ok(()));
        assert!(aligned(&read(4097, 8192), 4096).is_err());
        assert!(aligned(&read(4096, 512), 4096).is_err());
        assert!(aligned(&read(4096, 0), 4096).is_err());
    }

    #[test]
    fn detects_disk_queues_over_their_bounds() {
        let geometry = DiskGeometry {
            data_offset: 4096,
            region_bytes: 1 << 20,
            block_bytes: 4096,
            first: 0,
            stride: 1,
            regions: 2,
            is_writable: true,
        };
        let tier = DiskTierConfig {
            reads_max: 5,
            write_backlog_bytes_max: 14 << 10,
            ..DiskTierConfig::new(vec![geometry; 2], 1, HashKey::new([0, 0]), |_| 0)
        };
        let mut stats = RouterStats::default();
        stats.store.disk.reads_waiting = 10;
        stats.store.disk.write_backlog_bytes = (14 << 10) + 2 * RECORD_BYTES_MAX;
        stats.busy.interests_waiting = 9;
        assert_eq!(queues(&stats, &tier, 9), Ok(()));
        stats.store.disk.reads_waiting = 11;
        assert!(queues(&stats, &tier, 9).unwrap_err().contains("11 reads"));
        stats.store.disk.reads_waiting = 0;
        stats.store.disk.write_backlog_bytes += 1;
        assert!(queues(&stats, &tier, 9).unwrap_err().contains("bytes wait"));
        stats.store.disk.write_backlog_bytes = 0;
        stats.busy.interests_waiting = 10;
        assert!(queues(&stats, &tier, 9).unwrap_err().contains("10 Interests"));
    }

    #[test]
    fn detects_operations_left_at_the_end() {
        let mut stats = RouterStats::default();
        assert_eq!(drained(&stats, 0), Ok(()));
        assert!(drained(&stats, 1).is_err());
        stats.store.disk.reads_waiting = 1;
        assert!(drained(&stats, 0).unwrap_err().contains("reads"));
        stats.store.disk.reads_waiting = 0;
        stats.store.disk.writes_waiting = 2;
        assert!(drained(&stats, 0).unwrap_err().contains("2 records"));
        stats.store.disk.writes_waiting = 0;
        stats.busy.interests_waiting = 1;
        assert!(drained(&stats, 0).unwrap_err().contains("Interests"));
    }

    #[test]
    fn detects_wrong_marks() {
        assert_eq!(mark(Mark::Ecn, 64, 64), Ok(()));
        assert!(mark(Mark::Ecn, 63, 64).unwrap_err().contains("63 reads"));
        assert!(mark(Mark::NbCc, 0, 1).is_err());
        assert!(mark(Mark::Off, 1000, 64).unwrap_err().contains("switched off"));
        assert_eq!(lazy_mark(0), Ok(()));
        assert!(lazy_mark(1).unwrap_err().contains("1 other"));
    }

    #[test]
    fn detects_lost_records_and_wrong_filter() {
        assert_eq!(acknowledged(true, 4096, 3), Ok(()));
        assert!(acknowledged(false, 4096, 3).unwrap_err().contains("4096"));
        assert_eq!(filter(false, 512), Ok(()));
        assert!(filter(true, 512).unwrap_err().contains("512"));
    }
}
