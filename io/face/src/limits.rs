use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises this process's limit of open files to what it may raise it to, and returns the limit.
/// Each face needs one.
pub fn raise_file_limit() -> io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(hard)
}
