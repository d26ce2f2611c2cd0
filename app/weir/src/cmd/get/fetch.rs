//! What `weir get` fetches, and what it says of it on the way.

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
use weir_crypto::UserTrust;
use weir_face::FaceUri;
use weir_security::trust::{NeededPacket, Refusal, Trust, TrustDecision, TrustedSigner};
use weir_socket::{
    DownloadError, DownloadHost, DownloadId, Found, MemoryOutput, Output, OutputError, PartFile,
    Summary,
};
use weir_transport::{ConsumerError, FailReason, LISTING_KEYWORD, Target};
use weir_wire::{DataView, Name};

use super::folder::{Folder, Listing};
use super::report::Report;
use super::stream::{SpecialFile, StandardOutput, StreamState};
use super::{Args, Destination, is_out_of_space, write_error_advice};
use crate::table::{errln, octets, printable};
use crate::transfer::{ProgressLog, Stop, byte_bar, file_bar, trust};

/// Octets of the listings of directories that are held at a time.
const LISTING_BYTES_MAX: u64 = 256 << 20;
/// Folders within folders at most.
const DEPTH_MAX: usize = 64;
/// Failures that are told one by one.
const FAILURES_REPORTED_MAX: usize = 20;
/// After so many failures in a row the rest is given up.
const FAILED_IN_A_ROW_MAX: u64 = 1000;
/// After so many in a row that were waited for in vain, the producer is gone.
const UNANSWERED_IN_A_ROW_MAX: u64 = 16;

/// How often the latest version is looked for again, when the one that was found is refused.
const VERSION_RETRIES_MAX: u32 = 4;
/// How long to wait before the first of these looks; twice as long before each further one. In that
/// time the producer publishes what it has now.
const VERSION_RETRY_PAUSE_NS: u64 = 100 * NS_PER_MS;

/// What of a directory could not be got.
#[derive(Default)]
pub(super) struct Failures {
    pub(super) count: u64,
    /// The first of them, with the reasons.
    pub(super) reported: Vec<(Name, DownloadError)>,
    in_a_row: u64,
    unanswered_in_a_row: u64,
}

impl Failures {
    /// Notes one; an error ends the rest, too.
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
            "{} entries in a row could not be got, so the rest is given up. Is the producer still \
             running (`weir put`)? Give the command again when it is; it fetches only what is \
             missing",
            self.in_a_row
        )))
    }
}

/// One object that is under way.
struct Job {
    name: Name,
    destination: JobDestination,
    /// Directories that it lies in.
    depth: usize,
    /// What it lists, if it has turned out to be a directory.
    listing: Option<MemoryOutput>,
    /// Its latest version is wanted, not a certain one.
    is_latest: bool,
    version: Option<Name>,
    /// The version that was refused before, if one was.
    failed_version: Option<FailedVersion>,
}

/// A version that was found and could not be fetched: it may have been replaced in between.
struct FailedVersion {
    version: Name,
    error: DownloadError,
    /// How many times that has happened.
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

    /// The version was found and is not to be had: whether there may be another one now.
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

/// Where it goes.
enum JobDestination {
    /// Where the user said: it is what was asked for.
    Root,
    /// Into a directory, under this name.
    Entry { folder: Rc<Folder>, name: Vec<u8> },
}

impl JobDestination {
    /// What it is if it is a directory.
    fn folder(&self, place: &Destination, follow_links: bool) -> Result<Rc<Folder>, String> {
        match self {
            Self::Root => Ok(Folder::at(&place.directory_path()?, follow_links)),
            Self::Entry { folder, name } => Ok(folder.within(name)),
        }
    }
}

/// Names what is to be fetched and takes it in: one object, and if that is a directory all that it
/// lists, with what lies deepest first, so that few listings are held.
pub(super) struct Fetch<'a> {
    args: &'a Args,
    destination: &'a Destination,
    trust: &'a mut UserTrust,
    stop: &'a Stop,
    report: Report,
    failures: Failures,
    root: Option<Target>,
    jobs: BTreeMap<DownloadId, Job>,
    next_id: u64,
    /// The listing of the innermost directory is last.
    listings: Vec<Listing>,
    /// The directory that was asked for, if it has turned out to be one.
    root_folder: Option<Rc<Folder>>,
    /// The stream that the object goes to, if it does.
    stream: Arc<StreamState>,
    /// Those that are looked for again, and when.
    retries: Vec<(Instant, Job)>,
    /// Has the room for all listings.
    listing_budget: MemoryOutput,
    bar: Option<ProgressBar>,
    is_quiet: bool,
    progress_log: ProgressLog,
    /// Octets that have come, and when the last of them did.
    bytes: u64,
    last_progress: SystemInstant,
    /// That routers' stores were used has been said.
    has_reported_stored: bool,
}

impl<'a> Fetch<'a> {
    pub(super) fn new(
        args: &'a Args,
        place: &'a Destination,
        trust: &'a mut UserTrust,
        stop: &'a Stop,
        report: Report,
    ) -> Self {
        Self {
            args,
            destination: place,
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

    /// What came of it. Directories that stayed empty are gone then, and the others are durable
    /// unless an error says why not.
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

    /// The next entry of a directory.
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

    /// One that is looked for again, if it is time.
    fn next_retry(&mut self) -> Option<(DownloadId, Target)> {
        let now = monotonic_now();
        let at = self.retries.iter().position(|(at, _)| *at <= now)?;
        let (_, job) = self.retries.swap_remove(at);
        let target = Target::Latest { object: job.name.clone(), allow_stored: false };
        Some(self.start(job, target))
    }

    /// Has the latest version looked for once more where the one that was found is refused: a file
    /// may be replaced between the two. Otherwise returns what has failed, and why.
    fn retry_with_newer_version(
        &mut self,
        mut job: Job,
        error: DownloadError,
    ) -> Option<(Job, DownloadError)> {
        let version = job.version.take();
        let before = job.failed_version.take();
        let is_same = before.as_ref().is_some_and(|it| Some(&it.version) == version.as_ref());
        let times = before.as_ref().map_or(0, |it| it.attempts);
        job.version = version;
        let may_be_replaced = is_same || job.may_be_replaced(&error);
        // Where nothing new is found, what was wrong at first is what the user should know.
        let error = match before {
            Some(before) if is_same || job.version.is_none() => before.error,
            _ => error,
        };
        let has_begun = self.stream.has_begun.load(Ordering::Relaxed);
        let (true, Some(version)) = (may_be_replaced, job.version.take()) else {
            return Some((job, error));
        };
        if times >= VERSION_RETRIES_MAX || has_begun || self.stop.is_set() {
            return Some((job, error));
        }
        job.failed_version = Some(FailedVersion { version, error, attempts: times + 1 });
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
                None => Err("the name makes no file name; say where to put it with -o".into()),
            };
        };
        let (directory, name) = (folder.make()?, OsStr::from_bytes(name));
        let path = directory.path().join(name);
        let file = match self.args.follow_links && path.is_symlink() {
            true => PartFile::new(resolve_link(&path)?),
            false => PartFile::in_directory(directory, name),
        };
        Ok(Box::new(self.with_overwrite_rules(file.skip_if_complete())))
    }

    /// What writes to `path`: a file that appears when it is whole, or the device or pipe there.
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
            Ok(found) if found.is_symlink() && is_own_descriptor(path) => special(true),
            Ok(found) if found.is_symlink() && !self.args.follow_links => Err(format!(
                "{shown} is a symbolic link; name what it leads to with -o, or give --follow-links \
                 to write there"
            )),
            Ok(found) if found.is_symlink() => self.output_at(&resolve_link(path)?),
            Ok(found) if found.is_file() => file(path.to_owned()),
            Ok(found) if found.is_dir() => Err(format!(
                "{shown} is a directory here and a file there; move it away, or name another place \
                 with -o"
            )),
            Ok(_) => special(false),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let is_folder = path.as_os_str().as_bytes().ends_with(b"/");
                let folder = if is_folder { Some(path) } else { path.parent() };
                match folder {
                    Some(folder) if folder != Path::new("") && !folder.is_dir() => Err(format!(
                        "there is no directory {0}; make it first: mkdir -p {0}",
                        printable(folder.display())
                    )),
                    _ => file(path.to_owned()),
                }
            }
            Err(error) => Err(refuse(error)),
        }
    }

    /// Without -o, no file that the user would miss is replaced.
    fn with_overwrite_rules(&self, file: PartFile) -> PartFile {
        let file = file.with_discarded_callback(report_discarded);
        let file = if self.args.preserve { file.restore_metadata() } else { file };
        match self.args.output.is_some() || self.args.force {
            true => file,
            false => file.keep_user_files(),
        }
    }

    /// One has ended well.
    fn on_success(&mut self, job: Job, summary: &Summary) -> Result<(), String> {
        dedup_signers(&mut self.trust.policy().signers);
        let Some(listing) = job.listing else {
            let path = match &job.destination {
                JobDestination::Root => self.destination.file_path(&self.args.name),
                // Its path is of interest to nobody but the first's.
                JobDestination::Entry { .. } => None,
            };
            self.report.file(summary, path.as_deref());
            return Ok(());
        };
        if job.depth >= DEPTH_MAX {
            return Err(format!("it lies more than {DEPTH_MAX} directories deep"));
        }
        let folder = job.destination.folder(self.destination, self.args.follow_links)?;
        if matches!(job.destination, JobDestination::Root) {
            self.root_folder = Some(folder.clone());
        }
        let name = object_of_listing(&summary.versioned, &job.name);
        let listing = Listing::new(name, folder.clone(), job.depth + 1, listing)?;
        self.report.directory(summary, folder.path());
        let len = listing.len() as u64;
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

/// The files of a directory have one signer, as a rule: it is told and remembered once.
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

/// Says that what an earlier attempt has fetched is of no use.
fn report_discarded(path: &Path, versioned: &Name, bytes: u64) {
    errln!(
        "weir: {}: {} of {versioned} from an earlier attempt are discarded, as the content is \
         another now",
        printable(path.display()),
        octets(bytes)
    );
}

/// What a symbolic link leads to in the end.
fn resolve_link(path: &Path) -> Result<PathBuf, String> {
    let shown = printable(path.display());
    path.canonicalize()
        .map_err(|error| format!("{shown} is a symbolic link that leads nowhere: {error}"))
}

/// Whether the path is one that a shell makes for an open descriptor, as for `-o >(command)`.
fn is_own_descriptor(path: &Path) -> bool {
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    let own = format!("/proc/{}/fd", std::process::id());
    folder.is_some_and(|folder| folder == Path::new(&own)) || path == Path::new("/dev/stderr")
}

/// The directory whose listing this is: what precedes the keyword.
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
            None => self.next_retry().or_else(|| self.next_entry()),
        }
    }

    fn next_retry_at(&self) -> Option<Instant> {
        self.retries.iter().map(|(at, _)| *at).min()
    }

    fn may_get_more(&self) -> bool {
        !self.retries.is_empty()
    }

    fn output(&mut self, id: DownloadId, found: &Found) -> Result<Box<dyn Output>, String> {
        let job = self.jobs.get_mut(&id).expect("it is under way");
        job.version = Some(found.metadata.versioned.clone());
        if let Some(refused) = &job.failed_version
            && refused.version == found.metadata.versioned
        {
            // The later version is not published yet.
            return Err(refused.error.to_string());
        }
        if found.is_stored && !std::mem::replace(&mut self.has_reported_stored, true) {
            errln!(
                "weir: the producer of {} does not answer; this is the version that routers kept",
                self.jobs[&id].name
            );
        }
        let versioned = found.metadata.versioned.as_view();
        let is_listing = found.metadata.is_directory()
            || versioned.components().any(|part| part.is_keyword(LISTING_KEYWORD));
        if !is_listing {
            return self.file(id, found);
        }
        let job = self.jobs.get_mut(&id).expect("it is under way");
        // What can have no place need not be fetched.
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
            Some(error) => errln!("weir: {router}: {error}; going on with the other routers"),
            None => errln!("weir: {router} is back"),
        }
    }

    fn on_ended(
        &mut self,
        id: DownloadId,
        result: Result<Summary, DownloadError>,
    ) -> Result<(), DownloadError> {
        let mut job = self.jobs.remove(&id).expect("it was under way");
        let result = match result {
            Err(error) => match self.retry_with_newer_version(job, error) {
                Some((back, error)) => {
                    job = back;
                    Err(error)
                }
                None => return Ok(()),
            },
            ended => ended,
        };
        let (name, is_root) = (job.name.clone(), matches!(job.destination, JobDestination::Root));
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
        // A stopped download may end with the error of an output that noticed first.
        let error = if self.stop.is_set() { DownloadError::Stopped } else { error };
        let is_fatal = match &error {
            DownloadError::Client(_) | DownloadError::Stopped => true,
            DownloadError::Store(source)
            | DownloadError::Output(OutputError::Io { source, .. }) => {
                is_root || is_out_of_space(source)
            }
            _ => is_root,
        };
        match is_fatal {
            true => Err(error),
            false => self.failures.add(name, error),
        }
    }

    fn trust(&mut self, _id: DownloadId) -> &mut dyn Trust {
        self
    }

    fn progress(&mut self, bytes: u64) -> bool {
        if bytes != self.bytes {
            (self.bytes, self.last_progress) = (bytes, SystemInstant::now());
        }
        if self.stream.is_waiting.load(Ordering::Relaxed) {
            self.progress_log.report_if_due(|| {
                "waiting for a program to read the output; Ctrl-C ends that".to_owned()
            });
        } else if self.bar.is_none() {
            let idle = self.last_progress.elapsed();
            let first = self.jobs.values().next().map(|job| &job.name);
            self.progress_log.report_if_due(|| match first {
                Some(name) if idle >= ProgressLog::FIRST_REPORT_AFTER && bytes > 0 => format!(
                    "no answer for the rest of {name} for {} s, {} are here, still asking; Ctrl-C \
                     ends that. Is its producer running (`weir put`)?",
                    idle.as_secs(),
                    octets(bytes)
                ),
                Some(name) if idle >= ProgressLog::FIRST_REPORT_AFTER => format!(
                    "no answer for {name} for {} s, still asking; Ctrl-C ends that. Is its \
                     producer running (`weir put`)?",
                    idle.as_secs()
                ),
                _ => format!(
                    "getting {}: {}{} so far",
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

impl Trust for Fetch<'_> {
    fn decide(&mut self, data: &DataView<'_>) -> TrustDecision {
        self.trust.decide(data)
    }

    fn offer_certificate(&mut self, certificate: &[u8]) {
        self.trust.offer_certificate(certificate);
    }

    fn on_fetched(&mut self, wanted: NeededPacket, packet: Option<&[u8]>) {
        self.trust.on_fetched(wanted, packet);
    }

    fn explain(&self, refusal: Refusal) -> String {
        trust::explain(refusal)
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
