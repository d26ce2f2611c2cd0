//! `weir put --watch`: what changes in a directory is published as it does.
//!
//! The system tells that something has changed; what, a look through the directory says. So nothing
//! is missed where it tells too little, and what moves is no case of its own.

use std::collections::HashSet;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use notify::event::{AccessKind, AccessMode, ModifyKind, RenameMode};
use notify::{Config, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use serde_json::json;
use weir_socket::{PublishOptions, Published, Repository, Update, Updates, unix_time_ms};
use weir_wire::Name;

use super::publisher::{Before, Found, LeftOut, Publisher, Version, explain};
use super::registration::Registering;
use super::seen::Seen;
use super::{Signing, Source};
use crate::table::{errln, outln, printable};
use crate::transfer::Stop;

/// How long after the first change the directory is looked through.
const GATHER: Duration = Duration::from_millis(100);
/// How often it is seen whether all is to end.
const TICK: Duration = Duration::from_millis(200);
/// When what is being written, or failed, is looked at again.
const AGAIN: Duration = Duration::from_millis(500);
/// A file that was changed longer ago is whole, unless somebody was seen to write to it.
const SETTLED: Duration = Duration::from_millis(500);
/// When what failed is tried again.
const AFTER_ERROR: Duration = Duration::from_secs(5);
/// Paths that are remembered of each kind at most.
const PATHS_MAX: usize = 1 << 16;
/// How long to wait for the thread that serves.
const SERVER_WAIT: Duration = Duration::from_secs(5);

/// What the system has told of files.
#[derive(Debug, Default)]
pub(super) struct Writing {
    /// Somebody has written to them and has not closed them.
    open: HashSet<PathBuf>,
    /// They were closed, or came by a new name, after the last change.
    closed: HashSet<PathBuf>,
    /// They were made just now.
    made: HashSet<PathBuf>,
}

impl Writing {
    /// Whether nobody writes to a file, as far as can be known.
    pub(super) fn is_settled(&self, path: &Path, metadata: &Metadata) -> bool {
        let is_young = || {
            let changed = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            // What is of the future will not become older soon.
            SystemTime::now().duration_since(changed).is_ok_and(|age| age < SETTLED)
        };
        !self.open.contains(path) && (self.closed.contains(path) || !is_young())
    }

    /// Takes note of an event. Whether the directory is to be looked through.
    fn note(&mut self, event: Event) -> bool {
        let is_much =
            [&self.open, &self.closed, &self.made].iter().any(|set| set.len() > PATHS_MAX);
        if event.need_rescan() || is_much {
            // Closings may have been missed.
            *self = Self::default();
            return true;
        }
        let Some(path) = event.paths.last() else { return true };
        match event.kind {
            EventKind::Create(_) => drop(self.made.insert(path.clone())),
            EventKind::Access(AccessKind::Open(_)) => {
                // Whoever makes a file opens it at once. A link is not opened.
                if self.made.remove(path) {
                    self.open.insert(path.clone());
                }
                return false;
            }
            EventKind::Modify(ModifyKind::Data(_)) => {
                self.open.insert(path.clone());
                self.closed.remove(path);
                return false;
            }
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => {
                self.open.remove(path);
                self.closed.insert(path.clone());
            }
            EventKind::Access(_) => return false,
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
        true
    }
}

/// Device, inode and creation time of a directory.
type RootId = (u64, u64, Option<SystemTime>);

fn root_id(path: &Path) -> Option<RootId> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino(), metadata.created().ok()))
}

/// What tells of events below one directory.
struct Watch {
    /// Events come as long as it lives.
    _watcher: RecommendedWatcher,
    events: Receiver<notify::Result<Event>>,
}

impl Watch {
    fn new(path: &Path, follow_links: bool) -> notify::Result<Self> {
        let (send, events) = channel();
        let config = Config::default().with_follow_symlinks(follow_links);
        let mut watcher = RecommendedWatcher::new(send, config)?;
        watcher.watch(path, RecursiveMode::Recursive)?;
        Ok(Self { _watcher: watcher, events })
    }
}

/// A directory that is watched.
pub(super) struct Watched {
    path: PathBuf,
    follow_links: bool,
    /// Which directory is watched, unless it is missing.
    root: Option<RootId>,
    watch: Watch,
    pub(super) writing: Writing,
    pub(super) seen: Seen,
    /// How long after a look the next one is due even without an event.
    again: Option<Duration>,
    /// What the last look left out.
    left_out: HashSet<LeftOut>,
}

impl Watched {
    /// Watches from now on. Errors say what to do.
    pub(super) fn new(path: &Path, follow_links: bool) -> anyhow::Result<Self> {
        // As events have it.
        let path = std::path::absolute(path)?;
        let root = root_id(&path);
        let watch = Watch::new(&path, follow_links).with_context(|| {
            format!(
                "cannot watch {}; if it has more directories than fs.inotify.max_user_watches, \
                 raise that with sysctl",
                printable(path.display())
            )
        })?;
        let (writing, seen, left_out) = (Writing::default(), Seen::default(), HashSet::new());
        Ok(Self { path, follow_links, root, watch, writing, seen, again: None, left_out })
    }

    /// Watches the directory that the path leads to, if it is another one than before: a file
    /// system was mounted there or unmounted, or the directory was replaced. The system watches
    /// directories, not paths. Returns whether it was replaced.
    fn rewatch_if_replaced(&mut self) -> bool {
        let root = root_id(&self.path);
        if root == std::mem::replace(&mut self.root, root) || root.is_none() {
            return false;
        }
        match Watch::new(&self.path, self.follow_links) {
            // Events of before are not to be mixed with those of the new directory: a file whose
            // closing is in neither would count as open for ever.
            Ok(watch) => (self.watch, self.writing) = (watch, Writing::default()),
            Err(error) => {
                errln!("weir: watching {}: {error}", printable(self.path.display()));
                self.root = None;
            }
        }
        true
    }

    /// Notes when to look again after a look that found this.
    pub(super) fn look_again(&mut self, found: &Found) {
        self.again = match (found.unsettled.is_empty(), found.is_unsure) {
            (false, _) => Some(AGAIN),
            (true, true) => Some(AFTER_ERROR),
            (true, false) => None,
        };
        self.left_out = found.left_out.iter().cloned().collect();
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits briefly for events of the system. Returns whether something may have changed.
    pub(super) fn take_events(&mut self) -> bool {
        let first = match self.watch.events.recv_timeout(TICK) {
            Ok(first) => first,
            Err(RecvTimeoutError::Timeout) => {
                self.writing.made.clear();
                return false;
            }
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(TICK);
                return false;
            }
        };
        let mut has_changed = false;
        for event in std::iter::once(first).chain(self.watch.events.try_iter()) {
            match event {
                Ok(event) => has_changed |= self.writing.note(event),
                Err(error) => {
                    errln!("weir: watching {}: {error}", printable(self.path.display()));
                    has_changed = true;
                }
            }
        }
        has_changed
    }
}

/// Publishes what changes, beside the thread that serves.
pub(super) struct Publishing<'a> {
    pub(super) watched: Watched,
    pub(super) source: Source<'a>,
    pub(super) follow_links: bool,
    pub(super) options: &'a PublishOptions,
    pub(super) signing: &'a Signing,
    pub(super) repository: Option<&'a mut Repository>,
    pub(super) registering: Option<Registering>,
    pub(super) updates: Updates,
    pub(super) stop: &'a Stop,
    pub(super) is_over: &'a AtomicBool,
    pub(super) json: bool,
}

impl Publishing<'_> {
    /// Until it is over.
    pub(super) fn run(mut self) {
        let mut due = self.watched.again.map(|again| Instant::now() + again);
        let (mut earliest, mut last_error) = (Instant::now(), String::new());
        while !self.stop.is_set() && !self.is_over.load(Ordering::Relaxed) {
            let has_events = self.watched.take_events();
            let is_replaced = self.watched.rewatch_if_replaced();
            if has_events || is_replaced {
                let soon = earliest.max(Instant::now() + GATHER);
                // What failed before may not fail in another directory.
                due = Some(due.filter(|_| !is_replaced).unwrap_or(soon));
            }
            if let Some(registering) = &mut self.registering
                && let Err(error) = registering.turn()
            {
                errln!("weir: {error:#}");
            }
            if due.is_none_or(|due| Instant::now() < due) {
                continue;
            }
            let begin = Instant::now();
            let error = self.look().err().map(|error| format!("{error:#}")).unwrap_or_default();
            if !error.is_empty() && error != last_error && !self.stop.is_set() {
                errln!("weir: {error}; trying again");
            }
            let again = if error.is_empty() { self.watched.again } else { Some(AFTER_ERROR) };
            last_error = error;
            // To look through takes no more than a third of the time.
            earliest = Instant::now() + 2 * begin.elapsed();
            due = again.map(|again| earliest.max(Instant::now() + again));
        }
    }

    /// Looks through the directory and publishes what is not as it was.
    fn look(&mut self) -> anyhow::Result<()> {
        let version = Version { number: unix_time_ms(), is_fixed: false };
        let (watched, writing) = (&self.watched, &self.watched.writing);
        let name = self.source.name;
        let is_settled = |path: &Path, metadata: &Metadata| writing.is_settled(path, metadata);
        let before =
            Before { seen: &watched.seen, is_settled: &is_settled, overdue: &HashSet::new() };
        let mut publisher = Publisher::new(
            self.options,
            version,
            self.signing,
            self.repository.as_deref(),
            before,
            self.stop,
        );
        let looked = publisher
            .files(&watched.path, name, self.follow_links)
            .and_then(|tree| publisher.listings(name, &tree));
        let mut found = publisher.finish();
        let published = std::mem::take(&mut found.published);
        if let Err(error) = looked {
            if self.repository.is_some() {
                // What has been kept is served, and need not be signed the next time.
                self.publish(published, &[])?;
            }
            return Err(error);
        }
        // What has been reported after the last look is not reported again.
        for left_out in found.left_out.iter().filter(|one| !self.watched.left_out.contains(one)) {
            errln!("weir: {}", left_out.text());
        }
        let withdrawn = self.watched.seen.gone(&found.seen);
        self.watched.look_again(&found);
        self.watched.seen = found.seen;
        self.watched.writing.closed.clear();
        self.publish(published, &withdrawn)
    }

    fn publish(&mut self, published: Vec<Published>, withdrawn: &[Name]) -> anyhow::Result<()> {
        let has_superseded = self.repository.as_ref().is_some_and(|kept| kept.has_superseded());
        if published.is_empty() && withdrawn.is_empty() && !has_superseded {
            return Ok(());
        }
        // A folder may take the name of a file, and its metadata that of the file's metadata. So
        // the file goes first.
        let removed = withdrawn.iter().cloned().map(Update::Remove);
        let added = published.iter().cloned().map(Update::Add);
        self.updates.apply(removed.chain(added).collect(), SERVER_WAIT);
        // What is served no more may go.
        let taken_in = match self.repository.as_deref_mut() {
            Some(repository) => repository.take_in(&published, withdrawn).map_err(explain),
            None => Ok(()),
        };
        if let Some(registering) = &mut self.registering {
            withdrawn.iter().for_each(|name| registering.withdraw(name));
            registering.add(published.iter());
        }
        if !published.is_empty() || !withdrawn.is_empty() {
            self.tell(&published, withdrawn);
        }
        // Something that has been replaced could not be removed; what replaces it is kept.
        taken_in
    }

    fn tell(&self, published: &[Published], withdrawn: &[Name]) {
        let names: Vec<String> =
            published.iter().map(|object| object.versioned().to_string()).collect();
        let withdrawn: Vec<String> = withdrawn.iter().map(ToString::to_string).collect();
        if self.json {
            // The reader may have gone.
            let _ = outln!("{}", json!({ "published": names, "withdrawn": withdrawn }));
            return;
        }
        names.iter().for_each(|name| errln!("published {name}"));
        withdrawn.iter().for_each(|name| errln!("withdrawn {name}"));
    }
}

#[cfg(test)]
mod tests;
