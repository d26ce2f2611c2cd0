//! `weir put --watch`: what changes in a directory is published as it does.
//!
//! The system reports that something has changed. A look finds out what: through the folders that
//! it has reported, or through the whole directory where that may not be enough. So what moves is
//! no case of its own.

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

/// How long after the first change there is a look.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// How long after a look at some folders the whole directory is looked through, for what the system
/// does not report: a file that was changed by another of its names, or through a mapping.
const FULL_SCAN_AFTER: Duration = Duration::from_secs(5);
/// How long to wait for the thread that serves.
const SERVER_WAIT: Duration = Duration::from_secs(5);

/// Publishes what changes, beside the thread that serves.
pub(super) struct WatchPublisher<'a> {
    pub(super) watched: WatchedDirectory,
    pub(super) source: Source<'a>,
    pub(super) follow_links: bool,
    pub(super) options: &'a PublishOptions,
    pub(super) signing: &'a Signing,
    pub(super) repository: Option<&'a mut Repository>,
    pub(super) registering: Option<ControllerRegistration>,
    pub(super) updates: Updates,
    /// Takes in what other processes put into the repository.
    pub(super) intake: Option<&'a HandoverListener>,
    /// What may be kept open of files that change.
    pub(super) files: &'a OpenFiles,
    /// The number of the last version.
    pub(super) version: u64,
    pub(super) stop: &'a Stop,
    pub(super) is_over: &'a AtomicBool,
    pub(super) json: bool,
}

impl WatchPublisher<'_> {
    /// Until it is over. Returns how many entries should be published then, and are not.
    pub(super) fn run(mut self) -> usize {
        let mut due = self.watched.rescan_after.map(|again| Instant::now() + again);
        let (mut earliest, mut last_error) = (Instant::now(), String::new());
        // When the whole directory has to be looked through.
        let mut full_due: Option<Instant> = None;
        while !self.stop.is_set() && !self.is_over.load(Ordering::Relaxed) {
            let has_events = self.watched.take_events();
            let is_replaced = self.watched.rewatch_if_replaced();
            if has_events || is_replaced {
                let soon = earliest.max(Instant::now() + DEBOUNCE);
                // What failed before may not fail in another directory.
                due = Some(due.filter(|_| !is_replaced).unwrap_or(soon));
            }
            if full_due.is_some_and(|at| at <= Instant::now()) {
                self.watched.add_changed(ScanScope::All);
                due.get_or_insert(earliest);
                full_due = None;
            }
            if let (Some(intake), Some(repository)) = (self.intake, self.repository.as_deref_mut())
            {
                intake.poll_once(Duration::ZERO, repository, self.registering.as_mut());
            }
            if let Some(registering) = &mut self.registering
                && let Err(error) = registering.send_if_idle()
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
            if !error.is_empty() && error != last_error && !self.stop.is_set() {
                errln!("weir: {error}; trying again");
            }
            last_error = error;
            // To look through takes no more than a third of the time.
            earliest = Instant::now() + 2 * begin.elapsed();
            due = self.watched.rescan_after.map(|again| earliest.max(Instant::now() + again));
        }
        self.watched.failures()
    }

    /// Looks at what has changed, or at everything, and publishes what is not as it was. Returns
    /// what was looked at.
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
        // Each version is later than the one before, whatever the clock says.
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
                // What has been kept is served, and need not be signed the next time.
                self.publish(published, &[])?;
            }
            return Err(error);
        }
        // What has been reported before is not reported again.
        for left_out in
            found.unpublished.iter().filter(|one| !self.watched.is_known_unpublished(one))
        {
            errln!("weir: {}", left_out.text());
        }
        let withdrawn = seen.withdrawn_since(&found.snapshot);
        self.watched.on_scan_done(&scope, &mut found, name);
        match part {
            Some(part) => self.watched.snapshot.replace(&part, found.snapshot),
            None => {
                if self.watched.rewatch_if_swapped(&found.snapshot) {
                    self.watched.rescan_after = Some(DEBOUNCE);
                }
                self.watched.snapshot = found.snapshot;
            }
        }
        self.publish(published, &withdrawn)?;
        Ok(scope)
    }

    /// What is known of some folders, and what lies in them now; nothing where there is more to
    /// look at: another folder has come, gone or taken the place of one.
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
        // A folder may take the name of a file, and its metadata that of the file's metadata. So
        // the file goes first.
        let removed = withdrawn.iter().cloned().map(Update::Remove);
        let added = published.iter().cloned().map(Update::Add);
        self.updates.apply(removed.chain(added).collect(), SERVER_WAIT);
        // What is served no more may go.
        let taken_in = match self.repository.as_deref_mut() {
            Some(repository) => repository.adopt(&published, withdrawn).map_err(explain),
            None => Ok(()),
        };
        if let Some(registering) = &mut self.registering {
            withdrawn.iter().for_each(|name| registering.withdraw(name));
            registering.add(published.iter());
        }
        if !published.is_empty() || !withdrawn.is_empty() {
            self.report_changes(&published, withdrawn);
        }
        // Something that has been replaced could not be removed; what replaces it is kept.
        taken_in
    }

    fn report_changes(&self, published: &[Published], withdrawn: &[Name]) {
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
