//! The lock of a store's files: one router for each store, one producer for each repository.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use crate::error::LockHolder;

/// How long to wait for a holder that is alive. It may be about to exit.
const LOCK_TIMEOUT: Duration = Duration::from_millis(200);

/// How long to wait if the holder is dead or unknown: the kernel still completes its disk
/// operations.
const DEAD_HOLDER_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub enum LockOutcome {
    Acquired,
    /// Another process holds the lock. The process is `None` if it is not known.
    HeldByOther(Option<LockHolder>),
}

/// Locks the file until all descriptors of this opening are closed. Waits a moment for a holder
/// that may be about to exit.
pub fn lock(file: &File) -> io::Result<LockOutcome> {
    let begin = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(LockOutcome::Acquired),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) => {}
        }
        let holder = holder(file);
        let is_alive = holder.as_ref().is_some_and(|(_, is_alive)| *is_alive);
        let patience = if is_alive { LOCK_TIMEOUT } else { DEAD_HOLDER_TIMEOUT };
        if begin.elapsed() > patience {
            return Ok(LockOutcome::HeldByOther(holder.map(|(holder, _)| holder)));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The holder of the lock, as far as the system says, and whether it is alive.
fn holder(file: &File) -> Option<(LockHolder, bool)> {
    let metadata = file.metadata().ok()?;
    let (major, minor) = (libc::major(metadata.dev()), libc::minor(metadata.dev()));
    let inode = format!("{major:02x}:{minor:02x}:{}", metadata.ino());
    let pid = holder_in(&std::fs::read_to_string("/proc/locks").ok()?, &inode)?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok();
    let is_alive = name.is_some();
    Some((LockHolder { pid, name: name.map(|name| name.trim().to_owned()) }, is_alive))
}

/// The holder of the lock on `inode` (device and inode number) in the text of `/proc/locks`.
fn holder_in(locks: &str, inode: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        match fields[..] {
            [_, "FLOCK", _, "WRITE", pid, at, ..] if at == inode => pid.parse().ok(),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_found_among_locks_of_others() {
        let locks = "1: POSIX  ADVISORY  WRITE 77 fe:00:5 0 EOF\n\
                     2: FLOCK  ADVISORY  READ  78 fe:00:5 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 80 fe:00:5 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 79 fe:00:5 0 EOF\n";
        assert_eq!(holder_in(locks, "fe:00:5"), Some(79));
        assert_eq!(holder_in(locks, "fe:00:6"), None);
    }

    #[test]
    fn second_lock_names_its_holder() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let first = file.reopen().unwrap();
        assert!(matches!(lock(&first), Ok(LockOutcome::Acquired)));
        match lock(&file.reopen().unwrap()).unwrap() {
            LockOutcome::HeldByOther(Some(holder)) => assert_eq!(holder.pid, std::process::id()),
            LockOutcome::HeldByOther(None) => {
                eprintln!("this system does not say who holds a lock")
            }
            LockOutcome::Acquired => panic!("locked twice"),
        }
        drop(first);
        assert!(matches!(lock(&file.reopen().unwrap()), Ok(LockOutcome::Acquired)));
    }
}
