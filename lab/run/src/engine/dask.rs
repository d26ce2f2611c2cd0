//! Shares as tasks of a Dask cluster, by a Python program that uses `distributed`.
//!
//! The folder of results must be on a file system that all workers share. Dask moves the shares of
//! a lost worker to another one. They wait for the processes that the lost worker left, and resume.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::share::{Engine, EngineError, ShareFailure, Sweep, Watch, describe};

pub(crate) struct Dask;

const CLIENT: &str = include_str!("dask.py");
const REMEDY: &str = "activate a Python environment with `distributed` (pip install distributed), \
                      and set DASK_SCHEDULER_ADDRESS to the cluster's scheduler";
/// Time between two looks at the stop flag.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// The order to the client.
#[derive(Serialize)]
struct Job {
    name: String,
    shares: Vec<JobShare>,
}

#[derive(Serialize)]
struct JobShare {
    number: usize,
    command: Vec<String>,
    log: String,
}

/// A line from the client.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Line {
    Cluster { cluster: String },
    Ended { share: usize, returncode: i32 },
    Lost { share: usize, error: String },
}

impl Engine for Dask {
    fn cores_default(&self) -> usize {
        1
    }

    fn run(&self, sweep: &Sweep, watch: &Watch<'_>) -> Result<Vec<ShareFailure>, EngineError> {
        let mut client = Command::new("python3")
            .args(["-c", CLIENT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| EngineError::Start {
                program: "python3".into(),
                source,
                remedy: REMEDY,
            })?;
        let mut order = serde_json::to_vec(&job(sweep)).unwrap_or_default();
        order.push(b'\n');
        // The client stops when its input ends: keep it open. A failed write shows as its end.
        let mut input = client.stdin.take();
        if let Some(input) = &mut input {
            let _ = input.write_all(&order);
        }
        let (lines, errors) = (lines_of(&mut client), errors_of(&mut client));
        let mut failures = Vec::new();
        loop {
            match lines.recv_timeout(STOP_INTERVAL) {
                Ok(Line::Cluster { cluster }) => watch.note(format!("Dask cluster {cluster}")),
                Ok(Line::Ended { returncode: 0, share }) => {
                    watch.note(format!("share {share} done"))
                }
                Ok(Line::Ended { share, returncode }) => {
                    failures.push(failure(sweep, share, returncode));
                }
                Ok(Line::Lost { share, error }) => {
                    failures.push(sweep.failure(share, &error, None))
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if watch.is_stopped() {
                drop(input.take());
            }
        }
        let status = client.wait();
        if watch.is_stopped() {
            return Err(EngineError::Interrupted);
        }
        match status {
            Ok(status) if status.success() => Ok(failures),
            status => {
                let said = errors.join().unwrap_or_default();
                let how = status.map_or_else(|error| error.to_string(), |how| describe(how).0);
                let output = said.lines().rfind(|line| !line.is_empty()).unwrap_or(&how).to_owned();
                Err(EngineError::Failed { program: "python3".into(), output, remedy: REMEDY })
            }
        }
    }
}

fn job(sweep: &Sweep) -> Job {
    let share = |&number: &usize| JobShare {
        number,
        command: sweep
            .command(&number.to_string())
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        log: sweep.log(number).display().to_string(),
    };
    Job {
        name: format!("weir-{}-{}", sweep.id, std::process::id()),
        shares: sweep.shares.iter().map(share).collect(),
    }
}

/// Sends what the client reports. Other lines, such as those of Dask, are ignored.
fn lines_of(client: &mut Child) -> Receiver<Line> {
    let (sender, receiver) = channel();
    let output = client.stdout.take();
    std::thread::spawn(move || {
        for line in output.into_iter().flat_map(|output| BufReader::new(output).lines()) {
            let Ok(line) = line else { return };
            if let Ok(line) = serde_json::from_str(&line)
                && sender.send(line).is_err()
            {
                return;
            }
        }
    });
    receiver
}

/// Reads the client's error output, so that it never blocks.
fn errors_of(client: &mut Child) -> std::thread::JoinHandle<String> {
    let errors = client.stderr.take();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut errors) = errors {
            let _ = errors.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn failure(sweep: &Sweep, share: usize, returncode: i32) -> ShareFailure {
    match u32::try_from(returncode) {
        Ok(code) => sweep.failure(share, &format!("exit code {code}"), Some(returncode)),
        Err(_) => {
            sweep.failure(share, &format!("killed by signal {}", returncode.unsigned_abs()), None)
        }
    }
}
