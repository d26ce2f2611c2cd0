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

use self::file::{ControllerFile, DEFAULT_CONFIG};
use self::files::FileCommand;
use super::router::{print, start_log};
use crate::config::LogFormat;
use crate::signals;
use crate::table::{Align, Table, out, outln};

/// Run a controller of routers.
///
/// It knows the routers that report to it, the links between them, what their stores hold, and
/// the files that producers register. It plans which router keeps which part of a file that no
/// store holds as a whole, and gives each router its routes. Routers forward without it as before.
///
/// It serves REST and a dashboard; who asks needs a token, which `weir controller token add` makes.
/// It runs until SIGTERM or Ctrl-C.
#[derive(clap::Args)]
#[command(subcommand_negates_reqs = true)]
pub(crate) struct Args {
    /// Configuration file; default: ~/.config/weir/weir-controller.toml or
    /// /etc/weir/weir-controller.toml, if there
    #[arg(short, long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// SQLite database, made if there is none [default: ~/.local/state/weir/controller.db; for
    /// root /var/lib/weir/controller.db]; or postgres://USER@HOST/NAME, a PostgreSQL database that
    /// several controllers may share. A password is better kept in the configuration file or in
    /// PGPASSWORD: others see arguments
    #[arg(long, value_name = "FILE|URL", global = true)]
    database: Option<String>,
    /// Print every configuration key with its default and meaning, and exit
    #[arg(long)]
    print_default_config: bool,
    /// Address to listen on [default: 127.0.0.1:8636]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Certificate for TLS, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// Its private key, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// Authorities, as PEM: who connects must have a certificate of one of them, beside a token
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_clients: Option<PathBuf>,
    /// Listen beyond this machine without TLS: on a trusted network only
    #[arg(long)]
    insecure: bool,
    /// Say that the controller is ready as a JSON object, and log in JSON
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Make, list and remove tokens, also while the controller runs
    #[command(subcommand)]
    Token(TokenCommand),
    /// List and withdraw the files that producers have registered with a controller that runs
    #[command(subcommand)]
    File(FileCommand),
}

#[derive(Subcommand)]
enum TokenCommand {
    /// Make a token and print it: this once, as only its hash is kept
    Add {
        /// router: reports as the router of this name; producer: registers files; operator: sees
        /// everything, registers and withdraws files; reader: sees everything
        #[arg(long)]
        role: Role,
        /// Whose it is; for a router, the name of the router
        #[arg(long, value_parser = parse_name)]
        name: String,
        /// How long it holds, for example 90d or 12h [default: for ever]
        #[arg(long, value_name = "TIME", value_parser = parse_time)]
        expires: Option<Duration>,
        /// What a producer may register files below, once or more; `/` for any name. For a router:
        /// what others get routes to it for [default: any]
        #[arg(long = "prefix", value_name = "NAME")]
        prefixes: Vec<Name>,
    },
    /// List tokens, without their secrets
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a token; a controller that runs knows of it within a few seconds
    #[command(aliases = ["delete", "rm", "del"])]
    Remove {
        /// What `list` calls it, or the token itself
        id: String,
    },
}

fn parse_name(text: &str) -> Result<String, String> {
    let is_good = is_name(text);
    is_good.then(|| text.to_owned()).ok_or_else(|| "1 to 64 of A-Z a-z 0-9 . _ -".to_owned())
}

const DAY_S: u64 = 24 * 60 * 60;

/// Reads days beside what all times are written in.
fn parse_time(text: &str) -> Result<Duration, String> {
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u64>().ok());
    if let Some(seconds) = days.and_then(|days| days.checked_mul(DAY_S)) {
        return Ok(Duration::from_secs(seconds));
    }
    let time: Time = text.parse().map_err(|_| format!("`{text}` is no time; write 90d or 12h"))?;
    Ok(Duration::from_nanos(time.ns))
}

impl Args {
    /// Flags go before the file.
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
        if self.database.is_some() {
            file.database.clone_from(&self.database);
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
        if args.config.is_some() || args.database.is_some() {
            bail!(
                "`weir controller file` asks a controller that runs: say with --controller which \
                 one, in place of --config and --database"
            );
        }
        return files::run(command);
    }
    let (mut file, path) = ControllerFile::load(args.config.as_deref())?;
    args.apply(&mut file);
    if let Some(Command::Token(command)) = args.command {
        return token(&file, command);
    }
    start_log(&file.log)?;
    if let Some(path) = path {
        tracing::info!(path = %path.display(), "configuration read");
    }
    let config = file.to_config()?;
    let database = config.database.clone();
    let mut signals = Signals::new(signals::stop_signals()).context("cannot watch signals")?;
    let server = Server::start(config).context("the controller cannot start")?;
    print(&ready_line(&server.url(), &database.to_string(), args.json))?;
    // Without systemd there is nobody to tell.
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    signals.forever().next();
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    server.stop();
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
    format!("weir controller is ready at {url}, with {database}")
}

fn token(file: &ControllerFile, command: TokenCommand) -> anyhow::Result<()> {
    let database = file.database()?;
    match command {
        TokenCommand::Add { role, name, expires, mut prefixes } => {
            match role {
                Role::Producer if prefixes.is_empty() => bail!(
                    "a producer registers names below the prefixes of its token: give --prefix, \
                     or --prefix / for any name"
                ),
                Role::Router if prefixes.is_empty() => prefixes.push(Name::new()),
                Role::Operator | Role::Reader if !prefixes.is_empty() => {
                    bail!(
                        "--prefix is for producers and routers; an operator may register any name"
                    )
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
                let empty = "no tokens; `weir controller token add` makes one";
                out!("{}", token_table(&tokens).render(empty))?;
            }
        }
        TokenCommand::Remove { id } => {
            let id = id.strip_prefix("weir-").unwrap_or(&id).split('-').next().unwrap_or_default();
            if !weir_controller::remove_token(&database, id)? {
                bail!("there is no token {id}; `weir controller token list` says which there are");
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

/// All tokens, without their secrets.
fn token_table(tokens: &[Token]) -> Table {
    let columns = ["ID", "ROLE", "NAME", "HOLDS", "BELOW"].map(|name| (name, Align::Left));
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

/// How long a token holds.
fn validity(token: &Token) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    match token.expires_ms {
        None => "for ever".to_owned(),
        Some(at_ms) => match Duration::from_millis(at_ms).checked_sub(now) {
            None => "has expired".to_owned(),
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
