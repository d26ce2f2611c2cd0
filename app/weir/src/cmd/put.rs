//! `weir put`: signs files and serves them.
//!
//! 1. Sign the file, or all files of the directory ([`start`]). With `--repo`, the repository keeps
//!    the packets.
//! 2. Register the names with the router and report that everything is ready ([`announcement`]).
//! 3. Serve on the main thread ([`server`]). A second thread publishes changes ([`watch`]) or
//!    accepts objects from other `weir put` processes ([`handover`]).

mod announcement;
mod handover;
mod kept;
mod publisher;
mod registration;
mod seen;
mod served;
mod server;
pub(super) mod signing;
mod start;
mod tree;
mod watch;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::ValueEnum;
use weir_client::{Client, packet_bytes_max};
use weir_face::unix_time_ms;
use weir_hicn::{HicnName, HicnPrefix};
use weir_security::SignatureFormat;
use weir_socket::{OpenFiles, PublishOptions, Published, Repository, SigningMode};
use weir_transport::NameMapping;
use weir_wire::{Name, PACKET_SIZE_MAX};

use self::announcement::Announcement;
use self::handover::HandoverListener;
use self::kept::{RepositoryPlace, parse_place};
use self::publisher::Version;
use self::registration::ControllerRegistration;
use self::served::{Registration, Served};
use self::server::Server;
use self::signing::{KeyChoice, Sign, Signing};
use self::start::{InitialPublication, InitialResult};
use self::tree::Source;
use self::watch::{WatchPublisher, WatchedDirectory};
use crate::controller_args::ControllerArgs;
use crate::help::{OUTPUT, REPOSITORY, SIGNING};
use crate::quantity::{milliseconds, positive_bytes, seconds};
use crate::table::printable;
use crate::transfer::{
    KeyArgs, RouterArgs, Stop, cannot_read, parse_name, parse_threads, refuse_local_name,
    refuse_ndn_names_over_hicn,
};

/// How many addresses are registered one by one. Above that, the prefix of the mapping is.
const ADDRESSES_MAX: usize = 64;
/// Length of the prefix that is suggested for an address.
const SUGGESTED_PREFIX_BITS: u8 = 64;

/// Time between two checks for the end.
const TICK: Duration = Duration::from_millis(200);
/// The usual limit of open files in a process, used if the real limit is unknown.
const FILES_MAX_USUAL: u64 = 1024;
/// Upper bound of files that are kept open for consumers that still fetch a replaced version.
const KEPT_FILES_MAX: u64 = 4096;

/// Serve a file or directory under a name.
///
/// `weir put` signs all segments, then serves them until Ctrl-C or SIGTERM. It reads the content
/// from the file on request, so the file must not change. Files that cannot be read, or that change
/// while they are signed, are skipped with a warning. With --repo or --watch, their earlier version
/// stays.
///
/// With --repo, the signed packets are stored in a repository. `weir put --repo` serves a
/// repository again without signing, even if the files are gone.
#[derive(clap::Args)]
#[command(
    override_usage = "weir put <PATH> <NAME> [OPTIONS]\n       weir put --repo <REPO> [OPTIONS]",
    after_help = "Examples:\n  weir put /etc/services /demo/services\n  weir put . /demo/folder \
                  --watch --repo /tmp/demo.repo"
)]
pub(crate) struct Args {
    /// The file or directory to serve
    #[arg(required_unless_present = "repo", requires = "name")]
    path: Option<PathBuf>,
    /// The name to serve it under, such as /data/file
    #[arg(value_parser = parse_name, required_unless_present = "repo")]
    name: Option<Name>,
    /// Store the signed packets in this directory or S3 bucket, and serve everything in it. Files
    /// that have not changed are not signed again. Files deleted later are still served [default:
    /// keep nothing]
    #[arg(long, value_name = "DIR|s3://BUCKET/PREFIX", value_parser = parse_place,
        help_heading = REPOSITORY)]
    repo: Option<RepositoryPlace>,
    /// URL of the S3 server, such as https://s3.example.net. Region and credentials come from
    /// AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY [default: AWS_ENDPOINT_URL, or
    /// Amazon]
    #[arg(long, value_name = "URL", requires = "repo", help_heading = REPOSITORY)]
    s3_endpoint: Option<String>,
    /// Watch the directory: publish new files, publish a new version when a file has been written
    /// and closed, and withdraw deleted files. The start waits up to 3 s for files that are being
    /// written
    #[arg(long, requires = "path", conflicts_with = "version")]
    watch: bool,
    /// Serve a replaced or withdrawn version for this time more, so that running downloads
    /// can finish. Applies to files of up to 64 KiB and to files replaced by a rename. The first
    /// version of a larger file is kept only while it is being read
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = seconds)]
    linger: u32,
    /// Remove this name and everything below it from the repository, and exit
    #[arg(long, value_name = "NAME", value_parser = parse_name, requires = "repo",
        conflicts_with_all = ["path", "url"], help_heading = REPOSITORY)]
    remove: Option<Name>,
    /// Content bytes per segment [default: 8000, or 1000 with hICN names]
    #[arg(long, value_name = "SIZE", value_parser = positive_bytes)]
    segment_size: Option<u32>,
    /// Set when the router is known.
    #[arg(skip = PACKET_SIZE_MAX)]
    packet_bytes_max: usize,
    /// Sign with this key: the name of a key, an identity or a certificate [default: the default
    /// key]
    #[arg(long, value_name = "NAME", conflicts_with = "sign", help_heading = SIGNING)]
    key: Option<Name>,
    /// Sign with a key or only with a digest
    #[arg(long, value_enum, default_value_t = Sign::Default, help_heading = SIGNING)]
    sign: Sign,
    /// Sign each segment, or only the manifest that lists their digests. A manifest is many times
    /// faster, but consumers without manifest support, such as ndnget, cannot verify the file
    #[arg(long, value_enum, value_name = "PART", default_value_t = SignaturePer::Segment,
        help_heading = SIGNING)]
    signature_per: SignaturePer,
    /// Sign as NDN does, or as hICN does, so that hICN programs can verify the packets, too. hICN
    /// needs --mapping and a key
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = SignatureFormatArg::Ndn,
        requires_if("hicn", "mapping"), help_heading = SIGNING)]
    signature_format: SignatureFormatArg,
    /// Follow symbolic links to directories, and links that lead out of the directory
    #[arg(long)]
    follow_links: bool,
    /// Freshness period of the segments: how long caches may answer requests for fresh data with
    /// them
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = milliseconds)]
    freshness: u64,
    /// Version number [default: the current time in milliseconds since 1970]
    #[arg(long, value_name = "N")]
    version: Option<u64>,
    /// Names in the network: identity, or hicn:PREFIX for hICN names below an IPv6 prefix, such as
    /// hicn:2001:db8:7::/48. Consumers need the same mapping. A NAME such as hicn:2001:db8:7::1 is
    /// an address below the prefix, under which hICN programs find the file
    #[arg(long, value_name = "MAPPING", default_value_t, conflicts_with_all = ["repo", "watch"])]
    mapping: NameMapping,
    /// Number of signing threads [default: one per processor]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<u32>,
    #[command(flatten)]
    controller: ControllerArgs,
    #[command(flatten)]
    router: RouterArgs,
    #[command(flatten)]
    keys: KeyArgs,
    /// Print one JSON object when everything is served
    #[arg(long, help_heading = OUTPUT)]
    json: bool,
}

#[derive(Copy, Clone, PartialEq, Eq, ValueEnum)]
enum SignaturePer {
    /// Sign each segment and each manifest
    Segment,
    /// Sign only the manifests
    Manifest,
}

#[derive(Copy, Clone, PartialEq, Eq, ValueEnum)]
enum SignatureFormatArg {
    /// Over the elements of the packet
    Ndn,
    /// Over octets of the hICN packet
    Hicn,
}

pub(crate) fn run(mut args: Args) -> anyhow::Result<()> {
    if let Some(name) = &args.name {
        refuse_local_name(name)?;
    }
    let stop = Stop::on_signals()?;
    // A directory needs hundreds of open files at a time. With a lower limit, some files fail.
    let files_max = weir_face::raise_file_limit().unwrap_or(FILES_MAX_USUAL);
    let is_directory = args.path.as_deref().map(is_directory).transpose()?;
    let mut repository = args.repository()?;
    if let (Some(name), Some(repository)) = (&args.remove, &mut repository) {
        return kept::remove(repository, name, args.json);
    }
    // Connect before signing: without a router, the signatures would be wasted.
    let client = args.connect()?;
    let mut registration = args.controller.files()?.map(ControllerRegistration::new);
    // Leave half of the descriptors for signing and serving.
    let files = OpenFiles::new((files_max / 2).min(KEPT_FILES_MAX) as usize);
    let (mut served, watched) = args.publish(is_directory, repository.as_mut(), &files, &stop)?;
    if let Some(repository) = &mut repository {
        if repository.is_second_writer() {
            return args.announcement().hand_over(&served, repository);
        }
        kept::add(repository, &mut served)?;
    }
    // Without PATH no key is open yet. Use one only if it needs no passphrase.
    let key = served.root.is_none().then(|| args.key_choice());
    served.claim_names(key.and_then(|key| key.signer_without_passphrase()));
    if let Some(registration) = &mut registration {
        registration.add(served.store.objects());
        registration.send_if_idle()?;
    }
    // Otherwise no object is ever replaced or withdrawn.
    if watched.is_some() || repository.is_some() {
        served.store = served.store.with_lingering(args.linger(), files.clone());
    }
    let updates = served.store.updates();
    let (handover, registrations) =
        repository.as_ref().and_then(|kept| HandoverListener::open(kept, updates.clone())).unzip();
    let (version, failures, is_over) =
        (served.version(), served.failures(), AtomicBool::new(false));
    let (router, announcement) = (&args.router, args.announcement());
    let mut server = Server { router, announcement, served, stop: &stop, registrations };
    // Without --watch, the second thread only accepts objects from other processes.
    let Some((watched, source, signing)) = watched else {
        let keep = |handover: &HandoverListener| {
            let repository = repository.as_mut().expect("the repository of the handover");
            while !stop.is_set() && !is_over.load(Ordering::Relaxed) {
                handover.poll_once(TICK, repository, registration.as_mut());
            }
            failures
        };
        return server.run_with_publisher(
            client,
            || handover.as_ref().map_or(failures, keep),
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
        registration,
        updates,
        handover: handover.as_ref(),
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
    anyhow::anyhow!(
        "{path} is not a directory, which --watch needs; name the directory of the file"
    )
}

fn is_directory(path: &Path) -> anyhow::Result<bool> {
    let metadata = std::fs::metadata(path).map_err(|error| cannot_read(path, &error))?;
    if !metadata.is_dir() && !metadata.is_file() {
        // Opening a pipe could block forever.
        bail!(
            "{} is neither a file nor a directory; copy its content to a file first, and put that",
            printable(path.display())
        );
    }
    Ok(metadata.is_dir())
}

/// The watched directory, the name it is published under, and the key.
type WatchSetup<'a> = (WatchedDirectory, Source<'a>, Signing);

impl Args {
    /// Connects to the router, and notes the size of its packets.
    fn connect(&mut self) -> anyhow::Result<Client> {
        let client = self.router.connect()?;
        if let Some(name) = &self.name {
            refuse_ndn_names_over_hicn(&client, self.mapping, name)?;
        }
        self.packet_bytes_max = packet_bytes_max(client.uri());
        Ok(client)
    }

    fn repository(&self) -> anyhow::Result<Option<Repository>> {
        let may_be_guest = self.path.is_some() && !self.watch;
        let open = |place| kept::open(place, self.s3_endpoint.as_deref(), may_be_guest);
        self.repo.as_ref().map(open).transpose()
    }

    fn announcement(&self) -> Announcement<'_> {
        let (name, has_repository) = (self.name.as_ref(), self.repo.is_some());
        Announcement {
            json: self.json,
            name,
            has_repository,
            mapping: self.mapping,
            has_hicn_signatures: self.signature_format == SignatureFormatArg::Hicn,
        }
    }

    fn key_choice(&self) -> KeyChoice<'_> {
        KeyChoice { key: self.key.as_ref(), sign: self.sign, keys: &self.keys }
    }

    fn linger(&self) -> Duration {
        Duration::from_secs(self.linger.into())
    }

    fn publish_options(&self) -> PublishOptions {
        let defaults = PublishOptions::default();
        let segment_size = self.segment_size.unwrap_or(self.mapping.segment_size_default());
        PublishOptions {
            segment_size: segment_size as usize,
            packet_bytes_max: self.packet_bytes_max,
            freshness_ms: self.freshness,
            mapping: self.mapping,
            signs: match self.signature_per {
                SignaturePer::Segment => SigningMode::Segments,
                SignaturePer::Manifest => SigningMode::Manifest,
            },
            signature_format: match self.signature_format {
                SignatureFormatArg::Ndn => SignatureFormat::Ndn,
                SignatureFormatArg::Hicn => SignatureFormat::Hicn,
            },
            threads: self.threads.map_or(defaults.threads, |threads| threads as usize),
            ..defaults
        }
    }

    /// Publishes PATH, if given, and starts to watch it with `--watch`.
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
        if let (NameMapping::Identity, Some(address)) =
            (self.mapping, HicnName::address_of(name.as_view()))
        {
            let prefix = HicnPrefix::masked(address, SUGGESTED_PREFIX_BITS);
            bail!(
                "an hICN address needs --mapping with a prefix of it, such as --mapping \
                 hicn:{prefix}"
            );
        }
        if is_directory && self.mapping.is_direct(name.as_view()) {
            bail!("an hICN address has room for one file; give a directory another name");
        }
        let prefix = self.mapping.prefix(name.as_view());
        if self.mapping.is_direct(name.as_view()) && !prefix.as_view().is_prefix_of(name.as_view())
        {
            bail!("the address is not below the prefix of --mapping; choose another one");
        }
        kept::refuse_within(repository.as_deref(), path)?;
        let signing = self.key_choice().signing()?;
        let source = Source { path, name, is_directory };
        // Watch before the first scan, so that no change in between is missed.
        let mut watch =
            self.watch.then(|| WatchedDirectory::new(path, self.follow_links)).transpose()?;
        let watched = watch.as_mut().map(|watched| (watched, files));
        let mut served = self.sign(source, &signing, repository, watched, stop)?;
        served.store.sign_absence(signing.signer.clone());
        Ok((served, watch.map(|watched| (watched, source, signing))))
    }

    /// Signs the source. The repository, if there is one, supplies and keeps the packets.
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
        let (registration, names) = self.registration(source.name, &published);
        let mut served = Served {
            root: Some(root),
            registration,
            names,
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

    /// The names to register for what is published under `name`.
    fn registration(&self, name: &Name, published: &[Published]) -> (Registration, Vec<Name>) {
        if self.mapping == NameMapping::Identity {
            return (Registration::Names, vec![name.clone()]);
        }
        let addresses: BTreeSet<Name> =
            published.iter().flat_map(Published::packet_prefixes).collect();
        if addresses.len() <= ADDRESSES_MAX {
            return (Registration::Addresses, addresses.into_iter().collect());
        }
        (Registration::SharedPrefix, vec![self.mapping.prefix(name.as_view())])
    }

    fn version(&self) -> Version {
        let is_fixed = self.version.is_some();
        Version { number: self.version.unwrap_or_else(unix_time_ms), is_fixed }
    }
}
