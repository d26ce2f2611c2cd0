//! The results in a folder: one file for each point and seed, and one for the whole run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Permissions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_real::RealReport;
use weir_scenario::{Arm, Experiment, Size};

use crate::metric::Measured;

/// The result of one run, which has one point and one seed. In the simulator, it is the same on
/// every machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub point: usize,
    /// Axis and label, in the order of the axes.
    pub coordinates: Vec<(String, String)>,
    pub seed: u64,
    pub measured: Measured,
    /// The simulator's part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated: Option<Simulated>,
    /// The machine's work in the real arm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub real: Option<RealReport>,
    /// Why a trial measured nothing, and the remedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

impl Record {
    /// The record of a measurement, without a point.
    pub(crate) fn of(measured: Measured) -> Self {
        Self {
            point: 0,
            coordinates: Vec::new(),
            seed: 0,
            measured,
            simulated: None,
            real: None,
            missing: None,
        }
    }
}

/// The simulator's part of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Simulated {
    /// Event hash, hexadecimal.
    pub event_hash: String,
    /// Packets delivered over links.
    pub packet_hops: u64,
    pub steps: u64,
    pub events: u64,
    /// Virtual time, ns.
    pub virtual_ns: u64,
}

/// What all records of a folder have in common. A folder with another identity is not resumed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunIdentity {
    pub scenario: String,
    pub paper: String,
    /// Hash of everything that decides what is measured, see [`Experiment::hash`].
    pub hash: String,
    pub size: Size,
    pub arm: Arm,
    pub commit: String,
    pub seeds: Vec<u64>,
    /// Number of points in the sweep.
    pub points: usize,
}

/// The file `run.json` of a folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunFile {
    /// Must be equal for results to be combined.
    pub identity: RunIdentity,
    pub version: String,
    /// The command that started the run.
    pub command: String,
    pub machine: String,
    pub date: String,
    /// Wall-clock time of all sessions so far, s.
    pub elapsed_s: f64,
    /// How the user named the scenario.
    pub reference: String,
}

/// A file could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Reading or writing failed.
    #[error("{}: {source}; choose another folder with --out, or free some space", path.display())]
    File { path: PathBuf, source: std::io::Error },
    /// The file's content is invalid.
    #[error("{}: {message}; remove the file, or start over with --fresh", path.display())]
    Content { path: PathBuf, message: String },
    /// Recorded verdicts, or the README that shows them, cannot be read or written.
    #[error(
        "{}: {message}; fix the file or restore it, then repeat the command: no run is lost",
        path.display()
    )]
    Verdicts { path: PathBuf, message: String },
    /// The folder holds another run.
    #[error(
        "{} holds results of {difference}; start over with --fresh, or choose another folder \
         with --out",
        path.display()
    )]
    DifferentRun { path: PathBuf, difference: String },
}

/// Wraps a system error.
pub(crate) fn file_error(path: &Path) -> impl Fn(std::io::Error) -> RecordError + '_ {
    move |source| RecordError::File { path: path.to_path_buf(), source }
}

/// Writes a file atomically: after a crash it is complete or absent.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), RecordError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(file_error(folder))?;
    // Results are readable for everyone, as far as the umask permits.
    let mode = Permissions::from_mode(0o666);
    let mut file =
        tempfile::Builder::new().permissions(mode).tempfile_in(folder).map_err(file_error(path))?;
    file.write_all(bytes).map_err(file_error(path))?;
    file.persist(path).map_err(|error| file_error(path)(error.error))?;
    Ok(())
}

impl RunIdentity {
    /// The first difference from `other`, if any.
    fn difference(&self, other: &Self) -> Option<String> {
        let pairs = [
            ("scenario", &self.scenario, &other.scenario),
            ("commit", &self.commit, &other.commit),
        ];
        for (noun, ours, theirs) in pairs {
            if ours != theirs {
                return Some(format!("another {noun} ({theirs} instead of {ours})"));
            }
        }
        if self.size != other.size {
            return Some(format!("another size ({})", other.size.as_str()));
        }
        if self.arm != other.arm {
            return Some(format!("the other arm ({})", other.arm.noun()));
        }
        if self.seeds != other.seeds {
            return Some("other seeds".to_owned());
        }
        (self != other).then(|| "an earlier text of this scenario".to_owned())
    }
}

/// Time between two attempts to lock a folder.
const LOCK_INTERVAL: Duration = Duration::from_millis(100);

/// Holds the lock of a folder until it is dropped.
pub(crate) struct FolderLock {
    _file: File,
}

#[derive(Clone, Debug)]
pub struct ResultFolder {
    pub path: PathBuf,
}

impl ResultFolder {
    /// The folder at `path`, which need not exist.
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The content of `run.json`, if it exists.
    pub(crate) fn run_file(&self) -> Result<Option<RunFile>, RecordError> {
        read_json(&self.path.join("run.json"))
    }

    /// Locks the folder, so that two commands never work in it at the same time, such as two jobs
    /// for the same share. Waits while another one has it, and reports that once. The lock ends
    /// with its process. `None`: the wait was stopped.
    ///
    /// # Errors
    /// The folder cannot be made or written.
    pub(crate) fn lock(
        &self,
        is_stopped: &dyn Fn() -> bool,
        note: &dyn Fn(String),
    ) -> Result<Option<FolderLock>, RecordError> {
        let path = self.path.join("lock");
        std::fs::create_dir_all(&self.path).map_err(file_error(&self.path))?;
        let mut options = File::options();
        let open = options.create(true).read(true).write(true).truncate(false).open(&path);
        let mut file = open.map_err(file_error(&path))?;
        let mut has_noted = false;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                // Some network file systems have no locks. Records are still written atomically.
                Err(TryLockError::Error(_)) => break,
                Err(TryLockError::WouldBlock) if !has_noted => {
                    let mut holder = String::new();
                    file.read_to_string(&mut holder).map_err(file_error(&path))?;
                    let folder = self.path.display();
                    let holder = Some(holder.trim()).filter(|holder| !holder.is_empty());
                    let holder = holder.unwrap_or("another process");
                    note(format!("waiting for {holder}, which uses {folder}"));
                    has_noted = true;
                }
                Err(TryLockError::WouldBlock) => {}
            }
            if is_stopped() {
                return Ok(None);
            }
            std::thread::sleep(LOCK_INTERVAL);
        }
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let holder = format!("process {} of host {}\n", std::process::id(), host.trim());
        file.set_len(0).map_err(file_error(&path))?;
        file.rewind()
            .and_then(|()| file.write_all(holder.as_bytes()))
            .map_err(file_error(&path))?;
        Ok(Some(FolderLock { _file: file }))
    }

    /// Prepares the folder for a run. With `fresh` it removes old results; otherwise it checks that
    /// they belong to the same run.
    pub(crate) fn open(&self, run: &RunFile, fresh: bool) -> Result<(), RecordError> {
        if fresh {
            self.clear()?;
        }
        if let Some(before) = self.run_file()?
            && let Some(difference) = run.identity.difference(&before.identity)
        {
            return Err(RecordError::DifferentRun { path: self.path.clone(), difference });
        }
        Ok(())
    }

    /// Removes the files that runs write, and no others.
    fn clear(&self) -> Result<(), RecordError> {
        for name in ["tasks", "figures", "events", "violations", "parts"] {
            let path = self.path.join(name);
            match std::fs::remove_dir_all(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(file_error(&path)(error));
                }
                _ => {}
            }
        }
        let files = ["run.json", "scenario.toml", "metrics.csv", "summary.csv", "report.html"];
        for name in files {
            let path = self.path.join(name);
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(file_error(&path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes `run.json`.
    pub(crate) fn write_run_file(&self, run: &RunFile) -> Result<(), RecordError> {
        write_atomically(&self.path.join("run.json"), &json(run))
    }

    /// The file of a task.
    pub(crate) fn record_path(&self, point: usize, seed: u64) -> PathBuf {
        self.path.join("tasks").join(format!("{point:05}-{seed}.json"))
    }

    /// The record of a finished task.
    pub(crate) fn record(&self, point: usize, seed: u64) -> Result<Option<Record>, RecordError> {
        read_json(&self.record_path(point, seed))
    }

    /// Writes the record of a task.
    pub(crate) fn write_record(&self, record: &Record) -> Result<(), RecordError> {
        write_atomically(&self.record_path(record.point, record.seed), &json(record))
    }

    /// All records of an experiment in this folder.
    pub(crate) fn records(&self, experiment: &Experiment) -> Result<Results, RecordError> {
        let mut results = Results::default();
        for point in 0..experiment.points.len() {
            for seed in &experiment.seeds {
                if let Some(record) = self.record(point, *seed)? {
                    results.records.insert((point, *seed), record);
                }
            }
        }
        Ok(results)
    }
}

/// Reads a JSON file; `None` if it does not exist.
pub(crate) fn read_json<T: serde::de::DeserializeOwned>(
    path: &Path,
) -> Result<Option<T>, RecordError> {
    match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| {
            RecordError::Content { path: path.to_path_buf(), message: error.to_string() }
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(file_error(path)(error)),
    }
}

/// Readable JSON with a final newline.
pub(crate) fn json<T: Serialize>(value: &T) -> Vec<u8> {
    // Only maps with text keys, so JSON can represent them all.
    let mut bytes = serde_json::to_vec_pretty(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Results {
    pub records: BTreeMap<(usize, u64), Record>,
}

impl Results {
    /// The numbers of a metric at a point, in the order of seeds.
    pub(crate) fn values(&self, point: usize, metric: &str) -> Vec<f64> {
        self.of_point(point)
            .filter_map(|record| record.measured.values.get(metric).copied().flatten())
            .collect()
    }

    /// Why trials measured nothing, each reason once.
    pub(crate) fn missing(&self) -> Vec<&str> {
        let reasons = self.records.values().filter_map(|record| record.missing.as_deref());
        reasons.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Whether every run of the experiment is present.
    pub(crate) fn is_complete(&self, experiment: &Experiment) -> bool {
        (0..experiment.points.len()).all(|point| {
            experiment.seeds.iter().all(|seed| self.records.contains_key(&(point, *seed)))
        })
    }

    /// The records of a point, in the order of seeds.
    pub(crate) fn of_point(&self, point: usize) -> impl Iterator<Item = &Record> {
        self.records.range((point, 0)..=(point, u64::MAX)).map(|(_, record)| record)
    }
}
