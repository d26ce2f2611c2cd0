//! What disks are promised, and what they promise.

use weir_forward::{Mark, RouterStats};
use weir_store::disk::{DiskOpKind, DiskTierConfig};

/// Checks the count of operations that a shard has under way at one disk.
pub(crate) fn check_depth(operations: u32, depth: u32) -> Result<(), String> {
    if operations <= depth {
        return Ok(());
    }
    Err(format!("{operations} operations are under way at a disk, but at most {depth} may be"))
}

/// An operation is about whole blocks.
pub(crate) fn aligned(kind: &DiskOpKind, block_bytes: u32) -> Result<(), String> {
    let (offset, len) = match *kind {
        DiskOpKind::ReadRecord { offset, len, .. }
        | DiskOpKind::ReadRaw { offset, len }
        | DiskOpKind::Write { offset, len, .. } => (offset, len),
    };
    if offset.is_multiple_of(block_bytes.into()) && len.is_multiple_of(block_bytes) && len > 0 {
        return Ok(());
    }
    Err(format!("a disk is asked for {len} octets at {offset}; its blocks have {block_bytes}"))
}

/// Octets of a disk that one record takes at most.
const RECORD_BYTES_MAX: u64 = 72 << 10;

/// The queues of a shard before its disks.
pub(crate) fn queues(
    stats: &RouterStats,
    tier: &DiskTierConfig,
    interests_max: u64,
) -> Result<(), String> {
    let bound = |what: &str, len: u64, max: u64| {
        if len <= max {
            return Ok(());
        }
        Err(format!("{len} {what}, but at most {max} may"))
    };
    let disk = &stats.store.disk;
    let disks = tier.disks.len() as u64;
    bound("reads wait for disks", disk.reads_waiting, disks * u64::from(tier.reads_max))?;
    let backlog_max = tier.write_backlog_bytes_max + disks * RECORD_BYTES_MAX;
    bound("octets wait to be written", disk.write_backlog_bytes, backlog_max)?;
    bound("Interests wait before the store", stats.busy.interests_waiting, interests_max)
}

/// The run is over and nothing is on its way: nothing waits for a disk.
pub(crate) fn drained(stats: &RouterStats, under_way: usize) -> Result<(), String> {
    let disk = &stats.store.disk;
    let left = [
        ("operations are under way at disks", under_way as u64),
        ("reads wait for disks", disk.reads_waiting),
        ("records wait to be written", disk.writes_waiting),
        ("Interests wait before the store", stats.busy.interests_waiting),
    ];
    match left.iter().find(|(_, count)| *count > 0) {
        None => Ok(()),
        Some((what, count)) => Err(format!("{count} {what} although nothing is on its way")),
    }
}

/// A Data from the store was marked. `reads_peak` is the most reads that waited for the disks of
/// any one shard since none did.
pub(crate) fn mark(mark: Mark, reads_peak: u64, threshold: u32) -> Result<(), String> {
    if mark == Mark::Off {
        return Err("Data from the store is marked, which is switched off".into());
    }
    if reads_peak >= u64::from(threshold) {
        return Ok(());
    }
    Err(format!(
        "Data from the store is marked, but no more than {reads_peak} reads waited; the threshold \
         is {threshold}"
    ))
}

/// With NB-CC, Data for an Interest was marked although the router had another next hop for it
/// whose neighbour never said that it is not available.
pub(crate) fn lazy_mark(available_hops: usize) -> Result<(), String> {
    if available_hops == 0 {
        return Ok(());
    }
    Err(format!(
        "Data from the store is marked although {available_hops} other next hops were available \
         all the time"
    ))
}

/// A record that was acknowledged and that nothing has replaced is found, or not.
pub(crate) fn acknowledged(is_found: bool, offset: u64, sequence: u32) -> Result<(), String> {
    if is_found {
        return Ok(());
    }
    Err(format!(
        "the record at {offset} of a disk, in use {sequence} of its region, was acknowledged and \
         not evicted, but the store does not know it"
    ))
}

/// The filter lets a record pass that is in the index, or not.
pub(crate) fn filter(is_wrong: bool, offset: u64) -> Result<(), String> {
    if !is_wrong {
        return Ok(());
    }
    Err(format!("the filter refuses the record at {offset} of a disk, which is in the index"))
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
        assert!(queues(&stats, &tier, 9).unwrap_err().contains("octets wait"));
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
