//! What the system reports of a directory that is watched.

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

/// How often it is seen whether all is to end.
const TICK: Duration = Duration::from_millis(200);
/// When what is being written is looked at again.
const RECHECK_AFTER: Duration = Duration::from_millis(500);
/// When what failed is tried again.
pub(super) const RETRY_AFTER_ERROR: Duration = Duration::from_secs(5);
/// A file that was changed longer ago is whole, unless somebody was seen to write to it.
pub(super) const SETTLED_AGE: Duration = Duration::from_millis(500);
/// Paths that are remembered of each kind at most.
const PATHS_MAX: usize = 1 << 16;
/// Folders that are looked at alone at most; with more, everything is looked through.
const FOLDERS_MAX: usize = 256;

/// What has to be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cmd::put) enum ScanScope {
    All,
    /// What lies in these folders, but not in the folders in them.
    Folders(BTreeSet<PathBuf>),
}

impl ScanScope {
    /// What an event concerns: the folders that its paths are in.
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

/// What the system has told of files.
#[derive(Debug, Default)]
pub(in crate::cmd::put) struct WriterTracker {
    /// Somebody has written to them and has not closed them.
    open: HashSet<PathBuf>,
    /// They were closed, or came by a new name, after the last change.
    closed: HashSet<PathBuf>,
    /// They were made just now.
    created: HashSet<PathBuf>,
}

impl WriterTracker {
    /// Whether nobody writes to a file, as far as can be known.
    pub(in crate::cmd::put) fn is_settled(&self, path: &Path, metadata: &Metadata) -> bool {
        let is_young = || {
            let changed = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            // What is of the future will not become older soon.
            SystemTime::now().duration_since(changed).is_ok_and(|age| age < SETTLED_AGE)
        };
        !self.open.contains(path) && (self.closed.contains(path) || !is_young())
    }

    /// Takes note of an event. What is to be looked at for it.
    fn on_event(&mut self, event: &Event) -> Option<ScanScope> {
        let is_much =
            [&self.open, &self.closed, &self.created].iter().any(|set| set.len() > PATHS_MAX);
        if event.need_rescan() || is_much {
            // Closings may have been missed.
            *self = Self::default();
            return Some(ScanScope::All);
        }
        let Some(path) = event.paths.last() else { return Some(ScanScope::All) };
        match event.kind {
            EventKind::Create(_) => drop(self.created.insert(path.clone())),
            EventKind::Access(AccessKind::Open(_)) => {
                // Whoever makes a file opens it at once. A link is not opened.
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
                    // What was open below a directory may be closed where nobody watches.
                    self.open.retain(|path| !path.starts_with(from));
                }
                if let (RenameMode::To | RenameMode::Both, Some(to)) = (mode, to) {
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

/// What tells of events below one directory.
struct EventSource {
    /// Events come as long as it lives.
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
    /// As the user gave it. It may be a link, or lie in a folder that is one.
    given: PathBuf,
    /// What it leads to now. The system watches directories, not paths, so that events have this.
    path: PathBuf,
    pub(super) follow_links: bool,
    /// Which directory is watched, unless it is missing.
    root: Option<RootId>,
    /// Nothing while there is no room for its watches.
    watch: Option<EventSource>,
    rewatch_at: Option<Instant>,
    pub(in crate::cmd::put) writing: WriterTracker,
    pub(in crate::cmd::put) snapshot: DirectorySnapshot,
    /// What has changed since the last look, as far as the system has reported it.
    changed: Option<ScanScope>,
    /// How long after a look the next one is due even without an event.
    pub(super) rescan_after: Option<Duration>,
    /// What was left out, as far as it is known.
    unpublished: HashSet<UnpublishedEntry>,
    /// Folders with links to files: what these hold changes elsewhere.
    folders_with_links: BTreeSet<PathBuf>,
}

impl WatchedDirectory {
    /// Watches from now on. Errors say what to do.
    pub(in crate::cmd::put) fn new(given: &Path, follow_links: bool) -> anyhow::Result<Self> {
        let given = std::path::absolute(given)?;
        let path = given.canonicalize().unwrap_or_else(|_| given.clone());
        let root = root_id(&path);
        let watch = EventSource::new(&path, follow_links).with_context(|| {
            format!(
                "cannot watch {}; if it has more directories than fs.inotify.max_user_watches, \
                 raise that with sysctl",
                printable(given.display())
            )
        })?;
        let (writing, seen) = (WriterTracker::default(), DirectorySnapshot::default());
        let (left_out, linked) = (HashSet::new(), BTreeSet::new());
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
            unpublished: left_out,
            folders_with_links: linked,
        })
    }

    /// Watches the directory that the path leads to, if it is another one than before: a file
    /// system was mounted there or unmounted, the directory was replaced, or a link was turned.
    /// Returns whether it was replaced.
    pub(super) fn rewatch_if_replaced(&mut self) -> bool {
        let path = self.given.canonicalize().ok();
        let root = path.as_deref().and_then(root_id);
        let is_same = root == std::mem::replace(&mut self.root, root)
            && path.as_ref().is_none_or(|path| *path == self.path);
        let is_due = self.rewatch_at.is_some_and(|at| Instant::now() >= at);
        let (false, Some(path), true) = (is_same && !is_due, path, root.is_some()) else {
            return false;
        };
        self.path = path;
        self.rewatch();
        true
    }

    /// Watches everything with a new watcher.
    fn rewatch(&mut self) {
        // There may be no room for the watches of both.
        self.watch = None;
        // Events of before are not to be mixed with those of the new directory: a file whose
        // closing is in neither would count as open for ever.
        self.writing = WriterTracker::default();
        let watch = EventSource::new(&self.path, self.follow_links);
        self.rewatch_at = watch.is_err().then(|| Instant::now() + RETRY_AFTER_ERROR);
        match watch {
            Ok(watch) => self.watch = Some(watch),
            Err(error) => {
                errln!("weir: watching {}: {error}; trying again", printable(self.given.display()));
            }
        }
        self.changed = Some(ScanScope::All);
    }

    /// What there is to look at.
    pub(in crate::cmd::put) fn take_changed(&mut self) -> Option<ScanScope> {
        let scope = self.changed.take()?;
        let is_few = self.folders_with_links.len() <= FOLDERS_MAX;
        Some(match scope {
            ScanScope::Folders(_) if self.follow_links || !is_few => ScanScope::All,
            ScanScope::Folders(folders) => ScanScope::Folders(&folders | &self.folders_with_links),
            ScanScope::All => ScanScope::All,
        })
    }

    /// Notes that this is to be looked at, beside what else there is.
    pub(super) fn add_changed(&mut self, scope: ScanScope) {
        self.changed = Some(match self.changed.take() {
            Some(changed) => changed.merge(scope),
            None => scope,
        });
    }

    /// Takes note of a look that found this: what to look at again and when, and what is left out.
    /// `root` is the directory's name.
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

    /// Watches folders that have taken the places of others. A watcher knows directories: of one
    /// that was moved here it may have missed a part, and one that a link leads to it has never
    /// seen. Returns whether there are any.
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

    /// How many entries should be published, and are not.
    pub(super) fn failures(&self) -> usize {
        self.unpublished.iter().filter(|one| one.is_failure()).count()
    }

    pub(in crate::cmd::put) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits briefly for events of the system. Returns whether something may have changed.
    pub(in crate::cmd::put) fn take_events(&mut self) -> bool {
        let Some(watch) = &self.watch else {
            std::thread::sleep(TICK);
            return false;
        };
        let mut first = match watch.events.recv_timeout(TICK) {
            Ok(first) => Some(first),
            Err(RecvTimeoutError::Timeout) => {
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
                    errln!("weir: watching {}: {error}", printable(self.given.display()));
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
