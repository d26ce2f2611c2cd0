//! `weir controller`.

mod file;
mod files;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use clap::Subcommand;
use sd_notify::NotifyState;
use signal_hook::iterator::Signals;
use weir_base::NS_PER_S;
use weir_base::units::Time;
use weir_controller::{Role, Server, Token, is_name};
use weir_wire::Name;

pub(crate) use self::file::DEFAULT_CONFIG;
use self::file::{ControllerFile, Databases};
use self::files::FileCommand;
use super::router::{print, start_log, warn_of_certificate};
use crate::config::LogFormat;
use crate::exit::Exit;
use crate::help::{OUTPUT, TLS};
use crate::signals;
use crate::table::{Align, Table, out, outln};
use crate::traces::Traces;

/// Run a controller, which plans what a group of routers stores.
///
/// Routers report their links and stores to the controller, and producers register files with it.
/// If a file is larger than any store, the controller assigns a part of it to each router. It also
/// sends routes to the routers. Without the controller, the routers continue to forward.
///
/// The controller serves a REST interface and a dashboard. Each client needs a token from `weir
/// controller token add`. The controller runs until Ctrl-C or SIGTERM.
#[derive(clap::Args)]
#[command(
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  weir controller --database /tmp/controller.db\n  weir controller \
                  --print-default-config > weir-controller.toml"
)]
pub(crate) struct Args {
    /// Read this configuration file [default: ~/.config/weir/weir-controller.toml or
    /// /etc/weir/weir-controller.toml, if one of them exists]
    #[arg(short, long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Database: an SQLite file, which is created if missing, or postgres://USER@HOST/NAME, which
    /// several controllers can share. Repeat the option for a primary server and its standbys. Put
    /// a password into the configuration file or PGPASSWORD, as other users can see arguments
    /// [default: ~/.local/state/weir/controller.db, or /var/lib/weir/controller.db for root]
    #[arg(long, value_name = "FILE|URL", global = true)]
    database: Vec<String>,
    /// Print a configuration file with every key, its meaning and its default, and exit
    #[arg(long)]
    print_default_config: bool,
    /// Listen at this address [default: 127.0.0.1:8636]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// TLS certificate chain (PEM) [default: no TLS]
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = TLS)]
    tls_certificate: Option<PathBuf>,
    /// Private key (PEM) of the TLS certificate
    #[arg(long, value_name = "FILE", requires = "tls_certificate", help_heading = TLS)]
    tls_key: Option<PathBuf>,
    /// Require a client certificate from one of the CAs in this PEM file, in addition to a token
    #[arg(long, value_name = "FILE", requires = "tls_certificate", help_heading = TLS)]
    tls_clients: Option<PathBuf>,
    /// Allow other machines to connect without TLS. Use it only in a trusted network
    #[arg(long, help_heading = TLS)]
    insecure: bool,
    /// Print the ready line as a JSON object, and log in JSON
    #[arg(long, help_heading = OUTPUT)]
    json: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Add, list and remove access tokens, also while the controller runs
    #[command(
        subcommand,
        after_help = "Examples:\n  weir controller token add --role reader --name dashboard\n  \
                      weir controller token list"
    )]
    Token(TokenCommand),
    /// List and withdraw the files registered with a running controller
    #[command(
        subcommand,
        after_help = "Examples:\n  weir controller file list \\\n    --controller \
                      http://127.0.0.1:8636 --controller-token-file reader.token\n  weir \
                      controller file remove /demo/hosts/v=1 \\\n    --controller \
                      http://127.0.0.1:8636 --controller-token-file operator.token"
    )]
    File(FileCommand),
}

#[derive(Subcommand)]
enum TokenCommand {
    /// Create a token and print it. The database stores only its hash, so copy the token now
    #[command(after_help = "Examples:\n  weir controller token add --role router --name edge-1 > \
                      edge-1.token\n  weir controller token add --role producer --name alice \
                      --prefix /alice --expires 90d")]
    Add {
        /// What the token permits. router: report as the router called NAME. producer: register
        /// files. reader: read everything. operator: read everything, register and withdraw files
        #[arg(long)]
        role: Role,
        /// The owner of the token. For the role router, the name of the router
        #[arg(long, value_parser = parse_name)]
        name: String,
        /// Expire after this time, such as 90d or 12h [default: never]
        #[arg(long, value_name = "TIME", value_parser = parse_time)]
        expires: Option<Duration>,
        /// Name prefix for which the token is valid; may be repeated. A producer may register files
        /// below it (required; / for any name). Other routers get routes below it to a router
        /// [default for a router: /]
        #[arg(long = "prefix", value_name = "NAME")]
        prefixes: Vec<Name>,
    },
    /// List the tokens, without their secrets
    #[command(
        after_help = "Examples:\n  weir controller token list\n  weir controller token list --json"
    )]
    List {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Remove a token. A running controller rejects it within a few seconds
    #[command(
        aliases = ["delete", "rm", "del"],
        after_help = "Examples:\n  weir controller token remove \"$(cat edge-1.token)\"\n  weir \
                      controller token remove \"$(weir controller token list --json | jq -r \
                      '.[0].id')\""
    )]
    Remove {
        /// The ID that `list` shows, or the token itself
        id: String,
    },
}

fn parse_name(text: &str) -> Result<String, String> {
    let is_good = is_name(text);
    let rule = || "a name has 1 to 64 characters of A-Z a-z 0-9 . _ -".to_owned();
    is_good.then(|| text.to_owned()).ok_or_else(rule)
}

const DAY_S: u64 = 24 * 60 * 60;

/// Parses a time such as `12h`, and also days (`90d`), which [`Time`] does not have.
fn parse_time(text: &str) -> Result<Duration, String> {
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u64>().ok());
    if let Some(seconds) = days.and_then(|days| days.checked_mul(DAY_S)) {
        return Ok(Duration::from_secs(seconds));
    }
    let time: Time =
        text.parse().map_err(|_| format!("`{text}` is not a time; write 90d or 12h"))?;
    Ok(Duration::from_nanos(time.ns))
}

impl Args {
    /// Overrides the configuration file with the command line.
    fn apply(&self, file: &mut ControllerFile) {
        let paths = [
            (&self.tls_certificate, &mut file.tls_certificate),
            (&self.tls_key, &mut file.tls_key),
            (&self.tls_clients, &mut file.tls_clients),
        ];
        for (flag, key) in paths {
            if flag.is_some() {
                key.clone_from(flag);
            }
        }
        if !self.database.is_empty() {
            file.database = Some(Databases::List(self.database.clone()));
        }
        if let Some(listen) = self.listen {
            file.listen = listen;
        }
        file.insecure |= self.insecure;
        if self.json {
            file.log.format = LogFormat::Json;
        }
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    if args.print_default_config {
        return print(DEFAULT_CONFIG.trim_end());
    }
    if let Some(Command::File(command)) = args.command {
        if args.config.is_some() || !args.database.is_empty() {
            bail!(
                "`weir controller file` connects to a running controller; use --controller URL \
                 instead of --config and --database"
            );
        }
        return files::run(command);
    }
    let (mut file, path) = ControllerFile::load(args.config.as_deref())?;
    args.apply(&mut file);
    if let Some(Command::Token(command)) = args.command {
        return token(&file, command);
    }
    let (traces, untraced) = Traces::start("weir-controller");
    start_log(&file.log, traces.layer())?;
    if let Some(error) = untraced {
        tracing::warn!("{error:#}");
    }
    if let Some(path) = path {
        tracing::info!(path = %path.display(), "read the configuration");
    }
    let config = file.to_config()?;
    if let Some(files) = &config.tls {
        warn_of_certificate(&files.certificate);
    }
    let database = config.database.clone();
    // Before the start, so that a signal during the start is not lost.
    let mut signals = Signals::new(signals::stop_signals()).context("cannot watch signals")?;
    let server = Server::start(config).context("the controller cannot start")?;
    print(&ready_line(&server.url(), &database.to_string(), args.json))?;
    // Fails without systemd, where no one waits for the notification.
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    signals.forever().next();
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    server.stop();
    if let Err(error) = traces.finish() {
        tracing::warn!("{error}");
    }
    Ok(())
}

fn ready_line(url: &str, database: &str, json: bool) -> String {
    if json {
        let ready = serde_json::json!({
            "ready": true,
            "url": url,
            "database": database,
            "pid": process::id(),
        });
        return ready.to_string();
    }
    format!("weir controller is ready at {url}, database {database}")
}

fn token(file: &ControllerFile, command: TokenCommand) -> anyhow::Result<()> {
    let database = file.database()?;
    match command {
        TokenCommand::Add { role, name, expires, mut prefixes } => {
            match role {
                Role::Producer if prefixes.is_empty() => bail!(
                    "a producer token needs at least one --prefix below which it may register \
                     files; use --prefix / for any name"
                ),
                Role::Router if prefixes.is_empty() => prefixes.push(Name::new()),
                Role::Operator | Role::Reader if !prefixes.is_empty() => {
                    bail!("--prefix is only for producers and routers; leave it out")
                }
                Role::Router | Role::Producer | Role::Operator | Role::Reader => {}
            }

            let expires = expires.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
            let text = weir_controller::add_token(&database, role, &name, expires, &prefixes)?;
            outln!("{text}")?;
        }
        TokenCommand::List { json } => {
            let tokens = weir_controller::tokens(&database)?;
            if json {
                let rows: Vec<serde_json::Value> = tokens.iter().map(token_json).collect();
                outln!("{}", serde_json::to_string_pretty(&rows)?)?;
            } else {
                let empty = "no tokens; add one with `weir controller token add`";
                out!("{}", token_table(&tokens).render(empty))?;
            }
        }
        TokenCommand::Remove { id } => {
            // A whole token contains its ID between `weir-` and the next hyphen.
            let id = id.strip_prefix("weir-").unwrap_or(&id).split('-').next().unwrap_or_default();
            if !weir_controller::remove_token(&database, id)? {
                return Err(Exit::NotFound.error(format!(
                    "there is no token {id}; list them with `weir controller token list`"
                )));
            }
        }
    }
    Ok(())
}

fn token_json(token: &Token) -> serde_json::Value {
    serde_json::json!({
        "id": token.id,
        "role": token.role,
        "name": token.name,
        "created_ms": token.created_ms,
        "expires_ms": token.expires_ms,
        "prefixes": token.prefixes,
    })
}

/// A table of tokens, without their secrets.
fn token_table(tokens: &[Token]) -> Table {
    let columns = ["ID", "ROLE", "NAME", "VALID", "PREFIXES"].map(|name| (name, Align::Left));
    let mut table = Table::new(&columns);
    for token in tokens {
        let below: Vec<String> = token.prefixes.iter().map(ToString::to_string).collect();
        table.row(vec![
            token.id.clone(),
            token.role.to_string(),
            token.name.clone(),
            validity(token),
            below.join(" "),
        ]);
    }
    table
}

/// How long a token remains valid.
fn validity(token: &Token) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    match token.expires_ms {
        None => "forever".to_owned(),
        Some(at_ms) => match Duration::from_millis(at_ms).checked_sub(now) {
            None => "expired".to_owned(),
            Some(left) if left.as_secs() >= DAY_S => {
                format!("for {} days", left.as_secs() / DAY_S)
            }
            Some(left) => format!("for {}", Time { ns: left.as_secs() * NS_PER_S }),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_expiry_accepts_days() {
        assert_eq!(parse_time("90d"), Ok(Duration::from_secs(90 * DAY_S)));
        assert_eq!(parse_time("12h"), Ok(Duration::from_secs(12 * 60 * 60)));
        assert!(parse_time("d").is_err() && parse_time("soon").is_err());
    }
}
