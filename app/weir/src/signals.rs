//! Signal handling of all commands. `docs/operate.md` has a table.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::flag;
use weir_runtime::is_kept_ignored;

/// Signals that stop a command.
const STOP_SIGNALS: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];
/// Signals without effect. By default they would kill the process without a message. With a handler
/// for SIGXFSZ, a write beyond the file size limit (`ulimit -f`) fails with EFBIG, and commands
/// report it like a full disk. SIGUSR1 and SIGUSR2 have no meaning. (Rust already ignores SIGPIPE.)
const IGNORED_SIGNALS: [i32; 3] = [SIGXFSZ, SIGUSR1, SIGUSR2];

/// The signal that stopped the command, or 0.
static RECEIVED_SIGNAL: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// Installs handlers that do nothing for [`IGNORED_SIGNALS`]. If the process ignored these signals
/// instead, child processes would ignore them too.
pub(crate) fn install_no_op_handlers() -> anyhow::Result<()> {
    for signal in IGNORED_SIGNALS {
        flag::register(signal, Arc::default()).context("cannot handle signals")?;
    }
    Ok(())
}

/// Signals that stop this process. A signal that was ignored at the start, as with `nohup`, stays
/// ignored.
pub(crate) fn stop_signals() -> impl Iterator<Item = i32> {
    STOP_SIGNALS.into_iter().filter(|&signal| !is_kept_ignored(signal))
}

/// Sets `stop` at the first signal of [`stop_signals`]. The second ends the process immediately.
pub(crate) fn stop_on_signals(stop: &Arc<AtomicBool>) -> anyhow::Result<()> {
    let ended_by = RECEIVED_SIGNAL.get_or_init(Arc::default);
    for signal in stop_signals() {
        let number = usize::try_from(signal)?;
        // Handlers run in this order: at the first signal, the shutdown finds the flag still clear.
        flag::register_conditional_shutdown(signal, i32::from(exit_code_for(number)), stop.clone())
            .and_then(|_| flag::register_usize(signal, ended_by.clone(), number))
            .and_then(|_| flag::register(signal, stop.clone()))
            .context("cannot handle signals")?;
    }
    Ok(())
}

/// The exit code of a command that a signal stopped: 128 + N for signal N, as in shells.
pub(crate) fn exit_code() -> u8 {
    let signal = RECEIVED_SIGNAL.get().map_or(0, |signal| signal.load(Ordering::Relaxed));
    // Without a recorded signal, Ctrl-C ended a child process first.
    exit_code_for(if signal == 0 { SIGINT as usize } else { signal })
}

fn exit_code_for(signal: usize) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}
