//! Shares as child processes of this machine: a run that crashes does not end the others.

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::share::{Engine, EngineError, ShareFailure, Sweep, Watch, describe};

pub(crate) struct Processes;

/// Time between two looks at the children.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

impl Engine for Processes {
    fn cores_default(&self) -> usize {
        1
    }

    fn run(&self, sweep: &Sweep, watch: &Watch<'_>) -> Result<Vec<ShareFailure>, EngineError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let running_max = (cores / sweep.cores).max(1);
        let mut waiting: VecDeque<usize> = sweep.shares.iter().copied().collect();
        let mut running: Vec<(usize, Child)> = Vec::new();
        let mut failures = Vec::new();
        while !(waiting.is_empty() && running.is_empty()) {
            if watch.is_stopped() {
                stop(&mut running);
                return Err(EngineError::Interrupted);
            }
            while running.len() < running_max
                && let Some(share) = waiting.pop_front()
            {
                match start(sweep, share) {
                    Ok(child) => running.push((share, child)),
                    Err(error) => {
                        stop(&mut running);
                        return Err(error);
                    }
                }
            }
            std::thread::sleep(POLL_INTERVAL);
            let mut still = Vec::new();
            for (share, mut child) in running {
                match child.try_wait() {
                    Ok(None) => still.push((share, child)),
                    Ok(Some(status)) if status.success() => {}
                    Ok(Some(status)) => {
                        let (reason, code) = describe(status);
                        failures.push(sweep.failure(share, &reason, code));
                    }
                    Err(error) => failures.push(sweep.failure(share, &error.to_string(), None)),
                }
            }
            running = still;
        }
        Ok(failures)
    }
}

fn start(sweep: &Sweep, share: usize) -> Result<Child, EngineError> {
    let log = sweep.log(share);
    let open = || OpenOptions::new().create(true).append(true).open(&log);
    let output = open().map_err(EngineError::file(&log))?;
    let errors = output.try_clone().map_err(EngineError::file(&log))?;
    let words = sweep.command(&share.to_string());
    Command::new(&words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .map_err(|source| EngineError::Start {
            program: sweep.program.display().to_string(),
            source,
            remedy: "repeat the command to continue",
        })
}

/// Asks the children to stop, and waits for them. They keep the records that are complete.
fn stop(running: &mut Vec<(usize, Child)>) {
    for (_, child) in running.iter() {
        if let Ok(id) = i32::try_from(child.id()) {
            // It may have ended.
            let _ = kill(Pid::from_raw(id), Signal::SIGTERM);
        }
    }
    for (_, mut child) in running.drain(..) {
        let _ = child.wait();
    }
}
