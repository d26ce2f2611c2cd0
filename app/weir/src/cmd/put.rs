//! `weir put`.

mod publisher;
mod registration;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::ValueEnum;
use serde_json::json;
use weir_agent::Files;
use weir_crypto::{KeyChainError, KeySigner};
use weir_security::{DigestSigner, Signer};
use weir_socket::{
    Client, Loss, ObjectStore, PublishOptions, Published, Signs, serve, unix_time_ms,
};
use weir_wire::Name;

use self::publisher::{LeftOut, Publisher, Root};
use self::registration::ControllerArgs;
use crate::table::{count, errln, octets, outln, printable};
use crate::transfer::{
    KeyArgs, RouterArgs, Stop, cannot_read, parse_name, parse_positive, parse_threads,
    refuse_local_name,
};

/// How long to wait before the router is tried again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);
/// Entries of a directory that are left out and told one by one.
const LEFT_OUT_TOLD: usize = 20;

/// Serve a file or directory under a name.
///
/// Every segment is signed once, before anything is served; the content is read from the file when
/// it is asked for. What of a directory cannot be read, changes or goes away is named and left out.
/// Runs until Ctrl-C or SIGTERM.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The file or directory
    path: PathBuf,
    /// The name, such as /data/file
    #[arg(value_parser = parse_name)]
    name: Name,
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
    signer: Box<dyn Signer>,
    certificate: Option<Vec<u8>>,
    /// Where the certificate is served.
    certificate_prefix: Option<Name>,
    name: Option<Name>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    refuse_local_name(&args.name)?;
    let stop = Stop::on_signals()?;
    let metadata =
        std::fs::metadata(&args.path).map_err(|error| cannot_read(&args.path, &error))?;
    if !metadata.is_dir() && !metadata.is_file() {
        // Merely to open a pipe could take for ever.
        bail!(
            "{} is neither a file nor a directory; write what comes from it to a file first, and \
             put that",
            printable(args.path.display())
        );
    }
    // Nothing is signed in vain when there is no router.
    let client = args.router.connect()?;
    let controller = args.controller.files()?;
    let signing = args.signing()?;
    let version = args.version.unwrap_or_else(unix_time_ms);
    let mut publisher = Publisher::new(args.publish_options(), version, &signing, &stop);
    let root = if metadata.is_dir() {
        publisher.directory(&args.path, &args.name, args.follow_links)?
    } else {
        publisher.file(&args.path, &args.name)?
    };
    let Publisher { mut store, left_out, .. } = publisher;
    if let Some(certificate) = &signing.certificate {
        store.add_packet(certificate.as_slice().into()).context("the certificate")?;
    }
    let mut server = Server { args: &args, signing: &signing, store, stop: &stop, root, left_out };
    server.run(client, controller.as_ref())
}

impl Args {
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

    fn signing(&self) -> anyhow::Result<Signing> {
        if self.key.is_none() && self.sign == Sign::Digest {
            let signer = Box::new(DigestSigner);
            let (certificate, certificate_prefix, name) = (None, None, None);
            return Ok(Signing { signer, certificate, certificate_prefix, name });
        }
        let chain = self.keys.key_chain()?;
        let signer: KeySigner = match &self.key {
            Some(name) => chain.signer(name)?,
            None => chain.default_signer_or_create().map_err(explain_no_key)?,
        };
        let certificate = signer.certificate().map(|certificate| certificate.wire().to_vec());
        let certificate_prefix =
            signer.certificate().map(|certificate| certificate.key_name().to_name());
        let name = Some(signer.locator_name().clone());
        Ok(Signing { signer: Box::new(signer), certificate, certificate_prefix, name })
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
    signing: &'a Signing,
    store: ObjectStore,
    stop: &'a Stop,
    root: Root,
    left_out: Vec<LeftOut>,
}

impl Server<'_> {
    fn run(&mut self, mut client: Client, controller: Option<&Files>) -> anyhow::Result<()> {
        self.register(&mut client)?;
        if let Some(files) = controller {
            registration::register(files, self.store.objects());
        }
        self.announce()?;
        let (stop, is_directory) = (self.stop, self.root.is_directory);
        let mut lost = None;
        while lost.is_none() {
            let mut go_on = |losses: Vec<Loss>| {
                for loss in losses {
                    match is_directory {
                        true => errln!("weir: {loss}; it is served no more, the rest is"),
                        false => lost = Some(loss),
                    }
                }
                !stop.is_set() && lost.is_none()
            };
            let Err(error) = serve(&mut client, &mut self.store, &mut go_on) else { break };
            errln!("weir: {error}; trying to reach the router again");
            let Some(connected) = self.reconnect() else { break };
            client = connected;
            errln!("weir: serving again");
        }
        if let Some(loss) = lost {
            self.unregister(&mut client);
            bail!("{loss}; run the command again to sign and serve what it is now");
        }
        self.unregister(&mut client);
        if !self.args.json {
            let stats = self.store.stats();
            errln!("sent {} ({})", count(stats.data, "Data", "Data"), octets(stats.octets));
        }
        Ok(())
    }

    fn register(&self, client: &mut Client) -> anyhow::Result<()> {
        client.register_prefix(&self.args.name).with_context(|| {
            format!("cannot register {} with the router at {}", self.args.name, client.uri())
        })?;
        if let Some(prefix) = self.certificate_prefix() {
            // The certificate travels with the metadata as well.
            let _ = client.register_prefix(prefix);
        }
        Ok(())
    }

    fn certificate_prefix(&self) -> Option<&Name> {
        let prefix = self.signing.certificate_prefix.as_ref()?;
        (!self.args.name.as_view().is_prefix_of(prefix.as_view())).then_some(prefix)
    }

    /// The router forgets the routes with the connection; this is for the others.
    fn unregister(&self, client: &mut Client) {
        let _ = client.unregister_prefix(&self.args.name);
        if let Some(prefix) = self.certificate_prefix() {
            let _ = client.unregister_prefix(prefix);
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
        let objects = self.store.objects();
        let size_bytes: u64 = objects.iter().map(Published::size_bytes).sum();
        let segments: u64 = objects.iter().map(Published::segments).sum();
        let signer = self.signing.name.as_ref().map(ToString::to_string);
        for LeftOut { path, reason } in self.left_out.iter().take(LEFT_OUT_TOLD) {
            errln!("left out {}: {reason}", printable(path.display()));
        }
        if let Some(more) = self.left_out.len().checked_sub(LEFT_OUT_TOLD).filter(|&more| more > 0)
        {
            errln!("left out {}", count(more as u64, "more entry", "more entries"));
        }
        if self.args.json {
            let ready = json!({
                "name": self.root.versioned.to_string(),
                "object": self.args.name.to_string(),
                "directory": self.root.is_directory,
                "objects": objects.len(),
                "bytes": size_bytes,
                "segments": segments,
                "signer": signer,
                "skipped": self.left_out.len(),
            });
            outln!("{ready}")?;
            return Ok(());
        }
        outln!("{}", self.root.versioned)?;
        let what = match self.root.is_directory {
            true => format!("{}, ", count(objects.len() as u64, "object", "objects")),
            false => String::new(),
        };
        errln!(
            "{what}{} in {}, signed by {}",
            octets(size_bytes),
            count(segments, "segment", "segments"),
            signer.as_deref().unwrap_or("nobody (digests only)"),
        );
        let allow = if signer.is_some() { "" } else { " --allow-unsigned" };
        errln!("serving, Ctrl-C to stop; get it with: weir get {}{allow}", self.args.name);
        Ok(())
    }
}
