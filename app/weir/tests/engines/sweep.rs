//! A sweep under test, in a folder of its own.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// On a busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(180);

/// `examples/tree` at smoke size: 8 runs.
pub(crate) struct Sweep {
    folder: tempfile::TempDir,
    environment: Vec<(String, String)>,
    whole: BTreeMap<String, Vec<u8>>,
}

impl Sweep {
    /// Runs all of it in one process, for comparison.
    pub(crate) fn new(environment: &[(&str, &Path)]) -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let texts = |(name, value): &(&str, &Path)| {
            ((*name).to_owned(), value.to_str().expect("a text").to_owned())
        };
        let environment = environment.iter().map(texts).collect();
        let mut sweep = Self { folder, environment, whole: BTreeMap::new() };
        let run = sweep.start("whole", &["examples/tree", "--out", "whole"]);
        assert!(run.end().0, "the run in one process");
        sweep.whole = records(&sweep.folder.path().join("whole"));
        assert_eq!(sweep.whole.len(), 8);
        sweep
    }

    pub(crate) fn out(&self) -> PathBuf {
        self.folder.path().join("out with space")
    }

    /// Starts `weir lab run` with an engine, one run at a time in each of four shares.
    pub(crate) fn start_on(&self, engine: &str) -> Running {
        let words = ["examples/tree", "--engine", engine, "--parts", "4", "--jobs", "1", "--out"];
        self.start(engine, &[&words[..], &["out with space"]].concat())
    }

    pub(crate) fn start(&self, name: &str, arguments: &[&str]) -> Running {
        let log = self.folder.path().join(format!("{name}.txt"));
        let output = File::create(&log).expect("a log");
        let child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .current_dir(self.folder.path())
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .args(["lab", "run", "--smoke"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(output)
            .spawn()
            .expect("weir starts");
        Running { child, log }
    }

    /// Locks the folder of a share, as a job that still runs does.
    pub(crate) fn hold_share(&self, share: usize) -> File {
        let folder = self.out().join(format!("parts/{share}-of-4"));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("lock");
        std::fs::write(&path, "process 1 of host test\n").expect("a lock");
        let file = File::open(&path).expect("a lock");
        file.lock().expect("locked");
        file
    }

    /// The process of a share that waits for its lock.
    pub(crate) fn wait_for_share(&self, share: usize) -> i32 {
        let log = self.out().join(format!("parts/{share}-of-4.log"));
        wait_until("the share waits for the lock", || {
            std::fs::read_to_string(&log).is_ok_and(|text| text.contains("waiting for process"))
        });
        let part = format!("--part\0{share}/4\0");
        let out = self.out().display().to_string();
        let mut found = None;
        wait_until("a process of the share", || {
            found = processes().find(|(_, line)| line.contains(&part) && line.contains(&out));
            found.is_some()
        });
        found.expect("found").0
    }

    /// Leaves a damaged record in the folder of a share, as a node that failed does.
    pub(crate) fn damage_record(&self, share: usize) {
        let folder = self.out().join(format!("parts/{share}-of-4"));
        // The second task of four has the first point and the second seed.
        let names: Vec<&String> = self.whole.keys().collect();
        let name = names[share - 1];
        std::fs::create_dir_all(folder.join("tasks")).expect("a folder");
        std::fs::copy(self.out().join("run.json"), folder.join("run.json")).expect("copied");
        let record = &self.whole[name];
        std::fs::write(folder.join("tasks").join(name), &record[..record.len() / 2])
            .expect("written");
    }

    pub(crate) fn records_merged(&self) -> usize {
        records(&self.out()).len()
    }

    /// Checks that nothing differs from the run in one process, and that no share is left.
    pub(crate) fn assert_equal(&self) {
        assert!(records(&self.out()) == self.whole, "records differ");
        assert!(!self.out().join("parts").exists());
    }
}

/// A `weir lab run` in progress.
pub(crate) struct Running {
    pub(crate) child: Child,
    log: PathBuf,
}

impl Running {
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits for the end: whether it ended well, and its error output.
    pub(crate) fn end(mut self) -> (bool, String) {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("waited") {
                return (status.success(), self.log());
            }
            if start.elapsed() > TIME_LIMIT {
                let _ = self.child.kill();
                panic!("no end: {}", self.log());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for a success.
    pub(crate) fn succeed(self) -> String {
        let (is_success, log) = self.end();
        assert!(is_success, "{log}");
        log
    }

    /// Waits for a failure.
    pub(crate) fn fail(self) -> String {
        let (is_success, log) = self.end();
        assert!(!is_success, "{log}");
        log
    }
}

/// Every record in a folder of results, byte for byte.
fn records(out: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(out.join("tasks")).into_iter().flatten().flatten();
    let record = |entry: std::fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        (name, std::fs::read(entry.path()).expect("readable"))
    };
    entries.map(record).collect()
}

/// The processes of this machine, with their command lines.
fn processes() -> impl Iterator<Item = (i32, String)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        Some((id, String::from_utf8_lossy(&line).into_owned()))
    })
}

/// The parent of a process.
pub(crate) fn parent(id: i32) -> i32 {
    let text = std::fs::read_to_string(format!("/proc/{id}/status")).expect("a process");
    let line = text.lines().find_map(|line| line.strip_prefix("PPid:")).expect("a parent");
    line.trim().parse().expect("a number")
}

pub(crate) fn kill(id: i32) {
    use nix::sys::signal::{Signal, kill};
    kill(nix::unistd::Pid::from_raw(id), Signal::SIGKILL).expect("killed");
}

pub(crate) fn wait_until(what: &str, mut is_met: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_met() {
        assert!(start.elapsed() < TIME_LIMIT, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
