//! `weir put`.

mod handover;
mod kept;
mod publisher;
mod registration;
mod seen;
mod start;
mod tree;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::ValueEnum;
use serde_json::{Value, json};
use weir_client::Client;
use weir_crypto::{KeyChainError, KeySigner};
use weir_face::unix_time_ms;
use weir_security::{Certificate, DigestSigner, Signer};
use weir_socket::{
    Loss, ObjectStore, OpenFiles, PublishOptions, Published, Repository, Signs, serve,
};
use weir_transport::{METADATA_KEYWORD, Metadata};
use weir_wire::{DataView, Interest, Name};

use self::handover::{Intake, Registration};
use self::kept::{RepositoryPlace, parse_place};
use self::publisher::{LeftOut, Standing, Version};
use self::registration::Registering;
use self::start::{Start, Started};
use self::watch::{Publishing, Watched};
use crate::controller_args::ControllerArgs;
use crate::table::{count, errln, octets, outln, printable};
use crate::transfer::{
    KeyArgs, RouterArgs, Stop, cannot_read, parse_name, parse_positive, parse_threads,
    refuse_local_name, warn_about_clock,
};

/// How long to wait before the router is tried again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);
/// How long an answer of another producer of the same name is waited for. Without a route there is
/// a Nack at once.
const OTHERS_WAIT_MS: u64 = 400;
/// Names for which others are looked for.
const NAMES_ASKED_MAX: usize = 4;
/// How often it is looked whether all is to end.
const TICK: Duration = Duration::from_millis(200);
/// Files that a process may usually have open.
const FILES_MAX_USUAL: u64 = 1024;
/// Files at most that are kept open because they may be replaced.
const HELD_FILES_MAX: u64 = 4096;
/// Entries of a directory that are left out and told one by one.
const LEFT_OUT_TOLD: usize = 20;

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
enum Sign {
    /// Your default key
    Default,
    /// SHA-256 only
    Digest,
}

#[derive(Copy, Clone, PartialEq, Eq, ValueEnum)]
enum SignaturePer {
    /// Each segment, and each manifest
    Segment,
    /// Each manifest alone
    Manifest,
}

/// Who signs, and what shows it.
struct Signing {
    signer: Arc<dyn Signer>,
    certificate: Option<Vec<u8>>,
    /// Where the certificate is served.
    certificate_prefix: Option<Name>,
    name: Option<Name>,
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
    let files = OpenFiles::new((files_max / 2).min(HELD_FILES_MAX) as usize);
    let (mut served, watched) = args.publish(is_directory, repository.as_mut(), &files, &stop)?;
    if let Some(repository) = &mut repository {
        if repository.is_guest() {
            return served.hand_over(repository, args.json);
        }
        kept::add(repository, &mut served)?;
    }
    served.own_names(&args);
    let mut registering = controller.map(Registering::new);
    if let Some(registering) = &mut registering {
        registering.add(served.store.objects());
        registering.turn()?;
    }
    if watched.is_some() || repository.is_some() {
        served.store = served.store.lingering(args.linger(), files.clone());
    }
    let updates = served.store.updates();
    let intake = repository.as_ref().and_then(|kept| Intake::open(kept, updates.clone()));
    let (intake, registrations) = intake.unzip();
    let (version, failures) = (served.version(), served.failures());
    let is_over = AtomicBool::new(false);
    let mut server = Server { args: &args, served, stop: &stop, registrations };
    let Some((watched, source, signing)) = watched else {
        let keep = |intake: &Intake| {
            let repository = repository.as_mut().expect("the intake is for it");
            while !stop.is_set() && !is_over.load(Ordering::Relaxed) {
                intake.turn(TICK, repository, registering.as_mut());
            }
            failures
        };
        return server.run_beside(client, || intake.as_ref().map_or(failures, keep), &is_over);
    };
    let publishing = Publishing {
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
    server.run_beside(client, || publishing.run(), &is_over)
}

/// What was not published makes the command fail, at its end.
fn tell_failures(failures: usize) -> anyhow::Result<()> {
    match failures {
        0 => Ok(()),
        _ => bail!("{} not published", were_left_out(failures)),
    }
}

fn were_left_out(failures: usize) -> String {
    let be = if failures == 1 { "was" } else { "were" };
    format!("{} {be}", count(failures as u64, "file or directory", "files or directories"))
}

fn not_watched(path: &Path) -> anyhow::Error {
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

/// The name of what was put with its version.
struct Root {
    versioned: Name,
    is_directory: bool,
}

/// What is put.
#[derive(Clone, Copy)]
struct Source<'a> {
    path: &'a Path,
    name: &'a Name,
    is_directory: bool,
}

/// A directory that is watched, what is published of it, and how it is signed.
type Watching<'a> = (Watched, Source<'a>, Signing);

/// What is served, and under which names.
#[derive(Default)]
struct Served {
    store: ObjectStore,
    /// Of what was put now.
    root: Option<Root>,
    /// The names that the router is told.
    names: Vec<Name>,
    /// The names of keys, which it is told if it likes.
    key_names: Vec<Name>,
    signer: Option<Name>,
    left_out: Vec<LeftOut>,
    /// Objects that were there as they would be signed.
    was_there: usize,
}

impl Args {
    fn repository(&self) -> anyhow::Result<Option<Repository>> {
        let may_be_guest = self.path.is_some() && !self.watch;
        let open = |place| kept::open(place, self.s3_endpoint.as_deref(), may_be_guest);
        self.repo.as_ref().map(open).transpose()
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
                SignaturePer::Segment => Signs::Segments,
                SignaturePer::Manifest => Signs::Manifest,
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
    ) -> anyhow::Result<(Served, Option<Watching<'_>>)> {
        let (Some(path), Some(name), Some(is_directory)) = (&self.path, &self.name, is_directory)
        else {
            return Ok((Served::default(), None));
        };
        if self.watch && !is_directory {
            return Err(not_watched(path));
        }
        kept::refuse_within(repository.as_deref(), path)?;
        let signing = self.signing()?;
        let source = Source { path, name, is_directory };
        // What happens from now on is seen.
        let mut watch = self.watch.then(|| Watched::new(path, self.follow_links)).transpose()?;
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
        watched: Option<(&mut Watched, &OpenFiles)>,
        stop: &Stop,
    ) -> anyhow::Result<Served> {
        let (watched, files) = watched.unzip();
        let start = Start {
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
        let Started { root, published, found } = start.run()?;
        let mut served = Served {
            root: Some(root),
            names: vec![source.name.clone()],
            signer: signing.name.clone(),
            left_out: found.left_out,
            was_there: found.was_there,
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

    fn signing(&self) -> anyhow::Result<Signing> {
        if self.key.is_none() && self.sign == Sign::Digest {
            let signer = Arc::new(DigestSigner);
            let (certificate, certificate_prefix, name) = (None, None, None);
            return Ok(Signing { signer, certificate, certificate_prefix, name });
        }
        let chain = self.keys.key_chain()?;
        let signer: KeySigner = match &self.key {
            Some(name) => chain.signer(name)?,
            None => chain.default_signer_or_create().map_err(explain_no_key)?,
        };
        warn_about_clock();
        if let Some(certificate) = signer.certificate() {
            warn_about_validity(certificate);
        }
        let certificate = signer.certificate().map(|certificate| certificate.wire().to_vec());
        let certificate_prefix =
            signer.certificate().map(|certificate| certificate.key_name().to_name());
        let name = Some(signer.locator_name().clone());
        Ok(Signing { signer: Arc::new(signer), certificate, certificate_prefix, name })
    }

    /// What signs answers where nothing is put: the key that is named or the default one, if it can
    /// be used without asking anybody.
    fn signer_at_hand(&self) -> Option<Arc<dyn Signer>> {
        if self.key.is_none() && self.sign == Sign::Digest {
            return Some(Arc::new(DigestSigner));
        }
        let chain = self.keys.key_chain().ok()?;
        let name = match &self.key {
            Some(name) => name.clone(),
            None => chain.default_name().ok()??,
        };
        let is_usable = !chain.find(&name).ok()?.is_encrypted;
        is_usable.then(|| chain.signer(&name).ok())?.map(|signer| Arc::new(signer) as _)
    }
}

fn warn_about_validity(certificate: &Certificate) {
    let now_unix_s = (unix_time_ms() / 1000) as i64;
    if !certificate.validity().contains(now_unix_s) {
        errln!(
            "weir: {} is not valid now, and others will refuse what is signed with it; `weir key \
             renew {}` makes a new certificate of the key, if the clock of this machine is right",
            certificate.name(),
            certificate.key_name()
        );
    }
}

fn explain_no_key(error: KeyChainError) -> anyhow::Error {
    let is_io = matches!(error, KeyChainError::Io { .. });
    let error = anyhow::Error::from(error);
    match is_io {
        true => anyhow::anyhow!(
            "{error:#}. Name a directory of yours for keys with --home or WEIR_HOME, or do without \
             a key: --sign digest"
        ),
        false => error,
    }
}

/// Serves everything until it is stopped.
struct Server<'a> {
    args: &'a Args,
    served: Served,
    stop: &'a Stop,
    /// Names that are to be registered while it serves.
    registrations: Option<Receiver<Registration>>,
}

impl Server<'_> {
    /// Serves while another thread publishes what is new. That returns how many entries should be
    /// served at the end, and are not.
    fn run_beside(
        &mut self,
        mut client: Client,
        publish: impl FnOnce() -> usize + Send,
        is_over: &AtomicBool,
    ) -> anyhow::Result<()> {
        self.warn_of_others(&mut client);
        self.begin(&mut client)?;
        std::thread::scope(|scope| {
            let publishing = scope.spawn(publish);
            let result = self.serve(client);
            is_over.store(true, Ordering::Relaxed);
            let failures = publishing.join().expect("it does not panic");
            result.and_then(|()| tell_failures(failures))
        })
    }

    /// Warns where another producer answers for a name already: consumers would get now the content
    /// of one, now that of the other.
    fn warn_of_others(&self, client: &mut Client) {
        for name in self.served.names.iter().take(NAMES_ASKED_MAX) {
            let metadata = name.clone().append_keyword(METADATA_KEYWORD).clone();
            let interest = Interest::new(metadata).can_be_prefix(true).must_be_fresh(true);
            let Ok(found) = client.express(&interest.lifetime_ms(OTHERS_WAIT_MS).encode()) else {
                continue;
            };
            let data = DataView::decode(&found.packet);
            let Some(metadata) = data.ok().and_then(|data| Metadata::decode(data.content).ok())
            else {
                // It may say that there is no such thing.
                continue;
            };
            errln!(
                "weir: another producer already serves {name} ({}); consumers get the content of \
                 one or the other. Stop one of them, or choose another name",
                metadata.versioned
            );
        }
    }

    /// Tells router and user of what is served.
    fn begin(&self, client: &mut Client) -> anyhow::Result<()> {
        self.register(client)?;
        self.announce()
    }

    fn serve(&mut self, mut client: Client) -> anyhow::Result<()> {
        let (mut lost, mut registration) = (None, None);
        while lost.is_none() {
            let served = {
                let registrations = self.registrations.as_ref();
                let mut take_losses = losses_told(self.stop, self.served.is_lone_file(), &mut lost);
                let mut go_on = |losses| {
                    registration = registrations.and_then(|names| names.try_recv().ok());
                    take_losses(losses) && registration.is_none()
                };
                serve(&mut client, &mut self.served.store, &mut go_on)
            };
            if let Some((names, done)) = registration.take() {
                // Whoever waits for it may have gone.
                let _ = done.send(self.register_more(&mut client, names));
                if served.is_ok() && lost.is_none() && !self.stop.is_set() {
                    continue;
                }
            }
            let Err(error) = served else { break };
            errln!("weir: {error}; trying to reach the router again");
            let Some(connected) = self.reconnect() else { break };
            client = connected;
            errln!("weir: serving again");
        }
        self.unregister(&mut client);
        if let Some(loss) = lost {
            bail!("{loss}; run the command again to sign and serve what it is now");
        }
        if !self.args.json {
            let stats = self.served.store.stats();
            errln!("sent {} ({})", count(stats.data, "Data", "Data"), octets(stats.octets));
        }
        if let unread @ 1.. = self.served.store.unread() {
            let packets = count(unread, "packet", "packets");
            errln!("weir: {packets} of the repository could not be read when asked for");
        }
        if let damaged @ 1.. = self.served.store.damaged() {
            errln!(
                "weir: {} not sent",
                count(damaged, "damaged packet was", "damaged packets were")
            );
        }
        Ok(())
    }

    fn register(&self, client: &mut Client) -> anyhow::Result<()> {
        for name in &self.served.names {
            client.register_prefix(name).with_context(|| {
                format!("cannot register {name} with the router at {}", client.uri())
            })?;
        }
        for name in self.served.key_names() {
            // The certificate travels with the metadata as well.
            let _ = client.register_prefix(name);
        }
        Ok(())
    }

    /// Registers names of what has been added.
    fn register_more(&mut self, client: &mut Client, names: Vec<Name>) -> Result<(), String> {
        for name in names {
            let is_above = |above: &Name| above.as_view().is_prefix_of(name.as_view());
            if self.served.names.iter().any(is_above) {
                continue;
            }
            let registered = client.register_prefix(&name);
            self.served.names.push(name.clone());
            self.served.store.own(&name);
            registered.map_err(|error| format!("cannot register {name}: {error}"))?;
        }
        Ok(())
    }

    /// The router forgets the routes with the connection; this is for the others.
    fn unregister(&self, client: &mut Client) {
        for name in self.served.names.iter().chain(self.served.key_names()) {
            let _ = client.unregister_prefix(name);
        }
    }

    fn reconnect(&self) -> Option<Client> {
        while !self.stop.is_set() {
            std::thread::sleep(RECONNECT_PAUSE);
            let Ok(mut client) = self.args.router.connect() else { continue };
            if self.register(&mut client).is_ok() {
                return Some(client);
            }
        }
        None
    }

    fn announce(&self) -> anyhow::Result<()> {
        let Served { root, left_out, signer, .. } = &self.served;
        for left_out in left_out.iter().take(LEFT_OUT_TOLD) {
            errln!("{}", left_out.text());
        }
        if let Some(more) = left_out.len().checked_sub(LEFT_OUT_TOLD).filter(|&more| more > 0) {
            errln!("left out {}", count(more as u64, "more entry", "more entries"));
        }
        if let failures @ 1.. = self.served.failures() {
            errln!("weir: {} skipped, the rest is served", were_left_out(failures));
        }
        if self.args.json {
            return Ok(outln!("{}", self.ready())?);
        }
        let objects: Vec<&Published> = self.served.store.objects().collect();
        let is_one = root.as_ref().is_some_and(|root| !root.is_directory) && objects.len() == 1;
        match root {
            Some(root) => outln!("{}", root.versioned)?,
            None => self.served.names.iter().try_for_each(|name| outln!("{name}"))?,
        }
        let what = match is_one {
            false => format!("{}, ", count(objects.len() as u64, "object", "objects")),
            true => String::new(),
        };
        let by = match (root, signer) {
            (None, _) => "signed before".to_owned(),
            (_, None) => "signed by nobody (digests only)".to_owned(),
            (_, Some(signer)) => format!("signed by {signer}"),
        };
        let size_bytes = objects.iter().map(|object| object.size_bytes()).sum();
        let segments = objects.iter().map(|object| object.segments()).sum();
        errln!("{what}{} in {}, {by}", octets(size_bytes), count(segments, "segment", "segments"));
        let unsigned = root.is_some() && signer.is_none();
        let allow = if unsigned { " --allow-unsigned" } else { "" };
        if let Some(name) = self.args.name.as_ref().or(self.served.names.first()) {
            errln!("serving, Ctrl-C to stop; get it with: weir get {name}{allow}");
        }
        Ok(())
    }

    /// What programs are told when all is ready to be got.
    fn ready(&self) -> Value {
        let Served { root, left_out, signer, names, was_there, .. } = &self.served;
        let objects: Vec<&Published> = self.served.store.objects().collect();
        let skipped = left_out.iter().filter(|one| one.standing == Standing::Nothing);
        let mut ready = json!({
            "name": root.as_ref().map(|root| root.versioned.to_string()),
            "object": self.args.name.as_ref().map(ToString::to_string),
            "directory": root.as_ref().is_some_and(|root| root.is_directory),
            "objects": objects.len(),
            "bytes": objects.iter().map(|object| object.size_bytes()).sum::<u64>(),
            "segments": objects.iter().map(|object| object.segments()).sum::<u64>(),
            "signer": signer.as_ref().map(ToString::to_string),
            "skipped": skipped.count(),
        });
        if self.args.repo.is_some() {
            ready["names"] = names.iter().map(ToString::to_string).collect();
            ready["not_signed_again"] = (*was_there).into();
        }
        ready
    }
}

impl Served {
    /// Has the store say what is not there below the names that the router is told.
    fn own_names(&mut self, args: &Args) {
        if self.root.is_none()
            && let Some(signer) = args.signer_at_hand()
        {
            self.store.sign_absence(signer);
        }
        self.names.iter().for_each(|name| self.store.own(name));
    }

    /// Has the process that serves the repository serve what has been put, and tells the user.
    fn hand_over(self, repository: &Repository, json: bool) -> anyhow::Result<()> {
        handover::hand_over(repository.path(), &repository.handed())?;
        let root = self.root.as_ref().expect("something was put");
        if json {
            let was_there = self.was_there;
            let name = root.versioned.to_string();
            outln!("{}", json!({ "name": name, "not_signed_again": was_there, "served": true }))?;
        } else {
            outln!("{}", root.versioned)?;
            let path = printable(repository.path().display());
            errln!("served by the process that has {path}");
        }
        self.left_out.iter().take(LEFT_OUT_TOLD).for_each(|one| errln!("{}", one.text()));
        tell_failures(self.failures())
    }

    /// The number of the version of what was put.
    fn version(&self) -> u64 {
        let last = self.root.as_ref().and_then(|root| root.versioned.as_view().last());
        last.and_then(|last| last.as_version()).unwrap_or(0)
    }

    /// How many entries should be served, and are not.
    fn failures(&self) -> usize {
        self.left_out.iter().filter(|one| one.is_failure()).count()
    }

    /// Without its file there is nothing to serve.
    fn is_lone_file(&self) -> bool {
        self.root.as_ref().is_some_and(|root| !root.is_directory)
            && self.store.objects().count() == 1
    }

    /// Names of keys that are not registered with the others.
    fn key_names(&self) -> impl Iterator<Item = &Name> {
        let is_below = |name: &&Name, above: &Name| above.as_view().is_prefix_of(name.as_view());
        self.key_names
            .iter()
            .filter(move |name| !self.names.iter().any(|above| is_below(name, above)))
    }
}

/// Tells of losses. That of a lone file ends it all, but not that of a packet that is kept.
fn losses_told<'a>(
    stop: &'a Stop,
    is_lone_file: bool,
    lost: &'a mut Option<Loss>,
) -> impl FnMut(Vec<Loss>) -> bool + 'a {
    move |losses| {
        for loss in losses {
            match loss {
                Loss::Damaged { .. } => {
                    errln!("weir: {loss}; it is not served, the rest is: put the file again");
                }
                Loss::Unread { .. } | Loss::Away { .. } => {
                    errln!("weir: {loss}; trying again whenever it is asked for");
                }
                Loss::Back { .. } => errln!("weir: {loss}"),
                loss if is_lone_file => *lost = Some(loss),
                loss => errln!("weir: {loss}; it is served no more, the rest is"),
            }
        }
        !stop.is_set() && lost.is_none()
    }
}
