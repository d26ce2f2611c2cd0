//! Signals of the router. `docs/operate.md` has the table for all commands.

use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::{flag, low_level};

/// Signals that stop the router cleanly. By default, SIGQUIT would dump core and lose the contents
/// of memory; SIGABRT still does.
const STOPPING: [i32; 3] = [SIGINT, SIGQUIT, SIGTERM];
/// Signals that the router ignores with a log message. By default, each would end it at once.
const CONTINUING: [(i32, &str); 2] = [
    (SIGUSR1, "SIGUSR1 has no effect on a router, continuing"),
    (SIGUSR2, "SIGUSR2 has no effect on a router, continuing"),
];

/// What the signals since the last call request.
pub(super) struct PendingSignals {
    pub(super) has_to_stop: bool,
    pub(super) has_to_reload: bool,
}

/// Signals as flags, with a pipe that wakes the control thread.
pub(super) struct Signals {
    pipe: UnixStream,
    has_to_stop: Arc<AtomicBool>,
    /// SIGHUP. It also arrives when the terminal closes; then the router applies what has changed
    /// in its configuration file. Not handled if it was ignored at the start (`nohup`).
    has_to_reload: Arc<AtomicBool>,
    continuing: Vec<(Arc<AtomicBool>, &'static str)>,
    registered: Vec<SigId>,
}

impl Signals {
    /// Registers the handlers. A second stop signal matters only while the router writes memory to
    /// its disks: it ends the final flush (`Disks::begin_stop`). SIGKILL ends the router at once.
    pub(super) fn register() -> io::Result<Self> {
        let (pipe, sender) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        let mut signals = Self {
            pipe,
            has_to_stop: Arc::default(),
            has_to_reload: Arc::default(),
            continuing: Vec::new(),
            registered: Vec::new(),
        };
        if !is_kept_ignored(SIGHUP) {
            signals.add(SIGHUP, Arc::clone(&signals.has_to_reload), &sender)?;
        }
        for signal in STOPPING.into_iter().filter(|&signal| !is_kept_ignored(signal)) {
            signals.add(signal, Arc::clone(&signals.has_to_stop), &sender)?;
        }
        for (signal, text) in CONTINUING {
            let flag = Arc::default();
            signals.add(signal, Arc::clone(&flag), &sender)?;
            signals.continuing.push((flag, text));
        }
        Ok(signals)
    }

    /// Registers a flag and the pipe. Handlers run in this order, so the flag is set when the pipe
    /// wakes the thread.
    fn add(&mut self, signal: i32, flag: Arc<AtomicBool>, pipe: &UnixStream) -> io::Result<()> {
        self.registered.push(flag::register(signal, flag)?);
        self.registered.push(low_level::pipe::register(signal, pipe.try_clone()?)?);
        Ok(())
    }

    /// Readable when a signal has arrived.
    pub(super) fn descriptor(&self) -> RawFd {
        self.pipe.as_raw_fd()
    }

    /// Takes all pending signals.
    pub(super) fn take(&mut self) -> PendingSignals {
        let mut bytes = [0; 64];
        while matches!(self.pipe.read(&mut bytes), Ok(count) if count > 0) {}
        for (flag, text) in &self.continuing {
            if flag.swap(false, Ordering::Relaxed) {
                tracing::info!("{text}");
            }
        }
        PendingSignals {
            has_to_stop: self.has_to_stop.swap(false, Ordering::Relaxed),
            has_to_reload: self.has_to_reload.swap(false, Ordering::Relaxed),
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.registered.drain(..) {
            low_level::unregister(id);
        }
    }
}

/// Whether the process was started with this signal ignored and it stays so: SIGHUP by `nohup`,
/// SIGQUIT by a shell's background job. SIGINT is handled even then, because scripts use it to stop
/// background jobs.
pub fn is_kept_ignored(signal: i32) -> bool {
    if !matches!(signal, SIGHUP | SIGQUIT) {
        return false;
    }
    // Without /proc, no signal counts as ignored.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Signal n is bit n - 1 (proc(5)).
    ignored.unwrap_or(0) & (1 << (signal - 1)) != 0
}
