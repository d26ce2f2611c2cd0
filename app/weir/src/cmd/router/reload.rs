//! Reloads of a running router, `weir router --reload` and `weir router --check`.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use nix::sys::stat::{FileStat, fstat};
use weir_agent::Agent;
use weir_client::ClientError;
use weir_face::{FaceUri, client_transport};
use weir_manage::ControlParameters;
use weir_manage::commands::Command;
use weir_runtime::{Handle, Runtime, RuntimeConfig, StartError, memory_limit};

use super::{Args, LogLevel, print};
use crate::config::{ConfigFile, FileConfig, UnixChoice, keys_for_restart};
use crate::exit::{Exit, InJournal};
use crate::management_client::ManagementClient;
use crate::table::errln;
use crate::transfer::cannot_connect;

/// A running router, and what its reloads need.
pub(super) struct ServedRouter {
    pub(super) args: Args,
    pub(super) router: Handle,
    /// The configuration that the router was started with.
    pub(super) started: ConfigFile,
    pub(super) log_level: LogLevel,
    /// It stops when it is dropped, so it lives as long as the router.
    pub(super) _agent: Option<Agent>,
}

impl ServedRouter {
    /// Serves requests for reloads until the router stops.
    pub(super) fn serve(mut self) -> anyhow::Result<()> {
        while self.router.wait_for_reload() {
            let outcome = self.reload().map_err(|error| refusal(&error));
            self.router.end_reload(outcome);
        }
        Ok(self.router.wait()?)
    }

    /// Reads and checks the whole configuration, and only then applies it.
    fn reload(&mut self) -> anyhow::Result<String> {
        let mut file = ConfigFile::read(self.args.config.as_deref())?;
        // An editor or a script that writes the file in place first makes it empty.
        ensure!(
            !file.text.trim().is_empty() || self.started.text.trim().is_empty(),
            "{} is empty, as if it were being written; write another file, and rename it",
            file.origin()
        );
        self.args.apply(&mut file.config)?;
        let runtime = checked(&file, self.router.listening())?;
        log_size_warnings(&file.config);
        let report = self.router.reload(runtime)?;
        let mut text = report.to_string();
        // The rest has been applied, so a failure is no refusal.
        match self.log_level.set(&file.config.log) {
            Ok(true) => text.push_str(&format!(", log level {}", file.config.log.level.0)),
            Ok(false) => {}
            Err(error) => text.push_str(&format!(", but the log level stays: {error:#}")),
        }
        let restart = self.keys_for_restart(&file);
        if !restart.is_empty() {
            text.push_str(&format!("; takes effect after a restart: {}", restart.join(", ")));
        }
        Ok(text)
    }

    /// What differs from the start and cannot be changed while the router runs.
    fn keys_for_restart(&self, file: &ConfigFile) -> Vec<String> {
        let mut keys = keys_for_restart(&self.started.text, &file.text, |config| {
            // The command line was valid at the start.
            let _ = self.args.apply(config);
        });
        let (old, new) = (&self.started.config, &file.config);
        if new.controller.url.is_some() && old.rates_bps() != new.rates_bps() {
            keys.push("`rate` of [[face]]".into());
        }
        keys
    }
}

/// Why a reload was refused, and what that means for the running router.
fn refusal(error: &anyhow::Error) -> String {
    let are_metrics_lost =
        matches!(error.downcast_ref::<StartError>(), Some(StartError::MetricsLost { .. }));
    let rest = if are_metrics_lost { "nothing else has changed" } else { "nothing has changed" };
    format!("{error:#}; {rest}")
}

/// Checks everything that the configuration names: values, files, addresses and disks.
fn checked(file: &ConfigFile, listening: &[String]) -> anyhow::Result<RuntimeConfig> {
    let runtime = file.config.to_runtime().with_context(|| file.origin())?;
    let agent = file.config.controller.agent(listening, BTreeMap::new());
    if let Some(agent) = agent.with_context(|| file.origin())? {
        agent
            .check()
            .map_err(|error| anyhow::anyhow!("{}: [controller]: {error}", file.origin()))?;
    }
    // `{error}` already includes the causes.
    Runtime::check(&runtime).map_err(|error| anyhow::anyhow!("{}: {error}", file.origin()))?;
    Ok(runtime)
}

/// Logs sizes that this machine cannot provide. The router itself reports a limit of its process,
/// because it configures less then.
pub(super) fn log_size_warnings(config: &FileConfig) {
    for warning in config.size_warnings(None) {
        tracing::warn!("{warning}");
    }
}

/// `weir router --check`.
pub(super) fn check(args: &Args) -> anyhow::Result<()> {
    let mut file = ConfigFile::read(args.config.as_deref())?;
    args.apply(&mut file.config)?;
    checked(&file, &[])?;
    for warning in file.config.size_warnings(memory_limit().as_ref()) {
        errln!("weir: {}: {warning}", file.origin());
    }
    print(&format!("{}: OK", file.origin()))
}

/// `weir router --reload`: asks the running router, and reports its answer.
pub(super) fn request(args: &Args) -> anyhow::Result<()> {
    let mut client = connect(&sockets(args)?)?;
    let answer = client.send_command(Command::RouterReload, &ControlParameters::default())?;
    match answer.code {
        200 => print(&format!("reloaded: {}", answer.text)),
        409 => {
            let text = format!("the router refused the new configuration: {}", answer.text);
            Err(if is_reload_of_unit() { InJournal(text).into() } else { anyhow::anyhow!(text) })
        }
        _ => Err(crate::management_client::explain_response(&answer)),
    }
}

/// Whether this command is the `ExecReload=` of the router's unit, and writes to the same journal
/// as the router, which has logged the outcome. systemd sets MAINPID only there, and JOURNAL_STREAM
/// to the device and inode of the journal's socket (systemd.exec(5)).
fn is_reload_of_unit() -> bool {
    let journal = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let is_journal = |file: FileStat| journal == format!("{}:{}", file.st_dev, file.st_ino);
    std::env::var_os("MAINPID").is_some() && fstat(std::io::stderr()).is_ok_and(is_journal)
}

/// Where the running router may listen, the likeliest first. The configuration is the new one: it
/// may be invalid or name another socket, and the router itself must report that. So the usual
/// sockets are always tried, unless `--unix` names one.
fn sockets(args: &Args) -> anyhow::Result<Vec<FaceUri>> {
    let absolute = |path: &Path| anyhow::Ok(FaceUri::Unix(std::path::absolute(path)?));
    match &args.unix {
        Some(UnixChoice::Path(path)) => return Ok(vec![absolute(path)?]),
        Some(UnixChoice::None) => bail!(
            "a router without a Unix socket takes no commands; send SIGHUP to its process, and see \
             its log for the outcome"
        ),
        Some(UnixChoice::Auto) | None => {}
    }
    let usual = client_transport().map_err(|error| anyhow::anyhow!("{error}"))?.uri;
    if args.unix.is_some() {
        return Ok(vec![usual]);
    }
    if let Some(path) = &args.config {
        ensure!(path.exists(), "{} does not exist; check the path", path.display());
    }
    let file = ConfigFile::read(args.config.as_deref()).ok();
    let Some(UnixChoice::Path(path)) = file.map(|file| file.config.faces.unix) else {
        return Ok(vec![usual]);
    };
    let of_file = absolute(&path)?;
    Ok(if args.config.is_some() { vec![of_file, usual] } else { vec![usual, of_file] })
}

/// Connects to the first router that runs. The error is about the first socket.
fn connect(uris: &[FaceUri]) -> anyhow::Result<ManagementClient> {
    let mut first_error = None;
    for uri in uris {
        match ManagementClient::connect_to(uri) {
            Ok(client) => return Ok(client),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    let unknown = || anyhow::anyhow!("no socket of a router is known");
    Err(first_error.map_or_else(unknown, cannot_reach))
}

/// As [`cannot_connect`], but with the options of this command.
fn cannot_reach(error: ClientError) -> anyhow::Error {
    match error {
        ClientError::Connect { uri, source } if source.kind() != ErrorKind::PermissionDenied => {
            Exit::TryAgain.error(format!(
                "no router at {uri}: {source}; start it with `weir router`, or name the socket of \
                 the running router with --unix PATH"
            ))
        }
        error => cannot_connect(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_says_what_has_changed() {
        let text = refusal(&anyhow::anyhow!("line 2").context("weir.toml"));
        assert_eq!(text, "weir.toml: line 2; nothing has changed");
        let [address, old] = ["192.0.2.1:9636", "127.0.0.1:9636"].map(|it| it.parse().unwrap());
        let (reason, lost) = ("not here".to_owned(), "in use".to_owned());
        let text = refusal(&StartError::MetricsLost { address, reason, old, lost }.into());
        assert!(text.ends_with("serves no metrics now; nothing else has changed"), "{text}");
    }
}
