//! Shares as the tasks of a Slurm job array.
//!
//! The folder of results must be on a file system that all nodes share. `slurm.job` in it holds the
//! number of the job that runs. A command that was interrupted without a chance to cancel the job
//! finds it there, and waits for it instead of submitting the shares twice.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use super::job_file::{array, quoted, slurm_script};
use super::share::{Engine, EngineError, ShareFailure, Sweep, Watch, output_of};

pub(crate) struct Slurm;

/// Time between two questions to the controller.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Time between two looks at the stop flag.
const STOP_INTERVAL: Duration = Duration::from_millis(50);
/// Time without an answer of the controller, after which the command fails.
const UNREACHABLE_MAX: Duration = Duration::from_secs(600);
/// Time between two lines about a job whose state does not change.
const NOTE_INTERVAL: Duration = Duration::from_secs(300);

const SUBMIT_REMEDY: &str = "run the command where `sbatch` works; SBATCH_PARTITION, \
                             SBATCH_ACCOUNT, SBATCH_TIMELIMIT and SBATCH_MEM_PER_NODE choose what \
                             the job requests";
const POLL_REMEDY: &str = "the job may still run: repeat the command to wait for it";

/// What `squeue` reports of a task. A task that ended stays in its list for some minutes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TaskState {
    state: String,
    /// As `wait` returns it.
    exit_status: i32,
    /// Why it waits, or failed.
    reason: String,
}

impl TaskState {
    fn is_over(&self) -> bool {
        const STATES: [&str; 10] = [
            "BOOT_FAIL",
            "CANCELLED",
            "COMPLETED",
            "DEADLINE",
            "FAILED",
            "NODE_FAIL",
            "OUT_OF_MEMORY",
            "PREEMPTED",
            "REVOKED",
            "TIMEOUT",
        ];
        STATES.contains(&self.state.as_str())
    }

    fn failure(&self, sweep: &Sweep, share: usize) -> Option<ShareFailure> {
        if self.state == "COMPLETED" {
            return None;
        }
        let (signal, code) = (self.exit_status & 0x7f, self.exit_status >> 8);
        let state = self.state.to_ascii_lowercase().replace('_', " ");
        let how = match (signal, code) {
            (0, 0) => format!("{state}, {}", self.reason),
            (0, code) => format!("{state}, exit code {code}"),
            (signal, _) => format!("{state}, killed by signal {signal}"),
        };
        Some(sweep.failure(share, &how, (signal == 0 && code != 0).then_some(code)))
    }
}

impl Engine for Slurm {
    fn cores_default(&self) -> usize {
        4
    }

    fn wait_for_earlier(&self, sweep: &Sweep, watch: &Watch<'_>) -> Result<(), EngineError> {
        if let Ok(text) = std::fs::read_to_string(job_path(sweep)) {
            let job = text.trim().to_owned();
            if !job.is_empty() && job.bytes().all(|byte| byte.is_ascii_digit()) {
                watch.note(format!("waiting for Slurm job {job} of an earlier command"));
                wait(&job, watch)?;
            }
            forget(sweep)?;
        }
        Ok(())
    }

    fn run(&self, sweep: &Sweep, watch: &Watch<'_>) -> Result<Vec<ShareFailure>, EngineError> {
        let job = submit(sweep)?;
        let shares = sweep.shares.len();
        watch.note(format!("submitted Slurm job {job} with {shares} shares"));
        let states = wait(&job, watch)?;
        forget(sweep)?;
        Ok(states.iter().filter_map(|(share, state)| state.failure(sweep, *share)).collect())
    }
}

fn job_path(sweep: &Sweep) -> PathBuf {
    sweep.folder.join("slurm.job")
}

fn forget(sweep: &Sweep) -> Result<(), EngineError> {
    let path = job_path(sweep);
    std::fs::remove_file(&path).map_err(EngineError::file(&path))
}

/// Submits the shares as an array, and returns the number of the job.
fn submit(sweep: &Sweep) -> Result<String, EngineError> {
    // A word with the mark is in single quotes, which end where the number of the share begins.
    const MARK: &str = "@share@";
    let command = sweep.command(MARK);
    let words: Vec<String> = command.iter().map(|word| quoted(&word.to_string_lossy())).collect();
    let command = words.join(" ").replace(MARK, "'\"$SLURM_ARRAY_TASK_ID\"'");
    let script = sweep.parts_folder().join("slurm.sbatch");
    let text = slurm_script(&sweep.id, &command, &array(&sweep.shares), sweep.cores);
    std::fs::write(&script, text).map_err(EngineError::file(&script))?;
    // Slurm replaces %a by the number of the task.
    let folder = sweep.parts_folder().display().to_string().replace('%', "%%");
    let mut sbatch = Command::new("sbatch");
    sbatch.arg("--parsable");
    sbatch.arg(format!("--output={folder}/%a-of-{}.log", sweep.parts)).arg(&script);
    let output = output_of(&mut sbatch, SUBMIT_REMEDY)?;
    // With several clusters, ";CLUSTER" follows.
    let job = output.trim().split(';').next().unwrap_or_default().to_owned();
    let path = job_path(sweep);
    std::fs::write(&path, &job).map_err(EngineError::file(&path))?;
    Ok(job)
}

/// Waits until no task of the job runs or waits. Returns the last known state of each task.
fn wait(job: &str, watch: &Watch<'_>) -> Result<BTreeMap<usize, TaskState>, EngineError> {
    let mut known = BTreeMap::new();
    let mut answered = Instant::now();
    let mut noted = (String::new(), Instant::now());
    loop {
        match states(job) {
            Ok(None) => return Ok(known),
            Ok(Some(states)) => {
                answered = Instant::now();
                let is_over = !states.is_empty() && states.values().all(TaskState::is_over);
                known.extend(states);
                if is_over {
                    return Ok(known);
                }
                let summary = summary(&known);
                if summary != noted.0 || noted.1.elapsed() > NOTE_INTERVAL {
                    watch.note(format!("Slurm job {job}: {summary}"));
                    noted = (summary, Instant::now());
                }
            }
            Err(error) if answered.elapsed() > UNREACHABLE_MAX => return Err(error),
            Err(_) => {}
        }
        let polled = Instant::now();
        while polled.elapsed() < POLL_INTERVAL {
            if watch.is_stopped() {
                output_of(Command::new("scancel").arg(job), POLL_REMEDY)?;
                return Err(EngineError::Interrupted);
            }
            std::thread::sleep(STOP_INTERVAL);
        }
    }
}

/// The states of the tasks by share. `None`: Slurm knows the job no longer.
fn states(job: &str) -> Result<Option<BTreeMap<usize, TaskState>>, EngineError> {
    let mut squeue = Command::new("squeue");
    squeue.args(["--noheader", "--array", "--states=all", "--jobs", job]);
    squeue.arg("--Format=ArrayTaskID:24,State:24,exit_code:16,Reason:64");
    match output_of(&mut squeue, POLL_REMEDY) {
        Ok(text) => Ok(Some(text.lines().filter_map(task).collect())),
        Err(EngineError::Failed { output, .. }) if output.contains("Invalid job id") => Ok(None),
        Err(error) => Err(error),
    }
}

/// A line of `squeue`: share, state, status, reason.
fn task(line: &str) -> Option<(usize, TaskState)> {
    let mut words = line.split_whitespace();
    let share = words.next()?.parse().ok()?;
    let state = words.next()?.to_owned();
    let exit_status = words.next()?.parse().ok()?;
    Some((share, TaskState { state, exit_status, reason: words.collect::<Vec<_>>().join(" ") }))
}

/// Such as "2 completed, 1 pending (Resources)".
fn summary(states: &BTreeMap<usize, TaskState>) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for task in states.values() {
        let mut name = task.state.to_ascii_lowercase().replace('_', " ");
        if task.state == "PENDING" && task.reason != "None" {
            name = format!("{name} ({})", task.reason);
        }
        *counts.entry(name).or_default() += 1;
    }
    let counts = counts.iter().map(|(name, count)| format!("{count} {name}"));
    counts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep() -> Sweep {
        Sweep {
            id: "tree".into(),
            program: "/opt/weir".into(),
            arguments: Vec::new(),
            folder: "/nowhere".into(),
            parts: 4,
            shares: vec![1, 2, 3, 4],
            cores: 1,
            jobs: 1,
        }
    }

    #[test]
    fn squeue_lines_become_states_and_failures() {
        let text = "3    CANCELLED    15    None\n5    COMPLETED    0    None\n\
                    1    FAILED    2560    NonZeroExitCode\n2    PENDING    0    Resources\n\
                    4    NODE_FAIL    0    NodeDown\n[6-7]    PENDING    0    None\n";
        let states: BTreeMap<usize, TaskState> = text.lines().filter_map(task).collect();
        assert_eq!(states.len(), 5);
        assert!(states[&3].is_over() && !states[&2].is_over());
        let failure = |share: usize| states[&share].failure(&sweep(), share);
        assert!(failure(5).is_none());
        let one = failure(1).expect("failed");
        assert_eq!(one.exit_code, Some(10));
        assert!(one.text.starts_with("share 1/4: failed, exit code 10"), "{}", one.text);
        assert!(failure(3).expect("cancelled").text.contains("cancelled, killed by signal 15"));
        assert!(failure(4).expect("lost").text.contains("node fail, NodeDown"));
        assert_eq!(
            summary(&states),
            "1 cancelled, 1 completed, 1 failed, 1 node fail, 1 pending (Resources)"
        );
    }
}
