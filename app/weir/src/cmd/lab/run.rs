//! `weir lab run`, `reproduce` and `report`.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use weir_run::{
    ClaimResult, Cluster, EngineKind, EventFormat, Outcome, PaperOptions, PaperSession, Progress,
    Reproduction, RunError, RunOptions, Session, SessionError, SessionOptions, SweepOptions, Task,
    claim_table, merge, with_interval,
};
use weir_scenario::{Arm, Size};

use super::{ClaimsFailed, program};
use crate::signals::stop_on_signals;
use crate::table::{out, outln};

/// Run a scenario and write its records, figures and report
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  weir lab run examples/line --smoke\n  weir lab run examples/line \
                  --smoke --seed 1 --out line-1"
)]
pub(crate) struct RunArgs {
    /// A scenario file, or the name of a scenario in `weir lab list`
    scenario: String,
    #[command(flatten)]
    common: CommonArgs,
    /// Run only this seed [default: all seeds of the scenario]
    #[arg(long)]
    seed: Option<u64>,
    /// Run share K of N of all points and seeds. `weir lab report` merges the shares [default: 1/1]
    #[arg(long, value_name = "K/N", value_parser = part, conflicts_with = "engine")]
    part: Option<(usize, usize)>,
    /// Also write the events of each run [default: no events; csv without a value]
    #[arg(long, value_enum, num_args = 0..=1, default_missing_value = "csv", value_name = "FORMAT")]
    events: Option<Events>,
    /// Write a job file for a cluster to the folder of --out (default: the current one), and run
    /// nothing
    #[arg(
        long,
        value_enum,
        value_name = "CLUSTER",
        conflicts_with_all = ["part", "fresh", "json", "engine"]
    )]
    job: Option<Job>,
    /// Check the scenario, and run nothing
    #[arg(long, conflicts_with = "job")]
    check: bool,
}

/// Run the scenarios of a paper, and compare the results with the paper's claims
///
/// The verdict on a claim is reproduced, better, differs or not measured.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  weir lab reproduce nb-cache --smoke\n  weir lab reproduce nb-cache \
                  --smoke --scenario fig15"
)]
pub(crate) struct ReproduceArgs {
    /// A paper in `weir lab list`, or a folder with claims.toml
    paper: String,
    /// Run only this scenario; may be repeated [default: all that the claims need]
    #[arg(long = "scenario", value_name = "NAME")]
    scenarios: Vec<String>,
    /// Run only this seed, without confidence intervals [default: all seeds of the scenarios]
    #[arg(long)]
    seed: Option<u64>,
    /// Store the verdicts with commit and date in the paper's folder, and update its README
    #[arg(long)]
    record: bool,
    #[command(flatten)]
    common: CommonArgs,
}

/// Write the tables, figures and report of existing results again, and merge shares of a sweep
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  weir lab report lab-results/line\n  weir lab report share-1 share-2"
)]
pub(crate) struct ReportArgs {
    /// Folders written by `weir lab run`. The results are merged into the first one
    #[arg(required = true)]
    folders: Vec<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct CommonArgs {
    /// Use the small parameters of the scenario, for a quick test
    #[arg(long)]
    smoke: bool,
    /// Run in the simulator or with real processes [default: the first arm of the scenario]
    #[arg(long, value_enum)]
    arm: Option<ArmArg>,
    /// Write the results to this folder [default: below lab-results]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Print the results as one JSON object
    #[arg(long)]
    json: bool,
    /// Number of parallel runs, with --engine within a share [default: one per core, or 1 with real
    /// processes]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Run shares of the sweep elsewhere, and merge their results [default: threads of this
    /// process]
    #[arg(long, value_enum)]
    engine: Option<Engine>,
    /// Number of shares with --engine or --job [default: one per run, at most 16]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    parts: Option<u16>,
    /// Discard the results in the folder and start again [default: continue]
    #[arg(long)]
    fresh: bool,
    /// Cores for routers with --arm real, such as 0 or 0,2 [default: all]
    #[arg(long, value_delimiter = ',', value_name = "CORES")]
    router_cores: Vec<usize>,
    /// Cores for consumers, producers and links with --arm real [default: all]
    #[arg(long, value_delimiter = ',', value_name = "CORES")]
    app_cores: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ArmArg {
    /// The simulator
    Sim,
    /// Real processes on this machine
    Real,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Events {
    /// Text
    Csv,
    /// Compressed columns, for large runs
    Parquet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Engine {
    /// Child processes of this machine
    Processes,
    /// A job array of Slurm (sbatch, squeue, scancel)
    Slurm,
    /// Tasks of the Dask cluster that DASK_SCHEDULER_ADDRESS names (python3 with distributed)
    Dask,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Job {
    /// A Slurm job array
    Slurm,
    /// A Kubernetes indexed job
    Kubernetes,
}

fn part(text: &str) -> Result<(usize, usize), String> {
    let numbers = text.split_once('/').and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
    match numbers {
        Some((k, n)) if (1..=n).contains(&k) => Ok((k, n)),
        _ => Err("must be K/N with 1 <= K <= N, such as 2/8".to_owned()),
    }
}

impl CommonArgs {
    fn size(&self) -> Size {
        if self.smoke { Size::Smoke } else { Size::Full }
    }

    fn arm(&self) -> Option<Arm> {
        self.arm.map(|arm| match arm {
            ArmArg::Sim => Arm::Sim,
            ArmArg::Real => Arm::Real,
        })
    }

    /// Where shares run; `None` means no shares, in this process.
    fn sweep(&self) -> anyhow::Result<Option<SweepOptions>> {
        let Some(engine) = self.engine else { return Ok(None) };
        let engine = match engine {
            Engine::Processes => EngineKind::Processes,
            Engine::Slurm => EngineKind::Slurm,
            Engine::Dask => EngineKind::Dask,
        };
        let program = std::env::current_exe()?;
        Ok(Some(SweepOptions { engine, program, parts: self.parts.map(usize::from) }))
    }

    fn options(&self) -> anyhow::Result<RunOptions> {
        let mut options = RunOptions { fresh: self.fresh, ..RunOptions::default() };
        options.jobs = self.jobs.map(usize::from);
        options.real.cpu_router = self.router_cores.clone();
        options.real.cpu_apps = self.app_cores.clone();
        options.real.stop = Arc::clone(&options.stop);
        // The first signal stops after the current step, the second ends the program.
        stop_on_signals(&options.stop)?;
        Ok(options)
    }
}

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<()> {
    let order = SessionOptions {
        reference: args.scenario.clone(),
        size: args.common.size(),
        seed: args.seed,
        arm: args.common.arm(),
        // With --job, --out is the folder of the job file, not of the results.
        out: if args.job.is_some() { None } else { args.common.out.clone() },
    };
    let session = Session::new(&order, &program())?;
    if args.check {
        // Check both sizes here, so that errors of the full size do not appear later on a cluster.
        for size in [Size::Smoke, Size::Full] {
            session.scenario.experiment(size).map_err(SessionError::Scenario)?;
        }
        let (points, seeds) = (session.experiment.points.len(), session.experiment.seeds.len());
        outln!("{}: {points} points, {seeds} seeds, no errors", session.scenario.file)?;
        return Ok(());
    }
    if args.common.parts.is_some() && args.job.is_none() && args.common.engine.is_none() {
        return Err(SessionError::Usage(PARTS_ALONE.to_owned()).into());
    }
    let options = RunOptions {
        part: args.part,
        events: args.events.map(|events| match events {
            Events::Csv => EventFormat::Csv,
            Events::Parquet => EventFormat::Parquet,
        }),
        ..args.common.options()?
    };
    if let Some(job) = args.job {
        return write_job(args, job, &session, &options);
    }
    run_with_progress(&session, &options, args.common.sweep()?.as_ref())?;
    let outcome = session.report()?;
    print_outcome(&outcome, args.common.json)?;
    let (there, wanted) = outcome.runs;
    // A share alone does not decide about a claim.
    if there < wanted { Ok(()) } else { fail_on_claims(&outcome.claims) }
}

const PARTS_ALONE: &str = "--parts divides a sweep for --engine or --job; add one of them";

fn write_job(
    args: &RunArgs,
    job: Job,
    session: &Session,
    options: &RunOptions,
) -> anyhow::Result<()> {
    let cluster = match job {
        Job::Slurm => Cluster::Slurm,
        Job::Kubernetes => Cluster::Kubernetes,
    };
    let file = session.job_file(cluster, args.common.parts.map(usize::from), options);
    let folder = args.common.out.clone().unwrap_or_else(|| PathBuf::from("."));
    std::fs::create_dir_all(&folder)?;
    let path = folder.join(&file.name);
    std::fs::write(&path, &file.text)?;
    let runs = session.experiment.points.len() * session.experiment.seeds.len();
    outln!("{}: {runs} runs in {} parts", path.display(), file.parts)?;
    Ok(())
}

pub(crate) fn reproduce(args: &ReproduceArgs) -> anyhow::Result<()> {
    let order = PaperOptions {
        reference: args.paper.clone(),
        size: args.common.size(),
        arm: args.common.arm(),
        scenarios: args.scenarios.clone(),
        seed: args.seed,
        out: args.common.out.clone(),
    };
    let program = program();
    let paper = PaperSession::new(&order, &program)?;
    let (options, sweep) = (args.common.options()?, args.common.sweep()?);
    if args.common.parts.is_some() && sweep.is_none() {
        return Err(SessionError::Usage(PARTS_ALONE.to_owned()).into());
    }
    for session in &paper.sessions {
        run_with_progress(session, &options, sweep.as_ref())?;
    }
    let (reproduction, path) = paper.report()?;
    if args.common.json {
        outln!("{}", serde_json::to_string_pretty(&reproduction)?)?;
    } else {
        print_claims(&reproduction)?;
        outln!("report: {}", path.display())?;
    }
    if reproduction.claims.iter().all(|claim| claim.measured.is_none()) {
        let text = format!("no claim of {} was measured; run it without --arm", args.paper);
        return Err(SessionError::Usage(text).into());
    }
    if args.record {
        let folder = paper.record(&reproduction, &program.date)?;
        eprintln!("recorded in {}", folder.display());
    }
    // Fail only now: a failed claim must not prevent the report and the record.
    fail_on_claims(&reproduction.claims)
}

fn print_claims(reproduction: &Reproduction) -> anyhow::Result<()> {
    out!("{}", claim_table(&reproduction.claims).to_text())?;
    Ok(())
}

pub(crate) fn report(args: &ReportArgs) -> anyhow::Result<()> {
    let session = merge(&args.folders, &program())?;
    let outcome = session.report()?;
    print_outcome(&outcome, args.json)?;
    fail_on_claims(&outcome.claims)
}

fn print_outcome(outcome: &Outcome, json: bool) -> anyhow::Result<()> {
    if json {
        outln!("{}", serde_json::to_string_pretty(outcome)?)?;
        return Ok(());
    }
    for point in &outcome.points {
        let names: Vec<String> =
            point.coordinates.iter().map(|(axis, label)| format!("{axis} {label}")).collect();
        let name = if names.is_empty() { outcome.scenario.clone() } else { names.join(", ") };
        outln!("{name}")?;
        for (metric, estimate) in &point.metrics {
            match estimate {
                Some(estimate) => outln!("  {metric}: {}", with_interval(estimate))?,
                None if outcome.not_measured.contains(metric) => {
                    outln!("  {metric}: not measured in this arm")?;
                }
                None => outln!("  {metric}: nothing to measure")?,
            }
        }
    }
    if !outcome.claims.is_empty() {
        out!("{}", claim_table(&outcome.claims).to_text())?;
    }
    let (there, wanted) = outcome.runs;
    if there < wanted {
        outln!("{there} of {wanted} runs are done; merge shares with `weir lab report`")?;
    }
    outln!("report: {}", outcome.report.display())?;
    Ok(())
}

fn fail_on_claims(claims: &[ClaimResult]) -> anyhow::Result<()> {
    let failed = claims.iter().filter(|claim| claim.is_unexplained());
    let failed: Vec<String> = failed.map(|claim| claim.id.clone()).collect();
    if failed.is_empty() { Ok(()) } else { Err(ClaimsFailed(failed).into()) }
}

/// Runs with a progress bar on a terminal. After a violation, prints the seed and the last events.
fn run_with_progress(
    session: &Session,
    options: &RunOptions,
    sweep: Option<&SweepOptions>,
) -> anyhow::Result<()> {
    let not_measured = session.experiment.not_measured_in(session.arm);
    if !not_measured.is_empty() {
        eprintln!(
            "{}: not measured in arm \"{}\": {}",
            session.scenario.header.id,
            session.arm.as_str(),
            not_measured.join(", ")
        );
    }
    let bar = RunProgress::new(&session.scenario.header.id);
    let on_progress = |progress| bar.on_progress(&progress);
    let done = match sweep {
        Some(sweep) => session.run_on(sweep, options, &on_progress),
        None => session.run(options, &on_progress),
    };
    bar.finish();
    for missing in session.missing()? {
        eprintln!("{}: not measured: {missing}", session.scenario.header.id);
    }
    if let Err(SessionError::Run(RunError::Violation { point, violation, file })) = &done {
        let commit = &session.file.identity.commit;
        eprintln!("seed {}, commit {commit}, {point}; last events:", violation.seed);
        for line in violation.last_events.iter().rev().take(20).rev() {
            eprintln!("  {line}");
        }
        eprintln!("all events: {}", file.display());
    }
    // A stopped run may end without an error, but it is not complete.
    if options.stop.load(Ordering::Relaxed) && done.is_ok() {
        return Err(SessionError::Run(RunError::Interrupted).into());
    }
    Ok(done?)
}

/// Time between progress lines without a terminal.
const REPORT_INTERVAL: Duration = Duration::from_secs(30);

/// The progress of a run: a bar on a terminal, otherwise a line every [`REPORT_INTERVAL`].
struct RunProgress {
    bar: Option<ProgressBar>,
    name: String,
    state: Mutex<ProgressState>,
}

struct ProgressState {
    begun: Instant,
    spoken: Instant,
    tasks: usize,
    finished: usize,
    /// Virtual time of the running tasks, and the total of the finished ones, in ns.
    running: BTreeMap<(usize, u64), u64>,
    done_ns: u64,
}

impl RunProgress {
    fn new(name: &str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(1);
            let template = "{prefix} {wide_bar} {pos}/{len} runs, {elapsed} {msg}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.set_prefix(name.to_owned());
            bar
        });
        let now = Instant::now();
        let state = ProgressState {
            begun: now,
            spoken: now,
            tasks: 0,
            finished: 0,
            running: BTreeMap::new(),
            done_ns: 0,
        };
        Self { bar, name: name.to_owned(), state: Mutex::new(state) }
    }

    fn on_progress(&self, progress: &Progress) {
        if let Progress::Note(text) = progress {
            let print = || eprintln!("{}: {text}", self.name);
            return self.bar.as_ref().map_or_else(print, |bar| bar.suspend(print));
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match progress {
            Progress::Started { tasks, resumed } => {
                state.tasks = *tasks;
                if *resumed > 0 {
                    eprintln!("{}: {resumed} runs already done", self.name);
                }
                if let Some(bar) = &self.bar {
                    bar.set_length(*tasks as u64);
                }
            }
            Progress::Running { task: Task { point, seed }, virtual_ns, .. } => {
                state.running.insert((*point, *seed), *virtual_ns);
            }
            Progress::Note(_) => {}
            Progress::Finished { task: Task { point, seed } } => {
                state.done_ns += state.running.remove(&(*point, *seed)).unwrap_or(0);
                state.finished += 1;
            }
        }
        let speed = state.speed();
        match &self.bar {
            Some(bar) => {
                bar.set_position(state.finished as u64);
                bar.set_message(speed);
            }
            None if state.spoken.elapsed() >= REPORT_INTERVAL => {
                state.spoken = Instant::now();
                eprintln!("{}: {} of {} runs, {speed}", self.name, state.finished, state.tasks);
            }
            None => {}
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl ProgressState {
    fn speed(&self) -> String {
        let virtual_ns = self.done_ns + self.running.values().sum::<u64>();
        let virtual_s = virtual_ns as f64 / 1e9;
        let speed = virtual_s / self.begun.elapsed().as_secs_f64().max(1e-3);
        if virtual_ns == 0 { String::new() } else { format!("{speed:.2} virtual s/s") }
    }
}
