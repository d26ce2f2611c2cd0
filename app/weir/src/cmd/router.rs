//! `weir router`.

use std::fs::File;
use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process;

use anyhow::Context;
use tracing_subscriber::EnvFilter;
use weir_agent::Agent;
use weir_base::units::Size;
use weir_runtime::{FunctionSamples, Profiler, Runtime};

use crate::config::{
    FileConfig, LogFormat, LogSection, Threads, UnixChoice, default_config, parse_listen_address,
    parse_metrics_address,
};

/// Run a content router.
///
/// Without arguments it serves this machine's applications on a Unix socket that they find by
/// themselves, and peers on UDP and TCP port 6363. It runs until SIGTERM or Ctrl-C.
///
/// Disks for copies of Data, faces and routes are in the configuration file: a [[disk]] with a path
/// and a size keeps what memory has no room for, also when the router is stopped or killed.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Configuration file; default: ~/.config/weir/weir.toml or /etc/weir/weir.toml, if there
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print every configuration key with its default and meaning, and exit
    #[arg(long)]
    print_default_config: bool,
    /// Unix socket for applications: a path, "auto" or "none" [default: auto, which takes
    /// /run/nfd/nfd.sock where it may be created, else a place of this user that `weir` finds]
    #[arg(long, value_name = "PATH")]
    unix: Option<UnixChoice>,
    /// UDP address for peers, for example 0.0.0.0:6363, or "none"; may be repeated [default: port
    /// 6363 of every address of this machine]
    #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
    udp: Vec<Listen>,
    /// TCP address for peers, for example 0.0.0.0:6363, or "none"; may be repeated [default: port
    /// 6363 of every address of this machine]
    #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
    tcp: Vec<Listen>,
    /// Memory for copies of Data, for example 1GiB; 0 keeps none [default: 256MiB]
    #[arg(long, value_name = "SIZE")]
    store: Option<Size>,
    /// There is no such flag: says where disks are.
    #[arg(long, hide = true, value_name = "PATH", value_parser = no_disk_flag)]
    disk: Option<PathBuf>,
    /// Packet threads, or "auto": one for every two processors, at most 8; with disks 1 [default:
    /// auto]
    #[arg(long, value_name = "N")]
    threads: Option<Threads>,
    /// Serve Prometheus metrics at http://ADDR/metrics, for example at 127.0.0.1:9636: loopback or
    /// a trusted network only [default: off]
    #[arg(long, value_name = "ADDR", value_parser = parse_metrics_address)]
    metrics: Option<SocketAddr>,
    /// Sample where processor time goes, by function, and write function, percent and samples as
    /// CSV when the router stops; costs little [default: off]
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Say that the router is ready as a JSON object, and log in JSON
    #[arg(long)]
    json: bool,
}

/// An address to listen on, or the word that there is to be none.
#[derive(Clone, Copy)]
enum Listen {
    At(SocketAddr),
    Nowhere,
}

fn parse_listen(text: &str) -> Result<Listen, String> {
    match text {
        "none" => Ok(Listen::Nowhere),
        address => parse_listen_address(address).map(Listen::At),
    }
}

fn addresses(listens: &[Listen]) -> Vec<SocketAddr> {
    let at = listens.iter().filter_map(|listen| match listen {
        Listen::At(address) => Some(*address),
        Listen::Nowhere => None,
    });
    at.collect()
}

impl Args {
    /// Flags go before the file.
    fn apply(&self, config: &mut FileConfig) {
        if let Some(unix) = &self.unix {
            config.faces.unix = unix.clone();
        }
        if !self.udp.is_empty() {
            config.faces.udp = addresses(&self.udp);
        }
        if !self.tcp.is_empty() {
            config.faces.tcp = addresses(&self.tcp);
        }
        if let Some(size) = self.store {
            config.store.size = size;
        }
        if let Some(threads) = self.threads {
            config.router.threads = threads;
        }
        if let Some(address) = self.metrics {
            config.metrics.address = Some(address);
        }
        if self.json {
            config.log.format = LogFormat::Json;
        }
    }
}

/// Refuses a disk on the command line.
fn no_disk_flag(path: &str) -> Result<PathBuf, String> {
    Err(format!(
        "disks are in the configuration file:\n\n[[disk]]\npath = {path:?}\nsize = \"10GiB\"\n\n\
         in a file that -c FILE names; every key: weir router --print-default-config"
    ))
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    if args.print_default_config {
        return print(default_config().trim_end());
    }
    let (mut config, path) = FileConfig::load(args.config.as_deref())?;
    args.apply(&mut config);
    start_log(&config.log)?;
    if let Some(path) = path {
        tracing::info!(path = %path.display(), "configuration read");
    }
    let profile = args.profile.as_deref().map(Profile::start).transpose()?;
    // These errors tell their causes themselves.
    let router = Runtime::start(config.to_runtime()?)
        .map_err(|error| anyhow::anyhow!("the router cannot start: {error}"))?;
    let agent = config.controller.agent(router.listening(), config.rates_bps())?;
    let _agent = agent
        .map(|agent| Agent::start(agent, &router))
        .transpose()
        .map_err(|error| anyhow::anyhow!("[controller]: {error}"))?;
    print(&ready_line(router.listening(), router.metrics_address(), args.json))?;
    router.wait()?;
    profile.map_or(Ok(()), Profile::finish)
}

/// How often the router is looked at, per second of processor time; many kernels do it less often.
const PROFILE_RATE_HZ: u32 = 1000;

/// A profile that is being taken.
struct Profile {
    profiler: Profiler,
    file: File,
    path: PathBuf,
}

impl Profile {
    /// The file is made at once: that it cannot be written should not be found at the end.
    fn start(path: &Path) -> anyhow::Result<Self> {
        let file =
            File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        let profiler = Profiler::start(PROFILE_RATE_HZ).context("cannot profile")?;
        Ok(Self { profiler, file, path: path.to_path_buf() })
    }

    fn finish(mut self) -> anyhow::Result<()> {
        let text = profile_csv(&self.profiler.finish());
        let written = self.file.write_all(text.as_bytes());
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// Functions as CSV. Their names may hold commas.
fn profile_csv(functions: &[FunctionSamples]) -> String {
    let all: u64 = functions.iter().map(|row| row.samples).sum();
    let rows = functions.iter().map(|row| {
        let percent = row.samples as f64 * 100.0 / all as f64;
        format!("\"{}\",{percent:.3},{}\n", row.function.replace('"', "\"\""), row.samples)
    });
    std::iter::once("function,self_percent,samples\n".to_owned()).chain(rows).collect()
}

pub(crate) fn start_log(log: &LogSection) -> anyhow::Result<()> {
    let filter = match std::env::var(EnvFilter::DEFAULT_ENV) {
        Ok(filter) if !filter.is_empty() => EnvFilter::try_new(&filter)
            .with_context(|| format!("RUST_LOG is `{filter}`; write for example `debug`"))?,
        _ => EnvFilter::try_new(&log.level.0)?,
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        // It would report to standard error that this cannot be written to, and panic: a terminal
        // that is closed must not end a router.
        .log_internal_errors(false);
    match log.format {
        LogFormat::Text => builder.init(),
        LogFormat::Json => builder.json().init(),
    }
    Ok(())
}

fn ready_line(listening: &[String], metrics: Option<SocketAddr>, json: bool) -> String {
    let metrics = metrics.map(|address| format!("http://{address}/metrics"));
    if json {
        let ready = serde_json::json!({
            "ready": true,
            "listening": listening,
            "metrics": metrics,
            "pid": process::id(),
        });
        return ready.to_string();
    }
    let mut line = match listening {
        [] => "weir router is ready; it listens nowhere".to_owned(),
        listening => format!("weir router is ready at {}", listening.join(", ")),
    };
    if let Some(metrics) = metrics {
        line.push_str("; metrics at ");
        line.push_str(&metrics);
    }
    line
}

/// A script that reads the ready line must get it at once.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).context("cannot write to standard output")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn config_of(flags: &[&str]) -> FileConfig {
        let cli = Cli::try_parse_from([&["weir"], flags].concat()).unwrap();
        let mut config = FileConfig::default();
        cli.args.apply(&mut config);
        config
    }

    #[test]
    fn flags_override_the_file() {
        let defaults = FileConfig::default();
        assert_eq!(config_of(&[]), defaults);
        let config = config_of(&[
            "--unix",
            "/tmp/x.sock",
            "--udp",
            "127.0.0.1:7000",
            "--udp",
            "::1",
            "--tcp",
            "none",
            "--store",
            "1GiB",
            "--threads",
            "2",
            "--metrics",
            "127.0.0.1:9000",
        ]);
        assert_eq!(config.faces.unix, UnixChoice::Path("/tmp/x.sock".into()));
        let udp: Vec<String> = config.faces.udp.iter().map(ToString::to_string).collect();
        assert_eq!(udp, ["127.0.0.1:7000", "[::1]:6363"]);
        assert!(config.faces.tcp.is_empty());
        assert_eq!(config.store.size, Size { bytes: 1 << 30 });
        assert_eq!(config.router.threads, Threads::Count(2));
        assert_eq!(config.metrics.address, Some("127.0.0.1:9000".parse().unwrap()));
    }

    #[test]
    fn profile_is_valid_csv() {
        let rows = [("a::f<u8, u16>", 3), ("b", 1)]
            .map(|(function, samples)| FunctionSamples { function: function.into(), samples });
        let expected =
            "function,self_percent,samples\n\"a::f<u8, u16>\",75.000,3\n\"b\",25.000,1\n";
        assert_eq!(profile_csv(&rows), expected);
        assert_eq!(profile_csv(&[]), "function,self_percent,samples\n");
    }

    #[test]
    fn ready_line_lists_listeners() {
        let listening = ["unix:///run/nfd/nfd.sock".to_owned(), "udp4://0.0.0.0:6363".to_owned()];
        let line = ready_line(&listening, None, false);
        assert!(line.contains("unix:///run/nfd/nfd.sock, udp4://0.0.0.0:6363"), "{line}");
        let line = ready_line(&listening, Some("127.0.0.1:1".parse().unwrap()), true);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["listening"][1], "udp4://0.0.0.0:6363");
        assert_eq!(value["metrics"], "http://127.0.0.1:1/metrics");
    }
}
