//! Signs files and listings for `weir put`.

use std::cell::LazyCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;

use weir_security::{SignError, SignatureType};
use weir_socket::{
    Label, Location, OpenFiles, PublishError, PublishOptions, Published, PutOptions, PutResult,
    Repository, RepositoryError, UncommittedObject, publish_file, publish_listing,
};
use weir_wire::Name;

use super::seen::{DirectorySnapshot, Listing, Stamp, stamp};
use super::signing::Signing;
use super::tree::{Entry, SkipCause, Tree};
use crate::limits;
use crate::table::{octets, printable};
use crate::transfer::{Interrupted, ProgressLog, Stop, byte_bar, cannot_read, file_bar};

/// Files of at least this size are signed one at a time, each by all threads.
const LARGE_BYTES: u64 = 1 << 20;
/// Maximum number of objects written to a repository before they are synced to disk.
const UNSETTLED_MAX: usize = 256;
/// Maximum number of bytes in these objects.
const UNSETTLED_BYTES_MAX: u64 = 256 << 20;

/// An entry of a directory whose current content is not published.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct UnpublishedEntry {
    pub(super) path: PathBuf,
    pub(super) reason: String,
    pub(super) served_state: ServedState,
    /// A rule excludes entries of this type, so skipping it is no failure.
    pub(super) is_by_rule: bool,
}

/// The version of an unpublished entry that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ServedState {
    Nothing,
    Earlier,
    /// The content at some moment while it was being written.
    Snapshot,
}

impl UnpublishedEntry {
    /// Whether this counts as a failure: nothing is served, and no rule excludes the entry.
    pub(super) fn is_failure(&self) -> bool {
        self.served_state == ServedState::Nothing && !self.is_by_rule
    }

    /// The message for the user.
    pub(super) fn text(&self) -> String {
        let (path, reason) = (printable(self.path.display()), &self.reason);
        match self.served_state {
            ServedState::Nothing => format!("skipped {path}: {reason}"),
            ServedState::Earlier => {
                format!("not updated {path}: {reason}; the old version stays")
            }
            ServedState::Snapshot => format!("published {path} as it is now: {reason}"),
        }
    }
}

/// The reason why an empty folder does not withdraw the files published below it.
const EMPTY: &str = "it is empty, perhaps an unmounted file system: mount it, or add a file to \
                     withdraw the published ones";
const BEING_WRITTEN: &str = "it is being written";

/// Signs the files and listings found by one scan of a directory.
///
/// 1. [`Publisher::files`] signs the new and changed files. Files that are being written wait for a
///    later scan, and entries that cannot be read keep their published version.
/// 2. [`Publisher::listings`] signs the listings that have changed. They come after the files, so
///    that a listing never names a file that is not published.
/// 3. [`Publisher::finish`] returns the result.
pub(super) struct Publisher<'a> {
    options: &'a PublishOptions,
    version: Version,
    signing: &'a Signing,
    stop: &'a Stop,
    before: ScanContext<'a>,
    batch: SignedBatch<'a>,
    found: ScanResult,
    /// Names of entries that could not be examined. Their published version stays.
    unknown: HashSet<Name>,
    /// Keeps replaced files open for consumers that still fetch them.
    files: Option<&'a OpenFiles>,
}

/// The result of one scan of a directory.
#[derive(Default)]
pub(super) struct ScanResult {
    /// Objects that are new in this process, signed now or found in the repository. All are synced
    /// to disk.
    pub(super) published: Vec<Published>,
    /// How many of them did not need to be signed.
    pub(super) reused: usize,
    pub(super) unpublished: Vec<UnpublishedEntry>,
    /// What is published of the directory after the scan.
    pub(super) snapshot: DirectorySnapshot,
    /// Files that are being written.
    pub(super) unsettled: HashSet<Name>,
    /// Some entries could not be examined; their earlier version stays published.
    pub(super) is_incomplete: bool,
    /// Folders that contain links to files.
    pub(super) folders_with_links: BTreeSet<PathBuf>,
}

/// The knowledge that a scan starts with.
#[derive(Clone, Copy)]
pub(super) struct ScanContext<'a> {
    pub(super) seen: &'a DirectorySnapshot,
    /// Whether a file is probably not being written.
    pub(super) is_settled: &'a (dyn Fn(&Path, &Metadata) -> bool + Sync),
    /// Files that have been waited for long enough. They are published even while they are being
    /// written, unless an earlier version is published.
    pub(super) overdue: &'a HashSet<Name>,
}

/// The result of signing a file or listing.
enum SignOutcome {
    /// Signed. The flag says whether the file was being written.
    Put(Box<PutResult>, bool),
    /// Not signed, as the published version is current.
    Unchanged,
    /// Not signed yet, as the file is being written.
    BeingWritten,
}

#[derive(Copy, Clone)]
pub(super) struct Version {
    pub(super) number: u64,
    /// Use this number even if the repository has a later version.
    pub(super) is_fixed: bool,
}

impl<'a> Publisher<'a> {
    pub(super) fn new(
        options: &'a PublishOptions,
        version: Version,
        signing: &'a Signing,
        repository: Option<&'a Repository>,
        before: ScanContext<'a>,
        stop: &'a Stop,
    ) -> Self {
        let (shelf, found, unknown) =
            (SignedBatch::new(repository), ScanResult::default(), HashSet::default());
        Self { options, version, signing, stop, before, batch: shelf, found, unknown, files: None }
    }

    /// Keeps files open whose earlier version was published, so that running downloads of a
    /// replaced file can finish.
    pub(super) fn keep_open_in(&mut self, files: &'a OpenFiles) {
        self.files = Some(files);
    }

    pub(super) fn finish(self) -> ScanResult {
        let SignedBatch { published, reused, .. } = self.batch;
        ScanResult { published, reused, ..self.found }
    }

    pub(super) fn file(&mut self, path: &Path, name: &Name) -> anyhow::Result<()> {
        // Only progress reports need the size. Signing reports an unreadable file.
        let size = fs::metadata(path).map_or(0, |metadata| metadata.len());
        let bar = byte_bar(format!("signing {}", printable(path.display())), Some(size));
        let (stop, mut progress_log) = (self.stop, ProgressLog::new(bar.is_hidden()));
        let put = self.signing_context(name).file(path, name, &mut |signed| {
            bar.set_position(signed);
            progress_log.report_if_due(|| {
                format!(
                    "signing {}: {} of {}",
                    printable(path.display()),
                    octets(signed),
                    octets(size)
                )
            });
            !stop.is_set()
        });
        bar.finish_and_clear();
        put.and_then(|put| self.batch.add(put)).map_err(explain)?;
        self.batch.flush().map_err(explain)?;
        self.found.snapshot.files.insert(name.clone(), None);
        Ok(())
    }

    /// Signs the files of a tree, and removes files that cannot be signed from it. `path` and
    /// `name` belong to the root directory.
    pub(super) fn files(
        &mut self,
        tree: &mut Tree,
        path: &Path,
        name: &Name,
    ) -> anyhow::Result<()> {
        let before = self.before.seen;
        let folder = |&at: &usize| tree.path_of(&tree.folders[at].entry);
        self.found.folders_with_links = tree.linked.iter().map(folder).collect();
        self.skip_too_deep(tree, name)?;
        let parents = LazyCell::new(|| before.parents());
        for folder in tree.folders.iter().filter(|folder| folder.is_served) {
            let name = folder.name.clone();
            let is_known = before.folders.get(&name) == Some(&folder.id);
            // An empty folder that this process has not seen may be a mount point without its file
            // system. If files were published below it, keep them.
            if folder.is_empty && !is_known && parents.contains(name.value()) {
                self.skip_entry(tree.path_of(&folder.entry), Some(name), EMPTY.to_owned());
                continue;
            }
            self.found.snapshot.folders.insert(name.clone(), folder.id);
            // `listings` signs the listing of a folder that was read, after the files.
            if folder.is_read {
                self.found.snapshot.listings.insert(name, None);
            } else if let Some(listing) = before.listings.get(&name) {
                self.found.snapshot.listings.entry(name).or_insert_with(|| listing.clone());
            }
        }
        for skipped in &tree.skipped {
            let (name, path) = (tree.name_of(&skipped.entry), tree.path_of(&skipped.entry));
            let name = (skipped.cause == SkipCause::Unknown).then_some(name);
            self.skip_entry(path, name, skipped.reason.clone());
            let entry = self.found.unpublished.last_mut().expect("it was just added");
            entry.is_by_rule = skipped.cause == SkipCause::Rule;
        }
        self.sign_files(name, tree)?;
        // Keep the published versions of entries that could not be examined, and of files that
        // exist although the listing did not contain them.
        self.found.is_incomplete = self.found.snapshot.carry_over(before, &self.unknown);
        let known = tree.skipped.iter().filter(|skipped| skipped.cause != SkipCause::Unknown);
        let skipped: Vec<PathBuf> = known.map(|skipped| tree.path_of(&skipped.entry)).collect();
        let skipped = skipped.iter().map(PathBuf::as_path).collect();
        let overlooked = before.overlooked(&self.found.snapshot, path, name, &skipped);
        self.found.is_incomplete |= self.found.snapshot.carry_over(before, &overlooked);
        self.unknown.extend(overlooked);
        Ok(())
    }

    /// Skips folders whose names are so long that the packets of a listing would not fit. Consumers
    /// could not find the files in such a folder.
    fn skip_too_deep(&mut self, tree: &mut Tree, root: &Name) -> anyhow::Result<()> {
        let mut reasons: Vec<Option<String>> = Vec::with_capacity(tree.folders.len());
        for folder in &tree.folders {
            // A folder comes after its parent, so the reason of the parent is known.
            let above = folder.entry.parent.and_then(|parent| reasons[parent].clone());
            // This process has signed the listing before, so the name fits.
            let is_known = matches!(self.before.seen.listings.get(&folder.name), Some(Some(_)));
            let reason = match above {
                Some(above) => Some(above),
                None if is_known => None,
                None => {
                    // Sign an empty listing as a test of the name's length.
                    let label = self.signing_context(root).label(&folder.name);
                    match publish_listing(&[], label, self.options) {
                        Err(error)
                            if folder.entry.parent.is_some() && is_per_file_error(&error) =>
                        {
                            Some(skip_reason(&error))
                        }
                        // The root itself does not fit, or nothing can be signed.
                        Err(error) => return Err(explain(error.into())),
                        Ok(_) => None,
                    }
                }
            };
            reasons.push(reason);
        }
        if reasons.iter().all(Option::is_none) {
            return Ok(());
        }
        let files = std::mem::take(&mut tree.files);
        for file in files {
            match &reasons[file.parent.expect("it lies in a folder")] {
                Some(reason) => self.skip_entry(tree.path_of(&file), None, reason.clone()),
                None => tree.files.push(file),
            }
        }
        for (at, reason) in reasons.into_iter().enumerate() {
            let Some(reason) = reason else { continue };
            // Other folders are reported through the entries that they contain.
            if tree.folders[at].is_empty {
                self.skip_entry(tree.path_of(&tree.folders[at].entry), None, reason);
            }
            tree.folders[at].is_served = false;
        }
        Ok(())
    }

    /// Whether any of the files that `is_meant` selects is being written.
    pub(super) fn is_unsettled(&self, is_meant: &dyn Fn(&Name) -> bool) -> bool {
        self.found.unsettled.iter().any(is_meant)
    }

    /// Records that an entry is not published as it is now. If `name` is given, the objects
    /// published at or below it stay.
    fn skip_entry(&mut self, path: PathBuf, name: Option<Name>, reason: String) {
        let has_earlier = name.as_ref().is_some_and(|name| self.before.seen.has(name));
        let served_state = if has_earlier { ServedState::Earlier } else { ServedState::Nothing };
        self.found.unpublished.push(UnpublishedEntry {
            path,
            reason,
            served_state,
            is_by_rule: false,
        });
        self.unknown.extend(name);
    }

    fn sign_files(&mut self, root: &Name, tree: &mut Tree) -> anyhow::Result<()> {
        let bar = file_bar("signing", tree.files.len() as u64);
        let files = std::mem::take(&mut tree.files);
        let (stop, large) = (self.stop, Mutex::new(()));
        let (context, before, open_files) = (self.signing_context(root), self.before, self.files);
        let sign = |file: &Entry| -> Result<(SignOutcome, Stamp), RepositoryError> {
            let (name, path) = (tree.name_of(file), tree.path_of(file));
            let metadata = fs::metadata(&path)
                .map_err(|source| PublishError::Read { path: path.clone(), source })?;
            // A large file is signed by all threads, so sign only one of them at a time.
            let _alone = (metadata.len() >= LARGE_BYTES).then(|| large.lock());
            let stamp = stamp(&metadata);
            if before.seen.files.get(&name) == Some(&Some(stamp)) {
                return Ok((SignOutcome::Unchanged, stamp));
            }
            let is_settled = (before.is_settled)(&path, &metadata);
            let is_due = before.overdue.contains(&name) && !before.seen.has(&name);
            if !is_settled && !is_due {
                return Ok((SignOutcome::BeingWritten, stamp));
            }
            let put = match (context.file(&path, &name, &mut |_| !stop.is_set())?, open_files) {
                // Open the file now, so that it can still be served after it was replaced.
                (PutResult::Unchanged(published), Some(files))
                    if before.seen.has(&name) || files.may_hold_first_version(metadata.len()) =>
                {
                    PutResult::Unchanged(published.with_open_file(files))
                }
                (put, _) => put,
            };
            Ok((SignOutcome::Put(Box::new(put), !is_settled), stamp))
        };
        let mut failed: HashSet<usize> = HashSet::new();
        let mut progress_log = ProgressLog::new(bar.is_hidden());
        let result = map_in_parallel(context.options.threads, &files, sign, |at, outcome| {
            bar.inc(1);
            progress_log.report_if_due(|| {
                format!("signing {root}: {} of {} files", bar.position(), files.len())
            });
            let (name, path) = (tree.name_of(&files[at]), tree.path_of(&files[at]));
            if !self.take_file(name, path, outcome)? {
                failed.insert(at);
            }
            Ok(())
        });
        bar.finish_and_clear();
        result?;
        // Listings must not name files that are not published.
        let files = files.into_iter().enumerate();
        tree.files = files.filter(|(at, _)| !failed.contains(at)).map(|(_, file)| file).collect();
        Ok(())
    }

    /// Records the result of a file. Returns whether its current content is published.
    fn take_file(
        &mut self,
        name: Name,
        path: PathBuf,
        outcome: Result<(SignOutcome, Stamp), RepositoryError>,
    ) -> anyhow::Result<bool> {
        match outcome {
            Ok((SignOutcome::Put(put, is_being_written), stamp)) => {
                self.batch.add(*put).map_err(explain)?;
                if is_being_written {
                    let (reason, served_state) = (BEING_WRITTEN.to_owned(), ServedState::Snapshot);
                    let entry = UnpublishedEntry { path, reason, served_state, is_by_rule: false };
                    self.found.unpublished.push(entry);
                    self.found.unsettled.insert(name.clone());
                }
                self.found.snapshot.files.insert(name, Some(stamp));
                return Ok(true);
            }
            Ok((SignOutcome::Unchanged, stamp)) => {
                self.found.snapshot.files.insert(name, Some(stamp));
                return Ok(true);
            }
            Ok((SignOutcome::BeingWritten, _)) => {
                self.found.unsettled.insert(name.clone());
                // Report the file only after the wait; before that, a later scan may publish it.
                if self.before.overdue.contains(&name) {
                    self.skip_entry(path, Some(name), BEING_WRITTEN.to_owned());
                } else {
                    self.unknown.insert(name);
                }
            }
            // The file was removed after it was listed. The next scan withdraws it.
            Err(RepositoryError::Publish(PublishError::Read { source, .. }))
                if source.kind() == ErrorKind::NotFound =>
            {
                self.unknown.insert(name);
            }
            Err(RepositoryError::Publish(error)) if is_per_file_error(&error) => {
                if matches!(error, PublishError::Changed { .. }) {
                    self.found.unsettled.insert(name.clone());
                }
                self.skip_entry(path, Some(name), skip_reason(&error));
            }
            Err(error) => return Err(explain(error)),
        }
        Ok(false)
    }

    /// Signs the listings of the folders whose files have been signed.
    pub(super) fn listings(&mut self, root: &Name, tree: &Tree) -> anyhow::Result<()> {
        let listings = self.listed(tree);
        let (context, before, unknown) = (self.signing_context(root), self.before, &self.unknown);
        // If a folder could not be examined, its listing stays.
        let stays = |name: &Name| unknown.contains(name) && before.seen.has(name);
        let sign = |(name, listing): &(Name, Listing)| {
            if stays(name) || before.seen.listings.get(name) == Some(&Some(listing.clone())) {
                return Ok(SignOutcome::Unchanged);
            }
            context.listing(listing, name).map(|put| SignOutcome::Put(Box::new(put), false))
        };
        let (shelf, stop) = (&mut self.batch, self.stop);
        map_in_parallel(context.options.threads, &listings, sign, |_, outcome| {
            if let SignOutcome::Put(put, _) = outcome.map_err(explain)? {
                shelf.add(*put).map_err(explain)?;
            }
            // Signing a listing does not check for a stop itself.
            if stop.is_set() { Err(explain(PublishError::Stopped.into())) } else { Ok(()) }
        })?;
        let all = listings.into_iter().filter(|(name, _)| !stays(name));
        self.found.snapshot.listings.extend(all.map(|(name, listing)| (name, Some(listing))));
        self.settle()
    }

    /// The entries of each folder that was read. They include entries that could not be examined
    /// and stay published.
    fn listed(&self, tree: &Tree) -> Vec<(Name, Listing)> {
        let mut listings: Vec<Listing> = vec![Vec::new(); tree.folders.len()];
        let served = tree.folders.iter().filter(|folder| folder.is_served);
        let folders = served.map(|folder| (&folder.entry, true));
        for (entry, is_folder) in folders.chain(tree.files.iter().map(|file| (file, false))) {
            if let Some(parent) = entry.parent {
                listings[parent].push((entry.name.as_bytes().to_vec(), is_folder));
            }
        }
        let read = || tree.folders.iter().enumerate().filter(|(_, folder)| folder.is_listed());
        let numbers: HashMap<&[u8], usize> =
            read().map(|(at, folder)| (folder.name.value(), at)).collect();
        // Entries that could not be examined stay published, so the listings must name them too.
        for name in self.unknown.iter().filter(|name| self.before.seen.has(name)) {
            let is_folder = self.before.seen.listings.contains_key(name);
            let name = name.as_view();
            if let (Some(last), Some(&parent)) = (name.last(), numbers.get(name.parent().value())) {
                listings[parent].push((last.value.to_vec(), is_folder));
            }
        }
        read()
            .map(|(at, folder)| {
                let mut listing = std::mem::take(&mut listings[at]);
                listing.sort();
                listing.dedup();
                (folder.name.clone(), listing)
            })
            .collect()
    }

    /// Syncs all signed objects to disk.
    pub(super) fn settle(&mut self) -> anyhow::Result<()> {
        self.batch.flush().map_err(explain)
    }

    fn signing_context<'b>(&self, root: &'b Name) -> SigningContext<'b>
    where
        'a: 'b,
    {
        let Self { options, version, signing, .. } = *self;
        SigningContext { root, options, version, signing, repository: self.batch.repository }
    }
}

/// Signed objects. In a repository they are synced to disk in batches before they are served.
struct SignedBatch<'a> {
    repository: Option<&'a Repository>,
    published: Vec<Published>,
    reused: usize,
    unsettled: Vec<UncommittedObject>,
    unsettled_bytes: u64,
}

impl<'a> SignedBatch<'a> {
    fn new(repository: Option<&'a Repository>) -> Self {
        let (published, unsettled) = (Vec::new(), Vec::new());
        Self { repository, published, reused: 0, unsettled, unsettled_bytes: 0 }
    }

    fn add(&mut self, put: PutResult) -> Result<(), RepositoryError> {
        match put {
            PutResult::Unchanged(published) => {
                // Without a repository, newly signed objects arrive as `Unchanged` too.
                self.reused += usize::from(self.repository.is_some());
                self.published.push(published);
            }
            PutResult::Written(unsettled) => {
                self.unsettled_bytes += unsettled.size_bytes();
                self.unsettled.push(unsettled);
                let is_much = self.unsettled_bytes >= UNSETTLED_BYTES_MAX;
                if is_much || self.unsettled.len() >= UNSETTLED_MAX {
                    self.flush()?;
                }
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), RepositoryError> {
        if let Some(repository) = self.repository {
            self.unsettled_bytes = 0;
            self.published.extend(repository.commit(std::mem::take(&mut self.unsettled))?);
        }
        Ok(())
    }
}

/// The parameters of signing: names, version, key, options and repository.
#[derive(Clone, Copy)]
struct SigningContext<'a> {
    root: &'a Name,
    version: Version,
    signing: &'a Signing,
    options: &'a PublishOptions,
    repository: Option<&'a Repository>,
}

impl<'a> SigningContext<'a> {
    fn file(
        self,
        path: &Path,
        name: &Name,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<PutResult, RepositoryError> {
        let label = self.label(name);
        match self.repository {
            Some(repository) => repository.put_file(path, label, self.putting(), progress),
            None => Ok(PutResult::Unchanged(publish_file(path, label, self.options, progress)?)),
        }
    }

    fn listing(
        self,
        entries: &[(Vec<u8>, bool)],
        name: &Name,
    ) -> Result<PutResult, RepositoryError> {
        let label = self.label(name);
        match self.repository {
            Some(repository) => repository.put_listing(entries, label, self.putting()),
            None => Ok(PutResult::Unchanged(publish_listing(entries, label, self.options)?)),
        }
    }

    fn putting(self) -> PutOptions<'a> {
        let Self { root, options, version, .. } = self;
        PutOptions { root, is_version_fixed: version.is_fixed, options }
    }

    fn label<'b>(self, name: &'b Name) -> Label<'b>
    where
        'a: 'b,
    {
        Label {
            name,
            version: self.version.number,
            signer: &*self.signing.signer,
            certificate: self.signing.certificate.as_deref(),
        }
    }
}

/// Applies `work` to all items in several threads. Passes each result with the index of its item to
/// `take`, in arbitrary order. An error of `take` ends the work.
fn map_in_parallel<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
    mut take: impl FnMut(usize, R) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let next = AtomicUsize::new(0);
    // Bound the channel, as each result may keep a file open.
    let (results, taken) = sync_channel(threads);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(items.len()) {
            let (results, next, work) = (results.clone(), &next, &work);
            scope.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { return };
                    if results.send((at, work(item))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(results);
        // An error drops the receiver, which ends the threads.
        taken.into_iter().try_for_each(|(at, result)| take(at, result))
    })
}

/// The reason why a file of a directory is skipped.
fn skip_reason(error: &PublishError) -> String {
    match error {
        PublishError::Read { source, .. } => source.to_string(),
        PublishError::Changed { .. } => "it changed while it was being signed".into(),
        PublishError::NoFile { .. } => "it is no longer a file".into(),
        PublishError::SegmentSize { max: 0, .. } => "its name is too long for a packet".into(),
        PublishError::SegmentSize { .. } => {
            format!("its name is too long: {error}; use a smaller --segment-size")
        }
        PublishError::SizeUnknown { .. } => {
            "it is generated when read, and its size differs from what the system reports".into()
        }
        other => other.to_string(),
    }
}

/// Whether the error concerns one file, so that the other files can still be published.
fn is_per_file_error(error: &PublishError) -> bool {
    !matches!(error, PublishError::Stopped | PublishError::Sign(_))
}

/// The message for an error of signing or of the repository, with advice.
pub(super) fn explain(error: RepositoryError) -> anyhow::Error {
    let is_bucket = matches!(
        &error,
        RepositoryError::Read { path, .. } if path.to_str().is_some_and(Location::has_scheme)
    );
    let next = match &error {
        RepositoryError::Publish(_) => return explain_publish(error),
        RepositoryError::Write { source, .. } if limits::next_step(source).is_some() => {
            "; the file size limit of this process is reached: raise it (ulimit -f), and run the \
             command again. The repository keeps its earlier objects"
        }
        RepositoryError::Write { .. } => {
            "; the repository keeps its earlier objects. Check the free space and the permissions, \
             and run the command again"
        }
        RepositoryError::NotARepository { .. } => "; choose an empty or new directory",
        RepositoryError::InUse { .. } => {
            "; only one process at a time can use a repository. Once that process serves, it \
             accepts objects from `weir put PATH NAME --repo DIR` without --watch: try again \
             later, stop it, or choose another directory"
        }
        RepositoryError::UnknownLayout { .. } => "; use the version of weir that created it",
        RepositoryError::VersionExhausted { .. } => {
            "; remove it with --remove, or choose a version with --version"
        }
        RepositoryError::Read { source, .. } => match source.kind() {
            ErrorKind::PermissionDenied if is_bucket => {
                "; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to credentials with read \
                 access, or AWS_SKIP_SIGNATURE=true for a public bucket"
            }
            ErrorKind::HostUnreachable if std::env::var_os("AWS_ACCESS_KEY_ID").is_none() => {
                "; AWS_ACCESS_KEY_ID is not set, so credentials were requested from the role of \
                 this machine: set it and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true for a \
                 public bucket"
            }
            ErrorKind::HostUnreachable => {
                "; set the server with --s3-endpoint or AWS_ENDPOINT_URL, and its region with \
                 AWS_REGION"
            }
            _ => "",
        },
    };
    anyhow::anyhow!("{error}{next}")
}

fn explain_publish(error: RepositoryError) -> anyhow::Error {
    let RepositoryError::Publish(error) = error else { return error.into() };
    match &error {
        PublishError::Stopped => Interrupted("").into(),
        PublishError::Read { path, source } => cannot_read(path, source),
        PublishError::Changed { path } => anyhow::anyhow!(
            "{} changed while it was being signed; run the command again when no program writes \
             to it",
            printable(path.display())
        ),
        PublishError::NoFile { .. } | PublishError::SizeUnknown { .. } => {
            anyhow::anyhow!("{error}; copy its content to a file first, and put that")
        }
        PublishError::SegmentSize { max: 0, .. } => {
            anyhow::anyhow!("the name is too long for a packet with content; choose a shorter one")
        }
        PublishError::SegmentSize { .. } => {
            anyhow::anyhow!("{error}; use a smaller --segment-size")
        }
        PublishError::Sign(SignError::NoHicnSignature(SignatureType::DIGEST_SHA256)) => {
            anyhow::anyhow!(
                "--signature-format hicn needs a key; choose one with --key, or leave out --sign \
                 digest"
            )
        }
        PublishError::Sign(SignError::NoHicnSignature(_)) => anyhow::anyhow!(
            "--signature-format hicn needs a shorter key; choose another one with --key"
        ),
        PublishError::TooDeep { .. } => {
            anyhow::anyhow!("the name is too long: {error}; choose one with fewer components")
        }
        _ => error.into(),
    }
}
