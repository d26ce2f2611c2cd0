//! Files that are complete or absent: written to a temporary file, synced, then renamed.

use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::KeyChainError;

/// Prefix of temporary files.
const TEMPORARY_PREFIX: &str = ".new-";

/// What happens if the file exists.
#[derive(Copy, Clone, Eq, PartialEq)]
pub(super) enum IfPresent {
    Replace,
    Fail,
}

/// Adds the path and the operation to an I/O error.
pub(super) fn io_error<'a>(
    doing: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> KeyChainError + 'a {
    move |source| KeyChainError::Io { doing, path: path.to_owned(), source }
}

/// Creates the directory and its parents durably, readable by this user only.
pub(super) fn make_private_dir(path: &Path) -> Result<(), KeyChainError> {
    let missing: Vec<&Path> = path.ancestors().take_while(|dir| is_missing(dir)).collect();
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(io_error("create", path))?;
    for parent in missing.iter().filter_map(|dir| dir.parent()) {
        let parent = if parent == Path::new("") { Path::new(".") } else { parent };
        match File::open(parent).and_then(|dir| dir.sync_all()) {
            // A directory that may be written but not read cannot be synced.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            synced => synced.map_err(io_error("sync", parent))?,
        }
    }
    Ok(())
}

fn is_missing(dir: &Path) -> bool {
    dir != Path::new("") && matches!(dir.try_exists(), Ok(false))
}

/// Writes a file that only its owner can read, atomically and durably.
pub(super) fn write(
    lock: &Lock,
    path: &Path,
    octets: &[u8],
    if_present: IfPresent,
) -> Result<(), KeyChainError> {
    let dir = path.parent().expect("files of the key chain lie in its directory");
    make_private_dir(dir)?;
    lock.remove_unfinished(dir);
    let mut file = tempfile::Builder::new()
        .prefix(TEMPORARY_PREFIX)
        .permissions(Permissions::from_mode(0o600))
        .tempfile_in(dir)
        .map_err(io_error("write in", dir))?;
    // `NamedTempFile` would hide the error number of the system.
    let written = file.as_file_mut().write_all(octets);
    written.and_then(|()| file.as_file().sync_all()).map_err(io_error("write", path))?;
    let renamed = match if_present {
        IfPresent::Replace => file.persist(path),
        IfPresent::Fail => file.persist_noclobber(path),
    };
    renamed.map_err(|error| io_error("write", path)(error.error))?;
    sync_dir(dir)
}

/// Deletes a file. Returns whether it existed.
pub(super) fn remove(_: &Lock, path: &Path) -> Result<bool, KeyChainError> {
    match fs::remove_file(path) {
        Ok(()) => {
            path.parent().map_or(Ok(()), sync_dir)?;
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(io_error("delete", path)(error)),
    }
}

/// The text of a file of at most `len_max` bytes; `None` if there is no file.
pub(super) fn read_text(path: &Path, len_max: usize) -> Result<Option<String>, KeyChainError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_error("read", path)(error)),
    };
    let mut text = String::new();
    let read =
        file.take(len_max as u64 + 1).read_to_string(&mut text).map_err(io_error("read", path))?;
    if read > len_max {
        return Err(io_error("read", path)(io::Error::other("the file is too large")));
    }
    Ok(Some(text))
}

/// The files of a directory with this extension, sorted; none if the directory does not exist.
pub(super) fn list(dir: &Path, extension: &str) -> Result<Vec<PathBuf>, KeyChainError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io_error("read", dir)(error)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(io_error("read", dir))?.path();
        if path.extension().is_some_and(|found| found == extension) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Rejects a file that others may read or write.
pub(super) fn check_private(path: &Path) -> Result<(), KeyChainError> {
    let mode = fs::metadata(path).map_err(io_error("read", path))?.permissions().mode() & 0o777;
    if mode & 0o077 == 0 {
        Ok(())
    } else {
        Err(KeyChainError::Exposed { path: path.to_owned(), mode })
    }
}

/// The right to change a key chain. One thread of one process has it at a time, until it drops it.
/// `None` where the file system has no locks.
pub(super) struct Lock(Option<File>);

impl Lock {
    /// Removes temporary files of killed processes. Only the holder of the lock writes files.
    fn remove_unfinished(&self, dir: &Path) {
        let Some(entries) = self.0.as_ref().and_then(|_| fs::read_dir(dir).ok()) else { return };
        for entry in entries.flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(TEMPORARY_PREFIX.as_bytes()) {
                // A remaining file only wastes space.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file is not enough: a child process forked while it was locked also has it
        // open, and would keep the lock. The child could even block itself.
        let _ = self.0.as_ref().map(File::unlock);
    }
}

/// Locks a key chain while it is read and changed. The holder must not call this again.
pub(super) fn lock(path: &Path) -> Result<Lock, KeyChainError> {
    if let Some(dir) = path.parent() {
        make_private_dir(dir)?;
    }
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(io_error("open", path))?;
    match file.lock() {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(Lock(None)),
        locked => locked.map(|()| Lock(Some(file))).map_err(io_error("lock", path)),
    }
}

fn sync_dir(dir: &Path) -> Result<(), KeyChainError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(io_error("sync", dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlocks_despite_forked_child() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let lock = lock(&path).unwrap();
        // Shares the open file, and so the lock, as the child of a `fork` does.
        let of_child = lock.0.as_ref().unwrap().try_clone().unwrap();
        let other = File::open(&path).unwrap();
        assert!(other.try_lock().is_err());
        drop(lock);
        other.try_lock().unwrap();
        drop(of_child);
    }
}
