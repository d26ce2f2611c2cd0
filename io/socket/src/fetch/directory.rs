//! An open directory: files are created, renamed and removed in it, even if its path changes.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

/// An open directory.
///
/// Names are single components. No symbolic link is followed below the directory: a link that
/// another user creates, even during a download, has no effect.
#[derive(Debug)]
pub struct Directory {
    descriptor: OwnedFd,
    path: PathBuf,
}

/// The kind of a directory entry.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    File(FileStamp),
    Link,
    Directory,
    /// A device, a pipe or a socket.
    Special,
}

/// Owner, permissions and everything else that changes when a file is replaced or written.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileStamp {
    device: u64,
    inode: u64,
    size: i64,
    modified: (i64, u64),
    pub(crate) owner: u32,
    pub(crate) group: u32,
    /// Permission bits, without set-user-ID, set-group-ID and sticky bit.
    pub(crate) mode: u32,
}

impl Directory {
    /// Opens a directory by its path. Follows links in `path`; in its last component only if
    /// `follow_last`.
    pub fn open(path: &Path, follow_last: bool) -> io::Result<Arc<Self>> {
        let at = if path == Path::new("") { Path::new(".") } else { path };
        let no_follow = if follow_last { OFlags::empty() } else { OFlags::NOFOLLOW };
        let descriptor = fs::openat(CWD, at, directory_flags() | no_follow, Mode::empty())?;
        Ok(Arc::new(Self { descriptor, path: path.to_owned() }))
    }

    /// Opens a subdirectory.
    ///
    /// # Errors
    /// The error of the system; `NotADirectory` for a symbolic link.
    pub fn open_in(&self, name: &OsStr) -> io::Result<Arc<Self>> {
        let flags = directory_flags() | OFlags::NOFOLLOW;
        let descriptor = fs::openat(&self.descriptor, name, flags, Mode::empty())?;
        Ok(Arc::new(Self { descriptor, path: self.path.join(name) }))
    }

    /// Creates a subdirectory.
    pub fn make_in(&self, name: &OsStr) -> io::Result<()> {
        Ok(fs::mkdirat(&self.descriptor, name, Mode::from_raw_mode(0o777))?)
    }

    /// Removes an empty subdirectory.
    pub fn remove_empty(&self, name: &OsStr) -> io::Result<()> {
        Ok(fs::unlinkat(&self.descriptor, name, AtFlags::REMOVEDIR)?)
    }

    /// The path by which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Syncs the whole file system that contains it.
    pub fn sync_file_system(&self) -> io::Result<()> {
        match self.readable() {
            Some(directory) => Ok(fs::syncfs(directory)?),
            None => Ok(()),
        }
    }

    /// Syncs its entries, so that the name of a file survives a power failure.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let Some(directory) = self.readable() else { return Ok(()) };
        match fs::fsync(directory) {
            // Some network and user-space file systems do not support this call.
            Err(Errno::INVAL | Errno::NOTSUP | Errno::NOSYS) => Ok(()),
            result => Ok(result?),
        }
    }

    /// The directory, opened for calls that its descriptor does not permit. `None` if this user may
    /// write to it but not read it.
    fn readable(&self) -> Option<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        fs::openat(&self.descriptor, ".", flags, Mode::empty()).ok()
    }

    /// Opens a file. Never blocks, as opening a pipe would.
    pub(crate) fn open_file(&self, name: &OsStr, flags: OFlags, mode: u32) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        Ok(fs::openat(&self.descriptor, name, flags, Mode::from_raw_mode(mode))?.into())
    }

    /// The entry of that name, if any.
    pub(crate) fn entry(&self, name: &OsStr) -> io::Result<Option<Entry>> {
        let found = match fs::statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => found,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(Some(match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => Entry::File(FileStamp {
                device: found.st_dev,
                inode: found.st_ino,
                size: found.st_size,
                modified: (found.st_mtime, found.st_mtime_nsec),
                owner: found.st_uid,
                group: found.st_gid,
                mode: found.st_mode & 0o777,
            }),
            FileType::Symlink => Entry::Link,
            FileType::Directory => Entry::Directory,
            _ => Entry::Special,
        }))
    }

    /// Whether the name refers to this open file.
    pub(crate) fn leads_to(&self, name: &OsStr, file: &File) -> io::Result<bool> {
        let found = fs::statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW);
        let open = file.metadata()?;
        Ok(found.is_ok_and(|found| (found.st_dev, found.st_ino) == (open.dev(), open.ino())))
    }

    /// Renames a file, and replaces a file with the new name.
    pub(crate) fn rename(&self, old: &OsStr, new: &OsStr) -> io::Result<()> {
        Ok(fs::renameat(&self.descriptor, old, &self.descriptor, new)?)
    }

    /// Renames a file, unless the new name exists.
    pub(crate) fn rename_new(&self, old: &OsStr, new: &OsStr) -> io::Result<()> {
        let (from, flags) = (&self.descriptor, RenameFlags::NOREPLACE);
        match fs::renameat_with(from, old, from, new, flags) {
            // The file system does not support this call. A file created in between is lost.
            Err(Errno::INVAL | Errno::NOSYS) => match self.entry(new)? {
                Some(_) => Err(Errno::EXIST.into()),
                None => self.rename(old, new),
            },
            result => Ok(result?),
        }
    }

    /// Removes a file, if it exists.
    pub(crate) fn remove(&self, name: &OsStr) -> io::Result<()> {
        match fs::unlinkat(&self.descriptor, name, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            result => Ok(result?),
        }
    }
}

/// A descriptor for a directory that needs no read permission.
fn directory_flags() -> OFlags {
    OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC
}
