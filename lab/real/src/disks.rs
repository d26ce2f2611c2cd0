//! Disks of routers: files of the run, paced to the plan's speed.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;
use weir_base::units::Size;
use weir_netem::{DiskConfig, ServiceTime};
use weir_options::DisksOptions;
use weir_plan::DiskPlan;
use weir_store::disk::{Admission, OfferAt};

use super::RealError;

/// Limit on records that wait to be written while a disk is filled.
const FILL_BACKLOG: Size = Size { bytes: 8 << 30 };

/// The disk files of one router, and their random seed.
#[derive(Clone, Debug)]
pub(super) struct DiskFiles {
    dir: PathBuf,
    node: usize,
    seed: u64,
}

impl DiskFiles {
    /// Disks in `dir`. `seed` is the run's.
    pub(super) fn new(dir: &Path, node: usize, seed: u64) -> Self {
        Self { dir: dir.to_owned(), node, seed }
    }

    fn path(&self, disk: u8) -> PathBuf {
        self.dir.join(format!("node-{}-disk-{disk}", self.node))
    }

    /// While this file exists, the disk does not respond.
    fn stall_path(&self, disk: u8) -> PathBuf {
        self.dir.join(format!("node-{}-disk-{disk}-stalled", self.node))
    }

    /// Stalls a disk or lets it resume; `None` means all disks.
    pub(super) fn stall(
        &self,
        plan: &DiskPlan,
        disk: Option<u8>,
        begins: bool,
    ) -> Result<(), RealError> {
        for at in (0..plan.disks).filter(|at| disk.is_none_or(|disk| disk == *at)) {
            let path = self.stall_path(at);
            let done = match begins {
                true => std::fs::write(&path, []),
                false => std::fs::remove_file(&path),
            };
            done.map_err(|source| RealError::System {
                what: format!("cannot change {}", path.display()),
                source,
            })?;
        }
        Ok(())
    }
}

/// A property of a plan's device that pacing cannot imitate.
pub(super) fn unsupported(device: &DiskConfig) -> Option<&'static str> {
    if device.read_ns_per_kib > 0 || device.write_ns_per_kib > 0 {
        Some("time that grows with the size of an operation")
    } else if device.error_probability > 0.0 {
        Some("errors")
    } else if device.read != device.write {
        Some("reads and writes of different times")
    } else if matches!(device.read, ServiceTime::Histogram { .. }) {
        Some("times of a histogram")
    } else {
        None
    }
}

/// The disk section of a configuration. While a disk is filled, it is not paced and accepts
/// everything.
pub(super) fn config_text(plan: &DiskPlan, files: &DiskFiles, is_filled: bool) -> String {
    let mut text = String::new();
    let quoted = |path: &Path| Value::from(path.display().to_string()).to_string();
    for disk in 0..plan.disks {
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\n[[disk]]\npath = {}\nsize = {}\nregion_size = {}\n",
            quoted(&files.path(disk)),
            plan.bytes,
            plan.region_bytes,
        );
        if !is_filled {
            let _ = writeln!(text, "stalled_while = {}", quoted(&files.stall_path(disk)));
            text.push_str(&pace(&plan.device, files.seed.wrapping_add(disk.into())));
        }
    }
    let options = match is_filled {
        true => DisksOptions {
            offer: OfferAt::Arrival,
            write_backlog_max: Some(FILL_BACKLOG),
            admission: Admission::All,
            ..plan.options.clone()
        },
        false => plan.options.clone(),
    };
    let experiments = options_text(&plan.experiments);
    let _ = write!(text, "\n[disks]\n{}\n[lab.disks]\n{experiments}", options_text(&options));
    text
}

/// Options in the form of a configuration table.
pub(super) fn options_text(options: &impl Serialize) -> String {
    toml::to_string(options).expect("options are plain values")
}

/// The pacing of a disk. A disk that takes no time in the plan is not paced.
fn pace(device: &DiskConfig, seed: u64) -> String {
    let mean_ns = device.read.mean_ns();
    if mean_ns <= 0.0 {
        return String::new();
    }
    let service = match device.read {
        ServiceTime::Exponential { .. } => "exponential",
        _ => "constant",
    };
    let ops_per_s = f64::from(device.parallelism) * 1e9 / mean_ns;
    format!(
        "pace = {{ ops_per_s = {ops_per_s:?}, parallelism = {}, service = \"{service}\", seed = {} \
         }}\n",
        device.parallelism,
        // TOML integers are signed.
        seed & i64::MAX as u64,
    )
}

/// Whether a plan fills the disks.
pub(super) fn is_filled(plan: &DiskPlan) -> bool {
    plan.filled_objects > 0 || plan.filled > 0.0 || !plan.filled_ranges.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_is_toml_with_planned_pace() {
        let files = DiskFiles::new(Path::new("/tmp/\"odd\""), 3, u64::MAX);
        let read = ServiceTime::Exponential { mean_ns: 212_766 };
        let device =
            DiskConfig { read: read.clone(), write: read, parallelism: 4, ..DiskConfig::default() };
        let plan = DiskPlan { disks: 2, device, ..DiskPlan::default() };
        assert_eq!(unsupported(&plan.device), None);
        let value: toml::Value = toml::from_str(&config_text(&plan, &files, false)).unwrap();
        let disks = value["disk"].as_array().unwrap();
        assert_eq!(disks[1]["path"].as_str(), Some("/tmp/\"odd\"/node-3-disk-1"));
        let rate = disks[0]["pace"]["ops_per_s"].as_float().unwrap();
        assert!((rate - 18_800.0).abs() < 0.1, "{rate}");
        assert_eq!(disks[0]["pace"]["service"].as_str(), Some("exponential"));
        assert_eq!(value["disks"]["offer"].as_str(), Some("eviction"));
        let value: toml::Value = toml::from_str(&config_text(&plan, &files, true)).unwrap();
        assert!(value["disk"][0].get("pace").is_none());
        assert_eq!(value["disks"]["offer"].as_str(), Some("arrival"));
    }

    #[test]
    fn unsupported_pace_is_named() {
        let slow = DiskConfig { read_ns_per_kib: 1, ..DiskConfig::default() };
        assert!(unsupported(&slow).unwrap().contains("size"));
        let odd = DiskConfig { write: ServiceTime::Constant { ns: 5 }, ..DiskConfig::default() };
        assert!(unsupported(&odd).unwrap().contains("different times"));
    }
}
