//! Implements the commands: run a scenario, reproduce a paper, write a report.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;

use serde::Serialize;
use weir_plot::Section;
use weir_scenario::document::suggestion;
use weir_scenario::{Arm, Experiment, Folder, Paper, Scenario, ScenarioError, Size};

use crate::claims::{
    Claim, ClaimResult, ClaimSource, Claims, RecordedClaim, RecordedVerdicts, Reproduction,
    assign_causes,
};
use crate::record::{self, FolderLock, RecordError, ResultFolder, Results, RunFile, RunIdentity};
use crate::report::{self, ReportError, ScenarioReport};
use crate::runner::{self, OnProgress, Progress, RunError, RunOptions};
use crate::stats::Estimate;

#[derive(Clone, Debug)]
pub struct Program {
    pub version: String,
    /// The commit of this build.
    pub commit: String,
    pub command: String,
    /// Current time in UTC, as `2026-11-20 13:45:00`.
    pub date: String,
    /// Processor, cores, memory and kernel.
    pub machine: String,
}

/// Why a command of the laboratory failed.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// A scenario, a claim or a trace is invalid; nothing has run.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// A run ended early.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Results could not be read or saved.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A report could not be written.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// The arguments contradict each other.
    #[error("{0}")]
    Usage(String),
}

/// Options of a scenario's run.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// How the user named the scenario.
    pub reference: String,
    pub size: Size,
    /// Replaces the scenario's seeds.
    pub seed: Option<u64>,
    /// The arm; `None` means the scenario's first one.
    pub arm: Option<Arm>,
    /// The folder for results; `None` means one named after the scenario.
    pub out: Option<PathBuf>,
}

/// The results of a scenario as data.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub scenario: String,
    pub paper: String,
    pub size: Size,
    pub arm: Arm,
    pub seeds: Vec<u64>,
    pub commit: String,
    /// The folder with the results.
    pub out: PathBuf,
    pub report: PathBuf,
    /// Runs present, and runs in the scenario.
    pub runs: (usize, usize),
    /// Metrics that the arm cannot measure.
    pub not_measured: Vec<String>,
    pub points: Vec<OutcomePoint>,
    /// The paper's claims about the scenario.
    pub claims: Vec<ClaimResult>,
}

/// One point of a scenario's sweep.
#[derive(Clone, Debug, Serialize)]
pub struct OutcomePoint {
    /// Axis and label.
    pub coordinates: Vec<(String, String)>,
    /// Mean and interval of each metric; `None` if nothing was measured.
    pub metrics: std::collections::BTreeMap<String, Option<Estimate>>,
}

/// A scenario that is ready to run.
pub struct Session {
    pub scenario: Scenario,
    pub experiment: Experiment,
    pub arm: Arm,
    pub folder: ResultFolder,
    /// The content of `run.json`.
    pub file: RunFile,
    /// The one seed that the user chose.
    pub(crate) seed: Option<u64>,
}

impl Session {
    /// Reads and checks a scenario.
    pub fn new(order: &SessionOptions, program: &Program) -> Result<Self, SessionError> {
        Self::of(weir_scenario::find_scenario(&order.reference)?, order, program)
    }

    /// The same for a scenario that was read before.
    pub(crate) fn of(
        scenario: Scenario,
        order: &SessionOptions,
        program: &Program,
    ) -> Result<Self, SessionError> {
        let header = &scenario.header;
        let arm = order.arm.unwrap_or(header.arms[0]);
        if !header.arms.contains(&arm) {
            let arms: Vec<&str> = header.arms.iter().map(|arm| arm.as_str()).collect();
            return Err(SessionError::Usage(format!(
                "{} has no arm \"{}\"; its arms are {}",
                scenario.file,
                arm.as_str(),
                arms.join(", ")
            )));
        }
        let mut experiment = scenario.experiment(order.size)?;
        if let Some(seed) = order.seed {
            experiment.seeds = vec![seed];
        }
        if experiment.not_measured_in(arm).len() == experiment.metrics.len() {
            return Err(SessionError::Usage(format!(
                "none of the metrics of {} can be measured in arm \"{}\"; choose the other one \
                 with --arm",
                scenario.file,
                arm.as_str()
            )));
        }
        let identity = RunIdentity {
            scenario: header.id.clone(),
            paper: header.paper.clone(),
            hash: experiment.hash()?,
            size: order.size,
            arm,
            commit: program.commit.clone(),
            seeds: experiment.seeds.clone(),
            points: experiment.points.len(),
        };
        let folder = order.out.clone().unwrap_or_else(|| default_folder(&identity, order.seed));
        let file = RunFile {
            identity,
            version: program.version.clone(),
            command: program.command.clone(),
            machine: program.machine.clone(),
            date: program.date.clone(),
            elapsed_s: 0.0,
            reference: order.reference.clone(),
        };
        let folder = ResultFolder::new(folder);
        Ok(Self { experiment, arm, folder, file, seed: order.seed, scenario })
    }

    /// Runs the missing tasks, and adds the time to `run.json`.
    pub fn run(&self, options: &RunOptions, progress: OnProgress<'_>) -> Result<(), SessionError> {
        let options = RunOptions { arm: self.arm, ..options.clone() };
        let _lock = self.open(&options, progress)?;
        let before = Instant::now();
        let done = runner::run(&self.experiment, &self.folder, &options, progress);
        // A run that ended early keeps its records, so its time counts.
        let mut file = self.folder.run_file()?.unwrap_or_else(|| self.file.clone());
        file.elapsed_s += before.elapsed().as_secs_f64();
        let written = self.folder.write_run_file(&file);
        done?;
        Ok(written?)
    }

    /// Locks the folder, checks that it belongs to this run, and writes what describes the run.
    pub(crate) fn open(
        &self,
        options: &RunOptions,
        progress: OnProgress<'_>,
    ) -> Result<FolderLock, SessionError> {
        // Checks the claims first, so that an invalid one does not surface after hours of runs.
        self.claims()?;
        let is_stopped = || options.stop.load(Ordering::Relaxed);
        let note = |text| progress(Progress::Note(text));
        let lock = self.folder.lock(&is_stopped, &note)?.ok_or(RunError::Interrupted)?;
        self.folder.open(&self.file, options.fresh)?;
        if self.folder.run_file()?.is_none() {
            self.folder.write_run_file(&self.file)?;
        }
        let text = self.scenario.text.as_bytes();
        record::write_atomically(&self.folder.path.join("scenario.toml"), text)?;
        Ok(lock)
    }

    /// Why trials measured nothing, each reason once.
    pub fn missing(&self) -> Result<Vec<String>, SessionError> {
        let results = self.folder.records(&self.experiment)?;
        Ok(results.missing().into_iter().map(str::to_owned).collect())
    }

    /// The paper's claims about this scenario in this arm.
    fn claims(&self) -> Result<Vec<Claim>, ScenarioError> {
        let Some(paper) = self.paper() else { return Ok(Vec::new()) };
        let claims = Claims::load(&paper)?.claims.into_iter().filter(|claim| {
            matches!(&claim.source, ClaimSource::Scenario { name, arm }
                if *name == self.scenario.header.id && self.is_arm(*arm))
        });
        let claims: Vec<_> = claims.collect();
        claims.iter().try_for_each(|claim| claim.check(Some(&self.experiment)))?;
        Ok(claims)
    }

    fn is_arm(&self, wanted: Option<Arm>) -> bool {
        wanted.unwrap_or(self.scenario.header.arms[0]) == self.arm
    }

    fn paper(&self) -> Option<Paper> {
        let header = &self.scenario.header;
        if let Folder::Disk(folder) = &self.scenario.folder {
            let parent = folder.join("..");
            if parent.join("claims.toml").is_file() {
                return Some(Paper { id: header.paper.clone(), folder: Folder::Disk(parent) });
            }
        }
        weir_scenario::papers().into_iter().find(|paper| paper.id == header.paper)
    }

    /// Writes tables, figures and the report of the records in the folder.
    pub fn report(&self) -> Result<Outcome, SessionError> {
        let results = self.folder.records(&self.experiment)?;
        let run = self.folder.run_file()?.unwrap_or_else(|| self.file.clone());
        let part = ScenarioReport {
            experiment: &self.experiment,
            results: &results,
            run: &run,
            folder: &self.folder,
        };
        let section = part.write(&self.folder.path)?;
        let claims_to_judge = self.claims()?;
        let evaluate = |claim: &Claim| claim.evaluate(Some(&self.experiment), &results, None);
        let mut claims: Vec<ClaimResult> = claims_to_judge.iter().map(evaluate).collect();
        assign_causes(&claims_to_judge, &mut claims);
        let header = &self.scenario.header;
        let title = match header.paper.as_str() {
            "" => header.title.clone(),
            paper => format!("Paper {paper}: {}", header.title),
        };
        let mut html = report::report_head(&title, &part.command(), std::slice::from_ref(&part));
        html.claims = report::claim_table(&claims);
        html.sections = vec![section];
        let path = self.folder.path.join("report.html");
        record::write_atomically(&path, html.to_html().as_bytes())?;
        Ok(self.outcome(&results, &run, claims, path))
    }

    /// Whether a task is done. A damaged record does not count.
    pub(crate) fn has_record(&self, task: runner::Task) -> Result<bool, RecordError> {
        match self.folder.record(task.point, task.seed) {
            Ok(record) => Ok(record.is_some()),
            Err(RecordError::Content { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Copies the records of `part` that this folder does not have yet. Returns which share of
    /// those in `part` was copied: the time of the others is already in the sum. `on_damaged`
    /// decides what happens to a record that cannot be read.
    pub(crate) fn copy_records(
        &self,
        part: &ResultFolder,
        on_damaged: impl Fn(RecordError) -> Result<(), SessionError>,
    ) -> Result<f64, SessionError> {
        let (mut there, mut copied) = (0_u32, 0_u32);
        for task in runner::tasks(&self.experiment, None) {
            let from = part.record_path(task.point, task.seed);
            let to = self.folder.record_path(task.point, task.seed);
            match part.record(task.point, task.seed) {
                Ok(None) => continue,
                Ok(Some(_)) => there += 1,
                Err(error @ RecordError::Content { .. }) => {
                    on_damaged(error)?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            if !self.has_record(task)? {
                copied += 1;
                // Copies the file: a parsed number could differ in its last bit.
                let bytes = std::fs::read(&from).map_err(record::file_error(&from))?;
                record::write_atomically(&to, &bytes)?;
            }
        }
        Ok(f64::from(copied) / f64::from(there.max(1)))
    }

    fn outcome(
        &self,
        results: &Results,
        run: &RunFile,
        claims: Vec<ClaimResult>,
        report: PathBuf,
    ) -> Outcome {
        let experiment = &self.experiment;
        let point = |(index, point): (usize, &weir_scenario::Point)| OutcomePoint {
            coordinates: experiment
                .coordinates(point)
                .into_iter()
                .map(|(axis, label)| (axis.to_owned(), label.to_owned()))
                .collect(),
            metrics: experiment
                .metrics
                .iter()
                .map(|metric| (metric.id.clone(), Estimate::of(&results.values(index, &metric.id))))
                .collect(),
        };
        Outcome {
            scenario: experiment.header.id.clone(),
            paper: experiment.header.paper.clone(),
            size: experiment.size,
            arm: self.arm,
            seeds: experiment.seeds.clone(),
            commit: run.identity.commit.clone(),
            out: self.folder.path.clone(),
            report,
            runs: (results.records.len(), experiment.points.len() * experiment.seeds.len()),
            not_measured: experiment.not_measured_in(self.arm),
            points: experiment.points.iter().enumerate().map(point).collect(),
            claims,
        }
    }
}

fn default_folder(identity: &RunIdentity, seed: Option<u64>) -> PathBuf {
    let paper = if identity.paper.is_empty() { "other" } else { &identity.paper };
    let mut name = format!("{}-{}", identity.scenario, identity.size.as_str());
    if identity.arm == Arm::Real {
        name.push_str("-real");
    }
    if let Some(seed) = seed {
        name.push_str(&format!("-seed{seed}"));
    }
    PathBuf::from("lab-results").join(paper).join(name)
}

/// Copies the parts of a sweep into the first folder, and opens it.
pub fn merge(folders: &[PathBuf], program: &Program) -> Result<Session, SessionError> {
    let Some((first, others)) = folders.split_first() else {
        return Err(SessionError::Usage("name at least one folder of results".into()));
    };
    let target = ResultFolder::new(first);
    let mut run = read_run(&target)?;
    let order = SessionOptions {
        reference: run.reference.clone(),
        size: run.identity.size,
        seed: None,
        arm: Some(run.identity.arm),
        out: Some(first.clone()),
    };
    let program = Program { commit: run.identity.commit.clone(), ..program.clone() };
    let mut session = Session::new(&order, &program)?;
    // The parts may have run with other seeds than the scenario's, so the folder's seeds count.
    session.experiment.seeds = run.identity.seeds.clone();
    session.file.identity.seeds = run.identity.seeds.clone();
    target.open(&session.file, false)?;
    for path in others {
        let other = ResultFolder::new(path);
        let part = read_run(&other)?;
        other.open(&session.file, false)?;
        let copied = session.copy_records(&other, |error| Err(error.into()))?;
        run.elapsed_s += part.elapsed_s * copied;
    }
    if !others.is_empty() {
        target.write_run_file(&run)?;
    }
    Ok(session)
}

fn read_run(folder: &ResultFolder) -> Result<RunFile, SessionError> {
    folder.run_file()?.ok_or_else(|| {
        SessionError::Usage(format!(
            "{} has no results (run.json); name a folder that `weir lab run` wrote",
            folder.path.display()
        ))
    })
}

/// Options of a paper's reproduction.
#[derive(Clone, Debug)]
pub struct PaperOptions {
    /// Its name, or the folder of its files.
    pub reference: String,
    pub size: Size,
    /// Only claims of this arm.
    pub arm: Option<Arm>,
    /// Only claims about these scenarios; all if empty.
    pub scenarios: Vec<String>,
    /// Replaces the seeds of all scenarios. Results then have no confidence intervals.
    pub seed: Option<u64>,
    /// The folder for results; `None` means one named after the paper.
    pub out: Option<PathBuf>,
}

/// A paper that is ready to be reproduced.
pub struct PaperSession {
    pub claims: Claims,
    /// The scenarios that the claims need.
    pub sessions: Vec<Session>,
    pub folder: PathBuf,
    paper: Paper,
    size: Size,
    arm: Option<Arm>,
    seed: Option<u64>,
    command: String,
    commit: String,
}

impl PaperSession {
    /// Reads and checks all claims of a paper, and all scenarios that they need.
    pub fn new(order: &PaperOptions, program: &Program) -> Result<Self, SessionError> {
        let paper = weir_scenario::paper(&order.reference)?;
        let claims = Claims::load(&paper)?;
        let folder = order.out.clone().unwrap_or_else(|| {
            PathBuf::from("lab-results").join(format!("{}-{}", paper.id, order.size.as_str()))
        });
        let names = paper.scenario_names();
        if let Some(wrong) = order.scenarios.iter().find(|name| !names.contains(name)) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let message =
                format!("{} has no scenario \"{wrong}\"; {}", paper.id, suggestion(wrong, &names));
            return Err(SessionError::Usage(message));
        }
        let mut prepared = Self {
            claims,
            sessions: Vec::new(),
            folder,
            paper: paper.clone(),
            size: order.size,
            arm: order.arm,
            seed: order.seed,
            command: format!(
                "weir lab reproduce {}{}{}",
                order.reference,
                if order.size == Size::Smoke { " --smoke" } else { "" },
                order.seed.map(|seed| format!(" --seed {seed}")).unwrap_or_default(),
            ),
            commit: program.commit.clone(),
        };
        for claim in &prepared.claims.claims {
            let ClaimSource::Scenario { name, arm } = &claim.source else { continue };
            let is_wanted = order.scenarios.is_empty() || order.scenarios.contains(name);
            if !is_wanted || !claim.sizes.contains(&order.size) {
                continue;
            }
            let scenario = paper.scenario(name)?;
            let arm = arm.unwrap_or(scenario.header.arms[0]);
            if order.arm.is_some_and(|wanted| wanted != arm) {
                continue;
            }
            // A claim that compares both arms needs a session of each. Claims share sessions.
            for arm in [Some(arm), claim.compared_arm].into_iter().flatten() {
                let known = prepared.sessions.iter().position(|s| s.is(name, arm));
                let index = match known {
                    Some(index) => index,
                    None => {
                        let session = prepared.session(&paper, scenario.clone(), arm, program)?;
                        prepared.sessions.push(session);
                        prepared.sessions.len() - 1
                    }
                };
                claim.check(Some(&prepared.sessions[index].experiment))?;
            }
        }
        Ok(prepared)
    }

    fn session(
        &self,
        paper: &Paper,
        scenario: Scenario,
        arm: Arm,
        program: &Program,
    ) -> Result<Session, SessionError> {
        let id = &scenario.header.id;
        let suffix = if arm == Arm::Real { "-real" } else { "" };
        let order = SessionOptions {
            reference: match &paper.folder {
                Folder::Disk(folder) => {
                    folder.join("scenarios").join(format!("{id}.toml")).display().to_string()
                }
                Folder::Embedded(..) => format!("{}/{id}", paper.id),
            },
            size: self.size,
            seed: self.seed,
            arm: Some(arm),
            out: Some(self.folder.join(format!("{id}{suffix}"))),
        };
        Session::of(scenario, &order, program)
    }

    /// The session with the results of a claim, if it is among those that run.
    fn session_of(&self, claim: &Claim) -> Option<usize> {
        let ClaimSource::Scenario { name, arm } = &claim.source else { return None };
        self.sessions
            .iter()
            .position(|session| session.scenario.header.id == *name && session.is_arm(*arm))
    }

    /// The session of the arm that a claim is compared with, if any.
    fn compared_session(&self, claim: &Claim) -> Option<usize> {
        let ClaimSource::Scenario { name, .. } = &claim.source else { return None };
        let compared = claim.compared_arm?;
        self.sessions.iter().position(|session| session.is(name, compared))
    }

    /// Records the verdicts in the paper's folder and its README, and at full size the numbers of
    /// all runs. A claim that did not run keeps its old verdict.
    ///
    /// # Errors
    /// The paper is not a folder on disk, or a file cannot be read or written.
    pub fn record(&self, reproduction: &Reproduction, date: &str) -> Result<PathBuf, SessionError> {
        let Folder::Disk(folder) = &self.paper.folder else {
            let message = format!(
                "{} is built into this program and cannot be changed; name its folder, such as \
                 lab/{0}",
                self.paper.id
            );
            return Err(SessionError::Usage(message));
        };
        let day = |date: &str| date.split(' ').next().unwrap_or_default().to_owned();
        let mut new = Vec::new();
        for (claim, result) in self.claims.claims.iter().zip(&reproduction.claims) {
            let session = self.session_of(claim).map(|at| &self.sessions[at]);
            let run = match session {
                Some(session) => session.folder.run_file()?,
                None => None,
            };
            new.push(RecordedClaim {
                result: result.clone(),
                rule: claim.rule_text().to_owned(),
                arm: session.map(|session| session.arm),
                commit: run.as_ref().map_or(&self.commit, |run| &run.identity.commit).clone(),
                date: day(run.as_ref().map_or(date, |run| &run.date)),
            });
        }
        let before = RecordedVerdicts::read(folder, self.size)?;
        RecordedVerdicts::update(before, &self.claims, self.size, new).write(folder)?;
        if self.size == Size::Full {
            self.record_metrics(&folder.join("expected/full"))?;
        }
        Ok(folder.clone())
    }

    /// Copies the numbers of all full-size runs, one file for each scenario. Repeating the runs
    /// would take hours.
    fn record_metrics(&self, target: &Path) -> Result<(), RecordError> {
        std::fs::create_dir_all(target).map_err(record::file_error(target))?;
        for session in &self.sessions {
            let path = &session.folder.path;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let from = path.join("metrics.csv");
            let bytes = std::fs::read(&from).map_err(record::file_error(&from))?;
            record::write_atomically(&target.join(format!("{name}.csv")), &bytes)?;
        }
        Ok(())
    }

    /// Evaluates every claim, and writes `claims.json` and `report.html`.
    pub fn report(&self) -> Result<(Reproduction, PathBuf), SessionError> {
        let mut results = Vec::new();
        let mut runs = Vec::new();
        for session in &self.sessions {
            results.push(session.folder.records(&session.experiment)?);
            runs.push(session.folder.run_file()?.unwrap_or_else(|| session.file.clone()));
        }
        let evaluate = |claim: &Claim| match self.session_of(claim) {
            Some(at) => {
                let compared = self.compared_session(claim).map(|compared| &results[compared]);
                claim.evaluate(Some(&self.sessions[at].experiment), &results[at], compared)
            }
            None => claim.evaluate(None, &Results::default(), None),
        };
        let mut claims: Vec<ClaimResult> = self.claims.claims.iter().map(evaluate).collect();
        assign_causes(&self.claims.claims, &mut claims);
        let reproduction =
            Reproduction { paper: self.claims.paper.clone(), size: self.size, claims };
        let mut parts = Vec::new();
        for (at, session) in self.sessions.iter().enumerate() {
            parts.push(ScenarioReport {
                experiment: &session.experiment,
                results: &results[at],
                run: &runs[at],
                folder: &session.folder,
            });
        }
        let path = self.write(&reproduction, &parts)?;
        Ok((reproduction, path))
    }

    fn write(
        &self,
        reproduction: &Reproduction,
        parts: &[ScenarioReport<'_>],
    ) -> Result<PathBuf, SessionError> {
        let sections: Vec<Section> =
            parts.iter().map(|part| part.write(&self.folder)).collect::<Result<_, _>>()?;
        let title = format!("Paper {}, reproduced", self.claims.paper);
        let mut html = report::report_head(&title, &self.command, parts);
        html.subtitle = self.claims.title.clone();
        html.claims = report::claim_table(&reproduction.claims);
        html.sections = sections;
        if let Some(arm) = self.arm {
            html.warnings.push(format!("Claims of the {} only.", arm.noun()));
        }
        record::write_atomically(&self.folder.join("claims.json"), &record::json(reproduction))?;
        let path = self.folder.join("report.html");
        record::write_atomically(&path, html.to_html().as_bytes())?;
        Ok(path)
    }
}

impl Session {
    fn is(&self, scenario: &str, arm: Arm) -> bool {
        self.scenario.header.id == scenario && self.arm == arm
    }
}

/// Processor, cores, memory and kernel of this machine, as far as they are known.
pub fn machine_description() -> String {
    let read = |path: &str| std::fs::read_to_string(Path::new(path)).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let processor = field(&read("/proc/cpuinfo"), "model name");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = field(&read("/proc/meminfo"), "MemTotal")
        .and_then(|text| text.trim_end_matches("kB").trim().parse::<u64>().ok());
    let kernel = read("/proc/sys/kernel/osrelease");
    let mut parts = vec![processor.unwrap_or_else(|| std::env::consts::ARCH.to_owned())];
    parts.push(if cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") });
    parts.extend(memory.map(|kib| format!("{:.0} GiB of memory", kib as f64 / 1_048_576.0)));
    parts.push(format!("{} {}", std::env::consts::OS, kernel.trim()).trim().to_owned());
    parts.join(", ")
}
