//! Disks of the content store: the common options `[disks]`, and one `[[disk]]` per disk.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use weir_base::HashKey;
use weir_base::units::Size;
use weir_disk::{DiskFileConfig, Engine};
#[cfg(feature = "lab")]
use weir_disk::{Pace, Service};
use weir_options::{DisksOptions, INDEX_BYTES_MIN};
use weir_runtime::DisksConfig;
use weir_store::disk::DiskTierConfig;

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
            .ok_or_else(|| D::Error::custom(format!("{count} is out of range; use 1 to {MAX}")))
    }
}

fn region_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Size>, D::Error> {
    let size = Size::deserialize(deserializer)?;
    if (64 << 10..=1 << 30).contains(&size.bytes) && size.bytes.is_multiple_of(4096) {
        return Ok(Some(size));
    }
    Err(D::Error::custom(format!(
        "{} bytes are invalid; use a multiple of 4096 from 65536 to 1073741824, such as \"16MiB\"",
        size.bytes
    )))
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
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
    #[cfg(feature = "lab")]
    #[serde(default)]
    pub(crate) pace: Option<PaceTable>,
    #[cfg(feature = "lab")]
    #[serde(default)]
    pub(crate) stalled_while: Option<PathBuf>,
}

fn disk_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    let path = String::deserialize(deserializer)?;
    if path.is_empty() {
        return Err(D::Error::custom("the path is empty; use the path of a file or block device"));
    }
    Ok(path.into())
}

fn io_threads_default() -> Count<256> {
    Count(16)
}

fn yes() -> bool {
    true
}

/// How the disk is read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EngineName {
    #[default]
    Auto,
    IoUring,
    Threads,
}

/// Artificial limits of a disk, for experiments.
#[cfg(feature = "lab")]
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
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

#[cfg(feature = "lab")]
fn rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let rate = f64::deserialize(deserializer)?;
    if rate.is_finite() && rate > 0.0 {
        return Ok(rate);
    }
    Err(D::Error::custom(format!(
        "{rate} operations per second are invalid; use a number above 0, such as 4700"
    )))
}

#[cfg(feature = "lab")]
fn one_server() -> Count<1024> {
    Count(1)
}

/// The distribution of the service time of an operation.
#[cfg(feature = "lab")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ServiceName {
    #[default]
    Constant,
    Exponential,
}

#[cfg(feature = "lab")]
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
    /// A disk of the command line.
    pub(crate) fn new(path: PathBuf, size: Option<Size>) -> Self {
        Self {
            path,
            size,
            engine: EngineName::default(),
            io_threads: io_threads_default(),
            direct: true,
            region_size: None,
            #[cfg(feature = "lab")]
            pace: None,
            #[cfg(feature = "lab")]
            stalled_while: None,
        }
    }

    fn to_file(&self) -> DiskFileConfig {
        DiskFileConfig {
            region_bytes: self.region_size.map(|size| size.bytes),
            direct: self.direct,
            engine: match self.engine {
                EngineName::Auto => Engine::Auto,
                EngineName::IoUring => Engine::IoUring,
                EngineName::Threads => Engine::Threads(self.io_threads.0 as u16),
            },
            #[cfg(feature = "lab")]
            pace: self.pace.map(PaceTable::to_pace),
            ..DiskFileConfig::new(&self.path, self.size.map(|size| size.bytes))
        }
    }
}

/// The disk configuration of the runtime, or `None` without disks.
pub(super) fn to_runtime(
    options: &DisksOptions,
    disks: &[DiskSection],
    threads: usize,
) -> anyhow::Result<Option<DisksConfig>> {
    if disks.is_empty() {
        return Ok(None);
    }
    ensure!(disks.len() <= 16, "there are {} [[disk]] tables; use at most 16", disks.len());
    if let Some(size) = options.index_memory_max {
        ensure!(
            size.bytes >= INDEX_BYTES_MIN * threads as u64,
            "[disks] `index_memory_max` is {} bytes, too small for {threads} worker threads; set \
             it to at least \"{threads}MiB\", or \"auto\"",
            size.bytes
        );
    }
    // The runtime fills in the regions, the hash key and the memory.
    let tier = DiskTierConfig::new(Vec::new(), 0, HashKey::new([0, 0]), weir_disk::checksum);
    Ok(Some(DisksConfig {
        files: disks.iter().map(DiskSection::to_file).collect(),
        #[cfg(feature = "lab")]
        stalled_while: disks.iter().map(|disk| disk.stalled_while.clone()).collect(),
        tier: options.tier(tier),
        index_bytes_max: options.index_memory_max.map(|size| size.bytes),
        write_backlog_bytes_max: options.write_backlog_max.map(|size| size.bytes),
        busy: options.busy(),
        stop_timeout: Duration::from_nanos(options.stop_timeout.ns),
    }))
}
