//! The first publication of `weir put`, before it reports that it is ready.
//!
//! Ready means that all files that existed at the start are published. Files that are being written
//! are waited for, at most 3 s.

use std::collections::{BTreeMap, HashSet};
use std::fs::Metadata;
use std::path::Path;
use std::time::{Duration, Instant};

use weir_socket::{OpenFiles, PublishError, PublishOptions, Published, Repository};
use weir_wire::Name;

use super::publisher::{Publisher, ScanContext, ScanResult, Version, explain};
use super::seen::{DirectorySnapshot, listing_name};
use super::served::Root;
use super::signing::Signing;
use super::tree::{Source, Tree};
use super::watch::{ScanScope, WatchedDirectory};
use crate::transfer::Stop;

/// How long to wait for files that are being written.
const WRITERS_WAIT: Duration = Duration::from_secs(3);
/// Pause between two scans while waiting. A recently changed file counts as complete after two
/// pauses.
const PAUSE: Duration = Duration::from_millis(250);

/// The inputs of the first publication.
pub(super) struct InitialPublication<'a> {
    pub(super) source: Source<'a>,
    pub(super) follow_links: bool,
    pub(super) options: &'a PublishOptions,
    /// Returns the version number for objects signed now.
    pub(super) version: &'a dyn Fn() -> Version,
    pub(super) signing: &'a Signing,
    pub(super) repository: Option<&'a mut Repository>,
    pub(super) watched: Option<&'a mut WatchedDirectory>,
    /// Keeps replaced files open, with `--watch`.
    pub(super) files: Option<&'a OpenFiles>,
    pub(super) stop: &'a Stop,
}

/// The result of the first publication.
pub(super) struct InitialResult {
    pub(super) root: Root,
    pub(super) published: Vec<Published>,
    pub(super) found: ScanResult,
}

impl InitialPublication<'_> {
    pub(super) fn run(mut self) -> anyhow::Result<InitialResult> {
        let name = self.source.name;
        let kept = self.repository.as_deref().map(|repository| repository.names_put_below(name));
        let mut before =
            kept.map_or_else(DirectorySnapshot::default, DirectorySnapshot::from_repository);
        let mut all: BTreeMap<Vec<u8>, Published> = BTreeMap::new();
        let (mut reused, mut awaited) = (0, None);
        let mut found = loop {
            let begin = Instant::now();
            if let Some(watched) = &mut self.watched {
                // This scan covers all changes reported so far.
                watched.take_changed();
            }
            let (mut found, is_all) = self.scan(&before, awaited.as_ref())?;
            reused += found.reused;
            // Withdraw files only after a complete scan.
            let withdrawn =
                if is_all { before.withdrawn_since(&found.snapshot) } else { Vec::new() };
            self.record(&mut all, std::mem::take(&mut found.published), &withdrawn)?;
            if is_all {
                break found;
            }
            // Do not sign these files again in the next scan.
            before.files.extend(found.snapshot.files);
            let looked = begin.elapsed();
            // Wait only for files that were being written at the first scan. Later ones are
            // published after the start.
            awaited.get_or_insert((found.unsettled, Instant::now() + WRITERS_WAIT));
            // Pause as long as the scan took, so that scans use at most half of the time.
            self.pause(PAUSE.max(looked))?;
        };
        let root = self.root(&all);
        if let Some(watched) = &mut self.watched {
            watched.on_scan_done(&ScanScope::All, &mut found, name);
            watched.snapshot = found.snapshot.clone();
        }
        let found = ScanResult { reused, ..found };
        Ok(InitialResult { root, published: all.into_values().collect(), found })
    }

    /// Scans the source and publishes what is complete. Returns `true` if no file must be waited
    /// for; only then are the listings published. `awaited` contains the files that were being
    /// written at the first scan, and the deadline.
    fn scan(
        &self,
        before: &DirectorySnapshot,
        awaited: Option<&(HashSet<Name>, Instant)>,
    ) -> anyhow::Result<(ScanResult, bool)> {
        let Source { path, name, is_directory } = self.source;
        let writing = self.watched.as_ref().map(|watched| &watched.writing);
        let is_settled = |path: &Path, metadata: &Metadata| {
            writing.is_none_or(|writing| writing.is_settled(path, metadata))
        };
        let none = HashSet::new();
        let overdue = match awaited {
            Some((files, until)) if Instant::now() >= *until => files,
            _ => &none,
        };
        let before = ScanContext { seen: before, is_settled: &is_settled, overdue };
        let (version, repository) = ((self.version)(), self.repository.as_deref());
        let mut publisher =
            Publisher::new(self.options, version, self.signing, repository, before, self.stop);
        if let Some(files) = self.files {
            publisher.keep_open_in(files);
        }
        if !is_directory {
            publisher.file(path, name)?;
            return Ok((publisher.finish(), true));
        }
        let path = self.watched.as_ref().map_or(path, |watched| watched.path());
        let mut tree = Tree::of(path, name, self.follow_links)?;
        publisher.files(&mut tree, path, name)?;
        // The first scan waits for all files that are being written, later scans only for those.
        let must_wait = match awaited {
            None => writing.is_some() && publisher.is_unsettled(&|_| true),
            Some((files, _)) if overdue.is_empty() => {
                publisher.is_unsettled(&|name| files.contains(name))
            }
            Some(_) => false,
        };
        if must_wait {
            publisher.settle()?
        } else {
            publisher.listings(name, &tree)?
        }
        Ok((publisher.finish(), !must_wait))
    }

    /// Adds the published objects to `all` and to the repository, and removes the withdrawn ones.
    fn record(
        &mut self,
        all: &mut BTreeMap<Vec<u8>, Published>,
        published: Vec<Published>,
        withdrawn: &[Name],
    ) -> anyhow::Result<()> {
        if let Some(repository) = &mut self.repository {
            repository.adopt(&published, withdrawn).map_err(explain)?;
        }
        let with_names = published.into_iter();
        all.extend(with_names.map(|object| (object.object().value().to_vec(), object)));
        for name in withdrawn {
            all.remove(name.value());
        }
        Ok(())
    }

    /// Waits for writers to finish.
    fn pause(&mut self, pause: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + pause;
        while let Some(watched) = &mut self.watched
            && Instant::now() < end
        {
            watched.take_events();
            if self.stop.is_set() {
                return Err(explain(PublishError::Stopped.into()));
            }
        }
        Ok(())
    }

    /// The published root: the file, or the listing of the directory.
    fn root(&self, all: &BTreeMap<Vec<u8>, Published>) -> Root {
        let Source { name, is_directory, .. } = self.source;
        let object = if is_directory { listing_name(name) } else { name.clone() };
        let now = all.get(object.value()).map(|published| published.versioned().clone());
        let versioned = now.or_else(|| self.repository.as_ref()?.version_of(&object));
        Root { versioned: versioned.expect("it was published"), is_directory }
    }
}
