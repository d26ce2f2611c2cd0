//! `[router.disk]`: the disks of a router, and how it uses them.

use std::num::NonZeroU32;

use serde::Deserialize;
use weir_base::units::{Fraction, Frequency, Size, Time};
use weir_netem::{DiskConfig, ServiceTime};
use weir_options::DisksOptions;
use weir_plan::{DISKS_MAX, DiskExperiments, DiskPlan};

use crate::document::{ScenarioError, Tree, ValueNode};

/// The distribution of service times.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Service {
    Constant,
    Exponential,
}

impl Service {
    pub(crate) fn of(self, mean_ns: u64) -> ServiceTime {
        match self {
            Self::Constant => ServiceTime::Constant { ns: mean_ns },
            Self::Exponential => ServiceTime::Exponential { mean_ns },
        }
    }
}

/// Scenario keys, and the options of a router's configuration that they stand for.
const DISK_NAMES: &[(&str, &str)] = &[
    ("write_max", "write_size_max"),
    ("write_delay", "write_delay_max"),
    ("record", "record_size_typical"),
];

/// Keys that the options of a router's configuration do not include.
#[derive(Default, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields, default)]
struct DiskTable {
    none: bool,
    disks: Option<u8>,
    bytes: Option<Size>,
    region: Option<Size>,
    block: Option<Size>,
    rate: Option<Frequency>,
    time: Option<Time>,
    service: Option<Service>,
    write_rate: Option<Frequency>,
    write_time: Option<Time>,
    parallelism: Option<NonZeroU32>,
    device: Option<String>,
    per_kib: Option<Time>,
    write_per_kib: Option<Time>,
    filled_objects: u32,
    filled_ranges: Vec<(u64, u64)>,
    filled: Option<Fraction>,
    false_positives: Option<Fraction>,
}

/// Reads a table of disks at `path` in the file.
pub(crate) fn read(
    tree: &Tree,
    path: &str,
    node: &ValueNode,
) -> Result<Option<DiskPlan>, ScenarioError> {
    let (own, options) = node.renamed(DISK_NAMES).split::<DiskTable>();
    let (experiments, options) = options.split::<DiskExperiments>();
    let table: DiskTable = tree.read_at(path, &own)?;
    let names = |key: &str| options.at(key).is_some();
    let (has_offer, has_bypass) = (names("offer"), names("bypass"));
    let mut options: DisksOptions = tree.read_at(path, &options)?;
    let experiments: DiskExperiments = tree.read_at(path, &experiments)?;
    let recorded = DiskPlan::recorded_options();
    // Without these keys, a scenario keeps the options with which its results were recorded.
    if !has_offer {
        options.offer = recorded.offer;
    }
    if !has_bypass {
        options.bypass = recorded.bypass;
    }
    if table.none {
        return Ok(None);
    }
    table.plan(options, experiments).map(Some).map_err(|(key, message)| match key {
        "" => tree.error(path, message),
        key => tree.error(&format!("{path}.{key}"), message),
    })
}

/// A key, and what is wrong with it.
type KeyError = (&'static str, String);

impl DiskTable {
    fn plan(
        &self,
        options: DisksOptions,
        mut experiments: DiskExperiments,
    ) -> Result<DiskPlan, KeyError> {
        let default = DiskPlan::default();
        let disks = self.disks.unwrap_or(default.disks);
        if !(1..=DISKS_MAX).contains(&disks) {
            return Err(("disks", format!("is {disks}; write 1 to {DISKS_MAX}")));
        }
        if self.device.is_some() && disks > 1 {
            let message = format!("is {disks}; a router that shares its disk has exactly 1");
            return Err(("disks", message));
        }
        let block_bytes = match self.block.map(|block| block.bytes) {
            None => default.block_bytes,
            Some(bytes @ (512 | 4096)) => bytes as u32,
            Some(bytes) => {
                return Err(("block", format!("is {bytes} bytes; write \"512B\" or \"4KiB\"")));
            }
        };
        let bytes = self.bytes.map_or(default.bytes, |size| size.bytes);
        let region_bytes = self.region.map_or(default.region_bytes, |size| size.bytes);
        let is_whole = region_bytes.is_multiple_of(u64::from(block_bytes));
        if region_bytes == 0 || !is_whole || bytes / region_bytes < 2 {
            let message = format!(
                "a disk of {bytes} bytes does not hold two regions of {region_bytes} bytes in \
                 blocks of {block_bytes}; write for example bytes = \"1GiB\" and region = \"4MiB\""
            );
            return Err(("", message));
        }
        if let Some(share) = self.false_positives {
            let ppm = (share.value * 1e6).round() as u32;
            if !(1..=500_000).contains(&ppm) {
                return Err((
                    "false_positives",
                    "is out of range; write \"0.0001%\" to \"50%\"".into(),
                ));
            }
            experiments.filter_false_positives_ppm = ppm;
        }
        check_ranges(&self.filled_ranges).map_err(|message| ("filled_ranges", message))?;
        Ok(DiskPlan {
            disks,
            bytes,
            region_bytes,
            block_bytes,
            device: self.device_config()?,
            shared_as: self.device.clone(),
            filled_objects: self.filled_objects,
            filled_ranges: self.filled_ranges.clone(),
            filled: self.filled.map_or(0.0, |share| share.value),
            options,
            experiments,
        })
    }

    fn device_config(&self) -> Result<DiskConfig, KeyError> {
        let service = self.service.unwrap_or(Service::Constant);
        let read_ns = operation_ns("time", self.rate, self.time)?;
        let write_ns = operation_ns("write_time", self.write_rate, self.write_time)?;
        let ns = |time: Option<Time>| time.map_or(0, |time| time.ns);
        Ok(DiskConfig {
            read: service.of(read_ns.unwrap_or(0)),
            write: service.of(write_ns.or(read_ns).unwrap_or(0)),
            parallelism: self.parallelism.map_or(1, NonZeroU32::get),
            read_ns_per_kib: ns(self.per_kib),
            write_ns_per_kib: ns(self.write_per_kib),
            ..DiskConfig::default()
        })
    }
}

/// The time of one operation, given directly or as the rate of operations one after another.
fn operation_ns(
    key: &'static str,
    rate: Option<Frequency>,
    time: Option<Time>,
) -> Result<Option<u64>, KeyError> {
    match (rate, time) {
        (Some(_), Some(_)) => Err((key, "a disk has either a rate or a time; remove one".into())),
        (Some(rate), None) => Ok(Some((1e9 / rate.hz).round() as u64)),
        (None, time) => Ok(time.map(|time| time.ns)),
    }
}

/// Rejects ranges of objects with the first after the last.
pub(crate) fn check_ranges(ranges: &[(u64, u64)]) -> Result<(), String> {
    match ranges.iter().find(|(first, last)| first > last) {
        None => Ok(()),
        Some((first, last)) => Err(format!(
            "[{first}, {last}] is not a range; write the first and the last object, counted from \
             0, such as [[0, 49], [100, 149]]"
        )),
    }
}

#[cfg(test)]
mod tests {
    use weir_forward::{Bypass, Labels, Mark};
    use weir_plan::StoreIo;
    use weir_store::disk::{Admission, Contention, FilterKind, OfferAt};

    use super::*;
    use crate::document;

    fn read(text: &str) -> Result<Option<DiskPlan>, String> {
        let tree = document::parse("disk.toml", &format!("[router.disk]\n{text}"))
            .map_err(|error| error.to_string())?;
        let node = tree.at("router.disk").expect("it is there");
        super::read(&tree, "router.disk", node).map_err(|error| error.to_string())
    }

    const EVERY_KEY: &str = r#"
disks = 2
bytes = "64MiB"
region = "1MiB"
block = "512B"
rate = "4.7kpps"
service = "exponential"
write_time = "1ms"
parallelism = 4
per_kib = "10ns"
write_per_kib = "20ns"
filled_objects = 7
filled_ranges = [[0, 49], [60, 60]]
filled = "25%"
filter = "index"
io = "blocking"
bypass = "adaptive"
mark = "ecn"
threshold = 0
contention = "fifo"
admission = "4KiB"
offer = "arrival"
depth = 3
reads_max = 4
late_after = "7ms"
write_backlog_max = "1MiB"
write_max = "8KiB"
write_delay = "1ms"
stalled_after = "2s"
announce_period = "3ms"
interests_waiting_max = 6
labels = "path"
false_positives = "0.1%"
record = "4500B"
"#;

    #[test]
    fn every_key_is_read() {
        let expected = DiskPlan {
            disks: 2,
            bytes: 64 << 20,
            region_bytes: 1 << 20,
            block_bytes: 512,
            device: DiskConfig {
                read: ServiceTime::Exponential { mean_ns: 212_766 },
                write: ServiceTime::Exponential { mean_ns: 1_000_000 },
                read_ns_per_kib: 10,
                write_ns_per_kib: 20,
                parallelism: 4,
                ..DiskConfig::default()
            },
            shared_as: None,
            filled_objects: 7,
            filled_ranges: vec![(0, 49), (60, 60)],
            filled: 0.25,
            options: DisksOptions {
                bypass: Bypass::Adaptive,
                mark: Mark::Ecn,
                threshold: 0,
                admission: Admission::Size { bytes_min: 4096 },
                offer: OfferAt::Arrival,
                depth: 3,
                reads_max: 4,
                late_after: Time { ns: 7_000_000 },
                write_backlog_max: Some(Size { bytes: 1 << 20 }),
                write_size_max: Size { bytes: 8192 },
                write_delay_max: Time { ns: 1_000_000 },
                stalled_after: Time { ns: 2_000_000_000 },
                record_size_typical: Size { bytes: 4500 },
                ..DisksOptions::default()
            },
            experiments: DiskExperiments {
                io: StoreIo::Blocking,
                interests_waiting_max: 6,
                labels: Labels::Path,
                announce_period: Time { ns: 3_000_000 },
                contention: Contention::Fifo,
                filter: FilterKind::Index,
                filter_false_positives_ppm: 1000,
            },
        };
        assert_eq!(read(EVERY_KEY), Ok(Some(expected)));
        let shared = DiskPlan { shared_as: Some("ssd".into()), ..DiskPlan::default() };
        assert_eq!(read("device = \"ssd\""), Ok(Some(shared)));
        assert_eq!(read("none = true"), Ok(None));
        assert_eq!(read(""), Ok(Some(DiskPlan::default())));
    }

    #[test]
    fn invalid_disk_is_rejected_with_its_line() {
        for (text, problem) in [
            ("disks = 17", "disk.toml:2: router.disk.disks: is 17; write 1 to 16"),
            (
                "device = \"ssd\"\ndisks = 2",
                "disk.toml:3: router.disk.disks: is 2; a router that shares its disk",
            ),
            ("block = \"1KiB\"", "write \"512B\" or \"4KiB\""),
            ("bytes = \"4MiB\"", "does not hold two regions"),
            (
                "rate = \"1kpps\"\ntime = \"1ms\"",
                "disk.toml:3: router.disk.time: a disk has either a rate or a time",
            ),
            ("filled_ranges = [[3, 2]]", "such as [[0, 49]"),
            ("filled_ranges = [1]", "filled_ranges[0]: is 1; write"),
            ("admission = \"some\"", "second-hit"),
            ("bypass = \"on\"", "disk.toml:2: router.disk.bypass: unknown value \"on\""),
            ("depth = 0", "1 to 1024"),
            ("false_positives = 0", "disk.toml:2: router.disk.false_positives: is out of range"),
            ("record = \"0B\"", "\"64B\" to \"1MiB\""),
            ("speed = 1", "unknown key `speed`"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
