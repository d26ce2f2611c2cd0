//! `weir put --watch`: what changes in a directory is published as it does.
//!
//! The system tells that something has changed; what, a look through the directory says. So nothing
//! is missed where it tells too little, and what moves is no case of its own.

use std::collections::HashSet;
use std::fs::Metadata;
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

use super::publisher::{Before, LeftOut, Publisher, Seen, Version, explain, listing_name};
use super::registration::Registering;
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
                    self.open.remove(from);
                }
                if let (RenameMode::To | RenameMode::Both, Some(to)) = (mode, to) {
                    self.closed.insert(to.clone());
                }
            }
            EventKind::Remove(_) => drop(self.open.remove(path)),
            _ => {}
        }
        true
    }
}

/// A directory that is watched.
pub(super) struct Watched {
    path: PathBuf,
    _watcher: RecommendedWatcher,
    events: Receiver<notify::Result<Event>>,
    pub(super) writing: Writing,
    pub(super) seen: Seen,
    pub(super) is_unsettled: bool,
}

impl Watched {
    /// Watches from now on. Errors say what to do.
    pub(super) fn new(path: &Path, follow_links: bool) -> anyhow::Result<Self> {
        // As events have it.
        let path = std::path::absolute(path)?;
        let (send, events) = channel();
        let config = Config::default().with_follow_symlinks(follow_links);
        let watch = || {
            let mut watcher = RecommendedWatcher::new(send, config)?;
            watcher.watch(&path, RecursiveMode::Recursive)?;
            Ok::<_, notify::Error>(watcher)
        };
        let watcher = watch().with_context(|| {
            format!(
                "cannot watch {}; if it has more directories than fs.inotify.max_user_watches, \
                 raise that with sysctl",
                printable(path.display())
            )
        })?;
        let (writing, seen) = (Writing::default(), Seen::default());
        Ok(Self { path, _watcher: watcher, events, writing, seen, is_unsettled: false })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
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
        let mut due = self.watched.is_unsettled.then(|| Instant::now() + AGAIN);
        let (mut earliest, mut last_error) = (Instant::now(), String::new());
        while !self.stop.is_set() && !self.is_over.load(Ordering::Relaxed) {
            if self.take_events() {
                due = due.or(Some(earliest.max(Instant::now() + GATHER)));
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
            let wait = if error.is_empty() { AGAIN } else { AFTER_ERROR };
            let again = !error.is_empty() || self.watched.is_unsettled;
            last_error = error;
            // To look through takes no more than a third of the time.
            earliest = Instant::now() + 2 * begin.elapsed();
            due = again.then(|| earliest.max(Instant::now() + wait));
        }
    }

    /// Takes what the system tells, waiting for it a moment. Whether something may have changed.
    fn take_events(&mut self) -> bool {
        let first = match self.watched.events.recv_timeout(TICK) {
            Ok(first) => first,
            Err(RecvTimeoutError::Timeout) => {
                self.watched.writing.made.clear();
                return false;
            }
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(TICK);
                return false;
            }
        };
        let mut has_changed = false;
        for event in std::iter::once(first).chain(self.watched.events.try_iter()) {
            match event {
                Ok(event) => has_changed |= self.watched.writing.note(event),
                Err(error) => {
                    errln!("weir: watching {}: {error}", printable(self.watched.path.display()));
                    has_changed = true;
                }
            }
        }
        has_changed
    }

    /// Looks through the directory and publishes what is not as it was.
    fn look(&mut self) -> anyhow::Result<()> {
        let version = Version { number: unix_time_ms(), is_fixed: false };
        let (watched, writing) = (&self.watched, &self.watched.writing);
        let name = self.source.name;
        let is_settled = |path: &Path, metadata: &Metadata| writing.is_settled(path, metadata);
        let before = Before { seen: &watched.seen, is_settled: &is_settled };
        let mut publisher = Publisher::new(
            self.options,
            version,
            self.signing,
            self.repository.as_deref(),
            before,
            self.stop,
        );
        let looked = publisher.directory(&watched.path, name, self.follow_links);
        let published = publisher.take_published();
        if let Err(error) = looked {
            if self.repository.is_some() {
                // What has been kept is served, and need not be signed the next time.
                self.publish(published, &[], &[])?;
            }
            return Err(error);
        }
        let (seen, is_unsettled) = (std::mem::take(&mut publisher.seen), publisher.is_unsettled);
        let left_out = std::mem::take(&mut publisher.left_out);
        let withdrawn = gone(&watched.seen, &seen);
        self.watched.is_unsettled = is_unsettled;
        self.watched.seen = seen;
        self.watched.writing.closed.clear();
        self.publish(published, &withdrawn, &left_out)
    }

    fn publish(
        &mut self,
        published: Vec<Published>,
        withdrawn: &[Name],
        left_out: &[LeftOut],
    ) -> anyhow::Result<()> {
        if published.is_empty() && withdrawn.is_empty() {
            return Ok(());
        }
        let added = published.iter().cloned().map(Update::Add);
        let removed = withdrawn.iter().cloned().map(Update::Remove);
        self.updates.apply(added.chain(removed).collect(), SERVER_WAIT);
        // What is served no more may go.
        if let Some(repository) = self.repository.as_deref_mut() {
            repository.take_in(&published, withdrawn).map_err(explain)?;
        }
        if let Some(registering) = &mut self.registering {
            registering.add(published.iter());
            withdrawn.iter().for_each(|name| registering.withdraw(name));
        }
        self.tell(&published, withdrawn, left_out);
        Ok(())
    }

    fn tell(&self, published: &[Published], withdrawn: &[Name], left_out: &[LeftOut]) {
        for LeftOut { path, reason } in left_out {
            errln!("left out {}: {reason}", printable(path.display()));
        }
        let names: Vec<String> =
            published.iter().map(|object| object.versioned().to_string()).collect();
        let withdrawn: Vec<String> = withdrawn.iter().map(ToString::to_string).collect();
        if self.json {
            // Whoever has gone away need not be told.
            let _ = outln!("{}", json!({ "published": names, "withdrawn": withdrawn }));
            return;
        }
        names.iter().for_each(|name| errln!("published {name}"));
        withdrawn.iter().for_each(|name| errln!("withdrawn {name}"));
    }
}

/// Names of the objects that are no more.
fn gone(before: &Seen, now: &Seen) -> Vec<Name> {
    let files = before.files.keys().filter(|name| !now.files.contains_key(name)).cloned();
    let folders = before.listings.keys().filter(|name| !now.listings.contains_key(name));
    files.chain(folders.map(listing_name)).collect()
}

#[cfg(test)]
mod tests;
