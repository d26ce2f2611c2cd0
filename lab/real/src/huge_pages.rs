//! The simulator's tables are more than a processor has addresses of at hand when pages have 4 KiB:
//! with huge pages it does up to a third more (docs/measurements.md). The system's allocator (glibc
//! 2.35 and later) asks for them where a variable of the environment says so before a program
//! begins.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

pub(crate) const TUNABLES: &str = "GLIBC_TUNABLES";

/// Begins this program anew, with huge pages, unless the variable says something already.
pub fn begin_with_huge_pages() {
    if env::var_os(TUNABLES).is_some() {
        return;
    }
    let mut words = env::args_os();
    let Some(program) = words.next() else { return };
    // It returns where the system does not begin the program: then it goes on as it is.
    let mut command = Command::new("/proc/self/exe");
    command.arg0(program).args(words).env(TUNABLES, "glibc.malloc.hugetlb=1");
    let _ = command.exec();
}
