//! Child processes that never outlive their test. Their output is shown if the test fails.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, Once};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// How long a test waits for an event. Long enough for a slow and busy machine.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(60);

const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Waits until a condition holds.
///
/// # Panics
/// If [`TEST_TIMEOUT`] runs out first.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < deadline, "timed out waiting until {what}");
        thread::sleep(POLL_INTERVAL);
    }
}

/// A running program. It is killed on drop, and its output is printed if the test fails.
#[derive(Debug)]
pub struct Process {
    title: String,
    child: Child,
    lines: Receiver<String>,
    log: Arc<Mutex<String>>,
    errors: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

/// How a program ended and what it printed.
#[derive(Debug)]
pub struct Finished {
    pub status: ExitStatus,
    pub output: String,
    pub errors: String,
    /// Standard output and standard error, in the order of their lines.
    pub log: String,
}

impl Process {
    /// Starts a program with its output captured.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(title: &str, command: Command) -> Self {
        Self::start_with_input(title, command, Stdio::null())
    }

    /// As [`Process::start`], with standard input.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start_with_input(title: &str, mut command: Command, input: Stdio) -> Self {
        reset_ignored_signals();
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("cannot start {title}: {error}"));
        let (log, errors) = (Arc::new(Mutex::new(String::new())), Arc::default());
        let (sender, lines) = channel();
        let output = child.stdout.take().expect("standard output is piped");
        let error_output = child.stderr.take().expect("standard error is piped");
        let readers = vec![
            read_lines(output, vec![Arc::clone(&log)], Some(sender)),
            read_lines(error_output, vec![Arc::clone(&log), Arc::clone(&errors)], None),
        ];
        Self { title: title.to_owned(), child, lines, log, errors, readers }
    }

    /// The next line of standard output that is a JSON object with this `event`.
    ///
    /// # Panics
    /// If the program ends or [`TEST_TIMEOUT`] runs out first.
    pub fn event(&self, event: &str) -> Value {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => match serde_json::from_str::<Value>(&line) {
                    Ok(value) if value["event"] == event => return value,
                    Ok(value) if value["event"] == "error" => {
                        panic!("{}: {value}, not `{event}`", self.title)
                    }
                    _ => {}
                },
                Err(RecvTimeoutError::Timeout) => panic!("{}: no `{event}` came", self.title),
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("{} ended before `{event}` came", self.title)
                }
            }
        }
    }

    /// The next line of standard output that is a JSON object.
    ///
    /// # Panics
    /// If the program ends or [`TEST_TIMEOUT`] runs out first.
    pub fn json_line(&self) -> Value {
        let line = self.line_with("{");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("no JSON ({error}): {line}"))
    }

    /// Waits until `weir put --watch --json` reports a new version of this object, and returns it.
    ///
    /// # Panics
    /// If it ends, or [`TEST_TIMEOUT`] runs out first.
    pub fn wait_for_published(&self, object: &str) -> u64 {
        let version_of = |name: &Value| {
            let (published, version) = name.as_str()?.split_once("/v=")?;
            (published == object).then(|| version.parse().expect("a version"))
        };
        loop {
            let line = self.json_line();
            let mut names = line["published"].as_array().into_iter().flatten();
            if let Some(version) = names.find_map(version_of) {
                return version;
            }
        }
    }

    /// Waits until `weir put --watch --json` reports that this object is withdrawn.
    ///
    /// # Panics
    /// If it ends, or [`TEST_TIMEOUT`] runs out first.
    pub fn wait_for_withdrawn(&self, object: &str) {
        let is_it =
            |line: &Value| line["withdrawn"].as_array().expect("names").contains(&object.into());
        while !is_it(&self.json_line()) {}
    }

    /// The lines of standard output that have not been read yet.
    pub fn pending_lines(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    /// The next line of standard output that contains `text`.
    ///
    /// # Panics
    /// If the program ends or [`TEST_TIMEOUT`] runs out first.
    pub fn line_with(&self, text: &str) -> String {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if line.contains(text) => return line,
                Ok(_) => {}
                Err(error) => panic!("{}: no line with `{text}` came: {error}", self.title),
            }
        }
    }

    /// Everything printed so far, on both standard output and standard error.
    pub fn log(&self) -> String {
        self.log.lock().expect("log").clone()
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether the program still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("state of the child").is_none()
    }

    /// Sends a signal, unless the program has ended.
    pub fn signal(&mut self, signal: Signal) {
        if self.is_running() {
            let id = i32::try_from(self.child.id()).expect("a process id");
            kill(Pid::from_raw(id), signal).expect("signal sent");
        }
    }

    /// Ends the program with SIGTERM, and returns its output.
    ///
    /// # Panics
    /// If the exit code is not 0.
    pub fn stop(mut self) -> String {
        self.signal(Signal::SIGTERM);
        self.finish().success().log
    }

    /// Ends the program with SIGKILL.
    pub fn kill(mut self) -> Finished {
        self.signal(Signal::SIGKILL);
        self.finish()
    }

    /// Waits until the output contains `text`.
    ///
    /// # Panics
    /// If [`TEST_TIMEOUT`] runs out first.
    pub fn wait_for_output(&self, text: &str) {
        let deadline = Instant::now() + TEST_TIMEOUT;
        while !self.log().contains(text) {
            assert!(Instant::now() < deadline, "no {text:?} came:\n{}", self.log());
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits for the end.
    ///
    /// # Panics
    /// If [`TEST_TIMEOUT`] runs out first.
    pub fn finish(self) -> Finished {
        self.finish_within(TEST_TIMEOUT)
    }

    /// Waits for the end, at most `limit`.
    ///
    /// # Panics
    /// If `limit` runs out first.
    pub fn finish_within(mut self, limit: Duration) -> Finished {
        let deadline = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("state of the child") {
                break status;
            }
            assert!(Instant::now() < deadline, "{} did not end within {limit:?}", self.title);
            thread::sleep(POLL_INTERVAL);
        };
        for reader in self.readers.drain(..) {
            reader.join().expect("reader of output");
        }
        let output: Vec<String> = self.lines.try_iter().collect();
        let errors = self.errors.lock().expect("errors").clone();
        Finished { status, output: output.join("\n"), errors, log: self.log() }
    }
}

impl Finished {
    /// Checks for success, and returns itself.
    ///
    /// # Panics
    /// If the exit code is not 0.
    pub fn success(self) -> Self {
        assert!(self.status.success(), "{}:\n{}", self.status, self.log);
        self
    }

    /// Checks for an error exit, and returns the output.
    ///
    /// # Panics
    /// If it succeeded, was killed by a signal, or panicked.
    #[must_use]
    pub fn failure(self) -> String {
        assert!(!self.status.success(), "it should have failed:\n{}", self.log);
        assert!(
            self.status.code().is_some(),
            "{} instead of a message:\n{}",
            self.status,
            self.log
        );
        assert!(!self.log.contains("panicked at"), "a panic is no message:\n{}", self.log);
        self.log
    }

    /// Standard output as JSON.
    ///
    /// # Panics
    /// If it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.output)
            .unwrap_or_else(|error| panic!("no JSON ({error}):\n{}", self.log))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both calls fail only if the program has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("---- {} ----\n{}", self.title, self.log());
        }
    }
}

/// Makes SIGINT and SIGHUP work in child processes if this process ignores them, as shells do for
/// background jobs, and nohup. Children inherit an ignored signal, and programs such as Python then
/// never get it. They do not inherit handlers, so a handler that does nothing restores the default
/// for them.
fn reset_ignored_signals() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        for signal in [Signal::SIGINT as i32, Signal::SIGHUP as i32] {
            // Signal n is bit n - 1 (proc(5)).
            if ignored.unwrap_or(0) & 1 << (signal - 1) != 0 {
                let unread = Arc::new(AtomicBool::new(false));
                signal_hook::flag::register(signal, unread).expect("a handler");
            }
        }
    });
}

fn read_lines(
    source: impl Read + Send + 'static,
    logs: Vec<Arc<Mutex<String>>>,
    lines: Option<Sender<String>>,
) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut source = BufReader::new(source);
        let mut octets = Vec::new();
        while source.read_until(b'\n', &mut octets).is_ok_and(|count| count > 0) {
            let line = String::from_utf8_lossy(&octets).trim_end().to_owned();
            for log in &logs {
                let mut log = log.lock().expect("log");
                log.push_str(&line);
                log.push('\n');
            }
            if let Some(lines) = &lines {
                // The test may have stopped listening.
                let _ = lines.send(line);
            }
            octets.clear();
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SIGINT ends `sleep`, unless it inherits that the signal is ignored.
    #[test]
    #[ignore = "the other test runs it"]
    fn a_child_ends_by_an_interrupt() {
        let mut command = Command::new("sleep");
        command.arg("600");
        let mut child = Process::start("sleep", command);
        child.signal(Signal::SIGINT);
        assert!(!child.finish().status.success());
    }

    #[test]
    fn children_do_not_inherit_ignored_sigint() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' INT; exec \"$0\" \"$@\""]);
        shell.arg(std::env::current_exe().expect("this program"));
        let inner = "process::tests::a_child_ends_by_an_interrupt";
        shell.args(["--exact", inner, "--include-ignored"]);
        let finished = Process::start("the test within", shell).finish_within(2 * TEST_TIMEOUT);
        let log = finished.success().log;
        assert!(log.contains("1 passed"), "{log}");
    }
}
