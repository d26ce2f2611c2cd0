//! Runs a scenario in shares on an engine, and merges their records.

use std::path::{Path, PathBuf};

use weir_scenario::Arm;

use crate::engine::{Cluster, EngineKind, JobDivision, JobFile, Sweep, Watch, engine, job_file};
use crate::events::EventFormat;
use crate::record::{ResultFolder, file_error};
use crate::runner::{OnProgress, Progress, RunError, RunOptions, Task, tasks};
use crate::session::{Session, SessionError};

/// Shares of a sweep, unless the user says how many.
const PARTS_DEFAULT_MAX: usize = 16;
/// Cores of a share in a job file, unless the user says how many.
const JOB_FILE_CORES_DEFAULT: usize = 4;

/// How a sweep is divided, and what runs it.
#[derive(Clone, Debug)]
pub struct SweepOptions {
    pub engine: EngineKind,
    /// This program, which engines start.
    pub program: PathBuf,
    /// `None`: one share for each run, at most 16.
    pub parts: Option<usize>,
}

impl Session {
    /// Runs the missing tasks on an engine, in these steps:
    ///
    /// 1. Wait for shares that an earlier command left running, and merge what they wrote.
    /// 2. Run each share that has a missing task. Share K of N has every N-th task, so it is the
    ///    command `weir lab run ... --part K/N`, with a folder of its own below `parts`.
    /// 3. Merge the records of all shares. If none is missing, remove `parts`.
    ///
    /// Records decide what is done: how a share ended only explains what is missing. Damaged
    /// records count as missing.
    ///
    /// # Errors
    /// Runs are missing at the end, the engine fails, or a file cannot be read or written.
    pub fn run_on(
        &self,
        sweep: &SweepOptions,
        options: &RunOptions,
        progress: OnProgress<'_>,
    ) -> Result<(), SessionError> {
        let _lock = self.open(options, progress)?;
        let note = |text| progress(Progress::Note(text));
        let watch = Watch { stop: &options.stop, note: &note };
        let engine = engine(sweep.engine);
        let mut order = self.sweep(sweep, options, engine.cores_default())?;
        let parts = order.parts_folder();
        std::fs::create_dir_all(&parts).map_err(file_error(&parts))?;
        engine.wait_for_earlier(&order, &watch).map_err(RunError::from)?;
        self.collect(&parts, progress)?;
        let (all, missing) = (tasks(&self.experiment, None), self.missing_tasks()?);
        progress(Progress::Started { tasks: missing.len(), resumed: all.len() - missing.len() });
        let has_missing = |share: &usize| {
            let of_share = tasks(&self.experiment, Some((*share, order.parts)));
            of_share.iter().any(|task| missing.contains(task))
        };
        order.shares = (1..=order.parts).filter(has_missing).collect();
        let mut failures = Vec::new();
        if !order.shares.is_empty() {
            let ended = engine.run(&order, &watch);
            // After an error as well, records of shares that ended are kept.
            self.collect(&parts, progress)?;
            failures = ended.map_err(RunError::from)?;
        }
        let missing = self.missing_tasks()?.len();
        if missing > 0 {
            return Err(RunError::Shares { missing, tasks: all.len(), failures }.into());
        }
        std::fs::remove_dir_all(&parts).map_err(file_error(&parts))?;
        Ok(())
    }

    /// The job file that runs this session in shares, for `sbatch` or `kubectl`.
    pub fn job_file(
        &self,
        cluster: Cluster,
        parts: Option<usize>,
        options: &RunOptions,
    ) -> JobFile {
        let cores = options.jobs.unwrap_or(JOB_FILE_CORES_DEFAULT);
        let division = JobDivision {
            parts: parts.unwrap_or_else(|| self.parts_default()),
            cores,
            jobs: self.jobs_of_share(cores, options),
        };
        let arguments = self.share_arguments(options, self.file.reference.clone());
        job_file(cluster, &self.scenario.header.id, &arguments, division)
    }

    fn sweep(
        &self,
        sweep: &SweepOptions,
        options: &RunOptions,
        cores_default: usize,
    ) -> Result<Sweep, SessionError> {
        let folder = &self.folder.path;
        let cores = options.jobs.unwrap_or(cores_default);
        let absolute = |path: &Path| std::path::absolute(path).map_err(file_error(path));
        let reference = Path::new(&self.file.reference);
        let reference = if reference.is_file() {
            absolute(reference)?.display().to_string()
        } else {
            self.file.reference.clone()
        };
        Ok(Sweep {
            id: self.scenario.header.id.clone(),
            program: sweep.program.clone(),
            arguments: self.share_arguments(options, reference),
            folder: absolute(folder)?,
            parts: sweep.parts.unwrap_or_else(|| self.parts_default()),
            shares: Vec::new(),
            cores,
            jobs: self.jobs_of_share(cores, options),
        })
    }

    fn parts_default(&self) -> usize {
        tasks(&self.experiment, None).len().clamp(1, PARTS_DEFAULT_MAX)
    }

    /// Runs at the same time within a share. Real processes would disturb each other.
    fn jobs_of_share(&self, cores: usize, options: &RunOptions) -> usize {
        if self.arm == Arm::Real { options.jobs.unwrap_or(1) } else { cores }
    }

    /// The arguments of `weir` that all shares have in common.
    fn share_arguments(&self, options: &RunOptions, reference: String) -> Vec<String> {
        let mut arguments = vec!["lab".to_owned(), "run".to_owned(), reference];
        if self.experiment.size == weir_scenario::Size::Smoke {
            arguments.push("--smoke".into());
        }
        arguments.extend(self.seed.map(|seed| format!("--seed={seed}")));
        arguments.push(format!("--arm={}", self.arm.as_str()));
        arguments.extend(options.events.map(|format| match format {
            EventFormat::Csv => "--events=csv".to_owned(),
            EventFormat::Parquet => "--events=parquet".to_owned(),
        }));
        let cores = [("router", &options.real.cpu_router), ("app", &options.real.cpu_apps)];
        for (option, cores) in cores.into_iter().filter(|(_, cores)| !cores.is_empty()) {
            let cores: Vec<String> = cores.iter().map(usize::to_string).collect();
            arguments.push(format!("--{option}-cores={}", cores.join(",")));
        }
        arguments
    }

    fn missing_tasks(&self) -> Result<Vec<Task>, SessionError> {
        let mut missing = Vec::new();
        for task in tasks(&self.experiment, None) {
            if !self.has_record(task)? {
                missing.push(task);
            }
        }
        Ok(missing)
    }

    /// Merges the records and events of all shares below `parts`.
    fn collect(&self, parts: &Path, progress: OnProgress<'_>) -> Result<(), SessionError> {
        let entries = std::fs::read_dir(parts).map_err(file_error(parts))?;
        let mut folders: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        // Logs are next to the folders.
        folders.retain(|path| path.is_dir());
        folders.sort();
        for path in folders {
            let part = ResultFolder { path };
            let Some(file) = part.run_file()? else { continue };
            part.open(&self.file, false)?;
            let copied = self.copy_records(&part, |damaged| {
                progress(Progress::Note(format!("{damaged}; its run is repeated")));
                Ok(())
            })?;
            let mut run = self.folder.run_file()?.unwrap_or_else(|| self.file.clone());
            run.elapsed_s += file.elapsed_s * copied;
            self.folder.write_run_file(&run)?;
            move_files(&part.path.join("events"), &self.folder.path.join("events"))?;
        }
        Ok(())
    }
}

/// Moves the files of a folder, which need not exist, to another one on the same file system.
fn move_files(from: &Path, to: &Path) -> Result<(), SessionError> {
    for entry in std::fs::read_dir(from).into_iter().flatten().flatten() {
        std::fs::create_dir_all(to).map_err(file_error(to))?;
        let path = entry.path();
        std::fs::rename(&path, to.join(entry.file_name())).map_err(file_error(&path))?;
    }
    Ok(())
}
