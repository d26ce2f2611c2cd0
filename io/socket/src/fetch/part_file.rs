//! Files that get their final names when they are complete and durable.

mod record;
mod state;

#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::fs::{Gid, Mode, OFlags, Uid, fchmod, fchown};
use weir_security::sha256;
use weir_transport::{ContentDigest, Metadata, SegmentSet};
use weir_wire::{Name, PACKET_SIZE_MAX};

use self::state::{PartState, StateHead};
use super::directory::{Directory, Entry, FileStamp};
use super::output::{Opened, Output, OutputError};
use super::sink::{Checksums, FileSink};

/// A file that is written under a temporary name until it is complete.
///
/// ```text
///   .NAME.weir-part        the segments received so far, each at its offset
///   .NAME.weir-state       which of them are stored, with a CRC-32C for each, and whose keys
///                          verified them
///   .NAME.weir-new         the next state, before it is renamed over the last
///   NAME                   the complete file
/// ```
///
/// A name that is too long for these is replaced by a digest. The files are in the same directory,
/// so that renaming is atomic.
///
/// 1. [`open`](Output::open) checks the target. If it exists and has the content that the metadata
///    state, nothing is fetched (if configured).
/// 2. It opens or creates the part file and locks it. One process at a time may download to a
///    target.
/// 3. The state file must belong to the same version, or to one with the same content digest, and
///    list verified segments (unless [`PartFile::accept_unverified`] is set). Then each listed
///    segment is read and compared with its checksum. Otherwise the part file is truncated. The
///    download must also accept one of the keys that verified them. If it has accepted no key yet,
///    it must do so before it ends. One that accepts any key uses no segments without keys.
/// 4. [`sink`](Output::sink) stores segments at their offsets, from several threads.
/// 5. [`save`](Output::save) syncs the data first and replaces the state file then: a power failure
///    may lose segments, but the state never lists a lost one.
/// 6. [`finish`](Output::finish) syncs the data, renames the part file to the target, and removes
///    the state file. The caller syncs the directory. A crash leaves the part file or the complete
///    file.
///
/// After each step that another process could have interfered with, the code compares the name with
/// the open file (`leads_to`). Another download may have finished meanwhile, or a user with write
/// permission may have swapped the file.
///
/// It must never open the target for writing, follow a symbolic link, or replace anything but a
/// regular file. It must never use a part file of another user. See
/// `docs/durability/part-files.md`.
#[derive(Debug)]
pub struct PartFile {
    target: PathBuf,
    name: OsString,
    part_name: OsString,
    state_name: OsString,
    new_state_name: OsString,
    directory: Option<Arc<Directory>>,
    versioned: Name,
    content_digest: Option<[u8; 32]>,
    segment_size: Option<u64>,
    sink: Option<Arc<FileSink>>,
    file: Option<File>,
    /// Checksums of segments that an earlier download stored.
    checksums: Checksums,
    skips_complete_target: bool,
    keeps_user_files: bool,
    accepts_unverified: bool,
    /// The keys that this download has accepted.
    keys: Vec<[u8; 32]>,
    /// The keys that verified the segments of the earlier attempt.
    resumed_keys: Vec<[u8; 32]>,
    /// The attributes of the producer's file to restore, if wanted.
    restored: Option<RestoredMetadata>,
    /// The file with the final name when the download began.
    target_at_start: Option<FileStamp>,
    on_discarded: Option<DiscardedCallback>,
}

/// The attributes of a producer's file that may be restored: execute permissions, at most for those
/// who may read the file, and the modification time.
#[derive(Clone, Copy, Debug, Default)]
struct RestoredMetadata {
    mode: Option<u64>,
    mtime_ns: Option<u64>,
}

impl RestoredMetadata {
    fn apply(self, file: &File) -> io::Result<()> {
        if let Some(mode) = self.mode {
            let now = file.metadata()?.mode() & 0o777;
            // Execute permission is useless without read permission.
            let may_read = (now & 0o444) >> 2;
            let wanted = (now & !0o111) | (mode as u32 & 0o111 & may_read);
            if wanted != now {
                fchmod(file, Mode::from_raw_mode(wanted))?;
            }
        }
        match self.mtime_ns {
            Some(ns) => file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_nanos(ns)),
            None => Ok(()),
        }
    }
}

/// Why the segments of an earlier attempt are discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscardReason {
    /// They belong to other content.
    Content,
    /// Other keys have verified them.
    Signer,
    /// They were not verified.
    Unverified,
}

/// Arguments: the path of the target, the version whose segments are discarded, their bytes, and
/// the reason.
type DiscardedCallback = fn(&Path, &Name, u64, DiscardReason);

/// Stands for the keys of segments that were verified by a trust that reports no keys.
pub(super) const NO_KEY: [u8; 32] = [0; 32];
/// Space that a file system may need for a new file besides its content.
const FREE_SPACE_MARGIN_BYTES: u64 = 64 << 10;
/// Bytes of a file name at most (Linux, NAME_MAX).
const FILE_NAME_MAX: usize = 255;
const PART_SUFFIX: &str = ".weir-part";
const STATE_SUFFIX: &str = ".weir-state";
const NEW_STATE_SUFFIX: &str = ".weir-new";
/// How often a part file is opened again when another process renamed or removed it meanwhile.
const ATTEMPTS_MAX: usize = 100;

/// Whether a file of that name would be taken for the part file or state file of another.
pub fn is_reserved_name(name: &[u8]) -> bool {
    let suffixes = [PART_SUFFIX, STATE_SUFFIX, NEW_STATE_SUFFIX];
    name.starts_with(b".") && suffixes.iter().any(|suffix| name.ends_with(suffix.as_bytes()))
}

/// The name of a part or state file for a download of `name`.
fn companion_name(name: &OsStr, suffix: &str) -> OsString {
    let mut octets = vec![b'.'];
    // The longest suffix decides for all: either all companion names contain `name`, or all contain
    // its digest.
    if 1 + name.len() + STATE_SUFFIX.len() <= FILE_NAME_MAX {
        octets.extend_from_slice(name.as_bytes());
    } else {
        let digest = sha256(&[name.as_bytes()]);
        octets.extend(digest.iter().flat_map(|octet| format!("{octet:02x}").into_bytes()));
    }
    octets.extend_from_slice(suffix.as_bytes());
    OsString::from_vec(octets)
}

/// Whether it is a regular file of this user with a single name: another user cannot have put it
/// there.
fn is_owned_regular_file(file: &File) -> io::Result<bool> {
    let metadata = file.metadata()?;
    let is_ours = metadata.uid() == nix::unistd::geteuid().as_raw();
    Ok(metadata.is_file() && metadata.nlink() == 1 && is_ours)
}

impl PartFile {
    /// An output that becomes `target`. Touches nothing yet.
    pub fn new(target: impl Into<PathBuf>) -> Self {
        let target = target.into();
        let name = target.file_name().unwrap_or_default().to_owned();
        Self::from_parts(target, name, None)
    }

    /// An output that becomes a file in `directory`. Touches nothing yet.
    pub fn in_directory(directory: Arc<Directory>, name: &OsStr) -> Self {
        Self::from_parts(directory.path().join(name), name.to_owned(), Some(directory))
    }

    fn from_parts(target: PathBuf, name: OsString, directory: Option<Arc<Directory>>) -> Self {
        Self {
            part_name: companion_name(&name, PART_SUFFIX),
            state_name: companion_name(&name, STATE_SUFFIX),
            new_state_name: companion_name(&name, NEW_STATE_SUFFIX),
            target,
            name,
            directory,
            versioned: Name::new(),
            content_digest: None,
            segment_size: None,
            sink: None,
            file: None,
            checksums: Checksums::new(),
            skips_complete_target: false,
            keeps_user_files: false,
            accepts_unverified: false,
            keys: Vec::new(),
            resumed_keys: Vec::new(),
            restored: None,
            target_at_start: None,
            on_discarded: None,
        }
    }

    /// Calls `callback`, on any thread, when stored segments are discarded.
    #[must_use]
    pub fn with_discarded_callback(mut self, callback: DiscardedCallback) -> Self {
        self.on_discarded = Some(callback);
        self
    }

    /// Fetches nothing if the target exists and has the digest in the metadata.
    #[must_use]
    pub fn skip_if_complete(mut self) -> Self {
        self.skips_complete_target = true;
        self
    }

    /// Replaces only files that an earlier download of the same object left, and that are unchanged
    /// since (decision 0035).
    #[must_use]
    pub fn keep_user_files(mut self) -> Self {
        self.keeps_user_files = true;
        self.skip_if_complete()
    }

    /// For a download that does not verify all segments. A later download that does must not trust
    /// the stored ones: only another one with this setting resumes them.
    #[must_use]
    pub fn accept_unverified(mut self) -> Self {
        self.accepts_unverified = true;
        self
    }

    /// Gives the file the producer's execute permissions and modification time, if the metadata
    /// state them.
    #[must_use]
    pub fn restore_metadata(mut self) -> Self {
        self.restored = Some(RestoredMetadata::default());
        self
    }

    fn directory(&self) -> &Directory {
        self.directory.as_deref().expect("opened before")
    }

    /// The state file, if it is for this version or for one with the same content, and this
    /// download may use its segments.
    fn load(&self) -> Option<PartState> {
        let mut octets = Vec::new();
        let file = self.directory().open_file(&self.state_name, OFlags::RDONLY, 0).ok()?;
        if !is_owned_regular_file(&file).ok()? {
            return None;
        }
        file.take(state::BYTES_MAX).read_to_end(&mut octets).ok()?;
        let (name, state) = state::decode(&octets)?;
        // A restarted producer gives an unchanged file another version. The digest is over
        // segments, so equal digests mean equal segments.
        let is_same = match (state.content_digest, self.content_digest) {
            (Some(one), Some(other)) => one == other,
            _ => name == self.versioned.as_view(),
        };
        let reason = match self.trusts(&state) {
            _ if !is_same => DiscardReason::Content,
            Ok(()) => return Some(state),
            Err(reason) => reason,
        };
        let bytes = state.stored.len().saturating_mul(state.segment_size);
        if let (Some(callback), 1..) = (self.on_discarded, bytes) {
            callback(&self.target, &name.to_name(), bytes, reason);
        }
        None
    }

    /// Whether this download may use the segments of an earlier attempt.
    fn trusts(&self, state: &PartState) -> Result<(), DiscardReason> {
        let is_accepted = |key| self.keys.contains(key);
        if self.accepts_unverified {
            Ok(())
        } else if !state.is_verified {
            Err(DiscardReason::Unverified)
        } else if self.keys.is_empty() || state.keys.iter().any(is_accepted) {
            // Without an accepted key, the download decides later.
            Ok(())
        } else {
            Err(DiscardReason::Signer)
        }
    }

    /// The keys that verified `have` and are not accepted yet.
    fn unconfirmed_keys(&self, have: &SegmentSet) -> Vec<[u8; 32]> {
        if self.accepts_unverified || have.is_empty() {
            return Vec::new();
        }
        if self.resumed_keys.is_empty() {
            return vec![NO_KEY];
        }
        let unconfirmed = self.resumed_keys.iter().filter(|&key| !self.keys.contains(key));
        unconfirmed.copied().collect()
    }

    fn state(&self, segment_size: u64, have: &SegmentSet, checksums: &[u32]) -> Vec<u8> {
        let mut keys = [&self.keys[..], &self.resumed_keys].concat();
        keys.sort_unstable();
        keys.dedup();
        let head = StateHead {
            is_verified: !self.accepts_unverified,
            keys: &keys,
            segment_size,
            content_digest: self.content_digest,
        };
        state::encode(&self.versioned, &head, have, checksums)
    }

    /// The file with the final name, if any.
    fn find_target(&self) -> Result<Option<FileStamp>, OutputError> {
        let path = || self.target.clone();
        let entry = self.directory().entry(&self.name);
        match entry.map_err(|source| OutputError::Io { path: path(), source })? {
            None => Ok(None),
            Some(Entry::File(stamp)) => Ok(Some(stamp)),
            Some(Entry::Link) => Err(OutputError::SymbolicLink { path: path() }),
            Some(Entry::Directory) => Err(OutputError::Directory { path: path() }),
            Some(Entry::Special) => Err(OutputError::Special { path: path() }),
        }
    }

    /// Opens the part file, unless the target is complete or must not be replaced.
    fn lock_part(&mut self, metadata: &Metadata) -> Result<Option<File>, OutputError> {
        for _ in 0..ATTEMPTS_MAX {
            self.target_at_start = self.find_target()?;
            if let (true, Some(_)) = (self.skips_complete_target, self.target_at_start) {
                let target = self.directory().open_file(&self.name, OFlags::RDONLY, 0);
                if let Ok(target) = &target
                    && has_content(target, metadata)
                {
                    // The attributes of another user's file stay as they are.
                    match self.restored.unwrap_or_default().apply(target) {
                        Err(error) if error.kind() != io::ErrorKind::PermissionDenied => {
                            let path = self.target.clone();
                            return Err(OutputError::Io { path, source: error });
                        }
                        _ => return Ok(None),
                    }
                }
                let is_ours = |target| record::is_unchanged(target, &self.versioned);
                if self.keeps_user_files && !target.as_ref().is_ok_and(is_ours) {
                    return Err(OutputError::Exists { path: self.target.clone() });
                }
            }
            let file = self.open_part()?;
            // Between the check and the lock, another download may have finished the same object.
            // If so, the check is repeated.
            if !self.skips_complete_target || self.find_target()? == self.target_at_start {
                return Ok(Some(file));
            }
            if file.metadata().is_ok_and(|metadata| metadata.len() == 0) {
                // The part file is new or empty. Removes it, because a complete target needs none.
                let _ = self.directory().remove(&self.part_name);
            }
        }
        Err(OutputError::InUse { path: self.target.clone() })
    }

    fn restore(&self, file: &File) -> Result<(), OutputError> {
        let restored = self.restored.unwrap_or_default().apply(file);
        restored.map_err(|source| OutputError::Io { path: self.target.clone(), source })
    }

    /// Opens and locks the part file.
    fn open_part(&self) -> Result<File, OutputError> {
        for _ in 0..ATTEMPTS_MAX {
            let opened = self.try_open_part().map_err(|source| self.error(source))?;
            if let Some(file) = opened
                && self.lock_existing(&file)?
            {
                return Ok(file);
            }
            if self.directory().entry(&self.part_name).is_ok_and(is_link) {
                return Err(OutputError::SymbolicLink { path: self.path_of(&self.part_name) });
            }
        }
        Err(OutputError::InUse { path: self.target.clone() })
    }

    /// Opens an existing part file or creates one. `None` if the caller must try again.
    ///
    /// One call with `O_CREAT` for both would fail for another user's file in a directory like
    /// `/tmp` (`fs.protected_regular`), even for the superuser. So the file is opened first, and
    /// created only if it is missing.
    fn try_open_part(&self) -> io::Result<Option<File>> {
        let directory = self.directory();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let opened = match directory.open_file(&self.part_name, OFlags::RDWR, 0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                directory.open_file(&self.part_name, flags, 0o666)
            }
            opened => opened,
        };
        let error = match opened {
            Ok(file) => return Ok(Some(file)),
            Err(error) => error,
        };
        if error.kind() == io::ErrorKind::AlreadyExists {
            // Another process created it between the two calls.
            return Ok(None);
        }
        match directory.entry(&self.part_name)? {
            // `open_part` reports the link.
            Some(Entry::Link) => Ok(None),
            // Another user's file, which cannot be opened. If it can be removed, a new one is made.
            Some(Entry::File(stamp)) if stamp.owner != nix::unistd::geteuid().as_raw() => {
                directory.remove(&self.part_name).map(|()| None)
            }
            _ => Err(error),
        }
    }

    /// Locks an open part file. Returns false if it is not usable and must be opened again.
    fn lock_existing(&self, file: &File) -> Result<bool, OutputError> {
        let (directory, error) = (self.directory(), |source| self.error(source));
        self.lock(file)?;
        // Between opening and locking, another download may have finished and renamed the file.
        if !directory.leads_to(&self.part_name, file).map_err(error)? {
            return Ok(false);
        }
        let is_own = is_owned_regular_file(file).map_err(error)?;
        if !is_own {
            // It belongs to another user, or is a second name of another file: nothing to resume.
            directory.remove(&self.part_name).map_err(error)?;
        }
        Ok(is_own)
    }

    fn lock(&self, file: &File) -> Result<(), OutputError> {
        match file.try_lock() {
            // Some file systems do not support locks.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
            Err(TryLockError::WouldBlock) => Err(OutputError::InUse { path: self.target.clone() }),
        }
    }

    fn path_of(&self, name: &OsStr) -> PathBuf {
        self.target.with_file_name(name)
    }

    fn error(&self, source: io::Error) -> OutputError {
        OutputError::Io { path: self.path_of(&self.part_name), source }
    }

    fn write_state(&self, state: &[u8]) -> io::Result<()> {
        let directory = self.directory();
        directory.remove(&self.new_state_name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let mut new = directory.open_file(&self.new_state_name, flags, 0o600)?;
        let written = new
            .write_all(state)
            .and_then(|()| directory.rename(&self.new_state_name, &self.state_name));
        if written.is_err() {
            // An incomplete state is useless.
            let _ = directory.remove(&self.new_state_name);
        }
        written
    }

    /// Removes the state of a part file that is gone. If that fails, the leftover state is
    /// harmless: its segments are not there, so their checksums do not match.
    fn remove_states(&self) {
        let _ = self.directory().remove(&self.state_name);
        let _ = self.directory().remove(&self.new_state_name);
    }

    /// Saves that every segment is stored, for a complete file that could not be renamed.
    fn save_complete(&mut self) {
        let Some(sink) = &self.sink else { return };
        let Ok(len) = sink.file().metadata().map(|metadata| metadata.len()) else { return };
        let mut have = SegmentSet::new();
        (0..segments(len, sink.segment_size())).for_each(|segment| {
            have.insert(segment);
        });
        // If this fails, the next attempt fetches the segments again.
        let _ = self.save(&have);
    }

    /// Renames the part file to the target.
    fn rename(&self, file: &File) -> Result<(), OutputError> {
        let (directory, error) = (self.directory(), |source| self.error(source));
        let replaced = || OutputError::Replaced { path: self.path_of(&self.part_name) };
        if !directory.leads_to(&self.part_name, file).map_err(error)? {
            return Err(replaced());
        }
        let found = self.find_target()?;
        if self.keeps_user_files && found != self.target_at_start {
            return Err(OutputError::Exists { path: self.target.clone() });
        }
        if let Some(stamp) = &found {
            keep_owner_and_mode(file, stamp).map_err(error)?;
        }
        self.restore(file)?;
        // Without a target, the rename itself checks that no other program has created one.
        let renamed = match (self.keeps_user_files, found) {
            (true, None) => directory.rename_new(&self.part_name, &self.name),
            _ => directory.rename(&self.part_name, &self.name),
        };
        renamed.map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => OutputError::Exists { path: self.target.clone() },
            _ => OutputError::Io { path: self.target.clone(), source },
        })?;
        // Another process may have swapped the part file right before the rename. If so, the target
        // is not the file that was verified.
        match directory.leads_to(&self.name, file).map_err(error)? {
            true => Ok(()),
            false => Err(replaced()),
        }
    }
}

fn is_link(entry: Option<Entry>) -> bool {
    entry == Some(Entry::Link)
}

/// Number of segments of a file. The last may be shorter; an empty file has one.
fn segments(len: u64, segment_size: u64) -> u64 {
    len.div_ceil(segment_size.max(1)).max(1)
}

/// Gives a file the owner, group and permissions of the file that it replaces. If this user may not
/// set the group, that group gets only the permissions of everyone.
fn keep_owner_and_mode(file: &File, stamp: &FileStamp) -> io::Result<()> {
    let now = file.metadata()?;
    let mut mode = stamp.mode;
    if (now.uid(), now.gid()) != (stamp.owner, stamp.group) {
        let owner = (now.uid() != stamp.owner).then(|| Uid::from_raw(stamp.owner));
        let group = Some(Gid::from_raw(stamp.group));
        if fchown(file, owner, group).or_else(|_| fchown(file, None, group)).is_err() {
            mode = (mode & 0o707) | ((mode & 0o007) << 3);
        }
    }
    Ok(fchmod(file, Mode::from_raw_mode(mode))?)
}

impl Output for PartFile {
    fn open(&mut self, metadata: &Metadata) -> Result<Opened, OutputError> {
        self.versioned = metadata.versioned.clone();
        self.content_digest = metadata.content_digest;
        if let Some(restored) = &mut self.restored {
            *restored = RestoredMetadata { mode: metadata.mode, mtime_ns: metadata.mtime_ns };
        }
        if is_reserved_name(self.name.as_bytes()) {
            return Err(OutputError::Reserved { path: self.target.clone() });
        }
        if self.directory.is_none() {
            let path = self.target.parent().unwrap_or(Path::new(""));
            self.directory =
                Some(Directory::open(path, true).map_err(|source| self.error(source))?);
        }
        let Some(file) = self.lock_part(metadata)? else { return Ok(Opened::Complete) };
        if let Some(stamp) = &self.target_at_start {
            // Users who may not read the old file must not read the new one while it is being
            // written.
            let mode = Mode::from_raw_mode(stamp.mode | 0o600);
            fchmod(&file, mode).map_err(|source| self.error(source.into()))?;
        }
        let have = match self.load() {
            Some(state) => {
                let have =
                    state::intact_segments(&file, &state).map_err(|source| self.error(source))?;
                self.segment_size = Some(state.segment_size);
                self.checksums = state.checksums;
                // The keys of segments that are damaged do not matter.
                self.resumed_keys = if have.is_empty() { Vec::new() } else { state.keys };
                have
            }
            None => {
                // First, because an old state must never be applied to new content.
                self.remove_states();
                file.set_len(0).map_err(|source| self.error(source))?;
                SegmentSet::new()
            }
        };
        self.file = Some(file);
        let unconfirmed_keys = self.unconfirmed_keys(&have);
        Ok(Opened::File { have, segment_size: self.segment_size, unconfirmed_keys })
    }

    fn set_keys(&mut self, keys: Vec<[u8; 32]>) {
        self.keys = keys;
    }

    fn sink(&mut self, segment_size: u64) -> Result<Arc<FileSink>, OutputError> {
        self.segment_size = Some(segment_size);
        let file = self.file.take().expect("opened before");
        let checksums = std::mem::take(&mut self.checksums);
        let sink = Arc::new(FileSink::new(file, segment_size, checksums));
        self.sink = Some(sink.clone());
        Ok(sink)
    }

    fn save(&mut self, have: &SegmentSet) -> io::Result<()> {
        let (Some(sink), Some(segment_size)) = (&self.sink, self.segment_size) else {
            return Ok(());
        };
        // The state must not list segments that a power failure can lose.
        sink.file().sync_data()?;
        let state = self.state(segment_size, have, &sink.checksums());
        self.write_state(&state)
    }

    fn save_last(&mut self, have: &SegmentSet) -> io::Result<()> {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        match self.save(have) {
            Err(error) if matches!(error.kind(), QuotaExceeded | StorageFull) => {}
            result => return result,
        }
        let (Some(sink), Some(segment_size)) = (&self.sink, self.segment_size) else {
            return Ok(());
        };
        // The disk is full. Cutting the end of the part file frees space for the state file. The
        // next attempt fetches the cut segments again.
        let state = self.state(segment_size, have, &sink.checksums());
        let len = sink.file().metadata()?.len();
        let len = len.saturating_sub(state.len() as u64 + FREE_SPACE_MARGIN_BYTES);
        sink.file().set_len(len)?;
        let mut kept = SegmentSet::new();
        for segment in have.iter().filter(|segment| (segment + 1) * segment_size <= len) {
            kept.insert(segment);
        }
        let state = self.state(segment_size, &kept, &sink.checksums());
        self.write_state(&state)
    }

    fn abandon(&mut self) {
        let file = self.file.as_ref().or(self.sink.as_ref().map(|sink| sink.file()));
        let (Some(file), Some(directory)) = (file, &self.directory) else { return };
        // If the file cannot be removed, the next attempt uses it: it is empty.
        if directory.leads_to(&self.part_name, file).is_ok_and(|is_ours| is_ours) {
            let _ = directory.remove(&self.part_name);
            self.remove_states();
        }
    }

    fn file(&self) -> Option<&FileSink> {
        self.sink.as_deref()
    }

    fn directory(&self) -> Option<&Directory> {
        self.directory.as_deref()
    }

    fn finish(&mut self, is_synced: bool) -> Result<(), OutputError> {
        let sink = self.sink.clone().expect("a complete object has a file");
        record::write(&sink, &self.versioned);
        if !is_synced {
            sink.file().sync_data().map_err(|source| self.error(source))?;
        }
        if let Err(error) = self.rename(sink.file()) {
            self.save_complete();
            return Err(error);
        }
        self.remove_states();
        Ok(())
    }
}

/// Whether the file has the content that the verified metadata state.
fn has_content(file: &File, metadata: &Metadata) -> bool {
    let stated = (metadata.size_bytes, metadata.segment_size, metadata.content_digest);
    let (Some(size_bytes), Some(segment_size), Some(digest)) = stated else { return false };
    let has_size = file.metadata().is_ok_and(|found| found.is_file() && found.len() == size_bytes);
    if !has_size || !(1..=PACKET_SIZE_MAX as u64).contains(&segment_size) {
        return false;
    }
    let mut content = vec![0; segment_size.min(size_bytes) as usize];
    let mut digests = ContentDigest::default();
    for segment in 0..segments(size_bytes, segment_size) {
        let at = segment * segment_size;
        let content = &mut content[..(size_bytes - at).min(segment_size) as usize];
        if file.read_exact_at(content, at).is_err() {
            return false;
        }
        digests.add(content);
    }
    digests.finish() == digest
}
