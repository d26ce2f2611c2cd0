//! `weir get`: fetches files and directories.
//!
//! [`fetch`] decides what to fetch and where to write it. [`folder`] creates directories,
//! [`stream`] writes to pipes and standard output, and [`report`] prints the summary.
//! [`certificate`] fetches the certificate of `--certificate`.

mod certificate;
mod fetch;
mod folder;
mod pipeline;
mod report;
mod stream;

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use tracing::Span;
use tracing_subscriber::layer::SubscriberExt;
use weir_crypto::{KeyChainError, UserTrust, hicn_verifier};
use weir_hicn::HicnName;
use weir_security::{Verifier, sha256};
use weir_socket::{DownloadError, DownloadOptions, OutputError, download};
use weir_transport::{
    CHUNK_SEGMENTS_MAX, ConsumerConfig, ConsumerError, ControllerConfig, Controllers, HoldingsMode,
    MissingSegments, NameMapping, PathSchedule, Target,
};
use weir_wire::Name;

use self::fetch::Fetch;
use self::report::{Report, Signers};
use crate::exit::{Exit, is_out_of_space};
use crate::help::{OUTPUT, TRANSFER, TRUST};
use crate::quantity::positive_milliseconds;
use crate::signals;
use crate::table::{count, errln, printable};
use crate::traces::Traces;
use crate::transfer::failure::{exit_of, explain_missing_object};
use crate::transfer::trust::{FetchTrust, explain_to_get};
use crate::transfer::{
    Interrupted, KeyArgs, RouterArgs, Stop, parse_name, parse_positive, parse_threads,
    prepare_downloads, refuse_ndn_names_over_hicn,
};
use crate::words::Suggesting;

/// Fetch a file or directory.
///
/// `weir get` verifies every segment. A file appears under its final name when it is complete. If a
/// download is interrupted, run the same command again: it fetches only the missing segments, and
/// of a directory only the missing files.
///
/// Without -o, an existing file is replaced only if an earlier `weir get` of the same name wrote it
/// and it has not changed since. With -o, an existing file is replaced and keeps its permissions.
/// Symbolic links are not followed without --follow-links.
///
/// If a segment gets no answer, the other segments are still fetched. The command gives up when
/// nothing has arrived for --retries times --lifetime (60 s), lists the missing segments and
/// returns exit code 8. Output to a pipe ends before the first missing segment.
///
/// With several --router options, segments are requested from all these routers at once. A router
/// that has no route or stops responding does not delay the others.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  weir get /demo/services\n  weir get /demo/services -o - | head -n 3"
)]
pub(crate) struct Args {
    /// The name, such as /data/file, with or without a version; or hicn:ADDRESS, such as
    /// hicn:2001:db8:7::1, for what an hICN producer publishes under this address
    #[arg(value_parser = parse_name)]
    name: Name,
    /// Write to this file or directory, or to standard output (-) [default: the last component of
    /// the name]
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,
    /// Replace existing files even without -o
    #[arg(long)]
    force: bool,
    /// Follow symbolic links and write to their targets
    #[arg(long)]
    follow_links: bool,
    /// Copy the producer's execute permissions and modification times. Only users who may read a
    /// file may also execute it
    #[arg(long)]
    preserve: bool,
    /// Fetch this version [default: the latest]
    #[arg(long, value_name = "N")]
    version: Option<u64>,
    /// How to find the version and the segments
    #[arg(long, value_enum, default_value_t = Discovery::Metadata)]
    discovery: Discovery,
    /// Names in the network: identity, or hicn:PREFIX for hICN names below an IPv6 prefix, such as
    /// hicn:2001:db8:7::/48. The producer has chosen it
    #[arg(long, value_name = "MAPPING", default_value_t)]
    mapping: NameMapping,
    #[arg(long, value_name = "KIND", default_value_t, hide_possible_values = true,
        value_parser = Suggesting::new(Controllers::BUILT_IN_NAMES, pipeline::parse),
        help = pipeline::help(), help_heading = TRANSFER)]
    pipeline: ControllerConfig,
    /// Ask each router which segments its store holds, and fetch those from it. Segments that no
    /// router holds are requested from all. A router on another machine answers only with
    /// [management] holdings_for_neighbours = true
    #[arg(long, help_heading = TRANSFER)]
    ask_routers: bool,
    /// Initial window in chunks, or the constant window of --pipeline fixed [default: depends on
    /// --pipeline]
    #[arg(long, value_name = "N", value_parser = parse_positive, help_heading = TRANSFER)]
    window: Option<u32>,
    /// Largest window, in chunks
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = parse_positive,
        help_heading = TRANSFER)]
    window_max: u32,
    /// Segments per chunk: they are requested together and count as one in the window
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = TRANSFER,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(CHUNK_SEGMENTS_MAX)))]
    chunk: u32,
    /// Lifetime of an Interest
    #[arg(long, value_name = "TIME", default_value = "4s", value_parser = positive_milliseconds,
        help_heading = TRANSFER)]
    lifetime: u32,
    /// Retransmissions of an Interest before giving up
    #[arg(long, value_name = "N", default_value_t = 15, help_heading = TRANSFER)]
    retries: u32,
    /// Accept only data signed by the owner of this certificate, or by a key that it certified. May
    /// be repeated [default: your own keys, your trust anchors and known signers]
    #[arg(long, value_name = "FILE", help_heading = TRUST)]
    trust_anchor: Vec<PathBuf>,
    /// The key of the hICN producer, whose packets do not say which key signs them: a file with a
    /// public key (PEM), an NDN certificate, or the passphrase of an HMAC key of 16 bytes or more.
    /// Only packets that it has signed are accepted
    #[arg(long, value_name = "FILE", help_heading = TRUST,
        conflicts_with_all = ["trust_anchor", "allow_unsigned", "accept_unverified"])]
    hicn_key: Option<PathBuf>,
    /// Fetch the signer's certificate from this name [default: the name in the data]
    ///
    /// The data there is the certificate, or has a file with the certificate as its content. This
    /// does not make the signer trusted: its key is treated like any other. After a successful
    /// download the certificate is kept, so later downloads do not need this option.
    #[arg(long, value_name = "NAME", value_parser = parse_name, help_heading = TRUST)]
    certificate: Option<Name>,
    /// Accept unsigned data. Its digest detects errors, but not forgery
    ///
    /// Signed data is still verified. Use this for producers that do not sign (`weir put --sign
    /// digest`).
    #[arg(long, help_heading = TRUST)]
    allow_unsigned: bool,
    /// Accept data whose signature cannot be verified, and unsigned data
    ///
    /// Use this for producers that sign but do not serve their certificate, such as ndnputchunks,
    /// if you cannot get the certificate. Digests and the order of segments are checked, and a
    /// signature is verified if the certificate is available. Otherwise the result is reported as
    /// not verified. No signer is remembered, and verified downloads do not resume this one. Names
    /// of a trust anchor or of a known signer still need its signature.
    #[arg(long, conflicts_with = "trust_anchor", help_heading = TRUST)]
    accept_unverified: bool,
    /// Number of threads that verify and write [default: one per processor]
    #[arg(long, value_name = "N", value_parser = parse_threads, help_heading = TRANSFER)]
    threads: Option<u32>,
    #[command(flatten)]
    router: RouterArgs,
    #[command(flatten)]
    keys: KeyArgs,
    /// Print a summary as one JSON object at the end
    #[arg(long, help_heading = OUTPUT)]
    json: bool,
}

/// The key of an hICN producer.
fn read_hicn_key(path: &Path) -> anyhow::Result<(Arc<dyn Verifier>, [u8; 32])> {
    let shown = printable(path.display());
    let octets = std::fs::read(path).with_context(|| format!("cannot read {shown}"))?;
    let key = hicn_verifier(&octets).map_err(|error| {
        anyhow::anyhow!(
            "cannot use the key in {shown}: {error}; `openssl x509 -pubkey -noout` writes the \
             public key of an X.509 certificate"
        )
    })?;
    Ok((key.into(), sha256(&[&octets])))
}

#[derive(Copy, Clone, PartialEq, Eq, clap::ValueEnum)]
enum Discovery {
    /// Fetch the metadata of the object (RDR)
    Metadata,
    /// Use the first Data found below the name: for single packets and objects without metadata
    Prefix,
    /// No discovery: segment numbers follow the name directly
    None,
}

/// Runs the command in a span for traces.
pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let (traces, untraced) = Traces::start("weir-get");
    if let Some(error) = untraced {
        errln!("weir: {error:#}");
    }
    if let Some(layer) = traces.layer() {
        // Fails if there is a subscriber already. Then no trace is sent.
        let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer));
    }
    let span = report::span(&args.name);
    traces.adopt_parent(&span);
    let result = span.in_scope(|| get(args, &span));
    span.record("process.exit.code", i64::from(exit_code(&result)));
    if let Err(error) = &result {
        span.record("otel.status_description", format!("{error:#}"));
    }
    drop(span);
    if let Err(error) = traces.finish() {
        errln!("weir: {error}");
    }
    result
}

fn exit_code(result: &anyhow::Result<()>) -> u8 {
    match result {
        Ok(()) => 0,
        Err(error) if error.downcast_ref::<Interrupted>().is_some() => signals::exit_code(),
        Err(error) => Exit::of(error) as u8,
    }
}

fn get(args: Args, span: &Span) -> anyhow::Result<()> {
    let stop = Stop::on_signals()?;
    let mut trust = user_trust(&args)?;
    let mut client = args.router.connect_all()?;
    refuse_ndn_names_over_hicn(&client, args.mapping, &args.name)?;
    if let Some(name) = &args.certificate {
        trust.inner.use_certificate(certificate::fetch(&mut client, name)?);
    }
    prepare_downloads(&mut client);
    // A directory needs hundreds of open files at a time. With a lower limit, some files fail.
    let _ = weir_face::raise_file_limit();
    let destination = Destination::of(&args);
    let mut fetch = Fetch::new(&args, &destination, &mut trust, &stop, Report::new(&args));
    let result = download(&mut client, args.download_options(), &mut fetch);
    let (report, failures, synced) = fetch.finish();
    report.record(span, failures.count);
    let mut exits = Vec::new();
    for (name, error) in failures.reported {
        let error = explain(error, &args);
        exits.push(Exit::of(&error));
        errln!("weir: cannot get {name}: {error:#}");
    }
    if let Err(error) = result {
        return Err(explain(error, &args).context(format!("cannot get {}", args.name)));
    }
    synced.map_err(|error| anyhow::anyhow!("{error}; give the command again"))?;
    // The files are complete and verified even if the signer cannot be recorded.
    let is_recorded = remember_signers(&trust.inner);
    let signers = Signers { all: &trust.inner.policy().signers, is_recorded };
    report.with_failed(failures.count).print(signers, &mut client, args.json)?;
    match failures.count {
        0 => Ok(()),
        failed => Err(Exit::common(exits).error(format!(
            "cannot get {} of {}; fix the problem and run the command again to fetch only what is \
             missing",
            count(failed, "entry", "entries"),
            args.name
        ))),
    }
}

/// Records new signers, and keeps the certificate of `--certificate`. Returns whether a signer has
/// been recorded.
fn remember_signers(trust: &UserTrust) -> bool {
    let is_recorded = match trust.remember() {
        Ok(is_recorded) => is_recorded,
        Err(error) => {
            let error = anyhow::Error::from(error);
            errln!(
                "weir: cannot record the signer, so the next download will not notice a different \
                 signer ({error:#}); choose a writable directory with --home or WEIR_HOME"
            );
            return false;
        }
    };
    if let Err(error) = trust.keep_named_certificate() {
        let error = anyhow::Error::from(error);
        errln!(
            "weir: cannot keep the certificate, so the next download needs --certificate again \
             ({error:#}); choose a writable directory with --home or WEIR_HOME"
        );
    }
    is_recorded
}

/// Which signers the user trusts.
fn user_trust(args: &Args) -> anyhow::Result<FetchTrust> {
    // Without a home directory there are no keys, and only digests can be verified.
    let chain = args.keys.key_chain().ok();
    let mut trust = UserTrust::new(args.name.clone(), chain, &args.trust_anchor)
        .map_err(|error| explain_trust(error, args))?;
    if args.allow_unsigned {
        trust.policy().allow_unsigned();
    }
    if args.accept_unverified {
        trust.policy().accept_unverified();
    }
    if let Some(path) = &args.hicn_key {
        let (key, digest) = read_hicn_key(path)?;
        trust.policy().set_hicn_key(key, digest);
    }
    Ok(FetchTrust::new(trust, explain_to_get))
}

impl Args {
    /// Whether packets are accepted that anyone can make.
    fn may_be_unverified(&self) -> bool {
        self.accept_unverified || self.allow_unsigned
    }

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

    /// Whether the output is standard output.
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
                schedule: if self.router.has_several() {
                    PathSchedule::Parallel
                } else {
                    PathSchedule::Single
                },
                holdings: if self.ask_routers { HoldingsMode::Ask } else { HoldingsMode::Ignore },
                controller: self.pipeline.controller,
                constants: self.pipeline.constants,
                window: self.window,
                // A fixed window may be larger than the default maximum.
                window_max: self.window_max.max(self.window.unwrap_or(1)),
                chunk_segments: self.chunk,
                mapping: self.mapping,
                ..ConsumerConfig::default()
            },
            threads: self.threads.map_or(defaults.threads, |threads| threads as usize),
            ..defaults
        }
    }
}

/// Where `weir get` writes.
enum Destination {
    /// Standard output.
    Stream,
    /// The path of `-o`.
    UserPath(PathBuf),
    /// A file in the current directory, called like the last component of the name. `None` if that
    /// is not a valid file name.
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

    /// The path of the file for an object.
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
                Err("it is a directory, and its name is not a valid file name; choose a path with \
                     -o"
                .into())
            }
            Self::Stream => Err("it is a directory; choose a local directory with -o".into()),
        }
    }
}

/// The last generic component of the name, if it is a valid file name. Of an hICN address, its
/// text.
fn default_file_name(name: &Name) -> Option<PathBuf> {
    if let Some(address) = HicnName::address_of(name.as_view()) {
        return Some(address.to_string().into());
    }
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

/// Adds advice to an error about trust anchors.
fn explain_trust(error: KeyChainError, args: &Args) -> anyhow::Error {
    let error = anyhow::Error::from(error);
    if args.trust_anchor.is_empty() {
        error
    } else {
        anyhow::anyhow!(
            "{error:#}; --trust-anchor needs a certificate file, as written by `weir key export`"
        )
    }
}

/// The error of a failed download, with its exit code and advice.
fn explain(error: DownloadError, args: &Args) -> anyhow::Error {
    let exit = exit_of(&error);
    match explain_text(&error, args) {
        Some(text) => exit.error(text),
        None if !matches!(error, DownloadError::Stopped) => exit.error(error.to_string()),
        None if args.is_streamed() => Interrupted("").into(),
        None => Interrupted("; run the command again to resume").into(),
    }
}

/// The message for an error with advice, or `None` if its own text is enough.
fn explain_text(error: &DownloadError, args: &Args) -> Option<String> {
    if let Some(text) = explain_missing_object(error) {
        return Some(text);
    }
    Some(match error {
        DownloadError::Fetch(ConsumerError::Unanswered(name)) => format!(
            "no answer for {name}. Check that its producer runs. If it was not published by `weir \
             put`, try --discovery prefix"
        ),
        DownloadError::Fetch(ConsumerError::Incomplete(missing)) => explain_missing(missing, args),
        DownloadError::Store(source) | DownloadError::Output(OutputError::Io { source, .. })
            if is_out_of_space(source) =>
        {
            let resumes = if args.is_streamed() { "" } else { " to resume" };
            format!("{}, and run the command again{resumes}", out_of_space_message(source))
        }
        DownloadError::Store(source) if args.is_streamed() => {
            format!("cannot write to standard output: {source}")
        }
        DownloadError::Store(source) => format!("cannot write the file: {source}"),
        // `{error}` already includes the cause.
        DownloadError::Output(OutputError::Io { source, .. }) => {
            format!("cannot write {error}{}", write_error_advice(source))
        }
        DownloadError::Output(error) => format!("{error}{}", output_error_advice(error)),
        DownloadError::Fetch(ConsumerError::Unverified { .. }) => {
            let or_wrong_key = args.hicn_key.as_ref().map_or_else(String::new, |path| {
                format!(", or {} is not the producer's key", printable(path.display()))
            });
            format!(
                "{error}. It was damaged or forged in transit{or_wrong_key}, and the file was not \
                 created. Try again, or use another router (--router)"
            )
        }
        DownloadError::Size { .. } => {
            format!("{error}; fetch it in order instead, with -o - > FILE")
        }
        DownloadError::Client(_) => {
            format!("{error}. When the router is back, run the command again to resume")
        }
        _ => return None,
    })
}

/// The error message for missing segments, with advice.
fn explain_missing(missing: &MissingSegments, args: &Args) -> String {
    // `-o` may also name a pipe or a device.
    let is_stream = args.output.as_deref().is_some_and(|path| {
        path == Path::new("-") || path.metadata().is_ok_and(|it| !it.is_file() && !it.is_dir())
    });
    let first = missing.first_ranges.first().map_or(0, |range| range.start);
    let next = if is_stream {
        format!(
            "The output ends before segment {first}. Run the command again when the producer runs \
             (`weir put`), or write to a file, which keeps all segments that arrive"
        )
    } else {
        "The other segments are kept. When the producer runs (`weir put`), run the \
                  command again to fetch only the missing ones"
            .into()
    };
    format!("{missing}. {next}")
}

/// Advice for a file that cannot be written.
fn write_error_advice(error: &std::io::Error) -> &'static str {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    match error.kind() {
        PermissionDenied | ReadOnlyFilesystem => "; choose a writable path with -o",
        _ => "",
    }
}

/// Advice for an output that cannot be opened.
fn output_error_advice(error: &OutputError) -> &'static str {
    match error {
        OutputError::InUse { .. } => "; wait for it, or choose another file with -o",
        OutputError::Exists { .. } => "; replace it with --force, or choose another file with -o",
        OutputError::SymbolicLink { .. } => {
            "; move it away, choose another path with -o, or use --follow-links"
        }
        OutputError::Directory { .. } | OutputError::Special { .. } => {
            "; move it away, or choose another path with -o"
        }
        OutputError::Replaced { .. } => "; choose a path with -o that only you can write to",
        // These errors include their advice.
        OutputError::Reserved { .. } | OutputError::TooLarge { .. } | OutputError::Io { .. } => "",
    }
}

/// The message for an error that [`is_out_of_space`].
fn out_of_space_message(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::FileTooLarge => format!(
            "the file exceeds the file size limit of the process or the file system ({error}); \
             raise the limit (ulimit -f), or choose another path with -o"
        ),
        std::io::ErrorKind::QuotaExceeded => {
            format!("your disk quota is used up ({error}); free some space")
        }
        _ => format!("the disk is full ({error}); free some space"),
    }
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
        let address = parse_name("hicn:2001:db8::7").unwrap();
        assert_eq!(default_file_name(&address), Some("2001:db8::7".into()));
        assert!(parse_name("hicn:2001:db8::7/64").is_err());
    }
}
