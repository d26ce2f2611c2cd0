//! `weir put`.

mod announcement;
mod handover;
mod kept;
mod publisher;
mod registration;
mod seen;
mod served;
mod server;
mod signing;
mod start;
mod tree;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::ValueEnum;
use weir_face::unix_time_ms;
use weir_socket::{OpenFiles, PublishOptions, Repository, SigningMode};
use weir_wire::Name;

use self::announcement::Announcement;
use self::handover::HandoverListener;
use self::kept::{RepositoryPlace, parse_place};
use self::publisher::Version;
use self::registration::ControllerRegistration;
use self::served::Served;
use self::server::Server;
use self::signing::{KeyChoice, Sign, Signing};
use self::start::{InitialPublication, InitialResult};
use self::tree::Source;
use self::watch::{WatchPublisher, WatchedDirectory};
use crate::controller_args::ControllerArgs;
use crate::table::printable;
use crate::transfer::{
    KeyArgs, RouterArgs, Stop, cannot_read, parse_name, parse_positive, parse_threads,
    refuse_local_name,
};

/// How often it is looked whether all is to end.
const TICK: Duration = Duration::from_millis(200);
/// Files that a process may usually have open.
const FILES_MAX_USUAL: u64 = 1024;
/// Files at most that are kept open because they may be replaced.
const KEPT_FILES_MAX: u64 = 4096;

/// Serve a file or directory under a name.
///
/// Every segment is signed once, before anything is served; the content is read from the file when
/// it is asked for. Files of a directory that cannot be read, or that change while they are signed,
/// are named and skipped; with --repo or --watch the version published before stays.
/// With --repo the signed packets are kept, and served again without path and name.
/// Runs until Ctrl-C or SIGTERM.
#[derive(clap::Args)]
#[command(
    override_usage = "weir put <PATH> <NAME> [OPTIONS]\n       weir put --repo <REPO> [OPTIONS]"
)]
pub(crate) struct Args {
    /// The file or directory
    #[arg(required_unless_present = "repo", requires = "name")]
    path: Option<PathBuf>,
    /// The name, such as /data/file
    #[arg(value_parser = parse_name, required_unless_present = "repo")]
    name: Option<Name>,
    /// Keep the signed packets in this directory or bucket (s3://BUCKET/PREFIX), and serve all that
    /// is kept there: what has not changed since is not signed again, and files that are gone are
    /// served from it
    #[arg(long, value_name = "DIR|s3://BUCKET/PREFIX", value_parser = parse_place)]
    repo: Option<RepositoryPlace>,
    /// Where the bucket's server is, such as https://s3.example.net [default: AWS_ENDPOINT_URL, or
    /// that of Amazon]. Region and credentials are those of the environment: AWS_REGION,
    /// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY
    #[arg(long, value_name = "URL", requires = "repo")]
    s3_endpoint: Option<String>,
    /// Publish changes of the directory as they happen, until stopped: new files, and new versions
    /// of files that were written to and closed. A file is withdrawn once it was found absent. It
    /// is ready when all files that are there are published; files that are being written are
    /// waited for up to 3 s
    #[arg(long, requires = "path", conflicts_with = "version")]
    watch: bool,
    /// Keep serving a version for this many seconds after it was replaced or removed, to those who
    /// are fetching it, if its file was replaced by a rename or has up to 64 KiB. Of a larger file
    /// that holds from its second version on: the first is held while it is being read
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    linger: u32,
    /// Take what is kept under this name or below it out of the repository, and end
    #[arg(long, value_name = "NAME", value_parser = parse_name, requires = "repo",
        conflicts_with_all = ["path", "url"])]
    remove: Option<Name>,
    /// Octets of content in a segment
    #[arg(long, value_name = "OCTETS", default_value_t = 8000, value_parser = parse_positive)]
    segment_size: u32,
    /// Sign with this key, of whatever type: its name, its identity's or its certificate's
    #[arg(long, value_name = "NAME", conflicts_with = "sign")]
    key: Option<Name>,
    /// Sign with your default key, made if there is none, or only with a digest that shows no
    /// origin
    #[arg(long, value_enum, default_value_t = Sign::Default)]
    sign: Sign,
    /// A signature for each segment, which any consumer can verify alone, or only for the manifest
    /// that lists them: many times faster, but consumers that do not know manifests, such as
    /// ndnget, cannot verify the file then
    #[arg(long, value_enum, value_name = "PART", default_value_t = SignaturePer::Segment)]
    signature_per: SignaturePer,
    /// Of a directory, serve also what symbolic links lead to outside of it, and linked directories
    #[arg(long)]
    follow_links: bool,
    /// How long stores count a segment as fresh, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    freshness: u64,
    /// Number of the version [default: the time in milliseconds since 1970]
    #[arg(long, value_name = "N")]
    version: Option<u64>,
    /// Threads that sign [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<u32>,
    #[command(flatten)]
    controller: ControllerArgs,
    #[command(flatten)]
    router: RouterArgs,
    #[command(flatten)]
    keys: KeyArgs,
    /// Print one JSON object when all is ready to be got
    #[arg(long)]
    json: bool,
}

#[derive(Copy, Clone, PartialEq, Eq, ValueEnum)]
enum SignaturePer {
    /// Each segment, and each manifest
    Segment,
    /// Each manifest alone
    Manifest,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    if let Some(name) = &args.name {
        refuse_local_name(name)?;
    }
    let stop = Stop::on_signals()?;
    // Of a directory, hundreds of files are open at a time. Where there may be fewer, some fail.
    let files_max = weir_face::raise_file_limit().unwrap_or(FILES_MAX_USUAL);
    let is_directory = args.path.as_deref().map(is_directory).transpose()?;
    let mut repository = args.repository()?;
    if let (Some(name), Some(repository)) = (&args.remove, &mut repository) {
        return kept::remove(repository, name, args.json);
    }
    // Nothing is signed in vain when there is no router.
    let client = args.router.connect()?;
    let controller = args.controller.files()?;
    let files = OpenFiles::new((files_max / 2).min(KEPT_FILES_MAX) as usize);
    let (mut served, watched) = args.publish(is_directory, repository.as_mut(), &files, &stop)?;
    if let Some(repository) = &mut repository {
        if repository.is_second_writer() {
            return args.announcement().hand_over(&served, repository);
        }
        kept::add(repository, &mut served)?;
    }
    let signer =
        if served.root.is_none() { args.key_choice().signer_without_passphrase() } else { None };
    served.claim_names(signer);
    let mut registering = controller.map(ControllerRegistration::new);
    if let Some(registering) = &mut registering {
        registering.add(served.store.objects());
        registering.send_if_idle()?;
    }
    if watched.is_some() || repository.is_some() {
        served.store = served.store.with_lingering(args.linger(), files.clone());
    }
    let updates = served.store.updates();
    let intake = repository.as_ref().and_then(|kept| HandoverListener::open(kept, updates.clone()));
    let (intake, registrations) = intake.unzip();
    let (version, failures) = (served.version(), served.failures());
    let is_over = AtomicBool::new(false);
    let (router, announcement) = (&args.router, args.announcement());
    let mut server = Server { router, announcement, served, stop: &stop, registrations };
    let Some((watched, source, signing)) = watched else {
        let keep = |intake: &HandoverListener| {
            let repository = repository.as_mut().expect("the intake is for it");
            while !stop.is_set() && !is_over.load(Ordering::Relaxed) {
                intake.poll_once(TICK, repository, registering.as_mut());
            }
            failures
        };
        return server.run_with_publisher(
            client,
            || intake.as_ref().map_or(failures, keep),
            &is_over,
        );
    };
    let publishing = WatchPublisher {
        watched,
        source,
        follow_links: args.follow_links,
        options: &args.publish_options(),
        signing: &signing,
        repository: repository.as_mut(),
        registering,
        updates,
        intake: intake.as_ref(),
        files: &files,
        version,
        stop: &stop,
        is_over: &is_over,
        json: args.json,
    };
    server.run_with_publisher(client, || publishing.run(), &is_over)
}

fn watch_needs_directory(path: &Path) -> anyhow::Error {
    let path = printable(path.display());
    anyhow::anyhow!("{path} is no directory; --watch is for directories: name the one it is in")
}

fn is_directory(path: &Path) -> anyhow::Result<bool> {
    let metadata = std::fs::metadata(path).map_err(|error| cannot_read(path, &error))?;
    if !metadata.is_dir() && !metadata.is_file() {
        // Merely to open a pipe could take for ever.
        bail!(
            "{} is neither a file nor a directory; write what comes from it to a file first, and \
             put that",
            printable(path.display())
        );
    }
    Ok(metadata.is_dir())
}

/// A directory that is watched, what is published of it, and how it is signed.
type WatchSetup<'a> = (WatchedDirectory, Source<'a>, Signing);

impl Args {
    fn repository(&self) -> anyhow::Result<Option<Repository>> {
        let may_be_guest = self.path.is_some() && !self.watch;
        let open = |place| kept::open(place, self.s3_endpoint.as_deref(), may_be_guest);
        self.repo.as_ref().map(open).transpose()
    }

    fn announcement(&self) -> Announcement<'_> {
        let (name, has_repository) = (self.name.as_ref(), self.repo.is_some());
        Announcement { json: self.json, name, has_repository }
    }

    fn key_choice(&self) -> KeyChoice<'_> {
        KeyChoice { key: self.key.as_ref(), sign: self.sign, keys: &self.keys }
    }

    fn linger(&self) -> Duration {
        Duration::from_secs(self.linger.into())
    }

    fn publish_options(&self) -> PublishOptions {
        let defaults = PublishOptions::default();
        PublishOptions {
            segment_size: self.segment_size as usize,
            freshness_ms: self.freshness,
            signs: match self.signature_per {
                SignaturePer::Segment => SigningMode::Segments,
                SignaturePer::Manifest => SigningMode::Manifest,
            },
            threads: self.threads.map_or(defaults.threads, |threads| threads as usize),
            ..defaults
        }
    }

    /// Publishes what is named, if something is, and begins to watch it if that is wanted.
    fn publish(
        &self,
        is_directory: Option<bool>,
        repository: Option<&mut Repository>,
        files: &OpenFiles,
        stop: &Stop,
    ) -> anyhow::Result<(Served, Option<WatchSetup<'_>>)> {
        let (Some(path), Some(name), Some(is_directory)) = (&self.path, &self.name, is_directory)
        else {
            return Ok((Served::default(), None));
        };
        if self.watch && !is_directory {
            return Err(watch_needs_directory(path));
        }
        kept::refuse_within(repository.as_deref(), path)?;
        let signing = self.key_choice().signing()?;
        let source = Source { path, name, is_directory };
        // What happens from now on is seen.
        let mut watch =
            self.watch.then(|| WatchedDirectory::new(path, self.follow_links)).transpose()?;
        let watched = watch.as_mut().map(|watched| (watched, files));
        let mut served = self.sign(source, &signing, repository, watched, stop)?;
        served.store.sign_absence(signing.signer.clone());
        Ok((served, watch.map(|watched| (watched, source, signing))))
    }

    /// Signs what is put, unless the repository has it, and has that keep it.
    fn sign(
        &self,
        source: Source<'_>,
        signing: &Signing,
        mut repository: Option<&mut Repository>,
        watched: Option<(&mut WatchedDirectory, &OpenFiles)>,
        stop: &Stop,
    ) -> anyhow::Result<Served> {
        let (watched, files) = watched.unzip();
        let start = InitialPublication {
            source,
            follow_links: self.follow_links,
            options: &self.publish_options(),
            version: &|| self.version(),
            signing,
            repository: repository.as_deref_mut(),
            watched,
            files,
            stop,
        };
        let InitialResult { root, published, found } = start.run()?;
        let mut served = Served {
            root: Some(root),
            names: vec![source.name.clone()],
            signer: signing.name.clone(),
            unpublished: found.unpublished,
            reused: found.reused,
            ..Served::default()
        };
        if let Some(repository) = repository {
            kept::put_certificate(repository, signing)?;
            return Ok(served);
        }
        published.into_iter().for_each(|published| served.store.add(published));
        if let Some(certificate) = &signing.certificate {
            served.store.add_packet(certificate.as_slice().into()).context("the certificate")?;
        }
        served.key_names.extend(signing.certificate_prefix.clone());
        Ok(served)
    }

    fn version(&self) -> Version {
        let is_fixed = self.version.is_some();
        Version { number: self.version.unwrap_or_else(unix_time_ms), is_fixed }
    }
}
