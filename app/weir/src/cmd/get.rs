//! `weir get`.

mod fetch;
mod folder;
mod pipeline;
mod report;
mod stream;

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::bail;
use weir_crypto::{KeyChainError, UserTrust};
use weir_socket::{DownloadError, DownloadOptions, OutputError, download};
use weir_transport::{
    CHUNK_SEGMENTS_MAX, ConsumerConfig, ConsumerError, ControllerConfig, HoldingsMode,
    MissingSegments, PathSchedule, Target,
};
use weir_wire::Name;

use self::fetch::Fetch;
use self::report::Report;
use crate::table::{count, errln};
use crate::transfer::{
    Interrupted, KeyArgs, RouterArgs, Stop, parse_name, parse_positive, parse_threads,
};

/// Fetch what a name denotes.
///
/// Every segment is verified. A file appears under its name when it is whole; a download that
/// breaks off goes on where it was when the command is given again. Of a directory, files that are
/// there and right are not fetched again.
///
/// Without -o, a local file is replaced only if an earlier `weir get` of the same name left it and
/// it has not been changed since. With -o, a file is replaced and keeps its permissions. Nothing is
/// written through a symbolic link unless --follow-links is given.
///
/// Segments that get no answer do not stop the others, which may lie in a router's store. When
/// nothing more arrives for --retries times --lifetime, a minute by default, the command ends with
/// exit code 1 and says which segments are missing. The same command fetches only those later.
/// Standard output and pipes take segments in order: they end before the first missing one.
///
/// With --router given several times all these routers are asked at once, so that the bandwidths of
/// the ways to them add up, each with a window of its own. One that has no route, falls silent or
/// goes away does not hold the others up, and is used again when it answers.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The name, such as /data/file, with or without a version
    #[arg(value_parser = parse_name)]
    name: Name,
    /// Where to put it: a file or directory, or - for standard output [default: the name's last
    /// component]
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,
    /// Replace local files also without -o
    #[arg(long)]
    force: bool,
    /// Write through symbolic links, to what they lead to
    #[arg(long)]
    follow_links: bool,
    /// Give files the execute permissions and modification times of the producer's, as far as their
    /// readers here may have them. Other permissions are those of new files
    #[arg(long)]
    preserve: bool,
    /// Fetch this version, not the latest
    #[arg(long, value_name = "N")]
    version: Option<u64>,
    /// How to find the segments
    #[arg(long, value_enum, default_value_t = Discovery::Metadata)]
    discovery: Discovery,
    #[arg(long, value_name = "KIND", default_value_t, value_parser = pipeline::parse,
        help = pipeline::help())]
    pipeline: ControllerConfig,
    /// Ask each router which segments it holds, and get a segment from one that does; what none of
    /// them holds is asked for by all. Spares those behind the routers work; of a file that they
    /// hold in parts one router after the other brings its part. Routers on other machines tell
    /// what they hold where [management] holdings_for_neighbours is on
    #[arg(long)]
    ask_routers: bool,
    /// Interests, or chunks, under way: always with fixed, else at first
    #[arg(long, value_name = "N", value_parser = parse_positive)]
    window: Option<u32>,
    /// Interests, or chunks, under way at most
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = parse_positive)]
    window_max: u32,
    /// Segments that the window counts as one and that are asked for at once
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(CHUNK_SEGMENTS_MAX)))]
    chunk: u32,
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
    let mut trust = UserTrust::new(args.name.clone(), chain, &args.trust_anchor)
        .map_err(|error| explain_trust(error, &args))?;
    if args.allow_unsigned {
        trust.policy().allow_unsigned();
    }
    let mut client = args.router.connect_all()?;
    for path in client.paths().collect::<Vec<_>>() {
        client.set_managed_path(path);
        if client.is_local() {
            // Not every router tells where packets come from.
            let _ = client.enable_local_fields();
        }
    }
    // Of a directory, hundreds of files are open at a time. Where there may be fewer, some fail.
    let _ = weir_face::raise_file_limit();
    let destination = Destination::of(&args);
    let mut fetch = Fetch::new(&args, &destination, &mut trust, &stop, Report::new(&args));
    let result = download(&mut client, args.download_options(), &mut fetch);
    let (report, failures, synced) = fetch.finish();
    for (name, error) in failures.reported {
        errln!("weir: cannot get {name}: {:#}", explain(error, &args));
    }
    if let Err(error) = result {
        return Err(explain(error, &args).context(format!("cannot get {}", args.name)));
    }
    synced.map_err(|error| anyhow::anyhow!("{error}; give the command again"))?;
    // What was got is whole and verified all the same.
    if let Err(error) = trust.remember() {
        errln!(
            "weir: cannot remember who signed it, so that another signer would not be noticed next \
             time ({error:#}); give a directory of yours with --home or WEIR_HOME"
        );
    }
    report.with_failed(failures.count).print(&trust.policy().signers, &mut client, args.json)?;
    match failures.count {
        0 => Ok(()),
        failed => bail!(
            "cannot get {} of {}; give the command again when that is mended, it fetches only what \
             is missing",
            count(failed, "entry", "entries"),
            args.name
        ),
    }
}

impl Args {
    fn target(&self) -> Target {
        let mut name = self.name.clone();
        if let Some(version) = self.version {
            name.append_version(version);
        }
        let has_version = name.as_view().last().is_some_and(|last| last.as_version().is_some());
        match self.discovery {
            _ if has_version => Target::Version { versioned: name },
            Discovery::Metadata => Target::Latest { object: name, allow_stored: true },
            Discovery::Prefix => Target::Prefix { name },
            Discovery::None => Target::Version { versioned: name },
        }
    }

    /// Whether it goes to standard output.
    fn is_streamed(&self) -> bool {
        let names = [Path::new("-"), Path::new("/dev/stdout")];
        self.output.as_deref().is_some_and(|path| names.contains(&path))
    }

    fn download_options(&self) -> DownloadOptions {
        let defaults = DownloadOptions::default();
        DownloadOptions {
            fetch: ConsumerConfig {
                lifetime_ms: u64::from(self.lifetime),
                retries_max: self.retries,
                schedule: match self.router.has_several() {
                    true => PathSchedule::Parallel,
                    false => PathSchedule::Single,
                },
                holdings: if self.ask_routers { HoldingsMode::Ask } else { HoldingsMode::Ignore },
                controller: self.pipeline.controller,
                constants: self.pipeline.constants,
                window: self.window,
                window_max: self.window_max.max(self.window.unwrap_or(1)),
                chunk_segments: self.chunk,
                ..ConsumerConfig::default()
            },
            threads: self.threads.map_or(defaults.threads, |threads| threads as usize),
            ..defaults
        }
    }
}

/// Where something is to go.
enum Destination {
    /// To standard output.
    Stream,
    /// Where the user said.
    UserPath(PathBuf),
    /// Into the current directory, under the last component of its name if that makes a file name.
    FromName(Option<PathBuf>),
}

impl Destination {
    fn of(args: &Args) -> Self {
        match &args.output {
            _ if args.is_streamed() => Self::Stream,
            Some(path) => Self::UserPath(path.clone()),
            None => Self::FromName(default_file_name(&args.name)),
        }
    }

    /// The file that an object becomes.
    fn file_path(&self, name: &Name) -> Option<PathBuf> {
        match self {
            Self::Stream => None,
            Self::UserPath(path) if path.is_dir() => {
                default_file_name(name).map(|file| path.join(file))
            }
            Self::UserPath(path) => Some(path.clone()),
            Self::FromName(path) => path.clone(),
        }
    }

    fn directory_path(&self) -> Result<PathBuf, String> {
        match self {
            Self::UserPath(path) | Self::FromName(Some(path)) => Ok(path.clone()),
            Self::FromName(None) => {
                Err("it is a directory, and the name makes no directory name; say where with -o"
                    .into())
            }
            Self::Stream => Err("it is a directory; name one to put it in with -o".into()),
        }
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

/// What to do when it cannot be read whom the user trusts.
fn explain_trust(error: KeyChainError, args: &Args) -> anyhow::Error {
    let error = anyhow::Error::from(error);
    match args.trust_anchor.is_empty() {
        true => error,
        false => anyhow::anyhow!(
            "{error:#}; --trust-anchor takes a certificate as `weir key export` writes it"
        ),
    }
}

/// What to do about a failed download.
fn explain(error: DownloadError, args: &Args) -> anyhow::Error {
    match &error {
        DownloadError::Fetch(ConsumerError::NoRoute(name)) => anyhow::anyhow!(
            "the router has no route to {name}. If the producer is on this machine, is it running \
             (`weir put`)? If it is on another, add a route (`weir route add`)"
        ),
        DownloadError::Fetch(ConsumerError::NoRouteFurtherOn(name)) => anyhow::anyhow!(
            "the router here has a route to {name}, but the one that this leads to has none. Is \
             the producer still running, and does that router have a route to it?"
        ),
        DownloadError::Fetch(ConsumerError::Refused(name)) => anyhow::anyhow!(
            "there is no {name}: its producer says so. Is the name written as it was published?"
        ),
        DownloadError::Fetch(ConsumerError::Unanswered(name)) => anyhow::anyhow!(
            "nobody answers for {name}. Is its producer running? For an object that was not made \
             by `weir put`, try --discovery prefix"
        ),
        DownloadError::Fetch(ConsumerError::Incomplete(missing)) => explain_missing(missing, args),
        DownloadError::Store(source) | DownloadError::Output(OutputError::Io { source, .. })
            if is_out_of_space(source) =>
        {
            let resumes = if args.is_streamed() { "" } else { "; it goes on where it was" };
            anyhow::anyhow!("{}, and give the command again{resumes}", out_of_space_message(source))
        }
        DownloadError::Store(source) if args.is_streamed() => {
            anyhow::anyhow!("cannot write to standard output: {source}")
        }
        DownloadError::Store(source) => anyhow::anyhow!("cannot write its file: {source}"),
        // This error tells its cause itself.
        DownloadError::Output(OutputError::Io { source, .. }) => {
            anyhow::anyhow!("cannot write {error}{}", write_error_advice(source))
        }
        DownloadError::Output(error) => anyhow::anyhow!("{error}{}", output_error_advice(error)),
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
        DownloadError::Stopped if !args.is_streamed() => {
            Interrupted("; give the command again to go on where it was").into()
        }
        DownloadError::Stopped => Interrupted("").into(),
        _ => error.into(),
    }
}

/// What to do about segments that got no answer.
fn explain_missing(missing: &MissingSegments, args: &Args) -> anyhow::Error {
    // A pipe may be named by -o, too.
    let is_stream = args.output.as_deref().is_some_and(|path| {
        path == Path::new("-") || path.metadata().is_ok_and(|it| !it.is_file() && !it.is_dir())
    });
    let first = missing.first_ranges.first().map_or(0, |range| range.start);
    let next = match is_stream {
        true => format!(
            "The output ends before segment {first}. Give the command again when the producer \
             runs (`weir put`), or get it into a file, which keeps everything that arrives"
        ),
        false => "What arrived is kept. Give the command again when the producer runs (`weir \
                  put`); it fetches only the missing segments"
            .into(),
    };
    anyhow::anyhow!("{missing}. {next}")
}

/// What to do about a file that cannot be written.
fn write_error_advice(error: &std::io::Error) -> &'static str {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    match error.kind() {
        PermissionDenied | ReadOnlyFilesystem => "; name a place of yours with -o",
        _ => "",
    }
}

/// What to do about an output that cannot be had.
fn output_error_advice(error: &OutputError) -> &'static str {
    match error {
        OutputError::InUse { .. } => "; wait for it, or name another file with -o",
        OutputError::Exists { .. } => "; give --force to replace it, or name another file with -o",
        OutputError::SymbolicLink { .. } => {
            "; move it away, name another place with -o, or give --follow-links"
        }
        OutputError::Directory { .. } | OutputError::Special { .. } => {
            "; move it away, or name another place with -o"
        }
        OutputError::Replaced { .. } => "; name a place with -o that only you can write to",
        // These say it themselves.
        OutputError::Reserved { .. } | OutputError::TooLarge { .. } | OutputError::Io { .. } => "",
    }
}

/// What to do about an error of [`is_out_of_space`].
fn out_of_space_message(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::FileTooLarge => format!(
            "the file is larger than this process or the file system may write ({error}); raise \
             the limit (ulimit -f), or name another place with -o"
        ),
        std::io::ErrorKind::QuotaExceeded => {
            format!("your quota of the disk is used up ({error}); free some space")
        }
        _ => format!("the disk is full ({error}); free some space"),
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
    use super::*;

    #[test]
    fn file_name_is_last_generic_component() {
        let of = |uri: &str| default_file_name(&uri.parse().unwrap());
        assert_eq!(of("/a/b.txt"), Some("b.txt".into()));
        assert_eq!(of("/a/b.txt/54=%01"), Some("b.txt".into()));
        assert_eq!(of("/a/..."), None);
        assert_eq!(of("/a/%2Fetc"), None);
        assert_eq!(of("/a/....."), None);
    }
}
