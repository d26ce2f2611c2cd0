//! What `put`, `get` and `ping` have in common.

pub(crate) mod trust;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use weir_client::{Client, ClientError, ROUTERS_MAX};
use weir_crypto::{KeyChain, PassphraseSource};
use weir_face::{FaceUri, client_transport, unix_time_ms};
use weir_wire::{Name, format_timestamp};

use crate::signals;
use crate::table::{errln, printable};

/// Which router to use, or which several.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct RouterArgs {
    /// The router to use, such as unix:///run/nfd/nfd.sock, tcp://host or udp://host; `weir get`
    /// uses several at once if it is repeated
    ///
    /// By default the one that NDN_CLIENT_TRANSPORT or client.conf names, else the one that runs on
    /// this machine.
    #[arg(long, visible_alias = "face", value_name = "URI", global = true)]
    router: Vec<String>,
}

impl RouterArgs {
    /// As if `--router` named this one.
    #[cfg(test)]
    pub(crate) fn of(uri: &str) -> Self {
        Self { router: vec![uri.to_owned()] }
    }

    /// Whether several are given.
    pub(crate) fn has_several(&self) -> bool {
        self.router.len() > 1
    }

    /// The router's address.
    pub(crate) fn uri(&self) -> anyhow::Result<FaceUri> {
        // These errors tell their causes themselves.
        match &self.router[..] {
            [] => client_transport()
                .map(|choice| choice.uri)
                .map_err(|error| anyhow::anyhow!("{error}")),
            [text] => parse_uri(text),
            several => bail!(
                "--router is given {} times, and this command uses one router; give it once \
                 (`weir get` alone uses several)",
                several.len()
            ),
        }
    }

    /// Connects; says what to do when nothing answers.
    pub(crate) fn connect(&self) -> anyhow::Result<Client> {
        Client::connect(&self.uri()?).map_err(cannot_connect)
    }

    /// Connects to all routers given; says which of several do not answer.
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
            errln!("weir: {error}; going on with the others");
        }
        Ok(client)
    }
}

/// Connects to the router at an address.
pub(crate) fn connect_to(uri: &str) -> anyhow::Result<Client> {
    Client::connect(&parse_uri(uri)?).map_err(cannot_connect)
}

fn parse_uri(text: &str) -> anyhow::Result<FaceUri> {
    match text {
        path if path.starts_with('/') => Ok(FaceUri::Unix(path.into())),
        text => FaceUri::resolve_reachable(text, None).map_err(|error| anyhow::anyhow!("{error}")),
    }
}

fn cannot_connect(error: ClientError) -> anyhow::Error {
    match error {
        ClientError::Connect { uri, source } => unreachable_router(&uri, &source),
        other => other.into(),
    }
}

fn unreachable_router(uri: &str, error: &std::io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::PermissionDenied => anyhow::anyhow!(
            "no permission to use {uri}; ask its owner for access, or start a router of your own \
             with `weir router`"
        ),
        _ => anyhow::anyhow!(
            "no router answers at {uri}: {error}; start one with `weir router`, or name another \
             with --router URI"
        ),
    }
}

/// Where keys are.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct KeyArgs {
    /// Where keys and trust are kept [default: $WEIR_HOME, $XDG_CONFIG_HOME/weir or ~/.config/weir]
    #[arg(long, value_name = "DIR")]
    home: Option<PathBuf>,
    /// Take the passphrase from the first line of FILE, not from $WEIR_PASSPHRASE or the terminal
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

/// Set by a signal that asks the command to end, such as Ctrl-C and SIGTERM.
#[derive(Clone, Debug)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Watches the signals. The second of them ends the process at once.
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

/// A progress bar in octets on standard error, if that is a terminal.
pub(crate) fn byte_bar(message: impl Into<String>, total: Option<u64>) -> ProgressBar {
    let template = match total {
        Some(_) => {
            "{msg} [{bar:30}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} eta {eta}"
        }
        None => "{msg} {spinner} {binary_bytes} {binary_bytes_per_sec}",
    };
    let style = ProgressStyle::with_template(template).expect("a template that parses");
    let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
    bar.set_style(style.progress_chars("=> "));
    bar.set_message(printable(message.into()));
    bar
}

/// A progress bar in files on standard error, if that is a terminal.
pub(crate) fn file_bar(message: impl Into<String>, total: u64) -> ProgressBar {
    let template = "{msg} [{bar:30}] {human_pos} of {human_len} files {per_sec} eta {eta}";
    let style = ProgressStyle::with_template(template).expect("a template that parses");
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    bar.set_style(style.progress_chars("=> "));
    bar.set_message(printable(message.into()));
    bar
}

/// Says now and then what is going on where no progress bar is to be seen.
pub(crate) struct ProgressLog {
    /// There is nothing to be seen otherwise.
    is_on: bool,
    since: Instant,
    /// How long to be silent.
    wait: Duration,
}

impl ProgressLog {
    pub(crate) const FIRST_REPORT_AFTER: Duration = Duration::from_secs(5);

    pub(crate) fn new(is_on: bool) -> Self {
        Self { is_on, since: Instant::now(), wait: Self::FIRST_REPORT_AFTER }
    }

    /// Prints a line after 5 seconds, then ever more rarely.
    pub(crate) fn report_if_due(&mut self, text: impl FnOnce() -> String) {
        let silent = self.since.elapsed();
        if self.is_on && silent >= self.wait {
            self.wait = silent * 2;
            errln!("weir: {}", text());
        }
    }
}

/// The user stopped the command before its end.
#[derive(Debug, thiserror::Error)]
#[error("interrupted{0}")]
pub(crate) struct Interrupted(pub(crate) &'static str);

/// What to do about a path that cannot be read.
pub(crate) fn cannot_read(path: &Path, error: &std::io::Error) -> anyhow::Error {
    let step = match error.kind() {
        ErrorKind::NotFound => "; check how the path is written",
        ErrorKind::PermissionDenied => "; ask its owner for leave to read it",
        _ => "",
    };
    anyhow::anyhow!("cannot read {}: {error}{step}", printable(path.display()))
}

/// A name that can be published and asked for.
pub(crate) fn parse_name(text: &str) -> Result<Name, String> {
    let name = parse_prefix(text)?;
    if name.is_empty() {
        return Err("a name needs at least one component, such as /data/file".into());
    }
    Ok(name)
}

/// A name, or / for every name.
pub(crate) fn parse_prefix(text: &str) -> Result<Name, String> {
    if !text.starts_with('/') && !text.starts_with("ndn:") {
        return Err(format!("a name begins with a slash: /{text}"));
    }
    text.parse().map_err(|error| format!("{error}"))
}

/// A number of threads to work on.
pub(crate) fn parse_threads(text: &str) -> Result<u32, String> {
    const THREADS_MAX: u32 = 256;
    match parse_positive(text)? {
        threads @ ..=THREADS_MAX => Ok(threads),
        _ => Err(format!("at most {THREADS_MAX}; more than there are processors gain nothing")),
    }
}

/// A number of octets or a count that must not be 0.
pub(crate) fn parse_positive(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".into()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

/// Refuses names that only the router itself may serve.
pub(crate) fn refuse_local_name(name: &Name) -> anyhow::Result<()> {
    let first = name.as_view().first();
    if first.is_some_and(|first| matches!(first.value, b"localhost" | b"localhop")) {
        bail!(
            "names below /localhost and /localhop do not leave this machine or link; use another"
        );
    }
    Ok(())
}

/// Says so if the clock is before the day when this program was made: what is signed by such a
/// clock counts as expired, or not yet valid, elsewhere.
pub(crate) fn warn_about_clock() {
    let made_unix_s: u64 = env!("WEIR_BUILD_UNIX_S").parse().expect("build.rs writes a number");
    let now_unix_s = unix_time_ms() / 1000;
    if now_unix_s + 86_400 < made_unix_s {
        let date = |unix_s: u64| format_timestamp(unix_s as i64).map(char::from);
        let text = |unix_s: u64| date(unix_s).into_iter().take(8).collect::<String>();
        errln!(
            "weir: the clock of this machine says {}, but this program was made on {}; set the \
             clock, or others will refuse what is signed now. `weir key renew` makes a \
             new certificate of a key that was made while the clock was wrong",
            text(now_unix_s),
            text(made_unix_s)
        );
    }
}
