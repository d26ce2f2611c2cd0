//! Runs the points and seeds of an experiment in parallel, and saves their records.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use weir_baselines::controllers::CONTROLLERS;
use weir_baselines::stores;
use weir_forward::Extension;
use weir_netsim::{Experiments, Network, Violation};
use weir_plan::event::{Event, Observer};
use weir_plan::{PlanError, RouterPlan};
use weir_real::{self as real, RealError, RealOptions};
use weir_scenario::{Arm, Experiment, Prepared, ScenarioError};

use crate::engine::{EngineError, ShareFailure};
use crate::events::{EventFormat, EventWriter};
use crate::metric::{Collector, Measured};
use crate::record::{Record, RecordError, ResultFolder, Simulated};

#[derive(Clone, Debug)]
pub struct RunOptions {
    pub arm: Arm,
    /// Number of concurrent runs. `None`: one per core in the simulator, and one in the real arm,
    /// where concurrent runs would compete for the processor.
    pub jobs: Option<usize>,
    /// Part `k` of `n`, counted from 1: every `n`-th task.
    pub part: Option<(usize, usize)>,
    /// Removes old results in the folder first.
    pub fresh: bool,
    /// Writes every event of every run.
    pub events: Option<EventFormat>,
    pub real: RealOptions,
    /// Set to stop. Tasks in progress are abandoned and leave no record.
    pub stop: Arc<AtomicBool>,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            arm: Arm::Sim,
            jobs: None,
            part: None,
            fresh: false,
            events: None,
            real: RealOptions::default(),
            stop: Arc::default(),
        }
    }
}

impl RunOptions {
    fn jobs_at_once(&self) -> usize {
        let of_arm = || match self.arm {
            Arm::Sim => std::thread::available_parallelism().map_or(1, usize::from),
            Arm::Real => 1,
        };
        self.jobs.map_or_else(of_arm, |jobs| jobs.max(1))
    }
}

/// One point with one seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    pub point: usize,
    pub seed: u64,
}

/// Progress of a run, for display.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// The run starts. It skips tasks whose results exist from an earlier run.
    Started {
        tasks: usize,
        /// Tasks completed earlier.
        resumed: usize,
    },
    /// A task makes progress.
    Running {
        task: Task,
        /// Virtual time so far, ns.
        virtual_ns: u64,
        /// Total virtual time, ns.
        end_ns: u64,
    },
    Finished {
        task: Task,
    },
    /// Something that the user should know, such as the state of a job.
    Note(String),
}

/// Receives progress from several threads.
pub(crate) type OnProgress<'a> = &'a (dyn Fn(Progress) + Sync);

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The scenario cannot run like this.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The network rejected a plan.
    #[error("{file}: {point}, seed {seed}: {source}; correct the scenario")]
    Plan { file: String, point: String, seed: u64, source: Box<PlanError> },
    /// A check failed.
    #[error("{point}: {violation}")]
    Violation {
        point: String,
        violation: Box<Violation>,
        /// The file with the last events.
        file: PathBuf,
    },
    /// The real arm failed.
    #[error("{point}, seed {seed}: {source}")]
    Real { point: String, seed: u64, source: Box<RealError> },
    /// Results could not be saved.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Shares of a sweep on an engine left runs undone.
    #[error(
        "{missing} of {tasks} runs are missing; repeat the command to continue{}",
        lines(.failures)
    )]
    Shares { missing: usize, tasks: usize, failures: Vec<ShareFailure> },
    /// An engine could not run shares.
    #[error(transparent)]
    Engine(EngineError),
    /// The user requested a stop.
    #[error("interrupted; repeat the command to continue")]
    Interrupted,
}

impl From<EngineError> for RunError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Interrupted => Self::Interrupted,
            error => Self::Engine(error),
        }
    }
}

/// Failures on a line each.
fn lines(failures: &[ShareFailure]) -> String {
    failures.iter().map(|failure| format!("\n  {}", failure.text)).collect()
}

/// Simulator steps between two checks of the stop flag, about 20 ms.
const SLICE_STEPS: u64 = 1 << 14;

/// The tasks of an experiment that belong to `part`, in order.
pub(crate) fn tasks(experiment: &Experiment, part: Option<(usize, usize)>) -> Vec<Task> {
    let all = (0..experiment.points.len())
        .flat_map(|point| experiment.seeds.iter().map(move |seed| Task { point, seed: *seed }));
    let mut all: Vec<Task> = all.collect();
    // Trials that are compared run close in time, because a machine's speed changes over a day.
    if experiment.is_trial() {
        all.sort_by_key(|task| task.seed);
    }
    let (part, parts) = part.unwrap_or((1, 1));
    all.into_iter()
        .enumerate()
        .filter(|(at, _)| at % parts == part - 1)
        .map(|(_, task)| task)
        .collect()
}

/// Runs the tasks of `experiment` that `folder` does not have yet, in these steps:
///
/// 1. List all tasks: each point with each seed.
/// 2. Skip tasks whose records exist.
/// 3. Start `jobs` threads, which take the remaining tasks in order. Each writes its record at the
///    end.
/// 4. Stop early if `stop` is set or a task fails. `stop` abandons the tasks in progress; after a
///    failure, the other threads finish their current tasks. Records are complete or absent.
///
/// The order of tasks and the number of threads never change a record. The caller has locked and
/// opened the folder, and adds the elapsed time to its `run.json`.
///
/// # Errors
/// The first error of any task. The other threads end after their current tasks.
pub(crate) fn run(
    experiment: &Experiment,
    folder: &ResultFolder,
    options: &RunOptions,
    progress: OnProgress<'_>,
) -> Result<(), RunError> {
    let all = tasks(experiment, options.part);
    let mut open = VecDeque::new();
    for task in &all {
        match folder.record(task.point, task.seed) {
            Ok(Some(_)) => {}
            Ok(None) => open.push_back(*task),
            // A node or its disk failed while it was written.
            Err(RecordError::Content { path, message }) => {
                let path = path.display();
                progress(Progress::Note(format!("{path}: {message}; the run is repeated")));
                open.push_back(*task);
            }
            Err(error) => return Err(error.into()),
        }
    }
    progress(Progress::Started { tasks: open.len(), resumed: all.len() - open.len() });
    let jobs = options.jobs_at_once().min(open.len());
    let open = Mutex::new(open);
    let failed: Mutex<Option<RunError>> = Mutex::new(None);
    let failures = AtomicUsize::new(0);
    let work = || {
        loop {
            if failures.load(Ordering::Relaxed) > 0 {
                return;
            }
            let next = open.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(task) = next else { return };
            let runner = Runner { experiment, folder, options, progress };
            if let Err(error) = runner.run(task) {
                failures.fetch_add(1, Ordering::Relaxed);
                failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                return;
            }
            progress(Progress::Finished { task });
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(work);
        }
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

struct Runner<'a> {
    experiment: &'a Experiment,
    folder: &'a ResultFolder,
    options: &'a RunOptions,
    progress: OnProgress<'a>,
}

impl Runner<'_> {
    fn run(&self, task: Task) -> Result<(), RunError> {
        if self.options.stop.load(Ordering::Relaxed) {
            return Err(RunError::Interrupted);
        }
        let point = &self.experiment.points[task.point];
        let prepared = self.experiment.prepare(point, task.seed)?;
        // A trial computes its samples itself and has no events.
        if let Some(trial) = &prepared.trial {
            let done = real::trial::run(trial, &prepared.plan, &self.options.real);
            let report = done.map_err(|source| self.real_error(task, source))?;
            let measured = Measured::of_trial(&self.experiment.metrics, &report.samples);
            return self
                .save_record(task, Record { missing: report.missing, ..Record::of(measured) });
        }
        let mut observer = RunObserver {
            collector: Collector::of(self.experiment, &prepared, self.options.arm)?,
            writer: match self.options.events {
                Some(format) => {
                    let folder = self.folder.path.join("events");
                    let stem = format!("{:05}-{}", task.point, task.seed);
                    Some(EventWriter::create(&folder, &stem, format, &prepared.plan)?)
                }
                None => None,
            },
        };
        let (simulated, real) = match self.options.arm {
            Arm::Sim => (Some(self.simulate(task, &prepared, &mut observer)?), None),
            Arm::Real => (None, Some(self.real(task, &prepared, &mut observer)?)),
        };
        if let Some(writer) = observer.writer {
            writer.finish()?;
        }
        let measured = observer.collector.finish();
        self.save_record(task, Record { simulated, real, ..Record::of(measured) })
    }

    fn save_record(&self, task: Task, record: Record) -> Result<(), RunError> {
        let point = &self.experiment.points[task.point];
        let coordinates = self.experiment.coordinates(point).into_iter();
        self.folder.write_record(&Record {
            point: task.point,
            coordinates: coordinates.map(|(axis, label)| (axis.into(), label.into())).collect(),
            seed: task.seed,
            ..record
        })?;
        Ok(())
    }

    fn simulate(
        &self,
        task: Task,
        prepared: &Prepared,
        observer: &mut RunObserver,
    ) -> Result<Simulated, RunError> {
        let experiments = Experiments { controllers: CONTROLLERS, store: Some(store_of) };
        let network = Network::with_experiments(&prepared.plan, &experiments);
        let mut network = network.map_err(|source| RunError::Plan {
            file: self.experiment.file.to_string(),
            point: self.point_name(task),
            seed: task.seed,
            source: Box::new(source),
        })?;
        let end_ns = network.end_ns();
        while !network.is_over() {
            network
                .run_steps(SLICE_STEPS, observer)
                .map_err(|violation| self.violation(task, violation))?;
            // The network runs beyond the end of the plan, until nothing is in flight.
            let virtual_ns = network.now_ns().min(end_ns);
            (self.progress)(Progress::Running { task, virtual_ns, end_ns });
            if self.options.stop.load(Ordering::Relaxed) {
                return Err(RunError::Interrupted);
            }
        }
        let summary = network.summary();
        Ok(Simulated {
            event_hash: format!("{:016x}", summary.event_hash),
            packet_hops: summary.packet_hops,
            steps: summary.steps,
            events: summary.events,
            virtual_ns: summary.virtual_ns,
        })
    }

    fn real(
        &self,
        task: Task,
        prepared: &Prepared,
        observer: &mut RunObserver,
    ) -> Result<real::RealReport, RunError> {
        real::run(&prepared.plan, &self.options.real, observer)
            .map_err(|source| self.real_error(task, source))
    }

    fn real_error(&self, task: Task, source: RealError) -> RunError {
        let source = Box::new(source);
        RunError::Real { point: self.point_name(task), seed: task.seed, source }
    }

    fn point_name(&self, task: Task) -> String {
        self.experiment.point_name(&self.experiment.points[task.point])
    }

    /// Writes the last events, and names the file in the error.
    fn violation(&self, task: Task, violation: Violation) -> RunError {
        let name = format!("{:05}-{}.txt", task.point, task.seed);
        let file = self.folder.path.join("violations").join(name);
        let mut text =
            format!("{}\n{violation}\n\nlast events, oldest first:\n", self.point_name(task));
        for line in &violation.last_events {
            text.push_str(line);
            text.push('\n');
        }
        match crate::record::write_atomically(&file, text.as_bytes()) {
            Ok(()) => RunError::Violation {
                point: self.point_name(task),
                violation: Box::new(violation),
                file,
            },
            Err(error) => RunError::Record(error),
        }
    }
}

/// The store extension of a router's plan.
fn store_of(plan: &RouterPlan) -> Option<Arc<dyn Extension>> {
    stores::extension(&plan.store_experiments, plan.disk.as_ref().map(|disk| &disk.experiments))
}

/// Counts events, and writes them if requested.
struct RunObserver {
    collector: Collector,
    writer: Option<EventWriter>,
}

impl Observer for RunObserver {
    fn observe(&mut self, event: &Event) {
        self.collector.observe(event);
        if let Some(writer) = &mut self.writer {
            writer.observe(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_netsim::ViolationKind;
    use weir_scenario::{Size, find_scenario};

    #[test]
    fn parts_share_all_tasks() {
        let scenario = find_scenario("examples/tree").expect("an example");
        let experiment = scenario.experiment(Size::Smoke).expect("right");
        let all = tasks(&experiment, None);
        assert_eq!(all.len(), 8);
        let mut shared: Vec<Task> =
            (1..=3).flat_map(|part| tasks(&experiment, Some((part, 3)))).collect();
        shared.sort_by_key(|task| (task.point, task.seed));
        assert_eq!(shared, all);
    }

    #[test]
    fn violation_writes_its_last_events() {
        let scenario = find_scenario("examples/tree").expect("an example");
        let experiment = scenario.experiment(Size::Smoke).expect("right");
        let out = tempfile::tempdir().expect("folder");
        let folder = ResultFolder::new(out.path());
        let options = RunOptions::default();
        let runner = Runner {
            experiment: &experiment,
            folder: &folder,
            options: &options,
            progress: &|_| (),
        };
        let violation = Violation {
            kind: ViolationKind::Liveness,
            what: "nothing moves".into(),
            at_ns: 5,
            node: "r0".into(),
            seed: 2,
            last_events: vec!["first".into(), "second".into()],
        };
        let error = runner.violation(Task { point: 1, seed: 2 }, violation);
        let RunError::Violation { point, file, .. } = &error else { panic!("{error}") };
        assert_eq!(point, "capacity=50 exponent=1");
        let text = std::fs::read_to_string(file).expect("written");
        assert!(text.contains("nothing moves") && text.ends_with("first\nsecond\n"), "{text}");
        assert!(error.to_string().contains("liveness violated at 5 ns at node `r0` (seed 2)"));
    }
}
