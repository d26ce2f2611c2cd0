//! What disks are promised, and what they promise.

use weir_forward::RouterStats;
use weir_store::disk::DiskOpKind;

use crate::plan::{DiskMark, DiskPlan};

/// A shard has so many operations under way at one disk.
pub(crate) fn under_way(operations: u32, depth: u32) -> Result<(), String> {
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

/// The queues of a shard before its disks.
pub(crate) fn queues(stats: &RouterStats, plan: &DiskPlan) -> Result<(), String> {
    let bound = |what: &str, len: u64, max: u64| {
        if len <= max {
            return Ok(());
        }
        Err(format!("{len} {what}, but at most {max} may"))
    };
    let disk = &stats.store.disk;
    let disks = u64::from(plan.disks);
    bound("reads wait for disks", disk.reads_waiting, disks * u64::from(plan.reads_max))?;
    bound("records wait to be written", disk.writes_waiting, disks * u64::from(plan.writes_max))?;
    let interests_max = plan.interests_waiting_max.into();
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
/// the shard since none did.
pub(crate) fn mark(mark: DiskMark, reads_peak: u64, threshold: u32) -> Result<(), String> {
    if mark == DiskMark::Off {
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

/// The filter lets everything pass that is in the index.
pub(crate) fn filter(refused: u64) -> Result<(), String> {
    if refused == 0 {
        return Ok(());
    }
    Err(format!("the filter refuses {refused} records that are in the index"))
}
