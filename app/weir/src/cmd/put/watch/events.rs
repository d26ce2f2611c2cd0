//! Events of a watched directory (inotify), and what they say about writers.

use std::collections::{BTreeSet, HashSet};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use notify::event::{AccessKind, AccessMode, ModifyKind, RenameMode};
use notify::{Config, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use weir_wire::Name;

use super::super::publisher::{ScanResult, UnpublishedEntry};
use super::super::seen::{DirectorySnapshot, path_of};
use crate::table::{errln, printable};

/// Time between two checks for the end.
const TICK: Duration = Duration::from_millis(200);
/// Delay before files that are being written are examined again.
const RECHECK_AFTER: Duration = Duration::from_millis(500);
/// Delay before a retry after an error.
pub(super) const RETRY_AFTER_ERROR: Duration = Duration::from_secs(5);
/// A file whose last change is older counts as complete, unless a writer is known.
pub(super) const SETTLED_AGE: Duration = Duration::from_millis(500);
/// Maximum number of paths in each set of [`WriterTracker`].
const PATHS_MAX: usize = 1 << 16;
/// Maximum number of folders in a partial scan. With more, the whole directory is scanned.
const FOLDERS_MAX: usize = 256;

/// The part of the directory to scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cmd::put) enum ScanScope {
    All,
    /// These folders, without their subfolders.
    Folders(BTreeSet<PathBuf>),
}

impl ScanScope {
    /// The scope of an event: the parent folders of its paths.
    fn of(event: &Event) -> Self {
        let folders: Option<BTreeSet<PathBuf>> =
            event.paths.iter().map(|path| path.parent().map(Path::to_owned)).collect();
        match folders {
            Some(folders) if !folders.is_empty() => Self::Folders(folders),
            _ => Self::All,
        }
    }

    fn merge(self, other: Self) -> Self {
        match (self, other) {
            (Self::Folders(mut one), Self::Folders(other)) => {
                one.extend(other);
                if one.len() > FOLDERS_MAX { Self::All } else { Self::Folders(one) }
            }
            _ => Self::All,
        }
    }

    fn concerns(&self, path: &Path) -> bool {
        match self {
            Self::All => true,
            Self::Folders(folders) => path.parent().is_some_and(|folder| folders.contains(folder)),
        }
    }
}

/// Which files are being written, according to the events.
#[derive(Debug, Default)]
pub(in crate::cmd::put) struct WriterTracker {
    /// Written and not closed yet.
    open: HashSet<PathBuf>,
    /// Closed or renamed after the last change.
    closed: HashSet<PathBuf>,
    /// Created and not opened yet.
    created: HashSet<PathBuf>,
}

impl WriterTracker {
    /// Whether a file is probably not being written: no known writer, and closed or not changed
    /// recently.
    pub(in crate::cmd::put) fn is_settled(&self, path: &Path, metadata: &Metadata) -> bool {
        let is_young = || {
            let changed = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            // A time in the future does not count as recent, as it would remain so.
            SystemTime::now().duration_since(changed).is_ok_and(|age| age < SETTLED_AGE)
        };
        !self.open.contains(path) && (self.closed.contains(path) || !is_young())
    }

    /// Updates the sets. Returns the scope to scan, if the event requires a scan.
    fn on_event(&mut self, event: &Event) -> Option<ScanScope> {
        let is_much =
            [&self.open, &self.closed, &self.created].iter().any(|set| set.len() > PATHS_MAX);
        if event.need_rescan() || is_much {
            // Events were lost, or a set is full. A file whose close event was lost would count as
            // open for ever, so start with empty sets.
            *self = Self::default();
            return Some(ScanScope::All);
        }
        let Some(path) = event.paths.last() else { return Some(ScanScope::All) };
        match event.kind {
            EventKind::Create(_) => drop(self.created.insert(path.clone())),
            EventKind::Access(AccessKind::Open(_)) => {
                // A created file is opened immediately by its writer; a created link is not.
                if self.created.remove(path) {
                    self.open.insert(path.clone());
                }
                return None;
            }
            EventKind::Modify(ModifyKind::Data(_)) => {
                self.open.insert(path.clone());
                self.closed.remove(path);
                return None;
            }
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => {
                self.open.remove(path);
                self.closed.insert(path.clone());
            }
            EventKind::Access(_) => return None,
            EventKind::Modify(ModifyKind::Name(mode)) => {
                let [from, to] = [event.paths.first(), event.paths.last()];
                if let (RenameMode::From | RenameMode::Both, Some(from)) = (mode, from) {
                    // Files below a moved directory may be closed outside of the watched directory.
                    self.open.retain(|path| !path.starts_with(from));
                }
                if let (RenameMode::To | RenameMode::Both, Some(to)) = (mode, to) {
                    // Programs rename a file when it is complete.
                    self.closed.insert(to.clone());
                }
            }
            EventKind::Remove(_) => self.open.retain(|open| !open.starts_with(path)),
            _ => {}
        }
        Some(ScanScope::of(event))
    }
}

/// Device, inode and creation time of a directory.
type RootId = (u64, u64, Option<SystemTime>);

fn root_id(path: &Path) -> Option<RootId> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino(), metadata.created().ok()))
}

/// The source of events below one directory.
struct EventSource {
    /// Sends events until it is dropped.
    _watcher: RecommendedWatcher,
    events: Receiver<notify::Result<Event>>,
}

impl EventSource {
    fn new(path: &Path, follow_links: bool) -> notify::Result<Self> {
        let (send, events) = channel();
        let config = Config::default().with_follow_symlinks(follow_links);
        let mut watcher = RecommendedWatcher::new(send, config)?;
        watcher.watch(path, RecursiveMode::Recursive)?;
        Ok(Self { _watcher: watcher, events })
    }
}

pub(in crate::cmd::put) struct WatchedDirectory {
    /// The path of the command line, which may contain links.
    given: PathBuf,
    /// The current path without links. The system watches directories, so events contain this path.
    path: PathBuf,
    pub(super) follow_links: bool,
    /// The ID of the watched directory. `None` while it is missing.
    root: Option<RootId>,
    /// `None` while the system has no free watches.
    watch: Option<EventSource>,
    rewatch_at: Option<Instant>,
    pub(in crate::cmd::put) writing: WriterTracker,
    pub(in crate::cmd::put) snapshot: DirectorySnapshot,
    /// The scope of the next scan, from the events since the last one.
    changed: Option<ScanScope>,
    /// Delay after which another scan is due even without an event.
    pub(super) rescan_after: Option<Duration>,
    /// The entries that are currently skipped.
    unpublished: HashSet<UnpublishedEntry>,
    /// Folders with links to files. Such files change without an event here.
    folders_with_links: BTreeSet<PathBuf>,
}

impl WatchedDirectory {
    /// Starts to watch a directory.
    pub(in crate::cmd::put) fn new(given: &Path, follow_links: bool) -> anyhow::Result<Self> {
        let given = std::path::absolute(given)?;
        let path = given.canonicalize().unwrap_or_else(|_| given.clone());
        let root = root_id(&path);
        let watch = EventSource::new(&path, follow_links).with_context(|| {
            format!(
                "cannot watch {}; if it has too many directories, raise \
                 fs.inotify.max_user_watches with sysctl",
                printable(given.display())
            )
        })?;
        let (writing, seen) = (WriterTracker::default(), DirectorySnapshot::default());
        let (unpublished, folders_with_links) = (HashSet::new(), BTreeSet::new());
        Ok(Self {
            given,
            path,
            follow_links,
            root,
            watch: Some(watch),
            rewatch_at: None,
            writing,
            snapshot: seen,
            changed: None,
            rescan_after: None,
            unpublished,
            folders_with_links,
        })
    }

    /// Watches the new directory if the path now leads to another one: a file system was mounted or
    /// unmounted, the directory was replaced, or a link was changed. Returns whether this happened.
    pub(super) fn rewatch_if_replaced(&mut self) -> bool {
        let path = self.given.canonicalize().ok();
        let root = path.as_deref().and_then(root_id);
        let is_same = root == std::mem::replace(&mut self.root, root)
            && path.as_ref().is_none_or(|path| *path == self.path);
        let is_due = self.rewatch_at.is_some_and(|at| Instant::now() >= at);
        // While the directory is missing, wait until it appears again.
        let (false, Some(path), true) = (is_same && !is_due, path, root.is_some()) else {
            return false;
        };
        self.path = path;
        self.rewatch();
        true
    }

    /// Replaces the event source and requests a scan of the whole directory.
    fn rewatch(&mut self) {
        // Drop the old one first, as the system may not have enough watches for both.
        self.watch = None;
        // Discard the old events. A file whose close event was in neither source would count as
        // open forever.
        self.writing = WriterTracker::default();
        let watch = EventSource::new(&self.path, self.follow_links);
        self.rewatch_at = watch.is_err().then(|| Instant::now() + RETRY_AFTER_ERROR);
        match watch {
            Ok(watch) => self.watch = Some(watch),
            Err(error) => {
                let path = printable(self.given.display());
                errln!("weir: cannot watch {path}: {error}; trying again");
            }
        }
        self.changed = Some(ScanScope::All);
    }

    /// Takes the scope of the next scan, and adds the folders that every scan must read.
    pub(in crate::cmd::put) fn take_changed(&mut self) -> Option<ScanScope> {
        let scope = self.changed.take()?;
        let is_few = self.folders_with_links.len() <= FOLDERS_MAX;
        Some(match scope {
            // A partial scan does not follow links.
            ScanScope::Folders(_) if self.follow_links || !is_few => ScanScope::All,
            ScanScope::Folders(folders) => ScanScope::Folders(&folders | &self.folders_with_links),
            ScanScope::All => ScanScope::All,
        })
    }

    /// Adds a scope to the next scan.
    pub(super) fn add_changed(&mut self, scope: ScanScope) {
        self.changed = Some(match self.changed.take() {
            Some(changed) => changed.merge(scope),
            None => scope,
        });
    }

    /// Records the result of a scan: the skipped entries, and what to scan again and when. `root`
    /// is the name of the directory.
    pub(in crate::cmd::put) fn on_scan_done(
        &mut self,
        scope: &ScanScope,
        found: &mut ScanResult,
        root: &Name,
    ) {
        self.rescan_after = None;
        if found.is_incomplete {
            self.rescan_after = Some(RETRY_AFTER_ERROR);
            self.add_changed(ScanScope::All);
        }
        if !found.unsettled.is_empty() {
            // This replaces the longer delay above: the next scan covers both scopes.
            self.rescan_after = Some(RECHECK_AFTER);
            let paths = found.unsettled.iter().map(|name| path_of(&self.path, root, name));
            let folders = paths.filter_map(|path| Some(path.parent()?.to_owned())).collect();
            self.add_changed(ScanScope::Folders(folders));
        }
        self.unpublished.retain(|one| !scope.concerns(&one.path));
        self.unpublished.extend(found.unpublished.iter().cloned());
        match scope {
            ScanScope::All => self.folders_with_links.clear(),
            ScanScope::Folders(folders) => {
                self.folders_with_links.retain(|folder| !folders.contains(folder))
            }
        }
        self.folders_with_links.append(&mut found.folders_with_links);
        self.writing.closed.retain(|path| !scope.concerns(path));
    }

    /// Replaces the event source if a folder was replaced by another one. inotify watches inodes:
    /// it may miss subfolders of a folder that was moved here, and does not know the target of a
    /// new link. Returns whether this happened.
    pub(super) fn rewatch_if_swapped(&mut self, now: &DirectorySnapshot) -> bool {
        let is_other = |(name, id): (&Name, _)| match self.snapshot.folders.get(name) {
            Some(before) => before != id,
            None => self.follow_links,
        };
        let is_swapped = now.folders.iter().any(is_other);
        if is_swapped {
            self.rewatch();
        }
        is_swapped
    }

    pub(super) fn is_known_unpublished(&self, one: &UnpublishedEntry) -> bool {
        self.unpublished.contains(one)
    }

    /// The number of entries that should be published, but are not.
    pub(super) fn failures(&self) -> usize {
        self.unpublished.iter().filter(|one| one.is_failure()).count()
    }

    pub(in crate::cmd::put) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits up to [`TICK`] for events. Returns whether something may have changed.
    pub(in crate::cmd::put) fn take_events(&mut self) -> bool {
        let Some(watch) = &self.watch else {
            std::thread::sleep(TICK);
            return false;
        };
        let mut first = match watch.events.recv_timeout(TICK) {
            Ok(first) => Some(first),
            Err(RecvTimeoutError::Timeout) => {
                // A writer opens a created file at once, so the remaining paths are no files.
                self.writing.created.clear();
                return false;
            }
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(TICK);
                return false;
            }
        };
        let mut scopes = Vec::new();
        while let Some(event) = first.take().or_else(|| watch.events.try_recv().ok()) {
            scopes.extend(match event {
                Ok(event) => self.writing.on_event(&event),
                Err(error) => {
                    let path = printable(self.given.display());
                    errln!("weir: error while watching {path}: {error}");
                    Some(ScanScope::All)
                }
            });
        }
        let has_changed = !scopes.is_empty();
        scopes.into_iter().for_each(|scope| self.add_changed(scope));
        has_changed
    }
}

#[cfg(test)]
mod tests;
