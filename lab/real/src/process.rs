//! Processes of a run, which end with the coordinator.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::RealError;

/// Log lines shown when a process fails.
const LOG_LINES: usize = 20;
/// How long a process may take to exit after its sockets and its output have closed.
pub(super) const END_PATIENCE: Duration = Duration::from_millis(500);
/// How long a process may take to exit after a request.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// A line of a process's standard output, or its end.
#[derive(Debug)]
pub(super) struct OutputLine {
    /// The number the process was started with.
    pub(super) process: usize,
    /// A line; `None` when the output closed because the process exited.
    pub(super) line: Option<String>,
}

/// A process, killed when this is dropped. Its standard error goes to a file.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) title: String,
    child: Child,
    input: Option<ChildStdin>,
    log: PathBuf,
}

/// How to start a process.
pub(super) struct Launch<'a> {
    pub(super) title: String,
    pub(super) program: &'a Path,
    /// Another program instead of `weir`; it also ends with the coordinator.
    pub(super) other: Option<&'a Path>,
    pub(super) dir: &'a Path,
    /// Name of its log file, without extension.
    pub(super) file: String,
    pub(super) cores: &'a [usize],
    /// The number of the process in its output lines.
    pub(super) number: usize,
    /// The channel for its output lines.
    pub(super) output: &'a Sender<OutputLine>,
}

impl Process {
    /// Starts `weir ARGUMENTS` or another program through `weir lab child`. That command ties the
    /// process to this one and to its cores.
    pub(super) fn start(launch: &Launch<'_>, arguments: &[&str]) -> Result<Self, RealError> {
        let log = launch.dir.join(format!("{}.log", launch.file));
        let system = |what: String| move |source| RealError::System { what, source };
        let errors = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .map_err(system(format!("cannot write {}", log.display())))?;
        let mut command = Command::new(launch.program);
        command.args(["lab", "child", "--parent", &std::process::id().to_string()]);
        if !launch.cores.is_empty() {
            let cores: Vec<String> = launch.cores.iter().map(ToString::to_string).collect();
            command.args(["--cores", &cores.join(",")]);
        }
        if let Some(other) = launch.other {
            command.arg("--program").arg(other);
        }
        command.arg("--").args(arguments);
        // Its own folder, so that the user's settings do not apply; its own process group, so that
        // the coordinator handles Ctrl-C.
        command
            .current_dir(launch.dir)
            .env("HOME", launch.dir)
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("NDN_CLIENT_TRANSPORT")
            .env_remove("RUST_LOG")
            .env_remove(crate::huge_pages::TUNABLES)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors);
        let mut child = command.spawn().map_err(system(format!(
            "cannot start {} ({})",
            launch.title,
            launch.program.display()
        )))?;
        let stdout = child.stdout.take().expect("standard output is piped");
        let (number, output) = (launch.number, launch.output.clone());
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if output.send(OutputLine { process: number, line: Some(line) }).is_err() {
                    return;
                }
            }
            // After the run, nothing receives the line.
            let _ = output.send(OutputLine { process: number, line: None });
        });
        let input = child.stdin.take();
        Ok(Self { title: launch.title.clone(), child, input, log })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn send_line(&mut self, line: &str) -> Result<(), RealError> {
        let told = self.input.as_mut().map(|input| writeln!(input, "{line}"));
        match told {
            Some(Ok(())) => Ok(()),
            // It has exited.
            _ => Err(self.failure("ended early")),
        }
    }

    /// The error of a process, with its exit status and its last log lines.
    pub(super) fn failure(&mut self, what: &str) -> RealError {
        // Its output closes shortly before it can be waited for.
        self.ends_within(END_PATIENCE);
        let what = match self.child.try_wait().ok().flatten() {
            Some(status) => format!("{what} ({status})"),
            None => what.to_owned(),
        };
        RealError::Process { title: self.title.clone(), what, log: last_lines(&self.log) }
    }

    /// The last lines of its standard error.
    pub(super) fn log(&self) -> String {
        last_lines(&self.log)
    }

    /// Requests its exit and waits.
    pub(super) fn stop(&mut self) -> Result<(), RealError> {
        // It may have exited by itself.
        let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM);
        self.wait()
    }

    /// Waits for its exit, which should be near, and expects success.
    pub(super) fn wait(&mut self) -> Result<(), RealError> {
        let deadline = Instant::now() + STOP_PATIENCE;
        while Instant::now() < deadline {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(_)) | Err(_) => return Err(self.failure("ended with an error")),
                Ok(None) => std::thread::sleep(Duration::from_millis(2)),
            }
        }
        Err(self.failure("did not end after a request"))
    }

    /// The exit code, if it has exited by itself.
    pub(super) fn exit_code(&mut self) -> Option<i32> {
        self.child.try_wait().ok().flatten().and_then(|status| status.code())
    }

    /// Whether it has exited or does within `patience`: its sockets close shortly before.
    pub(super) fn ends_within(&mut self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        loop {
            if self.child.try_wait().ok().flatten().is_some() {
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills it, as a crash would.
    pub(super) fn kill(&mut self) {
        // Both fail only if it has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn last_lines(path: &Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}
