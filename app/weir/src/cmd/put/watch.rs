//! `weir put --watch`: publishes the changes of a directory.
//!
//! Events of the system only say where to look. A scan then compares the directory with the
//! published state, so renames and moves need no special case.
//!
//! 1. An event arrives. The folders of its paths are added to the next scan.
//! 2. After [`DEBOUNCE`], the scan reads these folders. It reads the whole directory instead if
//!    folders were added, removed or replaced, or if events were lost.
//! 3. New and changed files are signed. Names that no longer exist are withdrawn.
//! 4. [`FULL_SCAN_AFTER`] after a partial scan, the whole directory is scanned. This finds changes
//!    that the system does not report.

mod events;

use std::collections::{BTreeSet, HashSet};
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use weir_face::unix_time_ms;
use weir_socket::{OpenFiles, PublishOptions, Published, Repository, Update, Updates};
use weir_wire::Name;

use self::events::RETRY_AFTER_ERROR;
use super::handover::HandoverListener;
use super::publisher::{Publisher, ScanContext, Version, explain};
use super::registration::ControllerRegistration;
use super::seen::{DirectorySnapshot, folder_name};
use super::signing::Signing;
use super::tree::{Folder, Source, Tree};
use crate::table::{errln, outln};
use crate::transfer::Stop;

pub(super) use self::events::{ScanScope, WatchedDirectory};

/// Delay between the first change and the scan.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// Delay between a scan of some folders and a scan of the whole directory. It finds changes without
/// events: a file changed through another hard link or through a memory mapping.
const FULL_SCAN_AFTER: Duration = Duration::from_secs(5);
/// How long to wait for the serving thread to apply an update.
const SERVER_WAIT: Duration = Duration::from_secs(5);

/// The publishing thread, which runs next to the serving thread.
pub(super) struct WatchPublisher<'a> {
    pub(super) watched: WatchedDirectory,
    pub(super) source: Source<'a>,
    pub(super) follow_links: bool,
    pub(super) options: &'a PublishOptions,
    pub(super) signing: &'a Signing,
    pub(super) repository: Option<&'a mut Repository>,
    pub(super) registration: Option<ControllerRegistration>,
    pub(super) updates: Updates,
    /// Accepts objects that other processes put into the repository.
    pub(super) handover: Option<&'a HandoverListener>,
    /// Keeps replaced files open for running downloads.
    pub(super) files: &'a OpenFiles,
    /// The last version number used.
    pub(super) version: u64,
    pub(super) stop: &'a Stop,
    pub(super) is_over: &'a AtomicBool,
    pub(super) json: bool,
}

impl WatchPublisher<'_> {
    /// Runs until the end of the command. Returns the number of entries that could not be
    /// published.
    pub(super) fn run(mut self) -> usize {
        let mut due = self.watched.rescan_after.map(|again| Instant::now() + again);
        // No scan begins before `earliest`.
        let (mut earliest, mut last_error) = (Instant::now(), String::new());
        // When a scan of the whole directory is due.
        let mut full_due: Option<Instant> = None;
        while !self.stop.is_set() && !self.is_over.load(Ordering::Relaxed) {
            let has_events = self.watched.take_events();
            let is_replaced = self.watched.rewatch_if_replaced();
            if has_events || is_replaced {
                let soon = earliest.max(Instant::now() + DEBOUNCE);
                // In a replaced directory an earlier error may not recur, so do not wait for the
                // retry.
                due = Some(due.filter(|_| !is_replaced).unwrap_or(soon));
            }
            if full_due.is_some_and(|at| at <= Instant::now()) {
                self.watched.add_changed(ScanScope::All);
                due.get_or_insert(earliest);
                full_due = None;
            }
            if let (Some(handover), Some(repository)) =
                (self.handover, self.repository.as_deref_mut())
            {
                handover.poll_once(Duration::ZERO, repository, self.registration.as_mut());
            }
            if let Some(registration) = &mut self.registration
                && let Err(error) = registration.send_if_idle()
            {
                errln!("weir: {error:#}");
            }
            if due.is_none_or(|due| Instant::now() < due) {
                continue;
            }
            due = None;
            let Some(scope) = self.watched.take_changed() else { continue };
            let begin = Instant::now();
            let mut error = String::new();
            match self.scan(scope) {
                Ok(ScanScope::All) => full_due = None,
                Ok(ScanScope::Folders(_)) => {
                    full_due.get_or_insert(Instant::now() + FULL_SCAN_AFTER);
                }
                Err(reason) => {
                    error = format!("{reason:#}");
                    self.watched.add_changed(ScanScope::All);
                    self.watched.rescan_after = Some(RETRY_AFTER_ERROR);
                }
            }
            // Report an error once, not at each retry.
            if !error.is_empty() && error != last_error && !self.stop.is_set() {
                errln!("weir: {error}; trying again");
            }
            last_error = error;
            // Wait twice as long as the scan took, so that scans use at most a third of the time.
            earliest = Instant::now() + 2 * begin.elapsed();
            due = self.watched.rescan_after.map(|again| earliest.max(Instant::now() + again));
        }
        self.watched.failures()
    }

    /// Scans the given scope and publishes the changes. Returns the scope that was scanned, which
    /// may be larger.
    fn scan(&mut self, scope: ScanScope) -> anyhow::Result<ScanScope> {
        let near = match &scope {
            ScanScope::Folders(folders) => self.scan_folders(folders),
            ScanScope::All => None,
        };
        let (part, mut tree, scope) = match near {
            Some((part, tree)) => (Some(part), tree, scope),
            None => {
                let (path, follow_links) = (self.watched.path(), self.follow_links);
                (None, Tree::of(path, self.source.name, follow_links)?, ScanScope::All)
            }
        };
        // Version numbers grow even if the clock jumps back.
        self.version = unix_time_ms().max(self.version.saturating_add(1));
        let version = Version { number: self.version, is_fixed: false };
        let (watched, writing) = (&self.watched, &self.watched.writing);
        let name = self.source.name;
        let is_settled = |path: &Path, metadata: &Metadata| writing.is_settled(path, metadata);
        let seen = part.as_ref().unwrap_or(&watched.snapshot);
        let before = ScanContext { seen, is_settled: &is_settled, overdue: &HashSet::new() };
        let mut publisher = Publisher::new(
            self.options,
            version,
            self.signing,
            self.repository.as_deref(),
            before,
            self.stop,
        );
        publisher.keep_open_in(self.files);
        let looked = publisher
            .files(&mut tree, watched.path(), name)
            .and_then(|()| publisher.listings(name, &tree));
        let mut found = publisher.finish();
        let published = std::mem::take(&mut found.published);
        if let Err(error) = looked {
            if self.repository.is_some() {
                // Serve the objects that the repository already has. They need not be signed again.
                self.publish(published, &[])?;
            }
            return Err(error);
        }
        // Report each skipped entry once.
        for entry in found.unpublished.iter().filter(|one| !self.watched.is_known_unpublished(one))
        {
            errln!("weir: {}", entry.text());
        }
        let withdrawn = seen.withdrawn_since(&found.snapshot);
        self.watched.on_scan_done(&scope, &mut found, name);
        match part {
            Some(part) => self.watched.snapshot.replace(&part, found.snapshot),
            None => {
                // This compares with the old snapshot, so it comes before the assignment.
                if self.watched.rewatch_if_swapped(&found.snapshot) {
                    self.watched.rescan_after = Some(DEBOUNCE);
                }
                self.watched.snapshot = found.snapshot;
            }
        }
        self.publish(published, &withdrawn)?;
        Ok(scope)
    }

    /// Reads some folders, and returns their published and current state. Returns `None` if the
    /// whole directory must be scanned, as a folder was added, removed or replaced.
    fn scan_folders(&self, folders: &BTreeSet<PathBuf>) -> Option<(DirectorySnapshot, Tree)> {
        let (watched, root) = (&self.watched, self.watched.path());
        let names = folders.iter().map(|folder| {
            folder_name(root, self.source.name, folder).map(|name| (folder.as_path(), name))
        });
        let names: Vec<(&Path, Name)> = names.collect::<Option<_>>()?;
        let before = watched.snapshot.subset(names.iter().map(|(_, name)| name))?;
        let tree = Tree::of_folders(root, names.into_iter()).ok()?;
        let is_known = |folder: &Folder| before.folders.get(&folder.name) == Some(&folder.id);
        let found: HashSet<&Name> = tree.folders.iter().map(|folder| &folder.name).collect();
        // Anything may have changed below a new or replaced folder, and this scan does not look
        // there.
        let is_same = tree.folders.iter().all(is_known)
            && before.listings.keys().all(|name| found.contains(name));
        drop(found);
        is_same.then_some((before, tree))
    }

    fn publish(&mut self, published: Vec<Published>, withdrawn: &[Name]) -> anyhow::Result<()> {
        let has_superseded =
            self.repository.as_ref().is_some_and(|kept| kept.has_pending_removals());
        if published.is_empty() && withdrawn.is_empty() && !has_superseded {
            return Ok(());
        }
        // Remove before adding: a new folder may have the name of a removed file.
        let removed = withdrawn.iter().cloned().map(Update::Remove);
        let added = published.iter().cloned().map(Update::Add);
        self.updates.apply(removed.chain(added).collect(), SERVER_WAIT);
        // The objects are no longer served, so the repository may delete them.
        let taken_in = match self.repository.as_deref_mut() {
            Some(repository) => repository.adopt(&published, withdrawn).map_err(explain),
            None => Ok(()),
        };
        if let Some(registration) = &mut self.registration {
            withdrawn.iter().for_each(|name| registration.withdraw(name));
            registration.add(published.iter());
        }
        if !published.is_empty() || !withdrawn.is_empty() {
            self.report_changes(&published, withdrawn);
        }
        // An error here means that a replaced object could not be deleted. The new one is stored.
        taken_in
    }

    fn report_changes(&self, published: &[Published], withdrawn: &[Name]) {
        let names: Vec<String> =
            published.iter().map(|object| object.versioned().to_string()).collect();
        let withdrawn: Vec<String> = withdrawn.iter().map(ToString::to_string).collect();
        if self.json {
            // Ignore a closed pipe.
            let _ = outln!("{}", json!({ "published": names, "withdrawn": withdrawn }));
            return;
        }
        names.iter().for_each(|name| errln!("published {name}"));
        withdrawn.iter().for_each(|name| errln!("withdrawn {name}"));
    }
}
