//! `weir get`.

mod report;

use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use indicatif::ProgressBar;
use weir_crypto::UserTrust;
use weir_security::trust::{Believed, Decision, Refusal, Wanted};
use weir_socket::{
    Client, DownloadError, DownloadOptions, Found, Host, MemoryOutput, Output, OutputError,
    PartFile, Progress, StreamOutput, Summary, download, is_reserved_name,
};
use weir_transport::{ConsumerConfig, ConsumerError, Controller, LISTING_KEYWORD, Target};
use weir_wire::{DataView, Name};

use self::report::Report;
use crate::transfer::{
    Interrupted, KeyArgs, RouterArgs, Stop, octet_bar, parse_name, parse_positive, parse_threads,
    trust,
};

/// Largest listing of a directory, in octets.
const LISTING_BYTES_MAX: u64 = 256 << 20;
/// Folders within folders at most.
const DEPTH_MAX: usize = 64;

/// Fetch what a name denotes.
///
/// Every segment is verified. The file appears under its name when it is whole; a download that
/// breaks off goes on where it was when the command is given again.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The name, such as /data/file, with or without a version
    #[arg(value_parser = parse_name)]
    name: Name,
    /// Where to put it: a file or directory, or - for standard output [default: the name's last
    /// component]
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,
    /// Fetch this version, not the latest
    #[arg(long, value_name = "N")]
    version: Option<u64>,
    /// How to find the segments
    #[arg(long, value_enum, default_value_t = Discovery::Metadata)]
    discovery: Discovery,
    #[arg(long, value_name = "KIND", default_value_t = Controller::Cubic, help = format!(
        "How the number of Interests under way is controlled: {}", Controller::WORDS.join(", "),
    ))]
    pipeline: Controller,
    /// Interests under way: always with fixed, else at first
    #[arg(long, value_name = "N", value_parser = parse_positive)]
    window: Option<u32>,
    /// Interests under way at most
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = parse_positive)]
    window_max: u32,
    /// How long routers keep an Interest, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 4000, value_parser = parse_positive)]
    lifetime: u32,
    /// Times that an Interest is sent again before giving up
    #[arg(long, value_name = "N", default_value_t = 15)]
    retries: u32,
    /// Accept only what this certificate's owner, or who they vouch for, has signed; may be
    /// repeated
    #[arg(long, value_name = "FILE")]
    trust_anchor: Vec<PathBuf>,
    /// Accept content that bears no signature: a digest shows that it is whole, not who made it
    #[arg(long)]
    allow_unsigned: bool,
    /// Threads that verify and write [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<u32>,
    #[command(flatten)]
    router: RouterArgs,
    #[command(flatten)]
    keys: KeyArgs,
    /// Print one JSON object at the end
    #[arg(long)]
    json: bool,
}

#[derive(Copy, Clone, PartialEq, Eq, clap::ValueEnum)]
enum Discovery {
    /// By the object's metadata (RDR)
    Metadata,
    /// Whatever is found first below the name: for objects without metadata, and single packets
    Prefix,
    /// Not at all: the segments are right below the name
    None,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let stop = Stop::on_signals()?;
    // Without a home there are no keys.
    let chain = args.keys.key_chain().ok();
    let mut trust = UserTrust::new(args.name.clone(), chain, &args.trust_anchor)?;
    if args.allow_unsigned {
        trust.policy().allow_unsigned();
    }
    let mut client = args.router.connect()?;
    if client.is_local() {
        // Not every router tells where packets come from.
        let _ = client.enable_local_fields();
    }
    let mut getter = Getter { report: Report::new(&args), args: &args, client, trust, stop };
    let result = getter.run();
    let Getter { mut trust, report, mut client, .. } = getter;
    if let Err(error) = result {
        return Err(error.context(format!("cannot get {}", args.name)));
    }
    // What was got is whole and verified all the same.
    if let Err(error) = trust.remember() {
        eprintln!(
            "weir: cannot remember who signed it, so that another signer would not be noticed next \
             time ({error:#}); give a directory of yours with --home or WEIR_HOME"
        );
    }
    report.print(&trust.policy().signers, &mut client, args.json)
}

struct Getter<'a> {
    args: &'a Args,
    client: Client,
    trust: UserTrust,
    stop: Stop,
    report: Report,
}

/// What a name turned out to be.
enum Got {
    File(Summary),
    Directory(Summary, Vec<u8>),
}

impl Getter<'_> {
    fn run(&mut self) -> anyhow::Result<()> {
        let target = self.target();
        let is_stream = self.args.output.as_deref() == Some(Path::new("-"));
        let place = match &self.args.output {
            Some(_) if is_stream => Place::Stream,
            Some(path) => Place::At(path.clone()),
            None => Place::Named(default_file_name(&self.args.name)),
        };
        let name = self.args.name.clone();
        match self.fetch(target, &place)? {
            Got::File(summary) => {
                self.report.file(&summary, place.file(&name).as_deref());
                Ok(())
            }
            Got::Directory(..) if is_stream => {
                bail!("it is a directory; name one to put it in with -o")
            }
            Got::Directory(summary, listing) => {
                let directory = place.directory()?;
                self.report.directory(&summary, &directory);
                let object = object_of_listing(&summary.versioned, &name);
                self.directory(&object, &listing, &directory, DEPTH_MAX)
            }
        }
    }

    fn target(&self) -> Target {
        let mut name = self.args.name.clone();
        if let Some(version) = self.args.version {
            name.append_version(version);
        }
        let has_version = name.as_view().last().is_some_and(|last| last.as_version().is_some());
        match self.args.discovery {
            _ if has_version => Target::Version { versioned: name },
            Discovery::Metadata => Target::Latest { object: name, allow_stored: true },
            Discovery::Prefix => Target::Prefix { name },
            Discovery::None => Target::Version { versioned: name },
        }
    }

    /// Fetches everything in a directory, one after another.
    fn directory(
        &mut self,
        name: &Name,
        listing: &[u8],
        directory: &Path,
        depth: usize,
    ) -> anyhow::Result<()> {
        if depth == 0 {
            bail!("{name} lies more than {DEPTH_MAX} directories deep");
        }
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        for entry in parse_listing(listing)? {
            let mut name = name.clone();
            name.append_generic(entry.name);
            let path = directory.join(std::ffi::OsStr::from_bytes(entry.name));
            let target = Target::Latest { object: name.clone(), allow_stored: true };
            let place = Place::At(path.clone());
            let got = self.fetch(target, &place).with_context(|| name.to_string())?;
            match got {
                Got::File(summary) => self.report.file(&summary, Some(&path)),
                Got::Directory(summary, listing) => {
                    self.report.directory(&summary, &path);
                    self.directory(&name, &listing, &path, depth - 1)?;
                }
            }
        }
        Ok(())
    }

    fn fetch(&mut self, target: Target, place: &Place) -> anyhow::Result<Got> {
        let options = self.args.download_options();
        let mut host = GetHost {
            name: target.name(),
            place,
            trust: &mut self.trust,
            stop: &self.stop,
            listing: None,
            bar: None,
            is_quiet: self.args.json || !std::io::stderr().is_terminal(),
        };
        let result = download(&mut self.client, target, options, &mut host);
        if let Some(bar) = host.bar.take() {
            bar.finish_and_clear();
        }
        let listing = host.listing.take();
        keep_distinct(&mut self.trust.policy().signers);
        let summary = result.map_err(|error| explain(error, self.args))?;
        Ok(match listing {
            Some(listing) => Got::Directory(summary, listing.take()),
            None => Got::File(summary),
        })
    }
}

impl Args {
    fn download_options(&self) -> DownloadOptions {
        let defaults = DownloadOptions::default();
        DownloadOptions {
            fetch: ConsumerConfig {
                lifetime_ms: u64::from(self.lifetime),
                retries_max: self.retries,
                controller: self.pipeline,
                window: self.window,
                window_max: self.window_max.max(self.window.unwrap_or(1)),
                ..ConsumerConfig::default()
            },
            threads: self.threads.map_or(defaults.threads, |threads| threads as usize),
        }
    }
}

/// The files of a directory have one signer, as a rule: it is told and remembered once.
fn keep_distinct(signers: &mut Vec<Believed>) {
    let mut seen: Vec<Believed> = Vec::new();
    signers.retain(|signer| {
        let is_new = !seen.contains(signer);
        if is_new {
            seen.push(signer.clone());
        }
        is_new
    });
}

/// Where something is to go.
enum Place {
    /// To standard output.
    Stream,
    /// Where the user said.
    At(PathBuf),
    /// Into the current directory, under the last component of its name if that makes a file name.
    Named(Option<PathBuf>),
}

impl Place {
    /// The file that an object becomes.
    fn file(&self, name: &Name) -> Option<PathBuf> {
        match self {
            Self::Stream => None,
            Self::At(path) if path.is_dir() => default_file_name(name).map(|file| path.join(file)),
            Self::At(path) => Some(path.clone()),
            Self::Named(path) => path.clone(),
        }
    }

    fn directory(&self) -> anyhow::Result<PathBuf> {
        match self {
            Self::At(path) => Ok(path.clone()),
            Self::Named(Some(path)) => Ok(path.clone()),
            Self::Named(None) => bail!("the name makes no directory name; say where with -o"),
            Self::Stream => unreachable!("a directory does not go to a stream"),
        }
    }
}

/// What writes to `path`: a file that appears when it is whole, in the place that links lead to.
/// What is there and is no file (a device, a pipe) is written to, never replaced.
fn output_at(path: &Path) -> Result<Box<dyn Output>, String> {
    let refuse = |error: std::io::Error| format!("cannot write {}: {error}", path.display());
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() => {
            Ok(Box::new(PartFile::new(path.canonicalize().map_err(refuse)?)))
        }
        Ok(found) if found.is_dir() => Err(format!("{} is a directory", path.display())),
        Ok(_) => {
            let file = std::fs::File::options().write(true).open(path).map_err(refuse)?;
            Ok(Box::new(StreamOutput::new(file)))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let is_folder = path.as_os_str().as_bytes().ends_with(b"/");
            let folder = if is_folder { Some(path) } else { path.parent() };
            match folder {
                Some(folder) if folder != Path::new("") && !folder.is_dir() => Err(format!(
                    "there is no directory {0}; make it first: mkdir -p {0}",
                    folder.display()
                )),
                _ => Ok(Box::new(PartFile::new(path))),
            }
        }
        Err(error) => Err(refuse(error)),
    }
}

/// The last generic component, if it can be a file name.
fn default_file_name(name: &Name) -> Option<PathBuf> {
    let last = name.as_view().components().filter(|part| part.is_generic()).last()?;
    is_file_name(last.value).then(|| PathBuf::from(std::ffi::OsStr::from_bytes(last.value)))
}

fn is_file_name(octets: &[u8]) -> bool {
    !octets.is_empty()
        && octets.len() <= 255
        && octets != b"."
        && octets != b".."
        && !octets.iter().any(|&octet| octet == b'/' || octet == 0)
}

struct Entry<'a> {
    name: &'a [u8],
}

/// The entries of a listing: names, each ended by a NUL, those of directories with a slash before
/// it. A name that would lead elsewhere is refused.
fn parse_listing(listing: &[u8]) -> anyhow::Result<Vec<Entry<'_>>> {
    let names = listing.split(|&octet| octet == 0).filter(|name| !name.is_empty());
    names
        .map(|name| {
            let name = name.strip_suffix(b"/").unwrap_or(name);
            if !is_file_name(name) {
                bail!(
                    "the directory lists {:?}, which is no file name",
                    name.escape_ascii().to_string()
                );
            }
            if is_reserved_name(name) {
                bail!(
                    "the directory lists {:?}, a name that downloads use while they go on; get it \
                     alone, under another name, with -o",
                    name.escape_ascii().to_string()
                );
            }
            Ok(Entry { name })
        })
        .collect()
}

/// The directory whose listing this is: what precedes the keyword.
fn object_of_listing(versioned: &Name, asked: &Name) -> Name {
    let view = versioned.as_view();
    let keyword = view.components().position(|part| part.is_keyword(LISTING_KEYWORD));
    keyword.map_or_else(|| asked.clone(), |count| view.prefix(count).to_name())
}

/// Answers what a download asks.
struct GetHost<'a> {
    name: Name,
    place: &'a Place,
    trust: &'a mut UserTrust,
    stop: &'a Stop,
    listing: Option<MemoryOutput>,
    bar: Option<ProgressBar>,
    is_quiet: bool,
}

impl Host for GetHost<'_> {
    fn output(&mut self, found: &Found) -> Result<Box<dyn Output>, String> {
        if found.is_stored {
            eprintln!(
                "weir: the producer of {} does not answer; this is the version that routers kept",
                self.name
            );
        }
        let versioned = found.metadata.versioned.as_view();
        let is_listing = found.metadata.is_directory()
            || versioned.components().any(|part| part.is_keyword(LISTING_KEYWORD));
        if is_listing {
            let listing = MemoryOutput::new(LISTING_BYTES_MAX);
            self.listing = Some(listing.clone());
            return Ok(Box::new(listing));
        }
        if !self.is_quiet {
            self.bar = Some(octet_bar(self.name.to_string(), found.metadata.size_bytes));
        }
        match (self.place, self.place.file(&self.name)) {
            (Place::Stream, _) => Ok(Box::new(StreamOutput::new(std::io::stdout()))),
            (_, Some(path)) => output_at(&path),
            (_, None) => Err("the name makes no file name; say where to put it with -o".into()),
        }
    }

    fn decide(&mut self, data: &DataView<'_>) -> Decision {
        self.trust.decide(data)
    }

    fn offer(&mut self, certificate: &[u8]) {
        self.trust.policy().offer(certificate);
    }

    fn fetched(&mut self, wanted: Wanted, packet: Option<&[u8]>) {
        self.trust.fetched(wanted, packet);
    }

    fn explain(&self, refusal: Refusal) -> String {
        trust::explain(refusal)
    }

    fn progress(&mut self, progress: &Progress) -> bool {
        if let Some(bar) = &self.bar {
            if let Some(total) = progress.octets_total {
                bar.set_length(total);
            }
            bar.set_position(progress.octets);
        }
        !self.stop.is_set()
    }
}

/// What to do about a failed download.
fn explain(error: DownloadError, args: &Args) -> anyhow::Error {
    match &error {
        DownloadError::Fetch(ConsumerError::NoRoute(name)) => anyhow::anyhow!(
            "no router on the way knows where {name} is. Is its producer running (`weir put`), and \
             is there a route to it (`weir route list`, `weir route add`)?"
        ),
        DownloadError::Fetch(ConsumerError::Unanswered(name)) => anyhow::anyhow!(
            "nobody answers for {name}. Is its producer running? For an object that was not made \
             by `weir put`, try --discovery prefix"
        ),
        // This error tells its cause itself.
        DownloadError::Output(OutputError::Io { .. }) => anyhow::anyhow!("cannot write {error}"),
        DownloadError::Output(OutputError::Busy { .. }) => {
            anyhow::anyhow!("{error}; wait for it, or name another file with -o")
        }
        DownloadError::Store(source) if is_out_of_space(source) => anyhow::anyhow!(
            "the disk is full ({source}); free some space and give the command again, it goes on \
             where it was"
        ),
        DownloadError::Fetch(ConsumerError::Unverified { .. }) => anyhow::anyhow!(
            "{error}. It was damaged or forged on the way; nothing of it was kept under its name. \
             Try again, over another router if there is one (--router)"
        ),
        DownloadError::Size { .. } => {
            anyhow::anyhow!("{error}; get it in order instead: -o - > FILE")
        }
        DownloadError::Client(_) => anyhow::anyhow!(
            "{error}. When the router is back, give the command again; it goes on where it was"
        ),
        DownloadError::Stopped if args.output.as_deref() != Some(Path::new("-")) => {
            Interrupted("; give the command again to go on where it was").into()
        }
        DownloadError::Stopped => Interrupted("").into(),
        _ => error.into(),
    }
}

/// Whether the system has no room for what was written: a full disk, a quota, a limit of the
/// process.
fn is_out_of_space(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    let is_system = error.raw_os_error().is_some();
    is_system && matches!(error.kind(), FileTooLarge | QuotaExceeded | StorageFull)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use weir_socket::Opened;

    use super::*;

    #[test]
    fn file_names_come_from_the_last_generic_component() {
        let of = |uri: &str| default_file_name(&uri.parse().unwrap());
        assert_eq!(of("/a/b.txt"), Some("b.txt".into()));
        assert_eq!(of("/a/b.txt/54=%01"), Some("b.txt".into()));
        assert_eq!(of("/a/..."), None);
        assert_eq!(of("/a/%2Fetc"), None);
        assert_eq!(of("/a/....."), None);
    }

    #[test]
    fn devices_are_written_to_and_links_followed() {
        let site = tempfile::tempdir().unwrap();
        let write = |path: &Path| {
            let mut output = output_at(path)?;
            match output.open(&"/a".parse().unwrap()).map_err(|error| error.to_string())? {
                Opened::File { .. } => {
                    let sink = output.sink(4).map_err(|error| error.to_string())?;
                    sink.store(&[(0, &b"text"[..])]).map_err(|error| error.to_string())?;
                }
                Opened::Stream(mut stream) => stream.write_all(b"text").unwrap(),
            }
            output.finish().map_err(|error| error.to_string())
        };
        let (file, link) = (site.path().join("file"), site.path().join("link"));
        std::fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        write(&link).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "text");
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());

        // A pipe stands for devices: whoever could replace one must not try it here.
        let pipe = site.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || std::fs::read_to_string(pipe).unwrap()
        });
        write(&pipe).unwrap();
        assert_eq!(reader.join().unwrap(), "text");
        assert!(!std::fs::metadata(&pipe).unwrap().is_file());

        for missing in ["none/file", "none/"] {
            let error = write(&site.path().join(missing)).unwrap_err();
            assert!(error.contains("mkdir -p"), "{error}");
        }
    }

    #[test]
    fn a_signer_is_told_once() {
        use weir_security::trust::Ground;
        let signer = |ground| Believed { name: None, key_digest: None, ground };
        let mut signers = vec![signer(Ground::Own), signer(Ground::Known), signer(Ground::Own)];
        keep_distinct(&mut signers);
        let grounds: Vec<_> = signers.iter().map(|signer| &signer.ground).collect();
        assert_eq!(grounds, [&Ground::Own, &Ground::Known]);
    }

    #[test]
    fn listings_cannot_lead_elsewhere() {
        let names = |listing: &[u8]| {
            parse_listing(listing)
                .map(|entries| entries.iter().map(|entry| entry.name.to_vec()).collect::<Vec<_>>())
        };
        assert_eq!(names(b"a\0dir/\0b\0").unwrap(), [&b"a"[..], b"dir", b"b"]);
        assert_eq!(names(b"").unwrap(), Vec::<Vec<u8>>::new());
        for listing in [&b"../a\0"[..], b"..\0", b"a/b\0", b"/etc\0", b".\0", b"/\0"] {
            assert!(names(listing).is_err(), "{listing:?}");
        }
        for listing in [&b"x\0.x.weir-state\0"[..], b".x.weir-part\0", b".x.weir-part/\0"] {
            assert!(names(listing).is_err(), "{listing:?}");
        }
    }
}
