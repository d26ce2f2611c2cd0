//! `[router.disk]`: the disks of a router and what it does with them.

use std::str::FromStr;

use weir_forward::{Bypass, Mark, StoreIo};
use weir_netem::{DiskConfig, ServiceTime};
use weir_plan::{DISKS_MAX, DiskPlan};
use weir_store::disk::{Admission, Contention, FilterKind, OfferAt};

use crate::document::{Node, Reader, ScenarioError, Value};

pub(super) const KNOWN: &[&str] = &[
    "none",
    "disks",
    "bytes",
    "region",
    "block",
    "rate",
    "time",
    "service",
    "write_rate",
    "write_time",
    "parallelism",
    "per_kib",
    "write_per_kib",
    "filled_objects",
    "filled_ranges",
    "filled",
    "filter",
    "io",
    "bypass",
    "mark",
    "threshold",
    "contention",
    "admission",
    "offer",
    "depth",
    "reads_max",
    "writes_max",
    "write_max",
    "write_delay",
    "stalled_after",
    "announce_period",
    "interests_waiting_max",
    "false_positives",
    "record",
];

/// The disks of `before` with what `reader` says in their place.
pub(super) fn with(
    reader: &Reader<'_>,
    before: Option<&DiskPlan>,
) -> Result<Option<DiskPlan>, ScenarioError> {
    if reader.truth("none")? == Some(true) {
        return Ok(None);
    }
    let mut plan = before.cloned().unwrap_or_default();
    layout(reader, &mut plan)?;
    device(reader, &mut plan.device)?;
    filled(reader, &mut plan)?;
    words(reader, &mut plan)?;
    bounds(reader, &mut plan)?;
    Ok(Some(plan))
}

fn layout(reader: &Reader<'_>, plan: &mut DiskPlan) -> Result<(), ScenarioError> {
    if let Some(disks) = reader.count("disks", 1)? {
        plan.disks =
            u8::try_from(disks).ok().filter(|disks| *disks <= DISKS_MAX).ok_or_else(|| {
                reader.error_at("disks", format!("`disks` is {disks}; the most is {DISKS_MAX}"))
            })?;
    }
    plan.bytes = reader.bytes("bytes")?.unwrap_or(plan.bytes);
    if let Some(bytes) = reader.bytes("block")? {
        plan.block_bytes = match bytes {
            512 | 4096 => bytes as u32,
            _ => {
                let message = format!("`block` is {bytes} octets; write \"512B\" or \"4KiB\"");
                return Err(reader.error_at("block", message));
            }
        };
    }
    plan.region_bytes = reader.bytes("region")?.unwrap_or(plan.region_bytes);
    let is_whole = plan.region_bytes.is_multiple_of(u64::from(plan.block_bytes));
    if plan.region_bytes == 0 || !is_whole || plan.bytes / plan.region_bytes < 2 {
        let message = format!(
            "a disk of {} octets with regions of {} has no two whole ones of blocks of {}; write \
             for example bytes = \"1GiB\" and region = \"4MiB\"",
            plan.bytes, plan.region_bytes, plan.block_bytes
        );
        return Err(reader.error(reader.line(), message));
    }
    Ok(())
}

/// How fast the disks are.
fn device(reader: &Reader<'_>, device: &mut DiskConfig) -> Result<(), ScenarioError> {
    let is_exponential = match reader.word("service", &["constant", "exponential"])? {
        Some(word) => word == "exponential",
        None => matches!(device.read, ServiceTime::Exponential { .. }),
    };
    let parallelism = reader.count_u32("parallelism", 1)?.unwrap_or(device.parallelism);
    let service = |ns: u64| match is_exponential {
        true => ServiceTime::Exponential { mean_ns: ns },
        false => ServiceTime::Constant { ns },
    };
    let read_ns = operation_ns(reader, "rate", "time")?;
    let write_ns = operation_ns(reader, "write_rate", "write_time")?.or(read_ns);
    let read_ns = read_ns.unwrap_or(device.read.mean_ns().round() as u64);
    let write_ns = write_ns.unwrap_or(device.write.mean_ns().round() as u64);
    device.read = service(read_ns);
    device.write = service(write_ns);
    device.parallelism = parallelism;
    device.read_ns_per_kib = reader.duration_ns("per_kib")?.unwrap_or(device.read_ns_per_kib);
    device.write_ns_per_kib =
        reader.duration_ns("write_per_kib")?.unwrap_or(device.write_ns_per_kib);
    Ok(())
}

/// The time of one operation, given as such or as what the disk does one after another.
fn operation_ns(reader: &Reader<'_>, rate: &str, time: &str) -> Result<Option<u64>, ScenarioError> {
    match (reader.frequency_hz(rate)?, reader.duration_ns(time)?) {
        (Some(_), Some(_)) => {
            Err(reader.error_at(time, format!("a disk has a `{rate}` or a `{time}`; keep one")))
        }
        (Some(rate_hz), None) => Ok(Some((1e9 / rate_hz).round() as u64)),
        (None, time_ns) => Ok(time_ns),
    }
}

fn filled(reader: &Reader<'_>, plan: &mut DiskPlan) -> Result<(), ScenarioError> {
    plan.filled_objects = reader.count_u32("filled_objects", 0)?.unwrap_or(plan.filled_objects);
    plan.filled = reader.share("filled")?.unwrap_or(plan.filled);
    if let Some(node) = reader.node("filled_ranges") {
        plan.filled_ranges = ranges(reader, "filled_ranges", node)?;
    }
    Ok(())
}

/// A list of ranges of objects: first and last.
pub(super) fn ranges(
    reader: &Reader<'_>,
    key: &str,
    node: &Node,
) -> Result<Vec<(u64, u64)>, ScenarioError> {
    let wrong = |line: usize| {
        let message = format!(
            "`{key}` is a list of first and last objects, counted from 0, such as [[0, 49], \
             [100, 149]]"
        );
        reader.error(line, message)
    };
    let Value::Array(rows) = &node.value else { return Err(wrong(node.line)) };
    let mut ranges = Vec::with_capacity(rows.len());
    for row in rows {
        let Value::Array(cells) = &row.value else { return Err(wrong(row.line)) };
        let numbers: Option<Vec<u64>> = cells
            .iter()
            .map(|cell| match cell.value {
                Value::Integer(number) => u64::try_from(number).ok(),
                _ => None,
            })
            .collect();
        match numbers.as_deref() {
            Some(&[first, last]) if first <= last => ranges.push((first, last)),
            _ => return Err(wrong(row.line)),
        }
    }
    Ok(ranges)
}

/// A choice of the core by its word.
fn choose<T: FromStr>(
    reader: &Reader<'_>,
    key: &str,
    words: &'static [&'static str],
    choice: &mut T,
) -> Result<(), ScenarioError> {
    if let Some(chosen) = reader.word(key, words)?.and_then(|word| word.parse().ok()) {
        *choice = chosen;
    }
    Ok(())
}

fn words(reader: &Reader<'_>, plan: &mut DiskPlan) -> Result<(), ScenarioError> {
    choose(reader, "filter", FilterKind::WORDS, &mut plan.filter)?;
    choose(reader, "io", StoreIo::WORDS, &mut plan.io)?;
    choose(reader, "bypass", Bypass::WORDS, &mut plan.bypass)?;
    choose(reader, "mark", Mark::WORDS, &mut plan.mark)?;
    choose(reader, "contention", Contention::WORDS, &mut plan.contention)?;
    choose(reader, "offer", OfferAt::WORDS, &mut plan.offer)?;
    match reader.text("admission")? {
        None => {}
        Some("all") => plan.admission = Admission::All,
        Some("second-hit") => plan.admission = Admission::SecondHit,
        Some(text) => {
            let bytes = weir_base::units::parse_bytes(text).ok();
            let bytes_min = bytes.and_then(|bytes| u32::try_from(bytes).ok()).ok_or_else(|| {
                let message = format!(
                    "`admission` cannot be \"{text}\"; write \"all\", \"second-hit\", or the \
                     least size of a packet, such as \"4KiB\""
                );
                reader.error_at("admission", message)
            })?;
            plan.admission = Admission::Size { bytes_min };
        }
    }
    Ok(())
}

fn bounds(reader: &Reader<'_>, plan: &mut DiskPlan) -> Result<(), ScenarioError> {
    for (key, least, value) in [
        ("threshold", 0, &mut plan.threshold),
        ("depth", 1, &mut plan.depth),
        ("reads_max", 1, &mut plan.reads_max),
        ("writes_max", 1, &mut plan.writes_max),
        ("interests_waiting_max", 1, &mut plan.interests_waiting_max),
    ] {
        *value = reader.count_u32(key, least)?.unwrap_or(*value);
    }
    for (key, value) in
        [("write_max", &mut plan.write_bytes_max), ("record", &mut plan.record_bytes_typical)]
    {
        let Some(bytes) = reader.bytes(key)? else { continue };
        *value = u32::try_from(bytes).ok().filter(|bytes| *bytes > 0).ok_or_else(|| {
            reader.error_at(key, format!("`{key}` is {bytes} octets; write \"1B\" to \"4GiB\""))
        })?;
    }
    for (key, value) in [
        ("write_delay", &mut plan.write_delay_ns),
        ("stalled_after", &mut plan.stalled_after_ns),
        ("announce_period", &mut plan.announce_period_ns),
    ] {
        *value = reader.duration_ns(key)?.unwrap_or(*value);
    }
    if let Some(share) = reader.share("false_positives")? {
        plan.false_positives_ppm = (share * 1e6).round() as u32;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;
    use std::sync::Arc;

    fn read(text: &str) -> Result<Option<DiskPlan>, String> {
        let file: Arc<str> = "disk.toml".into();
        let root = document::parse(&file, text).map_err(|error| error.to_string())?;
        let reader = Reader::new(&file, "[router.disk]", &root, KNOWN);
        reader.and_then(|reader| with(&reader, None)).map_err(|error| error.to_string())
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
writes_max = 5
write_max = "8KiB"
write_delay = "1ms"
stalled_after = "2s"
announce_period = "3ms"
interests_waiting_max = 6
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
            filled_objects: 7,
            filled_ranges: vec![(0, 49), (60, 60)],
            filled: 0.25,
            filter: FilterKind::Index,
            io: StoreIo::Blocking,
            bypass: Bypass::Adaptive,
            mark: Mark::Ecn,
            threshold: 0,
            contention: Contention::Fifo,
            admission: Admission::Size { bytes_min: 4096 },
            offer: OfferAt::Arrival,
            depth: 3,
            reads_max: 4,
            writes_max: 5,
            write_bytes_max: 8192,
            write_delay_ns: 1_000_000,
            stalled_after_ns: 2_000_000_000,
            announce_period_ns: 3_000_000,
            interests_waiting_max: 6,
            false_positives_ppm: 1000,
            record_bytes_typical: 4500,
        };
        assert_eq!(read(EVERY_KEY), Ok(Some(expected)));
        assert_eq!(read("none = true"), Ok(None));
        assert_eq!(read(""), Ok(Some(DiskPlan::default())));
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_line() {
        for (text, problem) in [
            ("disks = 17", "disk.toml:1: `disks` is 17; the most is 16"),
            ("block = \"1KiB\"", "write \"512B\" or \"4KiB\""),
            ("bytes = \"4MiB\"", "has no two whole ones"),
            ("rate = \"1kpps\"\ntime = \"1ms\"", "disk.toml:2: a disk has a `rate` or a `time`"),
            ("filled_ranges = [[3, 2]]", "such as [[0, 49]"),
            ("filled_ranges = [1]", "such as [[0, 49]"),
            ("admission = \"some\"", "or the least size of a packet"),
            ("bypass = \"on\"", "disk.toml:1: `bypass` cannot be \"on\""),
            ("depth = 0", "at least 1"),
            ("record = \"0B\"", "write \"1B\""),
            ("speed = 1", "unknown key `speed`"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
