//! `weir put`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::ValueEnum;
use serde_json::json;
use weir_crypto::{KeyChainError, KeySigner};
use weir_security::{DigestSigner, Signer};
use weir_socket::{
    Client, Label, ObjectStore, PublishError, PublishOptions, Published, ServeError, publish_file,
    publish_listing, serve, unix_time_ms,
};
use weir_wire::Name;

use crate::table::{count, octets, outln};
use crate::transfer::{
    KeyArgs, RouterArgs, Stop, octet_bar, parse_name, parse_positive, parse_threads,
    refuse_local_name,
};

/// How long to wait before the router is tried again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);
/// Folders within folders at most.
const DEPTH_MAX: usize = 64;

/// Serve a file or directory under a name.
///
/// Every segment is signed once, before anything is served; the content is read from the file when
/// it is asked for. Runs until Ctrl-C or SIGTERM.
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
    let metadata = std::fs::metadata(&args.path)
        .with_context(|| format!("cannot read {}", args.path.display()))?;
    if !metadata.is_dir() && !metadata.is_file() {
        // Merely to open a pipe could take for ever.
        bail!("{} is neither a file nor a directory", args.path.display());
    }
    // Nothing is signed in vain when there is no router.
    let client = args.router.connect()?;
    let signing = args.signing()?;
    let mut publisher = Publisher {
        options: args.publish_options(),
        version: args.version.unwrap_or_else(unix_time_ms),
        signing: &signing,
        stop: &stop,
        store: ObjectStore::new(),
        skipped: 0,
    };
    let root = if metadata.is_dir() {
        publisher.directory(&args.path, &args.name, DEPTH_MAX)?
    } else {
        publisher.file(&args.path, &args.name)?
    };
    if let Some(certificate) = &signing.certificate {
        publisher.store.add_packet(certificate.as_slice().into()).context("the certificate")?;
    }
    let skipped = publisher.skipped;
    let store = publisher.store;
    let mut server = Server { args: &args, signing: &signing, store, stop: &stop, root, skipped };
    server.run(client)
}

impl Args {
    fn publish_options(&self) -> PublishOptions {
        let defaults = PublishOptions::default();
        PublishOptions {
            segment_size: self.segment_size as usize,
            freshness_ms: self.freshness,
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

/// Signs everything.
struct Publisher<'a> {
    options: PublishOptions,
    version: u64,
    signing: &'a Signing,
    stop: &'a Stop,
    store: ObjectStore,
    /// Entries of directories that are neither files nor directories.
    skipped: u64,
}

/// The name with its version, and how much there is below it.
struct Root {
    versioned: Name,
    is_directory: bool,
}

impl Publisher<'_> {
    fn label<'b>(&'b self, name: &'b Name) -> Label<'b> {
        Label {
            name,
            version: self.version,
            signer: &*self.signing.signer,
            certificate: self.signing.certificate.as_deref(),
        }
    }

    fn file(&mut self, path: &Path, name: &Name) -> anyhow::Result<Root> {
        let size = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        let bar = octet_bar(format!("signing {}", path.display()), Some(size));
        let stop = self.stop;
        let published = publish_file(path, self.label(name), &self.options, &mut |octets| {
            bar.set_position(octets);
            !stop.is_set()
        });
        bar.finish_and_clear();
        let published = published.map_err(explain)?;
        Ok(self.add(published, false))
    }

    fn add(&mut self, published: Published, is_directory: bool) -> Root {
        let versioned = published.versioned().clone();
        self.store.add(published);
        Root { versioned, is_directory }
    }

    fn directory(&mut self, path: &Path, name: &Name, depth: usize) -> anyhow::Result<Root> {
        if depth == 0 {
            bail!("{} lies more than {DEPTH_MAX} directories deep", path.display());
        }
        let context = || format!("cannot read {}", path.display());
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(path).with_context(context)? {
            let entry = entry.with_context(context)?;
            let kind = entry.file_type().with_context(context)?;
            // Links to files are followed; links to directories might lead in circles.
            let is_file = kind.is_file() || (kind.is_symlink() && entry.path().is_file());
            if is_file || kind.is_dir() {
                let file_name = std::os::unix::ffi::OsStringExt::into_vec(entry.file_name());
                entries.push((file_name, kind.is_dir(), entry.path()));
            } else {
                self.skipped += 1;
            }
        }
        entries.sort();
        for (file_name, is_directory, path) in &entries {
            let mut name = name.clone();
            name.append_generic(file_name);
            if *is_directory {
                self.directory(path, &name, depth - 1)?;
            } else {
                self.file(path, &name)?;
            }
        }
        let listing: Vec<(Vec<u8>, bool)> = entries
            .into_iter()
            .map(|(file_name, is_directory, _)| (file_name, is_directory))
            .collect();
        let published =
            publish_listing(&listing, self.label(name), &self.options).map_err(explain)?;
        Ok(self.add(published, true))
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

fn explain(error: PublishError) -> anyhow::Error {
    match &error {
        PublishError::Read { path, source } => {
            anyhow::anyhow!("cannot read {}: {source}", path.display())
        }
        PublishError::Changed { path } => anyhow::anyhow!(
            "{} changed while it was being signed; run the command again when nobody writes to it",
            path.display()
        ),
        PublishError::SegmentSize { max: 0, .. } => {
            anyhow::anyhow!("the name is too long to leave room for content; choose a shorter one")
        }
        PublishError::SegmentSize { .. } => {
            anyhow::anyhow!("{error}; give a smaller --segment-size")
        }
        _ => error.into(),
    }
}

/// Serves everything until it is stopped.
struct Server<'a> {
    args: &'a Args,
    signing: &'a Signing,
    store: ObjectStore,
    stop: &'a Stop,
    root: Root,
    skipped: u64,
}

impl Server<'_> {
    fn run(&mut self, mut client: Client) -> anyhow::Result<()> {
        self.register(&mut client)?;
        self.announce()?;
        loop {
            match serve(&mut client, &mut self.store, &mut || !self.stop.is_set()) {
                Ok(()) => break,
                Err(ServeError::Client(error)) => {
                    eprintln!("weir: {error}; trying to reach the router again");
                    let Some(connected) = self.reconnect() else { break };
                    client = connected;
                    eprintln!("weir: serving again");
                }
                Err(error @ ServeError::Changed { .. }) => {
                    self.unregister(&mut client);
                    bail!("{error}; run the command again to sign and serve what it is now");
                }
                Err(error) => {
                    self.unregister(&mut client);
                    return Err(error.into());
                }
            }
        }
        self.unregister(&mut client);
        if !self.args.json {
            let stats = self.store.stats();
            eprintln!("sent {} ({})", count(stats.data, "Data", "Data"), octets(stats.octets));
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
        if self.args.json {
            let ready = json!({
                "name": self.root.versioned.to_string(),
                "object": self.args.name.to_string(),
                "directory": self.root.is_directory,
                "objects": objects.len(),
                "bytes": size_bytes,
                "segments": segments,
                "signer": signer,
                "skipped": self.skipped,
            });
            outln!("{ready}")?;
            return Ok(());
        }
        if self.skipped > 0 {
            let entries = count(self.skipped, "entry", "entries");
            eprintln!("left out {entries} that are neither files nor directories");
        }
        outln!("{}", self.root.versioned)?;
        let what = match self.root.is_directory {
            true => format!("{}, ", count(objects.len() as u64, "object", "objects")),
            false => String::new(),
        };
        eprintln!(
            "{what}{} in {}, signed by {}",
            octets(size_bytes),
            count(segments, "segment", "segments"),
            signer.as_deref().unwrap_or("nobody (digests only)"),
        );
        let allow = if signer.is_some() { "" } else { " --allow-unsigned" };
        eprintln!("serving, Ctrl-C to stop; get it with: weir get {}{allow}", self.args.name);
        Ok(())
    }
}
