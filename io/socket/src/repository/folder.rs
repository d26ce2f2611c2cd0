//! A repository in a folder.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::errno::Errno;
use nix::fcntl::posix_fallocate;
use weir_disk::{LockOutcome, lock};

use super::layout::{LoadedObjects, MARK, MARK_TEXT, OBJECTS};
use super::{RepositoryError, read_error, write_error};
use crate::object::location::{DAMAGED_SUFFIX, OBJECT_SUFFIX, ObjectLocation};
use crate::object::stored::StoredObject;

/// The suffix of files that are being written.
const UNFINISHED_SUFFIX: &str = "new";

#[derive(Debug)]
pub(super) struct Folder {
    objects_path: PathBuf,
    /// Locked while the repository is in use. A second writer has none.
    mark_file: Option<File>,
    /// The file system was mounted read-only at the start.
    is_read_only: bool,
}

/// A file that is written under a temporary name.
#[derive(Debug)]
pub(super) struct FileDraft {
    pub(super) written: PathBuf,
    pub(super) path: PathBuf,
    file: File,
    is_settled: bool,
}

impl Drop for FileDraft {
    fn drop(&mut self) {
        if !self.is_settled {
            let _ = fs::remove_file(&self.written);
        }
    }
}

impl FileDraft {
    pub(super) fn append(&mut self, octets: &[u8]) -> io::Result<()> {
        self.file.write_all(octets)
    }

    /// As if the process had been killed here.
    #[cfg(test)]
    pub(super) fn forget(&mut self) {
        self.is_settled = true;
    }
}

impl Folder {
    pub(super) fn open(path: &Path) -> Result<Self, RepositoryError> {
        let (mark, is_read_only) = open_mark(path)?;
        let objects_path = path.join(OBJECTS);
        if !objects_path.is_dir() {
            fs::create_dir_all(&objects_path).map_err(write_error(&objects_path))?;
            // Both names must be durable before anything in the folder is reported as stored.
            fsync_folder(path)?;
            for above in std::path::absolute(path).iter().flat_map(|path| path.ancestors().skip(1))
            {
                // Errors do not matter: a parent that cannot be read existed before.
                let _ = fsync_folder(above);
            }
        }
        Ok(Self { objects_path, mark_file: Some(mark), is_read_only })
    }

    /// Opens a folder that another process has locked.
    pub(super) fn open_unlocked(path: &Path) -> Self {
        Self { objects_path: path.join(OBJECTS), mark_file: None, is_read_only: false }
    }

    /// Whether this process has locked it.
    pub(super) fn has_lock(&self) -> bool {
        self.mark_file.is_some()
    }

    /// An object that another process has put there.
    pub(super) fn find(&self, name: &str) -> Result<Option<StoredObject>, RepositoryError> {
        let path = self.objects_path.join(name);
        let is_one = Path::new(name).file_name().is_some_and(|file| file == name)
            && path.extension().is_some_and(|ending| ending == OBJECT_SUFFIX);
        if !is_one {
            return Ok(None);
        }
        StoredObject::open(&path).map_err(read_error(&path))
    }

    /// Reads the beginning of each file, and removes unfinished ones.
    pub(super) fn load(&self) -> Result<LoadedObjects, RepositoryError> {
        let folder = &self.objects_path;
        let entries = fs::read_dir(folder).map_err(read_error(folder))?;
        let (mut paths, mut loaded) = (Vec::new(), LoadedObjects::default());
        for entry in entries {
            let path = entry.map_err(read_error(folder))?.path();
            match path.extension().and_then(|ending| ending.to_str()) {
                Some(UNFINISHED_SUFFIX) if self.is_read_only || !self.has_lock() => {}
                Some(UNFINISHED_SUFFIX) => {
                    fs::remove_file(&path).map_err(write_error(&path))?;
                    loaded.unfinished += 1;
                }
                Some(OBJECT_SUFFIX | DAMAGED_SUFFIX) => paths.push(path),
                _ => {}
            }
        }
        for (path, found) in read_headers(&paths) {
            match found {
                Ok(Some(stored)) => loaded.intact.push(stored),
                // One unreadable file must not keep the others from being used.
                Ok(None) | Err(_) => loaded.unreadable.push(path.clone()),
            }
        }
        Ok(loaded)
    }

    pub(super) fn begin(&self, stem: &str, bytes: u64) -> Result<FileDraft, RepositoryError> {
        let file_path = self.objects_path.join(stem);
        let ending = match self.has_lock() {
            true => UNFINISHED_SUFFIX.to_owned(),
            // A second writer adds its process number, because the owner may write an object of the
            // same name.
            false => format!("{}.{UNFINISHED_SUFFIX}", std::process::id()),
        };
        let (written, path) =
            (file_path.with_extension(ending), file_path.with_extension(OBJECT_SUFFIX));
        let mut how = File::options();
        how.read(true).write(true).create(true).truncate(true);
        let file = how.open(&written).map_err(write_error(&written))?;
        let draft = FileDraft { written, path, file, is_settled: false };
        reserve(&draft.file, bytes).map_err(write_error(&draft.written))?;
        Ok(draft)
    }

    /// Gives written files their names, once they are on disk.
    pub(super) fn commit(
        &self,
        all: Vec<FileDraft>,
    ) -> Result<Vec<ObjectLocation>, RepositoryError> {
        match &all[..] {
            [] => return Ok(Vec::new()),
            [one] => one.file.sync_data().map_err(write_error(&one.written))?,
            // For several files, one sync of the file system is faster than one for each.
            [first, ..] => nix::unistd::syncfs(&first.file)
                .map_err(|errno| write_error(&self.objects_path)(errno.into()))?,
        }
        let mut locations = Vec::with_capacity(all.len());
        for mut draft in all {
            fs::rename(&draft.written, &draft.path).map_err(write_error(&draft.path))?;
            draft.is_settled = true;
            locations.push(ObjectLocation::File(draft.path.clone()));
        }
        fsync_folder(&self.objects_path)?;
        Ok(locations)
    }
}

/// Makes the names in a folder durable.
fn fsync_folder(path: &Path) -> Result<(), RepositoryError> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(write_error(path))
}

/// Opens and locks the file that makes a folder a repository. Also returns whether the file system
/// is read-only. A read-only repository can still be served.
fn open_mark(path: &Path) -> Result<(File, bool), RepositoryError> {
    fs::create_dir_all(path).map_err(write_error(path))?;
    let mark = path.join(MARK);
    let is_new = || mark.try_exists().map(|exists| !exists).map_err(read_error(&mark));
    // `is_new` is checked again, because another process may have created the repository since the
    // first check.
    let is_foreign =
        is_new()? && fs::read_dir(path).map_err(read_error(path))?.next().is_some() && is_new()?;
    if is_foreign {
        return Err(RepositoryError::NotARepository { path: path.to_owned() });
    }
    let options = File::options().read(true).write(true).create(true).truncate(false).open(&mark);
    let (mut file, is_read_only) = match options {
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
            (File::open(&mark).map_err(read_error(&mark))?, true)
        }
        options => (options.map_err(write_error(&mark))?, false),
    };
    if let LockOutcome::HeldByOther(holder) = lock(&file).map_err(write_error(&mark))? {
        return Err(RepositoryError::InUse { path: path.to_owned(), holder });
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(read_error(&mark))?;
    if text == MARK_TEXT {
        return Ok((file, is_read_only));
    }
    if is_read_only || !MARK_TEXT.starts_with(&text) {
        return Err(RepositoryError::UnknownLayout { path: path.to_owned() });
    }
    // The process that created it was killed, or its disk was full, before the file was complete.
    let rest = &MARK_TEXT.as_bytes()[text.len()..];
    file.write_all(rest).and_then(|()| file.sync_all()).map_err(write_error(&mark))?;
    Ok((file, is_read_only))
}

/// Reads the headers of all files, several at a time.
fn read_headers(paths: &[PathBuf]) -> Vec<(&PathBuf, io::Result<Option<StoredObject>>)> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, all) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(paths.len())));
    std::thread::scope(|scope| {
        for _ in 0..threads.min(paths.len().div_ceil(64)) {
            scope.spawn(|| {
                let mut mine = Vec::new();
                while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
                    mine.push((path, StoredObject::open(path)));
                }
                all.lock().expect("no holder panics").extend(mine);
            });
        }
    });
    all.into_inner().expect("no holder panics")
}

/// Reserves space in the file system, so that a full disk is noticed before anything is written.
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    let bytes = i64::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    match posix_fallocate(file, 0, bytes) {
        Err(Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL) | Ok(()) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

pub(super) fn remove_file(path: &Path) -> Result<(), RepositoryError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(write_error(path)(error)),
        _ => Ok(()),
    }
}
