//! What signals do to each command. `docs/operate.md` has the table.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::flag;
use weir_runtime::is_kept_ignored;

/// They ask a command to end.
const ENDING: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];
/// By default they end a process without a word. Without SIGXFSZ, what is written beyond the limit
/// on the size of files (`ulimit -f`) fails with EFBIG, which commands report as they report a full
/// disk. SIGUSR1 and SIGUSR2 mean nothing. (Rust ignores SIGPIPE already.)
const WITHOUT_EFFECT: [i32; 3] = [SIGXFSZ, SIGUSR1, SIGUSR2];

/// The signal that asked the command to end; 0 if none did.
static ENDED_BY: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// What all commands need. Handlers that do nothing, because programs that are started from here
/// would inherit that a signal is ignored.
pub(crate) fn begin() -> anyhow::Result<()> {
    for signal in WITHOUT_EFFECT {
        flag::register(signal, Arc::default()).context("cannot handle signals")?;
    }
    Ok(())
}

/// Signals that ask this process to end. Those that were ignored when it started (`nohup`) stay
/// ignored.
pub(crate) fn ending() -> impl Iterator<Item = i32> {
    ENDING.into_iter().filter(|&signal| !is_kept_ignored(signal))
}

/// Sets `stop` at the first signal that asks the process to end. The second ends it at once.
pub(crate) fn stop_on_signals(stop: &Arc<AtomicBool>) -> anyhow::Result<()> {
    let ended_by = ENDED_BY.get_or_init(Arc::default);
    for signal in ending() {
        let number = usize::try_from(signal)?;
        // In this order the first signal only sets the flag.
        flag::register_conditional_shutdown(signal, i32::from(code_of(number)), stop.clone())
            .and_then(|_| flag::register_usize(signal, ended_by.clone(), number))
            .and_then(|_| flag::register(signal, stop.clone()))
            .context("cannot handle signals")?;
    }
    Ok(())
}

/// The exit code of a command that a signal has interrupted: as shells have it, 128 and the number
/// of the signal.
pub(crate) fn exit_code() -> u8 {
    let signal = ENDED_BY.get().map_or(0, |signal| signal.load(Ordering::Relaxed));
    // Ctrl-C may have ended a child of this process instead.
    code_of(if signal == 0 { SIGINT as usize } else { signal })
}

fn code_of(signal: usize) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}
