//! What signals do to each command. `docs/operate.md` has the table.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::flag;
use weir_runtime::is_kept_ignored;

/// They ask a command to end.
const STOP_SIGNALS: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];
/// By default they end a process without a word. Without SIGXFSZ, what is written beyond the limit
/// on the size of files (`ulimit -f`) fails with EFBIG, which commands report as they report a full
/// disk. SIGUSR1 and SIGUSR2 mean nothing. (Rust ignores SIGPIPE already.)
const IGNORED_SIGNALS: [i32; 3] = [SIGXFSZ, SIGUSR1, SIGUSR2];

/// The signal that asked the command to end; 0 if none did.
static RECEIVED_SIGNAL: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// What all commands need. Handlers that do nothing, because programs that are started from here
/// would inherit that a signal is ignored.
pub(crate) fn install_no_op_handlers() -> anyhow::Result<()> {
    for signal in IGNORED_SIGNALS {
        flag::register(signal, Arc::default()).context("cannot handle signals")?;
    }
    Ok(())
}

/// Signals that ask this process to end. Those that were ignored when it started (`nohup`) stay
/// ignored.
pub(crate) fn stop_signals() -> impl Iterator<Item = i32> {
    STOP_SIGNALS.into_iter().filter(|&signal| !is_kept_ignored(signal))
}

/// Sets `stop` at the first signal that asks the process to end. The second ends it at once.
pub(crate) fn stop_on_signals(stop: &Arc<AtomicBool>) -> anyhow::Result<()> {
    let ended_by = RECEIVED_SIGNAL.get_or_init(Arc::default);
    for signal in stop_signals() {
        let number = usize::try_from(signal)?;
        // In this order the first signal only sets the flag.
        flag::register_conditional_shutdown(signal, i32::from(exit_code_for(number)), stop.clone())
            .and_then(|_| flag::register_usize(signal, ended_by.clone(), number))
            .and_then(|_| flag::register(signal, stop.clone()))
            .context("cannot handle signals")?;
    }
    Ok(())
}

/// The exit code of a command that a signal has interrupted: as shells have it, 128 and the number
/// of the signal.
pub(crate) fn exit_code() -> u8 {
    let signal = RECEIVED_SIGNAL.get().map_or(0, |signal| signal.load(Ordering::Relaxed));
    // Ctrl-C may have ended a child of this process instead.
    exit_code_for(if signal == 0 { SIGINT as usize } else { signal })
}

fn exit_code_for(signal: usize) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}
