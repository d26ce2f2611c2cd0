//! Huge pages for the simulator. Its tables need more address translations than a processor caches
//! with 4 KiB pages; with huge pages it is up to a third faster (benches/measurements.md). The
//! system's allocator (glibc 2.35 and later) uses them if an environment variable says so before a
//! program starts.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

pub(crate) const TUNABLES: &str = "GLIBC_TUNABLES";

/// Restarts this program with huge pages, unless the variable is already set.
pub fn begin_with_huge_pages() {
    if env::var_os(TUNABLES).is_some() {
        return;
    }
    let mut words = env::args_os();
    let Some(program) = words.next() else { return };
    // `exec` returns only on failure. The program then continues with normal pages.
    let mut command = Command::new("/proc/self/exe");
    command.arg0(program).args(words).env(TUNABLES, "glibc.malloc.hugetlb=1");
    let _ = command.exec();
}
