//! Detects whether this process was started without a standard output.
//!
//! Rust's runtime replaces a closed standard output with `/dev/null` before `main`, so a program
//! cannot detect it later. This check runs before the runtime.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::libc;

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether standard output was closed when this process was started (`>&-` in a shell).
pub fn standard_output_was_closed() -> bool {
    WAS_CLOSED.load(Ordering::Relaxed)
}

extern "C" fn check_stdout() {
    // SAFETY: the call takes a number and no memory.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    WAS_CLOSED.store(flags == -1, Ordering::Relaxed);
}

// SAFETY: the C library calls functions in this section before `main`, with arguments that
// `check_stdout` ignores. It uses nothing that is initialized later.
#[used]
#[unsafe(link_section = ".init_array")]
static CHECK_STDOUT: extern "C" fn() = check_stdout;
