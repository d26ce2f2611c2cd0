//! Validates disks.

use super::value;
use crate::error::PlanError;
use crate::plan::{DISKS_MAX, DiskPlan};

/// Minimum number of blocks in a region.
const BLOCKS_MIN: u64 = 4;
/// A label is valid for three times this period, and routers trust no label for longer than 10 s.
const ANNOUNCE_PERIOD_NS_MAX: u64 = 3_000_000_000;

/// Checks the disks of a router.
pub(super) fn check(plan: &DiskPlan, place: &str) -> Result<(), PlanError> {
    let refuse = |key, problem: String| Err(value(place, key, problem));
    if plan.disks == 0 || plan.disks > DISKS_MAX {
        let problem = format!("is {}; a router has 1 to {DISKS_MAX} disks, or none", plan.disks);
        return refuse("disk.disks", problem);
    }
    if ![512, 4096].contains(&plan.block_bytes) {
        let problem = format!("is {}; blocks have 512 or 4096 bytes", plan.block_bytes);
        return refuse("disk.block_bytes", problem);
    }
    let blocks = plan.region_bytes / u64::from(plan.block_bytes);
    let is_whole = plan.region_bytes.is_multiple_of(plan.block_bytes.into());
    if !is_whole || !(BLOCKS_MIN..=1 << 20).contains(&blocks) {
        let problem = format!(
            "is {}; it must be {BLOCKS_MIN} or more, at most a million, blocks of {} bytes",
            plan.region_bytes, plan.block_bytes
        );
        return refuse("disk.region_bytes", problem);
    }
    if plan.regions() < 2 || plan.bytes > 1 << 44 {
        let problem = format!(
            "is {}; write a size of at least 2 regions of {} bytes, up to 16 TiB",
            plan.bytes, plan.region_bytes
        );
        return refuse("disk.bytes", problem);
    }
    if plan.shared_as.is_some() && plan.disks != 1 {
        let problem = format!("is {}; a router that shares its disk has exactly 1", plan.disks);
        return refuse("disk.disks", problem);
    }
    if !(0.0..=1.0).contains(&plan.filled) {
        let problem = format!("is {}; write a fraction from 0 to 1", plan.filled);
        return refuse("disk.filled", problem);
    }
    if let Some((first, last)) = plan.filled_ranges.iter().find(|(first, last)| first > last) {
        let problem = format!("goes from {first} to {last}; write the lower number first");
        return refuse("disk.filled_ranges", problem);
    }
    let options = &plan.options;
    let positive = [
        ("disk.depth", u64::from(options.depth)),
        ("disk.reads_max", options.reads_max.into()),
        ("disk.write_size_max", options.write_size_max.bytes),
        ("disk.stalled_after", options.stalled_after.ns),
        ("disk.announce_period", plan.experiments.announce_period.ns),
        ("disk.interests_waiting_max", plan.experiments.interests_waiting_max.into()),
        ("disk.record_size_typical", options.record_size_typical.bytes),
        ("disk.false_positives", plan.experiments.filter_false_positives_ppm.into()),
    ];
    if let Some((key, _)) = positive.iter().find(|(_, number)| *number == 0) {
        return refuse(key, "is 0; write at least 1".into());
    }
    if plan.experiments.announce_period.ns > ANNOUNCE_PERIOD_NS_MAX {
        let problem = "is more than 3 s; neighbours trust an announcement for at most 10 s".into();
        return refuse("disk.announce_period", problem);
    }
    plan.device.check().map_err(|error| value(place, "disk.device", error.to_string()))
}
