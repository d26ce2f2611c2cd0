//! Metrics of the store's disks.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};
use prometheus_client::metrics::MetricType;

use super::{encode_counters, encode_table, write_histogram};
use crate::snapshot::{DiskSnapshot, Snapshot};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DiskLabels {
    disk: String,
}

pub(super) fn encode(
    snapshot: &Snapshot,
    encoder: &mut DescriptorEncoder,
) -> Result<(), fmt::Error> {
    let busy = &snapshot.router.busy;
    encode_table(encoder, &snapshot.router.store.disk)?;
    encode_table(encoder, busy)?;
    let help = "Time from an Interest to its Data, when the Data was read from disk";
    write_histogram(encoder, "disk_read_latency_seconds", help, &busy.read_latency)?;
    let help = "Time from an Interest to its Data, when the Interest bypassed the disks";
    write_histogram(encoder, "disk_bypass_latency_seconds", help, &busy.bypass_latency)?;
    devices(snapshot, encoder)
}

fn devices(snapshot: &Snapshot, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
    let label = |disk: &DiskSnapshot| DiskLabels { disk: disk.path.display().to_string() };
    type Value = fn(&DiskSnapshot) -> u64;
    let values: [(&str, &str, Value); 6] = [
        ("disk_device_reads", "Read operations, by disk", |disk| disk.counters.reads),
        ("disk_device_read_bytes", "Bytes read, by disk", |disk| disk.counters.read_bytes),
        ("disk_device_writes", "Write operations, by disk", |disk| disk.counters.writes),
        ("disk_device_written_bytes", "Bytes written, by disk", |disk| disk.counters.written_bytes),
        ("disk_device_damaged", "Reads that found no valid record, by disk", |disk| {
            disk.counters.damaged
        }),
        (
            "disk_device_failures",
            "Reads and writes that failed with a system error, by disk",
            |disk| disk.counters.failures,
        ),
    ];
    for (name, help, value) in values {
        let rows = snapshot.disks.iter().map(|disk| (label(disk), value(disk)));
        encode_counters(encoder, name, help, rows)?;
    }
    let gauges: [(&str, &str, Value); 2] = [
        ("disk_device_capacity_bytes", "Bytes available for records, by disk", |disk| {
            disk.capacity_bytes
        }),
        ("disk_device_dead", "1 if the disk has failed for good and is not used, else 0", |disk| {
            u64::from(disk.is_dead)
        }),
    ];
    for (name, help, value) in gauges {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for disk in &snapshot.disks {
            family.encode_family(&label(disk))?.encode_gauge(&value(disk))?;
        }
    }
    Ok(())
}
