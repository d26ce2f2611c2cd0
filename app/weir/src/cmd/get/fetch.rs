//! Decides what `weir get` fetches and where each object is written, and prints the progress.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant as SystemInstant;

use indicatif::ProgressBar;
use weir_base::{Instant, NS_PER_MS};
use weir_client::{ClientError, monotonic_now};
use weir_face::FaceUri;
use weir_security::trust::{Trust, TrustedSigner};
use weir_socket::{
    DiscardReason, DownloadError, DownloadHost, DownloadId, Found, MemoryOutput, Output,
    OutputError, PartFile, Summary,
};
use weir_transport::{ConsumerError, FailReason, LISTING_KEYWORD, Target};
use weir_wire::Name;

use super::folder::{Folder, Listing};
use super::report::Report;
use super::stream::{SpecialFile, StandardOutput, StreamState};
use super::{Args, Destination, is_out_of_space, write_error_advice};
use crate::table::{errln, octets, printable};
use crate::transfer::trust::FetchTrust;
use crate::transfer::{ProgressLog, Stop, byte_bar, file_bar};

/// Memory budget for directory listings, in bytes.
const LISTING_BYTES_MAX: u64 = 256 << 20;
/// Maximum depth of nested directories.
const DEPTH_MAX: usize = 64;
/// Number of failed entries that are reported one by one.
const FAILURES_REPORTED_MAX: usize = 20;
/// After this many consecutive failures, the command stops.
const FAILED_IN_A_ROW_MAX: u64 = 1000;
/// After this many consecutive timeouts, the command stops: the producer is probably down.
const UNANSWERED_IN_A_ROW_MAX: u64 = 16;

/// Maximum number of repeated discoveries if the version found cannot be fetched.
const VERSION_RETRIES_MAX: u32 = 4;
/// The pause before the first repetition; it doubles each time. It gives the producer time to
/// publish the new version.
const VERSION_RETRY_PAUSE_NS: u64 = 100 * NS_PER_MS;

/// The entries of a directory that could not be fetched.
#[derive(Default)]
pub(super) struct Failures {
    pub(super) count: u64,
    /// The first failures, with their errors.
    pub(super) reported: Vec<(Name, DownloadError)>,
    in_a_row: u64,
    unanswered_in_a_row: u64,
}

impl Failures {
    /// Records a failure. Returns an error if there are too many, which ends the command.
    fn add(&mut self, name: Name, error: DownloadError) -> Result<(), DownloadError> {
        self.count += 1;
        self.in_a_row += 1;
        let is_unanswered = matches!(error, DownloadError::Fetch(ConsumerError::Unanswered(_)));
        self.unanswered_in_a_row = if is_unanswered { self.unanswered_in_a_row + 1 } else { 0 };
        if self.reported.len() < FAILURES_REPORTED_MAX {
            self.reported.push((name, error));
        }
        if self.in_a_row < FAILED_IN_A_ROW_MAX && self.unanswered_in_a_row < UNANSWERED_IN_A_ROW_MAX
        {
            return Ok(());
        }
        Err(DownloadError::Refused(format!(
            "gave up after {} consecutive failures. Check that the producer runs (`weir put`), and \
             run the command again to fetch only what is missing",
            self.in_a_row
        )))
    }
}

/// One object being fetched.
struct Job {
    name: Name,
    destination: JobDestination,
    /// Number of directories above it.
    depth: usize,
    /// The listing being received, if the object is a directory.
    listing: Option<MemoryOutput>,
    /// Whether the latest version is requested rather than a specific one.
    is_latest: bool,
    version: Option<Name>,
    /// The version that failed in an earlier attempt.
    failed_version: Option<FailedVersion>,
}

/// A version that discovery found but that could not be fetched. The producer may have replaced it
/// in between.
struct FailedVersion {
    version: Name,
    error: DownloadError,
    attempts: u32,
}

impl Job {
    fn new(name: Name, to: JobDestination, depth: usize, is_latest: bool) -> Self {
        Self {
            name,
            destination: to,
            depth,
            listing: None,
            is_latest,
            version: None,
            failed_version: None,
        }
    }

    /// Whether a newer version may exist: discovery found this one, but the fetch failed.
    fn may_be_replaced(&self, error: &DownloadError) -> bool {
        let DownloadError::Fetch(error) = error else { return false };
        self.is_latest
            && self.version.is_some()
            && match error {
                ConsumerError::Incomplete(missing) => missing.reason != FailReason::Unanswered,
                ConsumerError::NoRoute(_)
                | ConsumerError::Refused(_)
                | ConsumerError::Nacked { .. }
                | ConsumerError::Damaged(_)
                | ConsumerError::Unverified { .. } => true,
                _ => false,
            }
    }
}

/// Where an object is written.
enum JobDestination {
    /// The object of the command line, at the user's path.
    Root,
    /// An entry of a directory.
    Entry { folder: Rc<Folder>, name: Vec<u8> },
}

impl JobDestination {
    /// The local directory for an object that is a directory.
    fn folder(&self, destination: &Destination, follow_links: bool) -> Result<Rc<Folder>, String> {
        match self {
            Self::Root => Ok(Folder::at(&destination.directory_path()?, follow_links)),
            Self::Entry { folder, name } => Ok(folder.within(name)),
        }
    }
}

/// Supplies the downloader with objects and outputs, and receives the results.
///
/// The first object is given on the command line. If it is a directory, its listing adds all
/// entries. The innermost directory is finished first, so that few listings are in memory.
pub(super) struct Fetch<'a> {
    args: &'a Args,
    destination: &'a Destination,
    trust: &'a mut FetchTrust,
    stop: &'a Stop,
    report: Report,
    failures: Failures,
    root: Option<Target>,
    jobs: BTreeMap<DownloadId, Job>,
    next_id: u64,
    /// Listings with entries left. The innermost directory is last.
    listings: Vec<Listing>,
    /// The requested directory, if the object is a directory.
    root_folder: Option<Rc<Folder>>,
    /// State of the output stream, if the output is a stream.
    stream: Arc<StreamState>,
    /// Objects whose discovery is repeated, with the time.
    retries: Vec<(Instant, Job)>,
    /// The memory budget that all listings share.
    listing_budget: MemoryOutput,
    bar: Option<ProgressBar>,
    is_quiet: bool,
    progress_log: ProgressLog,
    /// Bytes received so far, and when the last of them arrived.
    bytes: u64,
    last_progress: SystemInstant,
    /// Whether the use of a stored version has been reported.
    has_reported_stored: bool,
}

impl<'a> Fetch<'a> {
    pub(super) fn new(
        args: &'a Args,
        destination: &'a Destination,
        trust: &'a mut FetchTrust,
        stop: &'a Stop,
        report: Report,
    ) -> Self {
        Self {
            args,
            destination,
            trust,
            stop,
            report,
            failures: Failures::default(),
            root: Some(args.target()),
            jobs: BTreeMap::new(),
            next_id: 0,
            listings: Vec::new(),
            root_folder: None,
            stream: Arc::default(),
            retries: Vec::new(),
            listing_budget: MemoryOutput::new(LISTING_BYTES_MAX),
            bar: None,
            is_quiet: args.json || !std::io::stderr().is_terminal(),
            progress_log: ProgressLog::new(true),
            bytes: 0,
            last_progress: SystemInstant::now(),
            has_reported_stored: false,
        }
    }

    /// Returns the results, and whether the directories could be synced to disk. Directories that
    /// stayed empty are removed.
    pub(super) fn finish(self) -> (Report, Failures, Result<(), String>) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
        let synced = self.root_folder.map_or(Ok(()), |folder| folder.sync());
        (self.report, self.failures, synced)
    }

    fn start(&mut self, job: Job, target: Target) -> (DownloadId, Target) {
        let id = DownloadId(self.next_id);
        self.next_id += 1;
        self.jobs.insert(id, job);
        (id, target)
    }

    /// Starts the next entry of the innermost directory.
    fn next_entry(&mut self) -> Option<(DownloadId, Target)> {
        loop {
            let listing = self.listings.last_mut()?;
            let Some(entry) = listing.next_entry() else {
                self.listings.pop();
                continue;
            };
            let mut name = listing.name.clone();
            name.append_generic(&entry);
            let to = JobDestination::Entry { folder: listing.folder.clone(), name: entry };
            let job = Job::new(name.clone(), to, listing.depth, true);
            return Some(self.start(job, Target::Latest { object: name, allow_stored: true }));
        }
    }

    /// Starts an object whose discovery is due again.
    fn next_retry(&mut self) -> Option<(DownloadId, Target)> {
        let now = monotonic_now();
        let at = self.retries.iter().position(|(at, _)| *at <= now)?;
        let (_, job) = self.retries.swap_remove(at);
        let target = Target::Latest { object: job.name.clone(), allow_stored: false };
        Some(self.start(job, target))
    }

    /// Schedules a new discovery of the latest version if the found one could not be fetched, as
    /// the file may have been replaced in between. Otherwise returns the job and its error.
    fn retry_with_newer_version(
        &mut self,
        mut job: Job,
        error: DownloadError,
    ) -> Option<(Job, DownloadError)> {
        let version = job.version.take();
        let before = job.failed_version.take();
        // `output` refuses a version that has failed before. That is no new error.
        let is_same = before.as_ref().is_some_and(|it| Some(&it.version) == version.as_ref());
        let times = before.as_ref().map_or(0, |it| it.attempts);
        job.version = version;
        let may_be_replaced = is_same || job.may_be_replaced(&error);
        // If discovery finds no newer version, report the first error.
        let error = match before {
            Some(before) if is_same || job.version.is_none() => before.error,
            _ => error,
        };
        // Bytes already written to a stream cannot be replaced by another version.
        let has_begun = self.stream.has_begun.load(Ordering::Relaxed);
        let (true, Some(version)) = (may_be_replaced, job.version.take()) else {
            return Some((job, error));
        };
        if times >= VERSION_RETRIES_MAX || has_begun || self.stop.is_set() {
            return Some((job, error));
        }
        job.failed_version = Some(FailedVersion { version, error, attempts: times + 1 });
        // Discard the listing of the failed version.
        job.listing = None;
        let pause_ns = VERSION_RETRY_PAUSE_NS << times;
        self.retries.push((monotonic_now().plus_ns(pause_ns), job));
        None
    }

    fn file(&mut self, id: DownloadId, found: &Found) -> Result<Box<dyn Output>, String> {
        let JobDestination::Entry { folder, name } = &self.jobs[&id].destination else {
            if !self.is_quiet {
                let size = found.metadata.size_bytes;
                self.bar = Some(byte_bar(self.args.name.to_string(), size));
            }
            return match self.destination.file_path(&self.args.name) {
                _ if matches!(self.destination, Destination::Stream) => {
                    Ok(Box::new(StandardOutput::new(self.stop, &self.stream)))
                }
                Some(path) => self.output_at(&path),
                None => Err("its name is not a valid file name; choose a path with -o".into()),
            };
        };
        let (directory, name) = (folder.make()?, OsStr::from_bytes(name));
        let path = directory.path().join(name);
        let file = if self.args.follow_links && path.is_symlink() {
            // The target of the link may be outside of the open directory.
            PartFile::new(resolve_link(&path)?)
        } else {
            PartFile::in_directory(directory, name)
        };
        Ok(Box::new(self.with_overwrite_rules(file.skip_if_complete())))
    }

    /// The output for `path`: a part file that is renamed when complete, or an existing device or
    /// pipe.
    fn output_at(&self, path: &Path) -> Result<Box<dyn Output>, String> {
        let special = |is_link| {
            let file = SpecialFile::new(path, is_link, self.stop, &self.stream);
            Ok(Box::new(file) as Box<dyn Output>)
        };
        let shown = printable(path.display());
        let refuse = |error: std::io::Error| {
            format!("cannot write {shown}: {error}{}", write_error_advice(&error))
        };
        let file =
            |path: PathBuf| Ok(Box::new(self.with_overwrite_rules(PartFile::new(path))) as _);
        match std::fs::symlink_metadata(path).map(|found| found.file_type()) {
            // Write to the open descriptor; its target must not be replaced.
            Ok(found) if found.is_symlink() && is_own_descriptor(path) => special(true),
            Ok(found) if found.is_symlink() && !self.args.follow_links => Err(format!(
                "{shown} is a symbolic link; choose its target with -o, or use --follow-links"
            )),
            Ok(found) if found.is_symlink() => self.output_at(&resolve_link(path)?),
            Ok(found) if found.is_file() => file(path.to_owned()),
            Ok(found) if found.is_dir() => Err(format!(
                "it is a file, but {shown} is a local directory; move that away, or choose another \
                 path with -o"
            )),
            Ok(_) => special(false),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let is_folder = path.as_os_str().as_bytes().ends_with(b"/");
                let folder = if is_folder { Some(path) } else { path.parent() };
                match folder {
                    Some(folder) if folder != Path::new("") && !folder.is_dir() => Err(format!(
                        "there is no directory {0}; create it with mkdir -p {0}",
                        printable(folder.display())
                    )),
                    _ => file(path.to_owned()),
                }
            }
            Err(error) => Err(refuse(error)),
        }
    }

    /// Applies the rules for existing files and for resuming: without `-o` or `--force`, a file
    /// that the user made or changed is not replaced.
    fn with_overwrite_rules(&self, file: PartFile) -> PartFile {
        let file = file.with_discarded_callback(report_discarded);
        let file = if self.args.preserve { file.restore_metadata() } else { file };
        let file = if self.args.may_be_unverified() { file.accept_unverified() } else { file };
        if self.args.output.is_some() || self.args.force { file } else { file.keep_user_files() }
    }

    /// Handles a complete object: reports a file, or queues the entries of a listing.
    fn on_success(&mut self, job: Job, summary: &Summary) -> Result<(), String> {
        dedup_signers(&mut self.trust.inner.policy().signers);
        let Some(listing) = job.listing else {
            let path = match &job.destination {
                JobDestination::Root => self.destination.file_path(&self.args.name),
                // The report shows only the path of the requested object.
                JobDestination::Entry { .. } => None,
            };
            self.report.file(summary, path.as_deref());
            return Ok(());
        };
        if job.depth >= DEPTH_MAX {
            return Err(format!("it is nested more than {DEPTH_MAX} directories deep"));
        }
        let folder = job.destination.folder(self.destination, self.args.follow_links)?;
        if matches!(job.destination, JobDestination::Root) {
            self.root_folder = Some(folder.clone());
        }
        let name = object_of_listing(&summary.versioned, &job.name);
        let listing = Listing::new(name, folder.clone(), job.depth + 1, listing)?;
        self.report.directory(summary, folder.path());
        let len = listing.len() as u64;
        // Folders are created with their first file, and this one has none.
        if len == 0 {
            return folder.make_empty();
        }
        if !self.is_quiet {
            let message = || file_bar(self.args.name.to_string(), 0);
            let bar = self.bar.get_or_insert_with(message);
            bar.inc_length(len);
        }
        self.listings.push(listing);
        Ok(())
    }
}

/// Removes duplicate signers. The files of a directory usually have the same signer.
fn dedup_signers(signers: &mut Vec<TrustedSigner>) {
    let mut seen: Vec<TrustedSigner> = Vec::new();
    signers.retain(|signer| {
        let is_new = !seen.contains(signer);
        if is_new {
            seen.push(signer.clone());
        }
        is_new
    });
}

/// Reports that the part file of an earlier attempt is discarded.
fn report_discarded(path: &Path, versioned: &Name, bytes: u64, reason: DiscardReason) {
    let reason = match reason {
        DiscardReason::Content => "the content has changed",
        DiscardReason::Signer => "it was verified with another key",
        DiscardReason::Unverified => "it was not verified",
    };
    errln!(
        "weir: {}: discarded {} of {versioned} from an earlier attempt, as {reason}",
        printable(path.display()),
        octets(bytes)
    );
}

/// The final target of a symbolic link.
fn resolve_link(path: &Path) -> Result<PathBuf, String> {
    let shown = printable(path.display());
    path.canonicalize().map_err(|error| format!("{shown} is a broken symbolic link: {error}"))
}

/// Whether the path names an open descriptor of this process, as the shell makes it for
/// `-o >(command)`.
fn is_own_descriptor(path: &Path) -> bool {
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    let own = format!("/proc/{}/fd", std::process::id());
    folder.is_some_and(|folder| folder == Path::new(&own)) || path == Path::new("/dev/stderr")
}

/// The name of the directory of a listing: the part before the keyword component.
fn object_of_listing(versioned: &Name, asked: &Name) -> Name {
    let view = versioned.as_view();
    let keyword = view.components().position(|part| part.is_keyword(LISTING_KEYWORD));
    keyword.map_or_else(|| asked.clone(), |count| view.prefix(count).to_name())
}

impl DownloadHost for Fetch<'_> {
    fn next(&mut self) -> Option<(DownloadId, Target)> {
        match self.root.take() {
            Some(target) => {
                let name = self.args.name.clone();
                let is_latest = matches!(target, Target::Latest { .. });
                Some(self.start(Job::new(name, JobDestination::Root, 0, is_latest), target))
            }
            // A retry that is due comes before new entries.
            None => self.next_retry().or_else(|| self.next_entry()),
        }
    }

    fn next_retry_at(&self) -> Option<Instant> {
        self.retries.iter().map(|(at, _)| *at).min()
    }

    fn may_get_more(&self) -> bool {
        !self.retries.is_empty() || self.root.is_some()
    }

    fn output(&mut self, id: DownloadId, found: &Found) -> Result<Box<dyn Output>, String> {
        let job = self.jobs.get_mut(&id).expect("it is under way");
        job.version = Some(found.metadata.versioned.clone());
        if let Some(refused) = &job.failed_version
            && refused.version == found.metadata.versioned
        {
            // Discovery found the failed version again; the newer one is not published yet.
            return Err(refused.error.to_string());
        }
        if let Some(reason) = &found.stored
            && !std::mem::replace(&mut self.has_reported_stored, true)
        {
            let versioned = &found.metadata.versioned;
            errln!(
                "weir: {reason}; using {versioned} from a router's store. There may be a newer \
                 version"
            );
        }
        let versioned = found.metadata.versioned.as_view();
        let is_listing = found.metadata.is_directory()
            || versioned.components().any(|part| part.is_keyword(LISTING_KEYWORD));
        if !is_listing {
            return self.file(id, found);
        }
        let job = self.jobs.get_mut(&id).expect("it is under way");
        // Do not fetch a listing whose directory cannot be created.
        let folder = job.destination.folder(self.destination, self.args.follow_links)?;
        if matches!(job.destination, JobDestination::Root) {
            folder.check()?;
        }
        let listing = self.listing_budget.sharing_limit();
        job.listing = Some(listing.clone());
        Ok(Box::new(listing))
    }

    fn on_path_changed(&mut self, router: &FaceUri, error: Option<&ClientError>) {
        match error {
            Some(error) if self.args.router.has_several() => {
                errln!("weir: {router}: {error}; continuing with the other routers");
            }
            Some(error) => errln!("weir: {router}: {error}; reconnecting"),
            None => errln!("weir: {router} is back"),
        }
    }

    fn on_ended(
        &mut self,
        id: DownloadId,
        result: Result<Summary, DownloadError>,
    ) -> Result<(), DownloadError> {
        let mut job = self.jobs.remove(&id).expect("it was under way");
        let is_root = matches!(job.destination, JobDestination::Root);
        let result = match result {
            // The signer was not known before the download began.
            Err(DownloadError::OtherSigner) if is_root => {
                errln!(
                    "weir: {}: discarded what an earlier attempt has stored, as it was verified \
                     with another key",
                    job.name
                );
                self.root = Some(self.args.target());
                return Ok(());
            }
            Err(error) => match self.retry_with_newer_version(job, error) {
                Some((back, error)) => {
                    job = back;
                    Err(error)
                }
                None => return Ok(()),
            },
            ended => ended,
        };
        let name = job.name.clone();
        let result = result
            .and_then(|summary| self.on_success(job, &summary).map_err(DownloadError::Refused));
        if let (false, Some(bar)) = (is_root, &self.bar) {
            bar.inc(1);
        }
        let Err(error) = result else {
            self.failures.in_a_row = 0;
            self.failures.unanswered_in_a_row = 0;
            return Ok(());
        };
        // After a stop, the output may fail before the downloader notices. Report the stop.
        let error = if self.stop.is_set() { DownloadError::Stopped } else { error };
        // An error of one entry does not stop the others. An error of the router, a stop and a full
        // disk affect all entries.
        let is_fatal = match &error {
            DownloadError::Client(_) | DownloadError::Stopped => true,
            DownloadError::Store(source)
            | DownloadError::Output(OutputError::Io { source, .. }) => {
                is_root || is_out_of_space(source)
            }
            _ => is_root,
        };
        if is_fatal { Err(error) } else { self.failures.add(name, error) }
    }

    fn trust(&mut self, _id: DownloadId) -> &mut dyn Trust {
        self.trust
    }

    fn progress(&mut self, bytes: u64) -> bool {
        if bytes != self.bytes {
            (self.bytes, self.last_progress) = (bytes, SystemInstant::now());
        }
        if self.stream.is_waiting.load(Ordering::Relaxed) {
            self.progress_log.report_if_due(|| {
                "waiting for a program to read the output; stop with Ctrl-C".to_owned()
            });
        } else if self.bar.is_none() {
            let idle = self.last_progress.elapsed();
            // Of several downloads, name the oldest.
            let first = self.jobs.values().next().map(|job| &job.name);
            self.progress_log.report_if_due(|| match first {
                Some(name) if idle >= ProgressLog::FIRST_REPORT_AFTER && bytes > 0 => format!(
                    "{name}: no data for {} s, have {}; still trying, stop with Ctrl-C. Check that \
                     its producer runs (`weir put`)",
                    idle.as_secs(),
                    octets(bytes)
                ),
                Some(name) if idle >= ProgressLog::FIRST_REPORT_AFTER => format!(
                    "no answer for {name} for {} s; still trying, stop with Ctrl-C. Check that its \
                     producer runs (`weir put`)",
                    idle.as_secs()
                ),
                _ => format!(
                    "fetching {}: {}{} so far",
                    self.args.name,
                    self.report.files_of_directory(),
                    octets(bytes)
                ),
            });
        }
        if let Some(bar) = &self.bar {
            if self.report.is_directory() {
                bar.set_message(format!("{}, {}", self.args.name, octets(bytes)));
            } else {
                bar.set_position(bytes);
            }
        }
        !self.stop.is_set()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_each_signer_once() {
        use weir_security::trust::TrustBasis;
        let signer = |ground| TrustedSigner { name: None, key_digest: None, basis: ground };
        let mut signers = vec![
            signer(TrustBasis::OwnKey),
            signer(TrustBasis::KnownKey),
            signer(TrustBasis::OwnKey),
        ];
        dedup_signers(&mut signers);
        let grounds: Vec<_> = signers.iter().map(|signer| &signer.basis).collect();
        assert_eq!(grounds, [&TrustBasis::OwnKey, &TrustBasis::KnownKey]);
    }
}
