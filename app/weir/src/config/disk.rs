//! Disks of the content store: `[disks]`, what holds for all of them, and a `[[disk]]` for each.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::ensure;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use weir_base::units::{Size, Time};
use weir_base::{HashKey, UnknownWord};
use weir_disk::{DiskFileConfig, Engine, Pace, Service};
use weir_runtime::{BusyPolicy, Bypass, DisksConfig, Mark, StoreIo};
use weir_store::disk::{Admission, Contention, DiskTierConfig, FilterKind, OfferAt};

use super::{Scalar, TextOrInteger, above_zero};

/// What holds for all disks together.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DisksSection {
    pub(crate) admission: AdmissionChoice,
    pub(crate) offer: Word<OfferAt>,
    pub(crate) filter: Word<FilterKind>,
    #[serde(deserialize_with = "parts_per_million")]
    pub(crate) filter_false_positives_ppm: u32,
    #[serde(deserialize_with = "record_size")]
    pub(crate) record_size_typical: Size,
    pub(crate) index_memory_max: MemoryChoice,
    pub(crate) io: Word<StoreIo>,
    pub(crate) interests_waiting_max: Count<1_000_000>,
    pub(crate) bypass: Word<Bypass>,
    #[serde(deserialize_with = "threshold")]
    pub(crate) threshold: u32,
    pub(crate) mark: Word<Mark>,
    #[serde(deserialize_with = "announce_period")]
    pub(crate) announce_period: Time,
    pub(crate) contention: Word<Contention>,
    pub(crate) depth: Count<1024>,
    pub(crate) reads_max: Count<1_000_000>,
    pub(crate) writes_max: Count<1_000_000>,
    #[serde(deserialize_with = "write_size")]
    pub(crate) write_size_max: Size,
    #[serde(deserialize_with = "write_delay_max")]
    pub(crate) write_delay_max: Time,
    #[serde(deserialize_with = "stalled_after")]
    pub(crate) stalled_after: Time,
    pub(crate) stop_timeout: Time,
}

impl Default for DisksSection {
    fn default() -> Self {
        let tier = template();
        let busy = BusyPolicy::default();
        Self {
            admission: AdmissionChoice(tier.admission),
            offer: Word(tier.offer_at),
            filter: Word(tier.filter),
            filter_false_positives_ppm: tier.false_positives_ppm,
            record_size_typical: Size { bytes: u64::from(tier.record_bytes_typical) },
            index_memory_max: MemoryChoice(None),
            io: Word(busy.io),
            interests_waiting_max: Count(busy.interests_waiting_max as u32),
            bypass: Word(busy.bypass),
            threshold: tier.threshold,
            mark: Word(busy.mark),
            announce_period: Time { ns: busy.announce_period_ns },
            contention: Word(tier.contention),
            depth: Count(tier.depth),
            reads_max: Count(tier.reads_max),
            writes_max: Count(tier.writes_max),
            write_size_max: Size { bytes: u64::from(tier.write_bytes_max) },
            write_delay_max: Time { ns: tier.write_delay_max_ns },
            stalled_after: Time { ns: tier.stalled_after_ns },
            stop_timeout: Time { ns: 30_000_000_000 },
        }
    }
}

/// The store's own defaults, without disks.
fn template() -> DiskTierConfig {
    DiskTierConfig::new(Vec::new(), 0, HashKey::new([0, 0]), weir_disk::checksum)
}

/// A choice of the core by its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word<T>(pub(crate) T);

impl<'de, T: FromStr<Err = UnknownWord>> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(Self).map_err(D::Error::custom)
    }
}

/// A number from 1 to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count<const MAX: u32>(pub(crate) u32);

impl<'de, const MAX: u32> Deserialize<'de> for Count<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let count = i64::deserialize(deserializer)?;
        u32::try_from(count)
            .ok()
            .filter(|count| (1..=MAX).contains(count))
            .map(Self)
            .ok_or_else(|| D::Error::custom(format!("{count} cannot be; give 1 to {MAX}")))
    }
}

/// "all", "second-hit", or the least size of what goes to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AdmissionChoice(pub(crate) Admission);

impl<'de> Deserialize<'de> for AdmissionChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "\"all\", \"second-hit\" or a least size such as \"4KiB\"";
        let size = match deserializer.deserialize_any(TextOrInteger(expected))? {
            Scalar::Text(text) => match text.as_str() {
                "all" => return Ok(Self(Admission::All)),
                "second-hit" => return Ok(Self(Admission::SecondHit)),
                text => text.parse::<Size>().map_err(|_| {
                    D::Error::custom(format!("`{text}` cannot be; write {expected}"))
                })?,
            },
            Scalar::Integer(bytes) => Size { bytes },
        };
        let bytes_min = u32::try_from(size.bytes).unwrap_or(u32::MAX);
        Ok(Self(Admission::Size { bytes_min }))
    }
}

/// What index and filter of a packet thread need at least to hold anything worth while.
const INDEX_BYTES_MIN: u64 = 1 << 20;

/// Octets of memory, or "auto" (`None`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryChoice(pub(crate) Option<Size>);

impl<'de> Deserialize<'de> for MemoryChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = TextOrInteger("a size such as \"1GiB\", or \"auto\"");
        let size = match deserializer.deserialize_any(expected)? {
            Scalar::Text(text) if text == "auto" => return Ok(Self(None)),
            Scalar::Text(text) => text
                .parse::<Size>()
                .map_err(|error| D::Error::custom(format!("{error}, or write \"auto\"")))?,
            Scalar::Integer(bytes) => Size { bytes },
        };
        if size.bytes < INDEX_BYTES_MIN {
            return Err(D::Error::custom(format!(
                "an index in {} octets has no room for anything; give at least \"1MiB\" for each \
                 packet thread, or \"auto\"",
                size.bytes
            )));
        }
        Ok(Self(Some(size)))
    }
}

fn parts_per_million<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let parts = u32::deserialize(deserializer)?;
    if (1..=500_000).contains(&parts) {
        return Ok(parts);
    }
    Err(D::Error::custom(format!(
        "{parts} of a million cannot be; give 1 to 500000, for example 10000 for one in a hundred"
    )))
}

fn threshold<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let reads = i64::deserialize(deserializer)?;
    u32::try_from(reads).map_err(|_| {
        D::Error::custom(format!("{reads} reads cannot wait; give a number from 0, for example 64"))
    })
}

fn size_within<'de, D: Deserializer<'de>>(
    deserializer: D,
    least: u64,
    most: u64,
) -> Result<Size, D::Error> {
    let size = Size::deserialize(deserializer)?;
    if (least..=most).contains(&size.bytes) {
        return Ok(size);
    }
    Err(D::Error::custom(format!("{} octets cannot be; give {least} to {most}", size.bytes)))
}

fn record_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
    size_within(deserializer, 64, 1 << 20)
}

fn write_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
    size_within(deserializer, 4 << 10, 4 << 20)
}

fn region_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Size>, D::Error> {
    let size = size_within(deserializer, 64 << 10, 1 << 30)?;
    if size.bytes.is_multiple_of(4096) {
        return Ok(Some(size));
    }
    Err(D::Error::custom(format!("{} octets are no multiple of 4096; give \"16MiB\"", size.bytes)))
}

fn announce_period<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
    let remedy = "a period of 0 would tell neighbours all the time; give for example \"10ms\", or \
                  tell them nothing with `mark = \"off\"`";
    let period = above_zero(Time::deserialize(deserializer)?, remedy)?;
    if period.ns > 3_000_000_000 {
        return Err(D::Error::custom("neighbours believe it for 10 s; give at most \"3s\""));
    }
    Ok(period)
}

fn write_delay_max<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
    let delay = Time::deserialize(deserializer)?;
    if delay.ns > 60_000_000_000 {
        return Err(D::Error::custom(
            "until it is written a record is lost when the router dies; give at most \"1m\"",
        ));
    }
    Ok(delay)
}

fn stalled_after<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
    let remedy = "every disk takes longer than 0; give for example \"500ms\"";
    above_zero(Time::deserialize(deserializer)?, remedy)
}

/// One disk.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiskSection {
    #[serde(deserialize_with = "disk_path")]
    pub(crate) path: PathBuf,
    #[serde(default)]
    pub(crate) size: Option<Size>,
    #[serde(default)]
    pub(crate) engine: EngineName,
    #[serde(default = "io_threads_default")]
    pub(crate) io_threads: Count<256>,
    #[serde(default = "yes")]
    pub(crate) direct: bool,
    #[serde(default, deserialize_with = "region_size")]
    pub(crate) region_size: Option<Size>,
    #[serde(default)]
    pub(crate) pace: Option<PaceTable>,
    #[serde(default)]
    pub(crate) stalled_while: Option<PathBuf>,
}

fn disk_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    let path = String::deserialize(deserializer)?;
    if path.is_empty() {
        return Err(D::Error::custom("an empty path; name a file or a block device"));
    }
    Ok(path.into())
}

fn io_threads_default() -> Count<256> {
    Count(16)
}

fn yes() -> bool {
    true
}

/// Names of the ways to read and write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EngineName {
    #[default]
    Auto,
    IoUring,
    Threads,
}

/// How slow a disk is made.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PaceTable {
    #[serde(deserialize_with = "rate")]
    ops_per_s: f64,
    #[serde(default = "one_server")]
    parallelism: Count<1024>,
    #[serde(default)]
    service: ServiceName,
    #[serde(default)]
    seed: u64,
}

fn rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let rate = f64::deserialize(deserializer)?;
    if rate.is_finite() && rate > 0.0 {
        return Ok(rate);
    }
    Err(D::Error::custom(format!("{rate} operations a second cannot be; give for example 4700")))
}

fn one_server() -> Count<1024> {
    Count(1)
}

/// Names of how the time of an operation is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ServiceName {
    #[default]
    Constant,
    Exponential,
}

impl PaceTable {
    fn to_pace(self) -> Pace {
        let service = match self.service {
            ServiceName::Constant => Service::Constant,
            ServiceName::Exponential => Service::Exponential { seed: self.seed },
        };
        Pace { ops_per_s: self.ops_per_s, parallelism: self.parallelism.0, service }
    }
}

impl DiskSection {
    fn to_file(&self) -> DiskFileConfig {
        DiskFileConfig {
            region_bytes: self.region_size.map(|size| size.bytes),
            direct: self.direct,
            engine: match self.engine {
                EngineName::Auto => Engine::Auto,
                EngineName::IoUring => Engine::IoUring,
                EngineName::Threads => Engine::Threads(self.io_threads.0 as u16),
            },
            pace: self.pace.map(PaceTable::to_pace),
            ..DiskFileConfig::new(&self.path, self.size.map(|size| size.bytes))
        }
    }
}

impl DisksSection {
    fn tier(&self) -> DiskTierConfig {
        DiskTierConfig {
            filter: self.filter.0,
            false_positives_ppm: self.filter_false_positives_ppm,
            record_bytes_typical: self.record_size_typical.bytes as u32,
            admission: self.admission.0,
            offer_at: self.offer.0,
            contention: self.contention.0,
            depth: self.depth.0,
            reads_max: self.reads_max.0,
            writes_max: self.writes_max.0,
            threshold: self.threshold,
            write_bytes_max: self.write_size_max.bytes as u32,
            write_delay_max_ns: self.write_delay_max.ns,
            stalled_after_ns: self.stalled_after.ns,
            ..template()
        }
    }

    fn busy(&self) -> BusyPolicy {
        BusyPolicy {
            io: self.io.0,
            bypass: self.bypass.0,
            mark: self.mark.0,
            announce_period_ns: self.announce_period.ns,
            interests_waiting_max: self.interests_waiting_max.0 as usize,
        }
    }

    /// What the runtime is given; nothing when there is no disk.
    pub(crate) fn to_runtime(
        &self,
        disks: &[DiskSection],
        threads: usize,
    ) -> anyhow::Result<Option<DisksConfig>> {
        if disks.is_empty() {
            return Ok(None);
        }
        ensure!(disks.len() <= 16, "{} [[disk]] tables are too many; give at most 16", disks.len());
        if let Some(size) = self.index_memory_max.0 {
            ensure!(
                size.bytes >= INDEX_BYTES_MIN * threads as u64,
                "index_memory_max in [disks] is {} octets for {threads} packet threads; give at \
                 least \"{threads}MiB\", or \"auto\"",
                size.bytes
            );
        }
        Ok(Some(DisksConfig {
            files: disks.iter().map(DiskSection::to_file).collect(),
            stalled_while: disks.iter().map(|disk| disk.stalled_while.clone()).collect(),
            tier: self.tier(),
            index_bytes_max: self.index_memory_max.0.map(|size| size.bytes),
            busy: self.busy(),
            stop_timeout: Duration::from_nanos(self.stop_timeout.ns),
        }))
    }
}
