//! One file or block device: opens and locks it, checks its contents, and reserves its space.

use std::fs::{File, FileType, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{FallocateFlags, FcntlArg, OFlag, fallocate, fcntl};
use nix::unistd::{Whence, lseek};
use weir_store::disk::superblock::{COPY_OFFSET_V1, SUPERBLOCK_BYTES, Superblock, SuperblockFault};

use crate::buffer::Buffer;
use crate::checksum;
use crate::config::DiskFileConfig;
use crate::error::{OpenError, OpenWarning};
use crate::lock::{LockOutcome, lock};

/// Bytes at each end of a device that must be zero for it to count as empty.
const PROBE_BYTES: usize = 1 << 20;

/// A disk that is ready to be read and written.
pub(crate) struct ReadyDisk {
    pub(crate) config: DiskFileConfig,
    pub(crate) file: File,
    pub(crate) block_bytes: u32,
    pub(crate) is_writable: bool,
}

/// A disk that is open and locked, before anything was written to it.
pub(crate) struct OpenDisk {
    pub(crate) path: PathBuf,
    pub(crate) file: File,
    pub(crate) is_device: bool,
    /// Whether the file was just created.
    pub(crate) is_new: bool,
    pub(crate) is_writable: bool,
    pub(crate) bytes: u64,
    /// The required alignment of reads and writes.
    pub(crate) block_bytes: u32,
    pub(crate) superblock: Option<Superblock>,
    identity: (u64, u64),
}

impl OpenDisk {
    pub(crate) fn open(
        config: &DiskFileConfig,
        others: &[Self],
        warnings: &mut Vec<OpenWarning>,
    ) -> Result<Self, OpenError> {
        let path = &config.path;
        // Open and lock before reading anything, so that two processes never use the same disk.
        let (file, is_new, is_writable) = match config.unnamed {
            true => (make_unnamed(path)?, true, true),
            false => open_file(path)?,
        };
        let system = |what| move |source| system_error(path, what, source);
        let metadata = file.metadata().map_err(system("read its metadata"))?;
        let is_device = metadata.file_type().is_block_device();
        let identity = match is_device {
            true => (u64::MAX, metadata.rdev()),
            false => (metadata.dev(), metadata.ino()),
        };
        // Different paths may lead to the same file or device.
        if let Some(first) = others.iter().position(|other| other.identity == identity) {
            return Err(OpenError::Duplicate { path: path.clone(), first, second: others.len() });
        }
        match lock(&file).map_err(system("lock it"))? {
            LockOutcome::Acquired => {}
            LockOutcome::HeldByOther(holder) => {
                return Err(OpenError::Locked { path: path.clone(), holder });
            }
        }
        if is_device {
            check_not_mounted(path, is_writable)?;
        }
        let end = lseek(&file, 0, Whence::SeekEnd)
            .map_err(|error| system("determine its size")(io::Error::from(error)))?;
        let block_bytes = configure_direct_io(&file, is_device, config.direct, path, warnings);
        let mut disk = Self {
            path: path.clone(),
            file,
            is_device,
            is_new,
            is_writable,
            bytes: end.unsigned_abs(),
            block_bytes,
            superblock: None,
            identity,
        };
        disk.superblock = disk.read_superblock(config.bytes, warnings)?;
        if disk.superblock.is_none() {
            disk.check_empty()?;
        }
        if !is_writable {
            if disk.superblock.is_none() {
                return Err(OpenError::ReadOnlyEmpty { path: path.clone() });
            }
            warnings.push(OpenWarning::ReadOnly { path: path.clone() });
        }
        disk.check_mode(metadata.mode() & 0o777, warnings);
        Ok(disk)
    }

    /// Keeps other users from reading the keys: restricts the mode of a new disk, and warns about
    /// an existing one.
    fn check_mode(&self, mode: u32, warnings: &mut Vec<OpenWarning>) {
        if self.is_device || mode & 0o077 == 0 {
            return;
        }
        let secret = Permissions::from_mode(0o600);
        if self.superblock.is_some() || self.file.set_permissions(secret).is_err() {
            warnings.push(OpenWarning::Mode { path: self.path.clone(), mode });
        }
    }

    /// Reads both copies of the superblock and returns the newer one. The first copy says where the
    /// second one is. If the first is damaged, tries the places of both format versions.
    fn read_superblock(
        &self,
        bytes_wanted: Option<u64>,
        warnings: &mut Vec<OpenWarning>,
    ) -> Result<Option<Superblock>, OpenError> {
        let copy_at = |offset| {
            let octets = self.read(offset, SUPERBLOCK_BYTES)?;
            Ok(Superblock::decode(&octets, checksum))
        };
        let first = copy_at(0)?;
        let in_use = if self.is_device { bytes_wanted.unwrap_or(self.bytes) } else { self.bytes };
        let mut others = vec![COPY_OFFSET_V1, last_copy_offset(in_use)];
        if let Ok(first) = &first {
            // The first copy says where the second one is.
            others = vec![first.copy_offset];
        }
        let mut faults = Vec::new();
        let mut best: Option<Superblock> = None;
        for copy in std::iter::once(Ok(first)).chain(others.into_iter().map(copy_at)) {
            match copy? {
                Ok(superblock) => {
                    if best.as_ref().is_none_or(|best| superblock.generation > best.generation) {
                        best = Some(superblock);
                    }
                }
                Err(fault) => faults.push(fault),
            }
        }
        let path = || self.path.clone();
        if best.is_some() {
            if !faults.is_empty() {
                warnings.push(OpenWarning::Repaired { path: path() });
            }
            return Ok(best);
        }
        for fault in &faults {
            if let SuperblockFault::Version(version) = *fault {
                return Err(OpenError::Version { path: path(), version });
            }
        }
        if faults.iter().any(|fault| *fault != SuperblockFault::Foreign) {
            return Err(OpenError::Damaged { path: path() });
        }
        Ok(None)
    }

    /// Rejects a disk that holds other data. A file must have no data at all; of a device, both
    /// ends must be zero.
    fn check_empty(&self) -> Result<(), OpenError> {
        let is_empty = if self.is_device {
            let last = self.bytes.saturating_sub(PROBE_BYTES as u64).next_multiple_of(4096);
            self.is_zero(0)? && self.is_zero(last)?
        } else {
            self.bytes == 0
                || matches!(lseek(&self.file, 0, Whence::SeekData), Err(nix::errno::Errno::ENXIO))
        };
        if is_empty { Ok(()) } else { Err(OpenError::Foreign { path: self.path.clone() }) }
    }

    fn is_zero(&self, offset: u64) -> Result<bool, OpenError> {
        Ok(self.read(offset, PROBE_BYTES)?.iter().all(|&octet| octet == 0))
    }

    /// Up to `len` bytes at `offset`; fewer at the end of the file.
    fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, OpenError> {
        let mut buffer = Buffer::new(len, None);
        let mut done = 0;
        while done < len {
            match self.file.read_at(&mut buffer[done..len], offset + done as u64) {
                Ok(0) => break,
                Ok(octets) => done += octets,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(system_error(&self.path, "read it", source)),
            }
            if !done.is_multiple_of(self.block_bytes as usize) {
                break; // The end of the file, where direct I/O cannot continue.
            }
        }
        Ok(buffer[..done].to_vec())
    }

    /// Writes both copies of the superblock, the second first, and waits until each is on the disk.
    pub(crate) fn write_superblock(&mut self, superblock: Superblock) -> Result<(), OpenError> {
        let octets = superblock.encode(checksum);
        let mut buffer = Buffer::new(SUPERBLOCK_BYTES, None);
        buffer[..SUPERBLOCK_BYTES].copy_from_slice(&octets[..]);
        for offset in [superblock.copy_offset, 0] {
            let written = self.file.write_all_at(&buffer[..SUPERBLOCK_BYTES], offset);
            written
                .and_then(|()| self.file.sync_data())
                .map_err(|source| system_error(&self.path, "write its superblock", source))?;
        }
        self.superblock = Some(superblock);
        Ok(())
    }

    /// Sets the length of a file, and reserves its space if the file system can.
    pub(crate) fn set_len(
        &mut self,
        bytes: u64,
        warnings: &mut Vec<OpenWarning>,
    ) -> Result<(), OpenError> {
        if bytes < self.bytes {
            let cut = self.file.set_len(bytes);
            cut.map_err(|source| system_error(&self.path, "shrink it", source))?;
        } else {
            self.reserve(bytes, warnings)?;
        }
        self.bytes = bytes;
        Ok(())
    }

    fn reserve(&self, bytes: u64, warnings: &mut Vec<OpenWarning>) -> Result<(), OpenError> {
        let free_bytes = self.free_bytes();
        let too_large = || OpenError::FileSizeLimit { path: self.path.clone(), bytes, free_bytes };
        let len = i64::try_from(bytes).map_err(|_| too_large())?;
        // Reserve all space now: a file system that becomes full later would fail each write.
        let reserved = loop {
            match fallocate(&self.file, FallocateFlags::empty(), 0, len) {
                Err(nix::errno::Errno::EINTR) => {}
                other => break other,
            }
        };
        match reserved {
            Ok(()) => Ok(()),
            // Without `fallocate`, the file grows with its writes.
            Err(nix::errno::Errno::EOPNOTSUPP) => {
                warnings.push(OpenWarning::Sparse { path: self.path.clone(), bytes });
                let grown = self.file.set_len(bytes);
                grown.map_err(|source| match source.kind() {
                    io::ErrorKind::FileTooLarge => too_large(),
                    _ => system_error(&self.path, "grow it", source),
                })
            }
            Err(error) => {
                let missing_bytes = self.missing_bytes(bytes);
                self.undo_reservation();
                use nix::errno::Errno::{EDQUOT, EFBIG, ENOSPC};
                Err(match error {
                    ENOSPC | EDQUOT => {
                        OpenError::NoSpace { path: self.path.clone(), bytes, missing_bytes }
                    }
                    EFBIG => too_large(),
                    other => system_error(&self.path, "reserve its space", other.into()),
                })
            }
        }
    }

    /// Releases reserved space after a failure.
    fn undo_reservation(&self) {
        if let Err(error) = self.file.set_len(self.bytes) {
            tracing::warn!(path = %self.path.display(), %error, "cannot release reserved space");
        }
    }

    fn missing_bytes(&self, bytes: u64) -> u64 {
        let taken = self.file.metadata().map_or(0, |metadata| metadata.blocks() * 512);
        bytes.saturating_sub(taken).saturating_sub(self.free_bytes()).max(1)
    }

    /// Bytes that the file system has free for this process.
    fn free_bytes(&self) -> u64 {
        nix::sys::statvfs::fstatvfs(&self.file)
            .map_or(0, |status| status.blocks_available() * status.fragment_size())
    }
}

/// Where the second copy of the superblock lies if `bytes` bytes are in use.
pub(crate) fn last_copy_offset(bytes: u64) -> u64 {
    let copy_bytes = SUPERBLOCK_BYTES as u64;
    (bytes / copy_bytes * copy_bytes).saturating_sub(copy_bytes)
}

fn system_error(path: &Path, what: &'static str, source: io::Error) -> OpenError {
    OpenError::System { path: path.into(), what, source }
}

/// Checks whether a disk is there, or whether its file could be created. Opens nothing, because a
/// running router may hold it.
///
/// # Errors
/// [`OpenError`], as [`open`](crate::open) would return it.
pub fn check(config: &DiskFileConfig) -> Result<(), OpenError> {
    let path = &config.path;
    let error = match std::fs::metadata(path) {
        Ok(metadata) => return check_kind(path, metadata.file_type()),
        Err(error) => error,
    };
    if error.kind() != io::ErrorKind::NotFound {
        return Err(open_error(path, error));
    }
    if let Ok(target) = std::fs::read_link(path) {
        return Err(OpenError::DanglingLink { path: path.clone(), target });
    }
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Err(OpenError::NoFolder { path: path.clone() });
    }
    if config.bytes.is_none() {
        return Err(OpenError::SizeNeeded { path: path.clone() });
    }
    Ok(())
}

/// Rejects what cannot be a disk.
fn check_kind(path: &Path, kind: FileType) -> Result<(), OpenError> {
    let kind = match () {
        () if kind.is_file() || kind.is_block_device() => return Ok(()),
        () if kind.is_dir() => "a folder",
        () if kind.is_char_device() => "a character device",
        () => "a pipe or socket",
    };
    Err(OpenError::NotADisk { path: path.into(), kind })
}

/// Opens for reading and writing, or else for reading only. Returns whether the file is new and
/// whether it is writable.
fn open_file(path: &Path) -> Result<(File, bool, bool), OpenError> {
    if let Ok(metadata) = std::fs::metadata(path) {
        check_kind(path, metadata.file_type())?;
    }
    // Never create the target of a link: the file system of the target may not be mounted.
    let is_link = std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600).custom_flags(libc::O_CLOEXEC);
    let error = match options.open(path) {
        Ok(file) => return Ok((file, false, true)),
        Err(error) => error,
    };
    match error.kind() {
        io::ErrorKind::NotFound if is_link => {
            let target = std::fs::read_link(path).unwrap_or_default();
            Err(OpenError::DanglingLink { path: path.into(), target })
        }
        io::ErrorKind::NotFound => match options.create_new(true).open(path) {
            Ok(file) => Ok((file, true, true)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(OpenError::NoFolder { path: path.into() })
            }
            Err(error) => Err(open_error(path, error)),
        },
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            // A disk that cannot be written still serves its records.
            match OpenOptions::new().read(true).open(path) {
                Ok(file) => Ok((file, false, false)),
                Err(_) => Err(open_error(path, error)),
            }
        }
        _ => Err(open_error(path, error)),
    }
}

/// Creates a file without a name in the folder of the path.
fn make_unnamed(path: &Path) -> Result<File, OpenError> {
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    // O_EXCL: the file can never be given a name.
    options.custom_flags(libc::O_TMPFILE | libc::O_EXCL | libc::O_CLOEXEC);
    // If the folder has another problem, the second attempt finds it again and reports the path.
    options.open(folder).or_else(|_| make_and_unlink(path))
}

/// The same on any file system: removes the name before anything is written.
fn make_and_unlink(path: &Path) -> Result<File, OpenError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600).custom_flags(libc::O_CLOEXEC);
    let file = options.open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => OpenError::NoFolder { path: path.into() },
        _ => open_error(path, error),
    })?;
    let removed = std::fs::remove_file(path);
    removed.map_err(|source| system_error(path, "remove its name", source))?;
    Ok(file)
}

fn open_error(path: &Path, source: io::Error) -> OpenError {
    if source.kind() == io::ErrorKind::PermissionDenied {
        return OpenError::Permission { path: path.into() };
    }
    system_error(path, "open it", source)
}

/// Rejects a mounted device, which the system opens exclusively.
fn check_not_mounted(path: &Path, is_writable: bool) -> Result<(), OpenError> {
    let mut options = OpenOptions::new();
    options.read(true).write(is_writable).custom_flags(libc::O_EXCL | libc::O_CLOEXEC);
    match options.open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            Err(OpenError::DeviceInUse { path: path.into() })
        }
        Err(error) => Err(open_error(path, error)),
    }
}

/// Turns direct I/O on if it is wanted and possible. Returns the required alignment.
fn configure_direct_io(
    file: &File,
    is_device: bool,
    is_direct: bool,
    path: &Path,
    warnings: &mut Vec<OpenWarning>,
) -> u32 {
    const BUFFERED: u32 = 512;
    if !is_direct {
        return BUFFERED;
    }
    if let Some(block_bytes) = direct_block_bytes(file, is_device)
        && set_direct(file)
    {
        return block_bytes;
    }
    warnings.push(OpenWarning::Buffered { path: path.into() });
    BUFFERED
}

fn set_direct(file: &File) -> bool {
    let Ok(flags) = fcntl(file, FcntlArg::F_GETFL) else { return false };
    let flags = OFlag::from_bits_retain(flags) | OFlag::O_DIRECT;
    fcntl(file, FcntlArg::F_SETFL(flags)).is_ok()
}

/// The block size of direct I/O, 512 or 4096 bytes; `None` if it is not available.
fn direct_block_bytes(file: &File, is_device: bool) -> Option<u32> {
    let known = if is_device { sector_bytes(file) } else { None };
    match known.or_else(|| statx_block_bytes(file)) {
        Some(0) => None,
        Some(1..=512) => Some(512),
        Some(513..=4096) => Some(4096),
        Some(_) => None,
        // The file system does not say. A page is enough for all that are known.
        None => Some(4096),
    }
}

fn sector_bytes(device: &File) -> Option<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the call writes an int to where the pointer says.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), libc::BLKSSZGET, &raw mut bytes) };
    if result == 0 { u32::try_from(bytes).ok().filter(|&bytes| bytes > 0) } else { None }
}

/// 0 if the file has no direct I/O; `None` if the kernel does not say.
fn statx_block_bytes(file: &File) -> Option<u32> {
    let mut status = std::mem::MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path is empty and ends with 0; the kernel writes one statx to the pointer.
    let result = unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            status.as_mut_ptr(),
        )
    };
    if result != 0 {
        return None;
    }
    // SAFETY: integers alone, cleared before and written by the kernel.
    let status = unsafe { status.assume_init() };
    let is_known = status.stx_mask & libc::STATX_DIOALIGN != 0;
    is_known.then_some(status.stx_dio_offset_align)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However the program ends, no file is left: it has no name before it has content.
    #[test]
    fn an_unnamed_file_has_no_name_while_it_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        for make in [make_unnamed, make_and_unlink] {
            let metadata = make(&path).unwrap().metadata().unwrap();
            assert_eq!((metadata.len(), metadata.nlink()), (0, 0));
            assert_eq!(metadata.mode() & 0o777, 0o600);
            assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        }
        let config = DiskFileConfig { unnamed: true, ..DiskFileConfig::new(&path, Some(8 << 20)) };
        let disk = OpenDisk::open(&config, &[], &mut Vec::new()).unwrap();
        let metadata = disk.file.metadata().unwrap();
        assert_eq!((metadata.len(), metadata.nlink()), (0, 0));
    }

    #[test]
    fn unnamed_file_errors_name_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let nowhere = folder.path().join("nowhere/disk");
        assert!(
            matches!(make_unnamed(&nowhere), Err(OpenError::NoFolder { path }) if path == nowhere)
        );
        let file = folder.path().join("file");
        std::fs::write(&file, b"something else").unwrap();
        let below = file.join("disk");
        let Err(error) = make_unnamed(&below) else { panic!("a file is no folder") };
        assert_eq!(error.errno(), Some(libc::ENOTDIR));
        assert!(error.to_string().contains(below.to_str().unwrap()), "{error}");
    }
}
