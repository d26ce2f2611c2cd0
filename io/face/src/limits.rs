use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises this process's soft limit on open files to the hard limit, and returns it. Each face
/// needs a file descriptor.
pub fn raise_file_limit() -> io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(hard)
}
