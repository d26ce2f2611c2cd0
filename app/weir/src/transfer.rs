//! Options and helpers that `put`, `get` and `ping` share.

pub(crate) mod failure;
pub(crate) mod objects;
mod progress;
pub(crate) mod trust;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;
use weir_client::{Client, ClientError, ROUTERS_MAX};
use weir_crypto::{KeyChain, PassphraseSource};
use weir_face::{FaceUri, client_transport, unix_time_ms};
use weir_hicn::HicnName;
use weir_transport::NameMapping;
use weir_wire::{Name, format_timestamp};

use crate::exit::Exit;
use crate::help;
use crate::signals;
use crate::table::{errln, printable};
pub(crate) use progress::{byte_bar, file_bar};

/// How long a download waits for a router that restarts.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The option `--router`: the router or routers to connect to.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = help::ROUTER)]
pub(crate) struct RouterArgs {
    /// Connect to this router, such as unix:///run/nfd/nfd.sock, tcp://HOST, udp://HOST, or
    /// hicn+udp://HOST for hicn-light. Repeat it for `weir get` to use several routers
    ///
    /// The default is the router in NDN_CLIENT_TRANSPORT or client.conf, otherwise the router of
    /// this machine.
    #[arg(long, visible_alias = "face", value_name = "URI", global = true)]
    router: Vec<String>,
}

impl RouterArgs {
    /// The options `--router URI`.
    #[cfg(test)]
    pub(crate) fn of(uri: &str) -> Self {
        Self { router: vec![uri.to_owned()] }
    }

    /// Whether several routers are given.
    pub(crate) fn has_several(&self) -> bool {
        self.router.len() > 1
    }

    /// The address of the only router.
    pub(crate) fn uri(&self) -> anyhow::Result<FaceUri> {
        // `{error}` already includes the causes; a chain would print them twice.
        match &self.router[..] {
            [] => client_transport()
                .map(|choice| choice.uri)
                .map_err(|error| anyhow::anyhow!("{error}")),
            [text] => parse_uri(text),
            several => bail!(
                "--router is given {} times, but only `weir get` can use several routers",
                several.len()
            ),
        }
    }

    /// Connects to the router. The error says what to do next.
    pub(crate) fn connect(&self) -> anyhow::Result<Client> {
        Client::connect(&self.uri()?).map_err(cannot_connect)
    }

    /// Connects to all given routers. If there are several, prints a warning for each that does not
    /// answer.
    pub(crate) fn connect_all(&self) -> anyhow::Result<Client> {
        if !self.has_several() {
            return self.connect();
        }
        if self.router.len() > ROUTERS_MAX {
            bail!("--router is given {} times; at most {ROUTERS_MAX}", self.router.len());
        }
        let uris = self.router.iter().map(|text| parse_uri(text));
        let uris = uris.collect::<anyhow::Result<Vec<_>>>()?;
        let (client, errors) = Client::connect_all(&uris).map_err(cannot_connect)?;
        for error in errors {
            errln!("weir: {error}; continuing with the other routers");
        }
        Ok(client)
    }
}

/// Connects to the router at an address.
pub(crate) fn connect_to(uri: &str) -> anyhow::Result<Client> {
    Client::connect(&parse_uri(uri)?).map_err(cannot_connect)
}

/// Prepares a client for downloads: it survives a restart of its router, and learns which face
/// packets come from.
pub(crate) fn prepare_downloads(client: &mut Client) {
    client.retry_last_path_for(RECONNECT_TIMEOUT);
    // Some routers do not report the source of packets. The download notices a lost connection.
    let _ = client.report_sources();
}

/// Packets with other names cannot be sent to a router with hICN packets.
pub(crate) fn refuse_ndn_names_over_hicn(
    client: &Client,
    mapping: NameMapping,
    name: &Name,
) -> anyhow::Result<()> {
    let is_hicn_name = HicnName::has_keyword(mapping.prefix(name.as_view()).as_view());
    let hicn_router = client
        .paths()
        .map(|path| client.uri_of(path))
        .find(|uri| matches!(uri, FaceUri::HicnUdp(_)));
    match hicn_router {
        Some(uri) if !is_hicn_name => bail!(
            "{uri} has hICN packets, and {name} is no hICN name; add --mapping hicn:PREFIX, the \
             same at producer and consumers, or give an address such as hicn:b001::1"
        ),
        _ => Ok(()),
    }
}

fn parse_uri(text: &str) -> anyhow::Result<FaceUri> {
    match text {
        path if path.starts_with('/') => Ok(FaceUri::Unix(path.into())),
        text => FaceUri::resolve_reachable(text, None).map_err(|error| anyhow::anyhow!("{error}")),
    }
}

pub(crate) fn cannot_connect(error: ClientError) -> anyhow::Error {
    match error {
        ClientError::Connect { uri, source } => unreachable_router(&uri, &source),
        other => other.into(),
    }
}

fn unreachable_router(uri: &str, error: &std::io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::PermissionDenied => anyhow::anyhow!(
            "no permission to use {uri}; ask its owner for access, or start your own router with \
             `weir router`"
        ),
        _ => Exit::TryAgain.error(format!(
            "no router at {uri}: {error}; start one with `weir router` (the service of a package: \
             `sudo systemctl start weir-router`), or choose another with --router URI"
        )),
    }
}

/// The options `--home` and `--passphrase-file`.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = help::KEYS)]
pub(crate) struct KeyArgs {
    /// Directory of keys and trust anchors [default: $WEIR_HOME, $XDG_CONFIG_HOME/weir or
    /// ~/.config/weir]
    #[arg(long, value_name = "DIR")]
    home: Option<PathBuf>,
    /// Read the passphrase from the first line of FILE [default: $WEIR_PASSPHRASE, or the terminal]
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

impl KeyArgs {
    pub(crate) fn key_chain(&self) -> anyhow::Result<KeyChain> {
        let chain = match &self.home {
            Some(dir) => KeyChain::at(dir),
            None => KeyChain::open()?,
        };
        Ok(chain.with_passphrases(PassphraseSource::from_option(self.passphrase_file.clone())))
    }
}

/// A flag set by Ctrl-C, SIGTERM or another signal that ends the command.
#[derive(Clone, Debug)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Installs the signal handlers. A second signal ends the process immediately.
    pub(crate) fn on_signals() -> anyhow::Result<Self> {
        let stop = Arc::default();
        signals::stop_on_signals(&stop)?;
        Ok(Self(stop))
    }

    #[cfg(feature = "lab")]
    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.0
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Prints progress lines at growing intervals when no progress bar is visible.
pub(crate) struct ProgressLog {
    /// Whether lines are printed: no progress bar is visible.
    is_on: bool,
    since: Instant,
    /// When the next line is due, counted from `since`.
    wait: Duration,
}

impl ProgressLog {
    pub(crate) const FIRST_REPORT_AFTER: Duration = Duration::from_secs(5);

    pub(crate) fn new(is_on: bool) -> Self {
        Self { is_on, since: Instant::now(), wait: Self::FIRST_REPORT_AFTER }
    }

    /// Prints the text if a line is due: after 5 s, then each time the elapsed time has doubled.
    pub(crate) fn report_if_due(&mut self, text: impl FnOnce() -> String) {
        let silent = self.since.elapsed();
        if self.is_on && silent >= self.wait {
            self.wait = silent * 2;
            errln!("weir: {}", text());
        }
    }
}

/// A signal stopped the command. The text after `interrupted` says how to resume.
#[derive(Debug, thiserror::Error)]
#[error("interrupted{0}")]
pub(crate) struct Interrupted(pub(crate) &'static str);

/// An error about an unreadable path, with advice.
pub(crate) fn cannot_read(path: &Path, error: &std::io::Error) -> anyhow::Error {
    let step = match error.kind() {
        ErrorKind::NotFound => "; check the path",
        ErrorKind::PermissionDenied => "; ask its owner for permission",
        _ => "",
    };
    anyhow::anyhow!("cannot read {}: {error}{step}", printable(path.display()))
}

/// Parses the name of an object, which has at least one component.
pub(crate) fn parse_name(text: &str) -> Result<Name, String> {
    let name = parse_prefix(text)?;
    if name.is_empty() {
        return Err("a name needs at least one component, such as /data/file".into());
    }
    Ok(name)
}

/// Parses a name or prefix. `/` stands for every name. `hicn:b001::1` is the name of an hICN
/// address.
pub(crate) fn parse_prefix(text: &str) -> Result<Name, String> {
    if let Some(name) = HicnName::parse_uri(text) {
        return name.map_err(|error| error.to_string());
    }
    if !text.starts_with('/') && !text.starts_with("ndn:") {
        return Err(format!("a name starts with a slash, as in /{text}"));
    }
    text.parse().map_err(|error| format!("{error}"))
}

/// Parses a number of threads, 1 to 256.
pub(crate) fn parse_threads(text: &str) -> Result<u32, String> {
    const THREADS_MAX: u32 = 256;
    match parse_positive(text)? {
        threads @ ..=THREADS_MAX => Ok(threads),
        _ => Err(format!("must be at most {THREADS_MAX}")),
    }
}

/// Parses a number that must not be 0.
pub(crate) fn parse_positive(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".into()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

/// Rejects names in the scopes `/localhost` and `/localhop`, which a router does not forward.
pub(crate) fn refuse_local_name(name: &Name) -> anyhow::Result<()> {
    let first = name.as_view().first();
    if first.is_some_and(|first| matches!(first.value, b"localhost" | b"localhop")) {
        bail!("routers do not forward names below /localhost and /localhop; choose another name");
    }
    Ok(())
}

/// Prints a warning if the clock is more than a day before the build date of this program. Other
/// machines would reject certificates signed by such a clock as expired or not yet valid.
pub(crate) fn warn_about_clock() {
    let made_unix_s: u64 = env!("WEIR_BUILD_UNIX_S").parse().expect("build.rs writes a number");
    let now_unix_s = unix_time_ms() / 1000;
    if now_unix_s + 86_400 < made_unix_s {
        let date = |unix_s: u64| format_timestamp(unix_s as i64).map(char::from);
        let text = |unix_s: u64| date(unix_s).into_iter().take(8).collect::<String>();
        errln!(
            "weir: the clock of this machine says {}, but this program was built on {}; set the \
             clock, otherwise other machines will reject new signatures. If a key was created with \
             the wrong clock, renew its certificate with `weir key renew`",
            text(now_unix_s),
            text(made_unix_s)
        );
    }
}
