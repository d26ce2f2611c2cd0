//! Whether this process was started with a standard output.
//!
//! Rust's runtime opens `/dev/null` in the place of a closed standard output before `main`, so that
//! a program cannot see later that its output goes nowhere. This looks before the runtime does.

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

// SAFETY: the C library calls what is in this section before `main`, with arguments that `look`
// ignores. `look` uses nothing that is set up later.
#[used]
#[unsafe(link_section = ".init_array")]
static CHECK_STDOUT: extern "C" fn() = check_stdout;
