//! `weir router`.

use std::fs::File;
use std::io::Write as _;
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
    parse_metrics_address, parse_websocket_address,
};
use crate::help::{LISTENING, OUTPUT};
use crate::table::has_color;

/// Run a content router.
///
/// Without arguments, the router accepts applications on a Unix socket and other routers on UDP and
/// TCP port 6363. It stores Data in 256 MiB of memory. It runs until Ctrl-C or SIGTERM.
///
/// Faces, routes and disks are set in the configuration file. A [[disk]] extends the store: Data
/// written to a disk survives a restart or a crash.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  weir router --store 1GiB --metrics 127.0.0.1:9636\n  weir router \
                  --print-default-config > weir.toml"
)]
pub(crate) struct Args {
    /// Read this configuration file [default: ~/.config/weir/weir.toml or /etc/weir/weir.toml, if
    /// one of them exists]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print a configuration file with every key, its meaning and its default, and exit
    #[arg(long)]
    print_default_config: bool,
    /// Unix socket for applications: a path, "auto" or "none". "auto" uses /run/nfd/nfd.sock if it
    /// can be created, otherwise a path of this user that `weir` also looks for [default: auto]
    #[arg(long, value_name = "PATH", help_heading = LISTENING)]
    unix: Option<UnixChoice>,
    /// Listen for UDP peers at this address, such as 192.0.2.1:6363, or "none". May be repeated
    /// [default: port 6363 of all addresses]
    #[arg(long, value_name = "ADDR", value_parser = parse_listen, help_heading = LISTENING)]
    udp: Vec<Listen>,
    /// Listen for TCP peers at this address, such as 192.0.2.1:6363, or "none". May be repeated
    /// [default: port 6363 of all addresses]
    #[arg(long, value_name = "ADDR", value_parser = parse_listen, help_heading = LISTENING)]
    tcp: Vec<Listen>,
    /// Listen for WebSockets of browsers at this address, such as 192.0.2.1:9696. May be repeated
    /// [default: none]
    #[arg(long, value_name = "ADDR", value_parser = parse_websocket_address,
        help_heading = LISTENING)]
    websocket: Vec<SocketAddr>,
    /// Memory of the content store, such as 1GiB. 0 turns it off [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = crate::quantity::size)]
    store: Option<Size>,
    /// Always an error, which explains how to configure a disk.
    #[arg(long, hide = true, value_name = "PATH", value_parser = no_disk_flag)]
    disk: Option<PathBuf>,
    /// Number of worker threads, 1 to 64, or "auto": half the number of processors, at most 8, or 1
    /// with disks [default: auto]
    #[arg(long, value_name = "N")]
    threads: Option<Threads>,
    /// Serve Prometheus metrics at http://ADDR/metrics, such as 127.0.0.1:9636. Use loopback or a
    /// trusted network [default: off]
    #[arg(long, value_name = "ADDR", value_parser = parse_metrics_address)]
    metrics: Option<SocketAddr>,
    /// Profile the router by sampling, and write a CSV file (function, percent, samples) when it
    /// stops [default: off]
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Print the ready line as a JSON object, and log in JSON
    #[arg(long, help_heading = OUTPUT)]
    json: bool,
}

/// The value of `--udp` or `--tcp`: an address, or `none`.
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
    /// Overrides the configuration file with the command line.
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
        if !self.websocket.is_empty() {
            config.faces.websocket = self.websocket.clone();
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

/// Rejects `--disk` with the lines to write into the configuration file.
fn no_disk_flag(path: &str) -> Result<PathBuf, String> {
    Err(format!(
        "set disks in the configuration file (-c FILE):\n\n[[disk]]\npath = {path:?}\nsize = \
         \"10GiB\"\n\nfor all keys, see weir router --print-default-config"
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
        tracing::info!(path = %path.display(), "read the configuration");
    }
    let profile = args.profile.as_deref().map(Profile::start).transpose()?;
    // `{error}` already includes the causes; a chain would print them twice.
    let router = Runtime::start(config.to_runtime()?)
        .map_err(|error| anyhow::anyhow!("the router cannot start: {error}"))?;
    let agent = config.controller.agent(router.listening(), config.rates_bps())?;
    // The agent stops when it is dropped, so it lives as long as the router.
    let _agent = agent
        .map(|agent| Agent::start(agent, &router))
        .transpose()
        .map_err(|error| anyhow::anyhow!("[controller]: {error}"))?;
    print(&ready_line(router.listening(), router.metrics_address(), args.json))?;
    router.wait()?;
    profile.map_or(Ok(()), Profile::finish)
}

/// Samples per second of processor time. Many kernels take fewer.
const PROFILE_RATE_HZ: u32 = 1000;

/// A running profile and the file that it goes to.
struct Profile {
    profiler: Profiler,
    file: File,
    path: PathBuf,
}

impl Profile {
    /// Creates the file first, so that an unwritable path fails now and not after the measurement.
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

/// Functions as CSV. Names are quoted, as they may contain commas.
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
        Ok(filter) if !filter.is_empty() => EnvFilter::try_new(&filter).with_context(|| {
            format!("RUST_LOG is `{filter}`; set it to a level such as `debug`")
        })?,
        _ => EnvFilter::try_new(&log.level.0)?,
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(has_color())
        .with_writer(std::io::stderr)
        // On a write error, the log would print a message to standard error and panic. A closed
        // terminal must not end the router.
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
        [] => "weir router is ready; it has no listeners".to_owned(),
        listening => format!("weir router is ready at {}", listening.join(", ")),
    };
    if let Some(metrics) = metrics {
        line.push_str("; metrics at ");
        line.push_str(&metrics);
    }
    line
}

/// Prints a line and flushes it, so that a script that waits for the line gets it immediately.
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
            "--websocket",
            "192.0.2.1",
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
        assert_eq!(config.faces.websocket, ["192.0.2.1:9696".parse().unwrap()]);
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
