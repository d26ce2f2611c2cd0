use std::fmt;
use std::io;
use std::path::PathBuf;

use weir_base::units::approximate_bytes;
use weir_store::disk::superblock::{DISKS_MAX, REGION_BYTES_MAX, REGION_BYTES_MIN};

/// The process that holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    pub pid: u32,
    /// Its name, if the system reports it.
    pub name: Option<String>,
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "process {} ({name})", self.pid),
            None => write!(f, "process {}", self.pid),
        }
    }
}

fn holder_text(holder: &Option<LockHolder>) -> String {
    holder.as_ref().map_or_else(|| "another process".into(), ToString::to_string)
}

/// Why the disks of a store cannot be used. Each message says what to do next.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No disk, or too many.
    #[error("a store has 1 to {DISKS_MAX} disks, not {0}; name at least one file or device")]
    DiskCount(usize),
    /// No shard, or too many.
    #[error("a store is divided between 1 to 65536 worker threads, not {0}")]
    Shards(u32),
    #[error("{}: {reason}", path.display())]
    Config { path: PathBuf, reason: String },
    /// The size of a region is out of range.
    #[error(
        "{}: regions are multiples of 4096 bytes from {REGION_BYTES_MIN} to {REGION_BYTES_MAX}, \
         not {region_bytes}; leave the size out for a default", path.display()
    )]
    RegionBytes { path: PathBuf, region_bytes: u64 },
    /// One file or device is named twice.
    #[error(
        "{}: disk {first} and disk {second} (from 0) are the same file or device; give each disk \
         of a store its own", path.display()
    )]
    Duplicate {
        /// The disk, as it is named the second time.
        path: PathBuf,
        /// The number of its first occurrence.
        first: usize,
        /// The number of its second occurrence.
        second: usize,
    },
    /// The size of a new file is missing.
    #[error("{}: no size; configure how many bytes the file may use", path.display())]
    SizeNeeded { path: PathBuf },
    #[error("{}: cannot {what}: {source}", path.display())]
    System { path: PathBuf, what: &'static str, source: io::Error },
    /// The folder of a new file does not exist.
    #[error("{}: its folder does not exist; create it, or mount the file system", path.display())]
    NoFolder { path: PathBuf },
    /// A symbolic link to a path that does not exist.
    #[error(
        "{}: a symbolic link to {}, which does not exist; mount the file system, or remove the \
         link", path.display(), target.display()
    )]
    DanglingLink { path: PathBuf, target: PathBuf },
    /// The path is neither a file nor a block device.
    #[error(
        "{}: {kind}, not a file or block device; name a file in it or another path",
        path.display()
    )]
    NotADisk { path: PathBuf, kind: &'static str },
    /// The process may not open it.
    #[error(
        "{}: permission denied; give it to the user that the router runs as (chown), or run the \
         router as its owner", path.display()
    )]
    Permission { path: PathBuf },
    #[error(
        "{}: not empty and not a disk of Weir, so nothing was written to it; name another path, or \
         empty it first if its content is not needed (rm FILE, or wipefs -a DEVICE and \
         dd if=/dev/zero of=DEVICE bs=1M count=1)", path.display()
    )]
    Foreign { path: PathBuf },
    #[error(
        "{}: created by another version of Weir (format {version}); use that version, or remove \
         the file to start empty", path.display()
    )]
    Version { path: PathBuf, version: u32 },
    /// Both copies of the superblock are damaged.
    #[error(
        "{}: both copies of its superblock are damaged; check the disk, then remove the file (or \
         zero the first MiB and the last of the device) to start empty", path.display()
    )]
    Damaged { path: PathBuf },
    #[error(
        "{}: in use by {}; stop that router, or give this one another path",
        path.display(),
        holder_text(holder)
    )]
    Locked {
        path: PathBuf,
        /// The process, if known.
        holder: Option<LockHolder>,
    },
    /// The device is mounted or part of another device.
    #[error("{}: the system uses this device (is it mounted?); unmount it first", path.display())]
    DeviceInUse { path: PathBuf },
    /// It belongs to another store than the disks named before it.
    #[error(
        "{}: belongs to another store than {}; name the disks of one store, or remove one of the \
         files to start empty with it", path.display(), first.display()
    )]
    SetMismatch {
        path: PathBuf,
        /// The disk that it was compared with.
        first: PathBuf,
    },
    /// The disks are named in another order than before.
    #[error(
        "{}: is disk {disk} of its store, but named as disk {position} (from 0); name the disks in \
         their former order", path.display()
    )]
    WrongOrder { path: PathBuf, disk: u32, position: u32 },
    /// A disk of the set is missing.
    #[error(
        "disk {disk} (from 0) of the {disks} disks of this store is missing{}; mount or name it, \
         or, if it is lost, put an empty file in its place",
        path.as_ref().map(|path| format!(" ({})", path.display())).unwrap_or_default()
    )]
    Missing {
        disk: u32,
        disks: u32,
        /// Its path, if it was named.
        path: Option<PathBuf>,
    },
    /// The store was created for another number of threads, between which its disks are divided.
    #[error(
        "{}: the store was created with {existing} worker thread{}, not {wanted}, and keeps that \
         number; set `threads = {existing}` again, or remove all files of the store (zero the \
         first MiB of devices) to start empty",
        path.display(),
        if *existing == 1 { "" } else { "s" }
    )]
    ThreadsMismatch {
        path: PathBuf,
        existing: u32,
        /// The configured number of threads.
        wanted: u32,
    },
    /// The disk was created with regions of another size.
    #[error(
        "{}: created with `region_size = {existing}`, not {wanted}, and keeps that; set it again \
         or leave it out, or remove all files of the store (zero the first MiB of devices) to \
         start empty", path.display()
    )]
    RegionsMismatch {
        path: PathBuf,
        /// Bytes of its regions.
        existing: u64,
        wanted: u64,
    },
    /// The disk was created with smaller blocks than direct I/O requires here.
    #[error(
        "{}: created with blocks of {existing} bytes, but direct I/O requires {wanted} here; set \
         `direct = false` for this disk, or remove all files of the store (zero the first MiB of \
         devices) to start empty", path.display()
    )]
    BlocksMismatch {
        path: PathBuf,
        /// Bytes of its blocks.
        existing: u32,
        /// Bytes that direct I/O requires.
        wanted: u32,
    },
    /// The file system has no space for the file.
    #[error(
        "{}: no space for {}: the file system lacks {}; free them, or configure a smaller disk",
        path.display(),
        approximate_bytes(*bytes),
        approximate_bytes(*missing_bytes)
    )]
    NoSpace {
        path: PathBuf,
        bytes: u64,
        /// How many more bytes are needed.
        missing_bytes: u64,
    },
    /// The process or the file system does not permit a file of this size.
    #[error(
        "{}: a file of {} is larger than this process (ulimit -f) or the file system allows; the \
         file system has {} free; raise the limit, or configure a smaller disk",
        path.display(),
        approximate_bytes(*bytes),
        approximate_bytes(*free_bytes)
    )]
    FileSizeLimit {
        path: PathBuf,
        bytes: u64,
        /// Bytes that the file system has free.
        free_bytes: u64,
    },
    /// It has no space for two regions for each thread.
    #[error(
        "{}: {bytes} bytes are too few, at least {bytes_min} are needed (two regions for each \
         worker thread); make it larger, or its regions smaller", path.display()
    )]
    TooSmall { path: PathBuf, bytes: u64, bytes_min: u64 },
    /// It is read-only and holds no store.
    #[error("{}: read-only, and there is no store on it; make it writable", path.display())]
    ReadOnlyEmpty { path: PathBuf },
    /// No random numbers for the keys.
    #[error("the system provides no random numbers: {0}")]
    Random(String),
}

impl OpenError {
    /// The `errno` of the system call, if one failed.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::System { source, .. } => source.raw_os_error(),
            Self::NoFolder { .. } | Self::DanglingLink { .. } => Some(libc::ENOENT),
            Self::Permission { .. } => Some(libc::EACCES),
            Self::NoSpace { .. } => Some(libc::ENOSPC),
            Self::FileSizeLimit { .. } => Some(libc::EFBIG),
            Self::ReadOnlyEmpty { .. } => Some(libc::EROFS),
            Self::DeviceInUse { .. } | Self::Locked { .. } => Some(libc::EBUSY),
            _ => None,
        }
    }
}

/// What the operator should know although the disks can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenWarning {
    #[error(
        "{}: the file system cannot reserve {bytes} bytes; writes will fail when it is full",
        path.display()
    )]
    Sparse { path: PathBuf, bytes: u64 },
    #[error("{}: no direct I/O on this file system; the page cache is used", path.display())]
    Buffered { path: PathBuf },
    #[error("{}: read-only; its data is served, nothing is stored", path.display())]
    ReadOnly { path: PathBuf },
    /// Other users may read the file, which contains keys.
    #[error("{}: mode {mode:o} lets others read the store's keys; run chmod 600", path.display())]
    Mode { path: PathBuf, mode: u32 },
    /// The file is shorter than before.
    #[error(
        "{}: only {bytes} of {bytes_before} bytes are left; extended again, but the lost data is \
         gone", path.display()
    )]
    Truncated { path: PathBuf, bytes: u64, bytes_before: u64 },
    #[error("{}: enlarged from {bytes_before} to {bytes} bytes", path.display())]
    Grown { path: PathBuf, bytes_before: u64, bytes: u64 },
    /// The disk was reduced. The regions at its end are gone.
    #[error(
        "{}: reduced from {bytes_before} to {bytes} bytes; the data at its end is gone",
        path.display()
    )]
    Shrunk { path: PathBuf, bytes_before: u64, bytes: u64 },
    /// An empty disk replaced a disk of the set, or was added.
    #[error("{}: a new disk of the store, empty", path.display())]
    NewDisk { path: PathBuf },
    #[error("the store starts empty: {reason}")]
    Emptied { reason: String },
    /// One copy of the superblock was damaged and has been rewritten.
    #[error("{}: one copy of the superblock was damaged and has been rewritten", path.display())]
    Repaired { path: PathBuf },
}
