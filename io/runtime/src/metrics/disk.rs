//! Metrics of the store's disks.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};
use prometheus_client::metrics::MetricType;

use super::{counter, counters, gauge, histogram};
use crate::snapshot::{DiskSnapshot, Snapshot};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Disk {
    disk: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Bypass {
    reason: &'static str,
}

/// A number of the router's: its name, what it is, and its value.
type Row = (&'static str, &'static str, u64);

pub(super) fn encode(
    snapshot: &Snapshot,
    encoder: &mut DescriptorEncoder,
) -> Result<(), fmt::Error> {
    for (name, help, value) in gauges_of(snapshot) {
        gauge(encoder, name, help, value)?;
    }
    for (name, help, value) in counters_of(snapshot) {
        counter(encoder, name, help, value)?;
    }
    busy(snapshot, encoder)?;
    devices(snapshot, encoder)
}

fn gauges_of(snapshot: &Snapshot) -> [Row; 11] {
    let (tier, busy) = (&snapshot.router.store.disk, &snapshot.router.busy);
    let is_recovering = u64::from(tier.is_recovering);
    [
        ("disk_entries", "Data on disk", tier.entries),
        ("disk_bytes", "Octets of them, padding included", tier.bytes),
        ("disk_index_bytes", "Memory of their index and filter", tier.index_bytes),
        ("disk_filter_saturated", "Full counters of the filter", tier.filter_saturated),
        ("disk_recovering", "1 while what was on disk at the start is read in", is_recovering),
        ("disk_recovered", "Records found on disk at the start", tier.recovered),
        (
            "disk_regions_unreadable",
            "Regions that the start could not read, or found damaged",
            tier.regions_unreadable,
        ),
        ("disk_reads_waiting", "Reads that wait or are under way", tier.reads_waiting),
        ("disk_writes_waiting", "Records to be written", tier.writes_waiting),
        ("disks_stalled", "Disks that do not answer", tier.stalled),
        ("disk_interests_waiting", "Interests before a store that blocks", busy.interests_waiting),
    ]
}

fn counters_of(snapshot: &Snapshot) -> [Row; 27] {
    let (tier, busy) = (&snapshot.router.store.disk, &snapshot.router.busy);
    [
        ("disk_filter_negatives", "Lookups that the filter ended", tier.filter_negatives),
        (
            "disk_filter_false_positives",
            "Lookups that passed the filter in vain",
            tier.filter_false_positives,
        ),
        ("disk_hits_unwritten", "Lookups answered before the write", tier.hits_unwritten),
        ("disk_reads", "Records read for Interests", tier.reads),
        ("disk_reads_shared", "Lookups that joined a read", tier.reads_shared),
        ("disk_reads_refused", "Reads refused, as many were waiting", tier.reads_refused),
        ("disk_read_errors", "Reads that the system failed", tier.read_errors),
        ("disk_damaged", "Records not what they should be, never served", tier.damaged),
        ("disk_writes", "Records written", tier.writes),
        ("disk_written_bytes", "Octets written, padding included", tier.written_bytes),
        ("disk_write_errors", "Writes that the system failed", tier.write_errors),
        ("disk_not_admitted", "Data kept off by the admission policy", tier.not_admitted),
        ("disk_passed_by", "Data not stored, as many writes were waiting", tier.passed_by),
        ("disk_no_room", "Data that neither disk nor index took", tier.no_room),
        ("disk_evictions", "Records that made room", tier.evictions),
        ("disk_erasures", "Records erased by command", tier.erasures),
        ("disk_stalls", "Times that a disk was found stalled", tier.stalls),
        ("disk_answered", "Pending Interests answered from a disk", busy.answered),
        ("disk_went_on", "Pending Interests that went on without a disk", busy.went_on),
        ("disk_overtaken", "Pending Interests answered before the disk", busy.overtaken),
        (
            "disk_waited_over_threshold",
            "Interests that waited though the queue was over its threshold",
            busy.waited_over_threshold,
        ),
        ("disk_interests_refused", "Interests refused before a full queue", busy.interests_refused),
        ("disk_marked", "Data marked because of the disks", busy.marked),
        ("disk_alphas_sent", "Neighbours told that there is no room", busy.busy_sent),
        ("disk_betas_sent", "Neighbours told that there is room again", busy.available_sent),
        ("disk_alphas_received", "Neighbours that had no room", busy.busy_received),
        ("disk_betas_received", "Neighbours that had room again", busy.available_received),
    ]
}

/// What there is of Interests by reason, and of their times.
fn busy(snapshot: &Snapshot, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
    let busy = &snapshot.router.busy;
    let bypassed = [
        ("queue-full", busy.bypassed_queue_full),
        ("slower", busy.bypassed_slower),
        ("probe", busy.bypassed_probe),
        ("stalled", busy.bypassed_stalled),
    ];
    let help = "Interests that went on although a disk had their Data, by reason";
    let bypassed = bypassed.map(|(reason, count)| (Bypass { reason }, count));
    counters(encoder, "disk_bypassed", help, bypassed)?;
    let help = "Time that Interests waited for a disk, to their Data";
    histogram(encoder, "disk_read_latency_seconds", help, &busy.read_latency)?;
    let help = "Time to Data of Interests that passed the store by";
    histogram(encoder, "disk_bypass_latency_seconds", help, &busy.bypass_latency)
}

fn devices(snapshot: &Snapshot, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
    let label = |disk: &DiskSnapshot| Disk { disk: disk.path.display().to_string() };
    type Value = fn(&DiskSnapshot) -> u64;
    let values: [(&str, &str, Value); 6] = [
        ("disk_device_reads", "Reads of a disk", |disk| disk.counters.reads),
        ("disk_device_read_bytes", "Octets read", |disk| disk.counters.read_bytes),
        ("disk_device_writes", "Writes to a disk", |disk| disk.counters.writes),
        ("disk_device_written_bytes", "Octets written", |disk| disk.counters.written_bytes),
        ("disk_device_damaged", "Reads that found no such record", |disk| disk.counters.damaged),
        ("disk_device_failures", "Errors of the system", |disk| disk.counters.failures),
    ];
    for (name, help, value) in values {
        let rows = snapshot.disks.iter().map(|disk| (label(disk), value(disk)));
        counters(encoder, name, help, rows)?;
    }
    let gauges: [(&str, &str, Value); 2] = [
        ("disk_device_capacity_bytes", "Octets for records", |disk| disk.capacity_bytes),
        ("disk_device_dead", "1 when it is used no more", |disk| u64::from(disk.is_dead)),
    ];
    for (name, help, value) in gauges {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for disk in &snapshot.disks {
            family.encode_family(&label(disk))?.encode_gauge(&value(disk))?;
        }
    }
    Ok(())
}
