//! The processes of a trial other than its routers.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use weir_scenario::trial::Trial;

use super::super::process::{Launch, OutputLine, Process};
use super::super::{RealError, RealOptions};
use super::role::{Role, RoleSpec};

/// How often the stop flag is checked.
const STOP_CHECK: Duration = Duration::from_millis(20);

/// Processes that end when this is dropped.
pub(super) struct ProcessGroup<'a> {
    options: &'a RealOptions,
    dir: &'a Path,
    deadline: Instant,
    seed: u64,
    members: Vec<GroupProcess>,
    received: Receiver<OutputLine>,
    sender: Sender<OutputLine>,
    /// Removed after the members, which write into them, have ended.
    folders: Vec<TempDir>,
}

struct GroupProcess {
    process: Process,
    lines: VecDeque<String>,
    has_ended: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct GroupProcessId(usize);

impl<'a> ProcessGroup<'a> {
    /// Processes that work in `dir` and must finish by `deadline`. Roles draw by `seed`.
    pub(super) fn new(
        options: &'a RealOptions,
        dir: &'a Path,
        deadline: Instant,
        seed: u64,
    ) -> Self {
        let (sender, received) = channel();
        Self {
            options,
            dir,
            deadline,
            seed,
            members: Vec::new(),
            received,
            sender,
            folders: Vec::new(),
        }
    }

    pub(super) fn dir(&self) -> &Path {
        self.dir
    }

    /// Keeps a folder until all processes have ended.
    pub(super) fn keep(&mut self, folder: TempDir) {
        self.folders.push(folder);
    }

    /// Starts a process with a role, and waits until it is ready. Returns its ready line.
    pub(super) fn start_role(
        &mut self,
        role: Role,
        trial: &Trial,
        at: &str,
        index: u32,
        key: &str,
    ) -> Result<(GroupProcessId, Value), RealError> {
        let spec = RoleSpec {
            role,
            trial: trial.clone(),
            at: at.to_owned(),
            index,
            key: key.to_owned(),
            seed: self.seed,
        };
        let path = self.dir.join(format!("process-{}.json", self.members.len()));
        let text = serde_json::to_vec(&spec).expect("a specification is plain data");
        write(&path, &text)?;
        let title = format!("the process {role:?} {index}");
        let path = path.display().to_string();
        let id = self.start(title, None, &["lab", "trial", &path])?;
        let ready = self.value(id, "ready")?;
        Ok((id, ready))
    }

    /// Starts another program.
    pub(super) fn program(
        &mut self,
        program: &Path,
        arguments: &[&str],
    ) -> Result<GroupProcessId, RealError> {
        self.start(program.display().to_string(), Some(program), arguments)
    }

    /// Starts another command of `weir`.
    pub(super) fn command(&mut self, arguments: &[&str]) -> Result<GroupProcessId, RealError> {
        self.start(format!("weir {}", arguments.join(" ")), None, arguments)
    }

    fn start(
        &mut self,
        title: String,
        other: Option<&Path>,
        arguments: &[&str],
    ) -> Result<GroupProcessId, RealError> {
        let number = self.members.len();
        let launch = Launch {
            title,
            program: &self.options.program,
            other,
            dir: self.dir,
            file: format!("process-{number}"),
            cores: &self.options.cpu_apps,
            number,
            output: &self.sender,
        };
        let process = Process::start(&launch, arguments)?;
        self.members.push(GroupProcess { process, lines: VecDeque::new(), has_ended: false });
        Ok(GroupProcessId(number))
    }

    /// The system's number of a process.
    pub(super) fn system_id(&self, id: GroupProcessId) -> u32 {
        self.members[id.0].process.id()
    }

    /// Lets the processes work for `time`. None of `working` may end.
    pub(super) fn rest(
        &mut self,
        time: Duration,
        working: &[GroupProcessId],
    ) -> Result<(), RealError> {
        let until = Instant::now() + time;
        let any = *working.first().expect("a process works");
        loop {
            let ended = working.iter().find(|id| self.members[id.0].has_ended);
            if let Some(&ended) = ended {
                return Err(self.failure(ended, "ended early"));
            }
            if Instant::now() >= until {
                return Ok(());
            }
            self.receive_output(any)?;
        }
    }

    pub(super) fn send_line(&mut self, id: GroupProcessId, line: &str) -> Result<(), RealError> {
        self.members[id.0].process.send_line(line)
    }

    /// The next line of a process with `key`.
    pub(super) fn value(&mut self, id: GroupProcessId, key: &str) -> Result<Value, RealError> {
        loop {
            while let Some(line) = self.members[id.0].lines.pop_front() {
                if let Ok(value) = serde_json::from_str::<Value>(&line)
                    && value.get(key).is_some()
                {
                    return Ok(value);
                }
            }
            let member = &mut self.members[id.0];
            if member.has_ended {
                return Err(member.process.failure("ended early"));
            }
            self.receive_output(id)?;
        }
    }

    /// Everything that a program prints until it exits, and whether it succeeded.
    pub(super) fn output(&mut self, id: GroupProcessId) -> Result<(String, bool), RealError> {
        while !self.members[id.0].has_ended {
            self.receive_output(id)?;
        }
        let member = &mut self.members[id.0];
        let text = member.lines.drain(..).collect::<Vec<_>>().join("\n");
        Ok((text, member.process.wait().is_ok()))
    }

    pub(super) fn failure(&mut self, id: GroupProcessId, what: &str) -> RealError {
        self.members[id.0].process.failure(what)
    }

    /// Receives output for a short time. `id` is the process that is waited for.
    fn receive_output(&mut self, id: GroupProcessId) -> Result<(), RealError> {
        if self.options.stop.load(Ordering::Relaxed) {
            return Err(RealError::Interrupted);
        }
        if Instant::now() > self.deadline {
            return Err(self.failure(id, "took longer than `run.duration`"));
        }
        match self.received.recv_timeout(STOP_CHECK) {
            Ok(OutputLine { process, line: Some(line) }) => {
                self.members[process].lines.push_back(line)
            }
            Ok(OutputLine { process, line: None }) => self.members[process].has_ended = true,
            // The group itself holds a sender.
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        Ok(())
    }
}

pub(super) fn write(path: &Path, octets: &[u8]) -> Result<(), RealError> {
    std::fs::write(path, octets).map_err(|source| RealError::System {
        what: format!("cannot write {}", path.display()),
        source,
    })
}

/// A program of the system, from the shell's search path or the folders of daemons.
pub(super) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from);
    let mut folders = std::env::split_paths(&path).chain(usual);
    folders.find_map(|folder| Some(folder.join(name)).filter(|file| file.is_file()))
}
