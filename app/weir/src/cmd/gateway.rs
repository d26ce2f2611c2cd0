//! `weir gateway`: HTTP in front of named data, and named data in front of HTTP servers.

mod trust;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process;

use anyhow::{Context, bail};
use clap::Subcommand;
use sd_notify::NotifyState;
use signal_hook::iterator::Signals;
use weir_base::units::Size;
use weir_base::without_secrets;
use weir_face::FaceUri;
use weir_gateway::{Front, FrontConfig, GatewayConfig, HostConfig, Origin, OriginConfig};
use weir_http::TlsFiles;
use weir_socket::{Identity, Session, SessionConfig};
use weir_transport::NameMapping;
use weir_wire::Name;

use self::trust::{for_names_below, user_trust};
use super::put::signing::{KeyChoice, Sign};
use super::router::{print, start_log, warn_of_certificate};
use crate::config::{LogFilter, LogFormat, LogSection};
use crate::help::{OUTPUT, SIGNING, TLS, TRUST};
use crate::quantity::{size, warn_about_bare_sizes};
use crate::signals;
use crate::transfer::{KeyArgs, RouterArgs, parse_prefix, refuse_local_name};

/// What `weir gateway run --print-default-config` prints.
pub(crate) const DEFAULT_CONFIG: &str = include_str!("../default-gateway.toml");

/// The log without a line for each request.
const QUIET_LOG: &str = "info,weir_gateway::access=warn";

/// Connect HTTP with named data.
///
/// The front answers HTTP requests with objects that it fetches by name. The origin answers
/// Interests with responses of HTTP servers. Each works alone, next to a router: browsers read what
/// `weir put` serves, and `weir get` reads what an HTTP server has.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  weir gateway origin /web=http://127.0.0.1:80/\n  weir gateway \
                        front --listen 127.0.0.1:8080"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    router: RouterArgs,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(clap::Args)]
struct CommonArgs {
    /// Log each request
    #[arg(long, global = true)]
    access_log: bool,
    /// Print the ready line as a JSON object, and log in JSON
    #[arg(long, global = true, help_heading = OUTPUT)]
    json: bool,
    /// Sign with this key: the name of a key, an identity or a certificate [default: the default
    /// key]
    #[arg(long, value_name = "NAME", conflicts_with = "sign", global = true,
        help_heading = SIGNING)]
    key: Option<Name>,
    /// Sign with a key or only with a digest
    #[arg(long, value_enum, default_value_t = Sign::Default, global = true,
        help_heading = SIGNING)]
    sign: Sign,
    #[command(flatten)]
    keys: KeyArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Serve named data by HTTP
    #[command(after_help = "Examples:\n  weir gateway front\n  weir gateway front --listen \
                            127.0.0.1:8081 --prefix /web --query")]
    Front(FrontArgs),
    /// Serve HTTP servers by name
    #[command(after_help = "Examples:\n  weir gateway origin /web=http://127.0.0.1:80/\n  weir \
                            gateway origin /tv/c1=http://127.0.0.1:8081/c1 --live")]
    Origin(OriginArgs),
    /// Run what a configuration file describes: a front, origins, or both
    #[command(after_help = "Examples:\n  weir gateway run -c gateway.toml\n  weir gateway run \
                            --print-default-config > gateway.toml")]
    Run(RunArgs),
}

#[derive(clap::Args)]
struct FrontArgs {
    /// Serve HTTP at this address; may be repeated
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    listen: Vec<SocketAddr>,
    /// The prefix of the names: the URL path /a/b denotes the name PREFIX/a/b
    #[arg(long, value_name = "NAME", default_value = "/", value_parser = parse_prefix)]
    prefix: Name,
    /// Names in the network: identity, or hicn:PREFIX for hICN names. The origin has chosen it
    #[arg(long, value_name = "MAPPING", default_value_t)]
    mapping: NameMapping,
    /// Make the query of a URL a part of the name
    #[arg(long)]
    query: bool,
    /// Serve /metrics and /health at this address [default: do not serve them]
    #[arg(long, value_name = "ADDR")]
    status: Option<SocketAddr>,
    /// TLS certificate chain (PEM) [default: no TLS]
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = TLS)]
    tls_certificate: Option<PathBuf>,
    /// Private key (PEM) of the TLS certificate
    #[arg(long, value_name = "FILE", requires = "tls_certificate", help_heading = TLS)]
    tls_key: Option<PathBuf>,
    /// Serve HTTP/3, too, at the same port
    #[arg(long, requires = "tls_certificate", help_heading = TLS)]
    http3: bool,
    /// Memory for verified content
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size)]
    memory: Size,
    /// Accept only data signed by the owner of this certificate, or by a key that it certified. May
    /// be repeated [default: your own keys, your trust anchors and known signers]
    #[arg(long, value_name = "FILE", help_heading = TRUST)]
    trust_anchor: Vec<PathBuf>,
    /// Accept unsigned data. Its digest detects errors, but not forgery
    #[arg(long, help_heading = TRUST)]
    allow_unsigned: bool,
}

#[derive(clap::Args)]
struct OriginArgs {
    /// The prefix and the server whose responses it serves, such as /web=http://127.0.0.1:80/; may
    /// be repeated
    #[arg(required = true, value_name = "NAME=URL", value_parser = parse_origin)]
    origins: Vec<(Name, String)>,
    /// Live content: do not keep packets that leave the buffer, and let requests for the next
    /// segment of a playlist wait for it
    #[arg(long)]
    live: bool,
    /// Names in the network: identity, or hicn:PREFIX for hICN names below an IPv6 prefix, such as
    /// hicn:2001:db8:7::/48. Only for one NAME; fronts need the same mapping
    #[arg(long, value_name = "MAPPING", default_value_t)]
    mapping: NameMapping,
    /// Content bytes per segment [default: 8000, or 1000 with hICN names]
    #[arg(long, value_name = "SIZE", value_parser = crate::quantity::size)]
    segment_size: Option<Size>,
    /// Memory for signed packets of each prefix
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size)]
    buffer: Size,
}

#[derive(clap::Args)]
struct RunArgs {
    /// Read this configuration file
    #[arg(short, long, value_name = "FILE", required_unless_present = "print_default_config")]
    config: Option<PathBuf>,
    /// Print a configuration file with every key, its meaning and its default, and exit
    #[arg(long)]
    print_default_config: bool,
}

fn parse_origin(text: &str) -> Result<(Name, String), String> {
    let (name, url) = text
        .split_once('=')
        .filter(|(name, _)| !name.contains("://"))
        .ok_or_else(|| format!("write NAME=URL, such as /web=http://127.0.0.1:80/, not {text}"))?;
    Ok((parse_prefix(name)?, url.to_owned()))
}

impl FrontArgs {
    fn to_config(&self) -> FrontConfig {
        let tls = self.tls_certificate.clone().zip(self.tls_key.clone());
        FrontConfig {
            listen: self.listen.clone(),
            status: self.status,
            tls: tls.map(|(certificate, key)| TlsFiles { certificate, key, clients: None }),
            http3: self.http3,
            hosts: vec![HostConfig {
                prefix: self.prefix.clone(),
                mapping: self.mapping,
                query: self.query,
                ..HostConfig::default()
            }],
            memory: self.memory,
            allow_unsigned: self.allow_unsigned,
            trust_anchors: self.trust_anchor.clone(),
            ..FrontConfig::default()
        }
    }
}

impl OriginArgs {
    fn to_configs(&self) -> Vec<OriginConfig> {
        let origins = self.origins.iter().cloned();
        let to_config = |(prefix, url)| OriginConfig {
            live: self.live,
            mapping: self.mapping,
            segment_size: self.segment_size,
            buffer: self.buffer,
            ..OriginConfig::new(prefix, url)
        };
        origins.map(to_config).collect()
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let config = match &args.command {
        Command::Front(front) => {
            GatewayConfig { front: Some(front.to_config()), ..GatewayConfig::default() }
        }
        Command::Origin(origin) => {
            GatewayConfig { origins: origin.to_configs(), ..GatewayConfig::default() }
        }
        Command::Run(run) => match &run.config {
            Some(path) if !run.print_default_config => {
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                let origin = path.display().to_string();
                let config = toml::from_str(&text).with_context(|| origin.clone())?;
                warn_about_bare_sizes(&text, &origin, DEFAULT_CONFIG);
                config
            }
            _ => return print(DEFAULT_CONFIG.trim_end()),
        },
    };
    if config.front.is_none() && config.origins.is_empty() {
        bail!("the file has neither [front] nor [[origin]]; see --print-default-config");
    }
    config.origins.iter().try_for_each(|origin| refuse_local_name(&origin.prefix))?;
    let format = if args.common.json { LogFormat::Json } else { LogFormat::Text };
    let level = if args.common.access_log { "info" } else { QUIET_LOG };
    start_log(&LogSection { level: LogFilter(level.into()), format }, None)?;
    let _ = weir_face::raise_file_limit();
    let router = match &config.router {
        Some(uri) => FaceUri::resolve_reachable(uri, None)?,
        None => args.router.uri()?,
    };
    // Before the start, so that a signal during the start is not lost.
    let mut signals = Signals::new(signals::stop_signals()).context("cannot watch signals")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("gateway")
        .enable_all()
        .build()
        .context("cannot start threads")?;
    let session = Session::with(SessionConfig {
        router: Some(router),
        reports_sources: true,
        ..Default::default()
    })
    .context("start a router with `weir router`, or choose another with --router URI")?;
    let running = runtime.block_on(start(&session, config, &args.common))?;
    print(&running.ready_line(args.common.json))?;
    // Fails without systemd, where no one waits for the notification.
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    signals.forever().next();
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    runtime.block_on(running.stop());
    runtime.shutdown_background();
    Ok(())
}

/// A running gateway.
struct Running {
    /// With the scheme of its URLs.
    front: Option<(Front, &'static str)>,
    origins: Vec<Origin>,
    /// Prefixes of origins, and the URL of each for messages.
    prefixes: Vec<(String, String)>,
}

async fn start(
    session: &Session,
    config: GatewayConfig,
    common: &CommonArgs,
) -> anyhow::Result<Running> {
    let (mut origins, mut prefixes) = (Vec::new(), Vec::new());
    let sends_uploads = config.front.as_ref().is_some_and(|front| front.uploads.is_some());
    let mut identity = None;
    if !config.origins.is_empty() || sends_uploads {
        let choice = KeyChoice { key: common.key.as_ref(), sign: common.sign, keys: &common.keys };
        let signing = choice.signing()?;
        identity = Some(Identity { signer: signing.signer, certificate: signing.certificate });
    }
    let front_config = config.front.clone().unwrap_or_default();
    let trust = user_trust(&common.keys, &front_config.trust_anchors, front_config.allow_unsigned)?;
    for origin in config.origins {
        let identity = identity.clone().expect("origins have a key");
        let (prefix, url) = (origin.prefix.to_string(), without_secrets(&origin.url));
        let senders = for_names_below(&trust, &Name::new());
        let started = match origin.methods.is_empty() {
            true => Origin::start(session, identity, origin).await,
            false => Origin::start_with_uploads(session, identity, origin, senders).await,
        };
        origins.push(started.with_context(|| format!("cannot serve {prefix}"))?);
        prefixes.push((prefix, url));
    }
    let front = match config.front {
        Some(config) => {
            if let Some(files) = &config.tls {
                warn_of_certificate(&files.certificate);
            }
            let scheme = if config.tls.is_some() { "https" } else { "http" };
            let trust_of = move |object: &Name| for_names_below(&trust, object);
            Some((Front::start(session, trust_of, identity, config).await?, scheme))
        }
        None => None,
    };
    Ok(Running { front, origins, prefixes })
}

impl Running {
    fn ready_line(&self, json: bool) -> String {
        let urls: Vec<String> = self
            .front
            .iter()
            .flat_map(|(front, scheme)| {
                front.addresses().iter().map(move |address| format!("{scheme}://{address}/"))
            })
            .collect();
        if json {
            let status = self.front.as_ref().and_then(|(front, ..)| front.status());
            let ready = serde_json::json!({
                "ready": true,
                "urls": urls,
                "status": status.map(|address| format!("http://{address}/metrics")),
                "prefixes": self.prefixes.iter().map(|(prefix, _)| prefix).collect::<Vec<_>>(),
                "pid": process::id(),
            });
            return ready.to_string();
        }
        let served = self.prefixes.iter().map(|(prefix, url)| format!("{prefix} from {url}"));
        let parts: Vec<String> =
            urls.into_iter().map(|url| format!("at {url}")).chain(served).collect();
        format!("weir gateway is ready: {}", parts.join(", "))
    }

    async fn stop(self) {
        if let Some((front, _)) = self.front {
            front.stop().await;
        }
        drop(self.origins);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_file_has_the_defaults() {
        let config: GatewayConfig = toml::from_str(DEFAULT_CONFIG).unwrap();
        let front = FrontConfig { hosts: vec![HostConfig::default()], ..FrontConfig::default() };
        assert_eq!(config, GatewayConfig { front: Some(front), ..GatewayConfig::default() });
    }

    /// The keys that are comments exist, and those of origins have their defaults.
    #[test]
    fn default_file_explains_every_key() {
        let is_key = |line: &str| line.starts_with('[') || line.contains(" = ");
        let lines = DEFAULT_CONFIG.lines().map(|line| match line.strip_prefix('#') {
            Some(key) if !key.starts_with(' ') && is_key(key) => key,
            _ => line,
        });
        let text = lines.collect::<Vec<_>>().join("\n");
        let config: GatewayConfig = toml::from_str(&text).unwrap();
        assert!(config.router.is_some() && config.front.unwrap().tls.is_some());
        let methods = ["PUT", "POST", "DELETE"].map(str::to_owned).to_vec();
        let url = "http://127.0.0.1:80/".to_owned();
        let default = OriginConfig::new("/web".parse().unwrap(), url);
        let segment_size = Some(Size { bytes: default.mapping.segment_size_default().into() });
        assert_eq!(config.origins, [OriginConfig { methods, segment_size, ..default }]);
    }

    #[test]
    fn origins_are_names_and_urls() {
        let url = "http://h/a=b".to_owned();
        assert_eq!(parse_origin("/web=http://h/a=b"), Ok(("/web".parse().unwrap(), url)));
        for text in ["http://h/", "/web", "web=http://h/"] {
            assert!(parse_origin(text).is_err(), "{text}");
        }
    }
}
